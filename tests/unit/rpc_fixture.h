/* A server and a channel in one process, over loopback with mutual TLS: certificates from our own
 * CA, one loop, one pump. Criterion gives each test a process, so libgrpc starts and ends with it.
 */
#pragma once

#include "common/clock.h"
#include "common/rpc_channel.h"
#include "common/rpc_server.h"
#include "orchestrator/ca.h"
#include "sandstorm/v1/types.pb-c.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define OK(call)          cr_assert_eq((call), 0, "%s", err.text)
#define WORLD_DEADLINE_US 30000000u
#define WORLD_DOMAIN      "test.example.com"

/* One end of a call, and everything that happened to it. */
struct end {
    struct rpc_call *call;
    unsigned messages, half_closed, writable, closed;
    size_t bytes;
    char last[64]; /* name of the last Label */
    struct err status;
    bool answered, sent_any; /* of a client's call that has closed */
    void (*on_message)(struct end *end, const uint8_t *data, size_t size);
    void (*on_half_closed)(struct end *end);
    void (*on_writable)(struct end *end);
    unsigned sent; /* for the producers among the tests */
};

struct world {
    char dir[32];
    struct loop *loop;
    struct rpc_pump *pump;
    struct rpc_server *server;
    bool slow_guard;
    struct rpc_ticket *ticket; /* that waits for the test's word */
    struct rpc_creds server_creds, agent_creds, client_creds;
    struct rpc_channel *agent, *client;
    char endpoint[64];
    struct end accepted; /* the server's end of the last stream */
    struct identity peer;
    bool drained;
};

#define UNTIL(world, condition)                                                                    \
    do {                                                                                           \
        uint64_t deadline_ = monotonic_us() + WORLD_DEADLINE_US;                                   \
        while (!(condition)) {                                                                     \
            cr_assert_lt(monotonic_us(), deadline_, "never came: %s", #condition);                 \
            cr_assert_eq(loop_turn((world)->loop, 100000, NULL), 0);                               \
        }                                                                                          \
    } while (0)

/* The handler of both ends. */

static inline void end_message(void *owner, const uint8_t *data, size_t size)
{
    struct end *end = owner;
    cr_assert_eq(end->closed, 0u, "a message after the end");
    end->messages++;
    end->bytes += size;
    Sandstorm__V1__Label *label = sandstorm__v1__label__unpack(NULL, size, data);
    if (label)
        (void)snprintf(end->last, sizeof(end->last), "%s", label->name);
    sandstorm__v1__label__free_unpacked(label, NULL);
    if (end->on_message)
        end->on_message(end, data, size);
}

static inline void end_half_closed(void *owner)
{
    struct end *end = owner;
    cr_assert_eq(end->closed, 0u, "half-closed after the end");
    end->half_closed++;
    if (end->on_half_closed)
        end->on_half_closed(end);
}

static inline void end_writable(void *owner)
{
    struct end *end = owner;
    end->writable++;
    if (end->on_writable)
        end->on_writable(end);
}

static inline void end_closed(void *owner, const struct err *status)
{
    struct end *end = owner;
    end->closed++;
    end->status = *status;
    end->answered = rpc_call_answered(end->call);
    end->sent_any = rpc_call_sent(end->call);
    rpc_call_release(end->call);
    end->call = NULL;
}

static const struct rpc_call_handler end_handler = {
    .message = end_message,
    .half_closed = end_half_closed,
    .writable = end_writable,
    .closed = end_closed,
};

/* Methods. */

static inline int world_echo(void *userdata, struct rpc_call *call, const ProtobufCMessage *request,
                             struct err *err)
{
    struct world *world = userdata;
    world->peer = *rpc_call_peer(call);
    return rpc_call_send(call, request, err);
}

static inline int world_stream(void *userdata, struct rpc_call *call, struct err *err)
{
    (void)err;
    struct world *world = userdata;
    world->accepted.call = call;
    rpc_call_bind(call, &end_handler, &world->accepted);
    return 0;
}

/* Answers when the test says so. */
static inline int world_later(void *userdata, struct rpc_ticket *ticket,
                              const ProtobufCMessage *request, struct err *err)
{
    (void)request;
    (void)err;
    ((struct world *)userdata)->ticket = ticket;
    return 0;
}

/* Agents alone may call AgentsOnly; everything else is for everybody, at once or when the test says
 * so. */
static inline void world_guard(void *userdata, const struct rpc_method *method,
                               const ProtobufCMessage *request, struct rpc_ticket *ticket)
{
    (void)request;
    struct world *world = userdata;
    struct err err;
    if (strcmp(method->path, "/t/AgentsOnly") == 0 &&
        rpc_ticket_peer(ticket)->kind != IDENTITY_AGENT) {
        (void)err_set(&err, ERR_DENIED, "agents only");
        rpc_ticket_fail(ticket, &err);
    } else if (world->slow_guard) {
        world->ticket = ticket;
    } else {
        rpc_ticket_admit(ticket);
    }
}

static const struct rpc_method world_methods[] = {
    { .path = "/t/Echo", .request = &sandstorm__v1__label__descriptor, .unary = world_echo },
    { .path = "/t/Later", .request = &sandstorm__v1__label__descriptor, .later = world_later },
    { .path = "/t/AgentsOnly", .request = &sandstorm__v1__label__descriptor, .unary = world_echo },
    { .path = "/t/Stream", .open = world_stream },
    { .path = NULL },
};

/* Life. */

static inline void world_listen(struct world *world, const char *address, struct rpc_server **ret,
                                struct err *err)
{
    const struct rpc_server_config config = {
        .listen = address,
        .trust_domain = WORLD_DOMAIN,
        .creds = &world->server_creds,
        .methods = world_methods,
        .guard = world_guard,
        .userdata = world,
    };
    if (rpc_server_new(world->pump, &config, ret, err) < 0)
        *ret = NULL;
}

static inline void world_init(struct world *world)
{
    struct err err = { 0 };
    static const char *const names[] = { "127.0.0.1" };
    *world = (struct world){ .dir = "/tmp/test-rpc-XXXXXX" };
    cr_assert(mkdtemp(world->dir) && chdir(world->dir) == 0);
    CLEANUP_CA struct ca *ca = NULL;
    OK(ca_create("ca", WORLD_DOMAIN, &err));
    OK(ca_open("ca", &ca, &err));
    OK(ca_issue_server(ca, "server", names, 1, 3600, &err));
    OK(ca_issue_peer(ca, "agent", IDENTITY_AGENT, "sandbox-1", 3600, &err));
    OK(ca_issue_peer(ca, "client", IDENTITY_CLIENT, "Alice", 3600, &err));
    OK(rpc_creds_load("server", &world->server_creds, &err));
    OK(rpc_creds_load("agent", &world->agent_creds, &err));
    OK(rpc_creds_load("client", &world->client_creds, &err));
    OK(loop_new(&world->loop, &err));
    OK(rpc_pump_new(world->loop, &world->pump, &err));
    world_listen(world, "127.0.0.1:0", &world->server, &err);
    cr_assert_not_null(world->server, "%s", err.text);
    (void)snprintf(world->endpoint, sizeof(world->endpoint), "127.0.0.1:%d",
                   rpc_server_port(world->server));
    OK(rpc_channel_new(world->pump, world->endpoint, &world->agent_creds, &world->agent, &err));
    OK(rpc_channel_new(world->pump, world->endpoint, &world->client_creds, &world->client, &err));
}

static inline void world_drained(void *userdata)
{
    ((struct world *)userdata)->drained = true;
}

static inline void world_done(struct world *world)
{
    struct err err = { 0 };
    (void)err;
    rpc_channel_free(world->agent);
    rpc_channel_free(world->client);
    if (!world->drained)
        rpc_server_drain(world->server, 0, world_drained, world);
    UNTIL(world, world->drained);
    rpc_server_free(world->server);
    rpc_pump_free(world->pump);
    loop_free(world->loop);
    rpc_creds_clear(&world->server_creds);
    rpc_creds_clear(&world->agent_creds);
    rpc_creds_clear(&world->client_creds);
    cr_assert_leq(world->accepted.closed, 1u);
    char command[64];
    (void)snprintf(command, sizeof(command), "rm -rf %s", world->dir);
    cr_assert_eq(system(command), 0);
}

static inline void call_open(struct rpc_channel *channel, const char *method, uint64_t deadline_us,
                             struct end *end)
{
    struct err err = { 0 };
    OK(rpc_channel_call(channel, method, deadline_us, &end_handler, end, &end->call, &err));
}

/* 0, or -1 when the queue is full. */
static inline int send_label(struct end *end, const char *name, size_t padding)
{
    struct err err = { 0 };
    CLEANUP_FREE char *value = calloc(1, padding + 1);
    (void)memset(value, 'x', padding);
    Sandstorm__V1__Label label = SANDSTORM__V1__LABEL__INIT;
    label.name = (char *)name;
    label.value = value;
    int r = rpc_call_send(end->call, &label.base, &err);
    cr_assert(r == 0 || err.code == ERR_EXHAUSTED, "%s", err.text);
    return r;
}

/* A whole unary call. */
static inline struct end call_unary(struct world *world, struct rpc_channel *channel,
                                    const char *method, size_t padding)
{
    struct end end = { 0 };
    call_open(channel, method, RPC_NO_DEADLINE, &end);
    cr_assert_eq(send_label(&end, "hello", padding), 0);
    rpc_call_finish(end.call, NULL);
    UNTIL(world, end.closed);
    return end;
}
