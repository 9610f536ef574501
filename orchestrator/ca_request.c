/* Owns what peers hand to the CA: signing requests, and certificates that they say are ours. The
 * enrolment worker hands in PEM from the network and takes a certificate back. Of a request only
 * the public key is used; its names, extensions and attributes are never read, so nothing in them
 * can reach a certificate. Next: orchestrator/ca.c for the certificate, common/cert.c for PEM. */
#include "orchestrator/ca-internal.h"

#include <openssl/err.h>
#include <openssl/objects.h>
#include <openssl/pem.h>
#include <string.h>

#define P256_POINT_LEN   65 /* 4, then two coordinates of 32 bytes; SEC 1, 2.3.3 */
#define POINT_PLAIN_FORM 4

struct ca_request {
    EVP_PKEY *key;
    uint8_t hash[CA_KEY_LEN];
};

static void request_cleanup(X509_REQ **request)
{
    X509_REQ_free(*request);
}
#define CLEANUP_REQUEST CLEANUP(request_cleanup)

static int check_size(size_t size, struct err *err)
{
    if (size > CA_PEM_MAX)
        return err_set(err, ERR_INVALID, "the text has more than %u bytes; send one PEM block",
                       CA_PEM_MAX);
    return 0;
}

/* The hash of the key as we would write it ourselves, so that one key has one hash whatever the
 * encoder of the text it came in. */
static int hash_key(const EVP_PKEY *key, uint8_t ret[CA_KEY_LEN], struct err *err)
{
    unsigned char *der = NULL;
    int size = i2d_PUBKEY(key, &der);
    if (size <= 0)
        return cert_openssl_err(err, ERR_INTERNAL, "cannot write the public key");
    int ok = EVP_Digest(der, (size_t)size, ret, NULL, EVP_sha256(), NULL);
    OPENSSL_free(der);
    return ok == 1 ? 0 : cert_openssl_err(err, ERR_INTERNAL, "cannot hash the public key");
}

static int read_request(const char *pem, size_t size, X509_REQ **ret, struct err *err)
{
    unsigned char *der = NULL;
    long der_size = 0;
    if (check_size(size, err) < 0 ||
        cert_pem_block(pem, size, PEM_STRING_X509_REQ, &der, &der_size, err) < 0)
        return -1;
    const unsigned char *at = der;
    CLEANUP_REQUEST X509_REQ *request = d2i_X509_REQ(NULL, &at, der_size);
    bool whole = request && at == der + der_size;
    OPENSSL_free(der);
    if (!whole)
        return cert_openssl_err(err, ERR_INVALID,
                                "the PEM block is not exactly one signing request (PKCS #10)");
    *ret = TAKE_PTR(request);
    return 0;
}

/* The curve by its name and the point in its plain form, the only ones TLS peers use: RFC 5480,
 * section 2.1.1, and RFC 8446, section 4.2.8.2. Looked at before anything is done with the key,
 * since parameters of the sender's own making are how weak curves come in. */
static bool is_plain_p256(X509_REQ *request)
{
    const X509_PUBKEY *key = X509_REQ_get_X509_PUBKEY(request);
    ASN1_OBJECT *algorithm = NULL;
    const unsigned char *point = NULL;
    int point_len = 0, parameter_type = 0;
    X509_ALGOR *identifier = NULL;
    const void *parameter = NULL;
    if (!key || X509_PUBKEY_get0_param(&algorithm, &point, &point_len, &identifier, key) != 1)
        return false;
    X509_ALGOR_get0(NULL, &parameter_type, &parameter, identifier);
    return OBJ_obj2nid(algorithm) == NID_X9_62_id_ecPublicKey && parameter_type == V_ASN1_OBJECT &&
           OBJ_obj2nid(parameter) == NID_X9_62_prime256v1 && point_len == P256_POINT_LEN &&
           point[0] == POINT_PLAIN_FORM;
}

static int check_request(X509_REQ *request, struct err *err)
{
    if (X509_REQ_get_version(request) != X509_REQ_VERSION_1)
        return err_set(err, ERR_INVALID, "the signing request is not of version 1");
    EVP_PKEY *key = is_plain_p256(request) ? X509_REQ_get0_pubkey(request) : NULL;
    ERR_clear_error();
    if (!key)
        return err_set(err, ERR_INVALID,
                       "the key of the signing request must be P-256, with the curve by its name "
                       "and the point not compressed");
    bool good = X509_REQ_verify(request, key) == 1;
    ERR_clear_error();
    if (!good)
        return err_set(err, ERR_INVALID,
                       "the signing request is not signed by the key that it is for");
    return 0;
}

int ca_request_parse(const char *pem, size_t size, struct ca_request **ret, struct err *err)
{
    ERR_clear_error();
    CLEANUP_REQUEST X509_REQ *request = NULL;
    if (read_request(pem, size, &request, err) < 0 || check_request(request, err) < 0)
        return -1;
    CLEANUP_CA_REQUEST struct ca_request *parsed = calloc(1, sizeof(*parsed));
    if (!parsed)
        return err_nomem(err);
    parsed->key = X509_REQ_get_pubkey(request);
    if (!parsed->key)
        return cert_openssl_err(err, ERR_INTERNAL, "cannot take the key of the signing request");
    if (hash_key(parsed->key, parsed->hash, err) < 0)
        return -1;
    *ret = TAKE_PTR(parsed);
    return 0;
}

void ca_request_free(struct ca_request *request)
{
    if (!request)
        return;
    EVP_PKEY_free(request->key);
    free(request);
}

const uint8_t *ca_request_key(const struct ca_request *request)
{
    return request->hash;
}

int ca_sign_peer(struct ca *ca, const struct ca_request *request, enum identity_kind kind,
                 const char *name, uint64_t lifetime_s, char **ret_pem, int64_t *ret_not_after_s,
                 struct err *err)
{
    ERR_clear_error();
    CLEANUP_X509 X509 *cert = NULL;
    CLEANUP_BIO BIO *pem = NULL;
    int64_t end;
    if (ca_make_peer(ca, request->key, kind, name, lifetime_s, &cert, err) < 0 ||
        ca_x509_time(X509_get0_notAfter(cert), &end, err) < 0 ||
        cert_pem_from_cert(cert, &pem, err) < 0 || cert_bio_text(pem, ret_pem, err) < 0)
        return -1;
    *ret_not_after_s = end;
    return 0;
}

int ca_inspect_peer(struct ca *ca, const char *pem, size_t size, struct identity *ret,
                    uint8_t ret_key[CA_KEY_LEN], int64_t *ret_not_after_s, struct err *err)
{
    ERR_clear_error();
    CLEANUP_X509 X509 *cert = NULL;
    if (check_size(size, err) < 0 || cert_pem_one_cert(pem, size, &cert, err) < 0)
        return -1;
    /* First, so that everything below is text of our own making. */
    if (!ca_x509_signed_by(cert, ca->cert) && !ca_x509_signed_by(cert, ca->old))
        return err_set(err, ERR_UNAUTHENTICATED,
                       "the certificate is not signed by the CA of this orchestrator");
    EVP_PKEY *public_key = X509_get0_pubkey(cert);
    if (!public_key)
        return cert_openssl_err(err, ERR_INVALID, "the certificate's key cannot be read");
    struct identity identity;
    int64_t end;
    uint8_t key[CA_KEY_LEN];
    if (cert_check_peer(cert, &identity, err) < 0 ||
        ca_x509_time(X509_get0_notAfter(cert), &end, err) < 0 || hash_key(public_key, key, err) < 0)
        return -1;
    if (strcmp(identity.trust_domain, ca->trust_domain) != 0)
        return err_set(err, ERR_UNAUTHENTICATED,
                       "the certificate is of another trust domain than %s", ca->trust_domain);
    *ret = identity;
    memcpy(ret_key, key, sizeof(key));
    *ret_not_after_s = end;
    return 0;
}
