/* Getting and keeping the agent's identity, as far as it needs the orchestrator's HTTPS front: the
 * first certificate for a join token, a new one for a certificate that has expired, and telling a
 * clone. The key is made here and never leaves. Blocking: main thread before the loop runs, or the
 * link's worker. */
#pragma once

#include "common/err.h"
#include "common/identity.h"

#include <stdbool.h>
#include <stdint.h>

struct enroll_config {
    const char *endpoint;       /* of the front, HOST:PORT */
    const char *identity_dir;   /* where the identity goes */
    const char *token_file;     /* NULL or a file with the token; emptied and removed after use */
    const char *ca_file;        /* NULL, or the CA to trust */
    const char *ca_fingerprint; /* NULL, or its fingerprint; one of the two is needed */
    const char *sandbox_id;     /* NULL or wished for */
    const char *vm_id;          /* NULL or the cloud's name */
    const char *root;           /* "" or, in tests, where machine.h looks */
    int timeout_ms;
};

/* Joins. A key that an earlier attempt has made is used again, so that a crash at any point costs
 * nothing: the orchestrator answers the same key once more. Replaces an identity that is there. */
int enroll_run(const struct enroll_config *config, struct err *err) must_use;

enum enroll_state {
    ENROLL_READY,  /* an identity of this machine is there, expired or not */
    ENROLL_NEEDED, /* none is there */
    ENROLL_CLONE,  /* one is there, but was made on another machine */
};
/* Says which, and why in words. */
int enroll_look(const struct enroll_config *config, enum enroll_state *ret, char *words,
                size_t words_size, struct err *err) must_use;

/* Finishes what a crash after the identity was in place has left undone: the used token and the
 * pending key go. Call it when enroll_look() says ENROLL_READY; does nothing when all is well. */
void enroll_tidy(const struct enroll_config *config);

/* A new certificate for the same key, where the old one has expired. ERR_DENIED and
 * ERR_UNAUTHENTICATED are final: revoked, or beyond the window; the text says what to do. */
int enroll_renew_expired(const struct enroll_config *config, struct err *err) must_use;
/* Puts a renewed certificate and bundle in place, after a last look at both; the key and
 * machine.json stay. */
int enroll_install(const char *identity_dir, const char *certificate, const char *ca,
                   struct err *err) must_use;

/* Wipes what must not be in an image: the identity, what an attempt has left, the token file. Says
 * on stdout what it did. */
int enroll_prepare_image(const struct enroll_config *config, const char *status_file,
                         struct err *err) must_use;
