/* Numbers for property tests: the same sequence on every run. */
#pragma once

#include <stdint.h>

static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Below `bound`, which is not 0. */
static inline uint64_t random_below(uint64_t *state, uint64_t bound)
{
    return next_random(state) % bound;
}
