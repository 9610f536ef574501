/* Runs commands with any spec, as the admin, over CommandService.Exec: what the command line has no
 * option for. Uses tests/harness/peer.c. Criterion; one thread. */
#pragma once

#include "tests/harness/peer.h"

#include "sandstorm/v1/control.pb-c.h"

#define STARTER_OUTPUT_MAX 65536u

struct starter {
    struct peer *peer;
    pid_t pid; /* of the command; 0 before it is known */
    char out[STARTER_OUTPUT_MAX], err[STARTER_OUTPUT_MAX];
    size_t out_size, err_size;
    unsigned started;
    char not_enforced[128];                /* of Started, with spaces between */
    ProtobufCMessage *last;                /* owns the outcome */
    const Sandstorm__V1__Outcome *outcome; /* NULL before the end */
};

/* Opens; a NULL id lets the orchestrator choose. */
void starter_open(struct starter *starter, const Sandstorm__V1__CommandSpec *spec, const char *id);
void starter_done(struct starter *starter);
/* The next record, whatever it is but the end. */
void starter_await_more(struct starter *starter);
/* What was sent goes out, and what comes within that time is heard. */
void starter_listen(struct starter *starter, uint64_t timeout_us);
/* Until a line has come on stdout. */
void starter_await_line(struct starter *starter);
void starter_signal(struct starter *starter, const char *name, Sandstorm__V1__SignalTarget target);
void starter_signal_number(struct starter *starter, unsigned number);
/* Until a notice refuses something; its words are copied. */
void starter_await_refusal(struct starter *starter, char *out, size_t size);
void starter_cancel(struct starter *starter, uint64_t grace_ms);
const Sandstorm__V1__Outcome *starter_wait(struct starter *starter);
/* From the first to the last. */
const Sandstorm__V1__Outcome *starter_run(struct starter *starter,
                                          const Sandstorm__V1__CommandSpec *spec);
#define CLEANUP_STARTER CLEANUP(starter_done)
