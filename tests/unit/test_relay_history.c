/* What the orchestrator writes down about a command, and when; and what it makes of one that the
 * runner does not know. */
#include "orchestrator/history-internal.h"
#include "tests/unit/relay_fixture.h"

/* cppcheck-suppress unknownMacro */
TestSuite(relay_history, .init = relay_setup, .fini = relay_teardown);

#define START   SANDSTORM__V1__COMMAND_ORDER__ORDER_START
#define ATTACH  SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTACH
#define RELEASE SANDSTORM__V1__COMMAND_ORDER__ORDER_RELEASE

#define LOST_RESTARTED SANDSTORM__V1__LOST_REASON__LOST_REASON_RUNNER_RESTARTED
#define LOST_REBOOTED  SANDSTORM__V1__LOST_REASON__LOST_REASON_REBOOTED
#define LOST_NEVER     SANDSTORM__V1__LOST_REASON__LOST_REASON_NEVER_STARTED
#define LOST_RELEASED  SANDSTORM__V1__LOST_REASON__LOST_REASON_RELEASED

static const struct command_record *stored(void)
{
    const struct command_record *record = stub_store_find(COMMAND);
    cr_assert_not_null(record);
    return record;
}

static void expect_open(void)
{
    cr_expect_eq(stored()->ended_ms, 0);
    cr_expect_eq(history_open_count(orchestrator.history), 1u);
}

/* The outcome in the store; for wire_free(). */
static const Sandstorm__V1__Outcome *stored_outcome(ProtobufCMessage **ret)
{
    struct err err = { 0 };
    const struct command_record *record = stored();
    cr_assert_gt(record->ended_ms, 0, "it has not ended");
    cr_expect_eq(history_open_count(orchestrator.history), 0u);
    OK(wire_unpack(&sandstorm__v1__outcome__descriptor, record->outcome, record->outcome_size, ret,
                   &err));
    return (const Sandstorm__V1__Outcome *)*ret;
}

static void expect_stored_exit(unsigned code)
{
    CLEANUP_WIRE ProtobufCMessage *owner = NULL;
    const Sandstorm__V1__Outcome *outcome = stored_outcome(&owner);
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED);
    cr_expect_eq(outcome->exited->code, code);
}

static void expect_stored_lost(Sandstorm__V1__LostReason reason)
{
    CLEANUP_WIRE ProtobufCMessage *owner = NULL;
    const Sandstorm__V1__Outcome *outcome = stored_outcome(&owner);
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_LOST);
    cr_expect_eq(outcome->lost->reason, reason, "%d: %s", (int)outcome->lost->reason,
                 outcome->lost->detail);
}

/* The last record that the client got is its end, and says this. */
static void expect_told(Sandstorm__V1__Outcome__ResultCase result, unsigned number)
{
    struct err err = { 0 };
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    OK(wire_unpack(client.type, client.last, client.last_size, &message, &err));
    const Sandstorm__V1__ExecResponse *response = (Sandstorm__V1__ExecResponse *)message;
    cr_assert_eq(response->kind_case, SANDSTORM__V1__EXEC_RESPONSE__KIND_ENDED, "%d",
                 (int)response->kind_case);
    const Sandstorm__V1__Outcome *outcome = response->ended->outcome;
    cr_assert_eq(outcome->result_case, result);
    if (result == SANDSTORM__V1__OUTCOME__RESULT_EXITED)
        cr_expect_eq(outcome->exited->code, number);
    else
        cr_expect_eq((unsigned)outcome->lost->reason, number);
}

static void say_end(Sandstorm__V1__CommandEvent__EventCase kind, unsigned code, uint64_t end_offset)
{
    Sandstorm__V1__Exited exited = SANDSTORM__V1__EXITED__INIT;
    exited.code = code;
    Sandstorm__V1__Outcome outcome = SANDSTORM__V1__OUTCOME__INIT;
    outcome.result_case = SANDSTORM__V1__OUTCOME__RESULT_EXITED;
    outcome.exited = &exited;
    Sandstorm__V1__Ended ended = SANDSTORM__V1__ENDED__INIT;
    ended.outcome = &outcome;
    ended.end_offset = end_offset;
    Sandstorm__V1__Settled settled = SANDSTORM__V1__SETTLED__INIT;
    settled.outcome = &outcome;
    settled.end_offset = end_offset;
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.event_case = kind;
    if (kind == SANDSTORM__V1__COMMAND_EVENT__EVENT_ENDED)
        event.ended = &ended;
    else
        event.settled = &settled;
    say_event(&event);
}

static void say_settled(unsigned code, uint64_t end_offset)
{
    say_end(SANDSTORM__V1__COMMAND_EVENT__EVENT_SETTLED, code, end_offset);
}

static void say_ended(unsigned code)
{
    say_end(SANDSTORM__V1__COMMAND_EVENT__EVENT_ENDED, code, 0);
}

static void say_unknown(Sandstorm__V1__OrderKind order)
{
    Sandstorm__V1__Refusal refusal = SANDSTORM__V1__REFUSAL__INIT;
    refusal.reason = SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_UNKNOWN_COMMAND;
    refusal.order = order;
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_REFUSAL;
    event.refusal = &refusal;
    say_event(&event);
}

static void say_acked(void)
{
    Sandstorm__V1__Credit credit = SANDSTORM__V1__CREDIT__INIT;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_CREDIT;
    request.credit = &credit;
    say(&client, &request.base);
}

/* The client goes, and another one is there that has said nothing yet. */
static void next_client(void)
{
    struct err err = { 0 };
    stub_call_close(&client, ERR_CANCELLED);
    stub_call_init(&client, IDENTITY_CLIENT, "c", &sandstorm__v1__exec_response__descriptor);
    OK(exec_open(&orchestrator, &client, &err));
}

static void list_it(const char *life)
{
    Sandstorm__V1__CommandPosition position = SANDSTORM__V1__COMMAND_POSITION__INIT;
    position.command_id = (char *)COMMAND;
    say_inventory(life, &position);
}

/* The orchestrator was killed: what is in the store is all that is left. */
static void next_orchestrator(void)
{
    struct err err = { 0 };
    next_client();
    relays_free(&orchestrator);
    history_free(orchestrator.history);
    OK(history_new(&orchestrator, &orchestrator.history, &err));
    OK(history_load(orchestrator.history, &stub_tx, &err));
    reconnect();
}

/* Writing down. */

Test(relay_history, a_command_is_written_down_before_it_is_ordered)
{
    stub_audit.late = true;
    size_t before = agent.sent;
    say_open("true");
    cr_expect_eq(agent.sent, before, "an order went out");
    stub_store_commit();
    cr_expect_eq(last_order(), START);
    expect_open();
    cr_expect_str_eq(stored()->sandbox_id, "s");
    cr_expect_str_eq(stored()->ordered_by, "client/c");
    cr_expect_str_eq(stored()->runner, "life-1");
    cr_expect_eq(history_state(&orchestrator, stored()),
                 SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_ORDERED);
    say_started();
    cr_expect_gt(stored()->started_ms, 0);
    cr_expect_eq(history_state(&orchestrator, stored()),
                 SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_RUNNING);
}

Test(relay_history, how_it_ended_is_written_down_also_when_nobody_follows)
{
    say_open("true");
    say_started();
    next_client();
    say_settled(3, 0);
    expect_stored_exit(3);
    cr_expect_eq(history_state(&orchestrator, stored()),
                 SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_ENDED);
    say_settled(4, 0);
    expect_stored_exit(3);
}

Test(relay_history, an_end_record_alone_will_do)
{
    say_open("true");
    say_started();
    say_ended(5);
    expect_stored_exit(5);
}

Test(relay_history, the_runner_keeps_it_until_its_end_is_committed)
{
    say_open("true");
    say_started();
    stub_audit.late = true;
    say_settled(3, 0);
    say_ended(3);
    size_t before = agent.sent;
    say_acked();
    cr_expect(client.finished);
    cr_expect_eq(agent.sent, before, "released too early");
    stub_store_commit();
    cr_expect_eq(last_order(), RELEASE);
    expect_stored_exit(3);
}

Test(relay_history, an_end_that_cannot_be_written_is_tried_again_and_not_released)
{
    say_open("true");
    say_started();
    stub_audit.broken = true;
    say_settled(3, 0);
    say_ended(3);
    size_t before = agent.sent;
    say_acked();
    expect_open();
    history_on_retry(orchestrator.history);
    expect_open();
    cr_expect_eq(agent.sent, before, "released, and written nowhere");
    stub_audit.broken = false;
    loop_timer_stop(orchestrator.history->retry);
    history_on_retry(orchestrator.history);
    expect_stored_exit(3);
    cr_expect_eq(last_order(), RELEASE);
}

Test(relay_history, a_client_that_comes_while_the_end_is_written_is_told_it)
{
    say_open("true");
    say_started();
    stub_audit.late = true;
    say_settled(3, 0);
    next_client();
    say_open("true");
    cr_expect_eq(client.sent, 0u);
    stub_store_commit();
    expect_told(SANDSTORM__V1__OUTCOME__RESULT_EXITED, 3);
    say_acked();
    cr_expect_eq(last_order(), RELEASE);
}

/* What an agent may not do. */

Test(relay_history, an_outcome_that_is_too_large_is_a_breach)
{
    char *detail = malloc(STORE_OUTCOME_MAX + 1);
    (void)memset(detail, 'x', STORE_OUTCOME_MAX);
    detail[STORE_OUTCOME_MAX] = '\0';
    Sandstorm__V1__Cancelled cancelled = SANDSTORM__V1__CANCELLED__INIT;
    cancelled.reason = detail;
    Sandstorm__V1__Outcome outcome = SANDSTORM__V1__OUTCOME__INIT;
    outcome.result_case = SANDSTORM__V1__OUTCOME__RESULT_CANCELLED;
    outcome.cancelled = &cancelled;
    Sandstorm__V1__Settled settled = SANDSTORM__V1__SETTLED__INIT;
    settled.outcome = &outcome;
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_SETTLED;
    event.settled = &settled;
    say_open("true");
    say_event(&event);
    cr_expect(agent.finished);
    cr_expect_eq(agent.status.code, ERR_PROTOCOL, "%s", agent.status.text);
    expect_open();
    free(detail);
}

Test(relay_history, a_result_from_a_newer_runner_is_not_guessed_at)
{
    Sandstorm__V1__Outcome outcome = SANDSTORM__V1__OUTCOME__INIT;
    Sandstorm__V1__Settled settled = SANDSTORM__V1__SETTLED__INIT;
    settled.outcome = &outcome;
    Sandstorm__V1__CommandEvent event = SANDSTORM__V1__COMMAND_EVENT__INIT;
    event.event_case = SANDSTORM__V1__COMMAND_EVENT__EVENT_SETTLED;
    event.settled = &settled;
    say_open("true");
    say_event(&event);
    cr_expect_not(agent.finished);
    expect_open();
}

/* A command of another sandbox, which is in the store only. */
static void put_elsewhere(void)
{
    struct err err = { 0 };
    struct command_record record = { .id = COMMAND, .sandbox_id = "other", .ordered_ms = 1 };
    OK(store_command_put(&stub_tx, &record, &err));
}

Test(relay_history, an_agent_cannot_end_the_command_of_another_sandbox)
{
    put_elsewhere();
    next_orchestrator();
    list_it("life-1");
    say_started();
    say_settled(0, 0);
    expect_open();
    cr_expect_eq(stored()->started_ms, 0);
    reconnect();
    say_inventory("life-1", NULL);
    expect_open();
}

/* Ids. */

Test(relay_history, an_id_of_another_sandbox_is_taken_and_nothing_more_is_told)
{
    put_elsewhere();
    size_t before = agent.sent;
    say_open("true");
    cr_expect(client.finished);
    cr_expect_eq(client.status.code, ERR_EXISTS);
    cr_expect_null(strstr(client.status.text, "other"), "%s", client.status.text);
    cr_expect_eq(agent.sent, before, "an order went out");
    cr_expect_eq(stub_audit.rows, 1u);
    cr_expect_eq(stub_audit.allowed, 0u);
}

Test(relay_history, an_id_is_one_commands_when_it_has_ended_too)
{
    say_open("true");
    say_started();
    say_ended(0);
    say_acked();
    next_client();
    say_open("something else");
    cr_expect(client.finished);
    cr_expect_eq(client.status.code, ERR_EXISTS);
    cr_expect_eq(stub_store.count, 1u);
}

Test(relay_history, a_command_that_has_ended_is_never_started_again)
{
    say_open("true");
    say_started();
    say_settled(6, 10);
    next_client();
    reconnect();
    list_it("life-1");
    cr_expect_eq(last_order(), ATTACH, "its output is still to come");
    say_open("true");
    size_t before = client.sent;
    say_unknown(SANDSTORM__V1__ORDER_KIND__ORDER_KIND_ATTACH);
    cr_expect_eq(client.sent, before + 2, "a gap and the end");
    expect_told(SANDSTORM__V1__OUTCOME__RESULT_EXITED, 6);
    cr_expect_eq(stub_store.count, 1u);
}

Test(relay_history, nor_when_the_runner_comes_back_without_it)
{
    say_open("true");
    say_started();
    say_settled(6, 10);
    next_client();
    reconnect();
    say_open("true");
    size_t before = agent.sent;
    say_inventory("life-2", NULL);
    cr_expect_eq(agent.sent, before, "an order went out");
    expect_told(SANDSTORM__V1__OUTCOME__RESULT_EXITED, 6);
}

Test(relay_history, one_without_output_is_answered_without_the_runner)
{
    say_open("true");
    say_started();
    say_settled(6, 0);
    next_client();
    size_t before = agent.sent;
    say_open("true");
    cr_expect_eq(agent.sent, before, "the runner was asked");
    expect_told(SANDSTORM__V1__OUTCOME__RESULT_EXITED, 6);
}

Test(relay_history, an_end_that_was_told_before_its_output_survives_the_runner)
{
    say_open("true");
    say_started();
    say_settled(6, 10);
    reconnect();
    say_inventory("life-2", NULL);
    expect_told(SANDSTORM__V1__OUTCOME__RESULT_EXITED, 6);
    expect_stored_exit(6);
}

/* Commands that a runner does not know. */

Test(relay_history, a_command_that_went_down_with_its_runner_is_lost)
{
    say_open("true");
    say_started();
    next_client();
    reconnect();
    say_inventory("life-2", NULL);
    expect_stored_lost(LOST_RESTARTED);
}

Test(relay_history, or_with_its_machine)
{
    say_open("true");
    say_started();
    next_client();
    reconnect();
    registry_find(orchestrator.registry, "s")->rebooted = true;
    say_inventory("life-2", NULL);
    expect_stored_lost(LOST_REBOOTED);
}

Test(relay_history, a_client_that_waits_is_told_the_same_as_the_store)
{
    say_open("true");
    say_started();
    reconnect();
    say_inventory("life-2", NULL);
    expect_told(SANDSTORM__V1__OUTCOME__RESULT_LOST, LOST_RESTARTED);
    expect_stored_lost(LOST_RESTARTED);
}

Test(relay_history, a_command_that_runs_on_stays_open)
{
    say_open("true");
    say_started();
    next_client();
    reconnect();
    list_it("life-1");
    expect_open();
    say_settled(2, 0);
    expect_stored_exit(2);
}

Test(relay_history, one_that_the_same_runner_let_go_of_is_not_said_to_have_been_restarted)
{
    say_open("true");
    say_started();
    next_client();
    reconnect();
    say_inventory("life-1", NULL);
    expect_stored_lost(LOST_RELEASED);
}

/* What was accepted is carried out, whoever still looks. */
Test(relay_history, one_that_was_sent_and_did_not_arrive_is_sent_again)
{
    say_open("true");
    next_client();
    reconnect();
    say_inventory("life-1", NULL);
    cr_expect_eq(last_order(), START);
    expect_open();
}

Test(relay_history, one_that_was_never_sent_is_sent_when_it_can_be)
{
    reconnect();
    say_open("true");
    next_client();
    expect_open();
    say_inventory("life-1", NULL);
    cr_expect_eq(last_order(), START);
}

Test(relay_history, unless_its_client_is_gone_and_it_was_not_to_outlive_that)
{
    struct err err = { 0 };
    reconnect();
    say_open_mortal("true", 1);
    next_client();
    while (stored()->ended_ms == 0)
        OK(loop_turn(orchestrator.loop, UINT64_MAX, &err));
    expect_stored_lost(LOST_NEVER);
    size_t before = agent.sent;
    say_inventory("life-1", NULL);
    cr_expect_eq(agent.sent, before, "an order went out");
}

Test(relay_history, nor_has_one_whose_client_left_while_it_was_written_down)
{
    stub_audit.late = true;
    size_t before = agent.sent;
    say_open("true");
    next_client();
    stub_store_commit();
    cr_expect_eq(agent.sent, before, "an order went out");
    expect_stored_lost(LOST_NEVER);
}

/* A runner that restarts under a living link answers the same welcome again; a start may have been
 * on its way to it. */
Test(relay_history, one_that_is_on_its_way_is_not_judged_by_the_inventory_before_it)
{
    say_open("true");
    next_client();
    say_inventory("life-2", NULL);
    expect_open();
    reconnect();
    say_inventory("life-2", NULL);
    expect_stored_lost(LOST_RESTARTED);
}

Test(relay_history, a_client_that_waits_for_it_has_the_runner_asked)
{
    say_open("true");
    say_inventory("life-2", NULL);
    cr_expect_eq(last_order(), ATTACH);
    expect_open();
    say_unknown(SANDSTORM__V1__ORDER_KIND__ORDER_KIND_ATTACH);
    expect_told(SANDSTORM__V1__OUTCOME__RESULT_LOST, LOST_RESTARTED);
    expect_stored_lost(LOST_RESTARTED);
}

Test(relay_history, and_hears_of_it_when_it_has_arrived)
{
    say_open("true");
    say_inventory("life-2", NULL);
    say_started();
    say_settled(8, 0);
    say_ended(8);
    expect_told(SANDSTORM__V1__OUTCOME__RESULT_EXITED, 8);
    expect_stored_exit(8);
}

/* After a restart of the orchestrator. */

Test(relay_history, what_was_open_is_open_again_and_ends)
{
    say_open("true");
    say_started();
    next_orchestrator();
    expect_open();
    list_it("life-1");
    cr_expect_eq(history_state(&orchestrator, stored()),
                 SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_RUNNING);
    say_settled(7, 0);
    expect_stored_exit(7);
}

Test(relay_history, what_another_runner_may_have_run_is_not_started_again)
{
    say_open("true");
    next_orchestrator();
    say_open("true"); /* the client retries before the runner has answered */
    size_t before = agent.sent;
    say_inventory("life-2", NULL);
    cr_expect_eq(agent.sent, before, "it may have run already");
    expect_told(SANDSTORM__V1__OUTCOME__RESULT_LOST, LOST_RESTARTED);
    expect_stored_lost(LOST_RESTARTED);
}

Test(relay_history, what_the_same_runner_never_got_is)
{
    say_open("true");
    next_orchestrator();
    say_open("true");
    say_inventory("life-1", NULL);
    cr_expect_eq(last_order(), START);
    expect_open();
}

/* The order was written down before any runner had answered: which one got it, nobody knows. */
Test(relay_history, nor_is_what_was_ordered_from_a_runner_without_a_name)
{
    registry_find(orchestrator.registry, "s")->runner_instance[0] = '\0';
    say_open("true");
    next_orchestrator();
    say_inventory("life-1", NULL);
    expect_stored_lost(LOST_RESTARTED);
}

Test(relay_history, what_nobody_asks_for_again_has_not_run)
{
    say_open("true");
    next_orchestrator();
    say_inventory("life-1", NULL);
    expect_stored_lost(LOST_NEVER);
}
