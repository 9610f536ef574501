/* The way into a new process. agent/command.c prepares everything that can fail or allocate; the
 * child, which shares our memory until it has exec'ed (CLONE_VM | CLONE_VFORK, as posix_spawn
 * does), only makes system calls and writes its verdict into the struct below. */
#include "agent/spawn.h"

#include <assert.h>
#include <errno.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* The child's frames are small, but execve's copy of nothing and signal delivery need some room. */
#define CHILD_STACK_BYTES (64u * 1024)
#define CANDIDATES_MAX    64u

struct child {
    const struct spawn_request *request;
    char *const *candidates;
    enum spawn_step step;
    int error;
};

static int fail(struct child *child, enum spawn_step step)
{
    child->step = step;
    child->error = errno;
    return 127;
}

/* By the system call itself: glibc keeps signals 32 and 33 to itself, but an ignored one would be
 * inherited all the same. An all-zero action is SIG_DFL, see rt_sigaction(2). */
static void reset_signals(void)
{
    static const unsigned char by_default[64];
    for (int number = 1; number < NSIG; number++)
        (void)syscall(SYS_rt_sigaction, number, by_default, NULL, NSIG / 8); /* KILL, STOP refuse */
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* As execvp(3) has it: a candidate that is not there or may not be run does not end the search, and
 * the worst that was seen is the verdict. */
static void exec_first(const struct child *child)
{
    int seen = ENOENT;
    for (char *const *candidate = child->candidates; *candidate; candidate++) {
        (void)execve(*candidate, child->request->argv, child->request->environment);
        if (errno == EACCES)
            seen = EACCES;
        else if (errno != ENOENT && (errno != ENOTDIR || !child->candidates[1]))
            return;
    }
    errno = seen;
}

/* No function here may be instrumented or allocate: the parent's heap is ours too. */
static __attribute__((no_sanitize("address", "thread", "undefined"))) int child_main(void *userdata)
{
    struct child *child = userdata;
    const struct spawn_request *request = child->request;
    if (setsid() < 0 || (request->terminal && ioctl(request->stdio[0], TIOCSCTTY, 0) < 0))
        return fail(child, SPAWN_STEP_SESSION);
    for (int fd = 0; fd < 3; fd++)
        if (dup2(request->stdio[fd], fd) < 0)
            return fail(child, SPAWN_STEP_STDIO);
    if (close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
        return fail(child, SPAWN_STEP_STDIO);
    if (request->files && setrlimit(RLIMIT_NOFILE, request->files) < 0)
        return fail(child, SPAWN_STEP_LIMITS);
    if (chdir(request->cwd) < 0)
        return fail(child, SPAWN_STEP_CWD);
    reset_signals();
    exec_first(child);
    return fail(child, SPAWN_STEP_EXEC);
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

static int clone_child(struct child *child, struct spawn_result *ret)
{
    void *stack = mmap(NULL, CHILD_STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED)
        return fail(child, SPAWN_STEP_FORK);
    /* No signal may run a handler of ours in the child, which has our memory. */
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    int pidfd = -1;
    pid_t pid = clone(child_main, (char *)stack + CHILD_STACK_BYTES,
                      CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, child, &pidfd);
    if (pid < 0)
        (void)fail(child, SPAWN_STEP_FORK);
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
        return "cannot start a session";
    case SPAWN_STEP_STDIO:
        return "cannot connect standard input and output";
    case SPAWN_STEP_LIMITS:
        return "cannot set the limit of open files for";
    case SPAWN_STEP_CWD:
        return "cannot enter the working directory";
    case SPAWN_STEP_EXEC:
        return "cannot run";
    default:
        return "cannot create a process";
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
    struct child child = { .request = request, .candidates = candidates };
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
    const char *what = child.step == SPAWN_STEP_CWD ? request->cwd : request->argv[0];
    return err_errno(err, child.error, "%s \"%.200s\"", step_words(child.step), what);
}
