/* The side that asks for a certificate: a P-256 key that never leaves this machine, and a signing
 * request for it. The request carries no name: the orchestrator chooses what goes into the
 * certificate. Texts are PEM, NUL-terminated; a key's text is wiped by csr_key_free(). Any thread.
 */
#pragma once

#include "common/err.h"

#include <stdint.h>

int csr_key_new(char **ret_key_pem, struct err *err) must_use;
void csr_key_free(char *key_pem);
int csr_new(const char *key_pem, char **ret_csr_pem, struct err *err) must_use;
/* Does this certificate belong to this key, is it signed by a CA of this bundle, and is it what it
 * should be? The last look before it replaces the one we have. Does not look at the time: clocks
 * may be wrong. */
int csr_check_answer(const char *key_pem, const char *cert_pem, const char *ca_pem,
                     struct err *err) must_use;

static inline void csr_key_cleanup(char **key_pem)
{
    csr_key_free(*key_pem);
}
#define CLEANUP_KEY_PEM CLEANUP(csr_key_cleanup)
