/* What the orchestrator lets through: no command before its row in the audit, none out of scope;
 * and which of two streams of one sandbox counts. */
#include "tests/unit/relay_fixture.h"

/* cppcheck-suppress unknownMacro */
TestSuite(relay_admit, .init = relay_setup, .fini = relay_teardown);

/* What waits for the audit. */

Test(relay_admit, nothing_is_ordered_before_the_audit_has_its_row)
{
    stub_audit.late = true;
    size_t before = agent.sent;
    say_open("true");
    cr_expect_eq(stub_audit.rows, 1u);
    cr_expect_str_eq(stub_audit.last_action, "command.start");
    cr_expect_eq(agent.sent, before, "an order went out");
    cr_expect_eq(client.sent, 0u, "the client was told too early");
    cr_expect(client.paused);
    stub_store_commit();
    cr_expect_eq(last_order(), SANDSTORM__V1__COMMAND_ORDER__ORDER_START);
    cr_expect_eq(client.sent, 1u);
}

Test(relay_admit, what_cannot_be_written_down_is_refused)
{
    stub_audit.broken = true;
    size_t before = agent.sent;
    say_open("true");
    cr_expect(client.finished);
    cr_expect_eq(client.status.code, ERR_UNAVAILABLE);
    cr_expect_eq(agent.sent, before, "an order went out");
}

Test(relay_admit, a_client_that_leaves_while_the_row_is_written_orders_nothing)
{
    struct err err = { 0 };
    stub_audit.late = true;
    size_t before = agent.sent;
    say_open("true");
    stub_call_close(&client, ERR_CANCELLED);
    stub_store_commit();
    cr_expect_eq(agent.sent, before, "an order went out");
    stub_call_init(&client, IDENTITY_CLIENT, "c", &sandstorm__v1__exec_response__descriptor);
    OK(exec_open(&orchestrator, &client, &err));
}

Test(relay_admit, a_sandbox_that_is_revoked_while_the_row_is_written_gets_no_order)
{
    stub_audit.late = true;
    size_t before = agent.sent;
    say_open("true");
    registry_find(orchestrator.registry, "s")->revoked_ms = 1;
    stub_store_commit();
    cr_expect(client.finished);
    cr_expect_eq(client.status.code, ERR_DENIED);
    cr_expect_eq(agent.sent, before, "an order went out");
}

Test(relay_admit, a_sandbox_out_of_scope_is_answered_as_one_that_is_not_there)
{
    struct err err = { 0 }, missing;
    const struct client_record held = {
        .name = "c", .role = ROLE_OPERATOR, .has_key = true, .scope = "env=prod"
    };
    OK(clients_set(orchestrator.clients, &held, &err));
    say_open("true");
    cr_expect(client.finished);
    cr_assert_eq(registry_not_found("s", &missing), -1);
    cr_expect_eq(client.status.code, ERR_NOT_FOUND);
    cr_expect_str_eq(client.status.text, missing.text);
    cr_expect_eq(stub_audit.rows, 1u);
    cr_expect_eq(stub_audit.allowed, 0u, "the refusal is not in the audit");
}

/* Streams of one sandbox that follow each other. */

#define LIFE_1 "0b0c5a1e-0000-4a53-9c55-3d7a1f2e9b10"
#define LIFE_2 "0b0c5a1e-0001-4a53-9c55-3d7a1f2e9b10"

static void say_register(struct rpc_call *call, const char *instance, uint64_t uptime_ms)
{
    Sandstorm__V1__SandboxInfo info = SANDSTORM__V1__SANDBOX_INFO__INIT;
    Sandstorm__V1__Register hello = SANDSTORM__V1__REGISTER__INIT;
    hello.protocol_min = hello.protocol_max = SESSION_PROTOCOL;
    hello.info = &info;
    hello.link_instance = (char *)instance;
    hello.link_uptime_ms = uptime_ms;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_REGISTER;
    frame.register_ = &hello;
    Sandstorm__V1__AgentFrame *frames[] = { &frame };
    Sandstorm__V1__ConnectRequest request = SANDSTORM__V1__CONNECT_REQUEST__INIT;
    request.frames = frames;
    request.n_frames = 1;
    say(call, &request.base);
}

static void say_hello_on(struct rpc_call *call, const char *instance, uint64_t uptime_ms)
{
    struct err err = { 0 };
    stub_call_init(call, IDENTITY_AGENT, "s", &sandstorm__v1__connect_response__descriptor);
    OK(session_open(&orchestrator, call, &err));
    say_register(call, instance, uptime_ms);
}

/* One stream of the first life, and then one of `instance` that has run for so long. */
static unsigned notices_after(const char *instance, uint64_t uptime_ms)
{
    struct rpc_call first, second;
    say_hello_on(&first, LIFE_1, 0);
    say_open("true");
    stub_audit.events = 0;
    size_t told = client.sent;
    say_hello_on(&second, instance, uptime_ms);
    cr_expect(first.finished, "the older stream was kept");
    cr_expect_not(second.finished);
    unsigned notices = (unsigned)(client.sent - told);
    stub_call_close(&first, ERR_CANCELLED);
    stub_call_close(&second, ERR_CANCELLED);
    return notices;
}

Test(relay_admit, a_link_that_hands_over_to_itself_is_nobodys_news)
{
    cr_expect_eq(notices_after(LIFE_1, 60000), 0u, "the client was told");
    cr_expect_eq(stub_audit.events, 0u);
}

Test(relay_admit, a_link_that_was_restarted_is_no_clone)
{
    cr_expect_eq(notices_after(LIFE_2, 0), 1u, "the client was not told");
    cr_expect_eq(stub_audit.events, 0u);
}

Test(relay_admit, two_links_that_are_alive_with_one_key_raise_an_event)
{
    (void)notices_after(LIFE_2, 60000);
    cr_expect_eq(stub_audit.events, 1u);
    cr_expect_str_eq(stub_audit.last_event, "duplicate_link");
}

Test(relay_admit, a_key_that_was_replaced_since_the_guard_let_it_in_does_not_register)
{
    struct err err = { 0 };
    struct rpc_call late;
    struct sandbox *sandbox;
    stub_call_init(&late, IDENTITY_AGENT, "s", &sandstorm__v1__connect_response__descriptor);
    OK(session_open(&orchestrator, &late, &err));
    /* Now another machine enrols as "s". */
    const struct sandbox_record record = { .id = "s", .labels = "env=ci", .key = { 1 } };
    OK(registry_set(orchestrator.registry, &record, &sandbox, &err));
    say_register(&late, LIFE_2, 0);
    cr_expect(late.finished);
    cr_expect_eq(late.status.code, ERR_UNAUTHENTICATED, "%s", late.status.text);
    cr_expect_not(agent.finished, "it has thrown out the one that counts");
    stub_call_close(&late, ERR_CANCELLED);
}

Test(relay_admit, nothing_is_started_on_a_machine_that_took_the_name)
{
    struct sandbox *sandbox = registry_find(orchestrator.registry, "s");
    sandbox->in_step = false;
    say_open("true");
    cr_expect_not(client.finished);
    relay_sandbox_gone(sandbox, "was enrolled again, as another machine");
    cr_expect(client.finished);
    cr_expect_eq(client.status.code, ERR_DENIED);
    cr_expect_null(sandbox->relays);
}
