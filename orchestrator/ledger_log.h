/* The output of commands on disk: what was appended, by the offsets of each command, until it is
 * trimmed, forgotten, or too old or too much to be kept. One directory of files that only grow and
 * go as a whole; one thread behind it, which alone touches the disk. What a crash left is sorted
 * out at the start; what the disk has damaged is said to be damaged, and no other byte is made up.
 *
 * Loop thread, but for ledger_log_busy_us(). */
#pragma once

#include "common/ids.h"
#include "common/loop.h"

#define LEDGER_BLOCK_MAX    (256u * 1024)       /* bytes of runs in one append */
#define LEDGER_QUEUE_MAX    (64u * 1024 * 1024) /* bytes that wait; one more is ERR_EXHAUSTED */
#define LEDGER_READS_MAX    1024u               /* reads that wait */
#define LEDGER_COMMANDS_MAX (1u << 18)          /* commands of which something is kept */

/* Bytes of output, or a gap: output that is not there, and why. */
enum ledger_kind {
    LEDGER_STDOUT = 1,
    LEDGER_STDERR = 2,
    LEDGER_DROPPED = 3, /* by the command's policy */
    LEDGER_TRIMMED = 4, /* not kept any more, or never written here */
    LEDGER_DAMAGED = 5, /* written, and not readable any more */
};

/* A run: kind (1 byte) and size (8 bytes, little endian), then `size` bytes of output; a gap has
 * none. */
#define LEDGER_RUN_HEADER 9u
#define LEDGER_READ_MIN   (LEDGER_BLOCK_MAX + 4 * LEDGER_RUN_HEADER)
void ledger_run_pack(uint8_t out[LEDGER_RUN_HEADER], enum ledger_kind kind, uint64_t size);
/* The next run of [*at, end), and *at is behind it; -1: there is none. A gap's *ret_data is NULL.
 */
int ledger_run_next(const uint8_t **at, const uint8_t *end, enum ledger_kind *ret_kind,
                    uint64_t *ret_size, const uint8_t **ret_data) must_use;

struct ledger_log;

struct ledger_log_config {
    const char *dir; /* the files are in DIR/ledger */
    struct loop *loop;
    uint64_t total_max;     /* bytes on disk, at least four segments */
    uint64_t command_max;   /* the last bytes of a command's output that are kept; 0: all */
    int64_t age_max_ms;     /* 0: for ever */
    uint64_t segment_bytes; /* 0: 16 MiB */
};

/* Blocks: reads the whole directory, and cuts off what a crash left half written. */
int ledger_log_open(const struct ledger_log_config *config, struct ledger_log **ret,
                    struct err *err) must_use;
/* Writes what waits, runs done() for all of it, and joins the thread. What done() appends is
 * written too, as long as the disk takes it. Not from inside done(). */
void ledger_log_free(struct ledger_log *log);

/* Embedded in the caller's object. Appends of one command follow on each other; what begins beyond
 * the end leaves a hole, which reads as LEDGER_TRIMMED. When one fails, those of the same command
 * that wait behind it fail too, so that the caller may append the same again, in the same order. */
struct ledger_append {
    struct command_id id;
    uint64_t offset, end; /* of the command's output; the runs cover exactly this */
    const uint8_t *runs;  /* the caller's, unchanged until done */
    size_t size;
    void (*done)(struct ledger_append *append); /* on the loop: durable, or failed */
    int result;
    struct err err;
    /* The log's. */
    struct ledger_append *next;
    struct ledger_command *command;
    uint64_t after, epoch;
    uint32_t at;
};
/* ERR_EXHAUSTED when LEDGER_QUEUE_MAX bytes wait; ERR_INVALID for what does not follow on or is no
 * sequence of runs. */
int ledger_log_append(struct ledger_log *log, struct ledger_append *append,
                      struct err *err) must_use;

/* Runs from `offset` on, of what is durable: they cover [offset, ret_end), and what is not there
 * any more comes as a gap. Nothing (ret_end is `offset`) at the end; ERR_NOT_FOUND when nothing is
 * kept of the command. */
struct ledger_read {
    struct command_id id;
    uint64_t offset;
    uint8_t *out;
    size_t capacity; /* at least LEDGER_READ_MIN */
    void (*done)(struct ledger_read *read);
    int result;
    struct err err;
    size_t size;
    uint64_t ret_end;
    /* The log's. */
    struct loop_post post;
    struct ledger_read *next;
};
int ledger_log_read(struct ledger_log *log, struct ledger_read *read, struct err *err) must_use;

/* What is kept, durable, of a command: false when nothing is. */
bool ledger_log_range(const struct ledger_log *log, const struct command_id *id,
                      uint64_t *ret_first, uint64_t *ret_end);
/* What is below will not be read any more. A restart may bring it back. */
void ledger_log_trim(struct ledger_log *log, const struct command_id *id, uint64_t below);
/* Nothing of the command is wanted any more, whatever of it waits included: that fails with
 * ERR_CANCELLED, or is forgotten as well. Durable a moment later. */
void ledger_log_forget(struct ledger_log *log, const struct command_id *id);

uint64_t ledger_log_bytes(const struct ledger_log *log); /* on disk */
/* How long the thread has been at what it does now, or has not been able to write: 0 when it is
 * idle. Any thread. */
uint64_t ledger_log_busy_us(struct ledger_log *log);
