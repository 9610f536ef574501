/* One command's control group: made with its limits before the command exists, removed when its
 * last process has gone. agent/tree_cgroup.c uses it; the group's life after its command is
 * agent/cgroup_root.c's. */
#include "agent/cgroup-internal.h"
#include "agent/proctable.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#define CPU_PERIOD_US   100000u
#define SIGNAL_ROUNDS   8u /* looks for processes that were forked while others were signalled */
#define PIDS_LINE_CHARS 24u

struct cgroup {
    struct cgroup_root *root; /* NULL: of the program before us, and we make none */
    struct command_id id;
    int fd;
};

/* Making it. */

static int limit_memory(struct cgroup *cgroup, uint64_t bytes)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%" PRIu64, bytes);
    if (cgroup_write(cgroup->fd, "memory.max", text) < 0)
        return -1;
    /* Swap would be more memory by another name. Kernels without swap accounting have no such file.
     */
    if (cgroup_write(cgroup->fd, "memory.swap.max", "0") < 0 && errno != ENOENT)
        return -1;
    /* All of the command dies of it, rather than a process somewhere in its middle (5.0). */
    return cgroup_write(cgroup->fd, "memory.oom.group", "1") < 0 && errno != ENOENT ? -1 : 0;
}

static int limit_cpu(struct cgroup *cgroup, uint64_t millis)
{
    char text[64];
    (void)snprintf(text, sizeof(text), "%" PRIu64 " %u", millis * (CPU_PERIOD_US / 1000),
                   CPU_PERIOD_US);
    return cgroup_write(cgroup->fd, "cpu.max", text);
}

static int limit_pids(struct cgroup *cgroup, uint64_t count)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%" PRIu64, count);
    return cgroup_write(cgroup->fd, "pids.max", text);
}

int cgroup_set_limit(struct cgroup *cgroup, enum tree_limit limit, uint64_t value, struct err *err)
{
    static int (*const set[TREE_LIMIT_COUNT_])(struct cgroup *, uint64_t) = {
        [TREE_MEMORY] = limit_memory,
        [TREE_CPU] = limit_cpu,
        [TREE_PIDS] = limit_pids,
    };
    if (set[limit](cgroup, value) < 0)
        return err_errno(err, errno, "cannot set the limit \"%s\" of the command's control group",
                         tree_limit_name(limit));
    return 0;
}

int cgroup_new(struct cgroup_root *root, const struct command_id *id, struct cgroup **ret,
               struct err *err)
{
    int commands = cgroup_root_commands(root);
    struct cgroup *cgroup = calloc(1, sizeof(*cgroup));
    if (!cgroup)
        return err_nomem(err);
    *cgroup = (struct cgroup){ .root = root, .id = *id, .fd = -1 };
    if (mkdirat(commands, id->text, 0755) < 0) {
        free(cgroup);
        return err_errno(err, errno, "cannot make a control group");
    }
    cgroup->fd = cgroup_open_dir(commands, id->text);
    if (cgroup->fd < 0) {
        (void)err_errno(err, errno, "cannot open the command's control group");
        cgroup_free(cgroup, false);
        return -1;
    }
    *ret = cgroup;
    return 0;
}

int cgroup_adopt(struct cgroup_root *root, const struct command_id *id, int fd, struct cgroup **ret,
                 struct err *err)
{
    CLEANUP_FD int owned = fd;
    struct cgroup *cgroup = calloc(1, sizeof(*cgroup));
    if (!cgroup)
        return err_nomem(err);
    *cgroup = (struct cgroup){ .root = root, .id = *id, .fd = TAKE_FD(owned) };
    *ret = cgroup;
    return 0;
}

static void remove_group(const struct cgroup *cgroup)
{
    if (cgroup->root) {
        if (cgroup_remove(cgroup_root_commands(cgroup->root), cgroup->id.text) < 0)
            cgroup_root_linger(cgroup->root, cgroup->id.text);
        return;
    }
    CLEANUP_FD int above = cgroup_open_dir(cgroup->fd, "..");
    if (above >= 0)
        (void)cgroup_remove(above, cgroup->id.text);
}

void cgroup_free(struct cgroup *cgroup, bool kept)
{
    if (!cgroup)
        return;
    /* The kernel takes such attributes on a group since 5.7; without it the next life of the runner
     * ends what it could have left alone. */
    if (kept && cgroup->fd >= 0)
        (void)fsetxattr(cgroup->fd, CGROUP_KEPT, "1", 1, 0);
    remove_group(cgroup);
    close_fd(&cgroup->fd);
    free(cgroup);
}

int cgroup_fd(const struct cgroup *cgroup)
{
    return cgroup->fd;
}

/* What lives in it. */

/* Every pid in one group. The file is read whole: it may be longer than a page. */
static void each_pid(int group, void (*fn)(void *userdata, pid_t pid), void *userdata)
{
    CLEANUP_FD int fd = openat(group, "cgroup.procs", O_RDONLY | O_CLOEXEC);
    FILE *file = fd >= 0 ? fdopen(fd, "re") : NULL;
    if (!file)
        return;
    (void)TAKE_FD(fd);
    char line[PIDS_LINE_CHARS];
    while (fgets(line, sizeof(line), file))
        fn(userdata, (pid_t)strtol(line, NULL, 10));
    (void)fclose(file);
}

static void count_pid(void *userdata, pid_t pid)
{
    *(unsigned *)userdata += proctable_is_alive(pid);
}

static void count_group(void *userdata, int group)
{
    each_pid(group, count_pid, userdata);
}

unsigned cgroup_count(const struct cgroup *cgroup)
{
    unsigned count = 0;
    if (cgroup_populated(cgroup))
        cgroup_visit(cgroup->fd, count_group, &count);
    return count;
}

bool cgroup_populated(const struct cgroup *cgroup)
{
    uint64_t populated;
    return !cgroup_read_key(cgroup->fd, "cgroup.events", "populated", &populated) || populated;
}

int cgroup_open_events(const struct cgroup *cgroup, struct err *err)
{
    char text[CGROUP_ATTRIBUTE_MAX];
    CLEANUP_FD int fd = openat(cgroup->fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
    /* What has been read is what the next change is compared with. */
    if (fd < 0 || read(fd, text, sizeof(text)) < 0)
        return err_errno(err, errno, "cannot watch the command's control group");
    return TAKE_FD(fd);
}

/* Signals. */

struct round {
    int number;
    const struct command_id *id;
    pid_t *done;
    size_t count, capacity;
    bool again;
};

static bool was_done(const struct round *round, pid_t pid)
{
    for (size_t i = 0; i < round->count; i++)
        if (round->done[i] == pid)
            return true;
    return false;
}

static bool remember(struct round *round, pid_t pid)
{
    if (round->count == round->capacity) {
        size_t more = round->capacity ? round->capacity * 2 : 64;
        pid_t *done = realloc(round->done, more * sizeof(*done));
        if (!done)
            return false;
        round->done = done;
        round->capacity = more;
    }
    round->done[round->count++] = pid;
    return true;
}

/* The number may have changed hands since it was read; the process behind a pidfd has not. If the
 * number is still in the command's group, and the signal goes through, it was that one all along.
 */
static bool is_in(pid_t pid, const struct command_id *id)
{
    char path[64], text[CGROUP_ATTRIBUTE_MAX];
    (void)snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
    return cgroup_read(AT_FDCWD, path, text, sizeof(text)) > 0 && strstr(text, id->text);
}

static void signal_pid(void *userdata, pid_t pid)
{
    struct round *round = userdata;
    if (pid <= 0 || was_done(round, pid))
        return;
    CLEANUP_FD int pidfd = pidfd_open(pid, 0);
    if (pidfd >= 0 && is_in(pid, round->id) &&
        pidfd_send_signal(pidfd, round->number, NULL, 0) == 0 && remember(round, pid))
        round->again = true;
}

static void signal_group(void *userdata, int group)
{
    each_pid(group, signal_pid, userdata);
}

static unsigned signal_all(int group, const struct command_id *id, int number)
{
    struct round round = { .number = number, .id = id };
    for (unsigned i = 0; i < SIGNAL_ROUNDS; i++) {
        round.again = false;
        cgroup_visit(group, signal_group, &round);
        if (!round.again)
            break;
    }
    free(round.done);
    return (unsigned)round.count;
}

unsigned cgroup_kill(int group, const struct command_id *id)
{
    unsigned count = 0;
    cgroup_visit(group, count_group, &count);
    if (cgroup_write(group, "cgroup.kill", "1") == 0)
        return count;
    /* Frozen processes fork no others, and SIGKILL ends them all the same. */
    (void)cgroup_write(group, "cgroup.freeze", "1");
    count = signal_all(group, id, SIGKILL);
    (void)cgroup_write(group, "cgroup.freeze", "0");
    return count;
}

unsigned cgroup_signal(const struct cgroup *cgroup, int number)
{
    return number == SIGKILL ? cgroup_kill(cgroup->fd, &cgroup->id)
                             : signal_all(cgroup->fd, &cgroup->id, number);
}

/* What it cost. */

void cgroup_usage(const struct cgroup *cgroup, struct tree_usage *ret)
{
    char text[64];
    uint64_t kills;
    /* memory.peak exists since 5.19. */
    if (cgroup_read(cgroup->fd, "memory.peak", text, sizeof(text)) > 0)
        ret->peak_memory_bytes = strtoull(text, NULL, 10);
    if (cgroup_read_key(cgroup->fd, "memory.events", "oom_kill", &kills))
        ret->oom_killed = kills > 0;
}
