/* A bounded queue of bytes: a ring that grows by doubling up to its cap and gives memory back when
 * it runs empty. Both ends are plain memory or iovecs, so that read(2) and write(2) work on it
 * without a copy. One thread. */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define BUF_CAPACITY_MIN 4096u

struct buf {
    uint8_t *data;
    size_t capacity; /* allocated; 0 or a power of two, except that it never passes max */
    size_t max;
    size_t start; /* index of the first byte */
    size_t used;
};

/* The cap is at least BUF_CAPACITY_MIN. No memory is taken before the first byte. */
void buf_init(struct buf *buf, size_t max);
void buf_done(struct buf *buf);

size_t buf_used(const struct buf *buf);
size_t buf_room(const struct buf *buf); /* up to the cap, allocated or not */

/* All or nothing: ERR_EXHAUSTED when the bytes do not fit under the cap. */
int buf_push(struct buf *buf, const void *data, size_t size, struct err *err) must_use;
/* Copies `size` bytes that begin `skip` bytes into the queue; the queue must hold them. */
void buf_peek(const struct buf *buf, size_t skip, void *out, size_t size);
/* Where they lie, for writev(2): as one or two pieces, the second one empty unless they wrap. */
void buf_spans(const struct buf *buf, size_t skip, size_t size, struct iovec ret[2]);
/* Drops `size` bytes from the front; the queue must hold them. */
void buf_drop(struct buf *buf, size_t size);

/* One readv(2) of at most `limit` bytes into the free room, one writev(2) from the front. The
 * result is the system call's, with errno; EINTR is retried. buf_read returns -1 with ENOBUFS
 * when there is no room, so that 0 always means end of file. */
ssize_t buf_read(struct buf *buf, int fd, size_t limit);
ssize_t buf_write(struct buf *buf, int fd);
