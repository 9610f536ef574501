/* Who descends from whom, read from /proc, and signals that reach only who was meant. */
#include "agent/proctable.h"

#include "tests/unit/random.h"

#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#define STAT_TAIL                                                                                  \
    " S 7 8 9 34816 99 4194304 1 2 3 4 5 6 7 8 20 0 1 0 123456 1000 200 18446744073709551615 1 1"

Test(proctable, a_name_may_contain_anything)
{
    static const char *const names[] = { "sh", "a b", "x) R 1 2 3", "((", ")))", "\n\t" };
    for (size_t i = 0; i < ELEMENTS(names); i++) {
        char line[256];
        struct err err = { 0 };
        struct proctable_entry entry;
        (void)snprintf(line, sizeof(line), "42 (%s)" STAT_TAIL, names[i]);
        cr_assert_eq(proctable_parse(line, &entry, &err), 0, "%s: %s", names[i], err.text);
        cr_expect_eq(entry.pid, 42);
        cr_expect_eq(entry.parent, 7);
        cr_expect_eq(entry.group, 8);
        cr_expect_eq(entry.session, 9);
        cr_expect_eq(entry.start_ticks, 123456u);
        cr_expect_not(entry.dead);
    }
}

Test(proctable, what_is_cut_or_garbage_is_refused)
{
    char line[] = "42 (sh)" STAT_TAIL, cut[sizeof(line)];
    struct proctable_entry entry;
    size_t needed = (size_t)(strstr(line, "123456") - line) + 1;
    for (size_t length = 0; length < needed; length++) {
        (void)snprintf(cut, length + 1, "%s", line);
        cr_expect_eq(proctable_parse(cut, &entry, NULL), -1, "\"%s\"", cut);
    }
    uint64_t state = 20260101;
    for (unsigned i = 0; i < 20000; i++) {
        char text[64];
        size_t size = random_below(&state, sizeof(text));
        for (size_t k = 0; k < size; k++)
            text[k] = (char)random_below(&state, 256);
        text[size] = '\0';
        (void)!proctable_parse(text, &entry, NULL);
    }
}

Test(proctable, descendants_are_found_whatever_the_order_of_their_numbers)
{
    struct proctable_entry entries[] = {
        { .pid = 1 },
        { .pid = 10, .parent = 40 },
        { .pid = 20, .parent = 30, .marked = true },
        { .pid = 30, .parent = 1 },
        { .pid = 40, .parent = 50 },
        { .pid = 50, .parent = 20 },
        { .pid = 60, .parent = 30 },
    };
    struct proctable table = { entries, ELEMENTS(entries) };
    proctable_mark_descendants(&table);
    static const bool wanted[] = { false, true, true, false, true, true, false };
    for (size_t i = 0; i < ELEMENTS(entries); i++)
        cr_expect_eq(entries[i].marked, wanted[i], "%d", entries[i].pid);
}

Test(proctable, we_are_in_it_with_our_parent)
{
    struct err err = { 0 };
    CLEANUP_PROCTABLE struct proctable table = { 0 };
    cr_assert_eq(proctable_read(&table, &err), 0, "%s", err.text);
    const struct proctable_entry *us = proctable_find(&table, getpid());
    cr_assert_not_null(us);
    cr_expect_eq(us->parent, getppid());
    cr_expect_eq(us->group, getpgrp());
    cr_expect_eq(us->session, getsid(0));
    cr_expect_null(proctable_find(&table, 0));
}

static pid_t start_sleeper(const char *variable)
{
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        char *argv[] = { (char *)"sleep", (char *)"1000", NULL };
        char *env[] = { (char *)"A=1", (char *)variable, NULL };
        (void)execve("/bin/sleep", argv, env);
        _exit(127);
    }
    return pid;
}

static struct proctable_entry entry_of(pid_t pid)
{
    struct err err = { 0 };
    CLEANUP_PROCTABLE struct proctable table = { 0 };
    cr_assert_eq(proctable_read(&table, &err), 0, "%s", err.text);
    const struct proctable_entry *entry = proctable_find(&table, pid);
    cr_assert_not_null(entry);
    return *entry;
}

Test(proctable, a_signal_reaches_the_process_that_was_read)
{
    pid_t pid = start_sleeper("B=2");
    struct proctable_entry entry = entry_of(pid);
    siginfo_t info = { 0 };
    cr_expect(proctable_signal(&entry, SIGTERM));
    cr_assert_eq(waitid(P_PID, (id_t)pid, &info, WEXITED), 0);
    cr_expect_eq(info.si_status, SIGTERM);
    cr_expect_not(proctable_signal(&entry, SIGTERM), "a process that is gone was signalled");
}

/* The number has another owner: the same pid with another start is somebody else. */
Test(proctable, a_signal_does_not_reach_who_has_the_number_since)
{
    pid_t pid = start_sleeper("B=2");
    struct proctable_entry entry = entry_of(pid);
    entry.start_ticks++;
    cr_expect_not(proctable_signal(&entry, SIGKILL));
    entry.start_ticks--;
    cr_expect(proctable_signal(&entry, 0), "it was killed all the same");
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

Test(proctable, a_variable_is_found_whole_or_not_at_all)
{
    pid_t pid = start_sleeper("NAME=value");
    /* exec has happened when the environment is the new one. */
    while (proctable_has_variable(pid, "A=1") != PROCTABLE_YES)
        cr_assert_eq(waitpid(pid, NULL, WNOHANG), 0);
    cr_expect_eq(proctable_has_variable(pid, "NAME=value"), PROCTABLE_YES);
    cr_expect_eq(proctable_has_variable(pid, "NAME=valu"), PROCTABLE_NO);
    cr_expect_eq(proctable_has_variable(pid, "AME=value"), PROCTABLE_NO);
    cr_expect_eq(proctable_has_variable(pid, "NAME=value2"), PROCTABLE_NO);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    cr_expect_eq(proctable_has_variable(pid, "NAME=value"), PROCTABLE_NO);
}
