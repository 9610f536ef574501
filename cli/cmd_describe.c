/* `sandstorm describe`: all about one sandbox. What its agent says of itself is shown as such.
 * next: client/sandbox.c. */
#include "cli/cli.h"
#include "cli/graph.h"
#include "cli/output.h"
#include "cli/sandbox_text.h"
#include "cli/text.h"

#include <stddef.h>

#define SKEW_AGREES_MS 2000 /* a difference that nobody needs to hear of */

struct arguments {
    struct cli_common common;
    const char *output;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { "output", 'o', OPTION_STRING, "FORMAT", "text or json", offsetof(struct arguments, output), 0,
      0 },
    { 0 },
};

static void line(const char *name, const char *value)
{
    /* Before it is a line: a newline from an agent must not become another field. */
    CLEANUP_FREE char *escaped = text_escape(value);
    if (escaped && *escaped)
        text_print(stdout, "%-13s%s\n", name, escaped);
}

static void line_time(const char *name, int64_t unix_ms)
{
    char time[TEXT_TIME_MAX], when[TEXT_TIME_MAX];
    text_time(unix_ms, time);
    text_when(unix_ms, when);
    if (unix_ms != 0)
        text_print(stdout, "%-13s%s (%s)\n", name, time, when);
}

static void line_skew(int64_t ms)
{
    char size[TEXT_TIME_MAX];
    text_duration(ms < 0 ? (ms == INT64_MIN ? INT64_MAX : -ms) : ms, size);
    if (ms > -SKEW_AGREES_MS && ms < SKEW_AGREES_MS)
        line("clock", "agrees with the orchestrator's");
    else
        text_print(stdout, "%-13s%s %s the orchestrator's; set the VM's clock\n", "clock", size,
                   ms > 0 ? "ahead of" : "behind");
}

static void lines_state(const struct sandstorm_sandbox *sandbox)
{
    bool maimed = sandbox->state == SANDSTORM_STATE_ONLINE && !sandbox->runner_connected;
    text_print(stdout, "%-13s%s%s%s\n", "state", sandstorm_state_name(sandbox->state),
               maimed ? ", but without a runner: commands cannot start" : "",
               sandbox->draining ? ", draining: it takes no new commands" : "");
    line_time("since", sandbox->state_unix_ms);
}

static void lines_error(const struct sandstorm_sandbox *sandbox)
{
    char time[TEXT_TIME_MAX];
    CLEANUP_FREE char *error = text_escape(sandbox->last_error);
    text_time(sandbox->last_error_unix_ms, time);
    if (error && *error)
        text_print(stdout, "%-13s%s: \"%s\" (its agent's words for why it was away)\n",
                   "last error", time, error);
}

static void line_disk(const char *name, uint64_t total, uint64_t left)
{
    char total_text[SANDBOX_BYTES_MAX], left_text[SANDBOX_BYTES_MAX];
    sandbox_bytes_text(total, total_text);
    sandbox_bytes_text(left, left_text);
    if (total > 0)
        text_print(stdout, "%-13s%s of %s free\n", name, left_text, total_text);
}

static void line_pressure(const struct sandstorm_pressure *pressure)
{
    if (!pressure->known)
        return;
    text_print(stdout,
               "%-13scpu %.1f%%, memory %.1f%% (all %.1f%%), io %.1f%% (all %.1f%%) of the last 10 "
               "s waited\n",
               "pressure", pressure->cpu_some / 100.0, pressure->memory_some / 100.0,
               pressure->memory_full / 100.0, pressure->io_some / 100.0, pressure->io_full / 100.0);
}

static void lines_metrics(const struct sandstorm_sandbox *sandbox)
{
    char text[2][SANDBOX_BYTES_MAX], uptime[TEXT_TIME_MAX];
    if (!sandbox_was_heard(sandbox))
        return;
    text_duration((int64_t)MIN(sandbox->uptime_s, UINT32_MAX) * 1000, uptime);
    text_print(stdout, "%-13s%u, %u%% busy, load %.2f\n%-13s%.1f of %.1f GiB available\n", "cpus",
               sandbox->cpus, sandbox_percent(sandbox->cpu_basis_points),
               sandbox->load1_centi / 100.0, "memory",
               (double)sandbox->memory_available_bytes / (1u << 30),
               (double)sandbox->memory_total_bytes / (1u << 30));
    line_disk("disk", sandbox->disk_total_bytes, sandbox->disk_free_bytes);
    line_disk("state disk", sandbox->state_disk_total_bytes, sandbox->state_disk_free_bytes);
    line_pressure(&sandbox->pressure);
    sandbox_bytes_text(sandbox->network_received_bytes, text[0]);
    sandbox_bytes_text(sandbox->network_sent_bytes, text[1]);
    text_print(stdout, "%-13s%s received, %s sent since boot\n%-13s%s\n%-13s%u, of %u processes\n",
               "network", text[0], text[1], "uptime", uptime, "commands", sandbox->commands_running,
               sandbox->processes);
    sandbox_bytes_text(sandbox->spool_bytes, text[0]);
    if (sandbox->spool_bytes > 0)
        text_print(stdout, "%-13s%s of output not yet fetched\n", "spool", text[0]);
}

static void line_spark(const char *name, const uint32_t *values, size_t count)
{
    char spark[GRAPH_MAX];
    graph_spark(values, count, graph_utf8(), spark);
    text_print(stdout, "%-13s%s %u%%\n", name, spark, sandbox_percent(values[count - 1]));
}

static void lines_samples(const struct sandstorm_sandbox *sandbox)
{
    uint32_t cpu[GRAPH_CELLS_MAX], memory[GRAPH_CELLS_MAX];
    size_t count = MIN(sandbox->sample_count, GRAPH_CELLS_MAX);
    const struct sandstorm_sample *samples = sandbox->samples + (sandbox->sample_count - count);
    for (size_t i = 0; i < count; i++) {
        cpu[i] = samples[i].cpu_basis_points;
        memory[i] = samples[i].memory_basis_points;
    }
    if (count < 2)
        return;
    line_spark("recent cpu", cpu, count);
    line_spark("recent mem", memory, count);
}

static void lines_events(const struct sandstorm_sandbox *sandbox)
{
    for (size_t i = 0; i < sandbox->event_count; i++) {
        const struct sandstorm_event *event = &sandbox->events[i];
        char time[TEXT_TIME_MAX];
        CLEANUP_FREE char *detail = text_escape(event->detail);
        text_time(event->time_unix_ms, time);
        text_print(stdout, "%-13s%s %s%s%s\n", i == 0 ? "events" : "", time, event->kind,
                   *event->detail ? ": " : "", detail ? detail : "");
    }
}

static void on_text(void *userdata, const struct sandstorm_sandbox *sandbox)
{
    char interval[TEXT_TIME_MAX];
    (void)userdata;
    line("id", sandbox->id);
    lines_state(sandbox);
    line("labels", sandbox->labels);
    if (*sandbox->reported_labels) {
        CLEANUP_FREE char *reported = text_escape(sandbox->reported_labels);
        text_print(stdout, "%-13s%s (its agent says so)\n", "own labels", reported ? reported : "");
    }
    line("vm", sandbox->vm_id);
    line("hostname", sandbox->hostname);
    line("os", sandbox->os);
    line("kernel", sandbox->kernel);
    line("arch", sandbox->arch);
    line("agent", sandbox->agent_version);
    line("runner", sandbox->runner_version);
    line("boot", sandbox->boot_id);
    line_time("enrolled", sandbox->enrolled_unix_ms);
    line_time("connected", sandbox->connected_unix_ms);
    line_time("seen", sandbox->last_seen_unix_ms);
    line_time("revoked", sandbox->revoked_unix_ms);
    line_time("certificate", sandbox->certificate_not_after_unix_ms);
    lines_error(sandbox);
    text_duration((int64_t)MIN(sandbox->heartbeat_interval_ms, INT32_MAX), interval);
    if (sandbox->heartbeat_interval_ms > 0)
        text_print(stdout, "%-13severy %s\n", "heartbeat", interval);
    if (sandbox->last_seen_unix_ms != 0)
        line_skew(sandbox->clock_skew_ms);
    lines_metrics(sandbox);
    lines_samples(sandbox);
    lines_events(sandbox);
}

static void on_json(void *userdata, const struct sandstorm_sandbox *sandbox)
{
    (void)userdata;
    output_json(output_sandbox(sandbox));
}

static int act(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    struct err err = { 0 };
    enum output output;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    if (output_parse(arguments->output, OUTPUT_TEXT | OUTPUT_JSON, &output, &err) < 0)
        return cli_error(&err, error);
    return cli_connect(&arguments->common, &client, error) < 0
               ? -1
               : sandstorm_sandbox_get(client, words[0], output == OUTPUT_JSON ? on_json : on_text,
                                       NULL, error);
}

static const char *const examples[] = {
    "sandstorm describe web-1",
    "Its labels, versions, certificate, clock, load, and what happened to it",
    "sandstorm describe web-1 -o json | jq .metrics",
    "For a program",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm describe",
    .section = 1,
    .summary = "show all about one sandbox",
    .usage = "[OPTION...] SANDBOX",
    .options = options,
    .examples = examples,
};

const struct cli_verb cli_describe = {
    .name = "describe",
    .page = &page,
    .act = act,
    .size = sizeof(struct arguments),
    .words_min = 1,
    .words_max = 1,
};
