/* Why the stream could not be made, in words: libgrpc says "unavailable" to everything, so the
 * worker walks the same way once more. Asked by agent/link_stream.c; next: common/rpc_diagnose.c.
 */
#include "agent/link-internal.h"

#include "common/rpc_diagnose.h"

static void diagnose(struct worker_job *job)
{
    struct link_diagnosis *diagnosis = CONTAINER_OF(job, struct link_diagnosis, job);
    diagnosis->result = rpc_diagnose(diagnosis->link->config.endpoint, &diagnosis->creds,
                                     LINK_DIAGNOSE_MS, &diagnosis->err);
}

static void diagnosed(struct worker_job *job)
{
    struct link_diagnosis *diagnosis = CONTAINER_OF(job, struct link_diagnosis, job);
    diagnosis->running = false;
    rpc_creds_clear(&diagnosis->creds);
    struct link *link = diagnosis->link;
    /* Where the probe finds nothing wrong, err still holds what libgrpc said. */
    if (link->stream.state == STREAM_ACTIVE)
        return;
    link_retry_report(link, &diagnosis->err);
    if (diagnosis->result < 0 && diagnosis->err.code == ERR_UNAUTHENTICATED && !link->stopping)
        (void)link_identity_renew_late(link);
}

void link_diagnose(struct link *link, const struct err *why)
{
    struct link_diagnosis *diagnosis = &link->stream.diagnosis;
    struct err err;
    if (diagnosis->running)
        return;
    diagnosis->link = link;
    diagnosis->err = *why;
    diagnosis->job.work = diagnose;
    diagnosis->job.done = diagnosed;
    if (rpc_creds_load(link->config.enroll->identity_dir, &diagnosis->creds, &err) < 0) {
        link_retry_report(link, &err);
        return;
    }
    if (worker_submit(link->worker, &diagnosis->job, &err) < 0) {
        rpc_creds_clear(&diagnosis->creds);
        link_retry_report(link, why);
        return;
    }
    diagnosis->running = true;
    /* The probe takes seconds; until then this is why. */
    if (!*link->stream.last_error)
        link_retry_note(link, why);
}
