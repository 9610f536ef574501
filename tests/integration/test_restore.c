/* A backup that is made while everybody works, and the orchestrator that comes out of it: the same
 * one to its agents and clients. */
#include "tests/integration/identity_fixture.h"

#include <sys/stat.h>

TestSuite(restore, .init = fixture_start, .fini = fixture_stop);

static struct proc_result orchestrator(const char *verb, const char *file)
{
    return RUN(NULL, cluster_program("sandstorm-orchestrator"), verb, file, "--state-dir",
               fixture()->state_dir, "--config", fixture()->settings);
}

static void must_orchestrator(const char *verb, const char *file)
{
    CLEANUP_RESULT struct proc_result run = orchestrator(verb, file);
    cr_assert_eq(run.status, 0, "%s", run.err);
}

static void make_backup(char ret[CLUSTER_PATH_MAX])
{
    struct stat st;
    (void)snprintf(ret, CLUSTER_PATH_MAX, "%s", fixture_path("saved"));
    CLEANUP_RESULT struct proc_result run = orchestrator("backup", ret);
    cr_assert_eq(run.status, 0, "%s", run.err);
    fixture_assert_contains(run.out, "CA's private key");
    cr_assert_eq(stat(ret, &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0600);
}

/* The machine is lost; what the admin had taken away is not. */
static void lose_state(void)
{
    char from[CLUSTER_PATH_MAX + 16], to[CLUSTER_PATH_MAX + 16];
    const char *state = fixture()->state_dir;
    MUST(service_kill(fixture()->orchestrator, err));
    cr_assert_eq(rename(state, fixture_path("lost")), 0);
    cr_assert_eq(mkdir(state, 0700), 0);
    (void)snprintf(from, sizeof(from), "%s/clients", fixture_path("lost"));
    (void)snprintf(to, sizeof(to), "%s/clients", state);
    cr_assert_eq(rename(from, to), 0);
}

static void restore_and_start(const char *saved)
{
    service_forget_status(fixture_box()->link);
    must_orchestrator("restore", saved);
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(fixture_box(), err));
}

static void assert_private(const char *name)
{
    struct stat st;
    cr_assert_eq(stat(fixture_path(name), &st), 0, "%s", name);
    cr_assert_eq(st.st_mode & 0077, 0, "%s: %o", name, st.st_mode);
}

Test(restore, brings_back_the_orchestrator_that_agents_and_clients_know)
{
    char saved[CLUSTER_PATH_MAX], viewer[CLUSTER_PATH_MAX];
    enroll_labelled("away", "team=red");
    MUST(cluster_login(fixture(), "vera", "viewer", NULL, viewer, err));
    MUST(cluster_token(fixture(), "open.join", (const char *[]){ "--sandbox", "late", NULL }, err));
    CLEANUP_CLIENT struct fixture_client running =
        CLI_START(PIPE_IN | PIPE_OUT, "exec", BOX, "--", "cat");
    char line[16];
    cr_assert_eq(write(running.in, "one\n", 4), 4);
    fixture_read_line(running.out, line, sizeof(line));
    make_backup(saved);
    /* Nobody has noticed. */
    cr_assert_eq(write(running.in, "two\n", 4), 4);
    fixture_read_line(running.out, line, sizeof(line));
    cr_assert_str_eq(line, "two");
    enroll_labelled("after", NULL);
    lose_state();
    restore_and_start(saved);
    MUST_CLI("exec", BOX, "--", "true");
    CLEANUP_RESULT struct proc_result list = CLI("ls", "--identity", viewer);
    cr_assert_eq(list.status, 0, "%s", list.err);
    fixture_assert_contains(list.out, "away");
    cr_assert_null(strstr(list.out, "after"), "it joined later: %s", list.out);
    CLEANUP_RESULT struct proc_result late = enroll("open.join", "late");
    cr_assert_eq(late.status, 0, "%s", late.err);
    MUST_CLI("audit", "--verify");
    cr_assert_eq(STORE_NUMBER(AUDIT_ALLOWED, "system", "store.restore"), 1);
    cr_assert_eq(STORE_NUMBER("SELECT count(*) FROM sqlite_schema WHERE name = 'backup_files'"), 0);
    assert_private("state/ca/ca-key.pem");
    assert_private("state/server/key.pem");
    assert_private("state/orchestrator.db");
    assert_private("state/ca");
}

Test(restore, of_a_restored_orchestrator_is_one_like_any_other)
{
    char saved[CLUSTER_PATH_MAX];
    make_backup(saved);
    lose_state();
    restore_and_start(saved);
    must_orchestrator("backup", fixture_path("again"));
}

Test(restore, of_one_that_was_killed_or_stopped_has_all_that_it_answered)
{
    enroll_labelled("early", NULL);
    MUST(service_kill(fixture()->orchestrator, err));
    must_orchestrator("backup", fixture_path("killed"));
    cr_assert_eq(access(fixture_path("state/orchestrator.db-wal"), F_OK), 0,
                 "the log is the orchestrator's");
    service_forget_status(fixture_box()->link);
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(fixture_box(), err));
    MUST(service_stop(fixture()->orchestrator, err));
    char saved[CLUSTER_PATH_MAX];
    make_backup(saved);
    MUST(cluster_start_orchestrator(fixture(), err));
    lose_state();
    (void)snprintf(saved, sizeof(saved), "%s", fixture_path("killed"));
    restore_and_start(saved);
    CLEANUP_RESULT struct proc_result list = CLI("ls");
    fixture_assert_contains(list.out, "early");
}

Test(restore, refuses_to_restore_over_an_orchestrator)
{
    char saved[CLUSTER_PATH_MAX];
    make_backup(saved);
    CLEANUP_RESULT struct proc_result serving = orchestrator("restore", saved);
    cr_assert_neq(serving.status, 0);
    fixture_assert_contains(serving.err, "an orchestrator uses");
    MUST(service_stop(fixture()->orchestrator, err));
    CLEANUP_RESULT struct proc_result stopped = orchestrator("restore", saved);
    cr_assert_neq(stopped.status, 0);
    fixture_assert_contains(stopped.err, "a restore replaces nothing");
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST_CLI("audit", "--verify");
}
