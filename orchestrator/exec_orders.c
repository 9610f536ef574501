/* What an exec tells the runner. Called by orchestrator/exec.c (the client wants something) and
 * orchestrator/exec_events.c (the agent came back); goes down through orchestrator/session.c. While
 * the link is away nothing is sent and nothing is lost: the next inventory starts it over. */
#include "orchestrator/exec-internal.h"

#include "common/wire.h"
#include "orchestrator/session.h"

void exec_pass(struct exec *exec, Sandstorm__V1__CommandOrder *order)
{
    order->command_id = exec->id.text;
    if (exec->sandbox && exec->sandbox->session)
        session_order(exec->sandbox->session, order);
}

/* How far the runner may go: what the client allows, but never more on its way than our own bound.
 */
static uint64_t output_limit(const struct exec *exec)
{
    uint64_t ours =
        exec->received < UINT64_MAX - EXEC_WINDOW ? exec->received + EXEC_WINDOW : UINT64_MAX;
    return exec->grants_itself ? ours : MIN(exec->client_limit, ours);
}

static void fill_attach(struct exec *exec, Sandstorm__V1__Attach *attach)
{
    exec->granted = MAX(output_limit(exec), exec->received);
    attach->from_offset = exec->received;
    attach->limit = exec->granted;
}

void exec_order_start(struct exec *exec)
{
    CLEANUP_WIRE ProtobufCMessage *spec = NULL;
    struct err err;
    if (wire_unpack(&sandstorm__v1__command_spec__descriptor, exec->spec, exec->spec_size, &spec,
                    &err) < 0) {
        exec_fail(exec, &err);
        return;
    }
    Sandstorm__V1__Attach attach = SANDSTORM__V1__ATTACH__INIT;
    fill_attach(exec, &attach);
    Sandstorm__V1__Start start = SANDSTORM__V1__START__INIT;
    start.spec = (Sandstorm__V1__CommandSpec *)spec;
    start.spec_digest = (ProtobufCBinaryData){ sizeof(exec->digest), exec->digest };
    start.attach = &attach;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_START;
    order.start = &start;
    exec_pass(exec, &order);
}

void exec_order_attach(struct exec *exec)
{
    Sandstorm__V1__Attach attach = SANDSTORM__V1__ATTACH__INIT;
    fill_attach(exec, &attach);
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTACH;
    order.attach = &attach;
    exec_pass(exec, &order);
}

void exec_order_detach(struct exec *exec)
{
    Sandstorm__V1__Detach detach = SANDSTORM__V1__DETACH__INIT;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_DETACH;
    order.detach = &detach;
    exec_pass(exec, &order);
}

void exec_order_release(struct exec *exec)
{
    Sandstorm__V1__Release release = SANDSTORM__V1__RELEASE__INIT;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_RELEASE;
    order.release = &release;
    exec_pass(exec, &order);
}

void exec_order_credit(struct exec *exec)
{
    exec->granted = MAX(exec->granted, output_limit(exec));
    Sandstorm__V1__Credit credit = SANDSTORM__V1__CREDIT__INIT;
    credit.acked = exec->acked;
    credit.limit = exec->granted;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_CREDIT;
    order.credit = &credit;
    exec_pass(exec, &order);
}

/* Sends input that the runner has room for and that this session has not carried yet. */
void exec_feed(struct exec *exec)
{
    uint8_t bytes[WIRE_PAYLOAD_MAX];
    uint64_t end = exec->input_taken + buf_used(&exec->input);
    if (exec->state != EXEC_RUNNING)
        return;
    while (exec->sandbox->session && session_writable(exec->sandbox->session)) {
        size_t size = (size_t)MIN(end - exec->input_sent, sizeof(bytes));
        bool last = exec->input_eof && exec->input_sent + size == end;
        if (size == 0 && (!last || exec->input_eof_sent))
            return;
        buf_peek(&exec->input, (size_t)(exec->input_sent - exec->input_taken), bytes, size);
        Sandstorm__V1__Stdin input = SANDSTORM__V1__STDIN__INIT;
        input.offset = exec->input_sent;
        input.data = (ProtobufCBinaryData){ size, bytes };
        input.eof = last;
        Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
        order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_STDIN;
        order.stdin = &input;
        exec->input_sent += size;
        exec->input_eof_sent = last;
        exec_pass(exec, &order);
    }
}
