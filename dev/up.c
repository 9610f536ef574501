/* sandstorm-up: the whole system on this machine, for a first look (`make run`). Makes a private
 * directory with a fresh CA, starts the real daemons through tests/harness/cluster.c, runs a first
 * command with the real client, says what to type next, and takes everything down again. */
#include "common/program.h"
#include "tests/harness/cluster.h"

#include <errno.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>

#define SANDBOX        "demo"
#define PORT_PREFERRED 5000 /* the documented one */

struct arguments {
    bool once;
};

static const struct option options[] = {
    { "once", 0, OPTION_FLAG, NULL, "Stop after the first commands",
      offsetof(struct arguments, once), 0, 0 },
    { 0 },
};

static const struct option_page page = {
    .program = "sandstorm-up",
    .section = 1,
    .summary = "try Sandstorm on this machine",
    .usage = "[OPTION...]",
    .options = options,
};

/* What a second terminal needs, as a file for its shell to read. */
static int write_env(const struct cluster *cluster, struct err *err)
{
    char path[CLUSTER_PATH_MAX + 8];
    CLEANUP_FREE char *program = strdup(cluster_program("sandstorm"));
    if (!program)
        return err_nomem(err);
    (void)snprintf(path, sizeof(path), "%s/env", cluster->dir);
    FILE *file = fopen(path, "we");
    if (!file)
        return err_errno(err, errno, "cannot write %s", path);
    int n = fprintf(file,
                    "export SANDSTORM_ENDPOINT='127.0.0.1:%d'\n"
                    "export SANDSTORM_IDENTITY='%s'\n"
                    "export PATH='%s':\"$PATH\"\n",
                    cluster->port, cluster->admin, dirname(program));
    if (fclose(file) != 0 || n < 0)
        return err_errno(err, errno, "cannot write %s", path);
    return 0;
}

static int start(struct cluster *cluster, struct err *err)
{
    struct sandbox_processes *sandbox;
    if (cluster_start_orchestrator(cluster, err) < 0)
        return -1;
    (void)printf("  orchestrator  127.0.0.1:%d, with a CA of its own; enrolment on port %d\n",
                 cluster->port, cluster->http_port);
    if (cluster_add_sandbox(cluster, SANDBOX, &sandbox, err) < 0)
        return -1;
    (void)printf("  token         made for \"" SANDBOX "\": good for one VM, for 15 minutes\n");
    if (sandbox_start_runner(sandbox, err) < 0 || sandbox_start_link(sandbox, err) < 0)
        return -1;
    (void)printf("  sandbox       \"" SANDBOX
                 "\" has enrolled with it and is online: an agent and a runner, here\n");
    return write_env(cluster, err);
}

/* Runs the client and shows it as a terminal would. */
static int show(const struct cluster *cluster, const char *shown, const char *const *words,
                int expected, struct err *err)
{
    CLEANUP_RESULT struct proc_result result = { 0 };
    (void)printf("\n$ %s\n", shown);
    if (cluster_cli(cluster, words, NULL, 0, PROC_DEADLINE_US, &result, err) < 0)
        return -1;
    (void)printf("%s%s", result.out, result.err);
    if (result.status != 0)
        (void)printf("[exit status %d]\n", result.status);
    if (result.status != expected)
        return err_set(err, ERR_INTERNAL, "'%s' ended with %d, not %d; the logs are in %s", shown,
                       result.status, expected, cluster->dir);
    return 0;
}

static int show_first_commands(const struct cluster *cluster, struct err *err)
{
    if (show(cluster, "sandstorm exec " SANDBOX " -- uname -a",
             (const char *[]){ "exec", SANDBOX, "--", "uname", "-a", NULL }, 0, err) < 0)
        return -1;
    return show(
        cluster, "sandstorm exec " SANDBOX " -c 'echo hello from process $$; exit 3'",
        (const char *[]){ "exec", SANDBOX, "-c", "echo hello from process $$; exit 3", NULL }, 3,
        err);
}

static void say_next(const struct cluster *cluster)
{
    (void)printf("\nNow type this in a second terminal:\n"
                 "\n"
                 "  . %s/env\n"
                 "  sandstorm ls\n"
                 "  sandstorm exec " SANDBOX " -- ps -ef\n"
                 "  echo hello | sandstorm exec " SANDBOX " -- tr a-z A-Z\n"
                 "  sandstorm exec " SANDBOX " -c 'kill -9 $$'; echo $?\n"
                 "  sandstorm top\n"
                 "  sandstorm logs " SANDBOX "\n"
                 "  sandstorm audit\n"
                 "\n"
                 "Or kill the agent (kill -9 %d) while a command runs: it does not notice.\n"
                 "Logs: %s/*.log\n"
                 "Ctrl-C stops it all and removes the directory.\n",
                 cluster->dir, (int)proc_pid(service_proc(cluster->sandboxes[0].link)),
                 cluster->dir);
}

/* Until a signal comes, or a daemon goes. */
static int keep_running(struct cluster *cluster, int signals, struct err *err)
{
    struct sandbox_processes *sandbox = &cluster->sandboxes[0];
    struct service *const services[] = { cluster->orchestrator, sandbox->runner, sandbox->link };
    struct pollfd fds[ELEMENTS(services) + 1];
    for (size_t i = 0; i < ELEMENTS(services); i++)
        fds[i] = (struct pollfd){ .fd = proc_fd(service_proc(services[i])), .events = POLLIN };
    fds[ELEMENTS(services)] = (struct pollfd){ .fd = signals, .events = POLLIN };
    for (;;) {
        if (poll(fds, ELEMENTS(fds), -1) < 0 && errno != EINTR)
            return err_errno(err, errno, "cannot wait");
        if (fds[ELEMENTS(services)].revents)
            return 0;
        for (size_t i = 0; i < ELEMENTS(services); i++) {
            if (service_check(services[i], err) == 0)
                continue;
            if (services[i] != sandbox->link)
                return -1;
            /* Killing it is the thing to try: commands do not notice. */
            (void)printf("The agent ended; starting it again.\n");
            if (service_kill(sandbox->link, err) < 0 || sandbox_start_link(sandbox, err) < 0)
                return -1;
            (void)printf("It is online, as process %d.\n",
                         (int)proc_pid(service_proc(services[i])));
            fds[i].fd = proc_fd(service_proc(services[i]));
        }
    }
}

static int run(struct cluster *cluster, bool once, int signals, struct err *err)
{
    if (start(cluster, err) < 0 || show_first_commands(cluster, err) < 0)
        return -1;
    if (once)
        return 0;
    say_next(cluster);
    (void)fflush(stdout);
    return keep_running(cluster, signals, err);
}

static int up(bool once, struct err *err)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGHUP);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    CLEANUP_FD int signals = signalfd(-1, &set, SFD_CLOEXEC);
    CLEANUP_CLUSTER struct cluster *cluster = NULL;
    const struct cluster_config config = { .port = PORT_PREFERRED };
    if (signals < 0)
        return err_errno(err, errno, "cannot wait for signals");
    if (cluster_new(&config, &cluster, err) < 0)
        return -1;
    (void)printf("Starting Sandstorm in %s\n", cluster->dir);
    int r = run(cluster, once, signals, err);
    struct err more;
    if (!once && r == 0)
        (void)printf("\nStopping.\n");
    if (cluster_stop(cluster, r ? &more : err) < 0)
        r = -1;
    return r;
}

int main(int argc, char **argv)
{
    struct arguments arguments = { 0 };
    struct err err = { 0 };
    bool done = false;
    int rest = 0;
    /* A person reads this as it happens, also through a pipe. */
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    int r = program_parse(&page, argc, argv, &arguments, &done, &rest, &err);
    if (r == 0 && done)
        return 0;
    if (r == 0 && rest < argc)
        r = err_set(&err, ERR_INVALID, "\"%s\" is not expected here; see --help", argv[rest]);
    if (r == 0)
        r = up(arguments.once, &err);
    return r < 0 ? program_fail(page.program, &err) : 0;
}
