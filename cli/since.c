/* A point in the past as people write it. Called by cli/cmd_logs.c. */
#include "cli/since.h"

#include "common/options.h"

#include <ctype.h>
#include <string.h>
#include <time.h>

/* So many digits, no more and no fewer. */
static bool take_number(const char **text, unsigned count, int *ret)
{
    int value = 0;
    for (; count > 0; count--, (*text)++) {
        if (!isdigit((unsigned char)**text))
            return false;
        value = value * 10 + (**text - '0');
    }
    *ret = value;
    return true;
}

static bool take_char(const char **text, const char *any_of)
{
    if (**text == '\0' || !strchr(any_of, **text))
        return false;
    (*text)++;
    return true;
}

/* "11:50" or "11:50:04", and a Z or not. */
static bool take_clock(const char **text, struct tm *parts)
{
    if (!take_number(text, 2, &parts->tm_hour) || !take_char(text, ":") ||
        !take_number(text, 2, &parts->tm_min) ||
        (take_char(text, ":") && !take_number(text, 2, &parts->tm_sec)))
        return false;
    (void)take_char(text, "Z");
    return true;
}

static bool parse_time(const char *text, int64_t *ret_us)
{
    struct tm parts = { 0 };
    if (!take_number(&text, 4, &parts.tm_year) || !take_char(&text, "-") ||
        !take_number(&text, 2, &parts.tm_mon) || !take_char(&text, "-") ||
        !take_number(&text, 2, &parts.tm_mday) ||
        (take_char(&text, "T ") && !take_clock(&text, &parts)) || *text != '\0')
        return false;
    parts.tm_year -= 1900;
    parts.tm_mon -= 1;
    struct tm same = parts;
    time_t seconds = timegm(&same);
    /* timegm(3) makes the 2nd of March of a 30th of February. */
    if (seconds < 0 || same.tm_mon != parts.tm_mon || same.tm_mday != parts.tm_mday ||
        same.tm_hour != parts.tm_hour || same.tm_min != parts.tm_min || same.tm_sec != parts.tm_sec)
        return false;
    *ret_us = (int64_t)seconds * 1000000;
    return true;
}

int since_parse(const char *text, int64_t now_us, int64_t *ret_us, struct err *err)
{
    uint64_t ago = 0;
    if (duration_parse(text, &ago, NULL) == 0) {
        /* Before the beginning of time is all there is. */
        *ret_us = ago >= (uint64_t)now_us ? 0 : now_us - (int64_t)ago;
        return 0;
    }
    return parse_time(text, ret_us)
               ? 0
               : err_set(err, ERR_INVALID,
                         "\"%.64s\" is no time; write how long ago, like 15m, 12h or 7d, or a time "
                         "in UTC, like 2026-11-18T11:50:04Z",
                         text);
}
