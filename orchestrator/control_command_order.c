/* CommandService.SignalCommand, CancelCommand, WriteStdin and CloseStdin: what can be done to a
 * command by its id, without a stream. The command is looked up and the call is in the audit
 * (orchestrator/admission.c) before its relay hears of it. */
#include "orchestrator/control_command.h"

#include "common/wire.h"
#include "orchestrator/admission.h"
#include "orchestrator/orchestrator-internal.h"

/* How long a write waits for the command to take what came before it. */
#define WRITE_WAIT_US 60000000u

struct order_call {
    struct orchestrator *orchestrator;
    struct rpc_ticket *ticket;
    struct admission *admission;
    ProtobufCMessage *request; /* a copy */
    int (*carry_out)(struct order_call *call, struct relay *relay, struct err *err);
    struct relay *relay; /* while it waits for room */
    struct relay_writer writer;
    struct loop_timer *timer;
};

static void call_free(struct order_call *call)
{
    loop_timer_free(call->timer);
    wire_free(call->request);
    free(call);
}

/* 1: later. */
static void carry_out(struct order_call *call, struct relay *relay)
{
    struct err err = { 0 };
    int r = call->carry_out(call, relay, &err);
    if (r < 0)
        rpc_ticket_fail(call->ticket, &err);
    if (r <= 0)
        call_free(call);
}

static void on_admitted(void *userdata, struct relay *relay, bool existed, const struct err *failed)
{
    struct order_call *call = userdata;
    (void)existed;
    if (!failed) {
        carry_out(call, relay);
        return;
    }
    rpc_ticket_fail(call->ticket, failed);
    call_free(call);
}

static int begin(struct orchestrator *orchestrator, struct rpc_ticket *ticket,
                 const ProtobufCMessage *message, const char *command_id, const char *action,
                 int (*fn)(struct order_call *call, struct relay *relay, struct err *err),
                 struct err *err)
{
    CLEANUP_FREE uint8_t *packed = NULL;
    size_t size;
    struct order_call *call = calloc(1, sizeof(*call));
    if (!call)
        return err_nomem(err);
    call->orchestrator = orchestrator;
    call->ticket = ticket;
    call->carry_out = fn;
    if (wire_pack(message, &packed, &size, err) == 0 &&
        wire_unpack(message->descriptor, packed, size, &call->request, err) == 0 &&
        admission_attach(orchestrator, rpc_ticket_peer(ticket), command_id, action, on_admitted,
                         call, &call->admission, err) == 0)
        return 0;
    call_free(call);
    return -1;
}

/* Signals. */

static int signal_it(struct order_call *call, struct relay *relay, struct err *err)
{
    const Sandstorm__V1__SignalCommandRequest *request =
        (const Sandstorm__V1__SignalCommandRequest *)call->request;
    Sandstorm__V1__SignalCommandResponse response = SANDSTORM__V1__SIGNAL_COMMAND_RESPONSE__INIT;
    if (relay_signal(relay, request->signal, err) < 0)
        return -1;
    rpc_ticket_reply(call->ticket, &response.base);
    return 0;
}

int control_signal_command(void *userdata, struct rpc_ticket *ticket,
                           const ProtobufCMessage *message, struct err *err)
{
    const Sandstorm__V1__SignalCommandRequest *request =
        (const Sandstorm__V1__SignalCommandRequest *)message;
    if (!request->signal)
        return err_set(err, ERR_INVALID, "say which signal");
    return begin(userdata, ticket, message, request->command_id, "command.signal", signal_it, err);
}

static int cancel_it(struct order_call *call, struct relay *relay, struct err *err)
{
    const Sandstorm__V1__CancelCommandRequest *request =
        (const Sandstorm__V1__CancelCommandRequest *)call->request;
    Sandstorm__V1__CancelCommandResponse response = SANDSTORM__V1__CANCEL_COMMAND_RESPONSE__INIT;
    if (relay_cancel(relay, request->grace_ms, err) < 0)
        return -1;
    rpc_ticket_reply(call->ticket, &response.base);
    return 0;
}

int control_cancel_command(void *userdata, struct rpc_ticket *ticket,
                           const ProtobufCMessage *message, struct err *err)
{
    const Sandstorm__V1__CancelCommandRequest *request =
        (const Sandstorm__V1__CancelCommandRequest *)message;
    return begin(userdata, ticket, message, request->command_id, "command.cancel", cancel_it, err);
}

/* Input. */

static void on_room(struct relay_writer *writer, const struct err *gone)
{
    struct order_call *call = CONTAINER_OF(writer, struct order_call, writer);
    struct relay *relay = TAKE_PTR(call->relay);
    loop_timer_stop(call->timer);
    if (!gone) {
        carry_out(call, relay);
        return;
    }
    rpc_ticket_fail(call->ticket, gone);
    call_free(call);
}

static void on_patience_over(void *userdata)
{
    struct order_call *call = userdata;
    struct err err;
    (void)err_set(&err, ERR_TIMEOUT, "the command has not taken its input for %u s; try again",
                  WRITE_WAIT_US / 1000000);
    relay_writer_stop(call->relay, &call->writer);
    rpc_ticket_fail(call->ticket, &err);
    call_free(call);
}

static int wait_for_room(struct order_call *call, struct relay *relay, struct err *err)
{
    call->writer.ready = on_room;
    if (!call->timer &&
        loop_timer_new(call->orchestrator->loop, on_patience_over, call, &call->timer, err) < 0)
        return -1;
    if (relay_writer_wait(relay, &call->writer, err) < 0)
        return -1;
    call->relay = relay;
    loop_timer_start(call->timer, WRITE_WAIT_US);
    return 1;
}

static int write_it(struct order_call *call, struct relay *relay, struct err *err)
{
    Sandstorm__V1__WriteStdinRequest nothing = SANDSTORM__V1__WRITE_STDIN_REQUEST__INIT;
    Sandstorm__V1__CloseStdinResponse closed = SANDSTORM__V1__CLOSE_STDIN_RESPONSE__INIT;
    Sandstorm__V1__WriteStdinResponse response = SANDSTORM__V1__WRITE_STDIN_RESPONSE__INIT;
    bool close = call->request->descriptor == &sandstorm__v1__close_stdin_request__descriptor;
    nothing.append = nothing.eof = true;
    int r = relay_write(relay,
                        close ? &nothing : (const Sandstorm__V1__WriteStdinRequest *)call->request,
                        &response.end_offset, err);
    if (r > 0)
        return wait_for_room(call, relay, err);
    if (r == 0)
        rpc_ticket_reply(call->ticket, close ? &closed.base : &response.base);
    return r;
}

int control_write_stdin(void *userdata, struct rpc_ticket *ticket, const ProtobufCMessage *message,
                        struct err *err)
{
    const Sandstorm__V1__WriteStdinRequest *request =
        (const Sandstorm__V1__WriteStdinRequest *)message;
    return begin(userdata, ticket, message, request->command_id, "command.input", write_it, err);
}

int control_close_stdin(void *userdata, struct rpc_ticket *ticket, const ProtobufCMessage *message,
                        struct err *err)
{
    const Sandstorm__V1__CloseStdinRequest *request =
        (const Sandstorm__V1__CloseStdinRequest *)message;
    return begin(userdata, ticket, message, request->command_id, "command.input", write_it, err);
}
