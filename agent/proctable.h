/* What /proc says about all processes at one moment, and signals that reach the process that was
 * meant and no other that got its number since. For trees of processes that no control group holds
 * together. Any thread. */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define PROCTABLE_MAX (1u << 20) /* more processes than any kernel lets be */

struct proctable_entry {
    pid_t pid, parent, group, session;
    uint64_t start_ticks; /* since boot: with the pid it names a process for good */
    bool dead;            /* a zombie, or on its way there */
    bool marked;          /* the caller's */
};

struct proctable {
    struct proctable_entry *entries; /* in the order of their pids */
    size_t count;
};

int proctable_read(struct proctable *ret, struct err *err) must_use;
void proctable_done(struct proctable *table);
/* NULL when it is not there. */
struct proctable_entry *proctable_find(const struct proctable *table, pid_t pid);
/* Marks every descendant of those that are marked already. */
void proctable_mark_descendants(struct proctable *table);

/* What follows ") " in /proc/PID/stat: the name before it may contain anything. */
int proctable_parse(const char *text, struct proctable_entry *ret, struct err *err) must_use;
/* Does the process's environment, as it was given, have that NAME=VALUE? It cannot be said of one
 * that has none at all: it may be in the middle of execve(2), when the kernel shows none. */
enum proctable_answer { PROCTABLE_NO, PROCTABLE_YES, PROCTABLE_UNKNOWN };
enum proctable_answer proctable_has_variable(pid_t pid, const char *variable);
/* False for a zombie too, and for one that is on its way there. */
bool proctable_is_alive(pid_t pid);
/* A pidfd for that very process; -1 with errno when it is gone. */
int proctable_open(const struct proctable_entry *entry) must_use;
/* False when it is gone, or may not be signalled. */
bool proctable_signal(const struct proctable_entry *entry, int number);

static inline void proctable_cleanup(struct proctable *table)
{
    proctable_done(table);
}
#define CLEANUP_PROCTABLE CLEANUP(proctable_cleanup)
