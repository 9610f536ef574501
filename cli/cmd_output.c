/* `sandstorm output`: what a command wrote, as far as it is kept, without attaching to it.
 * next: client/exec.c. */
#include "cli/cli.h"
#include "cli/find_command.h"
#include "cli/units.h"

#include <stdio.h>
#include <unistd.h>

struct arguments {
    struct cli_common common;
    const char *from, *last;
    bool only_stdout, only_stderr, follow;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { "follow", 'f', OPTION_FLAG, NULL, "Then go on until the command ends",
      offsetof(struct arguments, follow), 0, 0 },
    { "from", 0, OPTION_STRING, "OFFSET", "Begin at this byte instead of the first",
      offsetof(struct arguments, from), 0, 0 },
    { "last", 'n', OPTION_STRING, "SIZE", "Begin so much before the end: 4K, 1M",
      offsetof(struct arguments, last), 0, 0 },
    { "stdout", 0, OPTION_FLAG, NULL, "Only its standard output",
      offsetof(struct arguments, only_stdout), 0, 0 },
    { "stderr", 0, OPTION_FLAG, NULL, "Only its standard error",
      offsetof(struct arguments, only_stderr), 0, 0 },
    { 0 },
};

static const char *const examples[] = {
    "sandstorm output 5f0c > log",
    "All that it wrote; its standard error goes to ours",
    "sandstorm output 5f0c -f --last 4K",
    "The last 4 KiB, and then what is still to come",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm output",
    .section = 1,
    .summary = "show what a command wrote",
    .usage = "[OPTION...] ID",
    .options = options,
    .examples = examples,
};

static void on_notice(void *userdata, const char *text)
{
    (void)userdata;
    cli_complain(text);
}

static int fill(const struct arguments *arguments, struct sandstorm_attach_options *ret,
                struct err *err)
{
    if (arguments->from && arguments->last)
        return err_set(err, ERR_INVALID, "give --from or --last, not both");
    if (arguments->from && size_parse(arguments->from, &ret->from_offset, err) < 0)
        return err_wrap(err, "--from");
    if (arguments->last && size_parse(arguments->last, &ret->last_bytes, err) < 0)
        return err_wrap(err, "--last");
    bool both = arguments->only_stdout == arguments->only_stderr;
    ret->watch = true;
    ret->snapshot = !arguments->follow;
    ret->from_end = arguments->last;
    ret->streams = (struct sandstorm_streams){
        .stdin_fd = -1,
        .stdout_fd = both || arguments->only_stdout ? STDOUT_FILENO : -1,
        .stderr_fd = both || arguments->only_stderr ? STDERR_FILENO : -1,
        .notice = on_notice,
    };
    return 0;
}

static int act(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    struct sandstorm_attach_options attach = { 0 };
    struct found_command found;
    struct sandstorm_exec *exec;
    struct sandstorm_outcome outcome;
    struct err err = { 0 };
    if (fill(arguments, &attach, &err) < 0)
        return cli_error(&err, error);
    if (cli_connect(&arguments->common, &client, error) < 0 ||
        find_command(client, words[0], &found, error) < 0)
        return -1;
    attach.command_id = found.id.text;
    if (sandstorm_exec_attach(client, &attach, &exec, error) < 0)
        return -1;
    int r = sandstorm_exec_wait(exec, &outcome, error);
    sandstorm_exec_free(exec);
    /* The reader of our output has seen enough. */
    return r < 0 && error->code == SANDSTORM_CANCELLED ? 0 : r;
}

const struct cli_verb cli_output = { .name = "output",
                                     .page = &page,
                                     .act = act,
                                     .size = sizeof(struct arguments),
                                     .words_min = 1,
                                     .words_max = 1 };
