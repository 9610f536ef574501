/* The verbs that work on a state directory while no orchestrator runs on it. Layout: ca/ (the CA
 * and its key), server/ (the orchestrator's identity), orchestrator.db (the store), clients/NAME/
 * (what the operator takes away). Blocking. */
#pragma once

#include "common/err.h"

#include <stdint.h>

#define INIT_FINGERPRINT_MAX 80u

struct init_config {
    const char *state_dir;
    const char *trust_domain;
    const char *const
        *names; /* DNS names and addresses of this orchestrator, besides this host's */
    unsigned name_count;
};

/* A CA, the server's certificate, the store, and the first client, "admin". Refuses where there is
 * a CA. */
int init_run(const struct init_config *config, struct err *err) must_use;
/* For those who have locked themselves out: a new identity for an admin of that name, in
 * clients/NAME, whatever was known of that name before. No orchestrator may run. */
int init_recover(const char *state_dir, const char *name, struct err *err) must_use;
/* The fingerprint that agents and clients know the orchestrator by. */
int init_fingerprint(const char *state_dir, char ret[INIT_FINGERPRINT_MAX],
                     struct err *err) must_use;
