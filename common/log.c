/* Owns the log's settings, the one process global of the tree: written once by log_setup() and
 * log_set_tap() before there are threads, only read afterwards. Handed events by code that decides;
 * drops those below the level and hands the rest to a sink. Next: common/log_sink.c. */
#include "common/log.h"

#include "common/log-internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define JOURNAL_SOCKET "/run/systemd/journal/socket"

static struct {
    const char *program;
    enum log_level level;
    enum log_format format; /* never AUTO */
    bool colour;
    log_tap_fn tap;
    void *tap_userdata;
    enum log_level tap_level;
} state = { .program = "sandstorm", .level = LOG_LEVEL_INFO, .format = LOG_FORMAT_TEXT };

static const char *const level_names[] = {
    [LOG_LEVEL_ERROR] = "error",
    [LOG_LEVEL_WARN] = "warn",
    [LOG_LEVEL_INFO] = "info",
    [LOG_LEVEL_DEBUG] = "debug",
};

static const char *const format_names[] = {
    [LOG_FORMAT_AUTO] = "auto",
    [LOG_FORMAT_TEXT] = "text",
    [LOG_FORMAT_JSON] = "json",
    [LOG_FORMAT_JOURNAL] = "journal",
};

/* $JOURNAL_STREAM is "device:inode" of the socket that systemd made our stderr, systemd.exec(5). A
 * child whose stderr was redirected inherits the variable, so only equality counts. */
static bool stderr_is_the_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat st;
    if (!stream || fstat(STDERR_FILENO, &st) < 0)
        return false;
    char own[64];
    (void)snprintf(own, sizeof(own), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    return strcmp(stream, own) == 0;
}

/* sd_journal_sendv(3) says nothing and returns 0 where there is no journald. A container may be
 * given a journal stream without the socket, and its log would vanish. */
static bool journal_is_there(void)
{
    return access(JOURNAL_SOCKET, W_OK) == 0;
}

static enum log_format format_resolve(enum log_format format)
{
    if (format == LOG_FORMAT_AUTO)
        format = stderr_is_the_journal() ? LOG_FORMAT_JOURNAL : LOG_FORMAT_TEXT;
    if (format == LOG_FORMAT_JOURNAL && !journal_is_there())
        format = LOG_FORMAT_TEXT;
    return format;
}

/* https://no-color.org: set and not empty means no colour. */
static bool colour_wanted(void)
{
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && !(no_color && *no_color) && term && strcmp(term, "dumb") != 0;
}

void log_setup(const char *program, enum log_level level, enum log_format format)
{
    state.program = program;
    state.level = level;
    state.format = format_resolve(format);
    state.colour = colour_wanted();
}

void log_set_tap(log_tap_fn tap, void *userdata, enum log_level level)
{
    state.tap = tap;
    state.tap_userdata = userdata;
    state.tap_level = level;
}

const char *log_level_name(enum log_level level)
{
    assert((unsigned)level < ELEMENTS(level_names));
    return level_names[level];
}

static int name_find(const char *const *names, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], text) == 0)
            return (int)i;
    return -1;
}

int log_level_parse(const char *text, enum log_level *ret, struct err *err)
{
    int found = name_find(level_names, ELEMENTS(level_names), text);
    if (found < 0)
        return err_set(err, ERR_INVALID, "bad log level: use error, warn, info or debug");
    *ret = (enum log_level)found;
    return 0;
}

int log_format_parse(const char *text, enum log_format *ret, struct err *err)
{
    int found = name_find(format_names, ELEMENTS(format_names), text);
    if (found < 0)
        return err_set(err, ERR_INVALID, "bad log format: use auto, text, json or journal");
    *ret = (enum log_format)found;
    return 0;
}

bool log_enabled(enum log_level level)
{
    return level <= state.level;
}

/* What the tap logs is not handed to it: that would never end. */
static void hand_on(const struct log_line *line)
{
    static _Thread_local bool inside;
    if (!state.tap || line->level > state.tap_level || inside)
        return;
    inside = true;
    state.tap(state.tap_userdata, line->level, line->message, line->fields, line->count);
    inside = false;
}

void log_event(enum log_level level, const char *message, const struct log_field *fields,
               unsigned count)
{
    if (!log_enabled(level))
        return;
    assert(count <= LOG_FIELDS_MAX);
    const struct log_line line = {
        .level = level,
        .program = state.program,
        .message = message,
        .fields = fields,
        .count = MIN(count, LOG_FIELDS_MAX),
        .colour = state.colour,
    };
    /* A failure path often logs before it looks at errno. */
    int saved_errno = errno;
    if (state.format == LOG_FORMAT_JSON)
        log_sink_json(&line);
    else if (state.format == LOG_FORMAT_JOURNAL)
        log_sink_journal(&line);
    else
        log_sink_text(&line);
    hand_on(&line);
    errno = saved_errno;
}

bool log_limit_pass(struct log_limit *limit, uint64_t now_us, uint64_t *ret_suppressed)
{
    /* A clock that runs back gives a huge difference and so a fresh window: noise, not silence. */
    if (limit->seen == 0 || now_us - limit->window_start_us >= limit->interval_us) {
        limit->window_start_us = now_us;
        limit->seen = 0;
    }
    if (limit->seen >= limit->burst) {
        limit->suppressed++;
        return false;
    }
    limit->seen++;
    *ret_suppressed = limit->suppressed;
    limit->suppressed = 0;
    return true;
}
