/* A simulated fleet (bench/fleet_sim.c) beside a cluster: one process that is so many agents, with
 * ids "sim-00000" and on. Its service says READY=1 when all are connected, and "online N of M" in
 * its status whenever that changes. Stop and free it before the cluster. One thread. */
#pragma once

#include "tests/harness/cluster.h"

#define FLEET_PREFIX "sim-"

struct fleet_config {
    unsigned count;
    unsigned silent_percent; /* from SIGUSR1 to SIGUSR2 */
    unsigned command_ms;     /* how long a command takes; 0: 100 */
    const char *report;      /* NULL, or a file of the cluster's directory for the figures */
};

/* Makes a token for all of them, and the service; starts nothing. The orchestrator must run. */
int fleet_new(struct cluster *cluster, const struct fleet_config *config, struct service **ret,
              struct err *err) must_use;
/* Starts it and waits until all are connected. */
int fleet_start(struct service *fleet, uint64_t timeout_us, struct err *err) must_use;
/* Until exactly so many of its agents are connected. */
int fleet_wait_online(struct service *fleet, unsigned online, unsigned count, uint64_t timeout_us,
                      struct err *err) must_use;
