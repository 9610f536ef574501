/* The input of one command on its way: what was read and what the sandbox is not yet known to have,
 * kept so that it can be sent again over another connection. Offsets count from the first byte ever
 * sent to the command. No descriptors and no calls of its own. One thread. */
#pragma once

#include "common/buf.h"

#define FEED_MAX   (64u * 1024) /* bytes that are kept; the sandbox allows no more */
#define FEED_PIECE (32u * 1024) /* bytes of one message */

struct feed {
    struct buf bytes; /* [base, read) */
    uint64_t base;    /* the sandbox has what is before */
    uint64_t read;    /* the offset of the next byte that is read */
    uint64_t sent;    /* on this connection, up to here */
    uint64_t limit;   /* may be sent, up to here */
    bool from_start;
    bool behind_others; /* base is behind what others have sent, which may not be safe yet */
    bool heard;         /* where it goes on, ever */
    bool ready;         /* and on this connection */
    bool eof, eof_sent;
};

/* From the first byte, or from where the first credit says. */
void feed_init(struct feed *feed, bool from_start);
void feed_done(struct feed *feed);

/* What is said to us: the sandbox has the bytes up to `received` and takes more up to `limit`, and
 * bytes up to `next` are under way to it. ERR_PRECONDITION when some of them are neither ours nor
 * before ours. */
int feed_credit(struct feed *feed, uint64_t limit, uint64_t received, uint64_t next,
                struct err *err) must_use;
/* How many bytes may be read and pushed. */
size_t feed_room(const struct feed *feed);
/* At most feed_room() bytes; none is the end. What the sandbox has already is passed over. */
int feed_push(struct feed *feed, const void *data, size_t size, struct err *err) must_use;

struct feed_piece {
    uint64_t offset;
    size_t size;
    bool eof;
    uint8_t data[FEED_PIECE];
};
/* The next message, which counts as sent; false when there is none now. */
bool feed_next(struct feed *feed, struct feed_piece *ret);
/* The connection is gone: what the sandbox has not got is sent again on the next one, when that has
 * said from where. */
void feed_cut(struct feed *feed);
