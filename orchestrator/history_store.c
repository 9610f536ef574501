/* What the history writes down, as jobs of the store: an admission together with its row in the
 * audit, a start, an end. An end that cannot be written now is kept and written later, and the
 * runner is told to let go of a command only when its end is committed. Called by
 * orchestrator/history.c and orchestrator/admission.c; next: orchestrator/store_sqlite_commands.c.
 */
#include "orchestrator/history-internal.h"

#include "common/clock.h"
#include "common/failpoint.h"
#include "orchestrator/audit.h"
#include "orchestrator/command_wait.h"
#include "orchestrator/relay.h"

#include <stdio.h>
#include <string.h>

/* Admission. */

struct admission {
    struct store_job job;
    struct history *history;
    char actor[STORE_ACTOR_MAX], action[STORE_ACTOR_MAX], target[STORE_ACTOR_MAX];
    char detail[STORE_TEXT_MAX];
    struct command_record command; /* asked for; then as the store has it */
    enum history_verdict verdict;
    bool known; /* no new one */
    bool full;  /* nor is there room for one */
    history_admitted done;
    void *userdata;
};

static int look_up(struct admission *admission, struct store_tx *tx, struct err *err)
{
    struct command_record *asked = &admission->command, known;
    if (store_command_get(tx, asked->id, &known, err) < 0) {
        if (err->code != ERR_NOT_FOUND)
            return -1;
        admission->verdict = admission->known ? HISTORY_NONE : HISTORY_NEW;
        if (admission->known)
            return 0;
        return admission->full ? err_set(err, ERR_EXHAUSTED,
                                         "%u commands are open here already; wait until some have "
                                         "ended",
                                         HISTORY_OPEN_MAX)
                               : store_command_put(tx, asked, err);
    }
    /* Whose it is, is not told: it may be a sandbox that this client cannot see. */
    if (strcmp(known.sandbox_id, asked->sandbox_id) != 0 ||
        memcmp(known.digest, asked->digest, sizeof(known.digest)) != 0) {
        admission->verdict = HISTORY_TAKEN;
        return 0;
    }
    admission->verdict = known.ended_ms ? HISTORY_ENDED : HISTORY_OPEN;
    *asked = known;
    return 0;
}

static int admission_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct admission *admission = CONTAINER_OF(job, struct admission, job);
    if (look_up(admission, tx, err) < 0)
        return -1;
    bool taken = admission->verdict == HISTORY_TAKEN;
    if (admission->verdict == HISTORY_NONE)
        return 0; /* nothing is decided: it cannot be reached */
    const struct audit_entry entry = {
        .actor = admission->actor,
        .action = admission->action,
        .target = admission->target,
        .allowed = !taken,
        .detail = taken ? "the command id is taken by a different command" : admission->detail,
    };
    return store_audit_append(tx, &entry, err);
}

static void admission_done(struct store_job *job)
{
    struct admission *admission = CONTAINER_OF(job, struct admission, job);
    struct history *history = admission->history;
    struct history_command *command;
    history->admitting--;
    if (job->result < 0 && !admission->full) {
        log_error("the audit cannot be written", LF_ERR(&job->err));
        audit_unwritable(&job->err);
    } else if (job->result == 0) {
        audit_notify(history->orchestrator);
        /* Without memory its row stays open; nothing is ordered, and the next start finds out. */
        if (admission->verdict == HISTORY_NEW)
            job->result = history_add(history, &admission->command, &command, &job->err);
    }
    failpoint("history.admitted");
    admission->done(admission->userdata, admission->verdict, &admission->command,
                    job->result < 0 ? &job->err : NULL);
    free(admission);
}

int history_admit(struct history *history, const struct audit_entry *entry,
                  const struct command_record *command, bool known, history_admitted done,
                  void *userdata, struct err *err)
{
    struct admission *admission = calloc(1, sizeof(*admission));
    if (!admission)
        return err_nomem(err);
    admission->history = history;
    admission->job.work = admission_work;
    admission->job.done = admission_done;
    admission->command = *command;
    admission->known = known;
    admission->full = history_open_count(history) + history->admitting >= HISTORY_OPEN_MAX;
    admission->done = done;
    admission->userdata = userdata;
    (void)snprintf(admission->actor, sizeof(admission->actor), "%s", entry->actor);
    (void)snprintf(admission->action, sizeof(admission->action), "%s", entry->action);
    (void)snprintf(admission->target, sizeof(admission->target), "%s", entry->target);
    (void)snprintf(admission->detail, sizeof(admission->detail), "%s", entry->detail);
    history->admitting++;
    if (store_submit(history->orchestrator->store, &admission->job, err) < 0) {
        history->admitting--;
        audit_unwritable(err);
        free(admission);
        return -1;
    }
    return 0;
}

/* A start. What is lost of it comes again with the end. */

struct start_job {
    struct store_job job;
    struct history *history;
    struct command_id id;
    int64_t started_ms, pid;
};

static void start_failed(struct history *history, const struct command_id *id,
                         const struct err *why)
{
    uint64_t suppressed;
    if (log_limit_pass(&history->faults, monotonic_us(), &suppressed))
        log_warn("the start of a command is not written down yet", LF_STR("command", id->text),
                 LF_ERR(why), LF_UINT("suppressed", suppressed));
}

static int start_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    const struct start_job *start = CONTAINER_OF(job, struct start_job, job);
    return store_command_start(tx, start->id.text, start->started_ms, start->pid, err);
}

static void start_done(struct store_job *job)
{
    struct start_job *start = CONTAINER_OF(job, struct start_job, job);
    if (job->result < 0)
        start_failed(start->history, &start->id, &job->err);
    free(start);
}

void history_write_start(struct history *history, const struct history_command *command)
{
    struct err err = { 0 };
    struct start_job *start = calloc(1, sizeof(*start));
    if (start) {
        start->job.work = start_work;
        start->job.done = start_done;
        start->history = history;
        start->id = command->id;
        start->started_ms = command->started_ms;
        start->pid = command->pid;
        if (store_submit(history->orchestrator->store, &start->job, &err) == 0)
            return;
        free(start);
    } else {
        (void)err_nomem(&err);
    }
    start_failed(history, &command->id, &err);
}

/* An end. */

static int end_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    const struct history_end *end = CONTAINER_OF(job, struct history_end, job);
    struct command_record record = {
        .started_ms = end->started_ms,
        .pid = end->pid,
        .ended_ms = end->ended_ms,
        .end_offset = end->end_offset,
        .outcome_size = end->size,
    };
    (void)memcpy(record.id, end->command->id.text, sizeof(record.id));
    (void)memcpy(record.outcome, end->outcome, end->size);
    return store_command_end(tx, &record, err);
}

static void end_waits(struct history *history, struct history_end *end, const struct err *why)
{
    uint64_t suppressed;
    end->submitted = false;
    if (!loop_timer_running(history->retry))
        loop_timer_start(history->retry, HISTORY_RETRY_US);
    if (log_limit_pass(&history->faults, monotonic_us(), &suppressed))
        log_error("the end of a command cannot be written down; it is tried again",
                  LF_STR("command", end->command->id.text), LF_ERR(why),
                  LF_UINT("suppressed", suppressed));
}

static void end_done(struct store_job *job)
{
    struct history_end *end = CONTAINER_OF(job, struct history_end, job);
    struct history *history = end->history;
    struct history_command *command = end->command;
    if (job->result < 0 && job->err.code != ERR_NOT_FOUND) {
        end_waits(history, end, &job->err);
        return;
    }
    if (job->result < 0) /* somebody has taken the row away */
        log_error("a command is not in the store any more", LF_STR("command", command->id.text));
    failpoint("history.ended");
    struct orchestrator *orchestrator = history->orchestrator;
    struct command_id id = command->id;
    history_forget(history, command); /* and this job with it */
    relay_end_written(orchestrator, &id);
    command_wait_wake(orchestrator->command_waits, &id);
}

void history_write_end(struct history *history, struct history_end *end)
{
    struct err err;
    failpoint("history.settled");
    end->job.work = end_work;
    end->job.done = end_done;
    end->job.durable = true; /* the runner lets go of the only other copy next */
    end->submitted = true;
    if (store_submit(history->orchestrator->store, &end->job, &err) < 0)
        end_waits(history, end, &err);
}

void history_on_retry(void *userdata)
{
    struct history *history = userdata;
    struct history_command *command, *next;
    HASH_ITER (hh, history->commands, command, next) {
        /* Full again: the timer runs, and those behind it wait with it. */
        if (loop_timer_running(history->retry))
            return;
        if (command->end && !command->end->submitted)
            history_write_end(history, command->end);
    }
}

/* Forgetting. */

static int prune_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    (void)job;
    return store_command_prune(tx, STORE_COMMANDS_KEPT, wall_ms() - STORE_COMMANDS_AGE_MS, err);
}

static void prune_done(struct store_job *job)
{
    if (job->result < 0)
        log_warn("old commands are not forgotten yet", LF_ERR(&job->err));
    free(job);
}

void history_on_prune(void *userdata)
{
    struct history *history = userdata;
    struct err err = { 0 };
    struct store_job *job = calloc(1, sizeof(*job));
    loop_timer_start(history->prune, HISTORY_PRUNE_US);
    if (!job)
        return;
    job->work = prune_work;
    job->done = prune_done;
    if (store_submit(history->orchestrator->store, job, &err) == 0)
        return;
    log_warn("old commands are not forgotten yet", LF_ERR(&err));
    free(job);
}
