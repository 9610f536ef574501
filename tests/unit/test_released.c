/* The memory of ids that were used: the newest RELEASED_MAX, each once. */
#include "agent/released.h"

#include <criterion/criterion.h>
#include <stdio.h>

static struct command_id number(unsigned i)
{
    struct command_id id;
    (void)snprintf(id.text, sizeof(id.text), "%08x-7f0e-4a53-9c55-3d7a1f2e9b10", i);
    return id;
}

static void add(struct released *released, unsigned i)
{
    struct command_id id = number(i);
    released_add(released, &id);
}

static bool has(const struct released *released, unsigned i)
{
    struct command_id id = number(i);
    return released_has(released, &id);
}

Test(released, the_oldest_id_makes_room_for_the_newest)
{
    struct err err = { 0 };
    struct released *released;
    cr_assert_eq(released_new(&released, &err), 0, "%s", err.text);
    cr_expect_not(has(released, 0));
    for (unsigned i = 0; i < 2 * RELEASED_MAX + 5; i++) {
        add(released, i);
        cr_assert(has(released, i));
        cr_assert_eq(i >= RELEASED_MAX, !has(released, i - MIN(i, RELEASED_MAX)));
    }
    for (unsigned i = 0; i < 2 * RELEASED_MAX + 5; i++)
        cr_assert_eq(has(released, i), i >= RELEASED_MAX + 5, "%u", i);
    released_free(released);
}

Test(released, an_id_that_comes_twice_takes_one_place)
{
    struct err err = { 0 };
    struct released *released;
    cr_assert_eq(released_new(&released, &err), 0, "%s", err.text);
    add(released, 1);
    for (unsigned i = 0; i < 100; i++)
        add(released, 2);
    for (unsigned i = 3; i <= RELEASED_MAX; i++)
        add(released, i);
    cr_expect(has(released, 1) && has(released, 2));
    add(released, RELEASED_MAX + 1);
    cr_expect(!has(released, 1) && has(released, 2));
    released_free(released);
    released_free(NULL);
}
