/* The accepting side. Keeps RPC_ARMED requests with libgrpc, names the peer behind each call
 * (common/rpc_peer.c), finds its row in the method table and hands the call over to
 * common/rpc_ticket.c, which asks the guard. */
#include "common/rpc_server.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/rpc_args.h"
#include "common/rpc_call-internal.h"
#include "common/rpc_peer.h"
#include "common/rpc_ticket-internal.h"
#include "common/wire.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define REFUSALS_LOGGED    5u
#define REFUSALS_PERIOD_US 10000000u

struct slot {
    struct rpc_server *server;
    struct rpc_op op;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
};

struct rpc_server {
    struct rpc_pump *pump;
    grpc_server *server;
    struct rpc_server_config config; /* without what its pointers were only lent for */
    char trust_domain[TRUST_DOMAIN_MAX + 1];
    int port;
    struct rpc_call *calls;
    struct slot slots[RPC_ARMED];
    unsigned armed, live;
    struct log_limit refusals;

    bool draining, shut;
    struct rpc_op shutdown_op;
    struct loop_timer *grace;
    void (*drained)(void *userdata);
    void *drained_data;
};

static void arm(struct slot *slot);

static void maybe_drained(struct rpc_server *server)
{
    if (server->shut && server->armed == 0 && server->live == 0 && server->drained) {
        void (*drained)(void *) = server->drained;
        server->drained = NULL;
        drained(server->drained_data);
    }
}

static void call_gone(void *userdata)
{
    struct rpc_server *server = userdata;
    server->live--;
    maybe_drained(server);
}

static void log_refusal(struct rpc_server *server, const char *path, const struct identity *peer,
                        const struct err *why)
{
    uint64_t suppressed;
    if (log_limit_pass(&server->refusals, monotonic_us(), &suppressed))
        log_warn("call refused", LF_STR("method", path),
                 LF_STR("peer_kind", identity_kind_name(peer->kind)), LF_STR("peer", peer->name),
                 LF_ERR(why), LF_UINT("suppressed", suppressed));
}

/* Acceptance. */

static const struct rpc_method *find_method(const struct rpc_server *server, const char *path)
{
    for (const struct rpc_method *method = server->config.methods; method->path; method++)
        if (strcmp(method->path, path) == 0)
            return method;
    return NULL;
}

static int choose(struct rpc_server *server, const char *path, const struct rpc_method **ret,
                  struct err *err)
{
    if (server->draining)
        return err_set(err, ERR_UNAVAILABLE, "the orchestrator is stopping; try again");
    const struct rpc_method *method = find_method(server, path);
    if (!method)
        return err_set(err, ERR_UNIMPLEMENTED, "this orchestrator has no method %.200s", path);
    *ret = method;
    return 0;
}

static void accept_call(struct rpc_server *server, grpc_call *raw, const char *path)
{
    struct identity peer = { 0 };
    struct rpc_certificate certificate = { 0 };
    struct err err = { 0 };
    const struct rpc_method *method = NULL;
    int r = rpc_peer_identify(raw, server->trust_domain, &peer, &certificate, &err);
    if (r == 0)
        r = choose(server, path, &method, &err);
    if (r < 0)
        log_refusal(server, path, &peer, &err);

    struct rpc_call *call;
    struct err nomem;
    if (rpc_call_new(server->pump, raw, true, &call, &nomem) < 0)
        return;
    server->live++;
    rpc_call_on_free(call, call_gone, server);
    rpc_call_list_add(&server->calls, call);
    rpc_call_set_peer(call, &peer, &certificate);
    if (r == 0)
        r = rpc_ticket_new(&server->config, method, call, &err);
    if (r < 0) {
        rpc_call_finish(call, &err);
        rpc_call_release(call);
    }
}

static void slot_done(struct rpc_op *op)
{
    struct slot *slot = CONTAINER_OF(op, struct slot, op);
    struct rpc_server *server = slot->server;
    server->armed--;
    grpc_call *call = slot->call;
    char path[256];
    size_t length = MIN(GRPC_SLICE_LENGTH(slot->details.method), sizeof(path) - 1);
    (void)memcpy(path, GRPC_SLICE_START_PTR(slot->details.method), length);
    path[length] = '\0';
    grpc_call_details_destroy(&slot->details);
    grpc_metadata_array_destroy(&slot->metadata);
    if (!op->ok) {
        maybe_drained(server);
        return;
    }
    /* Re-arm first: what finds no armed request waits in a queue without a bound. */
    if (!server->draining)
        arm(slot);
    accept_call(server, call, path);
}

static void arm(struct slot *slot)
{
    struct rpc_server *server = slot->server;
    grpc_call_details_init(&slot->details);
    grpc_metadata_array_init(&slot->metadata);
    slot->call = NULL;
    server->armed++;
    grpc_completion_queue *queue = rpc_pump_queue(server->pump);
    grpc_call_error r =
        grpc_server_request_call(server->server, &slot->call, &slot->details, &slot->metadata,
                                 queue, queue, rpc_op_tag(&slot->op, slot_done));
    assert(r == GRPC_CALL_OK);
    (void)r;
}

/* Life. */

static grpc_server *create_server(void)
{
    grpc_arg args[] = {
        rpc_int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, (int)WIRE_MESSAGE_MAX),
        rpc_int_arg(GRPC_ARG_MAX_METADATA_SIZE, RPC_METADATA_MAX),
        rpc_int_arg(GRPC_ARG_MAX_CONCURRENT_STREAMS, RPC_STREAMS_MAX),
        rpc_int_arg(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, RPC_HANDSHAKE_MS),
        rpc_int_arg(GRPC_ARG_KEEPALIVE_TIME_MS, RPC_KEEPALIVE_MS),
        rpc_int_arg(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, RPC_KEEPALIVE_WAIT_MS),
        rpc_int_arg(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        rpc_int_arg(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        rpc_int_arg(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, RPC_KEEPALIVE_MIN_MS),
        rpc_int_arg(GRPC_ARG_HTTP2_BDP_PROBE, 0),
        rpc_int_arg(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, RPC_LOOKAHEAD),
        /* Two orchestrators on one port would share its calls at random. */
        rpc_int_arg(GRPC_ARG_ALLOW_REUSEPORT, 0),
        /* Identity only: a compressed message is refused before it can unfold. */
        rpc_int_arg(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1),
    };
    grpc_channel_args channel_args = { ELEMENTS(args), args };
    return grpc_server_create(&channel_args, NULL);
}

/* Binds, and leaves a server that is started even when it cannot listen: libgrpc can only shut down
 * a server that was started. */
static int bind_server(struct rpc_server *server, const struct rpc_server_config *config,
                       struct err *err)
{
    grpc_server_credentials *creds = rpc_creds_server(config->creds);
    if (creds) {
        server->port = grpc_server_add_http2_port(server->server, config->listen, creds);
        grpc_server_credentials_release(creds);
    }
    grpc_server_start(server->server);
    if (!creds)
        return err_set(err, ERR_INVALID, "the server's certificate or key cannot be used");
    if (server->port == 0)
        return err_set(
            err, ERR_UNAVAILABLE,
            "cannot listen on %s; another program uses that port, or the address is not one "
            "of this host's",
            config->listen);
    return 0;
}

void rpc_server_sweep(struct rpc_server *server,
                      bool (*over)(void *userdata, const struct rpc_call *call, struct err *why),
                      void *userdata)
{
    struct err why;
    for (struct rpc_call *call = server->calls; call; call = rpc_call_list_next(call))
        if (over(userdata, call, &why))
            rpc_call_abort(call, &why);
}

void rpc_server_cut(struct rpc_server *server)
{
    loop_timer_stop(server->grace);
    log_info("cutting the calls that are still open", LF_UINT("calls", server->live));
    grpc_server_cancel_all_calls(server->server);
}

static void grace_over(void *userdata)
{
    rpc_server_cut(userdata);
}

int rpc_server_new(struct rpc_pump *pump, const struct rpc_server_config *config,
                   struct rpc_server **ret, struct err *err)
{
    struct rpc_server *server = calloc(1, sizeof(*server));
    if (!server)
        return err_nomem(err);
    server->pump = pump;
    server->config = (struct rpc_server_config){
        .methods = config->methods,
        .guard = config->guard,
        .userdata = config->userdata,
    };
    server->refusals = LOG_LIMIT(REFUSALS_PERIOD_US, REFUSALS_LOGGED);
    (void)snprintf(server->trust_domain, sizeof(server->trust_domain), "%s", config->trust_domain);
    server->server = create_server();
    grpc_server_register_completion_queue(server->server, rpc_pump_queue(pump), NULL);
    if (bind_server(server, config, err) < 0 ||
        loop_timer_new(rpc_pump_loop(pump), grace_over, server, &server->grace, err) < 0) {
        rpc_server_free(server);
        return -1;
    }
    for (unsigned i = 0; i < RPC_ARMED; i++) {
        server->slots[i].server = server;
        arm(&server->slots[i]);
    }
    *ret = server;
    return 0;
}

int rpc_server_port(const struct rpc_server *server)
{
    return server->port;
}

static void shutdown_done(struct rpc_op *op)
{
    struct rpc_server *server = CONTAINER_OF(op, struct rpc_server, shutdown_op);
    /* This tag can overtake those of the last calls, so it is only one of three conditions. */
    server->shut = true;
    loop_timer_stop(server->grace);
    maybe_drained(server);
}

void rpc_server_drain(struct rpc_server *server, uint64_t grace_us, void (*done)(void *userdata),
                      void *userdata)
{
    assert(!server->draining);
    server->draining = true;
    server->drained = done;
    server->drained_data = userdata;
    grpc_server_shutdown_and_notify(server->server, rpc_pump_queue(server->pump),
                                    rpc_op_tag(&server->shutdown_op, shutdown_done));
    loop_timer_start(server->grace, grace_us);
}

/* For a server that never served: nothing of it is on the pump's queue. */
static void shut_down_unused(struct rpc_server *server)
{
    grpc_completion_queue *queue = grpc_completion_queue_create_for_pluck(NULL);
    grpc_server_shutdown_and_notify(server->server, queue, server);
    (void)grpc_completion_queue_pluck(queue, server, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    grpc_completion_queue_shutdown(queue);
    grpc_completion_queue_destroy(queue);
}

void rpc_server_free(struct rpc_server *server)
{
    if (!server)
        return;
    assert(server->armed == 0 && server->live == 0);
    if (!server->shut)
        shut_down_unused(server);
    grpc_server_destroy(server->server);
    loop_timer_free(server->grace);
    free(server);
}
