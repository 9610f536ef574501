/* What the runner says about a command. Events come from orchestrator/session.c, where the agent's
 * identity is certain but its word is not: offsets must follow on, stay within what was granted,
 * and end where the end record says. What passes is appended to the command's ledger, and those who
 * look are served from there. next: orchestrator/relay_resume.c when the agent comes back. */
#include "orchestrator/relay-internal.h"

#include "orchestrator/exec-internal.h"

#include <string.h>

/* Any word about the command means that the runner has it. */
static void confirm(struct relay *relay)
{
    if (relay->state != RELAY_PENDING)
        return;
    relay_set_state(relay, RELAY_RUNNING);
    if (relay->due.start) {
        /* It was said to an earlier attach; ours is still to come. */
        relay->due.start = false;
        relay->due.attach = true;
    }
    free(TAKE_PTR(relay->spec));
    relay->spec_size = 0;
    relay_flush(relay);
}

static int on_started(struct relay *relay, const Sandstorm__V1__CommandEvent *event,
                      struct err *err)
{
    CLEANUP_FREE uint8_t *packed = NULL;
    size_t size;
    struct exec *exec, *next;
    bool first = !relay->started;
    /* A copy of what we know of it; each attach says it again. */
    Sandstorm__V1__Started known = *event->started;
    known.base.n_unknown_fields = 0;
    known.base.unknown_fields = NULL;
    wire_free(TAKE_PTR(relay->started));
    if (wire_pack(&known.base, &packed, &size, err) < 0 ||
        wire_unpack(known.base.descriptor, packed, size, &relay->started, err) < 0)
        return -1;
    if (first)
        DL_FOREACH_SAFE (relay->viewers, exec, next)
            exec_say_started(exec);
    relay_grant(relay); /* the policy is known now */
    return 0;
}

/* Something is missing before it, or it was granted before we restarted: nothing is taken past a
 * hole or beyond the grant. Asked for once; what is still on its way will come again. */
static void ask_again(struct relay *relay)
{
    if (relay->hole)
        return;
    relay->hole = true;
    relay->due.attach = true;
    relay_flush(relay);
}

static int append(struct relay *relay, enum ledger_kind kind, const void *data, uint64_t size,
                  struct err *err)
{
    if (ledger_append(relay->ledger, kind, data, size, err) < 0)
        return -1;
    relay->granted = MAX(relay->granted, ledger_end(relay->ledger));
    relay->hole = false;
    relay->excess = 0;
    relay->records++;
    return 0;
}

/* All of it is here: there is nobody any more to give orders, credit or input to. */
static void complete(struct relay *relay)
{
    relay->result->end_offset = ledger_end(relay->ledger);
    relay->due = (struct relay_due){ 0 };
    loop_timer_stop(relay->alone);
    relay_end_input(relay);
    relay_set_state(relay, RELAY_ENDED);
    ledger_flush(relay->ledger);
    relay_wake_writers(relay, NULL);
    relay_pump(relay);
}

/* There is more of it, or its end is known: that may be all. */
static int go_on(struct relay *relay)
{
    if (relay->result && ledger_end(relay->ledger) >= relay->result->end_offset) {
        complete(relay);
        return 0;
    }
    relay_pump(relay);
    relay_grant(relay);
    return 0;
}

static int on_output(struct relay *relay, const Sandstorm__V1__CommandEvent *event, struct err *err)
{
    const Sandstorm__V1__Output *output = event->output;
    uint64_t size = output->data.len, known = ledger_end(relay->ledger);
    if (size == 0 || size > WIRE_PAYLOAD_MAX || output->offset > UINT64_MAX - size ||
        (output->stream != SANDSTORM__V1__STREAM__STREAM_STDOUT &&
         output->stream != SANDSTORM__V1__STREAM__STREAM_STDERR))
        return err_set(err, ERR_PROTOCOL, "an output record of %llu bytes that cannot be",
                       (unsigned long long)size);
    uint64_t end = output->offset + size;
    if (end <= known)
        return 0;
    if (end > relay->granted) {
        relay->excess += size;
        if (relay->excess > RELAY_WINDOW + WIRE_PAYLOAD_MAX)
            return err_set(err, ERR_PROTOCOL, "output beyond the granted offset");
    }
    if (end > relay->granted || output->offset > known) {
        ask_again(relay);
        return 0;
    }
    uint64_t overlap = known - output->offset;
    enum ledger_kind kind =
        output->stream == SANDSTORM__V1__STREAM__STREAM_STDERR ? LEDGER_STDERR : LEDGER_STDOUT;
    if (append(relay, kind, output->data.data + overlap, size - overlap, err) < 0)
        return -1;
    return go_on(relay);
}

static int on_gap(struct relay *relay, const Sandstorm__V1__CommandEvent *event, struct err *err)
{
    const Sandstorm__V1__Gap *gap = event->gap;
    uint64_t known = ledger_end(relay->ledger);
    if (gap->size == 0 || gap->offset > UINT64_MAX - gap->size)
        return err_set(err, ERR_PROTOCOL, "a gap record that cannot be");
    uint64_t end = gap->offset + gap->size;
    if (end <= known)
        return 0;
    if (gap->offset > known) {
        ask_again(relay);
        return 0;
    }
    enum ledger_kind kind =
        gap->reason == SANDSTORM__V1__GAP_REASON__GAP_REASON_DROPPED   ? LEDGER_DROPPED
        : gap->reason == SANDSTORM__V1__GAP_REASON__GAP_REASON_DAMAGED ? LEDGER_DAMAGED
                                                                       : LEDGER_TRIMMED;
    if (append(relay, kind, NULL, end - known, err) < 0)
        return -1;
    return go_on(relay);
}

/* How it ended. */

int relay_keep_result(struct relay *relay, const uint8_t *outcome, size_t size, uint64_t end_offset,
                      struct err *err)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    if (wire_unpack(&sandstorm__v1__outcome__descriptor, outcome, size, &message, err) < 0)
        return -1;
    struct relay_result *result = malloc(sizeof(*result) + size);
    if (!result)
        return err_nomem(err);
    result->end_offset = end_offset;
    result->lost = ((const Sandstorm__V1__Outcome *)message)->result_case ==
                   SANDSTORM__V1__OUTCOME__RESULT_LOST;
    result->size = size;
    (void)memcpy(result->outcome, outcome, size);
    free(relay->result);
    relay->result = result;
    return 0;
}

static int take_result(struct relay *relay, const Sandstorm__V1__Outcome *outcome,
                       uint64_t end_offset, struct err *err)
{
    CLEANUP_FREE uint8_t *packed = NULL;
    size_t size;
    if (wire_pack(&outcome->base, &packed, &size, err) < 0)
        return -1;
    return relay_keep_result(relay, packed, size, end_offset, err);
}

static void too_short(struct relay *relay)
{
    struct err why;
    (void)err_set(&why, ERR_PROTOCOL, "the sandbox says that the command ended before its output");
    relay_fail(relay, &why);
}

/* May be known before its last output has come; those who look hear of it behind that. */
static int on_settled(struct relay *relay, const Sandstorm__V1__CommandEvent *event,
                      struct err *err)
{
    const Sandstorm__V1__Settled *settled = event->settled;
    if (relay->result || !settled->outcome ||
        settled->outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT__NOT_SET)
        return 0;
    if (settled->end_offset < ledger_end(relay->ledger) &&
        settled->outcome->result_case != SANDSTORM__V1__OUTCOME__RESULT_LOST) {
        too_short(relay);
        return 0;
    }
    if (take_result(relay, settled->outcome, settled->end_offset, err) < 0)
        return -1;
    relay_wake_writers(relay, NULL);
    return go_on(relay);
}

static int on_ended(struct relay *relay, const Sandstorm__V1__CommandEvent *event, struct err *err)
{
    const Sandstorm__V1__Ended *ended = event->ended;
    uint64_t known = ledger_end(relay->ledger);
    if (!ended->outcome || ended->outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT__NOT_SET)
        return err_set(err, ERR_PROTOCOL, "an end record without an outcome");
    bool lost = ended->outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT_LOST;
    if (lost && ended->outcome->lost->reason == SANDSTORM__V1__LOST_REASON__LOST_REASON_RELEASED &&
        relay->result) {
        relay_close(relay); /* we know more than the runner still does */
        return 0;
    }
    if (ended->end_offset > known) {
        ask_again(relay); /* said to an earlier attach, or something is missing before it */
        return 0;
    }
    if (ended->end_offset < known && !lost) {
        too_short(relay);
        return 0;
    }
    if (!relay->result && take_result(relay, ended->outcome, known, err) < 0)
        return -1;
    complete(relay);
    return 0;
}

void relay_close(struct relay *relay)
{
    uint64_t known = ledger_end(relay->ledger);
    struct err err = { 0 };
    if (relay->state == RELAY_ENDED)
        return;
    if (known < relay->result->end_offset &&
        append(relay, LEDGER_TRIMMED, NULL, relay->result->end_offset - known, &err) < 0) {
        relay_fail(relay, &err);
        return;
    }
    if (known > relay->result->end_offset && !relay->result->lost)
        log_warn("a command's output is longer than its end says",
                 LF_STR("command", relay->id.text));
    complete(relay);
}

void relay_lost(struct relay *relay, const struct history_judgement *judgement)
{
    Sandstorm__V1__Lost lost = SANDSTORM__V1__LOST__INIT;
    lost.reason = judgement->reason;
    lost.detail = (char *)judgement->detail;
    Sandstorm__V1__Outcome outcome = SANDSTORM__V1__OUTCOME__INIT;
    outcome.result_case = SANDSTORM__V1__OUTCOME__RESULT_LOST;
    outcome.lost = &lost;
    struct err err = { 0 };
    if (take_result(relay, &outcome, ledger_end(relay->ledger), &err) < 0)
        relay_fail(relay, &err);
    else
        relay_close(relay);
}

/* Input and refusals. */

static int on_stdin_credit(struct relay *relay, const Sandstorm__V1__CommandEvent *event,
                           struct err *err)
{
    const Sandstorm__V1__StdinCredit *credit = event->stdin_credit;
    if (credit->taken > credit->received || credit->limit < credit->received)
        return err_set(err, ERR_PROTOCOL, "an input credit that contradicts itself");
    relay_input_at(relay, credit->received, credit->taken);
    relay->input_closed = relay->input_closed || credit->closed;
    /* What the client may send is also bounded by the room that we keep it in. */
    relay->input_limit =
        MAX(relay->input_limit, MIN(credit->limit, relay->input_taken + RELAY_STDIN_MAX));
    if (relay->controller)
        exec_say_input(relay->controller);
    relay_wake_writers(relay, NULL);
    return 0;
}

/* The runner would not start the command, or does not let us follow it. */
static void refused_for_good(struct relay *relay, const Sandstorm__V1__Refusal *refusal)
{
    enum err_code code = ERR_PRECONDITION;
    if (refusal->reason == SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_CONFLICT)
        code = ERR_EXISTS;
    else if (refusal->reason == SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_BAD_POSITION)
        code = ERR_INVALID;
    else if (refusal->reason == SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_EXHAUSTED)
        code = ERR_EXHAUSTED;
    struct err why;
    (void)err_set(&why, code, "command %s: %.200s", relay->id.text, refusal->detail);
    relay_fail(relay, &why);
}

/* The runner does not have the command. True when that says how it ended. */
static bool is_gone(struct relay *relay)
{
    struct history *history = relay->orchestrator->history;
    struct history_judgement judgement;
    if (!relay->result && !relay->asking)
        return false;
    relay->unknown_there = true;
    if (relay->result) {
        relay_close(relay);
        return true;
    }
    history_judge(history, relay->sandbox, &relay->id, &judgement);
    history_lost(history, &relay->id, &judgement);
    relay_lost(relay, &judgement);
    return true;
}

static int on_refusal(struct relay *relay, const Sandstorm__V1__CommandEvent *event,
                      struct err *err)
{
    (void)err;
    const Sandstorm__V1__Refusal *refusal = event->refusal;
    bool unknown = refusal->reason == SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_UNKNOWN_COMMAND;
    if (unknown && refusal->order == SANDSTORM__V1__ORDER_KIND__ORDER_KIND_ATTACH && is_gone(relay))
        return 0;
    switch (refusal->order) {
    case SANDSTORM__V1__ORDER_KIND__ORDER_KIND_START:
    case SANDSTORM__V1__ORDER_KIND__ORDER_KIND_ATTACH:
        refused_for_good(relay, refusal);
        return 0;
    case SANDSTORM__V1__ORDER_KIND__ORDER_KIND_CREDIT:
        /* It let go of the command under us, or our credit was late: the next attach tells which.
         */
        if (unknown)
            refused_for_good(relay, refusal);
        return 0;
    case SANDSTORM__V1__ORDER_KIND__ORDER_KIND_DETACH:
    case SANDSTORM__V1__ORDER_KIND__ORDER_KIND_ATTEND:
    case SANDSTORM__V1__ORDER_KIND__ORDER_KIND_RELEASE:
        return 0;
    default:
        if (relay->controller &&
            refusal->reason != SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_ENDED)
            exec_notice(relay->controller,
                        SANDSTORM__V1__EXEC_NOTICE_KIND__EXEC_NOTICE_KIND_REFUSED, refusal->detail);
        return 0;
    }
}

static const struct {
    Sandstorm__V1__CommandEvent__EventCase kind;
    bool confirms; /* that the command exists */
    int (*fn)(struct relay *relay, const Sandstorm__V1__CommandEvent *event, struct err *err);
} events[] = {
    { SANDSTORM__V1__COMMAND_EVENT__EVENT_STARTED, true, on_started },
    { SANDSTORM__V1__COMMAND_EVENT__EVENT_OUTPUT, true, on_output },
    { SANDSTORM__V1__COMMAND_EVENT__EVENT_GAP, true, on_gap },
    { SANDSTORM__V1__COMMAND_EVENT__EVENT_SETTLED, false, on_settled },
    { SANDSTORM__V1__COMMAND_EVENT__EVENT_ENDED, true, on_ended },
    { SANDSTORM__V1__COMMAND_EVENT__EVENT_STDIN_CREDIT, true, on_stdin_credit },
    { SANDSTORM__V1__COMMAND_EVENT__EVENT_REFUSAL, false, on_refusal },
};

static int dispatch(struct relay *relay, const Sandstorm__V1__CommandEvent *event, struct err *err)
{
    for (size_t i = 0; i < ELEMENTS(events); i++) {
        if (events[i].kind != event->event_case)
            continue;
        if (events[i].confirms)
            confirm(relay);
        return events[i].fn(relay, event, err);
    }
    return 0; /* from a newer runner */
}

int relay_event(struct relay *relay, const Sandstorm__V1__CommandEvent *event, struct err *err)
{
    /* After the end nothing follows. */
    if (relay->state == RELAY_ENDED)
        return 0;
    relay_enter(relay);
    int r = dispatch(relay, event, err);
    relay_exit(relay);
    return r;
}
