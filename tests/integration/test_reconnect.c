/* A client whose orchestrator goes and comes back, with the real daemons: the command does not
 * notice, and the one who typed it sees two notes and nothing else. */
#include "common/clock.h"
#include "tests/harness/fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define LINES 30000u

TestSuite(reconnect, .init = fixture_start, .fini = fixture_stop);

/* Notes that it ran, prints a third of its numbered lines, waits for "go", prints the rest. */
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

/* Until the link is back, too: what it says of itself must be read, or it waits for us. */
static void kill_and_start(void)
{
    service_forget_status(fixture_box()->link);
    MUST(service_kill(fixture()->orchestrator, err));
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(fixture_box(), err));
}

/* Until the orchestrator has been asked that by somebody. */
static void wait_call(const char *method)
{
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    while (AUDIT_COUNT(method) == 0)
        cr_assert_lt(monotonic_us(), deadline, "%s was never called", method);
}

static void assert_note(int fd, const char *wanted)
{
    char note[512];
    fixture_read_line(fd, note, sizeof(note));
    fixture_assert_contains(note, wanted);
}

Test(reconnect, a_killed_orchestrator_costs_two_notes_and_nothing_else)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT | PIPE_ERR, "exec", BOX, "-n", "-c", counting_script());
    assert_next_lines(client.out, 0, 10);
    kill_and_start();
    assert_note(client.err,
                "the connection to the orchestrator was lost; reconnecting, the command "
                "goes on");
    assert_note(client.err, "connected to the orchestrator again");
    fixture_touch("go");
    assert_next_lines(client.out, 10, LINES);
    assert_ends_exactly(&client);
}

Test(reconnect, a_command_may_end_while_there_is_no_orchestrator)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT, "exec", BOX, "-n", "-c", counting_script());
    assert_next_lines(client.out, 0, 10);
    MUST(service_kill(fixture()->orchestrator, err));
    fixture_touch("go");
    fixture_wait_file(fixture_path("done"));
    MUST(cluster_start_orchestrator(fixture(), err));
    assert_next_lines(client.out, 10, LINES);
    assert_ends_exactly(&client);
}

Test(reconnect, an_orderly_restart_costs_nothing_either)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT, "exec", BOX, "-n", "-c", counting_script());
    assert_next_lines(client.out, 0, 10);
    MUST(service_stop(fixture()->orchestrator, err));
    MUST(cluster_start_orchestrator(fixture(), err));
    fixture_touch("go");
    assert_next_lines(client.out, 10, LINES);
    assert_ends_exactly(&client);
}

Test(reconnect, an_orchestrator_that_is_killed_again_and_again_costs_nothing)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT, "exec", BOX, "-n", "-c", counting_script());
    fixture_touch("go");
    for (unsigned i = 0; i < 4; i++) {
        assert_next_lines(client.out, i * LINES / 8, (i + 1) * LINES / 8);
        kill_and_start();
    }
    assert_next_lines(client.out, 4 * LINES / 8, LINES);
    assert_ends_exactly(&client);
}

Test(reconnect, no_byte_of_input_is_lost_or_read_twice)
{
    const size_t size = 3u * 1024 * 1024;
    CLEANUP_FREE char *bytes = malloc(size), *back = malloc(size + 1);
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
    size_t used = 0;
    for (unsigned kills = 0; used < size; kills++) {
        while (used < size && used < (size_t)(kills + 1) * 700000) {
            ssize_t n = read(client.out, back + used, size - used);
            cr_assert_gt(n, 0, "the output ended after %zu bytes", used);
            used += (size_t)n;
        }
        if (used < size)
            kill_and_start();
    }
    cr_assert_eq(read(client.out, back + size, 1), 0, "more came back than was sent");
    cr_assert(memcmp(back, bytes, size) == 0, "the bytes differ");
    cr_assert_eq(fixture_client_wait(&client), 0);
}

Test(reconnect, a_start_that_nobody_answered_runs_once)
{
    CLEANUP_CLIENT struct fixture_client client = { .in = -1, .out = -1, .err = -1 };
    /* It stands still with the request in its socket, and is killed there. */
    MUST(service_signal(fixture()->orchestrator, SIGSTOP, err));
    fixture_touch("go");
    client = CLI_START(0, "exec", BOX, "-n", "-c", counting_script());
    MUST(service_kill(fixture()->orchestrator, err));
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(fixture_box(), err));
    int status = fixture_client_wait(&client);
    /* Either nothing had left the client, which it says, or it ran: once. */
    unsigned runs = fixture_count_lines(fixture_path("count"));
    cr_assert((status == 7 && runs == 1) || (status == 125 && runs == 0), "status %d, ran %u times",
              status, runs);
}

Test(reconnect, wait_goes_on_through_a_restart)
{
    CLEANUP_RESULT struct proc_result start = CLI("exec", "-d", BOX, "-c", counting_script());
    cr_assert_eq(start.status, 0, "%s", start.err);
    start.out[strcspn(start.out, "\n")] = '\0';
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT | PIPE_ERR, "wait", "-o", "json", start.out);
    CLEANUP_CLIENT struct fixture_client other = CLI_START(PIPE_OUT, "output", "-f", start.out);
    assert_next_lines(other.out, 0, 10);
    wait_call("WaitCommand");
    kill_and_start();
    fixture_touch("go");
    assert_next_lines(other.out, 10, LINES);
    cr_assert_eq(fixture_client_wait(&other), 0);
    cr_assert_eq(fixture_client_wait(&client), 7);
    cr_assert_eq(fixture_count_lines(fixture_path("count")), 1);
}

Test(reconnect, a_signal_waits_for_the_connection)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT | PIPE_ERR, "exec", BOX, "-n", "-c",
                  "trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.05; done");
    char line[64];
    fixture_read_line(client.out, line, sizeof(line));
    MUST(service_kill(fixture()->orchestrator, err));
    assert_note(client.err, "reconnecting");
    MUST(proc_signal(client.proc, SIGINT, err));
    assert_note(client.err, "interrupting the command");
    MUST(cluster_start_orchestrator(fixture(), err));
    fixture_read_line(client.out, line, sizeof(line));
    cr_assert_str_eq(line, "interrupted");
    cr_assert_eq(fixture_client_wait(&client), 9);
}
