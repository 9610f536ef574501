/* The command contract, a case for each of its rows, with the real programs and the real command
 * line. Each row has more, and harder, cases in the suite that it names. A reboot needs a machine
 * of its own: tests/vm. */
#include "tests/harness/fixture.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define COMMAND_ID "0189f7a2-7f6c-4c1e-9d55-8a1c2f3e4d5b"

/* cppcheck-suppress unknownMacro */
TestSuite(contract, .init = fixture_start, .fini = fixture_stop);

static char *first_line(char *text)
{
    text[strcspn(text, "\n")] = '\0';
    return text;
}

/* More: exec, process*. */
Test(contract, row_1_an_honest_outcome)
{
    CLEANUP_RESULT struct proc_result code = CLI("exec", BOX, "-c", "exit 7");
    cr_expect_eq(code.status, 7, "%s", code.err);
    CLEANUP_RESULT struct proc_result killed = CLI("exec", BOX, "-c", "kill -SEGV $$");
    cr_expect_eq(killed.status, 128 + SIGSEGV);
    fixture_assert_contains(killed.err, "SIGSEGV");
    CLEANUP_RESULT struct proc_result late = CLI("exec", BOX, "-T", "100ms", "--", "sleep", "600");
    cr_expect_eq(late.status, 124, "%s", late.err);
    CLEANUP_RESULT struct proc_result missing = CLI("exec", BOX, "--", "/no/such/program");
    cr_expect_eq(missing.status, 127);
    fixture_assert_contains(missing.err, "ENOENT at step exec");
    CLEANUP_RESULT struct proc_result id =
        CLI("exec", "-d", BOX, "--id", COMMAND_ID, "--", "sleep", "600");
    cr_assert_eq(id.status, 0, "%s", id.err);
    CLEANUP_RESULT struct proc_result kill = CLI("kill", COMMAND_ID);
    cr_assert_eq(kill.status, 0, "%s", kill.err);
    CLEANUP_RESULT struct proc_result cancelled = CLI("wait", COMMAND_ID);
    fixture_assert_contains(cancelled.err, "cancelled");
    cr_expect_neq(cancelled.status, 0);
}

/* More: history, keep, admission in relay_admit. */
Test(contract, row_2_run_once)
{
    char script[256];
    (void)snprintf(script, sizeof(script), "echo ran >> %s; exit 3", fixture_path("count"));
    for (int i = 0; i < 3; i++) {
        CLEANUP_RESULT struct proc_result run =
            CLI("exec", BOX, "--id", COMMAND_ID, "-n", "-c", script);
        cr_expect_eq(run.status, 3, "%s", run.err);
    }
    cr_expect_eq(fixture_count_lines(fixture_path("count")), 1u);
    CLEANUP_RESULT struct proc_result other =
        CLI("exec", BOX, "--id", COMMAND_ID, "-n", "--", "true");
    cr_expect_eq(other.status, 125);
    fixture_assert_contains(other.err, "taken by a different command");
}

/* More: relay_viewers, ledger_log*, spool*. */
Test(contract, row_3_a_ledger_by_offset)
{
    CLEANUP_RESULT struct proc_result run =
        CLI("exec", BOX, "--id", COMMAND_ID, "-n", "-c", "printf abcdef; sleep 0; printf ghij");
    cr_assert_str_eq(run.out, "abcdefghij", "%s", run.err);
    CLEANUP_RESULT struct proc_result rest = CLI("output", COMMAND_ID, "--from", "4");
    cr_expect_str_eq(rest.out, "efghij", "%s", rest.err);
    CLEANUP_RESULT struct proc_result last = CLI("output", COMMAND_ID, "-n", "3");
    cr_expect_str_eq(last.out, "hij");
    CLEANUP_RESULT struct proc_result beyond = CLI("output", COMMAND_ID, "--from", "11");
    cr_expect_neq(beyond.status, 0);
    cr_expect_str_eq(beyond.out, "");
}

/* More: load, relay_viewers. */
Test(contract, row_4_a_slow_reader_stops_its_own_command_alone)
{
    CLEANUP_CLIENT struct fixture_client slow = CLI_START(PIPE_OUT, "exec", BOX, "-n", "-c", "yes");
    char byte;
    cr_assert_eq(read(slow.out, &byte, 1), 1, "it runs");
    CLEANUP_RESULT struct proc_result other = CLI(
        "exec", BOX, "-n", "-c", "head -c 20000000 /dev/zero | wc -c; head -c 3000000 /dev/zero");
    cr_expect_eq(other.status, 0, "%s", other.err);
    cr_expect_gt(other.out_size, 3000000u);
}

/* More: spool*, command_output. */
Test(contract, row_5_a_command_that_nobody_reads_is_kept_or_says_what_it_lost)
{
    CLEANUP_RESULT struct proc_result start =
        CLI("exec", "-d", BOX, "--id", COMMAND_ID, "-c", "head -c 5000000 /dev/zero; echo end");
    cr_assert_eq(start.status, 0, "%s", start.err);
    CLEANUP_RESULT struct proc_result wait = CLI("wait", COMMAND_ID);
    cr_assert_eq(wait.status, 0, "%s", wait.err);
    CLEANUP_RESULT struct proc_result output = CLI("output", COMMAND_ID);
    cr_assert_eq(output.status, 0, "%s", output.err);
    /* Within the bound everything is there; beyond it a gap would say so. */
    cr_expect_eq(output.out_size, 5000004u, "%zu: %s", output.out_size, output.err);
    cr_expect_str_eq(output.out + 5000000, "end\n");
}

/* More: process*, command_kill, tree*. */
Test(contract, row_6_a_kill_is_for_the_whole_tree)
{
    char script[512];
    (void)snprintf(script, sizeof(script),
                   "setsid sh -c 'echo $$ > %s/inner.new; mv %s/inner.new %s/inner; "
                   "trap \"\" TERM; while :; do sleep 60; done' & wait",
                   fixture()->dir, fixture()->dir, fixture()->dir);
    CLEANUP_RESULT struct proc_result start =
        CLI("exec", "-d", BOX, "--id", COMMAND_ID, "--kill-grace", "200ms", "-c", script);
    cr_assert_eq(start.status, 0, "%s", start.err);
    fixture_wait_file(fixture_path("inner"));
    CLEANUP_RESULT struct proc_result pid = RUN(NULL, "cat", fixture_path("inner"));
    CLEANUP_RESULT struct proc_result kill = CLI("kill", COMMAND_ID);
    cr_assert_eq(kill.status, 0, "%s", kill.err);
    CLEANUP_RESULT struct proc_result wait = CLI("wait", COMMAND_ID);
    fixture_assert_contains(wait.err, "cancelled");
    fixture_wait_gone((pid_t)strtol(first_line(pid.out), NULL, 10));
}

Test(contract, row_6_a_background_child_neither_holds_the_end_nor_is_lost)
{
    CLEANUP_RESULT struct proc_result run =
        CLI("exec", BOX, "-n", "-c", "sleep 600 & echo $!; exit 5");
    cr_expect_eq(run.status, 5, "%s", run.err);
    fixture_assert_contains(run.err, "holds its output open");
    pid_t left = (pid_t)strtol(first_line(run.out), NULL, 10);
    cr_expect_eq(kill(left, SIGKILL), 0, "it was ended with its command");
}

/* More: exec, process*. */
Test(contract, row_7_a_timeout_kills_and_keeps_what_was_said)
{
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "-T", "300ms", "--kill-grace", "100ms",
                                                "-c", "echo early; trap '' TERM; sleep 600");
    cr_expect_eq(run.status, 124, "%s", run.err);
    cr_expect_str_eq(run.out, "early\n");
}

/* More: relay_viewers, exec. */
Test(contract, row_8_a_command_goes_on_or_ends_without_its_client_as_it_was_told)
{
    CLEANUP_RESULT struct proc_result start =
        CLI("exec", "-d", BOX, "--id", COMMAND_ID, "-c", "echo alone; exit 9");
    cr_assert_eq(start.status, 0, "%s", start.err);
    cr_expect_str_eq(first_line(start.out), COMMAND_ID);
    CLEANUP_RESULT struct proc_result wait = CLI("wait", COMMAND_ID);
    cr_expect_eq(wait.status, 9, "%s", wait.err);
    static const char mortal[] = "0189f7a2-7f6c-4c1e-9d55-8a1c2f3e4d5c";
    struct fixture_client client = CLI_START(PIPE_OUT, "exec", BOX, "--id", mortal, "--gone-after",
                                             "200ms", "-n", "-c", "echo here; sleep 600");
    char line[16];
    fixture_read_line(client.out, line, sizeof(line));
    fixture_client_done(&client);
    CLEANUP_RESULT struct proc_result gone = CLI("wait", mortal);
    fixture_assert_contains(gone.err, "client gone");
}

Test(contract, row_8_nor_does_it_notice_that_the_orchestrator_was_killed)
{
    CLEANUP_CLIENT struct fixture_client client = CLI_START(
        PIPE_IN | PIPE_OUT, "exec", BOX, "-q", "-c", "echo one; read line; echo $line; exit 6");
    char line[16];
    fixture_read_line(client.out, line, sizeof(line));
    cr_assert_str_eq(line, "one");
    MUST(service_kill(fixture()->orchestrator, err));
    MUST(cluster_start_orchestrator(fixture(), err));
    cr_assert_eq(write(client.in, "two\n", 4), 4);
    fixture_read_line(client.out, line, sizeof(line));
    cr_expect_str_eq(line, "two");
    cr_expect_eq(fixture_client_wait(&client), 6);
}

/* More: terminal, command_terminal, tty. */
Test(contract, row_9_a_terminal)
{
    CLEANUP_RESULT struct proc_result start =
        CLI("exec", "-d", "-t", BOX, "--id", COMMAND_ID, "-c", "test -t 0 && test -t 1 && tty");
    cr_assert_eq(start.status, 0, "%s", start.err);
    CLEANUP_RESULT struct proc_result wait = CLI("wait", COMMAND_ID);
    cr_expect_eq(wait.status, 0, "%s", wait.err);
    CLEANUP_RESULT struct proc_result output = CLI("output", COMMAND_ID);
    fixture_assert_contains(output.out, "/dev/pts/");
}
