/* The ledger's thread: takes what waits, has it done, and gives it back through loop_post(). Handed
 * appends, reads, and commands that were trimmed or forgotten by ledger_log.c. Next:
 * ledger_log_write.c for appends, ledger_log_read.c for reads, and between two batches
 * ledger_log_retain.c for what is not wanted any more.
 *
 * While a batch is being synced the next one gathers: so the less the disk can do, the larger the
 * batches. */
#include "common/clock.h"
#include "common/log.h"
#include "orchestrator/ledger_log-internal.h"

/* Coming back. */

static void return_append(struct ledger_index *index, struct ledger_append *append)
{
    struct ledger_command *command = append->command;
    (void)pthread_mutex_lock(&index->lock);
    if (append->result < 0 && append->epoch == command->epoch) {
        command->accepted = append->after;
        command->epoch++; /* those behind it will come back as well, and change nothing more */
    }
    ledger_index_release(index, command);
    (void)pthread_mutex_unlock(&index->lock);
    append->done(append);
}

/* All of a batch at once, and the thread waits so long: who appends more in done() has it in one
 * batch with what the others append in theirs. Taking the first at once and the rest with the next
 * sync halved what 1,000 commands could append. */
static void appends_returned(struct loop_post *post)
{
    struct ledger_log *log = CONTAINER_OF(post, struct ledger_log, returned_post);
    (void)pthread_mutex_lock(&log->lock);
    struct ledger_append *append = log->returned, *next;
    log->returned = NULL;
    log->last_returned = &log->returned;
    log->returning = true;
    (void)pthread_mutex_unlock(&log->lock);
    for (; append; append = next) {
        next = append->next; /* done() may free it */
        return_append(log->index, append);
    }
    (void)pthread_mutex_lock(&log->lock);
    log->returning = false;
    (void)pthread_cond_signal(&log->wake);
    (void)pthread_mutex_unlock(&log->lock);
}

static void read_returned(struct loop_post *post)
{
    struct ledger_read *read = CONTAINER_OF(post, struct ledger_read, post);
    read->done(read);
}

/* The queue. */

static bool has_work(const struct ledger_log *log)
{
    bool batch = log->first && (!log->returning || log->waiting >= LEDGER_BATCH_BYTES);
    return batch || log->first_read || log->poked || log->stopping;
}

/* When the thread has to look at something by itself; the lock is held. */
static uint64_t next_look(const struct ledger_log *log)
{
    if (log->failing)
        return monotonic_us() + LEDGER_PROBE_US;
    uint64_t after = LEDGER_LOOK_US;
    if (log->age_max_ms > 0)
        after = MIN(after, MAX((uint64_t)log->age_max_ms * 1000 / 16, 1000u));
    return monotonic_us() + after;
}

/* False when the time has come before the work. */
static bool wait_for_work(struct ledger_log *log)
{
    uint64_t at = next_look(log);
    const struct timespec until = { (time_t)(at / 1000000), (long)(at % 1000000 * 1000) };
    (void)pthread_mutex_lock(&log->lock);
    int r = 0;
    if (!has_work(log) && !log->failing)
        log->busy_since_us = 0;
    while (!has_work(log) && r == 0)
        r = pthread_cond_clockwait(&log->wake, &log->lock, CLOCK_MONOTONIC, &until);
    bool work = has_work(log);
    (void)pthread_mutex_unlock(&log->lock);
    return work;
}

/* Being busy for long is no stall, but failing again and again is one. */
static void note_begin(struct ledger_log *log)
{
    (void)pthread_mutex_lock(&log->lock);
    if (!log->failing || !log->busy_since_us)
        log->busy_since_us = monotonic_us();
    (void)pthread_mutex_unlock(&log->lock);
}

/* What waits, up to what one sync should carry and one segment can hold. */
static struct ledger_append *take_batch(struct ledger_log *log)
{
    const uint64_t most = MIN(LEDGER_BATCH_BYTES, log->segment_bytes - LEDGER_RECORD_HEADER);
    (void)pthread_mutex_lock(&log->lock);
    struct ledger_append *batch = log->first, **end = &log->first;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < LEDGER_BATCH_RECORDS && *end; i++) {
        bytes += (*end)->size + LEDGER_RECORD_HEADER;
        if (i > 0 && bytes > most)
            break;
        end = &(*end)->next;
    }
    log->first = *end;
    if (!log->first)
        log->last = &log->first;
    if (batch)
        *end = NULL;
    (void)pthread_mutex_unlock(&log->lock);
    return batch;
}

static struct ledger_read *take_reads(struct ledger_log *log)
{
    (void)pthread_mutex_lock(&log->lock);
    struct ledger_read *reads = log->first_read, **end = &log->first_read;
    for (unsigned i = 0; i < LEDGER_READS_TURN && *end; i++) {
        end = &(*end)->next;
        log->reads--;
    }
    log->first_read = *end;
    if (!log->first_read)
        log->last_read = &log->first_read;
    if (reads)
        *end = NULL;
    log->poked = false;
    (void)pthread_mutex_unlock(&log->lock);
    return reads;
}

/* The thread. */

static bool serve_reads(struct ledger_log *log)
{
    struct ledger_read *read = take_reads(log), *next;
    bool any = read != NULL;
    for (; read; read = next) {
        next = read->next; /* done() may free it */
        ledger_read_serve(log, read);
        read->post.fn = read_returned;
        loop_post(log->loop, &read->post);
    }
    return any;
}

/* Follows on what is on disk and on what the batch brings before it. */
static bool follows_on(const struct ledger_log *log, const struct ledger_append *append)
{
    const struct ledger_command *command = append->command;
    uint64_t end = command->batch == log->batches ? command->writing : command->end;
    return append->after == end;
}

/* Those that were forgotten are not written; nor those that come behind one that failed. */
static bool judge(struct ledger_log *log, struct ledger_append *appends)
{
    bool any = false;
    log->batches++;
    (void)pthread_mutex_lock(&log->index->lock);
    for (struct ledger_append *append = appends; append; append = append->next) {
        append->result = -1;
        append->err = (struct err){ 0 };
        if (append->command->forgotten) {
            err_fill(&append->err, ERR_CANCELLED, "the command was forgotten");
        } else if (!follows_on(log, append)) {
            append->err = log->why;
        } else {
            append->result = 0;
            append->command->batch = log->batches;
            append->command->writing = append->end;
            any = true;
        }
    }
    (void)pthread_mutex_unlock(&log->index->lock);
    return any;
}

static void fail(struct ledger_log *log, struct ledger_append *appends, const struct err *why)
{
    log->why = *why;
    for (struct ledger_append *append = appends; append; append = append->next) {
        if (append->result < 0)
            continue;
        append->result = -1;
        append->err = *why;
    }
}

static void give_back(struct ledger_log *log, struct ledger_append *appends)
{
    uint64_t bytes = 0;
    struct ledger_append **end = &appends;
    for (; *end; end = &(*end)->next)
        bytes += (*end)->size + LEDGER_RECORD_HEADER;
    if (!appends)
        return;
    (void)pthread_mutex_lock(&log->lock);
    log->waiting -= bytes;
    bool posted = log->returned != NULL;
    *log->last_returned = appends;
    log->last_returned = end;
    (void)pthread_mutex_unlock(&log->lock);
    if (!posted)
        loop_post(log->loop, &log->returned_post);
}

static void note_outcome(struct ledger_log *log, bool failed, const struct err *why)
{
    (void)pthread_mutex_lock(&log->lock);
    bool news = log->failing != failed;
    log->failing = failed;
    (void)pthread_mutex_unlock(&log->lock);
    if (news && failed)
        log_error("output of commands cannot be written down", LF_ERR(why));
    else if (news)
        log_info("output of commands is written down again", LF_STR("dir", log->path));
}

static void settle(struct ledger_log *log)
{
    (void)pthread_mutex_lock(&log->index->lock);
    log->untidy |= ledger_index_settle(log->index, &log->forgotten);
    (void)pthread_mutex_unlock(&log->index->lock);
}

/* The batch is taken before what was forgotten is: who appends to a command again after forgetting
 * it has both in this order on disk. */
static bool write_batch(struct ledger_log *log)
{
    struct ledger_append *appends = take_batch(log);
    settle(log);
    struct err why = { 0 };
    bool any = judge(log, appends);
    if (any || (log->forgotten && !log->failing)) {
        int r = ledger_write(log, appends, &why);
        if (r < 0)
            fail(log, appends, &why);
        note_outcome(log, r < 0, &why);
    }
    give_back(log, appends);
    return appends != NULL;
}

static void probe(struct ledger_log *log)
{
    struct err why = { 0 };
    int r = ledger_write_probe(log, &why);
    note_outcome(log, r < 0, &why);
}

/* False when there was nothing to do. */
static bool turn(struct ledger_log *log)
{
    note_begin(log);
    bool any = serve_reads(log);
    any |= write_batch(log);
    any |= ledger_tidy(log);
    return any;
}

static bool is_over(struct ledger_log *log)
{
    (void)pthread_mutex_lock(&log->lock);
    bool over = log->stopping && !log->first && !log->first_read;
    (void)pthread_mutex_unlock(&log->lock);
    return over;
}

static void *ledger_main(void *userdata)
{
    struct ledger_log *log = userdata;
    bool busy = true;
    while (!is_over(log)) {
        bool work = busy || wait_for_work(log);
        if (!work && log->failing)
            probe(log);
        log->untidy |= !work;
        busy = turn(log);
    }
    return NULL;
}

int ledger_thread_start(struct ledger_log *log, struct err *err)
{
    log->returned_post.fn = appends_returned;
    log->last_returned = &log->returned;
    int r = pthread_create(&log->thread, NULL, ledger_main, log);
    if (r)
        return err_errno(err, r, "cannot start the ledger's thread");
    log->started = true;
    (void)pthread_setname_np(log->thread, "ledger");
    return 0;
}

void ledger_thread_stop(struct ledger_log *log)
{
    (void)pthread_mutex_lock(&log->lock);
    log->stopping = true;
    (void)pthread_cond_signal(&log->wake);
    (void)pthread_mutex_unlock(&log->lock);
    (void)pthread_join(log->thread, NULL);
    bool more;
    do {
        /* What done() hands in now is work that was handed in, too. */
        loop_drain_posts(log->loop);
        more = serve_reads(log);
        more |= write_batch(log);
    } while (more);
}
