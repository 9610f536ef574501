/* Rows on their way to the store, and those who wait for new ones. Asked by
 * orchestrator/access.c and orchestrator/exec.c; next: orchestrator/store_audit.c. */
#include "orchestrator/audit.h"

#include "common/utf8.h"
#include "orchestrator/orchestrator-internal.h"

#include <stdio.h>

struct audit_note {
    struct store_job job;
    struct orchestrator *orchestrator;
    char actor[STORE_ACTOR_MAX], action[STORE_ACTOR_MAX], target[STORE_ACTOR_MAX];
    char detail[STORE_TEXT_MAX];
    bool allowed;
    void (*done)(void *userdata, const struct err *failed);
    void *userdata;
};

void audit_unwritable(struct err *failed)
{
    failed->code = ERR_UNAVAILABLE;
    (void)err_wrap(failed, "refused, because the audit cannot be written");
}

static int note_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    const struct audit_note *note = CONTAINER_OF(job, struct audit_note, job);
    const struct audit_entry entry = {
        .actor = note->actor,
        .action = note->action,
        .target = note->target,
        .allowed = note->allowed,
        .detail = note->detail,
    };
    return store_audit_append(tx, &entry, err);
}

static void note_done(struct store_job *job)
{
    struct audit_note *note = CONTAINER_OF(job, struct audit_note, job);
    if (job->result < 0) {
        log_error("the audit cannot be written", LF_ERR(&job->err));
        audit_unwritable(&job->err);
    } else {
        audit_notify(note->orchestrator);
    }
    note->done(note->userdata, job->result < 0 ? &job->err : NULL);
    free(note);
}

int audit_write(struct orchestrator *orchestrator, const struct audit_entry *entry,
                void (*done)(void *userdata, const struct err *failed), void *userdata,
                struct err *err)
{
    struct audit_note *note = calloc(1, sizeof(*note));
    if (!note)
        return err_nomem(err);
    note->orchestrator = orchestrator;
    note->job.work = note_work;
    note->job.done = note_done;
    note->allowed = entry->allowed;
    note->done = done;
    note->userdata = userdata;
    (void)snprintf(note->actor, sizeof(note->actor), "%s", entry->actor);
    (void)snprintf(note->action, sizeof(note->action), "%s", entry->action);
    (void)snprintf(note->target, sizeof(note->target), "%s", entry->target);
    (void)snprintf(note->detail, sizeof(note->detail), "%s", entry->detail);
    utf8_clean(note->detail); /* mends a character that the cut went through */
    utf8_clean(note->target);
    if (store_submit(orchestrator->store, &note->job, err) < 0) {
        audit_unwritable(err);
        free(note);
        return -1;
    }
    return 0;
}

void audit_notify(struct orchestrator *orchestrator)
{
    watch_wake(orchestrator->audit_watches);
}
