/* What is done to sandboxes: waited for, labelled, drained, removed, revoked. Calls through
 * client/client.c; the sandbox as it is then goes through client/sandbox.c to the caller. */
#include "client/client-internal.h"

#include "common/wire.h"

#include <string.h>

#define METHOD(name) "/sandstorm.v1.SandboxService/" name
/* As the orchestrator has it where nothing is said. */
#define READY_DEFAULT_MS 600000u
#define READY_MAX_MS     3600000u
/* The orchestrator's own answer is the better one, so it gets this much longer. */
#define READY_MARGIN_MS 10000u

int sandstorm_ready(struct sandstorm_client *client, const char *id, uint64_t timeout_ms,
                    sandstorm_sandbox_fn one, void *userdata, struct sandstorm_error *error)
{
    struct err err = { 0 };
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    Sandstorm__V1__SandboxReadyRequest request = SANDSTORM__V1__SANDBOX_READY_REQUEST__INIT;
    uint64_t wait_ms = MIN(timeout_ms ? timeout_ms : READY_DEFAULT_MS, READY_MAX_MS);
    const struct client_method method = {
        METHOD("SandboxReady"),
        &sandstorm__v1__sandbox_ready_response__descriptor,
        (wait_ms + READY_MARGIN_MS) * 1000,
    };
    request.id = (char *)id;
    request.timeout_ms = wait_ms;
    if (client_call(client, &method, &request.base, &message, &err) < 0) {
        client_explain(client, &err);
        return client_error(&err, error);
    }
    const Sandstorm__V1__SandboxReadyResponse *answer =
        (const Sandstorm__V1__SandboxReadyResponse *)message;
    return client_deliver(answer->sandbox, one, userdata, &err) < 0 ? client_error(&err, error) : 0;
}

int sandstorm_sandbox_label(struct sandstorm_client *client, const char *id, const char *set,
                            const char *const *remove, sandstorm_sandbox_fn one, void *userdata,
                            struct sandstorm_error *error)
{
    struct err err = { 0 };
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    CLEANUP_LABELS struct client_labels labels = { 0 };
    Sandstorm__V1__LabelSandboxRequest request = SANDSTORM__V1__LABEL_SANDBOX_REQUEST__INIT;
    request.id = (char *)id;
    request.remove = (char **)remove;
    while (remove && remove[request.n_remove])
        request.n_remove++;
    if (client_labels_pack(set, &labels, &err) < 0)
        return client_error(&err, error);
    request.set = labels.pointers;
    request.n_set = labels.count;
    if (client_unary(client, METHOD("LabelSandbox"), &request.base,
                     &sandstorm__v1__label_sandbox_response__descriptor, &message, &err) < 0 ||
        client_deliver(((const Sandstorm__V1__LabelSandboxResponse *)message)->sandbox, one,
                       userdata, &err) < 0)
        return client_error(&err, error);
    return 0;
}

int sandstorm_sandbox_drain(struct sandstorm_client *client, const char *id, bool draining,
                            sandstorm_sandbox_fn one, void *userdata, struct sandstorm_error *error)
{
    struct err err = { 0 };
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    Sandstorm__V1__DrainSandboxRequest request = SANDSTORM__V1__DRAIN_SANDBOX_REQUEST__INIT;
    request.id = (char *)id;
    request.draining = draining;
    if (client_unary(client, METHOD("DrainSandbox"), &request.base,
                     &sandstorm__v1__drain_sandbox_response__descriptor, &message, &err) < 0 ||
        client_deliver(((const Sandstorm__V1__DrainSandboxResponse *)message)->sandbox, one,
                       userdata, &err) < 0)
        return client_error(&err, error);
    return 0;
}

int sandstorm_sandbox_remove(struct sandstorm_client *client, const char *id, bool force,
                             struct sandstorm_error *error)
{
    struct err err = { 0 };
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    Sandstorm__V1__RemoveSandboxRequest request = SANDSTORM__V1__REMOVE_SANDBOX_REQUEST__INIT;
    request.id = (char *)id;
    request.force = force;
    return client_unary(client, METHOD("RemoveSandbox"), &request.base,
                        &sandstorm__v1__remove_sandbox_response__descriptor, &message, &err) < 0
               ? client_error(&err, error)
               : 0;
}

int sandstorm_sandbox_revoke(struct sandstorm_client *client, const char *id,
                             sandstorm_sandbox_fn one, void *userdata,
                             struct sandstorm_error *error)
{
    struct err err = { 0 };
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    Sandstorm__V1__RevokeSandboxRequest request = SANDSTORM__V1__REVOKE_SANDBOX_REQUEST__INIT;
    request.id = (char *)id;
    if (client_unary(client, METHOD("RevokeSandbox"), &request.base,
                     &sandstorm__v1__revoke_sandbox_response__descriptor, &message, &err) < 0 ||
        client_deliver(((const Sandstorm__V1__RevokeSandboxResponse *)message)->sandbox, one,
                       userdata, &err) < 0)
        return client_error(&err, error);
    return 0;
}
