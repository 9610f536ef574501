/* Sandboxes as the client sees them: listed, looked at, revoked. Calls through client/client.c;
 * hands each to the caller's function. next: client/labels.c. */
#include "client/client-internal.h"

#include "common/wire.h"

#include <stdio.h>

#define METHOD(name) "/sandstorm.v1.SandboxService/" name

static const char *const state_names[] = {
    [SANDSTORM_STATE_UNKNOWN] = "unknown", [SANDSTORM_STATE_ONLINE] = "online",
    [SANDSTORM_STATE_SUSPECT] = "suspect", [SANDSTORM_STATE_OFFLINE] = "offline",
    [SANDSTORM_STATE_EVICTED] = "evicted", [SANDSTORM_STATE_REVOKED] = "revoked",
};

const char *sandstorm_state_name(enum sandstorm_state state)
{
    return (size_t)state < ELEMENTS(state_names) ? state_names[state] : "unknown";
}

static struct sandstorm_sandbox describe(const Sandstorm__V1__Sandbox *message, const char *labels,
                                         const struct sandstorm_event *events)
{
    static const Sandstorm__V1__SandboxInfo no_info = SANDSTORM__V1__SANDBOX_INFO__INIT;
    static const Sandstorm__V1__Metrics no_metrics = SANDSTORM__V1__METRICS__INIT;
    const Sandstorm__V1__SandboxInfo *info = message->info ? message->info : &no_info;
    const Sandstorm__V1__Metrics *metrics = message->metrics ? message->metrics : &no_metrics;
    return (struct sandstorm_sandbox){
        .id = message->id,
        .vm_id = info->vm_id,
        .hostname = info->hostname,
        .kernel = info->kernel,
        .os = info->os,
        .arch = info->arch,
        .agent_version = info->agent_version,
        .labels = labels,
        .state = (enum sandstorm_state)message->state,
        .runner_connected = message->runner_connected,
        .connected_unix_ms = message->connected_unix_ms,
        .last_seen_unix_ms = message->last_seen_unix_ms,
        .enrolled_unix_ms = message->enrolled_unix_ms,
        .revoked_unix_ms = message->revoked_unix_ms,
        .certificate_not_after_unix_ms = message->certificate_not_after_unix_ms,
        .clock_skew_ms = message->clock_skew_ms,
        .cpus = metrics->cpus,
        .cpu_basis_points = metrics->cpu_basis_points,
        .processes = metrics->processes,
        .commands_running = metrics->commands_running,
        .memory_total_bytes = metrics->memory_total_bytes,
        .memory_available_bytes = metrics->memory_available_bytes,
        .disk_total_bytes = metrics->disk_total_bytes,
        .disk_free_bytes = metrics->disk_free_bytes,
        .events = events,
        .event_count = message->n_events,
    };
}

/* Calls the function with the message in the library's own words. */
static int deliver(const Sandstorm__V1__Sandbox *message, sandstorm_sandbox_fn each, void *userdata,
                   struct err *err)
{
    CLEANUP_FREE char *labels = NULL;
    if (!message)
        return err_set(err, ERR_PROTOCOL, "the orchestrator sent an answer without a sandbox");
    if (client_labels_text(message->labels, message->n_labels, &labels, err) < 0)
        return -1;
    CLEANUP_FREE struct sandstorm_event *events = calloc(message->n_events + 1, sizeof(*events));
    if (!events)
        return err_nomem(err);
    for (size_t i = 0; i < message->n_events; i++)
        events[i] = (struct sandstorm_event){
            .time_unix_ms = message->events[i]->time_unix_ms,
            .kind = message->events[i]->kind,
            .detail = message->events[i]->detail,
        };
    const struct sandstorm_sandbox sandbox = describe(message, labels, events);
    if (each)
        each(userdata, &sandbox);
    return 0;
}

static int list_page(struct sandstorm_client *client, char token[SANDBOX_ID_MAX + 1],
                     sandstorm_sandbox_fn each, void *userdata, struct err *err)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    Sandstorm__V1__ListSandboxesRequest request = SANDSTORM__V1__LIST_SANDBOXES_REQUEST__INIT;
    request.page_token = token;
    if (client_unary(client, METHOD("ListSandboxes"), &request.base,
                     &sandstorm__v1__list_sandboxes_response__descriptor, &message, err) < 0)
        return -1;
    const Sandstorm__V1__ListSandboxesResponse *page =
        (const Sandstorm__V1__ListSandboxesResponse *)message;
    for (size_t i = 0; i < page->n_sandboxes; i++)
        if (deliver(page->sandboxes[i], each, userdata, err) < 0)
            return -1;
    (void)snprintf(token, SANDBOX_ID_MAX + 1, "%s", page->next_page_token);
    return 0;
}

int sandstorm_list(struct sandstorm_client *client, sandstorm_sandbox_fn each, void *userdata,
                   struct sandstorm_error *error)
{
    struct err err = { 0 };
    char token[SANDBOX_ID_MAX + 1] = "";
    do
        if (list_page(client, token, each, userdata, &err) < 0)
            return client_error(&err, error);
    while (*token);
    return 0;
}

int sandstorm_sandbox_get(struct sandstorm_client *client, const char *id, sandstorm_sandbox_fn one,
                          void *userdata, struct sandstorm_error *error)
{
    struct err err = { 0 };
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    Sandstorm__V1__GetSandboxRequest request = SANDSTORM__V1__GET_SANDBOX_REQUEST__INIT;
    request.id = (char *)id;
    if (client_unary(client, METHOD("GetSandbox"), &request.base,
                     &sandstorm__v1__get_sandbox_response__descriptor, &message, &err) < 0 ||
        deliver(((const Sandstorm__V1__GetSandboxResponse *)message)->sandbox, one, userdata,
                &err) < 0)
        return client_error(&err, error);
    return 0;
}

int sandstorm_sandbox_revoke(struct sandstorm_client *client, const char *id,
                             sandstorm_sandbox_fn one, void *userdata,
                             struct sandstorm_error *error)
{
    struct err err = { 0 };
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    Sandstorm__V1__RevokeSandboxRequest request = SANDSTORM__V1__REVOKE_SANDBOX_REQUEST__INIT;
    request.id = (char *)id;
    if (client_unary(client, METHOD("RevokeSandbox"), &request.base,
                     &sandstorm__v1__revoke_sandbox_response__descriptor, &message, &err) < 0 ||
        deliver(((const Sandstorm__V1__RevokeSandboxResponse *)message)->sandbox, one, userdata,
                &err) < 0)
        return client_error(&err, error);
    return 0;
}
