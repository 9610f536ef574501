/* Opening the store: one process at a time, a private file, and no harm to a file that is not what
 * it should be. */
#include "store_fixture.h"

#include "common/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* cppcheck-suppress unknownMacro */
TestSuite(store_open, .init = make_directory, .fini = remove_directory, .timeout = 60);

static void put(const char *path, const void *data, size_t size)
{
    cr_assert_eq(file_write_atomic(path, data, size, 0600, &err), 0, "%s", err.text);
}

/* Refused with these words, and every byte as it was. */
static void expect_refused(const char *words)
{
    CLEANUP_FREE char *before = NULL, *after = NULL;
    size_t before_size = 0, after_size = 0;
    OK(file_read(db_path, 1 << 24, &before, &before_size, &err));
    struct store *store = NULL;
    FAILS(store_open(directory, NULL, &store, &err), ERR_PRECONDITION);
    cr_assert(strstr(err.text, words), "%s", err.text);
    cr_assert(strstr(err.text, directory), "%s", err.text);
    cr_assert_null(store);
    struct err kept = err;
    OK(file_read(db_path, 1 << 24, &after, &after_size, &err));
    cr_assert_eq(before_size, after_size);
    cr_assert_eq(memcmp(before, after, after_size), 0, "the file was changed");
    err = kept;
}

static void fill(unsigned rows)
{
    struct store *store = open_store(NULL);
    for (unsigned i = 0; i < rows; i++)
        OK(run(store, append_audit, WORDS("detail")));
    store_free(store);
}

Test(store_open, a_new_store_says_so_and_an_old_one_keeps_what_it_has)
{
    struct store *store = open_store(NULL);
    cr_assert(store_is_new(store));
    cr_assert_not(store_audit_broken(store));
    OK(run(store, append_audit, WORDS("detail")));
    store_free(store);
    store = open_store(NULL);
    cr_assert_not(store_is_new(store));
    cr_assert_not(store_audit_broken(store));
    store_free(store);
    cr_assert_eq(raw("SELECT count(*) FROM audit"), 1);
    cr_assert_geq(raw("PRAGMA user_version"), 2);
}

Test(store_open, a_second_process_is_refused_with_words_until_the_first_ends)
{
    struct store *store = open_store(NULL);
    int pipes[2];
    cr_assert_eq(pipe2(pipes, O_CLOEXEC), 0);
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        struct store *second = NULL;
        struct err told = { 0 };
        if (store_open(directory, NULL, &second, &told) == 0)
            told.code = ERR_NONE;
        _exit(write(pipes[1], &told, sizeof(told)) == (ssize_t)sizeof(told) ? 0 : 1);
    }
    struct err told = { 0 };
    cr_assert_eq(read(pipes[0], &told, sizeof(told)), (ssize_t)sizeof(told));
    cr_assert_eq(waitpid(child, NULL, 0), child);
    cr_assert_eq(told.code, ERR_PRECONDITION, "%s", told.text);
    cr_assert(strstr(told.text, "another orchestrator uses"), "%s", told.text);
    cr_assert(strstr(told.text, directory));
    store_free(store);
    store_free(open_store(NULL));
}

Test(store_open, files_are_private_whatever_the_umask)
{
    const mode_t masks[] = { 0, 0022, 0777 };
    const char *const names[] = { "orchestrator.db", "orchestrator.db-wal", "orchestrator.db-shm" };
    for (size_t i = 0; i < ELEMENTS(masks); i++) {
        mode_t old = umask(masks[i]);
        struct store *store = open_store(NULL);
        OK(run(store, append_audit, WORDS("detail")));
        (void)umask(old);
        for (size_t j = 0; j < ELEMENTS(names); j++) {
            char path[96];
            struct stat st;
            (void)snprintf(path, sizeof(path), "%s/%s", directory, names[j]);
            cr_assert_eq(stat(path, &st), 0, "%s", path);
            cr_assert_eq(st.st_mode & 07777, 0600, "%s: %o", path, st.st_mode);
        }
        store_free(store);
        cr_assert_eq(unlink(db_path), 0);
    }
}

Test(store_open, an_empty_file_is_a_new_database)
{
    put(db_path, "", 0);
    struct store *store = open_store(NULL);
    cr_assert(store_is_new(store));
    store_free(store);
}

/* As a power cut between the first two writes leaves it. */
Test(store_open, a_database_that_was_only_begun_is_finished)
{
    cr_assert_eq(raw("PRAGMA application_id = 0x53537354"), -1);
    fill(1);
    cr_assert_eq(raw("SELECT count(*) FROM audit"), 1);
}

Test(store_open, an_empty_file_beside_a_log_is_a_loss_and_no_new_database)
{
    char log[96];
    (void)snprintf(log, sizeof(log), "%s-wal", db_path);
    put(db_path, "", 0);
    put(log, "what was written", 16);
    expect_refused("log");
    cr_assert_eq(access(log, F_OK), 0, "the log is still there");
}

Test(store_open, a_file_that_is_no_database_is_refused_and_kept)
{
    static const char text[] = "dear diary, ";
    for (unsigned size = 1; size < 20000; size = size * 7 + 1) {
        char data[20000];
        for (unsigned i = 0; i < size; i++)
            data[i] = text[i % (sizeof(text) - 1)];
        put(db_path, data, size);
        expect_refused("not a database");
    }
}

Test(store_open, a_database_of_another_program_is_refused_and_kept)
{
    cr_assert_eq(raw("CREATE TABLE diary(day); INSERT INTO diary VALUES(7)"), -1);
    expect_refused("not a database of the orchestrator");
    cr_assert_eq(raw("SELECT day FROM diary"), 7);
}

Test(store_open, a_database_of_a_newer_version_is_refused_and_kept)
{
    fill(3);
    char back[64];
    (void)snprintf(back, sizeof(back), "PRAGMA user_version = %d", (int)raw("PRAGMA user_version"));
    cr_assert_eq(raw("PRAGMA user_version = 99"), -1);
    expect_refused("newer version");
    cr_assert_eq(raw(back), -1);
    store_free(open_store(NULL));
}

Test(store_open, a_damaged_database_is_refused_and_kept)
{
    fill(2000);
    struct stat st;
    cr_assert_eq(stat(db_path, &st), 0);
    cr_assert_gt(st.st_size, 100000);
    int fd = open(db_path, O_RDWR | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    char noise[4096];
    memset(noise, 0x5a, sizeof(noise));
    for (off_t at = 40960; at < 81920; at += (off_t)sizeof(noise))
        cr_assert_eq(pwrite(fd, noise, sizeof(noise), at), (ssize_t)sizeof(noise));
    cr_assert_eq(close(fd), 0);
    expect_refused("damaged");
    cr_assert(strstr(err.text, "backup"), "%s", err.text);
}

Test(store_open, a_truncated_database_is_refused_and_kept)
{
    fill(2000);
    cr_assert_eq(truncate(db_path, 8192), 0);
    expect_refused("damaged");
}

Test(store_open, what_is_no_file_and_no_directory_is_refused)
{
    struct store *store = NULL;
    cr_assert_eq(symlink("/tmp/no-such-store", db_path), 0);
    FAILS(store_open(directory, NULL, &store, &err), ERR_SYSTEM);
    cr_assert_eq(err.sys_errno, ELOOP);
    cr_assert_eq(unlink(db_path), 0);
    cr_assert_eq(mkfifo(db_path, 0600), 0);
    FAILS(store_open(directory, NULL, &store, &err), ERR_PRECONDITION);
    char missing[96];
    (void)snprintf(missing, sizeof(missing), "%s/none", directory);
    FAILS(store_open(missing, NULL, &store, &err), ERR_SYSTEM);
    cr_assert_null(store);
}

Test(store_open, the_file_survives_beside_a_reader)
{
    struct store *store = open_store(NULL);
    OK(run(store, append_audit, WORDS("one")));
    sqlite3 *reader = NULL;
    cr_assert_eq(sqlite3_open(db_path, &reader), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(reader, "BEGIN; SELECT * FROM audit", NULL, NULL, NULL), SQLITE_OK);
    OK(run(store, append_audit, WORDS("two")));
    cr_assert_eq(raw("SELECT count(*) FROM audit"), 2);
    store_free(store);
    cr_assert_eq(sqlite3_close(reader), SQLITE_OK);
    store_free(open_store(NULL));
    cr_assert_eq(raw("SELECT count(*) FROM audit"), 2);
}

/* What only the log holds. */

static void write_and_die(void)
{
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        struct store *store = open_store(NULL);
        OK(run(store, append_audit, WORDS("in the log")));
        _exit(0); /* as a kill would leave it */
    }
    cr_assert_eq(waitpid(child, NULL, 0), child);
}

Test(store_open, a_log_that_was_removed_after_a_kill_is_a_loss)
{
    char log[96];
    (void)snprintf(log, sizeof(log), "%s-wal", db_path);
    fill(3);
    write_and_die();
    cr_assert_eq(access(log, F_OK), 0);
    store_free(open_store(NULL));
    cr_assert_eq(raw("SELECT count(*) FROM audit"), 4, "with its log it opens");
    write_and_die();
    cr_assert_eq(unlink(log), 0);
    expect_refused("its log (-wal)");
    cr_assert(strstr(err.text, "sandstorm-orchestrator repair"), "%s", err.text);
    expect_refused("its log (-wal)");
}

/* Of another version, whatever its number says. */
Test(store_open, a_database_without_a_table_or_a_column_is_refused)
{
    fill(3);
    (void)raw("ALTER TABLE tokens RENAME COLUMN uses TO used");
    expect_refused("it has no tokens.uses");
    (void)raw("ALTER TABLE tokens RENAME COLUMN used TO uses");
    store_free(open_store(NULL));
    (void)raw("DROP TABLE clients");
    expect_refused("it has no clients.");
}

/* One bit anywhere: it is found, with words of what to do, or it is inside a value, and then every
 * row is there. */

#define FLIPS 300u

static int put_client(struct store_tx *tx, void *name, struct err *error)
{
    struct client_record client = { .role = 1 };
    (void)snprintf(client.name, sizeof(client.name), "%s", (const char *)name);
    return store_client_put(tx, &client, error);
}

static int count_clients(struct store_tx *tx, void *userdata, struct err *error)
{
    struct client_record clients[8];
    return store_client_list(tx, "", clients, ELEMENTS(clients), userdata, error);
}

Test(store_open, a_flipped_bit_is_found_or_loses_no_row)
{
    struct store *store = open_store(NULL);
    OK(run(store, put_client, WORDS("admin")));
    OK(run(store, put_client, WORDS("other")));
    store_free(store);
    fill(200);
    CLEANUP_FREE char *whole = NULL;
    size_t size = 0;
    unsigned found = 0;
    OK(file_read(db_path, 1 << 24, &whole, &size, &err));
    for (unsigned i = 0; i < FLIPS; i++) {
        size_t at = size / FLIPS * i + i % 7;
        whole[at] ^= (char)(1 << (i % 8));
        put(db_path, whole, size);
        whole[at] ^= (char)(1 << (i % 8));
        store = NULL;
        if (store_open(directory, NULL, &store, &err) < 0) {
            cr_assert_eq(err.code, ERR_PRECONDITION, "byte %zu: %s", at, err.text);
            cr_assert(strstr(err.text, directory), "%s", err.text);
            found++;
        } else {
            unsigned count = 0;
            OK(run(store, count_clients, &count));
            cr_assert_eq(count, 2, "byte %zu", at);
            cr_assert_eq(raw("SELECT count(*) FROM audit"), 200, "byte %zu", at);
        }
        store_free(store);
        char command[192];
        (void)snprintf(command, sizeof(command), "rm -f %s-wal %s-shm", db_path, db_path);
        cr_assert_eq(system(command), 0);
    }
    cr_assert_gt(found, 5, "%u", found);
}
