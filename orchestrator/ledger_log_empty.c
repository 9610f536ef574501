/* Emptying: writes what is still wanted of a segment, and of its neighbours as long as they are no
 * larger than what there is already, into a new file, which then takes the place of the first of
 * them. Called by ledger_log_retain.c; next: ledger_log_walk.c, ledger_log_index.c.
 *
 * The new file says which numbers it stands for. Killed before the rename, there is a ".tmp" that
 * the start removes; killed behind it, there are neighbours that the new file stands for, and the
 * start removes those. Each byte of output has one place at any time. The records keep their order,
 * so that what is oldest is still what goes first. */
#include "common/failpoint.h"
#include "orchestrator/ledger_log-internal.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LEDGER_EMPTY_BUFFER (2 * (LEDGER_BLOCK_MAX + LEDGER_RECORD_HEADER))

/* Where a spot will be. */
struct moved {
    struct ledger_command *command;
    unsigned spot;
    uint32_t at, bytes;
    uint64_t offset;
};

struct emptying {
    struct ledger_log *log;
    unsigned position, count; /* of the segments that go */
    struct ledger_segment *into;
    char name[LEDGER_NAME_MAX];
    int fd;
    uint8_t *buffer;
    size_t used;
    struct moved *moved;
    size_t moved_count, moved_capacity;
    bool missed; /* something could not be read */
};

/* What it will be at most. */
static uint64_t weight(const struct ledger_segment *segment)
{
    return segment->live + segment->forgets;
}

struct choice {
    unsigned low, high; /* the segments from `low` on, up to the one before `high` */
    uint64_t weight, size;
};

/* Those of about the same age and no larger weight, so that no byte is copied again and again only
 * because its neighbours were small; and no more than can be read while appends wait. */
static bool goes_along(const struct ledger_log *log, const struct choice *choice, unsigned position)
{
    struct ledger_segment *const *segments = log->index->segments;
    const struct ledger_segment *first = segments[MIN(position, choice->low)];
    const struct ledger_segment *last = segments[MAX(position, choice->high - 1)];
    const struct ledger_segment *segment = segments[position];
    return weight(segment) <= MAX(choice->weight, LEDGER_MERGE_SMALL) &&
           weight(segment) + choice->weight <= log->segment_bytes &&
           segment->size + choice->size <= 2 * log->segment_bytes &&
           (log->age_max_ms == 0 || last->newest_ms - first->oldest_ms <= log->age_max_ms / 4);
}

static void choose(struct emptying *emptying, unsigned position)
{
    const struct ledger_log *log = emptying->log;
    struct ledger_segment *const *segments = log->index->segments;
    unsigned closed = log->index->segment_count - (log->head ? 1 : 0), taken;
    struct choice choice = { position, position + 1, weight(segments[position]),
                             segments[position]->size };
    for (;;) {
        if (choice.low > 0 && goes_along(log, &choice, choice.low - 1))
            taken = --choice.low;
        else if (choice.high < closed && goes_along(log, &choice, choice.high))
            taken = choice.high++;
        else
            break;
        choice.weight += weight(segments[taken]);
        choice.size += segments[taken]->size;
    }
    emptying->position = choice.low;
    emptying->count = choice.high - choice.low;
}

/* The new file. */

static int flush(struct emptying *emptying, struct err *err)
{
    const uint8_t *from = emptying->buffer;
    uint64_t at = emptying->into->size - emptying->used;
    while (emptying->used > 0) {
        ssize_t n = pwrite(emptying->fd, from, emptying->used, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return err_errno(err, n < 0 ? errno : EIO, "cannot write to %s", emptying->log->path);
        from += n;
        at += (uint64_t)n;
        emptying->used -= (size_t)n;
    }
    failpoint("ledger.emptying");
    return 0;
}

/* Room for a record, which is not counted before it is whole. */
static int make_room(struct emptying *emptying, uint32_t size, struct err *err)
{
    bool there = LEDGER_EMPTY_BUFFER - emptying->used >= LEDGER_RECORD_HEADER + size;
    return there ? 0 : flush(emptying, err);
}

static void put(struct emptying *emptying, uint32_t magic, struct ledger_record record)
{
    struct ledger_segment *into = emptying->into;
    bool first = record.kind == LEDGER_RECORD_SEGMENT;
    record.batch = first ? into->clean : (uint32_t)into->size; /* all is synced before it is seen */
    ledger_record_pack(emptying->buffer + emptying->used, magic, &record);
    if (!first)
        ledger_note_time(into, record.time_ms);
    emptying->used += LEDGER_RECORD_HEADER + record.size;
    into->size += LEDGER_RECORD_HEADER + record.size;
}

static int open_new(struct emptying *emptying, struct err *err)
{
    const struct ledger_log *log = emptying->log;
    const struct ledger_index *index = log->index;
    struct ledger_segment *const *going = &index->segments[emptying->position];
    uint32_t newest = index->segments[index->segment_count - 1]->last;
    struct ledger_segment *into = calloc(1, sizeof(*into));
    emptying->buffer = malloc(LEDGER_EMPTY_BUFFER);
    emptying->into = into;
    if (!into || !emptying->buffer)
        return err_nomem(err);
    *into = (struct ledger_segment){ .number = going[0]->number,
                                     .last = going[emptying->count - 1]->last,
                                     .salt = (uint32_t)random_u64(),
                                     .forgot_from = UINT32_MAX,
                                     .clean = log->head ? newest : newest + 1 };
    (void)snprintf(emptying->name, sizeof(emptying->name), "%08" PRIx32 ".tmp", into->number);
    (void)unlinkat(log->dir_fd, emptying->name, 0); /* of one that failed */
    if (ledger_segment_make(log, emptying->name, &emptying->fd, err) < 0)
        return -1;
    const struct ledger_record first = { .kind = LEDGER_RECORD_SEGMENT,
                                         .checksum = into->salt,
                                         .offset = into->number,
                                         .end = into->last };
    put(emptying, LEDGER_MAGIC, first);
    return 0;
}

/* What is copied. */

/* The first record of a spot brings it along; those behind it add to it. */
static int note_moved(struct emptying *emptying, struct ledger_command *command, unsigned spot,
                      const struct ledger_record *record, struct err *err)
{
    const uint32_t bytes = LEDGER_RECORD_HEADER + record->size;
    const uint32_t at = (uint32_t)emptying->into->size;
    command->mark = emptying->log->mark;
    if (command->moved > 0 && emptying->moved[command->moved - 1].spot == spot) {
        emptying->moved[command->moved - 1].bytes += bytes;
        return 0;
    }
    if (emptying->moved_count == emptying->moved_capacity) {
        size_t capacity = MAX(emptying->moved_capacity * 2, 64u);
        struct moved *grown = reallocarray(emptying->moved, capacity, sizeof(*grown));
        if (!grown)
            return err_nomem(err);
        emptying->moved = grown;
        emptying->moved_capacity = capacity;
    }
    emptying->moved[emptying->moved_count++] =
        (struct moved){ command, spot, at, bytes, record->offset };
    command->moved = emptying->moved_count;
    return 0;
}

static struct ledger_command *find(struct ledger_log *log, const struct ledger_id *id,
                                   uint32_t number, uint32_t at, const struct ledger_record *record,
                                   unsigned *ret_spot)
{
    struct ledger_index *index = log->index;
    const struct ledger_spot *spot = NULL;
    (void)pthread_mutex_lock(&index->lock);
    struct ledger_command *command = ledger_index_find(index, id);
    if (command)
        spot = ledger_spots_of(command, number, at, record);
    if (spot)
        *ret_spot = (unsigned)(spot - command->spots);
    (void)pthread_mutex_unlock(&index->lock);
    return spot ? command : NULL;
}

static int copy_output(struct emptying *emptying, const struct ledger_walk *walk, uint32_t number,
                       uint32_t at, const struct ledger_record *record, struct err *err)
{
    unsigned spot = 0;
    struct ledger_command *command = find(emptying->log, &record->id, number, at, record, &spot);
    if (!command)
        return 0;
    if (make_room(emptying, record->size, err) < 0)
        return -1;
    uint8_t *payload = emptying->buffer + emptying->used + LEDGER_RECORD_HEADER;
    int r = ledger_read_at(walk->fd, payload, record->size, (uint64_t)at + LEDGER_RECORD_HEADER);
    if (r < 0 && errno != EIO)
        return err_errno(err, errno, "cannot read the output of commands");
    /* A payload that has rotted is copied with its old checksum, and stays damaged; one that cannot
     * be read is left out, and is missed. */
    if (r <= 0) {
        emptying->missed = true;
        return 0;
    }
    if (note_moved(emptying, command, spot, record, err) < 0)
        return -1;
    put(emptying, emptying->into->salt, *record);
    return 0;
}

static int copy_forget(struct emptying *emptying, uint32_t number,
                       const struct ledger_record *record, struct err *err)
{
    struct ledger_segment *into = emptying->into;
    if (!ledger_index_reaches(emptying->log->index, emptying->position, (uint32_t)record->offset,
                              number))
        return 0;
    if (make_room(emptying, 0, err) < 0)
        return -1;
    into->forgets += LEDGER_RECORD_HEADER;
    into->forgot_from = (uint32_t)MIN(into->forgot_from, record->offset);
    put(emptying, into->salt, *record);
    return 0;
}

static int copy_segment(struct emptying *emptying, const struct ledger_segment *segment,
                        struct err *err)
{
    CLEANUP_FD int fd = -1;
    uint64_t size;
    if (ledger_segment_open(emptying->log, segment->number, O_RDONLY, &fd, &size, err) < 0)
        return -1;
    struct ledger_walk walk = { .fd = fd,
                                .salt = segment->salt,
                                .size = MIN(segment->size, size),
                                .at = LEDGER_RECORD_HEADER,
                                .window = emptying->log->window };
    struct ledger_record record;
    uint32_t at;
    int r;
    while ((r = ledger_walk_next(&walk, &record, &at, err)) > 0) {
        if (record.kind == LEDGER_RECORD_OUTPUT &&
            copy_output(emptying, &walk, segment->number, at, &record, err) < 0)
            return -1;
        if (record.kind == LEDGER_RECORD_FORGET &&
            copy_forget(emptying, segment->last, &record, err) < 0)
            return -1;
    }
    emptying->missed |= walk.damaged > 0;
    return r;
}

/* The exchange. */

static int install(struct emptying *emptying, struct err *err)
{
    const struct ledger_log *log = emptying->log;
    char name[LEDGER_NAME_MAX];
    ledger_segment_name(emptying->into->number, name);
    if (fsync(emptying->fd) < 0)
        return err_errno(err, errno, "cannot sync %s/%s", log->path, emptying->name);
    failpoint("ledger.emptied");
    if (renameat(log->dir_fd, emptying->name, log->dir_fd, name) < 0)
        return err_errno(err, errno, "cannot rename %s in %s", emptying->name, log->path);
    failpoint("ledger.renamed");
    return 0;
}

/* With the index's lock held, and nothing left to settle: a spot that is still there lost none of
 * its records to the loop before they were copied. */
static void move_spots(const struct emptying *emptying)
{
    struct ledger_segment *into = emptying->into;
    if (emptying->missed)
        ledger_index_lose_spots(emptying->log->index, into->number, into->last,
                                (uint32_t)into->size);
    for (size_t i = 0; i < emptying->moved_count; i++) {
        const struct moved *moved = &emptying->moved[i];
        const struct ledger_command *command = moved->command;
        if (command->forgotten || moved->spot < command->start || moved->spot >= command->count)
            continue;
        struct ledger_spot *spot = &command->spots[moved->spot];
        spot->segment = into->number;
        spot->at = moved->at;
        spot->bytes = moved->bytes;
        spot->offset = moved->offset;
        into->live += moved->bytes;
    }
}

/* From the rename on the old file is not there any more, so nothing here may fail. A neighbour that
 * cannot be removed is removed at the next start. */
static void commit(struct emptying *emptying)
{
    struct ledger_log *log = emptying->log;
    struct ledger_index *index = log->index;
    struct ledger_segment *const *going = &index->segments[emptying->position];
    struct err unsaid;
    bool synced = ledger_dir_sync(log, &unsaid) == 0;
    if (!synced)
        emptying->into->clean = 0; /* a power cut may bring the old file back */
    uint64_t before = 0;
    for (unsigned i = 0; i < emptying->count; i++) {
        before += going[i]->size;
        if (i > 0 && synced && ledger_segment_remove(log, going[i]->number, &unsaid) == 0)
            failpoint("ledger.removed");
    }
    (void)atomic_fetch_sub(&log->bytes, before);
    (void)atomic_fetch_add(&log->bytes, emptying->into->size);
    (void)pthread_mutex_lock(&index->lock);
    log->untidy |= ledger_index_settle(index, &log->forgotten);
    move_spots(emptying);
    ledger_index_drop(index, emptying->position, emptying->count, emptying->into, log->mark);
    (void)pthread_mutex_unlock(&index->lock);
    emptying->into = NULL;
}

static void forget_moved(const struct emptying *emptying)
{
    for (size_t i = 0; i < emptying->moved_count; i++)
        emptying->moved[i].command->moved = 0;
}

int ledger_empty(struct ledger_log *log, unsigned position, struct err *err)
{
    struct emptying emptying = { .log = log, .fd = -1 };
    log->mark++;
    choose(&emptying, position);
    int r = open_new(&emptying, err);
    for (unsigned i = 0; r == 0 && i < emptying.count; i++)
        r = copy_segment(&emptying, log->index->segments[emptying.position + i], err);
    if (r == 0)
        r = flush(&emptying, err);
    if (r == 0)
        r = install(&emptying, err);
    forget_moved(&emptying);
    if (r == 0)
        commit(&emptying);
    else if (emptying.fd >= 0)
        (void)unlinkat(log->dir_fd, emptying.name, 0);
    close_fd(&emptying.fd);
    free(emptying.into);
    free(emptying.buffer);
    free(emptying.moved);
    return r < 0 ? -1 : 0;
}
