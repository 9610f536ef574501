/* The orchestrator: routes what clients ask to the sandboxes whose agents have dialled in, and what
 * happens there back. Root object; one loop thread owns everything, libgrpc's work is on the pump.
 */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

#define ORCHESTRATOR_DRAIN_US  5000000u /* from goodbye to the cut */
#define ORCHESTRATOR_FILES_MIN 1024u    /* open files without which it does not start */

struct orchestrator;

struct orchestrator_config {
    const char *listen;
    const char *http_listen;
    const char *state_dir; /* as `init` made it */
    uint64_t heartbeat_us;
    uint64_t offline_slack_us; /* on top of three heartbeats, before a silent sandbox is offline */
    uint64_t evict_us;         /* from offline to evicted */
    uint64_t amnesty_us;       /* after the start, in which nobody is judged */
    uint64_t lifetime_s;       /* of certificates */
    uint64_t window_s;         /* in which one that has expired may still be renewed */
    bool penalties;            /* slow down addresses that guess secrets */
    uint64_t output_total;     /* bytes of commands' output on disk */
    uint64_t output_command;   /* the last bytes of it that are kept of one command */
    uint64_t output_age_us;    /* and for how long */
};

int orchestrator_new(const struct orchestrator_config *config, struct orchestrator **ret,
                     struct err *err) must_use;
int orchestrator_run(struct orchestrator *orchestrator, struct err *err) must_use;
void orchestrator_free(struct orchestrator *orchestrator);
