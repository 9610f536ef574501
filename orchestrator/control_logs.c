/* LogService: the log of one sandbox as a stream, page by page out of the store, no faster than the
 * reader takes it; with follow, until somebody ends it. Whether the caller may is in the audit
 * before the first line goes out, and is asked again for as long as the stream lasts. Lines come
 * from orchestrator/logbook.c by way of orchestrator/store_logs.c. */
#include "orchestrator/control.h"
#include "orchestrator/orchestrator-internal.h"

#include "common/wire.h"
#include "orchestrator/audit.h"
#include "orchestrator/logbook.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define LOGS_OPEN_US  10000000u /* from the stream's start to its request */
#define LOGS_CHECK_US 1000000u  /* how long a scope that was lost may go unnoticed */
#define LOGS_PAGE     64u

static_assert(LOGS_PAGE * (STORE_LOG_MESSAGE_MAX + STORE_LOG_FIELDS_MAX + 256) < WIRE_MESSAGE_MAX,
              "a page is a message");

/* The audit's row outlives a reader that goes away while it is being written. */
struct admission {
    struct reader *reader;
    struct err denied; /* ERR_NONE: it was allowed */
};

struct reader {
    struct store_job job;
    struct orchestrator *orchestrator;
    struct rpc_call *call;    /* NULL when the client has gone while a page is being read */
    struct loop_timer *timer; /* the deadline of the request, then the next look at the scope */
    struct watch watch;
    struct admission *admission;
    bool asked, admitted, reading, stale, follow;
    struct log_query query;
    struct log_record rows[LOGS_PAGE];
    unsigned count;
};

/* When its call is closed. */
static void reader_free(struct reader *reader)
{
    watch_stop(&reader->watch);
    loop_timer_free(reader->timer);
    free(reader);
}

/* Lines as they go out. */

static size_t field_count(const json_t *object)
{
    return json_is_object(object) ? json_object_size(object) : 0;
}

struct page {
    Sandstorm__V1__LogLine lines[LOGS_PAGE];
    Sandstorm__V1__LogLine *line_pointers[LOGS_PAGE];
    json_t *objects[LOGS_PAGE]; /* hold the fields' texts */
    Sandstorm__V1__LogField *fields;
    Sandstorm__V1__LogField **field_pointers;
    unsigned count;
};

static void page_free(struct page **slot)
{
    struct page *page = *slot;
    if (!page)
        return;
    for (unsigned i = 0; i < page->count; i++)
        json_decref(page->objects[i]);
    free(page->fields);
    free(page->field_pointers);
    free(page);
}
#define CLEANUP_PAGE CLEANUP(page_free)

static Sandstorm__V1__LogField *put_field(struct page *page, size_t at, const char *name,
                                          const char *value)
{
    Sandstorm__V1__LogField *field = &page->fields[at];
    sandstorm__v1__log_field__init(field);
    field->name = (char *)name;
    field->value = (char *)(value ? value : "");
    page->field_pointers[at] = field;
    return field;
}

static size_t put_line(struct page *page, unsigned i, struct log_record *row, size_t at)
{
    Sandstorm__V1__LogLine *line = &page->lines[i];
    const char *name;
    json_t *value;
    sandstorm__v1__log_line__init(line);
    line->time_unix_us = row->time_us;
    line->level = (Sandstorm__V1__LogLevel)(row->level + 1); /* ours begin at 0, the wire's at 1 */
    line->origin = row->origin;
    line->message = row->message;
    line->fields = page->field_pointers + at;
    if (*row->command_id)
        (void)put_field(page, at + line->n_fields++, "command", row->command_id);
    json_object_foreach(page->objects[i], name, value)(void)
        put_field(page, at + line->n_fields++, name, json_string_value(value));
    page->line_pointers[i] = line;
    return at + line->n_fields;
}

static int page_new(struct log_record *rows, unsigned count, struct page **ret, struct err *err)
{
    CLEANUP_PAGE struct page *page = calloc(1, sizeof(*page));
    size_t fields = 0, at = 0;
    if (!page)
        return err_nomem(err);
    for (; page->count < count; page->count++) {
        /* What is no object was not written by us, and is a line without fields. */
        page->objects[page->count] = json_loads(rows[page->count].fields, 0, NULL);
        fields += 1 + field_count(page->objects[page->count]);
    }
    page->fields = calloc(fields + 1, sizeof(*page->fields));
    page->field_pointers = calloc(fields + 1, sizeof(Sandstorm__V1__LogField *));
    if (!page->fields || !page->field_pointers)
        return err_nomem(err);
    for (unsigned i = 0; i < count; i++)
        at = put_line(page, i, &rows[i], at);
    *ret = TAKE_PTR(page);
    return 0;
}

static int send_page(struct reader *reader, struct err *err)
{
    CLEANUP_PAGE struct page *page = NULL;
    if (reader->count == 0)
        return 0;
    if (page_new(reader->rows, reader->count, &page, err) < 0)
        return -1;
    Sandstorm__V1__StreamLogsResponse response = SANDSTORM__V1__STREAM_LOGS_RESPONSE__INIT;
    response.n_lines = reader->count;
    response.lines = page->line_pointers;
    /* From here on it is everything that follows. */
    reader->query.last = 0;
    reader->query.after = reader->rows[reader->count - 1].number;
    return rpc_call_send(reader->call, &response.base, err);
}

/* Pages. */

/* On the store's thread. */
static int read_page(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct reader *reader = CONTAINER_OF(job, struct reader, job);
    return store_log_list(tx, &reader->query, reader->rows, LOGS_PAGE, &reader->count, err);
}

static int check_scope(struct reader *reader, struct err *err)
{
    struct sandbox *sandbox;
    return access_sandbox(reader->orchestrator, rpc_call_peer(reader->call),
                          reader->query.sandbox_id, &sandbox, err);
}

static void page_done(struct store_job *job);

static void read_more(struct reader *reader)
{
    struct err err;
    if (reader->reading || !reader->admitted || !rpc_call_writable(reader->call))
        return;
    reader->job.work = read_page;
    reader->job.done = page_done;
    reader->stale = false;
    if (store_submit(reader->orchestrator->store, &reader->job, &err) < 0)
        rpc_call_finish(reader->call, &err);
    else
        reader->reading = true;
}

static void page_done(struct store_job *job)
{
    struct reader *reader = CONTAINER_OF(job, struct reader, job);
    struct err err = job->err;
    reader->reading = false;
    if (!reader->call) {
        reader_free(reader);
        return;
    }
    int r = job->result;
    /* A turn of the loop or two have passed since the caller was let in. */
    if (r == 0)
        r = check_scope(reader, &err);
    if (r == 0)
        r = send_page(reader, &err);
    if (r < 0)
        rpc_call_finish(reader->call, &err);
    else if (reader->count > 0 || reader->stale)
        read_more(reader);
    else if (!reader->follow)
        rpc_call_finish(reader->call, NULL);
}

static void on_new_lines(struct watch *watch)
{
    struct reader *reader = CONTAINER_OF(watch, struct reader, watch);
    if (!logbook_wrote(reader->orchestrator->logbook, reader->query.sandbox_id))
        return;
    reader->stale = true;
    read_more(reader);
}

/* Who may. */

static void begin(struct reader *reader)
{
    reader->admitted = true;
    if (reader->follow)
        watch_start(logbook_watches(reader->orchestrator->logbook), &reader->watch);
    loop_timer_start(reader->timer, LOGS_CHECK_US);
    read_more(reader);
}

static void on_written(void *userdata, const struct err *failed)
{
    CLEANUP_FREE struct admission *admission = userdata;
    struct reader *reader = admission->reader;
    if (!reader)
        return;
    reader->admission = NULL;
    if (admission->denied.code != ERR_NONE)
        rpc_call_finish(reader->call, &admission->denied);
    else if (failed)
        rpc_call_finish(reader->call, failed);
    else
        begin(reader);
}

static int write_down(struct reader *reader, const struct err *denied, struct err *err)
{
    struct admission *admission = calloc(1, sizeof(*admission));
    char actor[ACCESS_ACTOR_MAX];
    if (!admission)
        return err_nomem(err);
    admission->reader = reader;
    admission->denied = *denied;
    access_actor(rpc_call_peer(reader->call), actor);
    const struct audit_entry entry = {
        .actor = actor,
        .action = "StreamLogs",
        .target = reader->query.sandbox_id,
        .allowed = denied->code == ERR_NONE,
        .detail = denied->code == ERR_NONE ? reader->query.command_id : denied->text,
    };
    reader->admission = admission;
    if (audit_write(reader->orchestrator, &entry, on_written, admission, err) == 0)
        return 0;
    reader->admission = NULL;
    free(admission);
    return -1;
}

static int ask(struct reader *reader, const Sandstorm__V1__StreamLogsRequest *request,
               struct err *err)
{
    struct command_id command;
    struct err denied = { 0 };
    if (sandbox_id_check(request->sandbox_id, err) < 0 ||
        (*request->command_id && command_id_parse(request->command_id, &command, err) < 0))
        return -1;
    struct log_query *query = &reader->query;
    (void)snprintf(query->sandbox_id, sizeof(query->sandbox_id), "%s", request->sandbox_id);
    (void)snprintf(query->command_id, sizeof(query->command_id), "%s", request->command_id);
    query->since_us = request->since_unix_us;
    query->last = request->last;
    reader->follow = request->follow;
    /* Denied or not is known from the code; the row comes first in both cases. */
    if (check_scope(reader, &denied) == 0)
        denied = (struct err){ 0 };
    return write_down(reader, &denied, err);
}

static void on_message(void *owner, const uint8_t *data, size_t size)
{
    struct reader *reader = owner;
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    struct err err;
    rpc_call_pause(reader->call);
    loop_timer_stop(reader->timer);
    reader->asked = true;
    if (wire_unpack(&sandstorm__v1__stream_logs_request__descriptor, data, size, &message, &err) <
            0 ||
        ask(reader, (const Sandstorm__V1__StreamLogsRequest *)message, &err) < 0)
        rpc_call_finish(reader->call, &err);
}

static void on_half_closed(void *owner)
{
    struct reader *reader = owner;
    struct err err;
    if (reader->asked)
        return;
    (void)err_set(&err, ERR_INVALID, "the request has no message");
    rpc_call_finish(reader->call, &err);
}

static void on_writable(void *owner)
{
    read_more(owner);
}

static void on_closed(void *owner, const struct err *status)
{
    struct reader *reader = owner;
    (void)status;
    if (reader->admission)
        reader->admission->reader = NULL;
    rpc_call_release(TAKE_PTR(reader->call));
    watch_stop(&reader->watch);
    loop_timer_stop(reader->timer);
    if (!reader->reading)
        reader_free(reader);
}

static const struct rpc_call_handler handler = {
    .message = on_message,
    .half_closed = on_half_closed,
    .writable = on_writable,
    .closed = on_closed,
};

static void on_timer(void *userdata)
{
    struct reader *reader = userdata;
    struct err err;
    if (!reader->admitted) {
        (void)err_set(&err, ERR_TIMEOUT, "no request within %u s", LOGS_OPEN_US / 1000000);
        rpc_call_finish(reader->call, &err);
    } else if (check_scope(reader, &err) < 0) {
        rpc_call_finish(reader->call, &err);
    } else {
        loop_timer_start(reader->timer, LOGS_CHECK_US);
    }
}

int control_stream_logs(void *userdata, struct rpc_call *call, struct err *err)
{
    struct orchestrator *orchestrator = userdata;
    struct reader *reader = calloc(1, sizeof(*reader));
    if (!reader)
        return err_nomem(err);
    reader->orchestrator = orchestrator;
    reader->watch.fn = on_new_lines;
    if (loop_timer_new(orchestrator->loop, on_timer, reader, &reader->timer, err) < 0) {
        free(reader);
        return -1;
    }
    reader->call = call;
    rpc_call_bind(call, &handler, reader);
    loop_timer_start(reader->timer, LOGS_OPEN_US);
    return 0;
}
