/* The stream under an attached command: CommandService.Exec, opened as often as it takes. A stream
 * that breaks is opened again after a while, with the identity that is on disk by then, from the
 * byte that is next; only a definite answer, or a long silence, ends that. Messages go on to
 * client/exec_output.c and client/exec_input.c; next: client/retry.c judges what a break means. */
#include "client/exec-internal.h"

#include "common/clock.h"
#include "common/wire.h"

#include <stdio.h>
#include <string.h>

#define EXEC_METHOD "/sandstorm.v1.CommandService/Exec"

void exec_say(struct sandstorm_exec *exec, Sandstorm__V1__ExecRequest *request)
{
    struct err err = { 0 };
    if (exec->call && rpc_call_send(exec->call, &request->base, &err) < 0 &&
        err.code != ERR_UNAVAILABLE)
        exec_fail(exec, &err);
}

void exec_fail(struct sandstorm_exec *exec, const struct err *why)
{
    if (exec->err.code == ERR_NONE)
        exec->err = *why;
    if (exec->call)
        rpc_call_cancel(exec->call); /* the rest when it has closed */
    else if (exec->state == EXEC_WAITING)
        exec_set_state(exec, EXEC_DONE);
}

/* From the orchestrator. */

static int on_accepted(struct sandstorm_exec *exec, const Sandstorm__V1__ExecAccepted *accepted,
                       struct err *err)
{
    if (strcmp(accepted->command_id, exec->id.text) != 0)
        return err_set(err, ERR_PROTOCOL, "the orchestrator speaks of another command");
    if (exec->state != EXEC_OPENING)
        return err_set(err, ERR_PROTOCOL, "the orchestrator accepts a command twice");
    exec_set_state(exec, EXEC_ATTACHED);
    if (exec->retry.lost)
        exec_notice(exec, "connected to the orchestrator again");
    retry_connected(&exec->retry, monotonic_us());
    if (exec->accepted) {
        /* The size may have changed while nobody could be told. */
        exec->due.resize = exec->due.resize || exec->due.rows > 0;
    } else if (exec->from_end) {
        window_receiver_init(&exec->output, accepted->from_offset, EXEC_WINDOW);
        exec_send_credit(exec, exec->output.granted);
    }
    bool first = !exec->accepted;
    exec->accepted = true;
    wire_free(TAKE_PTR(exec->spec));
    exec_send_due(exec);
    if (first && exec->streams.attached)
        exec->streams.attached(exec->streams.userdata);
    return 0;
}

static void on_started(struct sandstorm_exec *exec, const Sandstorm__V1__Started *started)
{
    char list[sizeof(exec->outcome.not_enforced)];
    if (exec->started_told)
        return;
    exec->started_told = true;
    client_list_text(started->not_enforced, started->n_not_enforced, list, sizeof(list));
    if (*list)
        exec_notice(exec, "the kernel of the sandbox does not enforce these limits: %s", list);
}

static int on_response(struct sandstorm_exec *exec, const Sandstorm__V1__ExecResponse *response,
                       struct err *err)
{
    switch (response->kind_case) {
    case SANDSTORM__V1__EXEC_RESPONSE__KIND_ACCEPTED:
        return on_accepted(exec, response->accepted, err);
    case SANDSTORM__V1__EXEC_RESPONSE__KIND_STARTED:
        on_started(exec, response->started);
        return 0;
    case SANDSTORM__V1__EXEC_RESPONSE__KIND_OUTPUT:
        return exec_on_output(exec, response->output, err);
    case SANDSTORM__V1__EXEC_RESPONSE__KIND_GAP:
        return exec_on_gap(exec, response->gap, err);
    case SANDSTORM__V1__EXEC_RESPONSE__KIND_ENDED:
        return exec_on_ended(exec, response->ended, err);
    case SANDSTORM__V1__EXEC_RESPONSE__KIND_STDIN_CREDIT:
        return exec_on_stdin_credit(exec, response->stdin_credit, err);
    case SANDSTORM__V1__EXEC_RESPONSE__KIND_NOTICE:
        exec_notice(exec, "%s", response->notice->detail);
        return 0;
    default:
        return 0; /* from a newer orchestrator */
    }
}

static void on_message(void *owner, const uint8_t *data, size_t size)
{
    struct sandstorm_exec *exec = owner;
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    struct err err;
    if (exec->err.code != ERR_NONE)
        return;
    if (wire_unpack(&sandstorm__v1__exec_response__descriptor, data, size, &message, &err) < 0 ||
        on_response(exec, (const Sandstorm__V1__ExecResponse *)message, &err) < 0)
        exec_fail(exec, &err);
}

/* The end of a stream. */

static void give_up(struct sandstorm_exec *exec, const struct err *status)
{
    exec->err = *status;
    if (exec->err.code == ERR_NONE)
        (void)err_set(&exec->err, ERR_PROTOCOL,
                      "the orchestrator ended the stream without a result");
    exec_set_state(exec, EXEC_DONE);
}

static void wait_for_next(struct sandstorm_exec *exec, const struct err *status)
{
    uint64_t delay_us;
    bool first = !exec->retry.lost;
    if (!retry_next(&exec->retry, monotonic_us(), random_u64(), &delay_us)) {
        give_up(exec, status);
        return;
    }
    if (first)
        exec_notice(exec, "the connection to the orchestrator was lost; reconnecting%s",
                    exec->accepted ? ", the command goes on" : "");
    exec_set_state(exec, EXEC_WAITING);
    loop_timer_start(exec->again, delay_us);
}

static bool complete(const struct sandstorm_exec *exec, const struct err *status)
{
    return exec->ended || exec->err.code != ERR_NONE ||
           (exec->snapshot && exec->accepted && status->code == ERR_NONE);
}

static void on_closed(void *owner, const struct err *status)
{
    struct sandstorm_exec *exec = owner;
    const struct retry_end end = { status->code, rpc_call_answered(exec->call),
                                   rpc_call_sent(exec->call) };
    rpc_call_release(TAKE_PTR(exec->call));
    exec_cut_input(exec);
    exec->doubt = exec->doubt || (end.sent && !end.answered);
    if (complete(exec, status)) {
        exec_set_state(exec, EXEC_DONE);
        return;
    }
    bool known = exec->accepted || exec->doubt;
    /* A certificate may have been renewed since this one was read. */
    bool renewed = end.code == ERR_UNAUTHENTICATED && known &&
                   client_reconnect(exec->client, exec->generation);
    if (renewed || retry_worth(&end, known))
        wait_for_next(exec, status);
    else
        give_up(exec, status);
}

static const struct rpc_call_handler handler = {
    .message = on_message,
    .closed = on_closed,
};

/* Opening. */

static int send_open(struct sandstorm_exec *exec, struct err *err)
{
    Sandstorm__V1__ExecOpen open = SANDSTORM__V1__EXEC_OPEN__INIT;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    open.sandbox_id = exec->sandbox;
    open.command_id = exec->id.text;
    /* Once it is known, nothing that we send may start it again. */
    open.spec = (Sandstorm__V1__CommandSpec *)exec->spec;
    open.mode = exec->watch ? SANDSTORM__V1__EXEC_MODE__EXEC_MODE_WATCH
                            : SANDSTORM__V1__EXEC_MODE__EXEC_MODE_CONTROL;
    open.snapshot = exec->snapshot;
    if (exec->from_end && !exec->accepted) {
        open.from_end = true;
        open.last_bytes = exec->last_bytes;
    } else {
        open.from_offset = exec->output.received;
        open.limit = exec->output.granted;
    }
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN;
    request.open = &open;
    return rpc_call_send(exec->call, &request.base, err);
}

int exec_open(struct sandstorm_exec *exec, struct err *err)
{
    exec->generation = exec->client->generation;
    exec_set_state(exec, EXEC_OPENING);
    if (rpc_channel_call(exec->client->channel, EXEC_METHOD, RPC_NO_DEADLINE, &handler, exec,
                         &exec->call, err) < 0)
        return -1;
    return send_open(exec, err);
}
