/* The stream of a sandbox's log, on a real store and a call that the test speaks for: the audit
 * first, pages at the reader's pace, following without loss, and the end of it. */
#include "orchestrator/control.h"
#include "orchestrator/logbook.h"
#include "tests/unit/audit_stub.h"
#include "tests/unit/rpc_stub.h"

/* Last, because its `err` is everybody's. */
#include "store_fixture.h"

#define LINES 300u

static struct orchestrator orchestrator;
static struct rpc_call client;
static unsigned received; /* lines, in order */

static int put_sandbox(struct store_job *job, struct store_tx *tx, struct err *error)
{
    (void)job;
    const struct sandbox_record record = { .id = "s" };
    return store_sandbox_put(tx, &record, error);
}

static unsigned put;

static void sandbox_put(struct store_job *job)
{
    put += job->result == 0;
}

static void set_up(void)
{
    static struct store_job job = { .work = put_sandbox, .done = sandbox_put };
    make_directory();
    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    OK(loop_new(&orchestrator.loop, &err));
    orchestrator.store = open_store(orchestrator.loop);
    OK(stub_known_peers(&orchestrator, &err));
    OK(logbook_new(&orchestrator, &orchestrator.logbook, &err));
    OK(store_submit(orchestrator.store, &job, &err));
    turn_until(orchestrator.loop, &put, 1);
    stub_call_init(&client, IDENTITY_CLIENT, "c", &sandstorm__v1__stream_logs_response__descriptor);
    OK(control_stream_logs(&orchestrator, &client, &err));
}

static void tear_down(void)
{
    stub_call_close(&client, ERR_CANCELLED);
    cr_expect(client.released);
    cr_expect_not(client.invalid, "a message that the client would refuse");
    logbook_flush(orchestrator.logbook);
    store_free(TAKE_PTR(orchestrator.store));
    logbook_free(orchestrator.logbook);
    clients_free(orchestrator.clients);
    registry_free(orchestrator.registry);
    loop_free(orchestrator.loop);
    remove_directory();
}

/* cppcheck-suppress unknownMacro */
TestSuite(control_logs, .init = set_up, .fini = tear_down, .timeout = 60);

static void ask(bool follow)
{
    Sandstorm__V1__StreamLogsRequest request = SANDSTORM__V1__STREAM_LOGS_REQUEST__INIT;
    request.sandbox_id = (char *)"s";
    request.follow = follow;
    uint8_t packed[128];
    size_t size = sandstorm__v1__stream_logs_request__pack(&request, packed);
    client.handler->message(client.owner, packed, size);
}

static void write_lines(unsigned first, unsigned count)
{
    for (unsigned i = first; i < first + count; i++)
        LOGBOOK_EVENT(&orchestrator, LOG_LEVEL_INFO, &event_sandbox_note, "s", NULL,
                      LF_UINT("i", i));
    logbook_flush(orchestrator.logbook);
}

/* Counts what the last message holds, which must follow on. */
static void take_last(void)
{
    ProtobufCMessage *message = NULL;
    OK(wire_unpack(client.type, client.last, client.last_size, &message, &err));
    const Sandstorm__V1__StreamLogsResponse *response =
        (const Sandstorm__V1__StreamLogsResponse *)message;
    for (size_t i = 0; i < response->n_lines; i++) {
        const Sandstorm__V1__LogLine *line = response->lines[i];
        char wanted[16];
        (void)snprintf(wanted, sizeof(wanted), "%u", received++);
        cr_assert_str_eq(line->origin, "orchestrator");
        cr_assert_eq(line->level, SANDSTORM__V1__LOG_LEVEL__LOG_LEVEL_INFO);
        cr_assert_eq(line->n_fields, 2u);
        cr_assert_str_eq(line->fields[0]->name, "event");
        cr_assert_str_eq(line->fields[1]->value, wanted);
    }
    wire_free(message);
}

static void turn(void)
{
    size_t before = client.sent;
    OK(loop_turn(orchestrator.loop, 100000, &err));
    cr_assert_leq(client.sent, before + 1, "a page was sent that the test did not see");
    if (client.sent > before)
        take_last();
}

static void turn_until_received(unsigned wanted)
{
    uint64_t deadline = monotonic_us() + DEADLINE_US;
    while (received < wanted) {
        cr_assert_lt(monotonic_us(), deadline, "%u of %u", received, wanted);
        turn();
    }
    cr_expect_eq(received, wanted);
}

static void turn_until_finished(void)
{
    uint64_t deadline = monotonic_us() + DEADLINE_US;
    while (!client.finished) {
        cr_assert_lt(monotonic_us(), deadline);
        turn();
    }
}

Test(control_logs, all_lines_come_in_order_and_then_the_end)
{
    write_lines(0, 10);
    logbook_flush(orchestrator.logbook);
    ask(false);
    turn_until_finished();
    cr_expect_eq(client.status.code, ERR_NONE, "%s", client.status.text);
    cr_expect_eq(received, 10u);
    cr_expect_str_eq(stub_audit.last_action, "StreamLogs");
    cr_expect_eq(stub_audit.allowed, 1u);
}

Test(control_logs, nothing_is_sent_before_the_audit_has_it)
{
    write_lines(0, 10);
    stub_audit.late = true;
    ask(false);
    OK(loop_turn(orchestrator.loop, 300000, &err));
    OK(loop_turn(orchestrator.loop, 0, &err));
    cr_expect_eq(client.sent, 0u);
    stub_audit_written();
    turn_until_finished();
    cr_expect_eq(received, 10u);
}

Test(control_logs, an_audit_that_cannot_be_written_refuses)
{
    write_lines(0, 10);
    stub_audit.broken = true;
    ask(false);
    cr_expect(client.finished);
    cr_expect_eq(client.status.code, ERR_UNAVAILABLE);
    cr_expect_eq(client.sent, 0u);
}

Test(control_logs, a_client_that_leaves_while_the_audit_is_written_is_forgotten)
{
    stub_audit.late = true;
    ask(true);
    stub_call_close(&client, ERR_CANCELLED);
    stub_audit_written();
    cr_expect(client.released);
}

Test(control_logs, a_follower_gets_every_line_in_order_at_its_own_pace)
{
    write_lines(0, LINES);
    ask(true);
    turn_until_received(LINES);
    cr_expect_not(client.finished);
    client.full = true;
    write_lines(LINES, LINES);
    for (unsigned i = 0; i < 5; i++)
        turn();
    cr_expect_leq(received, LINES + 64, "a full call was written to");
    client.full = false;
    client.handler->writable(client.owner);
    turn_until_received(2 * LINES);
    write_lines(2 * LINES, 1);
    turn_until_received(2 * LINES + 1);
}

Test(control_logs, a_client_that_leaves_in_the_middle_of_a_page_is_forgotten_after_it)
{
    write_lines(0, LINES);
    ask(true);
    stub_call_close(&client, ERR_CANCELLED);
    for (unsigned i = 0; i < 5; i++)
        OK(loop_turn(orchestrator.loop, 10000, &err));
    cr_expect(client.released);
}

Test(control_logs, a_scope_that_is_lost_ends_a_stream_that_is_silent)
{
    write_lines(0, 3);
    ask(true);
    turn_until_received(3);
    const struct client_record narrow = {
        .name = "c", .role = ROLE_OPERATOR, .has_key = true, .scope = "env=production"
    };
    OK(clients_set(orchestrator.clients, &narrow, &err));
    turn_until_finished();
    cr_expect_eq(client.status.code, ERR_NOT_FOUND, "%s", client.status.text);
    cr_expect_eq(received, 3u);
}

Test(control_logs, a_sandbox_out_of_scope_is_none)
{
    const struct client_record narrow = {
        .name = "c", .role = ROLE_OPERATOR, .has_key = true, .scope = "env=production"
    };
    OK(clients_set(orchestrator.clients, &narrow, &err));
    write_lines(0, 3);
    ask(true);
    cr_expect(client.finished);
    cr_expect_eq(client.status.code, ERR_NOT_FOUND);
    cr_expect_eq(stub_audit.rows, 1u);
    cr_expect_eq(stub_audit.allowed, 0u);
    for (unsigned i = 0; i < 5; i++)
        OK(loop_turn(orchestrator.loop, 100000, &err));
    cr_expect_eq(client.sent, 0u);
}

Test(control_logs, nonsense_is_refused_in_words)
{
    static const uint8_t bytes[] = { 0xff, 0xff };
    client.handler->message(client.owner, bytes, sizeof(bytes));
    cr_expect(client.finished);
    cr_expect_neq(client.status.code, ERR_NONE);
    cr_expect_eq(stub_audit.rows, 0u);
}
