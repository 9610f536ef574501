/* The order of changes: whoever looks sees each thing once, as late as it likes. */
#include "orchestrator/changes.h"

#include "common/macros.h"
#include "tests/unit/random.h"

#include <criterion/criterion.h>

#define COUNT 16u

static struct changes changes;
static struct change items[COUNT];
static unsigned woken;

static void on_change(struct watch *watch)
{
    (void)watch;
    woken++;
}

Test(changes, wake_those_who_watch_until_they_stop)
{
    struct watch first = { .fn = on_change }, second = { .fn = on_change };
    watch_start(&changes.watches, &first);
    watch_start(&changes.watches, &second);
    changes_note(&changes, &items[0]);
    cr_expect_eq(woken, 2u);
    watch_stop(&second);
    watch_stop(&second);
    changes_note(&changes, &items[0]);
    cr_expect_eq(woken, 3u);
    watch_stop(&first);
    cr_expect_null(changes.watches);
}

Test(changes, are_seen_once_each_in_order_from_wherever_one_was)
{
    uint64_t seed = 3, last[COUNT] = { 0 }, now = 0;
    for (unsigned round = 0; round < 5000; round++) {
        unsigned i = (unsigned)random_below(&seed, COUNT);
        if (random_below(&seed, 8) == 0) {
            changes_drop(&changes, &items[i]);
            last[i] = 0;
        } else {
            changes_note(&changes, &items[i]);
            last[i] = ++now;
        }
        uint64_t since = random_below(&seed, now + 2), before = since;
        unsigned expected = 0, seen = 0;
        for (unsigned k = 0; k < COUNT; k++)
            expected += last[k] > since;
        for (const struct change *one = changes_after(&changes, since); one; one = one->newer) {
            cr_assert(one->seq > before);
            cr_assert_eq(one->seq, last[one - items]);
            before = one->seq;
            seen++;
        }
        cr_assert_eq(seen, expected);
    }
}
