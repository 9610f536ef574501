/* Amounts as people write them. Called by cli/spec_options.c and cli/cmd_output.c. */
#include "cli/units.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Digits and nothing else; strtoull(3) would take signs and spaces too. */
static bool take_number(const char **text, unsigned base, uint64_t *ret)
{
    uint64_t value = 0;
    const char *start = *text;
    for (; **text >= '0' && **text < (char)('0' + base); (*text)++)
        if (__builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, (uint64_t)(**text - '0'), &value))
            return false;
    *ret = value;
    return *text > start;
}

int size_parse(const char *text, uint64_t *ret, struct err *err)
{
    static const char units[] = "KMGT";
    const char *rest = text;
    uint64_t value = 0;
    bool good = take_number(&rest, 10, &value);
    const char *unit = good && *rest ? strchr(units, *rest) : NULL;
    if (unit) {
        rest++;
        good = !__builtin_mul_overflow(value, UINT64_C(1) << (10 * (unit - units + 1)), &value);
    }
    if (!good || *rest)
        return err_set(err, ERR_INVALID,
                       "\"%.64s\" is not a size; write it like 65536, 64K, 512M "
                       "or 2G",
                       text);
    *ret = value;
    return 0;
}

int cpus_parse(const char *text, uint64_t *ret_millis, struct err *err)
{
    const char *rest = text;
    uint64_t whole = 0, part = 0;
    bool good = take_number(&rest, 10, &whole) && whole <= UINT64_MAX / 1000 - 1;
    if (good && *rest == '.') {
        const char *start = ++rest;
        good = take_number(&rest, 10, &part) && rest - start <= 3;
        for (long digits = rest - start; good && digits < 3; digits++)
            part *= 10;
    }
    if (!good || *rest || whole * 1000 + part == 0)
        return err_set(err, ERR_INVALID,
                       "\"%.64s\" is not a number of CPUs; write it like 2, 1.5 or 0.25", text);
    *ret_millis = whole * 1000 + part;
    return 0;
}

int umask_parse(const char *text, unsigned *ret, struct err *err)
{
    const char *rest = text;
    uint64_t value = 0;
    if (!take_number(&rest, 8, &value) || *rest || value > 0777)
        return err_set(err, ERR_INVALID, "\"%.64s\" is not a umask; write it in octal, like 027",
                       text);
    *ret = (unsigned)value;
    return 0;
}

int nice_parse(const char *text, int *ret, struct err *err)
{
    const char *rest = text + (*text == '-');
    uint64_t value = 0;
    if (!take_number(&rest, 10, &value) || *rest || value > (*text == '-' ? 20u : 19u))
        return err_set(err, ERR_INVALID, "\"%.64s\" is not a niceness; it is -20 to 19", text);
    *ret = *text == '-' ? -(int)value : (int)value;
    return 0;
}

static bool take_limit(const char **text, uint64_t *ret)
{
    static const char unlimited[] = "unlimited";
    size_t length = strlen(unlimited);
    if (strncmp(*text, unlimited, length) != 0)
        return take_number(text, 10, ret);
    *text += length;
    *ret = UINT64_MAX; /* RLIM_INFINITY */
    return true;
}

int rlimit_parse(const char *text, char name[UNITS_RLIMIT_NAME_MAX], struct sandstorm_rlimit *ret,
                 struct err *err)
{
    size_t length = strspn(text, "abcdefghijklmnopqrstuvwxyz");
    const char *rest = text + length;
    uint64_t soft = 0, hard = 0;
    bool good = length > 0 && length < UNITS_RLIMIT_NAME_MAX && *rest == '=';
    if (good) {
        rest++;
        good = take_limit(&rest, &soft);
        hard = soft;
    }
    if (good && *rest == ':') {
        rest++;
        good = take_limit(&rest, &hard) && soft <= hard;
    }
    if (!good || *rest)
        return err_set(err, ERR_INVALID,
                       "\"%.64s\" is not a limit; write it like nofile=1024, nofile=1024:4096 or "
                       "core=unlimited",
                       text);
    (void)snprintf(name, UNITS_RLIMIT_NAME_MAX, "%.*s", (int)length, text);
    *ret = (struct sandstorm_rlimit){ name, soft, hard };
    return 0;
}
