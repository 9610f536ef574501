/* sandstorm-bench (`make bench`): what a command costs through the whole system, against what the
 * kernel and a pipe charge for the same thing in the same run. Rounds are interleaved, so that a
 * noisy machine is noisy for both sides; the ratio is what counts. Starts the real daemons through
 * tests/harness/cluster.c. */
#include "bench/bench.h"
#include "client/sandstorm.h"
#include "common/clock.h"
#include "common/program.h"
#include "tests/harness/cluster.h"

#include <inttypes.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>

#define SANDBOX       "bench"
#define EXECS_DEFAULT 500u
#define EXECS_MAX     100000u
#define STREAM_BYTES  (256u * 1024 * 1024)
#define STREAM_ROUNDS 3u

struct arguments {
    uint64_t execs;
};

static const struct option options[] = {
    { "execs", 'n', OPTION_UINT, "N", "Commands to run, 500 if not given",
      offsetof(struct arguments, execs), 1, EXECS_MAX },
    { 0 },
};

static const struct option_page page = {
    .program = "sandstorm-bench",
    .section = 1,
    .summary = "measure Sandstorm against its floors",
    .usage = "[OPTION...]",
    .options = options,
};

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t percentile(struct series *series, unsigned percent)
{
    qsort(series->us, series->count, sizeof(*series->us), by_value);
    return series->us[(series->count - 1) * percent / 100];
}

void bench_print_row(struct series *ours, struct series *floor)
{
    uint64_t p50 = percentile(ours, 50), base = percentile(floor, 50);
    (void)printf("%-34s %9" PRIu64 " %9" PRIu64 " | %-22s %9" PRIu64 " %9" PRIu64 " | %6.2f\n",
                 ours->name, p50, percentile(ours, 99), floor->name, base, percentile(floor, 99),
                 (double)p50 / (double)MAX(base, 1u));
}

/* Floors. */

static int spawn_true(struct err *err)
{
    char *const argv[] = { (char *)"true", NULL };
    pid_t pid;
    int status;
    int r = posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ);
    if (r)
        return err_errno(err, r, "cannot run /bin/true");
    if (waitpid(pid, &status, 0) < 0 || status != 0)
        return err_set(err, ERR_SYSTEM, "/bin/true failed");
    return 0;
}

static uint64_t pipe_bytes(struct err *err)
{
    char command[64];
    (void)snprintf(command, sizeof(command), "head -c %u /dev/zero", STREAM_BYTES);
    FILE *pipe = popen(command, "re");
    if (!pipe)
        return (uint64_t)err_errno(err, errno, "cannot run head");
    static char bytes[65536];
    uint64_t total = 0;
    size_t n;
    while ((n = fread(bytes, 1, sizeof(bytes), pipe)) > 0)
        total += n;
    (void)pclose(pipe);
    return total;
}

/* Ours. */

static void count_bytes(void *userdata, int stream, const void *data, size_t size)
{
    (void)stream;
    (void)data;
    *(uint64_t *)userdata += size;
}

static int exec_once(struct sandstorm_client *client, const char *const *argv, uint64_t *bytes,
                     struct err *err)
{
    const struct sandstorm_exec_options exec_options = {
        .spec = { .sandbox = SANDBOX, .argv = argv },
        .streams = { .stdin_fd = -1,
                     .stdout_fd = -1,
                     .stderr_fd = -1,
                     .output = count_bytes,
                     .userdata = bytes },
    };
    struct sandstorm_exec *exec;
    struct sandstorm_outcome outcome = { 0 };
    struct sandstorm_error error = { 0 };
    int r = sandstorm_exec_start(client, &exec_options, &exec, &error);
    if (r == 0) {
        r = sandstorm_exec_wait(exec, &outcome, &error);
        sandstorm_exec_free(exec);
    }
    if (r < 0)
        return err_set(err, ERR_UNAVAILABLE, "%s", error.text);
    if (outcome.result != SANDSTORM_RESULT_EXITED || outcome.exit_code != 0)
        return err_set(err, ERR_INTERNAL, "the command failed: %s", outcome.detail);
    return 0;
}

static int bench_exec(struct cluster *cluster, struct sandstorm_client *client, size_t count,
                      struct err *err)
{
    static const char *const argv[] = { "/bin/true", NULL };
    static const char *const cli_argv[] = { "exec", "-n", SANDBOX, "--", "/bin/true", NULL };
    struct series warm = { .name = "exec true, warm client" };
    struct series cli = { .name = "exec true, one CLI process each" };
    struct series floor = { .name = "posix_spawn true" };
    size_t cli_every = 10;
    CLEANUP_FREE uint64_t *memory = calloc(3 * count, sizeof(*memory));
    if (!memory)
        return err_nomem(err);
    warm.us = memory;
    floor.us = memory + count;
    cli.us = memory + 2 * count;
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t start = monotonic_us();
        if (exec_once(client, argv, &bytes, err) < 0)
            return -1;
        uint64_t middle = monotonic_us();
        if (spawn_true(err) < 0)
            return -1;
        uint64_t end = monotonic_us();
        warm.us[warm.count++] = middle - start;
        floor.us[floor.count++] = end - middle;
        if (i % cli_every)
            continue;
        struct proc_result result;
        if (cluster_cli(cluster, cli_argv, NULL, 0, PROC_DEADLINE_US, &result, err) < 0)
            return -1;
        cli.us[cli.count++] = monotonic_us() - end;
        proc_result_done(&result);
    }
    bench_print_row(&warm, &floor);
    bench_print_row(&cli, &floor);
    return 0;
}

static int bench_stream(struct sandstorm_client *client, struct err *err)
{
    char size[16];
    (void)snprintf(size, sizeof(size), "%u", STREAM_BYTES);
    const char *const argv[] = { "head", "-c", size, "/dev/zero", NULL };
    uint64_t ours_us[STREAM_ROUNDS], floor_us[STREAM_ROUNDS];
    struct series ours = { "256 MiB of output", ours_us, 0 };
    struct series floor = { "the same by a pipe", floor_us, 0 };
    for (unsigned i = 0; i < STREAM_ROUNDS; i++) {
        uint64_t bytes = 0, start = monotonic_us();
        if (exec_once(client, argv, &bytes, err) < 0)
            return -1;
        uint64_t middle = monotonic_us();
        if (bytes != STREAM_BYTES || pipe_bytes(err) != STREAM_BYTES)
            return err_set(err, ERR_INTERNAL, "%" PRIu64 " bytes came instead of %u", bytes,
                           STREAM_BYTES);
        ours_us[ours.count++] = middle - start;
        floor_us[floor.count++] = monotonic_us() - middle;
    }
    bench_print_row(&ours, &floor);
    (void)printf("  = %.0f MB/s through two mutual-TLS hops\n",
                 (double)STREAM_BYTES / (double)percentile(&ours, 50));
    return 0;
}

static int bench(const struct arguments *arguments, struct err *err)
{
    CLEANUP_CLUSTER struct cluster *cluster = NULL;
    struct sandbox_processes *sandbox;
    const struct cluster_config config = { 0 };
    size_t execs = arguments->execs ? arguments->execs : EXECS_DEFAULT;
    (void)printf("%-34s %9s %9s | %-22s %9s %9s | %6s\n", "microseconds", "p50", "p99", "floor",
                 "p50", "p99", "ratio");
    /* First: a process without children, as a runner between two commands is. */
    if (bench_spawn(execs, err) < 0)
        return -1;
    if (cluster_new(&config, &cluster, err) < 0 || cluster_start_orchestrator(cluster, err) < 0 ||
        cluster_start_sandbox(cluster, SANDBOX, &sandbox, err) < 0)
        return -1;
    char endpoint[64];
    cluster_endpoint(cluster, endpoint, sizeof(endpoint));
    const struct sandstorm_client_options client_options = { .endpoint = endpoint,
                                                             .identity_dir = cluster->admin };
    struct sandstorm_client *client;
    struct sandstorm_error error;
    if (sandstorm_client_new(&client_options, &client, &error) < 0)
        return err_set(err, ERR_UNAVAILABLE, "%s", error.text);
    int r = bench_exec(cluster, client, execs, err);
    if (r == 0)
        r = bench_stream(client, err);
    sandstorm_client_free(client);
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
        r = bench(&arguments, &err);
    return r < 0 ? program_fail(page.program, &err) : 0;
}
