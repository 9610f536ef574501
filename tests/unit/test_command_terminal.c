/* A command with a terminal: what is typed reaches it through the line discipline, what it writes
 * comes back as bytes, and only the end of its leader is its end. */
#include "tests/unit/command_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>

struct desk {
    struct bench bench;
    Sandstorm__V1__Terminal terminal;
    Sandstorm__V1__TerminalSize size;
    uint64_t typed;
};

static void desk_init(struct desk *desk)
{
    bench_init(&desk->bench);
    sandstorm__v1__terminal__init(&desk->terminal);
    sandstorm__v1__terminal_size__init(&desk->size);
    desk->terminal.size = &desk->size;
    desk->typed = 0;
    desk->bench.spec.terminal = &desk->terminal;
    desk->bench.spec.stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
}

static void send_keys(struct desk *desk, const void *data, size_t size, bool eof)
{
    Sandstorm__V1__Stdin input = SANDSTORM__V1__STDIN__INIT;
    input.offset = desk->typed;
    input.data = (ProtobufCBinaryData){ size, (uint8_t *)data };
    input.eof = eof;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_STDIN;
    order.stdin = &input;
    struct command_refusal refusal = { 0 };
    cr_assert(command_order(desk->bench.command, &order, &refusal), "%s", refusal.detail);
    desk->typed += size;
}

static void type(struct desk *desk, const char *text)
{
    UNTIL(&desk->bench, desk->bench.stdin_limit >= desk->typed + strlen(text));
    send_keys(desk, text, strlen(text), false);
}

static bool resize(struct desk *desk, unsigned rows, unsigned columns,
                   struct command_refusal *ret_refusal)
{
    Sandstorm__V1__TerminalSize size = SANDSTORM__V1__TERMINAL_SIZE__INIT;
    size.rows = rows;
    size.columns = columns;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_RESIZE;
    order.resize = &size;
    return command_order(desk->bench.command, &order, ret_refusal);
}

static bool saw(const struct desk *desk, const char *text)
{
    return memmem(desk->bench.bytes, desk->bench.next, text, strlen(text)) != NULL;
}

static void run_shell(struct desk *desk, const char *text, const char *until)
{
    bench_shell(&desk->bench, text, NO_LIMIT);
    UNTIL(&desk->bench, saw(desk, until));
}

static void expect_exit(struct desk *desk, unsigned code)
{
    UNTIL(&desk->bench, desk->bench.ended);
    const Sandstorm__V1__Outcome *outcome = desk->bench.ended->outcome;
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED);
    cr_expect_eq(outcome->exited->code, code, "exit code %u", outcome->exited->code);
}

static void expect_run(struct desk *desk, const char *text, const char *output)
{
    bench_shell(&desk->bench, text, NO_LIMIT);
    expect_exit(desk, 0);
    EXPECT_OUTPUT(&desk->bench, output);
}

/* What it is. */

Test(command_terminal, all_three_streams_are_the_controlling_terminal_and_come_as_stdout)
{
    struct desk desk;
    desk_init(&desk);
    expect_run(&desk,
               "test -t 0 && test -t 1 && test -t 2 && echo all > /dev/tty && echo three >&2",
               "all\r\nthree\r\n");
    cr_expect(desk.bench.terminal, "started does not say that it is a terminal");
    for (uint64_t i = 0; i < desk.bench.next; i++)
        cr_assert_eq(desk.bench.streams[i], SANDSTORM__V1__STREAM__STREAM_STDOUT);
    cr_expect_eq(desk.bench.ended->outcome->stdout_bytes, desk.bench.next);
    cr_expect_eq(desk.bench.ended->outcome->stderr_bytes, 0u);
    cr_expect_not(desk.bench.ended->outcome->stream_held_open);
    bench_done(&desk.bench);
}

Test(command_terminal, without_one_there_is_no_controlling_terminal)
{
    struct bench bench;
    bench_init(&bench);
    const Sandstorm__V1__Outcome *outcome =
        bench_run(&bench, "(: > /dev/tty) 2>&- || printf '%s' ${TERM-none}");
    cr_expect_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED);
    cr_expect_not(bench.terminal);
    EXPECT_OUTPUT(&bench, "none");
    bench_done(&bench);
}

Test(command_terminal, the_command_has_three_descriptors_and_no_more)
{
    struct desk desk;
    desk_init(&desk);
    expect_run(&desk, "ls -m /proc/$$/fd", "0, 1, 2\r\n");
    bench_done(&desk.bench);
}

Test(command_terminal, its_name_belongs_to_the_user_who_runs_in_it)
{
    if (geteuid() != 0)
        cr_skip_test("only root can give a terminal away");
    struct err err = { 0 };
    struct command command = { .slave = -1, .input.fd = -1 };
    Sandstorm__V1__Terminal terminal = SANDSTORM__V1__TERMINAL__INIT;
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    spec.terminal = &terminal;
    int fds[3];
    cr_assert_eq(command_terminal_open(&command, &spec, 12345, fds, &err), 0, "%s", err.text);
    for (int i = 0; i < 3; i++) {
        struct stat file;
        cr_expect(fstat(fds[i], &file) == 0 && file.st_uid == 12345);
        close_fd(&fds[i]);
    }
    command_terminal_let_go(&command);
    close_fd(&command.input.fd);
    close_fd(&command.pipes[0].fd);
}

Test(command_terminal, the_variable_is_the_commands_own_or_the_type_or_xterm)
{
    static Sandstorm__V1__EnvVar variable = SANDSTORM__V1__ENV_VAR__INIT;
    static Sandstorm__V1__EnvVar *env[] = { &variable };
    variable.name = (char *)"TERM";
    variable.value = (char *)"vt220";
    static const struct {
        const char *type;
        bool clear, own;
        const char *expected;
    } rows[] = {
        { "", false, false, "xterm\r\n" },      { "screen", false, false, "screen\r\n" },
        { "screen", false, true, "vt220\r\n" }, { "", true, false, "xterm\r\n" },
        { "", true, true, "vt220\r\n" },
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        struct desk desk;
        desk_init(&desk);
        desk.terminal.type = (char *)rows[i].type;
        desk.bench.spec.env_clear = rows[i].clear;
        desk.bench.spec.env = env;
        desk.bench.spec.n_env = rows[i].own ? 1 : 0;
        expect_run(&desk, "echo $TERM", rows[i].expected);
        bench_done(&desk.bench);
    }
}

/* Its size. */

Test(command_terminal, a_size_of_zero_is_the_usual_one)
{
    static const struct {
        unsigned rows, columns;
        const char *expected;
    } rows[] = {
        { 0, 0, "24 80\r\n" },
        { 0, 100, "24 100\r\n" },
        { 50, 0, "50 80\r\n" },
        { 1, 1, "1 1\r\n" },
        { 65535, 65535, "65535 65535\r\n" },
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        struct desk desk;
        desk_init(&desk);
        desk.size.rows = rows[i].rows;
        desk.size.columns = rows[i].columns;
        expect_run(&desk, "stty size", rows[i].expected);
        bench_done(&desk.bench);
    }
}

Test(command_terminal, a_size_that_was_not_given_is_the_usual_one)
{
    struct desk desk;
    desk_init(&desk);
    desk.terminal.size = NULL;
    expect_run(&desk, "stty size", "24 80\r\n");
    bench_done(&desk.bench);
}

Test(command_terminal, a_size_that_no_terminal_can_have_is_refused)
{
    static const unsigned sizes[][2] = { { 65536, 80 }, { 24, 65536 }, { UINT32_MAX, UINT32_MAX } };
    for (size_t i = 0; i < ELEMENTS(sizes); i++) {
        struct desk desk;
        desk_init(&desk);
        desk.size.rows = sizes[i][0];
        desk.size.columns = sizes[i][1];
        bench_shell(&desk.bench, "exit 0", 0);
        UNTIL(&desk.bench, desk.bench.ended);
        const Sandstorm__V1__Outcome *outcome = desk.bench.ended->outcome;
        cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_START_FAILED);
        cr_expect_eq(outcome->start_failed->step, SANDSTORM__V1__START_STEP__START_STEP_SPEC);
        cr_expect_str_eq(outcome->start_failed->errno_name, "EINVAL");
        bench_done(&desk.bench);
    }
}

Test(command_terminal, a_resize_is_a_signal_and_a_size)
{
    struct desk desk;
    desk_init(&desk);
    struct command_refusal refusal;
    run_shell(&desk, "trap 'stty size; exit 5' WINCH; echo ready; while :; do read line; done",
              "ready\r\n");
    cr_assert(resize(&desk, 40, 132, &refusal));
    expect_exit(&desk, 5);
    cr_expect(saw(&desk, "\n40 132\r\n"));
    bench_done(&desk.bench);
}

Test(command_terminal, of_a_million_resizes_the_last_one_counts)
{
    struct desk desk;
    desk_init(&desk);
    struct command_refusal refusal;
    run_shell(&desk, "echo ready; read line; stty size", "ready\r\n");
    for (unsigned i = 1; i <= 1000000; i++)
        cr_assert(resize(&desk, i % 1000, i % 500, &refusal));
    cr_assert(resize(&desk, 40, 132, &refusal));
    type(&desk, "\n");
    expect_exit(&desk, 0);
    cr_expect(saw(&desk, "\n40 132\r\n"));
    bench_done(&desk.bench);
}

Test(command_terminal, a_resize_that_no_terminal_can_follow_changes_nothing)
{
    struct desk desk;
    desk_init(&desk);
    struct command_refusal refusal = { 0 };
    run_shell(&desk, "echo ready; read line; stty size", "ready\r\n");
    cr_expect_not(resize(&desk, 65536, 80, &refusal));
    cr_expect_eq(refusal.reason, SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_UNSUPPORTED);
    type(&desk, "\n");
    expect_exit(&desk, 0);
    cr_expect(saw(&desk, "\n24 80\r\n"));
    cr_expect(resize(&desk, 40, 132, &refusal), "a window that changes too late is no mistake");
    bench_done(&desk.bench);
}

Test(command_terminal, a_command_without_one_cannot_be_resized)
{
    struct desk desk;
    desk_init(&desk);
    desk.bench.spec.terminal = NULL;
    struct command_refusal refusal = { 0 };
    bench_shell(&desk.bench, "read line", NO_LIMIT);
    cr_expect_not(resize(&desk, 24, 80, &refusal));
    cr_expect_eq(refusal.reason, SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_UNSUPPORTED);
    bench_done(&desk.bench);
}

/* Keys. */

Test(command_terminal, what_is_typed_is_echoed_and_read_by_the_line)
{
    struct desk desk;
    desk_init(&desk);
    run_shell(&desk, "echo ready; read line; echo \"<$line>\"", "ready\r\n");
    type(&desk, "help\177lo\n");
    expect_exit(&desk, 0);
    EXPECT_OUTPUT(&desk.bench, "ready\r\nhelp\b \blo\r\n<hello>\r\n");
    bench_done(&desk.bench);
}

Test(command_terminal, erasing_takes_a_character_and_not_a_byte)
{
    struct desk desk;
    desk_init(&desk);
    run_shell(&desk, "echo ready; read line; echo \"<$line>\"", "ready\r\n");
    type(&desk, "a\xc3\xa9\177b\n");
    expect_exit(&desk, 0);
    cr_expect(saw(&desk, "<ab>\r\n"));
    bench_done(&desk.bench);
}

static void expect_signal(const char *key, int number)
{
    struct desk desk;
    desk_init(&desk);
    run_shell(&desk, "ulimit -c 0; echo ready; exec sleep 1000", "ready\r\n");
    type(&desk, key);
    UNTIL(&desk.bench, desk.bench.ended);
    const Sandstorm__V1__Outcome *outcome = desk.bench.ended->outcome;
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_SIGNALED);
    cr_expect_eq(outcome->signaled->signal, (unsigned)number);
    bench_done(&desk.bench);
}

Test(command_terminal, control_c_interrupts)
{
    expect_signal("\003", SIGINT);
}

Test(command_terminal, control_backslash_quits)
{
    expect_signal("\034", SIGQUIT);
}

Test(command_terminal, control_c_reaches_the_foreground_and_not_the_shell)
{
    struct desk desk;
    desk_init(&desk);
    run_shell(&desk, "set -m; trap : INT; sh -c 'echo ready; exec sleep 1000'; echo \"job $?\"",
              "ready\r\n");
    type(&desk, "\003");
    expect_exit(&desk, 0);
    cr_expect(saw(&desk, "job 130\r\n"));
    bench_done(&desk.bench);
}

Test(command_terminal, control_z_stops_the_foreground)
{
    struct desk desk;
    desk_init(&desk);
    run_shell(&desk,
              "set -m; sh -c 'echo ready; exec sleep 1000'; echo \"job $?\"; kill -KILL %1; wait",
              "ready\r\n");
    type(&desk, "\032");
    UNTIL(&desk.bench, desk.bench.ended);
    cr_expect(saw(&desk, "job 148\r\n"));
    bench_done(&desk.bench);
}

Test(command_terminal, a_reader_in_the_background_is_stopped)
{
    struct desk desk;
    desk_init(&desk);
    bench_shell(&desk.bench,
                "set -m; cat & until grep -q '^State:.T' /proc/$!/status; do :; done;"
                "echo stopped; kill -KILL $!; wait",
                NO_LIMIT);
    UNTIL(&desk.bench, desk.bench.ended);
    cr_expect(saw(&desk, "stopped\r\n"));
    bench_done(&desk.bench);
}

/* The end of input. */

Test(command_terminal, the_end_of_input_is_typed)
{
    struct desk desk;
    desk_init(&desk);
    bench_shell(&desk.bench, "cat; echo done", NO_LIMIT);
    type(&desk, "hello\n");
    UNTIL(&desk.bench, saw(&desk, "hello\r\nhello\r\n"));
    send_keys(&desk, "", 0, true);
    expect_exit(&desk, 0);
    EXPECT_OUTPUT(&desk.bench, "hello\r\nhello\r\ndone\r\n");
    bench_done(&desk.bench);
}

Test(command_terminal, the_end_of_input_in_an_open_line_ends_the_line_first)
{
    struct desk desk;
    desk_init(&desk);
    run_shell(&desk, "stty -echo; echo ready; cat; echo done", "ready\r\n");
    send_keys(&desk, "abc", 3, true);
    expect_exit(&desk, 0);
    EXPECT_OUTPUT(&desk.bench, "ready\r\nabcdone\r\n");
    bench_done(&desk.bench);
}

Test(command_terminal, the_end_of_input_is_the_character_of_the_settings)
{
    struct desk desk;
    desk_init(&desk);
    run_shell(&desk, "stty -echo eof X; echo ready; cat; echo done", "ready\r\n");
    type(&desk, "\004\n");
    UNTIL(&desk.bench, saw(&desk, "ready\r\n\004\r\n"));
    send_keys(&desk, "", 0, true);
    expect_exit(&desk, 0);
    EXPECT_OUTPUT(&desk.bench, "ready\r\n\004\r\ndone\r\n");
    bench_done(&desk.bench);
}

Test(command_terminal, the_end_of_input_types_nothing_where_bytes_are_read)
{
    struct desk desk;
    desk_init(&desk);
    run_shell(&desk,
              "stty raw -echo; echo ready; head -c 1; stty min 0 time 0; head -c 1 | wc -c; exit 3",
              "ready\n");
    send_keys(&desk, "x", 1, true);
    expect_exit(&desk, 3);
    EXPECT_OUTPUT(&desk.bench, "ready\nx0\n");
    bench_done(&desk.bench);
}

Test(command_terminal, without_input_the_first_read_is_at_the_end)
{
    struct desk desk;
    desk_init(&desk);
    desk.bench.spec.stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_UNSPECIFIED;
    expect_run(&desk, "cat; echo done", "done\r\n");
    bench_done(&desk.bench);
}

Test(command_terminal, inline_input_is_typed_and_ends)
{
    struct desk desk;
    desk_init(&desk);
    desk.bench.spec.stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_INLINE;
    desk.bench.spec.stdin_data = (ProtobufCBinaryData){ 4, (uint8_t *)"one\n" };
    bench_shell(&desk.bench, "cat; echo done", NO_LIMIT);
    expect_exit(&desk, 0);
    cr_expect(saw(&desk, "one\r\ndone\r\n"));
    bench_done(&desk.bench);
}

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

Test(command_terminal, a_terminal_that_nobody_has_open_is_not_the_end_and_wakes_nobody)
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

Test(command_terminal, the_foreground_hears_of_its_leaders_death)
{
    struct desk desk;
    desk_init(&desk);
    run_shell(&desk, "set -m; sh -c 'trap \"echo hung up; exit\" HUP; echo ready; read x'; :",
              "ready\r\n");
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

Test(command_terminal, a_job_that_is_left_behind_does_not_hold_the_end_and_lives_on)
{
    struct desk desk;
    desk_init(&desk);
    bench_shell(&desk.bench, "set -m; sleep 1000 & echo $!", NO_LIMIT);
    expect_exit(&desk, 0);
    cr_expect(desk.bench.ended->outcome->stream_held_open);
    desk.bench.bytes[desk.bench.next] = '\0';
    pid_t left = (pid_t)strtol((const char *)desk.bench.bytes, NULL, 10);
    cr_assert_gt(left, 1);
    cr_expect_eq(kill(left, SIGKILL), 0, "it was killed although it may live on");
    /* With the last one gone the terminal is at its end, also for us. */
    UNTIL(&desk.bench, desk.bench.command->pipes[0].fd < 0);
    bench_done(&desk.bench);
}

Test(command_terminal, a_job_that_writes_without_end_does_not_hold_the_end)
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

Test(command_terminal, an_interactive_shell_can_be_cancelled)
{
    struct desk desk;
    desk_init(&desk);
    run_shell(&desk, "PS1='prompt> ' exec bash --norc --noprofile -i", "prompt> ");
    command_cancel(desk.bench.command, BENCH_DEADLINE_US * 10, "client asked");
    UNTIL(&desk.bench, desk.bench.ended);
    cr_expect_eq(desk.bench.ended->outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_CANCELLED);
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

Test(command_terminal, all_that_was_written_before_the_end_is_read)
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

Test(command_terminal, what_the_kernel_still_holds_at_the_end_waits_for_room)
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

Test(command_terminal, in_raw_mode_every_byte_passes_both_ways)
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

Test(command_terminal, input_that_nobody_reads_waits_and_is_not_lost)
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

Test(command_terminal, it_goes_on_while_the_link_is_away)
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
