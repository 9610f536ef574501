/* The inside of a command, for agent/command*.c only. */
#pragma once

#include "agent/command.h"
#include "agent/command_rlimit.h"
#include "agent/spawn.h"
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
    uint8_t last; /* byte that a terminal was given */
    bool eof;     /* the client has sent its last byte */
    bool ended;   /* and was told so, where that takes more than closing */
    bool broken;  /* the command has closed its end */
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
    unsigned survivors;
    uint64_t peak_memory_bytes;
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
    struct reaper_child *child;
    struct tree *tree;     /* NULL before it is made and after the end */
    unsigned not_enforced; /* bits of enum tree_limit */
    uint64_t started_monotonic_us;
    struct command_pipe pipes[2];
    struct command_stdin input;
    bool terminal; /* pipes[0] and input are the master of one */
    int slave;     /* of the terminal, until the leader is reaped; or -1 */
    struct spool spool;
    struct command_outcome outcome;
    struct command_keep keep;
    ProtobufCMessage *kept; /* the Outcome, where an earlier runner has found it out */

    Sandstorm__V1__OutputPolicy output_policy;
    bool kill_when_alone;
    bool takes_input; /* by Stdin records */
    uint64_t alone_us, kill_grace_us, timeout_us;
    struct loop_timer *timeout, *kill, *patience, *drain, *alone, *retry;
    bool drain_over;
    enum command_cause cause;
    bool swept; /* a client has sent SIGKILL to the whole tree */
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
void command_drain(struct command *command);
void command_set_state(struct command *command, enum command_state state);
/* Its leader has ended, or is not waited for any longer (a NULL info). */
void command_judge(struct command *command, const siginfo_t *info, const struct rusage *usage);
int command_watch_leader(struct command *command, struct err *err) must_use;
/* command_kill.c: TERM, then KILL after the grace, then an end after COMMAND_PATIENCE_US. */
int command_kill_init(struct command *command, struct err *err) must_use;
void command_kill_softly(struct command *command, uint64_t grace_us);
/* The leader is reaped, but a kill is for the whole tree: waits for the rest of it. */
void command_clear(struct command *command);
void command_wait_cleared(struct command *command);
void command_kill_done(struct command *command);
/* command_io.c */
int command_open_pipes(struct command *command, const Sandstorm__V1__CommandSpec *spec, uid_t owner,
                       int child_fds[3], struct err *err) must_use;
int command_watch_pipes(struct command *command, struct err *err) must_use;
void command_close_pipes(struct command *command);
/* The leader is gone: what lies in the pipes now is still read, and nobody is typed to. */
void command_note_unread(struct command *command);
void command_resume_reading(struct command *command);
bool command_input(struct command *command, const Sandstorm__V1__Stdin *input,
                   struct command_refusal *ret);
/* Inline input: kept before the process exists, fed once it does. */
int command_input_keep(struct command *command, const ProtobufCBinaryData *data,
                       struct err *err) must_use;
void command_input_feed(struct command *command);
/* command_terminal.c */
/* NULL is no terminal, and fine. */
int command_terminal_check(const Sandstorm__V1__Terminal *terminal, struct err *err) must_use;
/* For TERM. */
const char *command_terminal_type(const Sandstorm__V1__Terminal *terminal);
/* In place of pipes; the terminal belongs to `owner`. The child's descriptors are the caller's,
 * also after a failure. */
int command_terminal_open(struct command *command, const Sandstorm__V1__CommandSpec *spec,
                          uid_t owner, int child_fds[3], struct err *err) must_use;
bool command_terminal_resize(struct command *command, const Sandstorm__V1__TerminalSize *size,
                             struct command_refusal *ret);
/* What must be typed so that the reader sees an end of file: none while it reads bytes, one
 * character where a line begins, two where one is open (the first only ends the line). */
size_t command_terminal_eof(const struct command *command, uint8_t ret[2]);
/* The hangup of the last process that holds it is the end of the output from now on. */
void command_terminal_let_go(struct command *command);
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
    bool cwd_or_root;
    struct command_user user;
    struct spawn_user spawn_user; /* points into `user` */
    struct spawn_rlimit rlimits[COMMAND_RLIMITS_MAX + 1];
    size_t rlimit_count;
    int nice;
    mode_t umask;
    bool has_umask;
    uint64_t limits[TREE_LIMIT_COUNT_]; /* 0: none */
};
/* Checks the spec and makes what execve needs; `exec->user` is known. -1: err has an errno for
 * start_failed, and what is there so far is for command_exec_free(). */
int command_spec_check(const Sandstorm__V1__CommandSpec *spec, struct err *err) must_use;
int command_spec_exec(const Sandstorm__V1__CommandSpec *spec, const struct command_id *id,
                      struct command_exec *exec, struct err *err) must_use;
void command_exec_free(struct command_exec *exec);
/* command_prepare.c: in this order, before there is a process. `exec` is all zero at first. */
int command_prepare(struct command *command, const Sandstorm__V1__CommandSpec *spec,
                    struct command_exec *exec, enum spawn_step *ret_step, struct err *err) must_use;
int command_plant(struct command *command, const Sandstorm__V1__CommandSpec *spec,
                  const struct command_exec *exec, enum spawn_step *ret_step,
                  struct err *err) must_use;
void command_request(const struct command *command, struct command_exec *exec,
                     struct spawn_request *ret);
