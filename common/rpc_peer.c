/* Reads the peer's identity out of libgrpc's auth context; called by common/rpc_server.c for every
 * call before any handler sees it. libgrpc's own "peer identity" mixes all names and falls back to
 * the CN, so it is not used. */
#include "common/rpc_peer.h"

#include <string.h>

int rpc_peer_identify(grpc_call *call, const char *trust_domain, struct identity *ret,
                      struct err *err)
{
    grpc_auth_context *context = grpc_call_auth_context(call);
    char uri[SPIFFE_URI_MAX] = "";
    unsigned found = 0;
    if (context) {
        grpc_auth_property_iterator it =
            grpc_auth_context_find_properties_by_name(context, GRPC_PEER_URI_PROPERTY_NAME);
        const grpc_auth_property *property;
        while ((property = grpc_auth_property_iterator_next(&it))) {
            found++;
            /* An embedded NUL would let two readers see two names. */
            if (property->value_length < sizeof(uri) &&
                !memchr(property->value, 0, property->value_length)) {
                (void)memcpy(uri, property->value, property->value_length);
                uri[property->value_length] = '\0';
            }
        }
        grpc_auth_context_release(context);
    }
    struct identity identity = { 0 };
    struct err why;
    if (found != 1)
        return err_set(err, ERR_UNAUTHENTICATED,
                       "the certificate has %u URI names; exactly one, the SPIFFE id, is needed",
                       found);
    if (identity_parse(uri, &identity, &why) < 0)
        return err_set(err, ERR_UNAUTHENTICATED, "the certificate is nobody's here: %.200s",
                       why.text);
    if (strcmp(identity.trust_domain, trust_domain) != 0)
        return err_set(err, ERR_UNAUTHENTICATED,
                       "the certificate belongs to trust domain \"%s\", this is \"%s\"",
                       identity.trust_domain, trust_domain);
    *ret = identity;
    return 0;
}
