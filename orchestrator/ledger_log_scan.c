/* The start: reads every segment from the oldest to the newest and builds the index from it. What a
 * crash left half written at the end of the newest is cut off; what rotted elsewhere is passed over
 * and said. Called once by ledger_log.c, before there is a thread. Next: ledger_log_walk.c and
 * ledger_log_index.c.
 *
 * Half written or rotten? Everything before a batch was synced before that batch was begun, and
 * each record says where its batch begins. So what is bad before a later batch has rotted; what is
 * bad in the last batch was never acknowledged, and goes with all that is behind it. */
#include "common/crc32c.h"
#include "common/log.h"
#include "orchestrator/ledger_log-internal.h"

#include <fcntl.h>

struct scan {
    struct ledger_log *log;
    struct ledger_segment segment; /* the one that is read */
    int fd;
    uint64_t damaged; /* bytes, in all of them */
    bool headless;    /* this one's first record is bad */
    bool unreadable;  /* the newest; nothing is written to it any more */
};

static struct ledger_walk walk_of(const struct scan *scan)
{
    return (struct ledger_walk){ .fd = scan->fd,
                                 .salt = scan->segment.salt,
                                 .size = scan->segment.size,
                                 .at = LEDGER_RECORD_HEADER,
                                 .window = scan->log->window };
}

/* The first record. Where it is bad, the second one may give the salt away: then it has rotted,
 * because a crash does not tear apart what is in one sector of the disk. False: nothing in this
 * file can be told from anything else. */
static bool read_first(struct scan *scan, uint32_t number)
{
    uint8_t bytes[2 * LEDGER_RECORD_HEADER] = { 0 };
    size_t there = (size_t)MIN(scan->segment.size, sizeof(bytes));
    struct ledger_record record;
    scan->segment.number = scan->segment.last = number;
    if (ledger_read_at(scan->fd, bytes, there, 0) <= 0)
        return false;
    scan->headless = !ledger_record_unpack(bytes, LEDGER_MAGIC, &record) ||
                     record.kind != LEDGER_RECORD_SEGMENT || record.offset != number;
    if (!scan->headless) {
        scan->segment.salt = record.checksum;
        scan->segment.last = (uint32_t)record.end;
        scan->segment.clean = record.batch;
        return true;
    }
    scan->segment.salt = ledger_magic_of(bytes + LEDGER_RECORD_HEADER);
    return ledger_record_unpack(bytes + LEDGER_RECORD_HEADER, scan->segment.salt, &record) &&
           record.kind != LEDGER_RECORD_SEGMENT;
}

static bool payload_is_good(const struct scan *scan, uint8_t *buffer, uint32_t at,
                            const struct ledger_record *record)
{
    return record->size == 0 ||
           (ledger_read_at(scan->fd, buffer, record->size, at + LEDGER_RECORD_HEADER) > 0 &&
            crc32c(0, buffer, record->size) == record->checksum);
}

/* Where the newest segment ends: at its end, or at what is bad in its last batch. One that cannot
 * be read stays as it is. */
static int find_end(struct scan *scan, uint64_t *ret, struct err *err)
{
    CLEANUP_FREE uint8_t *buffer = malloc(LEDGER_BLOCK_MAX);
    if (!buffer)
        return err_nomem(err);
    struct ledger_walk walk = walk_of(scan);
    struct ledger_record record;
    uint64_t expected = LEDGER_RECORD_HEADER, bad = UINT64_MAX;
    struct err why;
    uint32_t at;
    int r;
    while ((r = ledger_walk_next(&walk, &record, &at, &why)) > 0) {
        if (at > expected && bad == UINT64_MAX)
            bad = expected;
        if (bad != UINT64_MAX && record.batch > bad)
            bad = UINT64_MAX;
        if (bad == UINT64_MAX && !payload_is_good(scan, buffer, at, &record))
            bad = at;
        expected = at + LEDGER_RECORD_HEADER + record.size;
    }
    scan->unreadable = r < 0;
    *ret = r < 0 ? scan->segment.size : MIN(bad, expected);
    return 0;
}

static int cut_end(struct scan *scan, const char *name, uint64_t end, struct err *err)
{
    if (end == scan->segment.size && end > 0)
        return 0;
    log_warn("the newest file of output ends in what a crash left half written; it is cut off",
             LF_STR("dir", scan->log->path), LF_STR("file", name),
             LF_UINT("bytes", scan->segment.size - end));
    if (end == 0)
        return ledger_segment_remove(scan->log, scan->segment.number, err);
    if (ftruncate(scan->fd, (off_t)end) < 0 || fsync(scan->fd) < 0)
        return err_errno(err, errno, "cannot cut off the end of %s/%s", scan->log->path, name);
    scan->segment.size = end;
    return 0;
}

static void forget(struct ledger_index *index, const struct ledger_id *id)
{
    struct ledger_command *command = ledger_index_find(index, id);
    if (!command)
        return;
    ledger_spots_clear(index, command);
    ledger_index_remove(index, command);
    ledger_command_free(index, command);
}

static int take(struct scan *scan, struct ledger_segment *segment, uint32_t at,
                const struct ledger_record *record, struct err *err)
{
    struct ledger_index *index = scan->log->index;
    ledger_note_time(segment, record->time_ms);
    segment->size = at + LEDGER_RECORD_HEADER + record->size;
    if (record->kind == LEDGER_RECORD_FORGET) {
        forget(index, &record->id);
        segment->forgets += LEDGER_RECORD_HEADER;
        segment->forgot_from = (uint32_t)MIN(segment->forgot_from, record->offset);
    }
    if (record->kind != LEDGER_RECORD_OUTPUT)
        return 0;
    struct ledger_command *command = ledger_index_get(index, &record->id, err);
    if (!command || ledger_spots_reserve(command, err) < 0)
        return -1;
    ledger_index_add(index, command, segment, at, record, scan->damaged > 0);
    return 0;
}

/* One that cannot be read any further is damaged from there on. */
static int take_all(struct scan *scan, const char *name, struct err *err)
{
    struct ledger_segment *segment;
    struct ledger_walk walk = walk_of(scan);
    uint64_t before = scan->damaged, size = scan->segment.size;
    struct ledger_record record;
    struct err why = { 0 };
    uint32_t at;
    int r;
    scan->segment.size = LEDGER_RECORD_HEADER;
    if (ledger_index_add_segment(scan->log->index, &scan->segment, &segment, err) < 0)
        return -1;
    while ((r = ledger_walk_next(&walk, &record, &at, &why)) > 0) {
        scan->damaged = before + walk.damaged;
        if (take(scan, segment, at, &record, err) < 0)
            return -1;
    }
    scan->damaged = before + walk.damaged + (r < 0 ? size - walk.at : 0);
    segment->size = size;
    (void)atomic_fetch_add(&scan->log->bytes, size);
    if (scan->damaged > before || scan->headless)
        log_warn("output of commands is damaged on disk; what is left of it is kept",
                 LF_STR("dir", scan->log->path), LF_STR("file", name),
                 LF_UINT("bytes", scan->damaged - before),
                 LF_STR("error", r < 0 ? why.text : "wrong checksums"));
    return 0;
}

/* Merged into the one before it, when a crash came before it was removed. */
static bool is_leftover(const struct ledger_index *index, uint32_t number)
{
    unsigned count = index->segment_count;
    return count > 0 && index->segments[count - 1]->last >= number;
}

/* The next batch goes on where the newest segment ends. */
static int adopt_head(const struct scan *scan, struct err *err)
{
    struct ledger_log *log = scan->log;
    const struct ledger_index *index = log->index;
    if (index->segment_count == 0 || scan->unreadable || scan->headless)
        return 0;
    struct ledger_segment *head = index->segments[index->segment_count - 1];
    uint64_t size;
    if (head->size >= log->segment_bytes)
        return 0;
    if (ledger_segment_open(log, head->number, O_RDWR, &log->head_fd, &size, err) < 0)
        return -1;
    log->head = head;
    return 0;
}

static int scan_one(struct scan *scan, uint32_t number, bool newest, struct err *err)
{
    char name[LEDGER_NAME_MAX];
    ledger_segment_name(number, name);
    if (is_leftover(scan->log->index, number))
        return ledger_segment_remove(scan->log, number, err);
    scan->segment = (struct ledger_segment){ .forgot_from = UINT32_MAX };
    CLEANUP_FD int fd = -1;
    if (ledger_segment_open(scan->log, number, newest ? O_RDWR : O_RDONLY, &fd, &scan->segment.size,
                            err) < 0)
        return -1;
    scan->fd = fd;
    uint64_t end = 0;
    bool known = read_first(scan, number);
    if (newest && known && find_end(scan, &end, err) < 0)
        return -1;
    if (newest && cut_end(scan, name, end, err) < 0)
        return -1;
    return newest && end == 0 ? 0 : take_all(scan, name, err);
}

int ledger_scan(struct ledger_log *log, struct err *err)
{
    CLEANUP_FREE uint32_t *numbers = NULL;
    unsigned count = 0;
    if (ledger_dir_list(log, &numbers, &count, err) < 0)
        return -1;
    struct scan scan = { .log = log };
    for (unsigned i = 0; i < count; i++)
        if (scan_one(&scan, numbers[i], i + 1 == count, err) < 0)
            return -1;
    return adopt_head(&scan, err);
}
