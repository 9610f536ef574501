/* Agents and clients that break the rules, with real certificates and on real connections. Each
 * time the breaker is told what was wrong, a command in another sandbox notices nothing, and the
 * orchestrator goes on. */
#include "orchestrator/exec.h"
#include "tests/harness/neighbour.h"
#include "tests/harness/peer.h"

#include "sandstorm/v1/control.pb-c.h"
#include "sandstorm/v1/link.pb-c.h"

#include <stdio.h>
#include <string.h>

#define EVIL     "evil"
#define OTHER_ID "7c1e2d3f-4a5b-4c6d-8e7f-9a0b1c2d3e4f"

static void start(void)
{
    neighbour_start();
    MUST(cluster_enroll(fixture(), EVIL, EVIL, err));
}

static void assert_refused(struct peer *peer, const char *wanted)
{
    struct err status = peer_wait_closed(peer);
    cr_assert_neq(status.code, ERR_NONE);
    fixture_assert_contains(status.text, wanted);
    neighbour_assert_well();
}

/* An agent made of single frames. */

TestSuite(hostile_agent, .init = start, .fini = neighbour_stop);

static struct peer *agent_open(void)
{
    return peer_open(fixture_path(EVIL), "/sandstorm.v1.LinkService/Connect");
}

static void agent_say(struct peer *peer, Sandstorm__V1__AgentFrame *frame)
{
    Sandstorm__V1__AgentFrame *frames[] = { frame };
    Sandstorm__V1__ConnectRequest request = SANDSTORM__V1__CONNECT_REQUEST__INIT;
    request.n_frames = 1;
    request.frames = frames;
    peer_send(peer, &request.base);
}

static void agent_say_register(struct peer *peer, uint32_t protocol_min, uint32_t protocol_max)
{
    Sandstorm__V1__SandboxInfo info = SANDSTORM__V1__SANDBOX_INFO__INIT;
    Sandstorm__V1__Register message = SANDSTORM__V1__REGISTER__INIT;
    message.protocol_min = protocol_min;
    message.protocol_max = protocol_max;
    message.info = &info;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_REGISTER;
    frame.register_ = &message;
    agent_say(peer, &frame);
}

/* The next answer; each message of the orchestrator's has one frame. */
static Sandstorm__V1__ConnectResponse *agent_hear(struct peer *peer)
{
    ProtobufCMessage *message = peer_receive(peer, &sandstorm__v1__connect_response__descriptor);
    cr_assert_not_null(message, "%s", peer_wait_closed(peer).text);
    Sandstorm__V1__ConnectResponse *response = (Sandstorm__V1__ConnectResponse *)message;
    cr_assert_eq(response->n_frames, 1);
    return response;
}

static struct peer *agent_join(void)
{
    struct peer *peer = agent_open();
    agent_say_register(peer, 1, 1);
    Sandstorm__V1__ConnectResponse *welcome = agent_hear(peer);
    cr_assert_eq(welcome->frames[0]->kind_case, SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_WELCOME);
    cr_assert_str_eq(welcome->frames[0]->welcome->sandbox_id, EVIL);
    /* As a runner without commands has it. */
    Sandstorm__V1__Inventory inventory = SANDSTORM__V1__INVENTORY__INIT;
    inventory.epoch = welcome->frames[0]->welcome->epoch;
    inventory.runner_instance = (char *)OTHER_ID;
    inventory.complete = true;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_INVENTORY;
    frame.inventory = &inventory;
    agent_say(peer, &frame);
    wire_free(&welcome->base);
    return peer;
}

/* Until an order of that kind comes; how far output may go, where it says so. */
static uint64_t agent_await_order(struct peer *peer, Sandstorm__V1__CommandOrder__OrderCase kind)
{
    for (;;) {
        Sandstorm__V1__ConnectResponse *response = agent_hear(peer);
        const Sandstorm__V1__OrchestratorFrame *frame = response->frames[0];
        bool found = frame->kind_case == SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_ORDER &&
                     frame->order->order_case == kind;
        uint64_t limit = 0;
        if (found && kind == SANDSTORM__V1__COMMAND_ORDER__ORDER_START)
            limit = frame->order->start->attach->limit;
        else if (found && kind == SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTACH)
            limit = frame->order->attach->limit;
        wire_free(&response->base);
        if (found)
            return limit;
    }
}

static void agent_say_event(struct peer *peer, const char *id, Sandstorm__V1__CommandEvent *event)
{
    event->command_id = (char *)id;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_EVENT;
    frame.event = event;
    agent_say(peer, &frame);
}

static void agent_say_output(struct peer *peer, const char *id, uint64_t offset, const char *data,
                             size_t size)
{
    Sandstorm__V1__Output output = SANDSTORM__V1__OUTPUT__INIT;
    output.offset = offset;
    output.stream = SANDSTORM__V1__STREAM__STREAM_STDOUT;
    output.data = (ProtobufCBinaryData){ size, (uint8_t *)data };
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_OUTPUT;
    event.output = &output;
    agent_say_event(peer, id, &event);
}

static void agent_say_gap(struct peer *peer, const char *id, uint64_t offset, uint64_t size)
{
    Sandstorm__V1__Gap gap = SANDSTORM__V1__GAP__INIT;
    gap.offset = offset;
    gap.size = size;
    gap.reason = SANDSTORM__V1__GAP_REASON__GAP_REASON_DROPPED;
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_GAP;
    event.gap = &gap;
    agent_say_event(peer, id, &event);
}

static void agent_say_ended(struct peer *peer, const char *id, uint64_t end_offset, uint32_t code)
{
    Sandstorm__V1__Exited exited = SANDSTORM__V1__EXITED__INIT;
    exited.code = code;
    Sandstorm__V1__Outcome outcome = SANDSTORM__V1__OUTCOME__INIT;
    outcome.result_case = SANDSTORM__V1__OUTCOME__RESULT_EXITED;
    outcome.exited = &exited;
    Sandstorm__V1__Ended ended = SANDSTORM__V1__ENDED__INIT;
    ended.outcome = &outcome;
    ended.end_offset = end_offset;
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_ENDED;
    event.ended = &ended;
    agent_say_event(peer, id, &event);
}

/* A client that waits for a command in the evil sandbox, and the agent's order to start it. */
static struct fixture_client order_command(struct peer *peer, uint64_t *ret_limit)
{
    struct fixture_client client =
        CLI_START(PIPE_OUT | PIPE_ERR, "exec", EVIL, "--id", OTHER_ID, "-n", "--", "anything");
    *ret_limit = agent_await_order(peer, SANDSTORM__V1__COMMAND_ORDER__ORDER_START);
    return client;
}

/* And the client that waits for the command is not told a result that nobody has seen. */
static void assert_refused_without_result(struct peer *peer, struct fixture_client *client,
                                          const char *wanted)
{
    struct err running;
    int status;
    assert_refused(peer, wanted);
    cr_assert_eq(proc_wait(client->proc, 0, &status, &running), -1, "the client has ended");
}

Test(hostile_agent, whose_first_frame_is_no_register_is_refused)
{
    CLEANUP_PEER struct peer *peer = agent_open();
    Sandstorm__V1__Heartbeat heartbeat = SANDSTORM__V1__HEARTBEAT__INIT;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_HEARTBEAT;
    frame.heartbeat = &heartbeat;
    agent_say(peer, &frame);
    assert_refused(peer, "may not come while the stream is new");
}

Test(hostile_agent, whose_first_frame_is_empty_is_refused)
{
    CLEANUP_PEER struct peer *peer = agent_open();
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    agent_say(peer, &frame);
    assert_refused(peer, "the first frame must be a register frame");
}

Test(hostile_agent, that_registers_twice_is_refused)
{
    CLEANUP_PEER struct peer *peer = agent_join();
    agent_say_register(peer, 1, 1);
    assert_refused(peer, "may not come while the stream is active");
}

Test(hostile_agent, that_says_nothing_about_itself_is_refused)
{
    CLEANUP_PEER struct peer *peer = agent_open();
    Sandstorm__V1__Register message = SANDSTORM__V1__REGISTER__INIT;
    message.protocol_min = message.protocol_max = 1;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_REGISTER;
    frame.register_ = &message;
    agent_say(peer, &frame);
    assert_refused(peer, "has no info");
}

Test(hostile_agent, that_is_too_new_is_told_what_to_upgrade)
{
    CLEANUP_PEER struct peer *peer = agent_open();
    agent_say_register(peer, 2, 5);
    assert_refused(peer, "upgrade the orchestrator");
}

Test(hostile_agent, that_is_too_old_is_told_what_to_upgrade)
{
    CLEANUP_PEER struct peer *peer = agent_open();
    agent_say_register(peer, 0, 0);
    assert_refused(peer, "upgrade the agent");
}

Test(hostile_agent, with_a_message_that_is_too_large_is_refused)
{
    CLEANUP_PEER struct peer *peer = agent_join();
    CLEANUP_FREE char *bytes = calloc(1, WIRE_MESSAGE_MAX + 1);
    peer_send_bytes(peer, bytes, WIRE_MESSAGE_MAX + 1);
    cr_assert_eq(peer_wait_closed(peer).code, ERR_EXHAUSTED);
    neighbour_assert_well();
}

Test(hostile_agent, with_bytes_that_are_no_message_is_refused)
{
    CLEANUP_PEER struct peer *peer = agent_join();
    peer_send_bytes(peer, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11);
    cr_assert_neq(peer_wait_closed(peer).code, ERR_NONE);
    neighbour_assert_well();
}

Test(hostile_agent, with_a_swarm_of_empty_frames_is_refused)
{
    /* Two bytes each on the wire, far more once unpacked. */
    CLEANUP_PEER struct peer *peer = agent_join();
    CLEANUP_FREE char *bytes = calloc(1, WIRE_MESSAGE_MAX);
    for (size_t i = 0; i < WIRE_MESSAGE_MAX; i += 2)
        bytes[i] = 0x0a;
    peer_send_bytes(peer, bytes, WIRE_MESSAGE_MAX);
    cr_assert_neq(peer_wait_closed(peer).code, ERR_NONE);
    neighbour_assert_well();
}

Test(hostile_agent, cannot_speak_about_a_command_of_another_sandbox)
{
    CLEANUP_PEER struct peer *peer = agent_join();
    agent_say_output(peer, NEIGHBOUR_ID, 7, "forged\n", 7);
    agent_say_ended(peer, NEIGHBOUR_ID, 7, 99);
    /* Both have been read when the command that is ordered after them runs to its end. */
    uint64_t limit;
    CLEANUP_CLIENT struct fixture_client client = order_command(peer, &limit);
    agent_say_ended(peer, OTHER_ID, 0, 3);
    cr_assert_eq(peer_wait_client(peer, &client), 3);
    neighbour_assert_well();
}

Test(hostile_agent, that_speaks_about_an_id_that_cannot_be_is_refused)
{
    CLEANUP_PEER struct peer *peer = agent_join();
    agent_say_output(peer, "../../etc/passwd", 0, "x", 1);
    cr_assert_neq(peer_wait_closed(peer).code, ERR_NONE);
    neighbour_assert_well();
}

Test(hostile_agent, that_sends_more_than_it_was_granted_is_refused)
{
    static char bytes[WIRE_PAYLOAD_MAX];
    CLEANUP_PEER struct peer *peer = agent_join();
    uint64_t limit;
    CLEANUP_CLIENT struct fixture_client client = order_command(peer, &limit);
    cr_assert_gt(limit, 0);
    /* A window beyond the grant could have been granted to an earlier client; not more. */
    for (uint64_t sent = 0; sent <= EXEC_WINDOW + WIRE_PAYLOAD_MAX; sent += sizeof(bytes))
        agent_say_output(peer, OTHER_ID, limit + sent, bytes, sizeof(bytes));
    assert_refused_without_result(peer, &client, "beyond the granted offset");
}

Test(hostile_agent, that_leaves_a_hole_in_the_output_is_asked_again)
{
    CLEANUP_PEER struct peer *peer = agent_join();
    uint64_t limit;
    CLEANUP_CLIENT struct fixture_client client = order_command(peer, &limit);
    agent_say_output(peer, OTHER_ID, 4, "hole", 4);
    (void)agent_await_order(peer, SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTACH);
    agent_say_output(peer, OTHER_ID, 0, "the whole", 9);
    agent_say_ended(peer, OTHER_ID, 9, 0);
    cr_assert_eq(peer_wait_client(peer, &client), 0);
    size_t size;
    CLEANUP_FREE char *output = fixture_read_all(client.out, &size);
    cr_assert_str_eq(output, "the whole");
    neighbour_assert_well();
}

Test(hostile_agent, that_repeats_output_does_not_make_it_appear_twice)
{
    CLEANUP_PEER struct peer *peer = agent_join();
    uint64_t limit;
    CLEANUP_CLIENT struct fixture_client client = order_command(peer, &limit);
    agent_say_output(peer, OTHER_ID, 0, "abcd", 4);
    agent_say_output(peer, OTHER_ID, 0, "abcd", 4);
    agent_say_output(peer, OTHER_ID, 2, "cdef", 4);
    agent_say_ended(peer, OTHER_ID, 6, 0);
    cr_assert_eq(peer_wait_client(peer, &client), 0);
    size_t size;
    CLEANUP_FREE char *output = fixture_read_all(client.out, &size);
    cr_assert_str_eq(output, "abcdef");
}

Test(hostile_agent, whose_end_record_skips_output_is_asked_for_it)
{
    CLEANUP_PEER struct peer *peer = agent_join();
    uint64_t limit;
    CLEANUP_CLIENT struct fixture_client client = order_command(peer, &limit);
    agent_say_output(peer, OTHER_ID, 0, "abcd", 4);
    agent_say_ended(peer, OTHER_ID, 8, 0);
    (void)agent_await_order(peer, SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTACH);
    agent_say_output(peer, OTHER_ID, 4, "efgh", 4);
    agent_say_ended(peer, OTHER_ID, 8, 0);
    cr_assert_eq(peer_wait_client(peer, &client), 0);
    size_t size;
    CLEANUP_FREE char *output = fixture_read_all(client.out, &size);
    cr_assert_str_eq(output, "abcdefgh");
    neighbour_assert_well();
}

Test(hostile_agent, whose_end_record_denies_output_gets_no_result_believed)
{
    CLEANUP_PEER struct peer *peer = agent_join();
    uint64_t limit;
    CLEANUP_CLIENT struct fixture_client client = order_command(peer, &limit);
    agent_say_output(peer, OTHER_ID, 0, "abcd", 4);
    agent_say_ended(peer, OTHER_ID, 2, 0);
    cr_assert_eq(peer_wait_client(peer, &client), 255);
    neighbour_assert_well();
}

Test(hostile_agent, whose_end_record_has_no_outcome_is_refused)
{
    CLEANUP_PEER struct peer *peer = agent_join();
    uint64_t limit;
    CLEANUP_CLIENT struct fixture_client client = order_command(peer, &limit);
    Sandstorm__V1__Ended ended = SANDSTORM__V1__ENDED__INIT;
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_ENDED;
    event.ended = &ended;
    agent_say_event(peer, OTHER_ID, &event);
    assert_refused_without_result(peer, &client, "without an outcome");
}

Test(hostile_agent, that_claims_input_that_was_not_sent_is_refused)
{
    CLEANUP_PEER struct peer *peer = agent_join();
    uint64_t limit;
    CLEANUP_CLIENT struct fixture_client client = order_command(peer, &limit);
    Sandstorm__V1__StdinCredit credit = SANDSTORM__V1__STDIN_CREDIT__INIT;
    credit.taken = 1000;
    credit.limit = UINT64_MAX;
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_STDIN_CREDIT;
    event.stdin_credit = &credit;
    agent_say_event(peer, OTHER_ID, &event);
    assert_refused_without_result(peer, &client, "input credit");
}

Test(hostile_agent, whose_gap_passes_the_end_of_numbers_is_refused)
{
    CLEANUP_PEER struct peer *peer = agent_join();
    uint64_t limit;
    CLEANUP_CLIENT struct fixture_client client = order_command(peer, &limit);
    agent_say_output(peer, OTHER_ID, 0, "abcd", 4);
    agent_say_gap(peer, OTHER_ID, 4, UINT64_MAX);
    assert_refused_without_result(peer, &client, "a gap record that cannot be");
}

Test(hostile_agent, whose_gap_reaches_the_end_of_numbers_confuses_nobody)
{
    CLEANUP_PEER struct peer *peer = agent_join();
    uint64_t limit;
    CLEANUP_CLIENT struct fixture_client client = order_command(peer, &limit);
    agent_say_gap(peer, OTHER_ID, 0, UINT64_MAX);
    agent_say_ended(peer, OTHER_ID, UINT64_MAX, 5);
    cr_assert_eq(peer_wait_client(peer, &client), 5);
    size_t size;
    CLEANUP_FREE char *notes = fixture_read_all(client.err, &size);
    fixture_assert_contains(notes, "18446744073709551615 bytes of output were dropped");
    neighbour_assert_well();
}
