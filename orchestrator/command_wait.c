/* Who waits for which command: filled by orchestrator/control_command_get.c, woken by
 * orchestrator/history_store.c. */
#include "orchestrator/command_wait.h"

#include <string.h>
#include <utlist.h>

void command_wait_start(struct command_wait **waits, struct command_wait *wait)
{
    DL_APPEND(*waits, wait);
}

void command_wait_stop(struct command_wait **waits, struct command_wait *wait)
{
    DL_DELETE(*waits, wait);
}

void command_wait_wake(struct command_wait *waits, const struct command_id *id)
{
    struct command_wait *wait, *next;
    DL_FOREACH_SAFE (waits, wait, next)
        if (strcmp(wait->id.text, id->text) == 0)
            wait->ended(wait);
}
