/* Whatever a stranger posts to the HTTPS front: every request gets exactly one answer, which is
 * JSON, and only what is a request of ours reaches the store. The first byte chooses the route. */
#include "common/loop.h"
#include "orchestrator/enrol.h"
#include "orchestrator/front.h"
#include "orchestrator/orchestrator-internal.h"
#include "tests/fuzz/check.h"

#include <jansson.h>
#include <string.h>

struct http_exchange {
    const char *body;
    size_t size;
    unsigned replies;
};

const char *http_body(const struct http_exchange *exchange, size_t *ret_size)
{
    *ret_size = exchange->size;
    return exchange->body;
}

const char *http_source(const struct http_exchange *exchange)
{
    (void)exchange;
    return "192.0.2.7";
}

void http_reply(struct http_exchange *exchange, int status, const char *json, enum http_blame blame)
{
    json_t *answer = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
    check(json_is_object(answer) && status >= 200 && status < 600);
    check(blame <= HTTP_BLAME_GUESSING);
    json_decref(answer);
    exchange->replies++;
}

void __wrap_loop_post(struct loop *loop, struct loop_post *post);
int __wrap_store_submit(struct store *store, struct store_job *job, struct err *err);

void __wrap_loop_post(struct loop *loop, struct loop_post *post)
{
    (void)loop;
    post->fn(post);
}

/* What would go to the store has what it needs, and nothing is longer than it may be. */
int __wrap_store_submit(struct store *store, struct store_job *job, struct err *err)
{
    (void)store;
    const struct enrol *enrol = CONTAINER_OF(job, struct enrol, job);
    check(enrol->csr && strlen(enrol->csr) <= ENROL_CSR_MAX);
    check((enrol->kind == ENROL_RENEW_EXPIRED) == (enrol->certificate != NULL));
    check((enrol->kind == ENROL_RENEW_EXPIRED) == (enrol->secret == NULL));
    return err_set(err, ERR_EXHAUSTED, "not in this test");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct orchestrator orchestrator;
    if (size == 0)
        return 0;
    /* The three that read a body come first. */
    const struct http_route *route = &front_routes[data[0] % 3];
    CLEANUP_FREE char *body = malloc(size);
    check(body != NULL);
    (void)memcpy(body, data + 1, size - 1);
    body[size - 1] = '\0';
    struct http_exchange exchange = { .body = body, .size = size - 1 };
    route->handle(&orchestrator, &exchange);
    check(exchange.replies == 1);
    return 0;
}
