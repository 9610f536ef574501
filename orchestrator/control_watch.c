/* SandboxService.WatchSandboxes: first every sandbox that was asked for, in order of id, then those
 * that change, no faster than the client takes them. A slow client misses intermediate states,
 * never the last one: it goes on where it was in orchestrator/changes.c. What leaves its sight is
 * told at once, because there is nothing left to look at later. */
#include "orchestrator/control.h"
#include "orchestrator/orchestrator-internal.h"

#include "common/selector.h"
#include "common/wire.h"

#include <stdio.h>
#include <string.h>

#define WATCH_OPEN_US 10000000u /* from the stream's start to its request */

struct watch_call {
    struct watch watch;
    struct watch_call *next, **back; /* among all of them */
    struct orchestrator *orchestrator;
    struct rpc_call *call;
    struct loop_timer *deadline;
    struct selector selector;
    char id[SANDBOX_ID_MAX + 1];    /* the only one asked for; "": all */
    char after[SANDBOX_ID_MAX + 1]; /* the last one of the beginning that was sent */
    struct changes *changes;        /* with heartbeats or without; NULL: not asked yet */
    bool current, finished;
    uint64_t seq; /* what it has seen */
};

static void finish(struct watch_call *call, const struct err *status)
{
    if (call->finished)
        return;
    call->finished = true;
    watch_stop(&call->watch);
    loop_timer_stop(call->deadline);
    rpc_call_finish(call->call, status);
}

/* By those labels, would it be shown? */
static bool would_see(const struct watch_call *call, const struct sandbox *sandbox,
                      const char *labels, const char *reported)
{
    struct sandbox as = { .labels = (char *)labels };
    return access_sees(call->orchestrator, rpc_call_peer(call->call), &as) &&
           (!*call->id || strcmp(call->id, sandbox->id) == 0) &&
           selector_matches(&call->selector, labels, reported);
}

static bool sees(const struct watch_call *call, const struct sandbox *sandbox)
{
    return would_see(call, sandbox, sandbox->labels, sandbox->reported);
}

/* What it is told. */

static void say(struct watch_call *call, Sandstorm__V1__WatchKind kind,
                Sandstorm__V1__Sandbox *sandbox)
{
    struct err err;
    Sandstorm__V1__WatchSandboxesResponse response = SANDSTORM__V1__WATCH_SANDBOXES_RESPONSE__INIT;
    response.kind = kind;
    response.sandbox = sandbox;
    if (rpc_call_send(call->call, &response.base, &err) < 0)
        finish(call, &err);
}

static void say_sandbox(struct watch_call *call, struct sandbox *sandbox)
{
    struct sandbox_description description;
    sandbox_describe(sandbox, &description);
    description.message.heartbeat_interval_ms = fleet_interval_us(call->orchestrator->fleet) / 1000;
    say(call, SANDSTORM__V1__WATCH_KIND__WATCH_KIND_SANDBOX, &description.message);
}

static bool may_go_on(const struct watch_call *call)
{
    return !call->finished && rpc_call_writable(call->call);
}

static void send_beginning(struct watch_call *call)
{
    struct sandbox *sandbox = registry_next(call->orchestrator->registry, call->after);
    for (; sandbox && may_go_on(call); sandbox = sandbox->hh.next) {
        if (sees(call, sandbox))
            say_sandbox(call, sandbox);
        (void)memcpy(call->after, sandbox->id, sizeof(call->after));
    }
    if (sandbox || !may_go_on(call))
        return;
    call->current = true;
    say(call, SANDSTORM__V1__WATCH_KIND__WATCH_KIND_CURRENT, NULL);
}

static void send_changes(struct watch_call *call, struct change *change, bool beats)
{
    for (; change && may_go_on(call); change = change->newer) {
        struct sandbox *sandbox = beats ? CONTAINER_OF(change, struct sandbox, beat)
                                        : CONTAINER_OF(change, struct sandbox, change);
        call->seq = change->seq;
        if (sees(call, sandbox))
            say_sandbox(call, sandbox);
    }
}

static void go_on(struct watch_call *call)
{
    if (!call->changes || !may_go_on(call))
        return; /* one that does not read costs nothing */
    if (!call->current)
        send_beginning(call);
    if (call->current)
        send_changes(call, changes_after(call->changes, call->seq),
                     call->changes == &call->orchestrator->beats);
}

static void on_change(struct watch *watch)
{
    go_on(CONTAINER_OF(watch, struct watch_call, watch));
}

void control_watch_left(struct orchestrator *orchestrator, const struct sandbox *sandbox,
                        const char *labels_before, const char *reported_before, bool gone)
{
    Sandstorm__V1__Sandbox message = SANDSTORM__V1__SANDBOX__INIT;
    message.id = (char *)sandbox->id;
    for (struct watch_call *call = orchestrator->watch_calls; call; call = call->next)
        if (call->changes && !call->finished &&
            would_see(call, sandbox, labels_before, reported_before) &&
            (gone || !sees(call, sandbox)))
            say(call, SANDSTORM__V1__WATCH_KIND__WATCH_KIND_GONE, &message);
}

/* The stream. */

static int take_request(struct watch_call *call, const Sandstorm__V1__WatchSandboxesRequest *asked,
                        struct err *err)
{
    struct orchestrator *orchestrator = call->orchestrator;
    struct sandbox *sandbox;
    if (selector_parse(asked->selector, &call->selector, err) < 0)
        return -1;
    if (*asked->id &&
        access_sandbox(orchestrator, rpc_call_peer(call->call), asked->id, &sandbox, err) < 0)
        return -1;
    (void)snprintf(call->id, sizeof(call->id), "%s", asked->id);
    call->changes = asked->metrics ? &orchestrator->beats : &orchestrator->changes;
    call->seq = call->changes->seq;
    watch_start(&call->changes->watches, &call->watch);
    return 0;
}

static void on_message(void *owner, const uint8_t *data, size_t size)
{
    struct watch_call *call = owner;
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    struct err err;
    rpc_call_pause(call->call);
    loop_timer_stop(call->deadline);
    if (wire_unpack(&sandstorm__v1__watch_sandboxes_request__descriptor, data, size, &message,
                    &err) < 0 ||
        take_request(call, (const Sandstorm__V1__WatchSandboxesRequest *)message, &err) < 0)
        finish(call, &err);
    else
        go_on(call);
}

static void on_half_closed(void *owner)
{
    struct watch_call *call = owner;
    struct err err;
    if (call->changes)
        return;
    (void)err_set(&err, ERR_INVALID, "the request has no message");
    finish(call, &err);
}

static void on_writable(void *owner)
{
    go_on(owner);
}

static void on_closed(void *owner, const struct err *status)
{
    struct watch_call *call = owner;
    (void)status;
    watch_stop(&call->watch);
    *call->back = call->next;
    if (call->next)
        call->next->back = call->back;
    call->orchestrator->watch_count--;
    loop_timer_free(call->deadline);
    rpc_call_release(call->call);
    free(call);
}

static const struct rpc_call_handler handler = {
    .message = on_message,
    .half_closed = on_half_closed,
    .writable = on_writable,
    .closed = on_closed,
};

static void on_deadline(void *userdata)
{
    struct err err;
    (void)err_set(&err, ERR_TIMEOUT, "no request within %u s", WATCH_OPEN_US / 1000000);
    finish(userdata, &err);
}

void control_watch_stop(struct orchestrator *orchestrator)
{
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the orchestrator is stopping; watch again");
    for (struct watch_call *call = orchestrator->watch_calls; call; call = call->next)
        finish(call, &err);
}

int control_watch_sandboxes(void *userdata, struct rpc_call *rpc, struct err *err)
{
    struct orchestrator *orchestrator = userdata;
    if (orchestrator->watch_count >= CONTROL_WATCHES_MAX)
        return err_set(err, ERR_EXHAUSTED, "%u clients watch already; try again later",
                       CONTROL_WATCHES_MAX);
    struct watch_call *call = calloc(1, sizeof(*call));
    if (!call)
        return err_nomem(err);
    if (loop_timer_new(orchestrator->loop, on_deadline, call, &call->deadline, err) < 0) {
        free(call);
        return -1;
    }
    call->orchestrator = orchestrator;
    call->call = rpc;
    call->watch.fn = on_change;
    call->next = orchestrator->watch_calls;
    if (call->next)
        call->next->back = &call->next;
    call->back = &orchestrator->watch_calls;
    orchestrator->watch_calls = call;
    orchestrator->watch_count++;
    rpc_call_bind(rpc, &handler, call);
    loop_timer_start(call->deadline, WATCH_OPEN_US);
    return 0;
}
