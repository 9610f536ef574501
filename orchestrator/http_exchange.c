/* Requests that routes have, and the mailbox by which their answers come back to the front's thread
 * from any other. An exchange outlives its connection when the peer goes, and the front when that
 * ends first; it is freed by its answer (next: orchestrator/http_front.c). */
#include "orchestrator/http_front-internal.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#define MAPPED_LEN 12u /* of ::ffff: in front of an IPv4 address */

/* The mailbox. */

int http_mailbox_new(struct http_mailbox **ret, struct err *err)
{
    struct http_mailbox *mailbox = calloc(1, sizeof(*mailbox));
    if (!mailbox)
        return err_nomem(err);
    atomic_store(&mailbox->refs, 1);
    (void)pthread_mutex_init(&mailbox->lock, NULL);
    mailbox->last = &mailbox->first;
    *ret = mailbox;
    return 0;
}

void http_mailbox_unref(struct http_mailbox *mailbox)
{
    if (!mailbox || atomic_fetch_sub(&mailbox->refs, 1) > 1)
        return;
    (void)pthread_mutex_destroy(&mailbox->lock);
    free(mailbox);
}

void http_mailbox_set_context(struct http_mailbox *mailbox, struct lws_context *context)
{
    (void)pthread_mutex_lock(&mailbox->lock);
    mailbox->context = context;
    (void)pthread_mutex_unlock(&mailbox->lock);
}

static struct http_exchange *take(struct http_mailbox *mailbox, bool close)
{
    (void)pthread_mutex_lock(&mailbox->lock);
    struct http_exchange *first = mailbox->first;
    mailbox->first = NULL;
    mailbox->last = &mailbox->first;
    mailbox->closed = close;
    (void)pthread_mutex_unlock(&mailbox->lock);
    return first;
}

struct http_exchange *http_mailbox_take(struct http_mailbox *mailbox)
{
    return take(mailbox, false);
}

void http_mailbox_close(struct http_mailbox *mailbox)
{
    struct http_exchange *exchange = take(mailbox, true);
    while (exchange) {
        struct http_exchange *next = exchange->next;
        http_exchange_free(exchange);
        exchange = next;
    }
}

/* Exchanges. */

void http_peer_text(const struct sockaddr_storage *peer, char ret[HTTP_SOURCE_MAX])
{
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
    (void)memcpy(&in, peer, sizeof(in));
    (void)memcpy(&in6, peer, sizeof(in6));
    int family = peer->ss_family;
    const void *address = family == AF_INET ? (void *)&in.sin_addr : &in6.sin6_addr;
    if (family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr)) {
        family = AF_INET;
        address = in6.sin6_addr.s6_addr + MAPPED_LEN;
    }
    if (!inet_ntop(family, address, ret, HTTP_SOURCE_MAX))
        (void)snprintf(ret, HTTP_SOURCE_MAX, "unknown");
}

struct http_exchange *http_exchange_new(struct http_mailbox *mailbox,
                                        const struct sockaddr_storage *peer, size_t size)
{
    struct http_exchange *exchange = calloc(1, sizeof(*exchange));
    if (!exchange)
        return NULL;
    exchange->body = malloc(size + 1);
    if (!exchange->body) {
        free(exchange);
        return NULL;
    }
    exchange->body[size] = '\0';
    exchange->size = size;
    exchange->peer = *peer;
    http_peer_text(peer, exchange->source);
    exchange->mailbox = mailbox;
    (void)atomic_fetch_add(&mailbox->refs, 1);
    return exchange;
}

void http_exchange_free(struct http_exchange *exchange)
{
    if (!exchange)
        return;
    http_mailbox_unref(exchange->mailbox);
    free(exchange->body);
    free(exchange->json);
    free(exchange);
}

const char *http_body(const struct http_exchange *exchange, size_t *ret_size)
{
    *ret_size = exchange->size;
    return exchange->body;
}

const char *http_source(const struct http_exchange *exchange)
{
    return exchange->source;
}

void http_reply(struct http_exchange *exchange, int status, const char *json, enum http_blame blame)
{
    exchange->status = status;
    exchange->blame = blame;
    exchange->json = strdup(json);
    struct http_mailbox *mailbox = exchange->mailbox;
    (void)pthread_mutex_lock(&mailbox->lock);
    bool closed = mailbox->closed;
    if (!closed) {
        *mailbox->last = exchange;
        mailbox->last = &exchange->next;
        /* Under the lock, because the context goes when the front does. */
        if (mailbox->context)
            lws_cancel_service(mailbox->context);
    }
    (void)pthread_mutex_unlock(&mailbox->lock);
    /* Closed: the connection went with the front, and the exchange was the last to know it. The
     * lock above was in memory that the exchange's reference keeps. */
    if (closed)
        http_exchange_free(exchange);
}
