/* Flow control by offset: the edges of 64 bits, and a random exchange between a sender and a
 * receiver whose frames repeat and whose grants arrive late, twice and out of order. */
#include "common/window.h"

#include <criterion/criterion.h>

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

Test(window, available_is_the_distance_to_the_limit)
{
    struct window window;
    window_init(&window, 10, 30);
    cr_expect_eq(window_available(&window), 20);
    window_spend(&window, 20);
    cr_expect_eq(window_available(&window), 0);
    cr_expect_eq(window.sent, 30);
}

Test(window, a_limit_behind_the_sender_leaves_nothing_available)
{
    struct window window;
    window_init(&window, 30, 10);
    cr_expect_eq(window_available(&window), 0);
    window_spend(&window, 0);
    window_grant(&window, 31);
    cr_expect_eq(window_available(&window), 1);
}

Test(window, late_and_repeated_grants_change_nothing)
{
    struct window window;
    window_init(&window, 0, 100);
    window_grant(&window, 200);
    window_grant(&window, 200);
    window_grant(&window, 150);
    window_grant(&window, 0);
    cr_expect_eq(window.limit, 200);
}

Test(window, the_sender_holds_at_the_end_of_64_bits)
{
    struct window window;
    window_init(&window, 0, UINT64_MAX);
    cr_expect_eq(window_available(&window), UINT64_MAX);
    window_spend(&window, UINT64_MAX);
    window_grant(&window, UINT64_MAX);
    cr_expect_eq(window_available(&window), 0);
}

static void expect_receive(struct window_receiver *receiver, uint64_t offset, uint64_t size,
                           uint64_t skip)
{
    uint64_t got = 12345;
    cr_expect_eq(window_receive(receiver, offset, size, &got, NULL), 0);
    cr_expect_eq(got, skip, "skip is %lu, not %lu", got, skip);
}

static void expect_refusal(struct window_receiver *receiver, uint64_t offset, uint64_t size)
{
    struct window_receiver before = *receiver;
    uint64_t skip = 12345;
    struct err err = { 0 };
    cr_expect_eq(window_receive(receiver, offset, size, &skip, &err), -1);
    cr_expect_eq(err.code, ERR_PROTOCOL);
    cr_expect_eq(skip, 12345, "skip was written");
    cr_expect_eq(receiver->received, before.received);
    cr_expect_eq(receiver->granted, before.granted);
}

Test(window, bytes_in_order_need_no_skip)
{
    struct window_receiver receiver;
    window_receiver_init(&receiver, 1000, 100);
    expect_receive(&receiver, 1000, 40, 0);
    expect_receive(&receiver, 1040, 60, 0);
    expect_receive(&receiver, 1100, 0, 0);
    cr_expect_eq(receiver.received, 1100);
}

Test(window, an_overlap_is_skipped)
{
    struct window_receiver receiver;
    window_receiver_init(&receiver, 0, 100);
    expect_receive(&receiver, 0, 50, 0);
    expect_receive(&receiver, 30, 40, 20);
    cr_expect_eq(receiver.received, 70);
    expect_receive(&receiver, 0, 70, 70);
    expect_receive(&receiver, 5, 10, 10);
    cr_expect_eq(receiver.received, 70);
}

Test(window, a_hole_is_refused)
{
    struct window_receiver receiver;
    window_receiver_init(&receiver, 10, 100);
    expect_refusal(&receiver, 11, 1);
    expect_refusal(&receiver, 11, 0);
}

Test(window, one_byte_past_the_grant_is_refused)
{
    struct window_receiver receiver;
    window_receiver_init(&receiver, 10, 100);
    expect_refusal(&receiver, 10, 101);
    expect_receive(&receiver, 10, 100, 0);
    expect_refusal(&receiver, 110, 1);
    expect_refusal(&receiver, 109, 2);
}

Test(window, an_end_that_overflows_is_refused)
{
    struct window_receiver receiver;
    window_receiver_init(&receiver, 10, UINT64_MAX);
    cr_expect_eq(receiver.granted, UINT64_MAX);
    expect_refusal(&receiver, 10, UINT64_MAX);
    expect_refusal(&receiver, 5, UINT64_MAX - 4);
    expect_refusal(&receiver, UINT64_MAX, 1);
    expect_receive(&receiver, 10, UINT64_MAX - 10, 0);
    cr_expect_eq(receiver.received, UINT64_MAX);
    expect_receive(&receiver, UINT64_MAX, 0, 0);
    expect_refusal(&receiver, UINT64_MAX, UINT64_MAX);
}

Test(window, a_grant_is_due_at_half_a_window_rounded_up)
{
    for (uint64_t size = 1; size < 10; size++) {
        struct window_receiver receiver;
        window_receiver_init(&receiver, 7, size);
        expect_receive(&receiver, 7, size, 0);
        uint64_t limit = 12345;
        for (uint64_t taken = 1; taken < (size + 1) / 2; taken++) {
            window_take(&receiver, 1);
            cr_expect_not(window_should_grant(&receiver, &limit), "size %lu", size);
            cr_expect_eq(limit, 12345);
        }
        window_take(&receiver, 1);
        cr_assert(window_should_grant(&receiver, &limit), "size %lu", size);
        cr_expect_eq(limit, 7 + (size + 1) / 2 + size);
        cr_expect_not(window_should_grant(&receiver, &limit));
    }
}

Test(window, nothing_is_granted_before_the_consumer_takes)
{
    struct window_receiver receiver;
    window_receiver_init(&receiver, 0, 100);
    expect_receive(&receiver, 0, 100, 0);
    uint64_t limit;
    cr_expect_not(window_should_grant(&receiver, &limit));
}

Test(window, an_empty_window_never_grants)
{
    struct window_receiver receiver;
    window_receiver_init(&receiver, 5, 0);
    uint64_t limit;
    cr_expect_not(window_should_grant(&receiver, &limit));
    expect_refusal(&receiver, 5, 1);
}

Test(window, grants_saturate_at_the_end_of_64_bits)
{
    struct window_receiver receiver;
    window_receiver_init(&receiver, UINT64_MAX - 150, 100);
    cr_expect_eq(receiver.granted, UINT64_MAX - 50);
    expect_receive(&receiver, UINT64_MAX - 150, 100, 0);
    window_take(&receiver, 100);
    uint64_t limit = 0;
    cr_assert(window_should_grant(&receiver, &limit));
    cr_expect_eq(limit, UINT64_MAX);
    expect_receive(&receiver, UINT64_MAX - 50, 50, 0);
    window_take(&receiver, 50);
    cr_expect_not(window_should_grant(&receiver, &limit));
}

/* One stream, with both of its ends and everything under way between them. */
struct exchange {
    struct window sender;
    struct window_receiver receiver;
    uint64_t start, size;
    uint64_t grants[4]; /* the newest ones, delivered in any order and any number of times */
    unsigned grant_count;
    uint64_t seed;
};

static void send_some(struct exchange *x)
{
    uint64_t available = window_available(&x->sender);
    cr_assert_leq(x->sender.sent + available, x->receiver.granted);
    uint64_t size = available ? next_random(&x->seed) % (available + 1) : 0;
    /* After a resume the sender begins again, up to a window earlier. */
    uint64_t known = x->sender.sent - x->start;
    uint64_t again = next_random(&x->seed) % 4 ? 0 : next_random(&x->seed) % (known + 1);
    uint64_t offset = x->sender.sent - again;
    window_spend(&x->sender, size);
    uint64_t skip;
    cr_assert_eq(window_receive(&x->receiver, offset, again + size, &skip, NULL), 0);
    cr_assert_eq(skip, again);
    cr_assert_eq(x->receiver.received, x->sender.sent);
}

static void send_badly(struct exchange *x)
{
    uint64_t past = x->receiver.granted - x->receiver.received + 1;
    expect_refusal(&x->receiver, x->receiver.received, past + next_random(&x->seed) % 1000);
    expect_refusal(&x->receiver, x->receiver.received + 1 + next_random(&x->seed) % 1000, 1);
}

static void take_some(struct exchange *x)
{
    uint64_t waiting = x->receiver.received - x->receiver.taken;
    window_take(&x->receiver, waiting ? next_random(&x->seed) % (waiting + 1) : 0);
    uint64_t due = x->receiver.taken + x->size - x->receiver.granted;
    uint64_t limit;
    bool granted = window_should_grant(&x->receiver, &limit);
    cr_assert_eq(granted, due >= (x->size + 1) / 2);
    if (granted) {
        cr_assert_eq(limit, x->receiver.taken + x->size);
        x->grants[x->grant_count++ % ELEMENTS(x->grants)] = limit;
    }
}

static void deliver_any_grant(struct exchange *x)
{
    if (x->grant_count == 0)
        return;
    uint64_t before = x->sender.limit;
    uint64_t known = MIN(x->grant_count, ELEMENTS(x->grants));
    uint64_t limit = x->grants[next_random(&x->seed) % known];
    window_grant(&x->sender, limit);
    cr_assert_eq(x->sender.limit, MAX(before, limit));
}

Test(window, random_exchanges_never_pass_the_limit_nor_lose_a_byte)
{
    static void (*const verbs[])(struct exchange *) = { send_some, send_badly, take_some,
                                                        deliver_any_grant };
    for (uint64_t round = 1; round <= 20; round++) {
        struct exchange x = { .seed = round * 0x9e3779b97f4a7c15u };
        x.start = next_random(&x.seed) >> 1;
        x.size = 1 + next_random(&x.seed) % 5000;
        window_init(&x.sender, x.start, x.start + x.size);
        window_receiver_init(&x.receiver, x.start, x.size);
        for (unsigned i = 0; i < 5000; i++) {
            verbs[next_random(&x.seed) % ELEMENTS(verbs)](&x);
            cr_assert_leq(x.sender.limit, x.receiver.granted);
            cr_assert_leq(x.receiver.received - x.receiver.taken, x.size);
        }
        cr_expect_gt(x.grant_count, 100, "the exchange stalled");
    }
}
