/* Events on their way to the store. Raised by orchestrator/session.c; shown by
 * orchestrator/control_sandbox.c. */
#include "orchestrator/events.h"

#include "common/clock.h"
#include "orchestrator/audit.h"
#include "orchestrator/logbook.h"
#include "orchestrator/orchestrator-internal.h"

#include <stdio.h>

struct event_job {
    struct store_job job;
    struct orchestrator *orchestrator;
    char sandbox_id[SANDBOX_ID_MAX + 1];
    struct event_record event;
};

static int work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    const struct event_job *note = CONTAINER_OF(job, struct event_job, job);
    char action[STORE_ACTOR_MAX];
    (void)snprintf(action, sizeof(action), "sandbox.%s", note->event.kind);
    const struct audit_entry entry = {
        .actor = "system",
        .action = action,
        .target = note->sandbox_id,
        .allowed = true,
        .detail = note->event.detail,
    };
    if (store_audit_append(tx, &entry, err) < 0)
        return -1;
    return store_event_put(tx, note->sandbox_id, &note->event, err);
}

static void done(struct store_job *job)
{
    struct event_job *note = CONTAINER_OF(job, struct event_job, job);
    if (job->result < 0)
        log_error("an event could not be stored", LF_STR("sandbox", note->sandbox_id),
                  LF_ERR(&job->err));
    else
        audit_notify(note->orchestrator);
    free(note);
}

void event_note(struct orchestrator *orchestrator, const char *sandbox_id, const char *kind,
                const char *detail)
{
    struct err err = { 0 };
    struct log_event_kind raised = event_sandbox_note;
    raised.name = kind;
    LOGBOOK_EVENT(orchestrator, LOG_LEVEL_WARN, &raised, sandbox_id, NULL,
                  LF_STR("detail", detail));
    struct event_job *note = calloc(1, sizeof(*note));
    if (!note)
        return;
    note->orchestrator = orchestrator;
    note->job.work = work;
    note->job.done = done;
    note->event.time_ms = wall_ms();
    (void)snprintf(note->sandbox_id, sizeof(note->sandbox_id), "%s", sandbox_id);
    (void)snprintf(note->event.kind, sizeof(note->event.kind), "%s", kind);
    (void)snprintf(note->event.detail, sizeof(note->event.detail), "%s", detail);
    if (store_submit(orchestrator->store, &note->job, &err) < 0) {
        log_error("an event could not be stored", LF_STR("sandbox", sandbox_id), LF_ERR(&err));
        free(note);
    }
}
