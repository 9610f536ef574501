/* The two clocks. Timers and durations use the monotonic one; only what people and peers read uses
 * the wall clock. Any thread. */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <time.h>

static inline uint64_t clock_us(clockid_t id)
{
    struct timespec now;
    /* Cannot fail for the clocks used here; see clock_gettime(2). */
    (void)clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static inline uint64_t monotonic_us(void)
{
    return clock_us(CLOCK_MONOTONIC);
}

static inline int64_t wall_us(void)
{
    return (int64_t)clock_us(CLOCK_REALTIME);
}

static inline int64_t wall_ms(void)
{
    return wall_us() / 1000;
}

/* How far a peer's clock is ahead of ours; any number a peer may send. */
static inline int64_t clock_skew_ms(int64_t peer_ms)
{
    int64_t skew;
    return __builtin_sub_overflow(peer_ms, wall_ms(), &skew) ? 0 : skew;
}

#define CLOCK_SPAN_TEXT_MAX 32

/* "40 s", "12 min", "2 h", "3 days": the size that matters to a person, not the seconds. */
static inline void clock_span_text(int64_t seconds, char ret[CLOCK_SPAN_TEXT_MAX])
{
    static const struct {
        int64_t below, unit;
        const char *name;
    } rows[] = { { 120, 1, "s" }, { 7200, 60, "min" }, { 172800, 3600, "h" } };
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (seconds < rows[i].below) {
            (void)snprintf(ret, CLOCK_SPAN_TEXT_MAX, "%lld %s", (long long)(seconds / rows[i].unit),
                           rows[i].name);
            return;
        }
    (void)snprintf(ret, CLOCK_SPAN_TEXT_MAX, "%lld days", (long long)(seconds / 86400));
}
