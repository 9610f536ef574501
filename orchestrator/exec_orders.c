/* What an exec tells the runner. Called by orchestrator/exec.c (the client wants something) and
 * orchestrator/exec_events.c (the agent came back); goes down through orchestrator/session.c. An
 * order is noted as due first and sent when the runner is in step and its stream has room, so that
 * nothing is lost while the link is away and nothing piles up when it is slow. */
#include "orchestrator/exec-internal.h"

#include "common/wire.h"
#include "orchestrator/session.h"

#include <string.h>

/* Small records fill the runner's spool by their number, not by their bytes. */
#define GRANT_RECORDS 512u

static bool can_send(const struct exec *exec)
{
    const struct sandbox *sandbox = exec->sandbox;
    return sandbox && sandbox->session && sandbox->in_step && session_writable(sandbox->session);
}

static void pass(struct sandbox *sandbox, const struct command_id *id,
                 Sandstorm__V1__CommandOrder *order)
{
    order->command_id = (char *)id->text;
    session_order(sandbox->session, order);
}

/* How far the runner may go: what the client allows, but never more on its way than our own bound,
 * and nothing new while the client's queue is full; the queue tells when it is not any more. */
static uint64_t output_limit(const struct exec *exec)
{
    if (!rpc_call_writable(exec->call))
        return exec->received;
    uint64_t ours =
        exec->received < UINT64_MAX - EXEC_WINDOW ? exec->received + EXEC_WINDOW : UINT64_MAX;
    return exec->grants_itself ? ours : MIN(exec->client_limit, ours);
}

/* What was granted once stays granted: records may be on their way. */
static void fill_attach(struct exec *exec, Sandstorm__V1__Attach *attach)
{
    exec->granted = MAX(exec->granted, MAX(output_limit(exec), exec->received));
    attach->from_offset = exec->received;
    attach->limit = exec->granted;
    /* An attach acknowledges nothing, and what acknowledged it before may have been lost. */
    exec->due.credit = exec->acked > 0;
    exec->records = 0;
}

static void send_start(struct exec *exec)
{
    CLEANUP_WIRE ProtobufCMessage *spec = NULL;
    struct err err;
    exec->due.start = false;
    if (wire_unpack(&sandstorm__v1__command_spec__descriptor, exec->spec, exec->spec_size, &spec,
                    &err) < 0) {
        exec_fail(exec, &err);
        return;
    }
    history_sent(exec->orchestrator->history, exec->sandbox, &exec->id);
    Sandstorm__V1__Attach attach = SANDSTORM__V1__ATTACH__INIT;
    fill_attach(exec, &attach);
    Sandstorm__V1__Start start = SANDSTORM__V1__START__INIT;
    start.spec = (Sandstorm__V1__CommandSpec *)spec;
    start.spec_digest = (ProtobufCBinaryData){ sizeof(exec->digest), exec->digest };
    start.attach = &attach;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_START;
    order.start = &start;
    pass(exec->sandbox, &exec->id, &order);
}

static void send_attach(struct exec *exec)
{
    exec->due.attach = false;
    Sandstorm__V1__Attach attach = SANDSTORM__V1__ATTACH__INIT;
    fill_attach(exec, &attach);
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTACH;
    order.attach = &attach;
    pass(exec->sandbox, &exec->id, &order);
}

static void send_credit(struct exec *exec)
{
    exec->due.credit = false;
    exec->records = 0;
    exec->granted = MAX(exec->granted, output_limit(exec));
    Sandstorm__V1__Credit credit = SANDSTORM__V1__CREDIT__INIT;
    credit.acked = exec->acked;
    credit.limit = exec->granted;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_CREDIT;
    order.credit = &credit;
    pass(exec->sandbox, &exec->id, &order);
}

static void send_signal(struct exec *exec)
{
    exec->due.signal = false;
    Sandstorm__V1__Signal signal = SANDSTORM__V1__SIGNAL__INIT;
    signal.name = exec->due.signal_name;
    signal.number = exec->due.signal_number;
    signal.target = exec->due.signal_target;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_SIGNAL;
    order.signal = &signal;
    pass(exec->sandbox, &exec->id, &order);
}

static void send_resize(struct exec *exec)
{
    exec->due.resize = false;
    Sandstorm__V1__TerminalSize size = SANDSTORM__V1__TERMINAL_SIZE__INIT;
    size.rows = exec->due.rows;
    size.columns = exec->due.columns;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_RESIZE;
    order.resize = &size;
    pass(exec->sandbox, &exec->id, &order);
}

static void send_cancel(struct exec *exec)
{
    exec->due.cancel = false;
    Sandstorm__V1__Cancel cancel = SANDSTORM__V1__CANCEL__INIT;
    cancel.grace_ms = exec->due.grace_ms;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_CANCEL;
    order.cancel = &cancel;
    pass(exec->sandbox, &exec->id, &order);
}

/* Input. */

void exec_input_at(struct exec *exec, uint64_t received, uint64_t taken)
{
    uint64_t end = exec->input_taken + buf_used(&exec->input);
    if (received >= end) {
        /* Known to the runner already, from this client or from an earlier one: not needed here. */
        buf_drop(&exec->input, buf_used(&exec->input));
        exec->input_taken = exec->input_sent = received;
        return;
    }
    uint64_t keep_from = MAX(MIN(taken, received), exec->input_taken);
    buf_drop(&exec->input, (size_t)(keep_from - exec->input_taken));
    exec->input_taken = keep_from;
    exec->input_sent = MAX(exec->input_sent, exec->input_taken);
}

static bool input_due(const struct exec *exec)
{
    uint64_t end = exec->input_taken + buf_used(&exec->input);
    return exec->state == EXEC_RUNNING &&
           (exec->input_sent < end || (exec->input_eof && !exec->input_eof_sent));
}

static void send_input(struct exec *exec)
{
    uint8_t bytes[WIRE_PAYLOAD_MAX];
    uint64_t end = exec->input_taken + buf_used(&exec->input);
    size_t size = (size_t)MIN(end - exec->input_sent, sizeof(bytes));
    buf_peek(&exec->input, (size_t)(exec->input_sent - exec->input_taken), bytes, size);
    Sandstorm__V1__Stdin input = SANDSTORM__V1__STDIN__INIT;
    input.offset = exec->input_sent;
    input.data = (ProtobufCBinaryData){ size, bytes };
    input.eof = exec->input_eof && exec->input_sent + size == end;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_STDIN;
    order.stdin = &input;
    exec->input_sent += size;
    exec->input_eof_sent = input.eof;
    pass(exec->sandbox, &exec->id, &order);
}

/* All of it. */

static bool orders_due(const struct exec *exec)
{
    const struct exec_due *due = &exec->due;
    return due->start || due->attach || due->credit || due->signal || due->resize || due->cancel;
}

/* The next order, in the order in which the runner must see them. */
static void send_next_order(struct exec *exec)
{
    const struct exec_due *due = &exec->due;
    const struct {
        bool due;
        void (*send)(struct exec *exec);
    } orders[] = {
        { due->start, send_start },   { due->attach, send_attach }, { due->credit, send_credit },
        { due->signal, send_signal }, { due->resize, send_resize }, { due->cancel, send_cancel },
    };
    for (size_t i = 0; i < ELEMENTS(orders); i++)
        if (orders[i].due) {
            orders[i].send(exec);
            return;
        }
}

static bool alive(const struct exec *exec)
{
    return exec->state == EXEC_PENDING || exec->state == EXEC_RUNNING;
}

void exec_flush_orders(struct exec *exec)
{
    while (alive(exec) && orders_due(exec) && can_send(exec))
        send_next_order(exec);
}

void exec_flush(struct exec *exec)
{
    exec_flush_orders(exec);
    while (alive(exec) && !orders_due(exec) && input_due(exec) && can_send(exec))
        send_input(exec);
    if (!alive(exec))
        return;
    if (orders_due(exec) || input_due(exec))
        rpc_call_pause(exec->call);
    else
        rpc_call_resume(exec->call);
}

void exec_grant(struct exec *exec)
{
    bool low = exec->granted - exec->received < EXEC_WINDOW / 2;
    if ((low && output_limit(exec) > exec->granted) ||
        (exec->grants_itself && exec->records >= GRANT_RECORDS)) {
        exec->due.credit = true;
        exec_flush(exec);
    }
}

void exec_order_detach(struct sandbox *sandbox, const struct command_id *id)
{
    Sandstorm__V1__Detach detach = SANDSTORM__V1__DETACH__INIT;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_DETACH;
    order.detach = &detach;
    pass(sandbox, id, &order);
}

static void order_release(struct sandbox *sandbox, const struct command_id *id)
{
    Sandstorm__V1__Release release = SANDSTORM__V1__RELEASE__INIT;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_RELEASE;
    order.release = &release;
    pass(sandbox, id, &order);
}

static void drop_leftover(struct sandbox *sandbox, unsigned index)
{
    sandbox->leftover_count--;
    (void)memmove(&sandbox->leftovers[index], &sandbox->leftovers[index + 1],
                  (sandbox->leftover_count - index) * sizeof(sandbox->leftovers[0]));
}

void exec_leave_behind(struct sandbox *sandbox, const struct command_id *id, bool release)
{
    /* Full: the runner keeps the oldest until it needs the room, or until the next inventory. */
    if (sandbox->leftover_count == REGISTRY_LEFTOVERS_MAX)
        drop_leftover(sandbox, 0);
    sandbox->leftovers[sandbox->leftover_count++] = (struct sandbox_leftover){ *id, release };
    exec_flush_leftovers(sandbox);
}

void exec_let_go(struct sandbox *sandbox, const struct command_id *id)
{
    exec_leave_behind(sandbox, id, true);
}

void exec_take_up(struct sandbox *sandbox, const struct command_id *id)
{
    for (unsigned i = sandbox->leftover_count; i > 0; i--)
        if (strcmp(sandbox->leftovers[i - 1].id.text, id->text) == 0)
            drop_leftover(sandbox, i - 1);
}

void exec_flush_leftovers(struct sandbox *sandbox)
{
    if (!sandbox->session || !sandbox->in_step)
        return;
    for (unsigned i = 0; i < sandbox->leftover_count; i++) {
        const struct sandbox_leftover *leftover = &sandbox->leftovers[i];
        if (leftover->release)
            order_release(sandbox, &leftover->id);
        else
            exec_order_detach(sandbox, &leftover->id);
    }
    sandbox->leftover_count = 0;
}
