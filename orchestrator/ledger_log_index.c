/* What is in memory about the files: every command of which there is a record, by its id, and every
 * segment, by its number. The loop looks commands up and marks them; ledger_log_scan.c and
 * ledger_log_write.c bring what is on disk; ledger_log_retain.c and ledger_log_empty.c take it
 * away. Next: ledger_log_spots.c.
 *
 * A command is in the list of its home, the oldest segment that may still hold a record of it,
 * alive or dead. So dropping a segment finds those it concerns, and a command is not let go while
 * something on disk could bring it back. */
#include "orchestrator/ledger_log-internal.h"

#include <assert.h>
#include <string.h>

#define LEDGER_BUCKETS 256u /* at first */

struct ledger_index *ledger_index_new(uint64_t command_max)
{
    struct ledger_index *index = calloc(1, sizeof(*index));
    struct ledger_command **buckets = calloc(LEDGER_BUCKETS, sizeof(struct ledger_command *));
    if (!index || !buckets) {
        free(index);
        free((void *)buckets);
        return NULL;
    }
    (void)pthread_mutex_init(&index->lock, NULL);
    index->buckets = buckets;
    index->bucket_count = LEDGER_BUCKETS;
    index->seeds[0] = random_u64();
    index->seeds[1] = random_u64();
    index->command_max = command_max;
    return index;
}

void ledger_index_free(struct ledger_index *index)
{
    if (!index)
        return;
    while (index->changed) {
        struct ledger_command *command = index->changed;
        index->changed = command->changed_next;
        if (command->forgotten) /* the others are in the table */
            ledger_command_free(index, command);
    }
    for (size_t i = 0; i < index->bucket_count; i++)
        while (index->buckets[i]) {
            struct ledger_command *command = index->buckets[i];
            index->buckets[i] = command->next;
            ledger_command_free(index, command);
        }
    for (unsigned i = 0; i < index->segment_count; i++)
        free(index->segments[i]);
    free((void *)index->segments);
    free((void *)index->buckets);
    (void)pthread_mutex_destroy(&index->lock);
    free(index);
}

/* Commands. */

static size_t bucket_of(const struct ledger_index *index, const struct ledger_id *id)
{
    uint64_t half[2];
    (void)memcpy(half, id->bytes, sizeof(half));
    unsigned __int128 product =
        (unsigned __int128)(half[0] ^ index->seeds[0]) * (half[1] ^ index->seeds[1]);
    return (size_t)((uint64_t)product ^ (uint64_t)(product >> 64)) & (index->bucket_count - 1);
}

static bool same_id(const struct ledger_id *a, const struct ledger_id *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

struct ledger_command *ledger_index_find(struct ledger_index *index, const struct ledger_id *id)
{
    struct ledger_command *command = index->buckets[bucket_of(index, id)];
    while (command && !same_id(&command->id, id))
        command = command->next;
    return command;
}

static void insert(struct ledger_index *index, struct ledger_command *command)
{
    struct ledger_command **bucket = &index->buckets[bucket_of(index, &command->id)];
    command->next = *bucket;
    *bucket = command;
}

/* Where there is no memory for it, the chains stay long. */
static void grow_table(struct ledger_index *index)
{
    size_t count = index->bucket_count;
    struct ledger_command **old = index->buckets;
    struct ledger_command **buckets = calloc(count * 2, sizeof(struct ledger_command *));
    if (!buckets)
        return;
    index->buckets = buckets;
    index->bucket_count = count * 2;
    for (size_t i = 0; i < count; i++)
        while (old[i]) {
            struct ledger_command *command = old[i];
            old[i] = command->next;
            insert(index, command);
        }
    free((void *)old);
}

struct ledger_command *ledger_index_get(struct ledger_index *index, const struct ledger_id *id,
                                        struct err *err)
{
    struct ledger_command *command = ledger_index_find(index, id);
    if (command)
        return command;
    if (index->command_count >= LEDGER_COMMANDS_MAX) {
        (void)err_set(err, ERR_EXHAUSTED,
                      "the output of %u commands is kept already; forget some of them",
                      LEDGER_COMMANDS_MAX);
        return NULL;
    }
    command = calloc(1, sizeof(*command));
    if (!command) {
        (void)err_nomem(err);
        return NULL;
    }
    command->id = *id;
    command->spots = &command->only;
    command->capacity = 1;
    if (index->command_count >= index->bucket_count)
        grow_table(index);
    insert(index, command);
    index->command_count++;
    return command;
}

void ledger_index_remove(struct ledger_index *index, struct ledger_command *command)
{
    struct ledger_command **at = &index->buckets[bucket_of(index, &command->id)];
    while (*at != command)
        at = &(*at)->next;
    *at = command->next;
    command->next = NULL;
    index->command_count--;
}

void ledger_index_change(struct ledger_index *index, struct ledger_command *command)
{
    if (command->changed)
        return;
    command->changed = true;
    command->changed_next = index->changed;
    index->changed = command;
}

static void leave_home(struct ledger_command *command)
{
    if (!command->home)
        return;
    *command->back = command->beside;
    if (command->beside)
        command->beside->back = command->back;
    command->home = NULL;
}

static void make_home(struct ledger_command *command, struct ledger_segment *segment)
{
    leave_home(command);
    command->home = segment;
    command->beside = segment->commands;
    command->back = &segment->commands;
    if (command->beside)
        command->beside->back = &command->beside;
    segment->commands = command;
}

void ledger_command_free(struct ledger_index *index, struct ledger_command *command)
{
    leave_home(command);
    index->spots -= command->count - command->start;
    if (command->spots != &command->only)
        free(command->spots);
    free(command);
}

/* Nothing waits for it, nothing on disk is about it. A forgotten one is out of the table, and stays
 * until that is written down. */
static void let_go(struct ledger_index *index, struct ledger_command *command)
{
    if (command->pending > 0 || command->changed)
        return;
    if (command->forgotten ? !command->written_off : command->home != NULL)
        return;
    if (!command->forgotten)
        ledger_index_remove(index, command);
    ledger_command_free(index, command);
}

bool ledger_index_settle(struct ledger_index *index, struct ledger_command **forgotten)
{
    bool less = false;
    while (index->changed) {
        struct ledger_command *command = index->changed;
        index->changed = command->changed_next;
        command->changed = false;
        less |= ledger_spots_advance(index, command);
        command->written_off |= command->forgotten && !command->home;
        if (!command->forgotten || command->written_off) {
            let_go(index, command);
            continue;
        }
        less = true;
        ledger_spots_clear(index, command);
        command->changed_next = *forgotten;
        *forgotten = command;
    }
    return less;
}

void ledger_index_written_off(struct ledger_index *index, struct ledger_command *command)
{
    command->written_off = true;
    let_go(index, command);
}

/* On the loop, so the thread is left to free it. One that is on the list of those that are
 * forgotten is freed from there. */
void ledger_index_release(struct ledger_index *index, struct ledger_command *command)
{
    assert(command->pending > 0);
    command->pending--;
    bool empty = command->forgotten ? command->written_off : command->first == command->end;
    if (command->pending == 0 && empty)
        ledger_index_change(index, command);
}

void ledger_index_add(struct ledger_index *index, struct ledger_command *command,
                      struct ledger_segment *segment, uint32_t at,
                      const struct ledger_record *record, bool damaged)
{
    assert(command->reserved > 0);
    command->reserved--;
    if (!command->home)
        make_home(command, segment);
    command->newest = segment->number;
    if (!command->forgotten)
        ledger_spots_add(index, command, segment, at, record, damaged);
}

/* Segments. */

int ledger_index_add_segment(struct ledger_index *index, const struct ledger_segment *segment,
                             struct ledger_segment **ret, struct err *err)
{
    unsigned count = index->segment_count;
    assert(count == 0 || index->segments[count - 1]->last < segment->number);
    if (count == index->segment_capacity) {
        unsigned capacity = MAX(count * 2, 16u);
        struct ledger_segment **grown = (struct ledger_segment **)reallocarray(
            (void *)index->segments, capacity, sizeof(struct ledger_segment *));
        if (!grown)
            return err_nomem(err);
        index->segments = grown;
        index->segment_capacity = capacity;
    }
    struct ledger_segment *copy = malloc(sizeof(*copy));
    if (!copy)
        return err_nomem(err);
    *copy = *segment;
    index->segments[index->segment_count++] = copy;
    *ret = copy;
    return 0;
}

unsigned ledger_index_position(const struct ledger_index *index, uint32_t number)
{
    unsigned low = 0, high = index->segment_count;
    while (low < high) {
        unsigned middle = low + (high - low) / 2;
        if (index->segments[middle]->number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct ledger_segment *ledger_index_segment(const struct ledger_index *index, uint32_t number)
{
    unsigned position = ledger_index_position(index, number);
    assert(position < index->segment_count && index->segments[position]->number == number);
    return index->segments[position];
}

void ledger_index_lose_spots(struct ledger_index *index, uint32_t from, uint32_t to, uint32_t at)
{
    for (size_t i = 0; i < index->bucket_count; i++)
        for (struct ledger_command *command = index->buckets[i]; command; command = command->next)
            for (unsigned j = command->start; j < command->count; j++) {
                struct ledger_spot *spot = &command->spots[j];
                if (spot->segment < from || spot->segment > to)
                    continue;
                spot->segment = from;
                spot->at = at;
                spot->bytes = 0;
            }
}

bool ledger_index_reaches(const struct ledger_index *index, unsigned before, uint32_t from,
                          uint32_t number)
{
    for (unsigned i = before; i > 0 && index->segments[i - 1]->last >= from; i--)
        if (index->segments[i - 1]->clean <= number)
            return true;
    return false;
}

/* The command's records in segments up to the number `last` are gone: its output begins later. */
static void lose(struct ledger_index *index, struct ledger_command *command, uint32_t last)
{
    unsigned kept = command->start;
    while (kept < command->count && command->spots[kept].segment <= last)
        kept++;
    if (kept == command->start)
        return;
    uint64_t first = kept < command->count ? command->spots[kept].offset : command->end;
    command->first = MAX(command->first, first);
    (void)ledger_spots_advance(index, command);
}

/* `after` is the segment behind those that go, or NULL. */
static void move_on(struct ledger_index *index, struct ledger_command *command, uint32_t last,
                    struct ledger_segment *after, struct ledger_segment *heir, uint32_t mark)
{
    if (heir && command->mark == mark) {
        make_home(command, heir);
        return;
    }
    leave_home(command);
    if (!heir)
        lose(index, command, last);
    if (after && command->newest >= after->number)
        make_home(command, after);
    let_go(index, command);
}

void ledger_index_drop(struct ledger_index *index, unsigned position, unsigned count,
                       struct ledger_segment *heir, uint32_t mark)
{
    assert(position + count <= index->segment_count);
    struct ledger_segment **going = &index->segments[position];
    struct ledger_segment *after = position + count < index->segment_count ? going[count] : NULL;
    uint32_t last = going[count - 1]->last;
    for (unsigned i = 0; i < count; i++)
        while (going[i]->commands)
            move_on(index, going[i]->commands, last, after, heir, mark);
    for (unsigned i = 0; i < count; i++)
        free(going[i]);
    (void)memmove((void *)going, (void *)(going + count),
                  (index->segment_count - position - count) * sizeof(struct ledger_segment *));
    index->segment_count -= count;
    if (!heir)
        return;
    (void)memmove((void *)(going + 1), (void *)going,
                  (index->segment_count - position) * sizeof(struct ledger_segment *));
    *going = heir;
    index->segment_count++;
}
