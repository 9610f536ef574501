/* The inside of an exec, for orchestrator/exec*.c only. */
#pragma once

#include "common/buf.h"
#include "common/window.h"
#include "orchestrator/exec.h"
#include "orchestrator/history.h"
#include "orchestrator/orchestrator-internal.h"

#define EXEC_DIGEST_LEN 32u
#define EXEC_STDIN_MAX  (64u * 1024) /* input that the command has not taken yet */
#define EXEC_SIGNAL_MAX 16u          /* bytes of a signal's name, with its NUL */

enum exec_state {
    EXEC_NEW,       /* waiting for the open message */
    EXEC_ADMITTING, /* allowed or denied; waiting for the audit to say so */
    EXEC_PENDING,   /* ordered; the runner has not spoken of it yet */
    EXEC_RUNNING,
    EXEC_ENDED,   /* the end record is on its way to the client */
    EXEC_CLOSING, /* the status is on its way */
    EXEC_STATE_COUNT_
};

/* Orders that the runner has not been given yet. They wait while the link is away, while its runner
 * is not in step, and while its stream is full; then the client's requests wait too. */
struct exec_due {
    bool start, attach, credit, signal, resize, cancel;
    char signal_name[EXEC_SIGNAL_MAX];
    uint32_t signal_number;
    Sandstorm__V1__SignalTarget signal_target;
    uint32_t rows, columns;
    uint64_t grace_ms;
};

struct exec_admission;

/* How the command ended, known before its end record has come: the runner has settled it, or it is
 * in the store. */
struct exec_result {
    uint64_t end_offset;
    size_t size;
    uint8_t outcome[]; /* packed */
};

struct exec {
    struct orchestrator *orchestrator;
    struct rpc_call *call;
    struct exec_admission *admission;    /* while the audit is being written */
    char sandbox_id[SANDBOX_ID_MAX + 1]; /* asked for */
    struct sandbox *sandbox;             /* NULL while it is not in the sandbox's table */
    struct command_id id;
    enum exec_state state;
    struct loop_timer *deadline;
    UT_hash_handle hh;

    uint8_t *spec; /* packed, until the runner has confirmed the start */
    size_t spec_size;
    uint8_t digest[EXEC_DIGEST_LEN];
    struct exec_result *result; /* NULL: not known */
    bool asking;                /* whether a start arrived: attached to see */
    struct exec_due due;

    bool grants_itself; /* the client leaves credit to us */
    uint64_t received;  /* end of the ledger as far as it has come */
    uint64_t acked, client_limit, granted;
    uint64_t end_offset;
    unsigned records; /* since the last credit */
    bool hole;        /* asked for again; until the next record in order */
    /* Bytes beyond the grant since then. A grant to an earlier client of the command accounts for a
     * window of them; more is a breach. */
    uint64_t excess;

    struct buf input;     /* [input_taken, input_taken + used) */
    uint64_t input_taken; /* by the command */
    uint64_t input_sent;  /* to the runner that is in step */
    uint64_t input_limit; /* granted by the runner */
    bool input_eof;       /* the client has sent its last byte */
    bool input_eof_sent;
    bool listed, link_lost; /* in the inventory under way; told to the client */
    bool cancelled;         /* asked for once; said again to a runner that comes back */
};

/* exec.c */
void exec_set_state(struct exec *exec, enum exec_state state);
/* Ends the client's stream. The command is detached, unless it is somebody else's. */
void exec_fail(struct exec *exec, const struct err *why);
void exec_fail_foreign(struct exec *exec, const struct err *why);
void exec_notice(struct exec *exec, Sandstorm__V1__ExecNoticeKind kind, const char *detail);
void exec_reply(struct exec *exec, Sandstorm__V1__ExecResponse *response);
void exec_finish_ended(struct exec *exec);
void exec_close_stream(struct exec *exec, const struct err *status);
/* exec_admit.c */
/* The open message: allowed or not, written down, then ordered or refused. */
int exec_admit(struct exec *exec, const Sandstorm__V1__ExecRequest *request,
               struct err *err) must_use;
void exec_admit_forget(struct exec *exec);
/* exec_events.c */
int exec_keep_result(struct exec *exec, const uint8_t *outcome, size_t size, uint64_t end_offset,
                     struct err *err) must_use;
/* The runner has nothing more to say about a command whose result is known: what is missing of its
 * output is a gap, and the end is as it was. */
void exec_answer(struct exec *exec);
void exec_lost(struct exec *exec, Sandstorm__V1__LostReason reason, const char *detail);
/* exec_orders.c */
/* Sends what is due and input as far as it goes; stops or resumes the client's requests. */
void exec_flush(struct exec *exec);
void exec_flush_orders(struct exec *exec); /* without input */
/* Credit is worth an order: half a window or many small records have come since the last. */
void exec_grant(struct exec *exec);
/* The session must be there. */
void exec_order_detach(struct sandbox *sandbox, const struct command_id *id);
/* The client is gone: the command is detached or, when its end is acknowledged and written down,
 * released; now, or when the runner is in step again. */
void exec_leave_behind(struct sandbox *sandbox, const struct command_id *id, bool release);
/* A client is back: what still waits for this command is not said any more. */
void exec_take_up(struct sandbox *sandbox, const struct command_id *id);
void exec_flush_leftovers(struct sandbox *sandbox);
/* The runner has input up to `received`, its command took it up to `taken`. */
void exec_input_at(struct exec *exec, uint64_t received, uint64_t taken);
