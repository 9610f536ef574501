/* Calls between their acceptance (common/rpc_server.c) and their method. A stream is shown to the
 * guard at once, a unary call with its message; both wait until the guard has spoken, which may
 * take a turn through the store. next: the method's row in the table. */
#include "common/rpc_ticket-internal.h"

#include "common/rpc_call-internal.h"
#include "common/wire.h"

struct rpc_ticket {
    const struct rpc_server_config *config;
    const struct rpc_method *method;
    struct rpc_call *call; /* NULL when the peer has gone */
    struct identity peer;
    struct rpc_certificate certificate;
    ProtobufCMessage *request; /* of a unary call, until its method has seen it */
    bool held;                 /* the guard or the method will say something */
};

const struct identity *rpc_ticket_peer(const struct rpc_ticket *ticket)
{
    return &ticket->peer;
}

const struct rpc_certificate *rpc_ticket_certificate(const struct rpc_ticket *ticket)
{
    return &ticket->certificate;
}

bool rpc_ticket_gone(const struct rpc_ticket *ticket)
{
    return !ticket->call;
}

static void ticket_free(struct rpc_ticket *ticket)
{
    rpc_call_release(ticket->call);
    wire_free(ticket->request);
    free(ticket);
}

/* The holder has spoken. A call that is still there takes its status along, and with its end the
 * ticket. */
static void settle(struct rpc_ticket *ticket, const struct err *status)
{
    ticket->held = false;
    if (ticket->call)
        rpc_call_finish(ticket->call, status);
    else
        ticket_free(ticket);
}

void rpc_ticket_fail(struct rpc_ticket *ticket, const struct err *why)
{
    settle(ticket, why);
}

void rpc_ticket_reply(struct rpc_ticket *ticket, const ProtobufCMessage *answer)
{
    struct err err;
    int r = ticket->call ? rpc_call_send(ticket->call, answer, &err) : 0;
    settle(ticket, r < 0 ? &err : NULL);
}

static void admit_stream(struct rpc_ticket *ticket)
{
    struct rpc_call *call = TAKE_PTR(ticket->call);
    const struct rpc_method *method = ticket->method;
    void *userdata = ticket->config->userdata;
    struct err err;
    ticket_free(ticket);
    rpc_call_bind(call, NULL, NULL);
    if (method->open(userdata, call, &err) < 0) {
        rpc_call_finish(call, &err);
        rpc_call_release(call);
        return;
    }
    rpc_call_open(call);
}

static void admit_unary(struct rpc_ticket *ticket)
{
    const struct rpc_method *method = ticket->method;
    void *userdata = ticket->config->userdata;
    CLEANUP_WIRE ProtobufCMessage *request = TAKE_PTR(ticket->request);
    struct err err = { 0 };
    if (method->later) {
        if (method->later(userdata, ticket, request, &err) < 0)
            settle(ticket, &err);
    } else {
        int r = method->unary(userdata, ticket->call, request, &err);
        settle(ticket, r < 0 ? &err : NULL);
    }
}

void rpc_ticket_admit(struct rpc_ticket *ticket)
{
    /* Its server may be gone as well, when the peer is. */
    if (ticket->call)
        rpc_call_judged(ticket->call);
    if (!ticket->call)
        settle(ticket, NULL);
    else if (ticket->method->open)
        admit_stream(ticket);
    else
        admit_unary(ticket);
}

static void ask_guard(struct rpc_ticket *ticket)
{
    ticket->held = true;
    ticket->config->guard(ticket->config->userdata, ticket->method, ticket->request, ticket);
}

static void on_message(void *owner, const uint8_t *data, size_t size)
{
    struct rpc_ticket *ticket = owner;
    struct err err = { 0 };
    /* One message is all there is; a second one is not asked for. */
    rpc_call_pause(ticket->call);
    if (wire_unpack(ticket->method->request, data, size, &ticket->request, &err) < 0)
        rpc_call_finish(ticket->call, &err);
    else
        ask_guard(ticket);
}

static void on_half_closed(void *owner)
{
    struct rpc_ticket *ticket = owner;
    struct err err;
    if (ticket->held || ticket->request)
        return;
    (void)err_set(&err, ERR_INVALID, "the request has no message");
    rpc_call_finish(ticket->call, &err); /* nothing where it was answered */
}

static void on_closed(void *owner, const struct err *status)
{
    struct rpc_ticket *ticket = owner;
    (void)status;
    rpc_call_release(TAKE_PTR(ticket->call));
    if (!ticket->held)
        ticket_free(ticket);
}

static const struct rpc_call_handler handler = {
    .message = on_message,
    .half_closed = on_half_closed,
    .closed = on_closed,
};

int rpc_ticket_new(const struct rpc_server_config *config, const struct rpc_method *method,
                   struct rpc_call *call, struct err *err)
{
    struct rpc_ticket *ticket = calloc(1, sizeof(*ticket));
    if (!ticket)
        return err_nomem(err);
    ticket->config = config;
    ticket->method = method;
    ticket->call = call;
    ticket->peer = *rpc_call_peer(call);
    ticket->certificate = *rpc_call_certificate(call);
    rpc_call_bind(call, &handler, ticket);
    if (method->open)
        ask_guard(ticket);
    else
        rpc_call_open(call);
    return 0;
}
