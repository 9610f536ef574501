/* Enrolment between its two threads: requests come from orchestrator/front.c (HTTPS) and
 * orchestrator/control_identity.c (gRPC), the decision is made in orchestrator/enrol_work.c on the
 * store's thread, and what changed is taken over into the loop's tables here. */
#include "orchestrator/enrol.h"

#include "common/clock.h"
#include "common/failpoint.h"
#include "orchestrator/audit.h"
#include "orchestrator/clients.h"
#include "orchestrator/control.h"
#include "orchestrator/liveness.h"
#include "orchestrator/orchestrator-internal.h"
#include "orchestrator/relay.h"
#include "orchestrator/session.h"

#include <openssl/crypto.h>
#include <string.h>

int enrol_new(struct orchestrator *orchestrator, enum enrol_kind kind, struct enrol **ret,
              struct err *err)
{
    struct enrol *enrol = calloc(1, sizeof(*enrol));
    if (!enrol)
        return err_nomem(err);
    enrol->orchestrator = orchestrator;
    enrol->kind = kind;
    *ret = enrol;
    return 0;
}

void enrol_free(struct enrol *enrol)
{
    if (!enrol)
        return;
    if (enrol->secret)
        OPENSSL_cleanse(enrol->secret, strlen(enrol->secret));
    free(enrol->secret);
    free(enrol->csr);
    free(enrol->certificate);
    free(enrol->pem);
    free(enrol);
}

/* The sandbox as the store has it now. A link that is here with another key is another machine's.
 */
static int take_sandbox(struct enrol *enrol, struct err *err)
{
    struct registry *registry = enrol->orchestrator->registry;
    const struct sandbox *before = registry_find(registry, enrol->sandbox.id);
    bool replaced = before && memcmp(before->key, enrol->sandbox.key, sizeof(before->key)) != 0;
    struct orchestrator *orchestrator = enrol->orchestrator;
    CLEANUP_FREE char *labels = before ? strdup(before->labels) : NULL;
    struct sandbox *sandbox;
    if (registry_set(registry, &enrol->sandbox, &sandbox, err) < 0)
        return -1;
    if (!before) {
        liveness_add(orchestrator, sandbox, FLEET_NEW);
        return 0;
    }
    if (labels)
        control_watch_left(orchestrator, sandbox, labels, sandbox->reported, false);
    liveness_changed(orchestrator, sandbox);
    if (!replaced)
        return 0;
    if (sandbox->session)
        session_close(sandbox->session, SANDSTORM__V1__GOODBYE_REASON__GOODBYE_REASON_REVOKED,
                      SESSION_SUPERSEDED_MS, "this sandbox was enrolled again with another key");
    /* What was ordered from the one machine is not started on the other. */
    relay_sandbox_gone(sandbox, "was enrolled again, as another machine");
    return 0;
}

static void on_done(struct store_job *job)
{
    struct enrol *enrol = CONTAINER_OF(job, struct enrol, job);
    struct orchestrator *orchestrator = enrol->orchestrator;
    if (job->result < 0) {
        log_error("a certificate request could not be carried out", LF_ERR(&job->err));
        /* Strangers ask here: what went wrong is for our own log. */
        (void)err_set(
            &enrol->verdict, ERR_UNAVAILABLE,
            "the orchestrator cannot do this now; try again in a while. Its log says why");
    } else {
        audit_notify(orchestrator);
    }
    if (job->result == 0 && enrol->changed) {
        struct err err;
        int r = enrol->kind == ENROL_JOIN
                    ? take_sandbox(enrol, &err)
                    : clients_set(orchestrator->clients, &enrol->client, &err);
        if (r < 0)
            enrol->verdict = err; /* the store has it; the same request again brings it here */
    }
    if (enrol->verdict.code == ERR_NONE) {
        failpoint("enroll.stored");
        log_info("certificate issued", LF_STR("kind", identity_kind_name(enrol->identity.kind)),
                 LF_STR("name", enrol->identity.name), LF_STR("for", enrol->source));
    }
    uint64_t suppressed;
    if (job->result == 0 && enrol->verdict.code != ERR_NONE &&
        log_limit_pass(&orchestrator->refusals, monotonic_us(), &suppressed))
        log_warn("certificate refused", LF_STR("for", enrol->source), LF_ERR(&enrol->verdict),
                 LF_UINT("suppressed", suppressed));
    enrol->done(enrol);
}

void enrol_submit(struct enrol *enrol, void (*done)(struct enrol *enrol), void *userdata)
{
    enrol->done = done;
    enrol->userdata = userdata;
    enrol->job.work = enrol_work;
    enrol->job.done = on_done;
    enrol->job.durable = true;
    struct err err;
    if (store_submit(enrol->orchestrator->store, &enrol->job, &err) < 0) {
        (void)err_set(&enrol->verdict, ERR_UNAVAILABLE, "the orchestrator is busy; try again");
        done(enrol);
    }
}
