/* An ended command in a runner's inventory that no relay follows: looked up in the store, then
 * followed to its end or let go of. Called by orchestrator/relay_resume.c. */
#include "orchestrator/relay_adopt.h"

#include "orchestrator/relay-internal.h"

#include <string.h>

struct adoption {
    struct store_job job;
    struct orchestrator *orchestrator;
    char sandbox_id[SANDBOX_ID_MAX + 1];
    struct command_id id;
    struct command_record record;
};

static int adoption_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct adoption *adoption = CONTAINER_OF(job, struct adoption, job);
    return store_command_get(tx, adoption->id.text, &adoption->record, err);
}

static bool is_whole(const struct adoption *adoption)
{
    uint64_t first, end = 0;
    if (adoption->record.end_offset == 0)
        return true;
    return ledger_log_range(adoption->orchestrator->ledgers, &adoption->id, &first, &end) &&
           end >= adoption->record.end_offset;
}

static void adopt(struct adoption *adoption)
{
    struct orchestrator *orchestrator = adoption->orchestrator;
    struct sandbox *sandbox = registry_find(orchestrator->registry, adoption->sandbox_id);
    const struct command_record *record = &adoption->record;
    struct relay *relay;
    struct err err = { 0 };
    if (!sandbox || relay_find(orchestrator, &adoption->id) ||
        strcmp(record->sandbox_id, sandbox->id) != 0 || !record->ended_ms)
        return;
    if (is_whole(adoption)) {
        relay_let_go(sandbox, &adoption->id);
        return;
    }
    if (relay_new_known(orchestrator, sandbox, record, &relay, &err) < 0) {
        log_warn("the output of a command that has ended is not fetched",
                 LF_STR("command", record->id), LF_ERR(&err));
        return;
    }
    relay->listed = true;
    relay_flush(relay);
}

static void adoption_done(struct store_job *job)
{
    struct adoption *adoption = CONTAINER_OF(job, struct adoption, job);
    if (job->result == 0)
        adopt(adoption);
    free(adoption);
}

void relay_adopt(struct orchestrator *orchestrator, struct sandbox *sandbox,
                 const struct command_id *id)
{
    struct err err = { 0 };
    struct adoption *adoption = calloc(1, sizeof(*adoption));
    if (!adoption)
        return; /* the next inventory lists it again */
    adoption->orchestrator = orchestrator;
    adoption->id = *id;
    (void)memcpy(adoption->sandbox_id, sandbox->id, sizeof(adoption->sandbox_id));
    adoption->job.work = adoption_work;
    adoption->job.done = adoption_done;
    if (store_submit(orchestrator->store, &adoption->job, &err) < 0)
        free(adoption);
}
