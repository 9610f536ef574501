/* Reconnect delays with full jitter: uniform in [0, ceiling], the ceiling doubling from `base` to
 * `cap`. A connection must have been stable for a while before the next failure starts small
 * again. No clock and no randomness of its own, so that it can be tested. One thread. */
#pragma once

#include <stdint.h>

#define BACKOFF_BASE_US      500000u
#define BACKOFF_CAP_US       30000000u
#define BACKOFF_STABLE_US    60000000u
#define BACKOFF_ASKED_MAX_US 600000000u

struct backoff {
    uint64_t base_us;
    uint64_t cap_us;
    uint64_t stable_us;
    unsigned attempts;
    uint64_t connected_at_us; /* 0 while not connected */
};

void backoff_init(struct backoff *backoff); /* the constants above */
/* `random` is any uniformly distributed 64-bit number. */
uint64_t backoff_next_us(struct backoff *backoff, uint64_t random);
/* The delay where the other side has named one: not before that, at most a tenth later, and never
 * for more than BACKOFF_ASKED_MAX_US (and that tenth), so that no mistake of a peer costs a day. It
 * is no failure and leaves the ceiling as it is. */
uint64_t backoff_asked_us(uint64_t asked_us, uint64_t random);
/* Again while it is connected changes nothing: a connection that was handed over is as old as the
 * one before it. */
void backoff_connected(struct backoff *backoff, uint64_t now_us);
/* Resets the ceiling when the connection had been up for stable_us. */
void backoff_disconnected(struct backoff *backoff, uint64_t now_us);
