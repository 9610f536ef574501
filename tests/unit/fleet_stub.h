/* An orchestrator with a small fleet, for tests of the client library and of the verbs: four
 * sandboxes that never change by themselves, a history of commands, a log, and what was asked of
 * it. Runs on the thread of tests/unit/client_fixture.h. */
#pragma once

#include "client/client-internal.h"
#include "common/clock.h"
#include "common/wire.h"
#include "tests/unit/client_fixture.h"

#define EVIL     "a\x1b[2J\xe2\x80\xae"
#define HARMLESS "a\\x1b[2J\\u202e"

#define STUB_SANDBOXES 4u
#define STUB_SAMPLES   8u
#define STUB_COMMANDS  8u
#define GIB            (UINT64_C(1) << 30)

/* Written before a call, or by the service's thread during it and read after it. */
static struct {
    char seen[512];       /* the last request, in words */
    unsigned calls;       /* of unary methods */
    bool deny, not_ready; /* refuse */
    bool same_page;       /* go in circles */
    bool ends;            /* a watch or a log that is followed ends by itself, well */
    bool breaks;          /* and not well, the first time */
    bool odd;             /* a change of a kind that nobody knows comes first */
    bool no_sandbox;      /* an answer lacks its sandbox */
} script;

struct stub_sandbox {
    Sandstorm__V1__Sandbox sandbox;
    Sandstorm__V1__SandboxInfo info;
    Sandstorm__V1__Metrics metrics;
    Sandstorm__V1__Pressure pressure;
    Sandstorm__V1__Label label, reported;
    Sandstorm__V1__Label *labels[1], *reports[1];
    Sandstorm__V1__SandboxEvent event, *events[1];
    Sandstorm__V1__Sample sample[STUB_SAMPLES], *samples[STUB_SAMPLES];
};

static inline void stub_fill_metrics(struct stub_sandbox *stub)
{
    Sandstorm__V1__Metrics *metrics = &stub->metrics;
    sandstorm__v1__metrics__init(metrics);
    sandstorm__v1__pressure__init(&stub->pressure);
    metrics->cpus = 4;
    metrics->cpu_basis_points = 2500;
    metrics->load1_centi = 142;
    metrics->processes = 99;
    metrics->commands_running = 2;
    metrics->memory_total_bytes = 8 * GIB;
    metrics->memory_available_bytes = 6 * GIB;
    metrics->disk_total_bytes = 100 * GIB;
    metrics->disk_free_bytes = 60 * GIB;
    metrics->state_disk_total_bytes = 10 * GIB;
    metrics->state_disk_free_bytes = 9 * GIB;
    metrics->network_received_bytes = 3 * GIB;
    metrics->network_sent_bytes = 2048;
    metrics->spool_bytes = 5 << 20;
    metrics->uptime_s = 3 * 86400;
    stub->pressure.cpu_some = 150;
    stub->pressure.memory_some = 20;
    stub->pressure.io_full = 1234;
    metrics->pressure = &stub->pressure;
}

static inline void stub_fill_details(struct stub_sandbox *stub)
{
    stub->event.time_unix_ms = 1763466604000;
    stub->event.kind = (char *)"duplicate_link";
    stub->event.detail = (char *)"x\ny";
    stub->events[0] = &stub->event;
    stub->sandbox.events = stub->events;
    stub->sandbox.n_events = 1;
    for (unsigned i = 0; i < STUB_SAMPLES; i++) {
        sandstorm__v1__sample__init(&stub->sample[i]);
        stub->sample[i].time_unix_ms = 1763466604000 + 30000 * (int64_t)i;
        stub->sample[i].cpu_basis_points = 10000 / (STUB_SAMPLES - 1) * i;
        stub->sample[i].memory_basis_points = 5000;
        stub->samples[i] = &stub->sample[i];
    }
    stub->sandbox.samples = stub->samples;
    stub->sandbox.n_samples = STUB_SAMPLES;
}

/* 0: web-1, all is well. 1: web-2, silent and draining. 2: db-1, offline. 3: old-1, evicted. */
static inline void stub_fill(struct stub_sandbox *stub, unsigned which)
{
    static const char *const ids[STUB_SANDBOXES] = { "web-1", "web-2", "db-1", "old-1" };
    Sandstorm__V1__Sandbox *sandbox = &stub->sandbox;
    sandstorm__v1__sandbox__init(sandbox);
    sandstorm__v1__sandbox_info__init(&stub->info);
    sandstorm__v1__label__init(&stub->label);
    sandstorm__v1__label__init(&stub->reported);
    sandstorm__v1__sandbox_event__init(&stub->event);
    stub->label.name = (char *)"env";
    stub->label.value = (char *)(which == 0 ? "ci" : "prod");
    stub->reported.name = (char *)"zone";
    stub->reported.value = (char *)EVIL;
    stub->labels[0] = &stub->label;
    stub->reports[0] = &stub->reported;
    stub->info.labels = stub->reports;
    stub->info.n_labels = 1;
    stub->info.os = (char *)"Debian 12";
    stub->info.hostname = (char *)EVIL;
    stub->info.boot_id = (char *)"boot-1";
    stub->info.agent_version = (char *)"0.0.1";
    stub->info.runner_version = (char *)"0.0.2";
    sandbox->id = (char *)ids[which];
    sandbox->state = (Sandstorm__V1__SandboxState)(which + 1);
    sandbox->info = &stub->info;
    sandbox->labels = stub->labels;
    sandbox->n_labels = 1;
    sandbox->draining = which == 1;
    sandbox->runner_connected = which == 0;
    sandbox->state_unix_ms = wall_ms() - 3600000 * (int64_t)(which + 2);
    sandbox->connected_unix_ms = sandbox->state_unix_ms;
    sandbox->last_seen_unix_ms = which == 0 ? wall_ms() : sandbox->state_unix_ms;
    sandbox->enrolled_unix_ms = 1763466604000;
    sandbox->certificate_not_after_unix_ms = wall_ms() + 12LL * 3600000;
    sandbox->heartbeat_interval_ms = 30000;
    if (which == 2) {
        sandbox->last_error = (char *)"no route to host " EVIL;
        sandbox->last_error_unix_ms = 1763466604000;
    }
    if (which != 3) {
        stub_fill_metrics(stub);
        sandbox->metrics = &stub->metrics;
    }
}

static inline unsigned stub_which(const char *id)
{
    struct stub_sandbox stub;
    for (unsigned i = 0; i < STUB_SANDBOXES; i++) {
        stub_fill(&stub, i);
        if (strcmp(stub.sandbox.id, id) == 0)
            return i;
    }
    return STUB_SANDBOXES;
}

static inline int stub_answer(struct rpc_call *call, const ProtobufCMessage *message,
                              struct err *err)
{
    script.calls++;
    return script.deny ? err_set(err, ERR_DENIED, "only admins may")
                       : rpc_call_send(call, message, err);
}

static inline bool stub_wanted(const Sandstorm__V1__ListSandboxesRequest *request, unsigned which)
{
    bool wanted = request->n_states == 0 && which != 3;
    for (size_t i = 0; i < request->n_states; i++)
        wanted = wanted || (unsigned)request->states[i] == which + 1;
    return wanted && (!*request->selector || (strcmp(request->selector, "env=ci") == 0) == !which);
}

/* A sandbox a page. */
static inline int stub_list(void *userdata, struct rpc_call *call, const ProtobufCMessage *message,
                            struct err *err)
{
    (void)userdata;
    const Sandstorm__V1__ListSandboxesRequest *request =
        (const Sandstorm__V1__ListSandboxesRequest *)message;
    Sandstorm__V1__ListSandboxesResponse response = SANDSTORM__V1__LIST_SANDBOXES_RESPONSE__INIT;
    struct stub_sandbox stub;
    Sandstorm__V1__Sandbox *sandboxes[] = { &stub.sandbox };
    unsigned page = (unsigned)atoi(request->page_token);
    char next[16] = "";
    (void)snprintf(script.seen, sizeof(script.seen), "%s|%zu", request->selector,
                   request->n_states);
    if (page < STUB_SANDBOXES && strcmp(request->selector, "env=none") != 0) {
        stub_fill(&stub, page);
        response.sandboxes = sandboxes;
        response.n_sandboxes = stub_wanted(request, page);
    }
    if (page + 1 < STUB_SANDBOXES)
        (void)snprintf(next, sizeof(next), "%u", script.same_page ? 1 : page + 1);
    response.next_page_token = next;
    return stub_answer(call, &response.base, err);
}

#define STUB_UNARY(name, type, lower, ...)                                                         \
    static inline int name(void *userdata, struct rpc_call *call, const ProtobufCMessage *message, \
                           struct err *err)                                                        \
    {                                                                                              \
        (void)userdata;                                                                            \
        const Sandstorm__V1__##type##Request *request =                                            \
            (const Sandstorm__V1__##type##Request *)message;                                       \
        Sandstorm__V1__##type##Response response;                                                  \
        struct stub_sandbox stub;                                                                  \
        unsigned which = stub_which(request->id);                                                  \
        sandstorm__v1__##lower##_response__init(&response);                                        \
        if (which >= STUB_SANDBOXES)                                                               \
            return err_set(err, ERR_NOT_FOUND, "there is no sandbox \"%s\"", request->id);         \
        stub_fill(&stub, which);                                                                   \
        stub_fill_details(&stub);                                                                  \
        response.sandbox = script.no_sandbox ? NULL : &stub.sandbox;                               \
        __VA_ARGS__                                                                                \
        return stub_answer(call, &response.base, err);                                             \
    }

STUB_UNARY(stub_get, GetSandbox, get_sandbox, )
STUB_UNARY(stub_ready, SandboxReady, sandbox_ready,
           (void)snprintf(script.seen, sizeof(script.seen), "ready %s %llu", request->id,
                          (unsigned long long)request->timeout_ms);
           if (script.not_ready) return err_set(err, ERR_TIMEOUT, "it did not come");)
STUB_UNARY(
    stub_label, LabelSandbox, label_sandbox,
    (void)snprintf(script.seen, sizeof(script.seen), "label %s", request->id);
    for (size_t i = 0; i < request->n_set; i++) {
        (void)strcat(strcat(script.seen, " "), request->set[i]->name);
        (void)strcat(strcat(script.seen, "="), request->set[i]->value);
    } for (size_t i = 0; i < request->n_remove; i++)(void)
        strcat(strcat(strcat(script.seen, " "), request->remove[i]), "-");)
STUB_UNARY(stub_drain, DrainSandbox, drain_sandbox,
           (void)snprintf(script.seen, sizeof(script.seen), "drain %s %d", request->id,
                          request->draining);
           stub.sandbox.draining = request->draining;)

static inline int stub_remove(void *userdata, struct rpc_call *call,
                              const ProtobufCMessage *message, struct err *err)
{
    (void)userdata;
    const Sandstorm__V1__RemoveSandboxRequest *request =
        (const Sandstorm__V1__RemoveSandboxRequest *)message;
    Sandstorm__V1__RemoveSandboxResponse response = SANDSTORM__V1__REMOVE_SANDBOX_RESPONSE__INIT;
    (void)snprintf(script.seen, sizeof(script.seen), "remove %s %d", request->id, request->force);
    if (strcmp(request->id, "web-1") == 0 && !request->force)
        return err_set(err, ERR_PRECONDITION, "web-1 is connected; stop it, or use --force");
    return stub_answer(call, &response.base, err);
}

/* The history: one of each kind, newest first, three a page. */
static inline int stub_commands(void *userdata, struct rpc_call *call,
                                const ProtobufCMessage *message, struct err *err)
{
    (void)userdata;
    const Sandstorm__V1__ListCommandsRequest *request =
        (const Sandstorm__V1__ListCommandsRequest *)message;
    Sandstorm__V1__ListCommandsResponse response = SANDSTORM__V1__LIST_COMMANDS_RESPONSE__INIT;
    Sandstorm__V1__Command commands[STUB_COMMANDS], *pointers[STUB_COMMANDS];
    Sandstorm__V1__Outcome outcomes[STUB_COMMANDS];
    Sandstorm__V1__Exited exited = SANDSTORM__V1__EXITED__INIT;
    Sandstorm__V1__Signaled signaled = SANDSTORM__V1__SIGNALED__INIT;
    Sandstorm__V1__TimedOut timed_out = SANDSTORM__V1__TIMED_OUT__INIT;
    Sandstorm__V1__StartFailed start_failed = SANDSTORM__V1__START_FAILED__INIT;
    Sandstorm__V1__Lost lost = SANDSTORM__V1__LOST__INIT;
    char ids[STUB_COMMANDS][40], next[16] = "";
    exited.code = 7;
    signaled.name = (char *)"KILL";
    signaled.signal = 9;
    start_failed.errno_name = (char *)"ENOENT";
    start_failed.step = SANDSTORM__V1__START_STEP__START_STEP_EXEC;
    lost.reason = SANDSTORM__V1__LOST_REASON__LOST_REASON_RUNNER_RESTARTED;
    unsigned first = (unsigned)atoi(request->page_token);
    (void)snprintf(script.seen, sizeof(script.seen), "commands %s|%s|%zu", request->sandbox_id,
                   request->command_id, request->n_states);
    for (unsigned i = 0; i < STUB_COMMANDS; i++) {
        sandstorm__v1__command__init(&commands[i]);
        sandstorm__v1__outcome__init(&outcomes[i]);
        (void)snprintf(ids[i], sizeof(ids[i]), "00000000-0000-4000-8000-00000000000%u", i);
        commands[i].id = ids[i];
        commands[i].sandbox_id = (char *)"web-1";
        commands[i].ordered_by = (char *)(i == 0 ? EVIL : "client/ann");
        commands[i].state = SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_ENDED;
        commands[i].ordered_unix_ms = wall_ms() - 600000;
        commands[i].started_unix_ms = wall_ms() - 600000;
        commands[i].ended_unix_ms = wall_ms() - 300000;
        outcomes[i].duration_us = 65000000;
        commands[i].outcome = &outcomes[i];
    }
    commands[0].state = SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_RUNNING;
    commands[1].state = SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_ORDERED;
    commands[1].started_unix_ms = 0;
    commands[2].state = SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_UNKNOWN;
    for (unsigned i = 0; i < 3; i++) {
        commands[i].outcome = NULL;
        commands[i].ended_unix_ms = 0;
    }
    outcomes[3].result_case = SANDSTORM__V1__OUTCOME__RESULT_EXITED;
    outcomes[3].exited = &exited;
    outcomes[4].result_case = SANDSTORM__V1__OUTCOME__RESULT_SIGNALED;
    outcomes[4].signaled = &signaled;
    outcomes[5].result_case = SANDSTORM__V1__OUTCOME__RESULT_TIMED_OUT;
    outcomes[5].timed_out = &timed_out;
    outcomes[6].result_case = SANDSTORM__V1__OUTCOME__RESULT_START_FAILED;
    outcomes[6].start_failed = &start_failed;
    outcomes[7].result_case = SANDSTORM__V1__OUTCOME__RESULT_LOST;
    outcomes[7].lost = &lost;
    for (unsigned i = first; i < MIN(first + 3, STUB_COMMANDS); i++) {
        bool wanted = request->n_states == 0 && strcmp(request->sandbox_id, "db-1") != 0;
        for (size_t k = 0; k < request->n_states; k++)
            wanted = wanted || request->states[k] == commands[i].state;
        if (wanted)
            pointers[response.n_commands++] = &commands[i];
    }
    response.commands = pointers;
    if (first + 3 < STUB_COMMANDS)
        (void)snprintf(next, sizeof(next), "%u", script.same_page ? 3 : first + 3);
    response.next_page_token = next;
    return stub_answer(call, &response.base, err);
}

/* Streams that stay open until the client goes. */

static inline void stub_over(struct rpc_call *call)
{
    struct err status = { .code = ERR_UNAVAILABLE, .text = "going down" };
    if (script.ends || script.breaks)
        rpc_call_finish(call, script.breaks ? &status : NULL);
    script.breaks = false;
}

static inline void stub_closed(void *owner, const struct err *status)
{
    (void)status;
    rpc_call_release(owner);
}

static inline void stub_change(struct rpc_call *call, Sandstorm__V1__WatchKind kind,
                               Sandstorm__V1__Sandbox *sandbox)
{
    Sandstorm__V1__WatchSandboxesResponse response = SANDSTORM__V1__WATCH_SANDBOXES_RESPONSE__INIT;
    response.kind = kind;
    response.sandbox = sandbox;
    (void)!rpc_call_send(call, &response.base, NULL);
}

static inline void stub_watch_asked(void *owner, const uint8_t *data, size_t size)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    struct stub_sandbox stub;
    if (wire_unpack(&sandstorm__v1__watch_sandboxes_request__descriptor, data, size, &message,
                    NULL) < 0)
        return;
    const Sandstorm__V1__WatchSandboxesRequest *request =
        (const Sandstorm__V1__WatchSandboxesRequest *)message;
    (void)snprintf(script.seen, sizeof(script.seen), "watch %s|%s|%d", request->selector,
                   request->id, request->metrics);
    if (script.odd)
        stub_change(owner, (Sandstorm__V1__WatchKind)77, NULL);
    for (unsigned i = 0; i + 1 < STUB_SANDBOXES; i++) {
        stub_fill(&stub, i);
        stub_change(owner, SANDSTORM__V1__WATCH_KIND__WATCH_KIND_SANDBOX, &stub.sandbox);
    }
    stub_change(owner, SANDSTORM__V1__WATCH_KIND__WATCH_KIND_CURRENT, NULL);
    stub_fill(&stub, 0);
    stub.sandbox.state = SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_SUSPECT;
    stub_change(owner, SANDSTORM__V1__WATCH_KIND__WATCH_KIND_SANDBOX, &stub.sandbox);
    stub.label.value = (char *)"prod";
    stub.sandbox.draining = true;
    stub.sandbox.runner_connected = false;
    stub.sandbox.last_error = (char *)EVIL;
    stub.sandbox.last_error_unix_ms = 5;
    stub_change(owner, SANDSTORM__V1__WATCH_KIND__WATCH_KIND_SANDBOX, &stub.sandbox);
    /* A heartbeat, and nothing new. */
    stub.sandbox.last_seen_unix_ms++;
    stub_change(owner, SANDSTORM__V1__WATCH_KIND__WATCH_KIND_SANDBOX, &stub.sandbox);
    stub_fill(&stub, 3);
    stub_change(owner, SANDSTORM__V1__WATCH_KIND__WATCH_KIND_SANDBOX, &stub.sandbox);
    sandstorm__v1__sandbox__init(&stub.sandbox);
    stub.sandbox.id = (char *)"db-1";
    stub_change(owner, SANDSTORM__V1__WATCH_KIND__WATCH_KIND_GONE, &stub.sandbox);
    stub_over(owner);
}

static inline void stub_logs_asked(void *owner, const uint8_t *data, size_t size)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    Sandstorm__V1__StreamLogsResponse response = SANDSTORM__V1__STREAM_LOGS_RESPONSE__INIT;
    Sandstorm__V1__LogLine lines[2], *pointers[] = { &lines[0], &lines[1] };
    Sandstorm__V1__LogField field = SANDSTORM__V1__LOG_FIELD__INIT, *fields[] = { &field };
    if (wire_unpack(&sandstorm__v1__stream_logs_request__descriptor, data, size, &message, NULL) <
        0)
        return;
    const Sandstorm__V1__StreamLogsRequest *request =
        (const Sandstorm__V1__StreamLogsRequest *)message;
    (void)snprintf(script.seen, sizeof(script.seen), "logs %s|%lld|%u|%d|%s", request->sandbox_id,
                   (long long)request->since_unix_us, request->last, request->follow,
                   request->command_id);
    field.name = (char *)"detail";
    field.value = (char *)EVIL;
    for (unsigned i = 0; i < 2; i++) {
        sandstorm__v1__log_line__init(&lines[i]);
        lines[i].time_unix_us = 1763466604123456;
        lines[i].level = (Sandstorm__V1__LogLevel)(i + 2);
        lines[i].origin = (char *)(i == 0 ? "agent" : "runner");
        lines[i].message = (char *)(i == 0 ? "link lost" : "x\ny");
        lines[i].fields = fields;
        lines[i].n_fields = 1;
    }
    response.lines = pointers;
    response.n_lines = 2;
    (void)!rpc_call_send(owner, &response.base, NULL);
    if (request->follow)
        stub_over(owner);
    else
        rpc_call_finish(owner, NULL);
}

static inline void stub_nothing(void *owner)
{
    (void)owner;
}

static inline int stub_watch(void *userdata, struct rpc_call *call, struct err *err)
{
    static const struct rpc_call_handler handler = { .message = stub_watch_asked,
                                                     .half_closed = stub_nothing,
                                                     .closed = stub_closed };
    (void)userdata;
    (void)err;
    rpc_call_bind(call, &handler, call);
    return 0;
}

static inline int stub_logs(void *userdata, struct rpc_call *call, struct err *err)
{
    static const struct rpc_call_handler handler = { .message = stub_logs_asked,
                                                     .half_closed = stub_nothing,
                                                     .closed = stub_closed };
    (void)userdata;
    (void)err;
    rpc_call_bind(call, &handler, call);
    return 0;
}

#define STUB_ROW(service, name, lower, function)                                                   \
    {                                                                                              \
        .path = "/sandstorm.v1." service "/" name,                                                 \
        .request = &sandstorm__v1__##lower##_request__descriptor, .unary = (function)              \
    }

static const struct rpc_method stub_methods[] = {
    STUB_ROW("SandboxService", "ListSandboxes", list_sandboxes, stub_list),
    STUB_ROW("SandboxService", "GetSandbox", get_sandbox, stub_get),
    STUB_ROW("SandboxService", "SandboxReady", sandbox_ready, stub_ready),
    STUB_ROW("SandboxService", "LabelSandbox", label_sandbox, stub_label),
    STUB_ROW("SandboxService", "DrainSandbox", drain_sandbox, stub_drain),
    STUB_ROW("SandboxService", "RemoveSandbox", remove_sandbox, stub_remove),
    STUB_ROW("CommandService", "ListCommands", list_commands, stub_commands),
    { .path = "/sandstorm.v1.SandboxService/WatchSandboxes", .open = stub_watch },
    { .path = "/sandstorm.v1.LogService/StreamLogs", .open = stub_logs },
    { .path = NULL },
};
