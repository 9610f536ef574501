/* What comes down the link's socket: welcomes and orders. Packets come from agent/runner_link.c,
 * raw; orders go to the command they name, starts make one. The link is ours and authenticated, but
 * what it carries was written by a peer: everything is scanned, and what makes no sense is refused
 * in words. */
#include "agent/runner-internal.h"
#include "common/wire.h"

#include <errno.h>

/* Which order a refusal is about. */
static Sandstorm__V1__OrderKind kind_of(const Sandstorm__V1__CommandOrder *order)
{
    static const Sandstorm__V1__OrderKind kinds[] = {
        [SANDSTORM__V1__COMMAND_ORDER__ORDER_START] = SANDSTORM__V1__ORDER_KIND__ORDER_KIND_START,
        [SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTACH] = SANDSTORM__V1__ORDER_KIND__ORDER_KIND_ATTACH,
        [SANDSTORM__V1__COMMAND_ORDER__ORDER_CREDIT] = SANDSTORM__V1__ORDER_KIND__ORDER_KIND_CREDIT,
        [SANDSTORM__V1__COMMAND_ORDER__ORDER_STDIN] = SANDSTORM__V1__ORDER_KIND__ORDER_KIND_STDIN,
        [SANDSTORM__V1__COMMAND_ORDER__ORDER_SIGNAL] = SANDSTORM__V1__ORDER_KIND__ORDER_KIND_SIGNAL,
        [SANDSTORM__V1__COMMAND_ORDER__ORDER_RESIZE] = SANDSTORM__V1__ORDER_KIND__ORDER_KIND_RESIZE,
        [SANDSTORM__V1__COMMAND_ORDER__ORDER_CANCEL] = SANDSTORM__V1__ORDER_KIND__ORDER_KIND_CANCEL,
        [SANDSTORM__V1__COMMAND_ORDER__ORDER_DETACH] = SANDSTORM__V1__ORDER_KIND__ORDER_KIND_DETACH,
        [SANDSTORM__V1__COMMAND_ORDER__ORDER_RELEASE] =
            SANDSTORM__V1__ORDER_KIND__ORDER_KIND_RELEASE,
        [SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTEND] = SANDSTORM__V1__ORDER_KIND__ORDER_KIND_ATTEND,
    };
    return (size_t)order->order_case < ELEMENTS(kinds)
               ? kinds[order->order_case]
               : SANDSTORM__V1__ORDER_KIND__ORDER_KIND_UNSPECIFIED;
}

static void refuse_start(struct runner *runner, const struct command_id *id,
                         Sandstorm__V1__RefusalReason reason, const char *detail)
{
    const struct command_refusal refusal = { reason, detail };
    runner_link_refuse(runner->link, id, SANDSTORM__V1__ORDER_KIND__ORDER_KIND_START, &refusal);
}

/* Makes room by letting go of a command that has ended, the oldest that nobody follows and whose
 * end was told; if there is none, the oldest, whose follower is told. Its id stays known. */
static void evict_ended(struct runner *runner)
{
    struct runner_entry *victim = NULL;
    for (struct runner_entry *entry = runner->commands; entry; entry = entry->hh.next) {
        if (command_state(entry->command) != COMMAND_ENDED)
            continue;
        if (!victim)
            victim = entry;
        if (!command_followed(entry->command) && !command_has_event(entry->command)) {
            victim = entry;
            break;
        }
    }
    if (!victim)
        return;
    log_warn("letting go of a command whose end nobody acknowledged",
             LF_STR("command", victim->id.text));
    if (command_followed(victim->command))
        runner_link_say_released(runner->link, &victim->id);
    runner_release(runner, victim);
}

static int make_command(struct runner *runner, const struct command_id *id,
                        const Sandstorm__V1__Start *start, struct command **ret, struct err *err)
{
    if (HASH_COUNT(runner->commands) >= RUNNER_COMMANDS_MAX)
        evict_ended(runner);
    struct err why = { 0 };
    if (policy_check_count(runner->policy, runner_count_running(runner), &why) < 0)
        return command_new_refused(&runner->host, id, start,
                                   SANDSTORM__V1__START_STEP__START_STEP_POLICY, why.sys_errno,
                                   why.text, ret, err);
    const char *refusal = NULL;
    int error = EAGAIN;
    if (HASH_COUNT(runner->commands) >= RUNNER_COMMANDS_MAX) {
        refusal = "too many commands are running in this sandbox; wait for one to end";
    } else if (runner->stopping) {
        refusal = "the runner is stopping";
        error = ESHUTDOWN;
    }
    if (refusal)
        return command_new_refused(&runner->host, id, start,
                                   SANDSTORM__V1__START_STEP__START_STEP_ADMIT, error, refusal, ret,
                                   err);
    return command_new(&runner->host, id, start, ret, err);
}

static void on_new_command(struct runner *runner, const struct command_id *id,
                           const Sandstorm__V1__Start *start)
{
    struct err err = { 0 };
    struct runner_entry *entry = calloc(1, sizeof(*entry));
    if (!entry || make_command(runner, id, start, &entry->command, &err) < 0) {
        free(entry);
        refuse_start(runner, id, SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_EXHAUSTED,
                     "the runner is out of memory; the command was not started");
        return;
    }
    entry->id = *id;
    HASH_ADD_KEYPTR(hh, runner->commands, entry->id.text, COMMAND_ID_LEN, entry);
    struct command_refusal refusal;
    if (start->attach && !command_attach(entry->command, start->attach, &refusal))
        refuse_start(runner, id, refusal.reason, refusal.detail);
    runner_note_ready(runner, entry); /* it may have ended while it was being made */
    runner_link_status_changed(runner->link);
}

static void on_start(struct runner *runner, const struct command_id *id,
                     const Sandstorm__V1__Start *start)
{
    struct runner_entry *entry = runner_find(runner, id);
    struct command_refusal refusal;
    if (entry && !command_same_spec(entry->command, &start->spec_digest))
        refuse_start(runner, id, SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_CONFLICT,
                     "this id is taken by a different command; use a new one");
    else if (entry && start->attach && !command_attach(entry->command, start->attach, &refusal))
        refuse_start(runner, id, refusal.reason, refusal.detail);
    else if (entry)
        return;
    else if (released_has(runner->released, id))
        runner_link_say_released(runner->link, id);
    else if (start->attach && start->attach->from_offset > 0)
        /* Who asks for the middle of a command believes that it runs. It does not, and is not
         * begun. */
        refuse_start(runner, id, SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_BAD_POSITION,
                     "this command has never run here; start it at offset 0");
    else if (!start->spec || start->spec_digest.len != COMMAND_DIGEST_LEN)
        refuse_start(runner, id, SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_UNSUPPORTED,
                     "a start needs a spec and its digest");
    else
        on_new_command(runner, id, start);
}

static bool on_release(struct runner *runner, struct runner_entry *entry,
                       struct command_refusal *ret)
{
    if (command_state(entry->command) != COMMAND_ENDED) {
        *ret = (struct command_refusal){
            SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_BAD_POSITION,
            "the command has not ended",
        };
        return false;
    }
    runner_release(runner, entry);
    runner_link_status_changed(runner->link);
    return true;
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
    bool done = false;
    if (entry && order->order_case == SANDSTORM__V1__COMMAND_ORDER__ORDER_RELEASE)
        done = on_release(runner, entry, &refusal);
    else if (entry)
        done = command_order(entry->command, order, &refusal);
    if (!done)
        runner_link_refuse(runner->link, &id, kind_of(order), &refusal);
    return 0;
}

static void on_welcome(struct runner *runner, const Sandstorm__V1__Welcome *welcome)
{
    log_info("orchestrator attached", LF_UINT("epoch", welcome->epoch),
             LF_STR("sandbox", welcome->sandbox_id));
    for (struct runner_entry *entry = runner->commands; entry; entry = entry->hh.next) {
        command_mute(entry->command);
        runner_note_ready(runner, entry);
    }
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
