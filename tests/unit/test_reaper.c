/* Every child is reaped once: those that are watched by who watches them, all others without a
 * word. */
#include "agent/reaper.h"
#include "common/clock.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define DEADLINE_US 30000000u

static struct loop *loop;
static struct reaper *reaper;
static unsigned calls;
static siginfo_t last;

static void setup(void)
{
    struct err err = { 0 };
    cr_assert_eq(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
    cr_assert_eq(loop_new(&loop, &err), 0, "%s", err.text);
    cr_assert_eq(reaper_new(loop, &reaper, &err), 0, "%s", err.text);
}

static void teardown(void)
{
    reaper_free(reaper);
    loop_free(loop);
}

/* cppcheck-suppress unknownMacro */
TestSuite(reaper, .init = setup, .fini = teardown);

static void on_end(void *userdata, const siginfo_t *info, const struct rusage *usage)
{
    (void)usage;
    struct reaper_child **child = userdata;
    calls++;
    last = *info;
    reaper_unwatch(*child);
    *child = NULL;
}

#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        uint64_t deadline_ = monotonic_us() + DEADLINE_US;                                         \
        while (!(condition)) {                                                                     \
            cr_assert_lt(monotonic_us(), deadline_, "never came: %s", #condition);                 \
            cr_assert_eq(loop_turn(loop, 100000, NULL), 0);                                        \
        }                                                                                          \
    } while (0)

static bool has_no_children(void)
{
    return !reaper_has_children();
}

static pid_t spawn_exit(int code)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(code);
    return pid;
}

static struct reaper_child *watch(pid_t pid, int *ret_pidfd, struct reaper_child **slot)
{
    struct err err = { 0 };
    *ret_pidfd = pidfd_open(pid, 0);
    cr_assert_eq(reaper_watch(reaper, pid, *ret_pidfd, on_end, slot, slot, &err), 0, "%s",
                 err.text);
    return *slot;
}

Test(reaper, a_watched_child_is_told_of_once)
{
    struct reaper_child *child;
    int pidfd;
    pid_t pid = spawn_exit(7);
    (void)watch(pid, &pidfd, &child);
    cr_expect(reaper_watches(reaper, pid));
    UNTIL(calls == 1);
    cr_expect_eq(last.si_pid, pid);
    cr_expect_eq(last.si_status, 7);
    cr_expect_not(reaper_watches(reaper, pid));
    UNTIL(has_no_children());
    cr_expect_eq(calls, 1u);
    close_fd(&pidfd);
}

Test(reaper, a_stranger_is_reaped_without_a_word)
{
    (void)spawn_exit(3);
    UNTIL(has_no_children());
    cr_expect_eq(calls, 0u);
}

Test(reaper, an_orphan_comes_to_us_and_is_reaped)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (fork() == 0)
            _exit(1); /* it may end before or after its parent */
        _exit(0);
    }
    UNTIL(has_no_children());
}

Test(reaper, a_leader_that_is_not_reaped_yet_hides_nobody)
{
    struct reaper_child *child;
    int pidfd;
    pid_t leader = spawn_exit(1);
    (void)watch(leader, &pidfd, &child);
    siginfo_t info;
    cr_assert_eq(waitid(P_PID, (id_t)leader, &info, WEXITED | WNOWAIT), 0);
    for (unsigned i = 0; i < 50; i++)
        (void)spawn_exit(2);
    UNTIL(calls == 1 && has_no_children());
    cr_expect_eq(last.si_status, 1);
    close_fd(&pidfd);
}

Test(reaper, who_is_let_go_is_reaped_whenever_it_ends)
{
    struct reaper_child *child;
    int pidfd;
    pid_t pid = fork();
    if (pid == 0) {
        (void)pause();
        _exit(0);
    }
    reaper_unwatch(watch(pid, &pidfd, &child));
    close_fd(&pidfd);
    cr_expect_not(reaper_watches(reaper, pid));
    cr_assert_eq(kill(pid, SIGKILL), 0);
    UNTIL(has_no_children());
    cr_expect_eq(calls, 0u);
}

/* Many ends may be one SIGCHLD. */
Test(reaper, a_thousand_that_end_together_leave_no_zombie)
{
    for (unsigned i = 0; i < 1000; i++)
        cr_assert_gt(spawn_exit(0), 0);
    UNTIL(has_no_children());
}

/* As a program before this one may have taken it, and ended with that. */
Test(reaper, an_end_whose_signal_is_gone_is_found_by_a_sweep)
{
    sigset_t set;
    int number;
    cr_assert(sigemptyset(&set) == 0 && sigaddset(&set, SIGCHLD) == 0);
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0)
        _exit(0);
    cr_assert_eq(sigwait(&set, &number), 0);
    cr_assert(reaper_has_children());
    reaper_sweep(reaper);
    cr_expect(has_no_children());
    cr_expect_eq(calls, 0u);
}
