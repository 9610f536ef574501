/* How a command ends: every outcome that a process, a peer or a bad spec can lead to, told as what
 * it was. */
#include "tests/unit/command_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>

static void expect_exit(const char *text, unsigned code)
{
    struct bench bench;
    bench_init(&bench);
    const Sandstorm__V1__Outcome *outcome = bench_run(&bench, text);
    cr_expect_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED, "%s", text);
    cr_expect_eq(outcome->exited->code, code, "%s", text);
    cr_expect_eq(bench.started, 1u);
    cr_expect_not(outcome->stream_held_open);
    bench_done(&bench);
}

Test(command, an_exit_code_is_told_as_it_is)
{
    expect_exit("exit 0", 0);
    expect_exit("exit 1", 1);
    expect_exit("exit 126", 126);
    expect_exit("exit 127", 127);
    expect_exit("exit 255", 255);
}

Test(command, times_usage_and_bytes_are_told)
{
    struct bench bench;
    bench_init(&bench);
    int64_t before = wall_us();
    const Sandstorm__V1__Outcome *outcome = bench_run(&bench, "printf four; printf seven77 >&2");
    cr_expect(outcome->started_unix_us >= before && outcome->ended_unix_us <= wall_us());
    cr_expect_geq(outcome->ended_unix_us, outcome->started_unix_us);
    cr_expect_gt(outcome->duration_us, 0u);
    cr_expect_gt(outcome->usage->max_rss_bytes, 4096u);
    cr_expect_eq(outcome->stdout_bytes, 4u);
    cr_expect_eq(outcome->stderr_bytes, 7u);
    cr_expect_eq(bench.ended->end_offset, 11u);
    bench_done(&bench);
}

Test(command, death_by_signal_is_no_exit_code)
{
    struct bench bench;
    bench_init(&bench);
    const Sandstorm__V1__Outcome *outcome = bench_run(&bench, "kill -KILL $$");
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_SIGNALED);
    cr_expect_eq(outcome->signaled->signal, (unsigned)SIGKILL);
    cr_expect_str_eq(outcome->signaled->name, "KILL");
    cr_expect_not(outcome->signaled->core_dumped);
    bench_done(&bench);
}

/* Whether this machine dumps core is its own business: a process of the test's own is the measure.
 */
Test(command, the_core_flag_is_what_the_kernel_says)
{
    char dir[] = "/tmp/test-command-XXXXXX", core[64];
    cr_assert(mkdtemp(dir) && chdir(dir) == 0);
    const struct rlimit limit = { 1u << 24, 1u << 24 };
    (void)setrlimit(RLIMIT_CORE, &limit);
    struct bench bench;
    bench_init(&bench);
    bench.spec.cwd = dir;
    const Sandstorm__V1__Outcome *outcome = bench_run(&bench, "kill -ABRT $$");
    pid_t pid = fork();
    if (pid == 0) {
        (void)execl("/bin/sh", "sh", "-c", "kill -ABRT $$", (char *)NULL);
        _exit(127);
    }
    siginfo_t info = { 0 };
    cr_assert_eq(waitid(P_PID, (id_t)pid, &info, WEXITED), 0);
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_SIGNALED);
    cr_expect_eq(outcome->signaled->core_dumped, info.si_code == CLD_DUMPED);
    cr_expect_eq(outcome->signaled->signal, (unsigned)info.si_status);
    bench_done(&bench);
    (void)snprintf(core, sizeof(core), "rm -rf %s", dir);
    cr_expect_eq(system(core), 0);
}

Test(command, a_timeout_kills_and_keeps_what_was_said)
{
    struct bench bench;
    bench_init(&bench);
    bench.spec.timeout_ms = 200;
    const Sandstorm__V1__Outcome *outcome = bench_run(&bench, "echo so far; exec sleep 1000");
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_TIMED_OUT);
    cr_expect_eq(outcome->timed_out->after_ms, 200u);
    cr_expect_geq(outcome->duration_us, 200000u);
    EXPECT_OUTPUT(&bench, "so far\n");
    bench_done(&bench);
}

Test(command, who_ignores_term_is_killed_after_the_grace)
{
    struct bench bench;
    bench_init(&bench);
    bench.spec.kill_grace_ms = 50;
    bench_shell(&bench, "trap '' TERM; echo ready; while :; do sleep 1000; done", NO_LIMIT);
    UNTIL(&bench, bench.next == 6);
    command_cancel(bench.command, 0, "client asked");
    UNTIL(&bench, bench.ended);
    const Sandstorm__V1__Outcome *outcome = bench.ended->outcome;
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_CANCELLED);
    cr_expect_str_eq(outcome->cancelled->reason, "client asked");
    bench_done(&bench);
}

Test(command, a_stopped_command_can_be_cancelled)
{
    struct bench bench;
    bench_init(&bench);
    bench_shell(&bench, "echo ready; kill -STOP $$; exit 3", NO_LIMIT);
    UNTIL(&bench, bench.next == 6);
    siginfo_t info = { 0 };
    cr_assert_eq(waitid(P_PID, (id_t)bench.command->pid, &info, WSTOPPED | WNOWAIT), 0);
    command_cancel(bench.command, BENCH_DEADLINE_US, "client asked");
    UNTIL(&bench, bench.ended);
    cr_expect_eq(bench.ended->outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_CANCELLED);
    bench_done(&bench);
}

/* What does not start. */

static void expect_failure(struct bench *bench, Sandstorm__V1__StartStep step, const char *name)
{
    bench_start(bench, 0);
    UNTIL(bench, bench->ended);
    const Sandstorm__V1__Outcome *outcome = bench->ended->outcome;
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_START_FAILED);
    cr_expect_eq(outcome->start_failed->step, step, "step %d: %s", outcome->start_failed->step,
                 outcome->start_failed->detail);
    cr_expect_str_eq(outcome->start_failed->errno_name, name, "%s", outcome->start_failed->detail);
    cr_expect_str_neq(outcome->start_failed->detail, "");
    cr_expect_eq(bench->started, 0u);
    cr_expect_eq(bench->next, 0u);
    bench_done(bench);
}

static void expect_exec_failure(const char *program, const char *name)
{
    struct bench bench;
    bench_init(&bench);
    char *argv[] = { (char *)program };
    bench.spec.argv = argv;
    bench.spec.n_argv = 1;
    expect_failure(&bench, SANDSTORM__V1__START_STEP__START_STEP_EXEC, name);
}

Test(command, a_program_that_cannot_run_is_start_failed_at_exec)
{
    expect_exec_failure("/nonexistent/program", "ENOENT");
    expect_exec_failure("no-program-of-this-name", "ENOENT");
    expect_exec_failure("/etc/passwd", "EACCES");
    expect_exec_failure("/etc", "EACCES");
}

Test(command, a_working_directory_that_is_not_there_is_start_failed_at_cwd)
{
    struct bench bench;
    bench_init(&bench);
    bench.spec.shell = (char *)"exit 0";
    bench.spec.cwd = (char *)"/nonexistent";
    expect_failure(&bench, SANDSTORM__V1__START_STEP__START_STEP_CWD, "ENOENT");
}

Test(command, too_few_descriptors_are_start_failed_at_pipes)
{
    struct bench bench;
    bench_init(&bench);
    bench.spec.shell = (char *)"exit 0";
    const struct rlimit limit = { 256, 256 };
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    int fd, last[2] = { -1, -1 };
    for (unsigned i = 0; (fd = dup(0)) >= 0; i++)
        last[i % 2] = fd;
    /* Two are enough to look a user up, and too few for the pipes. */
    close_fd(&last[0]);
    close_fd(&last[1]);
    expect_failure(&bench, SANDSTORM__V1__START_STEP__START_STEP_PIPES, "EMFILE");
}

static void break_argv_and_shell(Sandstorm__V1__CommandSpec *spec)
{
    static char *argv[] = { (char *)"true" };
    spec->argv = argv;
    spec->n_argv = 1;
}

static void break_nothing_to_run(Sandstorm__V1__CommandSpec *spec)
{
    spec->shell = (char *)"";
}

static void break_empty_program(Sandstorm__V1__CommandSpec *spec)
{
    static char *argv[] = { (char *)"" };
    spec->shell = (char *)"";
    spec->argv = argv;
    spec->n_argv = 1;
}

static void break_cwd(Sandstorm__V1__CommandSpec *spec)
{
    spec->cwd = (char *)"tmp";
}

static void break_stdin_mode(Sandstorm__V1__CommandSpec *spec)
{
    spec->stdin_mode = (Sandstorm__V1__StdinMode)7;
}

static void break_time(Sandstorm__V1__CommandSpec *spec)
{
    spec->timeout_ms = UINT64_MAX;
}

static void break_env(Sandstorm__V1__CommandSpec *spec)
{
    static Sandstorm__V1__EnvVar variable = SANDSTORM__V1__ENV_VAR__INIT;
    static Sandstorm__V1__EnvVar *env[] = { &variable };
    variable.name = (char *)"A=B";
    spec->env = env;
    spec->n_env = 1;
}

Test(command, a_spec_that_makes_no_sense_is_start_failed_at_spec)
{
    static void (*const breaks[])(Sandstorm__V1__CommandSpec *) = {
        break_argv_and_shell, break_nothing_to_run, break_empty_program, break_cwd,
        break_stdin_mode,     break_time,           break_env,
    };
    for (size_t i = 0; i < ELEMENTS(breaks); i++) {
        struct bench bench;
        bench_init(&bench);
        bench.spec.shell = (char *)"exit 0";
        breaks[i](&bench.spec);
        expect_failure(&bench, SANDSTORM__V1__START_STEP__START_STEP_SPEC, "EINVAL");
    }
}

Test(command, what_the_runner_refuses_has_an_outcome_too)
{
    struct err err = { 0 };
    struct bench bench;
    struct command_id id;
    bench_init(&bench);
    cr_assert_eq(command_id_new(&id, &err), 0);
    uint8_t digest[COMMAND_DIGEST_LEN] = "the digest of a spec";
    Sandstorm__V1__Start start = SANDSTORM__V1__START__INIT;
    start.spec_digest = (ProtobufCBinaryData){ sizeof(digest), digest };
    cr_assert_eq(command_new_refused(&bench.host, &id, &start,
                                     SANDSTORM__V1__START_STEP__START_STEP_ADMIT, EAGAIN, "full",
                                     &bench.command, &err),
                 0);
    cr_expect(command_same_spec(bench.command, &start.spec_digest));
    cr_assert(bench_attach(&bench, 0, NO_LIMIT));
    UNTIL(&bench, bench.ended);
    const Sandstorm__V1__StartFailed *why = bench.ended->outcome->start_failed;
    cr_expect_eq(why->step, SANDSTORM__V1__START_STEP__START_STEP_ADMIT);
    cr_expect_str_eq(why->errno_name, "EAGAIN");
    cr_expect_str_eq(why->detail, "full");
    bench_done(&bench);
}

/* What outlives its leader. */

Test(command, a_background_process_that_holds_stdout_does_not_hold_the_end)
{
    struct bench bench;
    bench_init(&bench);
    const Sandstorm__V1__Outcome *outcome = bench_run(&bench, "sleep 1000 & echo $!");
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED);
    cr_expect(outcome->stream_held_open);
    bench.bytes[bench.next] = '\0';
    pid_t left = (pid_t)strtol((const char *)bench.bytes, NULL, 10);
    cr_assert_gt(left, 1);
    cr_expect_eq(kill(left, SIGKILL), 0, "it was killed although it may live on");
    bench_done(&bench);
}

Test(command, output_after_the_leaders_exit_is_kept)
{
    char fifo[] = "/tmp/test-command-XXXXXX", script[128];
    close(mkstemp(fifo));
    (void)unlink(fifo);
    cr_assert_eq(mkfifo(fifo, 0600), 0);
    struct bench bench;
    bench_init(&bench);
    (void)snprintf(script, sizeof(script), "{ read x; echo late; } < %s & echo early", fifo);
    bench_shell(&bench, script, NO_LIMIT);
    UNTIL(&bench, command_state(bench.command) == COMMAND_DRAINING);
    /* However slow this machine is: the drain waits for the test. */
    loop_timer_start(bench.command->drain, BENCH_DEADLINE_US);
    CLEANUP_FD int fd = open(fifo, O_WRONLY | O_CLOEXEC);
    cr_assert_eq(write(fd, "\n", 1), 1);
    UNTIL(&bench, bench.ended);
    EXPECT_OUTPUT(&bench, "early\nlate\n");
    cr_expect_not(bench.ended->outcome->stream_held_open);
    (void)unlink(fifo);
    bench_done(&bench);
}

Test(command, freeing_a_running_command_kills_its_group)
{
    struct bench bench;
    bench_init(&bench);
    bench_shell(&bench, "sleep 1000 & echo ready; wait", NO_LIMIT);
    UNTIL(&bench, bench.next == 6);
    int held = fcntl(bench.command->pipes[0].fd, F_DUPFD_CLOEXEC, 0);
    bench_done(&bench);
    /* The pipe ends when the last process that could write is gone. */
    struct pollfd end = { .fd = held, .events = POLLIN };
    cr_expect(poll(&end, 1, (int)(BENCH_DEADLINE_US / 1000)) == 1 && end.revents & POLLHUP);
    close_fd(&held);
}

/* How it ended is said unasked. */

Test(command, how_it_ended_is_said_once_whatever_of_its_output_is_still_to_come)
{
    struct bench bench;
    bench_init(&bench);
    bench_shell(&bench, "printf hello; exit 3", 0);
    UNTIL(&bench, bench.settled);
    cr_expect_eq(bench.settled_code, 3u);
    cr_expect_eq(bench.settled_end, 5u);
    cr_expect_eq(bench.next, 0u, "output without credit");
    cr_expect_null(bench.ended);
    cr_assert(bench_credit(&bench, 0, NO_LIMIT));
    UNTIL(&bench, bench.ended);
    cr_expect_eq(bench.settled, 1u);
    EXPECT_OUTPUT(&bench, "hello");
    bench_done(&bench);
}

Test(command, also_when_nobody_is_attached)
{
    struct bench bench;
    bench_init(&bench);
    bench_shell(&bench, "printf hello; exit 4", 0);
    bench_detach(&bench);
    UNTIL(&bench, bench.settled);
    cr_expect_eq(bench.settled_code, 4u);
    cr_expect_eq(bench.settled_end, 5u);
    cr_expect_not(command_has_event(bench.command));
    bench_done(&bench);
}

Test(command, and_once_more_to_the_next_orchestrator)
{
    struct bench bench;
    bench_init(&bench);
    (void)bench_run(&bench, "exit 5");
    cr_expect_eq(bench.settled, 1u);
    wire_free(TAKE_PTR(bench.end_frame));
    bench.ended = NULL;
    command_mute(bench.command);
    bench_listen(&bench);
    cr_expect_eq(bench.settled, 2u);
    cr_expect_eq(bench.settled_code, 5u);
    cr_expect_null(bench.ended, "nobody has attached");
    bench_done(&bench);
}

Test(command, a_command_that_runs_says_nothing_to_who_has_not_attached)
{
    struct bench bench;
    bench_init(&bench);
    bench_shell(&bench, "echo ready; exec sleep 1000", NO_LIMIT);
    UNTIL(&bench, bench.next == 6);
    command_mute(bench.command);
    cr_expect_not(command_has_event(bench.command));
    cr_expect_eq(bench.settled, 0u);
    bench_done(&bench);
}
