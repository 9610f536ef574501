/* Keys and certificates as both ends of an enrolment see them: PEM in and out of memory, and what
 * may be read from a certificate of a peer. Only files that speak OpenSSL include this. No files,
 * no time. Any thread. */
#pragma once

#include "common/err.h"
#include "common/identity.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

/* Empties OpenSSL's error queue into one error: "<what>: <OpenSSL's first complaint>". */
int cert_openssl_err(struct err *err, enum err_code code, const char *what);

/* P-256. */
int cert_key_new(EVP_PKEY **ret, struct err *err) must_use;
/* A key's BIO wipes its memory when it is freed. */
int cert_pem_from_key(EVP_PKEY *key, BIO **ret, struct err *err) must_use;
int cert_pem_to_key(const char *pem, size_t size, EVP_PKEY **ret, struct err *err) must_use;
int cert_pem_from_cert(X509 *cert, BIO **ret, struct err *err) must_use;
/* The first certificate in the text, for files that an operator may have edited. */
int cert_pem_to_cert(const char *pem, size_t size, X509 **ret, struct err *err) must_use;
/* What a memory BIO holds, as a new string. */
int cert_bio_text(BIO *bio, char **ret, struct err *err) must_use;

/* For texts of peers: exactly one PEM block, of this label, with nothing around it but white space.
 * ERR_INVALID says what is wrong. */
int cert_pem_block(const char *pem, size_t size, const char *label, unsigned char **ret_der,
                   long *ret_size, struct err *err) must_use;
int cert_pem_one_cert(const char *pem, size_t size, X509 **ret, struct err *err) must_use;

/* The only URI among the names. */
int cert_uri(const X509 *cert, char ret_uri[SPIFFE_URI_MAX], struct err *err) must_use;
/* A leaf for TLS clients, and nothing else, that names exactly one identity. Who signed it is the
 * caller's to check. */
int cert_check_peer(X509 *cert, struct identity *ret, struct err *err) must_use;

static inline void cert_key_cleanup(EVP_PKEY **key)
{
    EVP_PKEY_free(*key);
}
#define CLEANUP_KEY CLEANUP(cert_key_cleanup)

static inline void cert_cleanup(X509 **cert)
{
    X509_free(*cert);
}
#define CLEANUP_X509 CLEANUP(cert_cleanup)

static inline void cert_bio_cleanup(BIO **bio)
{
    (void)BIO_free(*bio);
}
#define CLEANUP_BIO CLEANUP(cert_bio_cleanup)
