/* Reads /proc for agent/tree_walk.c and agent/tree_cgroup.c: who descends from whom. A number that
 * was read here may belong to another process a moment later, so nothing is signalled but through
 * a pidfd whose start time has been compared. */
#include "agent/proctable.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>

#define STAT_MAX        1024u
#define FLAG_EXITING    4u /* PF_EXITING of the kernel: its files are closed, it only has to go */
#define ENVIRONMENT_MAX (512u * 1024) /* twice what a request may have */

int proctable_parse(const char *text, struct proctable_entry *ret, struct err *err)
{
    struct proctable_entry entry = { 0 };
    unsigned flags;
    char *name_end, state;
    entry.pid = (pid_t)strtol(text, &name_end, 10);
    name_end = strrchr(text, ')');
    /* See proc(5): state, ppid, pgrp, session, two of the terminal, flags, 12 that do not matter
     * here, starttime. */
    if (entry.pid <= 0 || !name_end ||
        sscanf(name_end,
               ") %c %d %d %d %*d %*d %u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64,
               &state, &entry.parent, &entry.group, &entry.session, &flags,
               &entry.start_ticks) != 6)
        return err_set(err, ERR_SYSTEM, "a line of /proc/PID/stat is not understood");
    entry.dead = state == 'Z' || state == 'X' || flags & FLAG_EXITING;
    *ret = entry;
    return 0;
}

/* A file of /proc/PID, cut at `size` - 1 bytes; -1 when the process is gone. */
static ssize_t read_file(pid_t pid, const char *name, char *out, size_t size)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t used = 0;
    ssize_t n = 0;
    while (used < size - 1 && (n = read(fd, out + used, size - 1 - used)) > 0)
        used += (size_t)n;
    out[used] = '\0';
    return n < 0 ? -1 : (ssize_t)used;
}

static int read_entry(pid_t pid, struct proctable_entry *ret)
{
    char text[STAT_MAX];
    if (read_file(pid, "stat", text, sizeof(text)) <= 0 || proctable_parse(text, ret, NULL) < 0)
        return -1;
    return 0;
}

bool proctable_is_alive(pid_t pid)
{
    struct proctable_entry entry;
    return read_entry(pid, &entry) == 0 && !entry.dead;
}

static int by_pid(const void *a, const void *b)
{
    const struct proctable_entry *x = a, *y = b;
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static int add_entry(struct proctable *table, size_t *capacity, pid_t pid, struct err *err)
{
    if (table->count == *capacity) {
        size_t more = *capacity ? *capacity * 2 : 256;
        if (more > PROCTABLE_MAX)
            return err_errno(err, E2BIG, "/proc has more than %u processes", PROCTABLE_MAX);
        struct proctable_entry *entries = realloc(table->entries, more * sizeof(*entries));
        if (!entries)
            return err_nomem(err);
        table->entries = entries;
        *capacity = more;
    }
    if (read_entry(pid, &table->entries[table->count]) == 0)
        table->count++;
    return 0;
}

int proctable_read(struct proctable *ret, struct err *err)
{
    CLEANUP_PROCTABLE struct proctable table = { 0 };
    size_t capacity = 0;
    DIR *dir = opendir("/proc");
    if (!dir)
        return err_errno(err, errno, "cannot read /proc");
    int r = 0;
    const struct dirent *item;
    while (r == 0 && (item = readdir(dir)))
        if (isdigit((unsigned char)item->d_name[0]))
            r = add_entry(&table, &capacity, (pid_t)strtol(item->d_name, NULL, 10), err);
    (void)closedir(dir);
    if (r < 0)
        return -1;
    qsort(table.entries, table.count, sizeof(*table.entries), by_pid);
    *ret = (struct proctable){ TAKE_PTR(table.entries), table.count };
    return 0;
}

void proctable_done(struct proctable *table)
{
    free(table->entries);
    *table = (struct proctable){ 0 };
}

struct proctable_entry *proctable_find(const struct proctable *table, pid_t pid)
{
    const struct proctable_entry key = { .pid = pid };
    return table->count ? bsearch(&key, table->entries, table->count, sizeof(key), by_pid) : NULL;
}

void proctable_mark_descendants(struct proctable *table)
{
    /* A child may have a lower number than its parent, so once through is not always enough. */
    for (bool again = true; again;) {
        again = false;
        for (size_t i = 0; i < table->count; i++) {
            struct proctable_entry *entry = &table->entries[i];
            if (entry->marked)
                continue;
            const struct proctable_entry *parent = proctable_find(table, entry->parent);
            if (parent && parent->marked)
                entry->marked = again = true;
        }
    }
}

enum proctable_answer proctable_has_variable(pid_t pid, const char *variable)
{
    CLEANUP_FREE char *text = malloc(ENVIRONMENT_MAX);
    if (!text)
        return PROCTABLE_NO;
    ssize_t size = read_file(pid, "environ", text, ENVIRONMENT_MAX);
    for (ssize_t at = 0; at < size; at += (ssize_t)strlen(text + at) + 1)
        if (strcmp(text + at, variable) == 0)
            return PROCTABLE_YES;
    return size == 0 ? PROCTABLE_UNKNOWN : PROCTABLE_NO;
}

int proctable_open(const struct proctable_entry *entry)
{
    CLEANUP_FD int pidfd = pidfd_open(entry->pid, 0);
    struct proctable_entry now;
    if (pidfd < 0)
        return -1;
    /* While a pidfd's process is not reaped, its number is its own: what is read now is about it.
     */
    if (read_entry(entry->pid, &now) < 0 || now.start_ticks != entry->start_ticks) {
        errno = ESRCH;
        return -1;
    }
    return TAKE_FD(pidfd);
}

bool proctable_signal(const struct proctable_entry *entry, int number)
{
    CLEANUP_FD int pidfd = proctable_open(entry);
    return pidfd >= 0 && pidfd_send_signal(pidfd, number, NULL, 0) == 0;
}
