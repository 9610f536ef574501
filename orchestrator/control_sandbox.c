/* SandboxService: the registry as clients see it, each what is in its scope. Requests come through
 * the guard; events and revocations take a turn through the store. */
#include "orchestrator/control.h"
#include "orchestrator/exec.h"
#include "orchestrator/orchestrator-internal.h"
#include "orchestrator/session.h"

#include "common/clock.h"
#include "common/wire.h"

#include <stdio.h>
#include <string.h>

/* A page fits a message, whatever agents call themselves. */
#define PAGE_BYTES     (192u * 1024)
#define SANDBOX_FIELDS 48u /* of one without labels, with room to grow */

struct page {
    Sandstorm__V1__Sandbox *pointers[CONTROL_PAGE_MAX];
    struct sandbox_description items[CONTROL_PAGE_MAX];
};

int control_list_sandboxes(void *userdata, struct rpc_call *call, const ProtobufCMessage *message,
                           struct err *err)
{
    struct orchestrator *orchestrator = userdata;
    const Sandstorm__V1__ListSandboxesRequest *request =
        (const Sandstorm__V1__ListSandboxesRequest *)message;
    size_t wanted =
        request->page_size ? MIN(request->page_size, CONTROL_PAGE_MAX) : CONTROL_PAGE_DEFAULT;
    if (*request->page_token && sandbox_id_check(request->page_token, err) < 0)
        return err_set(err, ERR_INVALID, "the page token is not one of ours");
    CLEANUP_FREE struct page *page = malloc(sizeof(*page));
    if (!page)
        return err_nomem(err);
    Sandstorm__V1__ListSandboxesResponse response = SANDSTORM__V1__LIST_SANDBOXES_RESPONSE__INIT;
    struct sandbox *sandbox = registry_next(orchestrator->registry, request->page_token);
    size_t bytes = 0, fields = SANDBOX_FIELDS;
    for (; sandbox && response.n_sandboxes < wanted; sandbox = sandbox->hh.next) {
        if (!access_sees(orchestrator, rpc_call_peer(call), sandbox))
            continue;
        struct sandbox_description *item = &page->items[response.n_sandboxes];
        sandbox_describe(sandbox, item);
        bytes += sandstorm__v1__sandbox__get_packed_size(&item->message) + WIRE_HEADER_MAX;
        fields += SANDBOX_FIELDS + 3 * item->message.n_labels;
        if (bytes > PAGE_BYTES || fields > WIRE_FIELDS_MAX)
            break;
        page->pointers[response.n_sandboxes++] = &item->message;
    }
    response.sandboxes = page->pointers;
    if (sandbox && response.n_sandboxes > 0)
        response.next_page_token = page->pointers[response.n_sandboxes - 1]->id;
    return rpc_call_send(call, &response.base, err);
}

/* One, with its events. */

struct get_job {
    struct control_job control;
    char id[SANDBOX_ID_MAX + 1];
    struct event_record events[STORE_EVENTS_MAX];
    unsigned count;
};

static int get_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct get_job *get = CONTAINER_OF(job, struct get_job, control.job);
    return store_event_list(tx, get->id, get->events, STORE_EVENTS_MAX, &get->count, err);
}

static void get_done(struct store_job *job)
{
    struct get_job *get = CONTAINER_OF(job, struct get_job, control.job);
    struct sandbox_description description;
    Sandstorm__V1__SandboxEvent events[STORE_EVENTS_MAX];
    Sandstorm__V1__SandboxEvent *pointers[STORE_EVENTS_MAX];
    Sandstorm__V1__GetSandboxResponse response = SANDSTORM__V1__GET_SANDBOX_RESPONSE__INIT;
    if (control_job_failed(&get->control))
        return;
    struct sandbox *sandbox = registry_find(get->control.orchestrator->registry, get->id);
    if (sandbox) {
        sandbox_describe(sandbox, &description);
        response.sandbox = &description.message;
        for (unsigned i = 0; i < get->count; i++) {
            sandstorm__v1__sandbox_event__init(&events[i]);
            events[i].time_unix_ms = get->events[i].time_ms;
            events[i].kind = get->events[i].kind;
            events[i].detail = get->events[i].detail;
            pointers[i] = &events[i];
        }
        description.message.n_events = get->count;
        description.message.events = pointers;
    }
    control_job_end(&get->control, &response.base);
}

int control_get_sandbox(void *userdata, struct rpc_ticket *ticket, const ProtobufCMessage *message,
                        struct err *err)
{
    const Sandstorm__V1__GetSandboxRequest *request =
        (const Sandstorm__V1__GetSandboxRequest *)message;
    struct get_job *get = control_job_new(sizeof(*get), userdata, ticket, err);
    if (!get)
        return -1;
    (void)snprintf(get->id, sizeof(get->id), "%s", request->id);
    return control_job_submit(&get->control, get_work, get_done, false, err);
}

/* Revocation. */

struct revoke_job {
    struct control_job control;
    char id[SANDBOX_ID_MAX + 1];
    int64_t now_ms;
};

static int revoke_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct revoke_job *revoke = CONTAINER_OF(job, struct revoke_job, control.job);
    struct event_record event = { .time_ms = revoke->now_ms, .kind = "revoked" };
    (void)snprintf(event.detail, sizeof(event.detail), "by %s", revoke->control.actor);
    if (control_job_audit(&revoke->control, tx, "sandbox.revoke", revoke->id, "", err) < 0 ||
        store_sandbox_revoke(tx, revoke->id, revoke->now_ms, err) < 0)
        return -1;
    return store_event_put(tx, revoke->id, &event, err);
}

static void revoke_done(struct store_job *job)
{
    struct revoke_job *revoke = CONTAINER_OF(job, struct revoke_job, control.job);
    struct sandbox_description description;
    Sandstorm__V1__RevokeSandboxResponse response = SANDSTORM__V1__REVOKE_SANDBOX_RESPONSE__INIT;
    if (control_job_failed(&revoke->control))
        return;
    struct sandbox *sandbox = registry_find(revoke->control.orchestrator->registry, revoke->id);
    if (sandbox) {
        sandbox->revoked_ms = revoke->now_ms;
        log_info("sandbox revoked", LF_STR("sandbox", sandbox->id),
                 LF_STR("by", revoke->control.actor));
        if (sandbox->session)
            session_close(sandbox->session, SANDSTORM__V1__GOODBYE_REASON__GOODBYE_REASON_REVOKED,
                          SESSION_SUPERSEDED_MS,
                          "this sandbox was revoked; a token from 'sandstorm token create "
                          "--sandbox' lets it join again");
        exec_sandbox_gone(sandbox, "was revoked");
        sandbox_describe(sandbox, &description);
        response.sandbox = &description.message;
    }
    control_job_end(&revoke->control, &response.base);
}

int control_revoke_sandbox(void *userdata, struct rpc_ticket *ticket,
                           const ProtobufCMessage *message, struct err *err)
{
    const Sandstorm__V1__RevokeSandboxRequest *request =
        (const Sandstorm__V1__RevokeSandboxRequest *)message;
    struct revoke_job *revoke = control_job_new(sizeof(*revoke), userdata, ticket, err);
    if (!revoke)
        return -1;
    (void)snprintf(revoke->id, sizeof(revoke->id), "%s", request->id);
    revoke->now_ms = wall_ms();
    return control_job_submit(&revoke->control, revoke_work, revoke_done, true, err);
}
