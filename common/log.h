/* One event, one line: a fixed message and typed fields.
 *
 *     log_info("command started", LF_STR("command", id), LF_INT("pid", pid));
 *
 * Only code that decides logs. Goes to journald with fields when stderr is the journal, to
 * readable text on a terminal or a file, or to JSON lines on request. Field names are lower_case;
 * journald gets them as SANDSTORM_NAME. Values from peers are escaped: a line stays a line.
 * Never log a secret; no argv above debug. Any thread; log_setup() once, in main, before threads.
 */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

#define LOG_FIELDS_MAX 16
#define LOG_VALUE_MAX  512 /* a longer value is cut and ends in "..." */

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };
enum log_format { LOG_FORMAT_AUTO, LOG_FORMAT_TEXT, LOG_FORMAT_JSON, LOG_FORMAT_JOURNAL };

struct log_field {
    const char *name;
    enum { LOG_FIELD_STR, LOG_FIELD_INT, LOG_FIELD_UINT, LOG_FIELD_MESSAGE_ID } kind;
    union {
        const char *str;
        int64_t i;
        uint64_t u;
    };
};

/* `program` is kept, not copied. AUTO is the journal where $JOURNAL_STREAM names stderr, else text.
 */
void log_setup(const char *program, enum log_level level, enum log_format format);
int log_level_parse(const char *text, enum log_level *ret, struct err *err) must_use;
int log_format_parse(const char *text, enum log_format *ret, struct err *err) must_use;

/* Hands a copy of every line at or above `level` on, after it was written, on the thread that wrote
 * it: so `tap` must take any thread. A line that it logs itself is written and not handed on. A
 * setting of the process as log_setup() is: before threads, or after they have gone. NULL ends it.
 */
typedef void (*log_tap_fn)(void *userdata, enum log_level level, const char *message,
                           const struct log_field *fields, unsigned count);
void log_set_tap(log_tap_fn tap, void *userdata, enum log_level level);

bool log_enabled(enum log_level level);
void log_event(enum log_level level, const char *message, const struct log_field *fields,
               unsigned count);

#define LF_STR(n, v)  ((struct log_field){ .name = (n), .kind = LOG_FIELD_STR, .str = (v) })
#define LF_INT(n, v)  ((struct log_field){ .name = (n), .kind = LOG_FIELD_INT, .i = (v) })
#define LF_UINT(n, v) ((struct log_field){ .name = (n), .kind = LOG_FIELD_UINT, .u = (v) })
/* What kind of event this is, for the journal alone: MESSAGE_ID=, without the prefix. Use
 * LF_EVENT() of common/log_ids.h. */
#define LF_MESSAGE_ID(id)                                                                          \
    ((struct log_field){ .name = "message_id", .kind = LOG_FIELD_MESSAGE_ID, .str = (id) })
/* The two fields that an error makes. */
#define LF_ERR(e) LF_STR("error", (e)->text), LF_STR("error_code", err_name((e)->code))

#define LOG_AT(level, message, ...)                                                                \
    do {                                                                                           \
        if (log_enabled(level)) {                                                                  \
            const struct log_field fields_[] = { { .name = NULL }, ##__VA_ARGS__ };                \
            log_event(level, message, fields_ + 1, ELEMENTS(fields_) - 1);                         \
        }                                                                                          \
    } while (0)
#define log_error(message, ...) LOG_AT(LOG_LEVEL_ERROR, message, ##__VA_ARGS__)
#define log_warn(message, ...)  LOG_AT(LOG_LEVEL_WARN, message, ##__VA_ARGS__)
#define log_info(message, ...)  LOG_AT(LOG_LEVEL_INFO, message, ##__VA_ARGS__)
#define log_debug(message, ...) LOG_AT(LOG_LEVEL_DEBUG, message, ##__VA_ARGS__)

/* For what a peer can repeat: at most `burst` lines in `interval_us`; the first line after a
 * silence carries how many were swallowed. Zero-initialise with LOG_LIMIT(); one thread. */
struct log_limit {
    uint64_t interval_us;
    unsigned burst;
    uint64_t window_start_us;
    unsigned seen;
    uint64_t suppressed;
};
#define LOG_LIMIT(interval, lines)                                                                 \
    ((struct log_limit){ .interval_us = (interval), .burst = (lines) })
/* True when the line may be written; *ret_suppressed is what was swallowed before it. */
bool log_limit_pass(struct log_limit *limit, uint64_t now_us, uint64_t *ret_suppressed);
