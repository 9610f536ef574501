/* Who dies with a command and who does not, with the real daemons, by each means that this machine
 * has: control groups, and without them the runner's descendants. */
#include "common/clock.h"
#include "tests/harness/starter.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The link finds a runner again by itself. */
static void wait_for_runner(void)
{
    CLEANUP_RESULT struct proc_result run = CLI("exec", "--wait", "30s", BOX, "--", "true");
    cr_assert_eq(run.status, 0, "%s", run.err);
}

static void restart_runner_with(const char *settings)
{
    CLEANUP_FD int fd = open(fixture_box()->runner_settings, O_WRONLY | O_TRUNC | O_CLOEXEC);
    cr_assert(write(fd, settings, strlen(settings)) == (ssize_t)strlen(settings));
    MUST(service_stop(fixture_box()->runner, err));
    MUST(sandbox_start_runner(fixture_box(), err));
    wait_for_runner();
}

static void start_without_groups(void)
{
    fixture_start();
    restart_runner_with("cgroups: false\n");
}

/* cppcheck-suppress unknownMacro */
TestSuite(process_end, .init = fixture_start, .fini = fixture_stop);
TestSuite(process_end_without_groups, .init = start_without_groups, .fini = fixture_stop);

static Sandstorm__V1__CommandSpec shell(const char *script)
{
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    spec.shell = (char *)script;
    spec.kill_grace_ms = 100;
    return spec;
}

/* Each writes the pid of the process that might get away, and goes on. */
static const char *const fugitives[] = {
    "sleep 1000 & echo $!; wait",
    "nohup sh -c 'echo $$; exec sleep 1000' 2>/dev/null & wait",
    "setsid sh -c 'echo $$; exec sleep 1000' & wait",
    "(setsid sh -c 'echo $$; exec sleep 1000' &); sleep 1000",
    "(setsid sh -c 'echo $$; exec sleep 1000' >&3 3>&- &) 3>&1; trap 'exit 0' TERM; "
    "while :; do sleep 0.05; done",
    "setsid sh -c 'trap \"\" TERM HUP INT; echo $$; while :; do sleep 1000; done' & wait",
    "sh -c 'echo $$; kill -STOP $$' & wait",
    "trap '' TERM; echo $$; while :; do sleep 1000; done",
};

static void cancel_fugitives(void)
{
    for (size_t i = 0; i < ELEMENTS(fugitives); i++) {
        const Sandstorm__V1__CommandSpec spec = shell(fugitives[i]);
        CLEANUP_STARTER struct starter starter;
        starter_open(&starter, &spec, NULL);
        starter_await_line(&starter);
        pid_t pid = (pid_t)strtol(starter.out, NULL, 10);
        cr_assert_gt(pid, 1);
        starter_cancel(&starter, 0);
        const Sandstorm__V1__Outcome *outcome = starter_wait(&starter);
        cr_expect_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_CANCELLED, "%s",
                     fugitives[i]);
        cr_expect_eq(outcome->survivors, 0u, "%s", fugitives[i]);
        cr_expect_not(outcome->stream_held_open, "%s", fugitives[i]);
        fixture_wait_gone(pid);
    }
}

Test(process_end, a_cancel_is_for_every_process)
{
    cancel_fugitives();
}

Test(process_end_without_groups, a_cancel_is_for_every_process)
{
    cancel_fugitives();
}

static void time_out(void)
{
    Sandstorm__V1__CommandSpec spec =
        shell("exec 2>/dev/null; (setsid sh -c 'echo $$; exec sleep 1000' &); "
              "trap 'echo last words; exit 0' TERM; while :; do sleep 0.05; done");
    spec.timeout_ms = 2000;
    CLEANUP_STARTER struct starter starter;
    const Sandstorm__V1__Outcome *outcome = starter_run(&starter, &spec);
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_TIMED_OUT);
    cr_expect_eq(outcome->timed_out->after_ms, 2000u);
    cr_expect(strstr(starter.out, "last words\n"), "%s", starter.out);
    cr_expect_eq(outcome->survivors, 0u);
    fixture_wait_gone((pid_t)strtol(starter.out, NULL, 10));
}

Test(process_end, a_timeout_is_for_every_process_and_keeps_what_was_said)
{
    time_out();
}

Test(process_end_without_groups, a_timeout_is_for_every_process_and_keeps_what_was_said)
{
    time_out();
}

/* A command that forks as fast as it can, in sessions of their own, while it is killed. */
static void kill_forkers(void)
{
    const Sandstorm__V1__CommandSpec spec =
        shell("f() { sleep 0.05; (setsid sh -c 'exec sleep 1000' &); (f &); }; (f &); echo up; "
              "sleep 1000");
    CLEANUP_STARTER struct starter starter;
    starter_open(&starter, &spec, NULL);
    starter_await_line(&starter);
    starter_signal(&starter, "KILL", SANDSTORM__V1__SIGNAL_TARGET__SIGNAL_TARGET_LEADER);
    /* The leader's end is one by itself: the others live on, and are counted. */
    const Sandstorm__V1__Outcome *outcome = starter_wait(&starter);
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_SIGNALED);
    cr_expect(outcome->stream_held_open);
    cr_expect_gt(outcome->survivors, 0u);
}

Test(process_end, who_is_left_by_a_dead_leader_is_counted)
{
    kill_forkers();
}

Test(process_end_without_groups, who_is_left_by_a_dead_leader_is_counted)
{
    kill_forkers();
}

/* E4: `cmd &`. */
static void leave_behind(void)
{
    const Sandstorm__V1__CommandSpec spec =
        shell("{ sleep 0.05; echo late; exec sleep 1000; } & echo $!; echo early");
    CLEANUP_STARTER struct starter starter;
    const Sandstorm__V1__Outcome *outcome = starter_run(&starter, &spec);
    pid_t pid = (pid_t)strtol(starter.out, NULL, 10);
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED);
    cr_expect_eq(outcome->exited->code, 0u);
    cr_expect(outcome->stream_held_open);
    cr_expect_eq(outcome->survivors, 1u);
    cr_expect(strstr(starter.out, "early\nlate\n"), "%s", starter.out);
    cr_expect_eq(kill(pid, 0), 0, "it was killed");
    (void)kill(pid, SIGKILL);
}

Test(process_end, what_is_left_in_the_background_lives_and_is_counted)
{
    leave_behind();
}

Test(process_end_without_groups, what_is_left_in_the_background_lives_and_is_counted)
{
    leave_behind();
}

Test(process_end, a_client_that_is_gone_takes_the_whole_tree_with_it)
{
    Sandstorm__V1__CommandSpec spec =
        shell("(setsid sh -c 'echo $$; exec sleep 1000' &); sleep 1000");
    spec.client_gone = SANDSTORM__V1__CLIENT_GONE_POLICY__CLIENT_GONE_POLICY_KILL_AFTER;
    spec.client_gone_after_ms = 50;
    CLEANUP_STARTER struct starter starter;
    starter_open(&starter, &spec, NULL);
    starter_await_line(&starter);
    pid_t pid = (pid_t)strtol(starter.out, NULL, 10);
    starter_done(&starter);
    fixture_wait_gone(pid);
}

/* The runner itself. */

static pid_t start_fugitive(struct starter *starter)
{
    const Sandstorm__V1__CommandSpec spec =
        shell("(setsid sh -c 'echo $$; exec sleep 1000' &); sleep 1000");
    starter_open(starter, &spec, NULL);
    starter_await_line(starter);
    return (pid_t)strtol(starter->out, NULL, 10);
}

Test(process_end, a_runner_that_stops_takes_every_process_with_it)
{
    CLEANUP_STARTER struct starter starter;
    pid_t pid = start_fugitive(&starter);
    MUST(service_stop(fixture_box()->runner, err));
    cr_expect_eq(kill(pid, 0), -1, "it was left behind");
    MUST(sandbox_start_runner(fixture_box(), err));
}

/* E15: a process that not even SIGKILL ends. */

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

Test(process_end, a_process_that_cannot_be_killed_does_not_hold_the_end_nor_the_runner)
{
    const Sandstorm__V1__CommandSpec spec = shell("echo up; exec sleep 1000");
    CLEANUP_STARTER struct starter starter;
    starter_open(&starter, &spec, NULL);
    starter_await_line(&starter);
    pid_t pid = starter.pid;
    if (!freeze(pid))
        cr_skip_test("there is no freezer of version 1 here");
    starter_cancel(&starter, 50);
    CLEANUP_RESULT struct proc_result meanwhile = CLI("exec", BOX, "--", "echo", "served");
    cr_expect_str_eq(meanwhile.out, "served\n");
    const Sandstorm__V1__Outcome *outcome = starter_wait(&starter);
    bool cancelled = outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT_CANCELLED;
    cr_expect(cancelled && strstr(outcome->cancelled->reason, "SIGKILL"));
    cr_expect_eq(outcome->survivors, 1u);
    cr_expect_eq(kill(pid, 0), 0);
    cr_expect(freezer_write("freezer.state", "THAWED"));
    fixture_wait_gone(pid);
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    while (rmdir(freezer) < 0 && errno == EBUSY)
        cr_assert_lt(monotonic_us(), deadline);
}

/* E18: a command against its own daemons. */
Test(process_end, a_user_can_neither_kill_nor_change_the_daemons)
{
    char script[1024];
    (void)snprintf(script, sizeof(script),
                   "kill -9 %d 2>/dev/null && echo killed the runner; "
                   "kill -9 %d 2>/dev/null && echo killed the agent; "
                   "(: >> %s) 2>/dev/null && echo wrote to the runner; "
                   "rm -f %s 2>/dev/null && echo removed the socket; "
                   "cat /proc/%d/environ 2>/dev/null && echo read the runner; exit 0",
                   (int)proc_pid(service_proc(fixture_box()->runner)),
                   (int)proc_pid(service_proc(fixture_box()->link)),
                   cluster_program("sandstorm-runner"), fixture_box()->socket,
                   (int)proc_pid(service_proc(fixture_box()->runner)));
    Sandstorm__V1__CommandSpec spec = shell(script);
    spec.user = (char *)"nobody";
    CLEANUP_STARTER struct starter starter;
    const Sandstorm__V1__Outcome *outcome = starter_run(&starter, &spec);
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED);
    cr_expect_str_eq(starter.out, "");
}
