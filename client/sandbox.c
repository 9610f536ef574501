/* Sandboxes from the wire to the library's own words, and the calls that look: list and get. Calls
 * through client/client.c; hands each to the caller's function. next: client/fleet.c for what
 * changes them, client/watch.c, client/labels.c. */
#include "client/client-internal.h"

#include "common/wire.h"

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

/* What a message points to in the library's own types. */
struct parts {
    char *labels, *reported_labels;
    struct sandstorm_event *events;
    struct sandstorm_sample *samples;
};

static void parts_done(struct parts *parts)
{
    free(parts->labels);
    free(parts->reported_labels);
    free(parts->events);
    free(parts->samples);
}

static int parts_fill(const Sandstorm__V1__Sandbox *message, struct parts *parts, struct err *err)
{
    const Sandstorm__V1__SandboxInfo *info = message->info;
    if (client_labels_text(message->labels, message->n_labels, &parts->labels, err) < 0 ||
        client_labels_join(info ? info->labels : NULL, info ? info->n_labels : 0,
                           &parts->reported_labels, err) < 0)
        return -1;
    parts->events = calloc(message->n_events + 1, sizeof(*parts->events));
    parts->samples = calloc(message->n_samples + 1, sizeof(*parts->samples));
    if (!parts->events || !parts->samples)
        return err_nomem(err);
    for (size_t i = 0; i < message->n_events; i++)
        parts->events[i] = (struct sandstorm_event){
            .time_unix_ms = message->events[i]->time_unix_ms,
            .kind = message->events[i]->kind,
            .detail = message->events[i]->detail,
        };
    for (size_t i = 0; i < message->n_samples; i++)
        parts->samples[i] = (struct sandstorm_sample){
            .time_unix_ms = message->samples[i]->time_unix_ms,
            .cpu_basis_points = message->samples[i]->cpu_basis_points,
            .memory_basis_points = message->samples[i]->memory_basis_points,
            .load1_centi = message->samples[i]->load1_centi,
        };
    return 0;
}

static void fill_info(const Sandstorm__V1__SandboxInfo *message, struct sandstorm_sandbox *sandbox)
{
    static const Sandstorm__V1__SandboxInfo none = SANDSTORM__V1__SANDBOX_INFO__INIT;
    const Sandstorm__V1__SandboxInfo *info = message ? message : &none;
    sandbox->vm_id = info->vm_id;
    sandbox->hostname = info->hostname;
    sandbox->kernel = info->kernel;
    sandbox->os = info->os;
    sandbox->arch = info->arch;
    sandbox->boot_id = info->boot_id;
    sandbox->agent_version = info->agent_version;
    sandbox->runner_version = info->runner_version;
}

static void fill_metrics(const Sandstorm__V1__Metrics *metrics, struct sandstorm_sandbox *sandbox)
{
    sandbox->cpus = metrics->cpus;
    sandbox->cpu_basis_points = metrics->cpu_basis_points;
    sandbox->load1_centi = metrics->load1_centi;
    sandbox->processes = metrics->processes;
    sandbox->commands_running = metrics->commands_running;
    sandbox->memory_total_bytes = metrics->memory_total_bytes;
    sandbox->memory_available_bytes = metrics->memory_available_bytes;
    sandbox->disk_total_bytes = metrics->disk_total_bytes;
    sandbox->disk_free_bytes = metrics->disk_free_bytes;
    sandbox->state_disk_total_bytes = metrics->state_disk_total_bytes;
    sandbox->state_disk_free_bytes = metrics->state_disk_free_bytes;
    sandbox->network_received_bytes = metrics->network_received_bytes;
    sandbox->network_sent_bytes = metrics->network_sent_bytes;
    sandbox->spool_bytes = metrics->spool_bytes;
    sandbox->uptime_s = metrics->uptime_s;
    const Sandstorm__V1__Pressure *pressure = metrics->pressure;
    if (pressure)
        sandbox->pressure = (struct sandstorm_pressure){
            .known = true,
            .cpu_some = pressure->cpu_some,
            .memory_some = pressure->memory_some,
            .memory_full = pressure->memory_full,
            .io_some = pressure->io_some,
            .io_full = pressure->io_full,
        };
}

int client_deliver(const Sandstorm__V1__Sandbox *message, sandstorm_sandbox_fn each, void *userdata,
                   struct err *err)
{
    CLEANUP(parts_done) struct parts parts = { 0 };
    if (!message)
        return err_set(err, ERR_PROTOCOL, "the orchestrator sent an answer without a sandbox");
    if (parts_fill(message, &parts, err) < 0)
        return -1;
    struct sandstorm_sandbox sandbox = {
        .id = message->id,
        .labels = parts.labels,
        .reported_labels = parts.reported_labels,
        .state = (enum sandstorm_state)message->state,
        .runner_connected = message->runner_connected,
        .draining = message->draining,
        .state_unix_ms = message->state_unix_ms,
        .connected_unix_ms = message->connected_unix_ms,
        .last_seen_unix_ms = message->last_seen_unix_ms,
        .enrolled_unix_ms = message->enrolled_unix_ms,
        .revoked_unix_ms = message->revoked_unix_ms,
        .certificate_not_after_unix_ms = message->certificate_not_after_unix_ms,
        .last_error = message->last_error,
        .last_error_unix_ms = message->last_error_unix_ms,
        .heartbeat_interval_ms = message->heartbeat_interval_ms,
        .clock_skew_ms = message->clock_skew_ms,
        .events = parts.events,
        .event_count = message->n_events,
        .samples = parts.samples,
        .sample_count = message->n_samples,
    };
    fill_info(message->info, &sandbox);
    if (message->metrics)
        fill_metrics(message->metrics, &sandbox);
    if (each)
        each(userdata, &sandbox);
    return 0;
}

static int list_page(struct sandstorm_client *client,
                     const Sandstorm__V1__ListSandboxesRequest *request,
                     char token[CLIENT_PAGE_TOKEN_MAX], sandstorm_sandbox_fn each, void *userdata,
                     struct err *err)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    if (client_unary(client, METHOD("ListSandboxes"), &request->base,
                     &sandstorm__v1__list_sandboxes_response__descriptor, &message, err) < 0)
        return -1;
    const Sandstorm__V1__ListSandboxesResponse *page =
        (const Sandstorm__V1__ListSandboxesResponse *)message;
    for (size_t i = 0; i < page->n_sandboxes; i++)
        if (client_deliver(page->sandboxes[i], each, userdata, err) < 0)
            return -1;
    return client_next_page(page->next_page_token, token, err);
}

int sandstorm_list(struct sandstorm_client *client, const struct sandstorm_list_options *options,
                   sandstorm_sandbox_fn each, void *userdata, struct sandstorm_error *error)
{
    struct err err = { 0 };
    char token[CLIENT_PAGE_TOKEN_MAX] = "";
    Sandstorm__V1__SandboxState states[ELEMENTS(state_names)];
    Sandstorm__V1__ListSandboxesRequest request = SANDSTORM__V1__LIST_SANDBOXES_REQUEST__INIT;
    request.page_token = token;
    request.states = states;
    if (options && options->selector)
        request.selector = (char *)options->selector;
    for (unsigned state = 1; options && state < ELEMENTS(state_names); state++)
        if (options->states & SANDSTORM_STATE_BIT(state))
            states[request.n_states++] = (Sandstorm__V1__SandboxState)state;
    do
        if (list_page(client, &request, token, each, userdata, &err) < 0)
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
        client_deliver(((const Sandstorm__V1__GetSandboxResponse *)message)->sandbox, one, userdata,
                       &err) < 0)
        return client_error(&err, error);
    return 0;
}
