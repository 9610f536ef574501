/* The timing wheel against a plain list: whatever is set, moved and dropped, each entry is due
 * once, at its tick and not before. */
#include "common/wheel.h"

#include "tests/unit/random.h"

#include <criterion/criterion.h>

#define COUNT 200u

static struct wheel wheel;
static struct wheel_entry entries[COUNT];

Test(wheel, an_entry_is_due_at_its_tick_and_once)
{
    wheel_init(&wheel, 10);
    wheel_set(&wheel, &entries[0], 12);
    cr_expect_null(wheel_next(&wheel, 11));
    cr_expect_eq(wheel_next(&wheel, 12), &entries[0]);
    cr_expect_null(wheel_next(&wheel, 5000));
}

Test(wheel, what_has_passed_is_due_at_the_next_tick)
{
    wheel_init(&wheel, 10);
    wheel_set(&wheel, &entries[0], 3);
    cr_expect_null(wheel_next(&wheel, 10));
    cr_expect_eq(wheel_next(&wheel, 11), &entries[0]);
}

Test(wheel, more_than_a_turn_away_is_not_early)
{
    wheel_init(&wheel, 0);
    wheel_set(&wheel, &entries[0], 3 * WHEEL_SLOTS + 7);
    cr_expect_null(wheel_next(&wheel, 3 * WHEEL_SLOTS + 6));
    cr_expect_eq(wheel_next(&wheel, 3 * WHEEL_SLOTS + 7), &entries[0]);
}

Test(wheel, one_that_is_due_may_be_set_again_while_others_wait)
{
    wheel_init(&wheel, 0);
    wheel_set(&wheel, &entries[0], 1);
    wheel_set(&wheel, &entries[1], 1);
    struct wheel_entry *first = wheel_next(&wheel, 1);
    wheel_set(&wheel, first, 1 + WHEEL_SLOTS); /* the same slot */
    struct wheel_entry *second = wheel_next(&wheel, 1);
    cr_expect(second && second != first);
    cr_expect_null(wheel_next(&wheel, WHEEL_SLOTS));
    cr_expect_eq(wheel_next(&wheel, WHEEL_SLOTS + 1), first);
}

Test(wheel, one_that_is_due_and_cleared_is_not_delivered)
{
    wheel_init(&wheel, 0);
    wheel_set(&wheel, &entries[0], 1);
    wheel_set(&wheel, &entries[1], 1);
    struct wheel_entry *first = wheel_next(&wheel, 1);
    wheel_clear(first == &entries[0] ? &entries[1] : &entries[0]);
    cr_expect_null(wheel_next(&wheel, 1));
    wheel_clear(first);
}

Test(wheel, any_sequence_is_what_a_list_would_do)
{
    uint64_t seed = 11, at[COUNT] = { 0 }, now = 0; /* at: 0 is not set */
    wheel_init(&wheel, 0);
    for (unsigned round = 0; round < 20000; round++) {
        unsigned i = (unsigned)random_below(&seed, COUNT);
        switch (random_below(&seed, 4)) {
        case 0:
            wheel_clear(&entries[i]);
            at[i] = 0;
            break;
        case 1:
            now += random_below(&seed, 40);
            for (struct wheel_entry *due; (due = wheel_next(&wheel, now));) {
                size_t k = (size_t)(due - entries);
                cr_assert(at[k] && at[k] <= now, "entry %zu is due at %lu, not at %lu", k,
                          (unsigned long)at[k], (unsigned long)now);
                at[k] = 0;
            }
            for (unsigned k = 0; k < COUNT; k++)
                cr_assert(!at[k] || at[k] > now, "entry %u was forgotten", k);
            break;
        default:
            at[i] = now + 1 + random_below(&seed, 3 * WHEEL_SLOTS);
            wheel_set(&wheel, &entries[i], at[i]);
            break;
        }
    }
}
