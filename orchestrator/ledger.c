/* The output of one command on its way to the disk. orchestrator/relay_events.c appends what the
 * runner says; it gathers in a block until the block is full or LEDGER_LATE_US have passed, and
 * goes to orchestrator/ledger_log.c, one block of a command at a time, so that what is on disk has
 * no holes. Blocks stay until they are there and no viewer (orchestrator/exec_output.c) is behind.
 */
#include "orchestrator/ledger.h"

#include "common/clock.h"
#include "common/wire.h"
#include "orchestrator/orchestrator-internal.h"

#include <assert.h>
#include <string.h>
#include <utlist.h>

#define BLOCK_MIN 512u

enum block_state { BLOCK_FILLING, BLOCK_WAITING, BLOCK_WRITING, BLOCK_DURABLE };

struct block {
    struct ledger_append append; /* its offset, end, runs and size are the block's */
    struct ledger *ledger;       /* NULL: freed meanwhile */
    enum block_state state;
    uint8_t *runs;
    size_t capacity, last; /* where the last run begins */
    struct block *prev, *next;
};

struct ledger {
    struct orchestrator *orchestrator;
    struct command_id id;
    struct ledger_owner owner;
    struct block *blocks; /* in order; only the last one may be filling */
    struct loop_timer *timer;
    uint64_t first, end, durable, needed;
    unsigned writing; /* blocks */
    bool stuck;
};

static void on_time(void *userdata);

int ledger_new(struct orchestrator *orchestrator, const struct command_id *id, uint64_t gone,
               const struct ledger_owner *owner, struct ledger **ret, struct err *err)
{
    struct ledger *ledger = calloc(1, sizeof(*ledger));
    if (!ledger)
        return err_nomem(err);
    ledger->orchestrator = orchestrator;
    ledger->id = *id;
    ledger->owner = *owner;
    if (loop_timer_new(orchestrator->loop, on_time, ledger, &ledger->timer, err) < 0) {
        free(ledger);
        return -1;
    }
    if (!ledger_log_range(orchestrator->ledgers, id, &ledger->first, &ledger->end))
        ledger->first = ledger->end = gone;
    ledger->durable = ledger->needed = ledger->end;
    *ret = ledger;
    return 0;
}

static void block_free(struct block *block)
{
    free(block->runs);
    free(block);
}

void ledger_free(struct ledger *ledger)
{
    if (!ledger)
        return;
    struct block *block, *next;
    DL_FOREACH_SAFE (ledger->blocks, block, next) {
        DL_DELETE(ledger->blocks, block);
        if (block->state == BLOCK_WRITING)
            block->ledger = NULL;
        else
            block_free(block);
    }
    loop_timer_free(ledger->timer);
    free(ledger);
}

uint64_t ledger_first(const struct ledger *ledger)
{
    uint64_t first, end;
    /* The log lets go of old output by itself. */
    if (ledger->durable > 0 &&
        ledger_log_range(ledger->orchestrator->ledgers, &ledger->id, &first, &end))
        return first;
    return ledger->durable > 0 && !ledger->blocks ? ledger->end : ledger->first;
}

uint64_t ledger_end(const struct ledger *ledger)
{
    return ledger->end;
}

uint64_t ledger_durable(const struct ledger *ledger)
{
    return ledger->durable;
}

bool ledger_stuck(const struct ledger *ledger)
{
    return ledger->stuck;
}

/* Blocks. */

static struct block *last_block(const struct ledger *ledger)
{
    assert(!ledger->blocks || ledger->blocks->prev); /* utlist: the head knows the tail */
    return ledger->blocks ? ledger->blocks->prev : NULL;
}

static void drop_durable(struct ledger *ledger)
{
    struct block *block = ledger->blocks;
    while (block && block->state == BLOCK_DURABLE && block->append.end <= ledger->needed) {
        DL_DELETE(ledger->blocks, block);
        block_free(block);
        block = ledger->blocks;
    }
}

void ledger_drop_below(struct ledger *ledger, uint64_t offset)
{
    /* A viewer that is far behind reads from the disk; memory is for those who keep up. */
    uint64_t tail = ledger->end > LEDGER_MEMORY_MAX ? ledger->end - LEDGER_MEMORY_MAX : 0;
    ledger->needed = MAX(MIN(offset, ledger->end), tail);
    drop_durable(ledger);
}

static int block_reserve(struct block *block, size_t more, struct err *err)
{
    size_t need = block->append.size + more, capacity = MAX(block->capacity, BLOCK_MIN);
    while (capacity < need)
        capacity *= 2;
    if (capacity == block->capacity)
        return 0;
    uint8_t *runs = realloc(block->runs, capacity);
    if (!runs)
        return err_nomem(err);
    block->runs = runs;
    block->capacity = capacity;
    return 0;
}

/* The one that takes `size` more bytes. */
static int filling_block(struct ledger *ledger, size_t size, struct block **ret, struct err *err)
{
    struct block *block = last_block(ledger);
    if (block && block->state == BLOCK_FILLING &&
        block->append.size + size + LEDGER_RUN_HEADER > LEDGER_BLOCK_MAX) {
        ledger_flush(ledger);
    }
    block = last_block(ledger);
    if (!block || block->state != BLOCK_FILLING) {
        block = calloc(1, sizeof(*block));
        if (!block)
            return err_nomem(err);
        block->ledger = ledger;
        block->append.id = ledger->id;
        block->append.offset = block->append.end = ledger->end;
        DL_APPEND(ledger->blocks, block);
    }
    *ret = block;
    return block_reserve(block, size + LEDGER_RUN_HEADER, err);
}

static bool extends(const struct block *block, enum ledger_kind kind)
{
    return block->append.size > 0 && block->runs[block->last] == (uint8_t)kind;
}

static void run_put(struct block *block, enum ledger_kind kind, const void *data, uint64_t size)
{
    bool output = kind == LEDGER_STDOUT || kind == LEDGER_STDERR;
    uint64_t length = size;
    if (extends(block, kind)) {
        const uint8_t *at = block->runs + block->last;
        uint64_t before;
        const uint8_t *unused;
        int r = ledger_run_next(&at, block->runs + block->append.size, &kind, &before, &unused);
        assert(r == 0);
        (void)r;
        length += before;
    } else {
        block->last = block->append.size;
        block->append.size += LEDGER_RUN_HEADER;
    }
    ledger_run_pack(block->runs + block->last, kind, length);
    if (output) {
        (void)memcpy(block->runs + block->append.size, data, size);
        block->append.size += size;
    }
    block->append.end += size;
}

int ledger_append(struct ledger *ledger, enum ledger_kind kind, const void *data, uint64_t size,
                  struct err *err)
{
    bool output = kind == LEDGER_STDOUT || kind == LEDGER_STDERR;
    struct block *block;
    assert(size > 0 && (!output || size <= WIRE_PAYLOAD_MAX));
    if (filling_block(ledger, output ? size : 0, &block, err) < 0)
        return -1;
    run_put(block, kind, data, size);
    ledger->end += size;
    if (!loop_timer_running(ledger->timer))
        loop_timer_start(ledger->timer, LEDGER_LATE_US);
    return 0;
}

/* Writing. */

static void tell(struct ledger *ledger)
{
    ledger->owner.changed(ledger->owner.userdata);
}

static void wait_for_disk(struct ledger *ledger, const struct err *why)
{
    struct orchestrator *orchestrator = ledger->orchestrator;
    uint64_t suppressed;
    ledger->stuck = true;
    loop_timer_start(ledger->timer, LEDGER_RETRY_US);
    if (log_limit_pass(&orchestrator->ledger_faults, monotonic_us(), &suppressed))
        log_error("output cannot be written down; it is tried again, and commands wait",
                  LF_STR("command", ledger->id.text), LF_ERR(why),
                  LF_UINT("suppressed", suppressed));
}

static void on_written(struct ledger_append *append)
{
    struct block *block = CONTAINER_OF(append, struct block, append);
    struct ledger *ledger = block->ledger;
    if (!ledger) {
        block_free(block);
        return;
    }
    ledger->writing--;
    if (append->result < 0) {
        block->state = BLOCK_WAITING;
        wait_for_disk(ledger, &append->err);
    } else {
        block->state = BLOCK_DURABLE;
        ledger->durable = append->end;
        ledger->stuck = false;
        drop_durable(ledger);
    }
    tell(ledger); /* the last thing: it may let go of us */
}

static bool hand_over(struct ledger *ledger, struct block *block)
{
    struct err err = { 0 };
    block->append.runs = block->runs;
    block->append.done = on_written;
    block->state = BLOCK_WRITING;
    ledger->writing++;
    if (ledger_log_append(ledger->orchestrator->ledgers, &block->append, &err) == 0)
        return true;
    block->state = BLOCK_WAITING;
    ledger->writing--;
    wait_for_disk(ledger, &err);
    return false;
}

/* Everything that is not to be added to any more, in order. */
static void write_waiting(struct ledger *ledger)
{
    struct block *block;
    DL_FOREACH (ledger->blocks, block)
        if (block->state == BLOCK_WAITING && !hand_over(ledger, block))
            return;
}

void ledger_flush(struct ledger *ledger)
{
    struct block *block = last_block(ledger);
    if (block && block->state == BLOCK_FILLING && block->append.size > 0)
        block->state = BLOCK_WAITING;
    if (!ledger->stuck)
        write_waiting(ledger);
}

/* When one block has failed, those behind it fail too; all of them are tried again when the last
 * has come back. */
static void on_time(void *userdata)
{
    struct ledger *ledger = userdata;
    if (ledger->stuck && ledger->writing > 0) {
        loop_timer_start(ledger->timer, LEDGER_RETRY_US);
        return;
    }
    ledger->stuck = false;
    ledger_flush(ledger);
}

/* Reading. */

static const struct block *find_block(const struct ledger *ledger, uint64_t offset)
{
    const struct block *block = last_block(ledger);
    while (block && block->append.offset > offset)
        block = block == ledger->blocks ? NULL : block->prev;
    return block && offset < block->append.end ? block : NULL;
}

bool ledger_peek(const struct ledger *ledger, struct ledger_cursor *cursor, uint64_t offset,
                 struct ledger_piece *ret)
{
    const struct block *block = find_block(ledger, offset);
    if (!block)
        return false;
    bool known =
        cursor->at > 0 && cursor->block == block->append.offset && cursor->offset <= offset;
    uint64_t run_offset = known ? cursor->offset : block->append.offset;
    const uint8_t *at = block->runs + (known ? cursor->at : 0);
    const uint8_t *end = block->runs + block->append.size, *data;
    for (;;) {
        const uint8_t *run = at;
        uint64_t size;
        int r = ledger_run_next(&at, end, &ret->kind, &size, &data);
        assert(r == 0); /* it is ours, and covers the offset */
        (void)r;
        if (offset < run_offset + size) {
            *cursor = (struct ledger_cursor){ block->append.offset, run_offset,
                                              (size_t)(run - block->runs) };
            ret->size = run_offset + size - offset;
            ret->data = data ? data + (offset - run_offset) : NULL;
            return true;
        }
        run_offset += size;
    }
}
