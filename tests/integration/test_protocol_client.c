/* Clients that break the rules of CommandService.Exec, with the admin's certificate. Each is told
 * what was wrong, and a command of another client notices nothing. */
#include "tests/harness/neighbour.h"
#include "tests/harness/peer.h"

#include "sandstorm/v1/control.pb-c.h"

#include <stdio.h>
#include <string.h>

#define COMMAND_ID "7c1e2d3f-4a5b-4c6d-8e7f-9a0b1c2d3e4f"

TestSuite(hostile_client, .init = neighbour_start, .fini = neighbour_stop);

static void assert_refused(struct peer *peer, const char *wanted)
{
    struct err status = peer_wait_closed(peer);
    cr_assert_neq(status.code, ERR_NONE);
    fixture_assert_contains(status.text, wanted);
    neighbour_assert_well();
}

static struct peer *client_open(void)
{
    return peer_open(fixture()->admin, "/sandstorm.v1.CommandService/Exec");
}

struct opening {
    const char *sandbox, *id, *shell;
    uint64_t from_offset, limit;
};

static void client_say_open(struct peer *peer, const struct opening *opening)
{
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    Sandstorm__V1__ExecOpen open = SANDSTORM__V1__EXEC_OPEN__INIT;
    spec.shell = (char *)opening->shell;
    open.sandbox_id = (char *)(opening->sandbox ? opening->sandbox : BOX);
    open.command_id = (char *)(opening->id ? opening->id : "");
    open.spec = opening->shell ? &spec : NULL;
    open.from_offset = opening->from_offset;
    open.limit = opening->limit;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN;
    request.open = &open;
    peer_send(peer, &request.base);
}

/* Until an answer of that kind comes. */
static Sandstorm__V1__ExecResponse *client_await(struct peer *peer,
                                                 Sandstorm__V1__ExecResponse__KindCase kind)
{
    for (;;) {
        ProtobufCMessage *message = peer_receive(peer, &sandstorm__v1__exec_response__descriptor);
        cr_assert_not_null(message, "%s", peer_wait_closed(peer).text);
        Sandstorm__V1__ExecResponse *response = (Sandstorm__V1__ExecResponse *)message;
        if (response->kind_case == kind)
            return response;
        wire_free(message);
    }
}

Test(hostile_client, whose_first_message_is_not_open_is_refused)
{
    CLEANUP_PEER struct peer *peer = client_open();
    Sandstorm__V1__Cancel cancel = SANDSTORM__V1__CANCEL__INIT;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_CANCEL;
    request.cancel = &cancel;
    peer_send(peer, &request.base);
    assert_refused(peer, "the first message must be open");
}

Test(hostile_client, that_opens_twice_is_refused)
{
    CLEANUP_PEER struct peer *peer = client_open();
    client_say_open(peer, &(struct opening){ .shell = "sleep 600", .limit = 1000 });
    client_say_open(peer, &(struct opening){ .shell = "sleep 600", .limit = 1000 });
    assert_refused(peer, "open may only be the first message");
}

Test(hostile_client, without_a_spec_is_refused)
{
    CLEANUP_PEER struct peer *peer = client_open();
    client_say_open(peer, &(struct opening){ .limit = 1000 });
    assert_refused(peer, "a spec, or the id");
}

Test(hostile_client, that_says_nothing_is_refused)
{
    CLEANUP_PEER struct peer *peer = client_open();
    peer_finish(peer);
    assert_refused(peer, "ended before its open message");
}

Test(hostile_client, with_a_sandbox_id_that_cannot_be_is_refused)
{
    CLEANUP_PEER struct peer *peer = client_open();
    client_say_open(peer, &(struct opening){ .sandbox = "../box", .shell = "true" });
    assert_refused(peer, "bad sandbox id");
}

Test(hostile_client, with_a_command_id_that_cannot_be_is_refused)
{
    CLEANUP_PEER struct peer *peer = client_open();
    client_say_open(peer, &(struct opening){ .id = "NOT-A-UUID", .shell = "true" });
    cr_assert_eq(peer_wait_closed(peer).code, ERR_INVALID);
    neighbour_assert_well();
}

Test(hostile_client, that_attaches_beyond_the_ledger_is_refused)
{
    CLEANUP_PEER struct peer *peer = client_open();
    client_say_open(peer, &(struct opening){ .id = COMMAND_ID,
                                             .shell = "true",
                                             .from_offset = UINT64_MAX,
                                             .limit = UINT64_MAX });
    assert_refused(peer, "offset");
}

Test(hostile_client, that_acknowledges_what_was_not_sent_is_refused)
{
    CLEANUP_PEER struct peer *peer = client_open();
    client_say_open(peer, &(struct opening){ .shell = "sleep 600", .limit = 1000 });
    Sandstorm__V1__Credit credit = SANDSTORM__V1__CREDIT__INIT;
    credit.acked = 1;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_CREDIT;
    request.credit = &credit;
    peer_send(peer, &request.base);
    assert_refused(peer, "acknowledged more than was sent");
}

Test(hostile_client, that_sends_input_without_credit_is_refused)
{
    CLEANUP_PEER struct peer *peer = client_open();
    client_say_open(peer, &(struct opening){ .shell = "sleep 600", .limit = 1000 });
    Sandstorm__V1__Stdin input = SANDSTORM__V1__STDIN__INIT;
    input.offset = UINT64_MAX - 1;
    input.data = (ProtobufCBinaryData){ 4, (uint8_t *)"data" };
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_STDIN;
    request.stdin = &input;
    peer_send(peer, &request.base);
    assert_refused(peer, "input at offset");
}

Test(hostile_client, with_bytes_that_are_no_message_is_refused)
{
    CLEANUP_PEER struct peer *peer = client_open();
    peer_send_bytes(peer, "\x0a\xff\xff\xff\xff\x0f", 6);
    cr_assert_neq(peer_wait_closed(peer).code, ERR_NONE);
    neighbour_assert_well();
}

Test(hostile_client, with_a_message_that_is_too_large_is_refused)
{
    CLEANUP_PEER struct peer *peer = client_open();
    CLEANUP_FREE char *bytes = calloc(1, WIRE_MESSAGE_MAX + 1);
    peer_send_bytes(peer, bytes, WIRE_MESSAGE_MAX + 1);
    cr_assert_eq(peer_wait_closed(peer).code, ERR_EXHAUSTED);
    neighbour_assert_well();
}

Test(hostile_client, with_a_signal_that_does_not_exist_is_told_so)
{
    CLEANUP_PEER struct peer *peer = client_open();
    client_say_open(peer, &(struct opening){ .shell = "sleep 600", .limit = 1000 });
    Sandstorm__V1__Signal signal = SANDSTORM__V1__SIGNAL__INIT;
    signal.name = (char *)"NOSUCH";
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_SIGNAL;
    request.signal = &signal;
    Sandstorm__V1__ExecResponse *started =
        client_await(peer, SANDSTORM__V1__EXEC_RESPONSE__KIND_STARTED);
    wire_free(&started->base);
    peer_send(peer, &request.base);
    Sandstorm__V1__ExecResponse *notice =
        client_await(peer, SANDSTORM__V1__EXEC_RESPONSE__KIND_NOTICE);
    cr_assert_eq(notice->notice->kind, SANDSTORM__V1__EXEC_NOTICE_KIND__EXEC_NOTICE_KIND_REFUSED);
    wire_free(&notice->base);
    neighbour_assert_well();
}

static void client_acknowledge(struct peer *peer, uint64_t offset)
{
    Sandstorm__V1__Credit credit = SANDSTORM__V1__CREDIT__INIT;
    credit.acked = offset;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_CREDIT;
    request.credit = &credit;
    peer_send(peer, &request.base);
}

/* Not hostile, only simple: reads three megabytes as they come. */
static void assert_all_output_comes(struct peer *peer, bool acknowledges)
{
    uint64_t bytes = 0;
    bool ended = false;
    while (!ended) {
        ProtobufCMessage *message = peer_receive(peer, &sandstorm__v1__exec_response__descriptor);
        struct err none = { 0 };
        cr_assert_not_null(message, "%s", (message ? none : peer_wait_closed(peer)).text);
        const Sandstorm__V1__ExecResponse *response = (const Sandstorm__V1__ExecResponse *)message;
        if (response->kind_case == SANDSTORM__V1__EXEC_RESPONSE__KIND_OUTPUT)
            bytes += response->output->data.len;
        if (acknowledges && response->kind_case == SANDSTORM__V1__EXEC_RESPONSE__KIND_OUTPUT)
            client_acknowledge(peer, bytes);
        ended = response->kind_case == SANDSTORM__V1__EXEC_RESPONSE__KIND_ENDED;
        if (ended) {
            cr_assert_eq(response->ended->end_offset, 3000000);
            cr_assert_eq(response->ended->outcome->exited->code, 4);
        }
        wire_free(message);
    }
    cr_assert_eq(bytes, 3000000);
}

Test(simple_client, that_leaves_credit_to_the_orchestrator_is_served, .init = neighbour_start,
     .fini = neighbour_stop)
{
    CLEANUP_PEER struct peer *peer = client_open();
    client_say_open(peer, &(struct opening){ .shell = "head -c 3000000 /dev/zero; exit 4" });
    peer_finish(peer);
    assert_all_output_comes(peer, false);
    struct err status = peer_wait_closed(peer);
    cr_assert_eq(status.code, ERR_NONE, "%s", status.text);
}

Test(simple_client, that_stops_talking_while_its_queue_is_full_is_served, .init = neighbour_start,
     .fini = neighbour_stop)
{
    CLEANUP_PEER struct peer *peer = client_open();
    client_say_open(peer, &(struct opening){ .shell = "head -c 3000000 /dev/zero; exit 4" });
    /* Reads nothing for as long as a whole command of somebody else takes, and says its last word
     * only then. */
    CLEANUP_PEER struct peer *other = client_open();
    client_say_open(other, &(struct opening){ .shell = "head -c 3000000 /dev/zero; exit 4" });
    peer_finish(other);
    wire_free(&client_await(peer, SANDSTORM__V1__EXEC_RESPONSE__KIND_STARTED)->base);
    assert_all_output_comes(other, false);
    peer_finish(peer);
    assert_all_output_comes(peer, false);
}

Test(simple_client, with_one_large_credit_is_served, .init = neighbour_start,
     .fini = neighbour_stop)
{
    CLEANUP_PEER struct peer *peer = client_open();
    client_say_open(peer, &(struct opening){ .shell = "head -c 3000000 /dev/zero; exit 4",
                                             .limit = UINT64_MAX });
    assert_all_output_comes(peer, true);
}
