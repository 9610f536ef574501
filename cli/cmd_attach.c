/* `sandstorm attach`: goes on with a command that runs, or shows the end of one that has ended.
 * next: cli/foreground.c, client/exec.c. */
#include "cli/cli.h"
#include "cli/find_command.h"
#include "cli/foreground.h"
#include "cli/raw.h"
#include "cli/units.h"

#include <stdio.h>
#include <unistd.h>

/* Enough for every screen. */
#define LAST_DEFAULT   (64u * 1024)
#define GIVE_UP_MAX_US (365ull * 86400 * 1000000)

struct arguments {
    struct cli_common common;
    const char *from, *last, *escape;
    uint64_t give_up_us;
    bool watch, interactive, no_stdin, quiet;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { "watch", 'w', OPTION_FLAG, NULL,
      "Only look: take over from nobody, send no input and no signals",
      offsetof(struct arguments, watch), 0, 0 },
    { "from", 0, OPTION_STRING, "OFFSET", "Begin at this byte of its output; 0 is the first",
      offsetof(struct arguments, from), 0, 0 },
    { "last", 'n', OPTION_STRING, "SIZE",
      "Begin so much before the end of its output; 64K if not "
      "given",
      offsetof(struct arguments, last), 0, 0 },
    { "interactive", 'I', OPTION_FLAG, NULL,
      "Pass input on; a command with a terminal gets it from a terminal in any case",
      offsetof(struct arguments, interactive), 0, 0 },
    { "no-stdin", 0, OPTION_FLAG, NULL, "Pass no input on", offsetof(struct arguments, no_stdin), 0,
      0 },
    { "give-up-after", 0, OPTION_DURATION, "TIME",
      "Reconnect for so long when the orchestrator is away; 10m if not given",
      offsetof(struct arguments, give_up_us), 1000, GIVE_UP_MAX_US },
    { "escape", 0, OPTION_STRING, "CHAR",
      "Instead of ~: at the beginning of a line ~. leaves the command running, ~? says more; none "
      "for no such key",
      offsetof(struct arguments, escape), 0, 0 },
    { "quiet", 'q', OPTION_FLAG, NULL, "No notes on stderr", offsetof(struct arguments, quiet), 0,
      0 },
    { 0 },
};

static const char *const examples[] = {
    "sandstorm attach 5f0c",
    "Go on with the command whose id begins with 5f0c, in place of the client that had it",
    "sandstorm attach --watch 5f0c",
    "Look over somebody's shoulder",
    "sandstorm attach 5f0c --from 0 > log",
    "All of its output from the beginning, and what is still to come",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm attach",
    .section = 1,
    .summary = "go on with a command that runs",
    .usage = "[OPTION...] ID",
    .options = options,
    .examples = examples,
};

static int fill(const struct arguments *arguments, int *ret_escape,
                struct sandstorm_attach_options *ret, struct err *err)
{
    if (arguments->from && arguments->last)
        return err_set(err, ERR_INVALID, "give --from or --last, not both");
    if (arguments->watch && arguments->interactive)
        return err_set(err, ERR_INVALID,
                       "who only watches sends no input; give --watch or "
                       "--interactive, not both");
    if (!keys_parse(arguments->escape, ret_escape))
        return err_set(err, ERR_INVALID, "--escape is one character, or none");
    ret->watch = arguments->watch;
    ret->from_end = !arguments->from;
    ret->last_bytes = LAST_DEFAULT;
    if (arguments->from && size_parse(arguments->from, &ret->from_offset, err) < 0)
        return err_wrap(err, "--from");
    if (arguments->last && size_parse(arguments->last, &ret->last_bytes, err) < 0)
        return err_wrap(err, "--last");
    return 0;
}

/* The terminal is taken before it is known whether the command has one too: what blocks signals
 * must come first. */
static int follow(const struct arguments *arguments, const char *word,
                  struct foreground *foreground, struct sandstorm_client *client,
                  const struct sandstorm_attach_options *asked, struct sandstorm_error *error)
{
    struct sandstorm_attach_options attach = *asked;
    struct found_command found;
    struct sandstorm_exec *exec;
    if (find_command(client, word, &found, error) < 0)
        return -1;
    bool ended = found.state == SANDSTORM_COMMAND_ENDED;
    foreground->terminal = foreground->terminal && found.terminal && !ended;
    foreground->redraw = found.terminal;
    bool input = !arguments->watch && !arguments->no_stdin &&
                 (arguments->interactive || foreground->terminal);
    foreground_streams(foreground, input, &attach.streams);
    attach.streams.give_up_after_ms = (arguments->give_up_us + 999) / 1000;
    attach.command_id = found.id.text;
    if (sandstorm_exec_attach(client, &attach, &exec, error) < 0)
        return -1;
    return foreground_follow(foreground, exec);
}

static int act(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    CLEANUP_FOREGROUND struct foreground foreground = {
        .quiet = arguments->quiet,
        .watch = arguments->watch,
        .terminal = !arguments->watch && !arguments->no_stdin && raw_possible(),
    };
    struct sandstorm_attach_options attach = { 0 };
    struct err err = { 0 };
    if (fill(arguments, &foreground.escape, &attach, &err) < 0 ||
        foreground_prepare(&foreground, &err) < 0)
        return cli_error(&err, error);
    if (cli_connect(&arguments->common, &client, error) < 0)
        return -1;
    if (foreground_begin(&foreground, client, &err) < 0)
        return cli_error(&err, error);
    int status = follow(arguments, words[0], &foreground, client, &attach, error);
    if (status >= 0)
        return status;
    /* The command's own status may be anything; ours says that it is not known. */
    cli_complain(error->text);
    return FOREGROUND_UNKNOWN;
}

const struct cli_verb cli_attach = { .name = "attach",
                                     .page = &page,
                                     .act = act,
                                     .size = sizeof(struct arguments),
                                     .words_min = 1,
                                     .words_max = 1 };
