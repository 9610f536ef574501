/* The events that have a name: what happened to a sandbox or a command, one kind each. The name is
 * the field `event` of its lines; the id is the journal's MESSAGE_ID, by which journalctl finds all
 * of a kind and a catalogue can explain them, see journalctl(1). An id is 128 random bits, made
 * once ('systemd-id128 new'), and is never given to another kind. Constants; any thread. */
#pragma once

#include "common/log.h"

struct log_event_kind {
    const char *name;       /* "sandbox_online" */
    const char *message;    /* "sandbox online" */
    const char *message_id; /* 32 hexadecimal digits */
};

extern const struct log_event_kind event_sandbox_online;
extern const struct log_event_kind event_sandbox_disconnected;
extern const struct log_event_kind event_sandbox_state; /* suspect, offline, evicted and back */
extern const struct log_event_kind event_sandbox_note;  /* what `describe` shows as an event */
extern const struct log_event_kind event_command_ordered;
extern const struct log_event_kind event_command_started;
extern const struct log_event_kind event_command_ended;
extern const struct log_event_kind event_log_left_out; /* lines that are missing, counted */

/* The two fields that an event's kind makes. */
#define LF_EVENT(name, id) LF_STR("event", (name)), LF_MESSAGE_ID(id)
