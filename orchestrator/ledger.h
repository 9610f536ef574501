/* The output of one command, from its first byte on: what has come, what of it is on disk
 * (orchestrator/ledger_log.h), and what is still in memory for those who look at it live. Bytes are
 * written down in blocks, at most LEDGER_LATE_US after they came. Loop thread. */
#pragma once

#include "orchestrator/ledger_log.h"

#define LEDGER_LATE_US  20000u
#define LEDGER_RETRY_US 1000000u /* until what could not be written is written again */
#define LEDGER_MEMORY_MAX                                                                          \
    (1024u * 1024u) /* bytes that are not on disk yet, or kept for viewers                         \
                     */

struct ledger;
struct orchestrator;

struct ledger_owner {
    /* More of it is on disk, or it is stuck, or not any more. */
    void (*changed)(void *userdata);
    void *userdata;
};

/* Takes up what the log has of this command. Where it has nothing, everything below `gone` was
 * there once, and is not any more. */
int ledger_new(struct orchestrator *orchestrator, const struct command_id *id, uint64_t gone,
               const struct ledger_owner *owner, struct ledger **ret, struct err *err) must_use;
/* What was handed over for writing is still written. */
void ledger_free(struct ledger *ledger);

/* [first, end) is kept, on disk or here; below `durable` it is on disk. What is below `first` is
 * gone, and reads as a gap. */
uint64_t ledger_first(const struct ledger *ledger);
uint64_t ledger_end(const struct ledger *ledger);
uint64_t ledger_durable(const struct ledger *ledger);
/* The disk does not take it at present. */
bool ledger_stuck(const struct ledger *ledger);

/* At the end. Output is at most WIRE_PAYLOAD_MAX bytes; of a gap there are no data. */
int ledger_append(struct ledger *ledger, enum ledger_kind kind, const void *data, uint64_t size,
                  struct err *err) must_use;
/* Does not wait for more. */
void ledger_flush(struct ledger *ledger);

/* Where a viewer is, so that it need not be looked for; zeroed: nowhere. */
struct ledger_cursor {
    uint64_t block, offset;
    size_t at;
};
struct ledger_piece {
    enum ledger_kind kind;
    uint64_t size;
    const uint8_t *data; /* of output; until something is appended */
};
/* What is in memory from `offset` on, of one kind. False: nothing, and if `offset` is before the
 * end, it is on disk. */
bool ledger_peek(const struct ledger *ledger, struct ledger_cursor *cursor, uint64_t offset,
                 struct ledger_piece *ret);
/* Nobody needs what is below in memory once it is on disk. */
void ledger_drop_below(struct ledger *ledger, uint64_t offset);
