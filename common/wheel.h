/* A timing wheel: very many deadlines, of which each is set, moved and dropped in constant time,
 * and one timer for all of them. Time is counted in ticks, whose length is the owner's business. An
 * entry is embedded in what it is about. One thread. */
#pragma once

#include <stdint.h>

#define WHEEL_SLOTS 512u

struct wheel_entry {
    struct wheel_entry *next, **back; /* back is NULL while it is not set */
    uint64_t at;
};

struct wheel {
    uint64_t tick; /* the last one that was looked at */
    struct wheel_entry *slots[WHEEL_SLOTS];
    struct wheel_entry *due; /* of that tick's slot, not looked at yet */
};

void wheel_init(struct wheel *wheel, uint64_t tick);
/* Due at that tick, or at the next one where that has passed. Moves one that was set. */
void wheel_set(struct wheel *wheel, struct wheel_entry *entry, uint64_t at);
void wheel_clear(struct wheel_entry *entry);
/* The next entry that is due up to `tick`, which is not set any more; NULL when there is none, and
 * then that tick is done. It may be set again, also while others are still due. */
struct wheel_entry *wheel_next(struct wheel *wheel, uint64_t tick);
