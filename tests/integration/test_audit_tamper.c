/* Somebody has the orchestrator's database in hand. What was written there is edited while the
 * orchestrator is stopped, as root on its host could, and `sandstorm audit --verify` must see it.
 */
#include "tests/integration/identity_fixture.h"

#define VICTIM "4" /* a row in the middle */
#define DB_MAX (16u * 1024 * 1024)

/* For what was taken away from the end, or put there. */
#define LAST "(SELECT max(seq) FROM audit)"

TestSuite(tamper, .init = fixture_start_empty, .fini = fixture_stop);

static int run_sql(const char *sql, char *ret_error, size_t size)
{
    char *error = NULL;
    sqlite3 *db = store_open_file(SQLITE_OPEN_READWRITE);
    int r = sqlite3_exec(db, sql, NULL, NULL, &error);
    (void)snprintf(ret_error, size, "%s", error ? error : "");
    sqlite3_free(error);
    cr_assert_eq(sqlite3_close(db), SQLITE_OK);
    return r;
}

/* With the orchestrator stopped. The triggers are for accidents. */
static void edit(const char *sql)
{
    char error[256];
    cr_assert_eq(run_sql("DROP TRIGGER IF EXISTS audit_no_update;"
                         "DROP TRIGGER IF EXISTS audit_no_delete",
                         error, sizeof(error)),
                 SQLITE_OK, "%s", error);
    cr_assert_eq(run_sql(sql, error, sizeof(error)), SQLITE_OK, "%s: %s", sql, error);
}

static void make_rows(void)
{
    for (unsigned i = 0; i < 8; i++)
        MUST_CLI("ls");
}

static struct proc_result verify(void)
{
    return CLI("audit", "--verify");
}

static void assert_whole(void)
{
    CLEANUP_RESULT struct proc_result run = verify();
    cr_assert_eq(run.status, 0, "%s", run.err);
    fixture_assert_contains(run.out, "chain is whole");
}

static void assert_broken(const char *sql, const char *words)
{
    CLEANUP_RESULT struct proc_result run = verify();
    cr_expect_eq(run.status, 1, "%s: status %d", sql, run.status);
    cr_expect(strstr(run.err, words), "%s: \"%s\" is not in \"%s\"", sql, words, run.err);
    cr_expect_str_eq(run.out, "", "%s", sql);
}

Test(tamper, finds_nothing_where_nothing_was_done)
{
    make_rows();
    CLEANUP_RESULT struct proc_result run = verify();
    cr_assert_eq(run.status, 0, "%s", run.err);
    char words[64];
    long long head = (long long)STORE_NUMBER("SELECT max(seq) FROM audit");
    (void)snprintf(words, sizeof(words), "audit: %lld rows, chain is whole, head %lld:", head,
                   head);
    fixture_assert_contains(run.out, words);
}

Test(tamper, is_refused_by_the_database_while_its_triggers_are_there)
{
    char error[256];
    make_rows();
    MUST(service_stop(fixture()->orchestrator, err));
    cr_assert_neq(run_sql("UPDATE audit SET actor = 'x' WHERE seq = " VICTIM, error, sizeof(error)),
                  SQLITE_OK);
    fixture_assert_contains(error, "audit rows are never changed");
    cr_assert_neq(run_sql("DELETE FROM audit WHERE seq = " VICTIM, error, sizeof(error)),
                  SQLITE_OK);
    fixture_assert_contains(error, "audit rows are never removed");
    MUST(cluster_start_orchestrator(fixture(), err));
    assert_whole();
}

/* Each edit is made to the same database, as it was after an orderly stop. */

static const struct tampering {
    const char *sql, *words;
} tamperings[] = {
    /* Every column of a row. */
    { "UPDATE audit SET time_ms = time_ms + 1 WHERE seq = " VICTIM, "row " VICTIM " was changed" },
    { "UPDATE audit SET actor = 'client/other' WHERE seq = " VICTIM, "row " VICTIM " was changed" },
    { "UPDATE audit SET action = 'x' WHERE seq = " VICTIM, "row " VICTIM " was changed" },
    { "UPDATE audit SET target = 'x' WHERE seq = " VICTIM, "row " VICTIM " was changed" },
    { "UPDATE audit SET allowed = 1 - allowed WHERE seq = " VICTIM, "row " VICTIM " was changed" },
    { "UPDATE audit SET detail = 'x' WHERE seq = " VICTIM, "row " VICTIM " was changed" },
    { "UPDATE audit SET hash = zeroblob(32) WHERE seq = " VICTIM, "row " VICTIM " was changed" },
    { "UPDATE audit SET hash = x'00' WHERE seq = " VICTIM, "cannot read the audit" },
    { "UPDATE audit SET seq = -seq WHERE seq = " VICTIM, "rows 4 to 4 are missing" },
    { "UPDATE audit SET seq = 1000 WHERE seq = " VICTIM, "rows 4 to 4 are missing" },
    /* Text that moves over the border of its field. */
    { "UPDATE audit SET action = actor || action, actor = '' WHERE seq = " VICTIM,
      "row " VICTIM " was changed" },
    /* Rows that are gone. */
    { "DELETE FROM audit WHERE seq = " VICTIM, "rows 4 to 4 are missing" },
    { "DELETE FROM audit WHERE seq BETWEEN 3 AND 5", "rows 3 to 5 are missing" },
    { "DELETE FROM audit WHERE seq = 1", "rows 1 to 1 are missing" },
    { "DELETE FROM audit WHERE seq = " LAST, "are missing" },
    { "DELETE FROM audit WHERE seq > 3", "rows 4 to " },
    { "DELETE FROM audit", "rows 1 to " },
    /* Gone, and the others moved up. */
    { "DELETE FROM audit WHERE seq = 1; UPDATE audit SET seq = seq - 1;"
      "UPDATE notes SET number = number - 1",
      "row 1 was changed" },
    { "DELETE FROM audit WHERE seq = " VICTIM ";"
      "UPDATE audit SET seq = seq - 1 WHERE seq > " VICTIM ";"
      "UPDATE notes SET number = number - 1",
      "row " VICTIM " was changed" },
    /* Two in each other's place, with their hashes and without. */
    { "UPDATE audit SET seq = -3 WHERE seq = 3; UPDATE audit SET seq = 3 WHERE seq = 4;"
      "UPDATE audit SET seq = 4 WHERE seq = -3",
      "row 3 was changed" },
    { "CREATE TEMP TABLE pair AS SELECT seq, hash FROM audit WHERE seq IN (3, 4);"
      "UPDATE audit SET seq = -3 WHERE seq = 3; UPDATE audit SET seq = 3 WHERE seq = 4;"
      "UPDATE audit SET seq = 4 WHERE seq = -3;"
      "UPDATE audit SET hash = (SELECT hash FROM pair WHERE pair.seq = audit.seq)"
      " WHERE seq IN (3, 4)",
      "row 3 was changed" },
    /* One too many: in the middle, with the rest moved down, and at the end. */
    { "UPDATE audit SET seq = -seq - 1 WHERE seq >= " VICTIM ";"
      "UPDATE audit SET seq = -seq WHERE seq < 0;"
      "INSERT INTO audit SELECT " VICTIM ", time_ms, actor, action, target, allowed, detail, hash"
      " FROM audit WHERE seq = 3; UPDATE notes SET number = number + 1",
      "row " VICTIM " was changed" },
    { "INSERT INTO audit SELECT seq + 1, time_ms, actor, action, target, allowed, detail, hash"
      " FROM audit WHERE seq = " LAST ";"
      "UPDATE notes SET number = number + 1",
      "was changed" },
    /* The note of where it ends. */
    { "UPDATE notes SET bytes = zeroblob(32)", "was changed" },
    { "UPDATE notes SET number = number + 1", "are missing" },
};

Test(tamper, shows_whatever_was_done, .timeout = 240)
{
    char path[CLUSTER_PATH_MAX + 32];
    CLEANUP_FREE char *whole = NULL;
    size_t size;
    make_rows();
    MUST(service_stop(fixture()->orchestrator, err));
    (void)snprintf(path, sizeof(path), "%s/orchestrator.db", fixture()->state_dir);
    MUST(file_read(path, DB_MAX, &whole, &size, err));
    for (size_t i = 0; i < ELEMENTS(tamperings); i++) {
        MUST(file_write_atomic(path, whole, size, 0600, err));
        edit(tamperings[i].sql);
        MUST(cluster_start_orchestrator(fixture(), err));
        assert_broken(tamperings[i].sql, tamperings[i].words);
        MUST(service_stop(fixture()->orchestrator, err));
    }
    MUST(file_write_atomic(path, whole, size, 0600, err));
    MUST(cluster_start_orchestrator(fixture(), err));
    assert_whole();
}

Test(tamper, shows_a_last_row_that_was_removed_behind_a_crash)
{
    make_rows();
    MUST(service_kill(fixture()->orchestrator, err));
    /* The row is still in the log; the edit goes through it into the file. */
    edit("DELETE FROM audit WHERE seq = " LAST "; PRAGMA wal_checkpoint(TRUNCATE)");
    fixture_touch("state/orchestrator.db-wal"); /* else the missing log would be told first */
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(service_wait_log(fixture()->orchestrator, "somebody has changed the database",
                          PROC_DEADLINE_US, err));
    assert_broken("a crash", "are missing");
}

/* A row where the orchestrator wants to put its next one: it can write nothing, so it does nothing,
 * and says why. */
Test(tamper, stops_everything_when_the_next_row_is_taken)
{
    make_rows();
    MUST(service_stop(fixture()->orchestrator, err));
    edit("INSERT INTO audit SELECT seq + 1, time_ms, actor, action, target, allowed, detail, hash"
         " FROM audit WHERE seq = " LAST);
    MUST(cluster_start_orchestrator(fixture(), err));
    CLEANUP_RESULT struct proc_result list = CLI("ls");
    cr_assert_neq(list.status, 0);
    fixture_assert_contains(list.err, "the audit cannot be written");
    CLEANUP_RESULT struct proc_result run = verify();
    cr_assert_neq(run.status, 0);
    fixture_assert_contains(run.err, "audit");
}

Test(tamper, is_told_to_those_who_follow)
{
    char line[1024];
    make_rows();
    MUST(service_stop(fixture()->orchestrator, err));
    edit("UPDATE audit SET detail = 'x' WHERE seq = " VICTIM);
    MUST(cluster_start_orchestrator(fixture(), err));
    CLEANUP_CLIENT struct fixture_client reader =
        CLI_START(PIPE_ERR, "audit", "-f", "--after", "1");
    fixture_read_line(reader.err, line, sizeof(line));
    fixture_assert_contains(line, "row " VICTIM " was changed");
    /* Of rows that were not asked for nothing is said. */
    CLEANUP_RESULT struct proc_result late = CLI("audit", "--after", VICTIM);
    cr_assert_eq(late.status, 0, "%s", late.err);
    CLEANUP_RESULT struct proc_result early = CLI("audit", "--after", "1");
    cr_assert_eq(early.status, 1, "status %d", early.status);
    fixture_assert_contains(early.err, "row " VICTIM " was changed");
}
