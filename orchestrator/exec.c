/* The client's side of an exec: CommandService.Exec. Streams come from common/rpc_server.c; the
 * open message finds the sandbox and orders the command (orchestrator/exec_orders.c), later
 * messages are passed on, and the answers come from orchestrator/exec_events.c. A client that goes
 * away leaves the command to its own policy. */
#include "orchestrator/exec-internal.h"

#include "common/clock.h"
#include "common/wire.h"

#include <assert.h>
#include <openssl/sha.h>
#include <string.h>

static const char *const state_names[EXEC_STATE_COUNT_] = {
    [EXEC_NEW] = "new",     [EXEC_PENDING] = "pending", [EXEC_RUNNING] = "running",
    [EXEC_ENDED] = "ended", [EXEC_CLOSING] = "closing",
};

static const bool transitions[EXEC_STATE_COUNT_][EXEC_STATE_COUNT_] = {
    [EXEC_NEW] = { [EXEC_PENDING] = true, [EXEC_CLOSING] = true },
    [EXEC_PENDING] = { [EXEC_RUNNING] = true, [EXEC_CLOSING] = true },
    [EXEC_RUNNING] = { [EXEC_ENDED] = true, [EXEC_CLOSING] = true },
    [EXEC_ENDED] = { [EXEC_CLOSING] = true },
};

void exec_set_state(struct exec *exec, enum exec_state state)
{
    assert(transitions[exec->state][state]);
    log_debug("exec state", LF_STR("command", exec->id.text),
              LF_STR("from", state_names[exec->state]), LF_STR("to", state_names[state]));
    exec->state = state;
    loop_timer_stop(exec->deadline);
}

struct exec *exec_find(struct sandbox *sandbox, const struct command_id *id)
{
    struct exec *exec;
    HASH_FIND(hh, sandbox->execs, id->text, COMMAND_ID_LEN, exec);
    return exec;
}

static void leave_sandbox(struct exec *exec)
{
    if (!exec->sandbox)
        return;
    HASH_DEL(exec->sandbox->execs, exec);
    exec->sandbox = NULL;
}

/* To the client. */

void exec_reply(struct exec *exec, Sandstorm__V1__ExecResponse *response)
{
    struct err err;
    if (exec->state == EXEC_CLOSING)
        return;
    if (rpc_call_send(exec->call, &response->base, &err) < 0)
        exec_fail(exec, &err);
}

void exec_notice(struct exec *exec, Sandstorm__V1__ExecNoticeKind kind, const char *detail)
{
    Sandstorm__V1__ExecNotice notice = SANDSTORM__V1__EXEC_NOTICE__INIT;
    notice.kind = kind;
    notice.detail = (char *)detail;
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_NOTICE;
    response.notice = &notice;
    exec_reply(exec, &response);
}

/* Ends the client's stream, not the command: that has its own policy for a client that is gone. */
void exec_fail(struct exec *exec, const struct err *why)
{
    if (exec->state == EXEC_CLOSING)
        return;
    bool ordered = exec->state == EXEC_PENDING || exec->state == EXEC_RUNNING;
    log_info("exec refused or cut", LF_STR("command", exec->id.text),
             LF_STR("client", rpc_call_peer(exec->call)->name), LF_ERR(why));
    exec_set_state(exec, EXEC_CLOSING);
    if (ordered)
        exec_order_detach(exec);
    leave_sandbox(exec);
    rpc_call_finish(exec->call, why);
}

static void finish_acknowledged(struct exec *exec)
{
    exec_order_release(exec);
    exec_set_state(exec, EXEC_CLOSING);
    leave_sandbox(exec);
    rpc_call_finish(exec->call, NULL);
}

/* The end record is queued. Who acknowledges by offset is waited for; who leaves credit to us has
 * it when the stream has closed in order. */
void exec_finish_ended(struct exec *exec)
{
    exec_set_state(exec, EXEC_ENDED);
    if (exec->grants_itself)
        rpc_call_finish(exec->call, NULL);
    else
        loop_timer_start(exec->deadline, EXEC_FAREWELL_US);
}

/* From the client. */

static int keep_spec(struct exec *exec, const Sandstorm__V1__CommandSpec *spec, struct err *err)
{
    if (wire_pack(&spec->base, &exec->spec, &exec->spec_size, err) < 0)
        return -1;
    (void)SHA256(exec->spec, exec->spec_size, exec->digest);
    return 0;
}

/* A second client with the same command id takes over; the first is told. */
static void supersede(struct sandbox *sandbox, const struct command_id *id)
{
    struct exec *older = exec_find(sandbox, id);
    if (!older)
        return;
    struct err err;
    (void)err_set(&err, ERR_PRECONDITION, "another client has attached to command %s", id->text);
    exec_set_state(older, EXEC_CLOSING);
    leave_sandbox(older);
    rpc_call_finish(older->call, &err);
}

static int find_sandbox(struct exec *exec, const char *id, struct sandbox **ret, struct err *err)
{
    struct sandbox *sandbox;
    if (registry_get(exec->orchestrator->registry, id, &sandbox, err) < 0)
        return -1;
    if (!sandbox->session)
        return err_set(err, ERR_UNAVAILABLE,
                       "sandbox \"%s\" is offline (last seen %lld s ago); check its VM and its "
                       "sandstorm-agent",
                       id, (long long)((wall_ms() - sandbox->last_seen_ms) / 1000));
    if (!sandbox->runner_connected)
        return err_set(err, ERR_UNAVAILABLE,
                       "sandbox \"%s\" is online, but no sandstorm-runner is running there", id);
    *ret = sandbox;
    return 0;
}

static int on_open(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    const Sandstorm__V1__ExecOpen *open = request->open;
    struct sandbox *sandbox;
    if (exec->state != EXEC_NEW)
        return err_set(err, ERR_INVALID, "open may only be the first message");
    if (!open->spec)
        return err_set(err, ERR_INVALID, "open has no spec");
    if (find_sandbox(exec, open->sandbox_id, &sandbox, err) < 0)
        return -1;
    int r = *open->command_id ? command_id_parse(open->command_id, &exec->id, err)
                              : command_id_new(&exec->id, err);
    if (r < 0 || keep_spec(exec, open->spec, err) < 0)
        return -1;
    supersede(sandbox, &exec->id);
    exec->sandbox = sandbox;
    HASH_ADD_KEYPTR(hh, sandbox->execs, exec->id.text, COMMAND_ID_LEN, exec);
    exec->received = exec->acked = open->from_offset;
    exec->client_limit = open->limit;
    exec->grants_itself = open->limit == 0;
    exec_set_state(exec, EXEC_PENDING);
    log_info("command ordered", LF_STR("command", exec->id.text), LF_STR("sandbox", sandbox->id),
             LF_STR("client", rpc_call_peer(exec->call)->name));

    Sandstorm__V1__ExecAccepted accepted = SANDSTORM__V1__EXEC_ACCEPTED__INIT;
    accepted.command_id = exec->id.text;
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_ACCEPTED;
    response.accepted = &accepted;
    exec_reply(exec, &response);
    if (exec->state == EXEC_PENDING)
        exec_order_start(exec);
    return 0;
}

static int on_credit(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    const Sandstorm__V1__Credit *credit = request->credit;
    if (credit->acked > exec->received)
        return err_set(err, ERR_INVALID, "acknowledged more than was sent");
    exec->acked = MAX(exec->acked, credit->acked);
    exec->client_limit = MAX(exec->client_limit, credit->limit);
    if (exec->state == EXEC_ENDED && exec->acked == exec->end_offset)
        finish_acknowledged(exec);
    else if (exec->state == EXEC_PENDING || exec->state == EXEC_RUNNING)
        exec_order_credit(exec);
    return 0;
}

static int on_stdin(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    const Sandstorm__V1__Stdin *input = request->stdin;
    uint64_t end = exec->input_taken + buf_used(&exec->input);
    if (exec->state == EXEC_ENDED)
        return 0; /* crossed with the end record */
    if (exec->input_eof)
        return err_set(err, ERR_INVALID, "input after the end of input");
    if (input->offset != end || input->data.len > exec->input_limit - MIN(end, exec->input_limit))
        return err_set(err, ERR_INVALID,
                       "input at offset %llu; expected %llu, and at most up to %llu",
                       (unsigned long long)input->offset, (unsigned long long)end,
                       (unsigned long long)exec->input_limit);
    if (input->data.len > 0 && buf_push(&exec->input, input->data.data, input->data.len, err) < 0)
        return -1;
    exec->input_eof = input->eof;
    exec_feed(exec);
    return 0;
}

static int on_signal(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    (void)err;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_SIGNAL;
    order.signal = request->signal;
    exec_pass(exec, &order);
    return 0;
}

static int on_resize(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    (void)err;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_RESIZE;
    order.resize = request->resize;
    exec_pass(exec, &order);
    return 0;
}

static int on_cancel(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    (void)err;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_CANCEL;
    order.cancel = request->cancel;
    exec_pass(exec, &order);
    return 0;
}

static const struct {
    Sandstorm__V1__ExecRequest__KindCase kind;
    int (*fn)(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err);
} requests[] = {
    { SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN, on_open },
    { SANDSTORM__V1__EXEC_REQUEST__KIND_CREDIT, on_credit },
    { SANDSTORM__V1__EXEC_REQUEST__KIND_STDIN, on_stdin },
    { SANDSTORM__V1__EXEC_REQUEST__KIND_SIGNAL, on_signal },
    { SANDSTORM__V1__EXEC_REQUEST__KIND_RESIZE, on_resize },
    { SANDSTORM__V1__EXEC_REQUEST__KIND_CANCEL, on_cancel },
};

static int on_request(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    if (exec->state == EXEC_NEW && request->kind_case != SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN)
        return err_set(err, ERR_INVALID, "the first message must be open");
    for (size_t i = 0; i < ELEMENTS(requests); i++)
        if (requests[i].kind == request->kind_case)
            return requests[i].fn(exec, request, err);
    return err_set(err, ERR_UNIMPLEMENTED, "this orchestrator does not know that request");
}

static void on_message(void *owner, const uint8_t *data, size_t size)
{
    struct exec *exec = owner;
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    struct err err = { 0 };
    if (exec->state == EXEC_CLOSING)
        return;
    if (wire_unpack(&sandstorm__v1__exec_request__descriptor, data, size, &message, &err) < 0 ||
        on_request(exec, (const Sandstorm__V1__ExecRequest *)message, &err) < 0)
        exec_fail(exec, &err);
}

/* A client that will say no more cannot give credit: from here on we do. */
static void on_half_closed(void *owner)
{
    struct exec *exec = owner;
    struct err err;
    switch (exec->state) {
    case EXEC_NEW:
        (void)err_set(&err, ERR_INVALID, "the stream ended before its open message");
        exec_fail(exec, &err);
        break;
    case EXEC_PENDING:
    case EXEC_RUNNING:
        exec->grants_itself = true;
        exec->input_eof = true;
        exec_feed(exec);
        exec_order_credit(exec);
        break;
    case EXEC_ENDED:
        rpc_call_finish(exec->call, NULL);
        break;
    default:
        break;
    }
}

static void on_writable(void *owner)
{
    struct exec *exec = owner;
    if (exec->grants_itself && exec->state == EXEC_RUNNING)
        exec_order_credit(exec);
}

static void exec_free(struct exec *exec)
{
    loop_timer_free(exec->deadline);
    rpc_call_release(exec->call);
    buf_done(&exec->input);
    free(exec->spec);
    free(exec);
}

static void on_closed(void *owner, const struct err *status)
{
    struct exec *exec = owner;
    if (exec->state == EXEC_PENDING || exec->state == EXEC_RUNNING)
        exec_order_detach(exec);
    else if (exec->state == EXEC_ENDED && exec->grants_itself && status->code == ERR_NONE)
        exec_order_release(exec);
    leave_sandbox(exec);
    exec_free(exec);
}

static const struct rpc_call_handler handler = {
    .message = on_message,
    .half_closed = on_half_closed,
    .writable = on_writable,
    .closed = on_closed,
};

static void on_deadline(void *userdata)
{
    struct exec *exec = userdata;
    struct err err;
    if (exec->state == EXEC_ENDED) {
        /* It has the end record or never will; the runner keeps the command for a later attach. */
        rpc_call_finish(exec->call, NULL);
        return;
    }
    (void)err_set(&err, ERR_TIMEOUT, "no open message within %u s", EXEC_OPEN_US / 1000000);
    exec_fail(exec, &err);
}

int exec_open(void *userdata, struct rpc_call *call, struct err *err)
{
    struct orchestrator *orchestrator = userdata;
    struct exec *exec = calloc(1, sizeof(*exec));
    if (!exec)
        return err_nomem(err);
    exec->orchestrator = orchestrator;
    buf_init(&exec->input, EXEC_STDIN_MAX);
    if (loop_timer_new(orchestrator->loop, on_deadline, exec, &exec->deadline, err) < 0) {
        free(exec);
        return -1;
    }
    exec->call = call;
    rpc_call_bind(call, &handler, exec);
    loop_timer_start(exec->deadline, EXEC_OPEN_US);
    return 0;
}
