/* `sandstorm exec`: a command in a sandbox as if it ran here. Its output goes to our descriptors,
 * our input to it, our signals too, and its exit status becomes ours. next: client/exec.c. */
#include "cli/cli.h"

#include "client/client-internal.h"

#include <signal.h>
#include <stddef.h>
#include <string.h>

#define EXIT_BEFORE_START 125
#define EXIT_UNKNOWN      255
/* How long a command outlives a client that vanished. */
#define GONE_AFTER_MS  5000u
#define TIMEOUT_MAX_US (365ull * 86400 * 1000000)
#define WAIT_MAX_US    (3600ull * 1000000)

struct arguments {
    struct cli_common common;
    struct option_list env;
    const char *cwd;
    const char *id;
    const char *shell;
    uint64_t timeout_us, wait_us;
    bool interactive, no_stdin, quiet;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { "env", 'E', OPTION_LIST, "NAME=VALUE", "Set an environment variable",
      offsetof(struct arguments, env), 0, 0 },
    { "cwd", 'C', OPTION_STRING, "DIR", "Start in this directory of the sandbox",
      offsetof(struct arguments, cwd), 0, 0 },
    { "shell", 'c', OPTION_STRING, "TEXT", "Run this with /bin/sh -c, instead of an ARGV",
      offsetof(struct arguments, shell), 0, 0 },
    { "timeout", 't', OPTION_DURATION, "TIME", "Kill the command after this long: 500ms, 30s, 15m",
      offsetof(struct arguments, timeout_us), 1000, TIMEOUT_MAX_US },
    { "wait", 'w', OPTION_DURATION, "TIME",
      "First wait, up to this long, until the sandbox can run commands",
      offsetof(struct arguments, wait_us), 1000, WAIT_MAX_US },
    { "interactive", 'I', OPTION_FLAG, NULL, "Pass input on even from a terminal",
      offsetof(struct arguments, interactive), 0, 0 },
    { "no-stdin", 'n', OPTION_FLAG, NULL, "Pass no input on", offsetof(struct arguments, no_stdin),
      0, 0 },
    { "id", 0, OPTION_STRING, "UUID",
      "Use this command id; a known one is attached to, not run twice",
      offsetof(struct arguments, id), 0, 0 },
    { "quiet", 'q', OPTION_FLAG, NULL, "No notes on stderr about how the command ended",
      offsetof(struct arguments, quiet), 0, 0 },
    { 0 },
};

static const char *const examples[] = {
    "sandstorm exec web-1 -- uname -a",
    "Run a command and see its output",
    "sandstorm exec web-1 -c 'df -h | grep /dev'",
    "Let the sandbox's shell run a line",
    "tar c . | sandstorm exec web-1 -C /srv -- tar x",
    "Feed it from a pipe",
    "sandstorm exec --wait 5m web-1 -- true",
    "Right after the VM was made: wait until it has joined",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm exec",
    .section = 1,
    .summary = "run a command in a sandbox",
    .usage = "[OPTION...] SANDBOX -- ARGV...",
    .options = options,
    .examples = examples,
};

/* Signals that are passed on; the second INT, TERM or HUP is for us. */
static const struct {
    int number;
    const char *name;
} passed[] = {
    { SIGINT, "INT" },   { SIGTERM, "TERM" }, { SIGHUP, "HUP" },
    { SIGQUIT, "QUIT" }, { SIGUSR1, "USR1" }, { SIGUSR2, "USR2" },
};

struct run {
    const struct arguments *arguments;
    struct sandstorm_client *client;
    struct sandstorm_exec *exec;
    struct loop_signal *signals[ELEMENTS(passed)];
    unsigned asked_to_leave;
};

static void on_notice(void *userdata, const char *text)
{
    const struct run *run = userdata;
    if (!run->arguments->quiet)
        cli_complain(text);
}

static void on_signal(void *userdata, int number)
{
    struct run *run = userdata;
    bool leave = number == SIGINT || number == SIGTERM || number == SIGHUP;
    /* Still waiting for the sandbox: nothing was started. */
    if (!run->exec && leave)
        _exit(128 + number);
    if (!run->exec)
        return;
    if (leave && ++run->asked_to_leave > 1) {
        cli_complain("left without the result; the command will be stopped in 5 s");
        _exit(128 + number);
    }
    for (size_t i = 0; i < ELEMENTS(passed); i++)
        if (passed[i].number == number)
            (void)sandstorm_exec_signal(run->exec, passed[i].name, NULL);
    if (number == SIGINT && !run->arguments->quiet)
        cli_complain("interrupting the command; press Ctrl-C again to leave without its result");
}

static int watch_signals(struct run *run, struct err *err)
{
    for (size_t i = 0; i < ELEMENTS(passed); i++)
        if (loop_signal_new(client_loop(run->client), passed[i].number, on_signal, run,
                            &run->signals[i], err) < 0)
            return -1;
    return 0;
}

/* A note for what a number cannot say. */
static void explain(const struct sandstorm_outcome *outcome)
{
    char text[SANDSTORM_TEXT_MAX + 128];
    switch (outcome->result) {
    case SANDSTORM_RESULT_SIGNALED:
        (void)snprintf(text, sizeof(text), "the command was killed by SIG%s%s",
                       outcome->signal_name, outcome->core_dumped ? " (core dumped)" : "");
        break;
    case SANDSTORM_RESULT_TIMED_OUT:
        (void)snprintf(text, sizeof(text), "the command was killed: its timeout passed");
        break;
    case SANDSTORM_RESULT_CANCELLED:
        (void)snprintf(text, sizeof(text), "the command was cancelled: %s", outcome->detail);
        break;
    case SANDSTORM_RESULT_START_FAILED:
        (void)snprintf(text, sizeof(text), "the command did not start: %s (%s at step %s)",
                       outcome->detail, outcome->error_name, outcome->step);
        break;
    case SANDSTORM_RESULT_OOM_KILLED:
        (void)snprintf(text, sizeof(text), "the command was killed: out of memory");
        break;
    case SANDSTORM_RESULT_LOST:
        (void)snprintf(text, sizeof(text), "the command's result is lost: %s", outcome->detail);
        break;
    default:
        if (outcome->stream_held_open)
            cli_complain("a process that the command left behind still holds its output open");
        return;
    }
    cli_complain(text);
}

static int fill_options(const struct arguments *arguments, int argc, char **argv,
                        struct sandstorm_exec_options *ret, struct err *err)
{
    if (argc == 0)
        return err_set(err, ERR_INVALID, "name a sandbox: sandstorm exec SANDBOX -- ARGV...");
    ret->sandbox = argv[0];
    char **command = argv + 1;
    if (*command && strcmp(*command, "--") == 0)
        command++;
    if (!*command == !arguments->shell)
        return err_set(err, ERR_INVALID,
                       arguments->shell ? "give --shell or ARGV, not both"
                                        : "give a command: sandstorm exec %s -- ARGV...",
                       argv[0]);
    ret->argv = *command ? (const char *const *)command : NULL;
    ret->shell = arguments->shell;
    ret->cwd = arguments->cwd;
    ret->command_id = arguments->id;
    ret->timeout_ms = (arguments->timeout_us + 999) / 1000;
    ret->env = arguments->env.count ? arguments->env.items : NULL;
    ret->kill_when_client_gone = true;
    ret->client_gone_after_ms = GONE_AFTER_MS;
    bool input = !arguments->no_stdin && (arguments->interactive || !isatty(STDIN_FILENO));
    ret->stdin_fd = input ? STDIN_FILENO : -1;
    ret->stdout_fd = STDOUT_FILENO;
    ret->stderr_fd = STDERR_FILENO;
    ret->notice = on_notice;
    return 0;
}

static int follow(struct run *run, const struct sandstorm_exec_options *exec_options)
{
    struct sandstorm_error error = { 0 };
    struct sandstorm_outcome outcome;
    struct err err;
    uint64_t wait_ms = (run->arguments->wait_us + 999) / 1000;
    if (watch_signals(run, &err) < 0)
        cli_complain(err.text);
    if ((wait_ms &&
         sandstorm_ready(run->client, exec_options->sandbox, wait_ms, NULL, NULL, &error) < 0) ||
        sandstorm_exec_start(run->client, exec_options, &run->exec, &error) < 0) {
        cli_complain(error.text);
        return EXIT_BEFORE_START;
    }
    if (sandstorm_exec_wait(run->exec, &outcome, &error) < 0) {
        cli_complain(error.text);
        return *sandstorm_exec_id(run->exec) ? EXIT_UNKNOWN : EXIT_BEFORE_START;
    }
    if (!run->arguments->quiet)
        explain(&outcome);
    return sandstorm_exit_status(&outcome);
}

static int run_exec(const struct arguments *arguments, struct sandstorm_exec_options exec_options)
{
    struct run run = { .arguments = arguments };
    struct sandstorm_error error = { 0 };
    struct err err;
    int numbers[ELEMENTS(passed)];
    for (size_t i = 0; i < ELEMENTS(passed); i++)
        numbers[i] = passed[i].number;
    exec_options.userdata = &run;
    /* Before libgrpc's threads exist, so that none of them is hit. */
    if (loop_signals_block(numbers, ELEMENTS(numbers), &err) < 0) {
        cli_complain(err.text);
        return EXIT_BEFORE_START;
    }
    if (cli_connect(&arguments->common, &run.client, &error) < 0) {
        cli_complain(error.text);
        return EXIT_BEFORE_START;
    }
    int status = follow(&run, &exec_options);
    for (size_t i = 0; i < ELEMENTS(passed); i++)
        loop_signal_free(run.signals[i]);
    sandstorm_exec_free(run.exec);
    sandstorm_client_free(run.client);
    return status;
}

/* Options may also stand between the sandbox and the "--". */
static int parse(int argc, char **argv, struct arguments *arguments, bool *ret_help,
                 struct sandstorm_exec_options *ret, struct err *err)
{
    int rest, more;
    if (options_parse(&page, argc, argv, arguments, ret_help, &rest, err) < 0)
        return -1;
    if (*ret_help || rest >= argc)
        return *ret_help ? 0 : fill_options(arguments, 0, argv, ret, err);
    if (options_parse(&page, argc - rest, argv + rest, arguments, ret_help, &more, err) < 0)
        return -1;
    if (*ret_help)
        return 0;
    /* What follows begins with the sandbox again, for fill_options() to see. */
    char *sandbox = argv[rest];
    rest += more - 1;
    argv[rest] = sandbox;
    return fill_options(arguments, argc - rest, argv + rest, ret, err);
}

static int run(int argc, char **argv)
{
    struct arguments arguments = { 0 };
    struct sandstorm_exec_options exec_options = { 0 };
    struct err err = { 0 };
    bool help = false;
    if (parse(argc, argv, &arguments, &help, &exec_options, &err) < 0) {
        cli_complain(err.text);
        return EXIT_BEFORE_START;
    }
    if (help) {
        options_help(&page, stdout);
        return 0;
    }
    return run_exec(&arguments, exec_options);
}

const struct cli_verb cli_exec = { .name = "exec", .page = &page, .run = run };
