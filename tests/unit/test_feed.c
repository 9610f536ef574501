/* The bookkeeping of a command's input: every byte once and in order, whatever breaks in between.
 */
#include "client/feed.h"
#include "tests/unit/random.h"

#include <criterion/criterion.h>
#include <string.h>

#define OK(call) cr_assert_eq((call), 0, "%s", err.text)
#define TOTAL    200000u
#define WINDOW   (64u * 1024)

static struct err err;
static struct feed feed;
static struct feed_piece piece;
static uint8_t data[TOTAL];

static void setup(void)
{
    uint64_t seed = 7;
    for (size_t i = 0; i < TOTAL; i++)
        data[i] = (uint8_t)next_random(&seed);
}

static void teardown(void)
{
    feed_done(&feed);
}

/* cppcheck-suppress unknownMacro */
TestSuite(feed, .init = setup, .fini = teardown);

static void assert_piece(uint64_t offset, size_t size, bool eof)
{
    cr_assert(feed_next(&feed, &piece));
    cr_assert_eq(piece.offset, offset, "%llu", (unsigned long long)piece.offset);
    cr_assert_eq(piece.size, size, "%zu", piece.size);
    cr_assert_eq(piece.eof, eof);
}

static void push(uint64_t offset, size_t size)
{
    cr_assert_geq(feed_room(&feed), size);
    OK(feed_push(&feed, data + offset, size, &err));
}

Test(feed, nothing_is_read_or_sent_before_the_sandbox_has_spoken)
{
    feed_init(&feed, true);
    cr_assert_eq(feed_room(&feed), 0u);
    cr_assert_not(feed_next(&feed, &piece));
    OK(feed_credit(&feed, 10, 0, 0, &err));
    cr_assert_eq(feed_room(&feed), 10u);
    push(0, 10);
    cr_assert_eq(feed_room(&feed), 0u);
    assert_piece(0, 10, false);
    cr_assert_not(feed_next(&feed, &piece));
}

Test(feed, what_the_sandbox_has_not_got_is_sent_again)
{
    feed_init(&feed, true);
    OK(feed_credit(&feed, 100, 0, 0, &err));
    push(0, 60);
    assert_piece(0, 60, false);
    OK(feed_credit(&feed, 100, 25, 0, &err));
    feed_cut(&feed);
    cr_assert_eq(feed_room(&feed), 0u);
    cr_assert_not(feed_next(&feed, &piece));
    OK(feed_credit(&feed, 100, 40, 0, &err));
    assert_piece(40, 20, false);
    cr_assert_arr_eq(piece.data, data + 40, 20);
    cr_assert_not(feed_next(&feed, &piece));
}

Test(feed, the_end_is_said_again_too)
{
    feed_init(&feed, true);
    OK(feed_credit(&feed, 100, 0, 0, &err));
    push(0, 30);
    OK(feed_push(&feed, NULL, 0, &err));
    cr_assert_eq(feed_room(&feed), 0u);
    assert_piece(0, 30, true);
    cr_assert_not(feed_next(&feed, &piece));
    feed_cut(&feed);
    OK(feed_credit(&feed, 100, 30, 0, &err));
    assert_piece(30, 0, true);
    cr_assert_not(feed_next(&feed, &piece));
}

Test(feed, an_old_credit_changes_nothing)
{
    feed_init(&feed, true);
    OK(feed_credit(&feed, 100, 0, 0, &err));
    push(0, 60);
    assert_piece(0, 60, false);
    OK(feed_credit(&feed, 160, 60, 60, &err));
    OK(feed_credit(&feed, 100, 20, 20, &err));
    cr_assert_eq(feed_room(&feed), 100u);
    push(60, 5);
    assert_piece(60, 5, false);
}

Test(feed, a_sandbox_that_has_less_than_it_said_breaks_the_rules)
{
    feed_init(&feed, true);
    OK(feed_credit(&feed, 100, 0, 0, &err));
    push(0, 60);
    OK(feed_credit(&feed, 160, 60, 60, &err));
    feed_cut(&feed);
    cr_assert_eq(feed_credit(&feed, 160, 20, 20, &err), -1);
    cr_assert_eq(err.code, ERR_PROTOCOL);
}

Test(feed, an_attach_goes_on_behind_what_is_under_way)
{
    feed_init(&feed, false);
    OK(feed_credit(&feed, 1100, 400, 1000, &err));
    push(0, 7);
    assert_piece(1000, 7, false);
    cr_assert_arr_eq(piece.data, data, 7);
    /* The runner has what the others sent, and then ours. */
    OK(feed_credit(&feed, 1100, 1000, 1007, &err));
    OK(feed_credit(&feed, 1100, 1003, 1007, &err));
    feed_cut(&feed);
    OK(feed_credit(&feed, 1100, 1003, 1003, &err));
    assert_piece(1003, 4, false);
    cr_assert_arr_eq(piece.data, data + 3, 4);
}

Test(feed, ours_moves_up_where_what_others_had_sent_was_lost)
{
    feed_init(&feed, false);
    OK(feed_credit(&feed, 1100, 400, 1000, &err));
    push(0, 7);
    assert_piece(1000, 7, false);
    feed_cut(&feed);
    OK(feed_credit(&feed, 500, 400, 400, &err));
    assert_piece(400, 7, false);
    cr_assert_arr_eq(piece.data, data, 7);
}

Test(feed, a_start_that_is_repeated_passes_over_what_is_there)
{
    feed_init(&feed, true);
    OK(feed_credit(&feed, 200, 100, 0, &err));
    push(0, 64);
    cr_assert_not(feed_next(&feed, &piece));
    cr_assert_eq(feed_room(&feed), 36u);
    push(64, 36);
    push(100, 50);
    assert_piece(100, 50, false);
    cr_assert_arr_eq(piece.data, data + 100, 50);
}

Test(feed, an_input_that_ends_before_what_is_there_ends_there)
{
    feed_init(&feed, true);
    OK(feed_credit(&feed, 200, 100, 0, &err));
    push(0, 10);
    OK(feed_push(&feed, NULL, 0, &err));
    assert_piece(100, 0, true);
}

Test(feed, what_others_have_written_is_stepped_over_when_nothing_of_ours_is_lost)
{
    feed_init(&feed, true);
    OK(feed_credit(&feed, 200, 0, 0, &err));
    push(0, 10);
    assert_piece(0, 10, false);
    OK(feed_credit(&feed, 200, 10, 10, &err));
    feed_cut(&feed);
    OK(feed_credit(&feed, 200, 10, 40, &err));
    push(10, 5);
    assert_piece(40, 5, false);
    cr_assert_arr_eq(piece.data, data + 10, 5);
    /* These five are not safe yet, and somebody has written behind where they belong. */
    feed_cut(&feed);
    cr_assert_eq(feed_credit(&feed, 200, 40, 60, &err), -1);
    cr_assert_eq(err.code, ERR_PRECONDITION);
}

Test(feed, credits_from_the_far_end_of_the_numbers_do_no_harm)
{
    feed_init(&feed, false);
    OK(feed_credit(&feed, UINT64_MAX, UINT64_MAX - 5, 0, &err));
    push(0, 5);
    cr_assert_eq(feed_room(&feed), 0u);
    assert_piece(UINT64_MAX - 5, 5, false);
    feed_done(&feed);
    feed_init(&feed, true);
    OK(feed_credit(&feed, UINT64_MAX, 0, 0, &err));
    cr_assert_eq(feed_room(&feed), FEED_MAX);
}

/* A sandbox that keeps what reaches it, behind a connection that loses what is under way. */
static void carry_through_cuts(uint64_t seed)
{
    static uint8_t got[TOTAL];
    size_t total = random_below(&seed, TOTAL), pushed = 0, received = 0;
    bool eof_pushed = false, eof = false;
    feed_init(&feed, true);
    while (!eof) {
        uint64_t limit = received + random_below(&seed, WINDOW + 1);
        switch (random_below(&seed, 8)) {
        case 0:
            feed_cut(&feed);
            break;
        case 1:
            OK(feed_credit(&feed, limit, received, 0, &err));
            break;
        case 2: /* late: only what was under way on this connection can be */
            if (feed.ready)
                OK(feed_credit(&feed, limit, random_below(&seed, received + 1), 0, &err));
            break;
        case 3:
        case 4:
        case 5: {
            size_t room = feed_room(&feed), size = random_below(&seed, room + 1);
            size = MIN(size, total - pushed);
            if (size > 0) {
                push(pushed, size);
                pushed += size;
            } else if (pushed == total && room > 0 && !eof_pushed) {
                OK(feed_push(&feed, NULL, 0, &err));
                eof_pushed = true;
            }
            break;
        }
        default:
            if (!feed_next(&feed, &piece))
                break;
            if (random_below(&seed, 8) == 0) {
                feed_cut(&feed); /* lost on the way, with all that would follow */
                break;
            }
            cr_assert_leq(piece.offset, received, "a hole");
            cr_assert_leq(piece.offset + piece.size, (uint64_t)total);
            if (piece.offset + piece.size > received) {
                size_t known = received - piece.offset;
                (void)memcpy(got + received, piece.data + known, piece.size - known);
                received = piece.offset + piece.size;
            }
            eof = piece.eof && received == total;
            continue;
        }
    }
    cr_assert_eq(received, total);
    cr_assert_arr_eq(got, data, total);
    feed_done(&feed);
}

Test(feed, every_byte_arrives_once_through_random_cuts)
{
    for (uint64_t seed = 1; seed <= 200; seed++)
        carry_through_cuts(seed * 0x9e3779b97f4a7c15u);
    feed_init(&feed, true);
}
