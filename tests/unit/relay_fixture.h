/* The orchestrator between one agent and one client, each a stub that the test speaks for. */
#pragma once

#include "common/loop.h"
#include "orchestrator/exec-internal.h"
#include "orchestrator/session.h"
#include "tests/unit/ledger_stub.h"
#include "tests/unit/rpc_stub.h"
#include "tests/unit/store_stub.h"

#include <criterion/criterion.h>

#define OK(call) cr_assert_eq((call), 0, "%s", err.text)
#define COMMAND  "0b0c5a1e-7f0e-4a53-9c55-3d7a1f2e9b10"

static struct orchestrator orchestrator;
static struct rpc_call agent, client;

static inline void say(struct rpc_call *call, const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    CLEANUP_FREE uint8_t *packed = malloc(size + 1);
    (void)protobuf_c_message_pack(message, packed);
    call->handler->message(call->owner, packed, size);
    if (!stub_ledger.late)
        stub_ledger_commit();
}

static inline void say_frame(Sandstorm__V1__AgentFrame *frame)
{
    Sandstorm__V1__AgentFrame *frames[] = { frame };
    Sandstorm__V1__ConnectRequest request = SANDSTORM__V1__CONNECT_REQUEST__INIT;
    request.frames = frames;
    request.n_frames = 1;
    say(&agent, &request.base);
}

/* The last frame that the agent got; wire_free() the result's owner. */
static inline const Sandstorm__V1__OrchestratorFrame *last_frame(ProtobufCMessage **ret_owner)
{
    struct err err = { 0 };
    OK(wire_unpack(agent.type, agent.last, agent.last_size, ret_owner, &err));
    const Sandstorm__V1__ConnectResponse *response = (Sandstorm__V1__ConnectResponse *)*ret_owner;
    return response->frames[0];
}

static inline Sandstorm__V1__CommandOrder__OrderCase last_order(void)
{
    ProtobufCMessage *owner;
    const Sandstorm__V1__OrchestratorFrame *frame = last_frame(&owner);
    Sandstorm__V1__CommandOrder__OrderCase kind =
        frame->kind_case == SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_ORDER
            ? frame->order->order_case
            : SANDSTORM__V1__COMMAND_ORDER__ORDER__NOT_SET;
    wire_free(owner);
    return kind;
}

static inline void say_hello(void)
{
    Sandstorm__V1__SandboxInfo info = SANDSTORM__V1__SANDBOX_INFO__INIT;
    Sandstorm__V1__Register hello = SANDSTORM__V1__REGISTER__INIT;
    hello.protocol_min = hello.protocol_max = SESSION_PROTOCOL;
    hello.info = &info;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_REGISTER;
    frame.register_ = &hello;
    say_frame(&frame);
}

/* The runner's answer to the last welcome: this life of it, with the command or without. */
static inline void say_inventory(const char *life, const Sandstorm__V1__CommandPosition *position)
{
    Sandstorm__V1__CommandPosition *positions[] = { (Sandstorm__V1__CommandPosition *)position };
    Sandstorm__V1__Inventory inventory = SANDSTORM__V1__INVENTORY__INIT;
    inventory.epoch = orchestrator.last_epoch;
    inventory.runner_instance = (char *)life;
    inventory.n_commands = position ? 1 : 0;
    inventory.commands = positions;
    inventory.complete = true;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_INVENTORY;
    frame.inventory = &inventory;
    say_frame(&frame);
}

static inline void say_event(Sandstorm__V1__CommandEvent *event)
{
    event->command_id = (char *)COMMAND;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_EVENT;
    frame.event = event;
    say_frame(&frame);
}

static inline void say_started(void)
{
    Sandstorm__V1__Started started = SANDSTORM__V1__STARTED__INIT;
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_STARTED;
    event.started = &started;
    say_event(&event);
}

/* The agent's stream breaks and a new one registers; the runner has not answered yet. */
static inline void reconnect(void)
{
    struct err err = { 0 };
    stub_call_close(&agent, ERR_CANCELLED);
    stub_call_init(&agent, IDENTITY_AGENT, "s", &sandstorm__v1__connect_response__descriptor);
    OK(session_open(&orchestrator, &agent, &err));
    say_hello();
}

static inline void relay_setup(void)
{
    struct err err = { 0 };
    (void)memset(&stub_store, 0, sizeof(stub_store));
    stub_ledger_clear();
    orchestrator.command_output_max = 1024 * 1024;
    OK(loop_new(&orchestrator.loop, &err));
    OK(stub_known_peers(&orchestrator, &err));
    OK(history_new(&orchestrator, &orchestrator.history, &err));
    stub_call_init(&agent, IDENTITY_AGENT, "s", &sandstorm__v1__connect_response__descriptor);
    stub_call_init(&client, IDENTITY_CLIENT, "c", &sandstorm__v1__exec_response__descriptor);
    OK(session_open(&orchestrator, &agent, &err));
    OK(exec_open(&orchestrator, &client, &err));
    say_hello();
    cr_assert_eq(agent.sent, 1u, "no welcome");
    say_inventory("life-1", NULL);
}

static inline void relay_teardown(void)
{
    stub_call_close(&client, ERR_CANCELLED);
    stub_call_close(&agent, ERR_CANCELLED);
    cr_expect(client.released && agent.released);
    stub_store_commit();
    stub_ledger.late = stub_ledger.broken = false;
    relays_free(&orchestrator);
    stub_ledger_commit();
    history_free(orchestrator.history);
    stub_peers_free(&orchestrator);
    loop_free(orchestrator.loop);
}

static inline void say_open_spec(Sandstorm__V1__CommandSpec *spec)
{
    Sandstorm__V1__ExecOpen open = SANDSTORM__V1__EXEC_OPEN__INIT;
    open.sandbox_id = (char *)"s";
    open.command_id = (char *)COMMAND;
    open.spec = spec;
    open.limit = UINT64_MAX;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN;
    request.open = &open;
    say(&client, &request.base);
}

static inline void say_open(const char *shell)
{
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    spec.shell = (char *)shell;
    say_open_spec(&spec);
}

/* One that does not outlive its client by more than this. */
static inline void say_open_mortal(const char *shell, uint64_t after_ms)
{
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    spec.shell = (char *)shell;
    spec.client_gone = SANDSTORM__V1__CLIENT_GONE_POLICY__CLIENT_GONE_POLICY_KILL_AFTER;
    spec.client_gone_after_ms = after_ms;
    say_open_spec(&spec);
}
