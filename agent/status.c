/* Owns the status file: its JSON, and the words a person reads. agent/link_main.c writes it when
 * something changes and reads it for `sandstorm-agent status`. Next: common/file.c. */
#include "agent/status.h"

#include "common/clock.h"
#include "common/file.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <string.h>

#define STATUS_FILE_MAX 8192u
#define STATUS_COMM     "sandstorm-agent" /* 15 characters, all that the kernel keeps */
#define CLOCK_EQUAL_MS  10
#define CLOCK_WRONG_MS  60000
#define STATUS_TIME_MAX 32u
#define PROC_TEXT_MAX   1024u
#define BOOT_ID_FILE    "/proc/sys/kernel/random/boot_id"

enum field_kind { FIELD_TEXT, FIELD_NUMBER, FIELD_BOOL };

#define TEXT(member)                                                                               \
    {                                                                                              \
#member, FIELD_TEXT, offsetof(struct agent_status, member),                                \
            sizeof(((struct agent_status *)0)->member), false                                      \
    }
#define NUMBER(member)                                                                             \
    {                                                                                              \
#member, FIELD_NUMBER, offsetof(struct agent_status, member), 0, false                     \
    }
/* The file of a version before this one does not have it. */
#define LATER_NUMBER(member)                                                                       \
    {                                                                                              \
#member, FIELD_NUMBER, offsetof(struct agent_status, member), 0, true                      \
    }
#define LATER_TEXT(member)                                                                         \
    {                                                                                              \
#member, FIELD_TEXT, offsetof(struct agent_status, member),                                \
            sizeof(((struct agent_status *)0)->member), true                                       \
    }
#define BOOL(member)                                                                               \
    {                                                                                              \
#member, FIELD_BOOL, offsetof(struct agent_status, member), 0, false                       \
    }

static const struct field {
    const char *key;
    enum field_kind kind;
    size_t offset, size;
    bool later;
} fields[] = {
    NUMBER(written_unix_ms),
    NUMBER(pid),
    TEXT(boot_id),
    TEXT(sandbox_id),
    TEXT(endpoint),
    TEXT(state),
    NUMBER(since_unix_ms),
    TEXT(last_error),
    NUMBER(last_error_unix_ms),
    NUMBER(certificate_not_after_unix_ms),
    BOOL(clock_known),
    NUMBER(clock_skew_ms),
    TEXT(agent_version),
    LATER_NUMBER(next_attempt_unix_ms),
    LATER_NUMBER(attempts_failed),
    LATER_NUMBER(failing_since_unix_ms),
    LATER_NUMBER(heartbeat_interval_ms),
    LATER_NUMBER(heartbeat_sent_unix_ms),
    LATER_TEXT(enforces),
};

static json_t *to_json(const struct agent_status *status)
{
    json_t *json = json_object();
    for (size_t i = 0; i < ELEMENTS(fields); i++) {
        const char *at = (const char *)status + fields[i].offset;
        json_t *value = NULL;
        switch (fields[i].kind) {
        case FIELD_TEXT:
            value = json_string(at);
            break;
        case FIELD_NUMBER:
            value = json_integer(*(const int64_t *)(const void *)at);
            break;
        case FIELD_BOOL:
            value = json_boolean(*(const bool *)at);
            break;
        }
        if (json_object_set_new(json, fields[i].key, value) < 0) {
            json_decref(json);
            return NULL;
        }
    }
    return json;
}

static bool take(struct agent_status *status, const struct field *field, const json_t *value)
{
    char *at = (char *)status + field->offset;
    if (!value && field->later)
        return true;
    switch (field->kind) {
    case FIELD_TEXT:
        if (!json_is_string(value) || json_string_length(value) >= field->size)
            return false;
        (void)memcpy(at, json_string_value(value), json_string_length(value));
        return true;
    case FIELD_NUMBER:
        *(int64_t *)(void *)at = json_integer_value(value);
        return json_is_integer(value);
    case FIELD_BOOL:
        *(bool *)at = json_is_true(value);
        return json_is_boolean(value);
    }
    return false;
}

int status_write(const char *path, const struct agent_status *status, struct err *err)
{
    json_t *json = to_json(status);
    char *text = json ? json_dumps(json, JSON_INDENT(2)) : NULL;
    json_decref(json);
    if (!text)
        return err_nomem(err);
    /* For everybody: it holds no secret, and `status` should need no root. */
    int r = file_write_atomic(path, text, strlen(text), 0644, err);
    free(text);
    return r;
}

int status_read(const char *path, struct agent_status *ret, struct err *err)
{
    CLEANUP_FREE char *text = NULL;
    size_t size;
    if (file_read(path, STATUS_FILE_MAX, &text, &size, err) < 0)
        return -1;
    struct agent_status status = { 0 };
    json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    bool good = json != NULL;
    for (size_t i = 0; i < ELEMENTS(fields) && good; i++)
        good = take(&status, &fields[i], json_object_get(json, fields[i].key));
    json_decref(json);
    if (!good)
        return err_set(err, ERR_INVALID,
                       "%s is not what this version of sandstorm-agent writes; restart the agent "
                       "to have it written anew",
                       path);
    *ret = status;
    return 0;
}

/* Words. */

static const char *name_of(const struct agent_status *status)
{
    return status->sandbox_id[0] ? status->sandbox_id : "This machine";
}

static void span_since(int64_t now_ms, int64_t then_ms, char ret[CLOCK_SPAN_TEXT_MAX])
{
    int64_t ms;
    bool odd = __builtin_sub_overflow(now_ms, then_ms, &ms) || ms < 0;
    clock_span_text(odd ? 0 : ms / 1000, ret);
}

static void time_text(int64_t ms, char ret[STATUS_TIME_MAX])
{
    time_t seconds = (time_t)(ms / 1000);
    struct tm parts;
    if (!gmtime_r(&seconds, &parts) ||
        strftime(ret, STATUS_TIME_MAX, "%Y-%m-%d %H:%M UTC", &parts) == 0)
        (void)snprintf(ret, STATUS_TIME_MAX, "an unknown time");
}

/* Each of these two is a sentence without a new line; false when there is nothing to say. */
static bool print_certificate(const struct agent_status *status, int64_t now_ms, FILE *out)
{
    int64_t end_ms = status->certificate_not_after_unix_ms;
    char when[STATUS_TIME_MAX], span[CLOCK_SPAN_TEXT_MAX];
    if (end_ms == 0)
        return false;
    time_text(end_ms, when);
    if (end_ms > now_ms) {
        span_since(end_ms, now_ms, span);
        (void)fprintf(out, "Certificate valid until %s (%s).", when, span);
    } else {
        span_since(now_ms, end_ms, span);
        (void)fprintf(out, "Certificate expired at %s (%s ago); the agent renews it by itself.",
                      when, span);
    }
    return true;
}

static bool print_clock(const struct agent_status *status, const char *before, FILE *out)
{
    if (!status->clock_known)
        return false;
    int64_t skew_ms = status->clock_skew_ms;
    uint64_t size_ms = skew_ms < 0 ? -(uint64_t)skew_ms : (uint64_t)skew_ms;
    const char *direction = skew_ms < 0 ? "behind" : "ahead of";
    char span[CLOCK_SPAN_TEXT_MAX];
    if (size_ms < CLOCK_EQUAL_MS) {
        (void)fprintf(out, "%sClock: the same as the orchestrator's.", before);
    } else if (size_ms < CLOCK_WRONG_MS) {
        (void)fprintf(out, "%sClock: %.2f s %s the orchestrator.", before, (double)size_ms / 1000,
                      direction);
    } else {
        clock_span_text((int64_t)(size_ms / 1000), span);
        (void)fprintf(out, "%sClock: %s %s the orchestrator; set it (timedatectl).", before, span,
                      direction);
    }
    return true;
}

static void print_not_running(const struct agent_status *status, int64_t now_ms, FILE *out)
{
    char span[CLOCK_SPAN_TEXT_MAX];
    bool stopped = strcmp(status->state, "stopped") == 0;
    span_since(now_ms, stopped ? status->since_unix_ms : status->written_unix_ms, span);
    (void)fprintf(out, "%s is not connected: sandstorm-agent is not running, ", name_of(status));
    if (stopped)
        (void)fprintf(out, "it was stopped %s ago.\n", span);
    else
        (void)fprintf(out, "its last sign of life is %s old (%s).\n", span, status->state);
    (void)fprintf(out, "Start it; where it is a service: systemctl start sandstorm-agent, and "
                       "journalctl -u sandstorm-agent says why it ended.\n");
    if (status->last_error[0])
        (void)fprintf(out, "Its last error was: %s\n", status->last_error);
}

static void print_waiting(const struct agent_status *status, int64_t now_ms, FILE *out)
{
    char span[CLOCK_SPAN_TEXT_MAX];
    const char *what = "not connected to";
    if (strcmp(status->state, "enrolling") == 0)
        what = "joining, but has no certificate yet from";
    span_since(now_ms, status->since_unix_ms, span);
    if (strcmp(status->state, "no-runner") == 0)
        (void)fprintf(
            out,
            "%s is connected to %s, but cannot run commands for %s: sandstorm-runner does "
            "not answer. Start it.\n",
            name_of(status), status->endpoint, span);
    else if (status->last_error[0])
        (void)fprintf(out, "%s is %s %s for %s: %s\n", name_of(status), what, status->endpoint,
                      span, status->last_error);
    else
        (void)fprintf(out, "%s is %s %s for %s; the first attempt is under way.\n", name_of(status),
                      what, status->endpoint, span);
}

/* How often it has tried, and when it tries again. */
static void print_attempts(const struct agent_status *status, int64_t now_ms, FILE *out)
{
    char when[STATUS_TIME_MAX], span[CLOCK_SPAN_TEXT_MAX];
    int64_t left_ms = 0;
    if (strcmp(status->state, "no-runner") == 0)
        return;
    if (status->attempts_failed > 0) {
        time_text(status->failing_since_unix_ms, when);
        (void)fprintf(out, "%" PRId64 " attempt%s failed since %s; the next one is ",
                      status->attempts_failed, status->attempts_failed == 1 ? " has" : "s have",
                      when);
    } else if (status->next_attempt_unix_ms) {
        (void)fprintf(out, "The next attempt is ");
    } else {
        return; /* nothing has failed, and the first attempt was spoken of */
    }
    if (status->next_attempt_unix_ms &&
        !__builtin_sub_overflow(status->next_attempt_unix_ms, now_ms, &left_ms) && left_ms > 0) {
        clock_span_text(left_ms / 1000 + (left_ms % 1000 != 0), span);
        (void)fprintf(out, "in %s.\n", span);
    } else {
        (void)fprintf(out, "under way.\n");
    }
}

static void print_heartbeat(const struct agent_status *status, int64_t now_ms, FILE *out)
{
    char span[CLOCK_SPAN_TEXT_MAX];
    if (status->heartbeat_interval_ms <= 0)
        return;
    span_since(now_ms, status->heartbeat_sent_unix_ms, span);
    (void)fprintf(out, "Heartbeat every %g s; the last one known of was sent %s ago.\n",
                  (double)status->heartbeat_interval_ms / 1000, span);
}

static void print_limits(const struct agent_status *status, FILE *out)
{
    if (strcmp(status->enforces, "none") == 0)
        (void)fprintf(out, "No limits of commands can be enforced here; the runner's log says "
                           "why.\n");
    else if (status->enforces[0])
        (void)fprintf(out, "Limits of commands that can be enforced here: %s.\n", status->enforces);
}

static int exit_status(const struct agent_status *status, bool running)
{
    return running && strcmp(status->state, "online") == 0 ? 0 : 1;
}

int status_print(const struct agent_status *status, bool running, int64_t now_ms, FILE *out)
{
    char span[CLOCK_SPAN_TEXT_MAX];
    if (!running) {
        print_not_running(status, now_ms, out);
    } else if (exit_status(status, running) == 0) {
        span_since(now_ms, status->since_unix_ms, span);
        (void)fprintf(out, "%s is online at %s, for %s now.\n", name_of(status), status->endpoint,
                      span);
        print_heartbeat(status, now_ms, out);
        print_limits(status, out);
    } else {
        print_waiting(status, now_ms, out);
        print_attempts(status, now_ms, out);
    }
    bool said = print_certificate(status, now_ms, out);
    if (running && print_clock(status, said ? "  " : "", out))
        said = true;
    if (said)
        (void)fputc('\n', out);
    return exit_status(status, running);
}

int status_print_json(const struct agent_status *status, bool running, FILE *out)
{
    json_t *json = to_json(status);
    (void)json_object_set_new(json, "running", json_boolean(running));
    (void)json_dumpf(json, out, JSON_INDENT(2));
    (void)fputc('\n', out);
    json_decref(json);
    return exit_status(status, running);
}

/* The text of a file in /proc without its new line; "" when there is none. */
static void read_line(const char *path, char ret[PROC_TEXT_MAX])
{
    CLEANUP_FREE char *text = NULL;
    size_t size;
    ret[0] = '\0';
    if (file_read(path, PROC_TEXT_MAX - 1, &text, &size, NULL) == 0)
        (void)snprintf(ret, PROC_TEXT_MAX, "%.*s", (int)strcspn(text, "\n"), text);
}

bool status_running(const struct agent_status *status)
{
    char path[64], text[PROC_TEXT_MAX];
    if (status->pid <= 0 || status->pid > INT32_MAX || strcmp(status->state, "stopped") == 0)
        return false;
    read_line(BOOT_ID_FILE, text);
    if (strcmp(text, status->boot_id) != 0)
        return false;
    /* A pid is used again, at the latest after a restart; the name makes a mistake unlikely. */
    (void)snprintf(path, sizeof(path), "/proc/%" PRId64 "/stat", status->pid);
    read_line(path, text);
    /* "PID (NAME) STATE ...", proc(5); one that only waits for its parent to look is dead. */
    const char *name = strstr(text, "(" STATUS_COMM ") ");
    return name && name[sizeof("(" STATUS_COMM ") ") - 1] != 'Z';
}
