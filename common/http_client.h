/* One HTTPS request to an orchestrator's front, from the first address look-up to the last byte of
 * the answer, with a deadline for all of it; only the look-up of a name may take longer, because
 * getaddrinfo(3) blocks until resolv.conf(5) lets it end. libwebsockets behind it. Redirects are
 * answers like others, proxies of the environment are not used. Blocking: for a worker or a program
 * without a loop. Any thread. */
#pragma once

#include "common/err.h"

#include <stdint.h>

#define HTTP_ANSWER_MAX (256u * 1024)

struct http_request {
    const char *endpoint; /* HOST:PORT */
    const char *path;     /* "/v1/enroll" */
    const char *body;     /* JSON for a POST, NULL for a GET */
    /* The CAs of which one must have signed the server's certificate, which must be for HOST. NULL:
     * any server, for what is checked by other means; never send a secret that way. */
    const char *ca_pem;
    int timeout_ms;
};

struct http_answer {
    int status; /* 200 ... */
    char *body; /* NUL-terminated; wiped by http_answer_done() */
    size_t size;
};

/* ERR_UNAVAILABLE: no answer, and the text says
 * which step failed (name, connection, TLS with the reason, time) and what to do; a certificate
 * that is not valid yet or not any more is named as a question of clocks, with the size of the
 * difference. Any HTTP status is success here. */
int http_client_run(const struct http_request *request, struct http_answer *ret,
                    struct err *err) must_use;
void http_answer_done(struct http_answer *answer);
#define CLEANUP_ANSWER CLEANUP(http_answer_done)
