/* How sources are blamed, refused and forgotten: single behaviours, and a model that the table must
 * agree with over long random histories. */
#include "orchestrator/http_sources.h"
#include "tests/unit/random.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define SECOND  1000000u
#define T0      (1000ull * SECOND)
#define STEPS   200000u
#define PLAYERS 64u

static struct http_sources *sources;

static void setup(void)
{
    struct err err = { 0 };
    cr_assert_eq(http_sources_new(&sources, &err), 0);
}

static void teardown(void)
{
    http_sources_free(sources);
}

/* cppcheck-suppress unknownMacro */
TestSuite(http_sources, .init = setup, .fini = teardown);

/* The last one asked for of each family; good until the next call. */
static const struct sockaddr *address(const char *text)
{
    static union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } last;
    (void)memset(&last, 0, sizeof(last));
    if (strchr(text, ':')) {
        last.in6.sin6_family = AF_INET6;
        last.in6.sin6_port = 1234;
        cr_assert_eq(inet_pton(AF_INET6, text, &last.in6.sin6_addr), 1);
    } else {
        last.in.sin_family = AF_INET;
        last.in.sin_port = 4321;
        cr_assert_eq(inet_pton(AF_INET, text, &last.in.sin_addr), 1);
    }
    return &last.any;
}

static const struct sockaddr *numbered(unsigned number)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "10.%u.%u.%u", number >> 16, number >> 8 & 255,
                   number & 255);
    return address(text);
}

static void blame(const char *who, uint64_t penalty_us, uint64_t now_us)
{
    http_sources_blame(sources, address(who), penalty_us, now_us);
}

static uint64_t wait_us(const char *who, uint64_t now_us)
{
    return http_sources_wait_us(sources, address(who), now_us);
}

Test(http_sources, strangers_are_welcome)
{
    cr_expect_eq(wait_us("192.0.2.1", T0), 0u);
    cr_expect_eq(wait_us("2001:db8::1", T0), 0u);
}

Test(http_sources, below_the_threshold_nothing_happens)
{
    blame("192.0.2.1", SOURCES_THRESHOLD_US - 1, T0);
    cr_expect_eq(wait_us("192.0.2.1", T0), 0u);
    blame("192.0.2.1", 1, T0);
    cr_expect_eq(wait_us("192.0.2.1", T0), SOURCES_THRESHOLD_US);
    cr_expect_eq(wait_us("192.0.2.2", T0), 0u);
}

Test(http_sources, a_refused_source_waits_until_all_has_run_off)
{
    blame("192.0.2.1", 20 * SECOND, T0);
    cr_expect_eq(wait_us("192.0.2.1", T0 + 19 * SECOND), SECOND);
    cr_expect_eq(wait_us("192.0.2.1", T0 + 20 * SECOND - 1), 1u);
    cr_expect_eq(wait_us("192.0.2.1", T0 + 20 * SECOND), 0u);
    /* And begins anew, also when nobody had asked meanwhile. */
    blame("192.0.2.1", SECOND, T0 + 20 * SECOND);
    cr_expect_eq(wait_us("192.0.2.1", T0 + 20 * SECOND), 0u);
    blame("192.0.2.1", 20 * SECOND, T0 + 21 * SECOND);
    blame("192.0.2.1", SECOND, T0 + 50 * SECOND);
    cr_expect_eq(wait_us("192.0.2.1", T0 + 50 * SECOND), 0u);
}

Test(http_sources, penalties_run_off_between_failures)
{
    for (unsigned i = 0; i < 100; i++) {
        blame("192.0.2.1", SOURCES_GUESSING_US, T0 + (uint64_t)i * SOURCES_GUESSING_US);
        cr_expect_eq(wait_us("192.0.2.1", T0 + (uint64_t)i * SOURCES_GUESSING_US), 0u);
    }
}

Test(http_sources, no_penalty_is_longer_than_the_longest)
{
    blame("192.0.2.1", UINT64_MAX, T0);
    cr_expect_eq(wait_us("192.0.2.1", T0), SOURCES_PENALTY_MAX_US);
    for (int i = 0; i < 1000; i++)
        blame("192.0.2.1", SOURCES_PENALTY_MAX_US, T0);
    cr_expect_eq(wait_us("192.0.2.1", T0), SOURCES_PENALTY_MAX_US);
}

Test(http_sources, ipv6_counts_by_64)
{
    blame("2001:db8:0:1::1", 20 * SECOND, T0);
    cr_expect_eq(wait_us("2001:db8:0:1:ffff::2", T0), 20 * SECOND);
    cr_expect_eq(wait_us("2001:db8:0:2::1", T0), 0u);
    cr_expect_eq(wait_us("2001:db8::1", T0), 0u);
}

Test(http_sources, a_mapped_address_is_the_ipv4_one)
{
    blame("::ffff:192.0.2.1", 20 * SECOND, T0);
    cr_expect_eq(wait_us("192.0.2.1", T0), 20 * SECOND);
    cr_expect_eq(wait_us("::ffff:192.0.2.2", T0), 0u);
    cr_expect_eq(wait_us("::1", T0), 0u);
    cr_expect(http_sources_enter(sources, address("192.0.2.9"), 1, T0));
    cr_expect_not(http_sources_enter(sources, address("::ffff:192.0.2.9"), 1, T0));
}

Test(http_sources, connections_have_a_bound_for_each_source)
{
    for (unsigned i = 0; i < 3; i++)
        cr_expect(http_sources_enter(sources, address("192.0.2.1"), 3, T0));
    cr_expect_not(http_sources_enter(sources, address("192.0.2.1"), 3, T0));
    cr_expect(http_sources_enter(sources, address("192.0.2.2"), 3, T0));
    http_sources_leave(sources, address("192.0.2.1"), T0);
    cr_expect(http_sources_enter(sources, address("192.0.2.1"), 3, T0));
    cr_expect_not(http_sources_enter(sources, address("192.0.2.3"), 0, T0));
}

Test(http_sources, connections_do_not_wash_a_penalty_off)
{
    blame("192.0.2.1", 20 * SECOND, T0);
    cr_expect(http_sources_enter(sources, address("192.0.2.1"), 3, T0));
    http_sources_leave(sources, address("192.0.2.1"), T0);
    cr_expect_eq(wait_us("192.0.2.1", T0), 20 * SECOND);
}

Test(http_sources, a_full_table_forgets_the_one_with_the_least_left)
{
    for (unsigned i = 0; i < SOURCES_MAX; i++)
        http_sources_blame(sources, numbered(i), 20 * SECOND + i * 1000u, T0);
    /* Number 0 is in use, so number 1 is the next. */
    cr_expect(http_sources_enter(sources, numbered(0), 1, T0));
    http_sources_blame(sources, numbered(SOURCES_MAX), 30 * SECOND, T0);
    cr_expect_eq(http_sources_wait_us(sources, numbered(0), T0), 20 * SECOND);
    cr_expect_eq(http_sources_wait_us(sources, numbered(1), T0), 0u);
    for (unsigned i = 2; i < SOURCES_MAX; i++)
        cr_assert_eq(http_sources_wait_us(sources, numbered(i), T0), 20 * SECOND + i * 1000u);
    cr_expect_eq(http_sources_wait_us(sources, numbered(SOURCES_MAX), T0), 30 * SECOND);
}

Test(http_sources, a_table_full_of_connections_takes_nobody)
{
    for (unsigned i = 0; i < SOURCES_MAX; i++)
        cr_assert(http_sources_enter(sources, numbered(i), 1, T0));
    cr_expect_not(http_sources_enter(sources, numbered(SOURCES_MAX), 1, T0));
    http_sources_blame(sources, numbered(SOURCES_MAX), 30 * SECOND, T0);
    cr_expect_eq(http_sources_wait_us(sources, numbered(SOURCES_MAX), T0), 0u);
    http_sources_leave(sources, numbered(7), T0);
    cr_expect(http_sources_enter(sources, numbered(SOURCES_MAX), 1, T0));
    for (unsigned i = 0; i < SOURCES_MAX; i++)
        if (i != 7)
            http_sources_leave(sources, numbered(i), T0);
}

/* What a table without limits would hold. */
struct player {
    unsigned open;
    bool refused;
    uint64_t until_us;
};

static void check_player(const struct player *player, unsigned number, uint64_t now_us)
{
    uint64_t left = player->until_us > now_us ? player->until_us - now_us : 0;
    cr_assert_eq(http_sources_wait_us(sources, numbered(number), now_us),
                 player->refused ? left : 0);
}

Test(http_sources, agrees_with_a_model_over_a_long_history)
{
    static struct player players[PLAYERS];
    uint64_t random = 0x1234567890abcdefu, now = T0;
    for (unsigned step = 0; step < STEPS; step++) {
        unsigned number = (unsigned)random_below(&random, PLAYERS);
        struct player *player = &players[number];
        now += random_below(&random, SECOND);
        if (player->until_us <= now)
            player->refused = false;
        switch (random_below(&random, 4)) {
        case 0: {
            uint64_t penalty = random_below(&random, 40 * SECOND);
            uint64_t left = player->until_us > now ? player->until_us - now : 0;
            left = MIN(left + penalty, SOURCES_PENALTY_MAX_US);
            player->until_us = now + left;
            player->refused = player->refused || left >= SOURCES_THRESHOLD_US;
            http_sources_blame(sources, numbered(number), penalty, now);
            break;
        }
        case 1: {
            bool entered = http_sources_enter(sources, numbered(number), 5, now);
            cr_assert_eq(entered, player->open < 5);
            player->open += entered;
            break;
        }
        case 2:
            if (player->open > 0) {
                http_sources_leave(sources, numbered(number), now);
                player->open--;
            }
            break;
        default:
            check_player(player, number, now);
        }
    }
}

/* More sources than places: who has connections is never forgotten, and the table never breaks. */
Test(http_sources, holds_connections_in_a_flood_of_others)
{
    static unsigned open[PLAYERS];
    uint64_t random = 42, now = T0;
    for (unsigned step = 0; step < STEPS / 4; step++) {
        unsigned number = (unsigned)random_below(&random, PLAYERS);
        now += 10;
        if (random_below(&random, 2) == 0) {
            bool entered = http_sources_enter(sources, numbered(number), 3, now);
            cr_assert_eq(entered, open[number] < 3);
            open[number] += entered;
        } else if (open[number] > 0) {
            http_sources_leave(sources, numbered(number), now);
            open[number]--;
        }
        unsigned other = PLAYERS + (unsigned)random_below(&random, 4 * SOURCES_MAX);
        http_sources_blame(sources, numbered(other), 1 + random_below(&random, 600 * SECOND), now);
    }
}
