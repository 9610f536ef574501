/* A command with a terminal: what it finds there, and how what is typed reaches it through the line
 * discipline. */
#include "tests/unit/terminal_fixture.h"

#include <sys/stat.h>

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
    run_shell(&desk, "trap 'stty size; exit 5' WINCH; " REST, "ready\r\n");
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
