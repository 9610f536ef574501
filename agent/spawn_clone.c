/* A new process that shares our memory until it execs, as vfork(2) and posix_spawn(3) have it, born
 * in a control group: a process that moves itself there waits for a lock that all forks of the
 * machine share. glibc wraps clone(2) but not clone3(2), and in C the
 * new stack would have no way back, hence a few instructions. agent/spawn.c calls. */
#include "agent/spawn-internal.h"

#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FLAGS (CLONE_VM | CLONE_VFORK | CLONE_PIDFD)

#if defined(__x86_64__)

/* The child begins behind the system call with an empty stack: it calls fn and exits with what that
 * returns. The kernel keeps all registers but rax, rcx and r11. */
static long clone3_call(const struct clone_args *args, int (*fn)(void *userdata), void *userdata)
{
    long result = SYS_clone3;
    register int (*fn_)(void *) __asm__("r8") = fn;
    register void *userdata_ __asm__("r9") = userdata;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t" /* a backtrace ends here */
                     "mov %%r9, %%rdi\n\t"
                     "call *%%r8\n\t"
                     "mov %%eax, %%edi\n\t"
                     "mov %[exit], %%eax\n\t"
                     "syscall\n"
                     "1:"
                     : "+a"(result)
                     : "D"(args), "S"(sizeof(*args)), "r"(fn_), "r"(userdata_), [exit] "i"(SYS_exit)
                     : "rcx", "r11", "cc", "memory");
    if (result >= 0)
        return result;
    errno = (int)-result;
    return -1;
}

#else

/* Elsewhere the child moves itself. */
static long clone3_call(const struct clone_args *args, int (*fn)(void *userdata), void *userdata)
{
    (void)args;
    (void)fn;
    (void)userdata;
    errno = ENOSYS;
    return -1;
}

#endif

pid_t spawn_clone(int (*fn)(void *userdata), void *userdata, void *stack, size_t size, int cgroup,
                  int *ret_pidfd, bool *ret_joined)
{
    *ret_joined = true;
    if (cgroup <= 0)
        return clone(fn, (char *)stack + size, FLAGS | SIGCHLD, userdata, ret_pidfd);
    const struct clone_args args = {
        .flags = FLAGS | CLONE_INTO_CGROUP,
        .pidfd = (uintptr_t)ret_pidfd,
        .exit_signal = SIGCHLD,
        .stack = (uintptr_t)stack,
        .stack_size = size,
        .cgroup = (uint64_t)cgroup,
    };
    long pid = clone3_call(&args, fn, userdata);
    /* Before 5.3 there is no clone3, before 5.7 it does not know the flag, and some seccomp filters
     * let nobody call it. */
    if (pid >= 0 || (errno != ENOSYS && errno != EINVAL && errno != E2BIG && errno != EPERM))
        return (pid_t)pid;
    *ret_joined = false;
    return clone(fn, (char *)stack + size, FLAGS | SIGCHLD, userdata, ret_pidfd);
}
