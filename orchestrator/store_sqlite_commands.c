/* Owns the commands that were ordered, and how they ended: the history. Jobs of
 * orchestrator/history.c and orchestrator/control_command.c call it. A row is made before the
 * command is ordered and its end is written once, so that whoever is killed in between finds out
 * what is still open. Next: orchestrator/store_sqlite_sql.c. */
#include "orchestrator/store_sqlite.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define COLUMNS                                                                                    \
    "number, id, sandbox_id, ordered_by, labels, digest, runner, ordered_ms, started_ms, pid,"     \
    " ended_ms, outcome, end_offset"
#define QUERY_MAX 512

static int not_found(const char *id, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "there is no command %s; list those that there are", id);
}

int store_sqlite_command_put(struct store_tx *tx, const struct command_record *command,
                             struct err *err)
{
    static const char what[] = "cannot save the command";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx,
                          "INSERT INTO commands(" COLUMNS ") VALUES(NULL, ?1, ?2, ?3, ?4, ?5, ?6,"
                          " ?7, 0, 0, 0, x'', 0)",
                          what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, command->id);
    store_bind_text(statement, 2, command->sandbox_id);
    store_bind_text(statement, 3, command->ordered_by);
    store_bind_text(statement, 4, command->labels);
    store_bind_blob(statement, 5, command->digest, sizeof(command->digest));
    store_bind_text(statement, 6, command->runner);
    store_bind_int(statement, 7, command->ordered_ms);
    return store_sql_run(tx, statement, what, err);
}

static bool read_outcome(sqlite3_stmt *statement, int column, struct command_record *ret)
{
    const void *data = sqlite3_column_blob(statement, column);
    size_t size = (size_t)sqlite3_column_bytes(statement, column);
    if (size > sizeof(ret->outcome))
        return false;
    if (size > 0)
        (void)memcpy(ret->outcome, data, size);
    ret->outcome_size = size;
    return true;
}

static bool read_command(sqlite3_stmt *statement, struct command_record *ret)
{
    ret->number = sqlite3_column_int64(statement, 0);
    ret->ordered_ms = sqlite3_column_int64(statement, 7);
    ret->started_ms = sqlite3_column_int64(statement, 8);
    ret->pid = sqlite3_column_int64(statement, 9);
    ret->ended_ms = sqlite3_column_int64(statement, 10);
    /* Offsets above INT64_MAX are negative in the table, and come back as they were. */
    ret->end_offset = (uint64_t)sqlite3_column_int64(statement, 12);
    return store_column_text(statement, 1, ret->id, sizeof(ret->id)) &&
           store_column_text(statement, 2, ret->sandbox_id, sizeof(ret->sandbox_id)) &&
           store_column_text(statement, 3, ret->ordered_by, sizeof(ret->ordered_by)) &&
           store_column_text(statement, 4, ret->labels, sizeof(ret->labels)) &&
           store_column_blob(statement, 5, ret->digest, sizeof(ret->digest)) &&
           store_column_text(statement, 6, ret->runner, sizeof(ret->runner)) &&
           read_outcome(statement, 11, ret);
}

int store_sqlite_command_get(struct store_tx *tx, const char *id, struct command_record *ret,
                             struct err *err)
{
    static const char what[] = "cannot read the command";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx, "SELECT " COLUMNS " FROM commands WHERE id = ?1", what, &statement,
                          err) < 0)
        return -1;
    store_bind_text(statement, 1, id);
    bool row = false;
    if (store_sql_step(tx, statement, what, &row, err) < 0)
        return -1;
    if (!row)
        return not_found(id, err);
    struct command_record command;
    if (!read_command(statement, &command))
        return store_unreadable(tx, err, what);
    *ret = command;
    return 0;
}

/* An UPDATE by id, whose row must be there. */
static int update(struct store_tx *tx, sqlite3_stmt *statement, const char *id, const char *what,
                  struct err *err)
{
    if (store_sql_run(tx, statement, what, err) < 0)
        return -1;
    return sqlite3_changes(store_sqlite(tx)->db) == 0 ? not_found(id, err) : 0;
}

int store_sqlite_command_start(struct store_tx *tx, const char *id, int64_t started_ms, int64_t pid,
                               struct err *err)
{
    static const char what[] = "cannot note that the command runs";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    /* Every right-hand side is of the row as it was. */
    if (store_sql_prepare(tx,
                          "UPDATE commands SET"
                          " started_ms = CASE started_ms WHEN 0 THEN ?2 ELSE started_ms END,"
                          " pid = CASE pid WHEN 0 THEN ?3 ELSE pid END WHERE id = ?1",
                          what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, id);
    store_bind_int(statement, 2, started_ms);
    store_bind_int(statement, 3, pid);
    return update(tx, statement, id, what, err);
}

int store_sqlite_command_end(struct store_tx *tx, const struct command_record *command,
                             struct err *err)
{
    static const char what[] = "cannot note how the command ended";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    assert(command->ended_ms && command->outcome_size > 0);
    if (store_sql_prepare(
            tx,
            "UPDATE commands SET"
            " started_ms = CASE WHEN ended_ms = 0 AND started_ms = 0 THEN ?2 ELSE started_ms END,"
            " pid = CASE WHEN ended_ms = 0 AND pid = 0 THEN ?6 ELSE pid END,"
            " outcome = CASE ended_ms WHEN 0 THEN ?4 ELSE outcome END,"
            " end_offset = CASE ended_ms WHEN 0 THEN ?5 ELSE end_offset END,"
            " ended_ms = CASE ended_ms WHEN 0 THEN ?3 ELSE ended_ms END WHERE id = ?1",
            what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, command->id);
    store_bind_int(statement, 2, command->started_ms);
    store_bind_int(statement, 3, command->ended_ms);
    store_bind_blob(statement, 4, command->outcome, command->outcome_size);
    store_bind_int(statement, 5, (int64_t)command->end_offset);
    store_bind_int(statement, 6, command->pid);
    return update(tx, statement, command->id, what, err);
}

int store_sqlite_command_list(struct store_tx *tx, const struct command_filter *filter,
                              struct command_record *ret, unsigned max, unsigned *ret_count,
                              struct err *err)
{
    static const char what[] = "cannot list the commands";
    static const char *const choices[] = {
        [COMMANDS_ALL] = "",
        [COMMANDS_OPEN] = " AND ended_ms = 0",
        [COMMANDS_ENDED] = " AND ended_ms <> 0",
    };
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    char sql[QUERY_MAX];
    /* Conditions that do not apply are left out: an index is chosen by those that are there. */
    (void)snprintf(sql, sizeof(sql),
                   "SELECT " COLUMNS " FROM commands WHERE number < ?1%s%s%s ORDER BY number DESC"
                   " LIMIT ?2",
                   *filter->sandbox_id ? " AND sandbox_id = ?3" : "",
                   *filter->id ? " AND id = ?4" : "", choices[filter->choice]);
    if (store_sql_prepare(tx, sql, what, &statement, err) < 0)
        return -1;
    store_bind_int(statement, 1, filter->before ? filter->before : INT64_MAX);
    store_bind_int(statement, 2, max);
    if (*filter->sandbox_id)
        store_bind_text(statement, 3, filter->sandbox_id);
    if (*filter->id)
        store_bind_text(statement, 4, filter->id);
    unsigned count = 0;
    for (bool row = false;; count++) {
        if (store_sql_step(tx, statement, what, &row, err) < 0)
            return -1;
        if (!row)
            break;
        if (!read_command(statement, &ret[count]))
            return store_unreadable(tx, err, what);
    }
    *ret_count = count;
    return 0;
}

int store_sqlite_command_each_open(struct store_tx *tx,
                                   int (*each)(void *userdata, const struct command_record *command,
                                               struct err *err),
                                   void *userdata, struct err *err)
{
    static const char what[] = "cannot read the open commands";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx, "SELECT " COLUMNS " FROM commands WHERE ended_ms = 0", what,
                          &statement, err) < 0)
        return -1;
    for (;;) {
        bool row = false;
        if (store_sql_step(tx, statement, what, &row, err) < 0)
            return -1;
        if (!row)
            return 0;
        struct command_record command;
        if (!read_command(statement, &command))
            return store_unreadable(tx, err, what);
        if (each(userdata, &command, err) < 0)
            return -1;
    }
}

int store_sqlite_command_prune(struct store_tx *tx, unsigned kept, int64_t before_ms,
                               struct err *err)
{
    static const char what[] = "cannot forget old commands";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    /* By number and not by time: clocks go back. With fewer than `kept` the inner one is NULL, and
     * nothing is smaller. */
    if (store_sql_prepare(tx,
                          "DELETE FROM commands WHERE ended_ms <> 0 AND (ended_ms < ?2 OR"
                          " number <= (SELECT number FROM commands WHERE ended_ms <> 0"
                          " ORDER BY number DESC LIMIT 1 OFFSET ?1))",
                          what, &statement, err) < 0)
        return -1;
    store_bind_int(statement, 1, kept);
    store_bind_int(statement, 2, before_ms);
    return store_sql_run(tx, statement, what, err);
}
