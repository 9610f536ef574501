/* `sandstorm exec` through the whole system: what a command's output, input, outcome and signals
 * look like to the one who typed it. */
#include "tests/harness/fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define COMMAND_ID "0189f7a2-7f6c-4c1e-9d55-8a1c2f3e4d5b"

TestSuite(exec, .init = fixture_start, .fini = fixture_stop);

/* Outcomes. */

Test(exec, keeps_the_streams_apart_and_returns_the_exit_status)
{
    CLEANUP_RESULT struct proc_result run =
        CLI("exec", BOX, "-c", "echo to stdout; echo to stderr >&2; exit 7");
    cr_assert_str_eq(run.out, "to stdout\n");
    cr_assert_str_eq(run.err, "to stderr\n");
    cr_assert_eq(run.status, 7, "status %d", run.status);
}

Test(exec, says_which_signal_killed_the_command)
{
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "-c", "kill -9 $$");
    cr_assert_eq(run.status, 137, "status %d", run.status);
    fixture_assert_contains(run.err, "killed by SIGKILL");
}

Test(exec, does_not_take_exit_status_137_for_a_signal)
{
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "-c", "exit 137");
    cr_assert_eq(run.status, 137);
    cr_assert_str_eq(run.err, "");
}

Test(exec, gives_127_for_a_command_that_does_not_exist)
{
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "--", "/no/such/command");
    cr_assert_eq(run.status, 127, "status %d", run.status);
    fixture_assert_contains(run.err, "ENOENT at step exec");
    fixture_assert_contains(run.err, "/no/such/command");
}

Test(exec, gives_126_for_a_file_that_cannot_be_run)
{
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "--", "/etc/passwd");
    cr_assert_eq(run.status, 126, "status %d", run.status);
    fixture_assert_contains(run.err, "EACCES at step exec");
}

Test(exec, gives_125_for_a_directory_that_does_not_exist)
{
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "-C", "/no/such/dir", "--", "true");
    cr_assert_eq(run.status, 125, "status %d", run.status);
    fixture_assert_contains(run.err, "ENOENT at step cwd");
    fixture_assert_contains(run.err, "/no/such/dir");
}

Test(exec, gives_125_and_a_hint_for_a_sandbox_that_does_not_exist)
{
    CLEANUP_RESULT struct proc_result run = CLI("exec", "no-such-box", "--", "true");
    cr_assert_eq(run.status, 125, "status %d", run.status);
    fixture_assert_contains(run.err, "no sandbox \"no-such-box\"");
    fixture_assert_contains(run.err, "sandstorm ls");
}

Test(exec, gives_124_when_the_timeout_passes)
{
    CLEANUP_RESULT struct proc_result run =
        CLI("exec", BOX, "--timeout", "200ms", "-c", "echo before; sleep 600");
    cr_assert_eq(run.status, 124, "status %d", run.status);
    cr_assert_str_eq(run.out, "before\n");
    fixture_assert_contains(run.err, "timeout");
}

/* Where and with what it runs. */

Test(exec, sets_the_environment)
{
    CLEANUP_RESULT struct proc_result run =
        CLI("exec", BOX, "-E", "GREETING=hello there", "--env=EMPTY=", "--", "sh", "-c",
            "printf '%s|%s|%s' \"$GREETING\" \"${EMPTY-unset}\" \"${NOTIFY_SOCKET-none}\"");
    cr_assert_str_eq(run.out, "hello there||none");
    cr_assert_eq(run.status, 0);
}

Test(exec, starts_in_the_directory_that_was_asked_for)
{
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "-C", "/usr/bin", "--", "pwd");
    cr_assert_str_eq(run.out, "/usr/bin\n");
}

Test(exec, passes_arguments_as_they_are)
{
    CLEANUP_RESULT struct proc_result run =
        CLI("exec", BOX, "--", "printf", "%s|", "a b", "", "$HOME", "--env", "*", "\xc3\xa9");
    cr_assert_str_eq(run.out, "a b||$HOME|--env|*|\xc3\xa9|");
}

Test(exec, lets_the_shell_run_a_line)
{
    CLEANUP_RESULT struct proc_result run =
        CLI("exec", BOX, "--shell", "echo one two | wc -w; exit 4");
    cr_assert_str_eq(run.out, "2\n");
    cr_assert_eq(run.status, 4);
}

/* Input. */

/* Bytes of every value, without a period that a buffer's size could hide. */
static char *make_bytes(size_t size)
{
    char *bytes = malloc(size);
    cr_assert_not_null(bytes);
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < size; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (char)(state >> 56);
    }
    return bytes;
}

Test(exec, feeds_a_pipe_to_the_command)
{
    CLEANUP_RESULT struct proc_result run =
        CLI_INPUT("one\ntwo\n", 8, "exec", BOX, "--", "tr", "a-z", "A-Z");
    cr_assert_str_eq(run.out, "ONE\nTWO\n");
    cr_assert_eq(run.status, 0);
}

Test(exec, carries_five_mebibytes_through_cat_unchanged)
{
    const size_t size = 5u * 1024 * 1024;
    CLEANUP_FREE char *bytes = make_bytes(size);
    CLEANUP_RESULT struct proc_result run = CLI_INPUT(bytes, size, "exec", BOX, "--", "cat");
    cr_assert_eq(run.status, 0, "status %d: %s", run.status, run.err);
    cr_assert_eq(run.out_size, size, "%zu bytes came back", run.out_size);
    cr_assert(memcmp(run.out, bytes, size) == 0, "the bytes differ");
}

Test(exec, does_not_mind_a_command_that_leaves_its_input)
{
    const size_t size = 2u * 1024 * 1024;
    CLEANUP_FREE char *bytes = make_bytes(size);
    CLEANUP_RESULT struct proc_result run =
        CLI_INPUT(bytes, size, "exec", BOX, "-c", "head -c 10 | wc -c; exit 5");
    cr_assert_str_eq(run.out, "10\n");
    cr_assert_eq(run.status, 5, "status %d: %s", run.status, run.err);
}

Test(exec, goes_on_when_the_command_has_closed_its_input)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_IN | PIPE_OUT, "exec", BOX, "-c",
                  "exec <&-; echo closed; sleep 0.2; echo done; exit 6");
    char line[64];
    fixture_read_line(client.out, line, sizeof(line));
    cr_assert_str_eq(line, "closed");
    /* Our end is still open, and more than one message is written into it. */
    for (int i = 0; i < 4; i++)
        cr_assert_eq(write(client.in, "more input\n", 11), 11);
    fixture_read_line(client.out, line, sizeof(line));
    cr_assert_str_eq(line, "done");
    cr_assert_eq(fixture_client_wait(&client), 6);
}

/* Output. */

#define BIG_OUTPUT                                                                                 \
    "perl -e 'binmode STDOUT; my $b = join \"\", map { chr } 0 .. 255; my $n = 0;"                 \
    "while ($n < 81920) { print pack(\"N\", $n), substr($b, 0, 252); $n++ }'"
#define BIG_BLOCKS 81920u
#define BIG_BLOCK  256u

/* 20 MiB: blocks of 256 bytes, each with its number and all the values up to 251. */
static void assert_big_output(const char *data, size_t size)
{
    cr_assert_eq(size, (size_t)BIG_BLOCKS * BIG_BLOCK, "%zu bytes came", size);
    for (uint32_t i = 0; i < BIG_BLOCKS; i++) {
        const unsigned char *block = (const unsigned char *)data + (size_t)i * BIG_BLOCK;
        uint32_t number = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 |
                          (uint32_t)block[2] << 8 | block[3];
        cr_assert_eq(number, i, "block %u has the number %u", i, number);
        for (unsigned at = 4; at < BIG_BLOCK; at++)
            if (block[at] != at - 4)
                cr_assert_fail("block %u differs at byte %u", i, at);
    }
}

Test(exec, carries_twenty_mebibytes_of_output_byte_for_byte)
{
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "-c", BIG_OUTPUT);
    cr_assert_eq(run.status, 0, "status %d: %s", run.status, run.err);
    assert_big_output(run.out, run.out_size);
}

Test(exec, carries_nul_and_0xff)
{
    CLEANUP_RESULT struct proc_result run =
        CLI("exec", BOX, "-c", "printf 'a\\000b\\377c'; printf '\\377\\000' >&2");
    cr_assert_eq(run.out_size, 5);
    cr_assert(memcmp(run.out,
                     "a\0b\xff"
                     "c",
                     5) == 0);
    cr_assert_eq(run.err_size, 2);
    cr_assert(memcmp(run.err, "\xff\0", 2) == 0);
}

Test(exec, waits_for_a_slow_reader_and_loses_nothing)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT, "exec", BOX, "-c", "echo first; " BIG_OUTPUT);
    char line[64];
    fixture_read_line(client.out, line, sizeof(line));
    /* Nobody reads now. A neighbour's command runs through all the same, and by then every buffer
     * of the first one's way is full: it writes 20 MiB as fast as it can. */
    CLEANUP_RESULT struct proc_result neighbour =
        CLI("exec", BOX, "-c", "head -c 3000000 /dev/zero | wc -c");
    cr_assert_str_eq(neighbour.out, "3000000\n");
    size_t size;
    CLEANUP_FREE char *data = fixture_read_all(client.out, &size);
    assert_big_output(data, size);
    cr_assert_eq(fixture_client_wait(&client), 0);
}

Test(exec, ends_the_command_when_the_reader_goes_away)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT, "exec", BOX, "-c", "echo $$; exec yes");
    char line[64];
    fixture_read_line(client.out, line, sizeof(line));
    close_fd(&client.out);
    cr_assert_eq(fixture_client_wait(&client), 128 + SIGPIPE);
    fixture_wait_gone((pid_t)strtol(line, NULL, 10));
}

Test(exec, returns_while_a_background_child_holds_the_output)
{
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "-c", "sleep 600 & echo $!; exit 3");
    cr_assert_eq(run.status, 3, "status %d", run.status);
    fixture_assert_contains(run.err, "left behind");
    pid_t child = (pid_t)strtol(run.out, NULL, 10);
    cr_assert_eq(kill(child, 0), 0, "the background child was killed");
    (void)kill(child, SIGKILL);
}

Test(exec, lets_a_background_process_write_after_the_command_is_gone)
{
    char script[512];
    (void)snprintf(
        script, sizeof(script),
        "(while [ ! -e %s/go ]; do sleep 0.02; done; echo late; echo late; touch %s/late) & "
        "echo early",
        fixture()->dir, fixture()->dir);
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "-c", script);
    cr_assert_str_eq(run.out, "early\n");
    /* The next command's start shows that the runner has let go of the one before. */
    CLEANUP_RESULT struct proc_result next = CLI("exec", BOX, "--", "true");
    cr_assert_eq(next.status, 0);
    fixture_touch("go");
    fixture_wait_file(fixture_path("late"));
}

/* Records as small as they can be fill bounds by their number, not by their bytes. */
Test(exec, carries_streams_that_alternate_with_every_byte)
{
    CLEANUP_RESULT struct proc_result run =
        CLI("exec", BOX, "--", "perl", "-e",
            "$| = 1; for (1 .. 20000) { syswrite STDOUT, 'o'; syswrite STDERR, 'e' }");
    cr_assert_eq(run.status, 0, "%s", run.err);
    cr_assert_eq(run.out_size, 20000);
    cr_assert_eq(run.err_size, 20000);
    cr_assert_eq(strspn(run.out, "o"), 20000);
    cr_assert_eq(strspn(run.err, "e"), 20000);
}

Test(exec, does_not_call_it_a_success_when_the_output_could_not_be_written)
{
    CLEANUP_FD int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    int errors[2];
    cr_assert(full >= 0 && pipe2(errors, O_CLOEXEC) == 0);
    CLEANUP_CLIENT struct fixture_client client = { .in = -1, .out = -1, .err = errors[0] };
    MUST(cluster_cli_start(fixture(), (const char *[]){ "exec", BOX, "--", "echo", "hi", NULL }, -1,
                           full, errors[1], &client.proc, err));
    (void)close(errors[1]);
    cr_assert_eq(fixture_client_wait(&client), 255);
    char line[256];
    fixture_read_line(client.err, line, sizeof(line));
    fixture_assert_contains(line, "No space left on device");
}

/* Signals and leaving. */

Test(exec, passes_an_interrupt_on_to_the_command)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT, "exec", BOX, "-c",
                  "trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.05; done");
    char line[64];
    fixture_read_line(client.out, line, sizeof(line));
    cr_assert_str_eq(line, "ready");
    MUST(proc_signal(client.proc, SIGINT, err));
    fixture_read_line(client.out, line, sizeof(line));
    cr_assert_str_eq(line, "interrupted");
    cr_assert_eq(fixture_client_wait(&client), 9);
}

Test(exec, kills_the_command_after_a_while_when_the_client_was_killed)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT, "exec", BOX, "--gone-after", "5s", "-c", "echo $$; exec sleep 600");
    char line[64];
    fixture_read_line(client.out, line, sizeof(line));
    pid_t command = (pid_t)strtol(line, NULL, 10);
    MUST(proc_signal(client.proc, SIGKILL, err));
    cr_assert_eq(fixture_client_wait(&client), 137);
    cr_assert_eq(kill(command, 0), 0, "the command did not get its grace");
    fixture_wait_gone(command);
}

/* Ids. */

Test(exec, attaches_a_second_client_instead_of_running_twice)
{
    char script[512], line[64];
    (void)snprintf(script, sizeof(script),
                   "echo ran >> %s/count; echo began; while [ ! -e %s/go ]; do sleep 0.05; done; "
                   "echo ended; exit 8",
                   fixture()->dir, fixture()->dir);
    CLEANUP_CLIENT struct fixture_client first =
        CLI_START(PIPE_OUT | PIPE_ERR, "exec", BOX, "--id", COMMAND_ID, "-n", "-c", script);
    fixture_read_line(first.out, line, sizeof(line));
    cr_assert_str_eq(line, "began");
    CLEANUP_CLIENT struct fixture_client second =
        CLI_START(PIPE_OUT, "exec", BOX, "--id", COMMAND_ID, "-n", "-c", script);
    /* The first one is told that it was replaced, and knows no result. */
    cr_assert_eq(fixture_client_wait(&first), 255);
    fixture_read_line(first.err, script, sizeof(script));
    fixture_assert_contains(script, "another client has attached");
    fixture_touch("go");
    cr_assert_eq(fixture_client_wait(&second), 8);
    size_t size;
    CLEANUP_FREE char *output = fixture_read_all(second.out, &size);
    fixture_assert_contains(output, "ended\n");
    cr_assert_eq(fixture_count_lines(fixture_path("count")), 1);
}

Test(exec, attaches_to_a_command_that_has_read_input_and_repeats_none_of_it)
{
    char line[64];
    const char *script = "while read -r line; do echo \"got $line\"; done; exit 5";
    CLEANUP_CLIENT struct fixture_client first =
        CLI_START(PIPE_IN | PIPE_OUT, "exec", BOX, "--id", COMMAND_ID, "-c", script);
    cr_assert_eq(write(first.in, "one\n", 4), 4);
    fixture_read_line(first.out, line, sizeof(line));
    cr_assert_str_eq(line, "got one");
    /* A retry begins its input at the beginning, as the first attempt did. */
    CLEANUP_RESULT struct proc_result second =
        CLI_INPUT("one\ntwo\n", 8, "exec", BOX, "--id", COMMAND_ID, "-c", script);
    cr_assert_eq(second.status, 5, "%s", second.err);
    fixture_assert_contains(second.out, "got two\n");
    cr_assert_null(
        strstr(strstr(second.out, "got one") ? strstr(second.out, "got one") + 1 : "", "got one"),
        "input was read twice: %s", second.out);
}

Test(exec, refuses_an_id_that_is_taken_by_another_command)
{
    char line[64], script[256];
    (void)snprintf(script, sizeof(script), "echo began; while [ ! -e %s/go ]; do sleep 0.05; done",
                   fixture()->dir);
    CLEANUP_CLIENT struct fixture_client first =
        CLI_START(PIPE_OUT, "exec", BOX, "--id", COMMAND_ID, "-n", "-c", script);
    fixture_read_line(first.out, line, sizeof(line));
    CLEANUP_RESULT struct proc_result other =
        CLI("exec", BOX, "--id", COMMAND_ID, "-n", "--", "true");
    cr_assert_neq(other.status, 0);
    fixture_assert_contains(other.err, "taken by a different command");
    /* The command's own client has noticed nothing of it. */
    fixture_touch("go");
    cr_assert_eq(fixture_client_wait(&first), 0);
}

Test(exec, does_not_run_a_finished_command_again)
{
    char script[256];
    (void)snprintf(script, sizeof(script), "echo ran >> %s/count; echo out; exit 7",
                   fixture()->dir);
    CLEANUP_RESULT struct proc_result first =
        CLI("exec", BOX, "--id", COMMAND_ID, "-n", "-c", script);
    cr_assert_eq(first.status, 7);
    cr_assert_str_eq(first.out, "out\n");
    CLEANUP_RESULT struct proc_result again =
        CLI("exec", BOX, "--id", COMMAND_ID, "-n", "-c", script);
    cr_assert_eq(again.status, 7, "status %d: %s", again.status, again.err);
    cr_assert_str_eq(again.out, "out\n");
    cr_assert_eq(fixture_count_lines(fixture_path("count")), 1);
}
