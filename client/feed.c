/* The bookkeeping of a command's input through connections that come and go. Gets bytes and credits
 * from client/exec_input.c, and hands out what is to be sent. See proto/PROTOCOL.md, "Input". */
#include "client/feed.h"

#include <assert.h>

void feed_init(struct feed *feed, bool from_start)
{
    *feed = (struct feed){ .from_start = from_start };
    buf_init(&feed->bytes, FEED_MAX);
}

void feed_done(struct feed *feed)
{
    buf_done(&feed->bytes);
}

/* The sandbox has more than we ever read. */
static int move_ahead(struct feed *feed, uint64_t received, struct err *err)
{
    /* A start that is repeated reads the same input from its beginning, and passes over what is
     * there. An attach goes on behind it, and so does everybody behind what others have written
     * since. */
    bool repeated = feed->from_start && (!feed->heard || feed->base > feed->read);
    if (!repeated && (feed->base < feed->read || feed->eof))
        return err_set(err, ERR_PRECONDITION,
                       "another client has written to the command's input; what was read here "
                       "meanwhile has no place in it");
    feed->base = received;
    if (!repeated)
        feed->read = received;
    return 0;
}

int feed_credit(struct feed *feed, uint64_t limit, uint64_t received, struct err *err)
{
    /* Older than what we know: nothing can be sent from before `base` any more. */
    if (received < feed->base)
        return 0;
    if (received > feed->read) {
        if (move_ahead(feed, received, err) < 0)
            return -1;
    } else {
        buf_drop(&feed->bytes, (size_t)(received - feed->base));
        feed->base = received;
    }
    feed->heard = feed->ready = true;
    feed->limit = MAX(feed->limit, limit);
    feed->sent = MAX(feed->sent, feed->base);
    return 0;
}

size_t feed_room(const struct feed *feed)
{
    if (!feed->ready || feed->eof)
        return 0;
    /* What is passed over needs no room. */
    if (feed->read < feed->base)
        return (size_t)MIN(feed->base - feed->read, (uint64_t)FEED_MAX);
    uint64_t allowed = feed->limit > feed->read ? feed->limit - feed->read : 0;
    return (size_t)MIN(allowed, (uint64_t)buf_room(&feed->bytes));
}

int feed_push(struct feed *feed, const void *data, size_t size, struct err *err)
{
    assert(size <= feed_room(feed) && !feed->eof);
    feed->eof = size == 0;
    size_t skip = feed->base > feed->read ? (size_t)MIN(feed->base - feed->read, size) : 0;
    if (size > skip && buf_push(&feed->bytes, (const uint8_t *)data + skip, size - skip, err) < 0)
        return -1;
    feed->read += size;
    return 0;
}

bool feed_next(struct feed *feed, struct feed_piece *ret)
{
    if (!feed->ready)
        return false;
    uint64_t waiting = feed->read > feed->sent ? feed->read - feed->sent : 0;
    uint64_t allowed = feed->limit > feed->sent ? feed->limit - feed->sent : 0;
    ret->offset = feed->sent;
    ret->size = (size_t)MIN(MIN(waiting, allowed), (uint64_t)FEED_PIECE);
    ret->eof = feed->eof && !feed->eof_sent && ret->size == waiting;
    if (ret->size == 0 && !ret->eof)
        return false;
    if (ret->size > 0)
        buf_peek(&feed->bytes, (size_t)(feed->sent - feed->base), ret->data, ret->size);
    feed->sent += ret->size;
    feed->eof_sent = feed->eof_sent || ret->eof;
    return true;
}

void feed_cut(struct feed *feed)
{
    feed->ready = false;
    feed->eof_sent = false;
    feed->sent = feed->base;
    feed->limit = 0;
}
