/* Owns the table of log lines. Jobs of orchestrator/logbook.c put and trim, those of
 * orchestrator/control_logs.c read. Next: orchestrator/store_sqlite_sql.c.
 *
 * The number, not the time, is the order: lines of several clocks meet here, and clocks go back. */
#include "orchestrator/store_sqlite.h"

#include "common/utf8.h"

#include <stdio.h>

static int not_found(const char *sandbox_id, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "sandbox \"%s\" is not enrolled here", sandbox_id);
}

int store_sqlite_log_put(struct store_tx *tx, const struct log_record *record, struct err *err)
{
    static const char what[] = "cannot save a line of the log";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx,
                          "INSERT INTO logs(sandbox_id, time_us, level, origin, command_id,"
                          " message, fields) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                          what, &statement, err) < 0)
        return -1;
    char message[sizeof(record->message)];
    (void)snprintf(message, sizeof(message), "%s", record->message);
    utf8_clean(message); /* a cut may have gone through a character */
    store_bind_text(statement, 1, record->sandbox_id);
    store_bind_int(statement, 2, record->time_us);
    store_bind_int(statement, 3, record->level);
    store_bind_text(statement, 4, record->origin);
    store_bind_text(statement, 5, record->command_id);
    store_bind_text(statement, 6, message);
    store_bind_text(statement, 7, record->fields);
    if (store_sql_run(tx, statement, what, err) < 0)
        return sqlite3_extended_errcode(store_sqlite(tx)->db) == SQLITE_CONSTRAINT_FOREIGNKEY
                   ? not_found(record->sandbox_id, err)
                   : -1;
    return 0;
}

static bool read_record(sqlite3_stmt *statement, struct log_record *ret)
{
    uint32_t level = 0;
    ret->number = (uint64_t)sqlite3_column_int64(statement, 0);
    ret->time_us = sqlite3_column_int64(statement, 2);
    bool fits = store_column_text(statement, 1, ret->sandbox_id, sizeof(ret->sandbox_id)) &&
                store_column_u32(statement, 3, &level) && level <= INT32_MAX &&
                store_column_text(statement, 4, ret->origin, sizeof(ret->origin)) &&
                store_column_text(statement, 5, ret->command_id, sizeof(ret->command_id)) &&
                store_column_text(statement, 6, ret->message, sizeof(ret->message)) &&
                store_column_text(statement, 7, ret->fields, sizeof(ret->fields));
    ret->level = (int)level;
    return fits;
}

int store_sqlite_log_list(struct store_tx *tx, const struct log_query *query,
                          struct log_record *ret, unsigned max, unsigned *ret_count,
                          struct err *err)
{
    static const char what[] = "cannot read the log";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    /* The last ones are found from the end, and said from their first on. */
    const char *sql =
        query->last > 0
            ? "SELECT * FROM (SELECT number, sandbox_id, time_us, level, origin, command_id,"
              " message, fields FROM logs WHERE sandbox_id = ?1 AND number > ?2 AND time_us >= ?3"
              " AND (?4 = '' OR command_id = ?4) ORDER BY number DESC LIMIT ?6)"
              " ORDER BY number LIMIT ?5"
            : "SELECT number, sandbox_id, time_us, level, origin, command_id, message, fields"
              " FROM logs WHERE sandbox_id = ?1 AND number > ?2 AND time_us >= ?3"
              " AND (?4 = '' OR command_id = ?4) ORDER BY number LIMIT ?5";
    if (store_sql_prepare(tx, sql, what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, query->sandbox_id);
    store_bind_int(statement, 2, (int64_t)MIN(query->after, (uint64_t)INT64_MAX));
    store_bind_int(statement, 3, query->since_us);
    store_bind_text(statement, 4, query->command_id);
    store_bind_int(statement, 5, max);
    if (query->last > 0)
        store_bind_int(statement, 6, query->last);
    unsigned count = 0;
    for (bool row = false;; count++) {
        if (store_sql_step(tx, statement, what, &row, err) < 0)
            return -1;
        if (!row)
            break;
        if (!read_record(statement, &ret[count]))
            return store_unreadable(tx, err, what);
    }
    *ret_count = count;
    return 0;
}

int store_sqlite_log_trim(struct store_tx *tx, const char *sandbox_id, unsigned keep,
                          struct err *err)
{
    static const char what[] = "cannot forget old lines of the log";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx,
                          "DELETE FROM logs WHERE sandbox_id = ?1 AND number <= (SELECT number"
                          " FROM logs WHERE sandbox_id = ?1 ORDER BY number DESC LIMIT 1"
                          " OFFSET ?2)",
                          what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, sandbox_id);
    store_bind_int(statement, 2, keep);
    return store_sql_run(tx, statement, what, err);
}

int store_sqlite_log_expire(struct store_tx *tx, int64_t before_us, unsigned max,
                            unsigned *ret_forgotten, struct err *err)
{
    static const char what[] = "cannot forget old lines of the log";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    /* There is no index by time, and none is needed: the oldest are at the front. */
    if (store_sql_prepare(tx,
                          "DELETE FROM logs WHERE number IN (SELECT number FROM logs"
                          " WHERE number < (SELECT max(number) FROM logs) ORDER BY number"
                          " LIMIT ?2) AND time_us < ?1",
                          what, &statement, err) < 0)
        return -1;
    store_bind_int(statement, 1, before_us);
    store_bind_int(statement, 2, max);
    if (store_sql_run(tx, statement, what, err) < 0)
        return -1;
    *ret_forgotten = (unsigned)sqlite3_changes(store_sqlite(tx)->db);
    return 0;
}
