/* Faults for the ledger's tests: the system calls with which it changes the disk, and the one it
 * reads with, shadow libc's in a binary that includes this, once. Each change is a step, at which
 * the process can be killed or the call be made to fail. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static struct {
    atomic_uint kill_at, fail_at; /* 1 is the next step; 0 never */
    atomic_uint steps;
    /* As long as they are not 0. */
    atomic_int write_error, sync_error, truncate_error, unlink_error, read_error;
    atomic_bool short_writes; /* half of it, then the error */
    atomic_bool gated;        /* the next fdatasync(2) waits at the gate */
    sem_t gate, entered;
} faults;

/* True when the call fails, with errno. */
static inline bool fault(atomic_int *error)
{
    atomic_fetch_add(&faults.steps, 1);
    if (atomic_load(&faults.kill_at) && atomic_fetch_sub(&faults.kill_at, 1) == 1)
        (void)kill(getpid(), SIGKILL);
    if (atomic_load(&faults.fail_at) && atomic_fetch_sub(&faults.fail_at, 1) == 1) {
        errno = ENOSPC;
        return true;
    }
    if (!error || atomic_load(error) == 0)
        return false;
    errno = atomic_load(error);
    return true;
}

ssize_t pwritev(int fd, const struct iovec *vectors, int count, off_t at)
{
    struct iovec half = vectors[0];
    if (atomic_load(&faults.short_writes) && half.iov_len > 1) {
        half.iov_len /= 2;
        vectors = &half;
        count = 1;
        if (at % 3 == 0) /* now and then some of it has gone through before it fails */
            return syscall(SYS_pwritev, fd, vectors, count, at, 0);
    }
    if (fault(&faults.write_error))
        return -1;
    return syscall(SYS_pwritev, fd, vectors, count, at, 0);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    if (fault(&faults.write_error))
        return -1;
    return syscall(SYS_pwrite64, fd, data, size, at);
}

int fdatasync(int fd)
{
    if (atomic_exchange(&faults.gated, false)) {
        (void)sem_post(&faults.entered);
        (void)sem_wait(&faults.gate);
    }
    return fault(&faults.sync_error) ? -1 : (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    return fault(&faults.sync_error) ? -1 : (int)syscall(SYS_fsync, fd);
}

int ftruncate(int fd, off_t size)
{
    return fault(&faults.truncate_error) ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}

int unlinkat(int dir, const char *path, int flags)
{
    return fault(&faults.unlink_error) ? -1 : (int)syscall(SYS_unlinkat, dir, path, flags);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    return fault(NULL) ? -1 : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, 0);
}

int openat(int dir, const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
    va_end(ap);
    if ((flags & O_CREAT) && fault(&faults.write_error))
        return -1;
    return (int)syscall(SYS_openat, dir, path, flags, mode);
}

ssize_t pread(int fd, void *out, size_t size, off_t at)
{
    errno = atomic_load(&faults.read_error);
    return errno ? -1 : syscall(SYS_pread64, fd, out, size, at);
}

/* What fortified code calls. */
ssize_t __pread_chk(int fd, void *out, size_t size, off_t at, size_t room);
ssize_t __pread_chk(int fd, void *out, size_t size, off_t at, size_t room)
{
    return size <= room ? pread(fd, out, size, at) : -1;
}
