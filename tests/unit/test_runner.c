/* The runner's table of commands as its link sees it. The link's own file is part of this one, so
 * that a test can stop between two frames of an inventory, where a full socket would. */
#include "agent/runner_link.c" /* NOLINT(bugprone-suspicious-include) */

#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <sys/un.h>

#define OK(call) cr_assert_eq((call), 0, "%s", err.text)

static struct runner *runner;
static int peer = -1;
static char path[64];

static void setup(void)
{
    struct err err = { 0 };
    (void)snprintf(path, sizeof(path), "/tmp/test-runner-%d", (int)getpid());
    OK(daemon_prepare(&err));
    const struct runner_config config = { .socket = path, .link_uid = getuid() };
    OK(runner_new(&config, &runner, &err));
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    (void)memcpy(address.sun_path, path, sizeof(path));
    peer = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    cr_assert_eq(connect(peer, (struct sockaddr *)&address, sizeof(address)), 0);
    OK(loop_turn(runner->loop, 0, &err));
    cr_assert_not_null(runner->link);
}

static void teardown(void)
{
    runner_free(runner);
    close_fd(&peer);
    cr_expect_eq(access(path, F_OK), -1, "the socket was left behind");
}

/* cppcheck-suppress unknownMacro */
TestSuite(runner, .init = setup, .fini = teardown);

static void tell(Sandstorm__V1__OrchestratorFrame *frame)
{
    struct err err = { 0 };
    uint8_t packed[4096];
    size_t size = sandstorm__v1__orchestrator_frame__pack(frame, packed);
    OK(runner_receive(runner, packed, size, &err));
}

static void welcome(void)
{
    Sandstorm__V1__Welcome hello = SANDSTORM__V1__WELCOME__INIT;
    Sandstorm__V1__OrchestratorFrame frame = SANDSTORM__V1__ORCHESTRATOR_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_WELCOME;
    frame.welcome = &hello;
    tell(&frame);
}

static void order(unsigned number, Sandstorm__V1__CommandOrder *message)
{
    char id[COMMAND_ID_LEN + 1];
    (void)snprintf(id, sizeof(id), "%08x-7f0e-4a53-9c55-3d7a1f2e9b10", number);
    message->command_id = id;
    Sandstorm__V1__OrchestratorFrame frame = SANDSTORM__V1__ORCHESTRATOR_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_ORDER;
    frame.order = message;
    tell(&frame);
}

/* A command that ends at once, because its program does not exist. */
static void start(unsigned number, uint8_t digest)
{
    uint8_t bytes[COMMAND_DIGEST_LEN] = { digest };
    char *argv[] = { (char *)"/nonexistent" };
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    spec.argv = argv;
    spec.n_argv = 1;
    Sandstorm__V1__Start message = SANDSTORM__V1__START__INIT;
    message.spec = &spec;
    message.spec_digest = (ProtobufCBinaryData){ sizeof(bytes), bytes };
    Sandstorm__V1__CommandOrder start_order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    start_order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_START;
    start_order.start = &message;
    order(number, &start_order);
}

static void release(unsigned number)
{
    Sandstorm__V1__Release message = SANDSTORM__V1__RELEASE__INIT;
    Sandstorm__V1__CommandOrder release_order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    release_order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_RELEASE;
    release_order.release = &message;
    order(number, &release_order);
}

/* How many commands the next frame names, and whether it is the last. */
static size_t next_inventory(bool *ret_complete)
{
    struct err err = { 0 };
    ProtobufCMessage *message;
    size_t size = pack_inventory(runner->link);
    OK(wire_unpack(&sandstorm__v1__agent_frame__descriptor, runner->link->packet, size, &message,
                   &err));
    const Sandstorm__V1__AgentFrame *frame = (const Sandstorm__V1__AgentFrame *)message;
    cr_assert_eq(frame->kind_case, SANDSTORM__V1__AGENT_FRAME__KIND_INVENTORY);
    size_t count = frame->inventory->n_commands;
    *ret_complete = frame->inventory->complete;
    wire_free(message);
    return count;
}

Test(runner, an_inventory_names_every_command_in_frames_that_fit)
{
    welcome();
    for (unsigned i = 0; i < RUNNER_COMMANDS_MAX; i++)
        start(i, 1);
    welcome();
    bool complete = false;
    size_t total = 0;
    while (!complete)
        total += next_inventory(&complete);
    cr_expect_eq(total, RUNNER_COMMANDS_MAX);
}

/* An inventory that ends too early makes the orchestrator give up commands that are running. */
Test(runner, a_release_between_two_frames_of_an_inventory_hides_no_other_command)
{
    welcome();
    for (unsigned i = 0; i < POSITIONS_IN_FRAME + 10; i++)
        start(i, 1);
    welcome();
    bool complete;
    cr_expect_eq(next_inventory(&complete), POSITIONS_IN_FRAME);
    cr_expect_not(complete);
    release(POSITIONS_IN_FRAME);     /* where the next frame begins */
    release(POSITIONS_IN_FRAME + 1); /* and where it begins then */
    cr_expect_eq(next_inventory(&complete), 8u);
    cr_expect(complete);
    cr_expect_not(runner->link->inventory_due);
}

Test(runner, an_inventory_ends_also_when_all_that_was_left_is_released)
{
    welcome();
    for (unsigned i = 0; i <= POSITIONS_IN_FRAME; i++)
        start(i, 1);
    welcome();
    bool complete;
    cr_expect_eq(next_inventory(&complete), POSITIONS_IN_FRAME);
    release(POSITIONS_IN_FRAME);
    cr_expect_eq(next_inventory(&complete), 0u);
    cr_expect(complete);
}

Test(runner, a_released_command_is_never_run_again)
{
    welcome();
    start(1, 1);
    release(1);
    cr_expect_eq(HASH_COUNT(runner->commands), 0u);
    start(1, 1);
    cr_expect_eq(HASH_COUNT(runner->commands), 0u);
    cr_expect_eq(runner->link->refusal_count, 1u);
    cr_expect(runner->link->refusals[0].released);
}

Test(runner, an_id_with_another_spec_is_a_conflict)
{
    welcome();
    start(1, 1);
    start(1, 1);
    cr_expect_eq(runner->link->refusal_count, 0u, "the same command again");
    start(1, 2);
    cr_assert_eq(runner->link->refusal_count, 1u);
    cr_expect_eq(runner->link->refusals[0].what.reason,
                 SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_CONFLICT);
    cr_expect_eq(HASH_COUNT(runner->commands), 1u);
}

Test(runner, a_full_table_lets_go_of_the_oldest_that_ended)
{
    welcome();
    for (unsigned i = 0; i <= RUNNER_COMMANDS_MAX; i++)
        start(i, 1);
    cr_expect_eq(HASH_COUNT(runner->commands), RUNNER_COMMANDS_MAX);
    start(0, 1);
    cr_expect(runner->link->refusals[0].released, "its id was forgotten");
}

Test(runner, a_second_link_is_turned_away)
{
    struct err err = { 0 };
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    (void)memcpy(address.sun_path, path, sizeof(path));
    CLEANUP_FD int second = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(second, (struct sockaddr *)&address, sizeof(address)), 0);
    const struct runner_link *before = runner->link;
    OK(loop_turn(runner->loop, 1000000, &err));
    OK(loop_turn(runner->loop, 0, &err));
    char byte;
    cr_expect_eq(recv(second, &byte, 1, 0), 0);
    cr_expect_eq(runner->link, before);
}

/* How commands ended, told to each orchestrator. */

/* How many of the frames that the link would send now are about a command that is settled. The
 * inventory must be the first of them. */
static unsigned count_settled(void)
{
    struct err err = { 0 };
    unsigned count = 0;
    bool listed = false;
    size_t size;
    while ((size = next_packet(runner->link)) > 0) {
        CLEANUP_WIRE ProtobufCMessage *message = NULL;
        OK(wire_unpack(&sandstorm__v1__agent_frame__descriptor, runner->link->packet, size,
                       &message, &err));
        const Sandstorm__V1__AgentFrame *frame = (const Sandstorm__V1__AgentFrame *)message;
        listed |= frame->kind_case == SANDSTORM__V1__AGENT_FRAME__KIND_INVENTORY;
        if (frame->kind_case != SANDSTORM__V1__AGENT_FRAME__KIND_EVENT ||
            frame->event->event_case != SANDSTORM__V1__COMMAND_EVENT__EVENT_SETTLED)
            continue;
        cr_expect(listed, "settled before the inventory");
        cr_expect_eq(frame->event->settled->outcome->result_case,
                     SANDSTORM__V1__OUTCOME__RESULT_START_FAILED);
        count++;
    }
    return count;
}

Test(runner, every_orchestrator_hears_once_how_each_command_ended)
{
    welcome();
    for (unsigned i = 0; i < 3; i++)
        start(i, 1);
    cr_expect_eq(count_settled(), 3u);
    welcome();
    cr_expect_eq(count_settled(), 3u, "the next one was not told");
}

Test(runner, what_ended_while_nobody_was_there_is_told_after_the_inventory)
{
    welcome();
    start(1, 1);
    cr_expect_eq(count_settled(), 1u);
    cr_expect_eq(next_packet(runner->link), 0u, "said twice");
    struct runner_entry *entry = runner->commands;
    command_mute(entry->command);
    cr_expect_not(entry->ready);
    welcome();
    cr_expect(entry->ready);
    cr_expect_eq(count_settled(), 1u);
}

Test(runner, a_released_command_is_not_told_of_again)
{
    welcome();
    start(1, 1);
    start(2, 1);
    release(1);
    welcome();
    cr_expect_eq(count_settled(), 1u);
}

Test(runner, room_is_made_by_a_command_whose_end_was_told)
{
    welcome();
    for (unsigned i = 0; i < RUNNER_COMMANDS_MAX; i++)
        start(i, 1);
    struct command_id told;
    (void)snprintf(told.text, sizeof(told.text), "%08x-7f0e-4a53-9c55-3d7a1f2e9b10",
                   RUNNER_COMMANDS_MAX / 2);
    struct command *command = runner_find(runner, &told)->command;
    while (command_has_event(command))
        (void)command_pack_event(command, runner->link->packet, RUNNER_PACKET_MAX);
    start(RUNNER_COMMANDS_MAX, 1);
    cr_expect_null(runner_find(runner, &told));
    cr_expect_eq(HASH_COUNT(runner->commands), RUNNER_COMMANDS_MAX);
}

/* What the next packet is; 0 when there is nothing to say. */
static unsigned next_kind(void)
{
    struct err err = { 0 };
    struct wire_field field = { 0 };
    const uint8_t *position = runner->link->packet;
    size_t size = next_packet(runner->link);
    cr_assert_leq(size, sizeof(runner->link->packet));
    if (size == 0)
        return 0;
    cr_assert_eq(wire_next(&position, position + size, &field, &err), 1, "%s", err.text);
    return field.number;
}

Test(runner, its_own_log_is_said_last_and_only_after_a_welcome)
{
    struct err err = { 0 };
    OK(log_ring_new("runner", NULL, NULL, &runner->logs, &err));
    log_ring_tap(runner->logs, LOG_LEVEL_INFO, "before the welcome", NULL, 0);
    while (next_kind() != 0)
        continue; /* the status */
    cr_expect(log_ring_waiting(runner->logs));
    welcome();
    start(1, 1);
    start(1, 2); /* which is refused */
    cr_expect_eq(next_kind(), (unsigned)SANDSTORM__V1__AGENT_FRAME__KIND_RUNNER_STATUS);
    cr_expect_eq(next_kind(), (unsigned)SANDSTORM__V1__AGENT_FRAME__KIND_INVENTORY);
    cr_expect_eq(next_kind(), (unsigned)SANDSTORM__V1__AGENT_FRAME__KIND_EVENT, "the refusal");
    cr_expect_eq(next_kind(), (unsigned)SANDSTORM__V1__AGENT_FRAME__KIND_EVENT, "its end");
    cr_expect_eq(next_kind(), (unsigned)SANDSTORM__V1__AGENT_FRAME__KIND_LOGS);
    cr_expect_eq(next_kind(), 0u);
}

/* Its successor may be heard of before its end is. */
Test(runner, a_link_that_goes_with_packets_unread_is_seen_to_be_dead)
{
    struct err err = { 0 };
    struct pollfd unread = { .fd = peer, .events = POLLIN };
    welcome();
    while (poll(&unread, 1, 0) == 0)
        OK(loop_turn(runner->loop, 100000, &err));
    cr_assert_not(runner_link_dead(runner->link));
    close_fd(&peer);
    cr_expect(runner_link_dead(runner->link));
}
