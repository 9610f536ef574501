/* What those who have no valid certificate ask an orchestrator's front (orchestrator/http_*), as
 * functions: the JSON and its errors are here. Blocking, with a deadline. Any thread. */
#pragma once

#include "common/err.h"
#include "common/identity.h"

#include <stdint.h>

#define FRONT_TIMEOUT_MS      15000
#define FRONT_FINGERPRINT_LEN 71u /* "sha256:" and 64 hexadecimal digits */

struct front_certificate {
    char name[SANDBOX_ID_MAX + 1]; /* the sandbox or client that the orchestrator chose */
    char *certificate, *ca;        /* PEM */
    int64_t not_after_ms, server_ms;
};
void front_certificate_done(struct front_certificate *certificate);
#define CLEANUP_FRONT_CERTIFICATE CLEANUP(front_certificate_done)

/* "sha256:..." of the first certificate in a PEM text, over its DER form. */
int front_fingerprint(const char *ca_pem, char ret[FRONT_FINGERPRINT_LEN + 1],
                      struct err *err) must_use;
/* Lower-cases and checks what a person typed. */
int front_fingerprint_parse(const char *text, char ret[FRONT_FINGERPRINT_LEN + 1],
                            struct err *err) must_use;
/* GET /v1/ca over a connection to anybody; the answer is believed only as far as the fingerprint
 * goes: *ret_ca_pem is exactly the one certificate that has it. ERR_UNAUTHENTICATED when none has;
 * the text shows both fingerprints. */
int front_fetch_ca(const char *endpoint, const char *fingerprint, int timeout_ms, char **ret_ca_pem,
                   struct err *err) must_use;
/* The server's clock according to whoever answers there: to explain, not to trust. */
int front_server_time(const char *endpoint, int timeout_ms, int64_t *ret_server_ms,
                      struct err *err) must_use;

/* An error answer becomes an error with the code and the words of the orchestrator; ERR_UNAVAILABLE
 * and ERR_EXHAUSTED are worth another try. */
struct front_enrolment {
    const char *token, *csr;
    const char *sandbox_id; /* wished for; "" leaves it to the token */
    const char *vm_id, *hostname;
};
int front_enroll(const char *endpoint, const char *ca_pem, const struct front_enrolment *enrolment,
                 int timeout_ms, struct front_certificate *ret, struct err *err) must_use;
int front_login(const char *endpoint, const char *ca_pem, const char *key, const char *csr,
                int timeout_ms, struct front_certificate *ret, struct err *err) must_use;
/* For a certificate that has expired not too long ago; the request is signed by the same key. */
int front_renew(const char *endpoint, const char *ca_pem, const char *certificate, const char *csr,
                int timeout_ms, struct front_certificate *ret, struct err *err) must_use;
