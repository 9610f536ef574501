/* All processes of a command, by each means that this machine has: who is in the tree, who dies
 * with it, who is not touched. */
#include "agent/forest.h"
#include "agent/spawn.h"
#include "common/clock.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define DEADLINE_US 30000000u

struct plot {
    struct loop *loop;
    struct forest *forest;
    struct tree *tree;
    struct command_id id;
    struct reaper_child *child;
    struct spawn_result process;
    int output; /* the reading end of its stdout */
    unsigned reaped, empty;
};

static const enum forest_means both[] = { FOREST_CGROUP, FOREST_DESCENDANTS };

static void on_reaped(void *userdata, const siginfo_t *info, const struct rusage *usage)
{
    (void)info;
    (void)usage;
    struct plot *plot = userdata;
    plot->reaped++;
    tree_leader_reaped(plot->tree);
    reaper_unwatch(TAKE_PTR(plot->child));
    close_fd(&plot->process.pidfd);
}

static void on_empty(void *userdata)
{
    ((struct plot *)userdata)->empty++;
}

#define UNTIL(plot, condition)                                                                     \
    do {                                                                                           \
        uint64_t deadline_ = monotonic_us() + DEADLINE_US;                                         \
        while (!(condition)) {                                                                     \
            cr_assert_lt(monotonic_us(), deadline_, "never came: %s", #condition);                 \
            cr_assert_eq(loop_turn((plot)->loop, 100000, NULL), 0);                                \
        }                                                                                          \
    } while (0)

/* False where the machine does not have it. */
static bool plot_init(struct plot *plot, enum forest_means means)
{
    static char socket[64];
    struct err err = { 0 };
    *plot = (struct plot){ .output = -1 };
    (void)snprintf(socket, sizeof(socket), "/tmp/test-tree-%d", (int)getpid());
    const struct forest_config config = {
        .subreaper = means != FOREST_GROUP,
        .cgroups = means == FOREST_CGROUP ? socket : NULL,
    };
    cr_assert_eq(loop_new(&plot->loop, &err), 0, "%s", err.text);
    cr_assert_eq(forest_new(plot->loop, &config, &plot->forest, &err), 0, "%s", err.text);
    cr_assert_eq(command_id_new(&plot->id, &err), 0, "%s", err.text);
    return forest_means(plot->forest) == means;
}

static void plot_done(struct plot *plot)
{
    tree_free(plot->tree, false);
    reaper_unwatch(plot->child);
    /* The last group goes when its last process has been seen to go. */
    UNTIL(plot, !reaper_has_children());
    forest_free(plot->forest);
    loop_free(plot->loop);
    close_fd(&plot->output);
    close_fd(&plot->process.pidfd);
}

static void grow(struct plot *plot, const char *script)
{
    struct err err = { 0 };
    enum spawn_step step;
    int ends[2];
    char variable[128];
    (void)snprintf(variable, sizeof(variable), "%s=%s", TREE_VARIABLE, plot->id.text);
    char *argv[] = { (char *)"/bin/sh", (char *)"-c", (char *)script, NULL };
    char *environment[] = { (char *)"PATH=/usr/bin:/bin", variable, NULL };
    CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    cr_assert_eq(tree_new(plot->forest, &plot->id, &plot->tree, &err), 0, "%s", err.text);
    const struct spawn_request request = {
        .argv = argv,
        .environment = environment,
        .path = "",
        .cwd = "/",
        .stdio = { null, ends[1], null },
        .cgroup = tree_cgroup_fd(plot->tree),
    };
    cr_assert_eq(spawn_process(&request, &plot->process, &step, &err), 0, "%s", err.text);
    close_fd(&ends[1]);
    plot->output = ends[0];
    tree_started(plot->tree, plot->process.pid);
    cr_assert_eq(reaper_watch(forest_reaper(plot->forest), plot->process.pid, plot->process.pidfd,
                              on_reaped, plot, &plot->child, &err),
                 0);
}

/* Lines that say "up": that many processes are where the script wants them. */
static void await(struct plot *plot, unsigned lines)
{
    char byte;
    while (lines > 0) {
        cr_assert_eq(read(plot->output, &byte, 1), 1, "the script ended early");
        lines -= byte == '\n';
    }
}

static void kill_all(struct plot *plot)
{
    struct err err = { 0 };
    tree_kill(plot->tree);
    UNTIL(plot, plot->reaped);
    int r = tree_wait_empty(plot->tree, on_empty, plot, &err);
    cr_assert_geq(r, 0, "%s", err.text);
    if (r == 0)
        UNTIL(plot, plot->empty);
    cr_expect_eq(tree_count(plot->tree), 0u);
    /* Nobody has its stdout any more, so nobody is left. */
    char byte;
    cr_expect_eq(read(plot->output, &byte, 1), 0);
}

/* Each script writes one line for each process that it has made. */
static const struct {
    const char *name, *script;
    unsigned lines;
} scripts[] = {
    { "alone", "echo up; exec sleep 1000", 1 },
    { "children", "sleep 1000 & sleep 1000 & echo up; wait", 1 },
    { "nohup", "nohup sh -c 'echo up; exec sleep 1000' & wait", 1 },
    { "setsid", "setsid sh -c 'echo up; exec sleep 1000' & wait", 1 },
    { "double fork", "(setsid sh -c 'echo up; exec sleep 1000' &) ; sleep 1000", 1 },
    { "no leader", "(setsid sh -c 'echo up; exec sleep 1000' &) ; sleep 0.01", 1 },
    { "stopped", "sh -c 'echo up; kill -STOP $$; sleep 1000' & wait", 1 },
    { "deaf", "trap '' TERM HUP INT; sh -c 'echo up; while :; do sleep 1000; done' & wait", 1 },
    { "many",
      "for i in 1 2 3 4 5 6 7 8 9 10; do (setsid sh -c 'echo up; sleep 1000' &); done; wait; "
      "sleep 1000",
      10 },
};

Test(tree, a_kill_is_for_all_of_it)
{
    for (size_t m = 0; m < ELEMENTS(both); m++)
        for (size_t i = 0; i < ELEMENTS(scripts); i++) {
            struct plot plot;
            if (plot_init(&plot, both[m])) {
                grow(&plot, scripts[i].script);
                await(&plot, scripts[i].lines);
                cr_log_info("%s by %s", scripts[i].name, forest_means_name(both[m]));
                cr_expect_gt(tree_count(plot.tree), 0u, "%s by %s", scripts[i].name,
                             forest_means_name(both[m]));
                kill_all(&plot);
            }
            plot_done(&plot);
        }
}

/* A tree that forks while it is killed: what the first look did not see dies too. */
Test(tree, who_forks_meanwhile_dies_too)
{
    for (size_t m = 0; m < ELEMENTS(both); m++) {
        struct plot plot;
        if (plot_init(&plot, both[m])) {
            grow(&plot, "f() { sleep 0.01; (f &); sleep 0.02; }; (f &) ; echo up; sleep 1000");
            await(&plot, 1);
            kill_all(&plot);
        }
        plot_done(&plot);
    }
}

Test(tree, a_signal_reaches_every_process_once)
{
    for (size_t m = 0; m < ELEMENTS(both); m++) {
        struct plot plot;
        struct err err = { 0 };
        if (plot_init(&plot, both[m])) {
            /* The traps of both write; the inner one has a session of its own. */
            grow(&plot, "trap 'echo got; n=1' USR1; setsid sh -c 'trap \"echo got\" USR1; echo up; "
                        "while :; do sleep 0.05; done' & echo up; "
                        "while :; do sleep 0.05; done");
            await(&plot, 2);
            cr_expect_eq(tree_signal(plot.tree, SIGUSR1, &err), 0, "%s", err.text);
            await(&plot, 2);
            kill_all(&plot);
        }
        plot_done(&plot);
    }
}

Test(tree, what_is_left_behind_is_counted_and_lives)
{
    for (size_t m = 0; m < ELEMENTS(both); m++) {
        struct plot plot;
        if (plot_init(&plot, both[m])) {
            grow(&plot, "sleep 1000 & (setsid sleep 1000 &); echo up; exit 0");
            await(&plot, 1);
            UNTIL(&plot, plot.reaped);
            UNTIL(&plot, tree_count(plot.tree) == 2);
            kill_all(&plot);
        }
        plot_done(&plot);
    }
}

Test(tree, one_tree_is_no_other)
{
    for (size_t m = 0; m < ELEMENTS(both); m++) {
        struct plot plot, other = { .output = -1 };
        struct err err = { 0 };
        if (plot_init(&plot, both[m])) {
            grow(&plot, "(setsid sh -c 'echo up; exec sleep 1000' &); sleep 1000");
            await(&plot, 1);
            other.loop = plot.loop;
            other.forest = plot.forest;
            cr_assert_eq(command_id_new(&other.id, &err), 0);
            grow(&other, "(setsid sh -c 'echo up; exec sleep 1000' &); sleep 1000");
            await(&other, 1);
            kill_all(&plot);
            UNTIL(&other, tree_count(other.tree) == 3);
            kill_all(&other);
            tree_free(other.tree, false);
            close_fd(&other.output);
        }
        plot_done(&plot);
    }
}

Test(tree, what_it_left_behind_is_let_go_and_its_group_goes_with_it)
{
    struct plot plot;
    if (!plot_init(&plot, FOREST_CGROUP)) {
        plot_done(&plot);
        cr_skip_test("no control groups here");
    }
    grow(&plot, "sleep 1000 & echo $!; exit 0");
    UNTIL(&plot, plot.reaped);
    char line[32] = "", path[512], group[256] = "";
    cr_assert_gt(read(plot.output, line, sizeof(line) - 1), 0);
    pid_t pid = (pid_t)strtol(line, NULL, 10);
    (void)snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
    FILE *file = fopen(path, "re");
    while (file && fgets(path, sizeof(path), file))
        if (strncmp(path, "0::", 3) == 0)
            (void)sscanf(path, "0::%255s", group);
    cr_assert(file && fclose(file) == 0 && strstr(group, plot.id.text), "%s", group);
    tree_free(TAKE_PTR(plot.tree), true);
    cr_expect_eq(kill(pid, 0), 0, "it was killed");
    cr_assert_eq(kill(pid, SIGKILL), 0);
    /* The group's last process has gone: so does the group. */
    (void)snprintf(path, sizeof(path), "/sys/fs/cgroup/unified%s", group);
    const char *root =
        access("/sys/fs/cgroup/unified", F_OK) == 0 ? "/sys/fs/cgroup/unified" : "/sys/fs/cgroup";
    (void)snprintf(path, sizeof(path), "%s%s", root, group);
    UNTIL(&plot, access(path, F_OK) < 0);
    plot_done(&plot);
}

/* A runner that died: another one with its name finds what it left. */
static pid_t leave_to_the_next(struct plot *plot, bool kept)
{
    char line[32] = "";
    grow(plot, "echo $$; exec sleep 1000");
    cr_assert_gt(read(plot->output, line, sizeof(line) - 1), 0);
    reaper_unwatch(TAKE_PTR(plot->child));
    tree_free(TAKE_PTR(plot->tree), kept);
    forest_free(TAKE_PTR(plot->forest));
    loop_free(TAKE_PTR(plot->loop));
    close_fd(&plot->output);
    close_fd(&plot->process.pidfd);
    return (pid_t)strtol(line, NULL, 10);
}

Test(tree, the_next_life_ends_what_is_lost_and_keeps_what_was_left_on_purpose)
{
    struct plot lost, kept, next;
    if (!plot_init(&lost, FOREST_CGROUP)) {
        plot_done(&lost);
        cr_skip_test("no control groups here");
    }
    pid_t gone = leave_to_the_next(&lost, false);
    cr_assert_eq(kill(gone, 0), 0);
    cr_assert(plot_init(&kept, FOREST_CGROUP));
    /* It is ended, and reaped, by the one that has just begun. */
    UNTIL(&kept, kill(gone, 0) < 0);
    pid_t left = leave_to_the_next(&kept, true);
    cr_assert(plot_init(&next, FOREST_CGROUP));
    cr_assert_eq(loop_turn(next.loop, 0, NULL), 0);
    siginfo_t info = { 0 };
    cr_assert_eq(waitid(P_PID, (id_t)left, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    cr_expect_eq(info.si_pid, 0, "what was left on purpose was ended");
    cr_assert_eq(kill(left, SIGKILL), 0);
    plot_done(&next);
}

/* The last resort. */

Test(tree, a_process_group_is_signalled_while_its_leader_is_there)
{
    struct plot plot;
    struct err err = { 0 };
    cr_assert(plot_init(&plot, FOREST_GROUP));
    grow(&plot, "sleep 1000 & echo up; wait");
    await(&plot, 1);
    cr_expect_eq(tree_count(plot.tree), 1u);
    tree_kill(plot.tree);
    UNTIL(&plot, plot.reaped);
    cr_expect_eq(tree_signal(plot.tree, SIGTERM, &err), -1, "a number that is not ours any more");
    cr_expect_eq(err.sys_errno, ESRCH);
    cr_expect_eq(tree_wait_empty(plot.tree, on_empty, &plot, &err), 1);
    plot_done(&plot);
}

Test(tree, a_limit_without_its_controller_is_refused)
{
    struct plot plot;
    struct err err = { 0 };
    cr_assert(plot_init(&plot, FOREST_DESCENDANTS));
    cr_expect_eq(forest_enforces(plot.forest), 0u);
    cr_expect(strstr(forest_why_not(plot.forest), "\"cgroups\""));
    cr_assert_eq(tree_new(plot.forest, &plot.id, &plot.tree, &err), 0);
    cr_expect_eq(tree_set_limit(plot.tree, TREE_MEMORY, 1u << 20, &err), -1);
    cr_expect_eq(err.sys_errno, ENOTSUP);
    plot_done(&plot);
}
