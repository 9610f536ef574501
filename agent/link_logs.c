/* The agent's own log, forwarded: lines of this process and what the runner sent of its own wait in
 * one ring (common/log_ring.c) and go up when the stream takes them. A stream that is away costs
 * nothing but the oldest lines. Nothing here logs above debug: a line about forwarding would be
 * forwarded. */
#include "agent/link-internal.h"

#include "common/log_ring.h"
#include "common/wire.h"

static void flush_posted(struct loop_post *post)
{
    struct link *link = CONTAINER_OF(post, struct link, logs.post);
    atomic_store(&link->logs.posted, false);
    link_logs_flush(link);
}

/* Any thread; also the loop's, where a line in the middle of a send must not begin another one. */
static void on_filled(void *userdata)
{
    struct link *link = userdata;
    if (!atomic_exchange(&link->logs.posted, true))
        loop_post(link->loop, &link->logs.post);
}

int link_logs_init(struct link *link, struct err *err)
{
    link->logs.post.fn = flush_posted;
    if (log_ring_new("agent", on_filled, link, &link->logs.ring, err) < 0)
        return -1;
    log_set_tap(log_ring_tap, link->logs.ring, LOG_LEVEL_INFO);
    return 0;
}

void link_logs_done(struct link *link)
{
    if (!link->logs.ring)
        return;
    log_set_tap(NULL, NULL, LOG_LEVEL_INFO);
    log_ring_free(TAKE_PTR(link->logs.ring));
}

void link_logs_flush(struct link *link)
{
    uint8_t frame[LOG_RING_FRAME_MAX];
    while (link->stream.state == STREAM_ACTIVE && link_stream_writable(link)) {
        struct iovec part = { frame, log_ring_pack(link->logs.ring, frame) };
        if (part.iov_len == 0)
            return;
        link_stream_carry(link, &part, 1);
    }
}

void link_logs_relay(struct link *link, const uint8_t *data, size_t size)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    struct err err;
    if (wire_unpack(&sandstorm__v1__logs__descriptor, data, size, &message, &err) < 0) {
        log_debug("the runner's log makes no sense", LF_ERR(&err));
        return;
    }
    /* Whatever it says of itself, it is the runner. */
    log_ring_relay(link->logs.ring, "runner", (const Sandstorm__V1__Logs *)message);
}
