/* When a call is worth repeating, and for how long. */
#include "client/retry.h"
#include "common/macros.h"

#include <criterion/criterion.h>

#define SECOND_US 1000000u

static struct retry_end end_of(enum err_code code, bool answered, bool sent)
{
    return (struct retry_end){ code, answered, sent };
}

Test(retry, what_the_orchestrator_has_decided_is_never_asked_again)
{
    static const enum err_code decided[] = {
        ERR_INVALID,      ERR_NOT_FOUND,       ERR_EXISTS,   ERR_DENIED,       ERR_EXHAUSTED,
        ERR_PRECONDITION, ERR_UNAUTHENTICATED, ERR_PROTOCOL, ERR_UNIMPLEMENTED
    };
    for (size_t i = 0; i < ELEMENTS(decided); i++) {
        struct retry_end end = end_of(decided[i], true, true);
        cr_expect_not(retry_worth(&end, true), "%s", err_name(decided[i]));
        cr_expect_not(retry_worth(&end, false), "%s", err_name(decided[i]));
    }
}

Test(retry, a_connection_that_broke_is_made_again)
{
    static const enum err_code broken[] = { ERR_UNAVAILABLE, ERR_INTERNAL, ERR_CANCELLED,
                                            ERR_TIMEOUT, ERR_NONE };
    for (size_t i = 0; i < ELEMENTS(broken); i++) {
        struct retry_end end = end_of(broken[i], false, true);
        cr_expect(retry_worth(&end, true), "%s", err_name(broken[i]));
        cr_expect(retry_worth(&end, false), "%s", err_name(broken[i]));
    }
}

Test(retry, before_anything_is_known_an_answer_is_one_and_nobody_there_is_an_error)
{
    struct retry_end away = end_of(ERR_UNAVAILABLE, true, true),
                     nobody = end_of(ERR_UNAVAILABLE, false, false);
    cr_expect_not(retry_worth(&away, false));
    cr_expect_not(retry_worth(&nobody, false));
    cr_expect(retry_worth(&away, true));
    cr_expect(retry_worth(&nobody, true));
}

Test(retry, it_gives_up_when_the_time_is_over_and_not_before_a_last_attempt)
{
    struct retry retry;
    uint64_t delay = 0, now = 5 * SECOND_US;
    retry_init(&retry, 20 * SECOND_US);
    unsigned attempts = 0;
    while (retry_next(&retry, now, UINT64_MAX / 2, &delay)) {
        cr_assert_leq(delay, RETRY_CAP_US);
        cr_assert_leq(now + delay, (5 + 20) * (uint64_t)SECOND_US);
        now += delay;
        cr_assert_lt(++attempts, 1000u);
    }
    cr_assert_eq(now, (5 + 20) * (uint64_t)SECOND_US, "the last attempt is made at the end");
}

Test(retry, the_time_counts_from_each_loss_anew)
{
    struct retry retry;
    uint64_t delay = 0;
    retry_init(&retry, 10 * SECOND_US);
    cr_assert(retry_next(&retry, 1 * SECOND_US, 0, &delay));
    cr_assert(retry_next(&retry, 10 * SECOND_US, 0, &delay));
    retry_connected(&retry, 10 * SECOND_US);
    cr_assert_not(retry.lost);
    cr_assert(retry_next(&retry, 100 * SECOND_US, 0, &delay));
    cr_assert(retry_next(&retry, 109 * SECOND_US, 0, &delay));
    cr_assert_not(retry_next(&retry, 110 * SECOND_US, 0, &delay));
}

Test(retry, pauses_begin_small_again_after_a_stable_connection)
{
    struct retry retry;
    uint64_t delay = 0;
    retry_init(&retry, 0);
    for (unsigned i = 0; i < 10; i++)
        cr_assert(retry_next(&retry, SECOND_US, 0, &delay));
    retry_connected(&retry, 2 * SECOND_US);
    cr_assert(retry_next(&retry, 2 * SECOND_US + RETRY_STABLE_US, BACKOFF_BASE_US, &delay));
    cr_assert_eq(delay, BACKOFF_BASE_US);
    for (unsigned i = 0; i < 10; i++)
        cr_assert(retry_next(&retry, 20 * SECOND_US, 0, &delay));
    retry_connected(&retry, 21 * SECOND_US);
    cr_assert(retry_next(&retry, 22 * SECOND_US, RETRY_CAP_US, &delay));
    cr_assert_eq(delay, RETRY_CAP_US, "it broke at once: no reason to hurry");
}
