/* Owns the form of the audit, whatever it is kept in: rows of bounded, well-formed text, each with
 * the hash of the one before in it. Jobs of every request hand it entries. Next:
 * common/audit_chain.c for the hash, and the backend for the row. */
#include "orchestrator/store-internal.h"

#include "common/audit_chain.h"
#include "common/clock.h"
#include "common/utf8.h"

#include <assert.h>
#include <string.h>

static_assert(sizeof(((struct audit_row *)NULL)->hash) == AUDIT_CHAIN_HASH_LEN,
              "a row holds its hash");

/* Cuts between characters and keeps to UTF-8, because rows travel in strings that must be. */
static void copy_text(char *ret, size_t size, const char *text)
{
    size_t left = strlen(text), used = 0;
    while (left > 0) {
        size_t length = utf8_character((const uint8_t *)text, left);
        size_t step = MAX(length, (size_t)1);
        if (used + step >= size)
            break;
        if (length == 0)
            ret[used] = '?';
        else
            (void)memcpy(ret + used, text, length);
        used += step;
        text += step;
        left -= step;
    }
    ret[used] = '\0';
}

static void hash_row(const uint8_t *previous, struct audit_row *row)
{
    const struct audit_chain_row chained = {
        .seq = row->seq,
        .time_ms = row->time_ms,
        .allowed = row->allowed,
        .actor = row->actor,
        .action = row->action,
        .target = row->target,
        .detail = row->detail,
    };
    audit_chain_hash(previous, &chained, row->hash);
}

int store_audit_append(struct store_tx *tx, const struct audit_entry *entry, struct err *err)
{
    uint64_t head = 0;
    uint8_t previous[AUDIT_CHAIN_HASH_LEN];
    if (store_audit_head(tx, &head, previous, err) < 0)
        return -1;
    struct audit_row row;
    row.seq = head + 1;
    row.time_ms = wall_ms();
    row.allowed = entry->allowed;
    copy_text(row.actor, sizeof(row.actor), entry->actor);
    copy_text(row.action, sizeof(row.action), entry->action);
    copy_text(row.target, sizeof(row.target), entry->target);
    copy_text(row.detail, sizeof(row.detail), entry->detail);
    hash_row(previous, &row);
    (void)memcpy(tx->action, row.action, sizeof(tx->action));
    return tx->backend->audit_insert(tx, &row, err);
}
