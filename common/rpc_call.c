/* One call's life on libgrpc's C core. Born in common/rpc_server.c (accepted) or
 * common/rpc_channel.c (dialled); hands messages to its owner's handler. One operation per batch
 * and one reference per batch in flight: nothing is freed under libgrpc's feet. */
#include "common/rpc_call-internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Goes with every status that is the peer's own word, so that one that libgrpc makes of a broken
 * connection can be told from it. The value is the name of the code. */
#define ANSWER_KEY "sandstorm-status"

struct outgoing {
    struct outgoing *next;
    grpc_byte_buffer *bytes;
    size_t size;
};

struct rpc_call {
    struct rpc_pump *pump;
    grpc_call *call;
    bool server;
    struct identity peer;
    struct rpc_certificate certificate;
    struct rpc_call *next, **back; /* in its server's list */
    const struct rpc_call_handler *handler;
    void *owner;
    unsigned refs; /* the owner's, plus one per batch in flight */

    struct rpc_op metadata_op, recv_metadata_op, send_op, recv_op, finish_op, end_op;
    unsigned in_flight;
    bool sending, receiving, paused, was_full;
    bool finish_asked, finish_started;
    bool peer_done; /* no message will come any more */
    bool judged;    /* the guard has let it in: a sweep may end it */
    bool aborted;   /* ended by the server's sweep */
    bool mute;      /* a send failed: nothing more is sent */
    bool cut;       /* cancelled, or a server's send failed: nothing more is started */
    bool ended;     /* RECV_CLOSE or RECV_STATUS is in */
    bool closed;    /* and so told */
    bool sent;      /* a message has left us */

    struct outgoing *first, **last;
    size_t queued;
    grpc_byte_buffer *incoming;
    grpc_metadata_array recv_metadata, trailing_metadata;

    struct err finish_status; /* server: what to send */
    int cancelled;            /* server: out of RECV_CLOSE */
    grpc_status_code status;  /* client: out of RECV_STATUS */
    grpc_slice details;

    void (*on_free)(void *userdata);
    void *on_free_data;
};

static void pump_queue(struct rpc_call *call);
static void maybe_closed(struct rpc_call *call);

static void drop_queue(struct rpc_call *call)
{
    while (call->first) {
        struct outgoing *item = call->first;
        call->first = item->next;
        grpc_byte_buffer_destroy(item->bytes);
        free(item);
    }
    call->last = &call->first;
    call->queued = 0;
}

static void call_free(struct rpc_call *call)
{
    drop_queue(call);
    if (call->incoming)
        grpc_byte_buffer_destroy(call->incoming);
    grpc_metadata_array_destroy(&call->recv_metadata);
    grpc_metadata_array_destroy(&call->trailing_metadata);
    grpc_slice_unref(call->details);
    grpc_call_unref(call->call);
    if (call->back)
        *call->back = call->next;
    if (call->next)
        call->next->back = call->back;
    if (call->on_free)
        call->on_free(call->on_free_data);
    free(call);
}

static void unref(struct rpc_call *call)
{
    assert(call->refs > 0);
    if (--call->refs == 0)
        call_free(call);
}

static void start(struct rpc_call *call, const grpc_op *op, struct rpc_op *tag,
                  void (*done)(struct rpc_op *op))
{
    call->refs++;
    call->in_flight++;
    grpc_call_error r = grpc_call_start_batch(call->call, op, 1, rpc_op_tag(tag, done), NULL);
    /* Anything but OK is a misuse of the API (two sends at once and the like): our bug. */
    assert(r == GRPC_CALL_OK);
    (void)r;
}

/* The other half of start(): runs when a batch is done, after its own effects. */
static void settle(struct rpc_call *call)
{
    call->in_flight--;
    maybe_closed(call);
    unref(call);
}

/* What every call does from the start. */

static void metadata_done(struct rpc_op *op)
{
    settle(CONTAINER_OF(op, struct rpc_call, metadata_op));
}

static void recv_metadata_done(struct rpc_op *op)
{
    settle(CONTAINER_OF(op, struct rpc_call, recv_metadata_op));
}

static void end_done(struct rpc_op *op)
{
    struct rpc_call *call = CONTAINER_OF(op, struct rpc_call, end_op);
    call->ended = true;
    settle(call);
}

int rpc_call_new(struct rpc_pump *pump, grpc_call *raw, bool server, struct rpc_call **ret,
                 struct err *err)
{
    struct rpc_call *call = calloc(1, sizeof(*call));
    if (!call) {
        grpc_call_unref(raw);
        return err_nomem(err);
    }
    call->pump = pump;
    call->call = raw;
    call->server = server;
    call->refs = 1;
    call->last = &call->first;
    call->details = grpc_empty_slice();
    grpc_metadata_array_init(&call->recv_metadata);
    grpc_metadata_array_init(&call->trailing_metadata);

    grpc_op op = { .op = GRPC_OP_SEND_INITIAL_METADATA };
    start(call, &op, &call->metadata_op, metadata_done);
    if (server) {
        op = (grpc_op){ .op = GRPC_OP_RECV_CLOSE_ON_SERVER };
        op.data.recv_close_on_server.cancelled = &call->cancelled;
    } else {
        op = (grpc_op){ .op = GRPC_OP_RECV_INITIAL_METADATA };
        op.data.recv_initial_metadata.recv_initial_metadata = &call->recv_metadata;
        start(call, &op, &call->recv_metadata_op, recv_metadata_done);
        op = (grpc_op){ .op = GRPC_OP_RECV_STATUS_ON_CLIENT };
        op.data.recv_status_on_client.trailing_metadata = &call->trailing_metadata;
        op.data.recv_status_on_client.status = &call->status;
        op.data.recv_status_on_client.status_details = &call->details;
    }
    start(call, &op, &call->end_op, end_done);
    *ret = call;
    return 0;
}

void rpc_call_set_peer(struct rpc_call *call, const struct identity *peer,
                       const struct rpc_certificate *certificate)
{
    call->peer = *peer;
    call->certificate = *certificate;
}

void rpc_call_list_add(struct rpc_call **list, struct rpc_call *call)
{
    call->next = *list;
    if (call->next)
        call->next->back = &call->next;
    call->back = list;
    *list = call;
}

struct rpc_call *rpc_call_list_next(const struct rpc_call *call)
{
    return call->next;
}

void rpc_call_on_free(struct rpc_call *call, void (*fn)(void *userdata), void *userdata)
{
    call->on_free = fn;
    call->on_free_data = userdata;
}

void rpc_call_bind(struct rpc_call *call, const struct rpc_call_handler *handler, void *owner)
{
    call->handler = handler;
    call->owner = owner;
}

const struct identity *rpc_call_peer(const struct rpc_call *call)
{
    return &call->peer;
}

const struct rpc_certificate *rpc_call_certificate(const struct rpc_call *call)
{
    return &call->certificate;
}

/* Receiving. */

static void deliver(struct rpc_call *call)
{
    grpc_byte_buffer_reader reader;
    if (!grpc_byte_buffer_reader_init(&reader, call->incoming)) {
        rpc_call_cancel(call); /* a message that cannot be decompressed; we allow none */
        return;
    }
    grpc_slice slice = grpc_byte_buffer_reader_readall(&reader);
    grpc_byte_buffer_reader_destroy(&reader);
    if (call->handler)
        call->handler->message(call->owner, GRPC_SLICE_START_PTR(slice), GRPC_SLICE_LENGTH(slice));
    grpc_slice_unref(slice);
}

static void receive(struct rpc_call *call);

static void recv_done(struct rpc_op *op)
{
    struct rpc_call *call = CONTAINER_OF(op, struct rpc_call, recv_op);
    call->receiving = false;
    if (call->incoming) {
        deliver(call);
        grpc_byte_buffer_destroy(call->incoming);
        call->incoming = NULL;
        receive(call);
    } else {
        call->peer_done = true;
        /* A call that was cut completes this with success and no message too; only the core knows
         * the difference from a clean half-close. */
        bool cut = !op->ok || grpc_call_failed_before_recv_message(call->call);
        if (!cut && call->handler && call->handler->half_closed)
            call->handler->half_closed(call->owner);
    }
    settle(call);
}

static void receive(struct rpc_call *call)
{
    if (call->receiving || call->paused || call->peer_done || call->incoming || !call->handler ||
        call->cut)
        return;
    call->receiving = true;
    grpc_op op = { .op = GRPC_OP_RECV_MESSAGE };
    op.data.recv_message.recv_message = &call->incoming;
    start(call, &op, &call->recv_op, recv_done);
}

void rpc_call_open(struct rpc_call *call)
{
    receive(call);
}

void rpc_call_pause(struct rpc_call *call)
{
    call->paused = true;
}

void rpc_call_resume(struct rpc_call *call)
{
    if (!call->paused)
        return;
    call->paused = false;
    receive(call);
}

/* Sending. */

static void send_done(struct rpc_op *op)
{
    struct rpc_call *call = CONTAINER_OF(op, struct rpc_call, send_op);
    call->sending = false;
    /* A failed send means that the call is over; RECV_CLOSE or RECV_STATUS tells the owner. A
     * client reads on: the core holds the status back until what the peer said before it was read.
     * A server starts nothing more: the pump may be on its way out. */
    if (!op->ok) {
        call->mute = true;
        call->cut = call->cut || call->server;
    }
    call->sent = call->sent || op->ok;
    pump_queue(call);
    if (call->was_full && rpc_call_writable(call)) {
        call->was_full = false;
        if (call->handler && call->handler->writable)
            call->handler->writable(call->owner);
    }
    settle(call);
}

static void finish_done(struct rpc_op *op)
{
    settle(CONTAINER_OF(op, struct rpc_call, finish_op));
}

static void start_finish(struct rpc_call *call)
{
    call->finish_started = true;
    if (!call->server) {
        grpc_op op = { .op = GRPC_OP_SEND_CLOSE_FROM_CLIENT };
        start(call, &op, &call->finish_op, finish_done);
        return;
    }
    grpc_slice details = grpc_slice_from_copied_string(call->finish_status.text);
    grpc_metadata answer = {
        .key = grpc_slice_from_static_string(ANSWER_KEY),
        .value = grpc_slice_from_static_string(err_name(call->finish_status.code)),
    };
    grpc_op op = { .op = GRPC_OP_SEND_STATUS_FROM_SERVER };
    op.data.send_status_from_server.trailing_metadata_count = 1;
    op.data.send_status_from_server.trailing_metadata = &answer;
    op.data.send_status_from_server.status =
        (grpc_status_code)err_grpc_status(call->finish_status.code);
    op.data.send_status_from_server.status_details = &details;
    start(call, &op, &call->finish_op, finish_done);
    grpc_slice_unref(details);
}

static void pump_queue(struct rpc_call *call)
{
    if (call->mute || call->cut)
        drop_queue(call);
    if (call->sending || call->ended || call->mute || call->cut)
        return;
    struct outgoing *item = call->first;
    if (!item) {
        if (call->finish_asked && !call->finish_started)
            start_finish(call);
        return;
    }
    call->first = item->next;
    if (!call->first)
        call->last = &call->first;
    call->queued -= item->size;
    call->sending = true;
    grpc_op op = { .op = GRPC_OP_SEND_MESSAGE };
    op.data.send_message.send_message = item->bytes;
    start(call, &op, &call->send_op, send_done);
    /* The core has taken its own references to the slices by now. */
    grpc_byte_buffer_destroy(item->bytes);
    free(item);
}

static int enqueue(struct rpc_call *call, grpc_slice slice, struct err *err)
{
    struct outgoing *item = malloc(sizeof(*item));
    if (!item) {
        grpc_slice_unref(slice);
        return err_nomem(err);
    }
    item->next = NULL;
    item->size = GRPC_SLICE_LENGTH(slice);
    item->bytes = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_slice_unref(slice);
    *call->last = item;
    call->last = &item->next;
    call->queued += item->size;
    if (call->queued >= RPC_QUEUE_WRITABLE)
        call->was_full = true;
    pump_queue(call);
    return 0;
}

static int check_room(const struct rpc_call *call, size_t size, struct err *err)
{
    if (call->finish_asked || call->ended || call->mute || call->cut)
        return err_set(err, ERR_UNAVAILABLE, "the stream is closing");
    if (size > RPC_QUEUE_MAX - MIN(call->queued, RPC_QUEUE_MAX))
        return err_set(err, ERR_EXHAUSTED, "the peer does not read: %zu bytes are waiting for it",
                       call->queued);
    return 0;
}

int rpc_call_send(struct rpc_call *call, const ProtobufCMessage *message, struct err *err)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    if (check_room(call, size, err) < 0)
        return -1;
    grpc_slice slice = grpc_slice_malloc(size);
    (void)protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(slice));
    return enqueue(call, slice, err);
}

int rpc_call_send_parts(struct rpc_call *call, const struct iovec *parts, unsigned count,
                        struct err *err)
{
    size_t size = 0;
    for (unsigned i = 0; i < count; i++)
        size += parts[i].iov_len;
    if (check_room(call, size, err) < 0)
        return -1;
    grpc_slice slice = grpc_slice_malloc(size);
    uint8_t *out = GRPC_SLICE_START_PTR(slice);
    for (unsigned i = 0; i < count; i++) {
        (void)memcpy(out, parts[i].iov_base, parts[i].iov_len);
        out += parts[i].iov_len;
    }
    return enqueue(call, slice, err);
}

bool rpc_call_writable(const struct rpc_call *call)
{
    return !call->mute && !call->cut && !call->ended && call->queued < RPC_QUEUE_WRITABLE;
}

/* Ending. */

void rpc_call_finish(struct rpc_call *call, const struct err *status)
{
    if (call->finish_asked)
        return;
    call->finish_asked = true;
    if (status)
        call->finish_status = *status;
    pump_queue(call);
}

void rpc_call_cancel(struct rpc_call *call)
{
    if (call->ended || call->cut)
        return;
    call->cut = true;
    drop_queue(call);
    (void)grpc_call_cancel(call->call, NULL);
}

void rpc_call_judged(struct rpc_call *call)
{
    call->judged = true;
}

void rpc_call_abort(struct rpc_call *call, const struct err *status)
{
    if (!call->judged)
        return; /* the guard will say no, with a row in the audit */
    if (call->aborted) {
        rpc_call_cancel(call);
        return;
    }
    call->aborted = true;
    if (call->finish_asked)
        return; /* its owner ends it already; the next time it is cut */
    drop_queue(call);
    rpc_call_finish(call, status);
}

bool rpc_call_sent(const struct rpc_call *call)
{
    return call->sent;
}

bool rpc_call_answered(const struct rpc_call *call)
{
    for (size_t i = 0; i < call->trailing_metadata.count; i++)
        if (grpc_slice_str_cmp(call->trailing_metadata.metadata[i].key, ANSWER_KEY) == 0)
            return true;
    return false;
}

static struct err final_status(const struct rpc_call *call)
{
    struct err status = { 0 };
    if (call->server) {
        if (call->cancelled)
            (void)err_set(&status, ERR_CANCELLED, "the peer is gone");
    } else if (call->status != GRPC_STATUS_OK) {
        (void)err_set(&status, err_from_grpc_status((int)call->status), "%.*s",
                      (int)MIN(GRPC_SLICE_LENGTH(call->details), (size_t)ERR_TEXT_MAX),
                      (const char *)GRPC_SLICE_START_PTR(call->details));
    }
    return status;
}

static void maybe_closed(struct rpc_call *call)
{
    if (!call->ended || call->in_flight > 0 || call->closed)
        return;
    call->closed = true;
    const struct rpc_call_handler *handler = call->handler;
    if (!handler)
        return;
    struct err status = final_status(call);
    call->handler = NULL;
    handler->closed(call->owner, &status);
}

void rpc_call_release(struct rpc_call *call)
{
    if (!call)
        return;
    call->handler = NULL;
    call->owner = NULL;
    if (!call->ended && !(call->server && call->finish_asked))
        rpc_call_cancel(call);
    unref(call);
}
