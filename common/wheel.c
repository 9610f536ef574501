/* Owns nothing but the order of other people's entries. An entry waits in the slot of its tick
 * modulo the number of slots; one that is more than a turn away stays there when its slot comes by.
 * Used by orchestrator/fleet.c. */
#include "common/wheel.h"

#include "common/macros.h"

#include <stddef.h>

static void push(struct wheel_entry **list, struct wheel_entry *entry)
{
    entry->next = *list;
    if (entry->next)
        entry->next->back = &entry->next;
    entry->back = list;
    *list = entry;
}

void wheel_init(struct wheel *wheel, uint64_t tick)
{
    *wheel = (struct wheel){ .tick = tick };
}

void wheel_clear(struct wheel_entry *entry)
{
    if (!entry->back)
        return;
    *entry->back = entry->next;
    if (entry->next)
        entry->next->back = entry->back;
    entry->back = NULL;
}

void wheel_set(struct wheel *wheel, struct wheel_entry *entry, uint64_t at)
{
    wheel_clear(entry);
    entry->at = MAX(at, wheel->tick + 1);
    push(&wheel->slots[entry->at % WHEEL_SLOTS], entry);
}

/* The slot is emptied before its entries are looked at, so that whatever is set meanwhile is not
 * looked at twice. */
static void take_slot(struct wheel *wheel)
{
    struct wheel_entry **slot = &wheel->slots[wheel->tick % WHEEL_SLOTS];
    wheel->due = *slot;
    if (wheel->due)
        wheel->due->back = &wheel->due;
    *slot = NULL;
}

struct wheel_entry *wheel_next(struct wheel *wheel, uint64_t tick)
{
    for (;;) {
        struct wheel_entry *entry = wheel->due;
        if (!entry && wheel->tick >= tick)
            return NULL;
        if (!entry) {
            wheel->tick++;
            take_slot(wheel);
            continue;
        }
        wheel_clear(entry);
        if (entry->at <= wheel->tick)
            return entry;
        push(&wheel->slots[entry->at % WHEEL_SLOTS], entry); /* another turn */
    }
}
