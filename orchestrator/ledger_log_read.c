/* One read: from spot to spot of a command, and from record to record in the file, until the
 * caller's memory is full. What is in no record, or in one that does not match its checksum,
 * becomes a gap. Called by ledger_log.c on the thread; next: ledger_log_walk.c. */
#include "common/crc32c.h"
#include "orchestrator/ledger_log-internal.h"

#include <assert.h>
#include <fcntl.h>
#include <string.h>

struct reading {
    struct ledger_log *log;
    struct ledger_read *read;
    uint64_t want;   /* the next byte; what is before it is in the caller's memory */
    uint64_t walked; /* bytes of files */
    bool full;
};

static size_t room(const struct reading *reading)
{
    return reading->read->capacity - reading->read->size;
}

static void put_gap(struct reading *reading, enum ledger_kind kind, uint64_t until)
{
    if (until <= reading->want)
        return;
    reading->full = room(reading) < LEDGER_RUN_HEADER;
    if (reading->full)
        return;
    struct ledger_read *read = reading->read;
    ledger_run_pack(read->out + read->size, kind, until - reading->want);
    read->size += LEDGER_RUN_HEADER;
    reading->want = until;
}

/* 1 when the payload is in the caller's memory and is what was written. */
static int get_payload(const struct reading *reading, int fd, uint32_t at,
                       const struct ledger_record *record)
{
    uint8_t *out = reading->read->out + reading->read->size;
    int r = ledger_read_at(fd, out, record->size, (uint64_t)at + LEDGER_RECORD_HEADER);
    return r > 0 && crc32c(0, out, record->size) == record->checksum &&
           ledger_runs_cover(out, record->size, record->end - record->offset);
}

/* A record with the next byte in it, or bytes behind it; those up to `end` are wanted. */
static void take_record(struct reading *reading, int fd, uint32_t at,
                        const struct ledger_record *record, uint64_t end)
{
    struct ledger_read *read = reading->read;
    put_gap(reading, LEDGER_DAMAGED, record->offset);
    reading->full |= room(reading) < record->size;
    if (reading->full)
        return;
    uint64_t until = MIN(record->end, end);
    if (!get_payload(reading, fd, at, record)) {
        put_gap(reading, LEDGER_DAMAGED, until);
        return;
    }
    uint8_t *out = read->out + read->size;
    read->size +=
        ledger_runs_cut(out, record->size, reading->want - record->offset, until - reading->want);
    reading->want = until;
}

static bool is_wanted(const struct reading *reading, const struct ledger_command *command,
                      const struct ledger_record *record, uint64_t end)
{
    return record->kind == LEDGER_RECORD_OUTPUT && record->end > reading->want &&
           record->offset < end &&
           memcmp(record->id.bytes, command->id.bytes, sizeof(record->id.bytes)) == 0;
}

/* A file that has gone, or a disk that cannot read it, is damage; anything else may go by. */
static bool is_damage(const struct err *err)
{
    return err->code == ERR_PRECONDITION || err->sys_errno == EIO || err->sys_errno == ENOENT ||
           err->code == ERR_INTERNAL;
}

static int read_spot(struct reading *reading, const struct ledger_command *command,
                     const struct ledger_spot *spot, struct err *err)
{
    struct ledger_log *log = reading->log;
    const struct ledger_segment *segment = ledger_index_segment(log->index, spot->segment);
    CLEANUP_FD int fd = -1;
    uint64_t size;
    if (ledger_segment_open(log, spot->segment, O_RDONLY, &fd, &size, err) < 0)
        return -1;
    struct ledger_walk walk = { .fd = fd,
                                .salt = segment->salt,
                                .size = segment->size,
                                .at = spot->at,
                                .window = log->window };
    struct ledger_record record;
    uint32_t at;
    int r = 1;
    while (!reading->full && reading->want < spot->end &&
           (r = ledger_walk_next(&walk, &record, &at, err)) > 0) {
        if (is_wanted(reading, command, &record, spot->end))
            take_record(reading, fd, at, &record, spot->end);
        /* Something comes back each time, so that nobody takes it for the end. */
        reading->full |= reading->walked + walk.at - spot->at > LEDGER_READ_WALK &&
                         reading->want > reading->read->offset;
    }
    reading->walked += walk.at - spot->at;
    return r < 0 ? -1 : 0;
}

static int read_all(struct reading *reading, const struct ledger_command *command, struct err *err)
{
    unsigned i = ledger_spots_find(command, reading->want);
    for (; i < command->count && !reading->full; i++) {
        const struct ledger_spot *spot = &command->spots[i];
        put_gap(reading, spot->damaged ? LEDGER_DAMAGED : LEDGER_TRIMMED, spot->offset);
        if (reading->full)
            break;
        struct err why = { 0 };
        if (read_spot(reading, command, spot, &why) < 0 && !is_damage(&why)) {
            if (err)
                *err = why;
            return -1;
        }
        if (!reading->full)
            put_gap(reading, LEDGER_DAMAGED, spot->end);
    }
    return 0;
}

static struct ledger_command *find(struct ledger_log *log, const struct command_id *text,
                                   uint64_t *ret_first)
{
    struct ledger_index *index = log->index;
    const struct ledger_id id = ledger_id_of(text);
    (void)pthread_mutex_lock(&index->lock);
    struct ledger_command *command = ledger_index_find(index, &id);
    if (command)
        *ret_first = command->first;
    if (command && command->first == command->end)
        command = NULL;
    (void)pthread_mutex_unlock(&index->lock);
    return command;
}

/* The command stays: nobody but this thread lets one go that has something on disk. */
void ledger_read_serve(struct ledger_log *log, struct ledger_read *read)
{
    uint64_t first = 0;
    struct reading reading = { .log = log, .read = read, .want = read->offset };
    read->size = 0;
    read->err = (struct err){ 0 };
    const struct ledger_command *command = find(log, &read->id, &first);
    if (!command) {
        read->result = err_set(&read->err, ERR_NOT_FOUND,
                               "none of the output of this command is kept any more");
        return;
    }
    put_gap(&reading, LEDGER_TRIMMED, first);
    read->result = read_all(&reading, command, &read->err);
    read->ret_end = reading.want;
}
