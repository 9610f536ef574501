/* What an agent forwards of its own log, made harmless: handed over by orchestrator/session.c, next
 * orchestrator/logbook.c. The sandbox is the session's, whatever a line says; its fields get a
 * prefix, so that none of them can pass for one of ours, and values are escaped by the log itself
 * (common/log_sink.c). */
#include "orchestrator/logbook-internal.h"

#include "common/clock.h"
#include "common/utf8.h"

#include <stdio.h>
#include <string.h>

#define PREFIX         "agent_"
#define AGENT_NAME_MAX 32u     /* of a field, before the prefix */
#define AGENT_FIELDS   12u     /* of one line; sandbox, origin, command and age_ms are ours */
#define LATE_US        1000000 /* a line this old says so */

static_assert(AGENT_FIELDS + 4 <= LOG_FIELDS_MAX, "a line has room for all");

struct agent_line {
    struct log_record record;
    char names[AGENT_FIELDS][sizeof(PREFIX) + AGENT_NAME_MAX];
    struct log_field fields[LOG_FIELDS_MAX];
    unsigned count;
};

static bool is_name(const char *name)
{
    size_t size = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return size > 0 && size <= AGENT_NAME_MAX && name[size] == '\0';
}

static enum log_level level_of(Sandstorm__V1__LogLevel level)
{
    switch (level) {
    case SANDSTORM__V1__LOG_LEVEL__LOG_LEVEL_ERROR:
        return LOG_LEVEL_ERROR;
    case SANDSTORM__V1__LOG_LEVEL__LOG_LEVEL_WARN:
        return LOG_LEVEL_WARN;
    case SANDSTORM__V1__LOG_LEVEL__LOG_LEVEL_DEBUG:
        return LOG_LEVEL_DEBUG;
    default:
        return LOG_LEVEL_INFO;
    }
}

/* By our clock, as well as its own can be told from what it last said; never in the future, and
 * never so old that it would be forgotten at once. */
static int64_t time_of(const struct sandbox *sandbox, int64_t agents_us, int64_t now_us)
{
    int64_t skew_us, ours_us;
    if (__builtin_mul_overflow(sandbox->clock_skew_ms, 1000, &skew_us) ||
        __builtin_sub_overflow(agents_us, skew_us, &ours_us))
        return now_us;
    return MIN(MAX(ours_us, now_us - LOGBOOK_AGE_US + 1), now_us);
}

/* The agent's own fields. The one that has a meaning here is the command, when it can be one. */
static void add_fields(struct agent_line *line, const struct sandbox *sandbox,
                       const Sandstorm__V1__LogLine *message)
{
    struct command_id command;
    unsigned named = 0;
    for (size_t i = 0; i < message->n_fields; i++) {
        const Sandstorm__V1__LogField *field = message->fields[i];
        if (strcmp(field->name, "command") == 0 && !*line->record.command_id &&
            command_id_parse(field->value, &command, NULL) == 0) {
            (void)memcpy(line->record.command_id, command.text, sizeof(command.text));
            line->fields[line->count++] = LF_STR("command", line->record.command_id);
            continue;
        }
        if (!is_name(field->name) || named == AGENT_FIELDS ||
            (strcmp(field->name, "sandbox") == 0 && strcmp(field->value, sandbox->id) == 0))
            continue;
        (void)snprintf(line->names[named], sizeof(line->names[named]), PREFIX "%s", field->name);
        line->fields[line->count++] = LF_STR(line->names[named++], field->value);
    }
}

static void take_line(struct orchestrator *orchestrator, struct sandbox *sandbox,
                      const Sandstorm__V1__LogLine *message)
{
    struct agent_line line;
    int64_t now_us = wall_us();
    enum log_level level = level_of(message->level);
    bool runner = strcmp(message->origin, "runner") == 0;
    line.count = 0;
    line.record = (struct log_record){ .level = (int)level };
    line.record.time_us = time_of(sandbox, message->time_unix_us, now_us);
    (void)snprintf(line.record.origin, sizeof(line.record.origin), "%s",
                   runner ? "runner" : "agent");
    (void)snprintf(line.record.message, sizeof(line.record.message), "%s", message->message);
    utf8_clean(line.record.message);
    line.fields[line.count++] = LF_STR("sandbox", sandbox->id);
    line.fields[line.count++] = LF_STR("origin", line.record.origin);
    add_fields(&line, sandbox, message);
    if (now_us - line.record.time_us >= LATE_US)
        line.fields[line.count++] = LF_INT("age_ms", (now_us - line.record.time_us) / 1000);
    log_event(level, line.record.message, line.fields, line.count);
    logbook_keep(orchestrator, sandbox, &line.record, line.fields, line.count);
}

static bool may(struct sandbox *sandbox)
{
    uint64_t unused;
    if (sandbox->log.limit.burst == 0)
        sandbox->log.limit = LOG_LIMIT(LOGBOOK_PERIOD_US, LOGBOOK_LINES);
    return log_limit_pass(&sandbox->log.limit, monotonic_us(), &unused);
}

void logbook_take(struct orchestrator *orchestrator, struct sandbox *sandbox,
                  const Sandstorm__V1__Logs *logs)
{
    if (logs->dropped > 0 && may(sandbox))
        LOGBOOK_EVENT(orchestrator, LOG_LEVEL_WARN, &event_log_left_out, sandbox->id, NULL,
                      LF_UINT("dropped", logs->dropped), LF_STR("reason", "the agent says so"));
    for (size_t i = 0; i < logs->n_lines; i++)
        if (may(sandbox))
            take_line(orchestrator, sandbox, logs->lines[i]);
        else
            logbook_left_out(orchestrator, sandbox);
}
