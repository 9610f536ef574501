/* What has changed since somebody last looked: every sandbox once, in the order of its last change,
 * and those who want to know. Nobody has a queue: whoever has fallen behind goes on where it was
 * and sees each sandbox once, as it is by then. Loop thread. */
#pragma once

#include "common/watch.h"

#include <stdint.h>

/* Embedded in what changes. */
struct change {
    struct change *older, *newer;
    uint64_t seq; /* 0: not in the order */
};

struct changes {
    struct change *newest;
    uint64_t seq;
    struct watch *watches;
};

/* Moves it to the end and wakes those who watch. */
void changes_note(struct changes *changes, struct change *change);
void changes_drop(struct changes *changes, struct change *change);
/* The oldest one after `seq`; go on with ->newer. NULL when there is none. */
struct change *changes_after(const struct changes *changes, uint64_t seq);
