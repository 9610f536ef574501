/* Output between the command's pipes (agent/command_io.c) and its acknowledgement by the
 * orchestrator (agent/command_orders.c). Memory is a window on the new end of the ledger; the file
 * has what is older, and may have what is in memory too. next: agent/spool_file.c. */
#include "agent/spool.h"

#include <assert.h>
#include <errno.h>

/* Room for one whole read: with less the oldest block goes to the file. */
#define ROOM_WANTED (64u * 1024)
/* An ended command keeps this much in memory, so that the usual one is never read from its file. */
#define SETTLED_MAX (16u * 1024)

void spool_init(struct spool *spool, size_t max)
{
    *spool = (struct spool){ .max = max };
    buf_init(&spool->bytes, max);
}

void spool_back(struct spool *spool, struct state_dir *state, struct spool_file *file, uint64_t max)
{
    spool->state = state;
    spool->file = file;
    spool->max = max;
}

void spool_restore(struct spool *spool, const struct spool_position *position)
{
    assert(buf_used(&spool->bytes) == 0);
    spool->first = position->first;
    spool->memory = position->end;
}

void spool_done(struct spool *spool)
{
    buf_done(&spool->bytes);
    free(spool->segments);
    spool->segments = NULL;
    spool->capacity = spool->count = spool->start = 0;
    spool_file_free(TAKE_PTR(spool->file));
}

uint64_t spool_first(const struct spool *spool)
{
    return spool->first;
}

uint64_t spool_end(const struct spool *spool)
{
    return spool->memory + buf_used(&spool->bytes);
}

static struct spool_segment *segment_at(const struct spool *spool, unsigned index)
{
    assert(spool->capacity > 0);
    return &spool->segments[(spool->start + index) % spool->capacity];
}

static uint64_t allowance(const struct spool *spool)
{
    uint64_t held = spool_end(spool) - spool->first;
    return spool->max - MIN(held, spool->max);
}

size_t spool_room(const struct spool *spool)
{
    size_t room = (size_t)MIN(buf_room(&spool->bytes), allowance(spool));
    return spool->count < SPOOL_SEGMENTS_MAX ? room : 0;
}

/* Segments in memory. */

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

static void drop_memory(struct spool *spool, uint64_t offset)
{
    if (offset <= spool->memory)
        return;
    buf_drop(&spool->bytes, (size_t)(offset - spool->memory));
    spool->memory = offset;
    while (spool->count > 0 && segment_at(spool, 0)->end <= offset) {
        spool->start = (spool->start + 1) % spool->capacity;
        spool->count--;
    }
}

/* To the file. */

/* The oldest byte that is in memory and not in the file. */
static uint64_t unwritten(const struct spool *spool)
{
    return MAX(spool->memory, spool_file_end(spool->file));
}

/* One block. What became of it is told to the log once for all commands. */
static int write_block(struct spool *spool, struct err *err)
{
    uint32_t runs[RECORD_RUNS_MAX];
    unsigned count = 0;
    uint64_t from = unwritten(spool), to = from;
    uint64_t limit = MIN(spool_end(spool), from + SPOOL_FILE_BLOCK_MAX);
    for (unsigned i = find_segment(spool, from); to < limit && count < RECORD_RUNS_MAX; i++) {
        const struct spool_segment *segment = segment_at(spool, i);
        to = MIN(segment->end, limit);
        runs[count++] = RECORD_RUN(to - from, segment->stream);
    }
    struct iovec pieces[2];
    buf_spans(&spool->bytes, (size_t)(from - spool->memory), (size_t)(to - from), pieces);
    if (spool_file_append(spool->file, from, runs, count, pieces, err) < 0) {
        state_dir_note_failure(spool->state, err);
        return -1;
    }
    state_dir_note_success(spool->state);
    return 0;
}

static bool is_tight(const struct spool *spool)
{
    size_t wanted = MIN(ROOM_WANTED, spool->bytes.max / 2);
    return buf_room(&spool->bytes) < wanted || spool->count + 1 >= SPOOL_SEGMENTS_MAX;
}

bool spool_make_room(struct spool *spool)
{
    struct err err;
    while (spool->file && is_tight(spool) && allowance(spool) > 0) {
        if (unwritten(spool) == spool->memory && write_block(spool, &err) < 0)
            break;
        drop_memory(spool, MIN(spool_file_end(spool->file), spool_end(spool)));
    }
    return spool_room(spool) > 0;
}

bool spool_waits_for_disk(const struct spool *spool)
{
    return spool->file && spool_room(spool) == 0 && allowance(spool) > 0;
}

int spool_flush(struct spool *spool, struct err *err)
{
    if (!spool->file)
        return err_set(err, ERR_PRECONDITION, "the command has no file");
    while (unwritten(spool) < spool_end(spool))
        if (write_block(spool, err) < 0)
            return -1;
    if (buf_used(&spool->bytes) > SETTLED_MAX)
        drop_memory(spool, spool_end(spool));
    return 0;
}

/* In. */

ssize_t spool_read(struct spool *spool, int fd, enum spool_stream stream)
{
    if (reserve_segment(spool) < 0) {
        errno = ENOBUFS;
        return -1;
    }
    ssize_t n = buf_read(&spool->bytes, fd, (size_t)MIN(allowance(spool), SIZE_MAX));
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

/* Out. */

ssize_t spool_peek(const struct spool *spool, uint64_t offset, void *out, size_t max,
                   enum spool_stream *ret_stream, uint64_t *ret_beyond)
{
    assert(offset >= spool->first);
    if (offset >= spool_end(spool))
        return 0;
    if (offset >= spool->memory) {
        const struct spool_segment *segment = segment_at(spool, find_segment(spool, offset));
        size_t size = (size_t)MIN(segment->end - offset, (uint64_t)max);
        *ret_stream = segment->stream;
        buf_peek(&spool->bytes, (size_t)(offset - spool->memory), out, size);
        return (ssize_t)size;
    }
    if (spool->file && offset >= spool_file_first(spool->file) &&
        offset < spool_file_end(spool->file)) {
        unsigned stream = 0;
        ssize_t n = spool_file_peek(spool->file, offset, out, max, &stream, ret_beyond);
        *ret_stream = (enum spool_stream)stream;
        return n;
    }
    /* An earlier runner had it in memory when it was killed. */
    *ret_beyond = spool->memory;
    if (spool->file && offset < spool_file_first(spool->file))
        *ret_beyond = spool_file_first(spool->file);
    return -1;
}

void spool_trim(struct spool *spool, uint64_t offset)
{
    if (offset <= spool->first)
        return;
    assert(offset <= spool_end(spool));
    spool->first = offset;
    drop_memory(spool, offset);
    if (spool->file)
        spool_file_trim(spool->file, offset);
}
