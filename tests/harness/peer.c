/* A peer of the orchestrator under the test's control. Turns its own loop while it waits; next:
 * common/rpc_channel.c, which the link and the client use too. */
#include "tests/harness/peer.h"

#include "common/clock.h"
#include "common/rpc_channel.h"

#include <string.h>

struct received {
    struct received *next;
    size_t size;
    uint8_t data[];
};

struct peer {
    struct loop *loop;
    struct rpc_pump *pump;
    struct rpc_channel *channel;
    struct rpc_call *call;
    struct received *first, **last;
    bool closed;
    struct err status;
};

static void on_message(void *owner, const uint8_t *data, size_t size)
{
    struct peer *peer = owner;
    struct received *item = malloc(sizeof(*item) + size);
    cr_assert_not_null(item);
    item->next = NULL;
    item->size = size;
    (void)memcpy(item->data, data, size);
    *peer->last = item;
    peer->last = &item->next;
}

static void on_half_closed(void *owner)
{
    (void)owner;
}

static void on_closed(void *owner, const struct err *status)
{
    struct peer *peer = owner;
    peer->closed = true;
    peer->status = *status;
}

static const struct rpc_call_handler handler = {
    .message = on_message,
    .half_closed = on_half_closed,
    .closed = on_closed,
};

struct peer *peer_open(const char *identity_dir, const char *method)
{
    struct peer *peer = calloc(1, sizeof(*peer));
    struct rpc_creds creds;
    char endpoint[64];
    cr_assert_not_null(peer);
    peer->last = &peer->first;
    cluster_endpoint(fixture(), endpoint, sizeof(endpoint));
    MUST(rpc_creds_load(identity_dir, &creds, err));
    MUST(loop_new(&peer->loop, err));
    MUST(rpc_pump_new(peer->loop, &peer->pump, err));
    MUST(rpc_channel_new(peer->pump, endpoint, &creds, &peer->channel, err));
    MUST(
        rpc_channel_call(peer->channel, method, RPC_NO_DEADLINE, &handler, peer, &peer->call, err));
    rpc_creds_clear(&creds);
    return peer;
}

void peer_free(struct peer *peer)
{
    struct err ignored;
    if (!peer)
        return;
    if (!peer->closed)
        rpc_call_cancel(peer->call);
    while (!peer->closed && loop_turn(peer->loop, PROC_DEADLINE_US, &ignored) == 0)
        ;
    rpc_call_release(peer->call);
    rpc_channel_free(peer->channel);
    rpc_pump_free(peer->pump);
    loop_free(peer->loop);
    while (peer->first) {
        struct received *item = peer->first;
        peer->first = item->next;
        free(item);
    }
    free(peer);
}

void peer_send(struct peer *peer, const ProtobufCMessage *message)
{
    MUST(rpc_call_send(peer->call, message, err));
}

void peer_send_bytes(struct peer *peer, const void *data, size_t size)
{
    const struct iovec part = { (void *)data, size };
    MUST(rpc_call_send_parts(peer->call, &part, 1, err));
}

void peer_finish(struct peer *peer)
{
    rpc_call_finish(peer->call, NULL);
}

static void turn(struct peer *peer, uint64_t deadline)
{
    uint64_t now = monotonic_us();
    cr_assert_lt(now, deadline, "the orchestrator says nothing");
    MUST(loop_turn(peer->loop, deadline - now, err));
}

static ProtobufCMessage *take_first(struct peer *peer, const ProtobufCMessageDescriptor *type)
{
    struct received *item = peer->first;
    if (!item)
        return NULL;
    peer->first = item->next;
    if (!peer->first)
        peer->last = &peer->first;
    ProtobufCMessage *message = NULL;
    MUST(wire_unpack(type, item->data, item->size, &message, err));
    free(item);
    return message;
}

ProtobufCMessage *peer_receive(struct peer *peer, const ProtobufCMessageDescriptor *type)
{
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    while (!peer->first && !peer->closed)
        turn(peer, deadline);
    return take_first(peer, type);
}

ProtobufCMessage *peer_receive_within(struct peer *peer, const ProtobufCMessageDescriptor *type,
                                      uint64_t timeout_us)
{
    uint64_t deadline = monotonic_us() + timeout_us;
    for (uint64_t now = monotonic_us(); !peer->first && !peer->closed && now < deadline;
         now = monotonic_us())
        MUST(loop_turn(peer->loop, deadline - now, err));
    return take_first(peer, type);
}

bool peer_is_closed(const struct peer *peer)
{
    return peer->closed;
}

static void on_client_ended(void *userdata, uint32_t events)
{
    (void)events;
    *(bool *)userdata = true;
}

int peer_wait_client(struct peer *peer, struct fixture_client *client)
{
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    struct loop_io *io = NULL;
    bool ended = false;
    MUST(
        loop_io_new(peer->loop, proc_fd(client->proc), EPOLLIN, on_client_ended, &ended, &io, err));
    while (!ended)
        turn(peer, deadline);
    loop_io_free(io);
    return fixture_client_wait(client);
}

struct err peer_wait_closed(struct peer *peer)
{
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    while (!peer->closed)
        turn(peer, deadline);
    return peer->status;
}
