/* What the ledger keeps and what goes: by size, by age, by command, and without one command's
 * output pushing out that of all others. */
#include "ledger_fixture.h"

#include <sys/syscall.h>

static atomic_int clock_jump_s;

/* The wall clock can be set in this binary. */
int clock_gettime(clockid_t id, struct timespec *now)
{
    int r = (int)syscall(SYS_clock_gettime, id, now);
    if (id == CLOCK_REALTIME)
        now->tv_sec += atomic_load(&clock_jump_s);
    return r;
}

static void set_up_small(void)
{
    set_up();
    config.segment_bytes = LEDGER_SEGMENT_MIN;
    config.total_max = 16 * LEDGER_SEGMENT_MIN;
}

/* cppcheck-suppress unknownMacro */
TestSuite(ledger_retain, .init = set_up_small, .fini = tear_down, .timeout = 240);

static uint64_t first_of(unsigned command)
{
    const struct command_id id = id_of(command);
    uint64_t first = 0, end = 0;
    return ledger_log_range(ledger, &id, &first, &end) ? first : UINT64_MAX;
}

static void forget(unsigned command)
{
    const struct command_id id = id_of(command);
    ledger_log_forget(ledger, &id);
}

/* The thread works by itself on what nobody wants any more; its reads tell when it went on. */
static void wait_for_bytes(uint64_t most)
{
    uint64_t deadline = monotonic_us() + DEADLINE_US;
    while (ledger_log_bytes(ledger) > most) {
        cr_assert_lt(monotonic_us(), deadline, "%lu bytes", ledger_log_bytes(ledger));
        let_it_turn();
    }
}

Test(ledger_retain, the_oldest_output_goes_when_there_is_too_much)
{
    open_ledger();
    for (unsigned i = 0; i < 400; i++) {
        append(1, (uint64_t)i * 8000, (uint64_t)(i + 1) * 8000);
        cr_assert_leq(ledger_log_bytes(ledger), config.total_max);
    }
    uint64_t first = first_of(1);
    cr_assert_gt(first, 0);
    cr_assert_lt(first, 400 * 8000 - 8 * LEDGER_SEGMENT_MIN);
    expect_whole(1, first, 400 * 8000);
    struct gaps gaps;
    cr_assert_eq(read_to_end(1, 0, &gaps), 400 * 8000);
    cr_assert_eq(gaps.trimmed, first);
    reopen_ledger();
    expect_whole(1, first, 400 * 8000);
}

Test(ledger_retain, of_a_command_its_last_bytes_are_kept)
{
    config.command_max = 100000;
    open_ledger();
    for (unsigned i = 0; i < 300; i++) {
        append(1, i * 1000, (i + 1) * 1000);
        cr_assert_eq(first_of(1), i < 100 ? 0 : (i + 1) * 1000 - 100000);
    }
    expect_whole(1, 200000, 300000);
    wait_for_bytes(100000 * 2 + 3 * LEDGER_SEGMENT_MIN);
    expect_whole(1, 200000, 300000);
    reopen_ledger();
    expect_whole(1, 200000, 300000);
}

/* Thirty quiet commands, and one that prints forty times what there is room for. */
Test(ledger_retain, a_flood_pushes_out_its_own_output_and_nobody_elses)
{
    config.command_max = 4 * LEDGER_SEGMENT_MIN;
    open_ledger();
    uint64_t offset = 0;
    for (unsigned i = 0; i < 30; i++) {
        append(100 + i, 0, 500);
        for (unsigned j = 0; j < 100; j++, offset += 12000)
            append(1, offset, offset + 12000);
        append(100 + i, 500, 1000);
        cr_assert_leq(ledger_log_bytes(ledger), config.total_max);
    }
    cr_assert_gt(offset, 30 * config.total_max);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < 30; i++)
            expect_whole(100 + i, 0, 1000);
        expect_whole(1, offset - config.command_max, offset);
        reopen_ledger();
    }
}

Test(ledger_retain, a_segment_that_nobody_wants_goes_at_once)
{
    open_ledger();
    for (unsigned i = 0; i < 40; i++)
        append(i, 0, 10000);
    uint64_t full = ledger_log_bytes(ledger);
    cr_assert_gt(full, 4 * LEDGER_SEGMENT_MIN);
    for (unsigned i = 0; i < 39; i++)
        forget(i);
    wait_for_bytes(2 * LEDGER_SEGMENT_MIN);
    expect_whole(39, 0, 10000);
    reopen_ledger();
    for (unsigned i = 0; i < 39; i++)
        expect_none(i);
    expect_whole(39, 0, 10000);
}

/* What says that a command was forgotten lies in a later segment than the command; that one may go
 * only when nothing could come back. */
Test(ledger_retain, what_was_forgotten_stays_away_whichever_segments_go)
{
    open_ledger();
    append(1, 0, 30000);
    append(2, 0, 30000); /* keeps the first segment alive, with the dead in it */
    for (unsigned i = 10; i < 30; i++)
        append(i, 0, 10000);
    forget(1);
    for (unsigned i = 30; i < 50; i++)
        append(i, 0, 10000);
    for (unsigned i = 10; i < 50; i++)
        forget(i);
    append(3, 0, 60000);
    append(4, 0, 60000);
    let_it_turn();
    wait_for_bytes(6 * LEDGER_SEGMENT_MIN);
    for (unsigned round = 0; round < 3; round++) {
        expect_none(1);
        for (unsigned i = 10; i < 50; i++)
            expect_none(i);
        for (unsigned i = 2; i < 5; i++)
            expect_whole(i, 0, i == 2 ? 30000 : 60000);
        reopen_ledger();
    }
}

/* Thousands of short commands come and go around one that stays: neither their records nor the ones
 * that say they are forgotten may pile up. */
Test(ledger_retain, commands_that_come_and_go_leave_nothing_behind)
{
    config.total_max = UINT64_C(1) << 30;
    open_ledger();
    append(1, 0, 30000);
    static struct one_append appends[100];
    for (unsigned round = 0; round < 60; round++) {
        for (unsigned i = 0; i < ELEMENTS(appends); i++) {
            prepare_append(&appends[i], 1000 + round * 100 + i, 0, 300);
            OK(ledger_log_append(ledger, &appends[i].append, &err));
        }
        for (unsigned i = 0; i < ELEMENTS(appends); i++) {
            wait_for(&appends[i].done);
            OK(appends[i].append.result);
            free(appends[i].runs);
            forget(1000 + round * 100 + i);
        }
    }
    wait_for_bytes(12 * LEDGER_SEGMENT_MIN);
    expect_whole(1, 0, 30000);
    cr_assert_leq(ledger->index->command_count, 200, "%u", ledger->index->command_count);
    reopen_ledger();
    expect_whole(1, 0, 30000);
    for (unsigned i = 1000; i < 7000; i += 7)
        expect_none(i);
}

Test(ledger_retain, what_is_too_old_goes)
{
    config.age_max_ms = 1;
    open_ledger();
    append(1, 0, 1000);
    wait_for_bytes(0);
    expect_none(1);
    cr_assert_eq(count_files(".seg"), 0);
    append(1, 1000, 2000);
    close_ledger();
    config.age_max_ms = 1000 * 3600;
    open_ledger();
    const struct command_id id = id_of(2);
    append(2, 0, 10);
    uint64_t first, end;
    cr_assert(ledger_log_range(ledger, &id, &first, &end));
}

/* As if all that is in the first segment had been written so much earlier. */
static void make_older(int64_t by_ms)
{
    size_t size;
    uint8_t *data = read_file(segment_path(1), &size);
    struct ledger_record record;
    cr_assert(ledger_record_unpack(data, LEDGER_MAGIC, &record));
    uint32_t salt = record.checksum;
    for (size_t at = LEDGER_RECORD_HEADER; at < size; at += LEDGER_RECORD_HEADER + record.size) {
        cr_assert(ledger_record_unpack(data + at, salt, &record));
        record.time_ms -= by_ms;
        ledger_record_pack(data + at, salt, &record);
    }
    write_file(segment_path(1), data, size);
    free(data);
}

#define HOUR_MS (INT64_C(3600) * 1000)

Test(ledger_retain, what_has_become_too_old_goes_at_the_start)
{
    open_ledger();
    append(1, 0, 1000);
    close_ledger();
    make_older(2 * HOUR_MS);
    config.age_max_ms = 3 * HOUR_MS;
    open_ledger();
    let_it_turn();
    expect_whole(1, 0, 1000);
    close_ledger();
    config.age_max_ms = HOUR_MS;
    open_ledger();
    wait_for_bytes(0);
    expect_none(1);
}

/* Else the first lines of a quiet night would live for as long as the last ones. */
Test(ledger_retain, a_segment_is_not_filled_for_longer_than_an_eighth_of_the_age)
{
    config.age_max_ms = 8 * HOUR_MS;
    open_ledger();
    append(1, 0, 1000);
    append(1, 1000, 2000);
    close_ledger();
    cr_assert_eq(count_files(".seg"), 1);
    make_older(2 * HOUR_MS);
    open_ledger();
    append(1, 2000, 3000);
    append(1, 3000, 4000);
    cr_assert_eq(count_files(".seg"), 2);
    expect_whole(1, 0, 4000);
}

/* The clock is set forward by 90 minutes while the ledger is open: what is ten minutes old is not
 * older than an hour. At the next start nobody can tell any more. */
Test(ledger_retain, a_clock_that_jumps_while_it_is_open_is_not_the_end)
{
    config.age_max_ms = HOUR_MS;
    open_ledger();
    append(1, 0, 30000);
    append(2, 0, 30000);
    append(3, 0, 60000);
    close_ledger();
    make_older(10 * 60 * 1000);
    open_ledger();
    atomic_store(&clock_jump_s, 90 * 60);
    forget(1); /* so that it looks what can go */
    append(4, 0, 1000);
    let_it_turn();
    expect_whole(2, 0, 30000);
    reopen_ledger();
    append(4, 1000, 2000);
    let_it_turn();
    expect_none(2);
    expect_whole(4, 0, 2000);
}

/* Small neighbours become one file, however many there are. */
Test(ledger_retain, what_is_left_of_many_segments_is_merged)
{
    config.total_max = UINT64_C(1) << 30;
    open_ledger();
    for (unsigned i = 0; i < 100; i++) {
        append(2, (uint64_t)i * 60000, (uint64_t)(i + 1) * 60000);
        append(1, (uint64_t)i * 100, (uint64_t)(i + 1) * 100);
    }
    unsigned before = count_files(".seg");
    cr_assert_gt(before, 50);
    forget(2);
    wait_for_bytes(100000);
    cr_assert_lt(count_files(".seg"), 8, "%u", count_files(".seg"));
    expect_whole(1, 0, 10000);
    reopen_ledger();
    expect_whole(1, 0, 10000);
    expect_none(2);
}

/* Output that is damaged when its segment is emptied stays damaged, and its neighbours stay whole.
 */
Test(ledger_retain, emptying_a_damaged_segment_invents_nothing)
{
    open_ledger();
    for (unsigned i = 0; i < 10; i++) {
        append(1, i * 100, (i + 1) * 100);
        append(2, i * 6000, (i + 1) * 6000);
    }
    size_t size;
    uint8_t *data = read_file(segment_path(1), &size);
    uint8_t runs[2000];
    size_t at = LEDGER_RECORD_HEADER + LEDGER_RECORD_HEADER + make_runs(1, 0, 100, runs);
    data[at - 1] ^= 4; /* the payload of the first */
    static uint8_t more[100000];
    at += LEDGER_RECORD_HEADER + make_runs(2, 0, 6000, more);
    data[at + 20] ^= 4; /* the header of the second */
    write_file(segment_path(1), data, size);
    free(data);
    const struct command_id id = id_of(2);
    ledger_log_trim(ledger, &id, 60000);
    append(3, 0, 60000);
    append(3, 60000, 120000);
    wait_for_bytes(5 * LEDGER_SEGMENT_MIN - 50000);
    for (unsigned round = 0; round < 2; round++) {
        struct gaps gaps;
        cr_assert_eq(read_to_end(1, 0, &gaps), 1000);
        cr_assert_eq(gaps.damaged + gaps.trimmed, 200, "%lu", gaps.damaged);
        expect_whole(3, 0, 120000);
        reopen_ledger();
    }
}
