/* The states of sandboxes as the orchestrator tells them (WatchSandboxes), with everything that was
 * told remembered: what a sandbox is, and what it ever was. Reads only while one of the functions
 * below waits. A step that fails ends the case. Criterion; one thread. */
#pragma once

#include "common/ids.h"
#include "sandstorm/v1/control.pb-c.h"
#include "tests/harness/peer.h"

#define WATCH_SANDBOXES_MAX 512u

#define STATE_ONLINE  SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_ONLINE
#define STATE_SUSPECT SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_SUSPECT
#define STATE_OFFLINE SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_OFFLINE
#define STATE_EVICTED SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_EVICTED

struct watch;

struct watch_sandbox {
    char id[SANDBOX_ID_MAX + 1];
    Sandstorm__V1__SandboxState state;
    int64_t state_ms, seen_ms; /* by the orchestrator's clock: since when, and last heard */
    unsigned ever;             /* a bit for each state that was told since watch_forget() */
};

/* To the fixture's orchestrator, as the admin. Returns when all that is there was told. */
struct watch *watch_open(void);
void watch_free(struct watch *watch);

/* Until the sandbox is in that state, at once when it is. Static until the next call. */
struct watch_sandbox watch_wait(struct watch *watch, const char *id,
                                Sandstorm__V1__SandboxState state);
/* Until exactly so many sandboxes, whose id begins with `prefix`, are in that state. */
void watch_wait_count(struct watch *watch, const char *prefix, Sandstorm__V1__SandboxState state,
                      unsigned count);
/* Takes what comes for so long: for what must not happen meanwhile. */
void watch_for(struct watch *watch, uint64_t us);

unsigned watch_count(const struct watch *watch, const char *prefix,
                     Sandstorm__V1__SandboxState state);
/* How many were ever told to be in that state. */
unsigned watch_count_ever(const struct watch *watch, const char *prefix,
                          Sandstorm__V1__SandboxState state);
void watch_forget(struct watch *watch);

static inline void watch_cleanup(struct watch **watch)
{
    watch_free(*watch);
}
#define CLEANUP_WATCH CLEANUP(watch_cleanup)
