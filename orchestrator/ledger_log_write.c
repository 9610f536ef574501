/* The head, the one segment that is written to: one batch at a time, all of it in as few writes as
 * there are, and one sync. ledger_log.c hands it what waits; it hands what is durable to
 * ledger_log_index.c.
 *
 * A batch is on disk or it is not. When a write fails, the file is cut back to where it was. When a
 * sync fails, nobody knows what the kernel still has, and asking it again would be answered with
 * success (fsync(2), "EIO"): that segment is cut back and never written to again. As long as it
 * cannot be cut, nothing is written at all, because the start would take what is behind the cut for
 * good. */
#include "common/clock.h"
#include "common/crc32c.h"
#include "common/failpoint.h"
#include "orchestrator/ledger_log-internal.h"

#include <assert.h>
#include <fcntl.h>
#include <limits.h>

#define LEDGER_NUMBER_TRIES 16u

/* A batch on its way: vectors that wait for one pwritev(2). */
struct batch {
    struct ledger_log *log;
    struct iovec vectors[IOV_MAX];
    unsigned vector_count, header_count;
    uint64_t start, at; /* of the file: where the batch begins, what is written, */
    uint64_t size;      /* and what waits in the vectors */
    int64_t time_ms;
};

void ledger_note_time(struct ledger_segment *segment, int64_t time_ms)
{
    bool empty = segment->size <= LEDGER_RECORD_HEADER;
    segment->oldest_ms = empty ? time_ms : MIN(segment->oldest_ms, time_ms);
    segment->newest_ms = empty ? time_ms : MAX(segment->newest_ms, time_ms);
}

/* The head. */

void ledger_head_close(struct ledger_log *log)
{
    if (log->head_fd >= 0)
        (void)close(log->head_fd);
    log->head_fd = -1;
    log->head = NULL;
    log->torn = log->abandoned = false;
    log->untidy = true;
}

/* -1 while there are bytes behind the good ones. */
static int cut(struct ledger_log *log, struct err *err)
{
    if (!log->torn)
        return 0;
    if (ftruncate(log->head_fd, (off_t)log->head->size) < 0 || fsync(log->head_fd) < 0)
        return err_errno(err, errno, "cannot cut off half of a write in %s", log->path);
    log->torn = false;
    return 0;
}

/* One that nothing was written to is of no use to anybody. */
static int leave(struct ledger_log *log, struct err *err)
{
    struct ledger_segment *head = log->head;
    bool empty = head->size == 0;
    if (empty && ledger_segment_remove(log, head->number, err) < 0)
        return -1;
    ledger_head_close(log);
    if (!empty)
        return 0;
    (void)pthread_mutex_lock(&log->index->lock);
    ledger_index_drop(log->index, log->index->segment_count - 1, 1, NULL, 0);
    (void)pthread_mutex_unlock(&log->index->lock);
    return 0;
}

/* With the number, or with a higher one where something is in the way that could not be removed. */
static int make_file(const struct ledger_log *log, uint32_t *number, int *ret_fd, struct err *err)
{
    for (unsigned tries = 0; *number < UINT32_MAX; tries++, ++*number) {
        char name[LEDGER_NAME_MAX];
        ledger_segment_name(*number, name);
        if (ledger_segment_make(log, name, ret_fd, err) == 0)
            return 0;
        if (errno != EEXIST || tries == LEDGER_NUMBER_TRIES)
            return -1;
    }
    return err_set(err, ERR_EXHAUSTED, "%s has no number left for another file; move it away",
                   log->path);
}

static int make_head(struct ledger_log *log, struct err *err)
{
    const struct ledger_index *index = log->index;
    unsigned count = index->segment_count;
    uint32_t number = count > 0 ? index->segments[count - 1]->last + 1 : 1;
    CLEANUP_FD int fd = -1;
    if (make_file(log, &number, &fd, err) < 0)
        return -1;
    const struct ledger_segment segment = {
        .number = number, .last = number, .salt = (uint32_t)random_u64(), .forgot_from = UINT32_MAX
    };
    if (ledger_dir_sync(log, err) < 0 ||
        ledger_index_add_segment(log->index, &segment, &log->head, err) < 0) {
        /* Where this fails, the next one takes another number. */
        (void)!ledger_segment_remove(log, number, NULL);
        return -1;
    }
    log->head_fd = TAKE_FD(fd);
    failpoint("ledger.segment-made");
    return 0;
}

/* A head that takes a record of this size. */
static int ready_head(struct ledger_log *log, uint64_t size, struct err *err)
{
    if (cut(log, err) < 0)
        return -1;
    const struct ledger_segment *head = log->head;
    bool full = head && head->size > 0 && head->size + size > log->segment_bytes;
    if (head && (full || log->abandoned || ledger_head_is_old(log)) && leave(log, err) < 0)
        return -1;
    return log->head ? 0 : make_head(log, err);
}

/* Batches. */

static int flush(struct batch *batch, struct err *err)
{
    struct iovec *vector = batch->vectors;
    unsigned left = batch->vector_count;
    batch->vector_count = batch->header_count = 0;
    while (batch->size > 0) {
        ssize_t n = pwritev(batch->log->head_fd, vector, (int)left, (off_t)batch->at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_errno(err, n < 0 ? errno : EIO, "cannot write to %s", batch->log->path);
        batch->at += (uint64_t)n;
        batch->size -= (uint64_t)n;
        for (; left > 0 && (size_t)n >= vector->iov_len; vector++, left--)
            n -= (ssize_t)vector->iov_len;
        if (left > 0) {
            vector->iov_base = (uint8_t *)vector->iov_base + n;
            vector->iov_len -= (size_t)n;
        }
    }
    return 0;
}

static void put_bytes(struct batch *batch, const void *data, size_t size)
{
    batch->vectors[batch->vector_count++] = (struct iovec){ (void *)data, size };
    batch->size += size;
}

/* The payload stays where it is until the batch is written. */
static int put(struct batch *batch, uint32_t magic, struct ledger_record *record,
               const void *payload, uint32_t *ret_at, struct err *err)
{
    if (batch->vector_count + 2 > IOV_MAX && flush(batch, err) < 0)
        return -1;
    record->batch = (uint32_t)batch->start;
    record->time_ms = batch->time_ms;
    *ret_at = (uint32_t)(batch->at + batch->size);
    uint8_t *header = batch->log->headers[batch->header_count++];
    ledger_record_pack(header, magic, record);
    put_bytes(batch, header, LEDGER_RECORD_HEADER);
    if (record->size > 0)
        put_bytes(batch, payload, record->size);
    return 0;
}

static int begin(struct batch *batch, struct ledger_log *log, struct err *err)
{
    const struct ledger_segment *head = log->head;
    batch->log = log;
    batch->vector_count = batch->header_count = 0;
    batch->start = batch->at = head->size;
    batch->size = 0;
    batch->time_ms = wall_ms();
    if (head->size > 0)
        return 0;
    struct ledger_record first = { .kind = LEDGER_RECORD_SEGMENT,
                                   .checksum = head->salt,
                                   .offset = head->number,
                                   .end = head->last };
    uint32_t at;
    return put(batch, LEDGER_MAGIC, &first, NULL, &at, err);
}

static int sync_head(struct batch *batch, struct err *err)
{
    struct ledger_log *log = batch->log;
    failpoint("ledger.writing");
    if (flush(batch, err) < 0)
        return -1;
    failpoint("ledger.written");
    if (fdatasync(log->head_fd) < 0) {
        log->abandoned = true;
        return err_errno(err, errno, "cannot bring what was written to %s to the disk", log->path);
    }
    failpoint("ledger.synced");
    ledger_note_time(log->head, batch->time_ms);
    (void)atomic_fetch_add(&log->bytes, batch->at - log->head->size);
    log->head->size = batch->at;
    return 0;
}

/* The file is what it was, now or before the next batch. */
static int give_up(struct ledger_log *log)
{
    struct err unsaid;
    log->torn = true;
    if (cut(log, &unsaid) == 0 && log->abandoned)
        (void)leave(log, &unsaid);
    return -1;
}

static int put_forgotten(struct batch *batch, struct err *err)
{
    struct ledger_log *log = batch->log;
    for (const struct ledger_command *command = log->forgotten; command;
         command = command->changed_next) {
        if (!command->home) /* any more */
            continue;
        struct ledger_record record = { .kind = LEDGER_RECORD_FORGET,
                                        .offset = command->home->number,
                                        .id = command->id };
        uint32_t at;
        if (put(batch, log->head->salt, &record, NULL, &at, err) < 0)
            return -1;
    }
    return 0;
}

static int put_append(struct batch *batch, struct ledger_append *append, struct err *err)
{
    struct ledger_record record = { .kind = LEDGER_RECORD_OUTPUT,
                                    .size = (uint32_t)append->size,
                                    .checksum = crc32c(0, append->runs, append->size),
                                    .offset = append->offset,
                                    .end = append->end,
                                    .id = append->command->id };
    return put(batch, batch->log->head->salt, &record, append->runs, &append->at, err);
}

static int write_all(struct batch *batch, struct ledger_append *appends, struct err *err)
{
    if (begin(batch, batch->log, err) < 0 || put_forgotten(batch, err) < 0)
        return -1;
    for (struct ledger_append *append = appends; append; append = append->next)
        if (append->result == 0 && put_append(batch, append, err) < 0)
            return -1;
    return sync_head(batch, err);
}

static void note_forgotten(struct ledger_log *log)
{
    struct ledger_index *index = log->index;
    struct ledger_segment *head = log->head;
    (void)pthread_mutex_lock(&index->lock);
    while (log->forgotten) {
        struct ledger_command *command = log->forgotten;
        log->forgotten = command->changed_next;
        if (command->home) {
            head->forgets += LEDGER_RECORD_HEADER;
            head->forgot_from = MIN(head->forgot_from, command->home->number);
        }
        ledger_index_written_off(index, command);
    }
    (void)pthread_mutex_unlock(&index->lock);
}

static void note_appends(struct ledger_log *log, struct ledger_append *appends)
{
    struct ledger_index *index = log->index;
    (void)pthread_mutex_lock(&index->lock);
    for (struct ledger_append *append = appends; append; append = append->next) {
        if (append->result < 0)
            continue;
        const struct ledger_record record = { .size = (uint32_t)append->size,
                                              .offset = append->offset,
                                              .end = append->end };
        ledger_index_add(index, append->command, log->head, append->at, &record, false);
    }
    (void)pthread_mutex_unlock(&index->lock);
}

static uint64_t bytes_of(const struct ledger_log *log, const struct ledger_append *appends)
{
    uint64_t bytes = LEDGER_RECORD_HEADER;
    for (const struct ledger_command *command = log->forgotten; command;
         command = command->changed_next)
        bytes += LEDGER_RECORD_HEADER;
    for (const struct ledger_append *append = appends; append; append = append->next)
        if (append->result == 0)
            bytes += LEDGER_RECORD_HEADER + append->size;
    return bytes;
}

static int reserve(const struct ledger_append *appends, struct err *err)
{
    for (const struct ledger_append *append = appends; append; append = append->next)
        if (append->result == 0 && ledger_spots_reserve(append->command, err) < 0)
            return -1;
    return 0;
}

static void unreserve(const struct ledger_append *appends)
{
    for (const struct ledger_append *append = appends; append; append = append->next)
        append->command->reserved = 0;
}

int ledger_write(struct ledger_log *log, struct ledger_append *appends, struct err *err)
{
    struct batch batch = { .log = log };
    uint64_t bytes = bytes_of(log, appends);
    int r = reserve(appends, err);
    if (r == 0)
        r = ledger_make_room(log, bytes, err);
    if (r == 0)
        r = ready_head(log, bytes, err);
    if (r == 0 && write_all(&batch, appends, err) < 0)
        r = give_up(log);
    if (r == 0) {
        note_forgotten(log);
        note_appends(log, appends);
    }
    unreserve(appends);
    return r;
}

int ledger_write_probe(struct ledger_log *log, struct err *err)
{
    struct batch batch = { .log = log };
    struct ledger_record probe = { .kind = LEDGER_RECORD_PROBE };
    uint32_t at;
    if (ledger_make_room(log, LEDGER_RECORD_HEADER, err) < 0 ||
        ready_head(log, LEDGER_RECORD_HEADER, err) < 0)
        return -1;
    if (begin(&batch, log, err) < 0 || put_forgotten(&batch, err) < 0 ||
        put(&batch, log->head->salt, &probe, NULL, &at, err) < 0 || sync_head(&batch, err) < 0)
        return give_up(log);
    note_forgotten(log);
    return 0;
}
