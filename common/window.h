/* Flow control by offset. A sender may go as far as `limit`; the receiver moves the limit as its
 * consumer takes bytes. Offsets, not amounts: a repeated or reordered grant changes nothing, and
 * no sum can overflow. One thread. */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

/* The sending side. */
struct window {
    uint64_t sent;  /* offset of the next byte to send */
    uint64_t limit; /* first offset that may not be sent yet */
};

void window_init(struct window *window, uint64_t sent, uint64_t limit);
uint64_t window_available(const struct window *window);
/* `size` must be available: a sender that passes its limit is our bug. */
void window_spend(struct window *window, uint64_t size);
/* A smaller or equal limit is late and changes nothing. */
void window_grant(struct window *window, uint64_t limit);

/* The receiving side: decides when the next grant is worth a message. */
struct window_receiver {
    uint64_t received; /* end of what has arrived */
    uint64_t taken;    /* end of what the consumer has taken */
    uint64_t granted;  /* limit last told to the sender */
    uint64_t size;     /* how far the sender may run ahead of the consumer */
};

void window_receiver_init(struct window_receiver *receiver, uint64_t offset, uint64_t size);
/* Bytes [offset, offset + size) arrived. ERR_PROTOCOL when they pass the granted limit or leave a
 * hole. *ret_skip is how many of the first bytes are already known (an overlap after a resume). */
int window_receive(struct window_receiver *receiver, uint64_t offset, uint64_t size,
                   uint64_t *ret_skip, struct err *err) must_use;
/* The consumer took `size` more bytes. */
void window_take(struct window_receiver *receiver, uint64_t size);
/* True once at least half a window has been taken since the last grant: send *ret_limit. */
bool window_should_grant(struct window_receiver *receiver, uint64_t *ret_limit);
