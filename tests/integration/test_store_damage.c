/* An orchestrator whose database is lost, damaged, held by somebody else or on a disk that cannot
 * be written: it says so with the operator's choices, each of which is then taken. What a full disk
 * does is in tests/integration/test_audit_disk.c. */
#include "tests/integration/identity_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define PAGE 4096

TestSuite(damage, .init = fixture_start, .fini = fixture_stop);

static struct proc_result orchestrator(const char *verb, const char *argument)
{
    return RUN(NULL, cluster_program("sandstorm-orchestrator"), verb, "--state-dir",
               fixture()->state_dir, "--config", fixture()->settings, argument);
}

/* Ends by itself with these words. */
static void assert_refuses_to_start(const char *const *words)
{
    CLEANUP_RESULT struct proc_result run =
        RUN(NULL, cluster_program("sandstorm-orchestrator"), "serve", "--state-dir",
            fixture()->state_dir, "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0");
    cr_assert_neq(run.status, 0);
    for (size_t i = 0; words[i]; i++)
        fixture_assert_contains(run.err, words[i]);
}
#define REFUSES_TO_START(...) assert_refuses_to_start((const char *[]){ __VA_ARGS__, NULL })

static const char *database(void)
{
    static char path[CLUSTER_PATH_MAX + 32];
    (void)snprintf(path, sizeof(path), "%s/orchestrator.db", fixture()->state_dir);
    return path;
}

static void start_again(void)
{
    service_forget_status(fixture_box()->link);
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(fixture_box(), err));
    MUST_CLI("exec", BOX, "--", "true");
}

Test(damage, of_a_missing_or_empty_database_is_no_new_beginning)
{
    MUST(service_stop(fixture()->orchestrator, err));
    cr_assert_eq(rename(database(), fixture_path("away")), 0);
    REFUSES_TO_START("is missing or empty", "restore FILE", "recover admin");
    cr_assert_neq(access(database(), F_OK), 0);
    fixture_touch("state/orchestrator.db");
    REFUSES_TO_START("is missing or empty", "restore FILE", "recover admin");
    /* The choice to begin with nothing. */
    CLEANUP_RESULT struct proc_result recovered = orchestrator("recover", "admin");
    cr_assert_eq(recovered.status, 0, "%s", recovered.err);
    MUST(cluster_start_orchestrator(fixture(), err));
    CLEANUP_RESULT struct proc_result list = CLI("ls", "--no-headers");
    cr_assert_eq(list.status, 0, "%s", list.err);
    cr_assert_null(strstr(list.out, BOX), "%s", list.out);
    /* Back to what it was. */
    MUST(service_stop(fixture()->orchestrator, err));
    cr_assert_eq(rename(fixture_path("away"), database()), 0);
}

Test(damage, of_a_page_is_repaired_when_the_operator_says_so)
{
    for (unsigned i = 0; i < 40; i++)
        MUST_CLI("ls");
    MUST(service_stop(fixture()->orchestrator, err));
    char page[PAGE];
    memset(page, 0x5a, sizeof(page));
    int64_t number = STORE_NUMBER("SELECT rootpage FROM sqlite_schema WHERE name = 'events'");
    CLEANUP_FD int fd = open(database(), O_RDWR | O_CLOEXEC);
    cr_assert_eq(pwrite(fd, page, sizeof(page), (number - 1) * PAGE), PAGE);
    close_fd(&fd);
    REFUSES_TO_START("is damaged", "sandstorm-orchestrator restore FILE",
                     "sandstorm-orchestrator repair");
    CLEANUP_RESULT struct proc_result backup = orchestrator("backup", fixture_path("no"));
    cr_assert_neq(backup.status, 0);
    fixture_assert_contains(backup.err, "is damaged");
    CLEANUP_RESULT struct proc_result repaired = orchestrator("repair", NULL);
    cr_assert_eq(repaired.status, 0, "%s", repaired.err);
    fixture_assert_contains(repaired.out, "events       0 rows copied, 1 missing");
    fixture_assert_contains(repaired.out, "sandboxes    1 rows copied\n");
    fixture_assert_contains(repaired.out, "orchestrator.db.damaged-");
    start_again();
    MUST_CLI("audit", "--verify");
    CLEANUP_RESULT struct proc_result again = orchestrator("repair", NULL);
    cr_assert_neq(again.status, 0);
    fixture_assert_contains(again.err, "another orchestrator uses");
}

Test(damage, of_a_cut_file_names_the_choices_and_a_backup_brings_it_back)
{
    CLEANUP_RESULT struct proc_result saved = orchestrator("backup", fixture_path("saved"));
    cr_assert_eq(saved.status, 0, "%s", saved.err);
    MUST(service_stop(fixture()->orchestrator, err));
    cr_assert_eq(truncate(database(), 2 * PAGE), 0);
    REFUSES_TO_START("is damaged", "sandstorm-orchestrator restore FILE");
    CLEANUP_RESULT struct proc_result repair = orchestrator("repair", NULL);
    cr_assert_neq(repair.status, 0);
    /* As it was told: everything but the clients' own identities moves away. */
    static const char *const names[] = { "ca", "server", "orchestrator.db", "orchestrator.db-wal",
                                         "orchestrator.db-shm" };
    for (size_t i = 0; i < ELEMENTS(names); i++) {
        char from[64], to[CLUSTER_PATH_MAX];
        (void)snprintf(from, sizeof(from), "state/%s", names[i]);
        (void)snprintf(to, sizeof(to), "%s", fixture_path(names[i]));
        cr_assert(rename(fixture_path(from), to) == 0 || errno == ENOENT, "%s", names[i]);
    }
    CLEANUP_RESULT struct proc_result restored = orchestrator("restore", fixture_path("saved"));
    cr_assert_eq(restored.status, 0, "%s", restored.err);
    start_again();
    MUST_CLI("audit", "--verify");
}

Test(damage, by_a_lost_log_is_told_and_accepted_by_a_repair)
{
    enroll_labelled("late", NULL);
    MUST(service_kill(fixture()->orchestrator, err));
    cr_assert_eq(unlink(fixture_path("state/orchestrator.db-wal")), 0);
    REFUSES_TO_START("its log (-wal)", "sandstorm-orchestrator restore FILE",
                     "sandstorm-orchestrator repair");
    CLEANUP_RESULT struct proc_result repaired = orchestrator("repair", NULL);
    cr_assert_eq(repaired.status, 0, "%s", repaired.err);
    /* `init` has closed the database in order, so the admin is in it. */
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST_CLI("ls");
    MUST_CLI("audit", "--verify");
}

/* Longer than the store waits. */
Test(damage, by_another_program_that_holds_the_database_ends_with_it)
{
    char line[16];
    CLEANUP_CLIENT struct fixture_client running =
        CLI_START(PIPE_IN | PIPE_OUT, "exec", BOX, "--", "cat");
    cr_assert_eq(write(running.in, "one\n", 4), 4);
    fixture_read_line(running.out, line, sizeof(line));
    sqlite3 *other = store_open_file(SQLITE_OPEN_READWRITE);
    cr_assert_eq(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    CLEANUP_RESULT struct proc_result refused = CLI("exec", BOX, "--", "true");
    cr_assert_neq(refused.status, 0);
    fixture_assert_contains(refused.err, "another program holds the database");
    cr_assert_eq(write(running.in, "two\n", 4), 4);
    fixture_read_line(running.out, line, sizeof(line));
    cr_assert_str_eq(line, "two");
    cr_assert_eq(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    cr_assert_eq(sqlite3_close(other), SQLITE_OK);
    MUST_CLI("exec", BOX, "--", "true");
    MUST_CLI("audit", "--verify");
}

/* A reader that stays keeps the log from being moved into the database, and nothing else. */
Test(damage, by_a_reader_that_never_ends_is_only_a_longer_log)
{
    sqlite3 *reader = store_open_file(SQLITE_OPEN_READONLY);
    cr_assert_eq(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM audit", NULL, NULL, NULL),
                 SQLITE_OK);
    for (unsigned i = 0; i < 20; i++)
        MUST_CLI("ls");
    MUST(service_kill(fixture()->orchestrator, err));
    start_again();
    MUST_CLI("audit", "--verify");
    cr_assert_eq(sqlite3_close(reader), SQLITE_OK);
}

static bool own_mounts;

static void start_with_mounts(void)
{
    own_mounts =
        unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    fixture_start();
}

TestSuite(read_only, .init = start_with_mounts, .fini = fixture_stop);

Test(read_only, a_state_directory_is_refused_until_it_can_be_written)
{
    if (!own_mounts)
        cr_skip_test("no mount namespace of our own here");
    const char *state = fixture()->state_dir;
    MUST(service_stop(fixture()->orchestrator, err));
    cr_assert_eq(mount(state, state, NULL, MS_BIND, NULL), 0);
    cr_assert_eq(mount(NULL, state, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), 0);
    REFUSES_TO_START(state, "Read-only file system");
    cr_assert_eq(umount2(state, 0), 0);
    start_again();
}
