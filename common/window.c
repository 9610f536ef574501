/* Owns the arithmetic of flow control, on both sides of a stream. Handed offsets that come from a
 * peer, so every comparison is written to hold at the ends of 64 bits; hands back how much may be
 * sent, what is new, and when a grant is due. Calls nobody; next: whoever owns the stream. */
#include "common/window.h"

#include <assert.h>
#include <inttypes.h>

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
    return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

void window_init(struct window *window, uint64_t sent, uint64_t limit)
{
    *window = (struct window){ .sent = sent, .limit = limit };
}

/* The limit may lie behind `sent` when a resumed sender starts from an old grant. */
uint64_t window_available(const struct window *window)
{
    return window->limit > window->sent ? window->limit - window->sent : 0;
}

void window_spend(struct window *window, uint64_t size)
{
    assert(size <= window_available(window));
    window->sent += size;
}

void window_grant(struct window *window, uint64_t limit)
{
    window->limit = MAX(window->limit, limit);
}

void window_receiver_init(struct window_receiver *receiver, uint64_t offset, uint64_t size)
{
    *receiver = (struct window_receiver){
        .received = offset,
        .taken = offset,
        .granted = add_saturating(offset, size),
        .size = size,
    };
}

int window_receive(struct window_receiver *receiver, uint64_t offset, uint64_t size,
                   uint64_t *ret_skip, struct err *err)
{
    if (size > UINT64_MAX - offset)
        return err_set(err, ERR_PROTOCOL,
                       "peer sent %" PRIu64 " bytes at offset %" PRIu64
                       ", which passes the largest offset: end the stream",
                       size, offset);
    if (offset > receiver->received)
        return err_set(err, ERR_PROTOCOL,
                       "peer sent offset %" PRIu64 " while %" PRIu64
                       " is next, so bytes are missing: resume from %" PRIu64,
                       offset, receiver->received, receiver->received);
    uint64_t end = offset + size;
    if (end > receiver->granted)
        return err_set(err, ERR_PROTOCOL,
                       "peer sent up to offset %" PRIu64 " but was granted %" PRIu64
                       ": end the stream, the peer does not keep to its window",
                       end, receiver->granted);
    *ret_skip = MIN(receiver->received - offset, size);
    receiver->received = MAX(receiver->received, end);
    return 0;
}

void window_take(struct window_receiver *receiver, uint64_t size)
{
    assert(size <= receiver->received - receiver->taken);
    receiver->taken += size;
}

/* `granted` is always the sum of `size` and an earlier `taken`, so the distance to the next limit
 * is what was taken since. Half a window, rounded up, keeps a sender busy with few messages. */
bool window_should_grant(struct window_receiver *receiver, uint64_t *ret_limit)
{
    uint64_t limit = add_saturating(receiver->taken, receiver->size);
    uint64_t half = receiver->size - receiver->size / 2;
    if (limit <= receiver->granted || limit - receiver->granted < half)
        return false;
    receiver->granted = limit;
    *ret_limit = limit;
    return true;
}
