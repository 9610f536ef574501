/* `sandstorm-up`, what `make run` starts: works out of the box and leaves nothing behind. */
#include "tests/harness/proc.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>

/* The directory that its first line names. */
static void find_dir(const char *output, char *out, size_t size)
{
    static const char before[] = "Starting Sandstorm in ";
    const char *start = strstr(output, before);
    cr_assert_not_null(start, "no directory in \"%s\"", output);
    start += sizeof(before) - 1;
    (void)snprintf(out, size, "%.*s", (int)strcspn(start, "\n"), start);
}

/* Guards (tests/harness/guard.c) end a moment after what they guard. */
static bool ends(pid_t pid)
{
    CLEANUP_FD int pidfd = pidfd_open(pid, 0);
    struct pollfd end = { .fd = pidfd, .events = POLLIN };
    return pidfd < 0 || poll(&end, 1, (int)(PROC_DEADLINE_US / 1000)) == 1;
}

/* No process of this machine that lasts has the directory in its arguments or environment. */
static void assert_no_process(const char *dir)
{
    DIR *proc = opendir("/proc");
    cr_assert_not_null(proc);
    for (const struct dirent *entry = readdir(proc); entry; entry = readdir(proc)) {
        static const char *const files[] = { "cmdline", "environ" };
        for (size_t i = 0; i < ELEMENTS(files); i++) {
            char path[300], text[8192];
            (void)snprintf(path, sizeof(path), "/proc/%s/%s", entry->d_name, files[i]);
            CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
            ssize_t n = fd >= 0 ? read(fd, text, sizeof(text)) : -1;
            cr_assert(n <= 0 || !memmem(text, (size_t)n, dir, strlen(dir)) ||
                          ends((pid_t)strtol(entry->d_name, NULL, 10)),
                      "process %s remains", entry->d_name);
        }
    }
    (void)closedir(proc);
}

static void assert_nothing_left(const char *dir)
{
    struct stat info;
    cr_assert(stat(dir, &info) < 0 && errno == ENOENT, "%s remains", dir);
    assert_no_process(dir);
}

Test(up, runs_a_first_command_and_leaves_nothing_behind)
{
    const struct proc_spec spec = { .argv = (const char *[]){ SANDSTORM_UP, "--once", NULL } };
    CLEANUP_RESULT struct proc_result run = { 0 };
    struct err err;
    cr_assert_eq(proc_run(&spec, NULL, 0, PROC_DEADLINE_US, &run, &err), 0, "%s", err.text);
    cr_assert_eq(run.status, 0, "status %d: %s%s", run.status, run.out, run.err);
    cr_assert_not_null(strstr(run.out, "$ sandstorm exec demo -- uname -a\nLinux "), "%s", run.out);
    cr_assert_not_null(strstr(run.out, "[exit status 3]"), "%s", run.out);
    char dir[128];
    find_dir(run.out, dir, sizeof(dir));
    assert_nothing_left(dir);
}

/* What it has printed until `wanted` came. */
static void read_until(int fd, const char *wanted, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    while (!strstr(out, wanted)) {
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        cr_assert_eq(poll(&wait, 1, PROC_DEADLINE_US / 1000), 1, "only \"%s\" came", out);
        ssize_t n = read(fd, out + used, size - 1 - used);
        cr_assert_gt(n, 0, "it ended with \"%s\"", out);
        used += (size_t)n;
        out[used] = '\0';
    }
}

static struct proc *start_up(int *ret_fd)
{
    int fds[2];
    struct err err;
    struct proc *proc = NULL;
    cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
    const struct proc_spec spec = {
        .argv = (const char *[]){ SANDSTORM_UP, NULL }, .in = -1, .out = fds[1], .err = fds[1]
    };
    cr_assert_eq(proc_start(&spec, &proc, &err), 0, "%s", err.text);
    (void)close(fds[1]);
    *ret_fd = fds[0];
    return proc;
}

Test(up, serves_a_second_terminal_until_it_is_interrupted)
{
    char output[8192], dir[128], line[512];
    CLEANUP_FD int fd = -1;
    CLEANUP_PROC struct proc *proc = start_up(&fd);
    struct err err;
    int status;
    read_until(fd, "Ctrl-C", output, sizeof(output));
    find_dir(output, dir, sizeof(dir));
    /* Exactly what it says to type. */
    (void)snprintf(line, sizeof(line), ". %s/env && sandstorm ls && sandstorm exec demo -- echo hi",
                   dir);
    const struct proc_spec spec = { .argv = (const char *[]){ "sh", "-c", line, NULL } };
    CLEANUP_RESULT struct proc_result run = { 0 };
    cr_assert_eq(proc_run(&spec, NULL, 0, PROC_DEADLINE_US, &run, &err), 0, "%s", err.text);
    cr_assert_eq(run.status, 0, "%s", run.err);
    cr_assert_not_null(strstr(run.out, "online"), "%s", run.out);
    cr_assert_not_null(strstr(run.out, "\nhi\n"), "%s", run.out);
    cr_assert_eq(proc_signal(proc, SIGINT, &err), 0);
    cr_assert_eq(proc_wait(proc, PROC_DEADLINE_US, &status, &err), 0, "%s", err.text);
    cr_assert_eq(proc_exit_status(status), 0);
    assert_nothing_left(dir);
}

Test(up, reports_a_daemon_that_dies)
{
    char output[8192], dir[128], line[256];
    CLEANUP_FD int fd = -1;
    CLEANUP_PROC struct proc *proc = start_up(&fd);
    struct err err;
    int status;
    read_until(fd, "Ctrl-C", output, sizeof(output));
    find_dir(output, dir, sizeof(dir));
    /* The parent of a command is the runner. */
    (void)snprintf(line, sizeof(line),
                   ". %s/env && sandstorm exec -q --give-up-after 1s demo -c 'kill -9 $PPID'", dir);
    const struct proc_spec spec = {
        .argv = (const char *[]){ "sh", "-c", line, NULL }, .in = -1, .out = -1, .err = -1
    };
    CLEANUP_PROC struct proc *client = NULL;
    cr_assert_eq(proc_start(&spec, &client, &err), 0, "%s", err.text);
    cr_assert_eq(proc_wait(proc, PROC_DEADLINE_US, &status, &err), 0, "%s", err.text);
    cr_assert_eq(proc_exit_status(status), 1);
    read_until(fd, "demo-runner ended with status 137", output, sizeof(output));
    /* Our own client has the directory in its arguments until it has seen the end too. */
    cr_assert_eq(proc_wait(client, PROC_DEADLINE_US, &status, &err), 0, "%s", err.text);
    assert_nothing_left(dir);
}

Test(up, starts_the_agent_again_when_it_is_killed)
{
    char output[8192], dir[128];
    CLEANUP_FD int fd = -1;
    CLEANUP_PROC struct proc *proc = start_up(&fd);
    struct err err;
    int status;
    read_until(fd, "Ctrl-C", output, sizeof(output));
    find_dir(output, dir, sizeof(dir));
    const char *said = strstr(output, "kill -9 ");
    /* The last one: the first is an example of another kind. */
    for (const char *next = said; next; next = strstr(next + 1, "kill -9 "))
        said = next;
    cr_assert_not_null(said);
    pid_t agent = (pid_t)strtol(said + strlen("kill -9 "), NULL, 10);
    cr_assert_gt(agent, 1);
    cr_assert_eq(kill(agent, SIGKILL), 0);
    read_until(fd, "It is online", output, sizeof(output));
    cr_assert_eq(proc_signal(proc, SIGTERM, &err), 0, "%s", err.text);
    cr_assert_eq(proc_wait(proc, PROC_DEADLINE_US, &status, &err), 0, "%s", err.text);
    cr_assert_eq(proc_exit_status(status), 0);
    assert_nothing_left(dir);
}
