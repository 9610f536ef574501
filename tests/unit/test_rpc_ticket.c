/* Calls that wait: for the guard, for an answer that comes later, and for nobody because the peer
 * has gone. And streams that are ended from outside. */
#include "tests/unit/rpc_fixture.h"

#include <time.h>

static void answer(struct world *world, const char *name)
{
    Sandstorm__V1__Label label = SANDSTORM__V1__LABEL__INIT;
    label.name = (char *)name;
    rpc_ticket_reply(TAKE_PTR(world->ticket), &label.base);
}

static void start_unary(struct world *world, const char *method, struct end *end)
{
    call_open(world->client, method, RPC_NO_DEADLINE, end);
    (void)send_label(end, "hello", 0);
    rpc_call_finish(end->call, NULL);
    UNTIL(world, world->ticket);
}

Test(rpc_ticket, an_answer_may_come_later)
{
    struct world world;
    world_init(&world);
    struct end end = { 0 };
    start_unary(&world, "/t/Later", &end);
    cr_expect_eq(end.closed, 0u);
    answer(&world, "at last");
    UNTIL(&world, end.closed);
    cr_expect_eq(end.status.code, ERR_NONE, "%s", end.status.text);
    cr_expect_str_eq(end.last, "at last");
    world_done(&world);
}

Test(rpc_ticket, a_late_failure_has_its_words)
{
    struct world world;
    world_init(&world);
    struct end end = { 0 };
    struct err why;
    start_unary(&world, "/t/Later", &end);
    (void)err_set(&why, ERR_PRECONDITION, "not today");
    rpc_ticket_fail(TAKE_PTR(world.ticket), &why);
    UNTIL(&world, end.closed);
    cr_expect_eq(end.status.code, ERR_PRECONDITION);
    cr_expect_str_eq(end.status.text, "not today");
    world_done(&world);
}

Test(rpc_ticket, no_method_sees_a_call_before_the_guard_has_spoken)
{
    struct world world;
    world_init(&world);
    world.slow_guard = true;
    struct end end = { 0 };
    start_unary(&world, "/t/Echo", &end);
    cr_expect_eq(world.peer.kind, IDENTITY_NONE, "the method saw it");
    rpc_ticket_admit(TAKE_PTR(world.ticket));
    UNTIL(&world, end.closed);
    cr_expect_eq(world.peer.kind, IDENTITY_CLIENT);
    cr_expect_str_eq(end.last, "hello");

    struct end stream = { 0 };
    call_open(world.client, "/t/Stream", RPC_NO_DEADLINE, &stream);
    (void)send_label(&stream, "first", 0);
    UNTIL(&world, world.ticket);
    cr_expect_null(world.accepted.call, "the stream's owner saw it");
    rpc_ticket_admit(TAKE_PTR(world.ticket));
    UNTIL(&world, world.accepted.messages == 1);
    cr_expect_str_eq(world.accepted.last, "first");
    rpc_call_finish(world.accepted.call, NULL);
    rpc_call_finish(stream.call, NULL);
    UNTIL(&world, stream.closed && world.accepted.closed);
    world_done(&world);
}

/* Whatever is said to a ticket whose peer has gone is lost, and nothing else is. */
Test(rpc_ticket, a_peer_that_has_gone_is_not_waited_for)
{
    static const char *const methods[] = { "/t/Echo", "/t/Later", "/t/Stream" };
    for (size_t i = 0; i < 2 * ELEMENTS(methods); i++) {
        struct world world;
        world_init(&world);
        world.slow_guard = i % 2 == 0 || i / 2 == 2;
        struct end end = { 0 };
        const char *method = methods[i / 2];
        if (!world.slow_guard)
            method = "/t/Later";
        call_open(world.client, method, RPC_NO_DEADLINE, &end);
        (void)send_label(&end, "hello", 0);
        UNTIL(&world, world.ticket);
        struct rpc_ticket *ticket = TAKE_PTR(world.ticket);
        rpc_call_cancel(end.call);
        /* The server is gone too when the word comes. */
        world_done(&world);
        struct err why;
        (void)err_set(&why, ERR_DENIED, "too late");
        cr_expect_str_eq(rpc_ticket_peer(ticket)->name, "Alice");
        if (i % 2)
            rpc_ticket_fail(ticket, &why);
        else
            rpc_ticket_admit(ticket);
        cr_expect_eq(world.peer.kind, IDENTITY_NONE, "%s was called for nobody", method);
        cr_expect_null(world.accepted.call);
    }
}

Test(rpc_ticket, the_certificate_is_the_peers_own)
{
    struct world world;
    world_init(&world);
    world.slow_guard = true;
    struct end first = { 0 }, second = { 0 };
    uint8_t key[RPC_KEY_LEN];
    start_unary(&world, "/t/Echo", &first);
    struct rpc_certificate certificate = *rpc_ticket_certificate(world.ticket);
    (void)memcpy(key, certificate.key, sizeof(key));
    int64_t left = certificate.not_after_s - (int64_t)time(NULL);
    cr_expect(left > 3500 && left <= 3600, "%lld s left", (long long)left);
    rpc_ticket_admit(TAKE_PTR(world.ticket));
    UNTIL(&world, first.closed);

    call_open(world.agent, "/t/Echo", RPC_NO_DEADLINE, &second);
    (void)send_label(&second, "hello", 0);
    rpc_call_finish(second.call, NULL);
    UNTIL(&world, world.ticket);
    cr_expect_neq(memcmp(key, rpc_ticket_certificate(world.ticket)->key, sizeof(key)), 0);
    rpc_ticket_admit(TAKE_PTR(world.ticket));
    UNTIL(&world, second.closed);
    world_done(&world);
}

static bool clients_are_over(void *userdata, const struct rpc_call *call, struct err *why)
{
    (void)userdata;
    if (rpc_call_peer(call)->kind != IDENTITY_CLIENT)
        return false;
    (void)err_set(why, ERR_UNAUTHENTICATED, "revoked");
    return true;
}

Test(rpc_ticket, a_sweep_ends_who_is_over_and_says_why)
{
    struct world world;
    world_init(&world);
    struct end agent = { 0 }, client = { 0 };
    call_open(world.agent, "/t/Stream", RPC_NO_DEADLINE, &agent);
    UNTIL(&world, world.accepted.call);
    struct rpc_call *agents = world.accepted.call;
    rpc_call_bind(agents, &end_handler, &(struct end){ .call = agents });
    world.accepted = (struct end){ 0 };
    call_open(world.client, "/t/Stream", RPC_NO_DEADLINE, &client);
    UNTIL(&world, world.accepted.call);
    rpc_server_sweep(world.server, clients_are_over, NULL);
    UNTIL(&world, client.closed && world.accepted.closed);
    cr_expect_eq(client.status.code, ERR_UNAUTHENTICATED);
    cr_expect_str_eq(client.status.text, "revoked");
    cr_expect_eq(agent.closed, 0u);
    rpc_call_release(agents);
    UNTIL(&world, agent.closed);
    world_done(&world);
}

Test(rpc_ticket, a_second_sweep_cuts_who_does_not_even_take_its_status)
{
    struct world world;
    world_init(&world);
    struct end client = { 0 };
    call_open(world.client, "/t/Stream", RPC_NO_DEADLINE, &client);
    rpc_call_pause(client.call);
    UNTIL(&world, world.accepted.call);
    while (send_label(&world.accepted, "unread", 20000) == 0)
        cr_assert_eq(loop_turn(world.loop, 0, NULL), 0);
    /* The queue is full and the client does not read. */
    rpc_server_sweep(world.server, clients_are_over, NULL);
    rpc_server_sweep(world.server, clients_are_over, NULL);
    UNTIL(&world, world.accepted.closed);
    if (!client.closed)
        rpc_call_resume(client.call);
    UNTIL(&world, client.closed);
    cr_expect_neq(client.status.code, ERR_NONE);
    world_done(&world);
}

Test(rpc_ticket, a_sweep_leaves_calls_alone_that_the_guard_has_not_judged)
{
    struct world world;
    world_init(&world);
    world.slow_guard = true;
    struct end end = { 0 };
    struct err why;
    start_unary(&world, "/t/Echo", &end);
    rpc_server_sweep(world.server, clients_are_over, NULL);
    rpc_server_sweep(world.server, clients_are_over, NULL);
    (void)err_set(&why, ERR_DENIED, "the guard's own words");
    rpc_ticket_fail(TAKE_PTR(world.ticket), &why);
    UNTIL(&world, end.closed);
    cr_expect_eq(end.status.code, ERR_DENIED, "%s", end.status.text);
    cr_expect_str_eq(end.status.text, "the guard's own words");
    world_done(&world);
}
