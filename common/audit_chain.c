/* Owns the encoding of an audit row for its hash: previous hash, seq and time as 8 bytes, allowed
 * as one, then actor, action, target and detail, each with 4 bytes of length in front; numbers are
 * big endian. The lengths are what makes it unambiguous: no two rows encode alike. The
 * orchestrator's orchestrator/store_audit.c and the client's verification hand it rows. Calls
 * nobody but OpenSSL.
 */
#include "common/audit_chain.h"

#include "common/macros.h"

#include <endian.h>
#include <openssl/evp.h>
#include <string.h>

static bool hash_text(EVP_MD_CTX *context, const char *text)
{
    size_t size = strlen(text);
    uint32_t length = htobe32((uint32_t)size);
    return EVP_DigestUpdate(context, &length, sizeof(length)) == 1 &&
           EVP_DigestUpdate(context, text, size) == 1;
}

static bool hash_row(EVP_MD_CTX *context, const uint8_t *previous,
                     const struct audit_chain_row *row)
{
    const uint64_t numbers[] = { htobe64(row->seq), htobe64((uint64_t)row->time_ms) };
    const uint8_t allowed = row->allowed ? 1 : 0;
    return EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1 &&
           EVP_DigestUpdate(context, previous, AUDIT_CHAIN_HASH_LEN) == 1 &&
           EVP_DigestUpdate(context, numbers, sizeof(numbers)) == 1 &&
           EVP_DigestUpdate(context, &allowed, sizeof(allowed)) == 1 &&
           hash_text(context, row->actor) && hash_text(context, row->action) &&
           hash_text(context, row->target) && hash_text(context, row->detail);
}

void audit_chain_hash(const uint8_t previous[AUDIT_CHAIN_HASH_LEN],
                      const struct audit_chain_row *row, uint8_t ret[AUDIT_CHAIN_HASH_LEN])
{
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    /* A wrong hash would look like tampering for ever after, so there is no going on without. */
    if (!context || !hash_row(context, previous, row) ||
        EVP_DigestFinal_ex(context, ret, NULL) != 1)
        abort();
    EVP_MD_CTX_free(context);
}
