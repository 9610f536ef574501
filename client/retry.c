/* The judgement and the pace of repeated calls. Called by client/exec_stream.c for streams and by
 * client/client.c for calls with one answer; next: common/backoff.c. */
#include "client/retry.h"

#include "common/macros.h"

/* These are about the way to the orchestrator or its health; all others are its decision. */
static const bool passing[ERR_CODE_COUNT_] = {
    [ERR_NONE] = true,      [ERR_UNAVAILABLE] = true, [ERR_TIMEOUT] = true,
    [ERR_CANCELLED] = true, [ERR_INTERNAL] = true,    [ERR_SYSTEM] = true,
};

bool retry_worth(const struct retry_end *end, bool known)
{
    if (!passing[end->code])
        return false;
    /* Before anything is known, "it is away" is an answer, and a connection that cannot be made is
     * nothing to wait for: most likely the endpoint is wrong. */
    return known || (end->sent && !end->answered);
}

void retry_init(struct retry *retry, uint64_t give_up_us)
{
    *retry = (struct retry){ .give_up_us = give_up_us ? give_up_us : RETRY_GIVE_UP_US };
    backoff_init(&retry->backoff);
    retry->backoff.cap_us = RETRY_CAP_US;
    retry->backoff.stable_us = RETRY_STABLE_US;
}

bool retry_next(struct retry *retry, uint64_t now_us, uint64_t random, uint64_t *ret_us)
{
    if (!retry->lost) {
        retry->lost = true;
        retry->lost_us = now_us;
        backoff_disconnected(&retry->backoff, now_us);
    }
    uint64_t gone = now_us - MIN(now_us, retry->lost_us);
    if (gone >= retry->give_up_us)
        return false;
    /* The last attempt is made when the time is over, not before. */
    *ret_us = MIN(backoff_next_us(&retry->backoff, random), retry->give_up_us - gone);
    return true;
}

void retry_connected(struct retry *retry, uint64_t now_us)
{
    retry->lost = false;
    backoff_connected(&retry->backoff, now_us);
}
