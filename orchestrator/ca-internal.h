/* Between the files of the CA: orchestrator/ca.c (files and verbs), ca_request.c (what peers send),
 * ca_rotate.c (the state directory) and ca_x509.c (what is in a certificate); nobody else includes
 * this but the CA's tests. */
#pragma once

#include "common/cert.h"
#include "orchestrator/ca.h"

#include <stdbool.h>
#include <time.h>

#define CA_PEM_FILE_MAX         (64u * 1024)
#define CA_TIME_TEXT_SIZE       32
#define CA_FINGERPRINT_PREFIX   "sha256:"
#define CA_FINGERPRINT_TEXT_MAX 72 /* the prefix, 64 hexadecimal digits and a NUL */

struct ca {
    EVP_PKEY *key;
    X509 *cert;
    X509 *old; /* the CA before, during a rotation; else NULL */
    char *bundle;
    char fingerprint[CA_FINGERPRINT_TEXT_MAX];
    char trust_domain[TRUST_DOMAIN_MAX + 1];
};

struct ca_leaf {
    const char *common_name;  /* for people who read the certificate; no program may trust it */
    const char *usage;        /* the extended key usage: clientAuth or serverAuth */
    const char *uri;          /* a peer's identity, already checked; else NULL */
    const char *const *names; /* a server's DNS names and IP addresses, not yet checked */
    unsigned name_count;
    const X509 *names_from; /* instead of the three above: the server's certificate until now */
    uint64_t lifetime_s;
};

/* ca.c */
/* The key first: the certificate is what makes it a CA. */
int ca_write_root(const char *dir, EVP_PKEY *key, X509 *cert, struct err *err) must_use;
int ca_write_cert(const char *dir, const char *file, X509 *cert, struct err *err) must_use;
/* A peer's certificate for a key that may be public only. */
int ca_make_peer(struct ca *ca, EVP_PKEY *subject_key, enum identity_kind kind, const char *name,
                 uint64_t lifetime_s, X509 **ret, struct err *err) must_use;
/* The server's directory anew, with a new key and the names of the certificate until now. */
int ca_reissue_server(struct ca *ca, const char *dir, const X509 *until_now,
                      struct err *err) must_use;
char *ca_path_join(const char *dir, const char *file, struct err *err);

/* ca_x509.c: pure, no files, and the time is a parameter. */
int ca_x509_root(EVP_PKEY *key, const char *trust_domain, time_t now, X509 **ret,
                 struct err *err) must_use;
/* Never outlives its issuer. `subject_key` may be a public key only. */
int ca_x509_leaf(const struct ca_leaf *leaf, EVP_PKEY *subject_key, const X509 *issuer,
                 EVP_PKEY *issuer_key, time_t now, X509 **ret, struct err *err) must_use;
/* A CA certificate that is valid at `now`; the texts say what to do when not. */
int ca_x509_check_root(X509 *root, time_t now, struct err *err) must_use;
int ca_x509_trust_domain(const X509 *root, char ret_domain[TRUST_DOMAIN_MAX + 1],
                         struct err *err) must_use;
/* Seconds since 1970. */
int ca_x509_time(const ASN1_TIME *when, int64_t *ret_s, struct err *err) must_use;
void ca_x509_time_text(const ASN1_TIME *when, char ret[CA_TIME_TEXT_SIZE]);
/* Whatever the time. An issuer of NULL has signed nothing. */
bool ca_x509_signed_by(X509 *cert, const X509 *issuer);
