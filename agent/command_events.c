/* What a command says to the orchestrator, derived from its state when the link can take it: no
 * queue of events exists that could grow or be lost. Order: started, how it ended as soon as that
 * is known and whether or not anybody follows, output and gaps, the end last.
 * next: agent/runner_link.c sends what is packed here. */
#include "agent/command-internal.h"
#include "common/wire.h"

#include <assert.h>
#include <string.h>

/* The protobuf structs of one event; they point at each other, so they live together. */
struct scratch {
    Sandstorm__V1__AgentFrame frame;
    Sandstorm__V1__CommandEvent event;
};

static void init_scratch(struct scratch *scratch, struct command *command)
{
    sandstorm__v1__agent_frame__init(&scratch->frame);
    sandstorm__v1__command_event__init(&scratch->event);
    scratch->frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_EVENT;
    scratch->frame.event = &scratch->event;
    scratch->event.command_id = command->id.text;
}

static size_t pack(const struct scratch *scratch, uint8_t *out, size_t capacity)
{
    size_t size = sandstorm__v1__agent_frame__get_packed_size(&scratch->frame);
    assert(size <= capacity);
    (void)capacity;
    return sandstorm__v1__agent_frame__pack(&scratch->frame, out);
}

static bool output_due(const struct command *command)
{
    if (command->output.sent < spool_first(&command->spool))
        return true; /* a gap, which needs no credit */
    return command->output.sent < spool_end(&command->spool) &&
           window_available(&command->output) > 0;
}

static bool end_due(const struct command *command)
{
    return command->ended_due && command->output.sent >= spool_end(&command->spool);
}

bool command_has_event(const struct command *command)
{
    return command->settled_due ||
           (command->speaking && (command->started_due || command->stdin_due ||
                                  output_due(command) || end_due(command)));
}

static size_t list_not_enforced(const struct command *command, char *ret[TREE_LIMIT_COUNT_])
{
    size_t count = 0;
    for (unsigned i = 0; i < TREE_LIMIT_COUNT_; i++)
        if (command->not_enforced & 1u << i)
            ret[count++] = (char *)tree_limit_name((enum tree_limit)i);
    return count;
}

static size_t pack_started(struct command *command, uint8_t *out, size_t capacity)
{
    struct scratch scratch;
    init_scratch(&scratch, command);
    Sandstorm__V1__Started started = SANDSTORM__V1__STARTED__INIT;
    char *not_enforced[TREE_LIMIT_COUNT_];
    started.pid = command->pid;
    started.started_unix_us = command->outcome.started_us;
    started.n_not_enforced = list_not_enforced(command, not_enforced);
    started.not_enforced = not_enforced;
    started.output_policy = command->output_policy;
    started.takes_input = command->takes_input;
    started.terminal = command->terminal;
    scratch.event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_STARTED;
    scratch.event.started = &started;
    command->started_due = false;
    return pack(&scratch, out, capacity);
}

static size_t pack_stdin_credit(struct command *command, uint8_t *out, size_t capacity)
{
    struct scratch scratch;
    init_scratch(&scratch, command);
    Sandstorm__V1__StdinCredit credit = SANDSTORM__V1__STDIN_CREDIT__INIT;
    credit.limit = command->input.window.granted;
    credit.taken = command->input.window.taken;
    credit.received = command->input.window.received;
    credit.closed = command->input.broken;
    scratch.event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_STDIN_CREDIT;
    scratch.event.stdin_credit = &credit;
    command->stdin_due = false;
    return pack(&scratch, out, capacity);
}

static size_t pack_gap(struct command *command, uint64_t to, Sandstorm__V1__GapReason reason,
                       uint8_t *out, size_t capacity)
{
    struct scratch scratch;
    init_scratch(&scratch, command);
    Sandstorm__V1__Gap gap = SANDSTORM__V1__GAP__INIT;
    gap.offset = command->output.sent;
    gap.size = to - gap.offset;
    gap.reason = reason;
    scratch.event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_GAP;
    scratch.event.gap = &gap;
    window_init(&command->output, to, MAX(command->output.limit, to));
    return pack(&scratch, out, capacity);
}

/* Below the acknowledged offset bytes were released, above it they were dropped. */
static size_t pack_missing(struct command *command, uint8_t *out, size_t capacity)
{
    uint64_t first = spool_first(&command->spool);
    if (command->output.sent < command->acked)
        return pack_gap(command, MIN(command->acked, first),
                        SANDSTORM__V1__GAP_REASON__GAP_REASON_TRIMMED, out, capacity);
    return pack_gap(command, first, SANDSTORM__V1__GAP_REASON__GAP_REASON_DROPPED, out, capacity);
}

static size_t pack_output(struct command *command, uint8_t *out, size_t capacity)
{
    struct scratch scratch;
    init_scratch(&scratch, command);
    uint8_t bytes[WIRE_PAYLOAD_MAX];
    enum spool_stream stream;
    uint64_t beyond;
    ssize_t n = spool_peek(&command->spool, command->output.sent, bytes,
                           (size_t)MIN(window_available(&command->output), sizeof(bytes)), &stream,
                           &beyond);
    if (n < 0)
        return pack_gap(command, beyond, SANDSTORM__V1__GAP_REASON__GAP_REASON_DAMAGED, out,
                        capacity);
    Sandstorm__V1__Output output = SANDSTORM__V1__OUTPUT__INIT;
    output.offset = command->output.sent;
    output.stream = (Sandstorm__V1__Stream)stream;
    output.data = (ProtobufCBinaryData){ .len = (size_t)n, .data = bytes };
    scratch.event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_OUTPUT;
    scratch.event.output = &output;
    window_spend(&command->output, (uint64_t)n);
    return pack(&scratch, out, capacity);
}

/* The results of an Outcome, each with room of its own: the message holds pointers. */
struct result {
    Sandstorm__V1__Exited exited;
    Sandstorm__V1__Signaled signaled;
    Sandstorm__V1__TimedOut timed_out;
    Sandstorm__V1__Cancelled cancelled;
    Sandstorm__V1__StartFailed start_failed;
    Sandstorm__V1__OomKilled oom_killed;
    Sandstorm__V1__Lost lost;
};

static void fill_result(struct command *command, Sandstorm__V1__Outcome *message,
                        struct result *result)
{
    struct command_outcome *outcome = &command->outcome;
    message->result_case = outcome->kind;
    switch (outcome->kind) {
    case SANDSTORM__V1__OUTCOME__RESULT_EXITED:
        sandstorm__v1__exited__init(&result->exited);
        result->exited.code = outcome->code;
        message->exited = &result->exited;
        break;
    case SANDSTORM__V1__OUTCOME__RESULT_SIGNALED:
        sandstorm__v1__signaled__init(&result->signaled);
        result->signaled.signal = outcome->signal;
        if (sigabbrev_np((int)outcome->signal))
            result->signaled.name = (char *)sigabbrev_np((int)outcome->signal);
        result->signaled.core_dumped = outcome->core_dumped;
        message->signaled = &result->signaled;
        break;
    case SANDSTORM__V1__OUTCOME__RESULT_TIMED_OUT:
        sandstorm__v1__timed_out__init(&result->timed_out);
        result->timed_out.after_ms = command->timeout_us / 1000;
        message->timed_out = &result->timed_out;
        break;
    case SANDSTORM__V1__OUTCOME__RESULT_CANCELLED:
        sandstorm__v1__cancelled__init(&result->cancelled);
        result->cancelled.reason = outcome->detail;
        message->cancelled = &result->cancelled;
        break;
    case SANDSTORM__V1__OUTCOME__RESULT_START_FAILED:
        sandstorm__v1__start_failed__init(&result->start_failed);
        result->start_failed.errno_number = outcome->error;
        if (strerrorname_np(outcome->error))
            result->start_failed.errno_name = (char *)strerrorname_np(outcome->error);
        result->start_failed.step = outcome->step;
        result->start_failed.detail = outcome->detail;
        message->start_failed = &result->start_failed;
        break;
    case SANDSTORM__V1__OUTCOME__RESULT_OOM_KILLED:
        sandstorm__v1__oom_killed__init(&result->oom_killed);
        message->oom_killed = &result->oom_killed;
        break;
    default:
        sandstorm__v1__lost__init(&result->lost);
        message->result_case = SANDSTORM__V1__OUTCOME__RESULT_LOST;
        result->lost.reason = outcome->lost;
        result->lost.detail = outcome->detail;
        message->lost = &result->lost;
        break;
    }
}

static uint64_t timeval_us(const struct timeval *time)
{
    return (uint64_t)time->tv_sec * 1000000u + (uint64_t)time->tv_usec;
}

/* An Outcome with the messages that it points to. */
struct outcome {
    Sandstorm__V1__Outcome message;
    Sandstorm__V1__Usage usage;
    struct result result;
    char *not_enforced[TREE_LIMIT_COUNT_];
};

/* What may still change after the leader was reaped. */
static void fill_ledger(const struct command *command, Sandstorm__V1__Outcome *message)
{
    message->stdout_bytes = command->pipes[0].bytes;
    message->stderr_bytes = command->pipes[1].bytes;
    message->stream_held_open |= command->outcome.held_open;
}

static void fill_outcome(struct command *command, struct outcome *ret)
{
    const struct command_outcome *outcome = &command->outcome;
    if (command->kept) {
        ret->message = *(const Sandstorm__V1__Outcome *)command->kept;
        fill_ledger(command, &ret->message);
        return;
    }
    Sandstorm__V1__Usage *usage = &ret->usage;
    sandstorm__v1__usage__init(usage);
    usage->user_us = timeval_us(&outcome->usage.ru_utime);
    usage->system_us = timeval_us(&outcome->usage.ru_stime);
    usage->max_rss_bytes = (uint64_t)outcome->usage.ru_maxrss * 1024;
    Sandstorm__V1__Outcome *message = &ret->message;
    sandstorm__v1__outcome__init(message);
    fill_result(command, message, &ret->result);
    message->started_unix_us = outcome->started_us;
    message->ended_unix_us = outcome->ended_us;
    message->duration_us = outcome->duration_us;
    message->usage = usage;
    message->survivors = outcome->survivors;
    message->peak_memory_bytes = outcome->peak_memory_bytes;
    message->n_not_enforced = list_not_enforced(command, ret->not_enforced);
    message->not_enforced = ret->not_enforced;
    fill_ledger(command, message);
}

int command_pack_outcome(struct command *command, uint8_t **ret, size_t *ret_size, struct err *err)
{
    struct outcome outcome;
    fill_outcome(command, &outcome);
    return wire_pack(&outcome.message.base, ret, ret_size, err);
}

static size_t pack_settled(struct command *command, uint8_t *out, size_t capacity)
{
    struct scratch scratch;
    init_scratch(&scratch, command);
    struct outcome outcome;
    fill_outcome(command, &outcome);
    Sandstorm__V1__Settled settled = SANDSTORM__V1__SETTLED__INIT;
    settled.outcome = &outcome.message;
    settled.end_offset = spool_end(&command->spool);
    scratch.event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_SETTLED;
    scratch.event.settled = &settled;
    command->settled_due = false;
    return pack(&scratch, out, capacity);
}

static size_t pack_ended(struct command *command, uint8_t *out, size_t capacity)
{
    struct scratch scratch;
    init_scratch(&scratch, command);
    struct outcome outcome;
    fill_outcome(command, &outcome);
    Sandstorm__V1__Ended ended = SANDSTORM__V1__ENDED__INIT;
    ended.outcome = &outcome.message;
    ended.end_offset = spool_end(&command->spool);
    scratch.event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_ENDED;
    scratch.event.ended = &ended;
    command->ended_due = false;
    return pack(&scratch, out, capacity);
}

size_t command_pack_event(struct command *command, uint8_t *out, size_t capacity)
{
    assert(command_has_event(command));
    if (command->speaking && command->started_due)
        return pack_started(command, out, capacity);
    if (command->settled_due)
        return pack_settled(command, out, capacity);
    if (command->stdin_due)
        return pack_stdin_credit(command, out, capacity);
    if (command->output.sent < spool_first(&command->spool))
        return pack_missing(command, out, capacity);
    if (output_due(command))
        return pack_output(command, out, capacity);
    return pack_ended(command, out, capacity);
}
