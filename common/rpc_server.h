/* A gRPC server over mutual TLS: one pool of armed requests and one table of methods. Loop thread
 * only. */
#pragma once

#include "common/rpc_call.h"
#include "common/rpc_creds.h"
#include "common/rpc_pump.h"
#include "common/rpc_ticket.h"

#define RPC_ARMED 64u /* requests waiting for a call; libgrpc's own queue has no bound */

/* One row per method; a path without a row is UNIMPLEMENTED. Exactly one of unary, later and open
 * is set. The table ends with a NULL path. */
struct rpc_method {
    const char *path; /* "/sandstorm.v1.SandboxService/ListSandboxes" */
    const ProtobufCMessageDescriptor *request;
    /* Sends its answer on `call`, or returns -1. */
    int (*unary)(void *userdata, struct rpc_call *call, const ProtobufCMessage *request,
                 struct err *err);
    /* Keeps the ticket and answers with it, or returns -1. The request is not kept. */
    int (*later)(void *userdata, struct rpc_ticket *ticket, const ProtobufCMessage *request,
                 struct err *err);
    /* Takes the call over: binds a handler at once and releases it in the end. */
    int (*open)(void *userdata, struct rpc_call *call, struct err *err);
    const void *rule; /* the guard's own */
};

struct rpc_server_config {
    const char *listen; /* "127.0.0.1:5000"; port 0 picks one */
    const char *trust_domain;
    const struct rpc_creds *creds;
    const struct rpc_method *methods;
    /* Asked about every call before its method sees it; the request is NULL for a stream. Answers
     * with the ticket, now or later. */
    void (*guard)(void *userdata, const struct rpc_method *method, const ProtobufCMessage *request,
                  struct rpc_ticket *ticket);
    void *userdata;
};

struct rpc_server;

int rpc_server_new(struct rpc_pump *pump, const struct rpc_server_config *config,
                   struct rpc_server **ret, struct err *err) must_use;
int rpc_server_port(const struct rpc_server *server);
/* Ends the open calls of which `over` says so, and why. One that was ended by an earlier sweep and
 * is still there is cut. */
void rpc_server_sweep(struct rpc_server *server,
                      bool (*over)(void *userdata, const struct rpc_call *call, struct err *why),
                      void *userdata);
/* Takes no new calls, gives the open ones `grace_us`, then cuts them. Calls `done` when no call is
 * left; then rpc_server_free() may be called, not before. */
void rpc_server_drain(struct rpc_server *server, uint64_t grace_us, void (*done)(void *userdata),
                      void *userdata);
/* Cuts the open calls of a draining server now. */
void rpc_server_cut(struct rpc_server *server);
void rpc_server_free(struct rpc_server *server);
