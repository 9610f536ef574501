/* `sandstorm logs`: what the agent and the runner of a sandbox wrote, and what the orchestrator
 * wrote about it. Lines are printed as they come. next: client/logs.c. */
#include "cli/cli.h"
#include "cli/leave.h"
#include "cli/output.h"
#include "cli/since.h"
#include "cli/text.h"

#include "common/clock.h"
#include "common/ids.h"

#include <stddef.h>
#include <stdio.h>

struct arguments {
    struct cli_common common;
    const char *since, *command, *output;
    uint64_t last;
    bool follow;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { "follow", 'f', OPTION_FLAG, NULL, "Then wait for new lines, until interrupted",
      offsetof(struct arguments, follow), 0, 0 },
    { "since", 0, OPTION_STRING, "TIME",
      "Lines from then on: 1h for an hour ago, or 2026-11-18T11:50:04Z",
      offsetof(struct arguments, since), 0, 0 },
    { "last", 'n', OPTION_UINT, "COUNT", "At most so many lines, the last ones",
      offsetof(struct arguments, last), 1, UINT32_MAX },
    { "command", 0, OPTION_STRING, "ID", "Only what belongs to this command",
      offsetof(struct arguments, command), 0, 0 },
    { "output", 'o', OPTION_STRING, "FORMAT", "text, or json: one object a line",
      offsetof(struct arguments, output), 0, 0 },
    { 0 },
};

static const char *const examples[] = {
    "sandstorm logs web-1 --since 1h",
    "What its daemons had to say in the last hour",
    "sandstorm logs web-1 -f -n 20",
    "The last 20 lines, and then new ones as they come",
    "sandstorm logs web-1 --command 5f0c6f2e-6a0e-4f52-9d2a-0d4d7c0d5d11",
    "All about one command; 'sandstorm ps -a' has its id",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm logs",
    .section = 1,
    .summary = "show what the daemons of a sandbox wrote",
    .usage = "[OPTION...] SANDBOX",
    .options = options,
    .examples = examples,
};

struct printing {
    enum output output;
    bool follow;
    size_t count;
};

/* "2026-11-18T11:50:04.123Z" */
static void precise_time(int64_t unix_us, char out[TEXT_TIME_MAX + 8])
{
    char time[TEXT_TIME_MAX];
    text_time(unix_us / 1000, time);
    (void)snprintf(out, TEXT_TIME_MAX + 8, "%.19s.%03dZ", time, (int)(unix_us / 1000 % 1000));
}

static void print_text(const struct sandstorm_log_line *line)
{
    char time[TEXT_TIME_MAX + 8];
    /* Before it is a line: a newline from an agent must not become another line. */
    CLEANUP_FREE char *origin = text_escape(line->origin), *message = text_escape(line->message);
    precise_time(line->time_unix_us, time);
    (void)printf("%s  %-12s  %-5s  %s", time, origin ? origin : "",
                 sandstorm_level_name(line->level), message ? message : "");
    for (size_t i = 0; i < line->field_count; i++) {
        CLEANUP_FREE char *name = text_escape(line->fields[i].name),
                          *value = text_escape(line->fields[i].value);
        (void)printf("  %s=%s", name ? name : "", value ? value : "");
    }
    (void)putchar('\n');
}

static void print_json(const struct sandstorm_log_line *line)
{
    char time[TEXT_TIME_MAX + 8];
    precise_time(line->time_unix_us, time);
    json_t *fields = json_object();
    for (size_t i = 0; i < line->field_count; i++)
        (void)json_object_set_new(fields, line->fields[i].name, json_string(line->fields[i].value));
    output_json(json_pack("{s:s, s:I, s:s, s:s, s:s, s:o}", "time", time, "time_unix_us",
                          (json_int_t)line->time_unix_us, "level",
                          sandstorm_level_name(line->level), "origin", line->origin, "message",
                          line->message, "fields", fields));
}

static bool on_line(void *userdata, const struct sandstorm_log_line *line)
{
    struct printing *printing = userdata;
    printing->count++;
    if (printing->output == OUTPUT_JSON)
        print_json(line);
    else
        print_text(line);
    if (printing->follow)
        (void)fflush(stdout);
    return !ferror(stdout);
}

static int follow(const struct arguments *arguments, const struct sandstorm_logs_options *logs,
                  struct sandstorm_error *error)
{
    struct err err = { 0 };
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    CLEANUP_LEAVE struct leave leave = { 0 };
    if (leave_prepare(&err) < 0)
        return cli_error(&err, error);
    if (cli_connect(&arguments->common, &client, error) < 0)
        return -1;
    if (leave_begin(&leave, client, &err) < 0)
        return cli_error(&err, error);
    return sandstorm_logs(client, logs, error) < 0 ? -1 : leave_status(&leave);
}

static int show(const struct arguments *arguments, const struct sandstorm_logs_options *logs,
                struct sandstorm_error *error)
{
    const struct printing *printing = logs->userdata;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    if (cli_connect(&arguments->common, &client, error) < 0 ||
        sandstorm_logs(client, logs, error) < 0)
        return -1;
    if (printing->count == 0 && printing->output == OUTPUT_TEXT)
        text_print(stderr,
                   "There is no log of %s%s; an agent sends its lines while it is "
                   "connected.\n",
                   logs->sandbox,
                   logs->command_id || logs->since_unix_us ? " that fits what was asked for" : "");
    return 0;
}

static int act(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    struct err err = { 0 };
    struct printing printing = { .follow = arguments->follow };
    struct command_id command;
    struct sandstorm_logs_options logs = {
        .sandbox = words[0],
        .command_id = arguments->command,
        .last = (uint32_t)arguments->last,
        .follow = arguments->follow,
        .each = on_line,
        .userdata = &printing,
    };
    if (output_parse(arguments->output, OUTPUT_TEXT | OUTPUT_JSON, &printing.output, &err) < 0)
        return cli_error(&err, error);
    if (arguments->since &&
        since_parse(arguments->since, wall_us(), &logs.since_unix_us, &err) < 0) {
        (void)err_wrap(&err, "--since");
        return cli_error(&err, error);
    }
    if (arguments->command && command_id_parse(arguments->command, &command, &err) < 0) {
        (void)err_wrap(&err, "--command");
        return cli_error(&err, error);
    }
    return arguments->follow ? follow(arguments, &logs, error) : show(arguments, &logs, error);
}

const struct cli_verb cli_logs = {
    .name = "logs",
    .page = &page,
    .act = act,
    .size = sizeof(struct arguments),
    .words_min = 1,
    .words_max = 1,
};
