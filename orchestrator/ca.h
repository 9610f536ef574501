/* The certificate authority: P-256 keys, a self-signed CA, and leaf certificates whose identity is
 * one SPIFFE URI. Keys are born on disk with mode 0600. Blocking; not for the loop thread. */
#pragma once

#include "common/err.h"
#include "common/identity.h"

#include <stdint.h>

#define CA_LIFETIME_S     (10ull * 365 * 86400)
#define LEAF_LIFETIME_S   86400ull
#define SERVER_LIFETIME_S (365ull * 86400)
/* Certificates start to be valid this long ago, so that a peer whose clock is behind can join. */
#define BACKDATE_S       300ull
#define CA_DNS_NAMES_MAX 32

struct ca;

/* Makes a new CA in `dir` (ca.pem, ca-key.pem). ERR_EXISTS when there is one. */
int ca_create(const char *dir, const char *trust_domain, struct err *err) must_use;
int ca_open(const char *dir, struct ca **ret, struct err *err) must_use;
void ca_free(struct ca *ca);
const char *ca_trust_domain(const struct ca *ca);

/* Writes ca.pem, cert.pem and key.pem into `dir`, which is made with mode 0700 if it is not there.
 * The pair is replaced atomically: a reader sees the old or the new one. `names` are DNS names or
 * IP addresses for the server certificate. */
int ca_issue_server(struct ca *ca, const char *dir, const char *const *names, unsigned count,
                    uint64_t lifetime_s, struct err *err) must_use;
int ca_issue_peer(struct ca *ca, const char *dir, enum identity_kind kind, const char *name,
                  uint64_t lifetime_s, struct err *err) must_use;

static inline void ca_cleanup(struct ca **ca)
{
    ca_free(*ca);
}
#define CLEANUP_CA CLEANUP(ca_cleanup)
