/* The rpc layer over real mutual TLS: who may call what, how a call ends and how each end learns of
 * it, and that a slow reader holds up its own call alone. */
#include "tests/unit/rpc_fixture.h"

#include "common/wire.h"

#define MESSAGES 200u
#define PADDING  20000u

Test(rpc, a_unary_call_gets_its_answer_and_shows_who_called)
{
    struct world world;
    world_init(&world);
    struct end end = call_unary(&world, world.client, "/t/Echo", 10);
    cr_expect_eq(end.status.code, ERR_NONE, "%s", end.status.text);
    cr_expect_eq(end.messages, 1u);
    cr_expect_str_eq(end.last, "hello");
    cr_expect_eq(world.peer.kind, IDENTITY_CLIENT);
    cr_expect_str_eq(world.peer.name, "Alice");
    end = call_unary(&world, world.agent, "/t/Echo", 10);
    cr_expect_eq(end.status.code, ERR_NONE, "%s", end.status.text);
    cr_expect_eq(world.peer.kind, IDENTITY_AGENT);
    cr_expect_str_eq(world.peer.name, "sandbox-1");
    world_done(&world);
}

Test(rpc, an_unknown_method_is_unimplemented)
{
    struct world world;
    world_init(&world);
    struct end end = call_unary(&world, world.client, "/t/Nothing", 0);
    cr_expect_eq(end.status.code, ERR_UNIMPLEMENTED, "%s", end.status.text);
    cr_expect_eq(end.messages, 0u);
    world_done(&world);
}

static void pause_accepted(struct end *end, const uint8_t *data, size_t size)
{
    (void)data;
    (void)size;
    rpc_call_pause(end->call);
}

/* libgrpc holds the status back until everything before it was read. */
Test(rpc, what_was_said_before_the_end_is_read_although_a_send_has_failed)
{
    struct world world;
    world_init(&world);
    for (unsigned round = 0; round < 20; round++) {
        struct end end = { 0 };
        struct err status;
        (void)err_set(&status, ERR_PRECONDITION, "that is all");
        world.accepted = (struct end){ .on_message = pause_accepted };
        call_open(world.client, "/t/Stream", RPC_NO_DEADLINE, &end);
        /* More than flow control lets through to somebody who does not read. */
        for (unsigned i = 0; i < 4; i++)
            (void)send_label(&end, "up", 200000);
        UNTIL(&world, world.accepted.messages > 0);
        for (unsigned i = 0; i < 40; i++)
            cr_assert_eq(send_label(&world.accepted, "down", 4000), 0);
        rpc_call_finish(world.accepted.call, &status);
        UNTIL(&world, end.closed);
        cr_expect_eq(end.status.code, ERR_PRECONDITION, "%s", end.status.text);
        cr_expect_eq(end.messages, 40u, "%u", end.messages);
        UNTIL(&world, world.accepted.closed);
    }
    world_done(&world);
}

Test(rpc, a_status_is_known_to_be_the_peers_own_word_or_not)
{
    struct world world;
    world_init(&world);
    struct err status, err = { 0 };
    struct end end = { 0 };
    (void)err_set(&status, ERR_UNAVAILABLE, "it is away");
    for (unsigned own = 0; own < 2; own++) {
        end = (struct end){ 0 };
        call_open(world.client, "/t/Stream", RPC_NO_DEADLINE, &end);
        cr_assert_eq(send_label(&end, "hello", 0), 0);
        UNTIL(&world, world.accepted.messages > 0);
        if (own)
            rpc_call_finish(world.accepted.call, &status);
        else
            rpc_call_cancel(world.accepted.call);
        UNTIL(&world, end.closed);
        cr_expect_eq(end.answered, own == 1);
        cr_expect(end.sent_any);
        UNTIL(&world, world.accepted.closed);
        world.accepted = (struct end){ 0 };
    }
    struct rpc_channel *nobody;
    OK(rpc_channel_new(world.pump, "127.0.0.1:1", &world.client_creds, &nobody, &err));
    end = (struct end){ 0 };
    call_open(nobody, "/t/Stream", RPC_NO_DEADLINE, &end);
    cr_assert_eq(send_label(&end, "hello", 0), 0);
    UNTIL(&world, end.closed);
    cr_expect_not(end.answered);
    cr_expect_not(end.sent_any, "nothing can have reached anybody");
    rpc_channel_free(nobody);
    world_done(&world);
}

Test(rpc, another_kind_of_certificate_is_denied)
{
    struct world world;
    world_init(&world);
    struct end end = call_unary(&world, world.client, "/t/AgentsOnly", 0);
    cr_expect_eq(end.status.code, ERR_DENIED, "%s", end.status.text);
    end = call_unary(&world, world.agent, "/t/AgentsOnly", 0);
    cr_expect_eq(end.status.code, ERR_NONE, "%s", end.status.text);
    world_done(&world);
}

Test(rpc, a_certificate_of_another_ca_reaches_nobody)
{
    struct err err = { 0 };
    struct world world;
    world_init(&world);
    CLEANUP_CA struct ca *other = NULL;
    struct rpc_creds creds;
    OK(ca_create("other", WORLD_DOMAIN, &err));
    OK(ca_open("other", &other, &err));
    OK(ca_issue_peer(other, "stranger", IDENTITY_CLIENT, "Alice", 3600, &err));
    OK(rpc_creds_load("stranger", &creds, &err));
    free(creds.ca);
    creds.ca = strdup(world.client_creds.ca); /* it trusts our server, we do not trust it */
    struct rpc_channel *channel;
    OK(rpc_channel_new(world.pump, world.endpoint, &creds, &channel, &err));
    struct end end = call_unary(&world, channel, "/t/Echo", 0);
    cr_expect_eq(end.status.code, ERR_UNAVAILABLE, "%s", end.status.text);
    cr_expect_eq(world.peer.kind, IDENTITY_NONE);
    rpc_channel_free(channel);
    rpc_creds_clear(&creds);
    world_done(&world);
}

Test(rpc, a_message_beyond_the_bound_is_exhausted)
{
    struct world world;
    world_init(&world);
    struct end end = call_unary(&world, world.client, "/t/Echo", WIRE_MESSAGE_MAX);
    cr_expect_eq(end.status.code, ERR_EXHAUSTED, "%s", end.status.text);
    cr_expect_eq(world.peer.kind, IDENTITY_NONE, "the method saw it");
    end = call_unary(&world, world.client, "/t/Stream", WIRE_MESSAGE_MAX);
    cr_expect_eq(end.status.code, ERR_EXHAUSTED, "%s", end.status.text);
    cr_expect_eq(world.accepted.messages, 0u, "the stream's owner saw it");
    world_done(&world);
}

Test(rpc, a_request_that_is_no_message_is_refused)
{
    struct err err = { 0 };
    struct world world;
    world_init(&world);
    struct end end = { 0 };
    call_open(world.client, "/t/Echo", RPC_NO_DEADLINE, &end);
    const struct iovec parts[] = { { (void *)"\x0a", 1 }, { (void *)"\x7f", 1 } };
    OK(rpc_call_send_parts(end.call, parts, 2, &err));
    rpc_call_finish(end.call, NULL);
    UNTIL(&world, end.closed);
    cr_expect_eq(err_grpc_status(end.status.code), err_grpc_status(ERR_PROTOCOL), "%s",
                 end.status.text);
    struct end empty = { 0 };
    call_open(world.client, "/t/Echo", RPC_NO_DEADLINE, &empty);
    rpc_call_finish(empty.call, NULL);
    UNTIL(&world, empty.closed);
    cr_expect_eq(empty.status.code, ERR_INVALID, "%s", empty.status.text);
    cr_expect_eq(world.peer.kind, IDENTITY_NONE);
    world_done(&world);
}

/* Streams. */

static void finish_ok(struct end *end)
{
    rpc_call_finish(end->call, NULL);
}

/* Sends back what comes, and stops listening while its own queue is full. */
static void echo_back(struct end *end, const uint8_t *data, size_t size)
{
    struct err err = { 0 };
    const struct iovec part = { (void *)data, size };
    OK(rpc_call_send_parts(end->call, &part, 1, &err));
    if (!rpc_call_writable(end->call))
        rpc_call_pause(end->call);
}

static void listen_again(struct end *end)
{
    rpc_call_resume(end->call);
}

static void produce(struct end *end)
{
    char name[16];
    while (end->sent < MESSAGES && rpc_call_writable(end->call)) {
        (void)snprintf(name, sizeof(name), "%u", end->sent++);
        cr_assert_eq(send_label(end, name, PADDING), 0);
    }
    if (end->sent == MESSAGES)
        rpc_call_finish(end->call, NULL);
}

static void expect_order(struct end *end, const uint8_t *data, size_t size)
{
    (void)data;
    (void)size;
    char name[16];
    (void)snprintf(name, sizeof(name), "%u", end->messages - 1);
    cr_assert_str_eq(end->last, name);
}

Test(rpc, a_stream_carries_200_messages_both_ways_in_order)
{
    struct world world;
    world_init(&world);
    world.accepted = (struct end){ .on_message = echo_back,
                                   .on_writable = listen_again,
                                   .on_half_closed = finish_ok };
    struct end end = { .on_message = expect_order, .on_writable = produce };
    call_open(world.client, "/t/Stream", RPC_NO_DEADLINE, &end);
    produce(&end);
    cr_expect_lt(end.sent, MESSAGES, "nothing held the producer back");
    UNTIL(&world, end.closed && world.accepted.closed);
    cr_expect_eq(end.status.code, ERR_NONE, "%s", end.status.text);
    cr_expect_eq(end.messages, MESSAGES);
    cr_expect_gt(end.bytes, (size_t)MESSAGES * PADDING);
    cr_expect_gt(end.writable, 0u);
    cr_expect_eq(world.accepted.messages, MESSAGES);
    cr_expect_eq(world.accepted.half_closed, 1u);
    cr_expect(end.closed == 1 && world.accepted.closed == 1);
    world_done(&world);
}

static void listen_no_more(struct end *end, const uint8_t *data, size_t size)
{
    (void)data;
    (void)size;
    rpc_call_pause(end->call);
    end->on_message = NULL;
}

Test(rpc, a_peer_that_does_not_read_fills_a_bounded_queue_and_loses_nothing)
{
    struct world world;
    world_init(&world);
    world.accepted = (struct end){ .on_message = listen_no_more, .on_half_closed = finish_ok };
    struct end end = { 0 };
    call_open(world.client, "/t/Stream", RPC_NO_DEADLINE, &end);
    cr_assert_eq(send_label(&end, "first", 0), 0);
    UNTIL(&world, world.accepted.messages == 1);
    while (send_label(&end, "more", 100000) == 0) {
        end.sent++;
        cr_assert_lt(end.sent, 100u, "the queue has no bound");
        cr_assert_eq(loop_turn(world.loop, 1000, NULL), 0);
    }
    cr_expect_geq(end.sent * 100000u, RPC_QUEUE_MAX - 100100);
    cr_expect_not(rpc_call_writable(end.call));
    cr_expect_eq(world.accepted.messages, 1u, "a paused call went on");
    /* Another call of the same channel is not held up. */
    struct end other = call_unary(&world, world.client, "/t/Echo", 1000);
    cr_expect_eq(other.status.code, ERR_NONE, "%s", other.status.text);
    rpc_call_finish(end.call, NULL);
    rpc_call_resume(world.accepted.call);
    UNTIL(&world, end.closed && world.accepted.closed);
    cr_expect_eq(world.accepted.messages, end.sent + 1);
    cr_expect_eq(end.status.code, ERR_NONE, "%s", end.status.text);
    world_done(&world);
}

Test(rpc, a_half_close_is_not_a_cut)
{
    struct world world;
    world_init(&world);
    world.accepted = (struct end){ .on_half_closed = finish_ok };
    struct end end = { 0 };
    call_open(world.client, "/t/Stream", RPC_NO_DEADLINE, &end);
    cr_assert_eq(send_label(&end, "one", 0), 0);
    rpc_call_finish(end.call, NULL);
    UNTIL(&world, world.accepted.closed && end.closed);
    cr_expect_eq(world.accepted.half_closed, 1u);
    cr_expect_eq(world.accepted.status.code, ERR_NONE, "%s", world.accepted.status.text);
    world_done(&world);
}

Test(rpc, a_cut_is_not_a_half_close)
{
    struct world world;
    world_init(&world);
    struct end end = { 0 };
    call_open(world.client, "/t/Stream", RPC_NO_DEADLINE, &end);
    cr_assert_eq(send_label(&end, "one", 0), 0);
    UNTIL(&world, world.accepted.messages == 1);
    rpc_call_cancel(end.call);
    UNTIL(&world, world.accepted.closed && end.closed);
    cr_expect_eq(world.accepted.half_closed, 0u);
    cr_expect_eq(world.accepted.status.code, ERR_CANCELLED, "%s", world.accepted.status.text);
    cr_expect_eq(end.status.code, ERR_CANCELLED, "%s", end.status.text);
    world_done(&world);
}

Test(rpc, who_releases_a_call_hears_no_more_of_it)
{
    struct world world;
    world_init(&world);
    struct end end = { 0 };
    call_open(world.client, "/t/Stream", RPC_NO_DEADLINE, &end);
    cr_assert_eq(send_label(&end, "one", 0), 0);
    UNTIL(&world, world.accepted.messages == 1);
    rpc_call_release(TAKE_PTR(end.call));
    UNTIL(&world, world.accepted.closed);
    cr_expect_eq(world.accepted.status.code, ERR_CANCELLED);
    cr_expect_eq(end.closed, 0u);
    world_done(&world);
}

Test(rpc, the_servers_status_follows_what_it_has_queued)
{
    struct err status;
    struct world world;
    world_init(&world);
    struct end end = { 0 };
    call_open(world.client, "/t/Stream", RPC_NO_DEADLINE, &end);
    UNTIL(&world, world.accepted.call);
    for (unsigned i = 0; i < 10; i++)
        cr_assert_eq(send_label(&world.accepted, "last words", 50000), 0);
    (void)err_set(&status, ERR_PRECONDITION, "not today");
    rpc_call_finish(world.accepted.call, &status);
    UNTIL(&world, end.closed && world.accepted.closed);
    cr_expect_eq(end.messages, 10u);
    cr_expect_eq(end.status.code, ERR_PRECONDITION);
    cr_expect_str_eq(end.status.text, "not today");
    world_done(&world);
}

Test(rpc, a_deadline_ends_a_call_at_both_ends)
{
    struct world world;
    world_init(&world);
    struct end first = call_unary(&world, world.client, "/t/Echo", 0); /* connects */
    cr_assert_eq(first.status.code, ERR_NONE);
    struct end end = { 0 };
    call_open(world.client, "/t/Stream", 200000, &end);
    UNTIL(&world, end.closed);
    cr_expect_eq(end.status.code, ERR_TIMEOUT, "%s", end.status.text);
    UNTIL(&world, !world.accepted.call);
    world_done(&world);
}

/* The server's own end. */

Test(rpc, draining_cuts_what_is_still_open_after_the_grace)
{
    struct world world;
    world_init(&world);
    struct end end = { 0 };
    call_open(world.client, "/t/Stream", RPC_NO_DEADLINE, &end);
    UNTIL(&world, world.accepted.call);
    rpc_server_drain(world.server, 50000, world_drained, &world);
    UNTIL(&world, end.closed && world.drained);
    cr_expect_eq(world.accepted.closed, 1u);
    cr_expect_neq(end.status.code, ERR_NONE);
    struct end late = call_unary(&world, world.client, "/t/Echo", 0);
    cr_expect_eq(late.status.code, ERR_UNAVAILABLE, "%s", late.status.text);
    world_done(&world);
}

Test(rpc, draining_waits_for_a_call_that_ends_in_time)
{
    struct world world;
    world_init(&world);
    struct end end = { 0 };
    call_open(world.client, "/t/Stream", RPC_NO_DEADLINE, &end);
    UNTIL(&world, world.accepted.call);
    rpc_server_drain(world.server, WORLD_DEADLINE_US, world_drained, &world);
    cr_assert_eq(loop_turn(world.loop, 10000, NULL), 0);
    cr_expect_not(world.drained);
    rpc_call_finish(world.accepted.call, NULL);
    UNTIL(&world, world.drained && end.closed);
    cr_expect_eq(end.status.code, ERR_NONE, "%s", end.status.text);
    world_done(&world);
}

Test(rpc, a_port_that_is_taken_is_said_so)
{
    struct err err = { 0 };
    struct world world;
    world_init(&world);
    struct rpc_server *second;
    world_listen(&world, world.endpoint, &second, &err);
    cr_assert_null(second);
    cr_expect_eq(err.code, ERR_UNAVAILABLE);
    cr_expect_not_null(strstr(err.text, world.endpoint), "%s", err.text);
    world_done(&world);
}

Test(rpc, nobody_at_the_endpoint_is_unavailable)
{
    struct err err = { 0 };
    struct world world;
    world_init(&world);
    struct rpc_channel *channel;
    OK(rpc_channel_new(world.pump, "127.0.0.1:1", &world.client_creds, &channel, &err));
    struct end end = call_unary(&world, channel, "/t/Echo", 0);
    cr_expect_eq(end.status.code, ERR_UNAVAILABLE, "%s", end.status.text);
    rpc_channel_free(channel);
    world_done(&world);
}
