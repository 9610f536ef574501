/* A pid alone says nothing: proc(5) adds when its process was started, and a pidfd makes sure that
 * both are said of the same one. Called by agent/command_restore.c. */
#include "agent/leftover.h"

#include "common/file.h"
#include "common/log.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>

#define STAT_MAX 2048u
/* "starttime" is the 22nd field; behind the name, which may hold anything, it is the 20th. */
#define START_FIELD 20u

/* In clock ticks since boot. */
static int read_start(pid_t pid, uint64_t *ret)
{
    char path[32];
    CLEANUP_FREE char *text = NULL;
    size_t size;
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (file_read(path, STAT_MAX, &text, &size, NULL) < 0)
        return -1;
    const char *at = strrchr(text, ')');
    for (unsigned field = 0; at && field < START_FIELD; field++)
        at = strchr(at + 1, ' ');
    return at && sscanf(at, " %" SCNu64, ret) == 1 ? 0 : -1;
}

static uint64_t ticks(uint64_t us)
{
    return us * (uint64_t)sysconf(_SC_CLK_TCK) / 1000000u;
}

static int has_ended(int pidfd)
{
    struct pollfd poll_fd = { .fd = pidfd, .events = POLLIN };
    return poll(&poll_fd, 1, 0) != 0;
}

enum leftover leftover_kill(pid_t pid, uint64_t from_us, uint64_t to_us)
{
    uint64_t start;
    if (pid <= 1)
        return LEFTOVER_GONE;
    CLEANUP_FD int pidfd = pidfd_open(pid, 0);
    /* Alive after its file was read, so the file was its own. */
    if (pidfd < 0 || read_start(pid, &start) < 0 || has_ended(pidfd) || start < ticks(from_us) ||
        start > ticks(to_us))
        return LEFTOVER_GONE;
    /* Stopped it cannot go by itself, so its number stays its group's until the group is killed. */
    if (pidfd_send_signal(pidfd, SIGSTOP, NULL, 0) < 0)
        return LEFTOVER_GONE;
    (void)kill(-pid, SIGKILL);
    (void)pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
    return LEFTOVER_KILLED;
}
