/* The sandboxes that are enrolled here, in memory, as the store has them, and what their agents
 * say. Loop thread. */
#pragma once

#include "common/log.h"
#include "orchestrator/changes.h"
#include "orchestrator/fleet.h"
#include "orchestrator/label_messages.h"
#include "orchestrator/store.h"
#include "sandstorm/v1/control.pb-c.h"

#include <stdbool.h>
#include <uthash.h>

#define REGISTRY_SANDBOXES_MAX 20000u
#define REGISTRY_TEXT_MAX      255u /* of each text that an agent says about itself */
#define REGISTRY_SAMPLES_MAX   32u  /* heartbeats remembered for a sandbox */
#define REGISTRY_LEFTOVERS_MAX 64u  /* commands to let go of when the link is back; oldest goes */

struct registry;
struct session;
struct relay;

/* What a heartbeat said, for sparklines. */
struct sandbox_sample {
    int64_t time_ms;
    uint32_t cpu_basis_points, memory_basis_points, load1_centi;
};

/* Its account with the logbook. */
struct sandbox_log {
    struct log_limit limit;
    uint64_t limited, lost; /* lines that no marker names yet: by the limit, by the store */
    unsigned since_trim;
};

struct sandbox {
    char id[SANDBOX_ID_MAX + 1];
    char *labels;   /* from its token, and what admins made of them; never from the agent */
    char *reported; /* from the agent's own settings: they select, they never decide. NULL: none */
    uint8_t key[STORE_KEY_LEN]; /* the only one whose certificates count */
    int64_t enrolled_ms, revoked_ms;
    bool draining;              /* takes no new commands */
    struct fleet_member member; /* its state; orchestrator/liveness.c */
    int64_t state_ms;
    struct change change, beat;
    struct log_limit calls, denials; /* of its agent; see orchestrator/access.h */
    struct sandbox_log log;          /* see orchestrator/logbook.h */
    struct session *session;         /* NULL while its link is away */
    struct relay *relays;            /* the commands of it that are followed here */
    /* The runner has answered this session's welcome: orders reach it, and it knows what we know.
     */
    bool in_step;
    bool listing;  /* an inventory has begun and is not complete */
    bool rebooted; /* the last register came with another boot id than the one before */
    char runner_instance[COMMAND_ID_LEN + 1];
    struct command_id leftovers[REGISTRY_LEFTOVERS_MAX]; /* the runner may forget these */
    unsigned leftover_count;
    ProtobufCMessage *info; /* Sandstorm__V1__SandboxInfo as it registered, or NULL */
    Sandstorm__V1__Metrics metrics;
    Sandstorm__V1__Pressure pressure; /* behind the metrics */
    bool has_metrics, runner_connected;
    int64_t connected_ms, last_seen_ms, certificate_not_after_ms, clock_skew_ms;
    bool seen_unnoted;                      /* last_seen_ms is newer than the store's */
    char last_error[REGISTRY_TEXT_MAX + 1]; /* why its agent was away before, in its own words */
    int64_t last_error_ms;
    struct sandbox_sample samples[REGISTRY_SAMPLES_MAX];
    unsigned sample_count; /* ever; the newest is at (count - 1) modulo the room */
    UT_hash_handle hh;
};

int registry_new(struct registry **ret, struct err *err) must_use;
void registry_free(struct registry *registry);

/* NULL when it is not known. */
struct sandbox *registry_find(struct registry *registry, const char *id);
/* As registry_find(), but says who asks what to do. */
int registry_get(struct registry *registry, const char *id, struct sandbox **ret,
                 struct err *err) must_use;
/* What registry_get() says of a sandbox that it does not know. */
int registry_not_found(const char *id, struct err *err) must_use;
/* Adds it, or takes over what is new about it; of one that is there, not what it was when it was
 * last heard of. */
int registry_set(struct registry *registry, const struct sandbox_record *record,
                 struct sandbox **ret, struct err *err) must_use;
/* The caller has ended what belongs to it. */
void registry_remove(struct registry *registry, struct sandbox *sandbox);
/* The first sandbox whose id is greater than `after`, in byte order; NULL at the end. */
struct sandbox *registry_next(struct registry *registry, const char *after);
struct sandbox *registry_any(struct registry *registry); /* walk with ->hh.next, in order of id */
unsigned registry_count(const struct registry *registry);

/* Takes over a checked copy of what the agent says about itself. */
int sandbox_set_info(struct sandbox *sandbox, const Sandstorm__V1__SandboxInfo *info,
                     struct err *err) must_use;
void sandbox_add_sample(struct sandbox *sandbox, int64_t now_ms,
                        const Sandstorm__V1__Metrics *metrics);
/* What the store is to remember of it. */
void sandbox_note(const struct sandbox *sandbox, struct sandbox_note *ret);
Sandstorm__V1__SandboxState sandbox_state(const struct sandbox *sandbox);
/* A message about a sandbox, whose pointers are the sandbox's and its own; pack it before the loop
 * turns. */
struct sandbox_description {
    Sandstorm__V1__Sandbox message;
    struct label_messages labels;
};
/* Fields of a message without labels, with room to grow, and of one with them: for the bounds of a
 * message that holds several. */
#define SANDBOX_FIELDS 64u
unsigned sandbox_fields(const Sandstorm__V1__Sandbox *message);
void sandbox_describe(struct sandbox *sandbox, struct sandbox_description *ret);
