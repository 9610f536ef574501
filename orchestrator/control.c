/* What the methods that need the store have in common: orchestrator/control_*.c. */
#include "orchestrator/control.h"

#include "orchestrator/audit.h"
#include "orchestrator/orchestrator-internal.h"

#include <string.h>

void *control_job_new(size_t size, struct orchestrator *orchestrator, struct rpc_ticket *ticket,
                      struct err *err)
{
    struct control_job *job = calloc(1, size);
    if (!job) {
        (void)err_nomem(err);
        return NULL;
    }
    job->orchestrator = orchestrator;
    job->ticket = ticket;
    job->peer = *rpc_ticket_peer(ticket);
    (void)memcpy(job->key, rpc_ticket_certificate(ticket)->key, sizeof(job->key));
    access_actor(&job->peer, job->actor);
    return job;
}

int control_job_submit(struct control_job *job, control_work work, control_done done, bool durable,
                       struct err *err)
{
    job->job.work = work;
    job->job.done = done;
    job->job.durable = durable;
    if (store_submit(job->orchestrator->store, &job->job, err) < 0) {
        free(job);
        return -1;
    }
    return 0;
}

bool control_job_failed(struct control_job *job)
{
    if (job->job.durable)
        audit_notify(job->orchestrator);
    if (job->job.result == 0)
        return false;
    if (job->job.unsaved && job->job.durable) {
        log_error("the audit cannot be written", LF_ERR(&job->job.err));
        audit_unwritable(&job->job.err);
    }
    rpc_ticket_fail(job->ticket, &job->job.err);
    free(job);
    return true;
}

void control_job_end(struct control_job *job, const ProtobufCMessage *answer)
{
    rpc_ticket_reply(job->ticket, answer);
    free(job);
}

/* The guard has decided on the loop; another job may have been committed since. */
static int check_actor(const struct control_job *job, struct store_tx *tx, struct err *err)
{
    struct client_record client;
    if (store_client_get(tx, job->peer.name, &client, err) < 0)
        return -1;
    if (client.revoked_ms || !client.has_key || client.role < (int)ROLE_ADMIN ||
        memcmp(client.key, job->key, sizeof(client.key)) != 0)
        return err_set(err, ERR_UNAUTHENTICATED, "client \"%s\" was revoked meanwhile",
                       client.name);
    return 0;
}

int control_job_audit(struct control_job *job, struct store_tx *tx, const char *action,
                      const char *target, const char *detail, struct err *err)
{
    if (check_actor(job, tx, err) < 0)
        return -1;
    const struct audit_entry entry = {
        .actor = job->actor,
        .action = action,
        .target = target,
        .allowed = true,
        .detail = detail,
    };
    return store_audit_append(tx, &entry, err);
}
