/* One gRPC call, either end, as a pair of message queues. Loop thread only.
 *
 * Sending: one SEND_MESSAGE is in flight, the rest waits in a bounded queue. Receiving: the next
 * message is asked for when the previous one was consumed and the call is not paused. `closed` is
 * delivered exactly once, last, when nothing is in flight any more. */
#pragma once

#include "common/err.h"
#include "common/identity.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#define RPC_QUEUE_MAX      (1024u * 1024) /* bytes waiting to be sent; more is ERR_EXHAUSTED */
#define RPC_QUEUE_WRITABLE (256u * 1024)  /* below this a bulk producer may go on */

#define RPC_KEY_LEN 32u /* SHA-256 of a public key's DER form */

struct rpc_call;

/* What counts of the peer's certificate besides the name in it. */
struct rpc_certificate {
    int64_t not_after_s;
    uint8_t key[RPC_KEY_LEN];
};

struct rpc_call_handler {
    /* The bytes are the callee's for the duration of the call. */
    void (*message)(void *owner, const uint8_t *data, size_t size);
    /* The peer will send no more. Not called when the call is cut. */
    void (*half_closed)(void *owner);
    /* The queue fell below RPC_QUEUE_WRITABLE. May be NULL. */
    void (*writable)(void *owner);
    /* code is ERR_NONE for an OK status (client) or a status that reached the peer (server). */
    void (*closed)(void *owner, const struct err *status);
};

/* Before the first callback can come; again to hand the call to another owner. */
void rpc_call_bind(struct rpc_call *call, const struct rpc_call_handler *handler, void *owner);
/* Who is at the other end; IDENTITY_NONE on the client side, where TLS has checked the server. */
const struct identity *rpc_call_peer(const struct rpc_call *call);
/* Of the peer of a server's call. */
const struct rpc_certificate *rpc_call_certificate(const struct rpc_call *call);

int rpc_call_send(struct rpc_call *call, const ProtobufCMessage *message, struct err *err) must_use;
/* A message that is already packed, in pieces. */
int rpc_call_send_parts(struct rpc_call *call, const struct iovec *parts, unsigned count,
                        struct err *err) must_use;
bool rpc_call_writable(const struct rpc_call *call);

void rpc_call_pause(struct rpc_call *call);
void rpc_call_resume(struct rpc_call *call);

/* Nothing more will be sent. Server: `status` (NULL: OK) follows what is queued. Client: half-close
 * follows what is queued, status is ignored. */
void rpc_call_finish(struct rpc_call *call, const struct err *status);
/* Now, whatever is queued. */
void rpc_call_cancel(struct rpc_call *call);
/* Client, once it has closed. Whether a message may have reached the peer; and whether the status
 * is the peer's own word, not what libgrpc makes of a connection that broke. */
bool rpc_call_sent(const struct rpc_call *call);
bool rpc_call_answered(const struct rpc_call *call);
/* The owner lets go: no callback after this. A call that has not closed is cancelled. */
void rpc_call_release(struct rpc_call *call);
