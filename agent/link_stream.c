/* The stream to the orchestrator: waiting, connecting, active, and back. Gets frames from
 * agent/link_runner.c and agent/link_heartbeat.c and carries them up; what comes down is the link's
 * own business (welcome, settings, goodbye) or goes to the runner as it is. A lost stream costs a
 * reconnect with full jitter and nothing else. */
#include "agent/link-internal.h"

#include "common/clock.h"
#include "common/rpc_diagnose.h"
#include "common/wire.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define CONNECT_METHOD "/sandstorm.v1.LinkService/Connect"
#define CARRY_MAX      64u /* frames in one message */

static const char *const state_names[STREAM_STATE_COUNT_] = {
    [STREAM_WAITING] = "waiting",
    [STREAM_CONNECTING] = "connecting",
    [STREAM_ACTIVE] = "active",
};

static const bool transitions[STREAM_STATE_COUNT_][STREAM_STATE_COUNT_] = {
    [STREAM_WAITING] = { [STREAM_CONNECTING] = true },
    [STREAM_CONNECTING] = { [STREAM_ACTIVE] = true, [STREAM_WAITING] = true },
    [STREAM_ACTIVE] = { [STREAM_WAITING] = true },
};

static void set_state(struct link *link, enum stream_state state)
{
    struct link_stream *stream = &link->stream;
    assert(transitions[stream->state][state]);
    log_debug("stream state", LF_STR("from", state_names[stream->state]),
              LF_STR("to", state_names[state]));
    stream->state = state;
    /* A timer belongs to a state and dies with it. */
    if (state != STREAM_WAITING)
        loop_timer_stop(stream->retry);
    if (state != STREAM_CONNECTING)
        loop_timer_stop(stream->welcome);
    if (state != STREAM_ACTIVE)
        loop_timer_stop(stream->heartbeat);
}

/* Failing and trying again. */

static void report_failure(struct link *link, const struct err *why)
{
    struct link_stream *stream = &link->stream;
    /* The same reason every thirty seconds is one event, not many. */
    if (strcmp(stream->last_error, why->text) != 0)
        log_warn("cannot stay connected to the orchestrator",
                 LF_STR("endpoint", link->config.endpoint), LF_ERR(why));
    (void)snprintf(stream->last_error, sizeof(stream->last_error), "%s", why->text);
    link_say_status(link);
}

static void diagnose(struct worker_job *job)
{
    struct link_diagnosis *diagnosis = CONTAINER_OF(job, struct link_diagnosis, job);
    diagnosis->result = rpc_diagnose(diagnosis->link->config.endpoint, &diagnosis->creds,
                                     LINK_DIAGNOSE_MS, &diagnosis->err);
}

static void diagnosed(struct worker_job *job)
{
    struct link_diagnosis *diagnosis = CONTAINER_OF(job, struct link_diagnosis, job);
    diagnosis->running = false;
    rpc_creds_clear(&diagnosis->creds);
    /* Where the probe finds nothing wrong, err still holds what libgrpc said. */
    if (diagnosis->link->stream.state != STREAM_ACTIVE)
        report_failure(diagnosis->link, &diagnosis->err);
}

static void start_diagnosis(struct link *link, const struct err *why)
{
    struct link_diagnosis *diagnosis = &link->stream.diagnosis;
    struct err err;
    if (diagnosis->running)
        return;
    diagnosis->link = link;
    diagnosis->err = *why;
    diagnosis->job.work = diagnose;
    diagnosis->job.done = diagnosed;
    if (rpc_creds_load(link->config.identity_dir, &diagnosis->creds, &err) < 0) {
        report_failure(link, &err);
        return;
    }
    if (worker_submit(link->worker, &diagnosis->job, &err) < 0) {
        rpc_creds_clear(&diagnosis->creds);
        report_failure(link, why);
        return;
    }
    diagnosis->running = true;
}

static void wait_and_retry(struct link *link)
{
    struct link_stream *stream = &link->stream;
    uint64_t delay = backoff_next_us(&stream->backoff, random_u64());
    if (stream->retry_after_us) {
        /* Spread by a tenth, so that a fleet that was told one number does not come back as one. */
        delay = stream->retry_after_us + random_u64() % (stream->retry_after_us / 10 + 1);
        stream->retry_after_us = 0;
    }
    loop_timer_start(stream->retry, delay);
}

static void stream_over(struct link *link, const struct err *why)
{
    struct link_stream *stream = &link->stream;
    bool was_active = stream->state == STREAM_ACTIVE;
    if (was_active)
        backoff_disconnected(&stream->backoff, monotonic_us());
    set_state(link, STREAM_WAITING);
    link_runner_stream_lost(link);
    rpc_call_release(TAKE_PTR(stream->call));
    rpc_channel_free(TAKE_PTR(stream->channel));
    if (link->stopping) {
        link_say_status(link);
        return;
    }
    if (was_active)
        log_info("stream lost", LF_ERR(why));
    else if (why->code == ERR_UNAVAILABLE)
        start_diagnosis(link, why);
    else
        report_failure(link, why);
    wait_and_retry(link);
}

/* What comes down. */

static void on_welcome(struct link *link, const uint8_t *frame, size_t size,
                       const Sandstorm__V1__Welcome *welcome)
{
    struct link_stream *stream = &link->stream;
    if (stream->state != STREAM_CONNECTING)
        return;
    uint8_t *copy = malloc(size);
    if (!copy) {
        rpc_call_cancel(stream->call);
        return;
    }
    (void)memcpy(copy, frame, size);
    free(stream->welcome_frame);
    stream->welcome_frame = copy;
    stream->welcome_size = size;
    stream->epoch = welcome->epoch;
    stream->last_error[0] = '\0';
    if (welcome->heartbeat_interval_ms)
        stream->heartbeat_us =
            MIN(MAX(welcome->heartbeat_interval_ms, LINK_HEARTBEAT_MIN_US / 1000),
                LINK_HEARTBEAT_MAX_US / 1000) *
            1000;
    set_state(link, STREAM_ACTIVE);
    backoff_connected(&stream->backoff, monotonic_us());
    log_info("connected", LF_STR("endpoint", link->config.endpoint),
             LF_STR("sandbox", welcome->sandbox_id), LF_UINT("epoch", welcome->epoch),
             LF_STR("orchestrator_version", welcome->orchestrator_version),
             LF_INT("orchestrator_clock_ahead_ms", clock_skew_ms(welcome->server_unix_ms)));
    link_send_heartbeat(link);
    loop_timer_start(stream->heartbeat, stream->heartbeat_us);
    link_runner_stream_active(link);
    link_say_status(link);
}

static void on_settings(struct link *link, const Sandstorm__V1__Settings *settings)
{
    if (settings->heartbeat_interval_ms == 0 || link->stream.state != STREAM_ACTIVE)
        return;
    link->stream.heartbeat_us =
        MIN(MAX(settings->heartbeat_interval_ms, LINK_HEARTBEAT_MIN_US / 1000),
            LINK_HEARTBEAT_MAX_US / 1000) *
        1000;
    loop_timer_start(link->stream.heartbeat, link->stream.heartbeat_us);
}

static void on_goodbye(struct link *link, const Sandstorm__V1__Goodbye *goodbye)
{
    const ProtobufCEnumValue *reason = protobuf_c_enum_descriptor_get_value(
        &sandstorm__v1__goodbye_reason__descriptor, (int)goodbye->reason);
    log_info("the orchestrator says goodbye", LF_STR("reason", reason ? reason->name : "unknown"),
             LF_STR("detail", goodbye->detail), LF_UINT("retry_after_ms", goodbye->retry_after_ms));
    link->stream.retry_after_us = MIN(goodbye->retry_after_ms, LINK_HEARTBEAT_MAX_US / 1000) * 1000;
}

static int on_frame(struct link *link, const uint8_t *frame, size_t size, struct err *err)
{
    const uint8_t *position = frame;
    struct wire_field kind = { 0 };
    if (wire_next(&position, frame + size, &kind, err) < 0)
        return -1;
    if (kind.number == SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_ORDER) {
        link_runner_send(link, frame, size);
        return 0;
    }
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    if (wire_unpack(&sandstorm__v1__orchestrator_frame__descriptor, frame, size, &message, err) < 0)
        return -1;
    const Sandstorm__V1__OrchestratorFrame *known =
        (const Sandstorm__V1__OrchestratorFrame *)message;
    switch (known->kind_case) {
    case SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_WELCOME:
        on_welcome(link, frame, size, known->welcome);
        break;
    case SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_SETTINGS:
        on_settings(link, known->settings);
        break;
    case SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_GOODBYE:
        on_goodbye(link, known->goodbye);
        break;
    default:
        break; /* from a newer orchestrator */
    }
    return 0;
}

static void on_message(void *owner, const uint8_t *data, size_t size)
{
    struct link *link = owner;
    struct err err;
    struct wire_field field;
    const uint8_t *position = data, *end = data + size;
    int r = wire_scan(&sandstorm__v1__connect_response__descriptor, data, size, &err);
    while (r == 0 && (r = wire_next(&position, end, &field, &err)) > 0)
        r = field.number == 1 ? on_frame(link, field.data, field.size, &err) : 0;
    if (r < 0) {
        log_error("the orchestrator broke the protocol", LF_ERR(&err));
        rpc_call_cancel(link->stream.call);
    }
}

static void on_half_closed(void *owner)
{
    (void)owner; /* the status follows */
}

static void on_writable(void *owner)
{
    link_runner_resume(owner);
}

static void on_closed(void *owner, const struct err *status)
{
    struct err err = *status;
    if (err.code == ERR_NONE)
        (void)err_set(&err, ERR_UNAVAILABLE, "the orchestrator closed the stream");
    stream_over(owner, &err);
}

static const struct rpc_call_handler handler = {
    .message = on_message,
    .half_closed = on_half_closed,
    .writable = on_writable,
    .closed = on_closed,
};

/* What goes up. */

void link_stream_carry(struct link *link, const struct iovec *frames, unsigned count)
{
    struct iovec parts[2 * CARRY_MAX];
    uint8_t headers[CARRY_MAX][WIRE_HEADER_MAX];
    assert(count <= CARRY_MAX);
    for (unsigned i = 0; i < count; i++) {
        parts[2 * i] = (struct iovec){ headers[i], wire_header(1, frames[i].iov_len, headers[i]) };
        parts[2 * i + 1] = frames[i];
    }
    struct err err;
    if (!link->stream.call || rpc_call_send_parts(link->stream.call, parts, 2 * count, &err) == 0)
        return;
    /* The orchestrator does not take what it has given credit for. Start over: no byte is lost, the
     * runner still has everything that was not acknowledged. */
    log_warn("cannot send to the orchestrator", LF_ERR(&err));
    rpc_call_cancel(link->stream.call);
}

bool link_stream_writable(const struct link *link)
{
    return link->stream.call && rpc_call_writable(link->stream.call);
}

void link_stream_pause(struct link *link, bool paused)
{
    if (!link->stream.call)
        return;
    if (paused)
        rpc_call_pause(link->stream.call);
    else
        rpc_call_resume(link->stream.call);
}

static int send_register(struct link *link, struct err *err)
{
    Sandstorm__V1__Register message = SANDSTORM__V1__REGISTER__INIT;
    Sandstorm__V1__SandboxInfo info = SANDSTORM__V1__SANDBOX_INFO__INIT;
    link_fill_register(link, &message, &info);
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_REGISTER;
    frame.register_ = &message;
    Sandstorm__V1__AgentFrame *frames[] = { &frame };
    Sandstorm__V1__ConnectRequest request = SANDSTORM__V1__CONNECT_REQUEST__INIT;
    request.n_frames = 1;
    request.frames = frames;
    return rpc_call_send(link->stream.call, &request.base, err);
}

/* A new channel each time: it takes the certificate that is on disk now, and libgrpc's own backoff
 * has no say. */
static int dial(struct link *link, struct err *err)
{
    struct link_stream *stream = &link->stream;
    struct rpc_creds creds;
    if (rpc_creds_load(link->config.identity_dir, &creds, err) < 0)
        return -1;
    int r = rpc_channel_new(link->pump, link->config.endpoint, &creds, &stream->channel, err);
    rpc_creds_clear(&creds);
    if (r < 0)
        return -1;
    if (rpc_channel_call(stream->channel, CONNECT_METHOD, RPC_NO_DEADLINE, &handler, link,
                         &stream->call, err) < 0 ||
        send_register(link, err) < 0)
        return -1;
    return 0;
}

static void connect_stream(void *userdata)
{
    struct link *link = userdata;
    struct err err;
    set_state(link, STREAM_CONNECTING);
    loop_timer_start(link->stream.welcome, LINK_WELCOME_US);
    if (dial(link, &err) < 0)
        stream_over(link, &err);
}

static void on_no_welcome(void *userdata)
{
    struct link *link = userdata;
    rpc_call_cancel(link->stream.call);
}

static void on_heartbeat(void *userdata)
{
    struct link *link = userdata;
    link_send_heartbeat(link);
    /* A tenth of jitter keeps a fleet that started together from beating together. */
    uint64_t interval = link->stream.heartbeat_us;
    loop_timer_start(link->stream.heartbeat,
                     interval - interval / 10 + random_u64() % (interval / 10));
}

/* Life. */

int link_stream_init(struct link *link, struct err *err)
{
    struct link_stream *stream = &link->stream;
    stream->heartbeat_us = LINK_HEARTBEAT_US;
    backoff_init(&stream->backoff);
    if (loop_timer_new(link->loop, connect_stream, link, &stream->retry, err) < 0 ||
        loop_timer_new(link->loop, on_no_welcome, link, &stream->welcome, err) < 0 ||
        loop_timer_new(link->loop, on_heartbeat, link, &stream->heartbeat, err) < 0)
        return -1;
    return 0;
}

void link_stream_start(struct link *link)
{
    connect_stream(link);
}

bool link_stream_stop(struct link *link)
{
    loop_timer_stop(link->stream.retry);
    if (!link->stream.call)
        return true;
    rpc_call_cancel(link->stream.call);
    return false;
}

void link_stream_done(struct link *link)
{
    struct link_stream *stream = &link->stream;
    rpc_call_release(stream->call);
    rpc_channel_free(stream->channel);
    loop_timer_free(stream->retry);
    loop_timer_free(stream->welcome);
    loop_timer_free(stream->heartbeat);
    free(stream->welcome_frame);
}
