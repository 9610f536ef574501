/* Owns the lines that wait to be forwarded. Handed copies by the log's tap, on any thread, and by
 * the link what its runner said; next: agent/link_logs.c and agent/runner_link.c take frames out.
 *
 * A line is packed when it comes in, so that what waits is small and known in size, and taking it
 * out is a copy. A frame says how many lines are missing before its first one: so a line with a
 * hole before it begins a frame. */
#include "common/log_ring.h"

#include "common/clock.h"
#include "common/utf8.h"
#include "common/wire.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LINES_FIELD   1u /* of message Logs */
#define DROPPED_FIELD 2u

struct line {
    struct line *next;
    uint64_t dropped; /* missing before this one */
    size_t size;
    uint8_t data[];
};

struct log_ring {
    const char *origin;
    void (*filled)(void *userdata);
    void *userdata;
    pthread_mutex_t lock;
    /* Under the lock. */
    struct line *first, **last;
    unsigned count;
    size_t bytes;
    uint64_t dropped; /* missing behind the last one */
    struct log_limit limit;
};

int log_ring_new(const char *origin, void (*filled)(void *userdata), void *userdata,
                 struct log_ring **ret, struct err *err)
{
    struct log_ring *ring = calloc(1, sizeof(*ring));
    if (!ring)
        return err_nomem(err);
    ring->origin = origin;
    ring->filled = filled;
    ring->userdata = userdata;
    ring->last = &ring->first;
    ring->limit = LOG_LIMIT(LOG_RING_PERIOD_US, LOG_RING_BURST);
    (void)pthread_mutex_init(&ring->lock, NULL);
    *ret = ring;
    return 0;
}

static struct line *take_first(struct log_ring *ring)
{
    struct line *line = ring->first;
    ring->first = line->next;
    if (!ring->first)
        ring->last = &ring->first;
    ring->count--;
    ring->bytes -= line->size;
    return line;
}

void log_ring_free(struct log_ring *ring)
{
    if (!ring)
        return;
    while (ring->first)
        free(take_first(ring));
    (void)pthread_mutex_destroy(&ring->lock);
    free(ring);
}

/* What comes in. The lock is held. */

static void drop_first(struct log_ring *ring)
{
    struct line *line = take_first(ring);
    uint64_t missing = line->dropped + 1;
    if (ring->first)
        ring->first->dropped += missing;
    else
        ring->dropped += missing;
    free(line);
}

static void append(struct log_ring *ring, struct line *line)
{
    while (ring->first &&
           (ring->count >= LOG_RING_LINES || ring->bytes + line->size > LOG_RING_BYTES))
        drop_first(ring);
    line->dropped = ring->dropped;
    ring->dropped = 0;
    line->next = NULL;
    *ring->last = line;
    ring->last = &line->next;
    ring->count++;
    ring->bytes += line->size;
}

/* NULL when it is too large, or memory is short: then it is one more that is missing. */
static struct line *pack_line(const Sandstorm__V1__LogLine *message)
{
    size_t size = sandstorm__v1__log_line__get_packed_size(message);
    if (size > LOG_RING_LINE_MAX)
        return NULL;
    struct line *line = malloc(sizeof(*line) + size);
    if (!line)
        return NULL;
    line->size = sandstorm__v1__log_line__pack(message, line->data);
    return line;
}

static void put(struct log_ring *ring, const Sandstorm__V1__LogLine *message)
{
    struct line *line = pack_line(message);
    if (line)
        append(ring, line);
    else
        ring->dropped++;
}

/* Outside the lock, because whoever is woken may come to take. */
static void unlock_and_tell(struct log_ring *ring, bool was_empty)
{
    bool fill = was_empty && ring->first;
    (void)pthread_mutex_unlock(&ring->lock);
    if (fill && ring->filled)
        ring->filled(ring->userdata);
}

/* Strings on the wire are UTF-8; a character that the cut went through is mended. */
static void copy_text(char ret[LOG_RING_VALUE_MAX + 1], const char *text)
{
    (void)snprintf(ret, LOG_RING_VALUE_MAX + 1, "%s", text ? text : "");
    utf8_clean(ret);
}

static void copy_value(char ret[LOG_RING_VALUE_MAX + 1], const struct log_field *field)
{
    if (field->kind == LOG_FIELD_INT)
        (void)snprintf(ret, LOG_RING_VALUE_MAX + 1, "%" PRId64, field->i);
    else if (field->kind == LOG_FIELD_UINT)
        (void)snprintf(ret, LOG_RING_VALUE_MAX + 1, "%" PRIu64, field->u);
    else
        copy_text(ret, field->str);
}

void log_ring_tap(void *userdata, enum log_level level, const char *message,
                  const struct log_field *fields, unsigned count)
{
    struct log_ring *ring = userdata;
    char text[LOG_RING_VALUE_MAX + 1], values[LOG_FIELDS_MAX][LOG_RING_VALUE_MAX + 1];
    Sandstorm__V1__LogField items[LOG_FIELDS_MAX];
    Sandstorm__V1__LogField *pointers[LOG_FIELDS_MAX];
    Sandstorm__V1__LogLine line = SANDSTORM__V1__LOG_LINE__INIT;
    uint64_t suppressed;

    (void)pthread_mutex_lock(&ring->lock);
    bool was_empty = !ring->first;
    if (!log_limit_pass(&ring->limit, monotonic_us(), &suppressed)) {
        ring->dropped++;
        (void)pthread_mutex_unlock(&ring->lock);
        return;
    }
    copy_text(text, message);
    line.time_unix_us = wall_us();
    line.level = (Sandstorm__V1__LogLevel)(level + 1); /* ours begin at 0, the wire's at 1 */
    line.origin = (char *)ring->origin;
    line.message = text;
    line.fields = pointers;
    for (unsigned i = 0; i < MIN(count, LOG_FIELDS_MAX); i++) {
        if (fields[i].kind == LOG_FIELD_MESSAGE_ID)
            continue;
        size_t n = line.n_fields++;
        copy_value(values[n], &fields[i]);
        sandstorm__v1__log_field__init(&items[n]);
        items[n].name = (char *)fields[i].name;
        items[n].value = values[n];
        pointers[n] = &items[n];
    }
    put(ring, &line);
    unlock_and_tell(ring, was_empty);
}

void log_ring_relay(struct log_ring *ring, const char *origin, const Sandstorm__V1__Logs *logs)
{
    (void)pthread_mutex_lock(&ring->lock);
    bool was_empty = !ring->first;
    ring->dropped += MIN(logs->dropped, UINT32_MAX); /* no sum of such can overflow */
    for (size_t i = 0; i < logs->n_lines; i++) {
        Sandstorm__V1__LogLine line = *logs->lines[i];
        line.origin = (char *)origin;
        put(ring, &line);
    }
    unlock_and_tell(ring, was_empty);
}

/* What goes out. */

bool log_ring_waiting(struct log_ring *ring)
{
    (void)pthread_mutex_lock(&ring->lock);
    bool waiting = ring->first || ring->dropped > 0;
    (void)pthread_mutex_unlock(&ring->lock);
    return waiting;
}

static size_t put_varint(uint64_t value, uint8_t *out)
{
    size_t used = 0;
    for (; value >= 0x80; value >>= 7)
        out[used++] = (uint8_t)(value | 0x80);
    out[used++] = (uint8_t)value;
    return used;
}

/* Fills `ret` with a packed message Logs and empties the ring of what is in it. */
static size_t take_logs(struct log_ring *ring, uint8_t *ret, size_t max)
{
    uint64_t *dropped = ring->first ? &ring->first->dropped : &ring->dropped;
    size_t used = 0;
    if (*dropped > 0) {
        ret[used++] = DROPPED_FIELD << 3 | WIRE_VARINT;
        used += put_varint(*dropped, ret + used);
        *dropped = 0;
    }
    while (ring->first && ring->first->dropped == 0 &&
           used + WIRE_HEADER_MAX + ring->first->size <= max) {
        CLEANUP_FREE struct line *line = take_first(ring);
        used += wire_header(LINES_FIELD, line->size, ret + used);
        (void)memcpy(ret + used, line->data, line->size);
        used += line->size;
    }
    return used;
}

size_t log_ring_pack(struct log_ring *ring, uint8_t ret[LOG_RING_FRAME_MAX])
{
    uint8_t logs[LOG_RING_FRAME_MAX - WIRE_HEADER_MAX];
    (void)pthread_mutex_lock(&ring->lock);
    size_t size = take_logs(ring, logs, sizeof(logs));
    (void)pthread_mutex_unlock(&ring->lock);
    if (size == 0)
        return 0;
    size_t used = wire_header(SANDSTORM__V1__AGENT_FRAME__KIND_LOGS, size, ret);
    (void)memcpy(ret + used, logs, size);
    return used + size;
}
