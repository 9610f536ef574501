/* The error value and the one table that maps a code to its name, its gRPC status and the exit
 * status of a command line tool. Used by everything. */
#include "common/err.h"

#include "common/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct err_row {
    const char *name;
    int grpc_status;
    int exit_code;
};

static const struct err_row rows[ERR_CODE_COUNT_] = {
    [ERR_NONE] = { "ok", 0, 0 },
    [ERR_INVALID] = { "invalid", 3, 2 },
    [ERR_NOT_FOUND] = { "not-found", 5, 1 },
    [ERR_EXISTS] = { "exists", 6, 1 },
    [ERR_DENIED] = { "denied", 7, 1 },
    [ERR_UNAUTHENTICATED] = { "unauthenticated", 16, 1 },
    [ERR_UNAVAILABLE] = { "unavailable", 14, 1 },
    [ERR_EXHAUSTED] = { "exhausted", 8, 1 },
    [ERR_PRECONDITION] = { "precondition", 9, 1 },
    [ERR_UNIMPLEMENTED] = { "unimplemented", 12, 1 },
    [ERR_TIMEOUT] = { "timeout", 4, 1 },
    [ERR_CANCELLED] = { "cancelled", 1, 1 },
    [ERR_PROTOCOL] = { "protocol", 3, 1 },
    [ERR_INTERNAL] = { "internal", 13, 1 },
    [ERR_SYSTEM] = { "system", 13, 1 },
};

/* Adds ": tail", cuts what does not fit, and mends a character that a cut went through: texts
 * travel in strings that must be UTF-8. */
static void append(struct err *err, size_t used, const char *tail)
{
    const char *const parts[] = { ": ", tail };
    used = MIN(used, sizeof(err->text) - 1);
    for (size_t i = 0; i < ELEMENTS(parts); i++) {
        size_t n = strnlen(parts[i], sizeof(err->text) - 1 - used);
        (void)memcpy(err->text + used, parts[i], n);
        used += n;
    }
    err->text[used] = '\0';
    utf8_clean(err->text);
}

void err_fill(struct err *err, enum err_code code, const char *fmt, ...)
{
    if (!err)
        return;
    va_list ap;
    va_start(ap, fmt);
    err->code = code;
    err->sys_errno = 0;
    (void)vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    utf8_clean(err->text);
}

void err_fill_errno(struct err *err, int errnum, const char *fmt, ...)
{
    if (!err)
        return;
    va_list ap;
    va_start(ap, fmt);
    err->code = ERR_SYSTEM;
    err->sys_errno = errnum;
    int n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    char reason[128];
    append(err, (size_t)MAX(n, 0), strerror_r(errnum, reason, sizeof(reason)));
}

void err_prefix(struct err *err, const char *fmt, ...)
{
    if (!err)
        return;
    char inner[ERR_TEXT_MAX];
    (void)memcpy(inner, err->text, sizeof(inner));
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
    va_end(ap);
    append(err, (size_t)MAX(n, 0), inner);
}

const char *err_name(enum err_code code)
{
    return (unsigned)code < ERR_CODE_COUNT_ ? rows[code].name : "unknown";
}

enum err_code err_from_name(const char *name)
{
    for (int code = ERR_NONE + 1; code < ERR_CODE_COUNT_; code++)
        if (strcmp(rows[code].name, name) == 0)
            return (enum err_code)code;
    return ERR_NONE;
}

int err_grpc_status(enum err_code code)
{
    return (unsigned)code < ERR_CODE_COUNT_ ? rows[code].grpc_status : 2;
}

enum err_code err_from_grpc_status(int status)
{
    /* Some codes share a number; the first row wins, so that a peer's INVALID_ARGUMENT is
     * ERR_INVALID and its INTERNAL is ERR_INTERNAL. */
    for (int code = 0; code < ERR_CODE_COUNT_; code++)
        if (rows[code].grpc_status == status)
            return (enum err_code)code;
    return ERR_INTERNAL;
}

int err_exit_code(enum err_code code)
{
    return (unsigned)code < ERR_CODE_COUNT_ ? rows[code].exit_code : 1;
}
