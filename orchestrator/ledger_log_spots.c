/* The spots of one command: where in which file its output begins to follow on. Filled in the order
 * of the output, dropped from its beginning. ledger_log_scan.c and ledger_log_write.c add to them,
 * ledger_log_read.c and ledger_log_empty.c look them up. Calls nobody but ledger_log_index.c for
 * the segment whose live bytes change. */
#include "orchestrator/ledger_log-internal.h"

#include <assert.h>
#include <string.h>

static void slide(struct ledger_command *command)
{
    (void)memmove(command->spots, command->spots + command->start,
                  (command->count - command->start) * sizeof(*command->spots));
    command->count -= command->start;
    command->start = 0;
}

int ledger_spots_reserve(struct ledger_command *command, struct err *err)
{
    if (command->start > command->count / 2)
        slide(command);
    if (command->count + command->reserved == command->capacity) {
        unsigned capacity = command->capacity * 2;
        bool first = command->spots == &command->only;
        struct ledger_spot *grown =
            reallocarray(first ? NULL : command->spots, capacity, sizeof(*grown));
        if (!grown)
            return err_nomem(err);
        if (first)
            grown[0] = command->only;
        command->spots = grown;
        command->capacity = capacity;
    }
    command->reserved++;
    return 0;
}

unsigned ledger_spots_find(const struct ledger_command *command, uint64_t offset)
{
    unsigned low = command->start, high = command->count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (command->spots[middle].end <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct ledger_spot *ledger_spots_of(const struct ledger_command *command, uint32_t segment,
                                    uint32_t at, const struct ledger_record *record)
{
    uint64_t from = MAX(record->offset, command->first);
    unsigned i = ledger_spots_find(command, from);
    if (record->end <= command->first || i == command->count)
        return NULL;
    struct ledger_spot *spot = &command->spots[i];
    bool inside = spot->segment == segment && at >= spot->at && record->end > spot->offset &&
                  record->offset < spot->end;
    return inside ? spot : NULL;
}

static struct ledger_spot *last_of(const struct ledger_command *command)
{
    return &command->spots[command->count - 1];
}

static void drop_last(struct ledger_index *index, struct ledger_command *command)
{
    const struct ledger_spot *spot = &command->spots[--command->count];
    ledger_index_segment(index, spot->segment)->live -= spot->bytes;
    index->spots--;
}

bool ledger_spots_advance(struct ledger_index *index, struct ledger_command *command)
{
    unsigned before = command->start;
    while (command->start < command->count &&
           command->spots[command->start].end <= command->first) {
        const struct ledger_spot *spot = &command->spots[command->start++];
        ledger_index_segment(index, spot->segment)->live -= spot->bytes;
        index->spots--;
    }
    return command->start > before;
}

void ledger_spots_clear(struct ledger_index *index, struct ledger_command *command)
{
    while (command->count > command->start)
        drop_last(index, command);
}

/* Written again from `offset` on: what was there had failed, and nobody was told it was durable. */
static void rewind_to(struct ledger_index *index, struct ledger_command *command, uint64_t offset)
{
    while (command->count > command->start && last_of(command)->offset >= offset)
        drop_last(index, command);
    if (command->count > command->start) {
        struct ledger_spot *spot = last_of(command);
        spot->end = MIN(spot->end, offset);
    }
    command->end = offset;
    command->first = MIN(command->first, offset);
}

static bool follows_on(const struct ledger_spot *spot, const struct ledger_segment *segment,
                       uint32_t at, uint64_t offset)
{
    return spot->segment == segment->number && spot->end == offset &&
           spot->bytes < LEDGER_SPOT_BYTES &&
           (at - spot->at < LEDGER_SPOT_DISTANCE || spot->bytes < LEDGER_SPOT_SMALL);
}

void ledger_spots_add(struct ledger_index *index, struct ledger_command *command,
                      struct ledger_segment *segment, uint32_t at,
                      const struct ledger_record *record, bool damaged)
{
    uint32_t bytes = LEDGER_RECORD_HEADER + record->size;
    if (record->offset < command->end)
        rewind_to(index, command, record->offset);
    bool any = command->count > command->start;
    if (!any)
        command->first = record->offset;
    if (any && follows_on(last_of(command), segment, at, record->offset)) {
        struct ledger_spot *spot = last_of(command);
        spot->end = record->end;
        spot->bytes += bytes;
    } else {
        assert(command->count < command->capacity);
        command->spots[command->count++] = (struct ledger_spot){
            record->offset,  record->end,
            segment->number, at,
            bytes,           .damaged = damaged && record->offset > command->end,
        };
        index->spots++;
    }
    segment->live += bytes;
    command->end = record->end;
    uint64_t kept = index->command_max;
    if (kept > 0 && command->end - command->first > kept) {
        command->first = command->end - kept;
        (void)ledger_spots_advance(index, command);
    }
}
