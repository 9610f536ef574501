/* The inside of an exec, for orchestrator/exec*.c only. */
#pragma once

#include "common/buf.h"
#include "common/window.h"
#include "orchestrator/exec.h"
#include "orchestrator/orchestrator-internal.h"

#define EXEC_DIGEST_LEN 32u
#define EXEC_STDIN_MAX  (64u * 1024) /* input that the command has not taken yet */

enum exec_state {
    EXEC_NEW,     /* waiting for the open message */
    EXEC_PENDING, /* ordered; the runner has not spoken of it yet */
    EXEC_RUNNING,
    EXEC_ENDED,   /* the end record is on its way to the client */
    EXEC_CLOSING, /* the status is on its way */
    EXEC_STATE_COUNT_
};

struct exec {
    struct orchestrator *orchestrator;
    struct rpc_call *call;
    struct sandbox *sandbox; /* NULL while it is not in the sandbox's table */
    struct command_id id;
    enum exec_state state;
    struct loop_timer *deadline;
    UT_hash_handle hh;

    uint8_t *spec; /* packed, until the runner has confirmed the start */
    size_t spec_size;
    uint8_t digest[EXEC_DIGEST_LEN];

    bool grants_itself; /* the client leaves credit to us */
    uint64_t received;  /* end of the ledger as far as it has come */
    uint64_t acked, client_limit, granted;
    uint64_t end_offset;

    struct buf input;     /* [input_taken, input_taken + used) */
    uint64_t input_taken; /* by the command */
    uint64_t input_sent;  /* to the runner, on this session */
    uint64_t input_limit; /* granted by the runner */
    bool input_eof;       /* the client has sent its last byte */
    bool input_eof_sent;
    bool listed, link_lost; /* of the inventory under way; told to the client */
};

/* exec.c */
void exec_set_state(struct exec *exec, enum exec_state state);
void exec_fail(struct exec *exec, const struct err *why);
void exec_notice(struct exec *exec, Sandstorm__V1__ExecNoticeKind kind, const char *detail);
void exec_reply(struct exec *exec, Sandstorm__V1__ExecResponse *response);
void exec_finish_ended(struct exec *exec);
/* exec_orders.c */
void exec_order_start(struct exec *exec);
void exec_order_attach(struct exec *exec);
void exec_order_detach(struct exec *exec);
void exec_order_release(struct exec *exec);
void exec_order_credit(struct exec *exec);
void exec_pass(struct exec *exec, Sandstorm__V1__CommandOrder *order);
void exec_feed(struct exec *exec);
