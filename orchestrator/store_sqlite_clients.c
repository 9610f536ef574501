/* Owns the clients: who they are, what they may, the key that counts and the login key that is
 * open. Jobs of the admin service and of login call it. Next: orchestrator/store_sqlite_sql.c. */
#include "orchestrator/store_sqlite.h"

#define COLUMNS                                                                                    \
    "name, role, scope, has_key, key, created_ms, last_login_ms, revoked_ms, created_by,"          \
    " login_id, login_hash, login_expires_ms"

int store_sqlite_client_put(struct store_tx *tx, const struct client_record *client,
                            struct err *err)
{
    static const char what[] = "cannot save the client";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    /* Not INSERT OR REPLACE, which would also remove another client with the same login id. */
    if (store_sql_prepare(tx,
                          "INSERT INTO clients(" COLUMNS
                          ") VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
                          " ON CONFLICT(name) DO UPDATE SET role = ?2, scope = ?3, has_key = ?4,"
                          " key = ?5, created_ms = ?6, last_login_ms = ?7, revoked_ms = ?8,"
                          " created_by = ?9, login_id = ?10, login_hash = ?11,"
                          " login_expires_ms = ?12",
                          what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, client->name);
    store_bind_int(statement, 2, client->role);
    store_bind_text(statement, 3, client->scope);
    store_bind_int(statement, 4, client->has_key);
    store_bind_blob(statement, 5, client->key, sizeof(client->key));
    store_bind_int(statement, 6, client->created_ms);
    store_bind_int(statement, 7, client->last_login_ms);
    store_bind_int(statement, 8, client->revoked_ms);
    store_bind_text(statement, 9, client->created_by);
    store_bind_text(statement, 10, client->login_id);
    store_bind_blob(statement, 11, client->login_hash, sizeof(client->login_hash));
    store_bind_int(statement, 12, client->login_expires_ms);
    return store_sql_run(tx, statement, what, err);
}

static bool read_client(sqlite3_stmt *statement, struct client_record *ret)
{
    ret->role = sqlite3_column_int(statement, 1);
    ret->created_ms = sqlite3_column_int64(statement, 5);
    ret->last_login_ms = sqlite3_column_int64(statement, 6);
    ret->revoked_ms = sqlite3_column_int64(statement, 7);
    ret->login_expires_ms = sqlite3_column_int64(statement, 11);
    return store_column_text(statement, 0, ret->name, sizeof(ret->name)) &&
           store_column_text(statement, 2, ret->scope, sizeof(ret->scope)) &&
           store_column_bool(statement, 3, &ret->has_key) &&
           store_column_blob(statement, 4, ret->key, sizeof(ret->key)) &&
           store_column_text(statement, 8, ret->created_by, sizeof(ret->created_by)) &&
           store_column_text(statement, 9, ret->login_id, sizeof(ret->login_id)) &&
           store_column_blob(statement, 10, ret->login_hash, sizeof(ret->login_hash));
}

/* The one that `sql` finds by one text. False in *ret_found when there is none. */
static int find(struct store_tx *tx, const char *sql, const char *by, struct client_record *ret,
                bool *ret_found, struct err *err)
{
    static const char what[] = "cannot read the client";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx, sql, what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, by);
    if (store_sql_step(tx, statement, what, ret_found, err) < 0)
        return -1;
    struct client_record client;
    if (!*ret_found)
        return 0;
    if (!read_client(statement, &client))
        return store_unreadable(tx, err, what);
    *ret = client;
    return 0;
}

int store_sqlite_client_get(struct store_tx *tx, const char *name, struct client_record *ret,
                            struct err *err)
{
    bool found = false;
    if (find(tx, "SELECT " COLUMNS " FROM clients WHERE name = ?1", name, ret, &found, err) < 0)
        return -1;
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "there is no client %s; list those that there are",
                       name);
    return 0;
}

int store_sqlite_client_by_login(struct store_tx *tx, const char *login_id,
                                 struct client_record *ret, struct err *err)
{
    bool found = false;
    /* Those without an open login key have an empty id, and nobody logs in with that. */
    if (find(tx, "SELECT " COLUMNS " FROM clients WHERE login_id = ?1 AND login_id <> ''", login_id,
             ret, &found, err) < 0)
        return -1;
    if (!found)
        return err_set(err, ERR_NOT_FOUND, "no client has the login key %s open", login_id);
    return 0;
}

int store_sqlite_client_list(struct store_tx *tx, const char *after, struct client_record *ret,
                             unsigned max, unsigned *ret_count, struct err *err)
{
    static const char what[] = "cannot list the clients";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx,
                          "SELECT " COLUMNS " FROM clients WHERE name > ?1 ORDER BY name LIMIT ?2",
                          what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, after);
    store_bind_int(statement, 2, max);
    unsigned count = 0;
    for (bool row = false;; count++) {
        if (store_sql_step(tx, statement, what, &row, err) < 0)
            return -1;
        if (!row)
            break;
        if (!read_client(statement, &ret[count]))
            return store_unreadable(tx, err, what);
    }
    *ret_count = count;
    return 0;
}
