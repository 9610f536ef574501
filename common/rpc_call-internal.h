/* For rpc_server.c and rpc_channel.c only: how a call is born. */
#pragma once

#include "common/rpc_call.h"
#include "common/rpc_pump.h"

/* Takes over `call` (unrefs it at the end). Starts the operations that every call of its side has.
 * The result is owned by the caller, who ends with rpc_call_release(). */
int rpc_call_new(struct rpc_pump *pump, grpc_call *call, bool server, struct rpc_call **ret,
                 struct err *err) must_use;
void rpc_call_set_peer(struct rpc_call *call, const struct identity *peer,
                       const struct rpc_certificate *certificate);
/* A list of calls; a call leaves it by itself when its memory goes. */
void rpc_call_list_add(struct rpc_call **list, struct rpc_call *call);
struct rpc_call *rpc_call_list_next(const struct rpc_call *call);
/* Its method has it; only then it can be aborted. */
void rpc_call_judged(struct rpc_call *call);
/* Server: what is queued is dropped and the status goes out at once; the second time it is cut. */
void rpc_call_abort(struct rpc_call *call, const struct err *status);
/* Called once when the call's memory goes; for whoever counts live calls. */
void rpc_call_on_free(struct rpc_call *call, void (*fn)(void *userdata), void *userdata);
/* Starts receiving; after rpc_call_bind(). */
void rpc_call_open(struct rpc_call *call);
