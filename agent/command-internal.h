/* The inside of a command, for agent/command*.c only. */
#pragma once

#include "agent/command.h"
#include "common/window.h"
#include "common/wire.h"
#include "sandstorm/runner/kept.pb-c.h"

struct command_pipe {
    struct command *command;
    int fd;
    struct loop_io *io;
    enum spool_stream stream;
    uint64_t bytes;
    /* What lay in the pipe when the leader was reaped: read before the end, whatever the drain. */
    uint64_t must_read;
};

struct command_stdin {
    int fd;
    struct loop_io *io;
    struct buf bytes;
    struct window_receiver window;
    bool eof;    /* the client has sent its last byte */
    bool broken; /* the command has closed its end */
};

enum command_cause { CAUSE_NONE, CAUSE_TIMED_OUT, CAUSE_CANCELLED };

struct command_outcome {
    Sandstorm__V1__Outcome__ResultCase kind;
    unsigned code, signal;
    bool core_dumped;
    int error;
    Sandstorm__V1__StartStep step;
    Sandstorm__V1__LostReason lost;
    char detail[ERR_TEXT_MAX];
    int64_t started_us, ended_us;
    uint64_t duration_us;
    struct rusage usage;
    bool held_open;
};

/* When the id was reserved and the process there: with the pid they tell it from any other. */
struct command_keep {
    uint64_t reserved_boot_us, started_boot_us;
    int64_t reserved_unix_us;
};

struct command {
    struct command_host host;
    struct command_id id;
    uint8_t digest[COMMAND_DIGEST_LEN];
    enum command_state state;

    pid_t pid;
    int pidfd; /* -1 once reaped */
    struct loop_child *child;
    uint64_t started_monotonic_us;
    struct command_pipe pipes[2];
    struct command_stdin input;
    struct spool spool;
    struct command_outcome outcome;
    struct command_keep keep;
    ProtobufCMessage *kept; /* the Outcome, where an earlier runner has found it out */

    Sandstorm__V1__OutputPolicy output_policy;
    bool kill_when_alone;
    uint64_t alone_us, kill_grace_us, timeout_us;
    struct loop_timer *timeout, *kill, *drain, *alone, *retry;
    bool drain_over;
    enum command_cause cause;
    const char *cancel_reason;
    char cancel_kept[64]; /* where an earlier life of this process gave it */

    bool speaking; /* the orchestrator has asked for this command since the last welcome */
    bool client;   /* and a client is listening behind it */
    struct window output;
    uint64_t acked;
    bool started_due, ended_due, stdin_due;
    bool settled_due; /* it has ended, and the orchestrator of this welcome has not been told */
};

/* command.c */
int command_new_bare(const struct command_host *host, const struct command_id *id,
                     struct command **ret, struct err *err) must_use;
void command_changed(struct command *command);
void command_check_finished(struct command *command);
int command_watch_child(struct command *command, struct err *err) must_use;
/* command_io.c */
int command_open_pipes(struct command *command, Sandstorm__V1__StdinMode mode, int child_fds[3],
                       struct err *err) must_use;
int command_watch_pipes(struct command *command, struct err *err) must_use;
void command_close_pipes(struct command *command);
void command_note_unread(struct command *command);
void command_resume_reading(struct command *command);
bool command_input(struct command *command, const Sandstorm__V1__Stdin *input,
                   struct command_refusal *ret);
/* Inline input: kept before the process exists, fed once it does. */
int command_input_keep(struct command *command, const ProtobufCBinaryData *data,
                       struct err *err) must_use;
void command_input_feed(struct command *command);
/* command_events.c */
int command_pack_outcome(struct command *command, uint8_t **ret, size_t *ret_size,
                         struct err *err) must_use;
/* command_keep.c */
/* Notes the id in the state directory; without that nothing may be started. */
int command_keep_reserve(struct command *command, const Sandstorm__V1__CommandSpec *spec,
                         struct err *err) must_use;
void command_keep_started(struct command *command);
/* How far the ledger goes and what was acknowledged. */
void command_keep_position(struct command *command);
/* How it ended and all of its output, again and again until there is space for it. */
void command_keep_end(struct command *command);
/* command_spec.c */
struct command_exec {
    char **argv;
    char **environment;
    const char *path; /* points into environment, or at a default */
    char *cwd;
};
/* Checks the spec and makes what execve needs. -1: err has an errno for start_failed. */
int command_spec_check(const Sandstorm__V1__CommandSpec *spec, struct err *err) must_use;
int command_spec_exec(const Sandstorm__V1__CommandSpec *spec, struct command_exec *ret,
                      struct err *err) must_use;
void command_exec_free(struct command_exec *exec);
