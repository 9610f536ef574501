/* The SQLite backend: its table of verbs, and transactions. orchestrator/store.c drives them. Next:
 * orchestrator/store_sqlite_open.c for the file, and store_sqlite_audit.c, store_sqlite_tokens.c,
 * store_sqlite_sandboxes.c, store_sqlite_clients.c, store_sqlite_commands.c and
 * store_sqlite_logs.c for what jobs do inside. */
#include "orchestrator/store_sqlite.h"

static int open_store(const char *where, struct store_tx **ret, struct err *err)
{
    struct store_sqlite *sqlite = calloc(1, sizeof(*sqlite));
    if (!sqlite)
        return err_nomem(err);
    *sqlite = (struct store_sqlite)STORE_SQLITE_NONE;
    if (store_db_open(where, &sqlite->tx, err) < 0) {
        store_db_close(&sqlite->tx);
        free(sqlite);
        return -1;
    }
    *ret = &sqlite->tx;
    return 0;
}

static void close_store(struct store_tx *tx)
{
    store_db_close(tx);
    free(store_sqlite(tx));
}

static int begin(struct store_tx *tx, bool durable, struct err *err)
{
    struct store_sqlite *sqlite = store_sqlite(tx);
    if (sqlite->full_sync != durable) {
        const char *sql = durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL";
        if (store_sql_exec(tx, sql, "cannot choose how to sync", err) < 0)
            return -1;
        sqlite->full_sync = durable;
    }
    return store_sql_exec(tx, "BEGIN IMMEDIATE", "cannot begin a transaction", err);
}

static int commit(struct store_tx *tx, struct err *err)
{
    return store_sql_exec(tx, "COMMIT", "cannot save", err);
}

/* SQLite ends a transaction by itself after some errors, as a full disk. */
static bool lost(struct store_tx *tx)
{
    return sqlite3_get_autocommit(store_sqlite(tx)->db) != 0;
}

static void rollback(struct store_tx *tx)
{
    /* Fails only where SQLite has undone it already. */
    if (!lost(tx))
        (void)sqlite3_exec(store_sqlite(tx)->db, "ROLLBACK", NULL, NULL, NULL);
}

static int probe(struct store_tx *tx, struct err *err)
{
    return store_sql_exec(tx, "UPDATE notes SET number = number WHERE name = 'audit_head'",
                          "cannot write", err);
}

static int job_begin(struct store_tx *tx, struct err *err)
{
    return store_sql_exec(tx, "SAVEPOINT job", "cannot begin a job", err);
}

static int job_keep(struct store_tx *tx, struct err *err)
{
    return store_sql_exec(tx, "RELEASE job", "cannot end a job", err);
}

static int job_undo(struct store_tx *tx)
{
    return sqlite3_exec(store_sqlite(tx)->db, "ROLLBACK TO job; RELEASE job", NULL, NULL, NULL) ==
                   SQLITE_OK
               ? 0
               : -1;
}

const struct store_backend store_backend_sqlite = {
    .name = "sqlite",
    .open = open_store,
    .close = close_store,
    .begin = begin,
    .commit = commit,
    .rollback = rollback,
    .probe = probe,
    .lost = lost,
    .job_begin = job_begin,
    .job_keep = job_keep,
    .job_undo = job_undo,
    .audit_read = store_sqlite_audit_read,
    .audit_head = store_sqlite_audit_head,
    .audit_hash = store_sqlite_audit_hash,
    .token_put = store_sqlite_token_put,
    .token_get = store_sqlite_token_get,
    .token_list = store_sqlite_token_list,
    .token_revoke = store_sqlite_token_revoke,
    .token_use = store_sqlite_token_use,
    .token_used_by = store_sqlite_token_used_by,
    .token_prune = store_sqlite_token_prune,
    .sandbox_put = store_sqlite_sandbox_put,
    .sandbox_get = store_sqlite_sandbox_get,
    .sandbox_revoke = store_sqlite_sandbox_revoke,
    .sandbox_note = store_sqlite_sandbox_note,
    .sandbox_drain = store_sqlite_sandbox_drain,
    .sandbox_label = store_sqlite_sandbox_label,
    .sandbox_remove = store_sqlite_sandbox_remove,
    .sandbox_count = store_sqlite_sandbox_count,
    .sandbox_each = store_sqlite_sandbox_each,
    .event_put = store_sqlite_event_put,
    .event_list = store_sqlite_event_list,
    .client_put = store_sqlite_client_put,
    .client_get = store_sqlite_client_get,
    .client_by_login = store_sqlite_client_by_login,
    .client_list = store_sqlite_client_list,
    .command_put = store_sqlite_command_put,
    .command_get = store_sqlite_command_get,
    .command_start = store_sqlite_command_start,
    .command_end = store_sqlite_command_end,
    .command_list = store_sqlite_command_list,
    .command_each_open = store_sqlite_command_each_open,
    .command_prune = store_sqlite_command_prune,
    .log_put = store_sqlite_log_put,
    .log_list = store_sqlite_log_list,
    .log_trim = store_sqlite_log_trim,
    .log_expire = store_sqlite_log_expire,
    .audit_insert = store_sqlite_audit_insert,
};
