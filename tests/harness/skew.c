/* A clock of the day that is wrong by as many seconds as a file says, and jumps when the file
 * changes: loaded into a daemon by LD_PRELOAD, with the file's path in SANDSTORM_TEST_CLOCK. Made
 * by tests/integration/test_clock.c; the monotonic clocks stay right, as they do on a VM whose time
 * is set. Who waits for a time of the day in the kernel, as libgrpc does, waits by the right one.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static _Atomic(int64_t) *skew_s;

__attribute__((constructor)) static void skew_open(void)
{
    const char *path = getenv("SANDSTORM_TEST_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = fd >= 0 ? mmap(NULL, sizeof(*skew_s), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (page != MAP_FAILED)
        skew_s = page;
    if (fd >= 0)
        (void)close(fd);
}

long syscall(long number, ...)
{
    static long (*real)(long number, ...);
    long values[6];
    struct timespec right;
    va_list list;
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "syscall");
    va_start(list, number);
    for (unsigned i = 0; i < 6; i++)
        values[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_futex && (values[1] & FUTEX_CLOCK_REALTIME) && values[3] && skew_s) {
        right = *(const struct timespec *)values[3];
        right.tv_sec -= *skew_s;
        values[3] = (long)&right;
    }
    return real(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}

int clock_gettime(clockid_t clock, struct timespec *ret)
{
    int r = (int)syscall(SYS_clock_gettime, clock, ret);
    if (r == 0 && skew_s && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        ret->tv_sec += *skew_s;
    return r;
}

int gettimeofday(struct timeval *restrict ret, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    int r = clock_gettime(CLOCK_REALTIME, &now);
    ret->tv_sec = now.tv_sec;
    ret->tv_usec = now.tv_nsec / 1000;
    return r;
}

time_t time(time_t *ret)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (ret)
        *ret = now.tv_sec;
    return now.tv_sec;
}
