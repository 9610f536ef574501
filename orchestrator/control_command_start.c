/* CommandService.StartCommand: a command that nobody waits for. Judged and written down as for Exec
 * (orchestrator/admission.c); the answer says that it is due. */
#include "orchestrator/control.h"

#include "orchestrator/admission.h"
#include "orchestrator/control_command.h"
#include "orchestrator/orchestrator-internal.h"

struct start_call {
    struct orchestrator *orchestrator;
    struct rpc_ticket *ticket;
    struct admission *admission;
    bool existed;
};

/* It is in the history by now. */
static void on_described(void *userdata, struct command_item *item, const struct err *failed)
{
    struct start_call *start = userdata;
    Sandstorm__V1__StartCommandResponse response = SANDSTORM__V1__START_COMMAND_RESPONSE__INIT;
    if (failed) {
        rpc_ticket_fail(start->ticket, failed);
    } else {
        response.command = &item->message;
        response.existed = start->existed;
        rpc_ticket_reply(start->ticket, &response.base);
    }
    free(start);
}

static void on_admitted(void *userdata, struct relay *relay, bool existed, const struct err *failed)
{
    struct start_call *start = userdata;
    struct err err;
    if (!failed) {
        start->existed = existed;
        relay_kick(relay);
        if (control_command_describe(start->orchestrator, rpc_ticket_peer(start->ticket),
                                     relay_id(relay)->text, on_described, start, &err) == 0)
            return;
        failed = &err;
    }
    rpc_ticket_fail(start->ticket, failed);
    free(start);
}

int control_start_command(void *userdata, struct rpc_ticket *ticket,
                          const ProtobufCMessage *message, struct err *err)
{
    const Sandstorm__V1__StartCommandRequest *request =
        (const Sandstorm__V1__StartCommandRequest *)message;
    const struct admission_request admission = {
        .peer = rpc_ticket_peer(ticket),
        .sandbox_id = request->sandbox_id,
        .command_id = request->command_id,
        .spec = request->spec,
    };
    struct start_call *start = calloc(1, sizeof(*start));
    if (!start)
        return err_nomem(err);
    start->orchestrator = userdata;
    start->ticket = ticket;
    if (admission_start(userdata, &admission, on_admitted, start, &start->admission, err) == 0)
        return 0;
    free(start);
    return -1;
}
