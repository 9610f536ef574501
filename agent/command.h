/* One command in the runner: a process, its pipes, its ledger and its honest end. It owns its id
 * for as long as the runner remembers it, whatever happens to the link. Runner's loop thread. */
#pragma once

#include "agent/forest.h"
#include "agent/policy.h"
#include "agent/spool.h"
#include "common/ids.h"
#include "common/loop.h"
#include "sandstorm/runner/kept.pb-c.h"
#include "sandstorm/v1/link.pb-c.h"

#include <stdbool.h>

#define COMMAND_DIGEST_LEN    32u
#define COMMAND_STDIN_WINDOW  (64u * 1024)
#define COMMAND_ARGV_MAX      4096u
#define COMMAND_ENV_MAX       2048u
#define COMMAND_KILL_GRACE_US 5000000u
#define COMMAND_DRAIN_US      250000u /* how long a dead leader's pipes may stay open */
#define COMMAND_PATIENCE_US                                                                        \
    3000000u /* how long SIGKILL may take: a process may hang in the kernel */
#define COMMAND_MS_MAX       (365ull * 86400 * 1000)
#define COMMAND_TERMINAL_MAX 65535u /* rows, and columns */

struct command;

/* What a command needs of its runner. */
struct command_host {
    struct loop *loop;
    struct forest *forest;
    struct state_dir *state;     /* where commands are kept; NULL: in memory alone */
    const struct policy *policy; /* NULL: everything is allowed */
    const struct rlimit *files;  /* the limit that commands get; NULL: the runner's own */
    const char *oom_score_adj;   /* likewise */
    /* The command has something to say, or ended. May come inside command_new(). */
    void (*changed)(void *userdata, struct command *command);
    void *userdata;
};

enum command_state {
    COMMAND_RUNNING,
    COMMAND_CLEARING, /* its leader is reaped; what else is in its tree is being killed */
    COMMAND_DRAINING,
    COMMAND_ENDED,
    COMMAND_STATE_COUNT_
};

const char *command_state_name(enum command_state state);

/* Starts it. A command that cannot be started is one that has ended with start_failed; the only
 * failure here is no memory. */
int command_new(const struct command_host *host, const struct command_id *id,
                const Sandstorm__V1__Start *start, struct command **ret, struct err *err) must_use;
/* A command that ended before it began; `step` and `error` say why. */
int command_new_refused(const struct command_host *host, const struct command_id *id,
                        const Sandstorm__V1__Start *start, Sandstorm__V1__StartStep step, int error,
                        const char *detail, struct command **ret, struct err *err) must_use;
/* A command of an earlier runner, from its file: one that has ended, or is lost. What is left of a
 * lost one's process is killed where it is certain that it is its. */
int command_load(const struct command_host *host, const struct command_id *id, struct command **ret,
                 struct err *err) must_use;
/* Kills what still runs, and does not wait for it. Its file stays, for the next runner. */
void command_free(struct command *command);
/* It is released, and command_free() follows: no runner needs to know it any more. */
void command_forget_file(struct command *command);
/* A process that an ended command left behind may still hold a pipe of it: this gives the pipe
 * away, so that the command can go and the process neither blocks nor dies. -1 when there is none
 * (left). */
int command_take_pipe(struct command *command);

const struct command_id *command_id(const struct command *command);
enum command_state command_state(const struct command *command);
/* Somebody follows it since the last welcome. */
bool command_followed(const struct command *command);
bool command_same_spec(const struct command *command, const ProtobufCBinaryData *digest);
size_t command_spooled(const struct command *command);
int64_t command_reserved_us(const struct command *command);
bool command_is_lost(const struct command *command);
void command_position(const struct command *command, Sandstorm__V1__CommandPosition *ret);

/* From one life of the process to the next, see agent/runner_handover.c: written, looked at, made
 * again with its blocks and its output in order, and set going when all are there. */
struct handover_out;
int command_hand_over(struct command *command, struct handover_out *out, struct err *err) must_use;
int command_handover_check(const Sandstorm__Runner__Command *message, struct err *err) must_use;
/* *ret may be set when it fails: for command_free(). */
int command_take_over(const struct command_host *host, const Sandstorm__Runner__Command *message,
                      struct command **ret, struct err *err) must_use;
int command_take_blocks(struct command *command, const void *bytes, size_t size,
                        struct err *err) must_use;
int command_take_output(struct command *command, uint64_t offset, unsigned stream,
                        const void *bytes, size_t size, struct err *err) must_use;
int command_go_on(struct command *command, struct err *err) must_use;

/* Orders. Each returns true, or false and why not; a refused order changes nothing. */
struct command_refusal {
    Sandstorm__V1__RefusalReason reason;
    const char *detail;
};
bool command_attach(struct command *command, const Sandstorm__V1__Attach *attach,
                    struct command_refusal *ret);
bool command_order(struct command *command, const Sandstorm__V1__CommandOrder *order,
                   struct command_refusal *ret);
/* TERM, then KILL after the grace (0: the spec's); the outcome becomes `cancelled`. */
void command_cancel(struct command *command, uint64_t grace_us, const char *reason);
/* The link lost its orchestrator: nothing is said until the next attach, but that it has ended,
 * which the next orchestrator hears without asking. */
void command_mute(struct command *command);

/* Events. The next one, packed as an AgentFrame; what was packed counts as said. */
bool command_has_event(const struct command *command);
size_t command_pack_event(struct command *command, uint8_t *out, size_t capacity);
