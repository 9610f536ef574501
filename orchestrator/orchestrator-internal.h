/* The root object as its parts see it; orchestrator/ only. */
#pragma once

#include "common/daemon.h"
#include "common/log.h"
#include "common/rpc_server.h"
#include "orchestrator/fleet.h"
#include "orchestrator/health.h"
#include "orchestrator/orchestrator.h"
#include "orchestrator/reflection.h"
#include "orchestrator/registry.h"

struct orchestrator {
    struct loop *loop;
    struct daemon *daemon;
    struct rpc_pump *pump;
    struct rpc_server *server;
    struct registry *registry;
    struct health *health;
    struct reflection *reflection;
    struct store *store;
    struct ca *ca; /* the store's thread alone signs with it */
    struct clients *clients;
    struct history *history;
    struct ledger_log *ledgers;  /* the output of commands */
    struct relay *relays;        /* hash by command id */
    uint64_t command_output_max; /* bytes kept of one command */
    struct command_wait *command_waits;
    unsigned command_wait_count;
    struct http_front *front;
    struct watch *audit_watches;
    struct changes changes, beats; /* sandboxes by their last change; heartbeats among them */
    struct watch_call *watch_calls;
    struct ready_wait *ready_waits;
    unsigned watch_count, ready_count;
    struct fleet *fleet;
    struct loop_timer *fleet_timer;
    bool brake_said;
    uint64_t noted_us; /* when the last-seen times were last stored */
    struct logbook *logbook;
    struct loop_timer *warden;
    uint64_t lifetime_s, window_s;     /* of certificates, and of renewing an expired one */
    struct log_limit denials;          /* audit rows about wrong secrets; the store's thread */
    struct log_limit stranger_denials; /* and about certificates that are nobody's */
    bool serving, stopping;
    int64_t server_not_after_ms; /* of our own certificate */
    uint64_t server_warned_us;
    struct rpc_creds creds;
    char trust_domain[TRUST_DOMAIN_MAX + 1]; /* whose certificates count here */
    uint64_t last_epoch;
    struct log_limit refusals;      /* lines about certificates that were not given */
    struct log_limit faults;        /* lines about peers that break the protocol */
    struct log_limit ledger_faults; /* about output that cannot be written down */
    uint64_t events_dropped;        /* events about commands that we do not follow */
};

/* methods.c */
extern const struct rpc_method orchestrator_methods[];

/* warden.c */
int warden_start(struct orchestrator *orchestrator, struct err *err) must_use;
void warden_sweep(struct orchestrator *orchestrator);
