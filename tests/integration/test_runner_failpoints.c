/* The runner is killed at each step of a command's life; the next one knows the truth, and a
 * redelivery of the order never makes a second run. Only in builds with failpoints
 * (common/failpoint.h). */
#include "tests/integration/raw_runner.h"

#define EXITED SANDSTORM__V1__OUTCOME__RESULT_EXITED
#define LOST   SANDSTORM__V1__OUTCOME__RESULT_LOST

TestSuite(runner_failpoints, .init = raw_setup, .fini = raw_teardown);

enum { SMALL = 100, LARGE = 400000 };

/* It dies there with this command; the next one is asked for it again. */
static void die_at(const char *point, struct raw_command *command, unsigned lines, uint64_t limit)
{
    char variable[64];
    bool gone = false;
    raw_begin(command, 1);
    (void)snprintf(command->script, sizeof(command->script), "echo ran >> %s/count; %s; exit 7",
                   raw.dir, raw_lines(0, lines));
    (void)snprintf(variable, sizeof(variable), "SANDSTORM_FAILPOINT=%s", point);
    raw_new("");
    MUST(service_set_env(raw.runner, variable, err));
    raw_start();
    raw_welcome(command, 1);
    raw_order_start(command, limit, 0);
    while (!gone) {
        (void)raw_hear(command, 1, &gone);
        if (command->ended)
            raw_release(command);
    }
    raw_restart();
    raw_welcome(command, 1);
    struct raw_command again = { .id = command->id, .listed = command->listed };
    (void)memcpy(again.script, command->script, sizeof(again.script));
    *command = again;
    raw_order_start(command, NO_LIMIT, 0);
    raw_drain(command);
}

static void expect_lost(const struct raw_command *command, const char *why)
{
    cr_assert_eq(command->result, LOST);
    cr_assert_eq(command->lost, SANDSTORM__V1__LOST_REASON__LOST_REASON_RUNNER_RESTARTED);
    fixture_assert_contains(command->detail, why);
    cr_assert_eq(command->received + command->damaged, command->next);
}

static unsigned times_run(void)
{
    return fixture_count_lines(raw_file("count"));
}

Test(runner_failpoints, before_its_id_is_reserved_it_has_not_run_and_runs)
{
    struct raw_command command = { 0 };
    die_at("runner.reserve", &command, SMALL, NO_LIMIT);
    cr_assert(command.result == EXITED && command.code == 7);
    cr_assert_eq(command.received, SMALL * RAW_LINE);
    cr_assert_eq(times_run(), 1u);
}

Test(runner_failpoints, after_its_id_is_reserved_it_is_lost_and_does_not_run)
{
    struct raw_command command = { 0 };
    die_at("runner.reserved", &command, SMALL, NO_LIMIT);
    cr_assert(command.listed);
    expect_lost(&command, "about to start the command");
    cr_assert_eq(times_run(), 0u);
}

Test(runner_failpoints, after_the_clone_it_is_lost_and_does_not_run_again)
{
    struct raw_command command = { 0 };
    die_at("runner.cloned", &command, SMALL, NO_LIMIT);
    expect_lost(&command, "about to start the command");
    cr_assert_leq(times_run(), 1u);
}

Test(runner_failpoints, after_the_exit_and_before_that_is_noted_it_is_lost)
{
    struct raw_command command = { 0 };
    die_at("runner.end", &command, SMALL, NO_LIMIT);
    expect_lost(&command, "while the command ran");
    cr_assert_eq(command.received, SMALL * RAW_LINE);
    cr_assert_eq(times_run(), 1u);
}

Test(runner_failpoints, after_the_end_is_noted_the_status_is_exact)
{
    struct raw_command command = { 0 };
    die_at("runner.ended", &command, SMALL, NO_LIMIT);
    cr_assert(command.result == EXITED && command.code == 7);
    cr_assert_eq(command.received, SMALL * RAW_LINE);
    cr_assert_eq(times_run(), 1u);
}

Test(runner_failpoints, before_a_release_is_carried_out_it_is_known_as_released)
{
    struct raw_command command = { 0 };
    die_at("runner.release", &command, SMALL, NO_LIMIT);
    cr_assert_eq(command.lost, SANDSTORM__V1__LOST_REASON__LOST_REASON_RELEASED);
    cr_assert_eq(times_run(), 1u);
}

Test(runner_failpoints, before_a_block_is_written_nothing_before_it_is_lost)
{
    struct raw_command command = { 0 };
    die_at("runner.spill", &command, LARGE, 0);
    expect_lost(&command, "while the command ran");
    cr_assert_eq(command.received, 0u, "nothing was written yet");
    cr_assert_gt(command.damaged, 900000u);
    cr_assert_eq(times_run(), 1u);
}

Test(runner_failpoints, after_a_block_is_written_it_is_there)
{
    struct raw_command command = { 0 };
    die_at("runner.spilled", &command, LARGE, 0);
    expect_lost(&command, "while the command ran");
    cr_assert_eq(command.received, 65536u);
    cr_assert_gt(command.damaged, 900000u);
    cr_assert_eq(times_run(), 1u);
}
