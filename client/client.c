/* The client's root object and its unary calls. Turns its own loop while it waits, so that callers
 * need none. next: client/exec.c for commands, common/rpc_channel.c for the wire. */
#include "client/client-internal.h"

#include "common/rpc_diagnose.h"
#include "common/wire.h"

#include <stdio.h>
#include <string.h>

/* The public codes are the internal ones; a table would only repeat them. */
_Static_assert((int)SANDSTORM_INVALID == (int)ERR_INVALID, "codes must agree");
_Static_assert((int)SANDSTORM_UNAVAILABLE == (int)ERR_UNAVAILABLE, "codes must agree");
_Static_assert((int)SANDSTORM_SYSTEM == (int)ERR_SYSTEM, "codes must agree");
_Static_assert(SANDSTORM_TEXT_MAX == ERR_TEXT_MAX, "texts must fit");

int client_error(const struct err *err, struct sandstorm_error *ret)
{
    if (ret) {
        ret->code = (enum sandstorm_code)err->code;
        (void)memcpy(ret->text, err->text, sizeof(ret->text));
    }
    return -1;
}

struct loop *client_loop(struct sandstorm_client *client)
{
    return client->loop;
}

static int make(const struct sandstorm_client_options *options, struct sandstorm_client *client,
                struct err *err)
{
    struct endpoint endpoint;
    struct identity identity;
    int64_t not_after;
    client->endpoint = strdup(options->endpoint);
    if (!client->endpoint)
        return err_nomem(err);
    if (endpoint_parse(options->endpoint, &endpoint, err) < 0 ||
        rpc_creds_load(options->identity_dir, &client->creds, err) < 0)
        return -1;
    if (rpc_creds_check(&client->creds, err) < 0 ||
        rpc_creds_identity(&client->creds, &identity, &not_after, err) < 0)
        return err_wrap(err, "identity directory \"%s\"", options->identity_dir);
    if (loop_new(&client->loop, err) < 0 || rpc_pump_new(client->loop, &client->pump, err) < 0)
        return -1;
    return rpc_channel_new(client->pump, client->endpoint, &client->creds, &client->channel, err);
}

int sandstorm_client_new(const struct sandstorm_client_options *options,
                         struct sandstorm_client **ret, struct sandstorm_error *error)
{
    struct err err = { 0 };
    struct sandstorm_client *client = calloc(1, sizeof(*client));
    if (!client) {
        (void)err_nomem(&err);
        return client_error(&err, error);
    }
    if (make(options, client, &err) < 0) {
        sandstorm_client_free(client);
        return client_error(&err, error);
    }
    *ret = client;
    return 0;
}

void sandstorm_client_free(struct sandstorm_client *client)
{
    if (!client)
        return;
    rpc_channel_free(client->channel);
    rpc_pump_free(client->pump);
    loop_free(client->loop);
    rpc_creds_clear(&client->creds);
    free(client->endpoint);
    free(client);
}

void client_explain(struct sandstorm_client *client, struct err *err)
{
    struct err reason;
    if ((err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT) &&
        rpc_diagnose(client->endpoint, &client->creds, CLIENT_DIAGNOSE_MS, &reason) < 0)
        *err = reason;
}

/* Unary calls. */

struct unary {
    struct rpc_call *call;
    const ProtobufCMessageDescriptor *type;
    ProtobufCMessage *answer;
    struct err err;
    bool done;
};

static void unary_message(void *owner, const uint8_t *data, size_t size)
{
    struct unary *unary = owner;
    if (unary->answer)
        return;
    if (wire_unpack(unary->type, data, size, &unary->answer, &unary->err) < 0)
        rpc_call_cancel(unary->call);
}

static void unary_closed(void *owner, const struct err *status)
{
    struct unary *unary = owner;
    unary->done = true;
    if (unary->err.code == ERR_NONE)
        unary->err = *status;
}

static const struct rpc_call_handler unary_handler = {
    .message = unary_message,
    .closed = unary_closed,
};

int client_unary(struct sandstorm_client *client, const char *method,
                 const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type,
                 ProtobufCMessage **ret, struct err *err)
{
    struct unary unary = { .type = type };
    if (rpc_channel_call(client->channel, method, CLIENT_DEADLINE_US, &unary_handler, &unary,
                         &unary.call, err) < 0)
        return -1;
    int r = rpc_call_send(unary.call, request, err);
    if (r < 0)
        rpc_call_cancel(unary.call);
    rpc_call_finish(unary.call, NULL);
    while (!unary.done && loop_turn(client->loop, UINT64_MAX, &unary.err) == 0)
        ;
    rpc_call_release(unary.call);
    if (r == 0 && unary.err.code == ERR_NONE && !unary.answer)
        (void)err_set(&unary.err, ERR_PROTOCOL, "the orchestrator sent no answer");
    if (r == 0 && unary.err.code != ERR_NONE) {
        *err = unary.err;
        client_explain(client, err);
        r = -1;
    }
    if (r < 0) {
        wire_free(unary.answer);
        return -1;
    }
    *ret = unary.answer;
    return 0;
}

/* Sandboxes. */

static const char *const state_names[] = {
    [SANDSTORM_STATE_UNKNOWN] = "unknown", [SANDSTORM_STATE_ONLINE] = "online",
    [SANDSTORM_STATE_SUSPECT] = "suspect", [SANDSTORM_STATE_OFFLINE] = "offline",
    [SANDSTORM_STATE_EVICTED] = "evicted",
};

const char *sandstorm_state_name(enum sandstorm_state state)
{
    return (size_t)state < ELEMENTS(state_names) ? state_names[state] : "unknown";
}

static struct sandstorm_sandbox describe(const Sandstorm__V1__Sandbox *message)
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
        .state = (enum sandstorm_state)message->state,
        .runner_connected = message->runner_connected,
        .connected_unix_ms = message->connected_unix_ms,
        .last_seen_unix_ms = message->last_seen_unix_ms,
        .cpus = metrics->cpus,
        .cpu_basis_points = metrics->cpu_basis_points,
        .processes = metrics->processes,
        .commands_running = metrics->commands_running,
        .memory_total_bytes = metrics->memory_total_bytes,
        .memory_available_bytes = metrics->memory_available_bytes,
        .disk_total_bytes = metrics->disk_total_bytes,
        .disk_free_bytes = metrics->disk_free_bytes,
    };
}

int sandstorm_list(struct sandstorm_client *client,
                   void (*each)(void *userdata, const struct sandstorm_sandbox *sandbox),
                   void *userdata, struct sandstorm_error *error)
{
    struct err err = { 0 };
    char token[SANDBOX_ID_MAX + 1] = "";
    do {
        CLEANUP_WIRE ProtobufCMessage *message = NULL;
        Sandstorm__V1__ListSandboxesRequest request = SANDSTORM__V1__LIST_SANDBOXES_REQUEST__INIT;
        request.page_token = token;
        if (client_unary(client, "/sandstorm.v1.SandboxService/ListSandboxes", &request.base,
                         &sandstorm__v1__list_sandboxes_response__descriptor, &message, &err) < 0)
            return client_error(&err, error);
        const Sandstorm__V1__ListSandboxesResponse *page =
            (const Sandstorm__V1__ListSandboxesResponse *)message;
        for (size_t i = 0; i < page->n_sandboxes; i++) {
            const struct sandstorm_sandbox sandbox = describe(page->sandboxes[i]);
            each(userdata, &sandbox);
        }
        (void)snprintf(token, sizeof(token), "%s", page->next_page_token);
    } while (*token);
    return 0;
}
