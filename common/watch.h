/* A list of those who want to know: embedded in whoever waits, woken all at once. One that is woken
 * may stop itself. One thread. */
#pragma once

struct watch {
    struct watch *next, **back; /* back is NULL while it waits for nothing */
    void (*fn)(struct watch *watch);
};

static inline void watch_start(struct watch **list, struct watch *watch)
{
    watch->next = *list;
    if (watch->next)
        watch->next->back = &watch->next;
    watch->back = list;
    *list = watch;
}

static inline void watch_stop(struct watch *watch)
{
    if (!watch->back)
        return;
    *watch->back = watch->next;
    if (watch->next)
        watch->next->back = watch->back;
    watch->back = 0;
}

static inline void watch_wake(struct watch *list)
{
    struct watch *next;
    for (struct watch *watch = list; watch; watch = next) {
        next = watch->next;
        watch->fn(watch);
    }
}
