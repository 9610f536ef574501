/* Ends the streams of those whose certificate has ended or does not count any more. A certificate
 * is judged when a call begins; a stream may live for months. So once a second every open call is
 * looked at again: an agent's stream is told why, a client's gets a status, and who does not take
 * it is cut by the next round. Started by orchestrator/orchestrator.c. */
#include "orchestrator/orchestrator-internal.h"

#include "common/clock.h"
#include "orchestrator/access.h"
#include "orchestrator/session.h"

#define WARDEN_PERIOD_US 1000000u
#define OWN_WARN_MS      (30ll * 86400 * 1000) /* before our own certificate ends */
#define OWN_WARN_US      (86400ull * 1000000)  /* again, once a day */

static bool is_over(void *userdata, const struct rpc_call *call, struct err *why)
{
    struct orchestrator *orchestrator = userdata;
    const struct identity *peer = rpc_call_peer(call);
    const struct rpc_certificate *certificate = rpc_call_certificate(call);
    if (peer->kind == IDENTITY_NONE)
        return false; /* refused already */
    if (certificate->not_after_s * 1000 < wall_ms()) {
        (void)err_set(why, ERR_UNAUTHENTICATED,
                      "the certificate of \"%s\" has expired; renew it and connect again",
                      peer->name);
        return true;
    }
    return access_identify(orchestrator, peer, certificate->key, why) < 0;
}

static void expire_sessions(struct orchestrator *orchestrator)
{
    int64_t now = wall_ms();
    for (struct sandbox *one = registry_any(orchestrator->registry); one; one = one->hh.next)
        if (one->session && one->certificate_not_after_ms < now)
            session_close(one->session,
                          SANDSTORM__V1__GOODBYE_REASON__GOODBYE_REASON_CERTIFICATE_EXPIRED, 0,
                          "the certificate of this stream has expired");
}

/* Our own is renewed when we start (orchestrator/ca_rotate.c); who never restarts us must be told.
 */
static void watch_own(struct orchestrator *orchestrator)
{
    int64_t left_ms = orchestrator->server_not_after_ms - wall_ms();
    uint64_t now = monotonic_us();
    if (left_ms > OWN_WARN_MS ||
        (orchestrator->server_warned_us && now - orchestrator->server_warned_us < OWN_WARN_US))
        return;
    orchestrator->server_warned_us = now;
    log_error("the orchestrator's own certificate ends soon; restart it, and it makes a new one",
              LF_INT("days_left", left_ms / 86400000));
}

void warden_sweep(struct orchestrator *orchestrator)
{
    expire_sessions(orchestrator);
    rpc_server_sweep(orchestrator->server, is_over, orchestrator);
}

static void on_time(void *userdata)
{
    struct orchestrator *orchestrator = userdata;
    warden_sweep(orchestrator);
    watch_own(orchestrator);
    loop_timer_start(orchestrator->warden, WARDEN_PERIOD_US);
}

int warden_start(struct orchestrator *orchestrator, struct err *err)
{
    if (loop_timer_new(orchestrator->loop, on_time, orchestrator, &orchestrator->warden, err) < 0)
        return -1;
    loop_timer_start(orchestrator->warden, WARDEN_PERIOD_US);
    return 0;
}
