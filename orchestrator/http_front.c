/* The HTTP front's life: the context of libwebsockets, which does TLS and HTTP/1, and the thread
 * that runs it. Connections come from orchestrator/http_front_port.c; what lws tells of them goes
 * on (next: orchestrator/http_connection.c). */
#include "orchestrator/http_front-internal.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define OTHER_FDS      16u    /* of lws: the listener, its wake-up, and room */
#define READ_SIZE      16384u /* a TLS record */
#define PROTOCOL       "front"
#define REFUSED_LOG_US 60000000u
#define REFUSED_LINES  5u

/* lws. */

static int on_event(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t len)
{
    struct http_front *front = lws_context_user(lws_get_context(wsi));
    struct http_connection *connection = lws_get_opaque_user_data(wsi);
    switch (reason) {
    case LWS_CALLBACK_OPENSSL_LOAD_EXTRA_SERVER_VERIFY_CERTS:
        front->tls = user;
        return http_port_tls(user, front->config.cert_pem, front->config.key_pem,
                             front->startup_err);
    case LWS_CALLBACK_RAW_RX_FILE:
        http_port_accept(front, lws_get_socket_fd(wsi));
        return 0;
    case LWS_CALLBACK_EVENT_WAIT_CANCELLED:
        http_front_take_answers(front);
        return 0;
    case LWS_CALLBACK_HTTP:
        connection->wsi = wsi;
        return http_connection_requested(connection);
    case LWS_CALLBACK_HTTP_BODY:
        return http_connection_body(connection, in, len);
    case LWS_CALLBACK_HTTP_BODY_COMPLETION:
        return http_connection_body_end(connection);
    case LWS_CALLBACK_HTTP_WRITEABLE:
        return http_connection_writable(connection);
    case LWS_CALLBACK_TIMER:
    /* lws would speak h2c or websocket to anybody who asks for it, and anything after CONNECT. */
    case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE:
    case LWS_CALLBACK_RAW_ADOPT:
    case LWS_CALLBACK_RAW_RX:
        return -1;
    case LWS_CALLBACK_WSI_DESTROY:
        /* The one event that comes exactly once, also when the handshake fails; the listener has no
         * connection. */
        http_connection_free(connection);
        return 0;
    default:
        return 0;
    }
}

static void log_line(int level, const char *line)
{
    (void)level;
    char text[LOG_VALUE_MAX];
    (void)snprintf(text, sizeof(text), "%.*s", (int)strcspn(line, "\n"), line);
    log_debug("libwebsockets", LF_STR("text", text));
}

static int make_context(struct http_front *front, struct err *err)
{
    static const struct lws_protocols protocols[] = { { .name = PROTOCOL, .callback = on_event },
                                                      { 0 } };
    lws_set_log_level(LLL_ERR | LLL_WARN, log_line);
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN_SERVER,
        .protocols = protocols,
        .vhost_name = PROTOCOL,
        .alpn = "http/1.1",
        .user = front,
        .gid = -1,
        .uid = -1,
        .timeout_secs = HTTP_IDLE_S,
        .timeout_secs_ah_idle = HTTP_IDLE_S,
        .max_http_header_data = HTTP_HEAD_MAX,
        .max_http_header_pool = HTTP_CONNECTIONS_MAX,
        /* Below the limit of the process, so that the tables are small and any number will do. */
        .fd_limit_per_thread = HTTP_CONNECTIONS_MAX + OTHER_FDS,
        .pt_serv_buf_size = READ_SIZE,
        .options = LWS_SERVER_OPTION_EXPLICIT_VHOSTS | LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT |
                   LWS_SERVER_OPTION_CREATE_VHOST_SSL_CTX | LWS_SERVER_OPTION_DISABLE_OS_CA_CERTS,
    };
    /* lws ignores SIGPIPE for the whole process, which is not for it to decide. */
    struct sigaction sigpipe;
    (void)sigaction(SIGPIPE, NULL, &sigpipe);
    front->context = lws_create_context(&info);
    (void)sigaction(SIGPIPE, &sigpipe, NULL);
    if (!front->context)
        return err_set(err, ERR_UNAVAILABLE, "libwebsockets cannot start");
    front->startup_err = err;
    err_fill(err, ERR_UNAVAILABLE, "libwebsockets cannot set up TLS");
    front->vhost = lws_create_vhost(front->context, &info);
    front->startup_err = NULL;
    if (!front->vhost)
        return -1;
    http_port_tls_settle(front->tls);
    return 0;
}

static int adopt_listener(struct http_front *front, int *fd, struct err *err)
{
    const lws_sock_file_fd_type desc = { .filefd = *fd };
    front->listener =
        lws_adopt_descriptor_vhost(front->vhost, LWS_ADOPT_RAW_FILE_DESC, desc, PROTOCOL, NULL);
    if (!front->listener)
        return err_set(err, ERR_UNAVAILABLE, "libwebsockets does not take the listening socket");
    (void)TAKE_FD(*fd);
    return 0;
}

/* The thread. */

static void *front_main(void *userdata)
{
    struct http_front *front = userdata;
    while (!atomic_load(&front->stopping))
        if (lws_service(front->context, 0) < 0) {
            log_error("HTTP front stopped: libwebsockets cannot poll; restart the orchestrator");
            break;
        }
    return NULL;
}

/* Signals are the other threads' business. SIGPIPE too: a write to a closed socket leaves it
 * pending here for ever. */
static int start_thread(struct http_front *front, struct err *err)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&front->thread, NULL, front_main, front);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r)
        return err_errno(err, r, "cannot start the thread of the HTTP front");
    (void)pthread_setname_np(front->thread, "http");
    front->started = true;
    return 0;
}

static int front_start(struct http_front *front, struct err *err)
{
    CLEANUP_FD int fd = -1;
    if (http_mailbox_new(&front->mailbox, err) < 0 || http_sources_new(&front->sources, err) < 0 ||
        http_port_listen(front->config.listen, &fd, &front->port, err) < 0 ||
        make_context(front, err) < 0 || adopt_listener(front, &fd, err) < 0)
        return -1;
    front->config.cert_pem = front->config.key_pem = front->config.listen = NULL;
    http_mailbox_set_context(front->mailbox, front->context);
    return start_thread(front, err);
}

int http_front_new(const struct http_front_config *config, struct http_front **ret, struct err *err)
{
    struct http_front *front = calloc(1, sizeof(*front));
    if (!front)
        return err_nomem(err);
    front->config = *config;
    front->refused_log = LOG_LIMIT(REFUSED_LOG_US, REFUSED_LINES);
    struct err why = { 0 };
    if (front_start(front, &why) < 0) {
        http_front_free(front);
        return err_set(err, why.code, "%s", why.text);
    }
    *ret = front;
    return 0;
}

int http_front_port(const struct http_front *front)
{
    return front->port;
}

void http_front_free(struct http_front *front)
{
    if (!front)
        return;
    if (front->started) {
        atomic_store(&front->stopping, true);
        lws_cancel_service(front->context);
        (void)pthread_join(front->thread, NULL);
    }
    /* Routes may answer at any moment: first they find no context to wake, and when the connections
     * are gone, that nobody looks into the mailbox. */
    if (front->mailbox)
        http_mailbox_set_context(front->mailbox, NULL);
    if (front->context)
        lws_context_destroy(front->context);
    if (front->mailbox)
        http_mailbox_close(front->mailbox);
    http_mailbox_unref(front->mailbox);
    http_sources_free(front->sources);
    free(front);
}
