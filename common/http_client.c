/* Owns one request: a libwebsockets context for it alone, the copy of its body, the answer as it
 * comes in, and the deadline. common/front_client.c hands it requests and gets answers. TLS is
 * decided by our own OpenSSL context and before the first byte of HTTP is sent: libwebsockets 4.1
 * checks no names of the form of an IPv6 address, and believes the CAs of the system beside ours.
 * Next: common/tls_client.c for whom we believe, common/rpc_diagnose.c for why it failed. */
#include "common/http_client.h"

#include "common/clock.h"
#include "common/tls_client.h"

#include <assert.h>
#include <libwebsockets.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define HTTP_LWS_MARGIN_S                                                                          \
    60 /* beyond our deadline; libwebsockets' own never comes first                                \
        */
#define HTTP_DIAGNOSE_MIN_MS 50
#define HTTP_CHUNK           4096u
#define HTTP_FDS             8u /* one socket, and what libwebsockets needs itself */
#define HTTP_REASON_MAX      96u
#define HTTP_SERVICE_BUFFER  (16u * 1024)

enum http_step {
    STEP_CONNECT, /* name, TCP, TLS */
    STEP_ANSWER,  /* the server is who it should be; the request is on its way or sent */
    STEP_DONE,
};

struct exchange {
    const struct http_request *request;
    struct endpoint endpoint;
    char host_header[ENDPOINT_HOST_MAX + 16];
    SSL_CTX *tls;
    unsigned char *out; /* LWS_PRE bytes for libwebsockets, and the body */
    size_t out_size;
    struct lws_context *context;
    struct lws *wsi; /* NULL when it is gone */
    lws_sorted_usec_list_t deadline;
    uint64_t end_us;
    enum http_step step;
    bool over, late, too_large, no_memory;
    char reason[HTTP_REASON_MAX]; /* libwebsockets' words, where it has some */
    struct http_answer answer;
    size_t capacity;
};

void http_answer_done(struct http_answer *answer)
{
    if (answer->body)
        OPENSSL_cleanse(answer->body, answer->size);
    free(answer->body);
    *answer = (struct http_answer){ 0 };
}

static void exchange_done(struct exchange *exchange)
{
    if (exchange->out)
        OPENSSL_cleanse(exchange->out, LWS_PRE + exchange->out_size);
    free(exchange->out);
    SSL_CTX_free(exchange->tls);
    http_answer_done(&exchange->answer);
}
#define CLEANUP_EXCHANGE CLEANUP(exchange_done)

static void on_deadline(lws_sorted_usec_list_t *sul)
{
    struct exchange *exchange = CONTAINER_OF(sul, struct exchange, deadline);
    exchange->late = exchange->over = true;
    /* libwebsockets runs its timers before it waits, not after. */
    lws_cancel_service(exchange->context);
}

/* The last gate before HTTP: OpenSSL has judged already, in the handshake, and libwebsockets should
 * have ended there; a secret is not sent on "should". */
static int check_peer(struct exchange *exchange, struct lws *wsi)
{
    SSL *ssl = lws_get_ssl(wsi);
    if (!ssl || !SSL_is_init_finished(ssl))
        return -1;
    if (exchange->request->ca_pem &&
        (SSL_get_verify_result(ssl) != X509_V_OK || !SSL_get0_peer_certificate(ssl)))
        return -1;
    exchange->step = STEP_ANSWER;
    return 0;
}

static int add_headers(struct exchange *exchange, struct lws *wsi, unsigned char **p, size_t room)
{
    static const char type[] = "application/json";
    unsigned char *end = *p + room;
    if (!exchange->request->body)
        return 0;
    if (lws_add_http_header_by_token(wsi, WSI_TOKEN_HTTP_CONTENT_TYPE, (const unsigned char *)type,
                                     (int)strlen(type), p, end) ||
        lws_add_http_header_content_length(wsi, exchange->out_size, p, end))
        return -1;
    lws_client_http_body_pending(wsi, 1);
    (void)lws_callback_on_writable(wsi);
    return 0;
}

static int send_body(struct exchange *exchange, struct lws *wsi)
{
    if (!exchange->out)
        return 0;
    lws_client_http_body_pending(wsi, 0);
    /* What the socket does not take now libwebsockets keeps and sends by itself. */
    int n = lws_write(wsi, exchange->out + LWS_PRE, exchange->out_size, LWS_WRITE_HTTP_FINAL);
    return n < 0 ? -1 : 0;
}

static int keep(struct exchange *exchange, const char *data, size_t size)
{
    struct http_answer *answer = &exchange->answer;
    if (size > HTTP_ANSWER_MAX - answer->size) {
        exchange->too_large = true;
        return -1;
    }
    size_t wanted = answer->size + size + 1;
    if (wanted > exchange->capacity) {
        size_t capacity = MAX(wanted, MIN(exchange->capacity * 2, HTTP_ANSWER_MAX + 1));
        char *grown = realloc(answer->body, capacity);
        if (!grown) {
            exchange->no_memory = true;
            return -1;
        }
        answer->body = grown;
        exchange->capacity = capacity;
    }
    if (size)
        (void)memcpy(answer->body + answer->size, data, size);
    answer->size += size;
    answer->body[answer->size] = '\0';
    return 0;
}

/* Makes libwebsockets read; the bytes come back as LWS_CALLBACK_RECEIVE_CLIENT_HTTP_READ. */
static int pump(struct lws *wsi)
{
    char chunk[LWS_PRE + HTTP_CHUNK];
    char *start = chunk + LWS_PRE;
    int size = HTTP_CHUNK;
    return lws_http_client_read(wsi, &start, &size) < 0 ? -1 : 0;
}

static void end(struct exchange *exchange, const char *reason, size_t size)
{
    if (reason && size)
        (void)snprintf(exchange->reason, sizeof(exchange->reason), "%.*s", (int)MIN(size, 90u),
                       reason);
    exchange->wsi = NULL;
    exchange->over = true;
}

/* A result other than 0 closes the connection. */
static int on_event(struct lws *wsi, enum lws_callback_reasons event, void *user, void *in,
                    size_t size)
{
    struct lws_context *context = lws_get_context(wsi);
    struct exchange *exchange = context ? lws_context_user(context) : NULL;
    if (!exchange)
        return 0;
    switch (event) {
    case LWS_CALLBACK_OPENSSL_PERFORM_SERVER_CERT_VERIFICATION:
        /* Here `user` is OpenSSL's: the documented way to accept a server whoever it is. */
        if (!exchange->request->ca_pem)
            X509_STORE_CTX_set_error(user, X509_V_OK);
        return 0;
    case LWS_CALLBACK_CLIENT_APPEND_HANDSHAKE_HEADER:
        return check_peer(exchange, wsi) < 0 ? -1 : add_headers(exchange, wsi, in, size);
    case LWS_CALLBACK_CLIENT_HTTP_WRITEABLE:
        return send_body(exchange, wsi);
    case LWS_CALLBACK_ESTABLISHED_CLIENT_HTTP:
        exchange->answer.status = (int)lws_http_client_http_response(wsi);
        return 0;
    case LWS_CALLBACK_RECEIVE_CLIENT_HTTP:
        return pump(wsi);
    case LWS_CALLBACK_RECEIVE_CLIENT_HTTP_READ:
        return keep(exchange, in, size);
    case LWS_CALLBACK_COMPLETED_CLIENT_HTTP:
        exchange->step = STEP_DONE;
        exchange->over = true;
        return -1;
    case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
        end(exchange, in, in ? size : 0);
        return 0;
    case LWS_CALLBACK_CLOSED_CLIENT_HTTP:
        end(exchange, NULL, 0);
        return 0;
    default:
        return 0;
    }
}

static const struct lws_protocols protocols[] = { { .name = "http", .callback = on_event },
                                                  { .name = NULL } };

static void quiet(void)
{
    lws_set_log_level(0, NULL);
}

/* Making a context sets SIGPIPE to ignored for the whole process and for everything it starts; that
 * is the host's to decide, so it is put back. One at a time, or one would put back what the other
 * has just set. */
static struct lws_context *context_new(struct exchange *exchange)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    (void)pthread_once(&once, quiet);
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN,
        /* Without LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT, which would change an index that the
         * connections of every other context in this process use. */
        .options = LWS_SERVER_OPTION_EXPLICIT_VHOSTS,
        .user = exchange,
        .fd_limit_per_thread = HTTP_FDS,
        .pt_serv_buf_size = HTTP_SERVICE_BUFFER,
    };
    struct sigaction before;
    (void)pthread_mutex_lock(&one_at_a_time);
    (void)sigaction(SIGPIPE, NULL, &before);
    struct lws_context *context = lws_create_context(&info);
    (void)sigaction(SIGPIPE, &before, NULL);
    (void)pthread_mutex_unlock(&one_at_a_time);
    return context;
}

static int start(struct exchange *exchange, struct lws_context *context, struct err *err)
{
    const struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN,
        .options = LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT | LWS_SERVER_OPTION_DISABLE_OS_CA_CERTS,
        .vhost_name = "client",
        .protocols = protocols,
        .provided_client_ssl_ctx = exchange->tls,
        /* Empty, or $http_proxy would decide. */
        .http_proxy_address = "",
        .timeout_secs = (unsigned)(exchange->request->timeout_ms / 1000 + HTTP_LWS_MARGIN_S),
    };
    struct lws_vhost *vhost = lws_create_vhost(context, &info);
    if (!vhost)
        return err_nomem(err);
    const struct lws_client_connect_info connect = {
        .context = context,
        .vhost = vhost,
        .address = exchange->endpoint.host,
        .host = exchange->host_header,
        .port = (int)strtoul(exchange->endpoint.port, NULL, 10),
        /* The name is checked by our own TLS context. */
        .ssl_connection = LCCSCF_USE_SSL | LCCSCF_SKIP_SERVER_CERT_HOSTNAME_CHECK |
                          LCCSCF_HTTP_NO_FOLLOW_REDIRECT,
        .path = exchange->request->path,
        .method = exchange->request->body ? "POST" : "GET",
        .alpn = "http/1.1",
        .protocol = protocols[0].name,
        .pwsi = &exchange->wsi,
    };
    /* NULL means that it has failed already, and that on_event() has been told. */
    if (!lws_client_connect_via_info(&connect))
        exchange->over = true;
    return 0;
}

static int explain(struct exchange *exchange, bool connected, struct err *err)
{
    const struct http_request *request = exchange->request;
    const char *host = exchange->endpoint.host, *port = exchange->endpoint.port;
    if (exchange->no_memory)
        return err_nomem(err);
    if (exchange->too_large)
        return err_set(err, ERR_PROTOCOL,
                       "the answer of %s port %s is larger than %u bytes; is it an orchestrator?",
                       host, port, HTTP_ANSWER_MAX);
    if (exchange->late && exchange->step == STEP_CONNECT && !connected)
        return err_set(err, ERR_UNAVAILABLE,
                       "cannot reach %s port %s in %d ms; check the endpoint, routes and firewalls",
                       host, port, request->timeout_ms);
    if (exchange->late && exchange->step == STEP_CONNECT)
        return err_set(err, ERR_UNAVAILABLE,
                       "%s port %s accepts connections but does not answer; is it an orchestrator?",
                       host, port);
    if (exchange->late)
        return err_set(
            err, ERR_UNAVAILABLE,
            "the orchestrator at %s port %s did not answer in %d ms; try again, and look "
            "at its log if that does not help",
            host, port, request->timeout_ms);
    if (exchange->answer.status)
        return err_set(err, ERR_UNAVAILABLE,
                       "the connection to %s port %s ended in the middle of the answer; try again",
                       host, port);
    if (exchange->step == STEP_ANSWER)
        return err_set(err, ERR_UNAVAILABLE,
                       "%s port %s speaks TLS but sent no answer in HTTP; is it the orchestrator's "
                       "port for enrolment and login?",
                       host, port);
    uint64_t now = monotonic_us();
    int left_ms = exchange->end_us > now ? (int)((exchange->end_us - now) / 1000) : 0;
    struct err why = { 0 };
    if (tls_diagnose(request->endpoint, request->ca_pem, MAX(left_ms, HTTP_DIAGNOSE_MIN_MS), &why) <
        0)
        /* Whatever it is: it is not the orchestrator that said no, and another try may reach it. */
        return err_set(err, ERR_UNAVAILABLE, "%s", why.text);
    return err_set(err, ERR_UNAVAILABLE, "cannot connect to %s port %s (%s); try again", host, port,
                   exchange->reason[0] ? exchange->reason : "connection closed");
}

static int run(struct exchange *exchange, struct lws_context *context, struct err *err)
{
    exchange->context = context;
    lws_sul_schedule(context, 0, &exchange->deadline, on_deadline,
                     (lws_usec_t)exchange->request->timeout_ms * LWS_US_PER_MS);
    if (start(exchange, context, err) < 0)
        return -1;
    while (!exchange->over)
        if (lws_service(context, 0) < 0)
            exchange->over = true;
    bool connected = exchange->wsi && lws_get_ssl(exchange->wsi);
    lws_sul_cancel(&exchange->deadline);
    return exchange->step == STEP_DONE ? 0 : explain(exchange, connected, err);
}

static int prepare(struct exchange *exchange, struct err *err)
{
    const struct http_request *request = exchange->request;
    struct endpoint *endpoint = &exchange->endpoint;
    if (endpoint_parse(request->endpoint, endpoint, err) < 0 ||
        tls_client_context(endpoint, request->ca_pem, &exchange->tls, err) < 0 ||
        keep(exchange, NULL, 0) < 0)
        return exchange->no_memory ? err_nomem(err) : -1;
    bool bracket = strchr(endpoint->host, ':');
    (void)snprintf(exchange->host_header, sizeof(exchange->host_header), "%s%s%s:%s",
                   bracket ? "[" : "", endpoint->host, bracket ? "]" : "", endpoint->port);
    if (!request->body)
        return 0;
    exchange->out_size = strlen(request->body);
    exchange->out = malloc(LWS_PRE + exchange->out_size);
    if (!exchange->out)
        return err_nomem(err);
    (void)memcpy(exchange->out + LWS_PRE, request->body, exchange->out_size);
    return 0;
}

int http_client_run(const struct http_request *request, struct http_answer *ret, struct err *err)
{
    assert(request->timeout_ms > 0);
    CLEANUP_EXCHANGE struct exchange exchange = { .request = request };
    exchange.end_us = monotonic_us() + (uint64_t)request->timeout_ms * 1000;
    if (prepare(&exchange, err) < 0)
        return -1;
    struct sigpipe_guard guard;
    sigpipe_block(&guard);
    struct lws_context *context = context_new(&exchange);
    int r = context ? run(&exchange, context, err) : err_nomem(err);
    if (context)
        lws_context_destroy(context);
    sigpipe_unblock(&guard);
    ERR_clear_error();
    if (r < 0)
        return -1;
    *ret = exchange.answer;
    exchange.answer = (struct http_answer){ 0 };
    return 0;
}
