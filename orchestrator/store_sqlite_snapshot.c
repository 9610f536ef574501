/* Owns the form of a snapshot: the database itself, copied page by page inside one read
 * transaction, plus a table with the files that travel with it and a note of the time.
 * orchestrator/backup.c calls it. Next: orchestrator/store_sqlite_open.c for the checks,
 * libsqlite3.
 *
 * The copy is a database like any other, so whoever has lost this program can still read it. */
#include "orchestrator/store_sqlite.h"
#include "orchestrator/store_tools.h"

#include <stdio.h>
#include <string.h>

#define ADD_FILES_TABLE                                                                            \
    "CREATE TABLE backup_files(name TEXT NOT NULL PRIMARY KEY, data BLOB NOT NULL)"                \
    " STRICT, WITHOUT ROWID"

static int copy_name(struct store_tx *tx, const char *path, struct err *err)
{
    store_sqlite(tx)->path = strdup(path);
    return store_sqlite(tx)->path ? 0 : err_nomem(err);
}

/* In one step: a second one would have to begin again whenever somebody wrote between the two. */
static int copy_pages(struct store_tx *from, struct store_tx *to, struct err *err)
{
    static const char what[] = "cannot copy the database";
    sqlite3_backup *backup =
        sqlite3_backup_init(store_sqlite(to)->db, "main", store_sqlite(from)->db, "main");
    if (!backup)
        return store_sql_fail(to, err, what);
    int r = sqlite3_backup_step(backup, -1);
    int finished = sqlite3_backup_finish(backup);
    if (r == SQLITE_DONE && finished == SQLITE_OK)
        return 0;
    /* SQLite leaves every fault with the copy's connection. These can only be the source's: the
     * copy is new, and nobody else has it. */
    int code = r & 0xff;
    if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_BUSY)
        return err_set(err, ERR_PRECONDITION, "%s: SQLite says \"%s\" about %s", what,
                       sqlite3_errstr(r), store_sqlite(from)->path);
    return store_sql_fail(to, err, what);
}

/* A copy is whole without a log beside it. */
static int leave_log(struct store_tx *tx, struct err *err)
{
    return store_sql_exec(tx, "PRAGMA journal_mode = DELETE", "cannot finish the copy", err);
}

static int add_file(struct store_tx *tx, const struct store_file *file, struct err *err)
{
    static const char what[] = "cannot add a file to the backup";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx, "INSERT INTO backup_files VALUES(?1, ?2)", what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, file->name);
    store_bind_blob(statement, 2, file->data, file->size);
    return store_sql_run(tx, statement, what, err);
}

static int note_time(struct store_tx *tx, int64_t now_ms, struct err *err)
{
    static const char what[] = "cannot note the time in the backup";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx, "INSERT INTO notes VALUES('backup_ms', ?1, x'')", what, &statement,
                          err) < 0)
        return -1;
    store_bind_int(statement, 1, now_ms);
    return store_sql_run(tx, statement, what, err);
}

static int add_files(struct store_tx *tx, const struct store_file *files, unsigned count,
                     int64_t now_ms, struct err *err)
{
    static const char what[] = "cannot finish the backup";
    if (store_sql_exec(tx, "BEGIN IMMEDIATE", what, err) < 0 ||
        store_sql_exec(tx, ADD_FILES_TABLE, what, err) < 0 || note_time(tx, now_ms, err) < 0)
        return -1;
    for (unsigned i = 0; i < count; i++)
        if (add_file(tx, &files[i], err) < 0)
            return -1;
    return store_sql_exec(tx, "COMMIT", what, err);
}

static int open_source(const char *dir, struct store_tx *tx, struct err *err)
{
    CLEANUP_FREE char *path = NULL;
    if (asprintf(&path, "%s/" STORE_DB_FILE, dir) < 0) {
        path = NULL;
        return err_nomem(err);
    }
    if (copy_name(tx, path, err) < 0)
        return -1;
    if (access(path, F_OK) < 0)
        return err_errno(err, errno, "there is no database of an orchestrator to back up at %s",
                         path);
    return store_db_connect(tx, SQLITE_OPEN_READWRITE, err);
}

static int take_copy(const char *dir, struct store_tx *to, struct err *err)
{
    CLEANUP_SQLITE struct store_sqlite from = STORE_SQLITE_NONE;
    int64_t version = 0;
    if (open_source(dir, &from.tx, err) < 0 || store_db_check_owner(&from.tx, err) < 0 ||
        store_db_check_version(&from.tx, &version, err) < 0)
        return -1;
    if (version == 0)
        return err_set(err, ERR_PRECONDITION, "%s has nothing in it yet; start the orchestrator",
                       from.path);
    return copy_pages(&from.tx, to, err);
}

int store_snapshot_make(const char *dir, const char *path, const struct store_file *files,
                        unsigned count, int64_t now_ms, struct err *err)
{
    CLEANUP_SQLITE struct store_sqlite to = STORE_SQLITE_NONE;
    if (copy_name(&to.tx, path, err) < 0 ||
        store_db_connect(&to.tx, SQLITE_OPEN_READWRITE, err) < 0 || take_copy(dir, &to.tx, err) < 0)
        return -1;
    /* Of the copy, so that nobody is held up by it. */
    char found[STORE_TEXT_MAX];
    if (store_db_find_damage(&to.tx, found, err) < 0)
        return -1;
    if (*found)
        return err_set(err, ERR_PRECONDITION,
                       "%s/" STORE_DB_FILE " is damaged (%s); " STORE_DAMAGED_ADVICE, dir, found);
    if (leave_log(&to.tx, err) < 0)
        return -1;
    return add_files(&to.tx, files, count, now_ms, err);
}

/* The way back. */

static int no_backup(const char *path, struct err *err)
{
    return err_set(
        err, ERR_PRECONDITION,
        "%s is not a backup of an orchestrator; name a file that 'sandstorm-orchestrator "
        "backup' made",
        path);
}

static int unusable(const char *path, const char *why, struct err *err)
{
    return err_set(err, ERR_PRECONDITION, "the backup %s is damaged (%s); use another one", path,
                   why);
}

/* A table of that name that is not ours fails when it is read. */
static int check_is_snapshot(struct store_tx *tx, struct err *err)
{
    static const char what[] = "cannot read the backup";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    bool row = false;
    int64_t version = 0;
    struct err why = { 0 };
    if (store_db_check_owner(tx, &why) < 0)
        return no_backup(store_sqlite(tx)->path, err);
    if (store_db_check_version(tx, &version, err) < 0)
        return -1;
    if (store_sql_prepare(tx,
                          "SELECT 1 FROM sqlite_schema WHERE name = 'backup_files' AND type ="
                          " 'table'",
                          what, &statement, err) < 0 ||
        store_sql_step(tx, statement, what, &row, err) < 0)
        return -1;
    return row ? 0 : no_backup(store_sqlite(tx)->path, err);
}

static int read_time(struct store_tx *tx, int64_t *ret, struct err *err)
{
    static const char what[] = "cannot read when the backup was made";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    bool row = false;
    if (store_sql_prepare(tx, "SELECT number FROM notes WHERE name = 'backup_ms'", what, &statement,
                          err) < 0 ||
        store_sql_step(tx, statement, what, &row, err) < 0)
        return -1;
    if (!row)
        return no_backup(store_sqlite(tx)->path, err);
    *ret = sqlite3_column_int64(statement, 0);
    return 0;
}

static int show_files(struct store_tx *tx,
                      int (*each)(void *userdata, const struct store_file *file, struct err *err),
                      void *userdata, struct err *err)
{
    static const char what[] = "cannot read the files in the backup";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx, "SELECT name, data FROM backup_files ORDER BY name", what, &statement,
                          err) < 0)
        return -1;
    for (unsigned count = 0;; count++) {
        bool row = false;
        char name[STORE_TEXT_MAX];
        if (store_sql_step(tx, statement, what, &row, err) < 0)
            return -1;
        if (!row)
            return 0;
        const struct store_file file = {
            .name = name,
            .data = sqlite3_column_blob(statement, 1),
            .size = (size_t)sqlite3_column_bytes(statement, 1),
        };
        if (count == STORE_TOOLS_FILES_MAX || file.size > STORE_TOOLS_FILE_MAX ||
            !store_column_text(statement, 0, name, sizeof(name)))
            return no_backup(store_sqlite(tx)->path, err);
        if (each(userdata, &file, err) < 0)
            return -1;
    }
}

/* Rewrites the file afterwards: what was in the table, keys among it, would still lie in its free
 * pages. */
static int drop_files(struct store_tx *tx, struct err *err)
{
    return store_sql_exec(tx,
                          "BEGIN IMMEDIATE; DROP TABLE backup_files;"
                          "DELETE FROM notes WHERE name = 'backup_ms'; COMMIT; VACUUM",
                          "cannot make a database of the backup", err);
}

static int read_snapshot(const char *path, struct store_tx *to, struct err *err)
{
    CLEANUP_SQLITE struct store_sqlite from = STORE_SQLITE_NONE;
    if (copy_name(&from.tx, path, err) < 0)
        return -1;
    if (access(path, R_OK) < 0)
        return err_errno(err, errno, "cannot read the backup %s", path);
    if (store_db_connect(&from.tx, SQLITE_OPEN_READONLY, err) < 0)
        return from.db && sqlite3_errcode(from.db) == SQLITE_NOTADB
                   ? no_backup(path, err)
                   : unusable(path, sqlite3_errmsg(from.db), err);
    if (check_is_snapshot(&from.tx, err) < 0)
        return -1;
    char found[STORE_TEXT_MAX];
    struct err why = { 0 };
    if (store_db_find_damage(&from.tx, found, &why) < 0)
        return unusable(path, sqlite3_errmsg(from.db), err);
    if (*found)
        return unusable(path, found, err);
    return copy_pages(&from.tx, to, err);
}

int store_snapshot_unpack(const char *path, const char *to,
                          int (*each)(void *userdata, const struct store_file *file,
                                      struct err *err),
                          void *userdata, int64_t *ret_made_ms, struct err *err)
{
    CLEANUP_SQLITE struct store_sqlite tx = STORE_SQLITE_NONE;
    if (copy_name(&tx.tx, to, err) < 0 ||
        store_db_connect(&tx.tx, SQLITE_OPEN_READWRITE, err) < 0 ||
        read_snapshot(path, &tx.tx, err) < 0 || read_time(&tx.tx, ret_made_ms, err) < 0 ||
        show_files(&tx.tx, each, userdata, err) < 0)
        return -1;
    return drop_files(&tx.tx, err);
}
