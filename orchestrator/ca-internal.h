/* Between orchestrator/ca.c (files and verbs) and orchestrator/ca_x509.c (keys and certificates);
 * nobody else includes this but the CA's tests. Pure: no files, and the time is a parameter. */
#pragma once

#include "orchestrator/ca.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <time.h>

struct ca_leaf {
    const char *common_name;  /* for people who read the certificate; no program may trust it */
    const char *usage;        /* the extended key usage: clientAuth or serverAuth */
    const char *uri;          /* a peer's identity, already checked; else NULL */
    const char *const *names; /* a server's DNS names and IP addresses, not yet checked */
    unsigned name_count;
    uint64_t lifetime_s;
};

/* Empties OpenSSL's error queue into one error: "<what>: <OpenSSL's first complaint>". */
int ca_openssl_err(struct err *err, const char *what);

int ca_key_new(EVP_PKEY **ret, struct err *err) must_use;
int ca_x509_root(EVP_PKEY *key, const char *trust_domain, time_t now, X509 **ret,
                 struct err *err) must_use;
/* Never outlives its issuer. `subject_key` may be a public key only. */
int ca_x509_leaf(const struct ca_leaf *leaf, EVP_PKEY *subject_key, const X509 *issuer,
                 EVP_PKEY *issuer_key, time_t now, X509 **ret, struct err *err) must_use;

/* A CA certificate that is valid at `now`; the texts say what to do when not. */
int ca_x509_check_root(X509 *root, time_t now, struct err *err) must_use;
int ca_x509_trust_domain(const X509 *root, char ret_domain[TRUST_DOMAIN_MAX + 1],
                         struct err *err) must_use;

/* PEM in memory. A key's BIO wipes its memory when it is freed. */
int ca_pem_from_key(EVP_PKEY *key, BIO **ret, struct err *err) must_use;
int ca_pem_from_cert(X509 *cert, BIO **ret, struct err *err) must_use;
int ca_pem_to_key(const char *pem, size_t size, EVP_PKEY **ret, struct err *err) must_use;
int ca_pem_to_cert(const char *pem, size_t size, X509 **ret, struct err *err) must_use;

static inline void ca_key_cleanup(EVP_PKEY **key)
{
    EVP_PKEY_free(*key);
}
#define CLEANUP_KEY CLEANUP(ca_key_cleanup)

static inline void ca_x509_cleanup(X509 **cert)
{
    X509_free(*cert);
}
#define CLEANUP_X509 CLEANUP(ca_x509_cleanup)

static inline void ca_bio_cleanup(BIO **bio)
{
    (void)BIO_free(*bio);
}
#define CLEANUP_BIO CLEANUP(ca_bio_cleanup)
