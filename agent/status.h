/* What the link knows about itself, for a person on the VM: a small JSON file that the link
 * replaces when something changes, and `sandstorm-agent status`, which reads it and says it in
 * words. The file holds no secret. Blocking, small. */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define STATUS_TEXT_MAX 512u

struct agent_status {
    int64_t written_unix_ms;
    int64_t pid;
    char boot_id[64];
    char sandbox_id[64];
    char endpoint[280];
    char state[16];        /* "online", "connecting", "enrolling", "no-runner", "stopped" */
    int64_t since_unix_ms; /* of the state */
    char last_error[STATUS_TEXT_MAX]; /* "": none since it was last online */
    int64_t last_error_unix_ms;
    int64_t certificate_not_after_unix_ms;
    bool clock_known;
    int64_t clock_skew_ms; /* ours minus the orchestrator's */
    char agent_version[32];
    /* These are younger than the file, and 0 where it does not have them. */
    int64_t next_attempt_unix_ms; /* 0: one is under way, or none is needed */
    int64_t attempts_failed;      /* since it was last online */
    int64_t failing_since_unix_ms;
    int64_t heartbeat_interval_ms; /* 0 while it is not connected */
    int64_t heartbeat_sent_unix_ms;
    char enforces[64]; /* limits of commands that can be enforced: "memory, cpu" or "none"; "": not
                          known */
};

int status_write(const char *path, const struct agent_status *status, struct err *err) must_use;
/* ERR_NOT_FOUND when there is no file. */
int status_read(const char *path, struct agent_status *ret, struct err *err) must_use;
/* In words; `running` says whether the process that wrote it is still there. The result is the exit
 * status: 0 online, 1 not. */
int status_print(const struct agent_status *status, bool running, int64_t now_ms, FILE *out);
int status_print_json(const struct agent_status *status, bool running, FILE *out);
bool status_running(const struct agent_status *status);
