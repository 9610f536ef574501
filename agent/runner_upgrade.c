/* The runner's program executes itself anew, in the same process: after an upgrade, on SIGUSR2.
 * Commands stay its children and their descriptors stay open; everything else goes through a memory
 * file (agent/handover.c). The new program is asked first whether it can read that, and whether its
 * settings are good; one that cannot leaves the old one running. next: agent/runner_handover.c. */
#include "agent/runner-internal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

/* How long the new program may take to read what it is asked about; commands wait meanwhile. */
#define CHECK_MS      10000
#define ARGUMENTS_MAX 6u

/* Waits for it; what it has to say it says on our standard error. */
static int wait_check(pid_t pid, struct err *err)
{
    siginfo_t info = { 0 };
    CLEANUP_FD int pidfd = pidfd_open(pid, 0);
    struct pollfd end = { .fd = pidfd, .events = POLLIN };
    bool in_time = pidfd >= 0 && poll(&end, 1, CHECK_MS) == 1;
    if (!in_time)
        (void)kill(pid, SIGKILL);
    while (waitid(P_PID, (id_t)pid, &info, WEXITED) < 0 && errno == EINTR)
        continue;
    if (!in_time)
        return err_set(err, ERR_TIMEOUT, "the new program does not answer");
    if (info.si_code != CLD_EXITED || info.si_status != 0)
        return err_set(err, ERR_PRECONDITION, "the new program cannot take over (it ended with %d)",
                       info.si_status);
    return 0;
}

static int ask(const struct runner *runner, int fd, struct err *err)
{
    const char *const argv[] = { runner->program, "--check-handover",
                                 runner->settings_file ? "--config" : NULL, runner->settings_file,
                                 NULL };
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int r = posix_spawn_file_actions_init(&actions);
    if (r)
        return err_errno(err, r, "cannot ask the new program");
    r = posix_spawn_file_actions_adddup2(&actions, fd, STDIN_FILENO);
    if (r == 0)
        r = posix_spawn(&pid, runner->program, &actions, NULL, (char *const *)argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    if (r)
        return err_errno(err, r, "cannot run %s", runner->program);
    return wait_check(pid, err);
}

/* Comes back only when it failed. */
static int become(const struct runner *runner, const struct handover_out *out, struct err *err)
{
    char number[32];
    unsigned count = 0;
    const char *argv[ARGUMENTS_MAX] = { runner->program };
    struct err ignored;
    (void)snprintf(number, sizeof(number), "%d", out->fd);
    argv[++count] = "--handover";
    argv[++count] = number;
    if (runner->settings_file) {
        argv[++count] = "--config";
        argv[++count] = runner->settings_file;
    }
    if (handover_inherit(out, true, err) == 0) {
        (void)execv(runner->program, (char *const *)argv);
        (void)err_errno(err, errno, "cannot execute %s", runner->program);
    }
    (void)!handover_inherit(out, false, &ignored);
    return -1;
}

void runner_upgrade(struct runner *runner)
{
    struct handover_out out = { .fd = -1 };
    struct err err = { 0 };
    int r = 0;
    if (!runner->state || !runner->program || runner->stopping)
        r = err_set(&err, ERR_PRECONDITION, "the runner has no state directory, or it is stopping");
    if (r == 0)
        r = runner_hand_over(runner, &out, &err);
    if (r == 0)
        r = ask(runner, out.fd, &err);
    if (r == 0) {
        log_info("runner executes itself anew", LF_STR("program", runner->program),
                 LF_UINT("commands", HASH_COUNT(runner->commands)));
        daemon_reloading();
        (void)become(runner, &out, &err);
    }
    log_error("the runner goes on as it is", LF_ERR(&err));
    daemon_ready("listening on %s", runner->socket_path);
    handover_done(&out);
}
