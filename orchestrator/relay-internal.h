/* The inside of a relay, for orchestrator/relay*.c and, where it says so, orchestrator/exec*.c. */
#pragma once

#include "common/buf.h"
#include "common/wire.h"
#include "orchestrator/history.h"
#include "orchestrator/ledger.h"
#include "orchestrator/orchestrator-internal.h"
#include "orchestrator/relay.h"

#include <utlist.h>

#define RELAY_DIGEST_LEN STORE_DIGEST_LEN
#define RELAY_SIGNAL_MAX 16u /* bytes of a signal's name, with its NUL */

enum relay_state {
    RELAY_PENDING, /* ordered; the runner has not spoken of it yet */
    RELAY_RUNNING,
    RELAY_ENDED, /* how it ended is known, and all of its output is here */
    RELAY_STATE_COUNT_
};

/* Orders that the runner has not been given yet. They wait while the link is away, while its runner
 * is not in step, and while its stream is full; then the client's requests wait too. */
struct relay_due {
    bool start, attach, credit, audience, signal, resize, cancel;
    char signal_name[RELAY_SIGNAL_MAX];
    uint32_t signal_number;
    Sandstorm__V1__SignalTarget signal_target;
    uint32_t rows, columns;
    uint64_t grace_ms;
};

/* How the command ended, perhaps before all of its output has come. */
struct relay_result {
    uint64_t end_offset;
    bool lost; /* how far its output went, nobody knows */
    size_t size;
    uint8_t outcome[]; /* packed */
};

struct relay {
    struct orchestrator *orchestrator;
    struct sandbox *sandbox; /* NULL: it is not there any more */
    struct command_id id;
    enum relay_state state;
    UT_hash_handle hh;         /* in the orchestrator's table */
    struct relay *prev, *next; /* of the same sandbox */
    struct exec *viewers;      /* utlist */
    struct exec *controller;   /* the one of them whose pace and input count, or NULL */
    struct loop_timer *alone;  /* it was not started yet, and its client has gone */

    uint8_t *spec; /* packed, until the runner has confirmed the start */
    size_t spec_size;
    uint8_t digest[RELAY_DIGEST_LEN];
    struct relay_result *result; /* NULL: not known */
    bool asking;                 /* whether a start arrived: attached to see */
    struct relay_due due;

    struct ledger *ledger;
    ProtobufCMessage *started; /* Sandstorm__V1__Started, a copy, or NULL */
    uint64_t granted, acked;   /* told to the runner */
    uint64_t taken;            /* by controlling clients, so far */
    uint64_t listed_end;       /* what the runner has of one that has ended; else UINT64_MAX */
    unsigned records;          /* since the last credit */
    bool hole;                 /* asked for again; until the next record in order */
    /* Bytes beyond the grant since then. What was granted before we restarted accounts for a window
     * of them; more is a breach. */
    uint64_t excess;
    bool stuck_said;

    struct buf input;     /* [input_taken, input_taken + used) */
    uint64_t input_taken; /* by the command */
    uint64_t input_sent;  /* to the runner that is in step */
    uint64_t input_limit; /* granted by the runner */
    uint64_t input_known; /* the runner has it */
    bool input_eof;       /* the last byte was sent */
    bool input_eof_sent;
    bool input_closed; /* by the command */
    struct relay_writer *writers;

    bool attended;            /* as the runner was told */
    uint64_t return_until_us; /* a client of an earlier orchestrator may still come */
    bool listed, link_lost;   /* in the inventory under way; told to the clients */
    bool cancelled;           /* asked for once; said again to a runner that comes back */
    bool end_written, let_go;
    bool unknown_there; /* the runner does not have it: there is nothing to let go of */
    unsigned busy;      /* see relay_enter() */
};

/* relay.c */
void relay_set_state(struct relay *relay, enum relay_state state);
/* Ends every client's stream, and the relay. */
void relay_fail(struct relay *relay, const struct err *why);
void relay_notice(struct relay *relay, Sandstorm__V1__ExecNoticeKind kind, const char *detail);
/* New output, the end, or room: every viewer goes on. */
void relay_pump(struct relay *relay);
/* For exec*.c: it looks from now on, and controls the command if its mode says so. */
void relay_join(struct relay *relay, struct exec *exec);
void relay_leave(struct relay *relay, struct exec *exec);
const Sandstorm__V1__Started *relay_started(const struct relay *relay);

/* relay_events.c */
int relay_keep_result(struct relay *relay, const uint8_t *outcome, size_t size, uint64_t end_offset,
                      struct err *err) must_use;
/* The runner has nothing more to say about a command whose result is known: what is missing of its
 * output is a gap, and the end is as it was. */
void relay_close(struct relay *relay);
void relay_lost(struct relay *relay, const struct history_judgement *judgement);

/* relay_input.c */
int relay_take_input(struct relay *relay, const Sandstorm__V1__Stdin *input,
                     struct err *err) must_use;
/* Of all input that there is, here or further on. */
uint64_t relay_input_end(const struct relay *relay);
/* The runner has input up to `received`, its command took it up to `taken`. */
void relay_input_at(struct relay *relay, uint64_t received, uint64_t taken);
bool relay_input_due(const struct relay *relay);
void relay_send_input(struct relay *relay);
void relay_end_input(struct relay *relay);
void relay_wake_writers(struct relay *relay, const struct err *gone);

/* relay_orders.c */
/* Sends what is due and input as far as it goes; stops or resumes the controlling client. */
void relay_flush(struct relay *relay);
void relay_flush_orders(struct relay *relay); /* without input */
bool relay_can_send(const struct relay *relay);
void relay_pass(struct relay *relay, Sandstorm__V1__CommandOrder *order);
/* Credit is worth an order: half a window or many small records have come since the last, or much
 * of it is on disk. */
void relay_grant(struct relay *relay);
void relay_flush_leftovers(struct sandbox *sandbox);
