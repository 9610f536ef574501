/* A real process under a test: started, watched, killed. Each one runs below a guard of its own
 * (tests/harness/guard.c), which takes it and everything that it started down as soon as the test
 * lets go or dies, however it dies. Nothing here waits without a deadline. One thread. */
#pragma once

#include "common/err.h"

#include <stdint.h>
#include <sys/types.h>

#define PROC_DEADLINE_US 60000000u /* for what takes milliseconds; sanitizers are slow */

struct proc;

struct proc_spec {
    const char *const *argv; /* NULL-ended; argv[0] is looked up in PATH when it has no slash */
    const char *const *env;  /* NULL, or NULL-ended NAME=VALUE on top of our own environment, of
                                which SANDSTORM_* and NOTIFY_SOCKET are not passed on */
    int in, out, err;        /* -1: /dev/null. Stay the caller's. */
};

int proc_start(const struct proc_spec *spec, struct proc **ret, struct err *err) must_use;
/* Kills what still runs, and everything below it. */
void proc_free(struct proc *proc);

/* Of the process itself, not of its guard. */
pid_t proc_pid(const struct proc *proc);
/* Readable when the process has ended, for poll(2). */
int proc_fd(const struct proc *proc);
int proc_signal(struct proc *proc, int number, struct err *err) must_use;
/* *ret_status is that of waitpid(2). ERR_TIMEOUT when it still runs. May be called again. */
int proc_wait(struct proc *proc, uint64_t timeout_us, int *ret_status, struct err *err) must_use;

/* What a shell would call it: the exit status, or 128 + the signal. */
int proc_exit_status(int status);

struct proc_result {
    int status;      /* as a shell has it */
    char *out, *err; /* each ends with a NUL that is not counted */
    size_t out_size, err_size;
};

/* Runs it to its end with `input` on its stdin and its output in memory. The spec's descriptors are
 * not used. ERR_TIMEOUT kills it. */
int proc_run(const struct proc_spec *spec, const void *input, size_t input_size,
             uint64_t timeout_us, struct proc_result *ret, struct err *err) must_use;
void proc_result_done(struct proc_result *result);
#define CLEANUP_RESULT CLEANUP(proc_result_done)

static inline void proc_cleanup(struct proc **proc)
{
    proc_free(*proc);
}
#define CLEANUP_PROC CLEANUP(proc_cleanup)
