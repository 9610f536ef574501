/* Reads the peer's identity out of libgrpc's auth context; called by common/rpc_server.c for every
 * call before any handler sees it. libgrpc's own "peer identity" mixes all names and falls back to
 * the CN, so it is not used. */
#include "common/rpc_peer.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <string.h>

/* The end of the certificate, and its key. */
static int read_certificate(const char *pem, size_t size, struct rpc_certificate *ret)
{
    BIO *bio = BIO_new_mem_buf(pem, (int)size);
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    unsigned char *der = NULL;
    struct tm end = { 0 };
    int length = cert ? i2d_X509_PUBKEY(X509_get_X509_PUBKEY(cert), &der) : -1;
    int ok = length > 0 && ASN1_TIME_to_tm(X509_get0_notAfter(cert), &end) == 1;
    if (ok) {
        (void)SHA256(der, (size_t)length, ret->key);
        ret->not_after_s = (int64_t)timegm(&end);
    }
    OPENSSL_free(der);
    X509_free(cert);
    BIO_free(bio);
    ERR_clear_error();
    return ok ? 0 : -1;
}

static int find_certificate(const grpc_auth_context *context, struct rpc_certificate *ret)
{
    grpc_auth_property_iterator it =
        grpc_auth_context_find_properties_by_name(context, GRPC_X509_PEM_CERT_PROPERTY_NAME);
    const grpc_auth_property *property = grpc_auth_property_iterator_next(&it);
    return property ? read_certificate(property->value, property->value_length, ret) : -1;
}

int rpc_peer_identify(grpc_call *call, const char *trust_domain, struct identity *ret,
                      struct rpc_certificate *ret_certificate, struct err *err)
{
    grpc_auth_context *context = grpc_call_auth_context(call);
    char uri[SPIFFE_URI_MAX] = "";
    struct rpc_certificate certificate = { 0 };
    int readable = -1;
    unsigned found = 0;
    if (context) {
        readable = find_certificate(context, &certificate);
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
    if (readable < 0)
        return err_set(err, ERR_UNAUTHENTICATED, "the certificate cannot be read");
    *ret = identity;
    *ret_certificate = certificate;
    return 0;
}
