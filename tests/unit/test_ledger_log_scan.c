/* What the start makes of what it finds: torn ends, flipped bits, files that a crash left behind,
 * files that are not files, and output that looks like records. */
#include "ledger_fixture.h"

#include "random.h"

/* cppcheck-suppress unknownMacro */
TestSuite(ledger_scan, .init = set_up, .fini = tear_down, .timeout = 240);

/* Ten records of three commands in the first segment. */
#define RECORDS  10u
#define COMMANDS 3u
#define EACH     150u

static uint8_t *image;
static size_t image_size;

static void make_image(void)
{
    open_ledger();
    for (unsigned i = 0; i < RECORDS; i++) {
        uint64_t offset = (uint64_t)(i / COMMANDS) * EACH;
        append(i % COMMANDS, offset, offset + EACH);
    }
    close_ledger();
    image = read_file(segment_path(1), &image_size);
}

static uint64_t end_of(unsigned command)
{
    const struct command_id id = id_of(command);
    uint64_t first, end;
    return ledger_log_range(ledger, &id, &first, &end) ? end : 0;
}

/* The size and the place of the last record. */
static size_t last_record(void)
{
    uint8_t runs[EACH * 10];
    uint64_t offset = (uint64_t)((RECORDS - 1) / COMMANDS) * EACH;
    return image_size - LEDGER_RECORD_HEADER -
           make_runs((RECORDS - 1) % COMMANDS, offset, offset + EACH, runs);
}

/* All of it is right or a gap, and as much as it should be. */
static void expect_ends(unsigned records, uint64_t damaged)
{
    uint64_t seen = 0;
    for (unsigned i = 0; i < COMMANDS; i++) {
        struct gaps gaps = { 0 };
        uint64_t wanted = (records + COMMANDS - 1 - i) / COMMANDS * EACH;
        cr_assert_eq(end_of(i), wanted, "command %u: %lu", i, end_of(i));
        if (wanted > 0)
            cr_assert_eq(read_to_end(i, 0, &gaps), wanted);
        cr_assert_eq(gaps.trimmed, 0);
        seen += gaps.damaged;
    }
    cr_assert_eq(seen, damaged, "%lu", seen);
}

Test(ledger_scan, a_tail_that_is_torn_at_any_byte_is_cut_and_written_again)
{
    make_image();
    size_t last = last_record();
    const unsigned command = (RECORDS - 1) % COMMANDS;
    const uint64_t offset = (uint64_t)((RECORDS - 1) / COMMANDS) * EACH;
    for (size_t size = last; size < image_size; size++) {
        write_file(segment_path(1), image, size);
        open_ledger();
        expect_ends(RECORDS - 1, 0);
        struct stat st;
        cr_assert_eq(stat(segment_path(1), &st), 0);
        cr_assert_eq((size_t)st.st_size, last, "cut at %zu: %ld", size, (long)st.st_size);
        append(command, offset, offset + EACH);
        expect_ends(RECORDS, 0);
        reopen_ledger();
        expect_ends(RECORDS, 0);
        close_ledger();
    }
    free(image);
}

/* Pages of a file reach the disk in any order: the size may be there before the bytes. */
Test(ledger_scan, a_tail_of_zeros_or_of_noise_is_cut)
{
    make_image();
    size_t last = last_record();
    uint64_t state = 5;
    uint8_t *torn = malloc(image_size + 8192);
    for (size_t from = last; from <= image_size; from += 13)
        for (unsigned noise = 0; noise < 2; noise++) {
            memcpy(torn, image, from);
            for (size_t i = from; i < image_size + 8192; i++)
                torn[i] = noise ? (uint8_t)next_random(&state) : 0;
            write_file(segment_path(1), torn, image_size + 8192);
            open_ledger();
            expect_ends(from == image_size ? RECORDS : RECORDS - 1, 0);
            close_ledger();
        }
    free(torn);
    free(image);
}

/* Each bit of the file, one after another. What is damaged in the last batch was never promised;
 * what is damaged before it is said to be, and nothing else changes. */
Test(ledger_scan, a_flipped_bit_anywhere_is_damage_and_never_wrong_output)
{
    make_image();
    size_t last = last_record();
    uint64_t state = 77;
    for (size_t at = 0; at < image_size; at++) {
        uint8_t bit = (uint8_t)(1u << next_random(&state) % 8);
        image[at] ^= bit;
        write_file(segment_path(1), image, image_size);
        image[at] ^= bit;
        open_ledger();
        if (at >= last)
            expect_ends(RECORDS - 1, 0);
        else if (at < LEDGER_RECORD_HEADER)
            expect_ends(RECORDS, 0);
        else {
            struct gaps gaps = { 0 };
            /* Nothing tells how long a command was, when the header of its last record has gone. */
            uint64_t missing = 0;
            for (unsigned i = 0; i < COMMANDS; i++) {
                uint64_t end = read_to_end(i, 0, &gaps);
                missing += (RECORDS + COMMANDS - 1 - i) / COMMANDS * EACH - end;
                missing += gaps.damaged + gaps.trimmed;
            }
            cr_assert_eq(missing, EACH, "byte %zu", at);
        }
        close_ledger();
    }
    free(image);
}

Test(ledger_scan, a_bit_that_flips_while_it_is_open_is_damage_too)
{
    make_image();
    open_ledger();
    uint64_t state = 3;
    for (size_t at = LEDGER_RECORD_HEADER; at < image_size; at += 3) {
        uint8_t bit = (uint8_t)(1u << next_random(&state) % 8);
        image[at] ^= bit;
        write_file(segment_path(1), image, image_size);
        image[at] ^= bit;
        expect_ends(RECORDS, EACH);
    }
    write_file(segment_path(1), image, image_size);
    expect_ends(RECORDS, 0);
    write_file(segment_path(1), image, LEDGER_RECORD_HEADER);
    expect_ends(RECORDS, (uint64_t)RECORDS * EACH);
    cr_assert_eq(unlink(segment_path(1)), 0);
    expect_ends(RECORDS, (uint64_t)RECORDS * EACH);
    free(image);
}

/* Where the last batch begins, and how many records it has. */
static size_t last_batch(unsigned *ret_records)
{
    struct ledger_record record;
    uint8_t window[LEDGER_WINDOW];
    uint32_t at, batch = 0;
    int fd = open(segment_path(1), O_RDONLY | O_CLOEXEC);
    cr_assert(ledger_record_unpack(image, LEDGER_MAGIC, &record));
    struct ledger_walk walk = { .fd = fd,
                                .salt = record.checksum,
                                .size = image_size,
                                .at = LEDGER_RECORD_HEADER,
                                .window = window };
    *ret_records = 0;
    while (ledger_walk_next(&walk, &record, &at, &err) > 0) {
        *ret_records = record.batch == batch ? *ret_records + 1 : 1;
        batch = record.batch;
    }
    (void)close(fd);
    cr_assert_eq(walk.damaged, 0);
    return batch;
}

/* The power goes while a large batch is on its way: of its sectors any may be missing. What is kept
 * must follow on what was synced, without a hole, for a hole would be taken for output that is safe
 * here. */
Test(ledger_scan, sectors_that_are_missing_of_the_last_batch_leave_no_hole)
{
    enum { MANY = 300, SECTOR = 512 };
    static struct one_append appends[MANY];
    open_ledger();
    for (unsigned i = 0; i < MANY; i++) {
        uint64_t offset = (uint64_t)(i / COMMANDS) * EACH;
        prepare_append(&appends[i], i % COMMANDS, offset, offset + EACH);
        OK(ledger_log_append(ledger, &appends[i].append, &err));
    }
    close_ledger();
    for (unsigned i = 0; i < MANY; i++)
        free(appends[i].runs);
    image = read_file(segment_path(1), &image_size);
    unsigned records;
    size_t from = last_batch(&records);
    cr_assert_gt(records, 10, "there was no large batch");
    uint8_t *torn = malloc(image_size);
    uint64_t state = 11;
    for (unsigned round = 0; round < 300; round++) {
        memcpy(torn, image, image_size);
        unsigned missing = 1 + (unsigned)random_below(&state, 4);
        for (unsigned i = 0; i < missing; i++) {
            size_t at = from + random_below(&state, image_size - from);
            size_t end = MIN(image_size, at - at % SECTOR + SECTOR);
            at = MAX(from, at - at % SECTOR);
            memset(torn + at, 0, end - at);
        }
        write_file(segment_path(1), torn, image_size);
        open_ledger();
        for (unsigned i = 0; i < COMMANDS; i++) {
            struct gaps gaps;
            uint64_t end = end_of(i);
            cr_assert_geq(end, (MANY - records) / COMMANDS * EACH);
            cr_assert(end == 0 || read_to_end(i, 0, &gaps) == end);
            cr_assert(end == 0 || gaps.damaged + gaps.trimmed == 0);
        }
        close_ledger();
    }
    free(torn);
    free(image);
}

/* Several segments; the damage is in an older one. */
Test(ledger_scan, damage_in_an_older_segment_costs_what_is_damaged)
{
    config.segment_bytes = LEDGER_SEGMENT_MIN;
    open_ledger();
    for (unsigned i = 0; i < 60; i++)
        append(i % 2, i / 2 * 5000, (i / 2 + 1) * 5000);
    close_ledger();
    cr_assert_gt(count_files(".seg"), 3);
    size_t size;
    uint8_t *older = read_file(segment_path(2), &size);
    for (size_t at = 0; at < size; at += 997) {
        struct gaps gaps;
        uint64_t damaged = 0;
        older[at] ^= 0x10;
        write_file(segment_path(2), older, size);
        older[at] ^= 0x10;
        open_ledger();
        for (unsigned i = 0; i < 2; i++) {
            cr_assert_eq(read_to_end(i, 0, &gaps), 150000);
            damaged += gaps.damaged + gaps.trimmed;
        }
        cr_assert(damaged == (at < LEDGER_RECORD_HEADER ? 0 : 5000), "at %zu: %lu", at, damaged);
        close_ledger();
    }
    /* Both headers at its beginning: nothing tells what the salt was. */
    memset(older, 0, LEDGER_RECORD_HEADER * 2);
    write_file(segment_path(2), older, size);
    open_ledger();
    for (unsigned i = 0; i < 2; i++) {
        struct gaps gaps;
        cr_assert_eq(read_to_end(i, 0, &gaps), 150000);
        cr_assert_gt(gaps.damaged, 20000);
        cr_assert_eq(gaps.trimmed, 0);
    }
    free(older);
}

/* A command prints what would be records, if it knew the salt; the record around it is damaged, so
 * that the start has to look for the next one. */
Test(ledger_scan, output_that_looks_like_records_is_none)
{
    enum { FAKES = 50, FAKE = LEDGER_RECORD_HEADER + LEDGER_RUN_HEADER + 5 };
    uint8_t runs[LEDGER_RUN_HEADER + FAKES * FAKE], *at = runs + LEDGER_RUN_HEADER;
    ledger_run_pack(runs, LEDGER_STDOUT, FAKES * FAKE);
    const struct command_id victim = id_of(2), id = id_of(1);
    for (unsigned i = 0; i < FAKES; i++, at += FAKE) {
        const struct ledger_record record = { .kind = LEDGER_RECORD_OUTPUT,
                                              .size = LEDGER_RUN_HEADER + 5,
                                              .end = 5,
                                              .id = ledger_id_of(&victim) };
        ledger_record_pack(at, i % 2 ? LEDGER_MAGIC : i, &record);
        ledger_run_pack(at + LEDGER_RECORD_HEADER, LEDGER_STDOUT, 5);
    }
    open_ledger();
    append(3, 0, 10);
    struct one_append one = { .append = { .id = id,
                                          .end = FAKES * FAKE,
                                          .runs = runs,
                                          .size = sizeof(runs),
                                          .done = append_done } };
    OK(ledger_log_append(ledger, &one.append, &err));
    wait_for(&one.done);
    OK(one.append.result);
    append(3, 10, 20);
    close_ledger();
    image = read_file(segment_path(1), &image_size);
    uint8_t before[100];
    size_t begin = 2 * LEDGER_RECORD_HEADER + make_runs(3, 0, 10, before);
    image[begin + 8] ^= 1; /* its size */
    write_file(segment_path(1), image, image_size);
    open_ledger();
    expect_none(2);
    expect_none(1);
    expect_whole(3, 0, 20);
    free(image);
}

/* Files that were there before. */

static void expect_refused(const char *words)
{
    FAILS(ledger_log_open(&config, &ledger, &err), ERR_PRECONDITION);
    cr_assert(strstr(err.text, words), "%s", err.text);
}

Test(ledger_scan, a_directory_that_is_a_link_is_refused)
{
    char elsewhere[64], inside[64];
    (void)snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", directory);
    (void)snprintf(inside, sizeof(inside), "%s/ledger", directory);
    cr_assert_eq(mkdir(elsewhere, 0700), 0);
    cr_assert_eq(symlink(elsewhere, inside), 0);
    expect_refused("is not a directory");
    cr_assert_eq(unlink(inside), 0);
    cr_assert_eq(mkfifo(inside, 0600), 0);
    expect_refused("is not a directory");
    cr_assert_eq(rmdir(elsewhere), 0, "it was written to");
}

Test(ledger_scan, a_directory_that_others_may_write_to_is_refused)
{
    open_ledger();
    close_ledger();
    cr_assert_eq(chmod(path_of(""), 0770), 0);
    expect_refused("others may write");
    cr_assert_eq(chmod(path_of(""), 0700), 0);
    cr_assert_eq(chmod(directory, 0707), 0);
    expect_refused("others may write");
    cr_assert_eq(chmod(directory, 0700), 0);
    if (geteuid() == 0) {
        cr_assert_eq(chown(path_of(""), 12345, 0), 0);
        expect_refused("belongs to user 12345");
        cr_assert_eq(chown(path_of(""), 0, 0), 0);
    }
    open_ledger();
}

/* With a real segment behind them, so that following one would look like success. */
Test(ledger_scan, a_segment_that_is_no_plain_file_is_refused)
{
    make_image();
    char elsewhere[64];
    (void)snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", directory);
    cr_assert_eq(rename(segment_path(1), elsewhere), 0);
    cr_assert_eq(symlink(elsewhere, segment_path(1)), 0);
    expect_refused("is not a plain file");
    cr_assert_eq(unlink(segment_path(1)), 0);
    cr_assert_eq(link(elsewhere, segment_path(1)), 0);
    expect_refused("is not a plain file");
    cr_assert_eq(unlink(segment_path(1)), 0);
    cr_assert_eq(mkfifo(segment_path(1), 0600), 0);
    expect_refused("is not a plain file");
    cr_assert_eq(unlink(segment_path(1)), 0);
    cr_assert_eq(mkdir(segment_path(1), 0700), 0);
    cr_assert_eq(ledger_log_open(&config, &ledger, &err), -1);
    cr_assert_eq(rmdir(segment_path(1)), 0);
    cr_assert_eq(rename(elsewhere, segment_path(1)), 0);
    cr_assert_eq(chmod(segment_path(1), 0666), 0);
    expect_refused("is not a plain file");
    cr_assert_eq(chmod(segment_path(1), 0600), 0);
    open_ledger();
    expect_ends(RECORDS, 0);
    free(image);
}

/* Put there while it is open, where the next segment would be. */
Test(ledger_scan, a_link_in_the_place_of_the_next_segment_is_not_followed)
{
    config.segment_bytes = LEDGER_SEGMENT_MIN;
    open_ledger();
    append(1, 0, 20000);
    char elsewhere[64];
    (void)snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", directory);
    cr_assert_eq(symlink(elsewhere, segment_path(2)), 0);
    for (unsigned i = 1; i < 8; i++)
        append(1, i * 20000, (i + 1) * 20000);
    cr_assert_eq(access(elsewhere, F_OK), -1);
    expect_whole(1, 0, 160000);
    struct stat st;
    cr_assert_eq(lstat(segment_path(3), &st), 0);
    cr_assert(S_ISREG(st.st_mode) && (st.st_mode & 0777) == 0600);
}

Test(ledger_scan, what_an_emptying_left_behind_is_removed)
{
    make_image();
    write_file(path_of("00000001.tmp"), image, image_size);
    write_file(path_of("00000002.seg"), image, 0);
    write_file(path_of("notes.txt"), image, 10);
    open_ledger();
    expect_ends(RECORDS, 0);
    cr_assert_eq(count_files(".tmp"), 0);
    cr_assert_eq(count_files(".seg"), 1);
    cr_assert_eq(count_files("notes.txt"), 1, "it is not ours");
    free(image);
}

Test(ledger_scan, a_second_log_on_the_same_directory_is_refused)
{
    open_ledger();
    struct ledger_log *second = NULL;
    FAILS(ledger_log_open(&config, &second, &err), ERR_PRECONDITION);
    cr_assert(strstr(err.text, "another program"), "%s", err.text);
    append(1, 0, 10);
    expect_whole(1, 0, 10);
}

Test(ledger_scan, a_directory_that_is_not_there_is_an_error)
{
    config.dir = "/tmp/there/is/no/such/directory";
    cr_assert_eq(ledger_log_open(&config, &ledger, &err), -1);
    cr_assert(strstr(err.text, config.dir), "%s", err.text);
}
