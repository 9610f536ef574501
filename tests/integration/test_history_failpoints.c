/* A power cut at each step between an order and the last word about it: the exit code is there
 * afterwards, or it is certain that nothing ran. Only in builds with failpoints
 * (common/failpoint.h). */
#include "tests/integration/history_fixture.h"

#include <signal.h>

#define KILLED (128 + SIGKILL)

TestSuite(history_failpoints, .init = fixture_start, .fini = fixture_stop);

/* The orchestrator dies at that point of this command, and is started again. */
static void die_at(const char *point, const struct held *held)
{
    char variable[64];
    int status = 0;
    struct sandbox_processes *box = fixture_box();
    struct service *orchestrator = fixture()->orchestrator;
    MUST(service_stop(orchestrator, err));
    (void)snprintf(variable, sizeof(variable), "SANDSTORM_FAILPOINT=%s", point);
    MUST(service_set_env(orchestrator, variable, err));
    service_forget_status(box->link);
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(box, err));
    CLEANUP_CLIENT struct fixture_client client = CLI_START(
        0, "exec", "--give-up-after", "1s", BOX, "--id", held->id, "-n", "-c", held->script);
    if (strcmp(point, "history.admitted") != 0)
        held_open(held);
    MUST(service_wait_ended(orchestrator, &status, err));
    cr_assert_eq(status, KILLED, "%d", status);
    cr_assert_neq(fixture_client_wait(&client), 0, "a result was invented");
    MUST(service_set_env(orchestrator, "SANDSTORM_FAILPOINT", err));
    service_forget_status(box->link);
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(box, err));
}

static void expect_kept(const char *point)
{
    struct held held;
    held_init(&held, 9);
    die_at(point, &held);
    history_expect_exit(held.id, 9);
    cr_assert_eq(fixture_count_lines(held.count), 1u);
    CLEANUP_RESULT struct proc_result again =
        CLI("exec", BOX, "--id", held.id, "-n", "-c", held.script);
    cr_assert_eq(again.status, 9, "%s", again.err);
    cr_assert_eq(fixture_count_lines(held.count), 1u, "it ran again");
}

Test(history_failpoints, an_end_that_was_heard_and_not_written_is_heard_again)
{
    expect_kept("history.settled");
}

Test(history_failpoints, an_end_that_was_written_stays_before_the_runner_was_told)
{
    expect_kept("history.ended");
}

Test(history_failpoints, a_command_that_was_written_down_and_never_sent_did_not_run)
{
    struct held held;
    held_init(&held, 9);
    die_at("history.admitted", &held);
    history_expect_lost(held.id, SANDSTORM__V1__LOST_REASON__LOST_REASON_NEVER_STARTED);
    cr_assert_eq(fixture_count_lines(held.count), 0u);
    CLEANUP_RESULT struct proc_result again =
        CLI("exec", BOX, "--id", held.id, "-n", "-c", held.script);
    cr_assert_eq(again.status, 255, "%s", again.err);
    fixture_assert_contains(again.err, "it did not run");
    cr_assert_eq(fixture_count_lines(held.count), 0u);
}
