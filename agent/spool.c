/* Output between the command's pipes (agent/command_io.c) and its acknowledgement by the
 * orchestrator (agent/command_orders.c). In memory for now; every access goes by offset, so that a
 * file can stand behind it. */
#include "agent/spool.h"

#include <assert.h>
#include <errno.h>

void spool_init(struct spool *spool, size_t max)
{
    *spool = (struct spool){ 0 };
    buf_init(&spool->bytes, max);
}

void spool_done(struct spool *spool)
{
    buf_done(&spool->bytes);
    free(spool->segments);
    spool->segments = NULL;
    spool->capacity = spool->count = spool->start = 0;
}

uint64_t spool_first(const struct spool *spool)
{
    return spool->first;
}

uint64_t spool_end(const struct spool *spool)
{
    return spool->first + buf_used(&spool->bytes);
}

static struct spool_segment *segment_at(const struct spool *spool, unsigned index)
{
    assert(spool->capacity > 0);
    return &spool->segments[(spool->start + index) % spool->capacity];
}

size_t spool_room(const struct spool *spool)
{
    return spool->count < SPOOL_SEGMENTS_MAX ? buf_room(&spool->bytes) : 0;
}

/* Makes sure that one more segment can be noted, so that bytes are never read and then homeless. */
static int reserve_segment(struct spool *spool)
{
    if (spool->count < spool->capacity)
        return 0;
    if (spool->count >= SPOOL_SEGMENTS_MAX)
        return -1;
    unsigned capacity = spool->capacity ? spool->capacity * 2 : 16;
    struct spool_segment *segments = malloc(capacity * sizeof(*segments));
    if (!segments)
        return -1;
    for (unsigned i = 0; i < spool->count; i++)
        segments[i] = *segment_at(spool, i);
    free(spool->segments);
    spool->segments = segments;
    spool->capacity = capacity;
    spool->start = 0;
    return 0;
}

static void note(struct spool *spool, enum spool_stream stream)
{
    if (spool->count > 0) {
        struct spool_segment *last = segment_at(spool, spool->count - 1);
        if (last->stream == stream) {
            last->end = spool_end(spool);
            return;
        }
    }
    spool->count++;
    *segment_at(spool, spool->count - 1) =
        (struct spool_segment){ .end = spool_end(spool), .stream = stream };
}

ssize_t spool_read(struct spool *spool, int fd, enum spool_stream stream)
{
    if (reserve_segment(spool) < 0) {
        errno = ENOBUFS;
        return -1;
    }
    ssize_t n = buf_read(&spool->bytes, fd, SIZE_MAX);
    if (n > 0)
        note(spool, stream);
    return n;
}

int spool_append(struct spool *spool, enum spool_stream stream, const void *data, size_t size,
                 struct err *err)
{
    if (reserve_segment(spool) < 0)
        return err_set(err, ERR_EXHAUSTED, "the spool holds %u segments", SPOOL_SEGMENTS_MAX);
    if (size == 0)
        return 0;
    if (buf_push(&spool->bytes, data, size, err) < 0)
        return -1;
    note(spool, stream);
    return 0;
}

/* Segments are ordered by their end: the first one that ends beyond the offset holds it. */
static unsigned find_segment(const struct spool *spool, uint64_t offset)
{
    unsigned low = 0, high = spool->count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (segment_at(spool, middle)->end <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t spool_run(const struct spool *spool, uint64_t offset, size_t max,
                 enum spool_stream *ret_stream)
{
    assert(offset >= spool->first);
    if (offset >= spool_end(spool))
        return 0;
    const struct spool_segment *segment = segment_at(spool, find_segment(spool, offset));
    *ret_stream = segment->stream;
    return (size_t)MIN(segment->end - offset, (uint64_t)max);
}

void spool_copy(const struct spool *spool, uint64_t offset, void *out, size_t size)
{
    assert(offset >= spool->first);
    buf_peek(&spool->bytes, (size_t)(offset - spool->first), out, size);
}

void spool_trim(struct spool *spool, uint64_t offset)
{
    if (offset <= spool->first)
        return;
    assert(offset <= spool_end(spool));
    buf_drop(&spool->bytes, (size_t)(offset - spool->first));
    spool->first = offset;
    while (spool->count > 0 && segment_at(spool, 0)->end <= offset) {
        spool->start = (spool->start + 1) % spool->capacity;
        spool->count--;
    }
}
