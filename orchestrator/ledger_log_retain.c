/* What is kept, and what goes: segments in which nothing is wanted any more, those that are too
 * old, and, when the bytes come to the limit, first what is not wanted any more, wherever it lies,
 * and then the oldest segment. So a command that prints much pushes out its own oldest output,
 * which its limit has declared dead, before it pushes out anybody else's. ledger_log.c calls it
 * between two batches, ledger_log_write.c before one; next: ledger_log_empty.c. */
#include "common/clock.h"
#include "common/failpoint.h"
#include "common/log.h"
#include "orchestrator/ledger_log-internal.h"

#include <assert.h>

/* The earlier one of the wall clock, and of where it would be if it had not jumped since the start:
 * a clock that is set forward by a year must not be the end of everything. */
static int64_t now_ms(const struct ledger_log *log)
{
    int64_t steady = log->opened_ms + (int64_t)((clock_us(CLOCK_BOOTTIME) - log->opened_us) / 1000);
    return MIN(steady, wall_ms());
}

bool ledger_segment_too_old(const struct ledger_log *log, const struct ledger_segment *segment)
{
    return log->age_max_ms > 0 && segment->newest_ms < now_ms(log) - log->age_max_ms;
}

/* A segment goes when its newest record is too old; one that is filled slowly would keep its first
 * records for much longer than it should. */
bool ledger_head_is_old(const struct ledger_log *log)
{
    return log->age_max_ms > 0 && log->head->size > LEDGER_RECORD_HEADER &&
           log->head->oldest_ms < now_ms(log) - log->age_max_ms / 8;
}

static unsigned closed_count(const struct ledger_log *log)
{
    return log->index->segment_count - (log->head ? 1 : 0);
}

/* What it says of others is needed as long as these are there. */
static uint64_t needed(const struct ledger_index *index, unsigned position)
{
    const struct ledger_segment *segment = index->segments[position];
    bool others = segment->forgets > 0 &&
                  ledger_index_reaches(index, position, segment->forgot_from, segment->last);
    return segment->live + (others ? segment->forgets : 0);
}

static int drop(struct ledger_log *log, unsigned position, struct err *err)
{
    const struct ledger_segment *segment = log->index->segments[position];
    if (ledger_segment_remove(log, segment->number, err) < 0)
        return -1;
    failpoint("ledger.removed");
    (void)atomic_fetch_sub(&log->bytes, segment->size);
    (void)pthread_mutex_lock(&log->index->lock);
    ledger_index_drop(log->index, position, 1, NULL, 0);
    (void)pthread_mutex_unlock(&log->index->lock);
    log->untidy = true; /* what others say of it may not be needed any more */
    return 0;
}

/* The one where emptying gains most; the number of segments when it would not gain a quarter. */
static unsigned find_dead(const struct ledger_log *log)
{
    const struct ledger_index *index = log->index;
    unsigned best = index->segment_count;
    uint64_t most = 0;
    for (unsigned i = 0; i < closed_count(log); i++) {
        uint64_t size = index->segments[i]->size, dead = size - MIN(size, needed(index, i));
        if (dead < size / 4 || dead <= most)
            continue;
        most = dead;
        best = i;
    }
    return best;
}

/* The oldest segment; the head, when there is no other. */
static int drop_oldest(struct ledger_log *log, struct err *err)
{
    if (closed_count(log) == 0)
        ledger_head_close(log);
    if (closed_count(log) == 0)
        return err_set(err, ERR_EXHAUSTED, "there is no room for output in %s", log->path);
    return drop(log, 0, err);
}

static int reclaim(struct ledger_log *log, struct err *err)
{
    unsigned dead = find_dead(log);
    struct err unsaid;
    if (dead < log->index->segment_count && monotonic_us() >= log->tidy_after_us) {
        if (ledger_empty(log, dead, &unsaid) == 0)
            return 0;
        log->tidy_after_us = monotonic_us() + LEDGER_PROBE_US;
    }
    return drop_oldest(log, err);
}

/* One segment of the limit is left free, for emptying needs room before it makes some. */
int ledger_make_room(struct ledger_log *log, uint64_t size, struct err *err)
{
    uint64_t limit = log->total_max - log->segment_bytes;
    while (log->index->segment_count > 0 &&
           (atomic_load(&log->bytes) + size > limit || log->index->spots > LEDGER_SPOTS_MAX))
        if (reclaim(log, err) < 0)
            return err_wrap(err, "no room can be made for output");
    /* Many small commands: their number comes to its limit before their bytes do. */
    while (closed_count(log) > 0 && log->index->command_count > LEDGER_COMMANDS_ROOM)
        if (drop_oldest(log, err) < 0)
            return err_wrap(err, "no room can be made for more commands");
    return 0;
}

/* Little of it is output that is wanted, and much of it is nothing that is. */
static bool is_sparse(const struct ledger_index *index, unsigned position)
{
    const struct ledger_segment *segment = index->segments[position];
    return segment->live < segment->size / LEDGER_SPARSE &&
           needed(index, position) <= segment->size / 2;
}

/* 1: done something; 0: there is nothing to do. */
static int tidy_one(struct ledger_log *log, struct err *err)
{
    const struct ledger_index *index = log->index;
    if (log->head && ledger_segment_too_old(log, log->head) && log->head->size > 0 && !log->torn)
        ledger_head_close(log);
    unsigned closed = closed_count(log);
    for (unsigned i = 0; i < closed; i++)
        if (needed(index, i) == 0)
            return drop(log, i, err) < 0 ? -1 : 1;
    if (closed > 0 && ledger_segment_too_old(log, index->segments[0]))
        return drop(log, 0, err) < 0 ? -1 : 1;
    for (unsigned i = 0; i < closed; i++)
        if (is_sparse(index, i))
            return ledger_empty(log, i, err) < 0 ? -1 : 1;
    return 0;
}

bool ledger_tidy(struct ledger_log *log)
{
    struct err err = { 0 };
    if (!log->untidy || monotonic_us() < log->tidy_after_us)
        return false;
    log->untidy = false;
    int r = tidy_one(log, &err);
    if (r < 0) {
        log_warn("output that nobody wants any more stays on disk for now", LF_ERR(&err));
        log->tidy_after_us = monotonic_us() + LEDGER_PROBE_US;
    }
    log->untidy |= r != 0;
    return r > 0;
}
