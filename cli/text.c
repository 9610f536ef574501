/* Words for people; see cli/text.h. Called by cli/cmd_*.c before anything is printed. */
#include "cli/text.h"

#include "common/clock.h"
#include "common/macros.h"
#include "common/utf8.h"

#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

/* How long one character becomes at most: "\u202e". */
#define ESCAPE_MAX 8u

static const struct {
    uint32_t first, last;
} hidden[] = {
    { 0x00, 0x1f },     { 0x7f, 0x9f },     { 0xad, 0xad },
    { 0x61c, 0x61c },   { 0x200b, 0x200f }, { 0x2028, 0x202e },
    { 0x2060, 0x206f }, { 0xfeff, 0xfeff }, { 0xfff9, 0xfffb },
};

static uint32_t decode(const uint8_t *data, size_t length)
{
    static const uint8_t masks[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    uint32_t value = data[0] & masks[length];
    for (size_t i = 1; i < length; i++)
        value = value << 6 | (data[i] & 0x3f);
    return value;
}

static bool is_hidden(uint32_t character)
{
    for (size_t i = 0; i < ELEMENTS(hidden); i++)
        if (character >= hidden[i].first && character <= hidden[i].last)
            return true;
    return false;
}

char *text_escape(const char *text)
{
    size_t left = strlen(text);
    char *out = malloc(left * ESCAPE_MAX + 1);
    if (!out)
        return NULL;
    char *end = out;
    while (left > 0) {
        const uint8_t *data = (const uint8_t *)text;
        size_t length = utf8_character(data, left);
        uint32_t character = length > 0 ? decode(data, length) : data[0];
        if (length > 0 && !is_hidden(character)) {
            (void)memcpy(end, text, length);
            end += length;
        } else {
            bool byte = length <= 1;
            length = MAX(length, (size_t)1);
            end += snprintf(end, ESCAPE_MAX, byte ? "\\x%02x" : "\\u%04x", character);
        }
        text += length;
        left -= length;
    }
    *end = '\0';
    return out;
}

void text_print(FILE *out, const char *fmt, ...)
{
    CLEANUP_FREE char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    va_end(ap);
    for (char *line = text, *next; line; line = next) {
        char *end = strchr(line, '\n');
        next = end ? end + 1 : NULL;
        if (end)
            *end = '\0';
        CLEANUP_FREE char *harmless = text_escape(line);
        (void)fprintf(out, "%s%s", harmless ? harmless : "", end ? "\n" : "");
    }
}

void text_duration(int64_t ms, char out[TEXT_TIME_MAX])
{
    static const struct {
        int64_t below, seconds;
        char unit;
    } steps[] = { { 120, 1, 's' }, { 7200, 60, 'm' }, { 172800, 3600, 'h' } };
    int64_t seconds = MAX(ms, 0) / 1000;
    for (size_t i = 0; i < ELEMENTS(steps); i++)
        if (seconds < steps[i].below) {
            (void)snprintf(out, TEXT_TIME_MAX, "%lld%c", (long long)(seconds / steps[i].seconds),
                           steps[i].unit);
            return;
        }
    (void)snprintf(out, TEXT_TIME_MAX, "%lldd", (long long)(seconds / 86400));
}

void text_time(int64_t unix_ms, char out[TEXT_TIME_MAX])
{
    time_t seconds = (time_t)(unix_ms / 1000);
    struct tm parts;
    if (unix_ms == 0 || !gmtime_r(&seconds, &parts) ||
        strftime(out, TEXT_TIME_MAX, "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
        (void)snprintf(out, TEXT_TIME_MAX, "-");
}

void text_when(int64_t unix_ms, char out[TEXT_TIME_MAX])
{
    char duration[TEXT_TIME_MAX];
    int64_t ahead = clock_skew_ms(unix_ms);
    text_duration(ahead > 0 ? ahead : ahead == INT64_MIN ? INT64_MAX : -ahead, duration);
    if (unix_ms == 0)
        (void)snprintf(out, TEXT_TIME_MAX, "-");
    else
        (void)snprintf(out, TEXT_TIME_MAX, ahead > 0 ? "in %.20s" : "%.20s ago", duration);
}
