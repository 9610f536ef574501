/* Lines of a daemon's own log on their way to the orchestrator: the tap puts them in, whoever has
 * a stream takes them out as frames. Bounded twice: at most LOG_RING_BURST lines of our own in
 * LOG_RING_PERIOD_US, and never more than LOG_RING_LINES or LOG_RING_BYTES waiting, of which the
 * oldest go first. What is left out is counted where it is missing. Any thread. */
#pragma once

#include "common/log.h"
#include "sandstorm/v1/link.pb-c.h"

#define LOG_RING_LINES     256u
#define LOG_RING_BYTES     (64u * 1024)
#define LOG_RING_BURST     100u
#define LOG_RING_PERIOD_US 10000000u
#define LOG_RING_FRAME_MAX (16u * 1024) /* of a packed frame; every line fits one */
#define LOG_RING_VALUE_MAX 512u         /* of a message or a field's value; the rest is cut */
#define LOG_RING_LINE_MAX  (LOG_RING_FRAME_MAX - 64u)

struct log_ring;

/* `origin` is kept, not copied. `filled` is called, on the thread that logs and outside every lock,
 * when there is a line to take and there was none before. */
int log_ring_new(const char *origin, void (*filled)(void *userdata), void *userdata,
                 struct log_ring **ret, struct err *err) must_use;
void log_ring_free(struct log_ring *ring);
/* A log_tap_fn; userdata is the ring. */
void log_ring_tap(void *ring, enum log_level level, const char *message,
                  const struct log_field *fields, unsigned count);
/* What another process has said: its lines under that origin, else as they are, and how many it
 * left out. */
void log_ring_relay(struct log_ring *ring, const char *origin, const Sandstorm__V1__Logs *logs);
bool log_ring_waiting(struct log_ring *ring);
/* Takes the oldest lines out as one packed AgentFrame of at most LOG_RING_FRAME_MAX bytes. Returns
 * its size; 0 when nothing waits. */
size_t log_ring_pack(struct log_ring *ring, uint8_t ret[LOG_RING_FRAME_MAX]);
