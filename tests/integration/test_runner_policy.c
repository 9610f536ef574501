/* What the owner of a VM forbids in its runner's settings is refused, whoever asks. */
#include "tests/harness/starter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* cppcheck-suppress unknownMacro */
TestSuite(runner_policy, .init = fixture_start, .fini = fixture_stop);

static void restart_runner_with(const char *settings)
{
    CLEANUP_FD int fd = open(fixture_box()->runner_settings, O_WRONLY | O_TRUNC | O_CLOEXEC);
    cr_assert(write(fd, settings, strlen(settings)) == (ssize_t)strlen(settings));
    MUST(service_stop(fixture_box()->runner, err));
    MUST(sandbox_start_runner(fixture_box(), err));
    /* The link finds it again by itself. That it was the runner who refused shows it too. */
    CLEANUP_RESULT struct proc_result run = CLI("exec", "--wait", "30s", BOX, "--", "true");
    cr_assert(run.status == 0 || strstr(run.err, "at step policy") ||
                  strstr(run.err, "at step limits"),
              "%s", run.err);
}

static Sandstorm__V1__CommandSpec as_user(const char *user)
{
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    spec.shell = (char *)"id -u";
    spec.user = (char *)user;
    return spec;
}

static void expect_refused(const Sandstorm__V1__CommandSpec *spec, int error, const char *setting)
{
    CLEANUP_STARTER struct starter starter;
    const Sandstorm__V1__Outcome *outcome = starter_run(&starter, spec);
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_START_FAILED, "%s", setting);
    cr_expect_eq(outcome->start_failed->step, SANDSTORM__V1__START_STEP__START_STEP_POLICY);
    cr_expect_eq(outcome->start_failed->errno_number, error);
    cr_expect(strstr(outcome->start_failed->detail, setting), "%s", outcome->start_failed->detail);
}

static void expect_runs(const Sandstorm__V1__CommandSpec *spec, const char *output)
{
    CLEANUP_STARTER struct starter starter;
    const Sandstorm__V1__Outcome *outcome = starter_run(&starter, spec);
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED);
    cr_expect_str_eq(starter.out, output);
}

Test(runner_policy, only_listed_users)
{
    restart_runner_with("allow_users: nobody,daemon\n");
    Sandstorm__V1__CommandSpec spec = as_user("nobody");
    expect_runs(&spec, "65534\n");
    spec = as_user("65534");
    expect_runs(&spec, "65534\n");
    spec.group = (char *)"root";
    expect_refused(&spec, EPERM, "allow_users");
    spec = as_user("root");
    expect_refused(&spec, EPERM, "allow_users");
    spec = as_user("");
    expect_refused(&spec, EPERM, "allow_users");
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "--", "id");
    cr_expect_eq(run.status, 125, "status %d", run.status);
    fixture_assert_contains(run.err, "EPERM at step policy");
    fixture_assert_contains(run.err, "allow_users");
}

Test(runner_policy, no_root)
{
    restart_runner_with("deny_root: true\n");
    Sandstorm__V1__CommandSpec spec = as_user("0");
    expect_refused(&spec, EPERM, "deny_root");
    spec = as_user("nobody");
    expect_runs(&spec, "65534\n");
}

Test(runner_policy, no_commands_at_all)
{
    restart_runner_with("allow_exec: false\n");
    Sandstorm__V1__CommandSpec spec = as_user("nobody");
    expect_refused(&spec, EPERM, "allow_exec");
}

Test(runner_policy, limits_have_a_ceiling)
{
    restart_runner_with("max_memory_bytes: 1000000\nmax_cpu_millis: 500\nmax_pids: 9\n");
    Sandstorm__V1__Limits limits = SANDSTORM__V1__LIMITS__INIT;
    Sandstorm__V1__CommandSpec spec = as_user("nobody");
    limits.mode = SANDSTORM__V1__LIMIT_MODE__LIMIT_MODE_BEST_EFFORT;
    spec.limits = &limits;
    limits.memory_bytes = 1000001;
    expect_refused(&spec, EPERM, "max_memory_bytes");
    limits.memory_bytes = 0;
    limits.cpu_millis = 501;
    expect_refused(&spec, EPERM, "max_cpu_millis");
    limits.cpu_millis = 0;
    limits.pids = 10;
    expect_refused(&spec, EPERM, "max_pids");
}

Test(runner_policy, so_many_at_once)
{
    restart_runner_with("max_commands: 1\n");
    Sandstorm__V1__CommandSpec spec = as_user("nobody"), first = as_user("nobody");
    first.shell = (char *)"echo up; exec sleep 1000";
    CLEANUP_STARTER struct starter starter;
    starter_open(&starter, &first, NULL);
    starter_await_line(&starter);
    expect_refused(&spec, EAGAIN, "max_commands");
    starter_cancel(&starter, 0);
    (void)starter_wait(&starter);
    expect_runs(&spec, "65534\n");
}

Test(runner_policy, a_setting_that_makes_no_sense_stops_the_runner)
{
    int status;
    CLEANUP_FD int fd = open(fixture_box()->runner_settings, O_WRONLY | O_TRUNC | O_CLOEXEC);
    cr_assert_eq(write(fd, "allow_users: a,,b\n", 18), 18);
    MUST(service_stop(fixture_box()->runner, err));
    MUST(service_start(fixture_box()->runner, err));
    MUST(service_wait_ended(fixture_box()->runner, &status, err));
    cr_expect_neq(status, 0);
    cr_expect_gt(fixture_count_text(service_log(fixture_box()->runner), "allow_users"), 0u);
}
