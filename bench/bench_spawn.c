/* The runner's way into a new process against posix_spawn(3), both with three pipes and a wait.
 * Ours is done as the runner does it, with all that a command may have: a control group, or the
 * runner's descendants; a user, limits. Rounds are interleaved. */
#include "agent/forest.h"
#include "agent/spawn.h"
#include "bench/bench.h"
#include "common/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

struct pipes {
    int child[3], ours[3];
};

static int pipes_open(struct pipes *pipes, struct err *err)
{
    for (int i = 0; i < 3; i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) < 0)
            return err_errno(err, errno, "cannot create a pipe");
        pipes->child[i] = ends[i == 0 ? 0 : 1];
        pipes->ours[i] = ends[i == 0 ? 1 : 0];
    }
    return 0;
}

static void pipes_close(struct pipes *pipes)
{
    for (int i = 0; i < 3; i++) {
        (void)close(pipes->child[i]);
        (void)close(pipes->ours[i]);
    }
}

static char *const argv_true[] = { (char *)"/bin/true", NULL };
static char *const environment[] = { (char *)"PATH=/usr/bin:/bin", NULL };

static int run_floor(struct err *err)
{
    struct pipes pipes;
    posix_spawn_file_actions_t actions;
    pid_t pid;
    if (pipes_open(&pipes, err) < 0)
        return -1;
    int r = posix_spawn_file_actions_init(&actions);
    for (int i = 0; i < 3 && r == 0; i++)
        r = posix_spawn_file_actions_adddup2(&actions, pipes.child[i], i);
    if (r == 0)
        r = posix_spawn(&pid, argv_true[0], &actions, NULL, argv_true, environment);
    (void)posix_spawn_file_actions_destroy(&actions);
    pipes_close(&pipes);
    if (r)
        return err_errno(err, r, "cannot run /bin/true");
    return waitpid(pid, NULL, 0) < 0 ? err_errno(err, errno, "cannot wait") : 0;
}

static int run_ours(struct forest *forest, const struct spawn_request *wanted, struct err *err)
{
    struct pipes pipes;
    struct command_id id;
    struct tree *tree = NULL;
    struct spawn_request request = *wanted;
    struct spawn_result process;
    enum spawn_step step;
    siginfo_t info;
    if (pipes_open(&pipes, err) < 0)
        return -1;
    int r = command_id_new(&id, err) < 0 || tree_new(forest, &id, &tree, err) < 0 ? -1 : 0;
    for (int i = 0; i < 3; i++)
        request.stdio[i] = pipes.child[i];
    if (r == 0) {
        request.cgroup = tree_cgroup_fd(tree);
        r = spawn_process(&request, &process, &step, err);
    }
    pipes_close(&pipes);
    if (r == 0) {
        tree_started(tree, process.pid);
        (void)waitid(P_PIDFD, (id_t)process.pidfd, &info, WEXITED);
        (void)close(process.pidfd);
        tree_leader_reaped(tree);
        if (tree_count(tree) > 0)
            r = err_set(err, ERR_INTERNAL, "a process is left of /bin/true");
    }
    tree_free(tree, false);
    return r;
}

static int measure(struct forest *forest, const struct spawn_request *request, const char *name,
                   size_t count, struct err *err)
{
    CLEANUP_FREE uint64_t *memory = calloc(2 * count, sizeof(*memory));
    if (!memory)
        return err_nomem(err);
    struct series ours = { name, memory, 0 };
    struct series floor = { "posix_spawn and pipes", memory + count, 0 };
    for (size_t i = 0; i < count; i++) {
        uint64_t start = monotonic_us();
        if (run_ours(forest, request, err) < 0)
            return -1;
        uint64_t middle = monotonic_us();
        if (run_floor(err) < 0)
            return -1;
        ours.us[ours.count++] = middle - start;
        floor.us[floor.count++] = monotonic_us() - middle;
    }
    bench_print_row(&ours, &floor);
    return 0;
}

static int measure_by(bool cgroups, size_t count, struct err *err)
{
    char socket[64];
    CLEANUP_LOOP struct loop *loop = NULL;
    struct forest *forest;
    (void)snprintf(socket, sizeof(socket), "bench-%d", (int)getpid());
    const struct forest_config config = { .subreaper = true, .cgroups = cgroups ? socket : NULL };
    if (loop_new(&loop, err) < 0 || forest_new(loop, &config, &forest, err) < 0)
        return -1;
    const struct spawn_request plain = {
        .argv = argv_true, .environment = environment, .path = "", .cwd = "/"
    };
    struct spawn_request rich = plain;
    const gid_t groups[] = { 1, 2, 3 };
    const struct spawn_user user = { 1, 1, groups, ELEMENTS(groups) };
    const struct spawn_rlimit limits[] = { { RLIMIT_NOFILE, "nofile", { 1024, 4096 } },
                                           { RLIMIT_CORE, "core", { 0, 0 } } };
    const int nice = 1;
    const mode_t umask = 022;
    rich.user = geteuid() == 0 ? &user : NULL;
    rich.rlimits = limits;
    rich.rlimit_count = ELEMENTS(limits);
    rich.nice = &nice;
    rich.umask = &umask;
    bool grouped = forest_means(forest) == FOREST_CGROUP;
    int r = 0;
    if (cgroups && !grouped)
        (void)printf("spawn in a control group: not measured, %s\n", forest_why_not(forest));
    else
        r = measure(forest, &plain, grouped ? "spawn in a control group" : "spawn", count, err);
    if (r == 0 && grouped)
        r = measure(forest, &rich, "the same, with user and limits", count, err);
    forest_free(forest);
    return r;
}

int bench_spawn(size_t count, struct err *err)
{
    return measure_by(false, count, err) < 0 || measure_by(true, count, err) < 0 ? -1 : 0;
}
