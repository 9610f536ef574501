/* What the runner says about a command that a client follows. Events come from
 * orchestrator/session.c, where the agent's identity is certain but its word is not: offsets must
 * follow on, stay within what was granted, and end where the end record says. What passes goes to
 * the client as it is; so does the end of a command that the runner has let go of, from what was
 * kept of it. next: orchestrator/exec_resume.c when the agent comes back. */
#include "orchestrator/exec-internal.h"

#include "common/wire.h"

#include <string.h>

/* Any word about the command means that the runner has it. */
static void confirm(struct exec *exec)
{
    if (exec->state != EXEC_PENDING)
        return;
    exec_set_state(exec, EXEC_RUNNING);
    if (exec->due.start) {
        /* It was said to an earlier attach; ours is still to come. */
        exec->due.start = false;
        exec->due.attach = true;
    }
    free(TAKE_PTR(exec->spec));
    exec->spec_size = 0;
    exec_flush(exec);
}

/* The ledger has grown; who leaves credit to us acknowledges nothing by itself. */
static void advance(struct exec *exec, uint64_t end)
{
    exec->received = end;
    exec->granted = MAX(exec->granted, end);
    exec->hole = false;
    exec->excess = 0;
    exec->records++;
    if (exec->grants_itself)
        exec->acked = end;
}

static int on_started(struct exec *exec, const Sandstorm__V1__CommandEvent *event, struct err *err)
{
    (void)err;
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_STARTED;
    response.started = event->started;
    exec_reply(exec, &response);
    return 0;
}

/* Something is missing before it, or it was granted to an earlier client of this command and not to
 * this one: nothing is delivered past a hole or beyond the grant. Asked for once; what is still on
 * its way will come again. */
static void ask_again(struct exec *exec)
{
    if (exec->hole)
        return;
    exec->hole = true;
    exec->due.attach = true;
    exec_flush(exec);
}

static int on_output(struct exec *exec, const Sandstorm__V1__CommandEvent *event, struct err *err)
{
    Sandstorm__V1__Output *output = event->output;
    uint64_t size = output->data.len;
    if (size == 0 || size > WIRE_PAYLOAD_MAX || output->offset > UINT64_MAX - size ||
        (output->stream != SANDSTORM__V1__STREAM__STREAM_STDOUT &&
         output->stream != SANDSTORM__V1__STREAM__STREAM_STDERR))
        return err_set(err, ERR_PROTOCOL, "an output record of %llu bytes that cannot be",
                       (unsigned long long)size);
    uint64_t end = output->offset + size;
    if (end <= exec->received)
        return 0; /* known already */
    if (end > exec->granted) {
        exec->excess += size;
        if (exec->excess > EXEC_WINDOW + WIRE_PAYLOAD_MAX)
            return err_set(err, ERR_PROTOCOL, "output beyond the granted offset");
    }
    if (end > exec->granted || output->offset > exec->received) {
        ask_again(exec);
        return 0;
    }
    uint64_t overlap = exec->received - output->offset;
    output->offset += overlap;
    output->data.data += overlap;
    output->data.len -= overlap;
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_OUTPUT;
    response.output = output;
    advance(exec, end);
    exec_reply(exec, &response);
    /* The message frees what it allocated. */
    output->data.data -= overlap;
    output->data.len += overlap;
    if (exec->state == EXEC_RUNNING)
        exec_grant(exec);
    return 0;
}

static int on_gap(struct exec *exec, const Sandstorm__V1__CommandEvent *event, struct err *err)
{
    Sandstorm__V1__Gap *gap = event->gap;
    if (gap->size == 0 || gap->offset > UINT64_MAX - gap->size)
        return err_set(err, ERR_PROTOCOL, "a gap record that cannot be");
    uint64_t end = gap->offset + gap->size;
    if (end <= exec->received)
        return 0;
    if (gap->offset > exec->received) {
        ask_again(exec);
        return 0;
    }
    gap->offset = exec->received;
    gap->size = end - exec->received;
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_GAP;
    response.gap = gap;
    advance(exec, end);
    exec_reply(exec, &response);
    if (exec->state == EXEC_RUNNING)
        exec_grant(exec);
    return 0;
}

static int on_ended(struct exec *exec, const Sandstorm__V1__CommandEvent *event, struct err *err)
{
    Sandstorm__V1__Ended *ended = event->ended;
    if (!ended->outcome || ended->outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT__NOT_SET)
        return err_set(err, ERR_PROTOCOL, "an end record without an outcome");
    bool released =
        ended->outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT_LOST &&
        ended->outcome->lost->reason == SANDSTORM__V1__LOST_REASON__LOST_REASON_RELEASED;
    if (released && exec->result) {
        exec_answer(exec); /* we know more than the runner still does */
        return 0;
    }
    if (released)
        ended->end_offset = exec->received;
    if (ended->end_offset > exec->received) {
        ask_again(exec); /* said to an earlier attach, or something is missing before it */
        return 0;
    }
    if (ended->end_offset < exec->received) {
        struct err why;
        (void)err_set(&why, ERR_PROTOCOL,
                      "the sandbox says that the command ended before its output");
        exec_fail(exec, &why);
        return 0;
    }
    exec->end_offset = ended->end_offset;
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_ENDED;
    response.ended = ended;
    exec_reply(exec, &response);
    if (exec->state == EXEC_RUNNING)
        exec_finish_ended(exec);
    return 0;
}

int exec_keep_result(struct exec *exec, const uint8_t *outcome, size_t size, uint64_t end_offset,
                     struct err *err)
{
    struct exec_result *result = malloc(sizeof(*result) + size);
    if (!result)
        return err_nomem(err);
    result->end_offset = end_offset;
    result->size = size;
    (void)memcpy(result->outcome, outcome, size);
    free(exec->result);
    exec->result = result;
    return 0;
}

/* The client hears of it with the end record, after the output. Until then it is kept for the case
 * that the runner does not live to say so. */
static int on_settled(struct exec *exec, const Sandstorm__V1__CommandEvent *event, struct err *err)
{
    const Sandstorm__V1__Settled *settled = event->settled;
    uint8_t *packed;
    size_t size;
    if (exec->result || !settled->outcome ||
        settled->outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT__NOT_SET)
        return 0;
    if (wire_pack(&settled->outcome->base, &packed, &size, err) < 0)
        return -1;
    int r = exec_keep_result(exec, packed, size, settled->end_offset, err);
    free(packed);
    return r;
}

static int on_stdin_credit(struct exec *exec, const Sandstorm__V1__CommandEvent *event,
                           struct err *err)
{
    Sandstorm__V1__StdinCredit *credit = event->stdin_credit;
    if (credit->taken > credit->received || credit->limit < credit->received)
        return err_set(err, ERR_PROTOCOL, "an input credit that contradicts itself");
    exec_input_at(exec, credit->received, credit->taken);
    /* What the client may send is also bounded by the room that we keep it in. */
    credit->limit = MIN(credit->limit, exec->input_taken + EXEC_STDIN_MAX);
    exec->input_limit = MAX(exec->input_limit, credit->limit);
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_STDIN_CREDIT;
    response.stdin_credit = credit;
    exec_reply(exec, &response);
    return 0;
}

/* The runner would not start the command, or does not let us follow it. */
static void refused_for_good(struct exec *exec, const Sandstorm__V1__Refusal *refusal)
{
    enum err_code code = ERR_PRECONDITION;
    if (refusal->reason == SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_CONFLICT)
        code = ERR_EXISTS;
    else if (refusal->reason == SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_BAD_POSITION)
        code = ERR_INVALID;
    else if (refusal->reason == SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_EXHAUSTED)
        code = ERR_EXHAUSTED;
    struct err why;
    (void)err_set(&why, code, "command %s: %.200s", exec->id.text, refusal->detail);
    if (code == ERR_EXISTS)
        exec_fail_foreign(exec, &why);
    else
        exec_fail(exec, &why);
}

/* The runner does not have the command. True when that says how it ended. */
static bool is_gone(struct exec *exec)
{
    struct history *history = exec->orchestrator->history;
    struct history_judgement judgement;
    if (exec->result) {
        exec_answer(exec);
        return true;
    }
    if (!exec->asking)
        return false;
    history_judge(history, exec->sandbox, &exec->id, &judgement);
    history_lost(history, &exec->id, &judgement);
    exec_lost(exec, judgement.reason, judgement.detail);
    return true;
}

static int on_refusal(struct exec *exec, const Sandstorm__V1__CommandEvent *event, struct err *err)
{
    (void)err;
    const Sandstorm__V1__Refusal *refusal = event->refusal;
    if (refusal->reason == SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_UNKNOWN_COMMAND &&
        refusal->order == SANDSTORM__V1__ORDER_KIND__ORDER_KIND_ATTACH && is_gone(exec))
        return 0;
    switch (refusal->order) {
    case SANDSTORM__V1__ORDER_KIND__ORDER_KIND_START:
    case SANDSTORM__V1__ORDER_KIND__ORDER_KIND_ATTACH:
        refused_for_good(exec, refusal);
        return 0;
    case SANDSTORM__V1__ORDER_KIND__ORDER_KIND_CREDIT:
        /* It let go of the command under us, or our credit was late: the next attach tells which.
         */
        if (refusal->reason == SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_UNKNOWN_COMMAND)
            refused_for_good(exec, refusal);
        return 0;
    case SANDSTORM__V1__ORDER_KIND__ORDER_KIND_DETACH:
    case SANDSTORM__V1__ORDER_KIND__ORDER_KIND_RELEASE:
        return 0;
    default:
        if (refusal->reason != SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_ENDED)
            exec_notice(exec, SANDSTORM__V1__EXEC_NOTICE_KIND__EXEC_NOTICE_KIND_REFUSED,
                        refusal->detail);
        return 0;
    }
}

static const struct {
    Sandstorm__V1__CommandEvent__EventCase kind;
    bool confirms; /* that the command exists */
    int (*fn)(struct exec *exec, const Sandstorm__V1__CommandEvent *event, struct err *err);
} events[] = {
    { SANDSTORM__V1__COMMAND_EVENT__EVENT_STARTED, true, on_started },
    { SANDSTORM__V1__COMMAND_EVENT__EVENT_OUTPUT, true, on_output },
    { SANDSTORM__V1__COMMAND_EVENT__EVENT_GAP, true, on_gap },
    { SANDSTORM__V1__COMMAND_EVENT__EVENT_SETTLED, false, on_settled },
    { SANDSTORM__V1__COMMAND_EVENT__EVENT_ENDED, true, on_ended },
    { SANDSTORM__V1__COMMAND_EVENT__EVENT_STDIN_CREDIT, true, on_stdin_credit },
    { SANDSTORM__V1__COMMAND_EVENT__EVENT_REFUSAL, false, on_refusal },
};

int exec_event(struct exec *exec, const Sandstorm__V1__CommandEvent *event, struct err *err)
{
    /* After the end record nothing follows that a client could see. */
    if (exec->state != EXEC_PENDING && exec->state != EXEC_RUNNING)
        return 0;
    for (size_t i = 0; i < ELEMENTS(events); i++) {
        if (events[i].kind != event->event_case)
            continue;
        if (events[i].confirms)
            confirm(exec);
        return events[i].fn(exec, event, err);
    }
    return 0; /* from a newer runner */
}

/* There is nobody any more to give orders, credit or input to. */
static void stop_orders(struct exec *exec)
{
    exec->due = (struct exec_due){ 0 };
    exec->granted = UINT64_MAX;
    exec->input_eof_sent = true;
    buf_drop(&exec->input, buf_used(&exec->input));
    exec->input_sent = exec->input_taken;
}

/* A runner that does not know the command any more cannot say how it ended; we say just that. */
void exec_lost(struct exec *exec, Sandstorm__V1__LostReason reason, const char *detail)
{
    Sandstorm__V1__Lost lost = SANDSTORM__V1__LOST__INIT;
    lost.reason = reason;
    lost.detail = (char *)detail;
    Sandstorm__V1__Outcome outcome = SANDSTORM__V1__OUTCOME__INIT;
    outcome.result_case = SANDSTORM__V1__OUTCOME__RESULT_LOST;
    outcome.lost = &lost;
    Sandstorm__V1__Ended ended = SANDSTORM__V1__ENDED__INIT;
    ended.outcome = &outcome;
    ended.end_offset = exec->received;
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_ENDED;
    event.ended = &ended;
    struct err err;
    stop_orders(exec);
    if (exec_event(exec, &event, &err) < 0)
        exec_fail(exec, &err);
}

static int answer(struct exec *exec, const struct exec_result *result, struct err *err)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    if (wire_unpack(&sandstorm__v1__outcome__descriptor, result->outcome, result->size, &message,
                    err) < 0)
        return -1;
    Sandstorm__V1__Outcome *outcome = (Sandstorm__V1__Outcome *)message;
    Sandstorm__V1__Ended ended = SANDSTORM__V1__ENDED__INIT;
    ended.outcome = outcome;
    ended.end_offset = result->end_offset;
    /* How far the output of a lost one went, nobody knows. */
    if (outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT_LOST)
        ended.end_offset = MAX(ended.end_offset, exec->received);
    if (exec->received > ended.end_offset)
        return err_set(err, ERR_INVALID, "command %s: its output ends at offset %llu",
                       exec->id.text, (unsigned long long)ended.end_offset);
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    if (exec->received < ended.end_offset) {
        Sandstorm__V1__Gap gap = SANDSTORM__V1__GAP__INIT;
        gap.offset = exec->received;
        gap.size = ended.end_offset - exec->received;
        gap.reason = SANDSTORM__V1__GAP_REASON__GAP_REASON_TRIMMED;
        event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_GAP;
        event.gap = &gap;
        if (exec_event(exec, &event, err) < 0)
            return -1;
    }
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_ENDED;
    event.ended = &ended;
    return exec_event(exec, &event, err);
}

void exec_answer(struct exec *exec)
{
    CLEANUP_FREE struct exec_result *result = TAKE_PTR(exec->result);
    struct err err = { 0 };
    stop_orders(exec);
    if (answer(exec, result, &err) < 0)
        exec_fail(exec, &err);
}
