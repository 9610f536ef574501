/* One agent's stream: registration, heartbeats, and the frames of its runner's commands. The newest
 * stream of a sandbox is its session; an older one is told goodbye. Loop thread. */
#pragma once

#include "common/rpc_call.h"
#include "orchestrator/registry.h"
#include "sandstorm/v1/link.pb-c.h"

#define SESSION_REGISTER_US 10000000u /* from the stream's start to its register frame */
#define SESSION_FAREWELL_US 10000000u /* from the status to the cut, when it is not taken */
#define SESSION_PROTOCOL    1u
/* An agent that beats faster than this, whatever its interval, is cut: each one is work for us. */
#define SESSION_BEATS_MAX       50u
#define SESSION_BEATS_PERIOD_US 1000000u
/* Two links with one identity would otherwise take turns in throwing each other out. */
#define SESSION_SUPERSEDED_MS 60000u

struct session;

/* The `open` of LinkService.Connect; userdata is the struct orchestrator. */
int session_open(void *userdata, struct rpc_call *call, struct err *err);

/* An order for one of the sandbox's commands. A stream that does not take it any more is cut, and
 * the agent's next attach brings everything into step again. */
void session_order(struct session *session, Sandstorm__V1__CommandOrder *order);
uint64_t session_epoch(const struct session *session);
bool session_writable(const struct session *session);
/* The interval of heartbeats from now on. */
void session_pace(struct session *session, uint64_t interval_ms);
/* Ends a stream of which nothing is heard, now. */
void session_cut(struct session *session);
/* Says goodbye and ends the stream. */
void session_close(struct session *session, Sandstorm__V1__GoodbyeReason reason,
                   uint64_t retry_after_ms, const char *detail);
