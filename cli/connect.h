/* Which orchestrator, and as whom. For verbs that also tell the user about it; the others call
 * cli_connect(). Main thread. */
#pragma once

#include "cli/cli.h"
#include "cli/context.h"

struct cli_target {
    const char *endpoint, *identity; /* the options', the environment's or the context's */
    struct context context;          /* empty when there is none, or none was needed */
    bool own_identity;               /* the identity is the context's, so ours to renew */
};

int cli_target_find(const struct cli_common *common, struct cli_target *ret,
                    struct err *err) must_use;
void cli_target_done(struct cli_target *target);
#define CLEANUP_TARGET CLEANUP(cli_target_done)
/* Renews the certificate when it is time. */
int cli_target_connect(const struct cli_target *target, struct sandstorm_client **ret,
                       struct sandstorm_error *error);
/* For hints: what somebody without a certificate must add to find the HTTPS front of this endpoint,
 * " --enroll-endpoint HOST:PORT", or "" where it is at the next port. To be freed. */
int cli_target_front(const struct cli_target *target, char **ret, struct err *err) must_use;
