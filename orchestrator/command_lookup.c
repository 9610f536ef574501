/* Commands by their ids: the store has them all, the scope is the loop's to judge. Asked by
 * orchestrator/admission.c (attaching) and orchestrator/control_command_*.c (calls). */
#include "orchestrator/command_lookup.h"

#include "orchestrator/access.h"
#include "orchestrator/clients.h"
#include "orchestrator/orchestrator-internal.h"

#include <string.h>

struct lookup {
    struct store_job job;
    struct orchestrator *orchestrator;
    struct identity peer;
    struct command_id id;
    struct command_record record;
    command_looked_up done;
    void *userdata;
};

struct sandbox *command_sandbox(struct orchestrator *orchestrator,
                                const struct command_record *record)
{
    struct sandbox *sandbox = registry_find(orchestrator->registry, record->sandbox_id);
    return sandbox && record->ordered_ms >= sandbox->enrolled_ms ? sandbox : NULL;
}

/* Commands of a sandbox that is gone have no labels to hold a scope against, nor have those of an
 * earlier machine of that name. */
bool command_visible(struct orchestrator *orchestrator, const struct identity *peer,
                     const struct command_record *record)
{
    const struct sandbox *sandbox = command_sandbox(orchestrator, record);
    const struct client *client = clients_find(orchestrator->clients, peer->name);
    return sandbox ? access_sees(orchestrator, peer, sandbox) : client && !*client->scope;
}

static int not_found(const struct command_id *id, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND,
                   "there is no command %s here; 'sandstorm ps -a' lists those "
                   "that are known",
                   id->text);
}

static int lookup_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct lookup *lookup = CONTAINER_OF(job, struct lookup, job);
    return store_command_get(tx, lookup->id.text, &lookup->record, err);
}

static void lookup_done(struct store_job *job)
{
    struct lookup *lookup = CONTAINER_OF(job, struct lookup, job);
    struct err err = job->err;
    bool found =
        job->result == 0 && command_visible(lookup->orchestrator, &lookup->peer, &lookup->record);
    if (found) {
        lookup->done(lookup->userdata, &lookup->record,
                     command_sandbox(lookup->orchestrator, &lookup->record), NULL);
    } else {
        if (job->result == 0 || job->err.code == ERR_NOT_FOUND)
            (void)not_found(&lookup->id, &err);
        lookup->done(lookup->userdata, NULL, NULL, &err);
    }
    free(lookup);
}

int command_look_up(struct orchestrator *orchestrator, const struct identity *peer,
                    const char *command_id, command_looked_up done, void *userdata, struct err *err)
{
    struct command_id id;
    if (command_id_parse(command_id, &id, err) < 0)
        return -1;
    struct lookup *lookup = calloc(1, sizeof(*lookup));
    if (!lookup)
        return err_nomem(err);
    lookup->job.work = lookup_work;
    lookup->job.done = lookup_done;
    lookup->orchestrator = orchestrator;
    lookup->peer = *peer;
    lookup->id = id;
    lookup->done = done;
    lookup->userdata = userdata;
    if (store_submit(orchestrator->store, &lookup->job, err) == 0)
        return 0;
    free(lookup);
    return -1;
}
