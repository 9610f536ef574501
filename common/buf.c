/* Owns the ring of bytes between two ends that run at different speeds. Handed bytes by whoever
 * reads a pipe, a pty or a frame; hands them on to whoever drains it. Every operation goes through
 * buf_spans(), which is the one place that knows about wrapping: a short readv(2) or writev(2)
 * then only moves `used` or `start` by what the kernel said. Calls nobody. */
#include "common/buf.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* A read takes at most this much at once, so that a caller without a limit of its own does not
 * make an idle stream hold its whole cap. */
#define BUF_READ_MAX 65536u

void buf_init(struct buf *buf, size_t max)
{
    *buf = (struct buf){ .max = MAX(max, BUF_CAPACITY_MIN) };
}

static void release(struct buf *buf)
{
    free(buf->data);
    buf->data = NULL;
    buf->capacity = 0;
    buf->start = 0;
}

void buf_done(struct buf *buf)
{
    release(buf);
    buf->used = 0;
}

size_t buf_used(const struct buf *buf)
{
    return buf->used;
}

size_t buf_room(const struct buf *buf)
{
    return buf->max - buf->used;
}

void buf_spans(const struct buf *buf, size_t skip, size_t size, struct iovec spans[2])
{
    assert(skip <= buf->capacity && size <= buf->capacity - skip);
    size_t to_end = buf->capacity - buf->start;
    size_t first = skip < to_end ? buf->start + skip : skip - to_end;
    size_t first_size = MIN(size, buf->capacity - first);
    spans[0] = (struct iovec){ .iov_base = buf->data + first, .iov_len = first_size };
    spans[1] = (struct iovec){ .iov_base = buf->data, .iov_len = size - first_size };
}

static size_t capacity_for(const struct buf *buf, size_t need)
{
    size_t capacity = MAX(buf->capacity, BUF_CAPACITY_MIN);
    while (capacity < need)
        capacity = capacity > buf->max / 2 ? buf->max : capacity * 2;
    return capacity;
}

/* Allocates until `size` more bytes fit, which must be within the cap. The bytes move to the start
 * of the new memory, so growth also unwraps them. */
static int reserve(struct buf *buf, size_t size)
{
    assert(size <= buf_room(buf));
    if (size <= buf->capacity - buf->used)
        return 0;
    size_t capacity = capacity_for(buf, buf->used + size);
    uint8_t *data = malloc(capacity);
    if (!data)
        return -1;
    buf_peek(buf, 0, data, buf->used);
    free(buf->data);
    buf->data = data;
    buf->capacity = capacity;
    buf->start = 0;
    return 0;
}

int buf_push(struct buf *buf, const void *data, size_t size, struct err *err)
{
    if (size > buf_room(buf))
        return err_set(err, ERR_EXHAUSTED,
                       "%zu bytes do not fit a buffer with room for %zu: wait until it drains",
                       size, buf_room(buf));
    if (size == 0)
        return 0;
    if (reserve(buf, size) < 0)
        return err_nomem(err);
    struct iovec spans[2];
    buf_spans(buf, buf->used, size, spans);
    (void)memcpy(spans[0].iov_base, data, spans[0].iov_len);
    (void)memcpy(spans[1].iov_base, (const uint8_t *)data + spans[0].iov_len, spans[1].iov_len);
    buf->used += size;
    return 0;
}

void buf_peek(const struct buf *buf, size_t skip, void *out, size_t size)
{
    assert(skip <= buf->used && size <= buf->used - skip);
    if (size == 0)
        return;
    struct iovec spans[2];
    buf_spans(buf, skip, size, spans);
    (void)memcpy(out, spans[0].iov_base, spans[0].iov_len);
    (void)memcpy((uint8_t *)out + spans[0].iov_len, spans[1].iov_base, spans[1].iov_len);
}

void buf_drop(struct buf *buf, size_t size)
{
    assert(size <= buf->used);
    buf->used -= size;
    if (buf->used == 0) {
        release(buf);
        return;
    }
    size_t to_end = buf->capacity - buf->start;
    buf->start = size < to_end ? buf->start + size : size - to_end;
}

ssize_t buf_read(struct buf *buf, int fd, size_t limit)
{
    size_t size = MIN(MIN(limit, buf_room(buf)), BUF_READ_MAX);
    if (size == 0) {
        errno = ENOBUFS;
        return -1;
    }
    if (reserve(buf, size) < 0)
        return -1;
    struct iovec spans[2];
    buf_spans(buf, buf->used, size, spans);
    ssize_t n;
    do
        n = readv(fd, spans, spans[1].iov_len ? 2 : 1);
    while (n < 0 && errno == EINTR);

    if (n > 0)
        buf->used += (size_t)n;
    if (buf->used == 0) {
        int saved_errno = errno;
        release(buf);
        errno = saved_errno;
    }
    return n;
}

ssize_t buf_write(struct buf *buf, int fd)
{
    if (buf->used == 0)
        return 0;
    struct iovec spans[2];
    buf_spans(buf, 0, buf->used, spans);
    ssize_t n;
    do
        n = writev(fd, spans, spans[1].iov_len ? 2 : 1);
    while (n < 0 && errno == EINTR);

    if (n > 0)
        buf_drop(buf, (size_t)n);
    return n;
}
