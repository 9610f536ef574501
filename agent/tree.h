/* All processes of one command, whoever their parent is by now. What it can do depends on what the
 * machine has, see agent/forest.h. Runner's loop thread. */
#pragma once

#include "common/err.h"
#include "common/ids.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* In each command's environment: its id. Where there are no control groups, orphans are told by it.
 */
#define TREE_VARIABLE "SANDSTORM_COMMAND_ID"

#define TREE_CPU_MILLIS_MIN 10u /* the kernel's least quota is 1 ms in 100 ms */
#define TREE_CPU_MILLIS_MAX 10000000u

struct forest;
struct tree;

enum tree_limit { TREE_MEMORY, TREE_CPU, TREE_PIDS, TREE_LIMIT_COUNT_ };

const char *tree_limit_name(enum tree_limit limit);

struct tree_usage {
    uint64_t peak_memory_bytes; /* 0: not known */
    bool oom_killed;            /* the kernel killed in it because of its memory limit */
};

int tree_new(struct forest *forest, const struct command_id *id, struct tree **ret,
             struct err *err) must_use;
/* One that forest_enforces() names, before there is a process: bytes, thousandths of a CPU,
 * processes. */
int tree_set_limit(struct tree *tree, enum tree_limit limit, uint64_t value,
                   struct err *err) must_use;
/* The directory of the control group that the leader is to be born in; 0: there is none. */
int tree_cgroup_fd(const struct tree *tree);
/* The leader exists, and is not reaped before tree_leader_reaped(). */
void tree_started(struct tree *tree, pid_t leader);
void tree_leader_reaped(struct tree *tree);

/* What the program needs to know of it that this process executes next. */
struct tree_state {
    pid_t leader;
    bool reaped, killing;
    int cgroup_fd; /* -1: none */
};
void tree_hand_over(const struct tree *tree, struct tree_state *ret);
/* By what it was held together before, whatever the forest's means are now. Takes the descriptor,
 * also when it fails. */
int tree_take_over(struct forest *forest, const struct command_id *id,
                   const struct tree_state *state, struct tree **ret, struct err *err) must_use;

/* To every process, once. -1 with ESRCH when there is none. */
int tree_signal(struct tree *tree, int number, struct err *err);
/* SIGKILL to all there are. Those that do not end are found by tree_count(). */
void tree_kill(struct tree *tree);
/* Processes that live; zombies do not. */
unsigned tree_count(struct tree *tree);
/* 1 when none is left now; 0: fn is called, later and once, when that is so, and until then what
 * appears is killed too if tree_kill() was called. For a tree whose leader is reaped. */
int tree_wait_empty(struct tree *tree, void (*fn)(void *userdata), void *userdata,
                    struct err *err) must_use;
void tree_usage(const struct tree *tree, struct tree_usage *ret);
/* Nobody is killed. A control group goes when its last process does; `kept` says that the processes
 * in it are there because they may be: a later runner leaves them alone. NULL is allowed. */
void tree_free(struct tree *tree, bool kept);
