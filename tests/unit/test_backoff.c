/* Reconnect delays: the ceiling doubles to the cap, the delay is uniform below it, and only a
 * connection that was up for long enough starts small again. */
#include "common/backoff.h"

#include <criterion/criterion.h>

/* The largest delay that the next call could give: no remainder can pass the ceiling, and a random
 * number equal to it comes back unchanged. */
static uint64_t ceiling_of(const struct backoff *backoff)
{
    uint64_t ceiling = 0;
    for (uint64_t probe = 0; probe <= 120; probe++) {
        struct backoff copy = *backoff;
        uint64_t delay = backoff_next_us(&copy, probe * 250000);
        if (delay == probe * 250000)
            ceiling = delay;
    }
    return ceiling;
}

Test(backoff, the_ceiling_doubles_from_the_base_to_the_cap)
{
    static const uint64_t expected[] = { 500000,  1000000,  2000000,  4000000,
                                         8000000, 16000000, 30000000, 30000000 };
    struct backoff backoff;
    backoff_init(&backoff);
    for (unsigned i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        cr_expect_eq(ceiling_of(&backoff), expected[i], "attempt %u", i);
        (void)backoff_next_us(&backoff, 0);
    }
}

Test(backoff, the_delay_reaches_both_ends_and_wraps_just_above_the_ceiling)
{
    struct backoff backoff;
    backoff_init(&backoff);
    struct backoff copy = backoff;
    cr_expect_eq(backoff_next_us(&copy, 0), 0);
    copy = backoff;
    cr_expect_eq(backoff_next_us(&copy, BACKOFF_BASE_US), BACKOFF_BASE_US);
    copy = backoff;
    cr_expect_eq(backoff_next_us(&copy, BACKOFF_BASE_US + 1), 0);
}

Test(backoff, any_number_of_attempts_stays_under_the_cap)
{
    struct backoff backoff;
    backoff_init(&backoff);
    uint64_t random = 0x9e3779b97f4a7c15u;
    for (unsigned i = 0; i < 100000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        cr_assert_leq(backoff_next_us(&backoff, random), BACKOFF_CAP_US);
    }
    backoff.attempts = UINT32_MAX;
    cr_expect_leq(backoff_next_us(&backoff, UINT64_MAX), BACKOFF_CAP_US);
    cr_expect_eq(backoff.attempts, UINT32_MAX);
}

Test(backoff, delays_spread_over_the_whole_interval)
{
    unsigned buckets[10] = { 0 };
    uint64_t random = 1;
    for (unsigned i = 0; i < 10000; i++) {
        struct backoff backoff;
        backoff_init(&backoff);
        /* A linear congruential generator is weak in its low bits; the shift leaves those out. */
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t delay = backoff_next_us(&backoff, random >> 16);
        cr_assert_leq(delay, BACKOFF_BASE_US);
        buckets[delay * 10 / (BACKOFF_BASE_US + 1)]++;
    }
    for (unsigned i = 0; i < 10; i++)
        cr_expect(buckets[i] > 850 && buckets[i] < 1150, "bucket %u holds %u", i, buckets[i]);
}

Test(backoff, extreme_settings_do_not_overflow)
{
    struct backoff backoff = { .base_us = UINT64_MAX, .cap_us = UINT64_MAX };
    cr_expect_eq(backoff_next_us(&backoff, UINT64_MAX), UINT64_MAX);
    cr_expect_eq(backoff_next_us(&backoff, 42), 42);
    backoff = (struct backoff){ .base_us = 100, .cap_us = 10 };
    cr_expect_eq(backoff_next_us(&backoff, 10), 10);
    backoff = (struct backoff){ 0 };
    cr_expect_eq(backoff_next_us(&backoff, 10), 0);
}

static struct backoff after_failures(unsigned count)
{
    struct backoff backoff;
    backoff_init(&backoff);
    for (unsigned i = 0; i < count; i++)
        (void)backoff_next_us(&backoff, 0);
    return backoff;
}

Test(backoff, a_stable_connection_starts_small_again)
{
    struct backoff backoff = after_failures(5);
    backoff_connected(&backoff, 1000);
    backoff_disconnected(&backoff, 1000 + BACKOFF_STABLE_US);
    cr_expect_eq(ceiling_of(&backoff), BACKOFF_BASE_US);
    cr_expect_eq(backoff.connected_at_us, 0);
}

Test(backoff, a_short_connection_keeps_the_ceiling)
{
    struct backoff backoff = after_failures(5);
    backoff_connected(&backoff, 1000);
    backoff_disconnected(&backoff, 1000 + BACKOFF_STABLE_US - 1);
    cr_expect_eq(ceiling_of(&backoff), 16000000);
    cr_expect_eq(backoff.connected_at_us, 0);
}

Test(backoff, a_disconnect_without_a_connection_changes_nothing)
{
    struct backoff backoff = after_failures(5);
    backoff_disconnected(&backoff, UINT64_MAX);
    cr_expect_eq(ceiling_of(&backoff), 16000000);
}

Test(backoff, a_clock_that_starts_at_zero_or_runs_back_is_survived)
{
    struct backoff backoff = after_failures(5);
    backoff_connected(&backoff, 0);
    backoff_disconnected(&backoff, BACKOFF_STABLE_US + 1);
    cr_expect_eq(ceiling_of(&backoff), BACKOFF_BASE_US);

    backoff = after_failures(5);
    backoff_connected(&backoff, 5000);
    backoff_disconnected(&backoff, 4000);
    cr_expect_eq(ceiling_of(&backoff), 16000000);
}

Test(backoff, a_connection_that_is_handed_over_keeps_its_age)
{
    struct backoff backoff = after_failures(5);
    backoff_connected(&backoff, 1000);
    backoff_connected(&backoff, 1000 + BACKOFF_STABLE_US - 1);
    backoff_disconnected(&backoff, 1000 + BACKOFF_STABLE_US);
    cr_expect_eq(ceiling_of(&backoff), BACKOFF_BASE_US);
    /* And does not lend it to the next one. */
    backoff = after_failures(5);
    backoff_connected(&backoff, 1000);
    backoff_disconnected(&backoff, 2000);
    backoff_connected(&backoff, 1000 + BACKOFF_STABLE_US);
    backoff_disconnected(&backoff, 1000 + BACKOFF_STABLE_US + 1);
    cr_expect_eq(ceiling_of(&backoff), 16000000);
}

Test(backoff, what_was_asked_for_is_kept_to_and_spread_by_a_tenth)
{
    static const uint64_t asked[] = { 1, 9, 10, 1000000, 60000000 };
    for (unsigned i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        uint64_t tenth = asked[i] / 10;
        cr_expect_eq(backoff_asked_us(asked[i], 0), asked[i]);
        cr_expect_eq(backoff_asked_us(asked[i], tenth), asked[i] + tenth);
        cr_expect_eq(backoff_asked_us(asked[i], tenth + 1), asked[i]);
        uint64_t random = 0x9e3779b97f4a7c15u;
        for (unsigned k = 0; k < 1000; k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            uint64_t delay = backoff_asked_us(asked[i], random);
            cr_assert(delay >= asked[i] && delay <= asked[i] + tenth);
        }
    }
}

Test(backoff, no_peer_can_ask_for_more_than_the_cap)
{
    static const uint64_t asked[] = { BACKOFF_ASKED_MAX_US, BACKOFF_ASKED_MAX_US + 1, UINT64_MAX };
    for (unsigned i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        const uint64_t tenth = BACKOFF_ASKED_MAX_US / 10;
        cr_expect_eq(backoff_asked_us(asked[i], 0), BACKOFF_ASKED_MAX_US);
        cr_expect_eq(backoff_asked_us(asked[i], tenth), BACKOFF_ASKED_MAX_US + tenth);
        cr_expect_eq(backoff_asked_us(asked[i], tenth + 1), BACKOFF_ASKED_MAX_US);
    }
}
