/* What `backup`, `restore` and `repair` say. orchestrator/main.c calls them. Next:
 * orchestrator/backup.c and orchestrator/store_tools.h, which do it. */
#include "orchestrator/state_verbs.h"

#include "common/clock.h"
#include "orchestrator/backup.h"
#include "orchestrator/store_tools.h"

#include <string.h>

int state_verb_backup(const char *state_dir, const char *file, struct err *err)
{
    if (!file)
        return err_set(err, ERR_INVALID, "say where to: backup FILE");
    if (backup_make(state_dir, file, err) < 0)
        return -1;
    (void)printf("Saved the database, the CA and the server's identity of %s in %s.\n"
                 "The CA's private key is in it: whoever can read this file can be anybody. Keep "
                 "it as secret as the state directory.\n",
                 state_dir, file);
    return 0;
}

int state_verb_restore(const char *state_dir, const char *file, struct err *err)
{
    int64_t made_ms = 0;
    if (!file)
        return err_set(err, ERR_INVALID, "say from what: restore FILE");
    if (backup_restore(state_dir, file, &made_ms, err) < 0)
        return -1;
    char span[CLOCK_SPAN_TEXT_MAX];
    clock_span_text((wall_ms() - made_ms) / 1000, span);
    (void)printf("Restored %s from %s, which was saved %s ago.\n"
                 "What happened since is forgotten: sandboxes that joined must join again, and "
                 "what was revoked must be revoked again.\n"
                 "Next: start 'sandstorm-orchestrator'; identities of clients are as they were, "
                 "and 'sandstorm-orchestrator recover NAME' makes one where they are lost.\n",
                 state_dir, file, span);
    return 0;
}

struct losses {
    bool audit, any;
};

static void show_table(void *userdata, const struct store_salvage *salvage)
{
    struct losses *losses = userdata;
    bool whole = !salvage->cut_short && salvage->left_out == 0 && salvage->missing == 0;
    (void)printf("%-12s %llu rows copied", salvage->table, (unsigned long long)salvage->copied);
    if (salvage->left_out > 0)
        (void)printf(", %llu left out that are not valid", (unsigned long long)salvage->left_out);
    if (salvage->missing > 0)
        (void)printf(", %llu missing", (unsigned long long)salvage->missing);
    else if (salvage->cut_short)
        (void)printf(", cut short: nobody knows how many are missing");
    (void)printf("\n");
    losses->any |= !whole;
    losses->audit |= !whole && strcmp(salvage->table, "audit") == 0;
}

int state_verb_repair(const char *state_dir, struct err *err)
{
    struct losses losses = { 0 };
    bool needed = false;
    char kept[STORE_KEPT_MAX] = "";
    if (store_repair(state_dir, show_table, &losses, &needed, kept, err) < 0)
        return -1;
    if (!needed) {
        (void)printf("The database in %s is not damaged; nothing was changed.\n", state_dir);
        return 0;
    }
    (void)printf("There is a new database in %s; the damaged one is kept as %s.\n", state_dir,
                 kept);
    if (losses.audit)
        (void)printf("Rows of the audit are missing, so its chain is broken there: 'sandstorm "
                     "audit --verify' says where, from now on.\n");
    if (losses.any)
        (void)printf("What is missing is forgotten: look through 'sandstorm ls', 'sandstorm "
                     "client list' and 'sandstorm token list', and revoke again what was revoked. "
                     "A backup, if there is one, may know more.\n");
    return 0;
}
