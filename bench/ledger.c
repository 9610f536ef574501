/* sandstorm-bench-ledger (`make bench-ledger`): what it costs to have the output of commands on
 * disk, against a bare loop of write(2) and fdatasync(2) with the same bytes per sync, on the same
 * file system and in the same run. Rounds are interleaved; the ratio is what counts. */
#include "common/clock.h"
#include "common/program.h"
#include "orchestrator/ledger_log.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ROUNDS       5u
#define FLIGHT_MAX   1024u
#define FLIGHT_BYTES (4u * 1024 * 1024) /* what the ledger brings to disk in one sync */
#define TOTAL_MAX    (UINT64_C(4) << 30)

struct arguments {
    const char *dir;
    uint64_t megabytes;
};

static const struct option options[] = {
    { "dir", 'd', OPTION_STRING, "DIR", "Where to write, the current directory if not given",
      offsetof(struct arguments, dir), 0, 0 },
    { "megabytes", 'm', OPTION_UINT, "N", "What to write in a round, 64 if not given",
      offsetof(struct arguments, megabytes), 1, 1024 },
    { 0 },
};

static const struct option_page page = {
    .program = "sandstorm-bench-ledger",
    .section = 1,
    .summary = "measure the ledger against the disk",
    .usage = "[OPTION...]",
    .options = options,
};

/* So many appends of one size are on their way at any time, each of another command or all of one.
 */
struct load {
    const char *name;
    unsigned flight, commands;
    size_t block;
    uint64_t total; /* bytes of a round */
};

struct bench {
    char dir[64];
    struct loop *loop;
    struct ledger_log *log;
    uint8_t *block; /* FLIGHT_BYTES, as runs of any size that a load has */
    const struct load *load;
    uint64_t ends[FLIGHT_MAX]; /* of each command */
    uint64_t left;
    unsigned flying;
    int failed;
    struct err *err;
};

struct flying {
    struct ledger_append append;
    struct bench *bench;
    unsigned command;
};

static struct flying flights[FLIGHT_MAX];

static void name_command(struct command_id *id, unsigned number)
{
    (void)snprintf(id->text, sizeof(id->text), "%08x-0000-4000-8000-000000000000", number);
}

/* Ours. */

static void append_next(struct flying *flying);

static void append_done(struct ledger_append *append)
{
    struct flying *flying = CONTAINER_OF(append, struct flying, append);
    struct bench *bench = flying->bench;
    bench->flying--;
    if (append->result < 0 && !bench->failed) {
        bench->failed = -1;
        *bench->err = append->err;
    }
    append_next(flying);
}

static void append_next(struct flying *flying)
{
    struct bench *bench = flying->bench;
    size_t size = bench->load->block, length = size - LEDGER_RUN_HEADER;
    if (bench->left < size || bench->failed)
        return;
    uint64_t *end = &bench->ends[flying->command];
    flying->append = (struct ledger_append){ .offset = *end,
                                             .end = *end + length,
                                             .runs = bench->block,
                                             .size = size,
                                             .done = append_done };
    name_command(&flying->append.id, flying->command);
    bench->failed = ledger_log_append(bench->log, &flying->append, bench->err);
    if (bench->failed)
        return;
    *end += length;
    bench->left -= size;
    bench->flying++;
}

static int run_ours(struct bench *bench, const struct load *load, uint64_t *ret_us)
{
    uint64_t start = monotonic_us();
    bench->load = load;
    bench->left = load->total;
    ledger_run_pack(bench->block, LEDGER_STDOUT, load->block - LEDGER_RUN_HEADER);
    for (unsigned i = 0; i < load->flight; i++) {
        flights[i].bench = bench;
        flights[i].command = i % load->commands;
        append_next(&flights[i]);
    }
    while (bench->flying > 0)
        if (loop_turn(bench->loop, 1000000, bench->err) < 0)
            return -1;
    *ret_us = monotonic_us() - start;
    return bench->failed;
}

/* The floor: one file, the bytes of one flight in one write, and a sync. */
static int run_floor(const struct bench *bench, const struct load *load, uint64_t *ret_us)
{
    char path[96];
    (void)snprintf(path, sizeof(path), "%s/floor", bench->dir);
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(bench->err, errno, "cannot make %s", path);
    size_t size = load->flight * load->block;
    uint64_t start = monotonic_us();
    for (uint64_t left = load->total; left >= size; left -= size)
        if (write(fd, bench->block, size) != (ssize_t)size || fdatasync(fd) < 0)
            return err_errno(bench->err, errno, "cannot write to %s", path);
    *ret_us = monotonic_us() - start;
    (void)unlink(path);
    return 0;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t median(uint64_t *us, unsigned count)
{
    qsort(us, count, sizeof(*us), by_value);
    return us[count / 2];
}

static void print_row(const char *name, uint64_t bytes, uint64_t blocks, uint64_t ours,
                      uint64_t floor)
{
    (void)printf("%-44s %8.1f %10.0f | %8.1f | %5.2f\n", name, (double)bytes / (double)ours,
                 (double)blocks * 1e6 / (double)ours, (double)bytes / (double)floor,
                 (double)ours / (double)floor);
}

static int run_load(struct bench *bench, struct load load, uint64_t megabytes)
{
    uint64_t ours[ROUNDS], floors[ROUNDS];
    uint64_t flight = load.flight * load.block;
    load.total = MAX(megabytes * 1024 * 1024 * load.total / 100 / flight, 1u) * flight;
    memset(bench->ends, 0, sizeof(bench->ends));
    for (unsigned i = 0; i < load.commands; i++) {
        struct command_id id;
        name_command(&id, i);
        ledger_log_forget(bench->log, &id);
    }
    for (unsigned i = 0; i < ROUNDS; i++)
        if (run_ours(bench, &load, &ours[i]) < 0 || run_floor(bench, &load, &floors[i]) < 0)
            return -1;
    print_row(load.name, load.total, load.total / load.block, median(ours, ROUNDS),
              median(floors, ROUNDS));
    return 0;
}

/* Reading, and starting again. */

static bool read_over;

static void read_done(struct ledger_read *read)
{
    (void)read;
    read_over = true;
}

static int read_command(struct bench *bench, uint64_t *ret_bytes, uint64_t *ret_us)
{
    static uint8_t out[LEDGER_READ_MIN * 2];
    struct ledger_read read = { .out = out, .capacity = sizeof(out), .done = read_done };
    name_command(&read.id, 0);
    uint64_t start = monotonic_us();
    for (read.ret_end = 1; read.ret_end != read.offset;) {
        read.offset = read.ret_end;
        read_over = false;
        if (ledger_log_read(bench->log, &read, bench->err) < 0)
            return -1;
        while (!read_over)
            if (loop_turn(bench->loop, 1000000, bench->err) < 0)
                return -1;
        if (read.result < 0)
            return err_set(bench->err, read.err.code, "%s", read.err.text);
    }
    *ret_bytes = read.offset;
    *ret_us = monotonic_us() - start;
    return 0;
}

static int open_log(struct bench *bench)
{
    const struct ledger_log_config config = { .dir = bench->dir,
                                              .loop = bench->loop,
                                              .total_max = TOTAL_MAX };
    return ledger_log_open(&config, &bench->log, bench->err);
}

static int bench_read(struct bench *bench, const char *name)
{
    uint64_t bytes = 0, us = 1;
    if (read_command(bench, &bytes, &us) < 0)
        return -1;
    (void)printf("  %-42s %8.1f\n", name, (double)bytes / (double)us);
    return 0;
}

static int bench_start(struct bench *bench)
{
    ledger_log_free(bench->log);
    bench->log = NULL;
    uint64_t start = monotonic_us();
    if (open_log(bench) < 0)
        return -1;
    (void)printf("start on %.0f MB in %.1f ms\n", (double)ledger_log_bytes(bench->log) / 1e6,
                 (double)(monotonic_us() - start) / 1e3);
    return 0;
}

static int bench_all(struct bench *bench, uint64_t megabytes)
{
    /* The total is in percent of what was asked for: small appends one by one take long. */
    static const struct load loads[] = {
        { "256 KiB, one after another", 1, 1, 256 * 1024, 50 },
        { "256 KiB, 16 on their way", 16, 1, 256 * 1024, 100 },
        { "4 KiB, one after another", 1, 1, 4096, 2 },
        { "4 KiB, 1,000 on their way, one command", 1000, 1, 4096, 100 },
        { "4 KiB, 1,000 commands, one each on its way", 1000, 1000, 4096, 100 },
        { "200 bytes, 1,000 commands, one each", 1000, 1000, 200, 10 },
    };
    (void)printf("%-44s %8s %10s | %8s | %5s\n", "appends", "MB/s", "per second", "floor", "ratio");
    for (unsigned i = 0; i < ELEMENTS(loads); i++)
        if (run_load(bench, loads[i], megabytes) < 0 ||
            bench_read(bench, "and read again, one command") < 0)
            return -1;
    return bench_start(bench);
}

static int run(const struct arguments *arguments, struct err *err)
{
    struct bench bench = { .err = err };
    (void)snprintf(bench.dir, sizeof(bench.dir), "%.40s/ledger-XXXXXX",
                   arguments->dir ? arguments->dir : ".");
    if (!mkdtemp(bench.dir))
        return err_errno(err, errno, "cannot make a directory in %s", bench.dir);
    bench.block = calloc(1, FLIGHT_BYTES);
    int r = bench.block ? loop_new(&bench.loop, err) : err_nomem(err);
    if (r == 0)
        r = open_log(&bench);
    if (r == 0)
        r = bench_all(&bench, arguments->megabytes ? arguments->megabytes : 64);
    ledger_log_free(bench.log);
    loop_free(bench.loop);
    free(bench.block);
    char command[96];
    (void)snprintf(command, sizeof(command), "rm -rf '%s'", bench.dir);
    (void)!system(command);
    return r;
}

int main(int argc, char **argv)
{
    struct arguments arguments = { 0 };
    struct err err = { 0 };
    bool done;
    int rest;
    int r = program_parse(&page, argc, argv, &arguments, &done, &rest, &err);
    if (r == 0 && done)
        return 0;
    if (r == 0)
        r = run(&arguments, &err);
    return r < 0 ? program_fail(page.program, &err) : 0;
}
