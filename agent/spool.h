/* The part of a command's ledger that the runner still holds: bytes in the order in which they were
 * read, each run of bytes naming its stream, addressed by offset from the command's first byte. The
 * newest are in memory; what does not fit there goes to the command's file, where it has one.
 * Trimmed by acknowledgement or, where the policy says so, from the old end. One thread. */
#pragma once

#include "agent/spool_file.h"
#include "common/buf.h"

#include <stdint.h>

#define SPOOL_BYTES_MAX (1024u * 1024) /* in memory */
/* Of one command in memory and file, where its spec says nothing, and what it may say. */
#define SPOOL_COMMAND_DEFAULT (64ull * 1024 * 1024)
#define SPOOL_COMMAND_MAX     (16ull * 1024 * 1024 * 1024)
/* Runs of bytes from one stream, in memory. A receiver acknowledges at least every 4,096 records,
 * see proto/PROTOCOL.md, so that this bound is met by a slow receiver only. */
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
    uint64_t memory;                /* offset of the first byte in memory */
    struct spool_segment *segments; /* of what is in memory; a ring */
    unsigned capacity, start, count;
    uint64_t max;
    struct spool_file *file; /* NULL: memory is all there is */
    struct state_dir *state;
};

/* In memory only, at most `max` bytes. */
void spool_init(struct spool *spool, size_t max);
/* From here on `max` bytes are held, what is older than memory in the file, which it owns. */
void spool_back(struct spool *spool, struct state_dir *state, struct spool_file *file,
                uint64_t max);
/* A ledger that an earlier runner had: its bytes are in the file, or gone. */
void spool_restore(struct spool *spool, const struct spool_position *position);
/* The file stays where it is. */
void spool_done(struct spool *spool);

uint64_t spool_first(const struct spool *spool);
uint64_t spool_end(const struct spool *spool);
/* 0 also when there is no room for another segment. */
size_t spool_room(const struct spool *spool);
/* Makes room for a read by writing to the file; false when there is none, because the spool is
 * full, or the disk is. */
bool spool_make_room(struct spool *spool);
/* Full although less is held than the command may: it is the disk, or the quota of all. */
bool spool_waits_for_disk(const struct spool *spool);

/* One read(2) of what fits; the result is that of buf_read(). */
ssize_t spool_read(struct spool *spool, int fd, enum spool_stream stream);
int spool_append(struct spool *spool, enum spool_stream stream, const void *data, size_t size,
                 struct err *err) must_use;

/* Copies at most `max` bytes of one stream; 0 at the end. -1: they cannot be read any more, and
 * *ret_beyond is where the next ones begin. `offset` may not lie below the first byte held. */
ssize_t spool_peek(const struct spool *spool, uint64_t offset, void *out, size_t max,
                   enum spool_stream *ret_stream, uint64_t *ret_beyond);

/* Lets go of everything below `offset`, which may not lie beyond the end. */
void spool_trim(struct spool *spool, uint64_t offset);

/* Everything is in the file when it returns 0: it may be read again by another process. Stays in
 * memory too, unless that is much. */
int spool_flush(struct spool *spool, struct err *err) must_use;
