/* The inside of an exec, for orchestrator/exec*.c and orchestrator/relay*.c. */
#pragma once

#include "orchestrator/admission.h"
#include "orchestrator/exec.h"
#include "orchestrator/relay-internal.h"

enum exec_state {
    EXEC_NEW,       /* waiting for the open message */
    EXEC_ADMITTING, /* allowed or denied; waiting for the audit to say so */
    EXEC_FOLLOWING,
    EXEC_ENDED,   /* the end record is on its way to the client */
    EXEC_CLOSING, /* the status is on its way */
    EXEC_STATE_COUNT_
};

/* Output that is not in memory any more, read back from the disk; outlives its exec. */
struct exec_read;

struct exec {
    struct orchestrator *orchestrator;
    struct rpc_call *call;
    struct admission *admission; /* while the audit is being written */
    struct relay *relay;         /* NULL while it is not among its viewers */
    struct exec *prev, *next;    /* of the same relay */
    enum exec_state state;
    struct loop_timer *deadline;

    bool starts;        /* it gave a spec */
    bool watches;       /* it only looks */
    bool snapshot;      /* it wants no more than there is */
    bool grants_itself; /* the client leaves credit to us */
    bool from_end;
    uint64_t last_bytes;
    uint64_t sent;         /* where in the ledger it is */
    uint64_t limit, acked; /* as the client says */
    uint64_t until;        /* of a snapshot */
    struct ledger_cursor cursor;
    struct exec_read *read;
    bool pumping;
};

/* exec.c */
void exec_set_state(struct exec *exec, enum exec_state state);
/* Ends the client's stream. */
void exec_fail(struct exec *exec, const struct err *why);
void exec_reply(struct exec *exec, Sandstorm__V1__ExecResponse *response);
void exec_close_stream(struct exec *exec, const struct err *status);
/* From the relay. */
void exec_notice(struct exec *exec, Sandstorm__V1__ExecNoticeKind kind, const char *detail);
void exec_say_started(struct exec *exec);
void exec_say_input(struct exec *exec);
/* Its requests wait, or not any more. */
void exec_pace(struct exec *exec, bool wait);
/* How far the command's output may go for its sake. */
uint64_t exec_limit(const struct exec *exec);
void exec_relay_gone(struct exec *exec);

/* exec_output.c */
/* Sends what there is and what the client has room for, and the end behind it. */
void exec_pump(struct exec *exec);
void exec_forget_read(struct exec *exec);
