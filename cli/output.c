/* The forms that a verb can print in. Called by cli/cmd_ls.c, cli/cmd_ps.c and cli/cmd_logs.c;
 * next: jansson. */
#include "cli/output.h"

#include "cli/result.h"
#include "cli/text.h"

#include <stdio.h>
#include <string.h>

static const struct {
    enum output output;
    const char *name;
} names[] = {
    { OUTPUT_TABLE, "table" }, { OUTPUT_WIDE, "wide" }, { OUTPUT_TEXT, "text" },
    { OUTPUT_JSON, "json" },   { OUTPUT_NAME, "name" },
};

static void list_allowed(unsigned allowed, char *out, size_t size)
{
    *out = '\0';
    for (size_t i = 0; i < ELEMENTS(names); i++)
        if (allowed & names[i].output) {
            size_t used = strlen(out);
            allowed &= ~(unsigned)names[i].output;
            (void)snprintf(out + used, size - used, "%s%s",
                           used == 0 ? ""
                           : allowed ? ", "
                                     : " or ",
                           names[i].name);
        }
}

int output_parse(const char *text, unsigned allowed, enum output *ret, struct err *err)
{
    char list[64];
    for (size_t i = 0; i < ELEMENTS(names); i++)
        if ((allowed & names[i].output) && (!text || strcmp(text, names[i].name) == 0)) {
            *ret = names[i].output;
            return 0;
        }
    list_allowed(allowed, list, sizeof(list));
    return err_set(err, ERR_INVALID, "--output is %s, not \"%.64s\"", list, text);
}

static json_t *time_or_null(int64_t unix_ms)
{
    char time[TEXT_TIME_MAX];
    text_time(unix_ms, time);
    return unix_ms ? json_string(time) : json_null();
}

/* "env=ci,role=web" as an object. What an agent says may be of any form: the pieces are what they
 * are. */
static json_t *labels_of(const char *labels)
{
    json_t *object = json_object();
    while (*labels) {
        size_t size = strcspn(labels, ","), key = strcspn(labels, "=,");
        CLEANUP_FREE char *name = strndup(labels, key);
        size_t value = MIN(key + 1, size);
        if (name)
            (void)json_object_set_new(object, name, json_stringn(labels + value, size - value));
        labels += size + (labels[size] == ',');
    }
    return object;
}

static json_t *metrics_of(const struct sandstorm_sandbox *sandbox)
{
    const struct sandstorm_pressure *pressure = &sandbox->pressure;
    if (sandbox->memory_total_bytes == 0)
        return json_null();
    json_t *pressures =
        pressure->known
            ? json_pack("{s:I, s:I, s:I, s:I, s:I}", "cpu_some", (json_int_t)pressure->cpu_some,
                        "memory_some", (json_int_t)pressure->memory_some, "memory_full",
                        (json_int_t)pressure->memory_full, "io_some", (json_int_t)pressure->io_some,
                        "io_full", (json_int_t)pressure->io_full)
            : json_null();
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "cpus",
        (json_int_t)sandbox->cpus, "cpu_basis_points", (json_int_t)sandbox->cpu_basis_points,
        "load1_centi", (json_int_t)sandbox->load1_centi, "memory_total_bytes",
        (json_int_t)sandbox->memory_total_bytes, "memory_available_bytes",
        (json_int_t)sandbox->memory_available_bytes, "disk_total_bytes",
        (json_int_t)sandbox->disk_total_bytes, "disk_free_bytes",
        (json_int_t)sandbox->disk_free_bytes, "state_disk_total_bytes",
        (json_int_t)sandbox->state_disk_total_bytes, "state_disk_free_bytes",
        (json_int_t)sandbox->state_disk_free_bytes, "processes", (json_int_t)sandbox->processes,
        "commands_running", (json_int_t)sandbox->commands_running, "spool_bytes",
        (json_int_t)sandbox->spool_bytes, "uptime_s", (json_int_t)sandbox->uptime_s,
        "network_received_bytes", (json_int_t)sandbox->network_received_bytes, "network_sent_bytes",
        (json_int_t)sandbox->network_sent_bytes, "pressure", pressures);
}

json_t *output_sandbox(const struct sandstorm_sandbox *sandbox)
{
    return json_pack(
        "{s:s, s:s, s:b, s:b, s:o, s:o, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:s, s:o, s:I, s:I, s:o}",
        "id", sandbox->id, "state", sandstorm_state_name(sandbox->state), "draining",
        (int)sandbox->draining, "runner_connected", (int)sandbox->runner_connected, "labels",
        labels_of(sandbox->labels), "reported_labels", labels_of(sandbox->reported_labels), "vm_id",
        sandbox->vm_id, "hostname", sandbox->hostname, "os", sandbox->os, "kernel", sandbox->kernel,
        "arch", sandbox->arch, "boot_id", sandbox->boot_id, "agent_version", sandbox->agent_version,
        "runner_version", sandbox->runner_version, "state_since",
        time_or_null(sandbox->state_unix_ms), "connected", time_or_null(sandbox->connected_unix_ms),
        "last_seen", time_or_null(sandbox->last_seen_unix_ms), "enrolled",
        time_or_null(sandbox->enrolled_unix_ms), "revoked", time_or_null(sandbox->revoked_unix_ms),
        "certificate_not_after", time_or_null(sandbox->certificate_not_after_unix_ms), "last_error",
        sandbox->last_error, "last_error_time", time_or_null(sandbox->last_error_unix_ms),
        "heartbeat_interval_ms", (json_int_t)sandbox->heartbeat_interval_ms, "clock_skew_ms",
        (json_int_t)sandbox->clock_skew_ms, "metrics", metrics_of(sandbox));
}

static json_t *cost_of(const struct sandstorm_outcome *outcome)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "duration_us",
        (json_int_t)outcome->duration_us, "user_us", (json_int_t)outcome->user_us, "system_us",
        (json_int_t)outcome->system_us, "max_rss_bytes", (json_int_t)outcome->max_rss_bytes,
        "peak_memory_bytes", (json_int_t)outcome->peak_memory_bytes, "stdout_bytes",
        (json_int_t)outcome->stdout_bytes, "stderr_bytes", (json_int_t)outcome->stderr_bytes,
        "survivors", (json_int_t)outcome->survivors, "not_enforced", outcome->not_enforced);
}

json_t *output_command(const struct sandstorm_command *command)
{
    char result[RESULT_TEXT_MAX];
    bool ended = command->state == SANDSTORM_COMMAND_ENDED;
    result_text(&command->outcome, result);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:b, s:I, s:o}",
        "id", command->id, "sandbox", command->sandbox, "state",
        sandstorm_command_state_name(command->state), "ordered_by", command->ordered_by, "labels",
        labels_of(command->labels), "ordered", time_or_null(command->ordered_unix_ms), "started",
        time_or_null(command->started_unix_ms), "ended", time_or_null(command->ended_unix_ms),
        "result", ended ? json_string(result) : json_null(), "exit_status",
        ended ? json_integer(sandstorm_exit_status(&command->outcome)) : json_null(), "pid",
        (json_int_t)command->pid, "end_offset", (json_int_t)command->end_offset, "stored_from",
        (json_int_t)command->stored_from, "stored_to", (json_int_t)command->stored_to, "terminal",
        (int)command->terminal, "clients", (json_int_t)command->clients, "cost",
        ended ? cost_of(&command->outcome) : json_null());
}

void output_json(json_t *value)
{
    size_t flags =
        json_is_array(value) && json_array_size(value) > 0 ? JSON_INDENT(2) : JSON_COMPACT;
    /* ASCII alone: what could turn a terminal's text around is escaped by JSON's own rules. */
    CLEANUP_FREE char *text = value ? json_dumps(value, flags | JSON_ENSURE_ASCII) : NULL;
    if (text)
        (void)puts(text);
    json_decref(value);
}
