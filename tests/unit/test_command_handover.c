/* A command in the eyes of the program that its runner executes next: what was going on goes on.
 * Here both are one process: the first command is written down and let go of, and the second made
 * from that with the same descriptors. */
#include "agent/handover.h"
#include "tests/unit/command_fixture.h"

#include <stdio.h>
#include <sys/wait.h>

#define OK(call) cr_assert_eq((call), 0, "%s", err.text)

#define LONG_US 600000000u

static struct bench bench;
static Sandstorm__V1__Terminal terminal;

static void setup(void)
{
    bench_init(&bench);
}

static void teardown(void)
{
    bench_done(&bench);
}

TestSuite(command_handover, .init = setup, .fini = teardown);

/* As execve(2) does it: its memory goes, nobody is signalled, and what was to be kept stays open.
 */
static void vanish(struct command *command)
{
    for (size_t i = 0; i < ELEMENTS(command->pipes); i++) {
        loop_io_free(TAKE_PTR(command->pipes[i].io));
        command->pipes[i].fd = -1;
    }
    loop_io_free(TAKE_PTR(command->input.io));
    command->input.fd = command->slave = command->pidfd = -1;
    reaper_unwatch(TAKE_PTR(command->child));
    tree_free(TAKE_PTR(command->tree), false);
    command_free(command);
}

static struct command *read_back(const struct handover_out *out)
{
    struct err err = { 0 };
    struct handover_in in;
    struct handover_record record;
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    struct command *command = NULL;
    OK(handover_map(out->fd, &in, &err));
    OK(handover_next(&in, &record, &err));
    cr_assert_eq(record.header.kind, RECORD_COMMAND);
    OK(wire_unpack(&sandstorm__runner__command__descriptor, record.bytes, record.header.size,
                   &message, &err));
    OK(command_take_over(&bench.host, (const Sandstorm__Runner__Command *)message, &command, &err));
    for (;;) {
        OK(handover_next(&in, &record, &err));
        if (record.header.kind == RECORD_DONE)
            break;
        OK(command_take_output(command, record.header.offset, record.stream, record.bytes,
                               record.header.size, &err));
    }
    handover_unmap(&in);
    return command;
}

static void hand_over(void)
{
    struct err err = { 0 };
    struct handover_out out;
    OK(handover_begin(&out, &err));
    OK(command_hand_over(bench.command, &out, &err));
    OK(handover_end(&out, &err));
    vanish(TAKE_PTR(bench.command));
    bench.command = read_back(&out);
    OK(command_go_on(bench.command, &err));
    handover_done(&out);
}

static void type(const char *text, bool eof)
{
    static uint64_t typed;
    Sandstorm__V1__Stdin input = SANDSTORM__V1__STDIN__INIT;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    struct command_refusal refusal = { 0 };
    UNTIL(&bench, bench.stdin_limit >= typed + strlen(text));
    input.offset = typed;
    input.data = (ProtobufCBinaryData){ strlen(text), (uint8_t *)text };
    input.eof = eof;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_STDIN;
    order.stdin = &input;
    cr_assert(command_order(bench.command, &order, &refusal), "%s", refusal.detail);
    typed += strlen(text);
}

static bool saw(const char *text)
{
    return memmem(bench.bytes, bench.next, text, strlen(text)) != NULL;
}

Test(command_handover, output_and_exit_status_are_as_they_would_have_been)
{
    bench.spec.stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
    bench_shell(&bench, "echo one; read x; echo $x; exit 5", 2);
    UNTIL(&bench, command_spooled(bench.command) == 4);
    hand_over();
    type("two\n", true);
    hand_over();
    cr_assert(bench_credit(&bench, 0, NO_LIMIT));
    UNTIL(&bench, bench.ended);
    EXPECT_OUTPUT(&bench, "one\ntwo\n");
    cr_expect_eq(bench.ended->outcome->exited->code, 5u);
    cr_expect_eq(bench.started, 1u);
}

Test(command_handover, a_timeout_keeps_its_deadline)
{
    bench.spec.timeout_ms = LONG_US / 1000;
    bench_shell(&bench, "echo; exec sleep 1000", NO_LIMIT);
    UNTIL(&bench, bench.next == 1);
    loop_timer_start(bench.command->timeout, LONG_US / 2); /* so much time has passed */
    hand_over();
    uint64_t left = loop_timer_left_us(bench.command->timeout);
    cr_expect(left > 0 && left <= LONG_US / 2, "%lu", left);
    cr_expect_eq(bench.command->timeout_us, LONG_US);
    loop_timer_start(bench.command->timeout, 0);
    UNTIL(&bench, bench.ended);
    cr_expect_eq(bench.ended->outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_TIMED_OUT);
    cr_expect_eq(bench.ended->outcome->timed_out->after_ms, LONG_US / 1000);
}

Test(command_handover, a_cancel_in_its_grace_comes_to_its_kill)
{
    bench_shell(&bench,
                "exec 2>/dev/null; trap 'echo term' TERM; echo; while :; do sleep 0.02; done",
                NO_LIMIT);
    UNTIL(&bench, bench.next == 1);
    command_cancel(bench.command, LONG_US, "client asked");
    UNTIL(&bench, bench.next == 6);
    hand_over();
    uint64_t left = loop_timer_left_us(bench.command->kill);
    cr_expect(left > 0 && left <= LONG_US, "%lu", left);
    loop_timer_start(bench.command->kill, 0);
    UNTIL(&bench, bench.ended);
    EXPECT_OUTPUT(&bench, "\nterm\n"); /* once */
    cr_assert_eq(bench.ended->outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_CANCELLED);
    cr_expect_str_eq(bench.ended->outcome->cancelled->reason, "client asked");
    cr_expect_eq(bench.ended->outcome->survivors, 0u);
}

/* The leader obeys; one of its children is in a session of its own, and ignores TERM. */
Test(command_handover, what_is_being_cleared_is_cleared_to_its_end)
{
    bench_shell(&bench,
                "(setsid sh -c \"trap '' TERM; echo; while :; do sleep 1000; done\" &); "
                "exec sleep 1000",
                NO_LIMIT);
    UNTIL(&bench, bench.next == 1);
    command_cancel(bench.command, LONG_US, "client asked");
    UNTIL(&bench, command_state(bench.command) == COMMAND_CLEARING);
    hand_over();
    cr_assert_eq(command_state(bench.command), COMMAND_CLEARING);
    cr_expect(loop_timer_running(bench.command->kill));
    loop_timer_start(bench.command->kill, 0);
    UNTIL(&bench, bench.ended);
    const Sandstorm__V1__Outcome *outcome = bench.ended->outcome;
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_CANCELLED);
    cr_expect_str_eq(outcome->cancelled->reason, "client asked");
    cr_expect_eq(outcome->survivors, 0u);
    cr_expect_not(outcome->stream_held_open);
    cr_expect_gt(outcome->usage->max_rss_bytes, 0u);
    cr_expect_gt(outcome->duration_us, 0u);
}

Test(command_handover, a_leader_that_ends_meanwhile_is_reaped)
{
    bench_shell(&bench, "echo; exec sleep 1000", NO_LIMIT);
    UNTIL(&bench, bench.next == 1);
    command_cancel(bench.command, LONG_US, "client asked");
    siginfo_t info;
    cr_assert_eq(waitid(P_PIDFD, (id_t)bench.command->pidfd, &info, WEXITED | WNOWAIT), 0);
    hand_over();
    cr_assert_eq(command_state(bench.command), COMMAND_RUNNING);
    UNTIL(&bench, bench.ended);
    cr_expect_eq(bench.ended->outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_CANCELLED);
}

Test(command_handover, that_a_client_has_killed_all_of_it_stays_known)
{
    bench_shell(&bench, "echo; exec sleep 1000", NO_LIMIT);
    UNTIL(&bench, bench.next == 1);
    bench.command->swept = true; /* and the leader has not been reaped yet */
    hand_over();
    cr_expect(bench.command->swept);
    cr_assert_eq(kill(bench.command->pid, SIGKILL), 0);
    UNTIL(&bench, bench.ended);
    cr_expect_eq(bench.ended->outcome->signaled->signal, (unsigned)SIGKILL);
}

/* Its end is known, but a process that it left has its output. */
Test(command_handover, one_that_drains_still_counts_its_survivors)
{
    bench_shell(&bench, "sleep 1000 & echo $!; exit 3", NO_LIMIT);
    UNTIL(&bench, command_state(bench.command) == COMMAND_DRAINING);
    hand_over();
    UNTIL(&bench, bench.ended);
    const Sandstorm__V1__Outcome *outcome = bench.ended->outcome;
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED);
    cr_expect_eq(outcome->exited->code, 3u);
    cr_expect_eq(outcome->survivors, 1u);
    cr_expect(outcome->stream_held_open);
    bench.bytes[bench.next] = '\0';
    cr_expect_eq(kill((pid_t)strtol((const char *)bench.bytes, NULL, 10), SIGKILL), 0);
}

Test(command_handover, one_that_has_ended_is_told_as_it_was)
{
    (void)bench_run(&bench, "echo; kill -9 $$");
    hand_over();
    cr_assert(bench_attach(&bench, 0, NO_LIMIT));
    UNTIL(&bench, bench.ended);
    cr_expect_eq(bench.ended->outcome->signaled->signal, (unsigned)SIGKILL);
    cr_expect_eq(bench.ended->outcome->stdout_bytes, 1u);
    cr_expect_gt(bench.ended->outcome->usage->max_rss_bytes, 0u);
}

Test(command_handover, limits_that_are_not_enforced_stay_known)
{
    Sandstorm__V1__Limits limits = SANDSTORM__V1__LIMITS__INIT;
    limits.mode = SANDSTORM__V1__LIMIT_MODE__LIMIT_MODE_BEST_EFFORT;
    limits.pids = 100;
    bench.spec.limits = &limits;
    bench.spec.stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
    bench_shell(&bench, "read x", NO_LIMIT);
    hand_over();
    type("", true);
    UNTIL(&bench, bench.ended);
    cr_assert_eq(bench.ended->outcome->n_not_enforced, 1u);
    cr_expect_str_eq(bench.ended->outcome->not_enforced[0], "pids");
}

static void open_terminal(const char *script)
{
    sandstorm__v1__terminal__init(&terminal);
    bench.spec.terminal = &terminal;
    bench.spec.stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
    bench_shell(&bench, script, NO_LIMIT);
}

Test(command_handover, a_terminal_is_typed_to_before_and_after)
{
    open_terminal("stty -echo; echo ready; read x; echo got $x; read y; echo got $y; [ -t 0 ]");
    UNTIL(&bench, saw("ready"));
    type("one\n", false);
    UNTIL(&bench, saw("got one"));
    hand_over();
    type("two\n", false);
    UNTIL(&bench, bench.ended);
    cr_expect(saw("got two"));
    cr_expect_eq(bench.ended->outcome->exited->code, 0u);
    cr_expect_eq(bench.command->slave, -1);
}

/* One character where a line begins, and it is known whether one does. */
Test(command_handover, the_end_of_a_terminals_input_is_typed_once)
{
    open_terminal("stty -echo; echo ready; cat; echo first; cat; echo second");
    UNTIL(&bench, saw("ready"));
    type("a line\n", false);
    UNTIL(&bench, buf_used(&bench.command->input.bytes) == 0);
    hand_over();
    type("", true);
    UNTIL(&bench, saw("first"));
    cr_expect(saw("a line"));
    hand_over();
    cr_assert(bench.command->input.ended);
    UNTIL(&bench, bench.command->input.fd < 0);
    command_cancel(bench.command, 10000, "client asked");
    UNTIL(&bench, bench.ended);
    cr_expect_not(saw("second"));
}

/* A program that closes its terminal and opens it again is still the leader of a session. */
Test(command_handover, the_slave_of_a_terminal_stays_open)
{
    open_terminal("stty -echo; t=$(tty); exec <&- >&- 2>&-; exec <$t >$t 2>&1; echo ready; read x; "
                  "exec <&- >&- 2>&-; exec <$t >$t 2>&1; echo back $x");
    UNTIL(&bench, saw("ready"));
    cr_assert_geq(bench.command->slave, 0);
    hand_over();
    cr_assert_geq(bench.command->slave, 0);
    type("again\n", false);
    UNTIL(&bench, bench.ended);
    cr_expect(saw("back again"));
}
