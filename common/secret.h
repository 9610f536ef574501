/* Secrets that a person carries from one place to another once: a join token, a login key. The kind
 * is part of the text, so that one can never pass for the other:
 *
 *     ssjoin_<12 hex: id>_<64 hex: 256 random bits>
 *     sslogin_<12 hex>_<64 hex>
 *
 * The id is not secret and names it in lists, logs and the audit. Only the hash is stored. Any
 * thread. */
#pragma once

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

#define SECRET_ID_LEN   12u
#define SECRET_HASH_LEN 32u
#define SECRET_TEXT_MAX 96u

enum secret_kind { SECRET_JOIN, SECRET_LOGIN, SECRET_KIND_COUNT_ };

struct secret {
    char text[SECRET_TEXT_MAX]; /* wipe it with secret_clear() */
    char id[SECRET_ID_LEN + 1];
    uint8_t hash[SECRET_HASH_LEN];
};

int secret_new(enum secret_kind kind, struct secret *ret, struct err *err) must_use;
/* ERR_UNAUTHENTICATED, without saying more, for whatever is not exactly of that kind and form. */
int secret_parse(const char *text, enum secret_kind kind, struct secret *ret,
                 struct err *err) must_use;
/* In constant time. */
bool secret_hash_equal(const uint8_t a[SECRET_HASH_LEN], const uint8_t b[SECRET_HASH_LEN]);
void secret_clear(struct secret *secret);
#define CLEANUP_SECRET CLEANUP(secret_clear)
