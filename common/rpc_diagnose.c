/* The walk to an orchestrator, step by step, with words for every way it can end. Asked by
 * agent/link_stream.c (on its worker) and client/ after a call failed as unavailable, and by
 * common/http_client.c. Next: common/tls_client.c for whom we believe. */
#include "common/rpc_diagnose.h"

#include "common/clock.h"
#include "common/tls_client.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

int endpoint_parse(const char *text, struct endpoint *ret, struct err *err)
{
    const char *colon = strrchr(text, ':');
    const char *host = text, *host_end = colon;
    if (*text == '[') {
        host = text + 1;
        host_end = strchr(text, ']');
        if (!host_end || host_end + 1 != colon)
            colon = NULL;
    } else if (colon && memchr(text, ':', (size_t)(colon - text))) {
        colon = NULL; /* an IPv6 address without brackets */
    }
    size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;
    if (!colon || host_end == host || (size_t)(host_end - host) > ENDPOINT_HOST_MAX ||
        digits == 0 || digits > 5 || colon[1 + digits] || strtoul(colon + 1, NULL, 10) > 65535)
        return err_set(err, ERR_INVALID,
                       "\"%.200s\" is not an endpoint; write HOST:PORT, for example "
                       "orchestrator.example.com:5000 or [::1]:5000",
                       text);
    (void)snprintf(ret->host, sizeof(ret->host), "%.*s", (int)(host_end - host), host);
    (void)snprintf(ret->port, sizeof(ret->port), "%s", colon + 1);
    return 0;
}

int endpoint_next(const char *text, char *ret, size_t size, struct err *err)
{
    struct endpoint endpoint;
    if (endpoint_parse(text, &endpoint, err) < 0)
        return -1;
    unsigned long port = strtoul(endpoint.port, NULL, 10) + 1;
    const char *colon = strchr(endpoint.host, ':');
    if (port > 65535)
        return err_set(err, ERR_INVALID, "there is no port after %s; name the HTTPS front itself",
                       endpoint.port);
    (void)snprintf(ret, size, "%s%s%s:%lu", colon ? "[" : "", endpoint.host, colon ? "]" : "",
                   port);
    return 0;
}

/* TCP. */

static int connect_one(const struct addrinfo *address, int timeout_ms)
{
    CLEANUP_FD int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, address->ai_addr, address->ai_addrlen) < 0) {
        if (errno != EINPROGRESS)
            return -1;
        struct pollfd wait = { .fd = fd, .events = POLLOUT };
        int error = ETIMEDOUT;
        socklen_t size = sizeof(error);
        if (poll(&wait, 1, timeout_ms) == 1)
            (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error) {
            errno = error;
            return -1;
        }
    }
    const struct timeval limit = { timeout_ms / 1000, timeout_ms % 1000 * 1000 };
    if (fcntl(fd, F_SETFL, 0) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0)
        return -1;
    return TAKE_FD(fd);
}

static int connect_tcp(const struct endpoint *endpoint, int timeout_ms, int *ret, struct err *err)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct addrinfo *addresses;
    int r = getaddrinfo(endpoint->host, endpoint->port, &hints, &addresses);
    if (r)
        return err_set(err, ERR_UNAVAILABLE,
                       "cannot find the address of \"%s\" (%s); check the endpoint and DNS",
                       endpoint->host, gai_strerror(r));
    int fd = -1, error = 0;
    for (const struct addrinfo *one = addresses; one && fd < 0; one = one->ai_next) {
        fd = connect_one(one, timeout_ms);
        error = errno;
    }
    freeaddrinfo(addresses);
    if (fd < 0 && error == ECONNREFUSED)
        return err_set(err, ERR_UNAVAILABLE,
                       "nothing is listening on %s port %s; is the orchestrator running there?",
                       endpoint->host, endpoint->port);
    if (fd < 0)
        return err_set(err, ERR_UNAVAILABLE,
                       "cannot reach %s port %s (%s); check the endpoint, routes and firewalls",
                       endpoint->host, endpoint->port, strerror(error));
    *ret = fd;
    return 0;
}

/* TLS. */

static int use_pair(SSL_CTX *context, const struct rpc_creds *creds, struct err *err)
{
    BIO *cert = BIO_new_mem_buf(creds->cert, -1);
    BIO *key = BIO_new_mem_buf(creds->key, -1);
    X509 *cert_x509 = cert ? PEM_read_bio_X509(cert, NULL, NULL, NULL) : NULL;
    EVP_PKEY *pkey = key ? PEM_read_bio_PrivateKey(key, NULL, NULL, NULL) : NULL;
    int ok = cert_x509 && pkey && SSL_CTX_use_certificate(context, cert_x509) == 1 &&
             SSL_CTX_use_PrivateKey(context, pkey) == 1;
    X509_free(cert_x509);
    EVP_PKEY_free(pkey);
    BIO_free(cert);
    BIO_free(key);
    ERR_clear_error();
    return ok ? 0 : err_set(err, ERR_INVALID, "our certificate or key file cannot be used");
}

static int64_t seconds_since(const ASN1_TIME *time)
{
    int days = 0, seconds = 0;
    (void)ASN1_TIME_diff(&days, &seconds, time, NULL);
    return (int64_t)days * 86400 + seconds;
}

/* The certificate that did not pass, the server's or a CA's: after a failed handshake OpenSSL has
 * forgotten it. */
static int on_verify(int ok, X509_STORE_CTX *store)
{
    SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    X509 **refused = SSL_get_app_data(ssl);
    X509 *cert = X509_STORE_CTX_get_current_cert(store);
    if (!ok && !*refused && cert && X509_up_ref(cert) == 1)
        *refused = cert;
    return ok;
}

static int explain_server(const X509 *cert, const struct endpoint *endpoint, long verdict,
                          struct err *err)
{
    char span[CLOCK_SPAN_TEXT_MAX] = "";
    switch (verdict) {
    case X509_V_ERR_CERT_NOT_YET_VALID:
        clock_span_text(cert ? -seconds_since(X509_get0_notBefore(cert)) : 0, span);
        return err_set(err, ERR_UNAVAILABLE,
                       "this machine's clock is at least %s behind the orchestrator's certificate; "
                       "set the clock (timedatectl)",
                       span);
    case X509_V_ERR_CERT_HAS_EXPIRED:
        clock_span_text(cert ? seconds_since(X509_get0_notAfter(cert)) : 0, span);
        return err_set(err, ERR_UNAVAILABLE,
                       "the orchestrator's certificate expired %s ago, or this machine's clock is "
                       "that far ahead; check the clock first (timedatectl), then renew it",
                       span);
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return err_set(err, ERR_UNAVAILABLE,
                       "the orchestrator's certificate is not for \"%s\"; use a name it is for, or "
                       "run 'sandstorm-orchestrator init' with --name %s",
                       endpoint->host, endpoint->host);
    default:
        return err_set(err, ERR_UNAUTHENTICATED,
                       "the orchestrator at %s port %s is not signed by our CA (%s); is ca.pem the "
                       "one of this orchestrator?",
                       endpoint->host, endpoint->port, X509_verify_cert_error_string(verdict));
    }
}

static int explain_refusal(const struct rpc_creds *creds, unsigned long code, struct err *err)
{
    struct identity identity;
    int64_t not_after;
    char span[CLOCK_SPAN_TEXT_MAX];
    struct err ignored;
    if (rpc_creds_identity(creds, &identity, &not_after, &ignored) == 0 &&
        not_after <= time(NULL)) {
        clock_span_text((int64_t)time(NULL) - not_after, span);
        return err_set(err, ERR_UNAUTHENTICATED,
                       "our certificate (%s \"%s\") expired %s ago; get a new one, or check this "
                       "machine's clock",
                       identity_kind_name(identity.kind), identity.name, span);
    }
    return err_set(err, ERR_UNAUTHENTICATED,
                   "the orchestrator refused our certificate (%s); it must be signed by that "
                   "orchestrator's CA",
                   code ? ERR_reason_error_string(code) : "connection closed");
}

/* ALPN, as it is on the wire. */
static const unsigned char alpn_grpc[] = "\2h2";
static const unsigned char alpn_http[] = "\10http/1.1";

/* `creds` is NULL where we show no certificate. */
static int handshake(SSL *ssl, const struct endpoint *endpoint, const struct rpc_creds *creds,
                     struct err *err)
{
    const unsigned char *alpn = creds ? alpn_grpc : alpn_http;
    (void)SSL_set_alpn_protos(ssl, alpn, alpn[0] + 1u);
    if (!tls_client_is_address(endpoint->host))
        (void)SSL_set_tlsext_host_name(ssl, endpoint->host);
    X509 *refused = NULL;
    (void)SSL_set_app_data(ssl, &refused);
    SSL_set_verify(ssl, SSL_get_verify_mode(ssl), on_verify);
    errno = 0;
    int r = SSL_connect(ssl);
    long verdict = SSL_get_verify_result(ssl);
    if (SSL_get_verify_mode(ssl) != SSL_VERIFY_NONE && verdict != X509_V_OK) {
        r = explain_server(refused, endpoint, verdict, err);
        X509_free(refused);
        return r;
    }
    X509_free(refused);
    if (r != 1 && errno == EAGAIN && !ERR_peek_error())
        return err_set(err, ERR_UNAVAILABLE,
                       "%s port %s accepts connections but does not answer; is it an orchestrator?",
                       endpoint->host, endpoint->port);
    if (r != 1) {
        unsigned long code = ERR_peek_error();
        if (code && ERR_GET_REASON(code) == SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL)
            return err_set(err, ERR_UNAVAILABLE,
                           "%s port %s is for other things, such as enrolment and login (HTTPS); "
                           "agents and clients use the port before it, if nobody has changed that",
                           endpoint->host, endpoint->port);
        if (creds && code && ERR_GET_REASON(code) >= SSL_AD_REASON_OFFSET)
            return explain_refusal(creds, code, err);
        return err_set(err, ERR_UNAVAILABLE,
                       "%s port %s does not speak TLS as an orchestrator does (%s); is it another "
                       "program's port?",
                       endpoint->host, endpoint->port,
                       code ? ERR_reason_error_string(code) : "connection closed");
    }
    if (!creds)
        return 0;
    /* In TLS 1.3 the server judges our certificate after our handshake is done: an accepted peer
     * gets HTTP/2 settings, a refused one an alert. */
    char byte;
    if (SSL_read(ssl, &byte, 1) == 1)
        return 0;
    return explain_refusal(creds, ERR_peek_error(), err);
}

static int walk(const char *text, const char *ca_pem, const struct rpc_creds *creds, int timeout_ms,
                struct err *err)
{
    struct endpoint endpoint;
    CLEANUP_FD int fd = -1;
    CLEANUP_SSL_CTX SSL_CTX *context = NULL;
    if (endpoint_parse(text, &endpoint, err) < 0 ||
        connect_tcp(&endpoint, timeout_ms, &fd, err) < 0 ||
        tls_client_context(&endpoint, ca_pem, &context, err) < 0 ||
        (creds && use_pair(context, creds, err) < 0))
        return -1;
    struct sigpipe_guard guard;
    sigpipe_block(&guard);
    SSL *ssl = SSL_new(context);
    int r =
        ssl && SSL_set_fd(ssl, fd) == 1 ? handshake(ssl, &endpoint, creds, err) : err_nomem(err);
    SSL_free(ssl);
    sigpipe_unblock(&guard);
    ERR_clear_error();
    return r;
}

int rpc_diagnose(const char *endpoint, const struct rpc_creds *creds, int timeout_ms,
                 struct err *err)
{
    return walk(endpoint, creds->ca, creds, timeout_ms, err);
}

int tls_diagnose(const char *endpoint, const char *ca_pem, int timeout_ms, struct err *err)
{
    return walk(endpoint, ca_pem, NULL, timeout_ms, err);
}
