/* Owns how long a broken link waits before it dials again. Handed the time and a random number by
 * the link; hands back a delay. Full jitter spreads a fleet that lost its orchestrator at one
 * instant over the whole interval, where "delay plus or minus a bit" would keep it in step.
 * Calls nobody; next: the agent's link, which arms a timer. */
#include "common/backoff.h"

#include "common/macros.h"

void backoff_init(struct backoff *backoff)
{
    *backoff = (struct backoff){
        .base_us = BACKOFF_BASE_US,
        .cap_us = BACKOFF_CAP_US,
        .stable_us = BACKOFF_STABLE_US,
    };
}

/* base << attempts, but never above the cap and never shifted out of the word. */
static uint64_t ceiling_us(const struct backoff *backoff)
{
    if (backoff->attempts >= 64 || backoff->base_us > backoff->cap_us >> backoff->attempts)
        return backoff->cap_us;
    return backoff->base_us << backoff->attempts;
}

uint64_t backoff_next_us(struct backoff *backoff, uint64_t random)
{
    uint64_t ceiling = ceiling_us(backoff);
    if (backoff->attempts < 64)
        backoff->attempts++;
    /* The bias of the remainder is below one in 2^39 for any sensible ceiling. */
    return ceiling == UINT64_MAX ? random : random % (ceiling + 1);
}

uint64_t backoff_asked_us(uint64_t asked_us, uint64_t random)
{
    /* Spread, so that a fleet that was told one number does not come back as one. */
    uint64_t delay = MIN(asked_us, BACKOFF_ASKED_MAX_US);
    return delay + random % (delay / 10 + 1);
}

void backoff_connected(struct backoff *backoff, uint64_t now_us)
{
    /* 0 means not connected, and a test clock may well start there. */
    if (backoff->connected_at_us == 0)
        backoff->connected_at_us = MAX(now_us, 1u);
}

void backoff_disconnected(struct backoff *backoff, uint64_t now_us)
{
    uint64_t since = backoff->connected_at_us;
    if (since != 0 && now_us >= since && now_us - since >= backoff->stable_us)
        backoff->attempts = 0;
    backoff->connected_at_us = 0;
}
