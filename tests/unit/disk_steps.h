/* For tests of what a crash or a failure leaves on disk: the system calls below shadow libc's in a
 * binary that includes this, once. Each is a step; a test can be killed before the n-th step, make
 * it fail, or read the steps afterwards. Otherwise they pass through. */
#pragma once

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS_MAX      4096
#define STEP_TEXT_SIZE 160

static struct {
    unsigned kill_at, fail_at; /* 1 is the next step; 0 never */
    bool record;
    unsigned count;
    char text[STEPS_MAX][STEP_TEXT_SIZE];
} steps;

static inline int step(const char *name, const char *subject)
{
    if (steps.kill_at && --steps.kill_at == 0)
        (void)kill(getpid(), SIGKILL);
    if (steps.record && steps.count < STEPS_MAX) {
        const char *slash = strrchr(subject, '/');
        (void)snprintf(steps.text[steps.count++], STEP_TEXT_SIZE, "%s %.100s", name,
                       slash ? slash + 1 : subject);
    }
    if (steps.fail_at && --steps.fail_at == 0) {
        errno = ENOSPC;
        return -1;
    }
    return 0;
}

static inline int step_fd(const char *name, int fd)
{
    char link[64], path[512] = "";
    if (!steps.kill_at && !steps.fail_at && !steps.record)
        return 0;
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof(path) - 1);
    path[size > 0 ? size : 0] = '\0';
    return step(name, path);
}

ssize_t write(int fd, const void *data, size_t size)
{
    return step_fd("write", fd) < 0 ? -1 : syscall(SYS_write, fd, data, size);
}

int fsync(int fd)
{
    return step_fd("fsync", fd) < 0 ? -1 : (int)syscall(SYS_fsync, fd);
}

int fchmod(int fd, mode_t mode)
{
    return step_fd("fchmod", fd) < 0 ? -1 : (int)syscall(SYS_fchmod, fd, mode);
}

int flock(int fd, int operation)
{
    return step_fd("flock", fd) < 0 ? -1 : (int)syscall(SYS_flock, fd, operation);
}

int mkdir(const char *path, mode_t mode)
{
    return step("mkdir", path) < 0 ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

int rename(const char *from, const char *to)
{
    return step("rename", to) < 0 ? -1
                                  : (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return step("renameat2", to) < 0
               ? -1
               : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

int unlink(const char *path)
{
    return step("unlink", path) < 0 ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int unlinkat(int dir, const char *path, int flags)
{
    return step("unlinkat", path) < 0 ? -1 : (int)syscall(SYS_unlinkat, dir, path, flags);
}

int rmdir(const char *path)
{
    return step("rmdir", path) < 0 ? -1 : (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR);
}

/* The index of the first step with this text at or after `from`; -1 when there is none. */
static inline int find_step(const char *text, int from)
{
    for (int i = from; i < (int)steps.count; i++)
        if (strncmp(steps.text[i], text, strlen(text)) == 0)
            return i;
    return -1;
}

/* Runs `action` in a child that is killed before its n-th step. True when it was, false when it
 * came to its end before. */
static inline bool run_and_kill(void (*action)(void), unsigned n)
{
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        steps.kill_at = n;
        action();
        _exit(0);
    }
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    cr_assert(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0), "step %u, status %x", n,
              (unsigned)status);
    return killed;
}
