/* The frame around a daemon: stop signals, the service manager, open files, and root given up for
 * good. Criterion gives each test a process of its own to ruin. */
#include "common/daemon.h"

#include "common/clock.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define OK(call)       cr_assert_eq((call), 0, "%s", err.text)
#define FAILS(call, c) cr_assert((call) == -1 && err.code == (c), "%s", err.text)

static struct err err;

/* In a child, because the test's own process has a report to write as root. */
static int drop_and_look(const struct passwd *nobody)
{
    uid_t uid[3];
    gid_t gid[3], groups[64];
    if (daemon_drop_privileges("nobody", &err) < 0 || getresuid(&uid[0], &uid[1], &uid[2]) < 0 ||
        getresgid(&gid[0], &gid[1], &gid[2]) < 0)
        return 1;
    for (int i = 0; i < 3; i++)
        if (uid[i] != nobody->pw_uid || gid[i] != nobody->pw_gid)
            return 2;
    int count = getgroups(64, groups);
    for (int i = 0; i < count; i++)
        if (groups[i] == 0)
            return 3;
    if (setuid(0) == 0 || seteuid(0) == 0 || setgid(0) == 0)
        return 4;
    /* Asking again is no error. */
    return daemon_drop_privileges("nobody", &err) < 0 ? 5 : 0;
}

Test(daemon, privileges_are_dropped_with_all_groups_and_for_good)
{
    if (getuid() != 0)
        cr_skip_test("needs root");
    const gid_t root_group = 0;
    cr_assert_eq(setgroups(1, &root_group), 0);
    const struct passwd *nobody = getpwnam("nobody");
    cr_assert_not_null(nobody);
    pid_t pid = fork();
    if (pid == 0)
        _exit(drop_and_look(nobody));
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "step %d", WEXITSTATUS(status));
}

Test(daemon, without_a_user_nothing_is_dropped_and_a_wrong_one_is_told)
{
    OK(daemon_drop_privileges(NULL, &err));
    OK(daemon_drop_privileges("", &err));
    FAILS(daemon_drop_privileges("no-such-user", &err), ERR_NOT_FOUND);
    cr_expect_not_null(strstr(err.text, "no-such-user"));
}

Test(daemon, open_files_are_raised_to_the_hard_limit_or_it_is_told)
{
    struct rlimit limit = { 64, 256 };
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    struct rlimit before = { 0 };
    OK(daemon_raise_files(200, &before, &err));
    cr_expect(before.rlim_cur == 64 && before.rlim_max == 256);
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    cr_expect(limit.rlim_cur == 256 && limit.rlim_max == 256);
    OK(daemon_raise_files(256, NULL, &err));
    FAILS(daemon_raise_files(257, NULL, &err), ERR_EXHAUSTED);
    cr_expect_not_null(strstr(err.text, "257"), "%s", err.text);
}

struct stops {
    struct loop *loop;
    unsigned calm, hurried;
};

static void on_stop(void *userdata, bool hurry)
{
    struct stops *stops = userdata;
    if (hurry)
        stops->hurried++;
    else
        stops->calm++;
    if (hurry)
        loop_quit(stops->loop);
}

Test(daemon, the_first_stop_signal_asks_and_the_second_hurries)
{
    struct stops stops = { 0 };
    struct daemon *daemon;
    OK(daemon_prepare(&err));
    OK(loop_new(&stops.loop, &err));
    OK(daemon_new(stops.loop, on_stop, &stops, &daemon, &err));
    cr_assert_eq(kill(getpid(), SIGTERM), 0);
    uint64_t deadline = monotonic_us() + 30000000u;
    while (stops.calm == 0) {
        cr_assert_lt(monotonic_us(), deadline);
        OK(loop_turn(stops.loop, 100000, &err));
    }
    cr_assert_eq(kill(getpid(), SIGHUP), 0);
    cr_assert_eq(kill(getpid(), SIGINT), 0);
    OK(loop_run(stops.loop, &err));
    cr_expect(stops.calm == 1 && stops.hurried == 1);
    daemon_free(daemon);
    daemon_free(NULL);
    loop_free(stops.loop);
}

Test(daemon, descriptors_0_to_2_are_open_afterwards)
{
    (void)close(STDIN_FILENO);
    OK(daemon_prepare(&err));
    cr_expect(fcntl(STDIN_FILENO, F_GETFD) >= 0);
    CLEANUP_FD int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    cr_expect_gt(next, STDERR_FILENO);
}

Test(daemon, a_broken_pipe_is_an_error_and_not_the_end)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    close_fd(&ends[0]);
    OK(daemon_prepare(&err));
    cr_expect(write(ends[1], "x", 1) == -1 && errno == EPIPE);
    close_fd(&ends[1]);
}

Test(daemon, the_service_manager_hears_of_readiness)
{
    char path[64], text[512];
    (void)snprintf(path, sizeof(path), "/tmp/test-daemon-%d", (int)getpid());
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    (void)memcpy(address.sun_path, path, sizeof(path));
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(setenv("NOTIFY_SOCKET", path, 1), 0);
    static const char *const expected[] = { "READY=1\nSTATUS=serving on port 5000", "STATUS=busy",
                                            "STOPPING=1" };
    daemon_ready("serving on port %d", 5000);
    daemon_status("%s", "busy");
    daemon_stopping();
    for (size_t i = 0; i < ELEMENTS(expected); i++) {
        ssize_t n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
        cr_assert_gt(n, 0);
        text[n] = '\0';
        cr_expect_str_eq(text, expected[i]);
    }
    (void)unlink(path);
}
