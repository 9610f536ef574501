/* Errors: 0 or -1 plus a struct err on the caller's stack. Set where a fault is detected, wrapped
 * with context on the way up, shown to a person or sent to a peer once, at the top.
 * Any thread; a struct err belongs to one thread at a time. */
#pragma once

#include "common/macros.h"

#include <errno.h>

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

/* Each of these is -1, so that `return err_set(...)` is the whole failure path; they are macros so
 * that the compiler and the analyzers see it too. A NULL err is allowed: the caller wants to know
 * that it failed, not why. */
#define err_set(err, code, ...)  (err_fill((err), (code), __VA_ARGS__), -1)
#define err_errno(err, num, ...) (err_fill_errno((err), (num), __VA_ARGS__), -1)
#define err_nomem(err)           err_errno((err), ENOMEM, "cannot allocate memory")
/* Puts "context: " in front of the text. */
#define err_wrap(err, ...) (err_prefix((err), __VA_ARGS__), -1)

void err_fill(struct err *err, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void err_fill_errno(struct err *err, int errnum, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void err_prefix(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

const char *err_name(enum err_code code);
/* ERR_NONE for what is not the name of an error. */
enum err_code err_from_name(const char *name);
/* The grpc_status_code as a plain number, so that code without gRPC can speak it. */
int err_grpc_status(enum err_code code);
enum err_code err_from_grpc_status(int status);
int err_exit_code(enum err_code code);
