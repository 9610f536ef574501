/* The certificate authority: P-256 keys, a self-signed CA, and leaf certificates whose identity is
 * one SPIFFE URI. Keys are born on disk with mode 0600. Blocking; not for the loop thread. */
#pragma once

#include "common/err.h"
#include "common/identity.h"

#include <stdint.h>

#define CA_LIFETIME_S     (10ull * 365 * 86400)
#define LEAF_LIFETIME_S   86400ull
#define SERVER_LIFETIME_S (365ull * 86400)
#define CA_DNS_NAMES_MAX  32
#define CA_KEY_LEN        32           /* SHA-256 of a public key's DER form */
#define CA_PEM_MAX        (16u * 1024) /* a request or a certificate that a peer sends */

struct ca;

/* Makes a new CA in `dir` (ca.pem, ca-key.pem). ERR_EXISTS when there is one. */
int ca_create(const char *dir, const char *trust_domain, struct err *err) must_use;
int ca_open(const char *dir, struct ca **ret, struct err *err) must_use;
void ca_free(struct ca *ca);
const char *ca_trust_domain(const struct ca *ca);

/* Writes ca.pem, cert.pem and key.pem into `dir`, which is made with mode 0700 if it is not there.
 * The pair is replaced atomically: a reader sees the old or the new one. `names` are DNS names or
 * IP addresses for the server certificate. */
/* A DNS name or an IP address that a server's certificate can be for. */
int ca_server_name_check(const char *name, struct err *err) must_use;
int ca_issue_server(struct ca *ca, const char *dir, const char *const *names, unsigned count,
                    uint64_t lifetime_s, struct err *err) must_use;
int ca_issue_peer(struct ca *ca, const char *dir, enum identity_kind kind, const char *name,
                  uint64_t lifetime_s, struct err *err) must_use;

/* A signing request that has passed: signed by its own key, which is P-256. Names and extensions in
 * it are not even looked at. Everything else is ERR_INVALID. */
struct ca_request;
int ca_request_parse(const char *pem, size_t size, struct ca_request **ret,
                     struct err *err) must_use;
void ca_request_free(struct ca_request *request);
/* SHA-256 of the public key (SubjectPublicKeyInfo in DER). */
const uint8_t *ca_request_key(const struct ca_request *request);

/* In memory: a certificate for this key with this identity and nothing else. */
int ca_sign_peer(struct ca *ca, const struct ca_request *request, enum identity_kind kind,
                 const char *name, uint64_t lifetime_s, char **ret_pem, int64_t *ret_not_after_s,
                 struct err *err) must_use;
/* Is this a certificate of ours, old CA included, whatever the time? Who is in it, its key and its
 * end. For the renewal of one that has expired. ERR_UNAUTHENTICATED when somebody else signed it.
 */
int ca_inspect_peer(struct ca *ca, const char *pem, size_t size, struct identity *ret,
                    uint8_t ret_key[CA_KEY_LEN], int64_t *ret_not_after_s,
                    struct err *err) must_use;
/* PEM of every CA that peers shall trust: the one that signs, and during a rotation the one before.
 */
const char *ca_bundle(const struct ca *ca);
/* "sha256:..." of the CA that the server's certificate is signed by: what agents pin. */
const char *ca_fingerprint(const struct ca *ca);

/* Rotation in two steps, each atomic and repeatable. The first makes a new CA, which signs peers
 * from then on, and puts both into the bundle; the server's certificate stays as it is, because
 * peers that have not renewed yet know only the old CA. The second, when everybody has renewed,
 * issues the server's certificate from the new CA and lets the old one go. `state_dir` is the one
 * of orchestrator/init.h; no orchestrator may run on it. */
int ca_rotate_begin(const char *state_dir, struct err *err) must_use;
/* ERR_PRECONDITION while the overlap has lasted less than `min_overlap_s`; the text says until
 * when.
 */
int ca_rotate_finish(const char *state_dir, uint64_t min_overlap_s, struct err *err) must_use;
/* Brings the rest of `state_dir` in line with its CA, which also mends what a rotation that was
 * killed left undone: the bundle in server/ and clients/, and a new server certificate with the
 * same names when the one until now has less than a third of its life left or is of a CA that is
 * gone. A server certificate that somebody else's CA issued stays. Nothing to do where there is no
 * CA. The orchestrator calls this when it starts. */
int ca_refresh_server(const char *state_dir, struct err *err) must_use;

static inline void ca_cleanup(struct ca **ca)
{
    ca_free(*ca);
}
#define CLEANUP_CA CLEANUP(ca_cleanup)

static inline void ca_request_cleanup(struct ca_request **request)
{
    ca_request_free(*request);
}
#define CLEANUP_CA_REQUEST CLEANUP(ca_request_cleanup)
