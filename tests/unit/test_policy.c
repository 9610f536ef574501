/* What a VM's owner forbids is refused with the name of the setting. */
#include "agent/policy.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static const struct policy_settings open_settings = {
    .allow_exec = true,
    .allow_terminal = true,
    .allow_files = true,
};

static struct policy *make(const struct policy_settings *settings)
{
    struct err err = { 0 };
    struct policy *policy;
    cr_assert_eq(policy_new(settings, &policy, &err), 0, "%s", err.text);
    return policy;
}

static void expect(int r, const struct err *err, const char *setting)
{
    if (!setting) {
        cr_expect_eq(r, 0, "%s", err->text);
        return;
    }
    cr_expect_eq(r, -1, "not refused for %s", setting);
    cr_expect_eq(err->sys_errno, EPERM);
    cr_expect(strstr(err->text, setting), "%s", err->text);
}

static void check_spec(const struct policy_settings *settings,
                       const Sandstorm__V1__CommandSpec *spec, const char *setting)
{
    struct err err = { 0 };
    struct policy *policy = make(settings);
    int r = policy_check_spec(policy, spec, &err);
    expect(r, &err, setting);
    policy_free(policy);
}

static void check_user(const struct policy_settings *settings, const char *user, const char *group,
                       const char *setting)
{
    struct err err = { 0 };
    struct command_user found;
    struct policy *policy = make(settings);
    cr_assert_eq(command_user_find(user, group, &found, &err), 0, "%s", err.text);
    int r = policy_check_user(policy, &found, &err);
    expect(r, &err, setting);
    command_user_done(&found);
    policy_free(policy);
}

Test(policy, none_allows_everything)
{
    struct err err = { 0 };
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    cr_expect_eq(policy_check_spec(NULL, &spec, &err), 0);
    cr_expect_eq(policy_check_count(NULL, 1000000, &err), 0);
    cr_expect_eq(policy_ceiling(NULL, TREE_MEMORY), 0u);
    check_spec(&open_settings, &spec, NULL);
    check_user(&open_settings, "root", "", NULL);
    check_user(&open_settings, "daemon", "root", NULL);
}

Test(policy, users_that_are_not_listed_are_refused)
{
    struct policy_settings settings = open_settings;
    settings.allow_users = (char *)"daemon, 3999999999";
    check_user(&settings, "daemon", "", NULL);
    check_user(&settings, "1", "", NULL);                             /* the same, by number */
    check_user(&settings, "3999999999", "3999999999", "allow_users"); /* in no group of its own */
    check_user(&settings, "root", "", "allow_users");
    check_user(&settings, "bin", "", "allow_users");
    check_user(&settings, "", "", "allow_users"); /* the runner's own user */
}

Test(policy, root_is_root_by_any_name)
{
    struct policy_settings settings = open_settings;
    settings.deny_root = true;
    check_user(&settings, "root", "", "deny_root");
    check_user(&settings, "0", "", "deny_root");
    check_user(&settings, "0", "daemon", "deny_root");
    check_user(&settings, "daemon", "", NULL);
}

/* Else root's group, or that of disks, would be a way around. */
Test(policy, a_group_of_others_is_no_way_around)
{
    struct policy_settings settings = open_settings;
    settings.deny_root = true;
    check_user(&settings, "daemon", "root", "deny_root");
    check_user(&settings, "daemon", "disk", "deny_root");
    check_user(&settings, "daemon", "daemon", NULL);
    settings.deny_root = false;
    settings.allow_users = (char *)"daemon";
    check_user(&settings, "daemon", "0", "allow_users");
}

Test(policy, a_list_with_a_hole_is_an_error)
{
    static const char *const bad[] = { ",", "a,,b", "a,", " ", "a, ,b" };
    for (size_t i = 0; i < ELEMENTS(bad); i++) {
        struct policy_settings settings = open_settings;
        struct policy *policy;
        struct err err = { 0 };
        settings.allow_users = (char *)bad[i];
        cr_expect_eq(policy_new(&settings, &policy, &err), -1, "\"%s\"", bad[i]);
        cr_expect(strstr(err.text, "allow_users"), "%s", err.text);
    }
}

Test(policy, a_limit_above_the_ceiling_is_refused)
{
    struct policy_settings settings = open_settings;
    settings.max_memory_bytes = 1000;
    settings.max_cpu_millis = 2000;
    settings.max_pids = 30;
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    Sandstorm__V1__Limits limits = SANDSTORM__V1__LIMITS__INIT;
    check_spec(&settings, &spec, NULL);
    spec.limits = &limits;
    limits.memory_bytes = 1000;
    limits.cpu_millis = 2000;
    limits.pids = 30;
    check_spec(&settings, &spec, NULL);
    limits.memory_bytes++;
    check_spec(&settings, &spec, "max_memory_bytes");
    limits.memory_bytes = 0;
    limits.cpu_millis++;
    check_spec(&settings, &spec, "max_cpu_millis");
    limits.cpu_millis = 0;
    limits.pids++;
    check_spec(&settings, &spec, "max_pids");
}

Test(policy, each_limit_has_its_own_ceiling)
{
    struct policy_settings settings = open_settings;
    settings.max_memory_bytes = 1;
    settings.max_cpu_millis = 2;
    settings.max_pids = 3;
    struct policy *policy = make(&settings);
    cr_expect_eq(policy_ceiling(policy, TREE_MEMORY), 1u);
    cr_expect_eq(policy_ceiling(policy, TREE_CPU), 2u);
    cr_expect_eq(policy_ceiling(policy, TREE_PIDS), 3u);
    policy_free(policy);
}

Test(policy, what_is_not_allowed_at_all)
{
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    Sandstorm__V1__Terminal terminal = SANDSTORM__V1__TERMINAL__INIT;
    struct policy_settings settings = open_settings;
    settings.allow_terminal = false;
    check_spec(&settings, &spec, NULL);
    spec.terminal = &terminal;
    check_spec(&settings, &spec, "allow_terminal");
    settings = open_settings;
    settings.allow_exec = false;
    check_spec(&settings, &spec, "allow_exec");
}

Test(policy, too_many_at_once_may_try_again)
{
    struct err err = { 0 };
    struct policy_settings settings = open_settings;
    settings.max_commands = 2;
    struct policy *policy = make(&settings);
    cr_expect_eq(policy_check_count(policy, 1, &err), 0);
    cr_expect_eq(policy_check_count(policy, 2, &err), -1);
    cr_expect_eq(err.sys_errno, EAGAIN);
    cr_expect(strstr(err.text, "max_commands"), "%s", err.text);
    policy_free(policy);
}
