/* Logins on this machine, each a context: where an orchestrator is, and a certificate for it.
 *
 *     $XDG_CONFIG_HOME/sandstorm/current                    the name of the one in use
 *     $XDG_CONFIG_HOME/sandstorm/contexts/NAME/context.yaml endpoint, enroll_endpoint
 *     .../contexts/NAME/identity/                           ca.pem, cert.pem, key.pem
 *     .../contexts/NAME/identity.pending/key.pem            a login that has not ended yet
 *
 * ~/.config stands in for an XDG_CONFIG_HOME that is not set. Blocking, main thread. */
#pragma once

#include "common/err.h"

#include <stdbool.h>

struct context {
    char *name;
    char *dir;          /* .../contexts/NAME */
    char *identity_dir; /* below it */
    char *endpoint, *enroll_endpoint;
};
void context_done(struct context *context);
#define CLEANUP_CONTEXT CLEANUP(context_done)

/* What a name may be: it becomes a directory. */
int context_name_check(const char *name, struct err *err) must_use;
/* A context of that name for that endpoint, which need not be on disk; enroll_endpoint NULL: the
 * next port of the same host. name NULL: the host. */
int context_make(const char *name, const char *endpoint, const char *enroll_endpoint,
                 struct context *ret, struct err *err) must_use;
/* HOST:PORT+1. */
int context_enroll_endpoint(const char *endpoint, char **ret, struct err *err) must_use;
/* The directory of the context, for what is put into it. */
int context_create(const struct context *context, struct err *err) must_use;
/* Writes context.yaml and makes it the current one. */
int context_save(const struct context *context, struct err *err) must_use;

/* ERR_NOT_FOUND when there is none of that name. */
int context_load(const char *name, struct context *ret, struct err *err) must_use;
/* *ret is NULL when there is none. */
int context_current(char **ret, struct err *err) must_use;
/* Only one that is there. */
int context_use(const char *name, struct err *err) must_use;
/* Calls `each` for every name, in order. */
int context_list(void (*each)(void *userdata, const char *name, bool current), void *userdata,
                 struct err *err) must_use;
