/* Who makes whom: clients added, changed and shut out by an admin, and the first admin and the last
 * resort, which are verbs of the orchestrator on its own host. */
#include "tests/integration/identity_fixture.h"

#include "common/file.h"
#include "common/rpc_creds.h"

#include <sys/stat.h>

TestSuite(admins, .init = fixture_start, .fini = fixture_stop);

static void login(const char *name, const char *role, const char *scope, char *ret)
{
    char key[64];
    (void)snprintf(key, sizeof(key), "%s.login", name);
    (void)unlink(fixture_path(key));
    MUST(cluster_login(fixture(), name, role, scope, ret, err));
}

/* One of the orchestrator's other verbs on the fixture's state directory. */
static struct proc_result run_verb(const char *verb, const char *word)
{
    const struct proc_spec spec = {
        .argv = (const char *[]){ cluster_program("sandstorm-orchestrator"), "--state-dir",
                                  fixture()->state_dir, verb, word, NULL },
    };
    struct proc_result result = { 0 };
    MUST(proc_run(&spec, NULL, 0, PROC_DEADLINE_US, &result, err));
    return result;
}

static void assert_fails(struct proc_result *run, const char *words)
{
    cr_assert_neq(run->status, 0);
    fixture_assert_contains(run->err, words);
}

static void assert_role(const char *identity, const char *role)
{
    char wanted[64];
    CLEANUP_RESULT struct proc_result run = CLI("whoami", "--identity", identity);
    cr_assert_eq(run.status, 0, "%s", run.err);
    (void)snprintf(wanted, sizeof(wanted), "role         %s\n", role);
    fixture_assert_contains(run.out, wanted);
}

/* Clients. */

Test(admins, change_a_role_by_revoking_and_adding_at_once)
{
    char first[CLUSTER_PATH_MAX + 64], dana[CLUSTER_PATH_MAX];
    login("dana", "operator", NULL, dana);
    CLEANUP_RESULT struct proc_result may = CLI("exec", BOX, "--identity", dana, "--", "true");
    cr_assert_eq(may.status, 0, "%s", may.err);

    MUST_CLI("client", "revoke", "dana");
    CLEANUP_RESULT struct proc_result gone = CLI("exec", BOX, "--identity", dana, "--", "true");
    assert_fails(&gone, "does not count here: it was revoked");

    (void)snprintf(first, sizeof(first), "%s", fixture_path("sandstorm/contexts/first"));
    cr_assert_eq(rename(fixture_path("sandstorm/contexts/dana"), first), 0);
    login("dana", "viewer", NULL, dana);
    assert_role(dana, "viewer");
    CLEANUP_RESULT struct proc_result less = CLI("exec", BOX, "--identity", dana, "--", "true");
    assert_fails(&less, "needs the role operator");
    /* The certificate from before is not one of this role, nor of any. */
    CLEANUP_RESULT struct proc_result old =
        CLI("ls", "--identity", fixture_path("sandstorm/contexts/first/identity"));
    assert_fails(&old, "it was replaced");
}

Test(admins, do_not_shut_themselves_out)
{
    char other[CLUSTER_PATH_MAX];
    CLEANUP_RESULT struct proc_result self = CLI("client", "revoke", "admin");
    assert_fails(&self, "let another admin revoke it");
    MUST_CLI("ls");
    login("other", "admin", NULL, other);
    CLEANUP_RESULT struct proc_result run = CLI("client", "revoke", "admin", "--identity", other);
    cr_assert_eq(run.status, 0, "%s", run.err);
    CLEANUP_RESULT struct proc_result gone = CLI("ls");
    assert_fails(&gone, "it was revoked");
    assert_role(other, "admin");
}

Test(admins, are_not_held_to_a_scope)
{
    CLEANUP_RESULT struct proc_result run =
        CLI("client", "add", "anna", "--role", "admin", "--scope", "team=red", "--out",
            fixture_path("anna.login"));
    assert_fails(&run, "would be a pretence");
    cr_assert_eq(STORE_NUMBER("SELECT count(*) FROM clients WHERE name = 'anna'"), 0);
}

Test(admins, do_not_add_a_name_that_is_there)
{
    char nora[CLUSTER_PATH_MAX];
    login("nora", "operator", NULL, nora);
    CLEANUP_RESULT struct proc_result again =
        CLI("client", "add", "nora", "--role", "admin", "--out", fixture_path("again.login"));
    assert_fails(&again, "there is a client \"nora\" already");
    fixture_assert_contains(again.err, "sandstorm client revoke nora");
    assert_role(nora, "operator");
    /* Nor one that has not logged in yet: its key would be changed under it. */
    MUST_CLI("client", "add", "ivo", "--role", "viewer", "--out", fixture_path("ivo.login"));
    CLEANUP_RESULT struct proc_result twice =
        CLI("client", "add", "ivo", "--role", "admin", "--out", fixture_path("ivo2.login"));
    assert_fails(&twice, "there is a client \"ivo\" already");
}

Test(admins, only_revoke_whom_there_is)
{
    static const char *const names[] = { "nobody", "*", "..", "ADMIN", "admin ", "" };
    for (size_t i = 0; i < ELEMENTS(names); i++) {
        CLEANUP_RESULT struct proc_result run = CLI("client", "revoke", "--", names[i]);
        cr_expect_neq(run.status, 0, "\"%s\"", names[i]);
    }
    cr_assert_eq(STORE_NUMBER("SELECT count(*) FROM clients WHERE revoked_ms <> 0"), 0);
    MUST_CLI("ls");
}

/* The host's own verbs. */

Test(admins, begin_with_the_one_that_init_makes)
{
    assert_role(fixture()->admin, "admin");
    cr_assert_eq(STORE_NUMBER("SELECT count(*) FROM audit WHERE seq = 1 AND actor = 'system'"
                              " AND action = 'client.add' AND target = 'admin'"),
                 1);
}

Test(admins, are_not_made_anew_by_a_second_init)
{
    char before[sizeof(fixture()->fingerprint)];
    (void)snprintf(before, sizeof(before), "%s", fixture()->fingerprint);
    CLEANUP_RESULT struct proc_result running = run_verb("init", NULL);
    assert_fails(&running, "another orchestrator uses");
    MUST(service_stop(fixture()->orchestrator, err));
    CLEANUP_RESULT struct proc_result stopped = run_verb("init", NULL);
    assert_fails(&stopped, "there is a CA in");
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(cluster_read_fingerprint(fixture(), err));
    cr_assert_str_eq(fixture()->fingerprint, before);
    assert_role(fixture()->admin, "admin");
}

Test(admins, are_not_recovered_while_the_orchestrator_runs)
{
    CLEANUP_RESULT struct proc_result run = run_verb("recover", "admin");
    assert_fails(&run, "another orchestrator uses");
    fixture_assert_contains(run.err, "stop it first");
    /* Above all the key that is in use is still there. */
    assert_role(fixture()->admin, "admin");
}

static void copy_identity(const char *from, const char *to)
{
    static const char *const names[] = { "ca.pem", "cert.pem", "key.pem" };
    cr_assert_eq(mkdir(to, 0700), 0);
    for (size_t i = 0; i < ELEMENTS(names); i++) {
        char source[CLUSTER_PATH_MAX + 16], target[CLUSTER_PATH_MAX + 80];
        CLEANUP_FREE char *text = NULL;
        size_t size;
        (void)snprintf(source, sizeof(source), "%s/%s", from, names[i]);
        (void)snprintf(target, sizeof(target), "%s/%s", to, names[i]);
        MUST(file_read(source, PEM_MAX, &text, &size, err));
        MUST(file_write_atomic(target, text, size, 0600, err));
    }
}

Test(admins, are_recovered_with_a_new_key_and_the_old_one_ends)
{
    copy_identity(fixture()->admin, fixture_path("before"));
    MUST(service_stop(fixture()->orchestrator, err));
    CLEANUP_RESULT struct proc_result run = run_verb("recover", "admin");
    cr_assert_eq(run.status, 0, "%s", run.err);
    fixture_assert_contains(run.out, "Earlier certificates of that name do not count any more");
    MUST(cluster_start_orchestrator(fixture(), err));
    assert_role(fixture()->admin, "admin");
    CLEANUP_RESULT struct proc_result old = CLI("ls", "--identity", fixture_path("before"));
    assert_fails(&old, "it was replaced");
    cr_assert_eq(STORE_NUMBER(AUDIT_ALLOWED, "system", "client.recover"), 1);
    MUST_CLI("audit", "--verify");
}

Test(admins, are_recovered_after_they_were_revoked)
{
    char other[CLUSTER_PATH_MAX];
    login("other", "admin", NULL, other);
    CLEANUP_RESULT struct proc_result revoked =
        CLI("client", "revoke", "admin", "--identity", other);
    cr_assert_eq(revoked.status, 0, "%s", revoked.err);
    MUST(service_stop(fixture()->orchestrator, err));
    CLEANUP_RESULT struct proc_result back = run_verb("recover", "admin");
    cr_assert_eq(back.status, 0, "%s", back.err);
    CLEANUP_RESULT struct proc_result fresh = run_verb("recover", "boss");
    cr_assert_eq(fresh.status, 0, "%s", fresh.err);
    MUST(cluster_start_orchestrator(fixture(), err));
    assert_role(fixture()->admin, "admin");
    assert_role(fixture_path("state/clients/boss"), "admin");
    assert_role(other, "admin");
}

Test(admins, are_not_recovered_by_a_bad_name_or_without_a_ca)
{
    static const char *const names[] = { "..", "../../x", "a/b", "", NULL };
    MUST(service_stop(fixture()->orchestrator, err));
    for (size_t i = 0; i < ELEMENTS(names); i++) {
        CLEANUP_RESULT struct proc_result run = run_verb("recover", names[i]);
        cr_expect_neq(run.status, 0, "\"%s\"", names[i] ? names[i] : "");
    }
    const struct proc_spec spec = {
        .argv = (const char *[]){ cluster_program("sandstorm-orchestrator"), "--state-dir",
                                  fixture_path("nothing"), "recover", "admin", NULL },
    };
    CLEANUP_RESULT struct proc_result none = { 0 };
    MUST(proc_run(&spec, NULL, 0, PROC_DEADLINE_US, &none, err));
    assert_fails(&none, "run 'sandstorm-orchestrator init");
    MUST(cluster_start_orchestrator(fixture(), err));
    assert_role(fixture()->admin, "admin");
}

Test(admins, share_their_directory_with_no_second_orchestrator)
{
    const struct proc_spec spec = {
        .argv = (const char *[]){ cluster_program("sandstorm-orchestrator"), "serve", "--state-dir",
                                  fixture()->state_dir, "--listen", "127.0.0.1:0", "--http-listen",
                                  "127.0.0.1:0", "--config", fixture()->settings, NULL },
    };
    CLEANUP_RESULT struct proc_result second = { 0 };
    MUST(proc_run(&spec, NULL, 0, PROC_DEADLINE_US, &second, err));
    assert_fails(&second, "another orchestrator uses");
    fixture_assert_contains(second.err, fixture()->state_dir);
    MUST_CLI("exec", BOX, "--", "true");
}
