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

static void go_on_at(struct feed *feed, uint64_t offset)
{
    feed->base = feed->read = offset;
    feed->behind_others = true;
}

/* Others have written since. When all of our own is safe, we go on behind that. */
static int step_behind(struct feed *feed, uint64_t end, struct err *err)
{
    if (feed->base < feed->read || feed->eof)
        return err_set(err, ERR_PRECONDITION,
                       "another client has written to the command's input; what was read here "
                       "meanwhile has no place in it");
    go_on_at(feed, end);
    return 0;
}

/* What others had sent before us was lost with their orchestrator: ours moves up. */
static int move_up(struct feed *feed, uint64_t end, struct err *err)
{
    if (!feed->behind_others)
        return err_set(err, ERR_PROTOCOL, "the sandbox has %llu bytes of input, after it had %llu",
                       (unsigned long long)end, (unsigned long long)feed->base);
    feed->read -= feed->base - end;
    feed->base = end;
    return 0;
}

/* The first word on a connection: where it goes on. `end` is that of all input there is. */
static int begin(struct feed *feed, uint64_t received, uint64_t end, struct err *err)
{
    bool first = !feed->heard, skips = feed->base > feed->read;
    feed->heard = feed->ready = true;
    /* A start that is repeated reads the same input from its beginning, and passes over what is
     * safe with the sandbox; an attach goes on behind all there is. */
    if (first && feed->from_start)
        feed->base = received;
    else if (first)
        go_on_at(feed, end);
    else if (end < feed->base)
        return move_up(feed, end, err);
    else if (end > feed->read && !skips)
        return step_behind(feed, end, err);
    return 0;
}

int feed_credit(struct feed *feed, uint64_t limit, uint64_t received, uint64_t next,
                struct err *err)
{
    if (!feed->ready && begin(feed, received, MAX(received, next), err) < 0)
        return -1;
    if (received > feed->base) {
        size_t gone = (size_t)MIN(received - feed->base, (uint64_t)buf_used(&feed->bytes));
        buf_drop(&feed->bytes, gone);
        feed->base = received;
    }
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
    feed->sent = 0;
    feed->limit = 0;
}
