/* The Sandstorm client library: list and watch sandboxes, run commands in them through an
 * orchestrator, look at what ran and what was logged, and say who may do so. Self-contained; link
 * with libsandstorm. A client and everything made from it belong to one thread. Functions return 0,
 * or -1 and fill the error, which may be NULL. What is handed to a callback, texts and all, lives
 * as long as the callback. */
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
    /* NULL, or called when the certificate there has ended and a connection is to be made again: a
     * chance to put a new one in its place. */
    void (*renew)(void *userdata);
    void (*release)(void *userdata); /* NULL, or called when the client is gone */
    void *userdata;
};

/* Reads the identity, and again whenever it connects anew; the first call connects. */
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
    SANDSTORM_STATE_REVOKED,
};
const char *sandstorm_state_name(enum sandstorm_state state);

/* Something about a sandbox that its operator should know. */
struct sandstorm_event {
    int64_t time_unix_ms;
    const char *kind, *detail; /* "duplicate_link", ... */
};

/* What a heartbeat said, in hundredths of a per cent; load in hundredths. */
struct sandstorm_sample {
    int64_t time_unix_ms;
    uint32_t cpu_basis_points, memory_basis_points, load1_centi;
};

/* The share of the last 10 s in which something waited, in hundredths of a per cent. */
struct sandstorm_pressure {
    bool known; /* the kernel says it */
    uint32_t cpu_some, memory_some, memory_full, io_some, io_full;
};

/* Metrics are zero until the first heartbeat, times until the thing has happened. */
struct sandstorm_sandbox {
    const char *id, *vm_id, *hostname, *kernel, *os, *arch, *boot_id;
    const char *agent_version, *runner_version;
    const char *labels;          /* "env=ci,role=web": given by operators */
    const char *reported_labels; /* what its agent says: any text, in that form; trust nothing */
    enum sandstorm_state state;
    bool runner_connected, draining;
    int64_t state_unix_ms, connected_unix_ms, last_seen_unix_ms;
    int64_t enrolled_unix_ms, revoked_unix_ms, certificate_not_after_unix_ms;
    const char *last_error; /* why it was away before it last came, in its words; "" when nothing */
    int64_t last_error_unix_ms;
    uint64_t heartbeat_interval_ms;
    int64_t clock_skew_ms; /* how far its clock is ahead of the orchestrator's */
    uint32_t cpus, cpu_basis_points, load1_centi, processes, commands_running;
    uint64_t memory_total_bytes, memory_available_bytes, disk_total_bytes, disk_free_bytes;
    uint64_t state_disk_total_bytes,
        state_disk_free_bytes;                           /* 0: the agent's state is on the disk */
    uint64_t network_received_bytes, network_sent_bytes; /* since boot */
    uint64_t spool_bytes, uptime_s;
    struct sandstorm_pressure pressure;
    const struct sandstorm_event *events;   /* oldest first; sandstorm_sandbox_get() only */
    const struct sandstorm_sample *samples; /* the same */
    size_t event_count, sample_count;
};

struct sandstorm_list_options {
    const char *selector; /* NULL, or "env=ci,role!=db,gpu,!old": all of them must hold */
    unsigned states;      /* SANDSTORM_STATE_BIT() of each that is wanted; 0: all but evicted */
};
#define SANDSTORM_STATE_BIT(state) (1u << (state))
#define SANDSTORM_STATES_ALL       (~1u)

typedef void (*sandstorm_sandbox_fn)(void *userdata, const struct sandstorm_sandbox *sandbox);
/* Calls `each` for every sandbox, in order of id. NULL options: all but evicted ones. */
int sandstorm_list(struct sandstorm_client *client, const struct sandstorm_list_options *options,
                   sandstorm_sandbox_fn each, void *userdata, struct sandstorm_error *error);
int sandstorm_sandbox_get(struct sandstorm_client *client, const char *id, sandstorm_sandbox_fn one,
                          void *userdata, struct sandstorm_error *error);

enum sandstorm_change {
    SANDSTORM_CHANGE_UNKNOWN = 0,
    SANDSTORM_CHANGE_SANDBOX, /* it is there, or something about it has changed */
    SANDSTORM_CHANGE_GONE,    /* it is not there any more; only its id is set */
    SANDSTORM_CHANGE_CURRENT, /* all that was there at the beginning has been told; no sandbox */
};

struct sandstorm_watch_options {
    const char *selector, *id; /* NULL, or which ones, or which one */
    bool metrics;              /* every heartbeat is a change */
    /* false ends it. sandbox is NULL for CURRENT. */
    bool (*each)(void *userdata, enum sandstorm_change change,
                 const struct sandstorm_sandbox *sandbox);
    void *userdata;
};
/* First what is there, then what changes; 0 only when the caller ends it. */
int sandstorm_watch(struct sandstorm_client *client, const struct sandstorm_watch_options *options,
                    struct sandstorm_error *error);
/* Waits until it can run commands; SANDSTORM_TIMEOUT when it cannot in time. 0: ten minutes; at
 * most an hour. */
int sandstorm_ready(struct sandstorm_client *client, const char *id, uint64_t timeout_ms,
                    sandstorm_sandbox_fn one, void *userdata, struct sandstorm_error *error);

/* What follows changes a sandbox, and hands it on as it is then; `one` may be NULL. */

/* Adds or changes the labels of `set` (NULL: none) and takes those away whose names are in `remove`
 * (NULL, or NULL-ended). */
int sandstorm_sandbox_label(struct sandstorm_client *client, const char *id, const char *set,
                            const char *const *remove, sandstorm_sandbox_fn one, void *userdata,
                            struct sandstorm_error *error);
/* A draining one takes no new commands; false ends that. */
int sandstorm_sandbox_drain(struct sandstorm_client *client, const char *id, bool draining,
                            sandstorm_sandbox_fn one, void *userdata,
                            struct sandstorm_error *error);
/* Forgets it, its events and its log. Refused while it is connected, unless forced. */
int sandstorm_sandbox_remove(struct sandstorm_client *client, const char *id, bool force,
                             struct sandstorm_error *error);
/* Its stream ends and its certificates do not count any more. */
int sandstorm_sandbox_revoke(struct sandstorm_client *client, const char *id,
                             sandstorm_sandbox_fn one, void *userdata,
                             struct sandstorm_error *error);

/* What the daemons of a sandbox wrote, and what the orchestrator wrote about it. */

enum sandstorm_level {
    SANDSTORM_LEVEL_UNKNOWN = 0,
    SANDSTORM_LEVEL_ERROR,
    SANDSTORM_LEVEL_WARN,
    SANDSTORM_LEVEL_INFO,
    SANDSTORM_LEVEL_DEBUG,
};
const char *sandstorm_level_name(enum sandstorm_level level);

struct sandstorm_log_field {
    const char *name, *value;
};

struct sandstorm_log_line {
    int64_t time_unix_us;
    enum sandstorm_level level;
    const char *origin; /* "agent", "runner", "orchestrator" */
    const char *message;
    const struct sandstorm_log_field *fields;
    size_t field_count;
};

struct sandstorm_logs_options {
    const char *sandbox;
    const char *command_id; /* NULL, or only what belongs to this one */
    int64_t since_unix_us;  /* 0: all that are kept */
    uint32_t last;          /* at most so many, the last ones; 0: all */
    bool follow;            /* and then new ones, for ever */
    /* false ends it. */
    bool (*each)(void *userdata, const struct sandstorm_log_line *line);
    void *userdata;
};
int sandstorm_logs(struct sandstorm_client *client, const struct sandstorm_logs_options *options,
                   struct sandstorm_error *error);

/* Join tokens. */

struct sandstorm_token {
    const char *id;               /* not secret */
    const char *sandbox, *prefix; /* what it is bound to; both "": any free id */
    const char *labels, *created_by;
    uint32_t uses, uses_max;
    int64_t created_unix_ms, expires_unix_ms, revoked_unix_ms;
    const char *secret, *ca_fingerprint; /* sandstorm_token_create() only, and only once */
};

struct sandstorm_token_options {
    const char *sandbox, *prefix; /* NULL, or one of the two */
    const char *labels;           /* NULL, or "env=ci,role=web" */
    uint32_t uses_max;            /* 0: once */
    uint64_t ttl_ms;              /* 0: 15 minutes */
};

typedef void (*sandstorm_token_fn)(void *userdata, const struct sandstorm_token *token);
int sandstorm_token_create(struct sandstorm_client *client,
                           const struct sandstorm_token_options *options, sandstorm_token_fn one,
                           void *userdata, struct sandstorm_error *error);
int sandstorm_token_list(struct sandstorm_client *client, sandstorm_token_fn each, void *userdata,
                         struct sandstorm_error *error);
int sandstorm_token_revoke(struct sandstorm_client *client, const char *id, sandstorm_token_fn one,
                           void *userdata, struct sandstorm_error *error);

/* People and programs that may call the orchestrator; the one that a client is made for, too. */

enum sandstorm_role {
    SANDSTORM_ROLE_UNKNOWN = 0,
    SANDSTORM_ROLE_VIEWER,
    SANDSTORM_ROLE_OPERATOR,
    SANDSTORM_ROLE_ADMIN,
};
const char *sandstorm_role_name(enum sandstorm_role role);
int sandstorm_role_parse(const char *text, enum sandstorm_role *ret, struct sandstorm_error *error);

struct sandstorm_user {
    const char *name, *scope, *created_by; /* scope as labels; "": all sandboxes */
    enum sandstorm_role role;
    int64_t created_unix_ms, last_login_unix_ms, revoked_unix_ms, login_expires_unix_ms;
    const char *login_key, *ca_fingerprint; /* sandstorm_user_create() only, and only once */
};

struct sandstorm_user_options {
    const char *name, *scope; /* scope: NULL, or labels */
    enum sandstorm_role role;
    uint64_t ttl_ms; /* of the login key; 0: 12 hours */
};

typedef void (*sandstorm_user_fn)(void *userdata, const struct sandstorm_user *user);
int sandstorm_user_create(struct sandstorm_client *client,
                          const struct sandstorm_user_options *options, sandstorm_user_fn one,
                          void *userdata, struct sandstorm_error *error);
int sandstorm_user_list(struct sandstorm_client *client, sandstorm_user_fn each, void *userdata,
                        struct sandstorm_error *error);
int sandstorm_user_revoke(struct sandstorm_client *client, const char *name, sandstorm_user_fn one,
                          void *userdata, struct sandstorm_error *error);

struct sandstorm_self {
    const char *uri, *scope;
    enum sandstorm_role role;
    int64_t not_after_unix_ms; /* of the certificate */
};
int sandstorm_whoami(struct sandstorm_client *client,
                     void (*one)(void *userdata, const struct sandstorm_self *self), void *userdata,
                     struct sandstorm_error *error);

/* The audit. Every row carries a hash over itself and the row before; the library checks them. */

#define SANDSTORM_HASH_LEN 32

struct sandstorm_audit_row {
    uint64_t seq;
    int64_t time_unix_ms;
    const char *actor, *action, *target, *detail;
    bool allowed;
    const uint8_t *hash;
};

enum sandstorm_audit_fault {
    SANDSTORM_AUDIT_WHOLE = 0,
    SANDSTORM_AUDIT_CHANGED,   /* row `first` does not match its hash or the row before it */
    SANDSTORM_AUDIT_MISSING,   /* rows `first` to `last` are not there */
    SANDSTORM_AUDIT_UNORDERED, /* row `first` came after row `last` */
    SANDSTORM_AUDIT_CUT,       /* rows `first` to `last`, at the end, are not there */
    SANDSTORM_AUDIT_NO_HEAD,   /* the orchestrator has no note of where the audit ends */
};

struct sandstorm_audit_report {
    uint64_t rows, seq; /* how many there were, and the last one */
    uint8_t hash[SANDSTORM_HASH_LEN];
    enum sandstorm_audit_fault fault; /* the first one */
    uint64_t first, last;
};

struct sandstorm_audit_options {
    uint64_t after_seq; /* rows after this one */
    uint32_t last;      /* where after_seq is 0: only so many, the last ones; 0: all */
    bool follow;        /* and then new ones, for ever */
    /* false ends it. The report is that of the rows up to and with this one. */
    bool (*each)(void *userdata, const struct sandstorm_audit_row *row,
                 const struct sandstorm_audit_report *report);
    void *userdata;
};
/* 0 also when the chain is broken: see the report. */
int sandstorm_audit(struct sandstorm_client *client, const struct sandstorm_audit_options *options,
                    struct sandstorm_audit_report *ret, struct sandstorm_error *error);

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
    char lost[24];       /* LOST: "rebooted", "runner restarted", "released", "never started" */
    char detail[SANDSTORM_TEXT_MAX];
    uint64_t duration_us, stdout_bytes, stderr_bytes, gap_bytes;
    uint64_t user_us, system_us, max_rss_bytes;
    uint64_t peak_memory_bytes; /* of the whole tree; 0: the kernel does not say */
    unsigned survivors;         /* processes that were left when it had ended */
    char not_enforced[64];      /* "memory, pids": limits that the kernel of the sandbox has not */
    bool stream_held_open;
};

/* How a shell would say it: the command's own code; 128 + n for a signal; 124 for a timeout; 126 or
 * 127 when it could not be run; 125 when it failed before that; 255 when it cannot be known. */
int sandstorm_exit_status(const struct sandstorm_outcome *outcome);

/* The history. */

enum sandstorm_command_state {
    SANDSTORM_COMMAND_OTHER = 0, /* what this library is too old to know */
    SANDSTORM_COMMAND_ORDERED,   /* written down; the runner has not spoken of it yet */
    SANDSTORM_COMMAND_RUNNING,
    SANDSTORM_COMMAND_ENDED,
    SANDSTORM_COMMAND_UNKNOWN, /* its sandbox is away for long; it may say when it comes back */
};
const char *sandstorm_command_state_name(enum sandstorm_command_state state);

struct sandstorm_command {
    const char *id, *sandbox;
    const char *ordered_by; /* "client/ann" */
    const char *labels;     /* as its client gave them: any text */
    enum sandstorm_command_state state;
    int64_t ordered_unix_ms, started_unix_ms, ended_unix_ms, pid;
    uint64_t end_offset;              /* how much it wrote; 0 until it has ended */
    uint64_t stored_from, stored_to;  /* what of its output can be read */
    bool terminal;                    /* it has one */
    unsigned clients;                 /* attached to it at present */
    struct sandstorm_outcome outcome; /* result UNKNOWN until it has ended */
};

struct sandstorm_commands_options {
    const char *sandbox;    /* NULL: of all */
    const char *command_id; /* NULL, or only this one */
    const char *selector;   /* NULL, or over the commands' own labels, as for sandboxes */
    const char *ordered_by; /* NULL, or "client/ann" */
    int64_t since_unix_ms, until_unix_ms; /* ordered at or after, and before; 0: any time */
    unsigned states;                      /* SANDSTORM_STATE_BIT() of each that is wanted; 0: all */
    /* false ends it. */
    bool (*each)(void *userdata, const struct sandstorm_command *command);
    void *userdata;
};
/* Newest first. */
int sandstorm_commands(struct sandstorm_client *client,
                       const struct sandstorm_commands_options *options,
                       struct sandstorm_error *error);

/* What to run. All zero but sandbox and argv, or shell, is a plain command without input. */

struct sandstorm_rlimit {
    const char *name; /* "nofile" */
    uint64_t soft, hard;
};

enum sandstorm_input {
    SANDSTORM_INPUT_NONE = 0,
    SANDSTORM_INPUT_STREAM, /* comes from a client, until it says that it ends */
    SANDSTORM_INPUT_INLINE, /* input_data, then its end */
};

/* What happens when output that nobody has taken yet fills the sandbox's spool. */
enum sandstorm_when_full {
    SANDSTORM_FULL_AUTO = 0, /* BLOCK while a client is attached, else DROP_OLDEST */
    SANDSTORM_FULL_BLOCK,    /* the command waits */
    SANDSTORM_FULL_DROP_OLDEST,
};

struct sandstorm_spec {
    const char *sandbox;
    const char *command_id;   /* a lower-case UUID; NULL: a new one is chosen */
    const char *const *argv;  /* NULL-ended, or NULL when shell is given */
    const char *shell;        /* NULL, or run by /bin/sh -c */
    const char *const *env;   /* NULL, or NULL-ended NAME=VALUE */
    bool env_clear;           /* nothing but env */
    const char *cwd;          /* NULL: the user's home */
    const char *user, *group; /* name or number; NULL: the runner's own, the user's own */
    bool umask_given;
    unsigned umask;
    int nice;
    const struct sandstorm_rlimit *rlimits;
    size_t rlimit_count;
    uint64_t memory_bytes, cpu_millis, pids; /* of the whole tree; 0: no limit */
    bool best_effort; /* start also where the kernel cannot enforce them, and say so */
    uint64_t timeout_ms, kill_grace_ms; /* 0: none; the sandbox's own */
    bool terminal;                      /* as stdin, stdout and stderr */
    unsigned rows, columns;
    const char *terminal_type;  /* NULL, or what TERM is to be */
    enum sandstorm_input input; /* sandstorm_exec_start() with a stdin_fd streams in any case */
    const void *input_data;
    size_t input_size;
    enum sandstorm_when_full when_full;
    uint64_t spool_bytes;       /* 0: the sandbox's own */
    bool kill_when_client_gone; /* and after how long: */
    uint64_t client_gone_after_ms;
    const char *labels; /* NULL, or "job=7,team=web" */
};

/* By id, from any client that may. `one` may be NULL. */

typedef void (*sandstorm_command_fn)(void *userdata, const struct sandstorm_command *command);
/* Starts it and comes back when that is written down; nobody is attached. Repeats itself until
 * there is an answer; that cannot run it twice. */
int sandstorm_command_start(struct sandstorm_client *client, const struct sandstorm_spec *spec,
                            sandstorm_command_fn one, void *userdata,
                            struct sandstorm_error *error);
int sandstorm_command_get(struct sandstorm_client *client, const char *id, sandstorm_command_fn one,
                          void *userdata, struct sandstorm_error *error);
/* Until it has ended, through restarts of the orchestrator; SANDSTORM_TIMEOUT when it has not in
 * time. 0: for ever. */
int sandstorm_command_wait(struct sandstorm_client *client, const char *id, uint64_t timeout_ms,
                           sandstorm_command_fn one, void *userdata, struct sandstorm_error *error);
/* By name without SIG; to the whole tree, or to its leader alone. */
int sandstorm_command_signal(struct sandstorm_client *client, const char *id, const char *signal,
                             bool leader, struct sandstorm_error *error);
/* TERM, then KILL when the grace has passed. 0: the grace that it was started with. */
int sandstorm_command_cancel(struct sandstorm_client *client, const char *id, uint64_t grace_ms,
                             struct sandstorm_error *error);
/* Where in the input the bytes belong, counted from the first one ever sent, so that it can be
 * repeated; NULL: behind what there is. *ret_end, which may be NULL, is the next byte's offset. */
int sandstorm_command_write(struct sandstorm_client *client, const char *id, const uint64_t *offset,
                            const void *data, size_t size, uint64_t *ret_end,
                            struct sandstorm_error *error);
int sandstorm_command_close_stdin(struct sandstorm_client *client, const char *id,
                                  struct sandstorm_error *error);

/* With a client attached. When the connection is lost, it is made again and goes on at the right
 * byte of output and input; the command does not notice. */

struct sandstorm_exec;

struct sandstorm_streams {
    /* A descriptor, or -1 for a callback (output) or nothing (input). */
    int stdin_fd, stdout_fd, stderr_fd;
    /* NULL, or sees what was read from stdin_fd before it is sent, may change it, take bytes out,
     * and put one in, for which there is room; returns how many are left. */
    size_t (*typed)(void *userdata, void *data, size_t size);
    /* Output that has no descriptor; taken when it returns. stream is 1 or 2. */
    void (*output)(void *userdata, int stream, const void *data, size_t size);
    /* A connection went away or came back, a request was refused, bytes were dropped, ... */
    void (*notice)(void *userdata, const char *text);
    /* NULL, or called when the orchestrator has accepted; not again after a reconnect. */
    void (*attached)(void *userdata);
    void *userdata;
    uint64_t give_up_after_ms; /* without a connection; 0: ten minutes */
};

struct sandstorm_exec_options {
    struct sandstorm_spec spec;
    struct sandstorm_streams streams;
};
/* Starts it, or attaches when command_id is known to the sandbox with the same spec. */
int sandstorm_exec_start(struct sandstorm_client *client,
                         const struct sandstorm_exec_options *options, struct sandstorm_exec **ret,
                         struct sandstorm_error *error);

struct sandstorm_attach_options {
    const char *command_id;
    bool watch;           /* looks only, and takes over from nobody; input is not used */
    bool snapshot;        /* ends when all that there is now has been told */
    uint64_t from_offset; /* where in the output to begin */
    bool from_end;        /* or so many bytes before its end: */
    uint64_t last_bytes;
    struct sandstorm_streams streams;
};
/* Also to one that has ended: its output is told, as far as it is kept, and its end. */
int sandstorm_exec_attach(struct sandstorm_client *client,
                          const struct sandstorm_attach_options *options,
                          struct sandstorm_exec **ret, struct sandstorm_error *error);

const char *sandstorm_exec_id(const struct sandstorm_exec *exec);
/* Up to which offset its output has been taken. */
uint64_t sandstorm_exec_offset(const struct sandstorm_exec *exec);
/* false: sandstorm_exec_start() failed before anything was started, for certain. */
bool sandstorm_exec_may_run(const struct sandstorm_exec *exec);
/* By name without SIG, to the whole process tree; as soon as there is a connection. */
int sandstorm_exec_signal(struct sandstorm_exec *exec, const char *name,
                          struct sandstorm_error *error);
int sandstorm_exec_cancel(struct sandstorm_exec *exec, struct sandstorm_error *error);
int sandstorm_exec_resize(struct sandstorm_exec *exec, unsigned rows, unsigned columns,
                          struct sandstorm_error *error);
/* Lets the command go on without us: sandstorm_exec_wait() returns SANDSTORM_CANCELLED. */
void sandstorm_exec_detach(struct sandstorm_exec *exec);
/* Until the end record is here and every byte is taken; with snapshot also without an end record.
 * -1 means that there is no result, and says why. */
int sandstorm_exec_wait(struct sandstorm_exec *exec, struct sandstorm_outcome *ret,
                        struct sandstorm_error *error);
/* Lets go; a command that has not ended follows its client_gone policy. */
void sandstorm_exec_free(struct sandstorm_exec *exec);

#ifdef __cplusplus
}
#endif
