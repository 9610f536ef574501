/* The agent's side of the orchestrator. Streams come from common/rpc_server.c with an identity that
 * is certain; frames are checked here and go to the registry (register, heartbeat), to the history
 * (orchestrator/history.c) and to the relay that follows the command (orchestrator/relay_events.c).
 * Nothing that an agent says can name
 * another sandbox: every look-up starts at the session's own. */
#include "orchestrator/session.h"

#include "common/clock.h"
#include "common/utf8.h"
#include "common/version.h"
#include "common/wire.h"
#include "orchestrator/access.h"
#include "orchestrator/control.h"
#include "orchestrator/events.h"
#include "orchestrator/history.h"
#include "orchestrator/liveness.h"
#include "orchestrator/logbook.h"
#include "orchestrator/orchestrator-internal.h"
#include "orchestrator/relay.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum session_state { SESSION_NEW, SESSION_ACTIVE, SESSION_CLOSING, SESSION_STATE_COUNT_ };

static const char *const state_names[SESSION_STATE_COUNT_] = {
    [SESSION_NEW] = "new",
    [SESSION_ACTIVE] = "active",
    [SESSION_CLOSING] = "closing",
};

static const bool transitions[SESSION_STATE_COUNT_][SESSION_STATE_COUNT_] = {
    [SESSION_NEW] = { [SESSION_ACTIVE] = true, [SESSION_CLOSING] = true },
    [SESSION_ACTIVE] = { [SESSION_CLOSING] = true },
};

struct session {
    struct orchestrator *orchestrator;
    struct rpc_call *call;
    struct sandbox *sandbox; /* NULL before the register frame */
    enum session_state state;
    uint64_t epoch;
    char instance[COMMAND_ID_LEN + 1]; /* of the link process, as it says */
    bool handed_over;                  /* to another stream of the same process */
    bool replaced;                     /* by a newer stream, of that process or another */
    struct log_limit beats;
    uint64_t heard_us; /* when its last message came */
    struct loop_timer *deadline;
};

static void set_state(struct session *session, enum session_state state)
{
    assert(transitions[session->state][state]);
    log_debug("session state", LF_STR("sandbox", rpc_call_peer(session->call)->name),
              LF_STR("from", state_names[session->state]), LF_STR("to", state_names[state]));
    session->state = state;
    loop_timer_stop(session->deadline);
}

/* What goes down. */

static int send_frame(struct session *session, Sandstorm__V1__OrchestratorFrame *frame,
                      struct err *err)
{
    Sandstorm__V1__OrchestratorFrame *frames[] = { frame };
    Sandstorm__V1__ConnectResponse message = SANDSTORM__V1__CONNECT_RESPONSE__INIT;
    message.n_frames = 1;
    message.frames = frames;
    return rpc_call_send(session->call, &message.base, err);
}

void session_order(struct session *session, Sandstorm__V1__CommandOrder *order)
{
    if (session->state != SESSION_ACTIVE)
        return;
    Sandstorm__V1__OrchestratorFrame frame = SANDSTORM__V1__ORCHESTRATOR_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_ORDER;
    frame.order = order;
    struct err err;
    if (send_frame(session, &frame, &err) == 0)
        return;
    log_warn("cutting an agent that does not take orders", LF_STR("sandbox", session->sandbox->id),
             LF_ERR(&err));
    rpc_call_cancel(session->call);
}

uint64_t session_epoch(const struct session *session)
{
    return session->epoch;
}

void session_pace(struct session *session, uint64_t interval_ms)
{
    if (session->state != SESSION_ACTIVE)
        return;
    Sandstorm__V1__Settings settings = SANDSTORM__V1__SETTINGS__INIT;
    settings.heartbeat_interval_ms = interval_ms;
    Sandstorm__V1__OrchestratorFrame frame = SANDSTORM__V1__ORCHESTRATOR_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_SETTINGS;
    frame.settings = &settings;
    struct err err;
    if (send_frame(session, &frame, &err) < 0)
        log_debug("settings not sent", LF_ERR(&err)); /* it beats faster than it need */
}

void session_cut(struct session *session)
{
    rpc_call_cancel(session->call);
}

bool session_writable(const struct session *session)
{
    return session->state == SESSION_ACTIVE && rpc_call_writable(session->call);
}

/* The sandbox has no session from here on, whatever the stream still does. */
static void detach(struct session *session)
{
    struct sandbox *sandbox = session->sandbox;
    if (!sandbox || sandbox->session != session)
        return;
    sandbox->session = NULL;
    if (!session->handed_over)
        LOGBOOK_EVENT(session->orchestrator, LOG_LEVEL_INFO, &event_sandbox_disconnected,
                      sandbox->id, NULL, LF_UINT("epoch", session->epoch));
    if (!session->replaced)
        liveness_disconnected(session->orchestrator, sandbox);
    relay_session_lost(sandbox, session->handed_over);
    session->sandbox = NULL; /* it may be removed before this stream has closed */
}

/* The status follows what is queued; an agent that does not take it is cut. */
static void finish(struct session *session, const struct err *status)
{
    rpc_call_finish(session->call, status);
    loop_timer_start(session->deadline, SESSION_FAREWELL_US);
}

void session_close(struct session *session, Sandstorm__V1__GoodbyeReason reason,
                   uint64_t retry_after_ms, const char *detail)
{
    if (session->state == SESSION_CLOSING)
        return;
    Sandstorm__V1__Goodbye goodbye = SANDSTORM__V1__GOODBYE__INIT;
    goodbye.reason = reason;
    goodbye.retry_after_ms = retry_after_ms;
    goodbye.detail = (char *)detail;
    Sandstorm__V1__OrchestratorFrame frame = SANDSTORM__V1__ORCHESTRATOR_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_GOODBYE;
    frame.goodbye = &goodbye;
    struct err err;
    if (send_frame(session, &frame, &err) < 0)
        log_debug("goodbye not sent", LF_ERR(&err));
    set_state(session, SESSION_CLOSING);
    detach(session);
    (void)err_set(&err, ERR_UNAVAILABLE, "%s", detail);
    finish(session, &err);
}

/* Ends a stream whose agent broke a rule. Touches nobody else. */
static void refuse(struct session *session, const struct err *why)
{
    struct orchestrator *orchestrator = session->orchestrator;
    uint64_t suppressed;
    if (log_limit_pass(&orchestrator->faults, monotonic_us(), &suppressed))
        log_warn("agent refused", LF_STR("sandbox", rpc_call_peer(session->call)->name),
                 LF_ERR(why), LF_UINT("suppressed", suppressed));
    if (session->state == SESSION_CLOSING)
        return;
    set_state(session, SESSION_CLOSING);
    detach(session);
    finish(session, why);
}

/* What comes up. */

static int send_welcome(struct session *session, struct err *err)
{
    Sandstorm__V1__Welcome welcome = SANDSTORM__V1__WELCOME__INIT;
    welcome.protocol = SESSION_PROTOCOL;
    welcome.epoch = session->epoch;
    welcome.server_unix_ms = wall_ms();
    welcome.heartbeat_interval_ms = fleet_interval_us(session->orchestrator->fleet) / 1000;
    welcome.orchestrator_version = (char *)SANDSTORM_VERSION;
    welcome.sandbox_id = session->sandbox->id;
    Sandstorm__V1__OrchestratorFrame frame = SANDSTORM__V1__ORCHESTRATOR_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_WELCOME;
    frame.welcome = &welcome;
    return send_frame(session, &frame, err);
}

/* Epochs grow across restarts too: they start from the clock, and each is greater than the last. */
static uint64_t next_epoch(struct orchestrator *orchestrator)
{
    uint64_t now = (uint64_t)wall_us();
    orchestrator->last_epoch = MAX(orchestrator->last_epoch + 1, now);
    return orchestrator->last_epoch;
}

static int check_register(const struct session *session, const Sandstorm__V1__Register *frame,
                          struct err *err)
{
    if (session->state != SESSION_NEW)
        return err_set(err, ERR_PROTOCOL, "a stream registers once");
    if (!frame->info)
        return err_set(err, ERR_PROTOCOL, "the register frame has no info");
    if (frame->protocol_min > SESSION_PROTOCOL || frame->protocol_max < SESSION_PROTOCOL)
        return err_set(err, ERR_PRECONDITION,
                       "this orchestrator (%s) speaks protocol %u, the agent %u to %u; upgrade the "
                       "%s",
                       SANDSTORM_VERSION, SESSION_PROTOCOL, frame->protocol_min,
                       frame->protocol_max,
                       frame->protocol_max < SESSION_PROTOCOL ? "agent" : "orchestrator");
    return 0;
}

/* The newer stream wins. A link that has renewed its certificate hands over to itself. Another
 * process with the same key is a restart, unless the older one was heard of after the newer one had
 * started: then two machines have one key. */
static void take_over(struct session *session, const Sandstorm__V1__Register *frame)
{
    struct session *older = session->sandbox->session;
    if (!older)
        return;
    uint64_t now = monotonic_us();
    uint64_t uptime = MIN(frame->link_uptime_ms, now / 1000) * 1000;
    older->replaced = true;
    older->handed_over = *session->instance && strcmp(older->instance, session->instance) == 0;
    if (!older->handed_over && older->heard_us > now - uptime)
        event_note(session->orchestrator, session->sandbox->id, "duplicate_link",
                   "two agents are alive with one key; the one that connected last is kept. Is one "
                   "VM a clone of the other? Let it enrol with a token of its own");
    session_close(older, SANDSTORM__V1__GOODBYE_REASON__GOODBYE_REASON_SUPERSEDED,
                  older->handed_over ? 0 : SESSION_SUPERSEDED_MS,
                  older->handed_over ? "handed over to the link's new stream"
                                     : "a newer link with this identity has connected");
}

static struct sandbox *find_sandbox(const struct session *session)
{
    return registry_find(session->orchestrator->registry, rpc_call_peer(session->call)->name);
}

/* Words for people; what is too long or unclean is cut or cleaned, not refused: they say why an
 * agent was in trouble. */
static void take_last_error(struct sandbox *sandbox, const Sandstorm__V1__Register *frame)
{
    if (!*frame->last_error)
        return;
    (void)snprintf(sandbox->last_error, sizeof(sandbox->last_error), "%s", frame->last_error);
    utf8_clean(sandbox->last_error);
    for (char *c = sandbox->last_error; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = ' ';
    sandbox->last_error_ms = frame->last_error_unix_ms;
}

static int on_register(struct session *session, const Sandstorm__V1__AgentFrame *agent_frame,
                       struct err *err)
{
    struct orchestrator *orchestrator = session->orchestrator;
    const Sandstorm__V1__Register *frame = agent_frame->register_;
    struct sandbox *sandbox = find_sandbox(session);
    if (!sandbox)
        return err_set(err, ERR_UNAUTHENTICATED, "this sandbox is not enrolled here");
    /* It may have been revoked, or enrolled again elsewhere, since the guard let it in. */
    CLEANUP_FREE char *reported = sandbox->reported ? strdup(sandbox->reported) : NULL;
    if (access_identify(orchestrator, rpc_call_peer(session->call),
                        rpc_call_certificate(session->call)->key, err) < 0 ||
        check_register(session, frame, err) < 0 || sandbox_set_info(sandbox, frame->info, err) < 0)
        return -1;
    control_watch_left(orchestrator, sandbox, sandbox->labels, reported, false);
    (void)snprintf(session->instance, sizeof(session->instance), "%s", frame->link_instance);
    session->sandbox = sandbox;
    take_over(session, frame);
    session->epoch = next_epoch(orchestrator);
    set_state(session, SESSION_ACTIVE);
    sandbox->session = session;
    sandbox->connected_ms = sandbox->last_seen_ms = wall_ms();
    sandbox->certificate_not_after_ms = rpc_call_certificate(session->call)->not_after_s * 1000;
    sandbox->clock_skew_ms = clock_skew_ms(frame->sent_unix_ms);
    sandbox->in_step = sandbox->listing = false;
    /* Until a heartbeat says otherwise: a command waits for the runner, it is not refused. */
    sandbox->runner_connected = true;
    take_last_error(sandbox, frame);
    LOGBOOK_EVENT(
        orchestrator, LOG_LEVEL_INFO, &event_sandbox_online, sandbox->id, NULL,
        LF_UINT("epoch", session->epoch), LF_STR("agent_version", frame->info->agent_version),
        LF_STR("hostname", frame->info->hostname), LF_INT("clock_skew_ms", sandbox->clock_skew_ms));
    liveness_connected(orchestrator, sandbox);
    return send_welcome(session, err);
}

static int on_heartbeat(struct session *session, const Sandstorm__V1__AgentFrame *frame,
                        struct err *err)
{
    struct sandbox *sandbox = session->sandbox;
    const Sandstorm__V1__Heartbeat *heartbeat = frame->heartbeat;
    uint64_t unused;
    if (!log_limit_pass(&session->beats, session->heard_us, &unused))
        return err_set(err, ERR_EXHAUSTED, "more than %u heartbeats in %u s", SESSION_BEATS_MAX,
                       SESSION_BEATS_PERIOD_US / 1000000);
    sandbox->clock_skew_ms = clock_skew_ms(heartbeat->sent_unix_ms);
    if (heartbeat->metrics) {
        sandbox->metrics = *heartbeat->metrics;
        /* The copy is ours, what it points to is not. */
        sandbox->metrics.base.n_unknown_fields = 0;
        sandbox->metrics.base.unknown_fields = NULL;
        if (heartbeat->metrics->pressure) {
            sandbox->pressure = *heartbeat->metrics->pressure;
            sandbox->pressure.base.n_unknown_fields = 0;
            sandbox->pressure.base.unknown_fields = NULL;
            sandbox->metrics.pressure = &sandbox->pressure;
        }
        sandbox->has_metrics = true;
        sandbox_add_sample(sandbox, sandbox->last_seen_ms, heartbeat->metrics);
    }
    liveness_beat(session->orchestrator, sandbox);
    bool had_runner = sandbox->runner_connected;
    sandbox->runner_connected = heartbeat->runner_connected;
    if (!heartbeat->runner_connected)
        relay_runner_away(sandbox);
    if (had_runner != sandbox->runner_connected)
        liveness_changed(session->orchestrator, sandbox);
    return 0;
}

static int on_inventory(struct session *session, const Sandstorm__V1__AgentFrame *frame,
                        struct err *err)
{
    if (frame->inventory->epoch != session->epoch)
        return 0; /* an answer to an earlier welcome */
    bool was_in_step = session->sandbox->in_step;
    if (relay_inventory(session->orchestrator, session->sandbox, frame->inventory, err) < 0)
        return -1;
    if (session->sandbox->in_step && !was_in_step)
        liveness_changed(session->orchestrator, session->sandbox); /* it can run commands */
    return 0;
}

static int on_event(struct session *session, const Sandstorm__V1__AgentFrame *frame,
                    struct err *err)
{
    struct command_id id;
    if (command_id_parse(frame->event->command_id, &id, err) < 0)
        return -1;
    if (history_event(session->orchestrator->history, session->sandbox, &id, frame->event, err) < 0)
        return -1;
    struct relay *relay = relay_find_of(session->sandbox, session->orchestrator, &id);
    if (!relay) {
        /* It has ended, and the runner is about to be told to forget it; or it is not ours. */
        session->orchestrator->events_dropped++;
        return 0;
    }
    return relay_event(relay, frame->event, err);
}

static int on_logs(struct session *session, const Sandstorm__V1__AgentFrame *frame, struct err *err)
{
    (void)err;
    logbook_take(session->orchestrator, session->sandbox, frame->logs);
    return 0;
}

static const struct {
    Sandstorm__V1__AgentFrame__KindCase kind;
    enum session_state state; /* in which it may come */
    int (*fn)(struct session *session, const Sandstorm__V1__AgentFrame *frame, struct err *err);
} frames[] = {
    { SANDSTORM__V1__AGENT_FRAME__KIND_REGISTER, SESSION_NEW, on_register },
    { SANDSTORM__V1__AGENT_FRAME__KIND_HEARTBEAT, SESSION_ACTIVE, on_heartbeat },
    { SANDSTORM__V1__AGENT_FRAME__KIND_INVENTORY, SESSION_ACTIVE, on_inventory },
    { SANDSTORM__V1__AGENT_FRAME__KIND_EVENT, SESSION_ACTIVE, on_event },
    { SANDSTORM__V1__AGENT_FRAME__KIND_LOGS, SESSION_ACTIVE, on_logs },
};

static int on_frame(struct session *session, const Sandstorm__V1__AgentFrame *frame,
                    struct err *err)
{
    for (size_t i = 0; i < ELEMENTS(frames); i++) {
        if (frames[i].kind != frame->kind_case)
            continue;
        if (frames[i].state != session->state)
            return err_set(err, ERR_PROTOCOL, "frame %d may not come while the stream is %s",
                           (int)frame->kind_case, state_names[session->state]);
        return frames[i].fn(session, frame, err);
    }
    if (session->state == SESSION_NEW)
        return err_set(err, ERR_PROTOCOL, "the first frame must be a register frame");
    return 0; /* from a newer agent */
}

static void on_message(void *owner, const uint8_t *data, size_t size)
{
    struct session *session = owner;
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    struct err err = { 0 };
    session->heard_us = monotonic_us();
    if (wire_unpack(&sandstorm__v1__connect_request__descriptor, data, size, &message, &err) < 0) {
        refuse(session, &err);
        return;
    }
    const Sandstorm__V1__ConnectRequest *request = (const Sandstorm__V1__ConnectRequest *)message;
    if (session->state == SESSION_ACTIVE)
        liveness_heard(session->orchestrator, session->sandbox);
    for (size_t i = 0; i < request->n_frames && session->state != SESSION_CLOSING; i++)
        if (on_frame(session, request->frames[i], &err) < 0)
            refuse(session, &err);
}

static void on_half_closed(void *owner)
{
    struct session *session = owner;
    if (session->state == SESSION_CLOSING)
        return;
    set_state(session, SESSION_CLOSING);
    detach(session);
    finish(session, NULL);
}

static void on_writable(void *owner)
{
    struct session *session = owner;
    if (session->state == SESSION_ACTIVE)
        relay_session_writable(session->sandbox);
}

static void session_free(struct session *session)
{
    loop_timer_free(session->deadline);
    rpc_call_release(session->call);
    free(session);
}

static void on_closed(void *owner, const struct err *status)
{
    struct session *session = owner;
    (void)status;
    detach(session);
    session_free(session);
}

static const struct rpc_call_handler handler = {
    .message = on_message,
    .half_closed = on_half_closed,
    .writable = on_writable,
    .closed = on_closed,
};

static void on_deadline(void *userdata)
{
    struct session *session = userdata;
    struct err err;
    if (session->state == SESSION_CLOSING) {
        rpc_call_cancel(session->call);
        return;
    }
    (void)err_set(&err, ERR_TIMEOUT, "no register frame within %u s",
                  SESSION_REGISTER_US / 1000000);
    refuse(session, &err);
}

int session_open(void *userdata, struct rpc_call *call, struct err *err)
{
    struct orchestrator *orchestrator = userdata;
    struct session *session = calloc(1, sizeof(*session));
    if (!session)
        return err_nomem(err);
    session->orchestrator = orchestrator;
    session->beats = LOG_LIMIT(SESSION_BEATS_PERIOD_US, SESSION_BEATS_MAX);
    if (loop_timer_new(orchestrator->loop, on_deadline, session, &session->deadline, err) < 0) {
        free(session);
        return -1;
    }
    session->call = call;
    rpc_call_bind(call, &handler, session);
    loop_timer_start(session->deadline, SESSION_REGISTER_US);
    return 0;
}
