/* From record to record through one file. The scan, reads and emptying hand it a file; it hands
 * back headers that are whole, passes over what is damaged, and counts it. Payloads are not looked
 * at: who needs one reads it and holds it against its checksum. */
#include "orchestrator/ledger_log-internal.h"

#include <errno.h>
#include <string.h>

#define LEDGER_HOP 4096u /* read at once where other commands' payloads lie between */

int ledger_read_at(int fd, void *out, size_t size, uint64_t at)
{
    size_t done = 0;
    while (done < size) {
        ssize_t n = pread(fd, (uint8_t *)out + done, size - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            return 0;
        done += (size_t)n;
    }
    return 1;
}

/* Brings the header that would be at `at` into the window; the caller has seen that the file is
 * long enough. */
static int fill(struct ledger_walk *walk, uint64_t at, struct err *err)
{
    uint64_t end = walk->start + walk->used;
    if (at >= walk->start && at + LEDGER_RECORD_HEADER <= end)
        return 0;
    bool follows_on = at >= walk->start && at <= end;
    walk->start = at;
    walk->used = (size_t)MIN(walk->size - at, follows_on ? LEDGER_WINDOW : LEDGER_HOP);
    int r = ledger_read_at(walk->fd, walk->window, walk->used, at);
    if (r > 0)
        return 0;
    walk->used = 0;
    return r < 0 ? err_errno(err, errno, "cannot read the output of commands")
                 : err_set(err, ERR_INTERNAL,
                           "a file of output is shorter than it was; another program cut it off");
}

/* A header that is whole, with a payload that lies inside the file. */
static bool is_record(const struct ledger_walk *walk, uint64_t at, struct ledger_record *ret)
{
    return ledger_record_unpack(walk->window + (at - walk->start), walk->salt, ret) &&
           ret->kind != LEDGER_RECORD_SEGMENT &&
           ret->size <= walk->size - at - LEDGER_RECORD_HEADER;
}

static bool fits(const struct ledger_walk *walk, uint64_t at)
{
    return walk->size >= LEDGER_RECORD_HEADER && at <= walk->size - LEDGER_RECORD_HEADER;
}

/* The next record at or after *at, by the magic that nobody outside knows. */
static int search(struct ledger_walk *walk, uint64_t *at, struct ledger_record *ret,
                  struct err *err)
{
    uint8_t magic[4];
    ledger_magic_bytes(walk->salt, magic);
    uint64_t from = *at;
    while (fits(walk, from)) {
        if (fill(walk, from, err) < 0)
            return -1;
        const uint8_t *bytes = walk->window + (from - walk->start);
        size_t there = walk->used - (size_t)(from - walk->start);
        const uint8_t *hit = memmem(bytes, there, magic, sizeof(magic));
        if (!hit) {
            from += there - (sizeof(magic) - 1);
            continue;
        }
        from += (uint64_t)(hit - bytes);
        if (!fits(walk, from))
            break;
        if (fill(walk, from, err) < 0)
            return -1;
        if (is_record(walk, from, ret)) {
            *at = from;
            return 1;
        }
        from++;
    }
    return 0;
}

int ledger_walk_next(struct ledger_walk *walk, struct ledger_record *ret, uint32_t *ret_at,
                     struct err *err)
{
    uint64_t at = walk->at;
    int r = 0;
    if (fits(walk, at)) {
        if (fill(walk, at, err) < 0)
            return -1;
        if (is_record(walk, at, ret)) {
            r = 1;
        } else {
            at++;
            r = search(walk, &at, ret, err);
        }
    }
    if (r < 0)
        return -1;
    if (r == 0)
        at = walk->size;
    walk->damaged += at - walk->at;
    walk->at = r == 0 ? at : at + LEDGER_RECORD_HEADER + ret->size;
    if (r > 0)
        *ret_at = (uint32_t)at;
    return r;
}
