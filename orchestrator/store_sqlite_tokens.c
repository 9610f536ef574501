/* Owns the join tokens and which key used which. Jobs of the admin service and of enrolment call
 * it; what a token allows is decided there, except that a count never passes its maximum. Next:
 * orchestrator/store_sqlite_sql.c. */
#include "orchestrator/store_sqlite.h"

#define COLUMNS                                                                                    \
    "id, hash, sandbox_id, prefix, labels, uses_max, uses, created_ms, expires_ms, revoked_ms,"    \
    " created_by"

static int not_found(const char *id, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "there is no token %s; list those that there are", id);
}

int store_sqlite_token_put(struct store_tx *tx, const struct token_record *token, struct err *err)
{
    static const char what[] = "cannot add the token";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx,
                          "INSERT INTO tokens(" COLUMNS
                          ") VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                          what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, token->id);
    store_bind_blob(statement, 2, token->hash, sizeof(token->hash));
    store_bind_text(statement, 3, token->sandbox_id);
    store_bind_text(statement, 4, token->prefix);
    store_bind_text(statement, 5, token->labels);
    store_bind_int(statement, 6, token->uses_max);
    store_bind_int(statement, 7, token->uses);
    store_bind_int(statement, 8, token->created_ms);
    store_bind_int(statement, 9, token->expires_ms);
    store_bind_int(statement, 10, token->revoked_ms);
    store_bind_text(statement, 11, token->created_by);
    return store_sql_run(tx, statement, what, err);
}

static bool read_token(sqlite3_stmt *statement, struct token_record *ret)
{
    ret->created_ms = sqlite3_column_int64(statement, 7);
    ret->expires_ms = sqlite3_column_int64(statement, 8);
    ret->revoked_ms = sqlite3_column_int64(statement, 9);
    return store_column_text(statement, 0, ret->id, sizeof(ret->id)) &&
           store_column_blob(statement, 1, ret->hash, sizeof(ret->hash)) &&
           store_column_text(statement, 2, ret->sandbox_id, sizeof(ret->sandbox_id)) &&
           store_column_text(statement, 3, ret->prefix, sizeof(ret->prefix)) &&
           store_column_text(statement, 4, ret->labels, sizeof(ret->labels)) &&
           store_column_u32(statement, 5, &ret->uses_max) &&
           store_column_u32(statement, 6, &ret->uses) &&
           store_column_text(statement, 10, ret->created_by, sizeof(ret->created_by));
}

int store_sqlite_token_get(struct store_tx *tx, const char *id, struct token_record *ret,
                           struct err *err)
{
    static const char what[] = "cannot read the token";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx, "SELECT " COLUMNS " FROM tokens WHERE id = ?1", what, &statement,
                          err) < 0)
        return -1;
    store_bind_text(statement, 1, id);
    bool row = false;
    if (store_sql_step(tx, statement, what, &row, err) < 0)
        return -1;
    if (!row)
        return not_found(id, err);
    struct token_record token;
    if (!read_token(statement, &token))
        return store_unreadable(tx, err, what);
    *ret = token;
    return 0;
}

/* Where the walk goes on: below the number of the token named. */
static int number_of(struct store_tx *tx, const char *id, int64_t *ret, struct err *err)
{
    static const char what[] = "cannot list the tokens";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx, "SELECT number FROM tokens WHERE id = ?1", what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, id);
    bool row = false;
    if (store_sql_step(tx, statement, what, &row, err) < 0)
        return -1;
    if (!row)
        return err_set(err, ERR_NOT_FOUND,
                       "the token %s, after which to go on, has gone; list from the start again",
                       id);
    *ret = sqlite3_column_int64(statement, 0);
    return 0;
}

int store_sqlite_token_list(struct store_tx *tx, const char *after, struct token_record *ret,
                            unsigned max, unsigned *ret_count, struct err *err)
{
    static const char what[] = "cannot list the tokens";
    int64_t below = INT64_MAX;
    if (*after && number_of(tx, after, &below, err) < 0)
        return -1;
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(
            tx, "SELECT " COLUMNS " FROM tokens WHERE number < ?1 ORDER BY number DESC LIMIT ?2",
            what, &statement, err) < 0)
        return -1;
    store_bind_int(statement, 1, below);
    store_bind_int(statement, 2, max);
    unsigned count = 0;
    for (bool row = false;; count++) {
        if (store_sql_step(tx, statement, what, &row, err) < 0)
            return -1;
        if (!row)
            break;
        if (!read_token(statement, &ret[count]))
            return store_unreadable(tx, err, what);
    }
    *ret_count = count;
    return 0;
}

int store_sqlite_token_revoke(struct store_tx *tx, const char *id, int64_t now_ms, struct err *err)
{
    static const char what[] = "cannot revoke the token";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    /* The first time stays. */
    if (store_sql_prepare(tx,
                          "UPDATE tokens SET revoked_ms ="
                          " CASE revoked_ms WHEN 0 THEN ?2 ELSE revoked_ms END WHERE id = ?1",
                          what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, id);
    store_bind_int(statement, 2, now_ms);
    if (store_sql_run(tx, statement, what, err) < 0)
        return -1;
    return sqlite3_changes(store_sqlite(tx)->db) == 0 ? not_found(id, err) : 0;
}

static int count_use(struct store_tx *tx, const char *id, struct err *err)
{
    static const char what[] = "cannot count a use of the token";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx, "UPDATE tokens SET uses = uses + 1 WHERE id = ?1", what, &statement,
                          err) < 0)
        return -1;
    store_bind_text(statement, 1, id);
    return store_sql_run(tx, statement, what, err);
}

int store_sqlite_token_use(struct store_tx *tx, const char *id, const uint8_t key[STORE_KEY_LEN],
                           const char *sandbox_id, int64_t now_ms, struct err *err)
{
    static const char what[] = "cannot note that the token was used";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    /* Looks and notes in one statement: a job that takes the refusal as an answer and goes on has
     * noted nothing. */
    if (store_sql_prepare(tx,
                          "INSERT INTO token_uses(token_id, key, sandbox_id, time_ms)"
                          " SELECT id, ?2, ?3, ?4 FROM tokens WHERE id = ?1 AND uses < uses_max",
                          what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, id);
    store_bind_blob(statement, 2, key, STORE_KEY_LEN);
    store_bind_text(statement, 3, sandbox_id);
    store_bind_int(statement, 4, now_ms);
    if (store_sql_run(tx, statement, what, err) < 0)
        return -1;
    if (sqlite3_changes(store_sqlite(tx)->db) > 0)
        return count_use(tx, id, err);
    struct token_record token;
    if (store_token_get(tx, id, &token, err) < 0)
        return -1;
    return err_set(err, ERR_EXHAUSTED, "the token %s is used up; make a new one", id);
}

int store_sqlite_token_used_by(struct store_tx *tx, const char *id,
                               const uint8_t key[STORE_KEY_LEN],
                               char ret_sandbox[SANDBOX_ID_MAX + 1], int64_t *ret_when_ms,
                               struct err *err)
{
    static const char what[] = "cannot read who used the token";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(
            tx, "SELECT sandbox_id, time_ms FROM token_uses WHERE token_id = ?1 AND key = ?2", what,
            &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, id);
    store_bind_blob(statement, 2, key, STORE_KEY_LEN);
    bool row = false;
    if (store_sql_step(tx, statement, what, &row, err) < 0)
        return -1;
    if (!row)
        return err_set(err, ERR_NOT_FOUND, "this key has not joined with the token %s", id);
    if (!store_column_text(statement, 0, ret_sandbox, SANDBOX_ID_MAX + 1))
        return store_unreadable(tx, err, what);
    *ret_when_ms = sqlite3_column_int64(statement, 1);
    return 0;
}

int store_sqlite_token_prune(struct store_tx *tx, int64_t before_ms, struct err *err)
{
    static const char what[] = "cannot forget old tokens";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    /* One that is used up has not ended: the key that used it may ask again. */
    if (store_sql_prepare(tx,
                          "DELETE FROM tokens WHERE expires_ms < ?1"
                          " OR (revoked_ms <> 0 AND revoked_ms < ?1)",
                          what, &statement, err) < 0)
        return -1;
    store_bind_int(statement, 1, before_ms);
    return store_sql_run(tx, statement, what, err);
}
