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

struct link;

struct link_config {
    const char *endpoint;
    const char *runner_socket;
    const char *status_file;
    const struct enroll_config *enroll; /* identity_dir, and how to get one; outlives the link */
};

int link_new(const struct link_config *config, struct link **ret, struct err *err) must_use;
int link_run(struct link *link, struct err *err) must_use;
void link_free(struct link *link);
