/* A command's ledger as the orchestrator sees it: from any offset, as far as the credit goes to the
 * byte, and with a gap for every byte that went. */
#include "tests/unit/command_fixture.h"

#define BIG         (3u << 20)
#define BIG_COMMAND "yes 0123456 | head -c 3145728"

/* The byte at an offset of BIG_COMMAND's output. */
static void expect_pattern(const struct bench *bench, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++)
        cr_assert_eq(bench->bytes[i], (uint8_t) "0123456\n"[i % 8], "at %lu", i);
}

Test(command_output, streams_keep_their_order)
{
    struct bench bench;
    bench_init(&bench);
    /* Each waits for the one before to be read, so that the order is certain. */
    bench.spec.stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
    bench_shell(&bench, "printf one; read x; printf two >&2; read x; printf three", NO_LIMIT);
    Sandstorm__V1__Stdin line = SANDSTORM__V1__STDIN__INIT;
    line.data = (ProtobufCBinaryData){ 1, (uint8_t *)"\n" };
    struct command_refusal refusal;
    UNTIL(&bench, bench.next == 3);
    cr_assert(command_input(bench.command, &line, &refusal));
    UNTIL(&bench, bench.next == 6);
    line.offset = 1;
    cr_assert(command_input(bench.command, &line, &refusal));
    UNTIL(&bench, bench.ended);
    EXPECT_OUTPUT(&bench, "onetwothree");
    cr_expect_arr_eq(bench.streams, ((uint8_t[]){ 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1 }), 11);
    cr_expect_eq(bench.ended->outcome->stdout_bytes, 8u);
    bench_done(&bench);
}

Test(command_output, attaching_begins_at_any_offset_up_to_the_end)
{
    struct bench bench;
    bench_init(&bench);
    (void)bench_run(&bench, "printf 0123456789");
    for (uint64_t from = 0; from <= 10; from++) {
        (void)memset(bench.bytes, '-', 10);
        unsigned before = bench.started;
        cr_assert(bench_attach(&bench, from, NO_LIMIT));
        UNTIL(&bench, bench.ended);
        cr_expect_eq(bench.started, before + 1, "a client that comes back learns the pid");
        cr_expect_arr_eq(bench.bytes + from, &"0123456789"[from], 10 - from);
        cr_expect(from == 0 || bench.bytes[from - 1] == '-');
    }
    cr_expect_not(bench_attach(&bench, 11, NO_LIMIT));
    cr_expect_not(bench_attach(&bench, UINT64_MAX, NO_LIMIT));
    cr_expect_eq(bench.gaps, 0u);
    bench_done(&bench);
}

Test(command_output, credit_is_kept_to_the_byte)
{
    struct bench bench;
    bench_init(&bench);
    bench_shell(&bench, "printf 0123456789", 7);
    UNTIL(&bench, command_state(bench.command) == COMMAND_ENDED);
    cr_expect_eq(bench.next, 7u);
    cr_expect_null(bench.ended, "the end comes after the last byte");
    cr_assert(bench_credit(&bench, 0, 8));
    bench_listen(&bench);
    cr_expect_eq(bench.next, 8u);
    /* Late, repeated, and smaller. */
    cr_assert(bench_credit(&bench, 3, 8));
    cr_assert(bench_credit(&bench, 0, 2));
    bench_listen(&bench);
    cr_expect_eq(bench.next, 8u);
    cr_assert(bench_credit(&bench, 8, 10));
    bench_listen(&bench);
    EXPECT_OUTPUT(&bench, "0123456789");
    cr_expect_not_null(bench.ended);
    bench_done(&bench);
}

Test(command_output, acknowledging_more_than_there_is_is_refused)
{
    struct bench bench;
    bench_init(&bench);
    bench_shell(&bench, "printf 0123456789", 7);
    UNTIL(&bench, command_state(bench.command) == COMMAND_ENDED);
    cr_expect_not(bench_credit(&bench, 11, 11));
    cr_expect_not(bench_credit(&bench, UINT64_MAX, UINT64_MAX));
    bench_listen(&bench);
    cr_expect_eq(bench.next, 7u, "a refused order changed something");
    cr_expect(bench_credit(&bench, 7, UINT64_MAX));
    bench_listen(&bench);
    cr_expect_not_null(bench.ended);
    bench_done(&bench);
}

/* An attach goes back; what an earlier one had sent may be acknowledged all the same. */
Test(command_output, an_acknowledgement_may_overtake_an_attach)
{
    struct bench bench;
    bench_init(&bench);
    (void)bench_run(&bench, "printf 0123456789");
    cr_assert(bench_attach(&bench, 0, 0));
    cr_expect(bench_credit(&bench, 6, NO_LIMIT));
    bench.next = 6;
    bench_listen(&bench);
    cr_expect_eq(bench.next, 10u);
    bench_done(&bench);
}

Test(command_output, what_was_acknowledged_is_let_go_and_named)
{
    struct bench bench;
    bench_init(&bench);
    (void)bench_run(&bench, "printf 0123456789");
    cr_assert(bench_credit(&bench, 4, NO_LIMIT));
    cr_expect_eq(command_spooled(bench.command), 6u);
    Sandstorm__V1__CommandPosition position = SANDSTORM__V1__COMMAND_POSITION__INIT;
    command_position(bench.command, &position);
    cr_expect(position.first_offset == 4 && position.end_offset == 10 && position.ended);
    cr_assert(bench_attach(&bench, 1, NO_LIMIT));
    UNTIL(&bench, bench.ended);
    cr_expect_eq(bench.trimmed, 3u);
    cr_expect_eq(bench.dropped, 0u);
    cr_expect_eq(bench.next, 10u);
    bench_done(&bench);
}

Test(command_output, a_full_spool_stops_the_command_until_there_is_credit)
{
    struct bench bench;
    bench_init(&bench);
    bench.spec.output_policy = SANDSTORM__V1__OUTPUT_POLICY__OUTPUT_POLICY_BLOCK;
    bench_shell(&bench, BIG_COMMAND, 0);
    UNTIL(&bench, command_spooled(bench.command) == SPOOL_BYTES_MAX);
    for (unsigned i = 0; i < 50; i++)
        cr_assert_eq(loop_turn(bench.loop, 1000, NULL), 0);
    cr_expect_eq(command_spooled(bench.command), SPOOL_BYTES_MAX);
    cr_expect_eq(command_state(bench.command), COMMAND_RUNNING);
    for (uint64_t limit = 100000; !bench.ended; limit += 100000) {
        cr_assert(bench_credit(&bench, bench.next, limit));
        UNTIL(&bench, bench.next == MIN(limit, BIG));
        if (limit > BIG)
            UNTIL(&bench, bench.ended);
    }
    cr_expect_eq(bench.next, BIG);
    cr_expect_eq(bench.gaps, 0u);
    expect_pattern(&bench, 0, BIG);
    bench_done(&bench);
}

Test(command_output, drop_oldest_names_every_byte_that_went)
{
    struct bench bench;
    bench_init(&bench);
    bench.spec.output_policy = SANDSTORM__V1__OUTPUT_POLICY__OUTPUT_POLICY_DROP_OLDEST;
    bench_shell(&bench, BIG_COMMAND, 1000);
    UNTIL(&bench, command_state(bench.command) == COMMAND_ENDED);
    cr_assert(bench_credit(&bench, 0, NO_LIMIT));
    UNTIL(&bench, bench.ended);
    cr_expect_eq(bench.ended->end_offset, BIG);
    cr_expect_eq(bench.ended->outcome->stdout_bytes, BIG);
    cr_expect_gt(bench.gaps, 0u);
    cr_expect_eq(bench.trimmed, 0u);
    cr_expect_geq(BIG - bench.dropped, SPOOL_BYTES_MAX / 2, "more went than had to");
    expect_pattern(&bench, BIG - SPOOL_BYTES_MAX / 2, BIG);
    bench_done(&bench);
}

Test(command_output, bytes_held_back_by_a_full_spool_outlast_the_drain)
{
    struct bench bench;
    bench_init(&bench);
    bench.spec.output_policy = SANDSTORM__V1__OUTPUT_POLICY__OUTPUT_POLICY_BLOCK;
    /* As much as spool and pipe hold, so that the leader can leave. */
    bench_shell(&bench, "yes 0123456 | head -c 1100000", 0);
    UNTIL(&bench, bench.command->drain_over);
    cr_expect_eq(command_state(bench.command), COMMAND_DRAINING);
    cr_assert(bench_credit(&bench, 0, NO_LIMIT));
    UNTIL(&bench, bench.next == SPOOL_BYTES_MAX);
    cr_assert(bench_credit(&bench, bench.next, NO_LIMIT));
    UNTIL(&bench, bench.ended);
    cr_expect_eq(bench.next, 1100000u);
    cr_expect_eq(bench.gaps, 0u);
    expect_pattern(&bench, 0, 1100000);
    bench_done(&bench);
}

Test(command_output, without_a_policy_a_detached_command_goes_on_and_drops)
{
    struct bench bench;
    bench_init(&bench);
    bench_shell(&bench, BIG_COMMAND, 0);
    UNTIL(&bench, command_spooled(bench.command) == SPOOL_BYTES_MAX);
    for (unsigned i = 0; i < 50; i++)
        cr_assert_eq(loop_turn(bench.loop, 1000, NULL), 0);
    cr_assert_eq(command_state(bench.command), COMMAND_RUNNING, "it did not wait for its client");
    bench_detach(&bench);
    UNTIL(&bench, command_state(bench.command) == COMMAND_ENDED);
    cr_expect_not(command_has_event(bench.command), "it speaks though nobody listens");
    cr_assert(bench_attach(&bench, bench.next, NO_LIMIT));
    UNTIL(&bench, bench.ended);
    cr_expect_eq(bench.ended->end_offset, BIG);
    cr_expect_gt(bench.dropped, 0u);
    bench_done(&bench);
}

Test(command_output, a_muted_command_says_everything_at_the_next_attach)
{
    struct bench bench;
    bench_init(&bench);
    bench_shell(&bench, "printf 0123456789", 4);
    UNTIL(&bench, bench.next == 4);
    command_mute(bench.command);
    UNTIL(&bench, command_state(bench.command) == COMMAND_ENDED);
    cr_expect_not(command_has_event(bench.command));
    cr_assert(bench_attach(&bench, 2, NO_LIMIT));
    UNTIL(&bench, bench.ended);
    EXPECT_OUTPUT(&bench, "0123456789");
    bench_done(&bench);
}
