/* Why the agent is not connected, and when it tries again: the last error, the attempts since the
 * agent was last online, and the delay before the next one. Told by agent/link_stream.c,
 * agent/link_diagnose.c and agent/link_identity.c; next: agent/link.c, which puts it into the
 * status file, and agent/link_heartbeat.c, which tells the orchestrator with the next register. */
#include "agent/link-internal.h"

#include "common/clock.h"

#include <stdio.h>
#include <string.h>

static void note_error(struct link_stream *stream, const struct err *why)
{
    (void)snprintf(stream->last_error, sizeof(stream->last_error), "%s", why->text);
    stream->last_error_ms = wall_ms();
    stream->orderly = false;
    if (!stream->failing_since_ms)
        stream->failing_since_ms = stream->last_error_ms;
}

/* An orchestrator that drains tells why we are away, which is nobody's failure. */
static void note_goodbye(struct link_stream *stream, const struct err *why)
{
    (void)snprintf(
        stream->last_error, sizeof(stream->last_error),
        "the orchestrator has asked its agents to go (%.300s); there is nothing to do here: "
        "this agent comes back by itself",
        why->text);
    stream->last_error_ms = wall_ms();
    stream->orderly = true;
}

void link_retry_lost(struct link *link, const struct err *why)
{
    if (link->stream.drained)
        note_goodbye(&link->stream, why);
    else
        note_error(&link->stream, why);
}

void link_retry_clear(struct link *link)
{
    struct link_stream *stream = &link->stream;
    stream->last_error[0] = '\0';
    stream->failing_since_ms = 0;
    stream->orderly = false;
    stream->attempts = 0;
    /* What an earlier stream was told is over with it. */
    stream->retry_after_us = 0;
    stream->drained = false;
}

void link_retry_note(struct link *link, const struct err *why)
{
    note_error(&link->stream, why);
    link->stream.unsaid = true;
    link_write_status(link);
}

void link_retry_report(struct link *link, const struct err *why)
{
    struct link_stream *stream = &link->stream;
    /* The same reason every thirty seconds is one event, not many. */
    if (stream->unsaid || strcmp(stream->last_error, why->text) != 0)
        log_warn("cannot stay connected to the orchestrator",
                 LF_STR("endpoint", link->config.endpoint), LF_ERR(why));
    note_error(stream, why);
    stream->unsaid = false;
    link_say_status(link);
}

void link_retry_begin(struct link *link)
{
    struct link_stream *stream = &link->stream;
    stream->retry_at_us = 0;
    stream->retry_after_us = 0;
    stream->drained = false;
    if (stream->attempts < UINT32_MAX)
        stream->attempts++;
}

void link_retry_planned(struct link *link, uint64_t after_us)
{
    link->stream.retry_at_us = monotonic_us() + after_us;
    link_write_status(link);
}

void link_retry_after(struct link *link, uint64_t after_us)
{
    if (link->stream.state != STREAM_WAITING || link->stopping)
        return;
    loop_timer_start(link->stream.retry, after_us);
    link_retry_planned(link, after_us);
}

void link_retry_wait(struct link *link)
{
    struct link_stream *stream = &link->stream;
    uint64_t asked_us = stream->retry_after_us;
    stream->retry_after_us = 0; /* it holds for one attempt */
    link_retry_after(link, asked_us ? backoff_asked_us(asked_us, random_u64())
                                    : backoff_next_us(&stream->backoff, random_u64()));
}
