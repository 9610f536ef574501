/* sandstorm-guard: the parent of every process that a test starts. A test may be killed at any
 * moment, its daemons may be too, and the commands below them are in sessions of their own; so the
 * guard is a child subreaper (see prctl(2)) that collects all of them, and kills all of them when
 * its process has ended or when the test's end of the socket is gone. Started by
 * tests/harness/proc.c. */
#include "tests/harness/guard.h"

#include "common/macros.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

static int start(char **argv, pid_t *ret)
{
    posix_spawnattr_t attr;
    sigset_t none, all;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    if (posix_spawnattr_init(&attr))
        return ENOMEM;
    (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    (void)posix_spawnattr_setsigmask(&attr, &none);
    (void)posix_spawnattr_setsigdefault(&attr, &all);
    int error = posix_spawnp(ret, argv[0], NULL, &attr, argv, environ);
    (void)posix_spawnattr_destroy(&attr);
    return error;
}

static void tell_started(const struct guard_started *started, int pidfd)
{
    struct guard_started copy = *started;
    struct iovec part = { &copy, sizeof(copy) };
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    if (pidfd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        (void)memcpy(CMSG_DATA(rights), &pidfd, sizeof(pidfd));
    }
    (void)sendmsg(GUARD_FD, &message, MSG_NOSIGNAL);
}

/* Reaps whatever has ended; true when `pid` was among it. */
static bool reap(pid_t pid, int *ret_status)
{
    bool ended = false;
    pid_t one;
    int status;
    while ((one = waitpid(-1, &status, WNOHANG)) > 0)
        if (one == pid) {
            *ret_status = status;
            ended = true;
        }
    return ended;
}

static bool is_child(const char *pid)
{
    char path[64];
    int parent = 0;
    (void)snprintf(path, sizeof(path), "/proc/%.16s/stat", pid);
    FILE *stat = fopen(path, "re");
    if (!stat)
        return false;
    /* Tests start nothing that has a ')' in its name. */
    if (fscanf(stat, "%*d (%*[^\n)]) %*c %d", &parent) != 1)
        parent = 0;
    (void)fclose(stat);
    return parent == getpid();
}

/* Our children, old and adopted. Each round of killing may bring grandchildren up. Not every kernel
 * has /proc/PID/task/TID/children. */
static void kill_everybody(void)
{
    for (;;) {
        DIR *proc = opendir("/proc");
        if (!proc)
            return;
        const struct dirent *item;
        while ((item = readdir(proc)))
            if (isdigit((unsigned char)item->d_name[0]) && is_child(item->d_name))
                (void)kill((pid_t)strtol(item->d_name, NULL, 10), SIGKILL);
        (void)closedir(proc);
        if (waitpid(-1, NULL, 0) < 0 && errno == ECHILD)
            return;
    }
}

/* Until the process has ended or the test has gone. */
static void watch(pid_t pid, int signals)
{
    struct pollfd both[] = {
        { .fd = signals, .events = POLLIN },
        { .fd = GUARD_FD, .events = POLLIN },
    };
    struct guard_ended ended;
    for (;;) {
        if (reap(pid, &ended.status)) {
            /* First the rest, so that who hears of the end finds nothing left. */
            kill_everybody();
            (void)send(GUARD_FD, &ended, sizeof(ended), MSG_NOSIGNAL);
            return;
        }
        if (poll(both, ELEMENTS(both), -1) < 0 && errno != EINTR)
            break;
        if (both[1].revents)
            break;
        struct signalfd_siginfo info;
        if (both[0].revents && read(signals, &info, sizeof(info)) < 0)
            break;
    }
    kill_everybody();
}

int main(int argc, char **argv)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_SETMASK, &set, NULL);
    int signals = signalfd(-1, &set, SFD_CLOEXEC);
    struct guard_started started = { .error = EINVAL };
    if (argc < 2 || signals < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 ||
        fcntl(GUARD_FD, F_SETFD, FD_CLOEXEC) < 0)
        return 1;
    started.error = start(argv + 1, &started.pid);
    /* Not reaped before watch(), so the pid is still its own. */
    int pidfd = started.error ? -1 : pidfd_open(started.pid, 0);
    tell_started(&started, pidfd);
    if (started.error)
        return 1;
    (void)close(pidfd);
    /* Only the process itself may hold its streams open, not its guard. */
    for (int fd = 0; fd < 3; fd++)
        (void)close(fd);
    watch(started.pid, signals);
    return 0;
}
