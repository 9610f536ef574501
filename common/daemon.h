/* What every daemon does around its loop: signals, readiness, privileges. Main thread. */
#pragma once

#include "common/loop.h"

struct daemon;

/* Blocks SIGTERM, SIGINT and SIGHUP, ignores SIGPIPE and SIGXFSZ, and makes sure that descriptors 0
 * to 2 are open, so that no other file can take their place; call before any thread exists. */
int daemon_prepare(struct err *err) must_use;
/* The soft limit of open files becomes the hard one; ERR_EXHAUSTED when that is below `needed`.
 * *ret_before, unless NULL, is what it was: for children, which should not inherit ours. */
int daemon_raise_files(uint64_t needed, struct rlimit *ret_before, struct err *err) must_use;
/* Becomes `user` with its groups, for good. Nothing for NULL or "". */
int daemon_drop_privileges(const char *user, struct err *err) must_use;

/* For a process that holds keys: no core dump, and no debugger of the same user. Call after
 * daemon_drop_privileges(): a change of user sets it anew. */
int daemon_hide_memory(struct err *err) must_use;

/* on_stop is called at the first SIGTERM or SIGINT and must lead to loop_quit() in a while; the
 * second one calls it again, in a hurry; the third ends the process. */
int daemon_new(struct loop *loop, void (*on_stop)(void *userdata, bool hurry), void *userdata,
               struct daemon **ret, struct err *err) must_use;
void daemon_free(struct daemon *daemon);

/* sd_notify(3); nothing where no service manager listens. */
void daemon_ready(const char *status_fmt, ...) __attribute__((format(printf, 1, 2)));
void daemon_status(const char *status_fmt, ...) __attribute__((format(printf, 1, 2)));
/* daemon_ready() follows, from whatever this process is by then. */
void daemon_reloading(void);
void daemon_stopping(void);
