/* The HTTPS port for those who have no certificate yet: enrolment, login, health. libwebsockets on
 * a thread of its own, which nobody else knows of. A connection is one request, which is whole
 * before a route sees it; routes run on the front's thread and answer now or later, from any
 * thread. Whoever floods it is slowed down here and nowhere else. */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_BODY_MAX        (64u * 1024)
#define HTTP_CONNECTIONS_MAX 512u
#define HTTP_PER_SOURCE_MAX  64u /* connections of one address */
#define HTTP_PENDING_MAX     64u /* requests that wait for an answer of ours; more get 503 */
#define HTTP_IDLE_S          10u /* handshake, headers, body, answer: each */
#define HTTP_SOURCE_MAX      64u /* text of an address, with its NUL */

struct http_front;
struct http_exchange;

struct http_route {
    const char *method; /* "GET" or "POST" */
    const char *path;
    /* On the front's thread. Must lead to exactly one http_reply(). */
    void (*handle)(void *userdata, struct http_exchange *exchange);
};

struct http_front_config {
    const char *listen; /* "[::]:5001"; port 0 picks one */
    const char *cert_pem, *key_pem;
    const struct http_route *routes; /* ends with a NULL path; kept, not copied */
    void *userdata;
    bool penalties; /* slow down sources whose requests fail */
};

int http_front_new(const struct http_front_config *config, struct http_front **ret,
                   struct err *err) must_use;
int http_front_port(const struct http_front *front);
/* Stops listening, joins the thread. Exchanges that are still open can be answered afterwards; the
 * answer goes nowhere. */
void http_front_free(struct http_front *front);

/* Of an exchange; valid until http_reply(). The body is NUL-terminated beyond its size. */
const char *http_body(const struct http_exchange *exchange, size_t *ret_size);
/* The peer's address as text, without its port. */
const char *http_source(const struct http_exchange *exchange);

/* How much a failed request weighs against its source. */
enum http_blame { HTTP_BLAME_NONE, HTTP_BLAME_CLUMSY, HTTP_BLAME_GUESSING };

/* Any thread, once: answers with a JSON text, which is copied, and frees the exchange. */
void http_reply(struct http_exchange *exchange, int status, const char *json,
                enum http_blame blame);
