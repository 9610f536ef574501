/* `sandstorm shell`: the user's login shell in a terminal of a sandbox. next: cli/foreground.c. */
#include "cli/cli.h"
#include "cli/foreground.h"
#include "cli/raw.h"
#include "cli/spec_options.h"
#include "cli/terminal.h"

#include <stdio.h>
#include <unistd.h>

#define WAIT_MAX_US (3600ull * 1000000)
/* $SHELL is from the sandbox's own list of users. */
#define LOGIN_SHELL "exec \"${SHELL:-/bin/sh}\" -l"

struct arguments {
    struct cli_common common;
    struct cli_spec_options spec;
    const char *escape;
    uint64_t wait_us;
    bool quiet;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    CLI_SPEC_OPTIONS(struct arguments, spec),
    { "wait", 'w', OPTION_DURATION, "TIME",
      "First wait, up to this long, until the sandbox can run commands",
      offsetof(struct arguments, wait_us), 1000, WAIT_MAX_US },
    { "escape", 0, OPTION_STRING, "CHAR",
      "Instead of ~: at the beginning of a line ~. leaves the shell running, ~? says more; none "
      "for no such key",
      offsetof(struct arguments, escape), 0, 0 },
    { "quiet", 'q', OPTION_FLAG, NULL, "No notes on stderr", offsetof(struct arguments, quiet), 0,
      0 },
    { 0 },
};

static const char *const examples[] = {
    "sandstorm shell web-1",
    "A login shell; Enter ~ . leaves it running, and says how to come back",
    "sandstorm shell web-1 -u postgres",
    "As another user of the sandbox",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm shell",
    .section = 1,
    .summary = "open a login shell in a sandbox",
    .usage = "[OPTION...] SANDBOX",
    .options = options,
    .examples = examples,
};

/* The exit status of a verb that runs something: what failed before that has one of its own. */
static int fail(const char *text)
{
    cli_complain(text);
    return FOREGROUND_BEFORE_START;
}

static int open_shell(const struct arguments *arguments, const struct sandstorm_spec *spec,
                      struct foreground *foreground, struct sandstorm_client *client)
{
    struct sandstorm_exec_options exec_options = { .spec = *spec };
    struct sandstorm_exec *exec;
    struct sandstorm_error error = { 0 };
    struct err err = { 0 };
    uint64_t wait_ms = (arguments->wait_us + 999) / 1000;
    if (foreground_begin(foreground, client, &err) < 0)
        return fail(err.text);
    foreground_streams(foreground, true, &exec_options.streams);
    if ((wait_ms && sandstorm_ready(client, spec->sandbox, wait_ms, NULL, NULL, &error) < 0) ||
        sandstorm_exec_start(client, &exec_options, &exec, &error) < 0)
        return fail(error.text);
    return foreground_follow(foreground, exec);
}

static int check_terminal(const char *sandbox, struct err *err)
{
    if (raw_possible())
        return 0;
    return err_set(err, ERR_INVALID,
                   "a shell needs a terminal, and this is none; for a script, 'sandstorm exec "
                   "%.63s -c LINE' runs a line, and takes its input from a pipe",
                   sandbox);
}

static int act(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    CLEANUP_FOREGROUND struct foreground foreground = { .quiet = arguments->quiet,
                                                        .terminal = true };
    CLEANUP_SPEC struct cli_spec spec = { 0 };
    struct err err = { 0 };
    if (!keys_parse(arguments->escape, &foreground.escape))
        (void)err_set(&err, ERR_INVALID, "--escape is one character, or none");
    if (err.code != ERR_NONE || cli_spec_fill(&arguments->spec, &spec, &err) < 0 ||
        foreground_prepare(&foreground, &err) < 0)
        return cli_error(&err, error);
    if (cli_connect(&arguments->common, &client, error) < 0)
        return -1;
    if (check_terminal(words[0], &err) < 0)
        return cli_error(&err, error);
    spec.spec.sandbox = words[0];
    spec.spec.shell = LOGIN_SHELL;
    spec.spec.terminal = true;
    terminal_describe(&spec.spec.rows, &spec.spec.columns, &spec.spec.terminal_type);
    return open_shell(arguments, &spec.spec, &foreground, client);
}

const struct cli_verb cli_shell = { .name = "shell",
                                    .page = &page,
                                    .act = act,
                                    .size = sizeof(struct arguments),
                                    .words_min = 1,
                                    .words_max = 1 };
