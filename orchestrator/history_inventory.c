/* The history and a runner's inventory: which of the open commands it has, and what became of those
 * that it has not. The one judgement, for clients that wait (orchestrator/relay_resume.c) and for
 * commands that nobody follows. Asked by orchestrator/relay_resume.c; next: orchestrator/history.c
 * ends those that are lost. */
#include "orchestrator/history-internal.h"

#include "orchestrator/relay.h"
#include "orchestrator/session.h"

#include <string.h>

void history_listing(struct history *history, const struct sandbox *sandbox)
{
    const struct history_sandbox *known = history_sandbox(history, sandbox->id);
    struct history_command *command;
    if (known)
        DL_FOREACH (known->commands, command)
            command->listed = false;
}

void history_listed(struct history *history, const struct sandbox *sandbox,
                    const struct command_id *id)
{
    struct history_command *command = history_find_of(history, sandbox, id);
    if (command)
        command->listed = command->confirmed = true;
}

/* Runners live one after the other, and one forgets nothing that it was told to run: so a life that
 * has not got the command, and in which it was ordered, never got it. */
static void judge(const struct history_command *command, const struct sandbox *sandbox,
                  struct history_judgement *ret)
{
    bool same_life = *command->runner && strcmp(command->runner, sandbox->runner_instance) == 0;
    bool never_sent = !command->sent_epoch && !command->loaded;
    *ret = history_never_started;
    if (!command->confirmed && (never_sent || same_life))
        return;
    ret->fate = HISTORY_LOST;
    if (!command->confirmed && command->sent_epoch == session_epoch(sandbox->session))
        ret->fate = HISTORY_IN_FLIGHT;
    if (same_life) {
        ret->reason = SANDSTORM__V1__LOST_REASON__LOST_REASON_RELEASED;
        ret->detail = "the runner had to make room and let go of the command; how it ended is "
                      "unknown";
    } else if (sandbox->rebooted) {
        ret->reason = SANDSTORM__V1__LOST_REASON__LOST_REASON_REBOOTED;
        ret->detail = "the sandbox was rebooted; how the command ended is unknown";
    } else {
        ret->reason = SANDSTORM__V1__LOST_REASON__LOST_REASON_RUNNER_RESTARTED;
        ret->detail = "the runner was restarted; the command may still be running, and its result "
                      "is lost";
    }
}

void history_judge(struct history *history, const struct sandbox *sandbox,
                   const struct command_id *id, struct history_judgement *ret)
{
    static const struct history_command forgotten = { .confirmed = true };
    const struct history_command *command = history_find_of(history, sandbox, id);
    judge(command ? command : &forgotten, sandbox, ret);
}

void history_inventory_complete(struct history *history, struct sandbox *sandbox)
{
    const struct history_sandbox *known = history_sandbox(history, sandbox->id);
    struct history_command *command, *next;
    if (!known)
        return;
    DL_FOREACH_SAFE (known->commands, command, next) {
        struct history_judgement judgement;
        /* What is on its way on this stream is not in its inventory; the next stream's tells. */
        if (command->listed || command->end ||
            relay_find_of(sandbox, history->orchestrator, &command->id) ||
            (!command->confirmed && command->sent_epoch == session_epoch(sandbox->session)))
            continue;
        judge(command, sandbox, &judgement);
        history_lost(history, &command->id, &judgement);
    }
}
