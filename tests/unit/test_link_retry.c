/* When the link tries again: what the orchestrator asked for holds for one attempt and is no
 * failure; everything else follows the backoff. With a real loop, whose timers nobody waits for. */
#include "agent/link-internal.h"

#include "common/clock.h"

#include <criterion/criterion.h>

#define OK(call) cr_assert_eq((call), 0, "%s", err.text)

static struct link box; /* large */
static struct err err;

static void never(void *userdata)
{
    (void)userdata;
    cr_assert_fail("nobody waits here");
}

static void set_up(void)
{
    static const struct enroll_config enroll;
    box.config.enroll = &enroll;
    backoff_init(&box.stream.backoff);
    OK(loop_new(&box.loop, &err));
    OK(loop_timer_new(box.loop, never, NULL, &box.stream.retry, &err));
}

static void tear_down(void)
{
    loop_timer_free(box.stream.retry);
    loop_free(box.loop);
}

/* cppcheck-suppress unknownMacro */
TestSuite(link_retry, .init = set_up, .fini = tear_down, .timeout = 30);

/* How long the next attempt is away. */
static uint64_t wait_us(void)
{
    uint64_t before = monotonic_us();
    link_retry_wait(&box);
    cr_assert(loop_timer_running(box.stream.retry));
    cr_assert_geq(box.stream.retry_at_us, before);
    return box.stream.retry_at_us - before;
}

Test(link_retry, what_was_asked_for_holds_once_and_is_no_failure)
{
    box.stream.retry_after_us = 60000000;
    uint64_t delay = wait_us();
    cr_expect(delay >= 60000000 && delay <= 67000000, "%lu us", (unsigned long)delay);
    cr_expect_eq(box.stream.backoff.attempts, 0u, "it counted as a failure");
    delay = wait_us();
    cr_expect_leq(delay, BACKOFF_BASE_US + 1000000u, "%lu us", (unsigned long)delay);
    cr_expect_eq(box.stream.backoff.attempts, 1u);
}

Test(link_retry, it_does_not_outlive_the_stream_that_it_was_said_on)
{
    box.stream.retry_after_us = 60000000;
    box.stream.drained = true;
    link_retry_clear(&box); /* the welcome of the next stream */
    cr_expect_leq(wait_us(), BACKOFF_BASE_US + 1000000u);
    box.stream.retry_after_us = 60000000;
    link_retry_begin(&box); /* a certificate was renewed meanwhile, and the wait was cut short */
    cr_expect_leq(wait_us(), 2 * BACKOFF_BASE_US + 1000000u);
    cr_expect_not(box.stream.drained);
}

Test(link_retry, nothing_is_planned_while_it_stops_or_is_connected)
{
    box.stopping = true;
    link_retry_wait(&box);
    cr_expect_not(loop_timer_running(box.stream.retry));
    box.stopping = false;
    box.stream.state = STREAM_ACTIVE;
    link_retry_wait(&box);
    cr_expect_not(loop_timer_running(box.stream.retry));
    cr_expect_eq(box.stream.retry_at_us, 0u);
}

Test(link_retry, attempts_are_counted_until_it_is_online)
{
    for (unsigned i = 1; i <= 3; i++) {
        link_retry_begin(&box);
        cr_expect_eq(box.stream.retry_at_us, 0u, "it is under way");
        (void)wait_us();
        cr_expect_eq(box.stream.attempts, i);
    }
    (void)err_set(&err, ERR_UNAVAILABLE, "nothing is listening");
    link_retry_note(&box, &err);
    int64_t since = box.stream.failing_since_ms;
    cr_expect_gt(since, 0);
    link_retry_note(&box, &err);
    cr_expect_eq(box.stream.failing_since_ms, since, "the first failure counts");
    box.stream.attempts = UINT32_MAX;
    link_retry_begin(&box);
    cr_expect_eq(box.stream.attempts, UINT32_MAX);
    link_retry_clear(&box);
    cr_expect_eq(box.stream.attempts, 0u);
    cr_expect_eq(box.stream.failing_since_ms, 0);
    cr_expect_str_eq(box.stream.last_error, "");
}
