/* The way into a new process: what it inherits, which is next to nothing, and which step and errno
 * a failure is told as. */
#include "agent/spawn.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define SYSTEM_PATH "/usr/bin:/bin"

struct attempt {
    int r;
    struct spawn_result process;
    enum spawn_step step;
    struct err err;
    int output; /* the reading end of its stdout */
};

static struct attempt attempt(char *const *argv, const char *path, const char *cwd)
{
    struct attempt result = { .process = { .pid = -1, .pidfd = -1 } };
    int ends[2];
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    static char *environment[] = { (char *)"NAME=value", NULL };
    const struct spawn_request request = {
        .argv = argv,
        .environment = environment,
        .path = path,
        .cwd = cwd,
        .stdio = { null, ends[1], null },
    };
    result.r = spawn_process(&request, &result.process, &result.step, &result.err);
    close_fd(&ends[1]);
    result.output = ends[0];
    return result;
}

static siginfo_t reap(struct attempt *attempt)
{
    siginfo_t info = { 0 };
    cr_assert_eq(waitid(P_PIDFD, (id_t)attempt->process.pidfd, &info, WEXITED), 0);
    close_fd(&attempt->process.pidfd);
    close_fd(&attempt->output);
    return info;
}

/* Runs a program to its end and returns what it wrote. */
static const char *output_of(char *const *argv, const char *path, const char *cwd)
{
    static char text[16384];
    struct attempt result = attempt(argv, path, cwd);
    cr_assert_eq(result.r, 0, "%s", result.err.text);
    size_t used = 0;
    ssize_t n;
    while ((n = read(result.output, text + used, sizeof(text) - 1 - used)) > 0)
        used += (size_t)n;
    text[used] = '\0';
    cr_assert_eq(reap(&result).si_status, 0);
    return text;
}

static const char *shell(const char *script)
{
    char *argv[] = { (char *)"/bin/sh", (char *)"-c", (char *)script, NULL };
    return output_of(argv, "", "/");
}

static void expect_failure(char *const *argv, const char *path, const char *cwd,
                           enum spawn_step step, int error)
{
    struct attempt result = attempt(argv, path, cwd);
    cr_assert_eq(result.r, -1);
    cr_expect_eq(result.step, step, "step %d: %s", result.step, result.err.text);
    cr_expect_eq(result.err.sys_errno, error, "%s", result.err.text);
    cr_expect_eq(result.process.pid, -1);
    /* Nothing is left of it, and nobody holds its pipe. */
    cr_expect(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
    struct pollfd end = { .fd = result.output, .events = POLLIN };
    cr_expect(poll(&end, 1, 0) == 1 && end.revents == POLLHUP);
    close_fd(&result.output);
}

Test(spawn, an_exit_comes_through_the_pidfd_of_the_pid)
{
    char *argv[] = { (char *)"/bin/sh", (char *)"-c", (char *)"exit 7", NULL };
    struct attempt result = attempt(argv, "", "/");
    cr_assert_eq(result.r, 0, "%s", result.err.text);
    cr_expect(fcntl(result.process.pidfd, F_GETFD) & FD_CLOEXEC);
    cr_expect_eq(getsid(result.process.pid), result.process.pid, "not a session of its own");
    pid_t pid = result.process.pid;
    siginfo_t info = reap(&result);
    cr_expect_eq(info.si_pid, pid);
    cr_expect(info.si_code == CLD_EXITED && info.si_status == 7);
}

Test(spawn, environment_and_directory_are_what_was_asked_for)
{
    char *argv[] = { (char *)"/usr/bin/env", NULL };
    cr_expect_str_eq(output_of(argv, "", "/"), "NAME=value\n");
    char *pwd[] = { (char *)"/bin/pwd", NULL };
    cr_expect_str_eq(output_of(pwd, "", "/usr/bin"), "/usr/bin\n");
}

Test(spawn, descriptors_are_0_to_2_whatever_the_parent_has_open)
{
    for (unsigned i = 0; i < 500; i++)
        cr_assert_geq(dup(0), 0); /* without CLOEXEC, as a careless library would */
    /* The descriptor with which the shell reads the directory is gone when it is looked at. */
    cr_expect_str_eq(shell("for f in /proc/$$/fd/*; do if [ -e $f ]; then echo ${f##*/}; fi; done"),
                     "0\n1\n2\n");
}

static void handle(int number)
{
    (void)number;
}

Test(spawn, signals_are_neither_blocked_nor_ignored_nor_handled)
{
    sigset_t all, after;
    (void)sigfillset(&all);
    cr_assert_eq(sigprocmask(SIG_BLOCK, &all, NULL), 0);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGUSR1, handle);
    char *argv[] = { (char *)"/bin/cat", (char *)"/proc/self/status", NULL };
    const char *status = output_of(argv, "", "/");
    static const char *const rows[] = { "SigBlk", "SigIgn", "SigCgt" };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        const char *row = strstr(status, rows[i]);
        cr_assert_not_null(row);
        cr_expect_eq(strncmp(row + 6, ":\t0000000000000000\n", 19), 0, "%.25s", row);
    }
    cr_assert_eq(sigprocmask(SIG_BLOCK, NULL, &after), 0);
    cr_expect(sigismember(&after, SIGUSR2), "the parent's own mask was changed");
    cr_expect_eq(signal(SIGUSR1, SIG_DFL), handle, "the parent's own handler was changed");
}

/* What fails. */

Test(spawn, what_cannot_be_run_fails_at_exec)
{
    char *missing[] = { (char *)"/nonexistent", NULL };
    expect_failure(missing, "", "/", SPAWN_STEP_EXEC, ENOENT);
    char *plain[] = { (char *)"/etc/passwd", NULL };
    expect_failure(plain, "", "/", SPAWN_STEP_EXEC, EACCES);
    char *nowhere[] = { (char *)"no-such-program", NULL };
    expect_failure(nowhere, SYSTEM_PATH, "/", SPAWN_STEP_EXEC, ENOENT);
}

Test(spawn, a_directory_that_cannot_be_entered_fails_at_cwd)
{
    char *argv[] = { (char *)"/bin/true", NULL };
    expect_failure(argv, "", "/nonexistent", SPAWN_STEP_CWD, ENOENT);
    expect_failure(argv, "", "/etc/passwd", SPAWN_STEP_CWD, ENOTDIR);
}

Test(spawn, a_descriptor_that_is_none_fails_at_stdio)
{
    char *argv[] = { (char *)"/bin/true", NULL };
    char *environment[] = { NULL };
    const struct spawn_request request = {
        .argv = argv, .environment = environment, .path = "", .cwd = "/", .stdio = { 0, 1, 999999 }
    };
    struct spawn_result process;
    enum spawn_step step;
    struct err err = { 0 };
    cr_assert_eq(spawn_process(&request, &process, &step, &err), -1);
    cr_expect_eq(step, SPAWN_STEP_STDIO);
    cr_expect_eq(err.sys_errno, EBADF);
}

/* Who and with what. */

static struct err run(const struct spawn_request *wanted, const char *script, char *out,
                      size_t size, enum spawn_step *ret_step)
{
    struct spawn_request request = *wanted;
    struct spawn_result process;
    struct err err = { 0 };
    int ends[2];
    char *argv[] = { (char *)"/bin/sh", (char *)"-c", (char *)script, NULL };
    char *environment[] = { (char *)"PATH=" SYSTEM_PATH, NULL };
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    CLEANUP_FD int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    request.argv = argv;
    request.environment = environment;
    request.path = "";
    request.cwd = request.cwd ? request.cwd : "/";
    request.stdio[0] = request.stdio[2] = null;
    request.stdio[1] = ends[1];
    *ret_step = SPAWN_STEP_NONE;
    int r = spawn_process(&request, &process, ret_step, &err);
    close_fd(&ends[1]);
    ssize_t n, used = 0;
    while ((n = read(ends[0], out + used, size - 1 - (size_t)used)) > 0)
        used += n;
    out[used] = '\0';
    close_fd(&ends[0]);
    if (r == 0) {
        siginfo_t info;
        cr_assert_eq(waitid(P_PIDFD, (id_t)process.pidfd, &info, WEXITED), 0);
        close_fd(&process.pidfd);
    }
    return err;
}

Test(spawn, it_becomes_the_user_before_it_enters_the_directory)
{
    char out[512], dir[] = "/tmp/test-spawn-XXXXXX";
    enum spawn_step step;
    const gid_t groups[] = { 65534, 7, 9 };
    const struct spawn_user user = { 65533, 65534, groups, ELEMENTS(groups) };
    struct spawn_request request = { .user = &user };
    (void)run(&request, "id -u; id -g; id -G", out, sizeof(out), &step);
    cr_expect_str_eq(out, "65533\n65534\n65534 7 9\n");
    cr_assert_not_null(mkdtemp(dir));
    request.cwd = dir;
    struct err err = run(&request, "pwd", out, sizeof(out), &step);
    cr_expect_eq(step, SPAWN_STEP_CWD);
    cr_expect_eq(err.sys_errno, EACCES);
    request.cwd_or_root = true;
    (void)run(&request, "pwd", out, sizeof(out), &step);
    cr_expect_str_eq(out, "/\n");
    (void)rmdir(dir);
    cr_expect(geteuid() == 0 && getegid() == 0, "the parent is not itself any more");
}

Test(spawn, a_user_that_the_kernel_refuses_fails_at_user)
{
    char out[64];
    enum spawn_step step;
    const gid_t group = (gid_t)-1;
    const struct spawn_user user = { 1, 1, &group, 1 };
    const struct spawn_request request = { .user = &user };
    struct err err = run(&request, "id -u", out, sizeof(out), &step);
    cr_expect_eq(step, SPAWN_STEP_USER);
    cr_expect_eq(err.sys_errno, EINVAL);
    cr_expect_str_eq(out, "");
}

Test(spawn, limits_niceness_and_umask_are_the_childs_alone)
{
    char out[512];
    enum spawn_step step;
    struct rlimit before, after;
    const int nice = 5;
    const mode_t mask = 071;
    const struct spawn_rlimit limits[] = { { RLIMIT_NOFILE, "nofile", { 50, 60 } },
                                           { RLIMIT_CPU, "cpu", { 100, 200 } } };
    const struct spawn_request request = {
        .rlimits = limits, .rlimit_count = ELEMENTS(limits), .nice = &nice, .umask = &mask
    };
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    (void)run(&request, "ulimit -Sn; ulimit -Hn; ulimit -St; nice; umask", out, sizeof(out), &step);
    cr_expect_str_eq(out, "50\n60\n100\n5\n0071\n");
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &after), 0);
    cr_expect_eq(after.rlim_cur, before.rlim_cur);
    mode_t ours = umask(0);
    (void)umask(ours);
    cr_expect_neq(ours, mask);
}

Test(spawn, a_score_for_when_memory_runs_out_is_the_childs_alone)
{
    char out[64];
    enum spawn_step step;
    const struct spawn_request request = { .oom_score_adj = "321" };
    (void)run(&request, "cat /proc/self/oom_score_adj", out, sizeof(out), &step);
    cr_expect_str_eq(out, "321\n");
    CLEANUP_FD int fd = open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
    cr_assert_gt(read(fd, out, sizeof(out)), 0);
    cr_expect_neq(strncmp(out, "321", 3), 0);
}

Test(spawn, a_control_group_that_is_none_fails_before_the_program_runs)
{
    char out[64];
    enum spawn_step step;
    CLEANUP_FD int dir = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct spawn_request request = { .cgroup = dir };
    struct err err = run(&request, "echo ran", out, sizeof(out), &step);
    cr_expect(step == SPAWN_STEP_CGROUP || step == SPAWN_STEP_FORK, "step %d", step);
    cr_expect_neq(err.sys_errno, 0);
    cr_expect_str_eq(out, "");
    cr_expect(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

/* PATH. */

static char root[] = "/tmp/test-spawn-XXXXXX";

static void put_program(const char *dir, mode_t mode)
{
    char path[128];
    (void)mkdir(dir, 0755);
    (void)snprintf(path, sizeof(path), "%s/prog", dir);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    (void)fprintf(file, "#!/bin/sh\necho %s\n", dir);
    cr_assert_eq(fclose(file), 0);
    cr_assert_eq(chmod(path, mode), 0);
}

Test(spawn, the_search_goes_on_behind_what_may_not_be_run_and_remembers_it)
{
    cr_assert(mkdtemp(root) && chdir(root) == 0);
    put_program("denied", 0644);
    put_program("good", 0755);
    put_program("late", 0755);
    char *argv[] = { (char *)"prog", NULL };
    cr_expect_str_eq(output_of(argv, "good:late", root), "good\n");
    cr_expect_str_eq(output_of(argv, "missing:denied:good", root), "good\n");
    cr_expect_str_eq(output_of(argv, "good/prog:late", root), "late\n", "a file in PATH");
    expect_failure(argv, "denied:missing", root, SPAWN_STEP_EXEC, EACCES);
    expect_failure(argv, "missing:denied", root, SPAWN_STEP_EXEC, EACCES);
    expect_failure(argv, "missing", root, SPAWN_STEP_EXEC, ENOENT);
    cr_assert_eq(chdir("good"), 0);
    char here[64];
    (void)snprintf(here, sizeof(here), "%s/late", root);
    cr_expect_str_eq(output_of(argv, "missing:", here), "late\n", "an empty element is the cwd");
    (void)snprintf(here, sizeof(here), "rm -rf %s", root);
    cr_expect_eq(system(here), 0);
}

Test(spawn, a_path_of_too_many_directories_is_refused)
{
    char path[256] = "a";
    while (strlen(path) < 200)
        (void)strcat(path, ":a");
    char *argv[] = { (char *)"prog", NULL };
    expect_failure(argv, path, "/", SPAWN_STEP_EXEC, E2BIG);
}
