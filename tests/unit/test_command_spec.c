/* What a spec asks for and gets: user, limits, environment, directory, umask, niceness; and what is
 * refused, by name, at which step. The rest of specs is in test_command.c. */
#include "tests/unit/command_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

/* Runs `text` with what `prepare` does to the spec; its output. */
static const char *output_of(void (*prepare)(struct bench *bench), const char *text)
{
    static char output[4096];
    struct bench bench;
    bench_init(&bench);
    prepare(&bench);
    const Sandstorm__V1__Outcome *outcome = bench_run(&bench, text);
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED, "%s",
                 outcome->start_failed ? outcome->start_failed->detail : "");
    (void)snprintf(output, sizeof(output), "%.*s", (int)bench.next, (char *)bench.bytes);
    bench_done(&bench);
    return output;
}

static void refused(void (*prepare)(struct bench *bench), Sandstorm__V1__StartStep step,
                    const char *name, const char *words)
{
    struct bench bench;
    bench_init(&bench);
    bench.spec.shell = (char *)"exit 0";
    prepare(&bench);
    bench_start(&bench, NO_LIMIT);
    UNTIL(&bench, bench.ended);
    cr_assert_eq(bench.ended->outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_START_FAILED);
    const Sandstorm__V1__StartFailed *why = bench.ended->outcome->start_failed;
    cr_expect_eq(why->step, step, "step %d: %s", why->step, why->detail);
    cr_expect_str_eq(why->errno_name, name, "%s", why->detail);
    cr_expect(strstr(why->detail, words), "%s", why->detail);
    cr_expect_eq(bench.started, 0u);
    bench_done(&bench);
}

static void as_daemon(struct bench *bench)
{
    bench->spec.user = (char *)"daemon";
}

static void as_daemon_in_tty(struct bench *bench)
{
    bench->spec.user = (char *)"1";
    bench->spec.group = (char *)"tty";
}

Test(command_spec, a_user_has_its_ids_its_groups_and_its_environment)
{
    cr_expect_str_eq(output_of(as_daemon, "id -u; id -un; id -g; id -G; echo $HOME $USER $LOGNAME "
                                          "$SHELL"),
                     "1\ndaemon\n1\n1\n/usr/sbin daemon daemon /usr/sbin/nologin\n");
    cr_expect_str_eq(output_of(as_daemon_in_tty, "id -u; id -g; id -G"), "1\n5\n5\n");
}

/* Real, effective, saved and file system ids; no capability in any set; nothing to get back. */
Test(command_spec, a_user_keeps_nothing_of_root)
{
    const char *status = output_of(as_daemon, "grep -E '^(Uid|Gid|Cap(Inh|Prm|Eff|Amb)):' "
                                              "/proc/self/status");
    cr_expect_str_eq(status, "Uid:\t1\t1\t1\t1\nGid:\t1\t1\t1\t1\n"
                             "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\n"
                             "CapEff:\t0000000000000000\nCapAmb:\t0000000000000000\n");
}

Test(command_spec, a_user_without_a_home_begins_at_the_root)
{
    cr_expect_str_eq(output_of(as_daemon, "pwd"), "/usr/sbin\n");
    struct bench bench;
    bench_init(&bench);
    bench.spec.user = (char *)"nobody"; /* its home is /nonexistent */
    (void)bench_run(&bench, "pwd");
    EXPECT_OUTPUT(&bench, "/\n");
    bench_done(&bench);
}

static char secret_dir[] = "/tmp/test-spec-XXXXXX";

static void in_roots_directory(struct bench *bench)
{
    (void)snprintf(secret_dir, sizeof(secret_dir), "/tmp/test-spec-XXXXXX");
    cr_assert_not_null(mkdtemp(secret_dir)); /* 0700 */
    bench->spec.user = (char *)"daemon";
    bench->spec.cwd = secret_dir;
}

/* The users rights decide where it may be. */
Test(command_spec, a_directory_that_only_root_may_enter_is_closed_to_a_user)
{
    refused(in_roots_directory, SANDSTORM__V1__START_STEP__START_STEP_CWD, "EACCES", secret_dir);
    (void)rmdir(secret_dir);
}

static char secret_program[64];

static void roots_program(struct bench *bench)
{
    static char *argv[] = { secret_program };
    (void)snprintf(secret_program, sizeof(secret_program), "/tmp/test-spec-%d", (int)getpid());
    FILE *file = fopen(secret_program, "we");
    cr_assert(file && fputs("#!/bin/sh\n", file) >= 0 && fchmod(fileno(file), 0700) == 0 &&
              fclose(file) == 0);
    bench->spec.shell = (char *)"";
    bench->spec.argv = argv;
    bench->spec.n_argv = 1;
    bench->spec.user = (char *)"daemon";
}

Test(command_spec, a_program_that_only_root_may_run_is_closed_to_a_user)
{
    refused(roots_program, SANDSTORM__V1__START_STEP__START_STEP_EXEC, "EACCES", "cannot run");
    (void)unlink(secret_program);
}

static void as_nobody_there(struct bench *bench)
{
    bench->spec.user = (char *)"no-such-user";
}

static void as_minus_one(struct bench *bench)
{
    bench->spec.user = (char *)"4294967295";
}

static void in_no_such_group(struct bench *bench)
{
    bench->spec.group = (char *)"no-such-group";
}

Test(command_spec, a_user_that_is_not_there_is_refused)
{
    const Sandstorm__V1__StartStep step = SANDSTORM__V1__START_STEP__START_STEP_USER;
    refused(as_nobody_there, step, "ENOENT", "no-such-user");
    refused(as_minus_one, step, "EINVAL", "4294967295");
    refused(in_no_such_group, step, "ENOENT", "no-such-group");
}

/* umask, nice, resource limits. */

static void with_umask(struct bench *bench)
{
    bench->spec.umask_choice_case = SANDSTORM__V1__COMMAND_SPEC__UMASK_CHOICE_UMASK;
    bench->spec.umask = 027;
    bench->spec.nice = 7;
}

static void with_umask_of_none(struct bench *bench)
{
    bench->spec.umask_choice_case = SANDSTORM__V1__COMMAND_SPEC__UMASK_CHOICE_UMASK;
}

static void with_a_large_umask(struct bench *bench)
{
    with_umask_of_none(bench);
    bench->spec.umask = 01000;
}

static void very_nice(struct bench *bench)
{
    bench->spec.nice = 20;
}

static void very_rude(struct bench *bench)
{
    bench->spec.nice = INT32_MIN;
}

Test(command_spec, umask_and_niceness_are_as_asked)
{
    cr_expect_str_eq(output_of(with_umask, "umask; nice"), "0027\n7\n");
    cr_expect_str_eq(output_of(with_umask_of_none, "umask"), "0000\n");
    const Sandstorm__V1__StartStep step = SANDSTORM__V1__START_STEP__START_STEP_SPEC;
    refused(with_a_large_umask, step, "EINVAL", "umask 01000");
    refused(very_nice, step, "EINVAL", "niceness 20");
    refused(very_rude, step, "EINVAL", "niceness");
}

static Sandstorm__V1__Rlimit *limits_of(struct bench *bench, size_t count)
{
    static Sandstorm__V1__Rlimit limits[3];
    static Sandstorm__V1__Rlimit *pointers[] = { &limits[0], &limits[1], &limits[2] };
    for (size_t i = 0; i < ELEMENTS(limits); i++)
        sandstorm__v1__rlimit__init(&limits[i]);
    bench->spec.rlimits = pointers;
    bench->spec.n_rlimits = count;
    return limits;
}

static void with_limits(struct bench *bench)
{
    Sandstorm__V1__Rlimit *limits = limits_of(bench, 3);
    limits[0].name = (char *)"nofile";
    limits[0].soft = 100;
    limits[0].hard = 200;
    limits[1].name = (char *)"core";
    limits[2].name = (char *)"stack";
    limits[2].soft = 1u << 20;
    limits[2].hard = UINT64_MAX;
}

static void with_limits_as_daemon(struct bench *bench)
{
    with_limits(bench);
    bench->spec.user = (char *)"daemon";
}

Test(command_spec, resource_limits_are_as_asked)
{
    static const char script[] = "ulimit -Sn; ulimit -Hn; ulimit -c; ulimit -Ss";
    cr_expect_str_eq(output_of(with_limits, script), "100\n200\n0\n1024\n");
    cr_expect_str_eq(output_of(with_limits_as_daemon, script), "100\n200\n0\n1024\n");
}

static void with_an_unknown_limit(struct bench *bench)
{
    limits_of(bench, 1)[0].name = (char *)"files";
}

static void with_a_limit_twice(struct bench *bench)
{
    Sandstorm__V1__Rlimit *limits = limits_of(bench, 2);
    limits[0].name = limits[1].name = (char *)"core";
}

Test(command_spec, resource_limits_that_make_no_sense_are_refused)
{
    const Sandstorm__V1__StartStep step = SANDSTORM__V1__START_STEP__START_STEP_SPEC;
    refused(with_an_unknown_limit, step, "EINVAL", "\"files\"");
    refused(with_a_limit_twice, step, "EINVAL", "twice");
}

/* Raising what the kernel does not let us raise. */
static void above_the_hard_limit(struct bench *bench)
{
    struct rlimit now = { 64, 64 };
    cr_assert(setrlimit(RLIMIT_NOFILE, &now) == 0);
    Sandstorm__V1__Rlimit *limits = limits_of(bench, 1);
    limits[0].name = (char *)"nofile";
    limits[0].soft = limits[0].hard = UINT64_MAX;
}

Test(command_spec, a_limit_that_the_kernel_refuses_fails_at_limits_by_its_name)
{
    refused(above_the_hard_limit, SANDSTORM__V1__START_STEP__START_STEP_LIMITS, "EPERM",
            "\"nofile\"");
}

/* Limits of the whole tree; the fixture's forest has no control groups. */

static Sandstorm__V1__Limits tree_limits;

static void with_memory(struct bench *bench)
{
    sandstorm__v1__limits__init(&tree_limits);
    tree_limits.memory_bytes = 1u << 28;
    bench->spec.limits = &tree_limits;
}

static void with_little_cpu(struct bench *bench)
{
    sandstorm__v1__limits__init(&tree_limits);
    tree_limits.cpu_millis = 9;
    bench->spec.limits = &tree_limits;
}

static void with_an_unknown_mode(struct bench *bench)
{
    with_memory(bench);
    tree_limits.mode = (Sandstorm__V1__LimitMode)3;
}

Test(command_spec, a_limit_that_cannot_be_enforced_is_refused_unless_it_need_not)
{
    const Sandstorm__V1__StartStep limits = SANDSTORM__V1__START_STEP__START_STEP_LIMITS;
    refused(with_memory, limits, strerrorname_np(ENOTSUP), "\"memory\"");
    refused(with_little_cpu, SANDSTORM__V1__START_STEP__START_STEP_SPEC, "EINVAL", "cpu_millis");
    refused(with_an_unknown_mode, SANDSTORM__V1__START_STEP__START_STEP_SPEC, "EINVAL",
            "limits.mode");
    struct bench bench;
    bench_init(&bench);
    with_memory(&bench);
    tree_limits.pids = 5;
    tree_limits.mode = SANDSTORM__V1__LIMIT_MODE__LIMIT_MODE_BEST_EFFORT;
    const Sandstorm__V1__Outcome *outcome = bench_run(&bench, "exit 4");
    cr_assert_eq(outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED);
    cr_assert_eq(outcome->n_not_enforced, 2u);
    cr_expect_str_eq(outcome->not_enforced[0], "memory");
    cr_expect_str_eq(outcome->not_enforced[1], "pids");
    cr_expect_eq(outcome->peak_memory_bytes, 0u);
    bench_done(&bench);
}

/* The owner's word. */

static void with_policy(struct bench *bench, const struct policy_settings *settings)
{
    static struct policy *policy;
    struct err err = { 0 };
    policy_free(policy);
    cr_assert_eq(policy_new(settings, &policy, &err), 0, "%s", err.text);
    bench->host.policy = policy;
}

static const struct policy_settings open_settings = { .allow_exec = true, .allow_terminal = true };

static void without_root(struct bench *bench)
{
    struct policy_settings settings = open_settings;
    settings.deny_root = true;
    with_policy(bench, &settings);
}

static void with_a_ceiling(struct bench *bench)
{
    struct policy_settings settings = open_settings;
    settings.max_pids = 10;
    with_policy(bench, &settings);
    with_memory(bench);
    tree_limits.memory_bytes = 0;
    tree_limits.pids = 11;
    tree_limits.mode = SANDSTORM__V1__LIMIT_MODE__LIMIT_MODE_BEST_EFFORT;
}

static void below_a_ceiling(struct bench *bench)
{
    with_a_ceiling(bench);
    tree_limits.pids = 3;
}

static void asking_nothing_below_a_ceiling(struct bench *bench)
{
    with_a_ceiling(bench);
    bench->spec.limits = NULL;
}

Test(command_spec, the_owners_policy_is_above_the_spec)
{
    const Sandstorm__V1__StartStep policy = SANDSTORM__V1__START_STEP__START_STEP_POLICY;
    refused(without_root, policy, "EPERM", "deny_root");
    refused(with_a_ceiling, policy, "EPERM", "max_pids");
    /* A ceiling that cannot be kept is no ceiling: best effort is not the client's to choose then.
     */
    const Sandstorm__V1__StartStep limits = SANDSTORM__V1__START_STEP__START_STEP_LIMITS;
    refused(below_a_ceiling, limits, strerrorname_np(ENOTSUP), "\"pids\"");
    refused(asking_nothing_below_a_ceiling, limits, strerrorname_np(ENOTSUP), "max_pids");
}

/* Its environment. */

static void nothing_special(struct bench *bench)
{
    (void)bench;
}

static void with_a_clear_environment(struct bench *bench)
{
    bench->spec.env_clear = true;
}

Test(command_spec, a_command_knows_its_own_id)
{
    const char *output = output_of(nothing_special, "echo $" TREE_VARIABLE);
    struct command_id id;
    char text[COMMAND_ID_LEN + 1];
    (void)snprintf(text, sizeof(text), "%s", output);
    cr_expect_eq(command_id_parse(text, &id, NULL), 0, "%s", output);
    cr_expect_str_eq(output_of(with_a_clear_environment, "/usr/bin/env | grep SANDSTORM; true"),
                     "");
}
