/* `sandstorm kill`: stops commands, or sends them a signal. next: client/command.c. */
#include "cli/cli.h"
#include "cli/find_command.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define GRACE_MAX_US (86400ull * 1000000)
#define COMMANDS_MAX 20u
#define SIGNAL_MAX   16u

struct arguments {
    struct cli_common common;
    const char *signal;
    uint64_t grace_us;
    bool leader;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { "signal", 's', OPTION_STRING, "NAME",
      "Only send this signal, like HUP or KILL; without it TERM, and KILL when the grace has "
      "passed",
      offsetof(struct arguments, signal), 0, 0 },
    { "leader", 0, OPTION_FLAG, NULL, "To the first process alone, not to all that it started",
      offsetof(struct arguments, leader), 0, 0 },
    { "grace", 'g', OPTION_DURATION, "TIME", "Between TERM and KILL, instead of the command's own",
      offsetof(struct arguments, grace_us), 1000, GRACE_MAX_US },
    { 0 },
};

static const char *const examples[] = {
    "sandstorm kill 5f0c",
    "Stop a command with everything that it started; its result is then \"cancelled\"",
    "sandstorm kill -s HUP --leader 5f0c",
    "Let a daemon read its settings again",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm kill",
    .section = 1,
    .summary = "stop commands, or send them a signal",
    .usage = "[OPTION...] ID...",
    .options = options,
    .examples = examples,
};

/* "SIGHUP", "hup": HUP. Which names there are is the sandbox's to say. */
static int signal_name(const char *text, char ret[SIGNAL_MAX], struct err *err)
{
    const char *name = strncasecmp(text, "SIG", 3) == 0 ? text + 3 : text;
    size_t length = strlen(name);
    bool good = length > 0 && length < SIGNAL_MAX && isalpha((unsigned char)*name);
    for (size_t i = 0; good && i <= length; i++) {
        good = i == length || isalnum((unsigned char)name[i]) || strchr("+-", name[i]);
        ret[i] = (char)toupper((unsigned char)name[i]);
    }
    return good ? 0
                : err_set(err, ERR_INVALID,
                          "\"%.64s\" is not the name of a signal; write it like HUP, INT or KILL",
                          text);
}

static int kill_one(const struct arguments *arguments, struct sandstorm_client *client,
                    const char *word, const char *name, struct sandstorm_error *error)
{
    struct found_command found;
    if (find_command(client, word, &found, error) < 0)
        return -1;
    if (name)
        return sandstorm_command_signal(client, found.id.text, name, arguments->leader, error);
    return sandstorm_command_cancel(client, found.id.text, (arguments->grace_us + 999) / 1000,
                                    error);
}

static int check(const struct arguments *arguments, char name[SIGNAL_MAX], struct err *err)
{
    if (arguments->leader && !arguments->signal)
        return err_set(err, ERR_INVALID,
                       "--leader needs --signal: a command is stopped with all "
                       "of its processes");
    if (arguments->grace_us && arguments->signal)
        return err_set(err, ERR_INVALID, "give --grace or --signal, not both");
    return arguments->signal ? signal_name(arguments->signal, name, err) : 0;
}

static int act(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    char name[SIGNAL_MAX] = "";
    struct err err = { 0 };
    if (check(arguments, name, &err) < 0)
        return cli_error(&err, error);
    if (cli_connect(&arguments->common, &client, error) < 0)
        return -1;
    for (size_t i = 0; words[i]; i++)
        if (kill_one(arguments, client, words[i], *name ? name : NULL, error) < 0)
            return -1;
    return 0;
}

const struct cli_verb cli_kill = { .name = "kill",
                                   .page = &page,
                                   .act = act,
                                   .size = sizeof(struct arguments),
                                   .words_min = 1,
                                   .words_max = COMMANDS_MAX };
