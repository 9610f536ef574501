/* A new certificate for the one that this client was made with. Called by cli/renew.c, which
 * decides when, and puts the answer in place. */
#include "client/client-internal.h"

#include "common/wire.h"
#include "sandstorm/v1/admin.pb-c.h"

#include <string.h>

int client_renew(struct sandstorm_client *client, const char *csr_pem, char **ret_certificate,
                 char **ret_ca, struct err *err)
{
    static const struct client_method method = {
        "/sandstorm.v1.IdentityService/RenewCertificate",
        &sandstorm__v1__renew_certificate_response__descriptor,
        CLIENT_RENEW_US,
    };
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    Sandstorm__V1__RenewCertificateRequest request = SANDSTORM__V1__RENEW_CERTIFICATE_REQUEST__INIT;
    request.csr_pem = (char *)csr_pem;
    if (client_call(client, &method, &request.base, &message, err) < 0)
        return -1;
    const Sandstorm__V1__RenewCertificateResponse *answer =
        (const Sandstorm__V1__RenewCertificateResponse *)message;
    CLEANUP_FREE char *certificate = strdup(answer->certificate_pem);
    CLEANUP_FREE char *ca = strdup(answer->ca_pem);
    if (!certificate || !ca)
        return err_nomem(err);
    *ret_certificate = TAKE_PTR(certificate);
    *ret_ca = TAKE_PTR(ca);
    return 0;
}
