/* SandboxService.SandboxReady: a call that waits until a sandbox can run commands. Those who wait
 * are woken by every change of a sandbox and look for themselves; nobody polls. */
#include "orchestrator/control.h"
#include "orchestrator/orchestrator-internal.h"

#include "common/clock.h"

#include <stdio.h>
#include <string.h>

#define READY_LOOK_US 1000000u /* how often one looks whether its caller is still there */

struct ready_wait {
    struct watch watch;
    struct ready_wait *next, **back; /* among all that wait */
    struct orchestrator *orchestrator;
    struct rpc_ticket *ticket;
    struct loop_timer *timer;
    uint64_t deadline_us;
    char id[SANDBOX_ID_MAX + 1];
};

static void wait_free(struct ready_wait *wait)
{
    watch_stop(&wait->watch);
    *wait->back = wait->next;
    if (wait->next)
        wait->next->back = wait->back;
    wait->orchestrator->ready_count--;
    loop_timer_free(wait->timer);
    free(wait);
}

static void fail(struct ready_wait *wait, const struct err *why)
{
    rpc_ticket_fail(wait->ticket, why);
    wait_free(wait);
}

/* What keeps it from running commands; NULL: nothing does. */
static const char *obstacle(const struct sandbox *sandbox)
{
    if (sandbox->revoked_ms)
        return "it was revoked";
    if (sandbox->draining)
        return "it is draining ('sandstorm undrain' ends that)";
    if (!sandbox->session)
        return "its agent is not connected";
    if (!sandbox->in_step)
        return "its runner has not answered yet";
    return NULL;
}

/* True when it was answered. */
static bool look(struct ready_wait *wait)
{
    struct orchestrator *orchestrator = wait->orchestrator;
    struct sandbox *sandbox;
    struct err err;
    if (access_sandbox(orchestrator, rpc_ticket_peer(wait->ticket), wait->id, &sandbox, &err) < 0) {
        fail(wait, &err);
        return true;
    }
    if (obstacle(sandbox))
        return false;
    struct sandbox_description description;
    Sandstorm__V1__SandboxReadyResponse response = SANDSTORM__V1__SANDBOX_READY_RESPONSE__INIT;
    sandbox_describe(sandbox, &description);
    response.sandbox = &description.message;
    rpc_ticket_reply(wait->ticket, &response.base);
    wait_free(wait);
    return true;
}

static void on_change(struct watch *watch)
{
    (void)look(CONTAINER_OF(watch, struct ready_wait, watch));
}

static void on_time(void *userdata)
{
    struct ready_wait *wait = userdata;
    uint64_t now = monotonic_us();
    struct err err;
    if (rpc_ticket_gone(wait->ticket)) {
        (void)err_set(&err, ERR_CANCELLED, "the caller has gone");
        fail(wait, &err);
    } else if (now < wait->deadline_us) {
        loop_timer_start(wait->timer, MIN(wait->deadline_us - now, READY_LOOK_US));
    } else if (!look(wait)) {
        struct sandbox *sandbox = registry_find(wait->orchestrator->registry, wait->id);
        (void)err_set(&err, ERR_TIMEOUT,
                      "sandbox \"%s\" is not ready: %s; 'sandstorm why %s' says more", wait->id,
                      obstacle(sandbox), wait->id);
        fail(wait, &err);
    }
}

void control_ready_stop(struct orchestrator *orchestrator)
{
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the orchestrator is stopping; ask again");
    while (orchestrator->ready_waits)
        fail(orchestrator->ready_waits, &err);
}

int control_sandbox_ready(void *userdata, struct rpc_ticket *ticket,
                          const ProtobufCMessage *message, struct err *err)
{
    const Sandstorm__V1__SandboxReadyRequest *request =
        (const Sandstorm__V1__SandboxReadyRequest *)message;
    struct orchestrator *orchestrator = userdata;
    if (orchestrator->ready_count >= CONTROL_READY_MAX)
        return err_set(err, ERR_EXHAUSTED, "%u calls wait for sandboxes already; try again later",
                       CONTROL_READY_MAX);
    if (request->timeout_ms > CONTROL_READY_MAX_MS)
        return err_set(err, ERR_INVALID, "wait for at most %u s; ask again then",
                       CONTROL_READY_MAX_MS / 1000);
    struct ready_wait *wait = calloc(1, sizeof(*wait));
    if (!wait)
        return err_nomem(err);
    if (loop_timer_new(orchestrator->loop, on_time, wait, &wait->timer, err) < 0) {
        free(wait);
        return -1;
    }
    uint64_t timeout_ms = request->timeout_ms ? request->timeout_ms : CONTROL_READY_MS;
    wait->orchestrator = orchestrator;
    wait->ticket = ticket;
    wait->deadline_us = monotonic_us() + timeout_ms * 1000;
    (void)snprintf(wait->id, sizeof(wait->id), "%s", request->id);
    wait->watch.fn = on_change;
    watch_start(&orchestrator->changes.watches, &wait->watch);
    wait->next = orchestrator->ready_waits;
    if (wait->next)
        wait->next->back = &wait->next;
    wait->back = &orchestrator->ready_waits;
    orchestrator->ready_waits = wait;
    orchestrator->ready_count++;
    if (!look(wait))
        loop_timer_start(wait->timer, MIN(timeout_ms * 1000, READY_LOOK_US));
    return 0;
}
