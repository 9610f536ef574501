/* `sandstorm sandbox` and `sandstorm describe`: one sandbox, looked at or shut out.
 * next: client/sandbox.c. */
#include "cli/cli.h"
#include "cli/text.h"

#include <stddef.h>
#include <stdlib.h>

#define SKEW_AGREES_MS 2000 /* a difference that nobody needs to hear of */

struct arguments {
    struct cli_common common;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { 0 },
};

/* describe */

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

static void line_state(const struct sandstorm_sandbox *sandbox)
{
    bool maimed = sandbox->state == SANDSTORM_STATE_ONLINE && !sandbox->runner_connected;
    text_print(stdout, "%-13s%s%s\n", "state", sandstorm_state_name(sandbox->state),
               maimed ? ", but without a runner: commands cannot start" : "");
}

static void on_described(void *userdata, const struct sandstorm_sandbox *sandbox)
{
    (void)userdata;
    line("id", sandbox->id);
    line_state(sandbox);
    line("labels", sandbox->labels);
    line("vm", sandbox->vm_id);
    line("hostname", sandbox->hostname);
    line("os", sandbox->os);
    line("kernel", sandbox->kernel);
    line("arch", sandbox->arch);
    line("agent", sandbox->agent_version);
    line_time("enrolled", sandbox->enrolled_unix_ms);
    line_time("connected", sandbox->connected_unix_ms);
    line_time("seen", sandbox->last_seen_unix_ms);
    line_time("revoked", sandbox->revoked_unix_ms);
    line_time("certificate", sandbox->certificate_not_after_unix_ms);
    if (sandbox->last_seen_unix_ms != 0)
        line_skew(sandbox->clock_skew_ms);
    if (sandbox->cpus > 0)
        text_print(stdout,
                   "%-13s%u, %u%% busy\n%-13s%.1f of %.1f GiB available\n"
                   "%-13s%.1f of %.1f GiB free\n%-13s%u\n",
                   "cpus", sandbox->cpus, (sandbox->cpu_basis_points + 50) / 100, "memory",
                   (double)sandbox->memory_available_bytes / (1u << 30),
                   (double)sandbox->memory_total_bytes / (1u << 30), "disk",
                   (double)sandbox->disk_free_bytes / (1u << 30),
                   (double)sandbox->disk_total_bytes / (1u << 30), "commands",
                   sandbox->commands_running);
    for (size_t i = 0; i < sandbox->event_count; i++) {
        const struct sandstorm_event *event = &sandbox->events[i];
        char time[TEXT_TIME_MAX];
        CLEANUP_FREE char *detail = text_escape(event->detail);
        text_time(event->time_unix_ms, time);
        text_print(stdout, "%-13s%s %s%s%s\n", i == 0 ? "events" : "", time, event->kind,
                   *event->detail ? ": " : "", detail ? detail : "");
    }
}

static int act_describe(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    return cli_connect(&arguments->common, &client, error) < 0
               ? -1
               : sandstorm_sandbox_get(client, words[0], on_described, NULL, error);
}

static const char *const describe_examples[] = {
    "sandstorm describe web-1",
    "Its labels, versions, certificate, clock, and what happened to it",
    NULL,
};

static const struct option_page describe_page = {
    .program = "sandstorm describe",
    .section = 1,
    .summary = "show all about one sandbox",
    .usage = "[OPTION...] SANDBOX",
    .options = options,
    .examples = describe_examples,
};

const struct cli_verb cli_describe = {
    .name = "describe",
    .page = &describe_page,
    .act = act_describe,
    .size = sizeof(struct arguments),
    .words_min = 1,
    .words_max = 1,
};

/* sandbox revoke */

static void on_revoked(void *userdata, const struct sandstorm_sandbox *sandbox)
{
    (void)userdata;
    CLEANUP_FREE char *labels = cli_label_options("--label", sandbox->labels);
    text_print(stdout,
               "%s is revoked: its stream ends now and its certificates do not count any more.\n"
               "To bring it back: sandstorm token create --sandbox %s%s\n",
               sandbox->id, sandbox->id, labels ? labels : "");
}

static int act_revoke(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    return cli_connect(&arguments->common, &client, error) < 0
               ? -1
               : sandstorm_sandbox_revoke(client, words[0], on_revoked, NULL, error);
}

static const char *const revoke_examples[] = {
    "sandstorm sandbox revoke web-1",
    "Shut out a VM that is not to be trusted any more",
    "sandstorm token create --sandbox web-1",
    "And let it join again, with a new key",
    NULL,
};

static const struct option_page revoke_page = {
    .program = "sandstorm sandbox revoke",
    .section = 1,
    .summary = "shut a sandbox out",
    .usage = "[OPTION...] SANDBOX",
    .options = options,
    .examples = revoke_examples,
};

static const struct cli_verb verb_revoke = {
    .name = "revoke",
    .page = &revoke_page,
    .act = act_revoke,
    .size = sizeof(struct arguments),
    .words_min = 1,
    .words_max = 1,
};

static const struct cli_verb *const verbs[] = { &verb_revoke, NULL };

static const char *const examples[] = {
    "sandstorm sandbox revoke web-1",
    "Shut out a VM that is not to be trusted any more",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm sandbox",
    .section = 1,
    .summary = "what may be done to a sandbox",
    .usage = "VERB [OPTION...]",
    .examples = examples,
};

const struct cli_verb cli_sandbox = { .name = "sandbox", .page = &page, .verbs = verbs };
