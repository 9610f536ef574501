/* The ledger as its callers see it: what is appended comes back, from every offset, in the order
 * and of the kind that it was; what does not follow on is refused; what is forgotten stays away. */
#include "ledger_fixture.h"

#include "common/crc32c.h"

/* cppcheck-suppress unknownMacro */
TestSuite(ledger_log, .init = set_up, .fini = tear_down, .timeout = 120);

Test(ledger_log, a_checksum_is_the_one_of_the_standard)
{
    const uint8_t zeros[32] = { 0 };
    cr_expect_eq(crc32c(0, "123456789", 9), 0xe3069283);
    cr_expect_eq(crc32c(0, zeros, sizeof(zeros)), 0x8a9136aa); /* RFC 3720, B.4 */
    cr_expect_eq(crc32c(crc32c(0, "1234", 4), "56789", 5), 0xe3069283);
}

Test(ledger_log, a_run_is_what_was_packed_and_nothing_else_is_one)
{
    uint8_t bytes[LEDGER_RUN_HEADER + 3] = { 0 };
    const uint8_t *at = bytes, *data;
    enum ledger_kind kind;
    uint64_t size;
    ledger_run_pack(bytes, LEDGER_STDERR, 3);
    OK(ledger_run_next(&at, bytes + sizeof(bytes), &kind, &size, &data));
    cr_expect(kind == LEDGER_STDERR && size == 3 && data == bytes + LEDGER_RUN_HEADER);
    cr_expect_eq(at, bytes + sizeof(bytes));
    cr_expect_eq(ledger_run_next(&at, at, &kind, &size, &data), -1, "at the end");

    for (size_t cut = 0; cut < sizeof(bytes); cut++) {
        at = bytes;
        cr_expect_eq(ledger_run_next(&at, bytes + cut, &kind, &size, &data), -1, "cut at %zu", cut);
    }
    at = bytes;
    ledger_run_pack(bytes, LEDGER_DROPPED, UINT64_MAX);
    OK(ledger_run_next(&at, bytes + LEDGER_RUN_HEADER, &kind, &size, &data));
    cr_expect(kind == LEDGER_DROPPED && size == UINT64_MAX && !data);
    for (unsigned bad = 0; bad < 256; bad++) {
        at = bytes;
        ledger_run_pack(bytes, bad, 1);
        bool good = bad >= LEDGER_STDOUT && bad <= LEDGER_DAMAGED;
        cr_expect_eq(ledger_run_next(&at, bytes + sizeof(bytes), &kind, &size, &data),
                     good ? 0 : -1);
    }
    at = bytes;
    ledger_run_pack(bytes, LEDGER_STDOUT, 0);
    cr_expect_eq(ledger_run_next(&at, bytes + sizeof(bytes), &kind, &size, &data), -1, "empty");
}

Test(ledger_log, runs_can_be_cut_anywhere)
{
    enum { LENGTH = 5 * STRIPE };
    static uint8_t whole[LENGTH * 10], cut[LENGTH * 10];
    size_t size = make_runs(1, 1000, 1000 + LENGTH, whole);
    for (uint64_t skip = 0; skip < LENGTH; skip += 7)
        for (uint64_t length = 1; skip + length <= LENGTH; length += 11) {
            struct gaps gaps = { 0 };
            memcpy(cut, whole, size);
            size_t left = ledger_runs_cut(cut, size, skip, length);
            cr_assert_leq(left, size);
            cr_assert(ledger_runs_cover(cut, left, length));
            cr_assert_eq(judge_runs(1, 1000 + skip, cut, left, &gaps), 1000 + skip + length);
        }
}

Test(ledger_log, what_is_appended_comes_back_from_every_offset)
{
    open_ledger();
    append(1, 0, 300);
    append(2, 0, 50);
    append(1, 300, 1000);
    for (uint64_t offset = 0; offset <= 1000; offset++) {
        struct gaps gaps = { 0 };
        cr_assert_eq(read_once(1, offset, &gaps), 1000);
        cr_assert_eq(gaps.trimmed + gaps.damaged, 0);
    }
    expect_whole(2, 0, 50);
}

Test(ledger_log, what_is_appended_is_there_after_a_restart)
{
    open_ledger();
    for (unsigned i = 0; i < 40; i++)
        append(i % 4, i / 4 * 5000, (i / 4 + 1) * 5000);
    reopen_ledger();
    for (unsigned i = 0; i < 4; i++) {
        expect_whole(i, 0, 50000);
        append(i, 50000, 50001);
        expect_whole(i, 0, 50001);
    }
}

Test(ledger_log, a_block_of_the_largest_size_fits_into_the_smallest_read)
{
    open_ledger();
    uint8_t *runs = malloc(LEDGER_BLOCK_MAX);
    struct one_append one = { .runs = runs };
    const uint64_t length = LEDGER_BLOCK_MAX - LEDGER_RUN_HEADER;
    ledger_run_pack(runs, LEDGER_STDOUT, length);
    memset(runs + LEDGER_RUN_HEADER, 'x', length);
    one.append = (struct ledger_append){ .id = id_of(1),
                                         .offset = 100,
                                         .end = 100 + length,
                                         .runs = runs,
                                         .size = LEDGER_BLOCK_MAX,
                                         .done = append_done };
    OK(ledger_log_append(ledger, &one.append, &err));
    wait_for(&one.done);
    OK(one.append.result);
    uint8_t *out = malloc(LEDGER_READ_MIN);
    struct one_read read = {
        .read = { .id = id_of(1), .out = out, .capacity = LEDGER_READ_MIN, .done = read_done }
    };
    OK(ledger_log_read(ledger, &read.read, &err));
    wait_for(&read.done);
    OK(read.read.result);
    cr_expect_eq(read.read.ret_end, 100 + length);
    cr_expect_eq(read.read.size, LEDGER_BLOCK_MAX + LEDGER_RUN_HEADER, "the hole before it");
    cr_expect_eq(memcmp(out + LEDGER_RUN_HEADER, runs, LEDGER_BLOCK_MAX), 0);
    free(out);
    free(runs);
}

Test(ledger_log, a_hole_reads_as_trimmed_also_after_a_restart)
{
    open_ledger();
    append(1, 100, 200);
    append(1, 500, 600);
    for (unsigned round = 0; round < 2; round++) {
        struct gaps gaps;
        uint64_t first, end;
        const struct command_id id = id_of(1);
        cr_assert(ledger_log_range(ledger, &id, &first, &end));
        cr_expect(first == 100 && end == 600);
        cr_expect_eq(read_to_end(1, 0, &gaps), 600);
        cr_expect_eq(gaps.trimmed, 100 + 300);
        cr_expect_eq(gaps.damaged, 0);
        reopen_ledger();
    }
}

Test(ledger_log, what_is_there_already_is_refused_also_while_it_waits)
{
    open_ledger();
    append(1, 0, 100);
    FAILS(try_append(1, 99, 200), ERR_INVALID);
    FAILS(try_append(1, 0, 100), ERR_INVALID);
    struct one_append first, again;
    prepare_append(&first, 1, 100, 200);
    prepare_append(&again, 1, 150, 250);
    OK(ledger_log_append(ledger, &first.append, &err));
    FAILS(ledger_log_append(ledger, &again.append, &err), ERR_INVALID);
    wait_for(&first.done);
    OK(first.append.result);
    free(first.runs);
    free(again.runs);
    expect_whole(1, 0, 200);
}

Test(ledger_log, what_is_no_sequence_of_runs_is_refused)
{
    open_ledger();
    uint8_t runs[64];
    size_t size = make_runs(1, 0, 20, runs);
    struct one_append one;
    prepare_append(&one, 1, 0, 20);
    one.append.end = 21;
    FAILS(ledger_log_append(ledger, &one.append, &err), ERR_INVALID);
    one.append.end = 0;
    FAILS(ledger_log_append(ledger, &one.append, &err), ERR_INVALID);
    one.append.end = 20;
    one.append.size = size - 1;
    FAILS(ledger_log_append(ledger, &one.append, &err), ERR_INVALID);
    one.append.size = LEDGER_BLOCK_MAX + 1;
    FAILS(ledger_log_append(ledger, &one.append, &err), ERR_INVALID);
    one.append.size = 0;
    FAILS(ledger_log_append(ledger, &one.append, &err), ERR_INVALID);
    free(one.runs);
    expect_none(1);
}

Test(ledger_log, a_command_that_nobody_knows_has_nothing)
{
    open_ledger();
    expect_none(1);
    const struct command_id id = id_of(1);
    ledger_log_trim(ledger, &id, 100);
    ledger_log_forget(ledger, &id);
    expect_none(1);
    cr_expect_eq(ledger_log_busy_us(ledger), 0);
}

Test(ledger_log, nothing_comes_back_at_the_end_or_beyond_it)
{
    open_ledger();
    append(1, 0, 10);
    struct gaps gaps = { 0 };
    cr_expect_eq(read_once(1, 10, &gaps), 10);
    cr_expect_eq(read_once(1, 11, &gaps), 11);
    cr_expect_eq(read_once(1, UINT64_MAX - 1, &gaps), UINT64_MAX - 1);
}

Test(ledger_log, what_is_trimmed_reads_as_trimmed)
{
    open_ledger();
    append(1, 0, 1000);
    append(1, 1000, 2000);
    const struct command_id id = id_of(1);
    ledger_log_trim(ledger, &id, 1500);
    expect_whole(1, 1500, 2000);
    struct gaps gaps;
    cr_expect_eq(read_to_end(1, 0, &gaps), 2000);
    cr_expect_eq(gaps.trimmed, 1500);
    ledger_log_trim(ledger, &id, 100);
    expect_whole(1, 1500, 2000);
    ledger_log_trim(ledger, &id, 1000000);
    expect_none(1);
    append(1, 2000, 2100);
    expect_whole(1, 2000, 2100);
}

Test(ledger_log, what_is_forgotten_stays_away)
{
    open_ledger();
    append(1, 0, 1000);
    append(2, 0, 1000);
    const struct command_id id = id_of(1);
    ledger_log_forget(ledger, &id);
    expect_none(1);
    reopen_ledger();
    expect_none(1);
    expect_whole(2, 0, 1000);
}

Test(ledger_log, an_id_that_was_forgotten_may_begin_again)
{
    open_ledger();
    append(1, 0, 1000);
    const struct command_id id = id_of(1);
    ledger_log_forget(ledger, &id);
    append(1, 0, 10);
    expect_whole(1, 0, 10);
    reopen_ledger();
    expect_whole(1, 0, 10);
    append(1, 10, 20);
    expect_whole(1, 0, 20);
}

Test(ledger_log, forgetting_what_waits_leaves_nothing_of_it)
{
    enum { COUNT = 200 };
    static struct one_append appends[COUNT];
    open_ledger();
    const struct command_id id = id_of(1);
    for (unsigned i = 0; i < COUNT; i++) {
        prepare_append(&appends[i], 1, i * 100, (i + 1) * 100);
        OK(ledger_log_append(ledger, &appends[i].append, &err));
    }
    ledger_log_forget(ledger, &id);
    append(1, 0, 7);
    for (unsigned i = 0; i < COUNT; i++) {
        wait_for(&appends[i].done);
        if (appends[i].append.result < 0)
            cr_assert_eq(appends[i].append.err.code, ERR_CANCELLED);
        free(appends[i].runs);
    }
    expect_whole(1, 0, 7);
    reopen_ledger();
    expect_whole(1, 0, 7);
}

Test(ledger_log, many_appends_of_many_commands_share_batches_and_stay_in_order)
{
    enum { COMMANDS = 500, EACH = 8 };
    static struct one_append appends[COMMANDS * EACH];
    open_ledger();
    for (unsigned i = 0; i < COMMANDS * EACH; i++) {
        unsigned nth = i / COMMANDS;
        prepare_append(&appends[i], i % COMMANDS, nth * 40, (nth + 1) * 40);
        OK(ledger_log_append(ledger, &appends[i].append, &err));
    }
    for (unsigned i = 0; i < COMMANDS * EACH; i++) {
        wait_for(&appends[i].done);
        OK(appends[i].append.result);
        free(appends[i].runs);
    }
    for (unsigned i = 0; i < COMMANDS; i++)
        expect_whole(i, 0, 40 * EACH);
    reopen_ledger();
    for (unsigned i = 0; i < COMMANDS; i++)
        expect_whole(i, 0, 40 * EACH);
}

/* A queue that the disk does not empty, because the loop does not turn and nothing is given back,
 * is bounded all the same. */
Test(ledger_log, a_queue_that_is_full_refuses_and_is_free_again_afterwards)
{
    enum { SIZE = 200 * 1024, COUNT = LEDGER_QUEUE_MAX / SIZE * 64 };
    config.total_max = UINT64_C(1) << 40;
    open_ledger();
    uint8_t *runs = malloc(SIZE);
    static struct one_append appends[COUNT];
    ledger_run_pack(runs, LEDGER_STDOUT, SIZE - LEDGER_RUN_HEADER);
    memset(runs + LEDGER_RUN_HEADER, 'x', SIZE - LEDGER_RUN_HEADER);
    unsigned count = 0;
    int r = 0;
    for (; count < COUNT; count++) {
        uint64_t offset = (uint64_t)count * (SIZE - LEDGER_RUN_HEADER);
        appends[count].append = (struct ledger_append){ .id = id_of(1),
                                                        .offset = offset,
                                                        .end = offset + SIZE - LEDGER_RUN_HEADER,
                                                        .runs = runs,
                                                        .size = SIZE,
                                                        .done = append_done };
        r = ledger_log_append(ledger, &appends[count].append, &err);
        if (r < 0)
            break;
    }
    cr_assert_eq(r, -1, "the disk was faster than memory");
    cr_assert_eq(err.code, ERR_EXHAUSTED);
    cr_assert_geq(count, LEDGER_QUEUE_MAX / SIZE - 1);
    for (unsigned i = 0; i < count; i++)
        wait_for(&appends[i].done);
    OK(ledger_log_append(ledger, &appends[count].append, &err));
    wait_for(&appends[count].done);
    OK(appends[count].append.result);
    free(runs);
}

Test(ledger_log, freeing_writes_what_waits)
{
    static struct one_append appends[100];
    open_ledger();
    for (unsigned i = 0; i < ELEMENTS(appends); i++) {
        prepare_append(&appends[i], 1, i * 1000, (i + 1) * 1000);
        OK(ledger_log_append(ledger, &appends[i].append, &err));
    }
    close_ledger();
    for (unsigned i = 0; i < ELEMENTS(appends); i++) {
        cr_assert(appends[i].done);
        OK(appends[i].append.result);
        free(appends[i].runs);
    }
    open_ledger();
    expect_whole(1, 0, 100000);
}

static struct one_append last_words;

static void append_more(struct ledger_append *append_)
{
    append_done(append_);
    prepare_append(&last_words, 1, 10, 30);
    OK(ledger_log_append(ledger, &last_words.append, &err));
}

Test(ledger_log, what_is_appended_while_freeing_is_written_too)
{
    struct one_append first;
    open_ledger();
    prepare_append(&first, 1, 0, 10);
    first.append.done = append_more;
    OK(ledger_log_append(ledger, &first.append, &err));
    close_ledger();
    cr_assert(first.done && last_words.done);
    OK(last_words.append.result);
    free(first.runs);
    free(last_words.runs);
    open_ledger();
    expect_whole(1, 0, 30);
}

/* A word now and then among much output of others: one read does not hold the thread for as long as
 * it takes to look through all of it. */
Test(ledger_log, a_read_of_few_bytes_among_many_comes_in_pieces)
{
    enum { WORDS = 12, OTHERS = 20 };
    static struct one_append appends[OTHERS];
    uint8_t *runs = malloc(LEDGER_BLOCK_MAX);
    const uint64_t length = LEDGER_BLOCK_MAX - LEDGER_RUN_HEADER;
    ledger_run_pack(runs, LEDGER_STDOUT, length);
    memset(runs + LEDGER_RUN_HEADER, 'x', length);
    config.total_max = UINT64_C(1) << 30;
    open_ledger();
    for (unsigned i = 0; i < WORDS; i++) {
        append(1, i * 10, (i + 1) * 10);
        for (unsigned j = 0; j < OTHERS; j++) {
            uint64_t offset = (i * OTHERS + j) * length;
            appends[j] = (struct one_append){ .append = { .id = id_of(2),
                                                          .offset = offset,
                                                          .end = offset + length,
                                                          .runs = runs,
                                                          .size = LEDGER_BLOCK_MAX,
                                                          .done = append_done } };
            OK(ledger_log_append(ledger, &appends[j].append, &err));
        }
        for (unsigned j = 0; j < OTHERS; j++)
            wait_for(&appends[j].done);
    }
    struct gaps gaps = { 0 };
    uint64_t end = read_once(1, 0, &gaps);
    cr_expect(end > 0 && end < WORDS * 10, "%lu", end);
    expect_whole(1, 0, WORDS * 10);
    free(runs);
}

Test(ledger_log, many_reads_that_wait_are_all_served_in_order)
{
    enum { COUNT = LEDGER_READS_MAX };
    static struct one_read reads[COUNT + 1];
    static uint8_t out[LEDGER_READ_MIN];
    open_ledger();
    append(1, 0, 100);
    unsigned accepted = 0;
    for (; accepted <= COUNT; accepted++) {
        reads[accepted].read = (struct ledger_read){ .id = id_of(1),
                                                     .offset = accepted % 100,
                                                     .out = out,
                                                     .capacity = sizeof(out),
                                                     .done = read_done };
        if (ledger_log_read(ledger, &reads[accepted].read, &err) < 0)
            break;
    }
    cr_assert(accepted > COUNT || err.code == ERR_EXHAUSTED);
    for (unsigned i = 0; i < accepted; i++) {
        wait_for(&reads[i].done);
        OK(reads[i].read.result);
        cr_assert_eq(reads[i].read.ret_end, 100);
    }
}

Test(ledger_log, bounds_that_make_no_sense_are_refused)
{
    config.segment_bytes = LEDGER_SEGMENT_MIN - 1;
    FAILS(ledger_log_open(&config, &ledger, &err), ERR_INVALID);
    config.segment_bytes = UINT64_C(1) << 32;
    FAILS(ledger_log_open(&config, &ledger, &err), ERR_INVALID);
    config.segment_bytes = 0;
    config.total_max = LEDGER_SEGMENT_DEFAULT * UINT64_C(4) - 1;
    FAILS(ledger_log_open(&config, &ledger, &err), ERR_INVALID);
}

Test(ledger_log, the_bytes_are_those_of_the_files)
{
    config.segment_bytes = LEDGER_SEGMENT_MIN;
    open_ledger();
    for (unsigned i = 0; i < 100; i++)
        append(1, i * 5000, (i + 1) * 5000);
    uint64_t bytes = 0;
    struct stat st;
    for (uint32_t number = 1; stat(segment_path(number), &st) == 0; number++)
        bytes += (uint64_t)st.st_size;
    cr_expect_gt(bytes, 2 * LEDGER_SEGMENT_MIN);
    cr_expect_eq(ledger_log_bytes(ledger), bytes);
    reopen_ledger();
    cr_expect_eq(ledger_log_bytes(ledger), bytes);
}
