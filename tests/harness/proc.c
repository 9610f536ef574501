/* Processes of a test: spawned through a guard (tests/harness/guard.c), known by a pidfd, ended by
 * a message from the guard. Called by tests/harness/service.c for daemons and by tests for the
 * command line client. */
#include "tests/harness/proc.h"

#include "common/clock.h"
#include "tests/harness/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

struct proc {
    pid_t guard;
    pid_t pid;
    int pidfd;
    int control;
    bool ended;
    int status;
};

/* The environment. */

/* A name comes once: getenv(3) counts the first, a shell the last. */
static bool passed_on(const char *item, const char *const *extra)
{
    size_t name = strcspn(item, "=");
    for (; extra && *extra; extra++)
        if (strncmp(*extra, item, name) == 0 && (*extra)[name] == '=')
            return false;
    return strncmp(item, "SANDSTORM_", 10) != 0 && strncmp(item, "NOTIFY_SOCKET=", 14) != 0;
}

static char **merge_environment(const char *const *extra)
{
    size_t count = 0, used = 0;
    for (char **item = environ; *item; item++)
        count++;
    for (const char *const *item = extra; item && *item; item++)
        count++;
    char **merged = calloc(count + 1, sizeof(*merged));
    if (!merged)
        return NULL;
    for (const char *const *item = extra; item && *item; item++)
        merged[used++] = (char *)*item;
    for (char **item = environ; *item; item++)
        if (passed_on(*item, extra))
            merged[used++] = *item;
    return merged;
}

/* Starting. */

static int add_stdio(posix_spawn_file_actions_t *actions, const struct proc_spec *spec)
{
    const int fds[] = { spec->in, spec->out, spec->err };
    int error = 0;
    for (int i = 0; i < 3 && !error; i++)
        error = fds[i] >= 0 ? posix_spawn_file_actions_adddup2(actions, fds[i], i)
                            : posix_spawn_file_actions_addopen(actions, i, "/dev/null", O_RDWR, 0);
    return error;
}

static int spawn_guard(const struct proc_spec *spec, char **argv, char **environment, int control,
                       pid_t *ret)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none, all;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    if (posix_spawn_file_actions_init(&actions))
        return ENOMEM;
    if (posix_spawnattr_init(&attr)) {
        (void)posix_spawn_file_actions_destroy(&actions);
        return ENOMEM;
    }
    /* A session of its own: a Ctrl-C in the terminal is for us, who then stop it in order. */
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETSID);
    (void)posix_spawnattr_setsigmask(&attr, &none);
    (void)posix_spawnattr_setsigdefault(&attr, &all);
    int error = add_stdio(&actions, spec);
    if (!error)
        error = posix_spawn_file_actions_adddup2(&actions, control, GUARD_FD);
    if (!error)
        error = posix_spawn(ret, argv[0], &actions, &attr, argv, environment);
    (void)posix_spawnattr_destroy(&attr);
    (void)posix_spawn_file_actions_destroy(&actions);
    return error;
}

/* The guard's own descriptors are 0 to 3; one of ours with such a number would be overwritten
 * before it is used. */
static int keep_above(int fd)
{
    int higher = fcntl(fd, F_DUPFD_CLOEXEC, GUARD_FD + 1);
    (void)close(fd);
    return higher;
}

static int launch(const struct proc_spec *spec, pid_t *ret_guard, int *ret_control, struct err *err)
{
    size_t count = 0;
    while (spec->argv[count])
        count++;
    CLEANUP_FREE char **argv = calloc(count + 2, sizeof(*argv));
    CLEANUP_FREE char **environment = merge_environment(spec->env);
    if (!argv || !environment)
        return err_nomem(err);
    argv[0] = (char *)HARNESS_GUARD;
    (void)memcpy(argv + 1, spec->argv, count * sizeof(*argv));
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_errno(err, errno, "cannot create a socket pair");
    CLEANUP_FD int ours = keep_above(pair[0]);
    CLEANUP_FD int theirs = keep_above(pair[1]);
    int error = spawn_guard(spec, argv, environment, theirs, ret_guard);
    if (error)
        return err_errno(err, error, "cannot start the guard %s", HARNESS_GUARD);
    *ret_control = TAKE_FD(ours);
    return 0;
}

static int hear_started(struct proc *proc, const char *program, struct err *err)
{
    struct guard_started started;
    struct iovec part = { &started, sizeof(started) };
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {
        .msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };
    ssize_t n = recvmsg(proc->control, &message, MSG_CMSG_CLOEXEC);
    if (n != (ssize_t)sizeof(started))
        return err_set(err, ERR_INTERNAL, "the guard of %s said nothing", program);
    if (started.error)
        return err_errno(err, started.error, "cannot start %s", program);
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    if (!rights || rights->cmsg_type != SCM_RIGHTS)
        return err_set(err, ERR_INTERNAL, "the guard of %s sent no pidfd", program);
    (void)memcpy(&proc->pidfd, CMSG_DATA(rights), sizeof(proc->pidfd));
    proc->pid = started.pid;
    return 0;
}

int proc_start(const struct proc_spec *spec, struct proc **ret, struct err *err)
{
    struct proc *proc = calloc(1, sizeof(*proc));
    if (!proc)
        return err_nomem(err);
    proc->pidfd = proc->control = -1;
    if (launch(spec, &proc->guard, &proc->control, err) < 0 ||
        hear_started(proc, spec->argv[0], err) < 0) {
        proc_free(proc);
        return -1;
    }
    *ret = proc;
    return 0;
}

void proc_free(struct proc *proc)
{
    if (!proc)
        return;
    close_fd(&proc->control);
    close_fd(&proc->pidfd);
    /* The guard saw the socket close; it leaves when nobody is left below it. */
    if (proc->guard > 0)
        (void)waitpid(proc->guard, NULL, 0);
    free(proc);
}

pid_t proc_pid(const struct proc *proc)
{
    return proc->pid;
}

int proc_fd(const struct proc *proc)
{
    return proc->control;
}

int proc_signal(struct proc *proc, int number, struct err *err)
{
    if (pidfd_send_signal(proc->pidfd, number, NULL, 0) < 0)
        return err_errno(err, errno, "cannot send signal %d to process %d", number, proc->pid);
    return 0;
}

int proc_wait(struct proc *proc, uint64_t timeout_us, int *ret_status, struct err *err)
{
    if (!proc->ended) {
        struct pollfd wait = { .fd = proc->control, .events = POLLIN };
        struct guard_ended ended;
        if (poll(&wait, 1, (int)(timeout_us / 1000)) != 1)
            return err_set(err, ERR_TIMEOUT, "process %d still runs after %llu ms", proc->pid,
                           (unsigned long long)timeout_us / 1000);
        if (recv(proc->control, &ended, sizeof(ended), 0) != (ssize_t)sizeof(ended))
            return err_set(err, ERR_INTERNAL, "the guard of process %d is gone", proc->pid);
        proc->ended = true;
        proc->status = ended.status;
    }
    *ret_status = proc->status;
    return 0;
}

int proc_exit_status(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
