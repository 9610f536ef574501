/* What a backup refuses to save and to restore, that it is one moment of a database that is being
 * written, and that a kill leaves none or all of it. The whole way with agents and clients is in
 * tests/integration/test_restore.c. */
#include "store_fixture.h"

#include "disk_steps.h"

#include "common/file.h"
#include "orchestrator/backup.h"
#include "orchestrator/init.h"

#include <pthread.h>

#define PATH_SIZE 128

static char saved[PATH_SIZE], target[PATH_SIZE];

static const char *in(const char *dir, const char *name)
{
    static char path[PATH_SIZE + 32];
    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void set_up(void)
{
    const struct init_config config = { .state_dir = directory, .trust_domain = "test" };
    make_directory();
    OK(init_run(&config, &err));
    (void)snprintf(saved, sizeof(saved), "%s/saved", directory);
    (void)snprintf(target, sizeof(target), "%s/target", directory);
}

/* cppcheck-suppress unknownMacro */
TestSuite(backup_file, .init = set_up, .fini = remove_directory, .timeout = 120);

static void save(void)
{
    OK(backup_make(directory, saved, &err));
}

static int restore(void)
{
    int64_t made_ms = 0;
    return backup_restore(target, saved, &made_ms, &err);
}

static void forget(const char *path)
{
    char command[PATH_SIZE + 16];
    (void)snprintf(command, sizeof(command), "rm -rf %s", path);
    cr_assert_eq(system(command), 0);
}

/* Refused with these words, and nothing was begun. */
static void expect_no_restore(const char *words)
{
    FAILS(restore(), ERR_PRECONDITION);
    cr_assert(strstr(err.text, words), "%s", err.text);
    cr_assert_neq(access(in(target, "ca"), F_OK), 0);
    cr_assert_neq(access(in(target, "orchestrator.db"), F_OK), 0);
}

static void in_saved(const char *sql)
{
    sqlite3 *db = NULL;
    cr_assert_eq(sqlite3_open(saved, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
    cr_assert_eq(sqlite3_close(db), SQLITE_OK);
}

/* Files beginning with this name in the directory. */
static unsigned count_names(const char *dir, const char *prefix)
{
    char command[2 * PATH_SIZE];
    (void)snprintf(command, sizeof(command), "ls -A %s | grep -c '^%s'", dir, prefix);
    FILE *pipe = popen(command, "re");
    unsigned count = 0;
    cr_assert_eq(fscanf(pipe, "%u", &count), 1);
    (void)pclose(pipe);
    return count;
}

Test(backup_file, says_when_it_was_made_and_gives_back_every_byte_of_the_ca)
{
    static const char *const names[] = { "ca/ca.pem", "ca/ca-key.pem", "server/ca.pem",
                                         "server/cert.pem", "server/key.pem" };
    int64_t before_ms = wall_ms(), made_ms = 0;
    save();
    OK(backup_restore(target, saved, &made_ms, &err));
    cr_assert_geq(made_ms, before_ms);
    cr_assert_leq(made_ms, wall_ms());
    for (size_t i = 0; i < ELEMENTS(names); i++) {
        CLEANUP_FREE char *was = NULL, *is = NULL;
        size_t was_size = 0, is_size = 0;
        OK(file_read(in(directory, names[i]), 65536, &was, &was_size, &err));
        OK(file_read(in(target, names[i]), 65536, &is, &is_size, &err));
        cr_assert_eq(was_size, is_size);
        cr_assert_eq(memcmp(was, is, is_size), 0, "%s", names[i]);
    }
    cr_assert_eq(count_names(target, ".restore"), 0);
    cr_assert_eq(count_names(directory, "saved"), 1);
}

/* The key would lie in the free pages. */
Test(backup_file, leaves_no_key_in_the_restored_database)
{
    CLEANUP_FREE char *key = NULL, *database = NULL;
    size_t key_size = 0, size = 0;
    save();
    OK(restore());
    OK(file_read(in(directory, "ca/ca-key.pem"), 65536, &key, &key_size, &err));
    OK(file_read(saved, 1 << 24, &database, &size, &err));
    cr_assert_not_null(memmem(database, size, key + 40, 40), "the test looks for the wrong thing");
    free(database);
    OK(file_read(in(target, "orchestrator.db"), 1 << 24, &database, &size, &err));
    cr_assert_null(memmem(database, size, key + 40, 40));
}

Test(backup_file, is_never_overwritten)
{
    save();
    FAILS(backup_make(directory, saved, &err), ERR_EXISTS);
    cr_assert_eq(unlink(saved), 0);
    cr_assert_eq(symlink("elsewhere", saved), 0);
    FAILS(backup_make(directory, saved, &err), ERR_EXISTS);
    cr_assert_eq(count_names(directory, "saved"), 1);
}

Test(backup_file, is_not_made_of_what_is_no_orchestrator)
{
    cr_assert_eq(mkdir(target, 0700), 0);
    FAILS(backup_make(target, saved, &err), ERR_NOT_FOUND);
    cr_assert_eq(rename(db_path, in(directory, "away")), 0);
    cr_assert_eq(backup_make(directory, saved, &err), -1);
    cr_assert(strstr(err.text, "there is no database"), "%s", err.text);
    OK(file_write_atomic(db_path, "", 0, 0600, &err));
    FAILS(backup_make(directory, saved, &err), ERR_PRECONDITION);
    cr_assert_eq(count_names(directory, "saved"), 0, "what was begun was removed");
}

static void fill(unsigned rows)
{
    struct store *store = open_store(NULL);
    for (unsigned i = 0; i < rows; i++)
        OK(run(store, append_audit, WORDS("detail")));
    store_free(store);
}

static void spoil(const char *path, off_t at)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char noise[4096];
    memset(noise, 0x5a, sizeof(noise));
    cr_assert_geq(fd, 0);
    cr_assert_eq(pwrite(fd, noise, sizeof(noise), at), (ssize_t)sizeof(noise));
    cr_assert_eq(close(fd), 0);
}

Test(backup_file, is_not_made_of_a_damaged_database)
{
    fill(500);
    spoil(db_path, 40960);
    FAILS(backup_make(directory, saved, &err), ERR_PRECONDITION);
    cr_assert(strstr(err.text, "damaged"), "%s", err.text);
    cr_assert_eq(count_names(directory, "saved"), 0);
}

Test(backup_file, is_not_restored_when_it_is_something_else)
{
    OK(file_write_atomic(saved, "dear diary", 10, 0600, &err));
    expect_no_restore("is not a backup");
    OK(file_write_atomic(saved, "", 0, 0600, &err));
    expect_no_restore("is not a backup");
    in_saved("CREATE TABLE diary(day)");
    expect_no_restore("is not a backup");
    cr_assert_eq(unlink(saved), 0);
    cr_assert_eq(rename(db_path, saved), 0);
    expect_no_restore("is not a backup");
    cr_assert_eq(unlink(saved), 0);
    cr_assert_eq(restore(), -1);
    cr_assert(strstr(err.text, "cannot read the backup"), "%s", err.text);
}

Test(backup_file, is_not_restored_when_it_is_of_a_newer_version)
{
    save();
    in_saved("PRAGMA user_version = 99");
    expect_no_restore("newer version");
}

Test(backup_file, is_not_restored_when_it_is_cut_or_spoilt)
{
    fill(500);
    save();
    struct stat st;
    cr_assert_eq(stat(saved, &st), 0);
    spoil(saved, 40960);
    expect_no_restore("is damaged");
    cr_assert_eq(truncate(saved, st.st_size / 2), 0);
    expect_no_restore("is damaged");
}

Test(backup_file, is_not_restored_with_files_of_other_names)
{
    static const char *const names[] = { "ca/../../escape", "/tmp/escape", "ca/other.pem", "" };
    save();
    for (size_t i = 0; i < ELEMENTS(names); i++) {
        char sql[PATH_SIZE];
        (void)snprintf(sql, sizeof(sql), "INSERT INTO backup_files VALUES('%s', x'00')", names[i]);
        in_saved(sql);
        expect_no_restore("which this version does not know");
        (void)snprintf(sql, sizeof(sql), "DELETE FROM backup_files WHERE name = '%s'", names[i]);
        in_saved(sql);
    }
    in_saved("DELETE FROM backup_files WHERE name = 'ca/ca-key.pem'");
    expect_no_restore("has no ca/ca-key.pem in it");
}

Test(backup_file, is_not_restored_where_something_is)
{
    static const char *const names[] = { "orchestrator.db", "orchestrator.db-wal", "ca", "server" };
    save();
    cr_assert_eq(mkdir(target, 0700), 0);
    for (size_t i = 0; i < ELEMENTS(names); i++) {
        OK(file_write_atomic(in(target, names[i]), "mine", 4, 0600, &err));
        FAILS(restore(), ERR_PRECONDITION);
        cr_assert(strstr(err.text, names[i]), "%s", err.text);
        cr_assert_eq(unlink(in(target, names[i])), 0);
    }
    OK(restore());
}

/* Every backup that is made while rows are written is one moment: its chain is whole. */

static atomic_bool stop_writing;

static void *write_rows(void *userdata)
{
    struct store *store = userdata;
    struct body_job job = { .job = { .work = run_body },
                            .body = append_audit,
                            .userdata = WORDS("meanwhile") };
    while (!atomic_load(&stop_writing))
        if (store_run(store, &job.job, NULL) < 0)
            return userdata;
    return NULL;
}

Test(backup_file, is_one_moment_of_a_database_that_is_being_written)
{
    struct store *store = open_store(NULL);
    pthread_t writer;
    cr_assert_eq(pthread_create(&writer, NULL, write_rows, store), 0);
    for (unsigned i = 0; i < 20; i++) {
        save();
        OK(restore());
        struct store *restored = NULL;
        OK(store_open(target, NULL, &restored, &err));
        cr_assert_not(store_audit_broken(restored));
        store_free(restored);
        forget(saved);
        forget(target);
    }
    atomic_store(&stop_writing, true);
    void *failed = store;
    cr_assert_eq(pthread_join(writer, &failed), 0);
    cr_assert_null(failed, "a write was refused while a backup was made");
    store_free(store);
}

/* A kill before each step. */

static void save_quietly(void)
{
    if (backup_make(directory, saved, NULL) < 0)
        _exit(1);
}

static void restore_quietly(void)
{
    int64_t made_ms = 0;
    if (backup_restore(target, saved, &made_ms, NULL) < 0)
        _exit(1);
}

Test(backup_file, is_there_whole_or_not_at_all)
{
    bool killed = true;
    for (unsigned n = 1; killed; n++) {
        killed = run_and_kill(save_quietly, n);
        if (access(saved, F_OK) == 0) {
            OK(restore());
            forget(saved);
            forget(target);
        } else {
            cr_assert(killed);
        }
    }
}

Test(backup_file, that_was_being_restored_leaves_no_ca_without_the_rest)
{
    bool killed = true;
    save();
    for (unsigned n = 1; killed; n++) {
        killed = run_and_kill(restore_quietly, n);
        if (access(in(target, "ca"), F_OK) == 0) {
            struct store *restored = NULL;
            OK(store_open(target, NULL, &restored, &err));
            cr_assert_not(store_is_new(restored));
            store_free(restored);
            cr_assert_eq(access(in(target, "server/key.pem"), F_OK), 0);
        } else {
            cr_assert(killed);
            /* Whatever has not begun to count is tidied up by the next one. */
            if (access(in(target, "orchestrator.db"), F_OK) < 0) {
                OK(restore());
                cr_assert_eq(count_names(target, ".restore"), 0, "step %u", n);
            }
        }
        forget(target);
    }
}
