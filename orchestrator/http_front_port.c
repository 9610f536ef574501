/* The port of the HTTP front: its socket, its certificate, and who may come in. Accepts connections
 * by itself, since the listener of lws spins when the process is out of descriptors and knows
 * nothing of sources; hands each to lws, which does TLS and HTTP (next: orchestrator/http_front.c).
 */
#include "common/cert.h"
#include "common/clock.h"
#include "common/rpc_diagnose.h"
#include "orchestrator/http_front-internal.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <string.h>

/* Forward secret and authenticated encryption, as all of TLS 1.3 is. */
#define TLS_1_2_CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"
#define ACCEPT_BATCH    32u
#define ACCEPT_PAUSE_US 100000 /* when the process is out of descriptors */

/* The socket. */

static int listen_err(const char *text, int errnum, struct err *err)
{
    const char *advice = "check `listen` in the configuration";
    if (errnum == EADDRINUSE)
        advice = "another program uses that port; stop it, or choose another port";
    else if (errnum == EADDRNOTAVAIL)
        advice = "this machine does not have that address; choose one of its own, or [::] for all";
    else if (errnum == EAFNOSUPPORT)
        advice = "this machine has no IPv6; listen on 0.0.0.0 instead";
    else if (errnum == EACCES)
        advice = "ports below 1024 need CAP_NET_BIND_SERVICE; choose a higher one";
    char reason[128];
    return err_set(err, ERR_UNAVAILABLE, "cannot listen on %s: %s; %s", text,
                   strerror_r(errnum, reason, sizeof(reason)), advice);
}

/* -1 with errno. */
static int open_listener(const struct addrinfo *address)
{
    CLEANUP_FD int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1, off = 0;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        (address->ai_family == AF_INET6 &&
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) < 0) ||
        bind(fd, address->ai_addr, address->ai_addrlen) < 0 || listen(fd, SOMAXCONN) < 0)
        return -1;
    return TAKE_FD(fd);
}

int http_port_listen(const char *text, int *ret_fd, int *ret_port, struct err *err)
{
    struct endpoint endpoint;
    if (endpoint_parse(text, &endpoint, err) < 0)
        return -1;
    const struct addrinfo hints = { .ai_flags = AI_PASSIVE | AI_NUMERICSERV,
                                    .ai_socktype = SOCK_STREAM };
    struct addrinfo *found = NULL;
    int r = getaddrinfo(endpoint.host, endpoint.port, &hints, &found);
    if (r)
        return err_set(err, ERR_UNAVAILABLE,
                       "cannot listen on %s: %s; name an address of this machine, or [::] for all",
                       text, gai_strerror(r));
    CLEANUP_FD int fd = open_listener(found);
    int errnum = errno;
    freeaddrinfo(found);
    if (fd < 0)
        return listen_err(text, errnum, err);
    char service[NI_MAXSERV];
    struct sockaddr_storage bound;
    socklen_t size = sizeof(bound);
    if (getsockname(fd, (struct sockaddr *)&bound, &size) < 0 ||
        getnameinfo((struct sockaddr *)&bound, size, NULL, 0, service, sizeof(service),
                    NI_NUMERICSERV))
        return err_errno(err, errno, "cannot learn the port of %s", text);
    *ret_port = (int)strtol(service, NULL, 10);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* TLS. */

/* Our certificate, and those that lead from it to the one that clients know. */
static int use_certificates(SSL_CTX *context, const char *text)
{
    CLEANUP_BIO BIO *pem = BIO_new_mem_buf(text, -1);
    bool first = true;
    for (;;) {
        CLEANUP_X509 X509 *cert = pem ? PEM_read_bio_X509(pem, NULL, NULL, NULL) : NULL;
        if (!cert)
            break;
        if (first ? SSL_CTX_use_certificate(context, cert) != 1
                  : SSL_CTX_add1_chain_cert(context, cert) != 1)
            return -1;
        first = false;
    }
    /* The end of the text is an error to OpenSSL, and the only one that is none. */
    if (first || ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
        return -1;
    ERR_clear_error();
    return 0;
}

/* RFC 7301, 3.2: who offers other protocols alone is told so, and does not get one that it would
 * not understand. lws would go on without a word. */
static int select_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_size,
                           const unsigned char *offered, unsigned size, void *userdata)
{
    static const unsigned char ours[] = "\x08http/1.1";
    unsigned char *chosen;
    (void)ssl;
    (void)userdata;
    if (SSL_select_next_proto(&chosen, out_size, ours, sizeof(ours) - 1, offered, size) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

void http_port_tls_settle(SSL_CTX *context)
{
    SSL_CTX_set_alpn_select_cb(context, select_protocol, NULL);
}

int http_port_tls(SSL_CTX *context, const char *cert_pem, const char *key_pem, struct err *err)
{
    ERR_clear_error();
    /* Every connection is one request, so nothing is remembered for a next one. lws has settled on
     * one curve; these are those that clients offer first. */
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                     SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
    (void)SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
    if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_num_tickets(context, 0) != 1 ||
        SSL_CTX_set_cipher_list(context, TLS_1_2_CIPHERS) != 1 ||
        SSL_CTX_set1_groups_list(context, "X25519:P-256:P-384") != 1)
        return cert_openssl_err(err, ERR_INTERNAL, "cannot set up TLS");
    if (use_certificates(context, cert_pem) < 0)
        return cert_openssl_err(err, ERR_INVALID, "the server's certificate cannot be used");
    CLEANUP_KEY EVP_PKEY *key = NULL;
    if (cert_pem_to_key(key_pem, strlen(key_pem), &key, err) < 0)
        return err_wrap(err, "the server's key cannot be used");
    if (SSL_CTX_use_PrivateKey(context, key) != 1 || SSL_CTX_check_private_key(context) != 1)
        return cert_openssl_err(err, ERR_INVALID,
                                "the server's key cannot be used, or is not the certificate's");
    return 0;
}

/* Connections. */

static void connection_new(struct http_front *front, int fd, const struct sockaddr_storage *peer)
{
    CLEANUP_FD int socket = fd;
    CLEANUP_FREE struct http_connection *fresh = calloc(1, sizeof(*fresh));
    if (!fresh || front->connections >= HTTP_CONNECTIONS_MAX ||
        !http_sources_enter(front->sources, (const struct sockaddr *)peer, HTTP_PER_SOURCE_MAX,
                            monotonic_us()))
        return;
    struct http_connection *connection = TAKE_PTR(fresh);
    connection->front = front;
    connection->peer = *peer;
    front->connections++;
    const int on = 1;
    (void)setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    /* lws closes the socket when it does not take it, and may or may not have told us of its end:
     * what is still in `adopting` then is ours to free. */
    front->adopting = connection;
    const lws_adopt_desc_t desc = { .vh = front->vhost,
                                    .type = LWS_ADOPT_SOCKET | LWS_ADOPT_HTTP | LWS_ADOPT_ALLOW_SSL,
                                    .fd.sockfd = TAKE_FD(socket),
                                    .opaque = connection };
    struct lws *wsi = lws_adopt_descriptor_vhost_via_info(&desc);
    connection = TAKE_PTR(front->adopting);
    if (!wsi)
        http_connection_free(connection);
    else if (connection)
        /* Handshake and headers: the timeouts of lws start anew with bytes that trickle. */
        lws_set_timer_usecs(wsi, 2 * HTTP_IDLE_S * LWS_US_PER_SEC);
}

void http_connection_free(struct http_connection *connection)
{
    if (!connection)
        return;
    struct http_front *front = connection->front;
    if (front->adopting == connection)
        front->adopting = NULL;
    front->connections--;
    http_sources_leave(front->sources, (struct sockaddr *)&connection->peer, monotonic_us());
    /* A route has it: it comes back through the mailbox. */
    if (connection->exchange && connection->stage == HTTP_STAGE_ROUTE)
        connection->exchange->connection = NULL;
    else
        http_exchange_free(connection->exchange);
    free(connection->answer);
    free(connection);
}

static void accept_resume(lws_sorted_usec_list_t *timer)
{
    struct http_front *front = CONTAINER_OF(timer, struct http_front, accept_again);
    (void)lws_rx_flow_control(front->listener, 1);
}

void http_port_accept(struct http_front *front, int listener)
{
    for (unsigned i = 0; i < ACCEPT_BATCH; i++) {
        struct sockaddr_storage peer = { 0 };
        socklen_t size = sizeof(peer);
        int fd = accept4(listener, (struct sockaddr *)&peer, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            connection_new(front, fd, &peer);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            /* The listener stays readable, so looking away is the only way not to spin. */
            (void)lws_rx_flow_control(front->listener, 0);
            lws_sul_schedule(front->context, 0, &front->accept_again, accept_resume,
                             ACCEPT_PAUSE_US);
            return;
        } else if (errno == EAGAIN) {
            return;
        }
        /* Everything else is a connection that died before we looked; see accept(2). */
    }
}
