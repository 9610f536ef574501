/* SandboxService: the registry as clients see it, each what is in its scope. Requests come through
 * the guard; events and revocations take a turn through the store. */
#include "orchestrator/control.h"
#include "orchestrator/liveness.h"
#include "orchestrator/orchestrator-internal.h"
#include "orchestrator/relay.h"
#include "orchestrator/session.h"

#include "common/clock.h"
#include "common/selector.h"
#include "common/wire.h"

#include <stdio.h>
#include <string.h>

/* A page fits a message, whatever agents call themselves. */
#define PAGE_BYTES (192u * 1024)

struct page {
    Sandstorm__V1__Sandbox *pointers[CONTROL_PAGE_MAX];
    struct sandbox_description items[CONTROL_PAGE_MAX];
};

/* Asked for by the request: in its states, or, where it names none, all that are not evicted. */
static bool is_listed(const Sandstorm__V1__ListSandboxesRequest *request,
                      const struct sandbox *sandbox)
{
    Sandstorm__V1__SandboxState state = sandbox_state(sandbox);
    if (request->n_states == 0)
        return state != SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_EVICTED;
    for (size_t i = 0; i < request->n_states; i++)
        if (request->states[i] == state)
            return true;
    return false;
}

int control_list_sandboxes(void *userdata, struct rpc_call *call, const ProtobufCMessage *message,
                           struct err *err)
{
    struct orchestrator *orchestrator = userdata;
    const Sandstorm__V1__ListSandboxesRequest *request =
        (const Sandstorm__V1__ListSandboxesRequest *)message;
    size_t wanted =
        request->page_size ? MIN(request->page_size, CONTROL_PAGE_MAX) : CONTROL_PAGE_DEFAULT;
    struct selector selector;
    if (selector_parse(request->selector, &selector, err) < 0)
        return -1;
    if (*request->page_token && sandbox_id_check(request->page_token, err) < 0)
        return err_set(err, ERR_INVALID, "the page token is not one of ours");
    CLEANUP_FREE struct page *page = malloc(sizeof(*page));
    if (!page)
        return err_nomem(err);
    Sandstorm__V1__ListSandboxesResponse response = SANDSTORM__V1__LIST_SANDBOXES_RESPONSE__INIT;
    struct sandbox *sandbox = registry_next(orchestrator->registry, request->page_token);
    size_t bytes = 0, fields = SANDBOX_FIELDS;
    for (; sandbox && response.n_sandboxes < wanted; sandbox = sandbox->hh.next) {
        if (!access_sees(orchestrator, rpc_call_peer(call), sandbox) ||
            !is_listed(request, sandbox) ||
            !selector_matches(&selector, sandbox->labels, sandbox->reported))
            continue;
        struct sandbox_description *item = &page->items[response.n_sandboxes];
        sandbox_describe(sandbox, item);
        item->message.heartbeat_interval_ms = fleet_interval_us(orchestrator->fleet) / 1000;
        bytes += sandstorm__v1__sandbox__get_packed_size(&item->message) + WIRE_HEADER_MAX;
        fields += sandbox_fields(&item->message);
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

/* The samples of a sandbox as messages, oldest first. */
struct sample_messages {
    Sandstorm__V1__Sample items[REGISTRY_SAMPLES_MAX];
    Sandstorm__V1__Sample *pointers[REGISTRY_SAMPLES_MAX];
};

static size_t fill_samples(const struct sandbox *sandbox, struct sample_messages *room)
{
    unsigned count = MIN(sandbox->sample_count, REGISTRY_SAMPLES_MAX);
    unsigned first = sandbox->sample_count - count;
    for (unsigned i = 0; i < count; i++) {
        const struct sandbox_sample *sample = &sandbox->samples[(first + i) % REGISTRY_SAMPLES_MAX];
        Sandstorm__V1__Sample *message = &room->items[i];
        sandstorm__v1__sample__init(message);
        message->time_unix_ms = sample->time_ms;
        message->cpu_basis_points = sample->cpu_basis_points;
        message->memory_basis_points = sample->memory_basis_points;
        message->load1_centi = sample->load1_centi;
        room->pointers[i] = message;
    }
    return count;
}

static void get_done(struct store_job *job)
{
    struct get_job *get = CONTAINER_OF(job, struct get_job, control.job);
    struct orchestrator *orchestrator = get->control.orchestrator;
    struct sandbox_description description;
    struct sample_messages samples;
    Sandstorm__V1__SandboxEvent events[STORE_EVENTS_MAX];
    Sandstorm__V1__SandboxEvent *pointers[STORE_EVENTS_MAX];
    Sandstorm__V1__GetSandboxResponse response = SANDSTORM__V1__GET_SANDBOX_RESPONSE__INIT;
    if (control_job_failed(&get->control))
        return;
    struct sandbox *sandbox = registry_find(orchestrator->registry, get->id);
    if (sandbox) {
        sandbox_describe(sandbox, &description);
        response.sandbox = &description.message;
        description.message.heartbeat_interval_ms = fleet_interval_us(orchestrator->fleet) / 1000;
        description.message.n_samples = fill_samples(sandbox, &samples);
        description.message.samples = samples.pointers;
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
        relay_sandbox_gone(sandbox, "was revoked");
        liveness_changed(revoke->control.orchestrator, sandbox);
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
