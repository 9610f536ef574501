/* The sandboxes of the registry as members of the fleet: what happens when one changes its state,
 * and what the store and those who watch hear of it. Loop thread. */
#pragma once

#include "orchestrator/registry.h"

struct orchestrator;
struct orchestrator_config;

int liveness_new(struct orchestrator *orchestrator, const struct orchestrator_config *config,
                 struct err *err) must_use;
/* Begins to judge. */
void liveness_start(struct orchestrator *orchestrator);
void liveness_free(struct orchestrator *orchestrator);

/* A sandbox has come into the registry; in the state that the store has of it. */
void liveness_add(struct orchestrator *orchestrator, struct sandbox *sandbox, int state);
/* It leaves the registry; it has no session any more. */
void liveness_remove(struct orchestrator *orchestrator, struct sandbox *sandbox);

/* From its session. */
void liveness_connected(struct orchestrator *orchestrator, struct sandbox *sandbox);
void liveness_heard(struct orchestrator *orchestrator, struct sandbox *sandbox);
void liveness_beat(struct orchestrator *orchestrator, struct sandbox *sandbox);
void liveness_disconnected(struct orchestrator *orchestrator, struct sandbox *sandbox);

/* Something about it has changed that people see: labels, draining, revocation, its runner. */
void liveness_changed(struct orchestrator *orchestrator, struct sandbox *sandbox);
