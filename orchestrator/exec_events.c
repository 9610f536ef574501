/* What the runner says about a command that a client follows. Events come from
 * orchestrator/session.c, where the agent's identity is certain but its word is not: offsets must
 * follow on, stay within what was granted, and end where the end record says. What passes goes to
 * the client as it is. */
#include "orchestrator/exec-internal.h"

#include "common/wire.h"
#include "orchestrator/session.h"

/* Any word about the command means that the runner has it. */
static void confirm(struct exec *exec)
{
    if (exec->state != EXEC_PENDING)
        return;
    exec_set_state(exec, EXEC_RUNNING);
    free(TAKE_PTR(exec->spec));
    exec_feed(exec);
}

/* The client has everything that it will acknowledge by itself; credit grows as its queue drains.
 */
static void grant_by_ourselves(struct exec *exec)
{
    exec->acked = exec->received;
    if (rpc_call_writable(exec->call) && exec->granted - exec->received < EXEC_WINDOW / 2)
        exec_order_credit(exec);
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

static int on_output(struct exec *exec, const Sandstorm__V1__CommandEvent *event, struct err *err)
{
    Sandstorm__V1__Output *output = event->output;
    uint64_t size = output->data.len;
    if (size == 0 || size > WIRE_PAYLOAD_MAX || output->offset > UINT64_MAX - size ||
        (output->stream != SANDSTORM__V1__STREAM__STREAM_STDOUT &&
         output->stream != SANDSTORM__V1__STREAM__STREAM_STDERR))
        return err_set(err, ERR_PROTOCOL, "an output record of %llu bytes that cannot be",
                       (unsigned long long)size);
    if (output->offset + size <= exec->received)
        return 0; /* known already */
    if (output->offset > exec->received) {
        /* Something is missing before it: nothing is delivered past a hole. Ask again. */
        exec_order_attach(exec);
        return 0;
    }
    if (output->offset + size > exec->granted)
        return err_set(err, ERR_PROTOCOL, "output beyond the granted offset");
    uint64_t overlap = exec->received - output->offset;
    output->offset += overlap;
    output->data.data += overlap;
    output->data.len -= overlap;
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_OUTPUT;
    response.output = output;
    exec->received = output->offset + output->data.len;
    exec_reply(exec, &response);
    /* The message frees what it allocated. */
    output->data.data -= overlap;
    output->data.len += overlap;
    if (exec->grants_itself && exec->state == EXEC_RUNNING)
        grant_by_ourselves(exec);
    return 0;
}

static int on_gap(struct exec *exec, const Sandstorm__V1__CommandEvent *event, struct err *err)
{
    Sandstorm__V1__Gap *gap = event->gap;
    if (gap->size == 0 || gap->offset > UINT64_MAX - gap->size)
        return err_set(err, ERR_PROTOCOL, "a gap record that cannot be");
    if (gap->offset != exec->received)
        return 0;
    exec->received += gap->size;
    exec->granted = MAX(exec->granted, exec->received);
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_GAP;
    response.gap = gap;
    exec_reply(exec, &response);
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
    if (released)
        ended->end_offset = exec->received;
    if (ended->end_offset != exec->received)
        return err_set(err, ERR_PROTOCOL, "an end record at another offset than the output's end");
    exec->end_offset = ended->end_offset;
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_ENDED;
    response.ended = ended;
    exec_reply(exec, &response);
    if (exec->state == EXEC_RUNNING)
        exec_finish_ended(exec);
    return 0;
}

static int on_stdin_credit(struct exec *exec, const Sandstorm__V1__CommandEvent *event,
                           struct err *err)
{
    Sandstorm__V1__StdinCredit *credit = event->stdin_credit;
    if (credit->taken > exec->input_sent || credit->taken < exec->input_taken)
        return err_set(err, ERR_PROTOCOL, "input credit for bytes that were not sent");
    buf_drop(&exec->input, (size_t)(credit->taken - exec->input_taken));
    exec->input_taken = credit->taken;
    /* What the client may send is also bounded by the room that we keep it in. */
    credit->limit = MIN(credit->limit, credit->taken + EXEC_STDIN_MAX);
    exec->input_limit = MAX(exec->input_limit, credit->limit);
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_STDIN_CREDIT;
    response.stdin_credit = credit;
    exec_reply(exec, &response);
    return 0;
}

static int on_refusal(struct exec *exec, const Sandstorm__V1__CommandEvent *event, struct err *err)
{
    (void)err;
    const Sandstorm__V1__Refusal *refusal = event->refusal;
    struct err why;
    switch (refusal->reason) {
    case SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_CONFLICT:
        (void)err_set(&why, ERR_EXISTS, "command %s: %.200s", exec->id.text, refusal->detail);
        exec_fail(exec, &why);
        return 0;
    case SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_BAD_POSITION:
        (void)err_set(&why, ERR_INVALID, "command %s: %.200s", exec->id.text, refusal->detail);
        exec_fail(exec, &why);
        return 0;
    default:
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

/* Coming and going of the link. */

void exec_session_lost(struct sandbox *sandbox)
{
    struct exec *exec, *next;
    HASH_ITER (hh, sandbox->execs, exec, next) {
        exec->link_lost = true;
        exec_notice(exec, SANDSTORM__V1__EXEC_NOTICE_KIND__EXEC_NOTICE_KIND_LINK_LOST,
                    "the sandbox's link is away; the command goes on and its output will follow");
    }
}

void exec_session_writable(struct sandbox *sandbox)
{
    for (struct exec *exec = sandbox->execs; exec; exec = exec->hh.next)
        exec_feed(exec);
}

static void resume(struct exec *exec, const Sandstorm__V1__CommandPosition *position)
{
    confirm(exec);
    /* What the runner has received need not be sent again; the rest must be. */
    uint64_t end = exec->input_taken + buf_used(&exec->input);
    exec->input_sent = MIN(MAX(position->stdin_received, exec->input_taken), end);
    exec->input_eof_sent = false;
    exec_order_attach(exec);
    exec_feed(exec);
}

static void lost_at_runner(struct exec *exec)
{
    Sandstorm__V1__Lost lost = SANDSTORM__V1__LOST__INIT;
    lost.reason = SANDSTORM__V1__LOST_REASON__LOST_REASON_RUNNER_RESTARTED;
    lost.detail = (char *)"the runner does not know this command any more; how it ended is unknown";
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
    if (on_ended(exec, &event, &err) < 0)
        exec_fail(exec, &err);
}

static void detach_stray(struct sandbox *sandbox, const struct command_id *id)
{
    Sandstorm__V1__Detach detach = SANDSTORM__V1__DETACH__INIT;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.command_id = (char *)id->text;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_DETACH;
    order.detach = &detach;
    session_order(sandbox->session, &order);
}

static int on_position(struct sandbox *sandbox, const Sandstorm__V1__CommandPosition *position,
                       struct err *err)
{
    struct command_id id;
    if (command_id_parse(position->command_id, &id, err) < 0)
        return -1;
    struct exec *exec = exec_find(sandbox, &id);
    if (!exec) {
        if (!position->ended)
            detach_stray(sandbox, &id);
        return 0;
    }
    exec->listed = true;
    if (exec->state == EXEC_PENDING || exec->state == EXEC_RUNNING)
        resume(exec, position);
    return 0;
}

int exec_inventory(struct sandbox *sandbox, const Sandstorm__V1__Inventory *inventory,
                   struct err *err)
{
    for (size_t i = 0; i < inventory->n_commands; i++)
        if (on_position(sandbox, inventory->commands[i], err) < 0)
            return -1;
    if (!inventory->complete)
        return 0;
    struct exec *exec, *next;
    HASH_ITER (hh, sandbox->execs, exec, next) {
        bool listed = exec->listed;
        exec->listed = false;
        if (exec->link_lost) {
            exec->link_lost = false;
            exec_notice(exec, SANDSTORM__V1__EXEC_NOTICE_KIND__EXEC_NOTICE_KIND_LINK_BACK,
                        "the sandbox's link is back");
        }
        if (!listed && exec->state == EXEC_PENDING)
            exec_order_start(exec); /* it never arrived */
        else if (!listed && exec->state == EXEC_RUNNING)
            lost_at_runner(exec);
    }
    return 0;
}
