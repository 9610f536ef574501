/* The inside of agent/spawn*.c: how a process comes into being. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* What the child runs must not be instrumented and must not allocate: it has its parent's memory.
 */
#define IN_CHILD __attribute__((no_sanitize("address", "thread", "undefined")))

/* clone(2) with CLONE_VM, CLONE_VFORK and CLONE_PIDFD: returns when the child has exec'ed or ended.
 * `cgroup` > 0: born in that control group. Where this needs a call that the kernel or the
 * architecture does not have, *ret_joined is false, and the child has to move itself; it is set
 * before the child runs. -1 with errno. */
pid_t spawn_clone(int (*fn)(void *userdata), void *userdata, void *stack, size_t size, int cgroup,
                  int *ret_pidfd, bool *ret_joined);
