/* `sandstorm ps`: the commands that run, and with -a those that ran, newest first.
 * next: client/commands.c. */
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/result.h"
#include "cli/since.h"
#include "cli/states.h"
#include "cli/table.h"
#include "cli/text.h"

#include "common/clock.h"
#include "common/ids.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define LAST_DEFAULT 100u

struct arguments {
    struct cli_common common;
    bool all, no_headers;
    uint64_t last;
    const char *selector, *state, *since, *by, *output;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { "all", 'a', OPTION_FLAG, NULL, "Those that have ended too", offsetof(struct arguments, all),
      0, 0 },
    { "selector", 'l', OPTION_STRING, "SELECTOR", "Only those whose labels fit: job=7,team!=web",
      offsetof(struct arguments, selector), 0, 0 },
    { "state", 0, OPTION_STRING, "STATE,...",
      "Only those that are ordered, running, ended or unknown", offsetof(struct arguments, state),
      0, 0 },
    { "since", 0, OPTION_STRING, "TIME",
      "Only those ordered since then: 1h for an hour ago, or 2026-11-18T11:50:04Z",
      offsetof(struct arguments, since), 0, 0 },
    { "by", 0, OPTION_STRING, "CLIENT", "Only those that this client has ordered",
      offsetof(struct arguments, by), 0, 0 },
    { "last", 'n', OPTION_UINT, "COUNT",
      "At most so many, the newest ones: with --all 100 unless said otherwise",
      offsetof(struct arguments, last), 1, UINT32_MAX },
    { "output", 'o', OPTION_STRING, "FORMAT", "table, json or name",
      offsetof(struct arguments, output), 0, 0 },
    { "no-headers", 0, OPTION_FLAG, NULL, "Leave the first line out",
      offsetof(struct arguments, no_headers), 0, 0 },
    { 0 },
};

static const char *const examples[] = {
    "sandstorm ps",
    "What runs now, in all sandboxes",
    "sandstorm ps web-1 -a -n 20",
    "The last 20 commands of one sandbox, and how they ended",
    "sandstorm ps -l job=7 --state ended --since 1d",
    "What became of a job",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm ps",
    .section = 1,
    .summary = "list commands",
    .usage = "[OPTION...] [SANDBOX]",
    .options = options,
    .examples = examples,
};

static const struct table_column columns[] = {
    { "COMMAND", 36, false, false }, { "SANDBOX", 0.1, false, false },
    { "STATE", 7, false, false },    { "WHO", 0.1, false, false },
    { "AGE", 4, true, false },       { "DURATION", 8, true, false },
    { "RESULT", 0.2, false, false }, { 0 },
};

static const char *const state_names[] = { "ordered", "running", "ended", "unknown", NULL };

#define BY_MAX (CLIENT_NAME_MAX + 16u)

/* What is asked for, in the library's words. */
struct filter {
    struct sandstorm_commands_options options;
    char by[BY_MAX];
};

struct listing {
    enum output output;
    struct table *table;
    json_t *array;
    uint64_t count, limit; /* 0: none */
    bool more;
};

static void duration_text(const struct sandstorm_command *command, char out[TEXT_TIME_MAX])
{
    int64_t start = command->started_unix_ms, ms = (int64_t)(command->outcome.duration_us / 1000);
    if (command->state == SANDSTORM_COMMAND_RUNNING && start)
        ms = wall_ms() - start;
    else if (command->state != SANDSTORM_COMMAND_ENDED || !start)
        ms = -1;
    if (ms < 0)
        (void)snprintf(out, TEXT_TIME_MAX, "-");
    else if (ms < 1000)
        (void)snprintf(out, TEXT_TIME_MAX, "%dms", (int)ms);
    else
        text_duration(ms, out);
}

static void add_row(struct table *table, const struct sandstorm_command *command)
{
    char age[TEXT_TIME_MAX], duration[TEXT_TIME_MAX], result[RESULT_TEXT_MAX];
    text_duration(wall_ms() - command->ordered_unix_ms, age);
    duration_text(command, duration);
    result_text(&command->outcome, result);
    table_add(table, (const char *[]){ command->id, command->sandbox,
                                       sandstorm_command_state_name(command->state),
                                       command->ordered_by, age, duration, result });
}

static bool on_command(void *userdata, const struct sandstorm_command *command)
{
    struct listing *listing = userdata;
    listing->more = listing->limit && listing->count == listing->limit;
    if (listing->more)
        return false;
    listing->count++;
    if (listing->output == OUTPUT_JSON)
        (void)json_array_append_new(listing->array, output_command(command));
    else if (listing->output == OUTPUT_NAME)
        text_print(stdout, "%s\n", command->id);
    else
        add_row(listing->table, command);
    return true;
}

static void say_empty(const struct arguments *arguments, const char *sandbox)
{
    bool filtered = arguments->selector || arguments->state || arguments->since || arguments->by;
    if (filtered)
        text_print(stderr, "No command fits; 'sandstorm ps -a%s%s' shows all that you may see.\n",
                   sandbox ? " " : "", sandbox ? sandbox : "");
    else if (arguments->all)
        text_print(stderr, "The history has no command%s%s that you may see.\n",
                   sandbox ? " of " : "", sandbox ? sandbox : "");
    else
        text_print(stderr, "No command runs%s%s; 'sandstorm ps -a' shows those that have ended.\n",
                   sandbox ? " in " : "", sandbox ? sandbox : "");
}

static int fill_filter(const struct arguments *arguments, const char *sandbox, struct filter *ret,
                       struct err *err)
{
    int64_t since_us = 0;
    struct sandstorm_commands_options *commands = &ret->options;
    if (states_parse(arguments->state, state_names, &commands->states, err) < 0)
        return -1;
    if (arguments->since && since_parse(arguments->since, wall_us(), &since_us, err) < 0)
        return err_wrap(err, "--since");
    if (!arguments->all && !arguments->state)
        commands->states = SANDSTORM_STATE_BIT(SANDSTORM_COMMAND_ORDERED) |
                           SANDSTORM_STATE_BIT(SANDSTORM_COMMAND_RUNNING) |
                           SANDSTORM_STATE_BIT(SANDSTORM_COMMAND_UNKNOWN);
    if (arguments->by)
        (void)snprintf(ret->by, sizeof(ret->by), "%s%s",
                       strchr(arguments->by, '/') ? "" : "client/", arguments->by);
    commands->ordered_by = arguments->by ? ret->by : NULL;
    commands->since_unix_ms = since_us / 1000;
    commands->selector = arguments->selector;
    commands->sandbox = sandbox;
    return 0;
}

static int print(struct listing *listing, const struct arguments *arguments, const char *sandbox,
                 struct sandstorm_error *error)
{
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    struct filter filter = { .options = { .each = on_command, .userdata = listing } };
    struct err err = { 0 };
    if (fill_filter(arguments, sandbox, &filter, &err) < 0)
        return cli_error(&err, error);
    if (cli_connect(&arguments->common, &client, error) < 0 ||
        sandstorm_commands(client, &filter.options, error) < 0)
        return -1;
    if (listing->output == OUTPUT_JSON)
        output_json(json_incref(listing->array));
    else if (listing->count == 0)
        say_empty(arguments, sandbox);
    else if (listing->output == OUTPUT_TABLE)
        table_print(listing->table);
    if (listing->more && !arguments->last)
        text_print(stderr, "These are the newest %u; -n COUNT shows more.\n", LAST_DEFAULT);
    return 0;
}

static int act(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    struct err err = { 0 };
    bool history = arguments->all || arguments->state;
    struct listing listing = { .limit = arguments->last ? arguments->last
                                        : history       ? LAST_DEFAULT
                                                        : 0 };
    if (output_parse(arguments->output, OUTPUT_TABLE | OUTPUT_JSON | OUTPUT_NAME, &listing.output,
                     &err) < 0)
        return cli_error(&err, error);
    CLEANUP_TABLE struct table *table = table_new(columns, arguments->no_headers);
    listing.table = table;
    listing.array = json_array();
    int r = print(&listing, arguments, words[0], error);
    json_decref(listing.array);
    return r;
}

const struct cli_verb cli_ps = {
    .name = "ps", .page = &page, .act = act, .size = sizeof(struct arguments), .words_max = 1
};
