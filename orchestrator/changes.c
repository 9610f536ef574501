/* Owns the order of changes. Told by orchestrator/liveness.c and by those who change sandboxes;
 * next: orchestrator/control_watch.c and orchestrator/control_ready.c. */
#include "orchestrator/changes.h"

#include <stddef.h>

void changes_drop(struct changes *changes, struct change *change)
{
    if (!change->seq)
        return;
    if (change->older)
        change->older->newer = change->newer;
    if (change->newer)
        change->newer->older = change->older;
    else
        changes->newest = change->older;
    *change = (struct change){ 0 };
}

void changes_note(struct changes *changes, struct change *change)
{
    changes_drop(changes, change);
    change->seq = ++changes->seq;
    change->older = changes->newest;
    if (change->older)
        change->older->newer = change;
    changes->newest = change;
    watch_wake(changes->watches);
}

struct change *changes_after(const struct changes *changes, uint64_t seq)
{
    struct change *one = changes->newest;
    if (!one || one->seq <= seq)
        return NULL;
    /* As far as there is something new: who keeps up walks one step. */
    while (one->older && one->older->seq > seq)
        one = one->older;
    return one;
}
