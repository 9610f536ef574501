/* Between orchestrator/http_front.c (lws and its thread), http_front_port.c (the socket, TLS, who
 * may come in), http_connection.c (requests and answers) and http_exchange.c (what routes have);
 * nobody else includes this but a test. All of it belongs to the front's thread, except the
 * mailbox. */
#pragma once

#include "common/log.h"
#include "orchestrator/http_front.h"
#include "orchestrator/http_sources.h"

#include <libwebsockets.h>
#include <pthread.h>
#include <stdatomic.h>

#define HTTP_HEAD_MAX 4096u /* the headers that lws keeps of a request */
#define HTTP_ANSWER_S 30u   /* a route that takes longer has lost its client */

enum http_stage { HTTP_STAGE_HEAD, HTTP_STAGE_BODY, HTTP_STAGE_ROUTE, HTTP_STAGE_ANSWER };

/* One request and its answer. lws has it from accept(2) to the end of the socket. */
struct http_connection {
    struct http_front *front;
    struct lws *wsi; /* from the request on */
    enum http_stage stage;
    struct sockaddr_storage peer;
    struct http_exchange *exchange;
    unsigned char *answer; /* with LWS_PRE bytes before it; NULL when it is written */
    size_t answer_size;
};

/* Where answers wait for the front's thread. Outlives the front for as long as an exchange is
 * open. */
struct http_mailbox {
    atomic_uint refs;
    pthread_mutex_t lock;
    /* Under the lock. */
    struct lws_context *context; /* to wake; NULL when there is nobody to */
    bool closed;                 /* nobody will look again */
    struct http_exchange *first, **last;
};

struct http_exchange {
    struct http_mailbox *mailbox;       /* a reference */
    struct http_connection *connection; /* NULL when it has gone; the front's thread alone */
    const struct http_route *route;
    struct sockaddr_storage peer;
    char source[HTTP_SOURCE_MAX];
    char *body; /* size + 1 bytes */
    size_t size, received;
    /* The answer, from http_reply() on. */
    int status;
    enum http_blame blame;
    char *json; /* NULL when there was no memory for it */
    struct http_exchange *next;
};

struct http_front {
    struct http_front_config config; /* the PEM texts are not kept */
    struct lws_context *context;
    struct lws_vhost *vhost;
    struct lws *listener;
    lws_sorted_usec_list_t accept_again;
    struct http_sources *sources;
    struct http_mailbox *mailbox;
    struct http_connection *adopting; /* while lws takes it over */
    unsigned connections, pending;
    struct log_limit refused_log;
    int port;
    struct err *startup_err; /* for what a callback of lws finds wrong */
    SSL_CTX *tls;            /* of lws */
    pthread_t thread;
    bool started;
    atomic_bool stopping;
};

/* http_front_port.c */
int http_port_listen(const char *text, int *ret_fd, int *ret_port, struct err *err) must_use;
/* When lws is done with it: lws has a say about ALPN after http_port_tls(). */
void http_port_tls_settle(SSL_CTX *context);
int http_port_tls(SSL_CTX *context, const char *cert_pem, const char *key_pem,
                  struct err *err) must_use;
void http_port_accept(struct http_front *front, int listener);
/* The socket is gone, whatever the connection was doing, or never became one of lws's. */
void http_connection_free(struct http_connection *connection);

/* http_connection.c. Events of lws; -1 closes the connection. */
int http_connection_requested(struct http_connection *connection);
int http_connection_body(struct http_connection *connection, const char *data, size_t size);
int http_connection_body_end(struct http_connection *connection);
int http_connection_writable(struct http_connection *connection);
void http_front_take_answers(struct http_front *front);

/* http_exchange.c */
int http_mailbox_new(struct http_mailbox **ret, struct err *err) must_use;
void http_mailbox_set_context(struct http_mailbox *mailbox, struct lws_context *context);
struct http_exchange *http_mailbox_take(struct http_mailbox *mailbox);
/* The connections are gone: frees the answers that wait, and any that come later. */
void http_mailbox_close(struct http_mailbox *mailbox);
void http_mailbox_unref(struct http_mailbox *mailbox);
/* NULL when there is no memory. */
struct http_exchange *http_exchange_new(struct http_mailbox *mailbox,
                                        const struct sockaddr_storage *peer, size_t size);
void http_exchange_free(struct http_exchange *exchange);
void http_peer_text(const struct sockaddr_storage *peer, char ret[HTTP_SOURCE_MAX]);
