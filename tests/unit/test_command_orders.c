/* What a command does with input and orders, and what it refuses: a refused order changes nothing.
 */
#include "tests/unit/command_fixture.h"

#include "tests/unit/random.h"

#define REFUSAL(name) SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_##name

static const char waiting[] = "echo ready; exec sleep 1000";

/* Standard input. */

static struct command_refusal send_input(struct bench *bench, uint64_t offset, const void *data,
                                         size_t size, bool eof)
{
    Sandstorm__V1__Stdin input = SANDSTORM__V1__STDIN__INIT;
    input.offset = offset;
    input.data = (ProtobufCBinaryData){ size, (uint8_t *)data };
    input.eof = eof;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_STDIN;
    order.stdin = &input;
    struct command_refusal refusal = { 0 };
    cr_assert_eq(command_order(bench->command, &order, &refusal), refusal.reason == 0);
    return refusal;
}

static void expect_taken(struct bench *bench, uint64_t offset, const char *text, bool eof)
{
    struct command_refusal refusal = send_input(bench, offset, text, strlen(text), eof);
    cr_expect_eq(refusal.reason, 0, "%s", refusal.detail);
}

static void expect_refused(struct bench *bench, uint64_t offset, const void *data, size_t size)
{
    struct command_refusal refusal = send_input(bench, offset, data, size, false);
    cr_expect_eq(refusal.reason, REFUSAL(BAD_POSITION), "offset %lu", offset);
    cr_expect_not_null(refusal.detail);
}

static void start_with_input(struct bench *bench, const char *text)
{
    bench_init(bench);
    bench->spec.stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
    bench_shell(bench, text, NO_LIMIT);
    UNTIL(bench, bench->stdin_limit == COMMAND_STDIN_WINDOW);
}

Test(command_orders, without_input_stdin_is_at_its_end)
{
    struct bench bench;
    bench_init(&bench);
    (void)bench_run(&bench, "cat; echo done");
    EXPECT_OUTPUT(&bench, "done\n");
    cr_expect_eq(bench.stdin_limit, 0u);
    bench_done(&bench);
}

Test(command_orders, input_ends_where_the_client_says)
{
    struct bench bench;
    start_with_input(&bench, "cat; echo done");
    expect_taken(&bench, 0, "one ", false);
    expect_taken(&bench, 4, "two ", false);
    expect_taken(&bench, 8, "", true);
    UNTIL(&bench, bench.ended);
    EXPECT_OUTPUT(&bench, "one two done\n");
    bench_done(&bench);
}

Test(command_orders, inline_input_is_given_whole_and_then_ends)
{
    static uint8_t data[COMMAND_STDIN_WINDOW];
    (void)memset(data, 'i', sizeof(data));
    static const size_t sizes[] = { 0, 5, sizeof(data) };
    for (size_t i = 0; i < ELEMENTS(sizes); i++) {
        struct bench bench;
        bench_init(&bench);
        bench.spec.stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_INLINE;
        bench.spec.stdin_data = (ProtobufCBinaryData){ sizes[i], data };
        const Sandstorm__V1__Outcome *outcome = bench_run(&bench, "cat");
        cr_expect_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED);
        cr_expect_eq(bench.next, sizes[i]);
        cr_expect_arr_eq(bench.bytes, data, sizes[i]);
        cr_expect_eq(bench.stdin_limit, 0u, "credit for input that nobody may send");
        bench_done(&bench);
    }
}

Test(command_orders, inline_input_that_is_not_read_is_no_credit_for_bytes_never_sent)
{
    static uint8_t data[COMMAND_STDIN_WINDOW];
    struct bench bench;
    bench_init(&bench);
    bench.spec.stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_INLINE;
    bench.spec.stdin_data = (ProtobufCBinaryData){ sizeof(data), data };
    (void)bench_run(&bench, "head -c 1 >/dev/null; exec 0</dev/null; echo done");
    EXPECT_OUTPUT(&bench, "done\n");
    cr_expect_eq(bench.stdin_taken, 0u);
    Sandstorm__V1__CommandPosition position = SANDSTORM__V1__COMMAND_POSITION__INIT;
    command_position(bench.command, &position);
    cr_expect_eq(position.stdin_received, 0u);
    bench_done(&bench);
}

/* Several windows long, in pieces that do not fit the window, with repetitions as after a resume.
 */
Test(command_orders, input_flows_as_the_command_takes_it)
{
    uint64_t seed = 42, sent = 0;
    const uint64_t total = 5 * COMMAND_STDIN_WINDOW + 77;
    uint8_t *data = malloc(total);
    for (uint64_t i = 0; i < total; i++)
        data[i] = (uint8_t)next_random(&seed);
    struct bench bench;
    start_with_input(&bench, "cat");
    while (sent < total) {
        UNTIL(&bench, bench.stdin_limit > sent || bench.ended);
        cr_assert_null(bench.ended);
        uint64_t size = 1 + random_below(&seed, MIN(bench.stdin_limit - sent, 40000));
        size = MIN(size, total - sent);
        uint64_t again = random_below(&seed, MIN(sent, 1000) + 1);
        struct command_refusal refusal =
            send_input(&bench, sent - again, data + sent - again, (size_t)(again + size), false);
        cr_assert_eq(refusal.reason, 0, "%s", refusal.detail);
        sent += size;
    }
    expect_taken(&bench, total, "", true);
    UNTIL(&bench, bench.ended);
    cr_expect_eq(bench.next, total);
    cr_expect_arr_eq(bench.bytes, data, total);
    free(data);
    bench_done(&bench);
}

Test(command_orders, input_that_nobody_reads_gets_no_credit)
{
    static uint8_t data[COMMAND_STDIN_WINDOW + 1];
    struct bench bench;
    start_with_input(&bench, waiting);
    struct command_refusal refusal = send_input(&bench, 0, data, COMMAND_STDIN_WINDOW, false);
    cr_assert_eq(refusal.reason, 0, "%s", refusal.detail);
    UNTIL(&bench, bench.next == 6);
    cr_expect_leq(bench.stdin_limit, bench.stdin_taken + COMMAND_STDIN_WINDOW);
    /* The pipe takes some on its own; beyond pipe and window nothing goes. */
    uint64_t sent = COMMAND_STDIN_WINDOW;
    for (unsigned i = 0; i < 8; i++) {
        uint64_t room = bench.stdin_limit - sent;
        expect_refused(&bench, sent, data, (size_t)room + 1);
        if (room == 0)
            break;
        refusal = send_input(&bench, sent, data, (size_t)room, false);
        cr_assert_eq(refusal.reason, 0, "%s", refusal.detail);
        sent += room;
        cr_assert_eq(loop_turn(bench.loop, 1000, NULL), 0);
        bench_listen(&bench);
    }
    cr_expect_leq(sent, 3 * COMMAND_STDIN_WINDOW, "the window is no bound");
    bench_done(&bench);
}

Test(command_orders, a_command_that_closed_its_input_says_so_and_lives)
{
    struct bench bench;
    start_with_input(&bench, "exec 0</dev/null; echo ready; exec sleep 1000");
    UNTIL(&bench, bench.next == 6);
    expect_taken(&bench, 0, "nobody reads this", false);
    UNTIL(&bench, bench.stdin_closed);
    cr_expect_eq(command_state(bench.command), COMMAND_RUNNING);
    expect_taken(&bench, 17, "nor this", true);
    command_cancel(bench.command, 0, "client asked");
    UNTIL(&bench, bench.ended);
    bench_done(&bench);
}

Test(command_orders, hostile_input_offsets_are_refused)
{
    static uint8_t data[COMMAND_STDIN_WINDOW + 1];
    struct bench bench;
    start_with_input(&bench, "cat");
    expect_refused(&bench, 1, "x", 1);
    expect_refused(&bench, UINT64_MAX, "x", 1);
    expect_refused(&bench, UINT64_MAX, "", 0);
    expect_taken(&bench, 0, "ok", false);
    expect_refused(&bench, 3, "x", 1);
    expect_refused(&bench, 2, data, sizeof(data));
    expect_taken(&bench, 2, "", true);
    expect_refused(&bench, 2, "after the end", 13);
    expect_refused(&bench, UINT64_MAX, "x", 1);
    /* A repetition is no news, also after the end. */
    expect_taken(&bench, 0, "ok", true);
    UNTIL(&bench, bench.ended);
    EXPECT_OUTPUT(&bench, "ok");
    bench_done(&bench);
}

/* Signals and the rest. */

static struct command_refusal send_signal(struct bench *bench, const char *name, unsigned number,
                                          Sandstorm__V1__SignalTarget target)
{
    Sandstorm__V1__Signal signal = SANDSTORM__V1__SIGNAL__INIT;
    signal.name = (char *)name;
    signal.number = number;
    signal.target = target;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_SIGNAL;
    order.signal = &signal;
    struct command_refusal refusal = { 0 };
    (void)command_order(bench->command, &order, &refusal);
    return refusal;
}

static void expect_death_by(const char *name, unsigned number, int expected)
{
    struct bench bench;
    bench_init(&bench);
    bench_shell(&bench, waiting, NO_LIMIT);
    UNTIL(&bench, bench.next == 6);
    cr_assert_eq(send_signal(&bench, name, number, 0).reason, 0);
    UNTIL(&bench, bench.ended);
    cr_assert_eq(bench.ended->outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_SIGNALED);
    cr_expect_eq(bench.ended->outcome->signaled->signal, (unsigned)expected);
    bench_done(&bench);
}

Test(command_orders, signals_go_by_name_before_number)
{
    expect_death_by("USR1", 0, SIGUSR1);
    expect_death_by("", SIGUSR2, SIGUSR2);
    expect_death_by("TERM", SIGKILL, SIGTERM);
}

Test(command_orders, signals_that_are_none_are_refused)
{
    struct bench bench;
    bench_init(&bench);
    bench_shell(&bench, waiting, NO_LIMIT);
    UNTIL(&bench, bench.next == 6);
    cr_expect_eq(send_signal(&bench, "", 0, 0).reason, REFUSAL(UNSUPPORTED));
    cr_expect_eq(send_signal(&bench, "", 65, 0).reason, REFUSAL(UNSUPPORTED));
    cr_expect_eq(send_signal(&bench, "", UINT32_MAX, 0).reason, REFUSAL(UNSUPPORTED));
    cr_expect_eq(send_signal(&bench, "SIGTERM", 0, 0).reason, REFUSAL(UNSUPPORTED));
    cr_expect_eq(send_signal(&bench, "NONE", 15, 0).reason, REFUSAL(UNSUPPORTED));
    cr_expect_eq(command_state(bench.command), COMMAND_RUNNING);
    bench_done(&bench);
}

Test(command_orders, a_signal_reaches_the_tree_or_the_leader_alone)
{
    static const char text[] =
        "trap 'echo leader' USR1\n"
        "sh -c 'trap \"echo child\" USR1; echo up; while :; do read x; done' &\n"
        "wait; echo again; wait";
    for (int tree = 0; tree < 2; tree++) {
        struct bench bench;
        bench_init(&bench);
        bench.spec.stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
        bench_shell(&bench, text, NO_LIMIT);
        UNTIL(&bench, bench.next == 3);
        Sandstorm__V1__SignalTarget target =
            tree ? SANDSTORM__V1__SIGNAL_TARGET__SIGNAL_TARGET_TREE
                 : SANDSTORM__V1__SIGNAL_TARGET__SIGNAL_TARGET_LEADER;
        cr_assert_eq(send_signal(&bench, "USR1", 0, target).reason, 0);
        UNTIL(&bench, memmem(bench.bytes, bench.next, "again", 5));
        if (tree)
            UNTIL(&bench, memmem(bench.bytes, bench.next, "child", 5));
        else
            cr_expect_null(memmem(bench.bytes, bench.next, "child", 5));
        cr_expect_not_null(memmem(bench.bytes, bench.next, "leader", 6));
        bench_done(&bench);
    }
}

Test(command_orders, what_has_ended_takes_no_orders)
{
    struct bench bench;
    bench_init(&bench);
    (void)bench_run(&bench, "exit 0");
    cr_expect_eq(send_signal(&bench, "TERM", 0, 0).reason, REFUSAL(ENDED));
    Sandstorm__V1__Cancel cancel = SANDSTORM__V1__CANCEL__INIT;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_CANCEL;
    order.cancel = &cancel;
    struct command_refusal refusal = { 0 };
    cr_expect_not(command_order(bench.command, &order, &refusal));
    cr_expect_eq(refusal.reason, REFUSAL(ENDED));
    cr_expect_eq(send_input(&bench, 0, "x", 1, false).reason, 0, "input crosses with the end");
    bench_detach(&bench);
    bench_done(&bench);
}

Test(command_orders, orders_that_are_unknown_or_need_a_terminal_are_refused)
{
    struct bench bench;
    bench_init(&bench);
    bench_shell(&bench, waiting, NO_LIMIT);
    Sandstorm__V1__TerminalSize size = SANDSTORM__V1__TERMINAL_SIZE__INIT;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_RESIZE;
    order.resize = &size;
    struct command_refusal refusal = { 0 };
    cr_expect_not(command_order(bench.command, &order, &refusal));
    cr_expect_eq(refusal.reason, REFUSAL(UNSUPPORTED));
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER__NOT_SET;
    cr_expect_not(command_order(bench.command, &order, &refusal));
    cr_expect_eq(refusal.reason, REFUSAL(UNSUPPORTED));
    bench_done(&bench);
}

/* A client that is gone. */

Test(command_orders, kill_after_cancels_a_command_that_nobody_came_back_to)
{
    struct bench bench;
    bench_init(&bench);
    bench.spec.client_gone = SANDSTORM__V1__CLIENT_GONE_POLICY__CLIENT_GONE_POLICY_KILL_AFTER;
    bench.spec.client_gone_after_ms = 20;
    bench_shell(&bench, waiting, NO_LIMIT);
    UNTIL(&bench, bench.next == 6);
    bench_detach(&bench);
    UNTIL(&bench, command_state(bench.command) == COMMAND_ENDED);
    cr_assert(bench_attach(&bench, 6, NO_LIMIT));
    UNTIL(&bench, bench.ended);
    cr_assert_eq(bench.ended->outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_CANCELLED);
    cr_expect_str_eq(bench.ended->outcome->cancelled->reason, "client gone");
    bench_done(&bench);
}

Test(command_orders, a_client_that_comes_back_in_time_keeps_its_command)
{
    struct bench bench;
    bench_init(&bench);
    bench.spec.client_gone = SANDSTORM__V1__CLIENT_GONE_POLICY__CLIENT_GONE_POLICY_KILL_AFTER;
    bench.spec.client_gone_after_ms = 100000;
    bench_shell(&bench, waiting, NO_LIMIT);
    cr_expect_not(loop_timer_running(bench.command->alone));
    bench_detach(&bench);
    cr_expect(loop_timer_running(bench.command->alone));
    cr_assert(bench_attach(&bench, 0, NO_LIMIT));
    cr_expect_not(loop_timer_running(bench.command->alone));
    bench_done(&bench);
}

Test(command_orders, the_default_keeps_a_command_without_a_client)
{
    struct bench bench;
    bench_init(&bench);
    bench_shell(&bench, waiting, NO_LIMIT);
    bench_detach(&bench);
    cr_expect_not(loop_timer_running(bench.command->alone));
    bench_done(&bench);
}

Test(command_orders, the_environment_is_the_base_or_only_what_was_asked_for)
{
    Sandstorm__V1__EnvVar variables[2] = { SANDSTORM__V1__ENV_VAR__INIT,
                                           SANDSTORM__V1__ENV_VAR__INIT };
    Sandstorm__V1__EnvVar *env[] = { &variables[0], &variables[1] };
    variables[0].name = (char *)"LANG";
    variables[0].value = (char *)"xx=yy";
    variables[1].name = (char *)"B";
    char *argv[] = { (char *)"/usr/bin/env" };
    for (int clear = 0; clear < 2; clear++) {
        struct bench bench;
        bench_init(&bench);
        bench.spec.argv = argv;
        bench.spec.n_argv = 1;
        bench.spec.env = env;
        bench.spec.n_env = 2;
        bench.spec.env_clear = clear;
        bench_start(&bench, NO_LIMIT);
        UNTIL(&bench, bench.ended);
        if (clear)
            EXPECT_OUTPUT(&bench, "LANG=xx=yy\nB=\n");
        cr_expect_eq(memmem(bench.bytes, bench.next, "PATH=/", 6) == NULL, clear == 1);
        cr_expect_null(memmem(bench.bytes, bench.next, "C.UTF-8", 7));
        bench_done(&bench);
    }
}
