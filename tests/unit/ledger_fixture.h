/* For the ledger's tests: a directory, a log on it, and output whose every byte, kind and gap is a
 * function of the command and the offset, so that what comes back can be judged without a copy. */
#pragma once

#include "common/clock.h"
#include "common/log.h"
#include "orchestrator/ledger_log-internal.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define OK(call)    cr_assert_eq((call), 0, "%s", err.text)
#define DEADLINE_US 30000000u /* only so that a hang ends */
#define FAILS(call, as)                                                                            \
    do {                                                                                           \
        cr_assert_eq((call), -1);                                                                  \
        cr_assert_eq(err.code, (as), "%s", err.text);                                              \
    } while (0)

#define STRIPE    97u /* bytes of one kind */
#define READ_SIZE (LEDGER_READ_MIN + 4096u)
#define TOTAL_MAX (UINT64_C(64) << 20)

static char directory[] = "/tmp/test-ledger-XXXXXX";
static struct err err;
static struct loop *loop;
static struct ledger_log *ledger;
static struct ledger_log_config config;

static inline void open_ledger(void)
{
    cr_assert_null(ledger);
    cr_assert_eq(ledger_log_open(&config, &ledger, &err), 0, "%s", err.text);
}

static inline void close_ledger(void)
{
    ledger_log_free(ledger);
    ledger = NULL;
}

static inline void reopen_ledger(void)
{
    close_ledger();
    open_ledger();
}

static inline void set_up(void)
{
    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    cr_assert(mkdtemp(directory));
    cr_assert_eq(loop_new(&loop, &err), 0, "%s", err.text);
    config = (struct ledger_log_config){ .dir = directory, .loop = loop, .total_max = TOTAL_MAX };
}

static inline void tear_down(void)
{
    close_ledger();
    loop_free(loop);
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf %s", directory);
    cr_assert_eq(system(command), 0);
}

static inline struct command_id id_of(unsigned number)
{
    struct command_id id;
    (void)snprintf(id.text, sizeof(id.text), "%08x-0000-4000-8000-%012x", number * 2654435761u,
                   number);
    return id;
}

/* The output. */

static inline uint64_t mixed(uint64_t value)
{
    value ^= value >> 31;
    value *= UINT64_C(0x9e3779b97f4a7c15);
    return value ^ value >> 29;
}

static inline enum ledger_kind kind_at(unsigned command, uint64_t offset)
{
    return LEDGER_STDOUT + mixed(command * 31 + offset / STRIPE) % 3; /* also what was dropped */
}

static inline uint8_t byte_at(unsigned command, uint64_t offset)
{
    return (uint8_t)mixed((uint64_t)command << 40 ^ offset);
}

/* Runs that cover [offset, end); their size. */
static inline size_t make_runs(unsigned command, uint64_t offset, uint64_t end, uint8_t *out)
{
    uint8_t *at = out;
    while (offset < end) {
        uint64_t until = MIN(end, offset - offset % STRIPE + STRIPE);
        enum ledger_kind kind = kind_at(command, offset);
        ledger_run_pack(at, kind, until - offset);
        at += LEDGER_RUN_HEADER;
        for (; offset < until; offset++)
            if (kind != LEDGER_DROPPED)
                *at++ = byte_at(command, offset);
    }
    return (size_t)(at - out);
}

/* What came back from `offset` on is right, or a gap; how much of it is a gap that was not made by
 * make_runs(), by its kind. */
struct gaps {
    uint64_t trimmed, damaged;
};

static inline uint64_t judge_runs(unsigned command, uint64_t offset, const uint8_t *runs,
                                  size_t size, struct gaps *gaps)
{
    const uint8_t *at = runs, *end = runs + size, *data;
    while (at < end) {
        enum ledger_kind kind;
        uint64_t covered;
        cr_assert_eq(ledger_run_next(&at, end, &kind, &covered, &data), 0);
        if (kind == LEDGER_TRIMMED)
            gaps->trimmed += covered;
        if (kind == LEDGER_DAMAGED)
            gaps->damaged += covered;
        for (uint64_t i = 0; kind <= LEDGER_DROPPED && i < covered; i++) {
            cr_assert_eq(kind, kind_at(command, offset + i), "kind at %lu", offset + i);
            if (data)
                cr_assert_eq(data[i], byte_at(command, offset + i), "byte at %lu", offset + i);
        }
        offset += covered;
    }
    return offset;
}

/* One append or read, and the turns of the loop until it is done. */

struct one_append {
    struct ledger_append append;
    uint8_t *runs;
    bool done;
};

static inline void append_done(struct ledger_append *append)
{
    CONTAINER_OF(append, struct one_append, append)->done = true;
}

static inline void prepare_append(struct one_append *one, unsigned command, uint64_t offset,
                                  uint64_t end)
{
    *one = (struct one_append){ .runs = malloc((end - offset) * 10 + 16) };
    cr_assert(one->runs);
    size_t size = make_runs(command, offset, end, one->runs);
    one->append = (struct ledger_append){ .id = id_of(command),
                                          .offset = offset,
                                          .end = end,
                                          .runs = one->runs,
                                          .size = size,
                                          .done = append_done };
}

static inline void wait_for(const bool *done)
{
    uint64_t deadline = monotonic_us() + DEADLINE_US;
    while (!*done) {
        cr_assert_lt(monotonic_us(), deadline);
        OK(loop_turn(loop, 100000, &err));
    }
}

/* -1 with err. */
static inline int try_append(unsigned command, uint64_t offset, uint64_t end)
{
    struct one_append one;
    prepare_append(&one, command, offset, end);
    int r = ledger_log_append(ledger, &one.append, &err);
    if (r == 0) {
        wait_for(&one.done);
        r = one.append.result;
        err = one.append.err;
    }
    free(one.runs);
    return r;
}

static inline void append(unsigned command, uint64_t offset, uint64_t end)
{
    cr_assert_eq(try_append(command, offset, end), 0, "%s", err.text);
}

struct one_read {
    struct ledger_read read;
    bool done;
};

static inline void read_done(struct ledger_read *read)
{
    CONTAINER_OF(read, struct one_read, read)->done = true;
}

/* One read; where it ended, or UINT64_MAX with err. */
static inline uint64_t read_once(unsigned command, uint64_t offset, struct gaps *gaps)
{
    static uint8_t out[READ_SIZE];
    struct one_read one = { .read = { .id = id_of(command),
                                      .offset = offset,
                                      .out = out,
                                      .capacity = LEDGER_READ_MIN + offset % 4096,
                                      .done = read_done } };
    OK(ledger_log_read(ledger, &one.read, &err));
    wait_for(&one.done);
    err = one.read.err;
    if (one.read.result < 0)
        return UINT64_MAX;
    cr_assert_eq(judge_runs(command, offset, out, one.read.size, gaps), one.read.ret_end);
    return one.read.ret_end;
}

/* Reads from `offset` to the end, wherever that is. */
static inline uint64_t read_to_end(unsigned command, uint64_t offset, struct gaps *gaps)
{
    *gaps = (struct gaps){ 0 };
    for (;;) {
        uint64_t end = read_once(command, offset, gaps);
        cr_assert_neq(end, UINT64_MAX, "%s", err.text);
        if (end == offset)
            return offset;
        offset = end;
    }
}

static inline void expect_whole(unsigned command, uint64_t first, uint64_t end)
{
    struct gaps gaps;
    uint64_t kept_first = 0, kept_end = 0;
    const struct command_id id = id_of(command);
    cr_assert(ledger_log_range(ledger, &id, &kept_first, &kept_end));
    cr_assert_eq(kept_first, first, "%lu", kept_first);
    cr_assert_eq(kept_end, end, "%lu", kept_end);
    cr_assert_eq(read_to_end(command, first, &gaps), end);
    cr_assert_eq(gaps.trimmed, 0);
    cr_assert_eq(gaps.damaged, 0);
}

static inline void expect_none(unsigned command)
{
    struct gaps gaps = { 0 };
    uint64_t first, end;
    const struct command_id id = id_of(command);
    cr_assert_not(ledger_log_range(ledger, &id, &first, &end));
    cr_assert_eq(read_once(command, 0, &gaps), UINT64_MAX);
    cr_assert_eq(err.code, ERR_NOT_FOUND);
}

/* Lets the thread come to rest: a read is served by its turn, and what comes before it is done. */
static inline void let_it_turn(void)
{
    struct gaps gaps = { 0 };
    (void)read_once(0xffffff, 0, &gaps);
}

/* Files. */

static inline const char *path_of(const char *name)
{
    static char path[160];
    (void)snprintf(path, sizeof(path), "%s/ledger/%s", directory, name);
    return path;
}

static inline unsigned count_files(const char *suffix)
{
    DIR *listing = opendir(path_of(""));
    cr_assert(listing);
    unsigned count = 0;
    const struct dirent *entry;
    while ((entry = readdir(listing)))
        count += strstr(entry->d_name, suffix) != NULL;
    (void)closedir(listing);
    return count;
}

static inline const char *segment_path(uint32_t number)
{
    char name[LEDGER_NAME_MAX];
    ledger_segment_name(number, name);
    return path_of(name);
}

static inline uint8_t *read_file(const char *path, size_t *ret_size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    cr_assert(fd >= 0 && fstat(fd, &st) == 0);
    uint8_t *data = malloc((size_t)st.st_size + 1);
    cr_assert(data);
    cr_assert_eq(read(fd, data, (size_t)st.st_size), st.st_size);
    (void)close(fd);
    *ret_size = (size_t)st.st_size;
    return data;
}

static inline void write_file(const char *path, const uint8_t *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, data, size), (ssize_t)size);
    (void)close(fd);
}
