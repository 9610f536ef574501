/* IdentityService: what the holder of a certificate asks about itself. Renewal goes the way of all
 * certificates, orchestrator/enrol.c. */
#include "orchestrator/control.h"
#include "orchestrator/orchestrator-internal.h"

#include "orchestrator/ca.h"
#include "orchestrator/clients.h"
#include "orchestrator/enrol.h"
#include "sandstorm/v1/admin.pb-c.h"

#include <stdio.h>
#include <string.h>

static void on_renewed(struct enrol *enrol)
{
    struct rpc_ticket *ticket = enrol->userdata;
    if (enrol->verdict.code == ERR_NONE) {
        Sandstorm__V1__RenewCertificateResponse response =
            SANDSTORM__V1__RENEW_CERTIFICATE_RESPONSE__INIT;
        response.certificate_pem = enrol->pem;
        response.ca_pem = (char *)ca_bundle(enrol->orchestrator->ca);
        response.not_after_unix_ms = enrol->not_after_s * 1000;
        rpc_ticket_reply(ticket, &response.base);
    } else {
        rpc_ticket_fail(ticket, &enrol->verdict);
    }
    enrol_free(enrol);
}

int control_renew_certificate(void *userdata, struct rpc_ticket *ticket,
                              const ProtobufCMessage *message, struct err *err)
{
    const Sandstorm__V1__RenewCertificateRequest *request =
        (const Sandstorm__V1__RenewCertificateRequest *)message;
    struct enrol *enrol;
    if (strlen(request->csr_pem) > ENROL_CSR_MAX)
        return err_set(err, ERR_INVALID, "a signing request has at most %u bytes", ENROL_CSR_MAX);
    if (enrol_new(userdata, ENROL_RENEW, &enrol, err) < 0)
        return -1;
    enrol->csr = strdup(request->csr_pem);
    if (!enrol->csr) {
        enrol_free(enrol);
        return err_nomem(err);
    }
    enrol->peer = *rpc_ticket_peer(ticket);
    (void)memcpy(enrol->peer_key, rpc_ticket_certificate(ticket)->key, sizeof(enrol->peer_key));
    access_actor(&enrol->peer, enrol->source);
    enrol_submit(enrol, on_renewed, ticket);
    return 0;
}

int control_get_identity(void *userdata, struct rpc_call *call, const ProtobufCMessage *message,
                         struct err *err)
{
    (void)message;
    struct orchestrator *orchestrator = userdata;
    const struct identity *peer = rpc_call_peer(call);
    Sandstorm__V1__GetIdentityResponse response = SANDSTORM__V1__GET_IDENTITY_RESPONSE__INIT;
    struct label_messages scope;
    char uri[SPIFFE_URI_MAX];
    if (identity_format(peer, uri, err) < 0)
        return -1;
    response.uri = uri;
    response.not_after_unix_ms = rpc_call_certificate(call)->not_after_s * 1000;
    const struct client *client =
        peer->kind == IDENTITY_CLIENT ? clients_find(orchestrator->clients, peer->name) : NULL;
    if (client) {
        response.role = (Sandstorm__V1__Role)client->role;
        response.n_scope = label_messages_fill(&scope, client->scope);
        response.scope = scope.pointers;
    }
    return rpc_call_send(call, &response.base, err);
}
