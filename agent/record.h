/* A record of the runner's state: a header with kind, size and checksum, a table of runs where it
 * is output, and bytes. Read back only by a runner on the same machine in the same boot, so numbers
 * are in the machine's own order. Pure; any thread. */
#pragma once

#include "common/err.h"

#include <stdint.h>
#include <sys/uio.h>

#define RECORD_BYTES_MAX (256u * 1024)
/* Changes of stream within one record of output. */
#define RECORD_RUNS_MAX 4096u

enum record_kind {
    RECORD_HEAD = 1,   /* of a command's file: which command, which process */
    RECORD_OUTPUT = 2, /* bytes of its ledger */
    RECORD_END = 3,    /* how it ended */
    RECORD_HANDOVER = 4,
    RECORD_COMMAND = 5,
    RECORD_BLOCKS = 6,
    RECORD_PIPE = 7,
    RECORD_DONE = 8,
};

struct record {
    uint32_t magic, crc;
    uint32_t kind;
    uint32_t size;   /* of the bytes */
    uint64_t offset; /* OUTPUT: in the ledger. HANDOVER: the format's version */
    uint32_t runs;   /* OUTPUT: entries in the table before the bytes */
    uint32_t salt;   /* of the checksum; 0 but in a command's file */
};

/* A run: where it ends, counted from the record's first byte, and its stream in the low bits. */
#define RECORD_RUN(end, stream) ((uint32_t)(end) << 2 | (uint32_t)(stream))
#define RECORD_RUN_END(run)     ((run) >> 2)
#define RECORD_RUN_STREAM(run)  ((run)&3u)

/* Completes the header for these bytes, in as many pieces as they come. */
void record_seal(struct record *record, const uint32_t *runs, const struct iovec *pieces,
                 unsigned count);
/* Does the header make sense, and how long is what follows it? ERR_INVALID when it does not: the
 * end of a file that was being written is no error of its own. */
int record_check(const struct record *record, uint32_t salt, size_t *ret_rest,
                 struct err *err) must_use;
/* The same for what followed: the runs, then the bytes. */
int record_verify(const struct record *record, const void *rest, struct err *err) must_use;
