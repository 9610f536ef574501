/* The thin layer over SQLite: prepare, bind, step, read, and errors in our own words. Owns nothing;
 * the store's other files hand it statements. Next: libsqlite3. */
#include "orchestrator/store_sqlite.h"

#include <assert.h>
#include <string.h>

void store_sql_fill(struct store_tx *tx, struct err *err, const char *what)
{
    int extended = sqlite3_extended_errcode(store_sqlite(tx)->db);
    int code = extended & 0xff;
    if (code == SQLITE_FULL)
        err_fill(err, ERR_EXHAUSTED,
                 "%s: the disk under %s is full; make room there, then try again", what,
                 store_sqlite(tx)->path);
    else if (code == SQLITE_BUSY)
        err_fill(err, ERR_UNAVAILABLE,
                 "%s: another program holds the database %s; end it, then try again", what,
                 store_sqlite(tx)->path);
    else if (code == SQLITE_READONLY)
        err_fill(err, ERR_UNAVAILABLE,
                 "%s: %s cannot be written; see that this user may write there, and that the "
                 "filesystem is not read-only",
                 what, store_sqlite(tx)->path);
    else if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB)
        err_fill(err, ERR_PRECONDITION,
                 "%s: the database %s is damaged (%s); " STORE_DAMAGED_ADVICE, what,
                 store_sqlite(tx)->path, sqlite3_errmsg(store_sqlite(tx)->db));
    else if (code == SQLITE_IOERR)
        err_fill(
            err, ERR_INTERNAL,
            "%s: SQLite says \"%s\" (%d); look at the disk under %s, its quota and the kernel's "
            "log",
            what, sqlite3_errmsg(store_sqlite(tx)->db), extended, store_sqlite(tx)->path);
    else if (extended == SQLITE_CONSTRAINT_PRIMARYKEY || extended == SQLITE_CONSTRAINT_UNIQUE)
        err_fill(err, ERR_EXISTS, "%s: there is one already", what);
    else if (extended == SQLITE_CONSTRAINT_FOREIGNKEY)
        err_fill(err, ERR_NOT_FOUND, "%s: what it belongs to is not there", what);
    else
        err_fill(err, ERR_INTERNAL, "%s: SQLite says \"%s\" about %s", what,
                 sqlite3_errmsg(store_sqlite(tx)->db), store_sqlite(tx)->path);
}

int store_sql_exec(struct store_tx *tx, const char *sql, const char *what, struct err *err)
{
    return sqlite3_exec(store_sqlite(tx)->db, sql, NULL, NULL, NULL) == SQLITE_OK
               ? 0
               : store_sql_fail(tx, err, what);
}

int store_sql_prepare(struct store_tx *tx, const char *sql, const char *what, sqlite3_stmt **ret,
                      struct err *err)
{
    return sqlite3_prepare_v2(store_sqlite(tx)->db, sql, -1, ret, NULL) == SQLITE_OK
               ? 0
               : store_sql_fail(tx, err, what);
}

/* Nothing is copied, so the only way for a bind to fail is a wrong index or a busy statement: our
 * bug. */

void store_bind_int(sqlite3_stmt *statement, int index, int64_t value)
{
    int r = sqlite3_bind_int64(statement, index, value);
    assert(r == SQLITE_OK);
    (void)r;
}

void store_bind_text(sqlite3_stmt *statement, int index, const char *text)
{
    int r = sqlite3_bind_text(statement, index, text, -1, SQLITE_STATIC);
    assert(r == SQLITE_OK);
    (void)r;
}

void store_bind_blob(sqlite3_stmt *statement, int index, const uint8_t *data, size_t size)
{
    int r = sqlite3_bind_blob(statement, index, size ? (const void *)data : "", (int)size,
                              SQLITE_STATIC);
    assert(r == SQLITE_OK);
    (void)r;
}

int store_sql_step(struct store_tx *tx, sqlite3_stmt *statement, const char *what, bool *ret_row,
                   struct err *err)
{
    int r = sqlite3_step(statement);
    if (r != SQLITE_ROW && r != SQLITE_DONE)
        return store_sql_fail(tx, err, what);
    *ret_row = r == SQLITE_ROW;
    return 0;
}

int store_sql_run(struct store_tx *tx, sqlite3_stmt *statement, const char *what, struct err *err)
{
    bool row = false;
    if (store_sql_step(tx, statement, what, &row, err) < 0)
        return -1;
    assert(!row);
    return 0;
}

bool store_column_text(sqlite3_stmt *statement, int column, char *ret, size_t size)
{
    const unsigned char *text = sqlite3_column_text(statement, column);
    size_t length = (size_t)sqlite3_column_bytes(statement, column);
    /* What is behind a NUL would be seen by nobody, the audit's hash included. */
    if (!text || length >= size || memchr(text, '\0', length))
        return false;
    (void)memcpy(ret, text, length);
    ret[length] = '\0';
    return true;
}

bool store_column_blob(sqlite3_stmt *statement, int column, uint8_t *ret, size_t size)
{
    const void *data = sqlite3_column_blob(statement, column);
    if (!data || (size_t)sqlite3_column_bytes(statement, column) != size)
        return false;
    (void)memcpy(ret, data, size);
    return true;
}

bool store_column_u32(sqlite3_stmt *statement, int column, uint32_t *ret)
{
    int64_t value = sqlite3_column_int64(statement, column);
    *ret = (uint32_t)value;
    return value >= 0 && value <= UINT32_MAX;
}

bool store_column_bool(sqlite3_stmt *statement, int column, bool *ret)
{
    int64_t value = sqlite3_column_int64(statement, column);
    *ret = value == 1;
    return value == 0 || value == 1;
}

void store_unreadable_fill(struct store_tx *tx, struct err *err, const char *what)
{
    err_fill(err, ERR_PRECONDITION,
             "%s: %s holds a row that the orchestrator cannot have written; look "
             "who changed the file, and restore a backup",
             what, store_sqlite(tx)->path);
}
