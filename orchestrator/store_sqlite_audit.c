/* The audit in SQLite: the rows, and the note of where the chain ends. orchestrator/store_audit.c
 * hands it a row for every request, so its statements are prepared once and kept. Next:
 * orchestrator/store_sqlite_sql.c.
 *
 * The head is read from the notes for every row. It is one cached page, and nothing has to be put
 * right when a job or a transaction is undone. */
#include "orchestrator/store_sqlite.h"

#include "common/audit_chain.h"

#include <assert.h>
#include <string.h>

static_assert(sizeof(((struct audit_row *)NULL)->hash) == AUDIT_CHAIN_HASH_LEN,
              "a row holds its hash");

static const char *const statements[AUDIT_STATEMENT_COUNT_] = {
    [AUDIT_HEAD] = "SELECT number, bytes FROM notes WHERE name = 'audit_head'",
    [AUDIT_INSERT] = "INSERT INTO audit VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [AUDIT_MOVE_HEAD] = "UPDATE notes SET number = ?1, bytes = ?2 WHERE name = 'audit_head'",
};

static void release(sqlite3_stmt **statement)
{
    if (!*statement)
        return;
    /* Both say again what the last step said. */
    (void)sqlite3_reset(*statement);
    (void)sqlite3_clear_bindings(*statement);
}
#define CLEANUP_RELEASE CLEANUP(release)

static int borrow(struct store_tx *tx, enum audit_statement which, const char *what,
                  sqlite3_stmt **ret, struct err *err)
{
    sqlite3_stmt **kept = &store_sqlite(tx)->audit[which];
    if (!*kept && sqlite3_prepare_v3(store_sqlite(tx)->db, statements[which], -1,
                                     SQLITE_PREPARE_PERSISTENT, kept, NULL) != SQLITE_OK)
        return store_sql_fail(tx, err, what);
    *ret = *kept;
    return 0;
}

int store_sqlite_audit_head(struct store_tx *tx, uint64_t *ret_seq, uint8_t ret_hash[32],
                            struct err *err)
{
    static const char what[] = "cannot read where the audit ends";
    CLEANUP_RELEASE sqlite3_stmt *statement = NULL;
    bool row = false;
    if (borrow(tx, AUDIT_HEAD, what, &statement, err) < 0 ||
        store_sql_step(tx, statement, what, &row, err) < 0)
        return -1;
    int64_t seq = row ? sqlite3_column_int64(statement, 0) : -1;
    if (seq < 0 || !store_column_blob(statement, 1, ret_hash, AUDIT_CHAIN_HASH_LEN))
        return store_unreadable(tx, err, what);
    *ret_seq = (uint64_t)seq;
    return 0;
}

int store_sqlite_audit_insert(struct store_tx *tx, const struct audit_row *row, struct err *err)
{
    static const char what[] = "cannot append to the audit";
    CLEANUP_RELEASE sqlite3_stmt *insert = NULL;
    CLEANUP_RELEASE sqlite3_stmt *move = NULL;
    if (borrow(tx, AUDIT_INSERT, what, &insert, err) < 0 ||
        borrow(tx, AUDIT_MOVE_HEAD, what, &move, err) < 0)
        return -1;
    store_bind_int(insert, 1, (int64_t)row->seq);
    store_bind_int(insert, 2, row->time_ms);
    store_bind_text(insert, 3, row->actor);
    store_bind_text(insert, 4, row->action);
    store_bind_text(insert, 5, row->target);
    store_bind_int(insert, 6, row->allowed);
    store_bind_text(insert, 7, row->detail);
    store_bind_blob(insert, 8, row->hash, sizeof(row->hash));
    store_bind_int(move, 1, (int64_t)row->seq);
    store_bind_blob(move, 2, row->hash, sizeof(row->hash));
    if (store_sql_run(tx, insert, what, err) < 0)
        /* A row where the notes know of none was put there by somebody else. */
        return sqlite3_extended_errcode(store_sqlite(tx)->db) == SQLITE_CONSTRAINT_PRIMARYKEY
                   ? store_unreadable(tx, err, what)
                   : -1;
    return store_sql_run(tx, move, what, err);
}

static bool read_row(sqlite3_stmt *statement, struct audit_row *ret)
{
    ret->seq = (uint64_t)sqlite3_column_int64(statement, 0);
    ret->time_ms = sqlite3_column_int64(statement, 1);
    return store_column_text(statement, 2, ret->actor, sizeof(ret->actor)) &&
           store_column_text(statement, 3, ret->action, sizeof(ret->action)) &&
           store_column_text(statement, 4, ret->target, sizeof(ret->target)) &&
           store_column_bool(statement, 5, &ret->allowed) &&
           store_column_text(statement, 6, ret->detail, sizeof(ret->detail)) &&
           store_column_blob(statement, 7, ret->hash, sizeof(ret->hash));
}

int store_sqlite_audit_read(struct store_tx *tx, uint64_t after, struct audit_row *rows,
                            unsigned max, unsigned *ret_count, struct err *err)
{
    static const char what[] = "cannot read the audit";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx,
                          "SELECT seq, time_ms, actor, action, target, allowed, detail, hash"
                          " FROM audit WHERE seq > ?1 ORDER BY seq LIMIT ?2",
                          what, &statement, err) < 0)
        return -1;
    store_bind_int(statement, 1, (int64_t)MIN(after, (uint64_t)INT64_MAX));
    store_bind_int(statement, 2, max);
    unsigned count = 0;
    for (bool row = false;; count++) {
        if (store_sql_step(tx, statement, what, &row, err) < 0)
            return -1;
        if (!row)
            break;
        if (!read_row(statement, &rows[count]))
            return store_unreadable(tx, err, what);
    }
    *ret_count = count;
    return 0;
}

int store_sqlite_audit_hash(struct store_tx *tx, uint64_t seq, uint8_t ret_hash[32],
                            struct err *err)
{
    static const char what[] = "cannot read the audit";
    if (seq == 0) {
        (void)memset(ret_hash, 0, AUDIT_CHAIN_HASH_LEN);
        return 0;
    }
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx, "SELECT hash FROM audit WHERE seq = ?1", what, &statement, err) < 0)
        return -1;
    /* No row has a number that does not fit: -1 finds none. */
    store_bind_int(statement, 1, seq > INT64_MAX ? -1 : (int64_t)seq);
    bool row = false;
    if (store_sql_step(tx, statement, what, &row, err) < 0)
        return -1;
    if (!row)
        return err_set(err, ERR_NOT_FOUND, "the audit has no row %llu", (unsigned long long)seq);
    return store_column_blob(statement, 0, ret_hash, AUDIT_CHAIN_HASH_LEN)
               ? 0
               : store_unreadable(tx, err, what);
}

int store_sqlite_audit_check_end(struct store_tx *tx, bool *ret_broken, struct err *err)
{
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    bool found = false;
    /* In one statement, because a missing or odd note is an answer here and no error. */
    if (store_sql_prepare(
            tx,
            "SELECT 1 FROM notes WHERE name = 'audit_head'"
            " AND number = (SELECT coalesce(max(seq), 0) FROM audit)"
            " AND bytes = coalesce((SELECT hash FROM audit ORDER BY seq DESC LIMIT 1),"
            " zeroblob(32))",
            "cannot check the audit", &statement, err) < 0 ||
        store_sql_step(tx, statement, "cannot check the audit", &found, err) < 0)
        return -1;
    *ret_broken = !found;
    return 0;
}
