/* An audit without a store, for what stands on orchestrator/audit.h and orchestrator/events.h: rows
 * are written at once, when the test says so, or not at all. Defines the functions themselves, so
 * the library's are not linked. */
#pragma once

#include "orchestrator/audit.h"
#include "orchestrator/clients.h"
#include "orchestrator/events.h"
#include "orchestrator/liveness.h"
#include "orchestrator/orchestrator-internal.h"

#include <stdio.h>
#include <string.h>

static struct {
    bool late;   /* the test calls stub_audit_written() */
    bool broken; /* nothing can be written */
    unsigned rows, allowed, events;
    char last_action[STORE_ACTOR_MAX];
    char last_event[32];
    void (*done)(void *userdata, const struct err *failed);
    void *userdata;
} stub_audit;

static inline void stub_audit_written(void)
{
    void (*done)(void *userdata, const struct err *failed) = stub_audit.done;
    struct err failed;
    (void)err_set(&failed, ERR_UNAVAILABLE, "the audit cannot be written");
    stub_audit.done = NULL;
    if (done)
        done(stub_audit.userdata, stub_audit.broken ? &failed : NULL);
}

int audit_write(struct orchestrator *orchestrator, const struct audit_entry *entry,
                void (*done)(void *userdata, const struct err *failed), void *userdata,
                struct err *err)
{
    (void)orchestrator;
    if (stub_audit.done)
        return err_set(err, ERR_EXHAUSTED, "one row at a time here");
    stub_audit.rows++;
    stub_audit.allowed += entry->allowed;
    (void)snprintf(stub_audit.last_action, sizeof(stub_audit.last_action), "%s", entry->action);
    stub_audit.done = done;
    stub_audit.userdata = userdata;
    if (!stub_audit.late)
        stub_audit_written();
    return 0;
}

void audit_notify(struct orchestrator *orchestrator)
{
    (void)orchestrator;
}

void audit_unwritable(struct err *failed)
{
    failed->code = ERR_UNAVAILABLE;
}

void event_note(struct orchestrator *orchestrator, const char *sandbox_id, const char *kind,
                const char *detail)
{
    (void)orchestrator;
    (void)sandbox_id;
    (void)detail;
    stub_audit.events++;
    (void)snprintf(stub_audit.last_event, sizeof(stub_audit.last_event), "%s", kind);
}

/* The fleet without anybody who acts on it. */

void liveness_connected(struct orchestrator *orchestrator, struct sandbox *sandbox)
{
    fleet_connected(orchestrator->fleet, &sandbox->member);
}

void liveness_heard(struct orchestrator *orchestrator, struct sandbox *sandbox)
{
    fleet_heard(orchestrator->fleet, &sandbox->member);
}

void liveness_beat(struct orchestrator *orchestrator, struct sandbox *sandbox)
{
    changes_note(&orchestrator->beats, &sandbox->beat);
}

void liveness_disconnected(struct orchestrator *orchestrator, struct sandbox *sandbox)
{
    fleet_disconnected(orchestrator->fleet, &sandbox->member);
}

void liveness_changed(struct orchestrator *orchestrator, struct sandbox *sandbox)
{
    changes_note(&orchestrator->changes, &sandbox->change);
}

static inline void stub_peers_free(struct orchestrator *orchestrator)
{
    fleet_free(orchestrator->fleet);
    orchestrator->changes = orchestrator->beats = (struct changes){ 0 };
    registry_free(orchestrator->registry);
    clients_free(orchestrator->clients);
}

/* The sandbox "s" and the client "c", an operator, as the stubs of rpc_stub.h call themselves. */
static inline int stub_known_peers(struct orchestrator *orchestrator, struct err *err)
{
    struct sandbox *sandbox;
    const struct fleet_config fleet = { .interval_us = FLEET_INTERVAL_US };
    const struct sandbox_record record = { .id = "s", .labels = "env=ci" };
    const struct client_record client = { .name = "c", .role = ROLE_OPERATOR, .has_key = true };
    if (registry_new(&orchestrator->registry, err) < 0 ||
        clients_new(&orchestrator->clients, err) < 0 ||
        registry_set(orchestrator->registry, &record, &sandbox, err) < 0 ||
        fleet_new(&fleet, 0, &orchestrator->fleet, err) < 0)
        return -1;
    fleet_add(orchestrator->fleet, &sandbox->member, FLEET_NEW);
    return clients_set(orchestrator->clients, &client, err);
}
