/* The Sandstorm client library: list sandboxes and run commands in them through an orchestrator.
 * Self-contained; link with libsandstorm. A client and everything made from it belong to one
 * thread. Functions return 0, or -1 and fill the error, which may be NULL. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SANDSTORM_TEXT_MAX 512

enum sandstorm_code {
    SANDSTORM_OK = 0,
    SANDSTORM_INVALID,
    SANDSTORM_NOT_FOUND,
    SANDSTORM_EXISTS,
    SANDSTORM_DENIED,
    SANDSTORM_UNAUTHENTICATED,
    SANDSTORM_UNAVAILABLE,
    SANDSTORM_EXHAUSTED,
    SANDSTORM_PRECONDITION,
    SANDSTORM_UNIMPLEMENTED,
    SANDSTORM_TIMEOUT,
    SANDSTORM_CANCELLED,
    SANDSTORM_PROTOCOL,
    SANDSTORM_INTERNAL,
    SANDSTORM_SYSTEM,
};

struct sandstorm_error {
    enum sandstorm_code code;
    char text[SANDSTORM_TEXT_MAX]; /* a sentence for a person, which says what to do */
};

/* Connecting. */

struct sandstorm_client;

struct sandstorm_client_options {
    const char *endpoint;     /* HOST:PORT */
    const char *identity_dir; /* holds ca.pem, cert.pem, key.pem */
};

/* Reads the identity; the connection is made by the first call. */
int sandstorm_client_new(const struct sandstorm_client_options *options,
                         struct sandstorm_client **ret, struct sandstorm_error *error);
void sandstorm_client_free(struct sandstorm_client *client);

/* Sandboxes. */

enum sandstorm_state {
    SANDSTORM_STATE_UNKNOWN = 0,
    SANDSTORM_STATE_ONLINE,
    SANDSTORM_STATE_SUSPECT,
    SANDSTORM_STATE_OFFLINE,
    SANDSTORM_STATE_EVICTED,
};
const char *sandstorm_state_name(enum sandstorm_state state);

/* Texts live as long as the callback. Metrics are zero until the first heartbeat. */
struct sandstorm_sandbox {
    const char *id, *vm_id, *hostname, *kernel, *os, *arch, *agent_version;
    enum sandstorm_state state;
    bool runner_connected;
    int64_t connected_unix_ms, last_seen_unix_ms;
    uint32_t cpus, cpu_basis_points, processes, commands_running;
    uint64_t memory_total_bytes, memory_available_bytes, disk_total_bytes, disk_free_bytes;
};

/* Calls `each` for every sandbox, in order of id. */
int sandstorm_list(struct sandstorm_client *client,
                   void (*each)(void *userdata, const struct sandstorm_sandbox *sandbox),
                   void *userdata, struct sandstorm_error *error);

/* Commands. */

enum sandstorm_result {
    SANDSTORM_RESULT_UNKNOWN = 0, /* no end record was seen */
    SANDSTORM_RESULT_EXITED,
    SANDSTORM_RESULT_SIGNALED,
    SANDSTORM_RESULT_TIMED_OUT,
    SANDSTORM_RESULT_CANCELLED,
    SANDSTORM_RESULT_START_FAILED,
    SANDSTORM_RESULT_OOM_KILLED,
    SANDSTORM_RESULT_LOST,
};

/* One result; the fields that belong to others are zero. */
struct sandstorm_outcome {
    enum sandstorm_result result;
    unsigned exit_code;   /* EXITED */
    unsigned signal;      /* SIGNALED */
    char signal_name[16]; /* "KILL" */
    bool core_dumped;
    int error_number;    /* START_FAILED: errno in the sandbox */
    char error_name[32]; /* "ENOENT" */
    char step[16];       /* "exec", "cwd", "spec" ... */
    char detail[SANDSTORM_TEXT_MAX];
    uint64_t duration_us, stdout_bytes, stderr_bytes, gap_bytes;
    bool stream_held_open;
};

/* How a shell would say it: the command's own code; 128 + n for a signal; 124 for a timeout; 126 or
 * 127 when it could not be run; 125 when it failed before that; 255 when it cannot be known. */
int sandstorm_exit_status(const struct sandstorm_outcome *outcome);

struct sandstorm_exec;

struct sandstorm_exec_options {
    const char *sandbox;
    const char *command_id;     /* NULL: the orchestrator chooses */
    const char *const *argv;    /* NULL-ended, or NULL when shell is given */
    const char *shell;          /* NULL, or run by /bin/sh -c */
    const char *const *env;     /* NULL, or NULL-ended NAME=VALUE */
    const char *cwd;            /* NULL: the user's home */
    uint64_t timeout_ms;        /* 0: none */
    bool kill_when_client_gone; /* and after how long: */
    uint64_t client_gone_after_ms;
    /* Streams: a descriptor, or -1 for a callback (output) or nothing (input). */
    int stdin_fd, stdout_fd, stderr_fd;
    /* Output that has no descriptor; taken when it returns. stream is 1 or 2. */
    void (*output)(void *userdata, int stream, const void *data, size_t size);
    /* The link to the sandbox went away or came back, a request was refused, bytes were dropped. */
    void (*notice)(void *userdata, const char *text);
    void *userdata;
};

/* Starts it, or attaches when command_id is known to the sandbox with the same options. */
int sandstorm_exec_start(struct sandstorm_client *client,
                         const struct sandstorm_exec_options *options, struct sandstorm_exec **ret,
                         struct sandstorm_error *error);
/* Empty until the orchestrator has accepted. */
const char *sandstorm_exec_id(const struct sandstorm_exec *exec);
/* By name without SIG, to the whole process tree. */
int sandstorm_exec_signal(struct sandstorm_exec *exec, const char *name,
                          struct sandstorm_error *error);
/* Until the end record is here and every byte is taken. -1 means that there is no result: it failed
 * before it was accepted, or the connection was lost. */
int sandstorm_exec_wait(struct sandstorm_exec *exec, struct sandstorm_outcome *ret,
                        struct sandstorm_error *error);
/* Lets go; a command that has not ended follows its client_gone policy. */
void sandstorm_exec_free(struct sandstorm_exec *exec);

#ifdef __cplusplus
}
#endif
