/* The verbs of store.h, each handed to the backend of its transaction. Jobs call them. Next: the
 * file of that verb in the backend, as orchestrator/store_sqlite_tokens.c. */
#include "orchestrator/store-internal.h"

int store_audit_read(struct store_tx *tx, uint64_t after, struct audit_row *rows, unsigned max,
                     unsigned *ret_count, struct err *err)
{
    return tx->backend->audit_read(tx, after, rows, max, ret_count, err);
}

int store_audit_head(struct store_tx *tx, uint64_t *ret_seq, uint8_t ret_hash[32], struct err *err)
{
    return tx->backend->audit_head(tx, ret_seq, ret_hash, err);
}

int store_audit_hash(struct store_tx *tx, uint64_t seq, uint8_t ret_hash[32], struct err *err)
{
    return tx->backend->audit_hash(tx, seq, ret_hash, err);
}

int store_token_put(struct store_tx *tx, const struct token_record *token, struct err *err)
{
    return tx->backend->token_put(tx, token, err);
}

int store_token_get(struct store_tx *tx, const char *id, struct token_record *ret, struct err *err)
{
    return tx->backend->token_get(tx, id, ret, err);
}

int store_token_list(struct store_tx *tx, const char *after, struct token_record *ret, unsigned max,
                     unsigned *ret_count, struct err *err)
{
    return tx->backend->token_list(tx, after, ret, max, ret_count, err);
}

int store_token_revoke(struct store_tx *tx, const char *id, int64_t now_ms, struct err *err)
{
    return tx->backend->token_revoke(tx, id, now_ms, err);
}

int store_token_use(struct store_tx *tx, const char *id, const uint8_t key[STORE_KEY_LEN],
                    const char *sandbox_id, int64_t now_ms, struct err *err)
{
    return tx->backend->token_use(tx, id, key, sandbox_id, now_ms, err);
}

int store_token_used_by(struct store_tx *tx, const char *id, const uint8_t key[STORE_KEY_LEN],
                        char ret_sandbox[SANDBOX_ID_MAX + 1], int64_t *ret_when_ms, struct err *err)
{
    return tx->backend->token_used_by(tx, id, key, ret_sandbox, ret_when_ms, err);
}

int store_token_prune(struct store_tx *tx, int64_t before_ms, struct err *err)
{
    return tx->backend->token_prune(tx, before_ms, err);
}

int store_sandbox_put(struct store_tx *tx, const struct sandbox_record *sandbox, struct err *err)
{
    return tx->backend->sandbox_put(tx, sandbox, err);
}

int store_sandbox_get(struct store_tx *tx, const char *id, struct sandbox_record *ret,
                      struct err *err)
{
    return tx->backend->sandbox_get(tx, id, ret, err);
}

int store_sandbox_revoke(struct store_tx *tx, const char *id, int64_t now_ms, struct err *err)
{
    return tx->backend->sandbox_revoke(tx, id, now_ms, err);
}

int store_sandbox_count(struct store_tx *tx, unsigned *ret, struct err *err)
{
    return tx->backend->sandbox_count(tx, ret, err);
}

int store_sandbox_each(struct store_tx *tx,
                       int (*each)(void *userdata, const struct sandbox_record *sandbox,
                                   struct err *err),
                       void *userdata, struct err *err)
{
    return tx->backend->sandbox_each(tx, each, userdata, err);
}

int store_event_put(struct store_tx *tx, const char *sandbox_id, const struct event_record *event,
                    struct err *err)
{
    return tx->backend->event_put(tx, sandbox_id, event, err);
}

int store_event_list(struct store_tx *tx, const char *sandbox_id, struct event_record *ret,
                     unsigned max, unsigned *ret_count, struct err *err)
{
    return tx->backend->event_list(tx, sandbox_id, ret, max, ret_count, err);
}

int store_client_put(struct store_tx *tx, const struct client_record *client, struct err *err)
{
    return tx->backend->client_put(tx, client, err);
}

int store_client_get(struct store_tx *tx, const char *name, struct client_record *ret,
                     struct err *err)
{
    return tx->backend->client_get(tx, name, ret, err);
}

int store_client_by_login(struct store_tx *tx, const char *login_id, struct client_record *ret,
                          struct err *err)
{
    return tx->backend->client_by_login(tx, login_id, ret, err);
}

int store_client_list(struct store_tx *tx, const char *after, struct client_record *ret,
                      unsigned max, unsigned *ret_count, struct err *err)
{
    return tx->backend->client_list(tx, after, ret, max, ret_count, err);
}
