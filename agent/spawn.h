/* Starts one process: born in its control group, its own session, limits, user, descriptors 0 to 2
 * and no others, directory, default signals, then execve, as that user. Says
 * which step failed and with which errno. Blocks until execve has succeeded or failed; costs what
 * posix_spawn costs. Runner's thread. */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

/* The numbers of enum StartStep in types.proto. */
enum spawn_step {
    SPAWN_STEP_NONE = 0,
    SPAWN_STEP_SPEC = 1,
    SPAWN_STEP_ADMIT = 2,
    SPAWN_STEP_PIPES = 3,
    SPAWN_STEP_FORK = 4,
    SPAWN_STEP_SESSION = 5,
    SPAWN_STEP_CGROUP = 6,
    SPAWN_STEP_LIMITS = 7,
    SPAWN_STEP_USER = 8,
    SPAWN_STEP_CWD = 9,
    SPAWN_STEP_STDIO = 10,
    SPAWN_STEP_EXEC = 11,
    SPAWN_STEP_POLICY = 12,
};

struct spawn_user {
    uid_t uid;
    gid_t gid;
    const gid_t *groups; /* all of them */
    size_t group_count;
};

struct spawn_rlimit {
    int resource;
    const char *name; /* for words about it */
    struct rlimit limit;
};

/* What is NULL or 0 stays as the runner has it. */
struct spawn_request {
    char *const *argv;        /* NULL-ended */
    char *const *environment; /* NULL-ended */
    const char *path;         /* where argv[0] is looked for when it has no slash */
    const char *cwd;
    bool cwd_or_root; /* "/" where the user may not enter it */
    int stdio[3];
    bool terminal; /* stdio[0] is one: it becomes the session's controlling terminal */
    int cgroup;    /* the directory of its control group; never a descriptor below 3 */
    const struct spawn_rlimit *rlimits;
    size_t rlimit_count;
    const int *nice;
    const mode_t *umask;
    const char *oom_score_adj;
    const struct spawn_user *user;
};

struct spawn_result {
    pid_t pid;
    int pidfd;
};

/* On failure err has the errno and *ret_step the step. */
int spawn_process(const struct spawn_request *request, struct spawn_result *ret,
                  enum spawn_step *ret_step, struct err *err) must_use;
