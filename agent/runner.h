/* The runner: the far end of the command protocol. Owns every command of this VM, listens on a unix
 * socket for the one link, and has neither network nor TLS. Root object; one thread. */
#pragma once

#include "agent/policy.h"
#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#define RUNNER_COMMANDS_MAX 1024u               /* running, or ended and not yet released */
#define RUNNER_PACKET_MAX   (64u * 1024 + 1024) /* from the runner to the link */
/* A packet must fit the socket's buffer whole, and a start is as large as a message may be; the
 * kernel's default would refuse it. Both ends ask for this. */
#define RUNNER_SOCKET_BUFFER (256 * 1024)

/* On SIGTERM: commands get this long between TERM and KILL, and the runner goes after this long. */
#define RUNNER_STOP_GRACE_US 3000000u
#define RUNNER_STOP_US       5000000u

/* stdin, stdout, stderr, pidfd, control group and a watch on it, and its file. */
#define RUNNER_FILES_PER_COMMAND 7u

struct runner;

struct runner_config {
    const char *socket;
    const char *state_dir; /* absolute; NULL: nothing outlives this process */
    uint64_t spool_quota;  /* bytes of output in files; 0: the default */
    uid_t link_uid;        /* the only peer that is listened to, besides root */
    struct rlimit files;   /* the limit of open files that commands get; all zero: the runner's */
    /* What to execute on SIGUSR2, which must be blocked, and with which settings; NULL: nothing,
     * and no --config. `handover_fd` is what such a predecessor left, 0 when there is none: with it
     * go its socket, its directory and what commands get; everything else counts from now on. */
    const char *program, *settings_file;
    int handover_fd;
    bool forward_logs; /* taps the process's log, see common/log_ring.h */
    bool subreaper;    /* takes in the orphans of commands; else process groups are all there is */
    bool cgroups;      /* a control group for each command, where the machine lets us */
    const char *oom_score_adj; /* of commands; NULL: the runner's own */
    /* What this VM allows; NULL: everything. */
    const struct policy_settings *policy;
};

int runner_new(const struct runner_config *config, struct runner **ret, struct err *err) must_use;
int runner_run(struct runner *runner, struct err *err) must_use;
void runner_free(struct runner *runner);

/* Could this program take over from the one that wrote it? */
int runner_handover_check(int fd, struct err *err) must_use;
