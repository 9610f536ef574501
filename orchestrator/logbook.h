/* The fleet's log: what agents forward of their own lines, and what the orchestrator itself has to
 * say about a sandbox or a command. Every line goes to our own log (journald, text or JSON) and to
 * the store, where StreamLogs reads it. An agent can write under its own sandbox's name only.
 * Lossy by design, and what is lost is counted. Loop thread. */
#pragma once

#include "common/log_ids.h"
#include "orchestrator/store.h"
#include "sandstorm/v1/link.pb-c.h"

/* Lines that one agent may forward; more are counted. A ring's worth may come after a reconnect. */
#define LOGBOOK_LINES     512u
#define LOGBOOK_PERIOD_US 10000000u
/* On the way to the store: what gathers in this time, or so many lines, is one job. */
#define LOGBOOK_GATHER_US   250000u
#define LOGBOOK_BATCH       128u
#define LOGBOOK_WAITING_MAX 1024u /* lines, about 2.7 KiB each; more are lost and counted */
/* What is kept. */
#define LOGBOOK_ROWS_MAX   2000u /* of one sandbox */
#define LOGBOOK_TRIM_EVERY 200u  /* so there are up to this many more for a while */
#define LOGBOOK_AGE_US     (7 * 86400 * INT64_C(1000000))

struct orchestrator;
struct sandbox;
struct logbook;

int logbook_new(struct orchestrator *orchestrator, struct logbook **ret, struct err *err) must_use;
/* Hands everything to the store, before that is closed. */
void logbook_flush(struct logbook *logbook);
void logbook_free(struct logbook *logbook);

/* Something happened to a sandbox: one line with the fields sandbox, command (unless it is NULL),
 * event and MESSAGE_ID, then `fields`, of which there may be LOGBOOK_FIELDS_MAX. Without a logbook
 * (orchestrator->logbook is NULL) only our own log gets it. */
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

/* What this sandbox's agent forwards. Whatever it says, nothing worse follows than lines that are
 * left out. */
void logbook_take(struct orchestrator *orchestrator, struct sandbox *sandbox,
                  const Sandstorm__V1__Logs *logs);

/* For those who follow: a list that is woken when lines have come into the store, and whether there
 * are some of that sandbox among them; to be asked while one is woken. */
struct watch **logbook_watches(struct logbook *logbook);
bool logbook_wrote(const struct logbook *logbook, const char *sandbox_id);
