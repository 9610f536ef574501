/* Owns the key and the signing request of whoever asks for a certificate, and the last look at the
 * answer. Enrolment, login and renewal call it and carry the texts; what they get goes to
 * common/identity_dir.c. Next: common/cert.c for PEM and for what a peer's certificate may be. */
#include "common/csr.h"

#include "common/cert.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <string.h>

/* The one that signs and, during a rotation, the one before; more is not a bundle of ours. */
#define BUNDLE_CERTS_MAX 8u

static void request_cleanup(X509_REQ **request)
{
    X509_REQ_free(*request);
}

static void store_cleanup(X509_STORE **store)
{
    X509_STORE_free(*store);
}

static void context_cleanup(X509_STORE_CTX **context)
{
    X509_STORE_CTX_free(*context);
}

int csr_key_new(char **ret_key_pem, struct err *err)
{
    ERR_clear_error();
    CLEANUP_KEY EVP_PKEY *key = NULL;
    CLEANUP_BIO BIO *pem = NULL;
    if (cert_key_new(&key, err) < 0 || cert_pem_from_key(key, &pem, err) < 0)
        return -1;
    return cert_bio_text(pem, ret_key_pem, err);
}

void csr_key_free(char *key_pem)
{
    if (key_pem)
        OPENSSL_cleanse(key_pem, strlen(key_pem));
    free(key_pem);
}

int csr_new(const char *key_pem, char **ret_csr_pem, struct err *err)
{
    ERR_clear_error();
    CLEANUP_KEY EVP_PKEY *key = NULL;
    if (cert_pem_to_key(key_pem, strlen(key_pem), &key, err) < 0)
        return err_wrap(err, "cannot make a signing request");
    CLEANUP(request_cleanup) X509_REQ *request = X509_REQ_new();
    CLEANUP_BIO BIO *pem = BIO_new(BIO_s_mem());
    if (!request || !pem || X509_REQ_set_version(request, X509_REQ_VERSION_1) != 1 ||
        X509_REQ_set_pubkey(request, key) != 1 || X509_REQ_sign(request, key, EVP_sha256()) <= 0 ||
        PEM_write_bio_X509_REQ(pem, request) != 1)
        return cert_openssl_err(err, ERR_INTERNAL, "cannot make a signing request");
    return cert_bio_text(pem, ret_csr_pem, err);
}

/* Every certificate of the text is a CA's, there is at least one, and nothing else is in it. */
static int load_bundle(const char *ca_pem, X509_STORE *store, struct err *err)
{
    CLEANUP_BIO BIO *bio = BIO_new_mem_buf(ca_pem, -1);
    if (!bio)
        return err_nomem(err);
    unsigned count = 0;
    for (;;) {
        CLEANUP_X509 X509 *ca = PEM_read_bio_X509(bio, NULL, NULL, NULL);
        if (!ca)
            break;
        if (++count > BUNDLE_CERTS_MAX)
            return err_set(err, ERR_PROTOCOL, "the CA bundle holds more than %u certificates",
                           BUNDLE_CERTS_MAX);
        if (X509_check_ca(ca) != 1)
            return err_set(err, ERR_PROTOCOL, "certificate %u of the CA bundle is not a CA's",
                           count);
        if (X509_STORE_add_cert(store, ca) != 1)
            return cert_openssl_err(err, ERR_INTERNAL, "cannot use the CA bundle");
    }
    /* The end of the text is the only error that there should be. */
    bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    ERR_clear_error();
    if (count == 0 || !at_end)
        return err_set(err, ERR_PROTOCOL, "the CA bundle is not a list of certificates in PEM");
    return 0;
}

static int verify(X509 *cert, X509_STORE *store, struct err *err)
{
    CLEANUP(context_cleanup) X509_STORE_CTX *context = X509_STORE_CTX_new();
    if (!context || X509_STORE_CTX_init(context, store, cert, NULL) != 1 ||
        X509_STORE_CTX_set_purpose(context, X509_PURPOSE_SSL_CLIENT) != 1)
        return cert_openssl_err(err, ERR_INTERNAL, "cannot check the certificate");
    X509_STORE_CTX_set_flags(context, X509_V_FLAG_NO_CHECK_TIME | X509_V_FLAG_X509_STRICT);
    bool good = X509_verify_cert(context) == 1;
    ERR_clear_error();
    if (!good)
        return err_set(err, ERR_PROTOCOL,
                       "the certificate is not signed by a CA of the bundle that came with it: %s",
                       X509_verify_cert_error_string(X509_STORE_CTX_get_error(context)));
    return 0;
}

int csr_check_answer(const char *key_pem, const char *cert_pem, const char *ca_pem, struct err *err)
{
    ERR_clear_error();
    CLEANUP_KEY EVP_PKEY *key = NULL;
    if (cert_pem_to_key(key_pem, strlen(key_pem), &key, err) < 0)
        return err_wrap(err, "our own key");
    CLEANUP_X509 X509 *cert = NULL;
    struct identity identity;
    if (cert_pem_one_cert(cert_pem, strlen(cert_pem), &cert, err) < 0 ||
        cert_check_peer(cert, &identity, err) < 0) {
        if (err)
            err->code = ERR_PROTOCOL; /* it is the orchestrator's fault, not our caller's */
        return err_wrap(err, "the certificate that the orchestrator sent");
    }
    bool ours = X509_check_private_key(cert, key) == 1;
    ERR_clear_error();
    if (!ours)
        return err_set(err, ERR_PROTOCOL,
                       "the certificate that the orchestrator sent is for "
                       "another key; ask again");
    CLEANUP(store_cleanup) X509_STORE *store = X509_STORE_new();
    if (!store)
        return err_nomem(err);
    return load_bundle(ca_pem, store, err) < 0 ? -1 : verify(cert, store, err);
}
