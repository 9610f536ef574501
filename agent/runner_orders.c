/* What comes down the link's socket: welcomes and orders. Packets come from agent/runner_link.c,
 * raw; orders go to the command they name, starts make one. The link is ours and authenticated, but
 * what it carries was written by a peer: everything is scanned, and what makes no sense is refused
 * in words. */
#include "agent/runner-internal.h"
#include "common/wire.h"

#include <errno.h>

/* Makes room by letting go of the oldest command that has ended; its id stays known. */
static void evict_oldest_ended(struct runner *runner)
{
    for (struct runner_entry *entry = runner->commands; entry; entry = entry->hh.next)
        if (command_state(entry->command) == COMMAND_ENDED) {
            log_warn("letting go of a command whose end nobody acknowledged",
                     LF_STR("command", entry->id.text));
            released_add(runner->released, &entry->id);
            runner_forget(runner, entry);
            return;
        }
}

static int make_command(struct runner *runner, const struct command_id *id,
                        const Sandstorm__V1__Start *start, struct command **ret, struct err *err)
{
    if (HASH_COUNT(runner->commands) >= RUNNER_COMMANDS_MAX)
        evict_oldest_ended(runner);
    const char *refusal = NULL;
    int error = EAGAIN;
    if (HASH_COUNT(runner->commands) >= RUNNER_COMMANDS_MAX) {
        refusal = "too many commands are running in this sandbox; wait for one to end";
    } else if (runner->stopping) {
        refusal = "the runner is stopping";
        error = ESHUTDOWN;
    }
    if (refusal)
        return command_new_refused(&runner->host, id, SANDSTORM__V1__START_STEP__START_STEP_ADMIT,
                                   error, refusal, ret, err);
    return command_new(&runner->host, id, start, ret, err);
}

static void on_new_command(struct runner *runner, const struct command_id *id,
                           const Sandstorm__V1__Start *start)
{
    struct err err = { 0 };
    struct runner_entry *entry = calloc(1, sizeof(*entry));
    if (!entry || make_command(runner, id, start, &entry->command, &err) < 0) {
        /* Not even an outcome could be kept. The id was not used: the orchestrator asks again. */
        log_error("out of memory for a command", LF_STR("command", id->text));
        free(entry);
        return;
    }
    entry->id = *id;
    HASH_ADD_KEYPTR(hh, runner->commands, entry->id.text, COMMAND_ID_LEN, entry);
    struct command_refusal refusal;
    if (start->attach && !command_attach(entry->command, start->attach, &refusal))
        runner_link_refuse(runner->link, id->text, &refusal);
    runner_link_status_changed(runner->link);
}

static void on_start(struct runner *runner, const struct command_id *id,
                     const Sandstorm__V1__Start *start)
{
    struct command_refusal refusal = {
        SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_CONFLICT,
        "this command id is taken by a command with another spec",
    };
    struct runner_entry *entry = runner_find(runner, id);
    if (entry) {
        if (!command_same_spec(entry->command, &start->spec_digest) ||
            (start->attach && !command_attach(entry->command, start->attach, &refusal)))
            runner_link_refuse(runner->link, id->text, &refusal);
        return;
    }
    if (released_has(runner->released, id)) {
        runner_link_say_released(runner->link, id);
        return;
    }
    if (!start->spec || start->spec_digest.len != COMMAND_DIGEST_LEN) {
        refusal = (struct command_refusal){
            SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_UNSUPPORTED,
            "a start needs a spec and its digest",
        };
        runner_link_refuse(runner->link, id->text, &refusal);
        return;
    }
    on_new_command(runner, id, start);
}

static void on_release(struct runner *runner, struct runner_entry *entry)
{
    if (command_state(entry->command) != COMMAND_ENDED) {
        const struct command_refusal refusal = {
            SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_BAD_POSITION,
            "the command has not ended",
        };
        runner_link_refuse(runner->link, entry->id.text, &refusal);
        return;
    }
    released_add(runner->released, &entry->id);
    runner_forget(runner, entry);
    runner_link_status_changed(runner->link);
}

static int on_order(struct runner *runner, const Sandstorm__V1__CommandOrder *order,
                    struct err *err)
{
    struct command_id id;
    if (command_id_parse(order->command_id, &id, err) < 0)
        return -1;
    if (order->order_case == SANDSTORM__V1__COMMAND_ORDER__ORDER_START) {
        on_start(runner, &id, order->start);
        return 0;
    }
    struct command_refusal refusal = {
        SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_UNKNOWN_COMMAND,
        "no such command in this sandbox",
    };
    struct runner_entry *entry = runner_find(runner, &id);
    if (entry && order->order_case == SANDSTORM__V1__COMMAND_ORDER__ORDER_RELEASE)
        on_release(runner, entry);
    else if (!entry || !command_order(entry->command, order, &refusal))
        runner_link_refuse(runner->link, id.text, &refusal);
    return 0;
}

static void on_welcome(struct runner *runner, const Sandstorm__V1__Welcome *welcome)
{
    log_info("orchestrator attached", LF_UINT("epoch", welcome->epoch),
             LF_STR("sandbox", welcome->sandbox_id));
    for (struct runner_entry *entry = runner->commands; entry; entry = entry->hh.next)
        command_mute(entry->command);
    runner_link_begin_inventory(runner->link, welcome->epoch);
}

int runner_receive(struct runner *runner, const uint8_t *data, size_t size, struct err *err)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    if (wire_unpack(&sandstorm__v1__orchestrator_frame__descriptor, data, size, &message, err) < 0)
        return -1;
    const Sandstorm__V1__OrchestratorFrame *frame =
        (const Sandstorm__V1__OrchestratorFrame *)message;
    switch (frame->kind_case) {
    case SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_WELCOME:
        on_welcome(runner, frame->welcome);
        return 0;
    case SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_ORDER:
        return on_order(runner, frame->order, err);
    default:
        /* The link's own business, or from a newer orchestrator. */
        return 0;
    }
}
