/* The end that somebody else wants: of all processes of a command, with all output until then, and
 * an answer also when a process does not die. */
#include "tests/unit/command_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

/* Kill with a short grace; what it ended as. */
static const Sandstorm__V1__Outcome *cancel(struct bench *bench, unsigned lines)
{
    UNTIL(bench, bench->next >= lines);
    command_cancel(bench->command, 20000, "client asked");
    UNTIL(bench, bench->ended);
    cr_assert_eq(bench->ended->outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_CANCELLED);
    return bench->ended->outcome;
}

static void expect_none_left(const char *script, unsigned lines)
{
    struct bench bench;
    bench_init(&bench);
    bench_shell(&bench, script, NO_LIMIT);
    const Sandstorm__V1__Outcome *outcome = cancel(&bench, lines);
    cr_expect_eq(outcome->survivors, 0u, "%s", script);
    /* Every process had its stdout: the pipe's end is the end of them all. */
    cr_expect_not(outcome->stream_held_open, "%s", script);
    bench_done(&bench);
}

Test(command_kill, children_in_sessions_of_their_own_die_too)
{
    expect_none_left("setsid sh -c 'echo; exec sleep 1000' & wait", 1);
    expect_none_left("(setsid sh -c 'echo; exec sleep 1000' &); sleep 1000", 1);
    expect_none_left("nohup sh -c 'echo; exec sleep 1000' & wait", 1);
}

Test(command_kill, children_that_ignore_term_die_after_the_grace)
{
    expect_none_left("trap '' TERM; sh -c 'echo; while :; do sleep 1000; done' & wait", 1);
    /* The leader obeys; the rest of its tree still has the grace, and then dies. */
    expect_none_left("sh -c \"trap '' TERM; echo; while :; do sleep 1000; done\" & wait", 1);
}

Test(command_kill, stopped_processes_die)
{
    expect_none_left("sh -c 'echo; kill -STOP $$' & echo; kill -STOP $$", 2);
}

Test(command_kill, a_timeout_is_for_the_whole_tree_and_keeps_all_output)
{
    struct bench bench;
    bench_init(&bench);
    bench.spec.timeout_ms = 2000;
    bench.spec.kill_grace_ms = 100;
    const Sandstorm__V1__Outcome *outcome =
        bench_run(&bench, "exec 2>/dev/null; (setsid sh -c 'exec sleep 1000' &); "
                          "trap 'echo last words; exit' TERM; "
                          "echo first; while :; do sleep 0.02; done");
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_TIMED_OUT);
    EXPECT_OUTPUT(&bench, "first\nlast words\n");
    cr_expect_eq(outcome->survivors, 0u);
    cr_expect_not(outcome->stream_held_open);
    bench_done(&bench);
}

Test(command_kill, a_timeout_after_a_cancel_changes_nothing)
{
    struct bench bench;
    bench_init(&bench);
    bench.spec.timeout_ms = 50;
    bench_shell(&bench, "trap '' TERM; echo; while :; do sleep 1000; done", NO_LIMIT);
    UNTIL(&bench, bench.next == 1);
    command_cancel(bench.command, 300000, "client asked");
    UNTIL(&bench, bench.ended);
    cr_expect_eq(bench.ended->outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_CANCELLED);
    bench_done(&bench);
}

Test(command_kill, what_a_command_leaves_behind_lives_and_is_counted)
{
    struct bench bench;
    bench_init(&bench);
    const Sandstorm__V1__Outcome *outcome =
        bench_run(&bench, "sleep 1000 >/dev/null 2>&1 & echo $!");
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED);
    cr_expect_eq(outcome->survivors, 1u);
    cr_expect_not(outcome->stream_held_open);
    bench.bytes[bench.next] = '\0';
    pid_t left = (pid_t)strtol((const char *)bench.bytes, NULL, 10);
    cr_expect_eq(kill(left, SIGKILL), 0, "it was killed although it may live on");
    bench_done(&bench);
}

Test(command_kill, late_output_within_the_drain_is_in_the_ledger)
{
    struct bench bench;
    bench_init(&bench);
    const Sandstorm__V1__Outcome *outcome =
        bench_run(&bench, "{ sleep 0.05; echo late; } & echo early");
    EXPECT_OUTPUT(&bench, "early\nlate\n");
    cr_expect_eq(outcome->survivors, 0u);
    bench_done(&bench);
}

/* A process that hangs in the kernel: version 1's freezer does that to it. */

static char freezer[128];

static bool freezer_write(const char *file, const char *text)
{
    char path[192];
    (void)snprintf(path, sizeof(path), "%s/%s", freezer, file);
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
}

static bool freeze(pid_t pid)
{
    char text[16];
    (void)snprintf(freezer, sizeof(freezer), "/sys/fs/cgroup/freezer/test-%d", (int)getpid());
    (void)snprintf(text, sizeof(text), "%d", pid);
    return mkdir(freezer, 0755) == 0 && freezer_write("cgroup.procs", text) &&
           freezer_write("freezer.state", "FROZEN");
}

static void thaw(void)
{
    (void)freezer_write("freezer.state", "THAWED");
    uint64_t deadline = monotonic_us() + BENCH_DEADLINE_US;
    while (rmdir(freezer) < 0 && errno == EBUSY && monotonic_us() < deadline)
        continue;
}

Test(command_kill, a_process_that_does_not_die_does_not_hold_the_end)
{
    struct bench bench;
    bench_init(&bench);
    bench_shell(&bench, "echo; exec sleep 1000", NO_LIMIT);
    UNTIL(&bench, bench.next == 1);
    pid_t pid = bench.command->pid;
    if (!freeze(pid)) {
        bench_done(&bench);
        cr_skip_test("there is no freezer of version 1 here");
    }
    const Sandstorm__V1__Outcome *outcome = cancel(&bench, 1);
    cr_expect_eq(outcome->survivors, 1u);
    cr_expect(strstr(outcome->cancelled->reason, "SIGKILL"), "%s", outcome->cancelled->reason);
    cr_expect(outcome->stream_held_open);
    thaw();
    /* It ends at last, and leaves no zombie. */
    UNTIL(&bench, !reaper_has_children());
    bench_done(&bench);
}

Test(command_kill, freeing_a_command_with_a_process_that_does_not_die_does_not_wait)
{
    struct bench bench;
    bench_init(&bench);
    bench_shell(&bench, "echo; exec sleep 1000", NO_LIMIT);
    UNTIL(&bench, bench.next == 1);
    bool frozen = freeze(bench.command->pid);
    command_free(TAKE_PTR(bench.command));
    if (!frozen)
        cr_skip_test("there is no freezer of version 1 here");
    cr_expect(reaper_has_children());
    thaw();
    uint64_t deadline = monotonic_us() + BENCH_DEADLINE_US;
    while (reaper_has_children() && monotonic_us() < deadline)
        cr_assert_eq(loop_turn(bench.loop, 100000, NULL), 0);
    cr_expect_not(reaper_has_children());
    bench_done(&bench);
}
