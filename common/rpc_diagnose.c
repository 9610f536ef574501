/* The walk to an orchestrator, step by step, with words for every way it can end. Asked by
 * agent/link_stream.c (on its worker) and client/ after a call failed as unavailable. */
#include "common/rpc_diagnose.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
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

static int use_pem(SSL_CTX *context, const struct rpc_creds *creds)
{
    BIO *ca = BIO_new_mem_buf(creds->ca, -1);
    BIO *cert = BIO_new_mem_buf(creds->cert, -1);
    BIO *key = BIO_new_mem_buf(creds->key, -1);
    X509 *cert_x509 = PEM_read_bio_X509(cert, NULL, NULL, NULL);
    EVP_PKEY *pkey = PEM_read_bio_PrivateKey(key, NULL, NULL, NULL);
    int ok = cert_x509 && pkey && SSL_CTX_use_certificate(context, cert_x509) == 1 &&
             SSL_CTX_use_PrivateKey(context, pkey) == 1;
    X509 *one;
    while (ok && (one = PEM_read_bio_X509(ca, NULL, NULL, NULL))) {
        ok = X509_STORE_add_cert(SSL_CTX_get_cert_store(context), one) == 1;
        X509_free(one);
    }
    X509_free(cert_x509);
    EVP_PKEY_free(pkey);
    BIO_free(ca);
    BIO_free(cert);
    BIO_free(key);
    ERR_clear_error();
    return ok ? 0 : -1;
}

/* "2 h", "3 days": the size that matters, not the seconds. */
static void say_span(long long seconds, char *out, size_t size)
{
    if (seconds < 120)
        (void)snprintf(out, size, "%lld s", seconds);
    else if (seconds < 2 * 3600)
        (void)snprintf(out, size, "%lld min", seconds / 60);
    else if (seconds < 2 * 86400)
        (void)snprintf(out, size, "%lld h", seconds / 3600);
    else
        (void)snprintf(out, size, "%lld days", seconds / 86400);
}

static long long seconds_since(const ASN1_TIME *time)
{
    int days = 0, seconds = 0;
    (void)ASN1_TIME_diff(&days, &seconds, time, NULL);
    return (long long)days * 86400 + seconds;
}

static int explain_server(SSL *ssl, const struct endpoint *endpoint, long verdict, struct err *err)
{
    X509 *cert = SSL_get0_peer_certificate(ssl);
    char span[32] = "";
    switch (verdict) {
    case X509_V_ERR_CERT_NOT_YET_VALID:
        say_span(cert ? -seconds_since(X509_get0_notBefore(cert)) : 0, span, sizeof(span));
        return err_set(err, ERR_UNAVAILABLE,
                       "this machine's clock is at least %s behind the orchestrator's certificate; "
                       "set the clock (timedatectl)",
                       span);
    case X509_V_ERR_CERT_HAS_EXPIRED:
        say_span(cert ? seconds_since(X509_get0_notAfter(cert)) : 0, span, sizeof(span));
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
    char span[32];
    struct err ignored;
    if (rpc_creds_identity(creds, &identity, &not_after, &ignored) == 0 &&
        not_after <= time(NULL)) {
        say_span((long long)time(NULL) - not_after, span, sizeof(span));
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

static int handshake(SSL *ssl, const struct endpoint *endpoint, const struct rpc_creds *creds,
                     struct err *err)
{
    static const unsigned char alpn[] = { 2, 'h', '2' };
    struct in6_addr any;
    bool address = inet_pton(AF_INET, endpoint->host, &any) == 1 ||
                   inet_pton(AF_INET6, endpoint->host, &any) == 1;
    (void)SSL_set_alpn_protos(ssl, alpn, sizeof(alpn));
    if (address)
        (void)X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), endpoint->host);
    else
        (void)SSL_set1_host(ssl, endpoint->host);
    if (!address)
        (void)SSL_set_tlsext_host_name(ssl, endpoint->host);
    errno = 0;
    int r = SSL_connect(ssl);
    long verdict = SSL_get_verify_result(ssl);
    if (verdict != X509_V_OK)
        return explain_server(ssl, endpoint, verdict, err);
    if (r != 1 && errno == EAGAIN && !ERR_peek_error())
        return err_set(err, ERR_UNAVAILABLE,
                       "%s port %s accepts connections but does not answer; is it an orchestrator?",
                       endpoint->host, endpoint->port);
    if (r != 1) {
        unsigned long code = ERR_peek_error();
        if (code && ERR_GET_REASON(code) >= SSL_AD_REASON_OFFSET)
            return explain_refusal(creds, code, err);
        return err_set(err, ERR_UNAVAILABLE,
                       "%s port %s does not speak TLS as an orchestrator does (%s); is it another "
                       "program's port?",
                       endpoint->host, endpoint->port,
                       code ? ERR_reason_error_string(code) : "connection closed");
    }
    /* In TLS 1.3 the server judges our certificate after our handshake is done: an accepted peer
     * gets HTTP/2 settings, a refused one an alert. */
    char byte;
    if (SSL_read(ssl, &byte, 1) == 1)
        return 0;
    return explain_refusal(creds, ERR_peek_error(), err);
}

/* OpenSSL writes without MSG_NOSIGNAL, and a library may not change how its host treats signals: a
 * SIGPIPE of ours is blocked and taken back. */
static void block_sigpipe(sigset_t *ret_before, bool *ret_pending)
{
    sigset_t pipe_only, pending;
    (void)sigemptyset(&pipe_only);
    (void)sigaddset(&pipe_only, SIGPIPE);
    (void)sigpending(&pending);
    *ret_pending = sigismember(&pending, SIGPIPE) == 1;
    (void)pthread_sigmask(SIG_BLOCK, &pipe_only, ret_before);
}

static void unblock_sigpipe(const sigset_t *before, bool was_pending)
{
    sigset_t pipe_only;
    const struct timespec now = { 0 };
    (void)sigemptyset(&pipe_only);
    (void)sigaddset(&pipe_only, SIGPIPE);
    if (!was_pending)
        (void)sigtimedwait(&pipe_only, NULL, &now);
    (void)pthread_sigmask(SIG_SETMASK, before, NULL);
}

int rpc_diagnose(const char *text, const struct rpc_creds *creds, int timeout_ms, struct err *err)
{
    struct endpoint endpoint;
    CLEANUP_FD int fd = -1;
    if (endpoint_parse(text, &endpoint, err) < 0 ||
        connect_tcp(&endpoint, timeout_ms, &fd, err) < 0)
        return -1;
    ERR_clear_error();
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (!context)
        return err_nomem(err);
    sigset_t before;
    bool pending;
    block_sigpipe(&before, &pending);
    int r;
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (use_pem(context, creds) < 0) {
        r = err_set(err, ERR_INVALID, "our certificate, key or CA file cannot be used");
    } else {
        SSL *ssl = SSL_new(context);
        r = ssl && SSL_set_fd(ssl, fd) == 1 ? handshake(ssl, &endpoint, creds, err)
                                            : err_nomem(err);
        SSL_free(ssl);
    }
    SSL_CTX_free(context);
    unblock_sigpipe(&before, pending);
    ERR_clear_error();
    return r;
}
