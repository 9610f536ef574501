/* Calls without a network, for what stands on common/rpc_call.h: a test is the peer. Everything
 * that is sent is checked against its type and kept back; queues are full when the test says so.
 * Defines the functions themselves, so the library's are not linked. */
#pragma once

#include "common/rpc_call.h"
#include "common/wire.h"

#include <assert.h>
#include <string.h>

struct rpc_call {
    const struct rpc_call_handler *handler;
    void *owner;
    struct identity peer;
    struct rpc_certificate certificate;
    const ProtobufCMessageDescriptor *type; /* of what the owner sends */
    bool full, paused, finished, cancelled, released, invalid;
    struct err status;
    size_t sent;
    uint8_t *last;
    size_t last_size;
    bool keeps; /* everything, not only the last one */
    struct {
        uint8_t *data;
        size_t size;
    } kept[64];
    size_t kept_count;
};

static inline void stub_call_init(struct rpc_call *call, enum identity_kind kind, const char *name,
                                  const ProtobufCMessageDescriptor *type)
{
    *call = (struct rpc_call){ .type = type };
    call->peer.kind = kind;
    (void)memcpy(call->peer.trust_domain, "test", 5);
    (void)memcpy(call->peer.name, name, strlen(name) + 1);
}

/* From here on all that is sent is in `kept`. */
static inline void stub_call_keep(struct rpc_call *call)
{
    call->keeps = true;
}

static inline void stub_call_keep_last(struct rpc_call *call)
{
    assert(call->kept_count < sizeof(call->kept) / sizeof(call->kept[0]));
    uint8_t *copy = malloc(call->last_size + 1);
    assert(copy);
    (void)memcpy(copy, call->last, call->last_size);
    call->kept[call->kept_count].data = copy;
    call->kept[call->kept_count++].size = call->last_size;
}

/* The end of the stream, whoever wanted it. The owner must let go. */
static inline void stub_call_close(struct rpc_call *call, enum err_code code)
{
    struct err status = { .code = code };
    const struct rpc_call_handler *handler = call->handler;
    if (handler) {
        call->handler = NULL;
        handler->closed(call->owner, &status);
    }
    free(call->last);
    call->last = NULL;
    while (call->kept_count > 0)
        free(call->kept[--call->kept_count].data);
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

int rpc_call_send(struct rpc_call *call, const ProtobufCMessage *message, struct err *err)
{
    if (call->finished || call->cancelled)
        return err_set(err, ERR_UNAVAILABLE, "the stream is closing");
    if (call->full)
        return err_set(err, ERR_EXHAUSTED, "the peer does not read");
    size_t size = protobuf_c_message_get_packed_size(message);
    free(call->last);
    call->last = malloc(size + 1);
    call->last_size = protobuf_c_message_pack(message, call->last);
    call->sent++;
    if (call->keeps)
        stub_call_keep_last(call);
    /* What the peer's end of the real thing would not take. */
    if (message->descriptor != call->type || wire_scan(call->type, call->last, size, err) < 0)
        call->invalid = true;
    return 0;
}

bool rpc_call_writable(const struct rpc_call *call)
{
    return !call->full;
}

void rpc_call_pause(struct rpc_call *call)
{
    call->paused = true;
}

void rpc_call_resume(struct rpc_call *call)
{
    call->paused = false;
}

void rpc_call_finish(struct rpc_call *call, const struct err *status)
{
    if (!call->finished && status)
        call->status = *status;
    call->finished = true;
}

void rpc_call_cancel(struct rpc_call *call)
{
    call->cancelled = true;
}

void rpc_call_release(struct rpc_call *call)
{
    assert(!call->released);
    call->released = true;
    call->handler = NULL;
}
