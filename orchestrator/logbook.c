/* Owns the lines that wait for the store, and those who wait for new lines. Events come from
 * whoever decides them, agents' lines from orchestrator/logbook_agent.c; next:
 * orchestrator/store_logs.c, and orchestrator/control_logs.c for readers.
 *
 * One job is under way at a time, and takes what has gathered meanwhile: a slow disk makes larger
 * batches, and then holes with a number, but never a queue without an end. */
#include "orchestrator/logbook-internal.h"

#include "common/clock.h"
#include "common/utf8.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define EXPIRE_EVERY_US   3600000000u
#define EXPIRE_GO_ON_US   1000000u
#define EXPIRE_AT_ONCE    1000u /* lines in one job */
#define FAILURES_LOGGED   1u
#define FAILURES_EVERY_US 60000000u

struct row {
    struct row *next;
    bool trim;      /* the sandbox has enough new lines to look for old ones */
    uint64_t lines; /* lost when this one is: a marker stands for many */
    struct log_record record;
};

struct logbook {
    struct orchestrator *orchestrator;
    struct loop_timer *gather, *settle, *expire;
    struct row *first, **last;
    unsigned waiting;
    struct store_job job; /* writes the rows in `writing` */
    struct row *writing;
    bool busy;
    struct store_job expiring;
    bool expiring_busy;
    unsigned expired;
    struct watch *watches;
    struct log_limit failures;
};

static struct sandbox *sandbox_of(const struct logbook *book, const struct row *row)
{
    return registry_find(book->orchestrator->registry, row->record.sandbox_id);
}

/* Holes. */

static void lose(struct logbook *book, struct sandbox *sandbox, uint64_t lines)
{
    if (!sandbox)
        return;
    sandbox->log.lost += lines;
    if (!loop_timer_running(book->settle))
        loop_timer_start(book->settle, LOGBOOK_PERIOD_US);
}

void logbook_left_out(struct orchestrator *orchestrator, struct sandbox *sandbox)
{
    struct logbook *book = orchestrator->logbook;
    sandbox->log.limited++;
    if (book && !loop_timer_running(book->settle))
        loop_timer_start(book->settle, LOGBOOK_PERIOD_US);
}

static bool append(struct logbook *book, const struct log_record *record, uint64_t lines)
{
    struct row *row = book->waiting < LOGBOOK_WAITING_MAX ? malloc(sizeof(*row)) : NULL;
    if (!row)
        return false;
    row->next = NULL;
    row->trim = false;
    row->lines = lines;
    row->record = *record;
    *book->last = row;
    book->last = &row->next;
    book->waiting++;
    return true;
}

/* What the store did not take stands in the log already; only its readers must hear of it. */
static void mark_lost(struct logbook *book, struct sandbox *sandbox)
{
    struct log_record marker = { .time_us = wall_us(), .level = LOG_LEVEL_WARN };
    (void)snprintf(marker.sandbox_id, sizeof(marker.sandbox_id), "%s", sandbox->id);
    (void)snprintf(marker.origin, sizeof(marker.origin), "orchestrator");
    (void)snprintf(marker.message, sizeof(marker.message), "%s", event_log_left_out.message);
    (void)snprintf(marker.fields, sizeof(marker.fields),
                   "{\"event\":\"%s\",\"dropped\":\"%" PRIu64 "\",\"reason\":\"the store did not "
                   "take them; the orchestrator's own log has them\"}",
                   event_log_left_out.name, sandbox->log.lost);
    if (append(book, &marker, sandbox->log.lost))
        sandbox->log.lost = 0;
}

/* Holes that nothing has followed since. */
static void settle(void *userdata)
{
    struct logbook *book = userdata;
    bool more = false;
    for (struct sandbox *one = registry_any(book->orchestrator->registry); one;
         one = one->hh.next) {
        uint64_t limited = one->log.limited;
        one->log.limited = 0;
        if (limited > 0)
            LOGBOOK_EVENT(book->orchestrator, LOG_LEVEL_WARN, &event_log_left_out, one->id, NULL,
                          LF_UINT("dropped", limited),
                          LF_STR("reason", "the agent sent more than it may"));
        if (one->log.lost > 0)
            mark_lost(book, one);
        more |= one->log.lost > 0;
    }
    if (more)
        loop_timer_start(book->settle, LOGBOOK_PERIOD_US);
    if (book->first && !loop_timer_running(book->gather))
        loop_timer_start(book->gather, LOGBOOK_GATHER_US);
}

/* To the store. */

/* A sandbox that was removed meanwhile has no log any more. */
static int write_row(struct store_tx *tx, const struct row *row, struct err *err)
{
    struct err why;
    if (store_log_put(tx, &row->record, &why) < 0) {
        if (why.code == ERR_NOT_FOUND)
            return 0;
        if (err)
            *err = why;
        return -1;
    }
    return row->trim ? store_log_trim(tx, row->record.sandbox_id, LOGBOOK_ROWS_MAX, err) : 0;
}

static int write_rows(struct store_job *job, struct store_tx *tx, struct err *err)
{
    const struct logbook *book = CONTAINER_OF(job, struct logbook, job);
    for (const struct row *row = book->writing; row; row = row->next)
        if (write_row(tx, row, err) < 0)
            return -1;
    return 0;
}

static void lose_written(struct logbook *book, const struct err *why)
{
    uint64_t suppressed;
    if (log_limit_pass(&book->failures, monotonic_us(), &suppressed))
        log_error("log lines could not be stored", LF_ERR(why), LF_UINT("suppressed", suppressed));
    for (const struct row *row = book->writing; row; row = row->next)
        lose(book, sandbox_of(book, row), row->lines);
}

bool logbook_wrote(const struct logbook *book, const char *sandbox_id)
{
    for (const struct row *row = book->writing; row; row = row->next)
        if (strcmp(row->record.sandbox_id, sandbox_id) == 0)
            return true;
    return false;
}

struct watch **logbook_watches(struct logbook *book)
{
    return &book->watches;
}

static void free_rows(struct row *rows)
{
    while (rows) {
        struct row *row = rows;
        rows = row->next;
        free(row);
    }
}

static void rows_written(struct store_job *job)
{
    struct logbook *book = CONTAINER_OF(job, struct logbook, job);
    book->busy = false;
    if (job->result < 0)
        lose_written(book, &job->err);
    else
        watch_wake(book->watches);
    free_rows(TAKE_PTR(book->writing));
    if (book->waiting >= LOGBOOK_BATCH || book->orchestrator->stopping)
        logbook_flush(book);
    else if (book->first)
        loop_timer_start(book->gather, LOGBOOK_GATHER_US);
}

void logbook_flush(struct logbook *book)
{
    struct err err;
    if (!book || book->busy || !book->first || !book->orchestrator->store)
        return;
    loop_timer_stop(book->gather);
    book->writing = TAKE_PTR(book->first);
    book->last = &book->first;
    book->waiting = 0;
    book->job.work = write_rows;
    book->job.done = rows_written;
    if (store_submit(book->orchestrator->store, &book->job, &err) == 0) {
        book->busy = true;
        return;
    }
    lose_written(book, &err);
    free_rows(TAKE_PTR(book->writing));
}

static void on_gathered(void *userdata)
{
    logbook_flush(userdata);
}

/* What is old goes, a little at a time. */

static int expire_some(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct logbook *book = CONTAINER_OF(job, struct logbook, expiring);
    return store_log_expire(tx, wall_us() - LOGBOOK_AGE_US, EXPIRE_AT_ONCE, &book->expired, err);
}

static void expire_done(struct store_job *job)
{
    struct logbook *book = CONTAINER_OF(job, struct logbook, expiring);
    bool more = job->result == 0 && book->expired == EXPIRE_AT_ONCE;
    book->expiring_busy = false;
    if (job->result < 0)
        log_warn("old log lines could not be removed", LF_ERR(&job->err));
    loop_timer_start(book->expire, more ? EXPIRE_GO_ON_US : EXPIRE_EVERY_US);
}

static void on_expire(void *userdata)
{
    struct logbook *book = userdata;
    struct err err;
    book->expiring.work = expire_some;
    book->expiring.done = expire_done;
    if (store_submit(book->orchestrator->store, &book->expiring, &err) < 0)
        loop_timer_start(book->expire, EXPIRE_EVERY_US);
    else
        book->expiring_busy = true;
}

/* Lines. */

static void value_text(const struct log_field *field, char ret[LOGBOOK_VALUE_MAX + 1])
{
    if (field->kind == LOG_FIELD_INT)
        (void)snprintf(ret, LOGBOOK_VALUE_MAX + 1, "%" PRId64, field->i);
    else if (field->kind == LOG_FIELD_UINT)
        (void)snprintf(ret, LOGBOOK_VALUE_MAX + 1, "%" PRIu64, field->u);
    else
        (void)snprintf(ret, LOGBOOK_VALUE_MAX + 1, "%s", field->str ? field->str : "");
    utf8_clean(ret);
}

static bool is_column(const struct log_field *field)
{
    return field->kind == LOG_FIELD_MESSAGE_ID || strcmp(field->name, "sandbox") == 0 ||
           strcmp(field->name, "command") == 0 || strcmp(field->name, "origin") == 0;
}

static void fields_text(const struct log_field *fields, unsigned count,
                        char ret[STORE_LOG_FIELDS_MAX + 1])
{
    json_t *object = json_object();
    (void)snprintf(ret, STORE_LOG_FIELDS_MAX + 1, "{}");
    for (unsigned i = 0; object && i < count; i++) {
        char value[LOGBOOK_VALUE_MAX + 1];
        if (is_column(&fields[i]))
            continue;
        value_text(&fields[i], value);
        if (json_object_set_new(object, fields[i].name, json_string(value)) < 0)
            continue;
        char text[STORE_LOG_FIELDS_MAX + 1];
        size_t size = json_dumpb(object, text, STORE_LOG_FIELDS_MAX, JSON_COMPACT);
        if (size == 0 || size > STORE_LOG_FIELDS_MAX) {
            (void)json_object_del(object, fields[i].name);
            continue;
        }
        text[size] = '\0';
        (void)memcpy(ret, text, size + 1);
    }
    json_decref(object);
}

void logbook_keep(struct orchestrator *orchestrator, struct sandbox *sandbox,
                  struct log_record *record, const struct log_field *fields, unsigned count)
{
    struct logbook *book = orchestrator->logbook;
    if (!book)
        return;
    (void)snprintf(record->sandbox_id, sizeof(record->sandbox_id), "%s", sandbox->id);
    fields_text(fields, count, record->fields);
    if (sandbox->log.lost > 0)
        mark_lost(book, sandbox);
    if (!append(book, record, 1)) {
        lose(book, sandbox, 1);
        return;
    }
    struct row *row = CONTAINER_OF(book->last, struct row, next);
    row->trim = ++sandbox->log.since_trim >= LOGBOOK_TRIM_EVERY;
    if (row->trim)
        sandbox->log.since_trim = 0;
    if (book->waiting >= LOGBOOK_BATCH)
        logbook_flush(book);
    else if (!book->busy && !loop_timer_running(book->gather))
        loop_timer_start(book->gather, LOGBOOK_GATHER_US);
}

void logbook_event(struct orchestrator *orchestrator, enum log_level level,
                   const struct log_event_kind *kind, const char *sandbox_id,
                   const char *command_id, const struct log_field *fields, unsigned count)
{
    struct log_field all[LOG_FIELDS_MAX];
    unsigned used = 0;
    assert(count <= LOGBOOK_FIELDS_MAX);
    all[used++] = LF_STR("sandbox", sandbox_id);
    if (command_id)
        all[used++] = LF_STR("command", command_id);
    all[used++] = LF_STR("event", kind->name);
    all[used++] = LF_MESSAGE_ID(kind->message_id);
    for (unsigned i = 0; i < count; i++)
        all[used++] = fields[i];
    log_event(level, kind->message, all, used);

    struct sandbox *sandbox = registry_find(orchestrator->registry, sandbox_id);
    if (!sandbox)
        return;
    struct log_record record = { .time_us = wall_us(), .level = (int)level };
    (void)snprintf(record.origin, sizeof(record.origin), "orchestrator");
    (void)snprintf(record.command_id, sizeof(record.command_id), "%s",
                   command_id ? command_id : "");
    (void)snprintf(record.message, sizeof(record.message), "%s", kind->message);
    logbook_keep(orchestrator, sandbox, &record, all, used);
}

/* Life. */

int logbook_new(struct orchestrator *orchestrator, struct logbook **ret, struct err *err)
{
    struct logbook *book = calloc(1, sizeof(*book));
    if (!book)
        return err_nomem(err);
    book->orchestrator = orchestrator;
    book->last = &book->first;
    book->failures = LOG_LIMIT(FAILURES_EVERY_US, FAILURES_LOGGED);
    if (loop_timer_new(orchestrator->loop, on_gathered, book, &book->gather, err) < 0 ||
        loop_timer_new(orchestrator->loop, settle, book, &book->settle, err) < 0 ||
        loop_timer_new(orchestrator->loop, on_expire, book, &book->expire, err) < 0) {
        logbook_free(book);
        return -1;
    }
    loop_timer_start(book->expire, EXPIRE_GO_ON_US);
    *ret = book;
    return 0;
}

void logbook_free(struct logbook *book)
{
    if (!book)
        return;
    assert(!book->busy && !book->expiring_busy);
    loop_timer_free(book->gather);
    loop_timer_free(book->settle);
    loop_timer_free(book->expire);
    free_rows(book->first);
    free(book);
}
