/* Errors: 0 or -1 plus a struct err on the caller's stack. Set where a fault is detected, wrapped
 * with context on the way up, shown to a person or sent to a peer once, at the top.
 * Any thread; a struct err belongs to one thread at a time. */
#pragma once

#include "common/macros.h"

#include <stdarg.h>

#define ERR_TEXT_MAX 512

enum err_code {
    ERR_NONE,
    ERR_INVALID,         /* the caller's input is wrong */
    ERR_NOT_FOUND,       /* the thing named does not exist */
    ERR_EXISTS,          /* the name is taken by something else */
    ERR_DENIED,          /* known, but not allowed */
    ERR_UNAUTHENTICATED, /* not known */
    ERR_UNAVAILABLE,     /* may work later: peer away, refused, restarting */
    ERR_EXHAUSTED,       /* a bound was hit */
    ERR_PRECONDITION,    /* right request, wrong state */
    ERR_UNIMPLEMENTED,   /* this version does not do it */
    ERR_TIMEOUT,         /* a deadline passed */
    ERR_CANCELLED,       /* somebody asked to stop */
    ERR_PROTOCOL,        /* a peer broke the protocol */
    ERR_INTERNAL,        /* our bug */
    ERR_SYSTEM,          /* the kernel said no; see sys_errno */
    ERR_CODE_COUNT_
};

struct err {
    enum err_code code;
    int sys_errno;
    char text[ERR_TEXT_MAX];
};

/* Each of these returns -1, so that `return err_set(...)` is the whole failure path. A NULL err is
 * allowed: the caller wants to know that it failed, not why. */
int err_set(struct err *err, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int err_errno(struct err *err, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int err_nomem(struct err *err);

/* Puts "context: " in front of the text. */
int err_wrap(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

const char *err_name(enum err_code code);
/* The grpc_status_code as a plain number, so that code without gRPC can speak it. */
int err_grpc_status(enum err_code code);
enum err_code err_from_grpc_status(int status);
int err_exit_code(enum err_code code);
