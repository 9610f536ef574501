/* sandstorm-bench-fleet (`make bench-fleet`): what a connected fleet costs the orchestrator. Starts
 * an orchestrator in a private directory through tests/harness/cluster.c and so many simulated
 * agents beside it (bench/fleet_sim.c), waits until all are connected, and compares the
 * orchestrator's CPU time and memory before and after. Everything is on the loopback interface, and
 * gone when this ends, however it ends. */
#include "tests/harness/fleet.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/program.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>

#define AGENTS_DEFAULT  2000u
#define AGENTS_MAX      10000u
#define SECONDS_DEFAULT 300u
#define CONNECT_US      600000000u
#define SETTINGS        "open_files: 16384\nlog_level: warn\n"

struct arguments {
    uint64_t agents, seconds;
    uint64_t heartbeat_us;
};

static const struct option options[] = {
    { "agents", 'n', OPTION_UINT, "N", "Simulated agents, 2000 if not given",
      offsetof(struct arguments, agents), 1, AGENTS_MAX },
    { "seconds", 's', OPTION_UINT, "N", "How long to measure, 300 if not given",
      offsetof(struct arguments, seconds), 1, 86400 },
    { "heartbeat", 0, OPTION_DURATION, "TIME", "Heartbeat interval, the default if not given",
      offsetof(struct arguments, heartbeat_us), 100000, 3600000000 },
    { 0 },
};

static const struct option_page page = {
    .program = "sandstorm-bench-fleet",
    .section = 1,
    .summary = "measure what a fleet costs the orchestrator",
    .usage = "[OPTION...]",
    .options = options,
};

/* What the kernel says of the orchestrator's process. */
struct usage {
    uint64_t cpu_us; /* user and system */
    uint64_t rss_bytes;
    uint64_t at_us;
};

static int read_usage(pid_t pid, struct usage *ret, struct err *err)
{
    char path[64];
    CLEANUP_FREE char *text = NULL;
    size_t size;
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (file_read(path, 4096, &text, &size, err) < 0)
        return -1;
    /* Fields 14, 15 and 24 of proc(5), counted after the name, which may contain anything. */
    const char *rest = strrchr(text, ')');
    unsigned long long user, system, pages;
    if (!rest || sscanf(rest + 2,
                        "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d "
                        "%*d %*u %*u %llu",
                        &user, &system, &pages) != 3)
        return err_set(err, ERR_INTERNAL, "cannot understand %s", path);
    ret->cpu_us = (user + system) * 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
    ret->rss_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
    ret->at_us = monotonic_us();
    return 0;
}

/* Until the time is over; -1 when somebody stops it, or the fleet or the orchestrator ends. */
static int wait_seconds(const struct cluster *cluster, const struct service *fleet, int signals,
                        uint64_t seconds, struct err *err)
{
    struct pollfd fds[] = {
        { .fd = signals, .events = POLLIN },
        { .fd = proc_fd(service_proc(cluster->orchestrator)), .events = POLLIN },
        { .fd = proc_fd(service_proc(fleet)), .events = POLLIN },
    };
    uint64_t end = monotonic_us() + seconds * 1000000;
    for (;;) {
        uint64_t now = monotonic_us();
        if (now >= end)
            return 0;
        int r = poll(fds, ELEMENTS(fds), (int)((end - now) / 1000) + 1);
        if (r < 0 && errno != EINTR)
            return err_errno(err, errno, "cannot wait");
        if (r > 0)
            return err_set(err, ERR_CANCELLED, "%s",
                           fds[0].revents ? "stopped by a signal"
                                          : "a process ended before its time");
    }
}

static double number(const json_t *report, const char *name)
{
    return json_number_value(json_object_get(report, name));
}

static void print_figures(const json_t *report, const struct usage *idle,
                          const struct usage *before, const struct usage *after)
{
    double agents = number(report, "agents"), beats = number(report, "heartbeats");
    double seconds = (double)(after->at_us - before->at_us) / 1e6;
    double cpu = (double)(after->cpu_us - before->cpu_us);
    (void)printf("agents                              %10.0f, %.0f connected at the end, "
                 "%.0f reconnects\n",
                 agents, number(report, "connected"), number(report, "reconnects"));
    (void)printf("enrolled and connected within       %10.1f s (%.1f ms of the orchestrator's CPU "
                 "for each)\n",
                 number(report, "connect_s"),
                 (double)(before->cpu_us - idle->cpu_us) / 1e3 / agents);
    (void)printf("measured for                        %10.1f s, %.0f heartbeats\n", seconds, beats);
    (void)printf("orchestrator's CPU                  %10.2f %% of a core\n", cpu / seconds / 1e4);
    (void)printf("  for each heartbeat                %10.0f us\n", beats > 0 ? cpu / beats : 0);
    (void)printf("heartbeat message                   %10.0f bytes packed\n",
                 number(report, "heartbeat_bytes"));
    (void)printf("  up, with gRPC, TLS and keepalive  %10.0f bytes for each heartbeat\n",
                 number(report, "wire_sent_per_heartbeat"));
    (void)printf("  down                              %10.0f bytes\n",
                 number(report, "wire_received_per_heartbeat"));
    (void)printf("orchestrator's memory               %10.1f MiB, %.1f KiB for each agent\n",
                 (double)after->rss_bytes / 1048576,
                 ((double)after->rss_bytes - (double)idle->rss_bytes) / 1024 / agents);
}

static int measure(struct cluster *cluster, struct service *fleet, int signals, uint64_t seconds,
                   struct err *err)
{
    struct usage idle, before, after;
    pid_t pid = proc_pid(service_proc(cluster->orchestrator));
    if (read_usage(pid, &idle, err) < 0 || fleet_start(fleet, CONNECT_US, err) < 0 ||
        read_usage(pid, &before, err) < 0)
        return -1;
    (void)printf("connected; measuring for %" PRIu64 " s\n", seconds);
    if (wait_seconds(cluster, fleet, signals, seconds, err) < 0 ||
        read_usage(pid, &after, err) < 0 || service_stop(fleet, err) < 0)
        return -1;
    char path[CLUSTER_PATH_MAX + 16];
    json_error_t why;
    (void)snprintf(path, sizeof(path), "%s/fleet.json", cluster->dir);
    json_t *report = json_load_file(path, 0, &why);
    if (!report)
        return err_set(err, ERR_INTERNAL, "the fleet's figures: %s", why.text);
    print_figures(report, &idle, &before, &after);
    json_decref(report);
    return 0;
}

static int bench(const struct arguments *arguments, struct err *err)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    CLEANUP_FD int signals = signalfd(-1, &set, SFD_CLOEXEC);
    CLEANUP_CLUSTER struct cluster *cluster = NULL;
    struct service *fleet = NULL;
    char settings[256];
    (void)snprintf(settings, sizeof(settings), SETTINGS "heartbeat_interval: %" PRIu64 "ms\n",
                   arguments->heartbeat_us ? arguments->heartbeat_us / 1000 : 30000);
    const struct cluster_config config = { .settings = settings };
    const struct fleet_config fleet_config = {
        .count = (unsigned)(arguments->agents ? arguments->agents : AGENTS_DEFAULT)
    };
    if (signals < 0)
        return err_errno(err, errno, "cannot wait for signals");
    if (cluster_new(&config, &cluster, err) < 0 || cluster_start_orchestrator(cluster, err) < 0 ||
        fleet_new(cluster, &fleet_config, &fleet, err) < 0)
        return -1;
    int r = measure(cluster, fleet, signals,
                    arguments->seconds ? arguments->seconds : SECONDS_DEFAULT, err);
    service_free(fleet);
    return r;
}

int main(int argc, char **argv)
{
    struct arguments arguments = { 0 };
    struct err err = { 0 };
    bool done = false;
    int rest = 0;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    int r = program_parse(&page, argc, argv, &arguments, &done, &rest, &err);
    if (r == 0 && done)
        return 0;
    if (r == 0)
        r = bench(&arguments, &err);
    return r < 0 ? program_fail(page.program, &err) : 0;
}
