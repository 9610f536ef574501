/* When a call that failed is worth repeating, and how long to wait before. Pure: the clock and the
 * random numbers are the caller's. One thread. */
#pragma once

#include "common/backoff.h"
#include "common/err.h"

#include <stdbool.h>

#define RETRY_GIVE_UP_US 600000000u
/* People wait for it: less than what the daemons allow themselves. */
#define RETRY_CAP_US 10000000u
/* A connection that was up for so long broke for another reason than the one before it. */
#define RETRY_STABLE_US 10000000u

/* How a call ended that brought no result. */
struct retry_end {
    enum err_code code; /* ERR_NONE: in order, but without what it was for */
    bool answered;      /* by the orchestrator, not by a connection that broke */
    bool sent;          /* the request may have reached it */
};

/* Would the same request, which may be repeated, fare better later? `known` says that the
 * orchestrator has taken it already, or may have. */
bool retry_worth(const struct retry_end *end, bool known);

struct retry {
    struct backoff backoff;
    uint64_t give_up_us, lost_us;
    bool lost;
};

/* 0: RETRY_GIVE_UP_US. */
void retry_init(struct retry *retry, uint64_t give_up_us);
/* A connection is gone, or could not be made: *ret_us is how long to wait. False: it has been away
 * for too long. */
bool retry_next(struct retry *retry, uint64_t now_us, uint64_t random, uint64_t *ret_us);
/* It works. */
void retry_connected(struct retry *retry, uint64_t now_us);
