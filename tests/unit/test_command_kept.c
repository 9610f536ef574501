/* A command in the eyes of the next runner, from what its file says at one moment or another: how
 * it ended, or that it is lost; and what becomes of a process that nobody waits for any more. */
#include "agent/leftover.h"
#include "tests/unit/command_fixture.h"
#include "tests/unit/state_fixture.h"

#include <poll.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

#define OK(call) cr_assert_eq((call), 0, "%s", err.text)

static struct bench bench;
/* Where a second runner finds what the first one has written so far. */
static struct state_dir *later;
static char later_path[80];

static void setup(void)
{
    struct err err = { 0 };
    state_setup();
    bench_init(&bench);
    bench.host.state = state_open(STATE_QUOTA_DEFAULT);
    (void)snprintf(later_path, sizeof(later_path), "%s/later", state_root);
    OK(state_dir_open(later_path, STATE_QUOTA_DEFAULT, &later, &err));
}

static void teardown(void)
{
    struct state_dir *state = bench.host.state;
    bench_done(&bench);
    state_dir_free(state);
    state_dir_free(later);
    state_teardown();
}

TestSuite(command_kept, .init = setup, .fini = teardown);

/* The command as it would be after a crash at this moment; takes the place of the one that runs. */
static struct command *crash(void)
{
    struct err err = { 0 };
    static uint8_t bytes[4u << 20];
    char from[128], to[128];
    struct command *copy = NULL;
    const struct command_id id = *command_id(bench.command);
    (void)snprintf(from, sizeof(from), "%s/%s", state_path, id.text);
    (void)snprintf(to, sizeof(to), "%s/%s", later_path, id.text);
    CLEANUP_FD int in = open(from, O_RDONLY | O_CLOEXEC);
    CLEANUP_FD int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    ssize_t n = read(in, bytes, sizeof(bytes));
    cr_assert(n > 0 && write(out, bytes, (size_t)n) == n);
    struct command_host host = bench.host;
    host.state = later;
    OK(command_load(&host, &id, &copy, &err));
    return copy;
}

/* Hears from it what it has to say from an offset on. */
static void hear(struct command *copy, uint64_t offset)
{
    command_free(bench.command);
    bench.command = copy;
    bench.settled = 0;
    cr_assert(bench_attach(&bench, offset, NO_LIMIT));
    bench_listen(&bench);
    cr_assert_not_null(bench.ended);
}

Test(command_kept, how_it_ended_and_what_it_said_is_as_it_was)
{
    (void)bench_run(&bench, "printf out; printf err >&2; exit 3");
    struct command *copy = crash();
    cr_expect_eq(command_state(copy), COMMAND_ENDED);
    cr_expect_not(command_is_lost(copy));
    hear(copy, 0);
    cr_expect_eq(bench.next, 6u);
    cr_expect_eq(bench.ended->outcome->exited->code, 3u);
    cr_expect_eq(bench.ended->outcome->stdout_bytes, 3u);
    cr_expect_eq(bench.ended->outcome->stderr_bytes, 3u);
    cr_expect_gt(bench.ended->outcome->usage->max_rss_bytes, 0u);
    cr_expect_eq(bench.started, 2u, "its pid is known");
}

Test(command_kept, one_that_could_not_start_is_kept_too)
{
    bench.spec.cwd = (char *)"/nonexistent";
    (void)bench_run(&bench, "true");
    hear(crash(), 0);
    cr_expect_eq(bench.ended->outcome->start_failed->errno_number, ENOENT);
}

Test(command_kept, a_running_one_is_lost_and_its_process_is_killed)
{
    bench_shell(&bench, "echo said; exec sleep 600", NO_LIMIT);
    UNTIL(&bench, bench.next == 5);
    struct command *copy = crash();
    cr_expect(command_is_lost(copy));
    /* Its parent is still there in this test, and sees how it goes. */
    UNTIL(&bench, bench.ended);
    cr_expect_eq(bench.ended->outcome->signaled->signal, (unsigned)SIGKILL);
    hear(copy, 0);
    cr_expect_eq(bench.ended->outcome->lost->reason,
                 SANDSTORM__V1__LOST_REASON__LOST_REASON_RUNNER_RESTARTED);
    cr_expect_not_null(strstr(bench.ended->outcome->lost->detail, "was killed"));
    cr_expect_eq(bench.ended->end_offset, 5u);
    cr_expect_eq(bench.ended->outcome->stdout_bytes, 5u);
}

Test(command_kept, what_was_only_in_memory_is_named_as_a_gap)
{
    bench_shell(&bench, "printf 0123456789; exec sleep 600", 4);
    UNTIL(&bench, command_spooled(bench.command) == 10);
    cr_assert(bench_credit(&bench, 3, 4));
    struct command *copy = crash();
    (void)memset(bench.bytes, 0, 10);
    hear(copy, 4);
    cr_expect_eq(bench.gaps, 1u);
    cr_expect_eq(bench.trimmed, 6u); /* neither dropped nor acknowledged: damaged */
    cr_expect_eq(bench.dropped, 0u);
}

Test(command_kept, the_digest_stays_with_the_id)
{
    static uint8_t digest[COMMAND_DIGEST_LEN] = { 1 };
    const ProtobufCBinaryData same = { sizeof(digest), digest };
    (void)bench_run(&bench, "true");
    struct command *copy = crash();
    cr_expect(command_same_spec(copy, &same));
    digest[1] = 1;
    cr_expect_not(command_same_spec(copy, &same));
    command_free(copy);
}

Test(command_kept, a_file_under_another_name_is_refused)
{
    struct err err = { 0 };
    (void)bench_run(&bench, "true");
    const struct command_id other = state_id(99);
    struct command *copy = NULL;
    state_copy(command_id(bench.command), &other, UINT64_MAX);
    cr_expect_eq(command_load(&bench.host, &other, &copy, &err), -1);
    cr_expect_eq(err.code, ERR_INVALID);
}

/* A process is never taken for another one. */

static pid_t sleeper(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        (void)setsid();
        (void)execlp("sleep", "sleep", "600", NULL);
        _exit(127);
    }
    return pid;
}

Test(command_kept, a_process_with_the_same_pid_from_another_time_is_left_alone)
{
    uint64_t before = clock_us(CLOCK_BOOTTIME);
    pid_t pid = sleeper();
    uint64_t after = clock_us(CLOCK_BOOTTIME);
    const uint64_t second = 1000000;
    cr_expect_eq(leftover_kill(pid, before - 10 * second, before - second), LEFTOVER_GONE);
    cr_expect_eq(leftover_kill(pid, after + second, after + 10 * second), LEFTOVER_GONE);
    cr_expect_eq(waitpid(pid, NULL, WNOHANG), 0, "it was killed");
    cr_expect_eq(leftover_kill(pid, before, after), LEFTOVER_KILLED);
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    cr_expect_eq(leftover_kill(pid, before, after), LEFTOVER_GONE);
}

Test(command_kept, neither_all_processes_nor_the_first_are_ever_meant)
{
    const uint64_t now = clock_us(CLOCK_BOOTTIME);
    cr_expect_eq(leftover_kill(-1, 0, now), LEFTOVER_GONE);
    cr_expect_eq(leftover_kill(0, 0, now), LEFTOVER_GONE);
    cr_expect_eq(leftover_kill(1, 0, now), LEFTOVER_GONE);
}

/* Any moment is one at which it may be killed. */
Test(command_kept, at_every_byte_of_its_file_the_next_runner_knows_something_true)
{
    struct err err = { 0 };
    (void)bench_run(&bench, "seq 1 30000; exit 3");
    const struct command_id id = *command_id(bench.command);
    uint64_t end = spool_end(&bench.command->spool), seed = 7;
    unsigned refused = 0, exact = 0;
    for (unsigned round = 0; round < 120; round++) {
        struct command *copy = NULL;
        uint64_t size = round < 100 ? (seed = seed * 6364136223846793005u + 1) % 200000 : 4096;
        struct command_host host = bench.host;
        char from[128], to[128];
        (void)snprintf(from, sizeof(from), "%s/%s", state_path, id.text);
        (void)snprintf(to, sizeof(to), "%s/%s", later_path, id.text);
        (void)unlink(to);
        CLEANUP_FD int in = open(from, O_RDONLY | O_CLOEXEC);
        CLEANUP_FD int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        for (off_t at = 0; at < (off_t)size;) {
            char bytes[65536];
            ssize_t n = pread(in, bytes, MIN(sizeof(bytes), size - (size_t)at), at);
            if (n <= 0)
                break;
            cr_assert_eq(pwrite(out, bytes, (size_t)n, at), n);
            at += n;
        }
        host.state = later;
        if (command_load(&host, &id, &copy, &err) < 0) {
            refused++;
            continue;
        }
        const Sandstorm__V1__Outcome *outcome = (const Sandstorm__V1__Outcome *)copy->kept;
        if (outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT_EXITED) {
            cr_expect_eq(outcome->exited->code, 3u);
            cr_expect_eq(spool_end(&copy->spool), end);
            exact++;
        } else {
            cr_expect(command_is_lost(copy));
        }
        cr_expect_leq(spool_end(&copy->spool), end);
        command_free(copy);
    }
    cr_expect(refused < 60 && exact > 20, "%u refused, %u exact", refused, exact);
}
