/* The inside of the client library, for client/ and, where it needs the loop, cli/. */
#pragma once

#include "client/sandstorm.h"
#include "common/loop.h"
#include "common/rpc_channel.h"
#include "sandstorm/v1/control.pb-c.h"

#define CLIENT_DEADLINE_US 20000000u /* of a unary call */
#define CLIENT_DIAGNOSE_MS 5000

struct sandstorm_client {
    struct loop *loop;
    struct rpc_pump *pump;
    struct rpc_channel *channel;
    struct rpc_creds creds;
    char *endpoint;
};

struct loop *client_loop(struct sandstorm_client *client);
int client_error(const struct err *err, struct sandstorm_error *ret);
/* What a failed call means for a person: a connection that cannot be made is walked step by step.
 */
void client_explain(struct sandstorm_client *client, struct err *err);
int client_unary(struct sandstorm_client *client, const char *method,
                 const ProtobufCMessage *request, const ProtobufCMessageDescriptor *type,
                 ProtobufCMessage **ret, struct err *err) must_use;

/* exec_open.c */
int client_send_open(struct rpc_call *call, const struct sandstorm_exec_options *options,
                     uint64_t limit, struct err *err) must_use;
/* outcome.c; leaves gap_bytes alone. */
void client_outcome(const Sandstorm__V1__Outcome *message, struct sandstorm_outcome *ret);
