/* The dialling side: a channel to one orchestrator over mutual TLS, and calls on it. Loop thread.
 */
#pragma once

#include "common/rpc_call.h"
#include "common/rpc_creds.h"
#include "common/rpc_pump.h"

#define RPC_NO_DEADLINE UINT64_MAX

struct rpc_channel;

/* Connects when the first call is made, and does not retry on its own: backoff is the caller's. */
int rpc_channel_new(struct rpc_pump *pump, const char *endpoint, const struct rpc_creds *creds,
                    struct rpc_channel **ret, struct err *err) must_use;
void rpc_channel_free(struct rpc_channel *channel);

/* The handler hears of everything after this; release the call in the end. */
int rpc_channel_call(struct rpc_channel *channel, const char *method, uint64_t deadline_us,
                     const struct rpc_call_handler *handler, void *owner, struct rpc_call **ret,
                     struct err *err) must_use;
