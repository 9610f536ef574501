/* What can be wrong with a database that is ours: pages, references, tables, and a log that has
 * gone. orchestrator/store_sqlite_open.c asks before the first job, and those who back up and
 * repair ask as well. Next: orchestrator/store_sqlite_sql.c.
 *
 * Nothing here mends anything: what is found is told with the operator's choices. */
#include "orchestrator/store_sqlite.h"

#include "common/utf8.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The first complaint of a check, "" when there is none. */
static int complaint(struct store_tx *tx, const char *sql, const char *none,
                     char ret[STORE_TEXT_MAX], struct err *err)
{
    static const char what[] = "cannot check the database";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    bool row = false;
    if (store_sql_prepare(tx, sql, what, &statement, err) < 0 ||
        store_sql_step(tx, statement, what, &row, err) < 0)
        return -1;
    const char *said = row ? (const char *)sqlite3_column_text(statement, 0) : none;
    (void)snprintf(ret, STORE_TEXT_MAX, "%s", said && strcmp(said, none) != 0 ? said : "");
    utf8_clean(ret);
    return 0;
}

int store_db_find_damage(struct store_tx *tx, char ret[STORE_TEXT_MAX], struct err *err)
{
    if (complaint(tx, "PRAGMA integrity_check(1)", "ok", ret, err) < 0)
        return -1;
    if (*ret)
        return 0;
    return complaint(tx,
                     "SELECT 'a row of ' || \"table\" || ' belongs to no row of ' || parent"
                     " FROM pragma_foreign_key_check LIMIT 1",
                     "", ret, err);
}

int store_db_check_damage(struct store_tx *tx, struct err *err)
{
    char found[STORE_TEXT_MAX];
    if (store_db_find_damage(tx, found, err) < 0)
        return -1;
    if (!*found)
        return 0;
    return err_set(err, ERR_PRECONDITION, "%s is damaged (%s); " STORE_DAMAGED_ADVICE,
                   store_sqlite(tx)->path, found);
}

/* Tables. */

bool store_db_has_column(struct store_tx *tx, const char *table, const char *column)
{
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(store_sqlite(tx)->db,
                           "SELECT 1 FROM pragma_table_info(?1) WHERE name = ?2", -1, &statement,
                           NULL) != SQLITE_OK)
        return false;
    store_bind_text(statement, 1, table);
    store_bind_text(statement, 2, column);
    return sqlite3_step(statement) == SQLITE_ROW;
}

/* Every table and column that the migrations make is there, whatever the version says. */
static int compare_schema(struct store_tx *tx, struct store_tx *wanted, struct err *err)
{
    static const char what[] = "cannot compare the tables";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(wanted,
                          "SELECT t.name, c.name FROM sqlite_schema AS t,"
                          " pragma_table_info(t.name) AS c WHERE t.type = 'table'",
                          what, &statement, err) < 0)
        return -1;
    for (;;) {
        bool row = false;
        if (store_sql_step(wanted, statement, what, &row, err) < 0)
            return -1;
        if (!row)
            return 0;
        const char *table = (const char *)sqlite3_column_text(statement, 0);
        const char *column = (const char *)sqlite3_column_text(statement, 1);
        if (table && column && !store_db_has_column(tx, table, column))
            return err_set(err, ERR_PRECONDITION,
                           "%s is damaged (it has no %s.%s); " STORE_DAMAGED_ADVICE,
                           store_sqlite(tx)->path, table, column);
    }
}

int store_db_check_schema(struct store_tx *tx, struct err *err)
{
    struct store_sqlite wanted = STORE_SQLITE_NONE;
    wanted.path = strdup(":memory:");
    int r = wanted.path ? 0 : err_nomem(err);
    if (r == 0)
        r = store_db_connect(&wanted.tx, SQLITE_OPEN_READWRITE, err);
    if (r == 0)
        r = store_db_migrate(&wanted.tx, 0, err);
    if (r == 0)
        r = compare_schema(tx, &wanted.tx, err);
    store_db_close(&wanted.tx);
    return r;
}

/* The log. As long as somebody has the database open, or was killed with it, the log holds what was
 * saved last, and the lock's file says "open". */

static const char open_mark[] = "open\n";

static int log_is_there(struct store_tx *tx, bool *ret, struct err *err)
{
    char path[4096];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s-wal", store_sqlite(tx)->path);
    *ret = lstat(path, &st) == 0;
    return *ret || errno == ENOENT ? 0 : err_errno(err, errno, "cannot stat %s", path);
}

int store_db_log_lost(struct store_tx *tx, bool *ret, struct err *err)
{
    char mark[sizeof(open_mark)] = "";
    bool log = false;
    if (pread(store_sqlite(tx)->lock, mark, sizeof(open_mark) - 1, 0) < 0)
        return err_errno(err, errno, "cannot read %s/lock", store_sqlite(tx)->dir);
    if (log_is_there(tx, &log, err) < 0)
        return -1;
    *ret = !log && strcmp(mark, open_mark) == 0;
    return 0;
}

int store_db_check_log(struct store_tx *tx, struct err *err)
{
    bool lost = false;
    if (store_db_log_lost(tx, &lost, err) < 0)
        return -1;
    if (!lost)
        return 0;
    return err_set(err, ERR_PRECONDITION,
                   "%s was not closed in order, and its log (-wal), which holds what was saved "
                   "last, is gone. Put the log back; or " STORE_DAMAGED_ADVICE,
                   store_sqlite(tx)->path);
}

/* After the log has come to disk, so that a power cut leaves no mark without it. */
int store_db_mark_open(struct store_tx *tx, struct err *err)
{
    CLEANUP_FD int directory = open(store_sqlite(tx)->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0 || fsync(directory) < 0)
        return err_errno(err, errno, "cannot bring the directory %s to disk",
                         store_sqlite(tx)->dir);
    if (pwrite(store_sqlite(tx)->lock, open_mark, sizeof(open_mark) - 1, 0) !=
            (ssize_t)sizeof(open_mark) - 1 ||
        fsync(store_sqlite(tx)->lock) < 0)
        return err_errno(err, errno, "cannot write %s/lock", store_sqlite(tx)->dir);
    return 0;
}

int store_db_mark_closed(struct store_tx *tx, struct err *err)
{
    if (ftruncate(store_sqlite(tx)->lock, 0) < 0 || fsync(store_sqlite(tx)->lock) < 0)
        return err_errno(err, errno, "cannot write %s/lock", store_sqlite(tx)->dir);
    return 0;
}
