/* The hash that ties an audit row to the one before it: SHA-256 over the previous hash and one
 * unambiguous encoding of the row. A row that is changed, removed or moved breaks every hash after
 * it. The orchestrator writes with this and the command line client verifies with it. The first row
 * follows 32 zero bytes. Pure; any thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define AUDIT_CHAIN_HASH_LEN 32u

struct audit_chain_row {
    uint64_t seq;
    int64_t time_ms;
    bool allowed;
    const char *actor, *action, *target, *detail;
};

/* `ret` may be `previous`. Aborts only where the library has no SHA-256 or no memory at all. */
void audit_chain_hash(const uint8_t previous[AUDIT_CHAIN_HASH_LEN],
                      const struct audit_chain_row *row, uint8_t ret[AUDIT_CHAIN_HASH_LEN]);
