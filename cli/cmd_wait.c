/* `sandstorm wait`: until commands have ended; the exit status is theirs. next: client/command.c.
 */
#include "cli/cli.h"
#include "cli/find_command.h"
#include "cli/foreground.h"
#include "cli/output.h"
#include "cli/result.h"

#include "common/clock.h"

#include <stdio.h>

#define WAIT_MAX_US  (365ull * 86400 * 1000000)
#define COMMANDS_MAX 20u

struct arguments {
    struct cli_common common;
    uint64_t timeout_us;
    const char *output;
    bool quiet;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { "timeout", 'T', OPTION_DURATION, "TIME",
      "Wait at most so long for all of them; the status is 255 then",
      offsetof(struct arguments, timeout_us), 1000, WAIT_MAX_US },
    { "output", 'o', OPTION_STRING, "FORMAT", "text, or json: one object for each command",
      offsetof(struct arguments, output), 0, 0 },
    { "quiet", 'q', OPTION_FLAG, NULL, "No notes on stderr about how they ended",
      offsetof(struct arguments, quiet), 0, 0 },
    { 0 },
};

static const char *const examples[] = {
    "id=$(sandstorm exec -d web-1 -- make); sandstorm wait $id",
    "Start now, ask later; the exit status is that of make",
    "sandstorm wait 5f0c 77aa --timeout 10m",
    "Two of them; the exit status is that of the first one that is not 0",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm wait",
    .section = 1,
    .summary = "wait until commands have ended",
    .usage = "[OPTION...] ID...",
    .options = options,
    .examples = examples,
};

struct waiting {
    const struct arguments *arguments;
    enum output output;
    uint64_t until_us; /* 0: for ever */
    bool several;
    int status;
};

static void on_ended(void *userdata, const struct sandstorm_command *command)
{
    struct waiting *waiting = userdata;
    char sentence[RESULT_SENTENCE_MAX], line[RESULT_SENTENCE_MAX + COMMAND_ID_LEN + 2];
    int status = sandstorm_exit_status(&command->outcome);
    if (waiting->status == 0)
        waiting->status = status;
    if (waiting->output == OUTPUT_JSON)
        output_json(output_command(command));
    result_sentence(&command->outcome, sentence);
    (void)snprintf(line, sizeof(line), "%s%s%s", waiting->several ? command->id : "",
                   waiting->several ? ": " : "", sentence);
    if (*sentence && !waiting->arguments->quiet)
        cli_complain(line);
}

static int wait_one(struct sandstorm_client *client, const char *word, struct waiting *waiting,
                    struct sandstorm_error *error)
{
    struct found_command found;
    uint64_t left_ms = 0;
    if (find_command(client, word, &found, error) < 0)
        return -1;
    if (waiting->until_us) {
        uint64_t now = monotonic_us();
        /* Nothing is left: what has ended is still told. */
        left_ms = waiting->until_us > now ? (waiting->until_us - now + 999) / 1000 : 1;
    }
    return sandstorm_command_wait(client, found.id.text, left_ms, on_ended, waiting, error);
}

static int wait_all(struct sandstorm_client *client, char **words, struct waiting *waiting)
{
    struct sandstorm_error error = { 0 };
    for (size_t i = 0; words[i]; i++)
        if (wait_one(client, words[i], waiting, &error) < 0) {
            /* A command's own status may be anything; ours says that it is not known. */
            cli_complain(error.text);
            return FOREGROUND_UNKNOWN;
        }
    return waiting->status;
}

static int act(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    struct waiting waiting = { .arguments = arguments, .several = words[1] };
    struct err err = { 0 };
    if (output_parse(arguments->output, OUTPUT_TEXT | OUTPUT_JSON, &waiting.output, &err) < 0)
        return cli_error(&err, error);
    if (cli_connect(&arguments->common, &client, error) < 0)
        return -1;
    if (arguments->timeout_us)
        waiting.until_us = monotonic_us() + arguments->timeout_us;
    return wait_all(client, words, &waiting);
}

const struct cli_verb cli_wait = { .name = "wait",
                                   .page = &page,
                                   .act = act,
                                   .size = sizeof(struct arguments),
                                   .words_min = 1,
                                   .words_max = COMMANDS_MAX };
