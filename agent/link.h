/* The link: the agent's network process. Holds the TLS key and the stream to the orchestrator,
 * heartbeats, and carries frames between the orchestrator and the runner without looking into them.
 * Owns no command. Root object; one loop thread, libgrpc's threads, one worker. */
#pragma once

#include "agent/enroll.h"

#include <stdint.h>

#define LINK_HEARTBEAT_US     30000000u /* until the orchestrator says otherwise */
#define LINK_HEARTBEAT_MIN_US 100000u
#define LINK_HEARTBEAT_MAX_US 3600000000u
#define LINK_WELCOME_US       20000000u /* from dialling to the welcome */
#define LINK_DIAGNOSE_MS      5000
#define LINK_PROTOCOL         1u
#define LINK_HEARTBEAT_BYTES  300u     /* at most, as one message */
#define LINK_ERROR_MAX        255u     /* what a register says about the last failure */
#define LINK_WORKER_US        2000000u /* a stop waits this long for a job that blocks */
#define LINK_STATUS_US        5000000u /* heartbeats are in the status file at most this often */

struct link;

struct link_config {
    const char *endpoint;
    const char *runner_socket;
    const char *status_file;
    const char *labels;                 /* in the form of common/label.h; NULL: none */
    const struct enroll_config *enroll; /* identity_dir, and how to get one; outlives the link */
};

int link_new(const struct link_config *config, struct link **ret, struct err *err) must_use;
int link_run(struct link *link, struct err *err) must_use;
/* False when a job that blocks did not end in time: then nothing was freed, and the process must
 * end at once, by _exit(2), with its threads as they are. */
bool link_free(struct link *link) must_use;
