/* The part of a state directory that belongs to the CA, as orchestrator/init.h lays it out, and
 * questions about it. */
#pragma once

#include "tests/unit/ca_fixture.h"

#define STATE "state"
#define ADMIN STATE "/clients/admin"

static inline void make_state(void)
{
    static const char *const names[] = { "orchestrator.example.com", "192.0.2.7", "::1" };
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = NULL;
    cr_assert(mkdir(STATE, 0700) == 0 && mkdir(STATE "/clients", 0700) == 0);
    OK(ca_create(STATE "/ca", TRUST_DOMAIN, &err));
    OK(ca_open(STATE "/ca", &ca, &err));
    OK(ca_issue_server(ca, STATE "/server", names, ELEMENTS(names), SERVER_LIFETIME_S, &err));
    OK(ca_issue_peer(ca, ADMIN, IDENTITY_CLIENT, "admin", SERVER_LIFETIME_S, &err));
}

static inline void remove_state(void)
{
    (void)nftw(STATE, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static inline struct ca *state_ca(void)
{
    struct err err = { 0 };
    struct ca *ca = NULL;
    OK(ca_open(STATE "/ca", &ca, &err));
    return ca;
}

static inline bool file_holds(const char *path, const char *text)
{
    CLEANUP_FREE char *data = NULL;
    size_t size = 0;
    return file_read(path, PEM_MAX, &data, &size, NULL) == 0 && strcmp(data, text) == 0;
}

static inline bool is_signed_by(const char *path, const X509 *issuer)
{
    CLEANUP_X509 X509 *cert = read_cert(path);
    return ca_x509_signed_by(cert, issuer);
}

static inline bool is_matching_pair(const char *dir)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/cert.pem", dir);
    CLEANUP_X509 X509 *cert = read_cert(path);
    (void)snprintf(path, sizeof(path), "%s/key.pem", dir);
    CLEANUP_KEY EVP_PKEY *key = read_key(path);
    return X509_check_private_key(cert, key) == 1;
}

/* "sha256:..." of the certificate in a file, by other means than the CA's. */
static inline void fingerprint_of(X509 *cert, char ret[CA_FINGERPRINT_TEXT_MAX])
{
    unsigned char *der = NULL, hash[EVP_MAX_MD_SIZE];
    int size = i2d_X509(cert, &der);
    cr_assert(size > 0 && EVP_Digest(der, (size_t)size, hash, NULL, EVP_sha256(), NULL) == 1);
    OPENSSL_free(der);
    (void)strcpy(ret, "sha256:");
    for (int i = 0; i < 32; i++)
        (void)sprintf(ret + 7 + 2 * i, "%02x", hash[i]);
}

/* A server certificate of this CA that was issued at `now`, put into the state. */
static inline void put_server(struct ca *ca, time_t now, uint64_t lifetime_s)
{
    static const char *const names[] = { "localhost" };
    const struct ca_leaf leaf = { .common_name = "Sandstorm orchestrator",
                                  .usage = "serverAuth",
                                  .names = names,
                                  .name_count = 1,
                                  .lifetime_s = lifetime_s };
    struct err err = { 0 };
    CLEANUP_KEY EVP_PKEY *key = NULL;
    CLEANUP_X509 X509 *cert = NULL;
    BIO *pem = NULL;
    OK(cert_key_new(&key, &err));
    OK(ca_x509_leaf(&leaf, key, ca->cert, ca->key, now, &cert, &err));
    OK(cert_pem_from_cert(cert, &pem, &err));
    put_bio(STATE "/server/cert.pem", pem);
    OK(cert_pem_from_key(key, &pem, &err));
    put_bio(STATE "/server/key.pem", pem);
}
