/* The sandboxes of a watch as they were last told, in order of id: what changed is the difference
 * to these, and a watch that had to begin again goes on from them. Main thread. */
#pragma once

#include "client/sandstorm.h"
#include "common/err.h"

#define FLEET_MAX 100000u

struct fleet;

int fleet_new(struct fleet **ret, struct err *err) must_use;
void fleet_free(struct fleet *fleet);
size_t fleet_count(const struct fleet *fleet);
/* Of a kept one, only the numbers and id, labels, agent_version and last_error are there; it lives
 * until it is put again or dropped. */
const struct sandstorm_sandbox *fleet_at(const struct fleet *fleet, size_t index);
const struct sandstorm_sandbox *fleet_find(const struct fleet *fleet, const char *id);
/* Keeps a copy, in place of the one with its id. */
int fleet_put(struct fleet *fleet, const struct sandstorm_sandbox *sandbox,
              struct err *err) must_use;
/* The id may be that of the kept one itself. */
void fleet_drop(struct fleet *fleet, const char *id);

/* A watch begins: none has been told of yet. */
void fleet_begin(struct fleet *fleet);
/* One of those that have not been put since then, or NULL. */
const struct sandstorm_sandbox *fleet_untold(const struct fleet *fleet);

static inline void fleet_cleanup(struct fleet **fleet)
{
    fleet_free(*fleet);
}
#define CLEANUP_FLEET CLEANUP(fleet_cleanup)
