/* The client's side of an exec: CommandService.Exec. Streams come from common/rpc_server.c; the
 * open message is judged and orders the command (orchestrator/exec_admit.c), later messages are
 * passed on (orchestrator/exec_orders.c), and the answers come from orchestrator/exec_events.c. A
 * client that goes away leaves the command to its own policy. */
#include "orchestrator/exec-internal.h"

#include "common/wire.h"

#include <assert.h>
#include <string.h>

static const char *const state_names[EXEC_STATE_COUNT_] = {
    [EXEC_NEW] = "new",         [EXEC_ADMITTING] = "admitting", [EXEC_PENDING] = "pending",
    [EXEC_RUNNING] = "running", [EXEC_ENDED] = "ended",         [EXEC_CLOSING] = "closing",
};

static const bool transitions[EXEC_STATE_COUNT_][EXEC_STATE_COUNT_] = {
    [EXEC_NEW] = { [EXEC_ADMITTING] = true, [EXEC_CLOSING] = true },
    [EXEC_ADMITTING] = { [EXEC_PENDING] = true, [EXEC_CLOSING] = true },
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
    if (exec->state != EXEC_PENDING && exec->state != EXEC_RUNNING)
        return; /* the end record is the last one */
    Sandstorm__V1__ExecNotice notice = SANDSTORM__V1__EXEC_NOTICE__INIT;
    notice.kind = kind;
    notice.detail = (char *)detail;
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_NOTICE;
    response.notice = &notice;
    exec_reply(exec, &response);
}

void exec_close_stream(struct exec *exec, const struct err *status)
{
    exec_set_state(exec, EXEC_CLOSING);
    leave_sandbox(exec);
    rpc_call_finish(exec->call, status);
    /* A client that does not even read its status is cut. */
    loop_timer_start(exec->deadline, EXEC_FAREWELL_US);
}

static void detach(struct exec *exec)
{
    bool ordered = (exec->state == EXEC_PENDING && !exec->due.start) || exec->state == EXEC_RUNNING;
    if (ordered && exec->sandbox)
        exec_leave_behind(exec->sandbox, &exec->id, false);
    else if (exec->state == EXEC_PENDING && exec->sandbox)
        history_give_up(exec->orchestrator->history, &exec->id);
}

void exec_fail_foreign(struct exec *exec, const struct err *why)
{
    if (exec->state == EXEC_CLOSING)
        return;
    log_info("exec refused or cut", LF_STR("command", exec->id.text),
             LF_STR("client", rpc_call_peer(exec->call)->name), LF_ERR(why));
    exec_close_stream(exec, why);
}

/* Ends the client's stream, not the command: that has its own policy for a client that is gone. */
void exec_fail(struct exec *exec, const struct err *why)
{
    if (exec->state == EXEC_CLOSING)
        return;
    detach(exec);
    exec_fail_foreign(exec, why);
}

/* The end record is queued. Who acknowledges by offset is waited for; who leaves credit to us has
 * it when the stream has closed in order. */
void exec_finish_ended(struct exec *exec)
{
    exec_set_state(exec, EXEC_ENDED);
    rpc_call_resume(exec->call);
    if (exec->grants_itself)
        rpc_call_finish(exec->call, NULL);
    loop_timer_start(exec->deadline, EXEC_FAREWELL_US);
}

/* From the client. */

static int on_credit(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    const Sandstorm__V1__Credit *credit = request->credit;
    if (credit->acked > exec->received)
        return err_set(err, ERR_INVALID, "acknowledged more than was sent");
    exec->acked = MAX(exec->acked, credit->acked);
    exec->client_limit = MAX(exec->client_limit, credit->limit);
    exec->due.credit = true;
    if (exec->state == EXEC_ENDED && exec->acked == exec->end_offset) {
        history_release(exec->orchestrator->history, exec->sandbox, &exec->id);
        exec_close_stream(exec, NULL);
    }
    return 0;
}

static int on_stdin(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    const Sandstorm__V1__Stdin *input = request->stdin;
    uint64_t end = exec->input_taken + buf_used(&exec->input);
    uint64_t size = input->data.len;
    if (exec->state == EXEC_ENDED)
        return 0; /* crossed with the end record */
    if (input->offset > end || size > exec->input_limit || input->offset > exec->input_limit - size)
        return err_set(err, ERR_INVALID,
                       "input at offset %llu; expected %llu, and at most up to %llu",
                       (unsigned long long)input->offset, (unsigned long long)end,
                       (unsigned long long)exec->input_limit);
    /* A client that attached to a running command begins at its own first byte; what the runner has
     * already is passed over. */
    uint64_t known = MIN(end - input->offset, size);
    if (exec->input_eof && (known < size || input->offset + size < end))
        return err_set(err, ERR_INVALID, "input after the end of input");
    if (known < size && buf_push(&exec->input, input->data.data + known, size - known, err) < 0)
        return -1;
    exec->input_eof = exec->input_eof || input->eof;
    return 0;
}

static int on_signal(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    const Sandstorm__V1__Signal *asked = request->signal;
    if (strlen(asked->name) >= sizeof(exec->due.signal_name))
        return err_set(err, ERR_INVALID, "there is no signal with such a long name");
    exec->due.signal = true;
    (void)memcpy(exec->due.signal_name, asked->name, strlen(asked->name) + 1);
    exec->due.signal_number = asked->number;
    exec->due.signal_target = asked->target;
    return 0;
}

static int on_resize(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    (void)err;
    exec->due.resize = true;
    exec->due.rows = request->resize->rows;
    exec->due.columns = request->resize->columns;
    return 0;
}

static int on_cancel(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    (void)err;
    exec->due.cancel = exec->cancelled = true;
    exec->due.grace_ms = request->cancel->grace_ms;
    return 0;
}

static const struct {
    Sandstorm__V1__ExecRequest__KindCase kind;
    int (*fn)(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err);
} requests[] = {
    { SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN, exec_admit },
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
    for (size_t i = 0; i < ELEMENTS(requests); i++) {
        if (requests[i].kind != request->kind_case)
            continue;
        if (requests[i].fn(exec, request, err) < 0)
            return -1;
        exec_flush(exec);
        return 0;
    }
    return err_set(err, ERR_UNIMPLEMENTED, "this orchestrator does not know that request");
}

static int check_size(size_t size, struct err *err)
{
    if (size > EXEC_REQUEST_MAX)
        return err_set(err, ERR_EXHAUSTED, "request of %zu bytes; the limit is %u", size,
                       EXEC_REQUEST_MAX);
    return 0;
}

static void on_message(void *owner, const uint8_t *data, size_t size)
{
    struct exec *exec = owner;
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    struct err err = { 0 };
    if (exec->state == EXEC_CLOSING)
        return;
    if (check_size(size, &err) < 0 ||
        wire_unpack(&sandstorm__v1__exec_request__descriptor, data, size, &message, &err) < 0 ||
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
        exec->acked = exec->received;
        exec->input_eof = true;
        exec->due.credit = true;
        exec_flush(exec);
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
    if (exec->state == EXEC_RUNNING)
        exec_grant(exec);
}

static void exec_free(struct exec *exec)
{
    exec_admit_forget(exec);
    loop_timer_free(exec->deadline);
    rpc_call_release(exec->call);
    buf_done(&exec->input);
    free(exec->result);
    free(exec->spec);
    free(exec);
}

static void on_closed(void *owner, const struct err *status)
{
    struct exec *exec = owner;
    detach(exec);
    if (exec->state == EXEC_ENDED && exec->grants_itself && status->code == ERR_NONE)
        history_release(exec->orchestrator->history, exec->sandbox, &exec->id);
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
    switch (exec->state) {
    case EXEC_NEW:
        (void)err_set(&err, ERR_TIMEOUT, "no open message within %u s", EXEC_OPEN_US / 1000000);
        exec_fail(exec, &err);
        break;
    case EXEC_ENDED:
        /* It has the end record or never will; the runner keeps the command for a later attach. */
        exec_close_stream(exec, NULL);
        break;
    default:
        rpc_call_cancel(exec->call);
        break;
    }
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
