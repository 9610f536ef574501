/* The two clocks. Timers and durations use the monotonic one; only what people and peers read uses
 * the wall clock. Any thread. */
#pragma once

#include <stdint.h>
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
