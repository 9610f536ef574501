/* The verbs that work on a state directory and need no running orchestrator: making a CA and
 * issuing certificates. Layout: ca/ (the CA and its key), server/ (the orchestrator's identity),
 * clients/NAME/ (what the operator takes away). Blocking. */
#pragma once

#include "common/err.h"

#include <stdint.h>

struct init_config {
    const char *state_dir;
    const char *trust_domain;
    const char *const
        *names; /* DNS names and addresses of this orchestrator, besides this host's */
    unsigned name_count;
};

/* A CA, the server's certificate and the first client, "admin". Refuses where there is a CA. */
int init_run(const struct init_config *config, struct err *err) must_use;
/* `out` is the identity directory that is written. */
int init_issue_agent(const char *state_dir, const char *sandbox_id, const char *out,
                     uint64_t lifetime_s, struct err *err) must_use;
int init_issue_client(const char *state_dir, const char *name, const char *out, uint64_t lifetime_s,
                      struct err *err) must_use;
