/* The stream to the orchestrator: waiting, connecting, active, and back. Gets frames from
 * agent/link_runner.c and agent/link_heartbeat.c and carries them up; what comes down is the link's
 * own business (welcome, settings, goodbye) or goes to the runner as it is. A lost stream costs a
 * reconnect with full jitter and nothing else. */
#include "agent/link-internal.h"

#include "common/clock.h"
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
    /* To connecting when the orchestrator ends the old stream before it has welcomed the new one.
     */
    [STREAM_ACTIVE] = { [STREAM_WAITING] = true, [STREAM_CONNECTING] = true },
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

static void connection_free(struct link_connection *connection)
{
    if (!connection)
        return;
    rpc_call_release(connection->call);
    rpc_channel_free(connection->channel);
    free(connection);
}

static void stream_over(struct link *link, const struct err *why)
{
    struct link_stream *stream = &link->stream;
    bool was_active = stream->state == STREAM_ACTIVE;
    backoff_disconnected(&stream->backoff, monotonic_us());
    set_state(link, STREAM_WAITING);
    link_runner_stream_lost(link);
    link_identity_disconnected(link);
    connection_free(TAKE_PTR(stream->current));
    if (link->stopping) {
        link_say_status(link);
        return;
    }
    if (was_active) {
        log_info("stream lost", LF_ERR(why));
        link_retry_lost(link, why);
        link_say_status(link);
    } else if (why->code == ERR_UNAVAILABLE) {
        link_diagnose(link, why);
    } else {
        link_retry_report(link, why);
    }
    /* Revoked, replaced or expired: the front says which, in words, or gives a new certificate. */
    if (why->code == ERR_UNAUTHENTICATED && link_identity_renew_late(link))
        return;
    link_retry_wait(link);
}

/* What comes down. */

/* The new connection has its welcome: the old one has done its work. What it had not carried yet is
 * still with the runner, who is asked again. */
static void promote(struct link *link)
{
    struct link_stream *stream = &link->stream;
    connection_free(stream->current);
    stream->current = TAKE_PTR(stream->next);
    loop_timer_stop(stream->takeover);
    link_runner_stream_lost(link);
}

/* Half of the way there and back is the best guess for when the orchestrator read its clock. */
static void measure_clock(struct link *link, const struct link_connection *connection,
                          int64_t server_ms)
{
    int64_t way_ms = (int64_t)((monotonic_us() - connection->dialled_us) / 2000);
    int64_t skew;
    if (__builtin_sub_overflow(wall_ms() - way_ms, server_ms, &skew))
        return;
    link->stream.clock_known = true;
    link->stream.clock_skew_ms = skew;
}

static void on_welcome(struct link_connection *connection, const uint8_t *frame, size_t size,
                       const Sandstorm__V1__Welcome *welcome)
{
    struct link *link = connection->link;
    struct link_stream *stream = &link->stream;
    bool next = connection == stream->next;
    if (!next && stream->state != STREAM_CONNECTING)
        return;
    uint8_t *copy = malloc(size);
    if (!copy) {
        rpc_call_cancel(connection->call);
        return;
    }
    measure_clock(link, connection, welcome->server_unix_ms);
    if (next)
        promote(link);
    (void)memcpy(copy, frame, size);
    free(stream->welcome_frame);
    stream->welcome_frame = copy;
    stream->welcome_size = size;
    stream->epoch = welcome->epoch;
    link_retry_clear(link);
    if (welcome->heartbeat_interval_ms)
        stream->heartbeat_us =
            MIN(MAX(welcome->heartbeat_interval_ms, LINK_HEARTBEAT_MIN_US / 1000),
                LINK_HEARTBEAT_MAX_US / 1000) *
            1000;
    if (stream->state != STREAM_ACTIVE)
        set_state(link, STREAM_ACTIVE);
    backoff_connected(&stream->backoff, monotonic_us());
    log_info("connected", LF_STR("endpoint", link->config.endpoint),
             LF_STR("sandbox", welcome->sandbox_id), LF_UINT("epoch", welcome->epoch),
             LF_STR("orchestrator_version", welcome->orchestrator_version),
             LF_INT("clock_ahead_ms", stream->clock_skew_ms));
    link_identity_connected(link);
    link_send_heartbeat(link);
    loop_timer_start(stream->heartbeat, stream->heartbeat_us);
    link_runner_stream_active(link);
    link_logs_flush(link);
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
    /* Counted from the last one: a whole fleet hears of it at once, and must not seem silent. */
    uint64_t due = link->stream.heartbeat_sent_us + link->stream.heartbeat_us;
    uint64_t now = monotonic_us();
    loop_timer_start(link->stream.heartbeat,
                     due > now ? due - now : random_u64() % (link->stream.heartbeat_us / 10));
}

static void on_goodbye(struct link *link, const Sandstorm__V1__Goodbye *goodbye)
{
    const ProtobufCEnumValue *reason = protobuf_c_enum_descriptor_get_value(
        &sandstorm__v1__goodbye_reason__descriptor, (int)goodbye->reason);
    log_info("the orchestrator says goodbye", LF_STR("reason", reason ? reason->name : "unknown"),
             LF_STR("detail", goodbye->detail), LF_UINT("retry_after_ms", goodbye->retry_after_ms));
    link->stream.retry_after_us = MIN(goodbye->retry_after_ms, BACKOFF_ASKED_MAX_US / 1000) * 1000;
    link->stream.drained =
        goodbye->reason == SANDSTORM__V1__GOODBYE_REASON__GOODBYE_REASON_DRAINING;
}

static int on_frame(struct link_connection *connection, const uint8_t *frame, size_t size,
                    struct err *err)
{
    struct link *link = connection->link;
    const uint8_t *position = frame;
    struct wire_field kind = { 0 };
    if (wire_next(&position, frame + size, &kind, err) < 0)
        return -1;
    if (kind.number == SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_ORDER) {
        if (connection == link->stream.current)
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
        on_welcome(connection, frame, size, known->welcome);
        break;
    case SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_SETTINGS:
        on_settings(link, known->settings);
        break;
    case SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_GOODBYE:
        if (connection == link->stream.current)
            on_goodbye(link, known->goodbye);
        break;
    default:
        break; /* from a newer orchestrator */
    }
    return 0;
}

static void on_message(void *owner, const uint8_t *data, size_t size)
{
    struct link_connection *connection = owner;
    struct err err;
    struct wire_field field;
    const uint8_t *position = data, *end = data + size;
    int r = wire_scan(&sandstorm__v1__connect_response__descriptor, data, size, &err);
    while (r == 0 && (r = wire_next(&position, end, &field, &err)) > 0)
        r = field.number == 1 ? on_frame(connection, field.data, field.size, &err) : 0;
    if (r < 0) {
        log_error("the orchestrator broke the protocol", LF_ERR(&err));
        rpc_call_cancel(connection->call);
    }
}

static void on_half_closed(void *owner)
{
    (void)owner; /* the status follows */
}

static void on_writable(void *owner)
{
    const struct link_connection *connection = owner;
    if (connection == connection->link->stream.current)
        link_runner_resume(connection->link);
    link_logs_flush(connection->link);
}

/* The one that was to take over is gone; the one that serves goes on. */
static void next_over(struct link *link, const struct err *why)
{
    connection_free(TAKE_PTR(link->stream.next));
    loop_timer_stop(link->stream.takeover);
    log_info("the new stream did not come about; the old one goes on", LF_ERR(why));
    link_identity_connected(link);
}

static void on_closed(void *owner, const struct err *status)
{
    struct link_connection *connection = owner;
    struct link *link = connection->link;
    struct link_stream *stream = &link->stream;
    struct err err = *status;
    if (err.code == ERR_NONE)
        (void)err_set(&err, ERR_UNAVAILABLE, "the orchestrator closed the stream");
    if (connection->silent)
        (void)err_set(&err, ERR_UNAVAILABLE,
                      "the orchestrator has not welcomed this agent within %u s; check the way to "
                      "it (DNS, firewalls), and there whether it is overloaded or stuck",
                      LINK_WELCOME_US / 1000000);
    if (connection == stream->next) {
        next_over(link, &err);
    } else if (stream->next && stream->state == STREAM_ACTIVE && !link->stopping) {
        /* The orchestrator was quicker than its welcome. */
        promote(link);
        set_state(link, STREAM_CONNECTING);
        loop_timer_start(stream->welcome, LINK_WELCOME_US);
    } else {
        connection_free(TAKE_PTR(stream->next));
        loop_timer_stop(stream->takeover);
        stream_over(link, &err);
    }
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
    const struct link_connection *connection = link->stream.current;
    if (!connection || rpc_call_send_parts(connection->call, parts, 2 * count, &err) == 0)
        return;
    /* The orchestrator does not take what it has given credit for. Start over: no byte is lost, the
     * runner still has everything that was not acknowledged. */
    log_warn("cannot send to the orchestrator", LF_ERR(&err));
    rpc_call_cancel(connection->call);
}

bool link_stream_writable(const struct link *link)
{
    return link->stream.current && rpc_call_writable(link->stream.current->call);
}

void link_stream_pause(struct link *link, bool paused)
{
    if (!link->stream.current)
        return;
    if (paused)
        rpc_call_pause(link->stream.current->call);
    else
        rpc_call_resume(link->stream.current->call);
}

static int send_register(const struct link_connection *connection, bool taking_over,
                         struct err *err)
{
    Sandstorm__V1__Register message = SANDSTORM__V1__REGISTER__INIT;
    Sandstorm__V1__SandboxInfo info = SANDSTORM__V1__SANDBOX_INFO__INIT;
    link_fill_register(connection->link, taking_over, &message, &info);
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_REGISTER;
    frame.register_ = &message;
    Sandstorm__V1__AgentFrame *frames[] = { &frame };
    Sandstorm__V1__ConnectRequest request = SANDSTORM__V1__CONNECT_REQUEST__INIT;
    request.n_frames = 1;
    request.frames = frames;
    return rpc_call_send(connection->call, &request.base, err);
}

/* A new channel each time: it takes the certificate that is on disk now, and libgrpc's own backoff
 * has no say. */
static int dial(struct link *link, bool taking_over, struct link_connection **ret, struct err *err)
{
    struct rpc_creds creds;
    struct link_connection *connection = calloc(1, sizeof(*connection));
    if (!connection)
        return err_nomem(err);
    connection->link = link;
    connection->dialled_us = monotonic_us();
    int r = rpc_creds_load(link->config.enroll->identity_dir, &creds, err);
    if (r == 0) {
        r = rpc_channel_new(link->pump, link->config.endpoint, &creds, &connection->channel, err);
        rpc_creds_clear(&creds);
    }
    if (r == 0)
        r = rpc_channel_call(connection->channel, CONNECT_METHOD, RPC_NO_DEADLINE, &handler,
                             connection, &connection->call, err);
    if (r == 0)
        r = send_register(connection, taking_over, err);
    if (r < 0) {
        connection_free(connection);
        return -1;
    }
    *ret = connection;
    return 0;
}

static void connect_stream(void *userdata)
{
    struct link *link = userdata;
    struct err err;
    link_retry_begin(link);
    if (link_identity_expired(link) && link_identity_renew_late(link))
        return;
    set_state(link, STREAM_CONNECTING);
    loop_timer_start(link->stream.welcome, LINK_WELCOME_US);
    if (dial(link, false, &link->stream.current, &err) < 0)
        stream_over(link, &err);
}

void link_stream_hand_over(struct link *link)
{
    struct err err;
    if (link->stream.state != STREAM_ACTIVE || link->stream.next)
        return;
    if (dial(link, true, &link->stream.next, &err) < 0)
        next_over(link, &err);
    else
        loop_timer_start(link->stream.takeover, LINK_WELCOME_US);
}

static void on_no_welcome(void *userdata)
{
    const struct link *link = userdata;
    link->stream.current->silent = true;
    rpc_call_cancel(link->stream.current->call);
}

static void on_no_takeover(void *userdata)
{
    const struct link *link = userdata;
    if (!link->stream.next)
        return;
    link->stream.next->silent = true;
    rpc_call_cancel(link->stream.next->call);
}

static void on_heartbeat(void *userdata)
{
    struct link *link = userdata;
    link_send_heartbeat(link);
    if (monotonic_us() - link->stream.heartbeat_told_us >= LINK_STATUS_US)
        link_write_status(link);
    link_logs_flush(link); /* how many were left out, when nothing followed them */
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
        loop_timer_new(link->loop, on_no_takeover, link, &stream->takeover, err) < 0 ||
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
    if (!link->stream.current)
        return true;
    rpc_call_cancel(link->stream.current->call);
    return false;
}

void link_stream_done(struct link *link)
{
    struct link_stream *stream = &link->stream;
    connection_free(stream->current);
    connection_free(stream->next);
    loop_timer_free(stream->retry);
    loop_timer_free(stream->welcome);
    loop_timer_free(stream->heartbeat);
    loop_timer_free(stream->takeover);
    free(stream->welcome_frame);
}
