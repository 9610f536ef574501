/* The inside of one attached command, for client/exec*.c. */
#pragma once

#include "client/client-internal.h"
#include "client/feed.h"
#include "client/sink.h"
#include "client/source.h"
#include "common/ids.h"
#include "common/window.h"

#define EXEC_WINDOW (512u * 1024)

enum exec_state {
    EXEC_NEW,
    EXEC_OPENING,  /* a stream is up; the orchestrator has not accepted yet */
    EXEC_ATTACHED, /* it has */
    EXEC_WAITING,  /* no stream: the next attempt is due */
    EXEC_DONE,     /* no stream, and none will be made any more */
    EXEC_STATE_COUNT_
};

struct sandstorm_exec {
    struct sandstorm_client *client;
    enum exec_state state;
    struct rpc_call *call; /* OPENING, ATTACHED */
    unsigned generation;   /* of the client's channel that it is on */
    struct retry retry;
    struct loop_timer *again; /* WAITING */

    struct command_id id;
    char *sandbox;          /* "" for an attach */
    ProtobufCMessage *spec; /* until it is accepted; NULL for an attach */
    bool watch, snapshot, from_end;
    uint64_t last_bytes;
    struct sandstorm_streams streams;

    bool accepted; /* once is enough: it is known */
    bool doubt;    /* an attempt to start it may have been taken, nobody can say */
    bool left;     /* detached by the caller */

    struct sink *sinks[2];
    struct window_receiver output;
    unsigned records; /* since the last credit */
    struct source *source;
    struct feed feed;

    /* What the caller wants and no stream was there for. */
    struct {
        char signal[16];
        bool cancel, resize;
        unsigned rows, columns;
    } due;

    bool started_told, pipe_told;
    bool ended, acknowledged;
    uint64_t end_offset;
    struct sandstorm_outcome outcome;
    struct err err;        /* why there is no result */
    struct err output_err; /* why output was lost on our side */
};

/* exec.c */
void exec_set_state(struct sandstorm_exec *exec, enum exec_state state);
void exec_notice(const struct sandstorm_exec *exec, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* exec_stream.c */
/* Opens a stream for what is still to come. */
int exec_open(struct sandstorm_exec *exec, struct err *err) must_use;
/* Sends, where there is a stream; what cannot be sent because the stream is closing is not missed.
 */
void exec_say(struct sandstorm_exec *exec, Sandstorm__V1__ExecRequest *request);
/* There will be no result, and this is why; the first one counts. */
void exec_fail(struct sandstorm_exec *exec, const struct err *why);

/* exec_output.c */
int exec_open_sinks(struct sandstorm_exec *exec, struct err *err) must_use;
int exec_on_output(struct sandstorm_exec *exec, const Sandstorm__V1__Output *output,
                   struct err *err) must_use;
int exec_on_gap(struct sandstorm_exec *exec, const Sandstorm__V1__Gap *gap,
                struct err *err) must_use;
int exec_on_ended(struct sandstorm_exec *exec, const Sandstorm__V1__Ended *ended,
                  struct err *err) must_use;
void exec_send_credit(struct sandstorm_exec *exec, uint64_t limit);

/* exec_input.c */
int exec_open_source(struct sandstorm_exec *exec, struct err *err) must_use;
int exec_on_stdin_credit(struct sandstorm_exec *exec, const Sandstorm__V1__StdinCredit *credit,
                         struct err *err) must_use;
void exec_close_source(struct sandstorm_exec *exec);
/* The stream is gone. */
void exec_cut_input(struct sandstorm_exec *exec);
/* What became due while there was no stream. */
void exec_send_due(struct sandstorm_exec *exec);
