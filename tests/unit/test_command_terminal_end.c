/* A command with a terminal: only the end of its leader is its end, and no byte is lost on either
 * way while it lives. */
#include "tests/unit/terminal_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>

/* Who holds it, and who is gone. */

/* A pair of events between a test and a shell, without time. */
static void make_gate(char path[32])
{
    (void)snprintf(path, 32, "/tmp/test-terminal-XXXXXX");
    close(mkstemp(path));
    (void)unlink(path);
    cr_assert_eq(mkfifo(path, 0600), 0);
}

/* Opens when the other side has opened it to read. */
static void open_gate(const char *path)
{
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    cr_assert_eq(write(fd, "\n", 1), 1);
}

static void wait_gate(const char *path)
{
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    char byte;
    cr_assert_eq(read(fd, &byte, 1), 1);
}

Test(command_terminal_end, a_terminal_that_nobody_has_open_is_not_the_end_and_wakes_nobody)
{
    char closed[32], gate[32], script[256];
    make_gate(closed);
    make_gate(gate);
    struct desk desk;
    desk_init(&desk);
    (void)snprintf(script, sizeof(script),
                   "echo before; exec < /dev/null > /dev/null 2>&1; echo > %s; read x < %s;"
                   "exec > /dev/tty; echo again; exit 4",
                   closed, gate);
    run_shell(&desk, script, "before\r\n");
    wait_gate(closed);
    struct pollfd master = { .fd = desk.bench.command->pipes[0].fd, .events = POLLIN };
    cr_expect_eq(poll(&master, 1, 0), 0, "the loop would turn and turn: %#x",
                 (unsigned)master.revents);
    cr_expect_eq(command_state(desk.bench.command), COMMAND_RUNNING);
    open_gate(gate);
    expect_exit(&desk, 4);
    EXPECT_OUTPUT(&desk.bench, "before\r\nagain\r\n");
    (void)unlink(closed);
    (void)unlink(gate);
    bench_done(&desk.bench);
}

Test(command_terminal_end, the_foreground_hears_of_its_leaders_death)
{
    struct desk desk;
    desk_init(&desk);
    run_shell(&desk, "set -m; sh -c 'trap \"echo hung up; exit\" HUP; " REST "'; :", "ready\r\n");
    cr_assert_eq(kill(desk.bench.command->pid, SIGKILL), 0);
    UNTIL(&desk.bench, command_state(desk.bench.command) != COMMAND_RUNNING);
    /* However slow this machine is: the drain waits for the last words. */
    if (command_state(desk.bench.command) == COMMAND_DRAINING)
        loop_timer_start(desk.bench.command->drain, BENCH_DEADLINE_US);
    UNTIL(&desk.bench, desk.bench.ended);
    cr_expect_eq(desk.bench.ended->outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_SIGNALED);
    cr_expect_not(desk.bench.ended->outcome->stream_held_open);
    cr_expect(saw(&desk, "hung up\r\n"));
    bench_done(&desk.bench);
}

Test(command_terminal_end, a_job_that_is_left_behind_does_not_hold_the_end_and_lives_on)
{
    struct desk desk;
    desk_init(&desk);
    bench_shell(&desk.bench, "set -m; sleep 1000 & echo $!", NO_LIMIT);
    expect_exit(&desk, 0);
    cr_expect(desk.bench.ended->outcome->stream_held_open);
    desk.bench.bytes[desk.bench.next] = '\0';
    pid_t left = (pid_t)strtol((const char *)desk.bench.bytes, NULL, 10);
    cr_assert_gt(left, 1);
    cr_expect_leq(count_turns(&desk), 2u, "the loop turns and turns");
    cr_expect_eq(kill(left, SIGKILL), 0, "it was killed although it may live on");
    /* With the last one gone the terminal is at its end, also for us. */
    UNTIL(&desk.bench, desk.bench.command->pipes[0].fd < 0);
    bench_done(&desk.bench);
}

Test(command_terminal_end, a_job_that_writes_without_end_does_not_hold_the_end)
{
    struct desk desk;
    desk_init(&desk);
    desk.bench.spec.output_policy = SANDSTORM__V1__OUTPUT_POLICY__OUTPUT_POLICY_DROP_OLDEST;
    bench_shell(&desk.bench, "set -m; yes & echo $!; exit 6", 16);
    UNTIL(&desk.bench, desk.bench.settled);
    cr_expect_eq(desk.bench.settled_code, 6u);
    desk.bench.bytes[desk.bench.next] = '\0';
    pid_t left = (pid_t)strtol((const char *)desk.bench.bytes, NULL, 10);
    cr_expect(left > 1 && kill(left, SIGKILL) == 0);
    bench_done(&desk.bench);
}

/* An interactive shell ignores TERM too. */
Test(command_terminal_end, who_ignores_term_hangs_up)
{
    struct desk desk;
    desk_init(&desk);
    run_shell(&desk, "trap '' TERM; trap 'echo hung up; exit' HUP; " REST, "ready\r\n");
    command_cancel(desk.bench.command, BENCH_DEADLINE_US * 10, "client asked");
    UNTIL(&desk.bench, desk.bench.ended);
    cr_expect_eq(desk.bench.ended->outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_CANCELLED);
    cr_expect(saw(&desk, "hung up\r\n"));
    bench_done(&desk.bench);
}

/* Bytes. */

static void acknowledge_until_ended(struct desk *desk)
{
    while (!desk->bench.ended) {
        uint64_t acked = desk->bench.next;
        UNTIL(&desk->bench, desk->bench.next > acked || desk->bench.ended);
        if (!desk->bench.ended)
            cr_assert(bench_credit(&desk->bench, desk->bench.next, NO_LIMIT));
    }
}

Test(command_terminal_end, all_that_was_written_before_the_end_is_read)
{
    for (unsigned i = 0; i < 20; i++) {
        struct desk desk;
        desk_init(&desk);
        bench_shell(&desk.bench, "seq 1 3000", NO_LIMIT);
        expect_exit(&desk, 0);
        cr_assert_eq(desk.bench.next, 9u * 2 + 90 * 3 + 900 * 4 + 2001 * 5 + 3000);
        cr_assert_eq(memcmp(desk.bench.bytes + desk.bench.next - 6, "3000\r\n", 6), 0);
        bench_done(&desk.bench);
    }
}

Test(command_terminal_end, what_the_kernel_still_holds_at_the_end_waits_for_room)
{
    /* The spool is full before the leader ends, and the kernel keeps the rest. */
    const uint64_t total = SPOOL_BYTES_MAX + 2000;
    struct desk desk;
    desk_init(&desk);
    desk.bench.spec.output_policy = SANDSTORM__V1__OUTPUT_POLICY__OUTPUT_POLICY_BLOCK;
    char script[96];
    (void)snprintf(script, sizeof(script), "head -c %llu /dev/zero | tr '\\0' x",
                   (unsigned long long)total);
    bench_shell(&desk.bench, script, NO_LIMIT);
    UNTIL(&desk.bench, desk.bench.command->drain_over);
    cr_expect_eq(command_state(desk.bench.command), COMMAND_DRAINING);
    cr_expect_eq(desk.bench.next, SPOOL_BYTES_MAX);
    cr_assert(bench_credit(&desk.bench, desk.bench.next, NO_LIMIT));
    acknowledge_until_ended(&desk);
    cr_expect_eq(desk.bench.ended->end_offset, total);
    bench_done(&desk.bench);
}

#define RAW_BYTES (1u << 20)

static uint8_t *raw_bytes(void)
{
    uint8_t *bytes = malloc(RAW_BYTES);
    cr_assert_not_null(bytes);
    uint32_t state = 1;
    for (size_t i = 0; i < RAW_BYTES; i++) {
        bytes[i] = i < 256 ? (uint8_t)i : (uint8_t)(state >> 24);
        state = state * 1664525u + 1013904223u;
    }
    return bytes;
}

/* What the credit allows of the bytes that are left. */
static uint64_t sendable(const struct desk *desk)
{
    return MIN(desk->bench.stdin_limit, RAW_BYTES) - desk->typed;
}

static void send_some(struct desk *desk, const uint8_t *bytes)
{
    uint64_t size = MIN(sendable(desk), (uint64_t)WIRE_PAYLOAD_MAX);
    if (size > 0)
        send_keys(desk, bytes + desk->typed, (size_t)size, false);
}

Test(command_terminal_end, in_raw_mode_every_byte_passes_both_ways)
{
    uint8_t *bytes = raw_bytes();
    struct desk desk;
    desk_init(&desk);
    run_shell(&desk, "stty raw -echo; printf ready; exec head -c 1048576", "ready");
    uint64_t acked = 0;
    while (desk.bench.next < RAW_BYTES + 5) {
        send_some(&desk, bytes);
        UNTIL(&desk.bench, desk.bench.next > acked || sendable(&desk) > 0);
        acked = desk.bench.next;
        cr_assert(bench_credit(&desk.bench, acked, NO_LIMIT));
    }
    expect_exit(&desk, 0);
    cr_expect_eq(desk.bench.next, RAW_BYTES + 5);
    cr_expect_eq(memcmp(desk.bench.bytes + 5, bytes, RAW_BYTES), 0);
    free(bytes);
    bench_done(&desk.bench);
}

/* The kernel takes no more, and neither does the runner. */
static bool is_stuck(const struct desk *desk)
{
    const struct command_stdin *input = &desk->bench.command->input;
    return sendable(desk) == 0 && buf_used(&input->bytes) > COMMAND_STDIN_WINDOW / 2;
}

Test(command_terminal_end, input_that_nobody_reads_waits_and_is_not_lost)
{
    char gate[32], file[] = "/tmp/test-terminal-XXXXXX", script[256];
    uint8_t *bytes = raw_bytes();
    CLEANUP_FD int fd = mkstemp(file);
    cr_assert_eq(write(fd, bytes, RAW_BYTES), (ssize_t)RAW_BYTES);
    make_gate(gate);
    struct desk desk;
    desk_init(&desk);
    (void)snprintf(script, sizeof(script),
                   "stty raw -echo; printf ready; read x < %s; head -c 1048576 | cmp - %s", gate,
                   file);
    run_shell(&desk, script, "ready");
    while (!is_stuck(&desk)) {
        send_some(&desk, bytes);
        cr_assert_lt(desk.typed, RAW_BYTES / 2, "nobody holds the sender back");
        UNTIL(&desk.bench, sendable(&desk) > 0 || is_stuck(&desk));
    }
    open_gate(gate);
    while (desk.typed < RAW_BYTES) {
        UNTIL(&desk.bench, sendable(&desk) > 0);
        send_some(&desk, bytes);
    }
    expect_exit(&desk, 0);
    EXPECT_OUTPUT(&desk.bench, "ready");
    (void)unlink(gate);
    (void)unlink(file);
    free(bytes);
    bench_done(&desk.bench);
}

Test(command_terminal_end, where_nothing_happens_the_loop_rests)
{
    static const struct {
        const char *shell, *typed;
    } rows[] = {
        { "stty -echo; echo ready; read line", "" },
        { "stty -echo; echo ready; read line; exec < /dev/null > /dev/null 2>&1; sleep 1000",
          "\n" },
        { "stty -echo; echo ready; sleep 1000", "typed\n\023" },
        { "stty -echo; echo ready; read line; exec yes", "\n" },
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        struct desk desk;
        desk_init(&desk);
        desk.bench.spec.output_policy = SANDSTORM__V1__OUTPUT_POLICY__OUTPUT_POLICY_BLOCK;
        run_shell(&desk, rows[i].shell, "ready\r\n");
        type(&desk, rows[i].typed);
        /* Until it rests: what was to happen has happened. */
        unsigned turns = 0;
        for (unsigned tries = 0; tries < 50; tries++) {
            bench_listen(&desk.bench);
            turns = count_turns(&desk);
            if (turns <= 2)
                break;
        }
        cr_expect_leq(turns, 2u, "%u turns of the loop with \"%s\"", turns, rows[i].shell);
        bench_done(&desk.bench);
    }
}

Test(command_terminal_end, it_goes_on_while_the_link_is_away)
{
    struct desk desk;
    desk_init(&desk);
    run_shell(&desk, "stty -echo; echo ready; read x; echo meanwhile; exit 3", "ready\r\n");
    command_mute(desk.bench.command);
    send_keys(&desk, "\n", 1, false);
    UNTIL(&desk.bench, desk.bench.settled);
    cr_expect_eq(desk.bench.next, 7u, "output for nobody");
    cr_assert(bench_attach(&desk.bench, 0, NO_LIMIT));
    expect_exit(&desk, 3);
    EXPECT_OUTPUT(&desk.bench, "ready\r\nmeanwhile\r\n");
    bench_done(&desk.bench);
}
