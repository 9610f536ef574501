/* From names and numbers to who a command runs as. */
#include "agent/command_user.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

static struct command_user find(const char *user, const char *group)
{
    struct err err = { 0 };
    struct command_user found;
    cr_assert_eq(command_user_find(user, group, &found, &err), 0, "\"%s\" \"%s\": %s", user, group,
                 err.text);
    return found;
}

static void refuse(const char *user, const char *group, int error, const char *words)
{
    struct err err = { 0 };
    struct command_user found;
    cr_assert_eq(command_user_find(user, group, &found, &err), -1, "\"%.40s\" \"%.40s\"", user,
                 group);
    cr_expect_eq(err.sys_errno, error, "%s", err.text);
    cr_expect(strstr(err.text, words), "%s", err.text);
}

Test(command_user, nobody_named_is_the_runners_own)
{
    struct command_user user = find("", "");
    const struct passwd *own = getpwuid(geteuid());
    cr_expect_eq(user.uid, geteuid());
    cr_expect_not(user.changes);
    cr_expect_str_eq(user.name, own->pw_name);
    cr_expect_str_eq(user.home, own->pw_dir);
    cr_expect(user.in_own_group);
    command_user_done(&user);
}

Test(command_user, a_name_and_its_number_are_the_same)
{
    struct command_user by_name = find("daemon", "");
    char number[16];
    (void)snprintf(number, sizeof(number), "%u", by_name.uid);
    struct command_user by_number = find(number, "");
    cr_expect_eq(by_name.uid, by_number.uid);
    cr_expect_eq(by_name.gid, by_number.gid);
    cr_expect_str_eq(by_number.name, "daemon");
    cr_expect(by_name.changes && by_number.changes);
    command_user_done(&by_name);
    command_user_done(&by_number);
}

/* Whatever this machine's database has: the same as getgrouplist(3) says. */
Test(command_user, the_groups_are_all_that_the_database_gives)
{
    setpwent();
    const struct passwd *entry;
    /* cppcheck-suppress getpwentCalled ; there is one thread */
    while ((entry = getpwent())) {
        char name[64];
        (void)snprintf(name, sizeof(name), "%s", entry->pw_name);
        gid_t wanted[256], gid = entry->pw_gid;
        int count = ELEMENTS(wanted);
        cr_assert_geq(getgrouplist(name, gid, wanted, &count), 0);
        struct command_user user = find(name, "");
        cr_expect_eq(user.group_count, count, "%s", name);
        cr_expect_arr_eq(user.groups, wanted, (size_t)count * sizeof(*wanted), "%s", name);
        cr_expect_eq(user.gid, gid);
        command_user_done(&user);
    }
    endpwent();
}

Test(command_user, another_group_takes_the_place_of_the_users_own)
{
    struct command_user user = find("daemon", "tty");
    struct command_user usual = find("daemon", "");
    /* cppcheck-suppress getgrnamCalled ; there is one thread */
    cr_expect_eq(user.gid, getgrnam("tty")->gr_gid);
    cr_expect_not(user.in_own_group);
    for (int i = 0; i < user.group_count; i++)
        cr_expect_neq(user.groups[i], usual.gid, "it is still in its own group");
    command_user_done(&user);
    command_user_done(&usual);
}

Test(command_user, a_number_without_an_entry_needs_a_group)
{
    refuse("3999999999", "", ENOENT, "name a group too");
    struct command_user user = find("3999999999", "3999999998");
    cr_expect_eq(user.uid, 3999999999u);
    cr_expect_eq(user.gid, 3999999998u);
    cr_expect_eq(user.group_count, 1);
    cr_expect_eq(user.groups[0], 3999999998u);
    cr_expect_str_eq(user.name, "3999999999");
    cr_expect_str_eq(user.home, "/");
    cr_expect_str_eq(user.shell, "/bin/sh");
    command_user_done(&user);
}

Test(command_user, who_is_not_there_is_named)
{
    refuse("no-such-user", "", ENOENT, "no user \"no-such-user\"");
    refuse("", "no-such-group", ENOENT, "no group \"no-such-group\"");
    refuse("daemon", "no-such-group", ENOENT, "no group \"no-such-group\"");
}

/* (uid_t)-1 would leave us who we are. */
Test(command_user, numbers_that_mean_no_change_are_nobodys)
{
    static const char *const bad[] = {
        "4294967295", "4294967296", "18446744073709551615", "99999999999999999999999999", "-1",
        "-0",         "+0"
    };
    for (size_t i = 0; i < ELEMENTS(bad); i++) {
        refuse(bad[i], "", EINVAL, "");
        refuse("", bad[i], EINVAL, "");
    }
}

Test(command_user, no_text_becomes_somebody_by_accident)
{
    static const char *const bad[] = { " ",      "root ", " root", "ROOT",    "0x0",       "0 ",
                                       "root\n", "rooT",  "*",     "../root", "root:root", "%s" };
    for (size_t i = 0; i < ELEMENTS(bad); i++)
        refuse(bad[i], "", ENOENT, "no user");
    char long_name[100000];
    (void)memset(long_name, 'a', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    refuse(long_name, "", EINVAL, "longer than");
    refuse("", long_name, EINVAL, "longer than");
}
