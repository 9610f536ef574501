/* `sandstorm ls`: the sandboxes, as a table that fits the terminal, as JSON or as names.
 * next: client/sandbox.c. */
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/sandbox_text.h"
#include "cli/states.h"
#include "cli/table.h"
#include "cli/text.h"

#include "common/clock.h"

#include <stddef.h>

struct arguments {
    struct cli_common common;
    const char *selector, *state, *output;
    bool all, no_headers;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { "selector", 'l', OPTION_STRING, "SELECTOR",
      "Only those whose labels fit: env=ci,role!=db,gpu,!old", offsetof(struct arguments, selector),
      0, 0 },
    { "state", 0, OPTION_STRING, "STATE,...",
      "Only those that are online, suspect, offline, evicted or revoked",
      offsetof(struct arguments, state), 0, 0 },
    { "all", 'a', OPTION_FLAG, NULL, "The evicted ones too", offsetof(struct arguments, all), 0,
      0 },
    { "output", 'o', OPTION_STRING, "FORMAT", "table, wide, json or name",
      offsetof(struct arguments, output), 0, 0 },
    { "no-headers", 0, OPTION_FLAG, NULL, "Leave the first line out",
      offsetof(struct arguments, no_headers), 0, 0 },
    { 0 },
};

static const char *const examples[] = {
    "sandstorm ls",
    "All sandboxes but those that have been away for so long that they are evicted",
    "sandstorm ls -l env=ci --state offline,suspect",
    "What is missing of the CI fleet",
    "sandstorm ls -a -o wide",
    "Everything, with labels, versions and load",
    "sandstorm ls -l env=ci -o name | xargs -n1 sandstorm drain",
    "Do something to each",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm ls",
    .section = 1,
    .summary = "list sandboxes",
    .usage = "[OPTION...]",
    .options = options,
    .examples = examples,
};

static const struct table_column columns[] = {
    { "SANDBOX", 0.2, false, false }, { "STATE", 8, false, false },
    { "SEEN", 6, true, false },       { "CPU", 5, true, false },
    { "MEMORY", 12, true, false },    { "COMMANDS", 8, true, false },
    { "OS", 0.3, false, true },       { 0 },
};

static const struct table_column wide_columns[] = {
    { "SANDBOX", 0.1, false, false }, { "STATE", 8, false, false },
    { "SINCE", 6, true, false },      { "SEEN", 6, true, false },
    { "CPU", 5, true, false },        { "LOAD", 5, true, false },
    { "MEMORY", 12, true, false },    { "DISK", 5, true, false },
    { "COMMANDS", 8, true, false },   { "AGENT", 8, false, false },
    { "VM", 10, false, false },       { "OS", 10, false, false },
    { "LABELS", 10, false, false },   { 0 },
};

struct listing {
    enum output output;
    struct table *table;
    json_t *array;
    size_t count;
};

static void age_text(int64_t unix_ms, char out[TEXT_TIME_MAX])
{
    if (unix_ms)
        text_duration(wall_ms() - unix_ms, out);
    else
        (void)snprintf(out, TEXT_TIME_MAX, "-");
}

static void add_row(struct listing *listing, const struct sandstorm_sandbox *sandbox)
{
    char state[SANDBOX_STATE_MAX], seen[TEXT_TIME_MAX], since[TEXT_TIME_MAX];
    char cpu[16] = "-", memory[32] = "-", commands[16] = "-", load[16] = "-", disk[16] = "-";
    sandbox_state_text(sandbox, state);
    age_text(sandbox->last_seen_unix_ms, seen);
    age_text(sandbox->state_unix_ms, since);
    if (sandbox_was_heard(sandbox)) {
        uint64_t total = sandbox->memory_total_bytes;
        uint64_t used = total - MIN(sandbox->memory_available_bytes, total);
        (void)snprintf(cpu, sizeof(cpu), "%u%%", sandbox_percent(sandbox->cpu_basis_points));
        (void)snprintf(memory, sizeof(memory), "%.1f/%.1fG", (double)used / (1u << 30),
                       (double)total / (1u << 30));
        (void)snprintf(commands, sizeof(commands), "%u", sandbox->commands_running);
        (void)snprintf(load, sizeof(load), "%.2f", sandbox->load1_centi / 100.0);
        (void)snprintf(disk, sizeof(disk), "%u%%",
                       sandbox_percent(sandbox_disk_basis_points(sandbox)));
    }
    if (listing->output == OUTPUT_WIDE)
        table_add(listing->table, (const char *[]){ sandbox->id, state, since, seen, cpu, load,
                                                    memory, disk, commands, sandbox->agent_version,
                                                    sandbox->vm_id, sandbox->os, sandbox->labels });
    else
        table_add(listing->table,
                  (const char *[]){ sandbox->id, state, seen, cpu, memory, commands, sandbox->os });
}

static void on_sandbox(void *userdata, const struct sandstorm_sandbox *sandbox)
{
    struct listing *listing = userdata;
    listing->count++;
    if (listing->output == OUTPUT_JSON)
        (void)json_array_append_new(listing->array, output_sandbox(sandbox));
    else if (listing->output == OUTPUT_NAME)
        text_print(stdout, "%s\n", sandbox->id);
    else
        add_row(listing, sandbox);
}

static const char *const state_names[] = { "online",  "suspect", "offline",
                                           "evicted", "revoked", NULL };

static void count_all(void *userdata, const struct sandstorm_sandbox *sandbox)
{
    unsigned *counts = userdata;
    counts[sandbox->state == SANDSTORM_STATE_EVICTED]++;
}

/* Nothing was found, so there is time to find out why. */
static int say_empty(struct sandstorm_client *client, const struct arguments *arguments,
                     struct sandstorm_error *error)
{
    static const struct sandstorm_list_options everything = { .states = SANDSTORM_STATES_ALL };
    unsigned counts[2] = { 0 }; /* there, evicted */
    if (sandstorm_list(client, &everything, count_all, counts, error) < 0)
        return -1;
    unsigned total = counts[0] + counts[1];
    if (total == 0)
        (void)fputs("There is no sandbox yet, or none in your scope ('sandstorm whoami' shows it). "
                    "An admin makes a token for one to join with: 'sandstorm token create'.\n",
                    stderr);
    else if (arguments->selector || arguments->state)
        text_print(
            stderr,
            "No sandbox fits; 'sandstorm ls -a -o wide' shows all that you may see (%u), with "
            "their labels.\n",
            total);
    else
        text_print(stderr,
                   "No sandbox is here now: all %u that you may see are evicted, which means that "
                   "they have been away for long; 'sandstorm ls -a' shows them.\n",
                   total);
    return 0;
}

static int print(struct listing *listing, const struct arguments *arguments,
                 struct sandstorm_error *error)
{
    struct err err = { 0 };
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    struct sandstorm_list_options list = { .selector = arguments->selector };
    if (states_parse(arguments->state, state_names, &list.states, &err) < 0)
        return cli_error(&err, error);
    if (arguments->all && !list.states)
        list.states = SANDSTORM_STATES_ALL;
    if (cli_connect(&arguments->common, &client, error) < 0 ||
        sandstorm_list(client, &list, on_sandbox, listing, error) < 0)
        return -1;
    if (listing->output == OUTPUT_JSON)
        output_json(json_incref(listing->array));
    else if (listing->count == 0)
        return say_empty(client, arguments, error);
    else if (listing->output != OUTPUT_NAME)
        table_print(listing->table);
    return 0;
}

static int act(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    (void)words;
    struct err err = { 0 };
    struct listing listing = { 0 };
    if (output_parse(arguments->output, OUTPUT_TABLE | OUTPUT_WIDE | OUTPUT_JSON | OUTPUT_NAME,
                     &listing.output, &err) < 0)
        return cli_error(&err, error);
    CLEANUP_TABLE struct table *table =
        table_new(listing.output == OUTPUT_WIDE ? wide_columns : columns, arguments->no_headers);
    listing.table = table;
    listing.array = json_array();
    int r = print(&listing, arguments, error);
    json_decref(listing.array);
    return r;
}

const struct cli_verb cli_ls = {
    .name = "ls", .page = &page, .act = act, .size = sizeof(struct arguments)
};
