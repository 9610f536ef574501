/* `sandstorm ls`: the sandboxes, as a table that fits the terminal. */
#include "cli/cli.h"
#include "cli/table.h"
#include "cli/text.h"

#include "common/clock.h"

#include <stddef.h>

struct arguments {
    struct cli_common common;
    bool no_headers;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { "no-headers", 0, OPTION_FLAG, NULL, "Leave the first line out",
      offsetof(struct arguments, no_headers), 0, 0 },
    { 0 },
};

static const char *const examples[] = {
    "sandstorm ls",
    "All sandboxes that this orchestrator knows",
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

static void add_row(void *userdata, const struct sandstorm_sandbox *sandbox)
{
    char seen[TEXT_TIME_MAX], cpu[16], memory[32], commands[16];
    bool maimed = sandbox->state == SANDSTORM_STATE_ONLINE && !sandbox->runner_connected;
    uint64_t used = sandbox->memory_total_bytes - sandbox->memory_available_bytes;
    if (sandbox->last_seen_unix_ms)
        text_duration(wall_ms() - sandbox->last_seen_unix_ms, seen);
    else
        (void)snprintf(seen, sizeof(seen), "-");
    bool heard = sandbox->memory_total_bytes > 0;
    (void)snprintf(cpu, sizeof(cpu), "%u%%", (sandbox->cpu_basis_points + 50) / 100);
    (void)snprintf(memory, sizeof(memory), "%.1f/%.1fG", (double)used / (1u << 30),
                   (double)sandbox->memory_total_bytes / (1u << 30));
    (void)snprintf(commands, sizeof(commands), "%u", sandbox->commands_running);
    table_add(userdata,
              (const char *[]){
                  sandbox->id, maimed ? "no runner" : sandstorm_state_name(sandbox->state), seen,
                  heard ? cpu : "-", heard ? memory : "-", heard ? commands : "-", sandbox->os });
}

static int act(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    (void)words;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    CLEANUP_TABLE struct table *table = table_new(columns, arguments->no_headers);
    if (cli_connect(&arguments->common, &client, error) < 0 ||
        sandstorm_list(client, NULL, add_row, table, error) < 0)
        return -1;
    if (table_is_empty(table))
        (void)fputs("There is no sandbox yet, or none in your scope ('sandstorm whoami' shows it). "
                    "An admin makes a token for one to join with: 'sandstorm token create'.\n",
                    stderr);
    else
        table_print(table);
    return 0;
}

const struct cli_verb cli_ls = {
    .name = "ls", .page = &page, .act = act, .size = sizeof(struct arguments)
};
