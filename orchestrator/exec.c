/* The client's side of a command: CommandService.Exec. Streams come from common/rpc_server.c; the
 * open message is judged (orchestrator/admission.c), then the client joins the command's relay
 * (orchestrator/relay.c): later messages are passed on to it, and what it has is sent by
 * orchestrator/exec_output.c. A client that goes away leaves the command to its own policy. */
#include "orchestrator/exec-internal.h"

#include "common/wire.h"

#include <assert.h>
#include <string.h>

static const char *const state_names[EXEC_STATE_COUNT_] = {
    [EXEC_NEW] = "new",     [EXEC_ADMITTING] = "admitting", [EXEC_FOLLOWING] = "following",
    [EXEC_ENDED] = "ended", [EXEC_CLOSING] = "closing",
};

static const bool transitions[EXEC_STATE_COUNT_][EXEC_STATE_COUNT_] = {
    [EXEC_NEW] = { [EXEC_ADMITTING] = true, [EXEC_CLOSING] = true },
    [EXEC_ADMITTING] = { [EXEC_FOLLOWING] = true, [EXEC_CLOSING] = true },
    [EXEC_FOLLOWING] = { [EXEC_ENDED] = true, [EXEC_CLOSING] = true },
    [EXEC_ENDED] = { [EXEC_CLOSING] = true },
};

void exec_set_state(struct exec *exec, enum exec_state state)
{
    assert(transitions[exec->state][state]);
    log_debug("exec state", LF_STR("command", exec->relay ? exec->relay->id.text : ""),
              LF_STR("from", state_names[exec->state]), LF_STR("to", state_names[state]));
    exec->state = state;
    loop_timer_stop(exec->deadline);
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
    if (exec->state != EXEC_FOLLOWING)
        return; /* the end record is the last one */
    Sandstorm__V1__ExecNotice notice = SANDSTORM__V1__EXEC_NOTICE__INIT;
    notice.kind = kind;
    notice.detail = (char *)detail;
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_NOTICE;
    response.notice = &notice;
    exec_reply(exec, &response);
}

void exec_say_started(struct exec *exec)
{
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_STARTED;
    response.started = (Sandstorm__V1__Started *)exec->relay->started;
    if (exec->state == EXEC_FOLLOWING && response.started)
        exec_reply(exec, &response);
}

void exec_say_input(struct exec *exec)
{
    const struct relay *relay = exec->relay;
    Sandstorm__V1__StdinCredit credit = SANDSTORM__V1__STDIN_CREDIT__INIT;
    credit.limit = relay->input_limit;
    credit.taken = relay->input_taken;
    credit.received = relay->input_known;
    credit.next = relay_input_end(relay);
    credit.closed = relay->input_closed;
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_STDIN_CREDIT;
    response.stdin_credit = &credit;
    if (exec->state == EXEC_FOLLOWING)
        exec_reply(exec, &response);
}

static void leave(struct exec *exec)
{
    exec_forget_read(exec);
    if (exec->relay)
        relay_leave(exec->relay, exec);
}

void exec_close_stream(struct exec *exec, const struct err *status)
{
    exec_set_state(exec, EXEC_CLOSING);
    rpc_call_finish(exec->call, status);
    /* A client that does not even read its status is cut. */
    loop_timer_start(exec->deadline, EXEC_FAREWELL_US);
    leave(exec);
}

/* Ends the client's stream, not the command: that has its own policy for a client that is gone. */
void exec_fail(struct exec *exec, const struct err *why)
{
    if (exec->state == EXEC_CLOSING)
        return;
    log_info("exec refused or cut", LF_STR("command", exec->relay ? exec->relay->id.text : ""),
             LF_STR("client", rpc_call_peer(exec->call)->name), LF_ERR(why));
    exec_close_stream(exec, why);
}

void exec_relay_gone(struct exec *exec)
{
    exec_forget_read(exec);
    exec->relay = NULL;
}

void exec_pace(struct exec *exec, bool wait)
{
    if (exec->state != EXEC_FOLLOWING)
        return;
    if (wait)
        rpc_call_pause(exec->call);
    else
        rpc_call_resume(exec->call);
}

uint64_t exec_limit(const struct exec *exec)
{
    if (!exec->grants_itself)
        return exec->limit;
    return rpc_call_writable(exec->call) ? exec->sent + EXEC_WINDOW : exec->sent;
}

/* Following. */

static void say_accepted(struct exec *exec, const struct relay *relay, bool existed)
{
    Sandstorm__V1__ExecAccepted accepted = SANDSTORM__V1__EXEC_ACCEPTED__INIT;
    accepted.command_id = (char *)relay->id.text;
    if (relay->sandbox)
        accepted.sandbox_id = relay->sandbox->id;
    accepted.from_offset = exec->sent;
    accepted.existed = existed;
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_ACCEPTED;
    response.accepted = &accepted;
    exec_reply(exec, &response);
}

static void choose_place(struct exec *exec, const struct relay *relay)
{
    uint64_t first = ledger_first(relay->ledger), end = ledger_end(relay->ledger);
    exec->until = end;
    if (exec->from_end)
        exec->sent = MAX(first, end - MIN(end, exec->last_bytes));
}

static void follow(struct exec *exec, struct relay *relay, bool existed)
{
    choose_place(exec, relay);
    exec_set_state(exec, EXEC_FOLLOWING);
    rpc_call_resume(exec->call);
    say_accepted(exec, relay, existed);
    if (exec->state != EXEC_FOLLOWING)
        return;
    if (existed)
        log_info("command attached to", LF_STR("command", relay->id.text),
                 LF_STR("client", rpc_call_peer(exec->call)->name));
    relay_join(relay, exec);
    if (exec->state != EXEC_FOLLOWING)
        return;
    exec_say_started(exec);
    if (relay->input_limit && !exec->watches)
        exec_say_input(exec);
    if (relay->state != RELAY_ENDED && relay->sandbox && !relay->sandbox->session) {
        relay->link_lost = true;
        exec_notice(exec, SANDSTORM__V1__EXEC_NOTICE_KIND__EXEC_NOTICE_KIND_LINK_LOST,
                    "the sandbox's link is away; output will follow when it is back");
    }
    relay_grant(relay);
    exec_pump(exec);
}

static void on_admitted(void *userdata, struct relay *relay, bool existed, const struct err *failed)
{
    struct exec *exec = userdata;
    exec->admission = NULL;
    if (exec->state != EXEC_ADMITTING)
        return;
    if (failed)
        exec_fail(exec, failed);
    else
        follow(exec, relay, existed);
}

/* From the client. */

static int on_open(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    const Sandstorm__V1__ExecOpen *open = request->open;
    const struct admission_request admission = {
        .peer = rpc_call_peer(exec->call),
        .sandbox_id = open->sandbox_id,
        .command_id = open->command_id,
        .spec = open->spec,
        .from_offset = open->from_offset,
    };
    if (exec->state != EXEC_NEW)
        return err_set(err, ERR_INVALID, "open may only be the first message");
    exec->sent = exec->acked = open->from_offset;
    exec->limit = open->limit;
    exec->grants_itself = open->server_credit;
    exec->watches = open->mode == SANDSTORM__V1__EXEC_MODE__EXEC_MODE_WATCH;
    exec->snapshot = open->snapshot;
    exec->from_end = open->from_end;
    exec->last_bytes = open->last_bytes;
    exec->starts = open->spec != NULL;
    if (!exec->starts && !*open->command_id)
        return err_set(err, ERR_INVALID,
                       "an open message needs a spec, or the id of a command that is known");
    if (exec->starts && (exec->watches || exec->from_end || exec->snapshot))
        return err_set(
            err, ERR_INVALID,
            "who gives a spec controls the command, from its beginning to its end; leave "
            "the spec out to attach in another way");
    exec_set_state(exec, EXEC_ADMITTING);
    rpc_call_pause(exec->call);
    if (exec->starts)
        return admission_start(exec->orchestrator, &admission, on_admitted, exec, &exec->admission,
                               err);
    return admission_attach(exec->orchestrator, admission.peer, open->command_id,
                            exec->watches ? "command.watch" : "command.attach", on_admitted, exec,
                            &exec->admission, err);
}

static int on_credit(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    const Sandstorm__V1__Credit *credit = request->credit;
    if (credit->acked > exec->sent)
        return err_set(err, ERR_INVALID, "acknowledged more than was sent");
    exec->acked = MAX(exec->acked, credit->acked);
    exec->limit = MAX(exec->limit, credit->limit);
    if (!exec->watches)
        exec->relay->taken = MAX(exec->relay->taken, exec->acked);
    if (exec->state == EXEC_ENDED && exec->acked == exec->sent) {
        exec_close_stream(exec, NULL);
        return 0;
    }
    if (!exec->watches)
        relay_grant(exec->relay);
    exec_pump(exec);
    return 0;
}

static int on_stdin(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    return relay_take_input(exec->relay, request->stdin, err);
}

static int on_signal(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    const Sandstorm__V1__Signal *asked = request->signal;
    struct relay_due *due = &exec->relay->due;
    if (strlen(asked->name) >= sizeof(due->signal_name))
        return err_set(err, ERR_INVALID, "there is no signal with such a long name");
    due->signal = true;
    (void)memcpy(due->signal_name, asked->name, strlen(asked->name) + 1);
    due->signal_number = asked->number;
    due->signal_target = asked->target;
    return 0;
}

static int on_resize(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    struct relay_due *due = &exec->relay->due;
    (void)err;
    due->resize = true;
    due->rows = request->resize->rows;
    due->columns = request->resize->columns;
    return 0;
}

static int on_cancel(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    (void)err;
    exec->relay->due.cancel = exec->relay->cancelled = true;
    exec->relay->due.grace_ms = request->cancel->grace_ms;
    return 0;
}

static const struct {
    Sandstorm__V1__ExecRequest__KindCase kind;
    bool looks; /* who only looks may say so too */
    int (*fn)(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err);
} requests[] = {
    { SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN, true, on_open },
    { SANDSTORM__V1__EXEC_REQUEST__KIND_CREDIT, true, on_credit },
    { SANDSTORM__V1__EXEC_REQUEST__KIND_STDIN, false, on_stdin },
    { SANDSTORM__V1__EXEC_REQUEST__KIND_SIGNAL, false, on_signal },
    { SANDSTORM__V1__EXEC_REQUEST__KIND_RESIZE, false, on_resize },
    { SANDSTORM__V1__EXEC_REQUEST__KIND_CANCEL, false, on_cancel },
};

static int on_request(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    if (exec->state == EXEC_NEW && request->kind_case != SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN)
        return err_set(err, ERR_INVALID, "the first message must be open");
    if (exec->state == EXEC_ADMITTING)
        return err_set(err, ERR_INTERNAL, "a request before the answer to the open message");
    for (size_t i = 0; i < ELEMENTS(requests); i++) {
        if (requests[i].kind != request->kind_case)
            continue;
        if (exec->watches && !requests[i].looks)
            return err_set(err, ERR_INVALID, "this stream only looks; attach in CONTROL");
        if (exec->state == EXEC_ENDED && !requests[i].looks)
            return 0; /* crossed with the end record */
        if (requests[i].fn(exec, request, err) < 0)
            return -1;
        if (exec->relay)
            relay_flush(exec->relay);
        return 0;
    }
    return err_set(err, ERR_UNIMPLEMENTED, "this orchestrator does not know that request");
}

static int check_size(size_t size, struct err *err)
{
    if (size > ADMISSION_REQUEST_MAX)
        return err_set(err, ERR_EXHAUSTED, "request of %zu bytes; the limit is %u", size,
                       ADMISSION_REQUEST_MAX);
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

/* A client that will say no more cannot give credit: from here on we do. Who started the command
 * has sent all of its input; who attached to it leaves that alone. */
static void on_half_closed(void *owner)
{
    struct exec *exec = owner;
    struct err err;
    switch (exec->state) {
    case EXEC_NEW:
        (void)err_set(&err, ERR_INVALID, "the stream ended before its open message");
        exec_fail(exec, &err);
        break;
    case EXEC_FOLLOWING:
        exec->grants_itself = true;
        exec->acked = exec->sent;
        if (exec->starts && !exec->watches)
            exec->relay->input_eof = true;
        relay_enter(exec->relay);
        struct relay *relay = exec->relay;
        relay_flush(relay);
        relay_grant(relay);
        exec_pump(exec);
        relay_exit(relay);
        break;
    case EXEC_ENDED:
        exec_close_stream(exec, NULL);
        break;
    default:
        break;
    }
}

static void on_writable(void *owner)
{
    struct exec *exec = owner;
    if (exec->state != EXEC_FOLLOWING)
        return;
    struct relay *relay = exec->relay;
    relay_enter(relay);
    exec_pump(exec);
    relay_grant(relay);
    relay_exit(relay);
}

static void on_closed(void *owner, const struct err *status)
{
    struct exec *exec = owner;
    (void)status;
    admission_forget(exec->admission);
    leave(exec);
    loop_timer_free(exec->deadline);
    rpc_call_release(exec->call);
    free(exec);
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
        /* It has the end record or never will; it can attach again. */
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
    if (loop_timer_new(orchestrator->loop, on_deadline, exec, &exec->deadline, err) < 0) {
        free(exec);
        return -1;
    }
    exec->call = call;
    rpc_call_bind(call, &handler, exec);
    loop_timer_start(exec->deadline, EXEC_OPEN_US);
    return 0;
}
