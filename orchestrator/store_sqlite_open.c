/* Owns what has to be right before the first job: DIR/lock, the file's mode, the checks of what is
 * in it, and the migrations, which are the schema. orchestrator/store.c calls it once, and once
 * more to close. Next: orchestrator/store_sqlite_check.c.
 *
 * Nothing that is not ours is written to: a file with other contents is refused as it is. */
#include "orchestrator/store_sqlite.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define WAL_FILE       STORE_DB_FILE "-wal"
#define APPLICATION_ID 0x53537354 /* "SSsT", at byte 68 of the file */
#define MIGRATION_TEXT 64

#define STRING_(x) #x
#define STRING(x)  STRING_(x)

/* Applied in order, each in a transaction of its own; PRAGMA user_version counts them. One that was
 * released is never changed: what comes later is a new one at the end. */
static const char *const migrations[] = {
    "CREATE TABLE notes(name TEXT PRIMARY KEY, number INTEGER NOT NULL, bytes BLOB NOT NULL)"
    " STRICT, WITHOUT ROWID;"
    "INSERT INTO notes VALUES('audit_head', 0, zeroblob(32));"

    "CREATE TABLE audit(seq INTEGER PRIMARY KEY, time_ms INTEGER NOT NULL, actor TEXT NOT NULL,"
    " action TEXT NOT NULL, target TEXT NOT NULL, allowed INTEGER NOT NULL CHECK(allowed IN (0, "
    "1)),"
    " detail TEXT NOT NULL, hash BLOB NOT NULL) STRICT;"
    "CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit"
    " BEGIN SELECT RAISE(ABORT, 'audit rows are never changed'); END;"
    "CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit"
    " BEGIN SELECT RAISE(ABORT, 'audit rows are never removed'); END;"

    /* The number is the order of creation, whatever the clock did. */
    "CREATE TABLE tokens(number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, hash BLOB NOT NULL,"
    " sandbox_id TEXT NOT NULL, prefix TEXT NOT NULL, labels TEXT NOT NULL,"
    " uses_max INTEGER NOT NULL, uses INTEGER NOT NULL, created_ms INTEGER NOT NULL,"
    " expires_ms INTEGER NOT NULL, revoked_ms INTEGER NOT NULL, created_by TEXT NOT NULL) STRICT;"
    "CREATE TABLE token_uses(token_id TEXT NOT NULL REFERENCES tokens(id) ON DELETE CASCADE,"
    " key BLOB NOT NULL, sandbox_id TEXT NOT NULL, time_ms INTEGER NOT NULL,"
    " PRIMARY KEY(token_id, key)) STRICT, WITHOUT ROWID;"

    "CREATE TABLE sandboxes(id TEXT NOT NULL PRIMARY KEY, labels TEXT NOT NULL, key BLOB NOT NULL,"
    " enrolled_ms INTEGER NOT NULL, revoked_ms INTEGER NOT NULL, token_id TEXT NOT NULL) STRICT;"
    "CREATE TABLE events(number INTEGER PRIMARY KEY,"
    " sandbox_id TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE,"
    " time_ms INTEGER NOT NULL, kind TEXT NOT NULL, detail TEXT NOT NULL) STRICT;"
    "CREATE INDEX events_by_sandbox ON events(sandbox_id, number);"

    "CREATE TABLE clients(name TEXT NOT NULL PRIMARY KEY, role INTEGER NOT NULL,"
    " scope TEXT NOT NULL, has_key INTEGER NOT NULL, key BLOB NOT NULL,"
    " created_ms INTEGER NOT NULL, last_login_ms INTEGER NOT NULL, revoked_ms INTEGER NOT NULL,"
    " created_by TEXT NOT NULL, login_id TEXT NOT NULL, login_hash BLOB NOT NULL,"
    " login_expires_ms INTEGER NOT NULL) STRICT;"
    "CREATE UNIQUE INDEX clients_by_login ON clients(login_id) WHERE login_id <> '';",

    /* The fleet: what sandboxes were when they were last heard of, their commands, and the log. */
    "ALTER TABLE sandboxes ADD COLUMN draining INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sandboxes ADD COLUMN state INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sandboxes ADD COLUMN state_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sandboxes ADD COLUMN last_seen_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sandboxes ADD COLUMN info BLOB NOT NULL DEFAULT x'';"
    "ALTER TABLE sandboxes ADD COLUMN last_error TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE sandboxes ADD COLUMN last_error_ms INTEGER NOT NULL DEFAULT 0;"

    /* No reference to the sandbox: what it ran stays when it is removed. */
    "CREATE TABLE commands(number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,"
    " sandbox_id TEXT NOT NULL, ordered_by TEXT NOT NULL, labels TEXT NOT NULL,"
    " digest BLOB NOT NULL, ordered_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL,"
    " runner TEXT NOT NULL, pid INTEGER NOT NULL, ended_ms INTEGER NOT NULL,"
    " outcome BLOB NOT NULL, end_offset INTEGER NOT NULL) STRICT;"
    "CREATE INDEX commands_by_sandbox ON commands(sandbox_id, number);"
    "CREATE INDEX commands_open ON commands(sandbox_id) WHERE ended_ms = 0;"

    "CREATE TABLE logs(number INTEGER PRIMARY KEY,"
    " sandbox_id TEXT NOT NULL REFERENCES sandboxes(id) ON DELETE CASCADE,"
    " time_us INTEGER NOT NULL, level INTEGER NOT NULL, origin TEXT NOT NULL,"
    " command_id TEXT NOT NULL, message TEXT NOT NULL, fields TEXT NOT NULL) STRICT;"
    "CREATE INDEX logs_by_sandbox ON logs(sandbox_id, number);",
};

static int lock_dir(int directory, struct store_tx *tx, struct err *err)
{
    store_sqlite(tx)->lock =
        openat(directory, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, STORE_DB_MODE);
    if (store_sqlite(tx)->lock < 0)
        return err_errno(err, errno,
                         "cannot open %s/lock; see that this user may write there, and that the "
                         "filesystem is not read-only",
                         store_sqlite(tx)->dir);
    if (flock(store_sqlite(tx)->lock, LOCK_EX | LOCK_NB) == 0)
        return 0;
    if (errno == EWOULDBLOCK)
        return err_set(err, ERR_PRECONDITION,
                       "another orchestrator uses %s; stop it first, or give this one a directory "
                       "of its own",
                       store_sqlite(tx)->dir);
    return err_errno(err, errno, "cannot lock %s/lock", store_sqlite(tx)->dir);
}

/* SQLite would throw the log away, and with it perhaps everything. */
static int check_no_orphan_log(int directory, struct store_tx *tx, struct err *err)
{
    struct stat st;
    if (fstatat(directory, WAL_FILE, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT
                   ? 0
                   : err_errno(err, errno, "cannot stat %s/" WAL_FILE, store_sqlite(tx)->dir);
    return err_set(err, ERR_PRECONDITION,
                   "%s/" STORE_DB_FILE " is missing or empty, but its log " WAL_FILE
                   " is there; put the "
                   "database back from a backup, or move the log away to begin with nothing",
                   store_sqlite(tx)->dir);
}

/* SQLite gives its log and its shared memory the mode of the database, so making that one ourselves
 * is enough, whatever the umask. Closed again before SQLite opens it: a close() drops every lock
 * that this process has on the file, see fcntl(2). */
static int make_file(struct store_tx *tx, struct err *err)
{
    CLEANUP_FD int directory = open(store_sqlite(tx)->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return err_errno(err, errno, "cannot open the directory %s", store_sqlite(tx)->dir);
    CLEANUP_FD int fd =
        openat(directory, STORE_DB_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK,
               STORE_DB_MODE);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s/" STORE_DB_FILE, store_sqlite(tx)->dir);
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot stat %s/" STORE_DB_FILE, store_sqlite(tx)->dir);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_PRECONDITION,
                       "%s/" STORE_DB_FILE
                       " is not a regular file; move it away to begin with nothing",
                       store_sqlite(tx)->dir);
    tx->made = st.st_size == 0;
    if (!tx->made)
        return 0;
    if (check_no_orphan_log(directory, tx, err) < 0)
        return -1;
    if (fchmod(fd, STORE_DB_MODE) < 0)
        return err_errno(err, errno, "cannot set the mode of %s/" STORE_DB_FILE,
                         store_sqlite(tx)->dir);
    if (fsync(directory) < 0)
        return err_errno(err, errno, "cannot bring the directory %s to disk",
                         store_sqlite(tx)->dir);
    return 0;
}

void store_db_keep_log(struct store_tx *tx, bool keep)
{
    (void)sqlite3_db_config(store_sqlite(tx)->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, (int)keep,
                            NULL);
}

int store_db_connect(struct store_tx *tx, int flags, struct err *err)
{
    /* NOMUTEX: one thread at a time is what the store promises anyway. */
    int r = sqlite3_open_v2(store_sqlite(tx)->path, &store_sqlite(tx)->db,
                            flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);
    if (!store_sqlite(tx)->db)
        return err_nomem(err);
    if (r != SQLITE_OK)
        return store_sql_fail(tx, err, "cannot open the database");
    (void)sqlite3_busy_timeout(store_sqlite(tx)->db, STORE_DB_BUSY_MS);
    store_db_keep_log(tx, true);
    /* The full sync is for what happens until the first batch, the migrations. */
    store_sqlite(tx)->full_sync = true;
    return store_sql_exec(tx,
                          "PRAGMA trusted_schema = OFF; PRAGMA foreign_keys = ON;"
                          "PRAGMA synchronous = FULL",
                          "cannot set up the database", err);
}

static int read_number(struct store_tx *tx, const char *sql, int64_t *ret, struct err *err)
{
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    bool row = false;
    if (store_sql_prepare(tx, sql, "cannot read the database's header", &statement, err) < 0 ||
        store_sql_step(tx, statement, "cannot read the database's header", &row, err) < 0)
        return -1;
    *ret = row ? sqlite3_column_int64(statement, 0) : 0;
    return 0;
}

int store_db_mark(struct store_tx *tx, struct err *err)
{
    return store_sql_exec(tx, "PRAGMA application_id = " STRING(APPLICATION_ID),
                          "cannot begin the database", err);
}

int store_db_check_owner(struct store_tx *tx, struct err *err)
{
    int64_t id = 0;
    if (read_number(tx, "PRAGMA application_id", &id, err) < 0)
        return -1;
    if (id != APPLICATION_ID)
        return err_set(err, ERR_PRECONDITION,
                       "%s is not a database of the orchestrator; put its own file there, or name "
                       "the right one",
                       store_sqlite(tx)->path);
    return 0;
}

int store_db_check_version(struct store_tx *tx, int64_t *ret, struct err *err)
{
    if (read_number(tx, "PRAGMA user_version", ret, err) < 0)
        return -1;
    if (*ret < 0 || *ret > (int64_t)ELEMENTS(migrations))
        return err_set(err, ERR_PRECONDITION,
                       "%s was written by a newer version (its schema is %lld, this version knows "
                       "up to %zu); install that version again, or restore a backup made with this "
                       "one",
                       store_sqlite(tx)->path, (long long)*ret, ELEMENTS(migrations));
    return 0;
}

static int use_log(struct store_tx *tx, struct err *err)
{
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    bool row = false;
    if (store_sql_prepare(tx, "PRAGMA journal_mode = WAL", "cannot begin the log", &statement,
                          err) < 0 ||
        store_sql_step(tx, statement, "cannot begin the log", &row, err) < 0)
        return -1;
    const char *mode = row ? (const char *)sqlite3_column_text(statement, 0) : NULL;
    if (mode && strcmp(mode, "wal") == 0)
        return 0;
    return err_set(err, ERR_PRECONDITION,
                   "%s cannot hold a write-ahead log, which needs shared memory; use a local "
                   "filesystem",
                   store_sqlite(tx)->dir);
}

static int apply(struct store_tx *tx, size_t number, struct err *err)
{
    char version[MIGRATION_TEXT];
    (void)snprintf(version, sizeof(version), "PRAGMA user_version = %zu", number + 1);
    const char *const steps[] = { "BEGIN IMMEDIATE", migrations[number], version, "COMMIT" };
    for (size_t i = 0; i < ELEMENTS(steps); i++)
        if (store_sql_exec(tx, steps[i], "cannot bring the database up to date", err) < 0)
            return -1; /* closing the connection undoes what was begun */
    return 0;
}

int store_db_migrate(struct store_tx *tx, int64_t version, struct err *err)
{
    for (size_t i = (size_t)version; i < ELEMENTS(migrations); i++)
        if (apply(tx, i, err) < 0)
            return -1;
    return 0;
}

int store_db_lock(const char *dir, struct store_tx *tx, struct err *err)
{
    store_sqlite(tx)->lock = -1;
    store_sqlite(tx)->dir = strdup(dir);
    if (!store_sqlite(tx)->dir || asprintf(&store_sqlite(tx)->path, "%s/" STORE_DB_FILE, dir) < 0) {
        store_sqlite(tx)->path = NULL;
        return err_nomem(err);
    }
    CLEANUP_FD int directory = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return err_errno(err, errno, "cannot open the directory %s; make it first", dir);
    return lock_dir(directory, tx, err);
}

/* The number is the first thing that is ever written, so a file without it is not ours, not even
 * one that we had begun when the power went. */
static int own(struct store_tx *tx, struct err *err)
{
    return tx->made ? store_db_mark(tx, err) : store_db_check_owner(tx, err);
}

int store_db_open(const char *dir, struct store_tx *tx, struct err *err)
{
    int64_t version = 0;
    if (store_db_lock(dir, tx, err) < 0 || make_file(tx, err) < 0 ||
        (!tx->made && store_db_check_log(tx, err) < 0) ||
        store_db_connect(tx, SQLITE_OPEN_READWRITE, err) < 0 || own(tx, err) < 0 ||
        store_db_check_version(tx, &version, err) < 0 || store_db_check_damage(tx, err) < 0 ||
        use_log(tx, err) < 0 || store_db_migrate(tx, version, err) < 0 ||
        store_db_check_schema(tx, err) < 0 ||
        store_sqlite_audit_check_end(tx, &tx->audit_broken, err) < 0 ||
        store_db_mark_open(tx, err) < 0)
        return -1;
    store_db_keep_log(tx, false);
    store_sqlite(tx)->marked = true;
    return 0;
}

void store_db_close(struct store_tx *tx)
{
    struct store_sqlite *sqlite = store_sqlite(tx);
    for (size_t i = 0; i < ELEMENTS(sqlite->audit); i++)
        store_sql_finalize(&sqlite->audit[i]);
    /* Before the log goes: a kill between the two must not look like a loss. Where that cannot be
     * written, the log stays. */
    if (sqlite->marked && store_db_mark_closed(tx, NULL) < 0)
        store_db_keep_log(tx, true);
    /* Moves the log into the file and removes it; what fails of that is done at the next open. */
    int r = sqlite3_close(sqlite->db);
    (void)r;
    free(sqlite->path);
    free(sqlite->dir);
    close_fd(&sqlite->lock);
}
