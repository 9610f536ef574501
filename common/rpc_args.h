/* The channel arguments that both ends of a connection must agree on, and why. */
#pragma once

#include "common/rpc_compat.h"

#define RPC_STREAMS_MAX       1024  /* calls on one connection */
#define RPC_METADATA_MAX      8192  /* bytes */
#define RPC_HANDSHAKE_MS      10000 /* a silent connection costs 27 KB until then */
#define RPC_KEEPALIVE_MS      15000 /* with the wait: a dead peer is noticed within 30 s */
#define RPC_KEEPALIVE_WAIT_MS 10000
#define RPC_KEEPALIVE_MIN_MS  5000         /* a peer that pings more often is cut */
#define RPC_LOOKAHEAD         (256 * 1024) /* with probing off: what a stalled reader can hold up */

static inline grpc_arg rpc_int_arg(const char *key, int value)
{
    return (grpc_arg){ .type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value };
}
