/* `sandstorm ls`: the sandboxes, as a table that fits the terminal. */
#include "cli/cli.h"

#include "common/clock.h"

#include <libsmartcols.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

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

enum column {
    COL_NAME,
    COL_STATE,
    COL_SEEN,
    COL_CPU,
    COL_MEMORY,
    COL_COMMANDS,
    COL_OS,
    COL_COUNT_
};

static const struct {
    const char *name;
    double width;
    int flags;
} columns[COL_COUNT_] = {
    [COL_NAME] = { "SANDBOX", 0.2, 0 },
    [COL_STATE] = { "STATE", 8, 0 },
    [COL_SEEN] = { "SEEN", 6, SCOLS_FL_RIGHT },
    [COL_CPU] = { "CPU", 5, SCOLS_FL_RIGHT },
    [COL_MEMORY] = { "MEMORY", 12, SCOLS_FL_RIGHT },
    [COL_COMMANDS] = { "COMMANDS", 8, SCOLS_FL_RIGHT },
    [COL_OS] = { "OS", 0.3, SCOLS_FL_TRUNC },
};

static void say_age(int64_t then_ms, char *out, size_t size)
{
    int64_t seconds = (wall_ms() - then_ms) / 1000;
    seconds = MAX(seconds, 0);
    if (seconds < 120)
        (void)snprintf(out, size, "%llds", (long long)seconds);
    else if (seconds < 7200)
        (void)snprintf(out, size, "%lldm", (long long)(seconds / 60));
    else if (seconds < 172800)
        (void)snprintf(out, size, "%lldh", (long long)(seconds / 3600));
    else
        (void)snprintf(out, size, "%lldd", (long long)(seconds / 86400));
}

static void add_row(void *userdata, const struct sandstorm_sandbox *sandbox)
{
    struct libscols_table *table = userdata;
    struct libscols_line *line = scols_table_new_line(table, NULL);
    char text[64];
    if (!line)
        return;
    (void)scols_line_set_data(line, COL_NAME, sandbox->id);
    bool maimed = sandbox->state == SANDSTORM_STATE_ONLINE && !sandbox->runner_connected;
    (void)scols_line_set_data(line, COL_STATE,
                              maimed ? "no runner" : sandstorm_state_name(sandbox->state));
    say_age(sandbox->last_seen_unix_ms, text, sizeof(text));
    (void)scols_line_set_data(line, COL_SEEN, text);
    (void)snprintf(text, sizeof(text), "%u%%", (sandbox->cpu_basis_points + 50) / 100);
    (void)scols_line_set_data(line, COL_CPU, text);
    uint64_t used = sandbox->memory_total_bytes - sandbox->memory_available_bytes;
    (void)snprintf(text, sizeof(text), "%.1f/%.1fG", (double)used / (1u << 30),
                   (double)sandbox->memory_total_bytes / (1u << 30));
    (void)scols_line_set_data(line, COL_MEMORY, text);
    (void)snprintf(text, sizeof(text), "%u", sandbox->commands_running);
    (void)scols_line_set_data(line, COL_COMMANDS, text);
    (void)scols_line_set_data(line, COL_OS, sandbox->os);
}

static int print_list(const struct arguments *arguments, struct sandstorm_error *error)
{
    struct sandstorm_client *client;
    if (cli_connect(&arguments->common, &client, error) < 0)
        return -1;
    struct libscols_table *table = scols_new_table();
    for (int i = 0; table && i < COL_COUNT_; i++)
        (void)scols_table_new_column(table, columns[i].name, columns[i].width, columns[i].flags);
    (void)scols_table_enable_noheadings(table, arguments->no_headers);
    int r = sandstorm_list(client, add_row, table, error);
    if (r == 0 && scols_table_is_empty(table))
        (void)fputs("No sandbox has connected since this orchestrator started. "
                    "'sandstorm-orchestrator issue-agent' makes an identity for one.\n",
                    stderr);
    else if (r == 0)
        (void)scols_print_table(table);
    scols_unref_table(table);
    sandstorm_client_free(client);
    return r;
}

static int run(int argc, char **argv)
{
    struct arguments arguments = { 0 };
    struct err err;
    bool help;
    int rest;
    if (options_parse(&page, argc, argv, &arguments, &help, &rest, &err) < 0 ||
        (!help && rest < argc &&
         err_set(&err, ERR_INVALID, "\"%s\" is not expected; see 'sandstorm ls --help'",
                 argv[rest]) < 0)) {
        cli_complain(err.text);
        return err_exit_code(err.code);
    }
    if (help) {
        options_help(&page, stdout);
        return 0;
    }
    struct sandstorm_error error = { 0 };
    if (print_list(&arguments, &error) < 0) {
        cli_complain(error.text);
        return err_exit_code((enum err_code)error.code);
    }
    return 0;
}

const struct cli_verb cli_ls = { "ls", &page, run };
