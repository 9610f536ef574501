/* AuditService: the rows of the audit as a stream, page by page out of the store, no faster than
 * the reader takes them; with follow, until somebody ends it. Rows go out as they are in the table:
 * whether the chain is whole is for the reader to find out, who need not believe us. */
#include "orchestrator/control.h"
#include "orchestrator/orchestrator-internal.h"

#include "common/wire.h"
#include "orchestrator/audit.h"
#include "sandstorm/v1/admin.pb-c.h"

#include <stdlib.h>

#define AUDIT_OPEN_US 10000000u /* from the stream's start to its request */

struct reader {
    struct store_job job;
    struct orchestrator *orchestrator;
    struct rpc_call *call; /* NULL when the client has gone while a page is being read */
    struct loop_timer *deadline;
    struct watch watch;
    bool asked, started, reading, stale, follow;
    uint64_t after;
    uint32_t last;
    /* One page. */
    struct audit_row rows[STORE_AUDIT_PAGE];
    unsigned count;
    uint64_t head_seq;
    uint8_t head_hash[32], previous_hash[32];
};

static void reader_free(struct reader *reader)
{
    watch_stop(&reader->watch);
    loop_timer_free(reader->deadline);
    rpc_call_release(reader->call);
    free(reader);
}

/* On the store's thread. */
static int read_page(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct reader *reader = CONTAINER_OF(job, struct reader, job);
    struct err missing;
    if (store_audit_head(tx, &reader->head_seq, reader->head_hash, err) < 0)
        return -1;
    if (!reader->started && reader->after == 0 && reader->last > 0 &&
        reader->head_seq > reader->last)
        reader->after = reader->head_seq - reader->last;
    /* A row before the first one that is not there shows as a chain that does not begin. */
    if (!reader->started &&
        store_audit_hash(tx, reader->after, reader->previous_hash, &missing) < 0 &&
        missing.code != ERR_NOT_FOUND) {
        if (err)
            *err = missing;
        return -1;
    }
    return store_audit_read(tx, reader->after, reader->rows, STORE_AUDIT_PAGE, &reader->count, err);
}

static int send_page(struct reader *reader, struct err *err)
{
    Sandstorm__V1__AuditRow rows[STORE_AUDIT_PAGE];
    Sandstorm__V1__AuditRow *pointers[STORE_AUDIT_PAGE];
    Sandstorm__V1__StreamAuditResponse response = SANDSTORM__V1__STREAM_AUDIT_RESPONSE__INIT;
    for (unsigned i = 0; i < reader->count; i++) {
        struct audit_row *row = &reader->rows[i];
        sandstorm__v1__audit_row__init(&rows[i]);
        rows[i].seq = row->seq;
        rows[i].time_unix_ms = row->time_ms;
        rows[i].actor = row->actor;
        rows[i].action = row->action;
        rows[i].target = row->target;
        rows[i].allowed = row->allowed;
        rows[i].detail = row->detail;
        rows[i].hash.data = row->hash;
        rows[i].hash.len = sizeof(row->hash);
        pointers[i] = &rows[i];
    }
    response.n_rows = reader->count;
    response.rows = pointers;
    if (!reader->started) {
        response.previous_hash.data = reader->previous_hash;
        response.previous_hash.len = sizeof(reader->previous_hash);
        response.head_seq = reader->head_seq;
        response.head_hash.data = reader->head_hash;
        response.head_hash.len = sizeof(reader->head_hash);
    } else if (reader->count == 0) {
        return 0;
    }
    reader->started = true;
    if (reader->count > 0)
        reader->after = reader->rows[reader->count - 1].seq;
    return rpc_call_send(reader->call, &response.base, err);
}

static void page_done(struct store_job *job);

static void read_more(struct reader *reader)
{
    struct err err;
    if (reader->reading || !reader->asked || !rpc_call_writable(reader->call))
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
    if (r == 0)
        r = send_page(reader, &err);
    if (r < 0)
        rpc_call_finish(reader->call, &err);
    else if (reader->count > 0 || reader->stale)
        read_more(reader);
    else if (!reader->follow)
        rpc_call_finish(reader->call, NULL);
}

static void on_new_rows(struct watch *watch)
{
    struct reader *reader = CONTAINER_OF(watch, struct reader, watch);
    reader->stale = true;
    read_more(reader);
}

static void on_message(void *owner, const uint8_t *data, size_t size)
{
    struct reader *reader = owner;
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    struct err err;
    rpc_call_pause(reader->call);
    loop_timer_stop(reader->deadline);
    if (wire_unpack(&sandstorm__v1__stream_audit_request__descriptor, data, size, &message, &err) <
        0) {
        rpc_call_finish(reader->call, &err);
        return;
    }
    const Sandstorm__V1__StreamAuditRequest *request =
        (const Sandstorm__V1__StreamAuditRequest *)message;
    reader->asked = true;
    reader->after = request->after_seq;
    reader->last = request->last;
    reader->follow = request->follow;
    if (reader->follow)
        watch_start(&reader->orchestrator->audit_watches, &reader->watch);
    read_more(reader);
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
    rpc_call_release(TAKE_PTR(reader->call));
    watch_stop(&reader->watch);
    loop_timer_stop(reader->deadline);
    if (!reader->reading)
        reader_free(reader);
}

static const struct rpc_call_handler handler = {
    .message = on_message,
    .half_closed = on_half_closed,
    .writable = on_writable,
    .closed = on_closed,
};

static void on_deadline(void *userdata)
{
    const struct reader *reader = userdata;
    struct err err;
    (void)err_set(&err, ERR_TIMEOUT, "no request within %u s", AUDIT_OPEN_US / 1000000);
    rpc_call_finish(reader->call, &err);
}

int control_stream_audit(void *userdata, struct rpc_call *call, struct err *err)
{
    struct orchestrator *orchestrator = userdata;
    struct reader *reader = calloc(1, sizeof(*reader));
    if (!reader)
        return err_nomem(err);
    reader->orchestrator = orchestrator;
    reader->watch.fn = on_new_rows;
    if (loop_timer_new(orchestrator->loop, on_deadline, reader, &reader->deadline, err) < 0) {
        free(reader);
        return -1;
    }
    reader->call = call;
    rpc_call_bind(call, &handler, reader);
    loop_timer_start(reader->deadline, AUDIT_OPEN_US);
    return 0;
}
