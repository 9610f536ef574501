/* Making and reading secrets that people carry. Used by orchestrator/ (which stores hashes) and by
 * nobody else: agents and clients pass the text on as it is. */
#include "common/secret.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#define RANDOM_BYTES 32u
#define HEX          "0123456789abcdef"

static const char *const kinds[SECRET_KIND_COUNT_] = {
    [SECRET_JOIN] = "ssjoin_",
    [SECRET_LOGIN] = "sslogin_",
};

static void to_hex(const uint8_t *bytes, size_t size, char *out)
{
    for (size_t i = 0; i < size; i++) {
        out[2 * i] = HEX[bytes[i] >> 4];
        out[2 * i + 1] = HEX[bytes[i] & 15];
    }
    out[2 * size] = '\0';
}

static void fill(const char *text, const char *id, struct secret *ret)
{
    size_t size = strlen(text);
    (void)memcpy(ret->text, text, size + 1);
    (void)memcpy(ret->id, id, SECRET_ID_LEN);
    ret->id[SECRET_ID_LEN] = '\0';
    (void)SHA256((const unsigned char *)text, size, ret->hash);
}

int secret_new(enum secret_kind kind, struct secret *ret, struct err *err)
{
    uint8_t id[SECRET_ID_LEN / 2], bytes[RANDOM_BYTES];
    char id_text[2 * sizeof(id) + 1], bytes_text[2 * sizeof(bytes) + 1], text[SECRET_TEXT_MAX];
    if (RAND_bytes(id, sizeof(id)) != 1 || RAND_priv_bytes(bytes, sizeof(bytes)) != 1)
        return err_set(err, ERR_INTERNAL, "this machine has no randomness to give");
    to_hex(id, sizeof(id), id_text);
    to_hex(bytes, sizeof(bytes), bytes_text);
    (void)snprintf(text, sizeof(text), "%s%s_%s", kinds[kind], id_text, bytes_text);
    fill(text, id_text, ret);
    OPENSSL_cleanse(bytes, sizeof(bytes));
    OPENSSL_cleanse(bytes_text, sizeof(bytes_text));
    OPENSSL_cleanse(text, sizeof(text));
    return 0;
}

int secret_parse(const char *text, enum secret_kind kind, struct secret *ret, struct err *err)
{
    size_t prefix = strlen(kinds[kind]);
    size_t size = prefix + SECRET_ID_LEN + 1 + (size_t)2 * RANDOM_BYTES;
    const char *id = text + prefix;
    if (strnlen(text, size + 1) != size || strncmp(text, kinds[kind], prefix) != 0 ||
        strspn(id, HEX) != SECRET_ID_LEN || id[SECRET_ID_LEN] != '_' ||
        strspn(id + SECRET_ID_LEN + 1, HEX) != (size_t)2 * RANDOM_BYTES)
        return err_set(err, ERR_UNAUTHENTICATED, "not a secret of this kind");
    fill(text, id, ret);
    return 0;
}

bool secret_hash_equal(const uint8_t a[SECRET_HASH_LEN], const uint8_t b[SECRET_HASH_LEN])
{
    return CRYPTO_memcmp(a, b, SECRET_HASH_LEN) == 0;
}

void secret_clear(struct secret *secret)
{
    OPENSSL_cleanse(secret, sizeof(*secret));
}
