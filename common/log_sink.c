/* Owns how an event looks: text by hand, JSON by jansson, journald by libsystemd. Handed one line
 * at a time by common/log.c; hands it to stderr in one write(2) or to the journal in one datagram.
 * Values come from peers, so nothing reaches a sink before escape() has made it printable: no
 * value can end a line, move a cursor or turn the following text around. */
#include "common/log-internal.h"
#include "common/utf8.h"

/* The location would always be this file. */
#define SD_JOURNAL_SUPPRESS_LOCATION

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <syslog.h>
#include <systemd/sd-journal.h>
#include <time.h>

/* All fields at their largest, the message, and the names, which are ours and short. */
#define LOG_LINE_MAX ((LOG_FIELDS_MAX + 1) * (LOG_VALUE_MAX + 64))
#define LOG_NAME_MAX 48
#define PIECE_MAX    16

/* What a line is built in. Names longer than foreseen are cut rather than written past the end. */
struct text {
    char data[LOG_LINE_MAX];
    size_t used;
};

static void text_put(struct text *text, const char *data, size_t size)
{
    /* One byte stays free for the newline. */
    size_t fits = MIN(size, sizeof(text->data) - 1 - text->used);
    (void)memcpy(text->data + text->used, data, fits);
    text->used += fits;
}

static void text_puts(struct text *text, const char *string)
{
    text_put(text, string, strlen(string));
}

/* The length of the UTF-8 character at the front of a string that is not empty, with its code
 * point, or 0 where there is none. */
static size_t character_decode(const unsigned char *at, uint32_t *ret_point)
{
    size_t size = utf8_character(at, strnlen((const char *)at, 4));
    if (size == 0)
        return 0;
    uint32_t point = size == 1 ? at[0] : at[0] & (0x7fu >> size);
    for (size_t i = 1; i < size; i++)
        point = point << 6 | (at[i] & 0x3fu);
    *ret_point = point;
    return size;
}

/* Control characters of both sets, the separators that end a line in Unicode's eyes, and the marks
 * that change the direction of what follows (CVE-2021-42574). */
static bool is_unsafe(uint32_t point)
{
    return point < 0x20 || (point >= 0x7f && point < 0xa0) || point == 0x2028 || point == 0x2029 ||
           point == 0x200e || point == 0x200f || point == 0x061c ||
           (point >= 0x202a && point <= 0x202e) || (point >= 0x2066 && point <= 0x2069);
}

/* Writes what stands for the next character and says how many bytes it read. */
typedef size_t piece_fn(const unsigned char *at, char out[PIECE_MAX]);

static size_t piece_for_text(const unsigned char *at, char out[PIECE_MAX])
{
    static const char letters[128] = {
        ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't', ['"'] = '"', ['\\'] = '\\',
    };
    uint32_t point = 0;
    size_t size = character_decode(at, &point);
    if (size == 0)
        (void)snprintf(out, PIECE_MAX, "\\x%02x", at[0]);
    else if (point < sizeof(letters) && letters[point] != '\0')
        (void)snprintf(out, PIECE_MAX, "\\%c", letters[point]);
    else if (is_unsafe(point))
        (void)snprintf(out, PIECE_MAX, point < 0x80 ? "\\x%02x" : "\\u%04x", point);
    else
        (void)snprintf(out, PIECE_MAX, "%.*s", (int)size, (const char *)at);
    return MAX(size, 1u);
}

/* jansson escapes the rest, but refuses what is not UTF-8; that becomes U+FFFD. */
static size_t piece_for_json(const unsigned char *at, char out[PIECE_MAX])
{
    uint32_t point;
    size_t size = character_decode(at, &point);
    const char *from = size == 0 ? "\xef\xbf\xbd" : (const char *)at;
    (void)snprintf(out, PIECE_MAX, "%.*s", size == 0 ? 3 : (int)size, from);
    return MAX(size, 1u);
}

/* Returns the length of the result, which ends in a NUL and in "..." where it was cut. */
static size_t escape(const char *value, piece_fn *piece, char out[LOG_VALUE_MAX + 1])
{
    size_t used = 0, cut = 0;
    for (const unsigned char *at = (const unsigned char *)value; *at != '\0';) {
        char next[PIECE_MAX];
        at += piece(at, next);
        size_t size = strlen(next);
        if (used + size > LOG_VALUE_MAX) {
            (void)memcpy(out + cut, "...", 4);
            return cut + 3;
        }
        (void)memcpy(out + used, next, size);
        used += size;
        if (used <= LOG_VALUE_MAX - 3)
            cut = used;
    }
    out[used] = '\0';
    return used;
}

static size_t field_format(const struct log_field *field, char out[LOG_VALUE_MAX + 1])
{
    if (field->kind == LOG_FIELD_INT)
        return (size_t)snprintf(out, LOG_VALUE_MAX + 1, "%" PRId64, field->i);
    if (field->kind == LOG_FIELD_UINT)
        return (size_t)snprintf(out, LOG_VALUE_MAX + 1, "%" PRIu64, field->u);
    return escape(field->str ? field->str : "", piece_for_text, out);
}

static void text_put_message(struct text *text, const char *message)
{
    char escaped[LOG_VALUE_MAX + 1];
    text_put(text, escaped, escape(message, piece_for_text, escaped));
}

/* Quotes are for readers and for parsers of name=value: whatever could be taken for two values, or
 * was escaped, gets them. */
static void text_put_fields(struct text *text, const struct log_line *line)
{
    for (unsigned i = 0; i < line->count; i++) {
        if (line->fields[i].kind == LOG_FIELD_MESSAGE_ID)
            continue;
        char value[LOG_VALUE_MAX + 1];
        size_t size = field_format(&line->fields[i], value);
        bool quoted = size == 0 || strpbrk(value, " =\"\\") != NULL;
        text_puts(text, " ");
        text_puts(text, line->fields[i].name);
        text_puts(text, quoted ? "=\"" : "=");
        text_put(text, value, size);
        text_puts(text, quoted ? "\"" : "");
    }
}

static void timestamp(char *out, size_t size)
{
    struct timespec now;
    struct tm tm;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &tm);
    size_t used = strftime(out, size, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(out + used, size - used, ".%03dZ", (int)(now.tv_nsec / 1000000));
}

/* One write(2), so that lines of several threads and processes do not mix. The loop is for the rare
 * short write; a full pipe in non-blocking mode costs the line, never the daemon. */
static void write_line(const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(STDERR_FILENO, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        data += n;
        size -= (size_t)n;
    }
}

#define ANSI_DIM   "\x1b[2m"
#define ANSI_RESET "\x1b[0m"

static const char *const level_colours[] = {
    [LOG_LEVEL_ERROR] = "\x1b[1;31m",
    [LOG_LEVEL_WARN] = "\x1b[33m",
    [LOG_LEVEL_INFO] = "\x1b[32m",
    [LOG_LEVEL_DEBUG] = ANSI_DIM,
};

static void text_put_coloured(struct text *text, const struct log_line *line, const char *colour,
                              const char *string)
{
    text_puts(text, line->colour ? colour : "");
    text_puts(text, string);
    text_puts(text, line->colour ? ANSI_RESET : "");
}

void log_sink_text(const struct log_line *line)
{
    char when[48], level[8];
    timestamp(when, sizeof(when));
    (void)snprintf(level, sizeof(level), "%-5s", log_level_name(line->level));

    struct text text;
    text.used = 0;
    text_put_coloured(&text, line, ANSI_DIM, when);
    text_puts(&text, " ");
    text_put_coloured(&text, line, level_colours[line->level], level);
    text_puts(&text, " ");
    text_puts(&text, line->program);
    text_puts(&text, ": ");
    text_put_message(&text, line->message);
    text_puts(&text, line->colour ? ANSI_DIM : "");
    text_put_fields(&text, line);
    text_puts(&text, line->colour ? ANSI_RESET : "");
    text.data[text.used++] = '\n';
    write_line(text.data, text.used);
}

static json_t *json_text(const char *string)
{
    char value[LOG_VALUE_MAX + 1];
    size_t size = escape(string, piece_for_json, value);
    return json_stringn(value, size);
}

static json_t *json_field(const struct log_field *field)
{
    if (field->kind == LOG_FIELD_INT)
        return json_integer(field->i);
    if (field->kind == LOG_FIELD_STR)
        return field->str ? json_text(field->str) : json_null();
    if (field->u <= INT64_MAX)
        return json_integer((json_int_t)field->u);
    /* jansson's integers are signed; digits in a string are exact where a double is not. */
    char digits[24];
    (void)snprintf(digits, sizeof(digits), "%" PRIu64, field->u);
    return json_string(digits);
}

/* NULL when memory is short. The first of two equal names wins, so that no field can stand in for
 * the time or the level. */
static json_t *json_build(const struct log_line *line)
{
    char when[48];
    timestamp(when, sizeof(when));
    json_t *object =
        json_pack("{s:s, s:s, s:o, s:o}", "time", when, "level", log_level_name(line->level),
                  "program", json_text(line->program), "message", json_text(line->message));
    for (unsigned i = 0; object && i < line->count; i++) {
        const struct log_field *field = &line->fields[i];
        if (field->kind == LOG_FIELD_MESSAGE_ID || json_object_get(object, field->name))
            continue;
        if (json_object_set_new(object, field->name, json_field(field)) < 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

void log_sink_json(const struct log_line *line)
{
    json_t *object = json_build(line);
    /* Plain ASCII, so that a JSON log on a terminal is as harmless as a text log. */
    CLEANUP_FREE char *dump = object ? json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(object);
    if (!dump) {
        log_sink_text(line);
        return;
    }
    /* The newline takes the place of the final NUL, and so goes out in the same write. */
    size_t size = strlen(dump);
    dump[size] = '\n';
    write_line(dump, size + 1);
}

/* SANDSTORM_NAME=value. Journal field names are upper case, digits and underscores. The kind of an
 * event is the journal's own field, which only its own type of field can make. */
static size_t journal_field(const struct log_field *field, char *out)
{
    static const char prefix[] = "SANDSTORM_";
    size_t used = field->kind == LOG_FIELD_MESSAGE_ID ? 0 : sizeof(prefix) - 1;
    (void)memcpy(out, prefix, used);
    for (const char *at = field->name; *at != '\0' && at < field->name + LOG_NAME_MAX; at++) {
        bool lower = *at >= 'a' && *at <= 'z';
        bool kept = (*at >= '0' && *at <= '9') || (*at >= 'A' && *at <= 'Z');
        out[used++] = lower ? (char)(*at - 'a' + 'A') : kept ? *at : '_';
    }
    out[used++] = '=';
    return used + field_format(field, out + used);
}

/* MESSAGE carries the fields too: it is all that a plain journalctl shows. */
static void journal_message(const struct log_line *line, struct text *text)
{
    text->used = 0;
    text_puts(text, "MESSAGE=");
    text_put_message(text, line->message);
    text_put_fields(text, line);
}

void log_sink_journal(const struct log_line *line)
{
    static const int priorities[] = {
        [LOG_LEVEL_ERROR] = LOG_ERR,
        [LOG_LEVEL_WARN] = LOG_WARNING,
        [LOG_LEVEL_INFO] = LOG_INFO,
        [LOG_LEVEL_DEBUG] = LOG_DEBUG,
    };
    struct text message;
    char priority[16], identifier[128];
    char fields[LOG_FIELDS_MAX][sizeof("SANDSTORM_=") + LOG_NAME_MAX + LOG_VALUE_MAX];
    journal_message(line, &message);
    int priority_size =
        snprintf(priority, sizeof(priority), "PRIORITY=%d", priorities[line->level]);
    (void)snprintf(identifier, sizeof(identifier), "SYSLOG_IDENTIFIER=%s", line->program);

    struct iovec iov[3 + LOG_FIELDS_MAX] = {
        { .iov_base = message.data, .iov_len = message.used },
        { .iov_base = priority, .iov_len = (size_t)priority_size },
        { .iov_base = identifier, .iov_len = strlen(identifier) },
    };
    for (unsigned i = 0; i < line->count; i++) {
        size_t size = journal_field(&line->fields[i], fields[i]);
        iov[3 + i] = (struct iovec){ .iov_base = fields[i], .iov_len = size };
    }
    if (sd_journal_sendv(iov, 3 + (int)line->count) < 0)
        log_sink_text(line);
}
