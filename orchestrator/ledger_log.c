/* The ledger's face to the loop: requests go into the queue of the thread, questions are answered
 * from the index. Next: ledger_log_thread.c. */
#include "common/clock.h"
#include "orchestrator/ledger_log-internal.h"

#include <assert.h>
#include <limits.h>

/* Life. */

static int check(const struct ledger_log_config *config, uint64_t segment_bytes, struct err *err)
{
    if (segment_bytes < LEDGER_SEGMENT_MIN || segment_bytes > LEDGER_SEGMENT_MAX)
        return err_set(err, ERR_INVALID, "a file of output has between %u and %u bytes",
                       LEDGER_SEGMENT_MIN, LEDGER_SEGMENT_MAX);
    if (config->total_max / LEDGER_TOTAL_SEGMENTS < segment_bytes)
        return err_set(err, ERR_INVALID, "output of commands needs room for at least %llu bytes",
                       (unsigned long long)segment_bytes * LEDGER_TOTAL_SEGMENTS);
    return 0;
}

static int start(struct ledger_log *log, const char *dir, struct err *err)
{
    if (!log->index || !log->window || !log->headers)
        return err_nomem(err);
    if (ledger_dir_open(log, dir, err) < 0 || ledger_scan(log, err) < 0)
        return -1;
    return ledger_thread_start(log, err);
}

int ledger_log_open(const struct ledger_log_config *config, struct ledger_log **ret,
                    struct err *err)
{
    uint64_t segment_bytes = config->segment_bytes ? config->segment_bytes : LEDGER_SEGMENT_DEFAULT;
    if (check(config, segment_bytes, err) < 0)
        return -1;
    struct ledger_log *log = calloc(1, sizeof(*log));
    if (!log)
        return err_nomem(err);
    log->loop = config->loop;
    log->dir_fd = log->head_fd = -1;
    log->total_max = config->total_max;
    log->segment_bytes = segment_bytes;
    log->age_max_ms = config->age_max_ms;
    log->opened_ms = wall_ms();
    log->opened_us = clock_us(CLOCK_BOOTTIME);
    log->last = &log->first;
    log->last_read = &log->first_read;
    log->untidy = true;
    (void)pthread_mutex_init(&log->lock, NULL);
    (void)pthread_cond_init(&log->wake, NULL);
    log->index = ledger_index_new(config->command_max);
    log->window = malloc(LEDGER_WINDOW);
    log->headers = malloc(IOV_MAX * sizeof(*log->headers));
    if (start(log, config->dir, err) < 0) {
        ledger_log_free(log);
        return -1;
    }
    *ret = log;
    return 0;
}

void ledger_log_free(struct ledger_log *log)
{
    if (!log)
        return;
    if (log->started)
        ledger_thread_stop(log);
    while (log->forgotten) {
        struct ledger_command *command = log->forgotten;
        log->forgotten = command->changed_next;
        ledger_command_free(log->index, command);
    }
    ledger_index_free(log->index);
    close_fd(&log->head_fd);
    close_fd(&log->dir_fd);
    free((void *)log->headers);
    free(log->window);
    free(log->path);
    (void)pthread_cond_destroy(&log->wake);
    (void)pthread_mutex_destroy(&log->lock);
    free(log);
}

/* The loop's side. */

static int accept(struct ledger_log *log, struct ledger_append *append, struct err *err)
{
    const struct ledger_id id = ledger_id_of(&append->id);
    struct ledger_command *command = ledger_index_find(log->index, &id);
    uint64_t end = command ? MAX(command->end, command->accepted) : 0;
    if (append->offset < end)
        return err_set(err, ERR_INVALID,
                       "output from %llu on is appended, but it is there up to %llu already",
                       (unsigned long long)append->offset, (unsigned long long)end);
    command = ledger_index_get(log->index, &id, err);
    if (!command)
        return -1;
    append->command = command;
    append->after = end;
    append->epoch = command->epoch;
    command->accepted = append->end;
    command->pending++;
    return 0;
}

static int enqueue(struct ledger_log *log, struct ledger_append *append, struct err *err)
{
    const uint64_t size = append->size + LEDGER_RECORD_HEADER;
    if (log->waiting + size > LEDGER_QUEUE_MAX)
        return err_set(err, ERR_EXHAUSTED,
                       "%u MiB of output wait for the disk already; try again later, and look "
                       "whether the disk is slow",
                       LEDGER_QUEUE_MAX >> 20);
    if (log->stopping && log->failing)
        return err_set(err, ERR_UNAVAILABLE, "the disk takes no output, and we are stopping");
    (void)pthread_mutex_lock(&log->index->lock);
    int r = accept(log, append, err);
    (void)pthread_mutex_unlock(&log->index->lock);
    if (r < 0)
        return -1;
    append->next = NULL;
    *log->last = append;
    log->last = &append->next;
    log->waiting += size;
    (void)pthread_cond_signal(&log->wake);
    return 0;
}

int ledger_log_append(struct ledger_log *log, struct ledger_append *append, struct err *err)
{
    if (append->size == 0 || append->size > LEDGER_BLOCK_MAX || append->end <= append->offset ||
        !ledger_runs_cover(append->runs, append->size, append->end - append->offset))
        return err_set(err, ERR_INVALID, "these are no runs of output, or not as many bytes");
    (void)pthread_mutex_lock(&log->lock);
    int r = enqueue(log, append, err);
    (void)pthread_mutex_unlock(&log->lock);
    return r;
}

int ledger_log_read(struct ledger_log *log, struct ledger_read *read, struct err *err)
{
    assert(read->capacity >= LEDGER_READ_MIN);
    (void)pthread_mutex_lock(&log->lock);
    bool full = log->reads >= LEDGER_READS_MAX;
    if (!full) {
        read->next = NULL;
        *log->last_read = read;
        log->last_read = &read->next;
        log->reads++;
        (void)pthread_cond_signal(&log->wake);
    }
    (void)pthread_mutex_unlock(&log->lock);
    if (full)
        return err_set(err, ERR_EXHAUSTED, "%u reads of output wait already; try again later",
                       LEDGER_READS_MAX);
    return 0;
}

bool ledger_log_range(const struct ledger_log *log, const struct command_id *id,
                      uint64_t *ret_first, uint64_t *ret_end)
{
    const struct ledger_id key = ledger_id_of(id);
    (void)pthread_mutex_lock(&log->index->lock);
    const struct ledger_command *command = ledger_index_find(log->index, &key);
    bool kept = command && command->end > command->first;
    if (kept) {
        *ret_first = command->first;
        *ret_end = command->end;
    }
    (void)pthread_mutex_unlock(&log->index->lock);
    return kept;
}

static void poke(struct ledger_log *log)
{
    (void)pthread_mutex_lock(&log->lock);
    log->poked = true;
    (void)pthread_cond_signal(&log->wake);
    (void)pthread_mutex_unlock(&log->lock);
}

void ledger_log_trim(struct ledger_log *log, const struct command_id *id, uint64_t below)
{
    const struct ledger_id key = ledger_id_of(id);
    (void)pthread_mutex_lock(&log->index->lock);
    struct ledger_command *command = ledger_index_find(log->index, &key);
    bool less = command && below > command->first;
    if (less) {
        command->first = MIN(below, command->end);
        ledger_index_change(log->index, command);
    }
    (void)pthread_mutex_unlock(&log->index->lock);
    if (less)
        poke(log);
}

void ledger_log_forget(struct ledger_log *log, const struct command_id *id)
{
    const struct ledger_id key = ledger_id_of(id);
    (void)pthread_mutex_lock(&log->index->lock);
    struct ledger_command *command = ledger_index_find(log->index, &key);
    if (command) {
        ledger_index_remove(log->index, command);
        command->forgotten = true;
        ledger_index_change(log->index, command);
    }
    (void)pthread_mutex_unlock(&log->index->lock);
    if (command)
        poke(log);
}

uint64_t ledger_log_bytes(const struct ledger_log *log)
{
    return atomic_load(&log->bytes);
}

uint64_t ledger_log_busy_us(struct ledger_log *log)
{
    (void)pthread_mutex_lock(&log->lock);
    uint64_t since = log->busy_since_us;
    (void)pthread_mutex_unlock(&log->lock);
    return since ? monotonic_us() - since : 0;
}
