/* The way into a new process: `steps` below is what its first moments are. agent/command.c prepares
 * everything that can fail or allocate; the child, which shares our memory until it has exec'ed (as
 * posix_spawn's does, see agent/spawn_clone.c), only makes system calls and writes its verdict into
 * the struct below. */
#include "agent/spawn.h"

#include "agent/spawn-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* The child's frames are small, but execve's copy of nothing and signal delivery need some room. */
#define CHILD_STACK_BYTES (64u * 1024)
#define CANDIDATES_MAX    64u

struct child {
    const struct spawn_request *request;
    char *const *candidates;
    bool joined;      /* it was born in its control group */
    const char *what; /* what the step was about, for words */
    enum spawn_step step;
    int error;
};

static int fail(struct child *child, enum spawn_step step)
{
    child->step = step;
    child->error = errno;
    return 127;
}

/* The steps of a child, in their order. Each is 0, or -1 with errno. */

static IN_CHILD int enter_session(struct child *child)
{
    const struct spawn_request *request = child->request;
    if (setsid() < 0)
        return -1;
    return request->terminal ? ioctl(request->stdio[0], TIOCSCTTY, 0) : 0;
}

static IN_CHILD int write_file(int directory, const char *path, const char *text, size_t size)
{
    int fd = openat(directory, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = write(fd, text, size);
    int error = errno;
    (void)close(fd);
    errno = error;
    return n < 0 ? -1 : 0;
}

static IN_CHILD int enter_cgroup(struct child *child)
{
    return child->joined ? 0 : write_file(child->request->cgroup, "cgroup.procs", "0", 1);
}

/* While we still may: a limit may be raised, and a niceness lowered. */
static IN_CHILD int set_limits(struct child *child)
{
    const struct spawn_request *request = child->request;
    child->what = "oom_score_adj";
    if (request->oom_score_adj &&
        write_file(AT_FDCWD, "/proc/self/oom_score_adj", request->oom_score_adj,
                   strlen(request->oom_score_adj)) < 0)
        return -1;
    for (size_t i = 0; i < request->rlimit_count; i++) {
        child->what = request->rlimits[i].name;
        if (prlimit(0, request->rlimits[i].resource, &request->rlimits[i].limit, NULL) < 0)
            return -1;
    }
    child->what = "nice";
    if (request->nice && setpriority(PRIO_PROCESS, 0, *request->nice) < 0)
        return -1;
    if (request->umask)
        (void)umask(*request->umask);
    return 0;
}

/* By the system calls themselves: glibc's functions would change all threads of a process, and it
 * takes us for one of our parent's. Capabilities go with the user id, or at the latest with execve;
 * only ambient ones would survive both, see capabilities(7). */
static IN_CHILD int become_user(struct child *child)
{
    const struct spawn_user *user = child->request->user;
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL)
        return -1;
    if (!user)
        return 0;
    if (syscall(SYS_setgroups, user->group_count, user->groups) < 0 ||
        syscall(SYS_setresgid, user->gid, user->gid, user->gid) < 0 ||
        syscall(SYS_setresuid, user->uid, user->uid, user->uid) < 0)
        return -1;
    return 0;
}

/* Before a path is looked up: /proc/self/fd would lead through what the runner has open. */
static IN_CHILD int connect_stdio(struct child *child)
{
    for (int fd = 0; fd < 3; fd++)
        if (dup2(child->request->stdio[fd], fd) < 0)
            return -1;
    return close_range(3, ~0u, 0);
}

/* As the user, whose rights decide. */
static IN_CHILD int enter_directory(struct child *child)
{
    child->what = child->request->cwd;
    if (chdir(child->request->cwd) == 0)
        return 0;
    return child->request->cwd_or_root ? chdir("/") : -1;
}

/* By the system call itself: glibc keeps signals 32 and 33 to itself, but an ignored one would be
 * inherited all the same. An all-zero action is SIG_DFL, see rt_sigaction(2). */
static IN_CHILD int reset_signals(struct child *child)
{
    (void)child;
    static const unsigned char by_default[64];
    for (int number = 1; number < NSIG; number++)
        (void)syscall(SYS_rt_sigaction, number, by_default, NULL, NSIG / 8); /* KILL, STOP refuse */
    sigset_t none;
    (void)sigemptyset(&none);
    return sigprocmask(SIG_SETMASK, &none, NULL);
}

/* As execvp(3) has it: a candidate that is not there or may not be run does not end the search, and
 * the worst that was seen is the verdict. */
static IN_CHILD int execute(struct child *child)
{
    int seen = ENOENT;
    child->what = child->request->argv[0];
    for (char *const *candidate = child->candidates; *candidate; candidate++) {
        (void)execve(*candidate, child->request->argv, child->request->environment);
        if (errno == EACCES)
            seen = EACCES;
        else if (errno != ENOENT && (errno != ENOTDIR || !child->candidates[1]))
            return -1;
    }
    errno = seen;
    return -1;
}

static const struct {
    enum spawn_step step;
    int (*fn)(struct child *child);
} steps[] = {
    { SPAWN_STEP_SESSION, enter_session }, { SPAWN_STEP_CGROUP, enter_cgroup },
    { SPAWN_STEP_LIMITS, set_limits },     { SPAWN_STEP_USER, become_user },
    { SPAWN_STEP_STDIO, connect_stdio },   { SPAWN_STEP_CWD, enter_directory },
    { SPAWN_STEP_EXEC, reset_signals },    { SPAWN_STEP_EXEC, execute },
};

static IN_CHILD int child_main(void *userdata)
{
    struct child *child = userdata;
    for (size_t i = 0; i < ELEMENTS(steps); i++) {
        child->what = child->request->argv[0];
        if (steps[i].fn(child) < 0)
            return fail(child, steps[i].step);
    }
    return 127; /* not reached: execute() succeeds by not returning */
}

static void free_candidates(char **candidates)
{
    for (unsigned i = 0; i < CANDIDATES_MAX && candidates[i]; i++)
        free(candidates[i]);
}

static int list_candidates(const char *file, const char *path, char **candidates, struct err *err)
{
    unsigned count = 0;
    if (strchr(file, '/')) {
        candidates[0] = strdup(file);
        return candidates[0] ? 0 : err_nomem(err);
    }
    while (count < CANDIDATES_MAX) {
        size_t length = strcspn(path, ":");
        /* An empty element means the current directory, as POSIX has it. */
        if (asprintf(&candidates[count], "%.*s%s%s", (int)length, path, length ? "/" : "./", file) <
            0) {
            candidates[count] = NULL;
            return err_nomem(err);
        }
        count++;
        if (!path[length])
            return 0;
        path += length + 1;
    }
    return err_errno(err, E2BIG, "PATH has more than %u directories", CANDIDATES_MAX);
}

/* A group that cannot take it fails the clone itself. */
static enum spawn_step clone_step(const struct child *child)
{
    bool refused = errno == EBUSY || errno == EACCES || errno == EOPNOTSUPP || errno == ENODEV;
    return child->request->cgroup > 0 && refused ? SPAWN_STEP_CGROUP : SPAWN_STEP_FORK;
}

static int clone_child(struct child *child, struct spawn_result *ret)
{
    void *stack = mmap(NULL, CHILD_STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) {
        (void)fail(child, SPAWN_STEP_FORK);
        return -1;
    }
    /* No signal may run a handler of ours in the child, which has our memory. */
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    int pidfd = -1;
    pid_t pid = spawn_clone(child_main, child, stack, CHILD_STACK_BYTES, child->request->cgroup,
                            &pidfd, &child->joined);
    if (pid < 0)
        (void)fail(child, clone_step(child));
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)munmap(stack, CHILD_STACK_BYTES);
    ret->pid = pid;
    ret->pidfd = pidfd;
    return pid < 0 ? -1 : 0;
}

static const char *step_words(enum spawn_step step)
{
    switch (step) {
    case SPAWN_STEP_SESSION:
        return "cannot start a session for";
    case SPAWN_STEP_CGROUP:
        return "cannot enter the control group for";
    case SPAWN_STEP_STDIO:
        return "cannot connect standard input and output of";
    case SPAWN_STEP_LIMITS:
        return "cannot set the limit";
    case SPAWN_STEP_USER:
        return "cannot become the user for";
    case SPAWN_STEP_CWD:
        return "cannot enter the working directory";
    case SPAWN_STEP_EXEC:
        return "cannot run";
    default:
        return "cannot create a process for";
    }
}

int spawn_process(const struct spawn_request *request, struct spawn_result *ret,
                  enum spawn_step *ret_step, struct err *err)
{
    char *candidates[CANDIDATES_MAX + 1] = { 0 };
    if (list_candidates(request->argv[0], request->path, candidates, err) < 0) {
        free_candidates(candidates);
        *ret_step = SPAWN_STEP_EXEC;
        return -1;
    }
    struct child child = { .request = request, .candidates = candidates, .what = request->argv[0] };
    struct spawn_result result = { .pid = -1, .pidfd = -1 };
    int r = clone_child(&child, &result);
    free_candidates(candidates);
    if (r == 0 && child.step == SPAWN_STEP_NONE) {
        *ret = result;
        return 0;
    }
    if (r == 0) {
        /* It left with 127 before it became anything. */
        siginfo_t info;
        (void)waitid(P_PIDFD, (id_t)result.pidfd, &info, WEXITED);
        (void)close(result.pidfd);
    }
    *ret_step = child.step;
    return err_errno(err, child.error, "%s \"%.200s\"", step_words(child.step), child.what);
}
