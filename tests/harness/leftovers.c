/* Cleans up after runners that could not. Runners under a test live in the test's own control
 * group, so their parts are found below it. tests/harness/cluster.c calls when all daemons have
 * ended. */
#include "tests/harness/leftovers.h"

#include "agent/cgroup-internal.h"
#include "common/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>

#define PATIENCE_US 5000000u

/* SIGKILL takes its time. */
static void wait_until_empty(int part)
{
    CLEANUP_FD int events = openat(part, "cgroup.events", O_RDONLY | O_CLOEXEC);
    uint64_t deadline = monotonic_us() + PATIENCE_US, populated = 0;
    while (events >= 0 && monotonic_us() < deadline &&
           cgroup_read_key(part, "cgroup.events", "populated", &populated) && populated) {
        char text[CGROUP_ATTRIBUTE_MAX];
        struct pollfd changed = { .fd = events, .events = POLLPRI };
        (void)!pread(events, text, sizeof(text), 0);
        if (cgroup_read_key(part, "cgroup.events", "populated", &populated) && populated)
            (void)poll(&changed, 1, (int)(PATIENCE_US / 1000));
    }
}

void leftovers_remove(const char *socket)
{
    char own[CGROUP_PATH_MAX], name[CGROUP_NAME_MAX];
    struct err err;
    if (cgroup_find_own(&cgroup_machine, own, &err) < 0)
        return;
    cgroup_part_name(socket, name);
    CLEANUP_FD int above = open(own, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_FD int part = above >= 0 ? cgroup_open_dir(above, name) : -1;
    if (part < 0)
        return;
    (void)cgroup_write(part, "cgroup.kill", "1");
    wait_until_empty(part);
    (void)cgroup_remove(above, name);
}
