/* The part of a command's ledger that the runner still holds: bytes in the order in which they were
 * read, each run of bytes naming its stream, addressed by offset from the command's first byte.
 * Trimmed by acknowledgement or, where the policy says so, from the old end. One thread. */
#pragma once

#include "common/buf.h"

#include <stdint.h>

#define SPOOL_BYTES_MAX (1024u * 1024)
/* Runs of bytes from one stream. A receiver acknowledges at least every 4,096 records, see
 * proto/PROTOCOL.md, so that this bound is met by a slow receiver only. */
#define SPOOL_SEGMENTS_MAX 16384u

/* Which stream; the numbers of enum Stream in types.proto. */
enum spool_stream { SPOOL_STDOUT = 1, SPOOL_STDERR = 2 };

struct spool_segment {
    uint64_t end;
    enum spool_stream stream;
};

struct spool {
    struct buf bytes;
    uint64_t first;                 /* offset of the first byte held */
    struct spool_segment *segments; /* a ring */
    unsigned capacity, start, count;
};

void spool_init(struct spool *spool, size_t max);
void spool_done(struct spool *spool);

uint64_t spool_first(const struct spool *spool);
uint64_t spool_end(const struct spool *spool);
/* 0 also when there is no room for another segment. */
size_t spool_room(const struct spool *spool);

/* One read(2) of what fits; the result is that of buf_read(). */
ssize_t spool_read(struct spool *spool, int fd, enum spool_stream stream);
int spool_append(struct spool *spool, enum spool_stream stream, const void *data, size_t size,
                 struct err *err) must_use;

/* How many bytes from `offset` on are of one stream, at most `max`; 0 at the end. */
size_t spool_run(const struct spool *spool, uint64_t offset, size_t max,
                 enum spool_stream *ret_stream);
void spool_copy(const struct spool *spool, uint64_t offset, void *out, size_t size);

/* Lets go of everything below `offset`, which may not lie beyond the end. */
void spool_trim(struct spool *spool, uint64_t offset);
