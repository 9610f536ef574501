/* The headline: kill the link, stop or restart the orchestrator; the command does not notice, and
 * no byte and no exit status is lost. And where something is lost, it is said. */
#include "tests/harness/fixture.h"

#include "common/clock.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define LINES 30000u

TestSuite(resilience, .init = fixture_start, .fini = fixture_stop);

/* A command that notes that it ran, prints a third of its numbered lines, waits for the file "go",
 * prints the rest, notes that it is done and exits with 7. */
static const char *counting_script(void)
{
    static char script[1024];
    const char *dir = fixture()->dir;
    (void)snprintf(script, sizeof(script),
                   "echo ran >> %s/count; seq 0 %u; while [ ! -e %s/go ]; do sleep 0.02; done; "
                   "seq %u %u; touch %s/done; exit 7",
                   dir, LINES / 3 - 1, dir, LINES / 3, LINES - 1, dir);
    return script;
}

static void assert_next_lines(int fd, unsigned from, unsigned to)
{
    char line[64], expected[64];
    for (unsigned i = from; i < to; i++) {
        fixture_read_line(fd, line, sizeof(line));
        (void)snprintf(expected, sizeof(expected), "%u", i);
        cr_assert_str_eq(line, expected);
    }
}

static void assert_ends_exactly(struct fixture_client *client)
{
    size_t size;
    CLEANUP_FREE char *rest = fixture_read_all(client->out, &size);
    cr_assert_eq(size, 0, "more output: %.100s", rest);
    cr_assert_eq(fixture_client_wait(client), 7);
    cr_assert_eq(fixture_count_lines(fixture_path("count")), 1, "the command did not run once");
}

Test(resilience, a_killed_link_costs_no_byte_and_no_exit_status)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT | PIPE_ERR, "exec", BOX, "-c", counting_script());
    char note[256];
    assert_next_lines(client.out, 0, 10);
    MUST(service_kill(fixture_box()->link, err));
    fixture_read_line(client.err, note, sizeof(note));
    fixture_assert_contains(note, "link is away");
    fixture_touch("go");
    MUST(sandbox_start_link(fixture_box(), err));
    assert_next_lines(client.out, 10, LINES);
    assert_ends_exactly(&client);
}

Test(resilience, a_command_may_end_while_the_link_is_away)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT, "exec", BOX, "-c", counting_script());
    assert_next_lines(client.out, 0, 10);
    MUST(service_kill(fixture_box()->link, err));
    fixture_touch("go");
    fixture_wait_file(fixture_path("done"));
    MUST(sandbox_start_link(fixture_box(), err));
    assert_next_lines(client.out, 10, LINES);
    assert_ends_exactly(&client);
}

Test(resilience, a_link_that_is_killed_again_and_again_costs_nothing)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT, "exec", BOX, "-c", counting_script());
    fixture_touch("go");
    for (unsigned i = 0; i < 5; i++) {
        assert_next_lines(client.out, i * LINES / 8, (i + 1) * LINES / 8);
        MUST(service_kill(fixture_box()->link, err));
        MUST(sandbox_start_link(fixture_box(), err));
    }
    assert_next_lines(client.out, 5 * LINES / 8, LINES);
    assert_ends_exactly(&client);
}

/* Input from a file, so that the client reads it at its own pace. */
Test(resilience, a_killed_link_costs_no_byte_of_input)
{
    const size_t size = 3u * 1024 * 1024;
    CLEANUP_FREE char *bytes = malloc(size);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(i * 2654435761u >> 13);
    CLEANUP_FD int file = memfd_create("input", MFD_CLOEXEC);
    cr_assert_eq(write(file, bytes, size), (ssize_t)size);
    cr_assert_eq(lseek(file, 0, SEEK_SET), 0);
    int out[2];
    cr_assert_eq(pipe2(out, O_CLOEXEC), 0);
    CLEANUP_CLIENT struct fixture_client client = { .in = -1, .out = out[0], .err = -1 };
    MUST(cluster_cli_start(fixture(), (const char *[]){ "exec", BOX, "--", "cat", NULL }, file,
                           out[1], -1, &client.proc, err));
    (void)close(out[1]);
    CLEANUP_FREE char *back = malloc(size + 1);
    size_t used = 0;
    for (unsigned kills = 0;; kills++) {
        while (used < size && used < (kills + 1) * 400000) {
            ssize_t n = read(client.out, back + used, size - used);
            cr_assert_gt(n, 0, "the output ended after %zu bytes", used);
            used += (size_t)n;
        }
        if (used == size)
            break;
        MUST(service_kill(fixture_box()->link, err));
        MUST(sandbox_start_link(fixture_box(), err));
    }
    cr_assert_eq(read(client.out, back + size, 1), 0, "more came back than was sent");
    cr_assert(memcmp(back, bytes, size) == 0, "the bytes differ");
    cr_assert_eq(fixture_client_wait(&client), 0);
}

Test(resilience, an_orchestrator_that_stands_still_delays_and_loses_nothing)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT, "exec", BOX, "-c", counting_script());
    assert_next_lines(client.out, 0, 10);
    MUST(service_signal(fixture()->orchestrator, SIGSTOP, err));
    fixture_touch("go");
    fixture_wait_file(fixture_path("done"));
    MUST(service_signal(fixture()->orchestrator, SIGCONT, err));
    assert_next_lines(client.out, 10, LINES);
    assert_ends_exactly(&client);
}

Test(resilience, a_link_that_stands_still_delays_and_loses_nothing)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT, "exec", BOX, "-c", counting_script());
    assert_next_lines(client.out, 0, 10);
    MUST(service_signal(fixture_box()->link, SIGSTOP, err));
    fixture_touch("go");
    fixture_wait_file(fixture_path("done"));
    MUST(service_signal(fixture_box()->link, SIGCONT, err));
    assert_next_lines(client.out, 10, LINES);
    assert_ends_exactly(&client);
}

Test(resilience, a_killed_runner_loses_the_command_and_says_so)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT | PIPE_ERR, "exec", BOX, "-c", counting_script());
    assert_next_lines(client.out, 0, LINES / 3);
    MUST(service_kill(fixture_box()->runner, err));
    MUST(sandbox_start_runner(fixture_box(), err));
    cr_assert_eq(fixture_client_wait(&client), 255);
    size_t size;
    CLEANUP_FREE char *notes = fixture_read_all(client.err, &size);
    fixture_assert_contains(notes, "lost");
    cr_assert_eq(fixture_count_lines(fixture_path("count")), 1);
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "--", "echo", "served");
    cr_assert_str_eq(run.out, "served\n");
}

Test(resilience, a_sandbox_without_a_runner_says_so)
{
    service_forget_status(fixture_box()->link);
    MUST(service_stop(fixture_box()->runner, err));
    MUST(service_wait_status(fixture_box()->link, "connected to", PROC_DEADLINE_US, err));
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "--", "true");
    cr_assert_eq(run.status, 125, "status %d", run.status);
    fixture_assert_contains(run.err, "no sandstorm-runner is running there");
}

Test(resilience, a_client_that_gives_up_on_its_orchestrator_invents_no_result)
{
    CLEANUP_CLIENT struct fixture_client client = CLI_START(
        PIPE_OUT | PIPE_ERR, "exec", BOX, "--give-up-after", "1s", "-c", counting_script());
    assert_next_lines(client.out, 0, 10);
    MUST(service_kill(fixture()->orchestrator, err));
    cr_assert_eq(fixture_client_wait(&client), 255);
    size_t size;
    CLEANUP_FREE char *notes = fixture_read_all(client.err, &size);
    fixture_assert_contains(notes, "the connection to the orchestrator was lost; reconnecting");
    fixture_assert_contains(notes, "is unknown");
    fixture_assert_contains(notes, "sandstorm wait ");
}

Test(resilience, a_link_comes_back_when_its_orchestrator_does)
{
    service_forget_status(fixture_box()->link);
    MUST(service_kill(fixture()->orchestrator, err));
    MUST(service_wait_status(fixture_box()->link, "connecting", PROC_DEADLINE_US, err));
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(fixture_box(), err));
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "--", "echo", "served");
    cr_assert_str_eq(run.out, "served\n");
}

Test(resilience, a_link_comes_back_after_an_orderly_restart)
{
    service_forget_status(fixture_box()->link);
    MUST(service_stop(fixture()->orchestrator, err));
    MUST(service_wait_log(fixture_box()->link, "the orchestrator says goodbye", PROC_DEADLINE_US,
                          err));
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(fixture_box(), err));
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "--", "echo", "served");
    cr_assert_str_eq(run.out, "served\n");
}

Test(resilience, of_two_links_with_one_identity_the_newer_wins_and_the_older_is_told)
{
    struct sandbox_processes *twin = NULL;
    MUST(cluster_add_sandbox(fixture(), "twin", &twin, err));
    cluster_remove_dir(twin->identity);
    cr_assert_eq(symlink(fixture_box()->identity, twin->identity), 0);
    MUST(sandbox_start_runner(twin, err));
    MUST(service_start(twin->link, err));
    MUST(service_wait_log(fixture_box()->link, "a newer link with this identity has connected",
                          PROC_DEADLINE_US, err));
    /* Left alone the two would take turns, as two clones do. */
    MUST(service_kill(fixture_box()->link, err));
    MUST(service_wait_status(twin->link, "online as \"" BOX "\"", PROC_DEADLINE_US, err));
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    long runner = 0;
    while (runner == 0 && monotonic_us() < deadline) {
        CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "-c", "echo $PPID");
        runner = run.status == 0 ? strtol(run.out, NULL, 10) : 0;
    }
    cr_assert_eq(runner, (long)proc_pid(service_proc(twin->runner)));
}

/* Stopping. */

Test(resilience, a_runner_goes_when_it_is_told_although_nobody_takes_the_output)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT, "exec", BOX, "--", "sh", "-c", "echo $$; exec yes");
    char line[64];
    fixture_read_line(client.out, line, sizeof(line));
    pid_t command = (pid_t)strtol(line, NULL, 10);
    cr_assert_gt(command, 1);
    /* Nobody reads any more: the command is blocked, and so is its end. */
    MUST(service_stop(fixture_box()->runner, err));
    fixture_wait_gone(command);
    MUST(sandbox_start_runner(fixture_box(), err));
}

Test(resilience, an_orchestrator_that_is_told_twice_cuts_its_clients_and_goes_in_order)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT, "exec", BOX, "--give-up-after", "1s", "--", "sh", "-c",
                  "echo ready; exec sleep 600");
    char line[64];
    fixture_read_line(client.out, line, sizeof(line));
    MUST(service_signal(fixture()->orchestrator, SIGTERM, err));
    MUST(service_wait_log(fixture()->orchestrator, "signals=1", PROC_DEADLINE_US, err));
    MUST(service_stop(fixture()->orchestrator, err));
    cr_assert_eq(fixture_client_wait(&client), 255);
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(fixture_box(), err));
}
