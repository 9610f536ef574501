/* Owns what belongs into a backup beside the database, and where all of it goes when it comes back.
 * orchestrator/main.c calls it for its verbs. Next: orchestrator/store_sqlite_snapshot.c for what
 * is inside the file.
 *
 * A restore is built in a directory of its own inside the state directory, so that it works where
 * that one is a mounted volume, and moved into place piece by piece, the CA last: without a CA
 * neither an orchestrator starts nor does anybody believe the rest. */
#include "orchestrator/backup.h"

#include "common/clock.h"
#include "common/file.h"
#include "common/swap_dir.h"
#include "orchestrator/store.h"
#include "orchestrator/store_tools.h"

#include <dirent.h>
#include <fcntl.h>
#include <libgen.h>
#include <openssl/crypto.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

/* The files of a state directory that travel with its database; orchestrator/ca.h says what they
 * are. The others there can be made again. */
static const struct {
    const char *name;
    bool optional;
} parts[] = {
    { "ca/ca.pem", false },     { "ca/ca-key.pem", false },   { "ca/old.pem", true },
    { "server/ca.pem", false }, { "server/cert.pem", false }, { "server/key.pem", false },
};
#define BUILDING ".restore."

static const char *const folders[] = { "server", "ca" };

static char *join(const char *dir, const char *name, struct err *err)
{
    char *path;
    if (asprintf(&path, "%s/%s", dir, name) < 0) {
        (void)err_nomem(err);
        return NULL;
    }
    return path;
}

/* What goes in. */

struct bundle {
    struct store_file files[ELEMENTS(parts)];
    unsigned count;
};

static void bundle_done(struct bundle *bundle)
{
    for (unsigned i = 0; i < bundle->count; i++)
        OPENSSL_clear_free((void *)bundle->files[i].data, bundle->files[i].size);
}
#define CLEANUP_BUNDLE CLEANUP(bundle_done)

static int add_part(struct bundle *bundle, const char *state_dir, size_t part, struct err *err)
{
    CLEANUP_FREE char *path = join(state_dir, parts[part].name, err);
    struct err why = { 0 };
    char *data = NULL;
    size_t size = 0;
    if (!path)
        return -1;
    if (file_read(path, STORE_TOOLS_FILE_MAX, &data, &size, &why) < 0) {
        if (why.code == ERR_NOT_FOUND && parts[part].optional)
            return 0;
        *err = why;
        return err_wrap(err, "the orchestrator in %s is not complete", state_dir);
    }
    bundle->files[bundle->count++] =
        (struct store_file){ .name = parts[part].name, .data = data, .size = size };
    return 0;
}

/* While it reads them nobody rotates the CA or renews the server's certificate: those hold this
 * lock, too, and for a moment only. */
static int collect(struct bundle *bundle, const char *state_dir, struct err *err)
{
    CLEANUP_FD int lock = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0 || flock(lock, LOCK_SH) < 0)
        return err_errno(err, errno, "cannot lock the state directory %s", state_dir);
    for (size_t i = 0; i < ELEMENTS(parts); i++)
        if (add_part(bundle, state_dir, i, err) < 0)
            return -1;
    return 0;
}

/* The file. */

static int exists(const char *file, struct err *err)
{
    return err_set(err, ERR_EXISTS,
                   "%s is there already; move it away or choose another name, no backup is ever "
                   "overwritten",
                   file);
}

static int sync_file(const char *path, struct err *err)
{
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return err_errno(err, errno, "cannot bring %s to disk", path);
    return 0;
}

/* Some filesystems cannot rename without replacing; there the look before has to do. */
static int rename_new(const char *from, const char *to, struct err *err)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0 ||
        (errno == EINVAL && rename(from, to) == 0))
        return 0;
    return errno == EEXIST ? exists(to, err)
                           : err_errno(err, errno, "cannot rename %s to %s", from, to);
}

static int fill(const char *state_dir, const char *temporary, const char *file, struct err *err)
{
    CLEANUP_BUNDLE struct bundle bundle = { 0 };
    if (collect(&bundle, state_dir, err) < 0 ||
        store_snapshot_make(state_dir, temporary, bundle.files, bundle.count, wall_ms(), err) < 0 ||
        sync_file(temporary, err) < 0)
        return -1;
    return rename_new(temporary, file, err);
}

/* With what SQLite may have put beside it. */
static void discard(const char *temporary)
{
    static const char *const suffixes[] = { "", "-journal", "-wal", "-shm" };
    for (size_t i = 0; i < ELEMENTS(suffixes); i++) {
        CLEANUP_FREE char *path = NULL;
        if (asprintf(&path, "%s%s", temporary, suffixes[i]) < 0)
            path = NULL;
        else
            (void)unlink(path);
    }
}

int backup_make(const char *state_dir, const char *file, struct err *err)
{
    CLEANUP_FREE char *copy = strdup(file), *temporary = NULL;
    if (!copy || asprintf(&temporary, "%s.XXXXXX", file) < 0) {
        temporary = NULL;
        return err_nomem(err);
    }
    struct stat st;
    if (lstat(file, &st) == 0)
        return exists(file, err);
    CLEANUP_FD int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot make a file beside %s", file);
    close_fd(&fd); /* before SQLite opens it: a close() would drop its locks, see fcntl(2) */
    if (fill(state_dir, temporary, file, err) < 0) {
        discard(temporary);
        return -1;
    }
    return swap_dir_sync(dirname(copy), err);
}

/* The way back. */

struct restore {
    char *dir; /* where it is built */
    bool seen[ELEMENTS(parts)];
};

/* Only names of the table: one from a file never becomes a path. */
static int write_part(void *userdata, const struct store_file *file, struct err *err)
{
    struct restore *restore = userdata;
    for (size_t i = 0; i < ELEMENTS(parts); i++) {
        if (strcmp(parts[i].name, file->name) != 0)
            continue;
        restore->seen[i] = true;
        CLEANUP_FREE char *path = join(restore->dir, parts[i].name, err);
        return path ? file_write_atomic(path, file->data, file->size, 0600, err) : -1;
    }
    return err_set(err, ERR_PRECONDITION,
                   "the backup holds a file \"%s\", which this version does not know; restore it "
                   "with the version that made it",
                   file->name);
}

struct note {
    struct store_job job;
    char detail[STORE_TEXT_MAX];
};

static int note_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    const struct note *note = CONTAINER_OF(job, struct note, job);
    const struct audit_entry entry = { "system", "store.restore", "", true, note->detail };
    return store_audit_append(tx, &entry, err);
}

/* Opens it as the orchestrator will, which brings its schema up to date, and leaves a row in the
 * audit: what came after the backup is missing from here on. */
static int note_restore(const char *dir, int64_t made_ms, struct err *err)
{
    CLEANUP_STORE struct store *store = NULL;
    struct note note = { .job = { .work = note_work, .durable = true } };
    time_t made_s = (time_t)(made_ms / 1000);
    struct tm tm = { 0 };
    if (!gmtime_r(&made_s, &tm) ||
        strftime(note.detail, sizeof(note.detail), "a backup of %F %T UTC", &tm) == 0)
        (void)snprintf(note.detail, sizeof(note.detail), "a backup of unknown time");
    if (store_open(dir, NULL, &store, err) < 0)
        return -1;
    return store_run(store, &note.job, err);
}

static int build(struct restore *restore, const char *file, int64_t *ret_made_ms, struct err *err)
{
    CLEANUP_FREE char *db = join(restore->dir, "orchestrator.db", err);
    if (!db)
        return -1;
    for (size_t i = 0; i < ELEMENTS(folders); i++) {
        CLEANUP_FREE char *path = join(restore->dir, folders[i], err);
        if (!path || file_make_dirs(path, 0700, err) < 0)
            return -1;
    }
    if (file_write_atomic(db, "", 0, 0600, err) < 0 ||
        store_snapshot_unpack(file, db, write_part, restore, ret_made_ms, err) < 0)
        return -1;
    for (size_t i = 0; i < ELEMENTS(parts); i++)
        if (!restore->seen[i] && !parts[i].optional)
            return err_set(err, ERR_PRECONDITION, "the backup %s has no %s in it; use another",
                           file, parts[i].name);
    return note_restore(restore->dir, *ret_made_ms, err);
}

/* The log of another database would be taken for this one's. */
static int check_free(const char *state_dir, struct err *err)
{
    static const char *const taken[] = {
        "ca/ca.pem",
        "ca",
        "server",
        "orchestrator.db",
        "orchestrator.db-wal",
        "orchestrator.db-shm",
        "orchestrator.db-journal",
    };
    for (size_t i = 0; i < ELEMENTS(taken); i++) {
        CLEANUP_FREE char *path = join(state_dir, taken[i], err);
        struct stat st;
        if (!path)
            return -1;
        if (lstat(path, &st) == 0 && !(S_ISDIR(st.st_mode) && rmdir(path) == 0))
            return err_set(err, ERR_PRECONDITION,
                           "%s is there, and a restore replaces nothing; stop the orchestrator, "
                           "move what is in %s away, then try again",
                           path, state_dir);
    }
    return 0;
}

static int move_in(const struct restore *restore, const char *state_dir, struct err *err)
{
    /* The CA is the last, and nothing counts before it. */
    static const char *const order[] = { "orchestrator.db", "server", "ca" };
    for (size_t i = 0; i < ELEMENTS(order); i++) {
        CLEANUP_FREE char *from = join(restore->dir, order[i], err);
        CLEANUP_FREE char *to = join(state_dir, order[i], err);
        if (!from || !to || rename_new(from, to, err) < 0 || swap_dir_sync(state_dir, err) < 0)
            return -1;
    }
    return 0;
}

/* Also what a kill has left half written; what was moved is not there any more. */
static void remove_built(const struct restore *restore)
{
    static const char *const pems[] = { "ca.pem",   "ca-key.pem", "old.pem",
                                        "cert.pem", "key.pem",    NULL };
    static const char *const rest[] = { "orchestrator.db",
                                        "orchestrator.db-journal",
                                        "orchestrator.db-wal",
                                        "orchestrator.db-shm",
                                        "lock",
                                        NULL };
    for (size_t i = 0; i < ELEMENTS(folders); i++) {
        CLEANUP_FREE char *path = join(restore->dir, folders[i], NULL);
        if (path)
            swap_dir_discard(path, pems);
    }
    swap_dir_discard(restore->dir, rest);
}

static void close_listing(DIR **listing)
{
    if (*listing)
        (void)closedir(*listing);
}

/* What restores that were killed have left: keys lie in it. We hold the lock, so nobody is at work
 * on them. */
static void remove_leftovers(const char *state_dir)
{
    CLEANUP(close_listing) DIR *listing = opendir(state_dir);
    const struct dirent *entry;
    while (listing && (entry = readdir(listing))) {
        if (strncmp(entry->d_name, BUILDING, sizeof(BUILDING) - 1) != 0)
            continue;
        CLEANUP_FREE char *path = join(state_dir, entry->d_name, NULL);
        struct restore old = { .dir = path };
        if (path)
            remove_built(&old);
    }
}

static int restore_into(const char *state_dir, const char *file, int64_t *ret_made_ms,
                        struct err *err)
{
    struct restore restore = { 0 };
    CLEANUP_FREE char *dir = join(state_dir, BUILDING "XXXXXX", err);
    if (!dir)
        return -1;
    if (!mkdtemp(dir))
        return err_errno(err, errno, "cannot make a directory in %s", state_dir);
    restore.dir = dir;
    int r = build(&restore, file, ret_made_ms, err);
    if (r == 0)
        r = move_in(&restore, state_dir, err);
    remove_built(&restore);
    return r;
}

int backup_restore(const char *state_dir, const char *file, int64_t *ret_made_ms, struct err *err)
{
    CLEANUP_FD int lock = -1;
    CLEANUP_FREE char *path = join(state_dir, "lock", err);
    if (!path || file_make_dirs(state_dir, 0755, err) < 0)
        return -1;
    /* The lock of the store: nobody begins one here meanwhile. */
    lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (lock < 0)
        return err_errno(err, errno, "cannot open %s", path);
    if (flock(lock, LOCK_EX | LOCK_NB) < 0)
        return err_set(err, ERR_PRECONDITION,
                       "an orchestrator uses %s; stop it and move its files away, or restore into "
                       "another directory",
                       state_dir);
    if (check_free(state_dir, err) < 0)
        return -1;
    /* The lock's mark says that the log of the database before is needed; that one is gone. */
    if (ftruncate(lock, 0) < 0 || fsync(lock) < 0)
        return err_errno(err, errno, "cannot write %s", path);
    remove_leftovers(state_dir);
    return restore_into(state_dir, file, ret_made_ms, err);
}
