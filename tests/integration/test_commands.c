/* Commands by their id: started without a client, looked at, waited for, taken over, ended. */
#include "tests/harness/fixture.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define ID    "0189f7a2-7f6c-4c1e-9d55-8a1c2f3e4d5b"
#define OTHER "0189f7a2-aaaa-4c1e-9d55-8a1c2f3e4d5b"

TestSuite(commands, .init = fixture_start, .fini = fixture_stop);

/* Prints a line, waits for the file "go" and ends with 7. */
static const char *patient(void)
{
    static char script[512];
    (void)snprintf(script, sizeof(script),
                   "echo ran >> %s/count; echo began; echo trouble >&2; while [ ! -e %s/go ]; do "
                   "sleep 0.02; done; echo ended; exit 7",
                   fixture()->dir, fixture()->dir);
    return script;
}

static void start(const char *id, const char *script)
{
    CLEANUP_RESULT struct proc_result run = CLI("exec", "-d", "--id", id, BOX, "-c", script);
    char line[64];
    (void)snprintf(line, sizeof(line), "%s\n", id);
    cr_assert_eq(run.status, 0, "%s", run.err);
    cr_assert_str_eq(run.out, line);
}

/* Until it has printed that. */
static void wait_output(const char *id, const char *text)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT, "output", "--stdout", "-f", id);
    char line[256] = "";
    while (strcmp(line, text) != 0)
        fixture_read_line(client.out, line, sizeof(line));
}

static void expect(struct proc_result run, int status, const char *out)
{
    cr_assert_eq(run.status, status, "status %d: %s", run.status, run.err);
    cr_assert_str_eq(run.out, out);
    proc_result_done(&run);
}

static void expect_error(struct proc_result run, int status, const char *text)
{
    cr_assert_eq(run.status, status, "status %d: %s", run.status, run.err);
    fixture_assert_contains(run.err, text);
    proc_result_done(&run);
}

/* Detached ones. */

Test(commands, a_detached_one_runs_without_us_and_its_result_can_be_asked_for)
{
    start(ID, patient());
    start(ID, patient()); /* which starts nothing */
    wait_output(ID, "began");
    expect_error(CLI("wait", ID, "--timeout", "100ms"), 255, "has not ended yet");
    fixture_touch("go");
    expect(CLI("wait", ID), 7, "");
    expect(CLI("wait", ID), 7, "");
    cr_assert_eq(fixture_count_lines(fixture_path("count")), 1);
    expect_error(CLI("exec", "-d", "--id", ID, BOX, "--", "true"), 125, "different command");
}

Test(commands, its_output_is_kept_with_both_streams)
{
    fixture_touch("go");
    start(ID, patient());
    expect(CLI("wait", ID), 7, "");
    CLEANUP_RESULT struct proc_result both = CLI("output", ID);
    cr_assert_str_eq(both.out, "began\nended\n");
    cr_assert_str_eq(both.err, "trouble\n");
    cr_assert_eq(both.status, 0);
    CLEANUP_RESULT struct proc_result only = CLI("output", "--stderr", ID);
    cr_assert_str_eq(only.out, "");
    cr_assert_str_eq(only.err, "trouble\n");
    expect(CLI("output", "--stdout", "--last", "4", ID), 0, "ded\n");
    expect(CLI("output", "--stdout", "--from", "15", ID), 0, "nded\n");
    expect(CLI("output", "--stdout", "--from", "20", ID), 0, "");
}

Test(commands, output_of_one_that_runs_is_what_there_is)
{
    start(ID, patient());
    wait_output(ID, "began");
    expect(CLI("output", "--stdout", ID), 0, "began\n");
    fixture_touch("go");
}

Test(commands, wait_tells_the_first_failure_of_several)
{
    start(ID, "exit 0");
    start(OTHER, "kill -9 $$");
    CLEANUP_RESULT struct proc_result run = CLI("wait", ID, OTHER);
    cr_assert_eq(run.status, 137, "%s", run.err);
    fixture_assert_contains(run.err, OTHER ": the command was killed by SIGKILL");
}

Test(commands, wait_has_the_whole_result_as_json)
{
    start(ID, "echo hello; exit 3");
    CLEANUP_RESULT struct proc_result run = CLI("wait", "-o", "json", ID);
    cr_assert_eq(run.status, 3);
    fixture_assert_contains(run.out, "\"id\":\"" ID "\"");
    fixture_assert_contains(run.out, "\"exit_status\":3");
    fixture_assert_contains(run.out, "\"stdout_bytes\":6");
}

/* Ids. */

Test(commands, an_id_may_be_abbreviated_where_it_is_the_only_one)
{
    start(ID, "exit 5");
    expect(CLI("wait", "0189"), 5, "");
    expect(CLI("wait", "0189F7A2-7F6C"), 5, "");
    start(OTHER, "exit 6");
    expect_error(CLI("wait", "0189"), 255, "several commands begin with \"0189\"");
    expect(CLI("wait", "0189f7a2-a"), 6, "");
    expect_error(CLI("wait", "ffff"), 255, "no command that you may see begins with \"ffff\"");
    expect_error(CLI("wait", "018"), 255, "first 4 characters or more");
    expect_error(CLI("wait", BOX "-1"), 255, "is not the id of a command");
    expect_error(CLI("kill", "00000000-0000-4000-8000-000000000000"), 1, "sandstorm ps -a");
}

/* Ending them. */

Test(commands, kill_stops_one_with_all_that_it_started)
{
    start(ID, "sleep 600 & echo $!; wait");
    CLEANUP_CLIENT struct fixture_client output = CLI_START(PIPE_OUT, "output", "-f", ID);
    char line[64];
    fixture_read_line(output.out, line, sizeof(line));
    expect(CLI("kill", ID), 0, "");
    CLEANUP_RESULT struct proc_result run = CLI("wait", ID);
    cr_assert_eq(run.status, 143, "%s", run.err);
    fixture_assert_contains(run.err, "cancelled");
    fixture_wait_gone((pid_t)strtol(line, NULL, 10));
}

Test(commands, kill_with_a_grace_ends_one_that_does_not_listen)
{
    start(ID, "trap '' TERM; echo deaf; while :; do sleep 0.05; done");
    wait_output(ID, "deaf");
    expect(CLI("kill", "--grace", "200ms", ID), 0, "");
    expect_error(CLI("wait", ID), 143, "cancelled");
}

Test(commands, kill_sends_any_signal)
{
    start(ID, "trap 'echo got it; exit 4' USR1; echo ready; while :; do sleep 0.05; done");
    wait_output(ID, "ready");
    expect(CLI("kill", "-s", "sigusr1", ID), 0, "");
    expect(CLI("wait", ID), 4, "");
    expect(CLI("output", ID), 0, "ready\ngot it\n");
}

Test(commands, a_signal_that_is_none_is_refused)
{
    start(ID, patient());
    wait_output(ID, "began");
    expect_error(CLI("kill", "-s", "9x!", ID), 2, "HUP, INT or KILL");
    fixture_touch("go");
    expect(CLI("wait", ID), 7, "");
}

/* Attaching. */

Test(commands, attach_shows_the_end_of_one_that_has_ended)
{
    start(ID, "echo one; echo two; exit 6");
    expect(CLI("wait", ID), 6, "");
    expect(CLI("attach", ID), 6, "one\ntwo\n");
    expect(CLI("attach", "--from", "4", ID), 6, "two\n");
    expect(CLI("attach", "--last", "2", ID), 6, "o\n");
}

Test(commands, attach_takes_over_and_feeds_it)
{
    CLEANUP_CLIENT struct fixture_client first =
        CLI_START(PIPE_IN | PIPE_OUT | PIPE_ERR, "exec", "--id", ID, BOX, "-c",
                  "while read -r line; do echo \"got $line\"; done; exit 5");
    char line[256];
    cr_assert_eq(write(first.in, "one\n", 4), 4);
    fixture_read_line(first.out, line, sizeof(line));
    cr_assert_str_eq(line, "got one");
    CLEANUP_RESULT struct proc_result second = CLI_INPUT("two\n", 4, "attach", "-I", ID);
    cr_assert_eq(second.status, 5, "%s", second.err);
    cr_assert_str_eq(second.out, "got one\ngot two\n");
    cr_assert_eq(fixture_client_wait(&first), 255);
    fixture_read_line(first.err, line, sizeof(line));
    fixture_assert_contains(line, "another client has attached");
    fixture_read_line(first.err, line, sizeof(line));
    fixture_assert_contains(line, "sandstorm attach " ID " --from 8");
}

Test(commands, attach_without_input_does_not_end_the_commands)
{
    CLEANUP_CLIENT struct fixture_client first =
        CLI_START(PIPE_IN | PIPE_OUT, "exec", "--keep", "--id", ID, BOX, "-c",
                  "echo ready; read -r line; echo \"got $line\"");
    char line[64];
    fixture_read_line(first.out, line, sizeof(line));
    CLEANUP_CLIENT struct fixture_client second = CLI_START(PIPE_OUT, "attach", ID);
    fixture_read_line(second.out, line, sizeof(line));
    cr_assert_str_eq(line, "ready");
    CLEANUP_RESULT struct proc_result third = CLI_INPUT("x\n", 2, "attach", "-I", ID);
    cr_assert_eq(third.status, 0, "%s", third.err);
    fixture_assert_contains(third.out, "got x\n");
}

Test(commands, a_watcher_sees_all_and_disturbs_nobody)
{
    CLEANUP_CLIENT struct fixture_client first =
        CLI_START(PIPE_OUT, "exec", "-n", "--id", ID, BOX, "-c", patient());
    char line[64];
    fixture_read_line(first.out, line, sizeof(line));
    CLEANUP_CLIENT struct fixture_client watcher =
        CLI_START(PIPE_OUT | PIPE_ERR, "attach", "--watch", ID);
    fixture_read_line(watcher.out, line, sizeof(line));
    cr_assert_str_eq(line, "began");
    CLEANUP_CLIENT struct fixture_client leaving = CLI_START(PIPE_OUT, "attach", "--watch", ID);
    fixture_read_line(leaving.out, line, sizeof(line));
    MUST(proc_signal(leaving.proc, SIGINT, err));
    cr_assert_eq(fixture_client_wait(&leaving), 0);
    fixture_touch("go");
    cr_assert_eq(fixture_client_wait(&first), 7);
    cr_assert_eq(fixture_client_wait(&watcher), 7);
    fixture_read_line(watcher.out, line, sizeof(line));
    cr_assert_str_eq(line, "ended");
}

/* Leaving. */

Test(commands, with_keep_a_client_that_is_killed_leaves_its_command_alone)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT, "exec", "-n", "--keep", "--id", ID, BOX, "-c", patient());
    char line[64];
    fixture_read_line(client.out, line, sizeof(line));
    MUST(proc_signal(client.proc, SIGKILL, err));
    cr_assert_eq(fixture_client_wait(&client), 137);
    fixture_touch("go");
    expect(CLI("wait", ID), 7, "");
    expect(CLI("output", "--stdout", ID), 0, "began\nended\n");
}

Test(commands, the_second_interrupt_stops_a_command_that_does_not_listen)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT | PIPE_ERR, "exec", "-n", "--kill-grace", "100ms", BOX, "-c",
                  "trap '' INT TERM; echo ready; while :; do sleep 0.05; done");
    char line[256];
    fixture_read_line(client.out, line, sizeof(line));
    MUST(proc_signal(client.proc, SIGINT, err));
    fixture_read_line(client.err, line, sizeof(line));
    fixture_assert_contains(line, "press Ctrl-C again to stop it");
    MUST(proc_signal(client.proc, SIGINT, err));
    cr_assert_eq(fixture_client_wait(&client), 143);
}

Test(commands, the_second_interrupt_leaves_a_command_that_is_to_be_kept)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT | PIPE_ERR, "exec", "-n", "--keep", "--id", ID, BOX, "-c",
                  "trap 'echo no' INT; echo ready; while [ ! -e go ]; do sleep 0.05; done; exit 3",
                  "-C", fixture()->dir);
    char line[256];
    fixture_read_line(client.out, line, sizeof(line));
    MUST(proc_signal(client.proc, SIGINT, err));
    fixture_read_line(client.err, line, sizeof(line));
    fixture_assert_contains(line, "press Ctrl-C again to leave it");
    fixture_read_line(client.out, line, sizeof(line));
    cr_assert_str_eq(line, "no");
    MUST(proc_signal(client.proc, SIGINT, err));
    cr_assert_eq(fixture_client_wait(&client), 130);
    fixture_read_line(client.err, line, sizeof(line));
    fixture_assert_contains(line, "sandstorm attach " ID);
    fixture_touch("go");
    expect(CLI("wait", ID), 3, "");
}

/* What it is to be like. */

Test(commands, the_umask_the_niceness_and_the_limits_are_as_asked_for)
{
    CLEANUP_RESULT struct proc_result run =
        CLI("exec", "--umask", "027", "--nice", "5", "--rlimit", "nofile=123:456", BOX, "-c",
            "umask; nice; ulimit -Sn; ulimit -Hn");
    cr_assert_eq(run.status, 0, "%s", run.err);
    cr_assert_str_eq(run.out, "0027\n5\n123\n456\n");
}

Test(commands, another_user_is_another_user)
{
    expect(CLI("exec", "-u", "nobody", "-C", "/", BOX, "--", "id", "-un"), 0, "nobody\n");
    CLEANUP_RESULT struct proc_result run = CLI("exec", "-u", "no-such-user", BOX, "--", "true");
    cr_assert_eq(run.status, 125, "%s", run.err);
    fixture_assert_contains(run.err, "no-such-user");
}

/* Whatever this machine has: enforced, or said not to be. */
Test(commands, limits_that_the_kernel_has_not_are_refused_or_named)
{
    CLEANUP_RESULT struct proc_result strict =
        CLI("exec", "-n", "--memory", "64M", "--cpus", "0.5", BOX, "--", "true");
    CLEANUP_RESULT struct proc_result best =
        CLI("exec", "-n", "--best-effort", "--memory", "64M", "--cpus", "0.5", BOX, "--", "true");
    cr_assert_eq(best.status, 0, "%s", best.err);
    if (strict.status == 0) {
        cr_assert_str_eq(best.err, "");
        return;
    }
    cr_assert_eq(strict.status, 125, "%s", strict.err);
    fixture_assert_contains(strict.err, "at step limits");
    fixture_assert_contains(best.err, "does not enforce these limits: ");
    fixture_assert_contains(best.err, "memory");
}

/* Lists. */

Test(commands, ps_filters_by_label_state_time_and_client)
{
    CLEANUP_RESULT struct proc_result one =
        CLI("exec", "-d", "--id", ID, "-l", "job=7", "-l", "team=web", BOX, "-c", "exit 0");
    cr_assert_eq(one.status, 0, "%s", one.err);
    start(OTHER, patient());
    expect(CLI("wait", ID), 0, "");
    expect(CLI("ps", "-a", "-l", "job=7", "-o", "name"), 0, ID "\n");
    expect(CLI("ps", "-a", "-l", "job=7,team!=web", "-o", "name"), 0, "");
    expect(CLI("ps", "--state", "ended", "-o", "name"), 0, ID "\n");
    expect(CLI("ps", "--since", "1h", "-o", "name"), 0, OTHER "\n");
    expect(CLI("ps", "-a", "--by", "admin", "-o", "name"), 0, OTHER "\n" ID "\n");
    expect(CLI("ps", "-a", "--by", "nobody", "-o", "name"), 0, "");
    expect_error(CLI("ps", "--state", "runing"), 2, "did you mean \"running\"?");
    fixture_touch("go");
}
