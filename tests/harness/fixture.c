/* The ground that every integration test stands on. Each case has its own cluster in its own
 * directory, so that cases run side by side. The directory's name is known to Criterion's main
 * process too: there, when a case has failed or crashed, a hook prints the logs, and in every case
 * removes the directory. */
#include "tests/harness/fixture.h"

#include "common/clock.h"
#include "common/file.h"
#include "tests/harness/leftovers.h"

#include <criterion/hooks.h>
#include <criterion/logging.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/pidfd.h>
#include <sys/timerfd.h>

#define LOG_PRINT_MAX (16u * 1024 * 1024)

static struct cluster *cluster;
static struct sandbox_processes *box;

/* Where a case keeps its files; short, because of unix sockets. */
static void case_dir(char out[CLUSTER_PATH_MAX], pid_t runner, const char *suite, const char *name)
{
    uint32_t hash = 2166136261u;
    for (const char *text = suite; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    for (const char *text = name; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    (void)snprintf(out, CLUSTER_PATH_MAX, "/tmp/sandstorm-test-%d-%08x", runner, hash);
}

static void print_log(const char *dir, const char *file)
{
    char path[CLUSTER_PATH_MAX + 256];
    CLEANUP_FREE char *text = NULL;
    size_t size;
    (void)snprintf(path, sizeof(path), "%s/%s", dir, file);
    if (file_read(path, LOG_PRINT_MAX, &text, &size, NULL) == 0)
        (void)fprintf(stderr, "---- %s\n%s", file, text);
}

static void print_logs(const char *dir)
{
    DIR *entries = opendir(dir);
    if (!entries)
        return;
    for (const struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot && strcmp(dot, ".log") == 0)
            print_log(dir, entry->d_name);
    }
    (void)closedir(entries);
}

/* Also of runners that nobody stopped: the case has crashed. */
static void remove_leftovers(const char *dir)
{
    char path[CLUSTER_PATH_MAX + 256];
    DIR *entries = opendir(dir);
    if (!entries)
        return;
    for (const struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        const char *dot = strrchr(entry->d_name, '.');
        (void)snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
        if (dot && strcmp(dot, ".sock") == 0)
            leftovers_remove(path);
    }
    (void)closedir(entries);
}

static void clean_up(const struct criterion_test_stats *stats)
{
    char dir[CLUSTER_PATH_MAX];
    case_dir(dir, getpid(), stats->test->category, stats->test->name);
    if (stats->test_status == CR_STATUS_FAILED || stats->crashed || stats->timed_out)
        print_logs(dir);
    remove_leftovers(dir);
    cluster_remove_dir(dir);
}

ReportHook(POST_FINI)(struct criterion_test_stats *stats)
{
    clean_up(stats);
}

ReportHook(TEST_CRASH)(struct criterion_test_stats *stats)
{
    clean_up(stats);
}

/* Life. */

void fixture_start_cluster(struct cluster_config config)
{
    char dir[CLUSTER_PATH_MAX];
    case_dir(dir, getppid(), criterion_current_test->category, criterion_current_test->name);
    config.dir = dir;
    config.keep_dir = true;
    MUST(cluster_new(&config, &cluster, err));
    MUST(cluster_start_orchestrator(cluster, err));
}

void fixture_start_empty_with(const char *settings)
{
    fixture_start_cluster((struct cluster_config){ .settings = settings });
}

void fixture_start_with(const char *settings)
{
    fixture_start_empty_with(settings);
    box = fixture_add(BOX);
}

void fixture_start_empty(void)
{
    fixture_start_empty_with(NULL);
}

void fixture_start(void)
{
    fixture_start_with(NULL);
}

/* A daemon writes a sanitizer's report into its log, where CTest does not see it. */
static int check_log(const struct service *service, struct err *err)
{
    static const char *const reports[] = { "AddressSanitizer", "LeakSanitizer", "ThreadSanitizer",
                                           "runtime error:", "Assertion" };
    CLEANUP_FREE char *text = NULL;
    size_t size;
    if (!service || file_read(service_log(service), LOG_PRINT_MAX, &text, &size, NULL) < 0)
        return 0;
    for (size_t i = 0; i < ELEMENTS(reports); i++)
        if (strstr(text, reports[i]))
            return err_set(err, ERR_INTERNAL, "%s in the log of %s", reports[i],
                           service_name(service));
    return 0;
}

static int check_logs(struct err *err)
{
    int r = check_log(cluster->orchestrator, err);
    for (unsigned i = 0; i < cluster->sandbox_count && r == 0; i++) {
        r = check_log(cluster->sandboxes[i].link, err);
        if (r == 0)
            r = check_log(cluster->sandboxes[i].runner, err);
    }
    return r;
}

void fixture_stop(void)
{
    struct err err = { 0 };
    if (!cluster)
        return;
    int r = cluster_stop(cluster, &err);
    if (r == 0)
        r = check_logs(&err);
    if (r < 0) {
        /* Criterion does not count an assertion in a teardown, and runs no hook after a crash in
         * one; but a crash there does fail the run. */
        (void)fprintf(stderr, "the daemons did not end well: %s\n", err.text);
        print_logs(cluster->dir);
        cluster->keep_dir = false;
    }
    cluster_free(TAKE_PTR(cluster));
    if (r < 0)
        abort();
}

struct cluster *fixture(void)
{
    return cluster;
}

struct sandbox_processes *fixture_box(void)
{
    return box;
}

struct sandbox_processes *fixture_add(const char *name)
{
    struct sandbox_processes *sandbox = NULL;
    MUST(cluster_start_sandbox(cluster, name, &sandbox, err));
    return sandbox;
}

/* The client. */

struct proc_result fixture_cli(const char *const *arguments, const void *input, size_t size)
{
    struct proc_result result = { 0 };
    MUST(cluster_cli(cluster, arguments, input, size, PROC_DEADLINE_US, &result, err));
    return result;
}

struct proc_result fixture_run(const char *const *argv, const char *const *env)
{
    const struct proc_spec spec = { .argv = argv, .env = env };
    struct proc_result result = { 0 };
    MUST(proc_run(&spec, NULL, 0, PROC_DEADLINE_US, &result, err));
    return result;
}

static int open_pipe(bool wanted, bool ours_writes, int *ret_ours)
{
    int fds[2];
    *ret_ours = -1;
    if (!wanted)
        return -1;
    cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
    *ret_ours = fds[ours_writes ? 1 : 0];
    return fds[ours_writes ? 0 : 1];
}

struct fixture_client fixture_cli_start(unsigned pipes, const char *const *arguments)
{
    struct fixture_client client = { 0 };
    CLEANUP_FD int in = open_pipe(pipes & PIPE_IN, true, &client.in);
    CLEANUP_FD int out = open_pipe(pipes & PIPE_OUT, false, &client.out);
    CLEANUP_FD int errors = open_pipe(pipes & PIPE_ERR, false, &client.err);
    MUST(cluster_cli_start(cluster, arguments, in, out, errors, &client.proc, err));
    return client;
}

void fixture_client_done(struct fixture_client *client)
{
    proc_free(client->proc);
    close_fd(&client->in);
    close_fd(&client->out);
    close_fd(&client->err);
}

int fixture_client_wait(struct fixture_client *client)
{
    int status = 0;
    MUST(proc_wait(client->proc, PROC_DEADLINE_US, &status, err));
    return proc_exit_status(status);
}

/* Waiting. */

static void wait_readable(int fd, uint64_t deadline)
{
    struct pollfd wait = { .fd = fd, .events = POLLIN };
    uint64_t now = monotonic_us();
    int left = now < deadline ? (int)((deadline - now) / 1000) + 1 : 0;
    cr_assert_eq(poll(&wait, 1, left), 1, "nothing came within the deadline");
}

void fixture_read_line(int fd, char *out, size_t size)
{
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    for (size_t used = 0; used < size; used++) {
        wait_readable(fd, deadline);
        cr_assert_eq(read(fd, out + used, 1), 1, "the stream ended within a line");
        if (out[used] == '\n') {
            out[used] = '\0';
            return;
        }
    }
    cr_assert_fail("a line of more than %zu characters", size);
}

char *fixture_read_all(int fd, size_t *ret_size)
{
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    size_t used = 0, capacity = 0;
    char *data = NULL;
    for (;;) {
        if (capacity - used < 65536 + 1) {
            capacity = capacity * 2 + 65536 + 1;
            char *more = realloc(data, capacity);
            cr_assert_not_null(more);
            data = more;
        }
        wait_readable(fd, deadline);
        ssize_t n = read(fd, data + used, 65536);
        cr_assert_geq(n, 0);
        used += (size_t)n;
        if (n == 0)
            break;
    }
    data[used] = '\0';
    *ret_size = used;
    return data;
}

void fixture_wait_file(const char *path)
{
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    CLEANUP_FD int watch = inotify_init1(IN_CLOEXEC);
    cr_assert_geq(inotify_add_watch(watch, cluster->dir, IN_CREATE | IN_MOVED_TO), 0);
    while (access(path, F_OK) < 0) {
        char events[4096];
        wait_readable(watch, deadline);
        cr_assert_gt(read(watch, events, sizeof(events)), 0);
    }
}

void fixture_wait_time(int64_t unix_s)
{
    CLEANUP_FD int timer = timerfd_create(CLOCK_REALTIME, TFD_CLOEXEC);
    const struct itimerspec when = { .it_value.tv_sec = unix_s + 1 };
    cr_assert_eq(timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, NULL), 0);
    wait_readable(timer, monotonic_us() + PROC_DEADLINE_US);
}

void fixture_wait_gone(pid_t pid)
{
    CLEANUP_FD int pidfd = pidfd_open(pid, 0);
    if (pidfd < 0) {
        cr_assert_eq(errno, ESRCH);
        return;
    }
    wait_readable(pidfd, monotonic_us() + PROC_DEADLINE_US);
}

const char *fixture_path(const char *name)
{
    static char path[CLUSTER_PATH_MAX + 64];
    (void)snprintf(path, sizeof(path), "%s/%s", cluster->dir, name);
    return path;
}

void fixture_touch(const char *name)
{
    CLEANUP_FD int fd = open(fixture_path(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
}

void fixture_assert_contains(const char *text, const char *wanted)
{
    cr_assert_not_null(strstr(text, wanted), "\"%s\" is not in \"%s\"", wanted, text);
}

unsigned fixture_count_text(const char *path, const char *wanted)
{
    CLEANUP_FREE char *text = NULL;
    size_t size = 0;
    unsigned count = 0;
    if (file_read(path, LOG_PRINT_MAX, &text, &size, NULL) < 0)
        return 0;
    for (const char *at = text;
         (at = memmem(at, size - (size_t)(at - text), wanted, strlen(wanted))); at++)
        count++;
    return count;
}

unsigned fixture_count_lines(const char *path)
{
    CLEANUP_FREE char *text = NULL;
    size_t size = 0;
    unsigned lines = 0;
    if (file_read(path, LOG_PRINT_MAX, &text, &size, NULL) < 0)
        return 0;
    for (size_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    return lines;
}

unsigned fixture_count_audit(const char *const *texts)
{
    CLEANUP_RESULT struct proc_result rows = CLI("audit", "-n", "100000", "-o", "json");
    unsigned count = 0;
    char *rest = rows.out;
    cr_assert_eq(rows.status, 0, "%s", rows.err);
    for (const char *row = strsep(&rest, "\n"); row; row = strsep(&rest, "\n")) {
        const char *const *text = texts;
        while (*text && strstr(row, *text))
            text++;
        count += *row && !*text;
    }
    return count;
}
