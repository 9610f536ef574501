/* The runner's start: what an earlier one left in the state directory. Each command in it is known
 * again, as one that has ended; the orchestrator hears of it as of any other. Called by
 * agent/runner.c; next: agent/command_restore.c reads one of them. */
#include "agent/runner-internal.h"

#include <string.h>

struct recovery {
    struct runner *runner;
    unsigned ended, lost, broken;
};

/* In the order in which they came, for who has to go first. */
static int by_age(const struct runner_entry *a, const struct runner_entry *b)
{
    int64_t left = command_reserved_us(a->command), right = command_reserved_us(b->command);
    return left < right ? -1 : left > right;
}

static int recover_one(void *userdata, const struct command_id *id, struct err *err)
{
    struct recovery *recovery = userdata;
    struct runner *runner = recovery->runner;
    struct err why;
    if (released_has(runner->released, id)) {
        /* It was let go of, and the crash came before its file was. */
        (void)unlinkat(runner->state->fd, id->text, 0);
        return 0;
    }
    struct runner_entry *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return err_nomem(err);
    if (command_load(&runner->host, id, &entry->command, &why) < 0) {
        /* Its id stays taken: the name is, and a start of it is refused. */
        log_error("a command of an earlier runner cannot be read", LF_STR("command", id->text),
                  LF_ERR(&why));
        recovery->broken++;
        free(entry);
        return 0;
    }
    entry->id = *id;
    bool lost = command_is_lost(entry->command);
    recovery->lost += lost;
    recovery->ended += !lost;
    HASH_ADD_KEYPTR(hh, runner->commands, entry->id.text, COMMAND_ID_LEN, entry);
    return 0;
}

int runner_recover(struct runner *runner, struct err *err)
{
    struct recovery recovery = { .runner = runner };
    if (state_dir_list(runner->state, recover_one, &recovery, err) < 0)
        return -1;
    HASH_SORT(runner->commands, by_age);
    if (HASH_COUNT(runner->commands) > 0 || recovery.broken > 0)
        log_info("commands of an earlier runner", LF_UINT("ended", recovery.ended),
                 LF_UINT("lost", recovery.lost), LF_UINT("unreadable", recovery.broken),
                 LF_UINT("bytes_kept", runner->state->used));
    return 0;
}
