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

int store_sandbox_note(struct store_tx *tx, const char *id, const struct sandbox_note *note,
                       struct err *err)
{
    return tx->backend->sandbox_note(tx, id, note, err);
}

int store_sandbox_drain(struct store_tx *tx, const char *id, bool draining, struct err *err)
{
    return tx->backend->sandbox_drain(tx, id, draining, err);
}

int store_sandbox_label(struct store_tx *tx, const char *id, const char *labels, struct err *err)
{
    return tx->backend->sandbox_label(tx, id, labels, err);
}

int store_sandbox_remove(struct store_tx *tx, const char *id, struct err *err)
{
    return tx->backend->sandbox_remove(tx, id, err);
}

int store_command_put(struct store_tx *tx, const struct command_record *command, struct err *err)
{
    return tx->backend->command_put(tx, command, err);
}

int store_command_get(struct store_tx *tx, const char *id, struct command_record *ret,
                      struct err *err)
{
    return tx->backend->command_get(tx, id, ret, err);
}

int store_command_start(struct store_tx *tx, const char *id, int64_t started_ms, int64_t pid,
                        struct err *err)
{
    return tx->backend->command_start(tx, id, started_ms, pid, err);
}

int store_command_end(struct store_tx *tx, const struct command_record *command, struct err *err)
{
    return tx->backend->command_end(tx, command, err);
}

int store_command_list(struct store_tx *tx, const struct command_filter *filter,
                       struct command_record *ret, unsigned max, unsigned *ret_count,
                       struct err *err)
{
    return tx->backend->command_list(tx, filter, ret, max, ret_count, err);
}

int store_command_each_open(struct store_tx *tx,
                            int (*each)(void *userdata, const struct command_record *command,
                                        struct err *err),
                            void *userdata, struct err *err)
{
    return tx->backend->command_each_open(tx, each, userdata, err);
}

int store_command_prune(struct store_tx *tx, unsigned kept, int64_t before_ms, struct err *err)
{
    return tx->backend->command_prune(tx, kept, before_ms, err);
}

int store_log_put(struct store_tx *tx, const struct log_record *record, struct err *err)
{
    return tx->backend->log_put(tx, record, err);
}

int store_log_list(struct store_tx *tx, const struct log_query *query, struct log_record *ret,
                   unsigned max, unsigned *ret_count, struct err *err)
{
    return tx->backend->log_list(tx, query, ret, max, ret_count, err);
}

int store_log_trim(struct store_tx *tx, const char *sandbox_id, unsigned keep, struct err *err)
{
    return tx->backend->log_trim(tx, sandbox_id, keep, err);
}

int store_log_expire(struct store_tx *tx, int64_t before_us, unsigned max, unsigned *ret_forgotten,
                     struct err *err)
{
    return tx->backend->log_expire(tx, before_us, max, ret_forgotten, err);
}
