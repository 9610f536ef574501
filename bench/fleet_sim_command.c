/* Commands as a simulated runner has them: a start order is answered with started, some output and,
 * after the time that was asked for, the end. They survive a reconnect and are listed in the next
 * inventory, so an orchestrator can be restarted under them. A released id is forgotten, which a
 * real runner would not do. Orders come from bench/fleet_sim_agent.c, which also sends the answers.
 */
#include "bench/fleet_sim.h"

#include "common/clock.h"

#include <string.h>

#define PID_FIRST 1000

static struct sim_command *find(const struct sim_agent *agent, const char *id)
{
    struct sim_command *command = agent->commands;
    while (command && strcmp(command->id.text, id) != 0)
        command = command->next;
    return command;
}

unsigned sim_commands_running(const struct sim_agent *agent)
{
    unsigned count = 0;
    for (const struct sim_command *command = agent->commands; command; command = command->next)
        count += command->ended_us == 0;
    return count;
}

/* Answers. */

static void send_event(struct sim_agent *agent, Sandstorm__V1__CommandEvent *event)
{
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_EVENT;
    frame.event = event;
    if (agent->state == SIM_ACTIVE)
        sim_agent_send(agent, &frame);
}

static void refuse(struct sim_agent *agent, const char *id, Sandstorm__V1__OrderKind order,
                   Sandstorm__V1__RefusalReason reason)
{
    Sandstorm__V1__Refusal refusal = SANDSTORM__V1__REFUSAL__INIT;
    refusal.order = order;
    refusal.reason = reason;
    refusal.detail = (char *)"the simulated runner does not do that";
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.command_id = (char *)id;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_REFUSAL;
    event.refusal = &refusal;
    send_event(agent, &event);
}

static void say_started(struct sim_command *command)
{
    Sandstorm__V1__Started started = SANDSTORM__V1__STARTED__INIT;
    started.pid = PID_FIRST;
    started.started_unix_us = command->started_us;
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.command_id = command->id.text;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_STARTED;
    event.started = &started;
    send_event(command->agent, &event);
}

static void say_output(struct sim_command *command)
{
    uint64_t total = command->agent->sim->config->output;
    uint8_t bytes[SIM_OUTPUT_MAX];
    uint64_t to = MIN(command->limit, total);
    if (command->sent >= to)
        return;
    for (uint64_t i = 0; i < to - command->sent; i++)
        bytes[i] = (command->sent + i + 1) % 64 ? 'x' : '\n';
    Sandstorm__V1__Output output = SANDSTORM__V1__OUTPUT__INIT;
    output.offset = command->sent;
    output.stream = SANDSTORM__V1__STREAM__STREAM_STDOUT;
    output.data = (ProtobufCBinaryData){ .len = to - command->sent, .data = bytes };
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.command_id = command->id.text;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_OUTPUT;
    event.output = &output;
    send_event(command->agent, &event);
    command->sent = to;
}

/* The end as Settled, unasked, or as the ledger's last record. */
static void say_end(struct sim_command *command, bool last_record)
{
    uint64_t total = command->agent->sim->config->output;
    Sandstorm__V1__Exited exited = SANDSTORM__V1__EXITED__INIT;
    Sandstorm__V1__Cancelled cancelled = SANDSTORM__V1__CANCELLED__INIT;
    Sandstorm__V1__Outcome outcome = SANDSTORM__V1__OUTCOME__INIT;
    cancelled.reason = (char *)"client asked";
    if (command->cancelled) {
        outcome.result_case = SANDSTORM__V1__OUTCOME__RESULT_CANCELLED;
        outcome.cancelled = &cancelled;
    } else {
        outcome.result_case = SANDSTORM__V1__OUTCOME__RESULT_EXITED;
        outcome.exited = &exited;
    }
    outcome.started_unix_us = command->started_us;
    outcome.ended_unix_us = command->ended_us;
    outcome.duration_us = (uint64_t)(command->ended_us - command->started_us);
    outcome.stdout_bytes = total;
    Sandstorm__V1__Ended ended = SANDSTORM__V1__ENDED__INIT;
    Sandstorm__V1__Settled settled = SANDSTORM__V1__SETTLED__INIT;
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.command_id = command->id.text;
    ended.outcome = settled.outcome = &outcome;
    ended.end_offset = settled.end_offset = total;
    if (last_record) {
        event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_ENDED;
        event.ended = &ended;
    } else {
        event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_SETTLED;
        event.settled = &settled;
    }
    send_event(command->agent, &event);
}

static void speak(struct sim_command *command)
{
    if (command->agent->state != SIM_ACTIVE || command->agent->silent)
        return;
    if (command->ended_us && !command->settled_said) {
        command->settled_said = true;
        say_end(command, false);
    }
    if (!command->speaking)
        return;
    say_output(command);
    if (command->ended_us && command->sent == command->agent->sim->config->output &&
        !command->ended_said) {
        command->ended_said = true;
        say_end(command, true);
    }
}

static void on_time_over(void *userdata)
{
    struct sim_command *command = userdata;
    if (command->ended_us)
        return;
    command->ended_us = wall_us();
    loop_timer_stop(command->timer);
    speak(command);
}

/* Orders. */

static void attach(struct sim_command *command, const Sandstorm__V1__Attach *attach)
{
    if (attach->from_offset > command->agent->sim->config->output) {
        refuse(command->agent, command->id.text, SANDSTORM__V1__ORDER_KIND__ORDER_KIND_ATTACH,
               SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_BAD_POSITION);
        return;
    }
    command->speaking = true;
    command->ended_said = false;
    command->sent = attach->from_offset;
    command->limit = attach->limit;
    say_started(command);
    speak(command);
}

static void forget(struct sim_agent *agent, struct sim_command *command)
{
    struct sim_command **link = &agent->commands;
    while (*link != command)
        link = &(*link)->next;
    *link = command->next;
    loop_timer_free(command->timer);
    free(command);
}

static struct sim_command *make(struct sim_agent *agent, const char *id,
                                const Sandstorm__V1__Start *start)
{
    struct err err;
    struct sim_command *command = calloc(1, sizeof(*command));
    if (!command || command_id_parse(id, &command->id, &err) < 0 ||
        start->spec_digest.len != sizeof(command->digest) ||
        loop_timer_new(agent->sim->loop, on_time_over, command, &command->timer, &err) < 0) {
        free(command);
        return NULL;
    }
    (void)memcpy(command->digest, start->spec_digest.data, sizeof(command->digest));
    command->agent = agent;
    command->started_us = wall_us();
    command->next = agent->commands;
    agent->commands = command;
    agent->sim->figures.commands++;
    loop_timer_start(command->timer, agent->sim->config->command_us);
    return command;
}

static void on_start(struct sim_agent *agent, const char *id, const Sandstorm__V1__Start *start)
{
    struct sim_command *command = find(agent, id);
    unsigned count = 0;
    for (const struct sim_command *one = agent->commands; one; one = one->next)
        count++;
    if (!command && count < SIM_COMMANDS_MAX)
        command = make(agent, id, start);
    if (!command)
        refuse(agent, id, SANDSTORM__V1__ORDER_KIND__ORDER_KIND_START,
               SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_EXHAUSTED);
    else if (start->spec_digest.len != sizeof(command->digest) ||
             memcmp(start->spec_digest.data, command->digest, sizeof(command->digest)) != 0)
        refuse(agent, id, SANDSTORM__V1__ORDER_KIND__ORDER_KIND_START,
               SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_CONFLICT);
    else if (start->attach)
        attach(command, start->attach);
}

void sim_commands_order(struct sim_agent *agent, const Sandstorm__V1__CommandOrder *order)
{
    if (order->order_case == SANDSTORM__V1__COMMAND_ORDER__ORDER_START) {
        on_start(agent, order->command_id, order->start);
        return;
    }
    struct sim_command *command = find(agent, order->command_id);
    if (!command) {
        if (order->order_case == SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTACH)
            refuse(agent, order->command_id, SANDSTORM__V1__ORDER_KIND__ORDER_KIND_ATTACH,
                   SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_UNKNOWN_COMMAND);
        return;
    }
    switch (order->order_case) {
    case SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTACH:
        attach(command, order->attach);
        break;
    case SANDSTORM__V1__COMMAND_ORDER__ORDER_CREDIT:
        command->limit = MAX(command->limit, order->credit->limit);
        command->acked = MAX(command->acked, order->credit->acked);
        speak(command);
        break;
    case SANDSTORM__V1__COMMAND_ORDER__ORDER_SIGNAL:
    case SANDSTORM__V1__COMMAND_ORDER__ORDER_CANCEL:
        command->cancelled = command->ended_us == 0;
        on_time_over(command);
        break;
    case SANDSTORM__V1__COMMAND_ORDER__ORDER_DETACH:
        command->speaking = false;
        break;
    case SANDSTORM__V1__COMMAND_ORDER__ORDER_RELEASE:
        forget(agent, command);
        break;
    default:
        break; /* input and window sizes: nobody reads them */
    }
}

void sim_commands_welcome(struct sim_agent *agent, uint64_t epoch)
{
    Sandstorm__V1__CommandPosition positions[SIM_COMMANDS_MAX], *list[SIM_COMMANDS_MAX];
    Sandstorm__V1__Inventory inventory = SANDSTORM__V1__INVENTORY__INIT;
    inventory.epoch = epoch;
    inventory.runner_instance = agent->instance;
    inventory.complete = true;
    inventory.commands = list;
    for (struct sim_command *command = agent->commands; command; command = command->next) {
        Sandstorm__V1__CommandPosition *position = &positions[inventory.n_commands];
        sandstorm__v1__command_position__init(position);
        position->command_id = command->id.text;
        position->end_offset = agent->sim->config->output;
        position->ended = command->ended_us != 0;
        position->acked = command->acked;
        position->spec_digest =
            (ProtobufCBinaryData){ .len = sizeof(command->digest), .data = command->digest };
        list[inventory.n_commands++] = position;
        command->speaking = command->settled_said = false;
    }
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_INVENTORY;
    frame.inventory = &inventory;
    sim_agent_send(agent, &frame);
    for (struct sim_command *command = agent->commands; command; command = command->next)
        speak(command);
}

void sim_commands_done(struct sim_agent *agent)
{
    while (agent->commands)
        forget(agent, agent->commands);
}
