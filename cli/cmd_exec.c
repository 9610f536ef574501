/* `sandstorm exec`: a command in a sandbox as if it ran here; with -d, one that nobody waits for.
 * next: cli/foreground.c, client/exec.c; client/command.c. */
#include "cli/cli.h"
#include "cli/foreground.h"
#include "cli/raw.h"
#include "cli/spec_options.h"
#include "cli/terminal.h"
#include "cli/text.h"

#include <stdio.h>
#include <string.h>

/* How long a command outlives a client that vanished: longer than a network may be away, and its
 * client with it. */
#define GONE_AFTER_MS  60000u
#define WAIT_MAX_US    (3600ull * 1000000)
#define GIVE_UP_MAX_US (365ull * 86400 * 1000000)

struct arguments {
    struct cli_common common;
    struct cli_spec_options spec;
    const char *shell, *escape;
    uint64_t wait_us, give_up_us;
    bool interactive, no_stdin, tty, detach, quiet;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { "shell", 'c', OPTION_STRING, "TEXT", "Run this with /bin/sh -c, instead of an ARGV",
      offsetof(struct arguments, shell), 0, 0 },
    { "tty", 't', OPTION_FLAG, NULL, "Give it a terminal; Enter ~ . leaves it, Enter ~ ? says more",
      offsetof(struct arguments, tty), 0, 0 },
    { "interactive", 'I', OPTION_FLAG, NULL, "Pass input on even from a terminal",
      offsetof(struct arguments, interactive), 0, 0 },
    { "no-stdin", 'n', OPTION_FLAG, NULL, "Pass no input on", offsetof(struct arguments, no_stdin),
      0, 0 },
    { "detach", 'd', OPTION_FLAG, NULL,
      "Start it, print its id, and wait for nothing; with -I its input stays open",
      offsetof(struct arguments, detach), 0, 0 },
    CLI_SPEC_OPTIONS(struct arguments, spec),
    { "wait", 'w', OPTION_DURATION, "TIME",
      "First wait, up to this long, until the sandbox can run commands",
      offsetof(struct arguments, wait_us), 1000, WAIT_MAX_US },
    { "give-up-after", 0, OPTION_DURATION, "TIME",
      "Reconnect for so long when the orchestrator is away; 10m if not given",
      offsetof(struct arguments, give_up_us), 1000, GIVE_UP_MAX_US },
    { "escape", 0, OPTION_STRING, "CHAR", "With --tty, instead of ~; none for no such key",
      offsetof(struct arguments, escape), 0, 0 },
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
    "sandstorm exec -t web-1 -- top",
    "A program that needs a terminal",
    "sandstorm exec -d --memory 2G --cpus 1.5 -l job=7 web-1 -- make -j4",
    "Start a job with limits; 'sandstorm wait', 'attach', 'output' and 'kill' take the id",
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

/* What to run, from the words that are left. */
static int fill_command(const struct arguments *arguments, char **words,
                        struct sandstorm_spec *spec, struct err *err)
{
    if (!*words)
        return err_set(err, ERR_INVALID, "name a sandbox: sandstorm exec SANDBOX -- ARGV...");
    spec->sandbox = words[0];
    char **command = words + 1;
    if (*command && strcmp(*command, "--") == 0)
        command++;
    if (!*command == !arguments->shell)
        return err_set(err, ERR_INVALID,
                       arguments->shell ? "give --shell or ARGV, not both"
                                        : "give a command: sandstorm exec %s -- ARGV...",
                       words[0]);
    spec->argv = *command ? (const char *const *)command : NULL;
    spec->shell = arguments->shell;
    return 0;
}

static int check(const struct arguments *arguments, struct err *err)
{
    int escape;
    if (!keys_parse(arguments->escape, &escape))
        return err_set(err, ERR_INVALID, "--escape is one character, or none");
    if (arguments->detach && arguments->spec.gone_after_us)
        return err_set(err, ERR_INVALID,
                       "a command that is started with --detach has no client "
                       "to be gone; leave --gone-after out");
    if (arguments->no_stdin && arguments->interactive)
        return err_set(err, ERR_INVALID, "give --interactive or --no-stdin, not both");
    return 0;
}

static int fill(const struct arguments *arguments, char **words, struct cli_spec *ret,
                struct err *err)
{
    struct sandstorm_spec *spec = &ret->spec;
    if (check(arguments, err) < 0 || cli_spec_fill(&arguments->spec, ret, err) < 0 ||
        fill_command(arguments, words, spec, err) < 0)
        return -1;
    spec->terminal = arguments->tty;
    if (arguments->tty)
        terminal_describe(&spec->rows, &spec->columns, &spec->terminal_type);
    /* Who can detach from it wants it to go on. */
    bool keep = arguments->detach || arguments->tty || arguments->spec.keep;
    if (!keep && !spec->kill_when_client_gone) {
        spec->kill_when_client_gone = true;
        spec->client_gone_after_ms = GONE_AFTER_MS;
    }
    if (arguments->detach && (arguments->interactive || arguments->tty))
        spec->input = SANDSTORM_INPUT_STREAM;
    return 0;
}

static int fail(const char *text)
{
    cli_complain(text);
    return FOREGROUND_BEFORE_START;
}

static int wait_ready(const struct arguments *arguments, struct sandstorm_client *client,
                      const char *sandbox, struct sandstorm_error *error)
{
    uint64_t wait_ms = (arguments->wait_us + 999) / 1000;
    return wait_ms ? sandstorm_ready(client, sandbox, wait_ms, NULL, NULL, error) : 0;
}

/* With -d. */

static void print_id(void *userdata, const struct sandstorm_command *command)
{
    (void)userdata;
    text_print(stdout, "%s\n", command->id);
}

static int run_detached(const struct arguments *arguments, const struct sandstorm_spec *spec)
{
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    struct sandstorm_error error = { 0 };
    if (cli_connect(&arguments->common, &client, &error) < 0 ||
        wait_ready(arguments, client, spec->sandbox, &error) < 0 ||
        sandstorm_command_start(client, spec, print_id, NULL, &error) < 0)
        return fail(error.text);
    return 0;
}

/* In the foreground. */

static int run_attached(const struct arguments *arguments, const struct sandstorm_spec *spec)
{
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    CLEANUP_FOREGROUND struct foreground foreground = {
        .quiet = arguments->quiet,
        .terminal = arguments->tty && !arguments->no_stdin && raw_possible(),
        .cancels = spec->kill_when_client_gone,
    };
    struct sandstorm_exec_options exec_options = { .spec = *spec };
    struct sandstorm_exec *exec;
    struct sandstorm_error error = { 0 };
    struct err err = { 0 };
    bool input =
        !arguments->no_stdin && (arguments->interactive || arguments->tty || !isatty(STDIN_FILENO));
    (void)keys_parse(arguments->escape, &foreground.escape);
    if (foreground_prepare(&foreground, &err) < 0)
        return fail(err.text);
    if (cli_connect(&arguments->common, &client, &error) < 0)
        return fail(error.text);
    if (foreground_begin(&foreground, client, &err) < 0)
        return fail(err.text);
    foreground_streams(&foreground, input, &exec_options.streams);
    exec_options.streams.give_up_after_ms = (arguments->give_up_us + 999) / 1000;
    if (wait_ready(arguments, client, spec->sandbox, &error) < 0 ||
        sandstorm_exec_start(client, &exec_options, &exec, &error) < 0)
        return fail(error.text);
    return foreground_follow(&foreground, exec);
}

/* Options may also stand between the sandbox and the "--". */
static int parse(int argc, char **argv, struct arguments *arguments, bool *ret_help,
                 char ***ret_words, struct err *err)
{
    int rest, more;
    if (options_parse(&page, argc, argv, arguments, ret_help, &rest, err) < 0)
        return -1;
    *ret_words = argv + rest;
    if (*ret_help || rest >= argc)
        return 0;
    if (options_parse(&page, argc - rest, argv + rest, arguments, ret_help, &more, err) < 0)
        return -1;
    /* The words begin with the sandbox again. */
    char *sandbox = argv[rest];
    rest += more - 1;
    argv[rest] = sandbox;
    *ret_words = argv + rest;
    return 0;
}

static int run(int argc, char **argv)
{
    struct arguments arguments = { 0 };
    CLEANUP_SPEC struct cli_spec spec = { 0 };
    struct err err = { 0 };
    char **words;
    bool help = false;
    if (parse(argc, argv, &arguments, &help, &words, &err) < 0)
        return fail(err.text);
    if (help) {
        options_help(&page, stdout);
        return 0;
    }
    if (fill(&arguments, words, &spec, &err) < 0)
        return fail(err.text);
    return arguments.detach ? run_detached(&arguments, &spec.spec)
                            : run_attached(&arguments, &spec.spec);
}

const struct cli_verb cli_exec = { .name = "exec", .page = &page, .run = run };
