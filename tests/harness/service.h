/* One of our daemons under a test, as systemd would run it: with a socket for sd_notify(3), by
 * which it says when it is ready and what it is doing, and a log file. It can be started again
 * after it ended. One thread. */
#pragma once

#include "tests/harness/proc.h"

#include <stdbool.h>

#define SERVICE_STATUS_MAX 512

struct service;

struct service_config {
    const char *name; /* of its files: NAME.log, NAME.notify */
    const char *dir;  /* where they are */
    const char *const *argv;
    const char *const *env; /* NULL-ended */
};

/* Copies the configuration; starts nothing. */
int service_new(const struct service_config *config, struct service **ret,
                struct err *err) must_use;
void service_free(struct service *service);

const char *service_name(const struct service *service);
/* NULL when it does not run. */
struct proc *service_proc(const struct service *service);
const char *service_status(const struct service *service);
const char *service_log(const struct service *service);
/* What the next start passes on instead of what service_new() was given. */
int service_set_argument(struct service *service, unsigned index, const char *value,
                         struct err *err) must_use;

/* A variable for the next starts: "NAME=VALUE" in place of what it was, "NAME" to drop it. */
int service_set_env(struct service *service, const char *variable, struct err *err) must_use;

int service_start(struct service *service, struct err *err) must_use;
/* -1 when it has ended by itself; err says how, and what it said last. */
int service_check(struct service *service, struct err *err) must_use;
/* Until it is ready (READY=1), at once when it was already. -1 when it ends before that. */
int service_wait_ready(struct service *service, uint64_t timeout_us, struct err *err) must_use;
/* Until its status begins with `prefix`. */
int service_wait_status(struct service *service, const char *prefix, uint64_t timeout_us,
                        struct err *err) must_use;
/* Forgets the status, so that the next wait is for one that is said from now on. */
void service_forget_status(struct service *service);
/* Until a line of its log contains `text`. */
int service_wait_log(struct service *service, const char *text, uint64_t timeout_us,
                     struct err *err) must_use;

/* Until it has ended by itself; *ret_status as a shell has it. It can be started again. */
int service_wait_ended(struct service *service, int *ret_status, struct err *err) must_use;
/* SIGTERM and the end of it; -1 also when the daemon did not exit with 0. */
int service_stop(struct service *service, struct err *err) must_use;
/* SIGKILL and the end of it. */
int service_kill(struct service *service, struct err *err) must_use;
int service_signal(struct service *service, int number, struct err *err) must_use;
