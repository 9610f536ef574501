/* One who speaks with the fixture's HTTPS front without an agent: tokens as text, keys of one's
 * own, and requests of any form. A step that fails for another reason than the orchestrator's
 * answer ends the case. Criterion; one thread, unless said otherwise. */
#pragma once

#include "common/csr.h"
#include "common/front_client.h"
#include "common/http_client.h"
#include "tests/harness/fixture.h"

/* A new join token with these options of `token create`: its text, for free(). */
#define JOIN_TOKEN(...) joiner_token((const char *[]){ __VA_ARGS__, NULL })
char *joiner_token(const char *const *options);
/* The id in a token or login key. */
void joiner_secret_id(const char *secret, char ret[16]);
/* What is in a file of that name in the case's directory, without its newline. */
char *joiner_read(const char *name);

/* HOST:PORT of the front, and the CA that signs for it, as they are at the first call. */
const char *joiner_endpoint(void);
const char *joiner_ca(void);

/* Asks for a certificate for this key. Any thread, once both of the above were
 * called. */
int joiner_join(const char *token, const char *key_pem, const char *sandbox_id,
                struct front_certificate *ret, struct err *err) must_use;
/* The same with a key that nobody keeps. */
struct err joiner_try(const char *token, const char *sandbox_id);

/* One request; `body` NULL makes it a GET. For http_answer_done(). */
struct http_answer joiner_ask(const char *path, const char *body);

/* The second in which the certificate in this directory ends; key, certificate and CA in it must
 * belong together. */
int64_t joiner_certificate_end(const char *identity_dir);
/* `sandstorm-agent status` in that sandbox. */
struct proc_result joiner_status(const struct sandbox_processes *sandbox);
