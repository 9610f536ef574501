/* Who is alive, by a clock that the test holds. */
#include "orchestrator/fleet.h"

#include "common/macros.h"

#include <criterion/criterion.h>
#include <stdio.h>

#define S       1000000ull
#define OK(c)   cr_assert_eq((c), 0, "%s", err.text)
#define MEMBERS 100u

static struct err err;
static struct fleet *fleet;
static struct fleet_member members[MEMBERS];
static uint64_t now_us, paced_us;
static unsigned changes, evictions;

static void on_changed(void *userdata, struct fleet_member *member, enum fleet_state from)
{
    (void)userdata;
    (void)from;
    changes++;
    evictions += member->state == FLEET_EVICTED;
}

static void on_paced(void *userdata, uint64_t interval_us)
{
    (void)userdata;
    paced_us = interval_us;
}

static void start(uint64_t amnesty_us)
{
    const struct fleet_config config = {
        .interval_us = FLEET_INTERVAL_US,
        .slack_us = FLEET_SLACK_US,
        .amnesty_us = amnesty_us,
        .evict_us = FLEET_EVICT_US,
        .changed = on_changed,
        .paced = on_paced,
    };
    now_us = 77 * S;
    OK(fleet_new(&config, now_us, &fleet, &err));
}

static void setup(void)
{
    start(0);
}

static void teardown(void)
{
    fleet_free(fleet);
}

TestSuite(fleet, .init = setup, .fini = teardown);

static void pass(uint64_t us)
{
    for (uint64_t end = now_us + us; now_us < end;) {
        now_us += FLEET_TICK_US;
        fleet_tick(fleet, now_us, true);
    }
}

/* Those of [from, to) beat while the time passes. */
static void beat(uint64_t us, unsigned from, unsigned to)
{
    for (uint64_t end = now_us + us; now_us < end;) {
        for (unsigned i = from; i < to; i++)
            fleet_heard(fleet, &members[i]);
        pass(MIN(FLEET_INTERVAL_US, end - now_us));
    }
}

static void connect_all(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        fleet_add(fleet, &members[i], FLEET_NEW);
        fleet_connected(fleet, &members[i]);
    }
}

static void expect(unsigned i, enum fleet_state state)
{
    cr_assert_eq(members[i].state, state, "%s, not %s", fleet_state_name(members[i].state),
                 fleet_state_name(state));
}

Test(fleet, every_state_has_a_name)
{
    for (unsigned i = 0; i < FLEET_STATE_COUNT_; i++)
        cr_expect_str_neq(fleet_state_name(i), "unknown");
    cr_expect_str_eq(fleet_state_name(FLEET_STATE_COUNT_), "unknown");
}

Test(fleet, silence_makes_suspect_after_one_and_a_half_and_offline_after_three_intervals_and_a_bit)
{
    connect_all(10);
    beat(60 * S, 0, 10);
    beat(44 * S, 1, 10); /* number 0 was last heard of 30 s before */
    expect(0, FLEET_SUSPECT);
    beat(30 * S, 1, 10);
    expect(0, FLEET_SUSPECT);
    beat(2 * S, 1, 10);
    expect(0, FLEET_OFFLINE);
    expect(1, FLEET_ONLINE);
}

Test(fleet, a_lost_stream_makes_suspect_at_once)
{
    connect_all(10);
    fleet_disconnected(fleet, &members[0]);
    expect(0, FLEET_SUSPECT);
    beat(104 * S, 1, 10);
    expect(0, FLEET_SUSPECT);
    beat(2 * S, 1, 10);
    expect(0, FLEET_OFFLINE);
    beat(599 * S, 1, 10);
    expect(0, FLEET_OFFLINE);
    beat(3 * S, 1, 10);
    expect(0, FLEET_EVICTED);
    cr_expect_eq(evictions, 1u);
}

Test(fleet, whoever_comes_back_is_online_from_any_state)
{
    const uint64_t after[] = { 1 * S, 50 * S, 120 * S, 800 * S };
    const enum fleet_state states[] = { FLEET_SUSPECT, FLEET_SUSPECT, FLEET_OFFLINE,
                                        FLEET_EVICTED };
    connect_all(10);
    for (unsigned i = 0; i < ELEMENTS(after); i++) {
        fleet_disconnected(fleet, &members[0]);
        beat(after[i], 1, 10);
        expect(0, states[i]);
        fleet_connected(fleet, &members[0]);
        expect(0, FLEET_ONLINE);
    }
}

Test(fleet, heartbeats_keep_everybody_online_for_a_week)
{
    connect_all(MEMBERS);
    unsigned before = changes;
    beat(7 * 86400 * S, 0, MEMBERS);
    cr_expect_eq(changes, before);
    cr_expect_eq(fleet_count(fleet, FLEET_ONLINE), MEMBERS);
}

Test(fleet, nobody_is_judged_in_the_amnesty)
{
    teardown();
    start(FLEET_AMNESTY_US);
    for (unsigned i = 0; i < 10; i++)
        fleet_add(fleet, &members[i], i < 5 ? FLEET_ONLINE : i < 8 ? FLEET_OFFLINE : FLEET_EVICTED);
    expect(0, FLEET_SUSPECT);
    pass(FLEET_AMNESTY_US - S);
    cr_expect_eq(changes, 0u);
    cr_expect(fleet_amnesty_left_us(fleet) > 0);
    pass(2 * S);
    expect(0, FLEET_OFFLINE);
    cr_expect_eq(fleet_amnesty_left_us(fleet), 0u);
    cr_expect_eq(evictions, 0u, "all of it is silent");
}

Test(fleet, time_in_which_we_were_not_running_does_not_count)
{
    connect_all(10);
    now_us += 3600 * S; /* stopped, or the host slept */
    fleet_tick(fleet, now_us, true);
    pass(20 * S);
    cr_expect_eq(fleet_count(fleet, FLEET_ONLINE), 10u);
}

Test(fleet, time_in_which_our_store_was_stuck_does_not_count)
{
    connect_all(10);
    for (unsigned i = 0; i < 3000; i++)
        fleet_tick(fleet, now_us += FLEET_TICK_US, false);
    cr_expect_eq(fleet_count(fleet, FLEET_ONLINE), 10u);
}

Test(fleet, evicts_only_when_it_was_well_for_as_long_as_it_takes_to_be_offline)
{
    connect_all(10);
    fleet_disconnected(fleet, &members[0]);
    beat(700 * S, 1, 10);
    expect(0, FLEET_OFFLINE);
    now_us += 10 * S;
    fleet_tick(fleet, now_us, true);
    beat(100 * S, 1, 10);
    expect(0, FLEET_OFFLINE);
    beat(10 * S, 1, 10);
    expect(0, FLEET_EVICTED);
}

/* 55 of 100 silent: they go; 56: nobody does, until one is back. */
Test(fleet, the_brake_holds_from_fifty_six_per_cent_on)
{
    connect_all(MEMBERS);
    beat(2000 * S, 56, MEMBERS);
    cr_expect_eq(evictions, 0u);
    cr_expect(fleet_braked(fleet));
    cr_expect_eq(fleet_count(fleet, FLEET_OFFLINE), 56u);
    fleet_connected(fleet, &members[0]);
    cr_expect_not(fleet_braked(fleet));
    for (unsigned i = 0; i < 4; i++) {
        fleet_heard(fleet, &members[0]);
        beat(FLEET_INTERVAL_US, 56, MEMBERS);
    }
    cr_expect_eq(evictions, 55u);
}

Test(fleet, one_that_drains_may_go_silent_without_braking)
{
    connect_all(MEMBERS);
    for (unsigned i = 0; i < 60; i++)
        fleet_excuse(fleet, &members[i], true);
    beat(1000 * S, 60, MEMBERS);
    cr_expect_not(fleet_braked(fleet));
    cr_expect_eq(evictions, 60u);
}

Test(fleet, those_who_never_came_are_not_judged)
{
    for (unsigned i = 0; i < 10; i++)
        fleet_add(fleet, &members[i], FLEET_NEW);
    pass(2000 * S);
    expect(0, FLEET_NEW);
    cr_expect_not(fleet_braked(fleet));
}

Test(fleet, one_that_is_removed_is_forgotten)
{
    connect_all(3);
    fleet_remove(fleet, &members[0]);
    members[0] = (struct fleet_member){ 0 };
    beat(1000 * S, 1, 3);
    cr_expect_eq(fleet_count(fleet, FLEET_ONLINE), 2u);
    cr_expect_eq(fleet_count(fleet, FLEET_SUSPECT), 0u);
}

Test(fleet, a_large_fleet_beats_more_slowly_and_a_small_one_as_before)
{
    enum { LARGE = 12000 };
    struct fleet_member *large = calloc(LARGE, sizeof(*large));
    for (unsigned i = 0; i < LARGE; i++) {
        fleet_add(fleet, &large[i], FLEET_NEW);
        fleet_connected(fleet, &large[i]);
    }
    uint64_t wanted = LARGE * S / FLEET_BEATS_PER_S;
    cr_expect(paced_us >= wanted * 4 / 5 && paced_us <= wanted * 6 / 5, "%lu",
              (unsigned long)paced_us);
    cr_expect_eq(fleet_interval_us(fleet), paced_us);
    for (unsigned i = 100; i < LARGE; i++)
        fleet_remove(fleet, &large[i]);
    fleet_disconnected(fleet, &large[0]);
    cr_expect(fleet_interval_us(fleet) < FLEET_INTERVAL_US * 6 / 5);
    free(large);
}
