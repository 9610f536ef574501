/* Owns the way from a damaged database to a new one with what could still be read.
 * orchestrator/main.c calls it for its verb. Next: orchestrator/store_sqlite_salvage.c for the rows
 * of a table, orchestrator/store_sqlite_open.c for the tables themselves.
 *
 * The new one is built under a name of its own and gets its last name but one, REPAIRED, when it is
 * whole and on disk. From then on the repair is decided: a next one goes on with moving the files,
 * whichever of the three moves this one came to. The log has to move before the new database gets
 * its name, because SQLite would take it for that one's. */
#include "orchestrator/store_sqlite_salvage.h"

#include "common/swap_dir.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define BUILDING   STORE_DB_FILE ".repairing"
#define REPAIRED   STORE_DB_FILE ".repaired"
#define TABLES_MAX 64u

struct repair {
    const char *dir;
    bool log_lost;
    struct store_sqlite old, new;
    void (*each)(void *userdata, const struct store_salvage *salvage);
    void *userdata;
};

static int set_path(struct store_tx *tx, const char *dir, const char *name, struct err *err)
{
    if (asprintf(&store_sqlite(tx)->path, "%s/%s", dir, name) >= 0)
        return 0;
    store_sqlite(tx)->path = NULL;
    return err_nomem(err);
}

static bool is_there(const char *dir, const char *name)
{
    char path[4096];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return lstat(path, &st) == 0;
}

/* The new database. */

static int begin_new(struct repair *repair, struct err *err)
{
    struct store_tx *tx = &repair->new.tx;
    if (set_path(tx, repair->dir, BUILDING, err) < 0)
        return -1;
    (void)unlink(store_sqlite(tx)->path); /* of a repair that was killed */
    CLEANUP_FD int fd = open(store_sqlite(tx)->path,
                             O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, STORE_DB_MODE);
    if (fd < 0 || fchmod(fd, STORE_DB_MODE) < 0)
        return err_errno(err, errno, "cannot make %s", store_sqlite(tx)->path);
    close_fd(&fd); /* before SQLite opens it, see fcntl(2) */
    if (store_db_connect(tx, SQLITE_OPEN_READWRITE, err) < 0 || store_db_mark(tx, err) < 0 ||
        store_db_migrate(tx, 0, err) < 0)
        return -1;
    /* The migrations' own row is replaced by the old one. */
    return store_sql_exec(tx, "BEGIN IMMEDIATE; DELETE FROM notes", "cannot begin to repair", err);
}

/* In the order in which they were made: an owner comes before what belongs to it. */
static int list_tables(struct store_tx *tx, char names[TABLES_MAX][STORE_ACTOR_MAX],
                       unsigned *ret_count, struct err *err)
{
    static const char what[] = "cannot list the tables";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx,
                          "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE"
                          " 'sqlite!_%' ESCAPE '!' ORDER BY rowid",
                          what, &statement, err) < 0)
        return -1;
    unsigned count = 0;
    for (bool row = false;; count++) {
        if (store_sql_step(tx, statement, what, &row, err) < 0)
            return -1;
        if (!row)
            break;
        if (count == TABLES_MAX || !store_column_text(statement, 0, names[count], STORE_ACTOR_MAX))
            return err_set(err, ERR_INTERNAL, "there are too many tables to repair");
    }
    *ret_count = count;
    return 0;
}

/* Without these an orchestrator would know nobody, and nobody would be told. */
static int check_essential(const struct repair *repair, const struct store_salvage *salvage,
                           struct err *err)
{
    bool clients = strcmp(salvage->table, "clients") == 0;
    bool lost = salvage->copied == 0 && (clients || salvage->cut_short || salvage->missing > 0);
    if (!lost || (!clients && strcmp(salvage->table, "sandboxes") != 0))
        return 0;
    return err_set(
        err, ERR_PRECONDITION,
        "not one row of the table %s can be read, so nothing was changed; bring back a "
        "backup with 'sandstorm-orchestrator restore FILE', or keep a copy of %s and let "
        "somebody who knows SQLite look at it",
        salvage->table, repair->old.path);
}

static int copy_tables(struct repair *repair, struct err *err)
{
    char names[TABLES_MAX][STORE_ACTOR_MAX];
    unsigned count = 0;
    int r = 0;
    if (list_tables(&repair->new.tx, names, &count, err) < 0)
        return -1;
    for (unsigned i = 0; i < count; i++) {
        struct store_salvage salvage;
        if (store_salvage_table(&repair->old.tx, &repair->new.tx, names[i], &salvage, err) < 0)
            return -1;
        repair->each(repair->userdata, &salvage);
        /* The others are shown all the same; the first reason is the one to tell. */
        if (check_essential(repair, &salvage, r < 0 ? NULL : err) < 0)
            r = -1;
    }
    return r;
}

/* The audit goes on from the row that the notes name as the last, also when that one is lost: the
 * hole has to be seen. Only where the note itself is lost, the last row has to do. */
static int finish_audit(struct repair *repair, struct err *err)
{
    const struct audit_entry entry = { "system", "store.repair", "", true,
                                       "rows that could not be read any more are missing" };
    if (store_sql_exec(&repair->new.tx,
                       "INSERT OR IGNORE INTO notes SELECT 'audit_head', coalesce(max(seq), 0),"
                       " coalesce((SELECT hash FROM audit ORDER BY seq DESC LIMIT 1),"
                       " zeroblob(32)) FROM audit",
                       "cannot note where the audit ends", err) < 0 ||
        store_audit_append(&repair->new.tx, &entry, err) < 0)
        return -1;
    return store_sql_exec(&repair->new.tx, "COMMIT", "cannot save what was repaired", err);
}

static int check_new(struct repair *repair, struct err *err)
{
    char found[STORE_TEXT_MAX];
    if (store_db_find_damage(&repair->new.tx, found, err) < 0)
        return -1;
    if (*found)
        return err_set(err, ERR_INTERNAL,
                       "the new database is damaged as well (%s), so nothing was changed; look at "
                       "the disk",
                       found);
    return 0;
}

/* Moving. */

static int move(const char *dir, const char *from, const char *to, struct err *err)
{
    CLEANUP_FREE char *old = NULL, *new = NULL;
    if (asprintf(&old, "%s/%s", dir, from) < 0) {
        old = NULL;
        return err_nomem(err);
    }
    if (asprintf(&new, "%s/%s", dir, to) < 0) {
        new = NULL;
        return err_nomem(err);
    }
    if (rename(old, new) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot rename %s to %s; run the repair again", old, to);
    return swap_dir_sync(dir, err);
}

/* By the time at which the new one was finished, so that a repair that goes on where another was
 * killed finds the same name. */
static int name_kept(const char *dir, char ret[STORE_KEPT_MAX], struct err *err)
{
    char stamp[32], path[4096];
    struct stat st;
    struct tm tm;
    (void)snprintf(path, sizeof(path), "%s/" REPAIRED, dir);
    if (stat(path, &st) < 0 || !gmtime_r(&st.st_mtim.tv_sec, &tm))
        return err_errno(err, errno, "cannot stat %s", path);
    (void)strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ", &tm);
    (void)snprintf(ret, STORE_KEPT_MAX, STORE_DB_FILE ".damaged-%s", stamp);
    if (is_there(dir, ret) && is_there(dir, STORE_DB_FILE))
        return err_set(err, ERR_EXISTS,
                       "%s/%s is there already; move it away and run the repair again", dir, ret);
    return 0;
}

static int swap_in(struct store_tx *lock, char ret_kept[STORE_KEPT_MAX], struct err *err)
{
    const char *dir = store_sqlite(lock)->dir;
    char log[STORE_KEPT_MAX + 8];
    if (name_kept(dir, ret_kept, err) < 0)
        return -1;
    (void)snprintf(log, sizeof(log), "%s-wal", ret_kept);
    if (move(dir, STORE_DB_FILE, ret_kept, err) < 0 ||
        move(dir, STORE_DB_FILE "-wal", log, err) < 0)
        return -1;
    /* Shared memory, of no use to anybody: it is made again from the log. */
    CLEANUP_FREE char *memory = NULL;
    if (asprintf(&memory, "%s/" STORE_DB_FILE "-shm", dir) < 0) {
        memory = NULL;
        return err_nomem(err);
    }
    (void)unlink(memory);
    if (store_db_mark_closed(lock, err) < 0) /* the new one needs no log */
        return -1;
    return move(dir, REPAIRED, STORE_DB_FILE, err);
}

static int sync_path(const char *path, struct err *err)
{
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return err_errno(err, errno, "cannot bring %s to disk", path);
    return 0;
}

/* Life. */

static void repair_done(struct repair *repair)
{
    store_db_close(&repair->new.tx);
    store_db_close(&repair->old.tx);
}
#define CLEANUP_REPAIR CLEANUP(repair_done)

static int build(struct repair *repair, struct err *err)
{
    if (begin_new(repair, err) == 0 && copy_tables(repair, err) == 0 &&
        finish_audit(repair, err) == 0 && check_new(repair, err) == 0 &&
        sync_path(repair->new.path, err) == 0)
        return 0;
    if (repair->new.path)
        (void)unlink(repair->new.path);
    return -1;
}

/* Both databases are closed again before a file is moved. */
static int rebuild(struct repair *repair, bool *ret_needed, struct err *err)
{
    struct store_tx *old = &repair->old.tx;
    char found[STORE_TEXT_MAX] = "";
    int64_t version = 0;
    struct err broken_off;
    if (set_path(old, repair->dir, STORE_DB_FILE, err) < 0)
        return -1;
    if (!is_there(repair->dir, STORE_DB_FILE))
        return err_set(err, ERR_NOT_FOUND,
                       "there is no %s; bring back a backup with 'sandstorm-orchestrator restore "
                       "FILE'",
                       store_sqlite(old)->path);
    if (store_db_connect(old, SQLITE_OPEN_READWRITE, err) < 0 ||
        store_db_check_owner(old, err) < 0 || store_db_check_version(old, &version, err) < 0)
        return err_wrap(err, "nothing was changed");
    /* A check that breaks off has found something, too. */
    *ret_needed = repair->log_lost || store_db_find_damage(old, found, &broken_off) < 0 || *found;
    return *ret_needed ? build(repair, err) : 0;
}

static int rebuild_and_close(const char *dir, bool log_lost,
                             void (*each)(void *userdata, const struct store_salvage *salvage),
                             void *userdata, bool *ret_needed, struct err *err)
{
    CLEANUP_REPAIR struct repair repair = {
        .dir = dir,
        .log_lost = log_lost,
        .old = STORE_SQLITE_NONE,
        .new = STORE_SQLITE_NONE,
        .each = each,
        .userdata = userdata,
    };
    return rebuild(&repair, ret_needed, err);
}

int store_repair(const char *dir, void (*each)(void *userdata, const struct store_salvage *salvage),
                 void *userdata, bool *ret_needed, char ret_kept[STORE_KEPT_MAX], struct err *err)
{
    CLEANUP_SQLITE struct store_sqlite lock = STORE_SQLITE_NONE;
    if (store_db_lock(dir, &lock.tx, err) < 0)
        return -1;
    *ret_needed = true;
    if (!is_there(dir, REPAIRED)) {
        bool log_lost = false;
        if (store_db_log_lost(&lock.tx, &log_lost, err) < 0 ||
            rebuild_and_close(dir, log_lost, each, userdata, ret_needed, err) < 0)
            return -1;
        if (!*ret_needed)
            return 0;
        if (move(dir, BUILDING, REPAIRED, err) < 0)
            return -1;
    }
    return swap_in(&lock.tx, ret_kept, err);
}
