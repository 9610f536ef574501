/* Every child of the runner, reaped once. Leaders of commands are watched by their owner; everybody
 * else is a process that a command left to us (prctl(2), PR_SET_CHILD_SUBREAPER), and is reaped so
 * that no zombie stays. Runner's loop thread; blocks SIGCHLD, so it is made before any thread. */
#pragma once

#include "common/loop.h"

struct reaper;
struct reaper_child;

int reaper_new(struct loop *loop, struct reaper **ret, struct err *err) must_use;
/* Children that are watched must have been let go. */
void reaper_free(struct reaper *reaper);

/* Does not own the pidfd. fn comes once, when the process has been reaped; an all-zero info means
 * that somebody else did it. */
int reaper_watch(struct reaper *reaper, pid_t pid, int pidfd, loop_child_fn fn, void *userdata,
                 struct reaper_child **ret, struct err *err) must_use;
/* If it still runs, it is reaped silently whenever it ends. NULL is allowed. */
void reaper_unwatch(struct reaper_child *child);
/* Takes every end that is there, without a signal: the program that this process executed before
 * may have taken that already. All leaders must be watched. */
void reaper_sweep(struct reaper *reaper);
bool reaper_watches(const struct reaper *reaper, pid_t pid);
/* This process has any child at all, watched or not. */
bool reaper_has_children(void);
