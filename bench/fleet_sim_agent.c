/* One simulated agent: a channel with its own certificate, the stream on it, and what a link does
 * about both. Begins when bench/fleet_sim_enrol.c has a certificate for it; frames about itself are
 * made by bench/fleet_sim_frames.c, those about commands by bench/fleet_sim_command.c. Unlike real
 * agents they dial a bounded number at a time, because they share one machine's cores. */
#include "bench/fleet_sim.h"

#include "common/clock.h"
#include "common/csr.h"
#include "common/wire.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define CONNECT_METHOD   "/sandstorm.v1.LinkService/Connect"
#define HEARTBEAT_MIN_MS 100u
#define HEARTBEAT_MAX_MS 3600000u

static const bool transitions[SIM_STATE_COUNT_][SIM_STATE_COUNT_] = {
    [SIM_NEW] = { [SIM_QUEUED] = true },
    [SIM_WAITING] = { [SIM_QUEUED] = true },
    [SIM_QUEUED] = { [SIM_DIALLING] = true },
    [SIM_DIALLING] = { [SIM_ACTIVE] = true, [SIM_WAITING] = true },
    [SIM_ACTIVE] = { [SIM_WAITING] = true },
};

static void dial_queued(struct sim *sim);

static void set_state(struct sim_agent *agent, enum sim_state state)
{
    struct sim *sim = agent->sim;
    assert(transitions[agent->state][state]);
    sim->dialling -= agent->state == SIM_DIALLING;
    sim->active -= agent->state == SIM_ACTIVE;
    sim->dialling += state == SIM_DIALLING;
    sim->active += state == SIM_ACTIVE;
    agent->state = state;
    loop_timer_stop(agent->timer);
    sim_changed(sim);
}

static void stream_over(struct sim_agent *agent)
{
    struct sim *sim = agent->sim;
    bool was_active = agent->state == SIM_ACTIVE;
    if (was_active)
        backoff_disconnected(&agent->backoff, monotonic_us());
    set_state(agent, SIM_WAITING);
    rpc_call_release(TAKE_PTR(agent->call));
    rpc_channel_free(TAKE_PTR(agent->channel));
    if (sim->stopping) {
        sim_quit_when_idle(sim);
        return;
    }
    dial_queued(sim);
    /* One that is silent comes back when it speaks again. */
    if (agent->silent)
        return;
    uint64_t delay = backoff_next_us(&agent->backoff, random_u64());
    if (agent->retry_after_us)
        delay = agent->retry_after_us + random_u64() % (agent->retry_after_us / 10 + 1);
    agent->retry_after_us = 0;
    loop_timer_start(agent->timer, delay);
}

/* What comes down. */

static void take_interval(struct sim_agent *agent, uint64_t ms)
{
    if (ms)
        agent->heartbeat_us = MIN(MAX(ms, HEARTBEAT_MIN_MS), HEARTBEAT_MAX_MS) * 1000;
}

static void beat(struct sim_agent *agent)
{
    sim_send_heartbeat(agent);
    uint64_t tenth = agent->heartbeat_us / 10;
    loop_timer_start(agent->timer, agent->heartbeat_us - tenth + random_u64() % (tenth + 1));
}

static void on_welcome(struct sim_agent *agent, const Sandstorm__V1__Welcome *welcome)
{
    struct sim *sim = agent->sim;
    if (agent->state != SIM_DIALLING)
        return;
    take_interval(agent, welcome->heartbeat_interval_ms);
    agent->clock_skew_ms = -clock_skew_ms(welcome->server_unix_ms);
    sim->figures.reconnects += agent->connects++ > 0;
    backoff_connected(&agent->backoff, monotonic_us());
    set_state(agent, SIM_ACTIVE);
    sim_commands_welcome(agent, welcome->epoch);
    beat(agent);
    dial_queued(sim);
}

static void on_frame(struct sim_agent *agent, const Sandstorm__V1__OrchestratorFrame *frame)
{
    switch (frame->kind_case) {
    case SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_WELCOME:
        on_welcome(agent, frame->welcome);
        break;
    case SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_SETTINGS:
        take_interval(agent, frame->settings->heartbeat_interval_ms);
        break;
    case SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_GOODBYE:
        agent->retry_after_us = MIN(frame->goodbye->retry_after_ms, HEARTBEAT_MAX_MS) * 1000;
        break;
    case SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_ORDER:
        sim_commands_order(agent, frame->order);
        break;
    default:
        break;
    }
}

static void on_message(void *owner, const uint8_t *data, size_t size)
{
    struct sim_agent *agent = owner;
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    struct err err;
    if (wire_unpack(&sandstorm__v1__connect_response__descriptor, data, size, &message, &err) < 0) {
        sim_fail(agent->sim, &err);
        return;
    }
    const Sandstorm__V1__ConnectResponse *response =
        (const Sandstorm__V1__ConnectResponse *)message;
    for (size_t i = 0; i < response->n_frames; i++)
        on_frame(agent, response->frames[i]);
}

static void on_half_closed(void *owner)
{
    (void)owner; /* the status follows */
}

static void on_closed(void *owner, const struct err *status)
{
    struct sim_agent *agent = owner;
    agent->sim->calls--;
    /* What a test must hear of: the fleet's own fault, not the weather. */
    if (status->code == ERR_PROTOCOL || status->code == ERR_INVALID ||
        status->code == ERR_PRECONDITION)
        sim_fail(agent->sim, status);
    stream_over(agent);
}

static const struct rpc_call_handler handler = {
    .message = on_message,
    .half_closed = on_half_closed,
    .closed = on_closed,
};

/* What goes up. */

void sim_agent_send(struct sim_agent *agent, Sandstorm__V1__AgentFrame *frame)
{
    Sandstorm__V1__AgentFrame *frames[] = { frame };
    Sandstorm__V1__ConnectRequest request = SANDSTORM__V1__CONNECT_REQUEST__INIT;
    request.n_frames = 1;
    request.frames = frames;
    struct err err;
    if (frame->kind_case == SANDSTORM__V1__AGENT_FRAME__KIND_HEARTBEAT) {
        agent->sim->figures.heartbeats++;
        agent->sim->figures.heartbeat_bytes +=
            sandstorm__v1__connect_request__get_packed_size(&request);
    }
    if (agent->call && rpc_call_send(agent->call, &request.base, &err) < 0)
        rpc_call_cancel(agent->call);
}

/* Connecting. */

static int dial(struct sim_agent *agent, struct err *err)
{
    struct sim *sim = agent->sim;
    const struct rpc_creds creds = { .ca = sim->ca, .cert = agent->cert, .key = agent->key };
    if (rpc_channel_new(sim->pump, sim->config->endpoint, &creds, &agent->channel, err) < 0 ||
        rpc_channel_call(agent->channel, CONNECT_METHOD, RPC_NO_DEADLINE, &handler, agent,
                         &agent->call, err) < 0)
        return -1;
    sim->calls++;
    sim_send_register(agent);
    return 0;
}

static void dial_queued(struct sim *sim)
{
    struct err err;
    while (sim->queue_first && sim->dialling < SIM_DIALLING_MAX && !sim->stopping) {
        struct sim_agent *agent = sim->queue_first;
        sim->queue_first = agent->queue_next;
        if (!sim->queue_first)
            sim->queue_last = &sim->queue_first;
        set_state(agent, SIM_DIALLING);
        loop_timer_start(agent->timer, SIM_WELCOME_US);
        if (dial(agent, &err) < 0) {
            sim_fail(sim, &err);
            return;
        }
    }
}

void sim_agent_begin(struct sim_agent *agent)
{
    struct sim *sim = agent->sim;
    set_state(agent, SIM_QUEUED);
    agent->queue_next = NULL;
    *sim->queue_last = agent;
    sim->queue_last = &agent->queue_next;
    dial_queued(sim);
}

static void on_timer(void *userdata)
{
    struct sim_agent *agent = userdata;
    if (agent->state == SIM_WAITING)
        sim_agent_begin(agent);
    else if (agent->state == SIM_DIALLING)
        rpc_call_cancel(agent->call);
    else if (agent->state == SIM_ACTIVE)
        beat(agent);
}

void sim_agent_set_silent(struct sim_agent *agent, bool silent)
{
    if (agent->silent == silent)
        return;
    agent->silent = silent;
    if (agent->state == SIM_WAITING) {
        if (silent)
            loop_timer_stop(agent->timer);
        else
            sim_agent_begin(agent);
    } else if (agent->state == SIM_ACTIVE) {
        if (silent) {
            loop_timer_stop(agent->timer);
            rpc_call_pause(agent->call);
        } else {
            beat(agent);
            rpc_call_resume(agent->call);
        }
    }
}

void sim_agent_cut(struct sim_agent *agent)
{
    if (agent->sim->stopping)
        loop_timer_stop(agent->timer);
    if (agent->call)
        rpc_call_cancel(agent->call);
}

/* Life. */

int sim_agent_init(struct sim *sim, struct sim_agent *agent, unsigned index, struct err *err)
{
    struct command_id instance;
    agent->sim = sim;
    agent->heartbeat_us = SIM_HEARTBEAT_US;
    backoff_init(&agent->backoff);
    int n = snprintf(agent->name, sizeof(agent->name), "%s%05u", sim->config->prefix, index);
    if (n < 0 || (size_t)n >= sizeof(agent->name))
        return err_set(err, ERR_INVALID, "--prefix is too long: an id has at most %u characters",
                       SIM_NAME_MAX);
    if (command_id_new(&instance, err) < 0)
        return -1;
    (void)memcpy(agent->instance, instance.text, sizeof(agent->instance));
    return loop_timer_new(sim->loop, on_timer, agent, &agent->timer, err);
}

void sim_agent_done(struct sim_agent *agent)
{
    sim_commands_done(agent);
    rpc_call_release(agent->call);
    rpc_channel_free(agent->channel);
    loop_timer_free(agent->timer);
    free(agent->cert);
    csr_key_free(agent->key);
}
