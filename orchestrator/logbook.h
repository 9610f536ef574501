/* The fleet's log: what agents forward of their own lines, and what the orchestrator itself has to
 * say about a sandbox or a command. Every line goes to our own log (journald, text or JSON) and to
 * the store, where StreamLogs reads it. Lossy by design, and what is lost is counted. Loop thread.
 */
#pragma once

#include "common/log_ids.h"

struct orchestrator;

/* Something happened to a sandbox: one line with the fields sandbox, command (unless it is NULL),
 * event and MESSAGE_ID, then `fields`, of which there may be LOGBOOK_FIELDS_MAX. */
#define LOGBOOK_FIELDS_MAX (LOG_FIELDS_MAX - 4u)
void logbook_event(struct orchestrator *orchestrator, enum log_level level,
                   const struct log_event_kind *kind, const char *sandbox_id,
                   const char *command_id, const struct log_field *fields, unsigned count);
/* The same with the fields at the end: LOGBOOK_EVENT(o, LOG_LEVEL_INFO, &event_sandbox_online, id,
 * NULL, LF_UINT("epoch", epoch)). */
#define LOGBOOK_EVENT(orchestrator, level, kind, sandbox_id, command_id, ...)                      \
    do {                                                                                           \
        const struct log_field fields_[] = { { .name = NULL }, ##__VA_ARGS__ };                    \
        logbook_event(orchestrator, level, kind, sandbox_id, command_id, fields_ + 1,              \
                      ELEMENTS(fields_) - 1);                                                      \
    } while (0)
