/* The root object as its parts see it; orchestrator/ only. */
#pragma once

#include "common/daemon.h"
#include "common/log.h"
#include "common/rpc_server.h"
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
    struct rpc_creds creds;
    char trust_domain[TRUST_DOMAIN_MAX + 1]; /* whose certificates count here */
    uint64_t heartbeat_ms;
    uint64_t last_epoch;
    struct log_limit faults; /* lines about peers that break the protocol */
    uint64_t events_dropped; /* events about commands that no client follows */
};

/* methods.c */
extern const struct rpc_method orchestrator_methods[];

/* control_sandbox.c */
int control_list_sandboxes(void *userdata, struct rpc_call *call, const ProtobufCMessage *request,
                           struct err *err);
int control_get_sandbox(void *userdata, struct rpc_call *call, const ProtobufCMessage *request,
                        struct err *err);
