/* SandboxService, what operators do to a sandbox: label it, let it drain, forget it. Requests come
 * through the guard; each change is in the store before it is in the registry. Next:
 * orchestrator/store_sandboxes.c, then orchestrator/liveness.c for those who watch. */
#include "orchestrator/control.h"
#include "orchestrator/history.h"
#include "orchestrator/liveness.h"
#include "orchestrator/orchestrator-internal.h"
#include "orchestrator/relay.h"
#include "orchestrator/session.h"

#include "common/wire.h"

#include <stdio.h>
#include <string.h>

struct fleet_job {
    struct control_job control;
    char id[SANDBOX_ID_MAX + 1];
    ProtobufCMessage *asked; /* LabelSandboxRequest, a copy */
    char *labels;            /* the new set */
    bool flag;               /* draining, or forced */
};

static struct fleet_job *job_new(void *userdata, struct rpc_ticket *ticket, const char *id,
                                 struct err *err)
{
    struct fleet_job *job = control_job_new(sizeof(*job), userdata, ticket, err);
    if (job)
        (void)snprintf(job->id, sizeof(job->id), "%s", id);
    return job;
}

static struct sandbox *job_sandbox(const struct fleet_job *job)
{
    return registry_find(job->control.orchestrator->registry, job->id);
}

/* Labels. */

static bool is_removed(const Sandstorm__V1__LabelSandboxRequest *request, const char *key)
{
    for (size_t i = 0; i < request->n_remove; i++)
        if (strcmp(request->remove[i], key) == 0)
            return true;
    return false;
}

/* The set that is asked for: what it says, and of what was there all that it does not speak of. */
static int relabel(const char *before, const Sandstorm__V1__LabelSandboxRequest *request,
                   char **ret, struct err *err)
{
    CLEANUP_FREE char *labels = NULL, *set = NULL;
    char key[LABEL_KEY_MAX + 1], value[LABEL_VALUE_MAX + 1];
    if (label_messages_read(request->set, request->n_set, &set, err) < 0)
        return -1;
    for (size_t i = 0; i < request->n_remove; i++)
        if (label_check(request->remove[i], "x", err) < 0)
            return -1;
    const char *position = set;
    while (labels_next(&position, key, value)) {
        if (is_removed(request, key))
            return err_set(err, ERR_INVALID, "label \"%s\" is to be set and to be removed", key);
        if (labels_add(&labels, key, value, err) < 0)
            return -1;
    }
    while (labels_next(&before, key, value)) {
        struct err there = { 0 };
        if (is_removed(request, key) || labels_add(&labels, key, value, &there) == 0)
            continue;
        if (there.code != ERR_EXISTS) { /* else it has a new value */
            *err = there;
            return -1;
        }
    }
    *ret = labels ? TAKE_PTR(labels) : strdup("");
    return *ret ? 0 : err_nomem(err);
}

static int label_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct fleet_job *label = CONTAINER_OF(job, struct fleet_job, control.job);
    struct sandbox_record before;
    /* Of what is there now: another change may have come in between. */
    if (store_sandbox_get(tx, label->id, &before, err) < 0 ||
        relabel(before.labels, (const Sandstorm__V1__LabelSandboxRequest *)label->asked,
                &label->labels, err) < 0 ||
        control_job_audit(&label->control, tx, "sandbox.label", label->id, label->labels, err) < 0)
        return -1;
    return store_sandbox_label(tx, label->id, label->labels, err);
}

static void label_done(struct store_job *job)
{
    struct fleet_job *label = CONTAINER_OF(job, struct fleet_job, control.job);
    struct orchestrator *orchestrator = label->control.orchestrator;
    CLEANUP_FREE char *labels = TAKE_PTR(label->labels);
    wire_free(TAKE_PTR(label->asked));
    struct sandbox_description description;
    Sandstorm__V1__LabelSandboxResponse response = SANDSTORM__V1__LABEL_SANDBOX_RESPONSE__INIT;
    if (control_job_failed(&label->control))
        return;
    struct sandbox *sandbox = job_sandbox(label);
    if (sandbox) {
        CLEANUP_FREE char *before = sandbox->labels;
        sandbox->labels = TAKE_PTR(labels);
        control_watch_left(orchestrator, sandbox, before, sandbox->reported, false);
        liveness_changed(orchestrator, sandbox);
        sandbox_describe(sandbox, &description);
        response.sandbox = &description.message;
    }
    control_job_end(&label->control, &response.base);
}

int control_label_sandbox(void *userdata, struct rpc_ticket *ticket,
                          const ProtobufCMessage *message, struct err *err)
{
    const Sandstorm__V1__LabelSandboxRequest *request =
        (const Sandstorm__V1__LabelSandboxRequest *)message;
    CLEANUP_FREE uint8_t *packed = NULL;
    CLEANUP_WIRE ProtobufCMessage *asked = NULL;
    size_t size;
    if (wire_pack(message, &packed, &size, err) < 0 ||
        wire_unpack(message->descriptor, packed, size, &asked, err) < 0)
        return -1;
    struct fleet_job *label = job_new(userdata, ticket, request->id, err);
    if (!label)
        return -1;
    label->asked = asked;
    if (control_job_submit(&label->control, label_work, label_done, true, err) < 0)
        return -1;
    asked = NULL; /* the job's */
    return 0;
}

/* Draining. */

static int drain_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    const struct fleet_job *drain = CONTAINER_OF(job, struct fleet_job, control.job);
    return store_sandbox_drain(tx, drain->id, drain->flag, err);
}

static void drain_done(struct store_job *job)
{
    struct fleet_job *drain = CONTAINER_OF(job, struct fleet_job, control.job);
    struct sandbox_description description;
    Sandstorm__V1__DrainSandboxResponse response = SANDSTORM__V1__DRAIN_SANDBOX_RESPONSE__INIT;
    if (control_job_failed(&drain->control))
        return;
    struct sandbox *sandbox = job_sandbox(drain);
    if (sandbox) {
        if (sandbox->draining != drain->flag)
            log_info(drain->flag ? "sandbox drains" : "sandbox takes commands again",
                     LF_STR("sandbox", sandbox->id), LF_STR("by", drain->control.actor));
        sandbox->draining = drain->flag;
        liveness_changed(drain->control.orchestrator, sandbox);
        sandbox_describe(sandbox, &description);
        response.sandbox = &description.message;
    }
    control_job_end(&drain->control, &response.base);
}

int control_drain_sandbox(void *userdata, struct rpc_ticket *ticket,
                          const ProtobufCMessage *message, struct err *err)
{
    const Sandstorm__V1__DrainSandboxRequest *request =
        (const Sandstorm__V1__DrainSandboxRequest *)message;
    struct fleet_job *drain = job_new(userdata, ticket, request->id, err);
    if (!drain)
        return -1;
    drain->flag = request->draining;
    return control_job_submit(&drain->control, drain_work, drain_done, true, err);
}

/* Removal. */

static int remove_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct fleet_job *removal = CONTAINER_OF(job, struct fleet_job, control.job);
    if (control_job_audit(&removal->control, tx, "sandbox.remove", removal->id,
                          removal->flag ? "forced" : "", err) < 0)
        return -1;
    return store_sandbox_remove(tx, removal->id, err);
}

static void remove_done(struct store_job *job)
{
    struct fleet_job *removal = CONTAINER_OF(job, struct fleet_job, control.job);
    struct orchestrator *orchestrator = removal->control.orchestrator;
    Sandstorm__V1__RemoveSandboxResponse response = SANDSTORM__V1__REMOVE_SANDBOX_RESPONSE__INIT;
    if (control_job_failed(&removal->control))
        return;
    struct sandbox *sandbox = job_sandbox(removal);
    if (sandbox) {
        log_info("sandbox removed", LF_STR("sandbox", sandbox->id),
                 LF_STR("by", removal->control.actor));
        if (sandbox->session)
            session_close(sandbox->session, SANDSTORM__V1__GOODBYE_REASON__GOODBYE_REASON_REVOKED,
                          SESSION_SUPERSEDED_MS,
                          "this sandbox was removed; a token from 'sandstorm token create' lets it "
                          "join again");
        relay_sandbox_gone(sandbox, "was removed");
        control_watch_left(orchestrator, sandbox, sandbox->labels, sandbox->reported, true);
        history_removed(orchestrator->history, sandbox->id);
        liveness_remove(orchestrator, sandbox);
        registry_remove(orchestrator->registry, sandbox);
        watch_wake(orchestrator->changes.watches); /* those who wait for it wait in vain */
    }
    control_job_end(&removal->control, &response.base);
}

int control_remove_sandbox(void *userdata, struct rpc_ticket *ticket,
                           const ProtobufCMessage *message, struct err *err)
{
    const Sandstorm__V1__RemoveSandboxRequest *request =
        (const Sandstorm__V1__RemoveSandboxRequest *)message;
    struct orchestrator *orchestrator = userdata;
    struct sandbox *sandbox;
    if (registry_get(orchestrator->registry, request->id, &sandbox, err) < 0)
        return -1;
    if (sandbox->session && !request->force)
        return err_set(err, ERR_PRECONDITION,
                       "sandbox \"%s\" is connected; stop its VM first, or force it (--force)",
                       sandbox->id);
    struct fleet_job *removal = job_new(userdata, ticket, request->id, err);
    if (!removal)
        return -1;
    removal->flag = request->force;
    return control_job_submit(&removal->control, remove_work, remove_done, true, err);
}
