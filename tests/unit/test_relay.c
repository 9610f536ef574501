/* The orchestrator between one agent and one client: what a client sends may hurt its own stream,
 * never the agent's. */
#include "tests/unit/relay_fixture.h"

/* cppcheck-suppress unknownMacro */
TestSuite(relay, .init = relay_setup, .fini = relay_teardown);

static void say_signal(const char *name)
{
    Sandstorm__V1__Signal signal = SANDSTORM__V1__SIGNAL__INIT;
    signal.name = (char *)name;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_SIGNAL;
    request.signal = &signal;
    say(&client, &request.base);
}

static char *long_text(size_t length)
{
    char *text = malloc(length + 1);
    cr_assert_not_null(text);
    (void)memset(text, 'x', length);
    text[length] = '\0';
    return text;
}

/* An order is a client's request with an address and more around it. One that is larger than what
 * an agent receives ends the agent's stream, and every other client's with it. */
Test(relay, a_request_of_any_size_makes_no_order_that_an_agent_cannot_take)
{
    bool ordered = false, refused = false;
    for (size_t spare = 8; spare < 3000; spare += spare < 300 ? 3 : 300) {
        CLEANUP_FREE char *text = long_text(WIRE_MESSAGE_MAX - spare);
        say_open(text);
        cr_expect(!agent.invalid && !agent.finished && !agent.cancelled, "spare %zu", spare);
        cr_expect(!client.finished || client.status.code == ERR_EXHAUSTED, "%s",
                  client.status.text);
        ordered |= !client.finished;
        refused |= client.finished;
        relay_teardown();
        relay_setup();
    }
    cr_expect(ordered && refused);
}

Test(relay, nor_does_a_signal_with_a_long_name)
{
    say_open("true");
    CLEANUP_FREE char *text = long_text(WIRE_MESSAGE_MAX - 16);
    say_signal(text);
    cr_expect(!agent.invalid && !agent.finished && !agent.cancelled);
    cr_expect_eq(client.status.code, ERR_EXHAUSTED, "%s", client.status.text);
}

Test(relay, a_client_that_leaves_is_detached_from_its_command)
{
    say_open("true");
    stub_call_close(&client, ERR_CANCELLED);
    ProtobufCMessage *owner;
    const Sandstorm__V1__CommandOrder *order = last_frame(&owner)->order;
    cr_expect_eq(order->order_case, SANDSTORM__V1__COMMAND_ORDER__ORDER_DETACH);
    cr_expect_str_eq(order->command_id, COMMAND);
    wire_free(owner);
}

Test(relay, a_second_client_with_the_id_takes_over)
{
    struct err err = { 0 };
    say_open("true");
    struct rpc_call first = client;
    struct relay *relay = relay_find(&orchestrator, &(struct command_id){ COMMAND });
    cr_assert_not_null(relay);
    struct exec *exec = relay->controller;
    cr_assert_not_null(exec);
    exec->call = &first; /* it moved, so that the second one can be `client` */
    client.last = NULL;
    stub_call_init(&client, IDENTITY_CLIENT, "c", &sandstorm__v1__exec_response__descriptor);
    OK(exec_open(&orchestrator, &client, &err));
    say_open("true");
    cr_expect(first.finished);
    cr_expect_eq(first.status.code, ERR_PRECONDITION);
    cr_expect_not(client.finished);
    stub_call_close(&first, ERR_CANCELLED);
    cr_expect_eq(relay_find(&orchestrator, &(struct command_id){ COMMAND }), relay);
    cr_expect_not_null(relay->controller);
}

static void say_input(uint64_t offset, const char *text)
{
    Sandstorm__V1__Stdin input = SANDSTORM__V1__STDIN__INIT;
    input.offset = offset;
    input.data = (ProtobufCBinaryData){ strlen(text), (uint8_t *)text };
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_STDIN;
    request.stdin = &input;
    say(&client, &request.base);
}

static void say_stdin_credit(uint64_t taken, uint64_t received, uint64_t limit)
{
    Sandstorm__V1__StdinCredit credit = SANDSTORM__V1__STDIN_CREDIT__INIT;
    credit.taken = taken;
    credit.received = received;
    credit.limit = limit;
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_STDIN_CREDIT;
    event.stdin_credit = &credit;
    say_event(&event);
}

/* The last input that the agent got. */
static uint64_t last_input(char *text, size_t size)
{
    ProtobufCMessage *owner;
    const Sandstorm__V1__CommandOrder *order = last_frame(&owner)->order;
    cr_assert_eq(order->order_case, SANDSTORM__V1__COMMAND_ORDER__ORDER_STDIN);
    uint64_t offset = order->stdin->offset;
    cr_assert_lt(order->stdin->data.len, size);
    (void)memcpy(text, order->stdin->data.data, order->stdin->data.len);
    text[order->stdin->data.len] = '\0';
    wire_free(owner);
    return offset;
}

Test(relay, more_fields_than_a_frame_may_have_are_the_clients_fault)
{
    enum { COUNT = WIRE_FIELDS_MAX - 8 };
    char *argv[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        argv[i] = (char *)"x";
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    spec.n_argv = COUNT;
    spec.argv = argv;
    Sandstorm__V1__ExecOpen open = SANDSTORM__V1__EXEC_OPEN__INIT;
    open.sandbox_id = (char *)"s";
    open.spec = &spec;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN;
    request.open = &open;
    say(&client, &request.base);
    cr_expect(client.finished && !agent.invalid && !agent.finished && !agent.cancelled);
}

Test(relay, a_start_waits_until_the_runner_is_in_step)
{
    reconnect();
    say_open("true");
    cr_expect_eq(agent.sent, 1u, "ordered before the inventory");
    cr_expect(client.paused);
    say_inventory("life-1", NULL);
    cr_expect_eq(last_order(), SANDSTORM__V1__COMMAND_ORDER__ORDER_START);
    cr_expect_not(client.paused);
}

Test(relay, a_start_waits_for_room_in_the_agents_stream)
{
    agent.full = true;
    say_open("true");
    cr_expect(!agent.cancelled && client.paused);
    agent.full = false;
    agent.handler->writable(agent.owner);
    cr_expect_eq(last_order(), SANDSTORM__V1__COMMAND_ORDER__ORDER_START);
    cr_expect_not(client.paused);
}

Test(relay, a_signal_sent_while_the_link_is_away_arrives_after_it_is_back)
{
    say_open("true");
    say_started();
    reconnect();
    say_signal("TERM");
    cr_expect_eq(agent.sent, 1u, "ordered before the inventory");
    Sandstorm__V1__CommandPosition position = SANDSTORM__V1__COMMAND_POSITION__INIT;
    position.command_id = (char *)COMMAND;
    say_inventory("life-1", &position);
    cr_expect_eq(last_order(), SANDSTORM__V1__COMMAND_ORDER__ORDER_SIGNAL);
}

Test(relay, input_that_was_lost_with_the_link_is_sent_again_and_nothing_twice)
{
    char text[64];
    say_open("cat");
    say_started();
    say_stdin_credit(0, 0, 65536);
    say_input(0, "abcdef");
    cr_expect_eq(last_input(text, sizeof(text)), 0u);
    reconnect();
    say_input(6, "ghi");
    Sandstorm__V1__CommandPosition position = SANDSTORM__V1__COMMAND_POSITION__INIT;
    position.command_id = (char *)COMMAND;
    position.stdin_received = 2;
    say_inventory("life-1", &position);
    cr_expect_eq(last_input(text, sizeof(text)), 2u);
    cr_expect_str_eq(text, "cdefghi");
}

Test(relay, who_attaches_to_a_command_that_has_read_sends_only_what_is_new)
{
    char text[64];
    say_open("cat");
    say_started();
    say_stdin_credit(6, 6, 65536);
    cr_expect(!agent.finished && !client.finished);
    say_input(0, "abcdef");
    say_input(6, "gh");
    cr_expect_eq(last_input(text, sizeof(text)), 6u);
    cr_expect_str_eq(text, "gh");
}

Test(relay, a_start_is_not_repeated_to_another_life_of_the_runner)
{
    say_open("true");
    cr_expect_eq(last_order(), SANDSTORM__V1__COMMAND_ORDER__ORDER_START);
    reconnect();
    size_t before = agent.sent;
    say_inventory("life-2", NULL);
    cr_expect_eq(agent.sent, before, "it may have run already");
    struct err err = { 0 };
    ProtobufCMessage *message;
    OK(wire_unpack(client.type, client.last, client.last_size, &message, &err));
    const Sandstorm__V1__ExecResponse *response = (Sandstorm__V1__ExecResponse *)message;
    cr_assert_eq(response->kind_case, SANDSTORM__V1__EXEC_RESPONSE__KIND_ENDED);
    cr_expect_eq(response->ended->outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_LOST);
    wire_free(message);
}

Test(relay, but_it_is_repeated_to_the_same_life)
{
    say_open("true");
    reconnect();
    say_inventory("life-1", NULL);
    cr_expect_eq(last_order(), SANDSTORM__V1__COMMAND_ORDER__ORDER_START);
}

Test(relay, a_release_that_found_no_link_is_sent_when_it_is_back)
{
    say_open("true");
    say_started();
    Sandstorm__V1__Exited exited = SANDSTORM__V1__EXITED__INIT;
    Sandstorm__V1__Outcome outcome = SANDSTORM__V1__OUTCOME__INIT;
    outcome.result_case = SANDSTORM__V1__OUTCOME__RESULT_EXITED;
    outcome.exited = &exited;
    Sandstorm__V1__Ended ended = SANDSTORM__V1__ENDED__INIT;
    ended.outcome = &outcome;
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_ENDED;
    event.ended = &ended;
    stub_audit.late = true;
    say_event(&event);
    reconnect();
    stub_store_commit();
    Sandstorm__V1__Credit credit = SANDSTORM__V1__CREDIT__INIT;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_CREDIT;
    request.credit = &credit;
    say(&client, &request.base);
    cr_expect(client.finished);
    say_inventory("life-1", NULL);
    cr_expect_eq(last_order(), SANDSTORM__V1__COMMAND_ORDER__ORDER_RELEASE);
}

static void say_output(uint64_t offset, const char *text)
{
    Sandstorm__V1__Output output = SANDSTORM__V1__OUTPUT__INIT;
    output.offset = offset;
    output.stream = SANDSTORM__V1__STREAM__STREAM_STDOUT;
    output.data = (ProtobufCBinaryData){ strlen(text), (uint8_t *)text };
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_OUTPUT;
    event.output = &output;
    say_event(&event);
}

Test(relay, a_word_about_the_command_before_its_start_was_sent_makes_it_an_attach)
{
    agent.full = true;
    say_open("true");
    say_started(); /* to an earlier client of the same id */
    agent.full = false;
    agent.handler->writable(agent.owner);
    cr_expect_eq(last_order(), SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTACH);
    cr_expect(!client.finished && !agent.finished);
}

Test(relay, an_acknowledgement_survives_the_link)
{
    say_open("true");
    say_started();
    say_output(0, "0123456789");
    ledger_flush(relay_find(&orchestrator, &(struct command_id){ COMMAND })->ledger);
    stub_ledger_commit();
    reconnect();
    Sandstorm__V1__CommandPosition position = SANDSTORM__V1__COMMAND_POSITION__INIT;
    position.command_id = (char *)COMMAND;
    position.end_offset = 10;
    say_inventory("life-1", &position);
    ProtobufCMessage *owner;
    const Sandstorm__V1__CommandOrder *order = last_frame(&owner)->order;
    cr_assert_eq(order->order_case, SANDSTORM__V1__COMMAND_ORDER__ORDER_CREDIT);
    cr_expect_eq(order->credit->acked, 10u);
    wire_free(owner);
}

Test(relay, an_id_that_is_opened_before_the_inventory_is_compared_by_its_spec)
{
    reconnect();
    say_open("something else");
    Sandstorm__V1__CommandPosition position = SANDSTORM__V1__COMMAND_POSITION__INIT;
    position.command_id = (char *)COMMAND;
    say_inventory("life-1", &position);
    cr_expect_eq(last_order(), SANDSTORM__V1__COMMAND_ORDER__ORDER_START,
                 "an attach would not compare");
}

Test(relay, output_that_was_granted_to_an_earlier_client_is_asked_for_again)
{
    say_open("true");
    say_started();
    size_t before = agent.sent;
    say_output(EXEC_WINDOW, "beyond what this client was granted");
    cr_expect(!agent.finished && !client.finished);
    cr_expect_eq(agent.sent, before + 1);
    cr_expect_eq(last_order(), SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTACH);
}

Test(relay, a_cancel_that_went_down_with_the_link_is_said_again)
{
    say_open("true");
    say_started();
    Sandstorm__V1__Cancel cancel = SANDSTORM__V1__CANCEL__INIT;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_CANCEL;
    request.cancel = &cancel;
    say(&client, &request.base);
    cr_expect_eq(last_order(), SANDSTORM__V1__COMMAND_ORDER__ORDER_CANCEL);
    reconnect();
    Sandstorm__V1__CommandPosition position = SANDSTORM__V1__COMMAND_POSITION__INIT;
    position.command_id = (char *)COMMAND;
    say_inventory("life-1", &position);
    cr_expect_eq(last_order(), SANDSTORM__V1__COMMAND_ORDER__ORDER_CANCEL);
}
