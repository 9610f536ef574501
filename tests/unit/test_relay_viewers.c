/* Several clients of one command, each at its own place and pace; and a command that nobody looks
 * at. The agent and the clients are stubs, and so is the disk. */
#include "orchestrator/ledger.h"
#include "tests/unit/relay_fixture.h"

/* cppcheck-suppress unknownMacro */
TestSuite(relay_viewers, .init = relay_setup, .fini = relay_teardown);

#define CONTROL SANDSTORM__V1__EXEC_MODE__EXEC_MODE_CONTROL
#define WATCH   SANDSTORM__V1__EXEC_MODE__EXEC_MODE_WATCH

static struct relay *the_relay(void)
{
    struct relay *relay = relay_find(&orchestrator, &(struct command_id){ COMMAND });
    cr_assert_not_null(relay);
    return relay;
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

static void say_settled(unsigned code, uint64_t end_offset)
{
    Sandstorm__V1__Exited exited = SANDSTORM__V1__EXITED__INIT;
    exited.code = code;
    Sandstorm__V1__Outcome outcome = SANDSTORM__V1__OUTCOME__INIT;
    outcome.result_case = SANDSTORM__V1__OUTCOME__RESULT_EXITED;
    outcome.exited = &exited;
    Sandstorm__V1__Settled settled = SANDSTORM__V1__SETTLED__INIT;
    settled.outcome = &outcome;
    settled.end_offset = end_offset;
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_SETTLED;
    event.settled = &settled;
    say_event(&event);
}

/* A further client, with everything that it was sent. */
struct viewer {
    struct rpc_call call;
    char text[256];
};

static void viewer_open(struct viewer *viewer, const Sandstorm__V1__ExecOpen *how)
{
    struct err err = { 0 };
    Sandstorm__V1__ExecOpen open = *how;
    open.command_id = (char *)COMMAND;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN;
    request.open = &open;
    (void)memset(viewer, 0, sizeof(*viewer));
    stub_call_init(&viewer->call, IDENTITY_CLIENT, "c", &sandstorm__v1__exec_response__descriptor);
    stub_call_keep(&viewer->call);
    OK(exec_open(&orchestrator, &viewer->call, &err));
    say(&viewer->call, &request.base);
}

static void viewer_attach(struct viewer *viewer, Sandstorm__V1__ExecMode mode, uint64_t from)
{
    Sandstorm__V1__ExecOpen open = SANDSTORM__V1__EXEC_OPEN__INIT;
    open.mode = mode;
    open.from_offset = from;
    open.limit = UINT64_MAX;
    viewer_open(viewer, &open);
}

static void viewer_say_credit(struct viewer *viewer, uint64_t acked, uint64_t limit)
{
    Sandstorm__V1__Credit credit = SANDSTORM__V1__CREDIT__INIT;
    credit.acked = acked;
    credit.limit = limit;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_CREDIT;
    request.credit = &credit;
    say(&viewer->call, &request.base);
}

/* What it was sent, as text: output as it is, a gap as <size>, the end as the code in brackets. */
static const char *viewer_text(struct viewer *viewer)
{
    char *out = viewer->text;
    const char *end = viewer->text + sizeof(viewer->text);
    *out = '\0';
    for (size_t i = 0; i < viewer->call.kept_count; i++) {
        struct err err = { 0 };
        CLEANUP_WIRE ProtobufCMessage *message = NULL;
        OK(wire_unpack(&sandstorm__v1__exec_response__descriptor, viewer->call.kept[i].data,
                       viewer->call.kept[i].size, &message, &err));
        const Sandstorm__V1__ExecResponse *response = (Sandstorm__V1__ExecResponse *)message;
        if (response->kind_case == SANDSTORM__V1__EXEC_RESPONSE__KIND_OUTPUT)
            out += snprintf(out, (size_t)(end - out), "%.*s", (int)response->output->data.len,
                            (const char *)response->output->data.data);
        else if (response->kind_case == SANDSTORM__V1__EXEC_RESPONSE__KIND_GAP)
            out += snprintf(out, (size_t)(end - out), "<%llu>",
                            (unsigned long long)response->gap->size);
        else if (response->kind_case == SANDSTORM__V1__EXEC_RESPONSE__KIND_ENDED)
            out +=
                snprintf(out, (size_t)(end - out), "[%u]", response->ended->outcome->exited->code);
    }
    return viewer->text;
}

static void viewer_close(struct viewer *viewer)
{
    stub_call_close(&viewer->call, ERR_CANCELLED);
    cr_expect(viewer->call.released);
}

static void to_disk(void)
{
    ledger_flush(the_relay()->ledger);
    stub_ledger_commit();
}

static void begin(void)
{
    say_open("true");
    say_started();
}

/* Looking. */

Test(relay_viewers, who_only_looks_sees_it_all_and_takes_nothing_over)
{
    struct viewer viewer;
    begin();
    say_output(0, "one");
    viewer_attach(&viewer, WATCH, 0);
    say_output(3, "two");
    cr_expect_str_eq(viewer_text(&viewer), "onetwo");
    cr_expect_not(client.finished);
    say_settled(4, 6);
    cr_expect_str_eq(viewer_text(&viewer), "onetwo[4]");
    viewer_close(&viewer);
}

Test(relay_viewers, one_from_the_middle_gets_the_rest)
{
    struct viewer viewer;
    begin();
    say_output(0, "abcdef");
    viewer_attach(&viewer, WATCH, 4);
    cr_expect_str_eq(viewer_text(&viewer), "ef");
    viewer_close(&viewer);
}

Test(relay_viewers, one_from_the_end_gets_the_last_bytes)
{
    struct viewer viewer;
    Sandstorm__V1__ExecOpen open = SANDSTORM__V1__EXEC_OPEN__INIT;
    open.mode = WATCH;
    open.from_end = true;
    open.last_bytes = 2;
    open.server_credit = true;
    begin();
    say_output(0, "abcdef");
    viewer_open(&viewer, &open);
    cr_expect_str_eq(viewer_text(&viewer), "ef");
    viewer_close(&viewer);
}

Test(relay_viewers, a_snapshot_ends_with_what_there_is)
{
    struct viewer viewer;
    Sandstorm__V1__ExecOpen open = SANDSTORM__V1__EXEC_OPEN__INIT;
    open.mode = WATCH;
    open.snapshot = true;
    open.server_credit = true;
    begin();
    say_output(0, "abc");
    viewer_open(&viewer, &open);
    cr_expect_str_eq(viewer_text(&viewer), "abc");
    cr_expect(viewer.call.finished);
    cr_expect_eq(viewer.call.status.code, ERR_NONE, "%s", viewer.call.status.text);
    viewer_close(&viewer);
}

Test(relay_viewers, who_only_looks_may_not_touch)
{
    struct viewer viewer;
    begin();
    viewer_attach(&viewer, WATCH, 0);
    Sandstorm__V1__Signal signal = SANDSTORM__V1__SIGNAL__INIT;
    signal.name = (char *)"KILL";
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_SIGNAL;
    request.signal = &signal;
    size_t before = agent.sent;
    say(&viewer.call, &request.base);
    cr_expect_eq(agent.sent, before, "an order went out");
    cr_expect_eq(viewer.call.status.code, ERR_INVALID);
    cr_expect_not(client.finished);
    viewer_close(&viewer);
}

Test(relay_viewers, one_in_control_takes_over_and_the_first_is_told)
{
    struct viewer viewer;
    begin();
    viewer_attach(&viewer, CONTROL, 0);
    cr_expect(client.finished);
    cr_expect_eq(client.status.code, ERR_PRECONDITION);
    cr_expect_eq(the_relay()->controller->call, &viewer.call);
    viewer_close(&viewer);
}

Test(relay_viewers, a_command_that_is_not_known_cannot_be_attached_to)
{
    struct viewer viewer;
    viewer_attach(&viewer, WATCH, 0);
    cr_expect(viewer.call.finished);
    cr_expect_eq(viewer.call.status.code, ERR_NOT_FOUND);
    viewer_close(&viewer);
}

Test(relay_viewers, nor_one_that_is_out_of_scope_and_the_answer_is_the_same)
{
    struct err err = { 0 };
    struct viewer missing, viewer;
    const struct client_record held = {
        .name = "c", .role = ROLE_OPERATOR, .has_key = true, .scope = "env=prod"
    };
    viewer_attach(&missing, WATCH, 0);
    begin();
    OK(clients_set(orchestrator.clients, &held, &err));
    viewer_attach(&viewer, WATCH, 0);
    cr_expect_eq(viewer.call.status.code, missing.call.status.code);
    cr_expect_str_eq(viewer.call.status.text, missing.call.status.text);
    viewer_close(&viewer);
    viewer_close(&missing);
}

/* Pace. */

static uint64_t last_limit(void)
{
    ProtobufCMessage *owner;
    const Sandstorm__V1__CommandOrder *order = last_frame(&owner)->order;
    uint64_t limit = order->order_case == SANDSTORM__V1__COMMAND_ORDER__ORDER_CREDIT
                         ? order->credit->limit
                     : order->order_case == SANDSTORM__V1__COMMAND_ORDER__ORDER_START
                         ? order->start->attach->limit
                         : 0;
    wire_free(owner);
    return limit;
}

static void open_with_limit(uint64_t limit)
{
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    spec.shell = (char *)"true";
    Sandstorm__V1__ExecOpen open = SANDSTORM__V1__EXEC_OPEN__INIT;
    open.sandbox_id = (char *)"s";
    open.command_id = (char *)COMMAND;
    open.spec = &spec;
    open.limit = limit;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN;
    request.open = &open;
    say(&client, &request.base);
}

Test(relay_viewers, the_command_keeps_to_the_pace_of_who_controls_it)
{
    open_with_limit(5);
    cr_expect_eq(last_limit(), 5u);
}

Test(relay_viewers, and_to_nobodys_when_that_one_leaves)
{
    struct err err = { 0 };
    open_with_limit(5);
    say_started();
    stub_call_close(&client, ERR_CANCELLED);
    cr_expect_eq(the_relay()->granted, (uint64_t)RELAY_WINDOW);
    stub_call_init(&client, IDENTITY_CLIENT, "c", &sandstorm__v1__exec_response__descriptor);
    OK(exec_open(&orchestrator, &client, &err));
}

Test(relay_viewers, one_that_only_looks_is_not_waited_for)
{
    struct viewer viewer;
    Sandstorm__V1__ExecOpen open = SANDSTORM__V1__EXEC_OPEN__INIT;
    open.mode = WATCH;
    open.limit = 2;
    begin();
    viewer_open(&viewer, &open);
    say_output(0, "abcdef");
    cr_expect_str_eq(viewer_text(&viewer), "ab");
    cr_expect_geq(the_relay()->granted, (uint64_t)RELAY_WINDOW);
    viewer_say_credit(&viewer, 2, 4);
    cr_expect_str_eq(viewer_text(&viewer), "abcd");
    viewer_close(&viewer);
}

Test(relay_viewers, one_that_is_behind_reads_from_the_disk)
{
    struct viewer viewer;
    Sandstorm__V1__ExecOpen open = SANDSTORM__V1__EXEC_OPEN__INIT;
    open.mode = WATCH;
    begin();
    say_output(0, "abc");
    to_disk();
    say_output(3, "def");
    to_disk();
    viewer_open(&viewer, &open);
    cr_expect_str_eq(viewer_text(&viewer), "");
    viewer_say_credit(&viewer, 0, 2);
    viewer_say_credit(&viewer, 0, 5);
    cr_expect_str_eq(viewer_text(&viewer), "abcde");
    say_output(6, "ghi");
    viewer_say_credit(&viewer, 0, 100);
    cr_expect_str_eq(viewer_text(&viewer), "abcdefghi");
    viewer_close(&viewer);
}

Test(relay_viewers, what_is_not_kept_any_more_is_a_gap)
{
    struct viewer viewer;
    begin();
    say_output(0, "abc");
    to_disk();
    say_output(3, "def");
    to_disk();
    stub_ledger.trimmed = 3;
    viewer_attach(&viewer, WATCH, 1);
    cr_expect_str_eq(viewer_text(&viewer), "<2>def");
    viewer_close(&viewer);
}

/* The disk. */

Test(relay_viewers, output_is_acknowledged_when_it_is_on_disk)
{
    begin();
    say_output(0, "abc");
    cr_expect_eq(the_relay()->acked, 0u);
    cr_expect_eq(ledger_durable(the_relay()->ledger), 0u);
    stub_ledger.late = true;
    ledger_flush(the_relay()->ledger);
    cr_expect_eq(ledger_durable(the_relay()->ledger), 0u);
    stub_ledger_commit();
    cr_expect_eq(ledger_durable(the_relay()->ledger), 3u);
}

Test(relay_viewers, the_runner_lets_go_when_output_and_end_are_on_disk)
{
    begin();
    say_output(0, "abc");
    stub_ledger.late = true;
    size_t before = agent.sent;
    say_settled(0, 3);
    cr_expect_eq(agent.sent, before, "released too early");
    stub_ledger_commit();
    cr_expect_eq(last_order(), SANDSTORM__V1__COMMAND_ORDER__ORDER_RELEASE);
}

Test(relay_viewers, a_disk_that_is_full_is_told_and_tried_again)
{
    struct err err = { 0 };
    begin();
    say_output(0, "abc");
    stub_ledger.broken = true;
    to_disk();
    cr_expect(ledger_stuck(the_relay()->ledger));
    cr_expect_eq(ledger_durable(the_relay()->ledger), 0u);
    stub_ledger.broken = false;
    while (ledger_stuck(the_relay()->ledger)) {
        OK(loop_turn(orchestrator.loop, UINT64_MAX, &err));
        stub_ledger_commit();
    }
    cr_expect_eq(ledger_durable(the_relay()->ledger), 3u);
    cr_expect_eq(stub_ledger.count, 1u);
}

Test(relay_viewers, no_more_is_taken_than_memory_holds_while_the_disk_is_full)
{
    static char bytes[WIRE_PAYLOAD_MAX + 1];
    (void)memset(bytes, 'x', sizeof(bytes) - 1);
    begin();
    stub_ledger.late = true;
    for (uint64_t offset = 0; offset < the_relay()->granted && offset < 8 * LEDGER_MEMORY_MAX;
         offset += WIRE_PAYLOAD_MAX)
        say_output(offset, bytes);
    cr_expect_eq(ledger_end(the_relay()->ledger), (uint64_t)LEDGER_MEMORY_MAX);
    cr_expect_eq(the_relay()->granted, (uint64_t)LEDGER_MEMORY_MAX);
    stub_ledger.late = false;
    while (stub_ledger.first)
        stub_ledger_commit();
    cr_expect_gt(the_relay()->granted, (uint64_t)LEDGER_MEMORY_MAX);
}

/* Audience. */

static bool last_attended(void)
{
    ProtobufCMessage *owner;
    const Sandstorm__V1__CommandOrder *order = last_frame(&owner)->order;
    bool attended = order->order_case == SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTEND;
    cr_expect(attended || order->order_case == SANDSTORM__V1__COMMAND_ORDER__ORDER_DETACH);
    wire_free(owner);
    return attended;
}

Test(relay_viewers, the_runner_hears_who_comes_and_goes)
{
    struct viewer viewer;
    struct err err = { 0 };
    begin();
    stub_call_close(&client, ERR_CANCELLED);
    cr_expect_not(last_attended());
    viewer_attach(&viewer, WATCH, 0);
    cr_expect_not(last_attended(), "one that only looks does not count");
    viewer_close(&viewer);
    viewer_attach(&viewer, CONTROL, 0);
    cr_expect(last_attended());
    viewer_close(&viewer);
    cr_expect_not(last_attended());
    stub_call_init(&client, IDENTITY_CLIENT, "c", &sandstorm__v1__exec_response__descriptor);
    OK(exec_open(&orchestrator, &client, &err));
}

/* Input by calls. */

static void say_takes_input(void)
{
    Sandstorm__V1__Started started = SANDSTORM__V1__STARTED__INIT;
    started.takes_input = true;
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_STARTED;
    event.started = &started;
    say_event(&event);
}

static int write_text(uint64_t offset, const char *text, uint64_t *ret_end, struct err *err)
{
    Sandstorm__V1__WriteStdinRequest request = SANDSTORM__V1__WRITE_STDIN_REQUEST__INIT;
    request.offset = offset;
    request.data = (ProtobufCBinaryData){ strlen(text), (uint8_t *)text };
    return relay_write(the_relay(), &request, ret_end, err);
}

Test(relay_viewers, input_by_calls_is_the_controllers_while_there_is_one)
{
    struct err err = { 0 };
    uint64_t end;
    say_open("cat");
    say_takes_input();
    cr_expect_eq(write_text(0, "abc", &end, &err), -1);
    cr_expect_eq(err.code, ERR_PRECONDITION);
}

Test(relay_viewers, input_by_calls_goes_to_a_command_that_nobody_controls)
{
    struct err err = { 0 };
    uint64_t end = 0;
    say_open("cat");
    say_takes_input();
    stub_call_close(&client, ERR_CANCELLED);
    OK(write_text(0, "abc", &end, &err));
    cr_expect_eq(end, 3u);
    cr_expect_eq(last_order(), SANDSTORM__V1__COMMAND_ORDER__ORDER_STDIN);
    OK(write_text(0, "abc", &end, &err));
    cr_expect_eq(end, 3u, "a retry writes nothing twice");
    cr_expect_eq(write_text(9, "x", &end, &err), -1);
    cr_expect_eq(err.code, ERR_INVALID, "a hole");
    stub_call_init(&client, IDENTITY_CLIENT, "c", &sandstorm__v1__exec_response__descriptor);
    OK(exec_open(&orchestrator, &client, &err));
}
