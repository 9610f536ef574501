/* Channels and dialled calls. Used by agent/link_stream.c and client/; hands out calls of
 * common/rpc_call.c. */
#include "common/rpc_channel.h"

#include "common/rpc_args.h"
#include "common/rpc_call-internal.h"
#include "common/wire.h"

/* libgrpc's own reconnects stay out of the way of ours: within this time a failed channel answers
 * at once, and callers make a new channel instead of waiting. */
#define RECONNECT_MS 1000

struct rpc_channel {
    struct rpc_pump *pump;
    grpc_channel *channel;
};

int rpc_channel_new(struct rpc_pump *pump, const char *endpoint, const struct rpc_creds *creds,
                    struct rpc_channel **ret, struct err *err)
{
    CLEANUP_FREE struct rpc_channel *channel = calloc(1, sizeof(*channel));
    if (!channel)
        return err_nomem(err);
    channel->pump = pump;
    grpc_channel_credentials *credentials = rpc_creds_channel(creds);
    if (!credentials)
        return err_set(err, ERR_INVALID, "the certificate or key cannot be used");
    grpc_arg args[] = {
        rpc_int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, (int)WIRE_MESSAGE_MAX),
        rpc_int_arg(GRPC_ARG_MAX_METADATA_SIZE, RPC_METADATA_MAX),
        rpc_int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, RPC_KEEPALIVE_MS),
        rpc_int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, RPC_KEEPALIVE_WAIT_MS),
        rpc_int_arg(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        rpc_int_arg(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        rpc_int_arg(GRPC_ARG_HTTP2_BDP_PROBE, 0),
        rpc_int_arg(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, RPC_LOOKAHEAD),
        rpc_int_arg(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, RECONNECT_MS),
        rpc_int_arg(GRPC_ARG_ENABLE_RETRIES, 0),
        /* Two clients of one process must not share a connection behind our back. */
        rpc_int_arg(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1),
        rpc_int_arg(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1),
    };
    grpc_channel_args channel_args = { ELEMENTS(args), args };
    channel->channel = grpc_channel_create(endpoint, credentials, &channel_args);
    grpc_channel_credentials_release(credentials);
    if (!channel->channel)
        return err_set(err, ERR_INVALID, "\"%s\" is not an endpoint; write HOST:PORT", endpoint);
    *ret = TAKE_PTR(channel);
    return 0;
}

void rpc_channel_free(struct rpc_channel *channel)
{
    if (!channel)
        return;
    grpc_channel_destroy(channel->channel);
    free(channel);
}

int rpc_channel_call(struct rpc_channel *channel, const char *method, uint64_t deadline_us,
                     const struct rpc_call_handler *handler, void *owner, struct rpc_call **ret,
                     struct err *err)
{
    gpr_timespec deadline = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    if (deadline_us != RPC_NO_DEADLINE)
        deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                gpr_time_from_micros((int64_t)deadline_us, GPR_TIMESPAN));
    grpc_slice path = grpc_slice_from_copied_string(method);
    grpc_call *raw =
        grpc_channel_create_call(channel->channel, NULL, GRPC_PROPAGATE_DEFAULTS,
                                 rpc_pump_queue(channel->pump), path, NULL, deadline, NULL);
    grpc_slice_unref(path);
    struct rpc_call *call;
    if (rpc_call_new(channel->pump, raw, false, &call, err) < 0)
        return -1;
    rpc_call_bind(call, handler, owner);
    rpc_call_open(call);
    *ret = call;
    return 0;
}
