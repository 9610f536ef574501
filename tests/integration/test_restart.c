/* What an orchestrator that was killed still knows when it is started again: everything that it had
 * answered. Nothing here is stopped in order. */
#include "tests/harness/peer.h"
#include "tests/integration/identity_fixture.h"

#define CONNECT "/sandstorm.v1.LinkService/Connect"

TestSuite(restart, .init = fixture_start_empty, .fini = fixture_stop);

static void kill_and_start(void)
{
    MUST(service_kill(fixture()->orchestrator, err));
    MUST(cluster_start_orchestrator(fixture(), err));
}

static void login(const char *name, const char *role, const char *scope, char *ret)
{
    MUST(cluster_login(fixture(), name, role, scope, ret, err));
}

static void assert_state(const char *identity, const char *sandbox, const char *state)
{
    CLEANUP_RESULT struct proc_result run = CLI("ls", "--no-headers", "--identity", identity);
    cr_assert_eq(run.status, 0, "%s", run.err);
    const char *line = strstr(run.out, sandbox);
    cr_assert_not_null(line, "%s is not in %s", sandbox, run.out);
    char words[64];
    (void)snprintf(words, sizeof(words), "%.*s", (int)strcspn(line, "\n"), line);
    fixture_assert_contains(words, state);
}

Test(restart, keeps_tokens_that_were_made_and_those_that_were_revoked)
{
    char id[64];
    MUST(cluster_token(fixture(), "good", (const char *[]){ "--sandbox", "good", NULL }, err));
    MUST(cluster_token(fixture(), "bad", (const char *[]){ "--sandbox", "bad", NULL }, err));
    CLEANUP_FREE char *secret = NULL;
    size_t size;
    MUST(file_read(fixture_path("bad"), SECRET_TEXT_MAX, &secret, &size, err));
    secret[strcspn(secret, "\n")] = '\0';
    struct secret parsed;
    MUST(secret_parse(secret, SECRET_JOIN, &parsed, err));
    (void)snprintf(id, sizeof(id), "%s", parsed.id);
    MUST_CLI("token", "revoke", id);
    copy_token("good", "used");
    kill_and_start();
    CLEANUP_RESULT struct proc_result good = enroll("good", "good-id");
    cr_assert_eq(good.status, 0, "%s", good.err);
    CLEANUP_RESULT struct proc_result bad = enroll("bad", "bad-id");
    cr_assert_neq(bad.status, 0);
    fixture_assert_contains(bad.err, "this join token is not valid");
    /* Used up stays used up. */
    kill_and_start();
    CLEANUP_RESULT struct proc_result again = enroll("used", "other-id");
    cr_assert_neq(again.status, 0);
    fixture_assert_contains(again.err, "this join token is not valid");
}

Test(restart, keeps_clients_their_roles_and_scopes)
{
    char red[CLUSTER_PATH_MAX], viewer[CLUSTER_PATH_MAX];
    enroll_labelled("red", "team=red");
    enroll_labelled("blue", "team=blue");
    login("scoped", "operator", "team=red", red);
    login("vera", "viewer", NULL, viewer);
    MUST_CLI("client", "add", "ivo", "--role", "viewer", "--out", fixture_path("ivo.login"));
    kill_and_start();
    assert_state(red, "red", "offline");
    CLEANUP_RESULT struct proc_result list = CLI("ls", "--identity", red);
    cr_assert_null(strstr(list.out, "blue"), "%s", list.out);
    CLEANUP_RESULT struct proc_result denied = CLI("exec", "red", "--identity", viewer, "--", "ls");
    fixture_assert_contains(denied.err, "needs the role operator");
    CLEANUP_RESULT struct proc_result clients = CLI("client", "list");
    fixture_assert_contains(clients.out, "ivo");
    fixture_assert_contains(clients.out, "invited");
}

Test(restart, keeps_revocations)
{
    char gone[CLUSTER_PATH_MAX];
    enroll_labelled("fired", NULL);
    MUST_CLI("sandbox", "revoke", "fired");
    login("gone", "admin", NULL, gone);
    MUST_CLI("client", "revoke", "gone");
    kill_and_start();
    CLEANUP_RESULT struct proc_result run = CLI("ls", "--identity", gone);
    cr_assert_neq(run.status, 0);
    fixture_assert_contains(run.err, "it was revoked");
    CLEANUP_PEER struct peer *peer = peer_open(fixture_path("fired"), CONNECT);
    struct err status = peer_wait_closed(peer);
    cr_assert_eq(status.code, ERR_UNAUTHENTICATED, "%s", status.text);
    fixture_assert_contains(status.text, "it was revoked");
    assert_state(fixture()->admin, "fired", "revoked");
}

Test(restart, shows_a_sandbox_that_was_online_as_suspect_until_it_is_back)
{
    enroll_labelled("away", "team=red");
    struct sandbox_processes *box = fixture_add(BOX);
    assert_state(fixture()->admin, BOX, "online");
    assert_state(fixture()->admin, "away", "offline");
    MUST(service_stop(box->link, err));
    kill_and_start();
    assert_state(fixture()->admin, BOX, "suspect");
    assert_state(fixture()->admin, "away", "offline");
    CLEANUP_RESULT struct proc_result run = CLI("exec", "away", "--", "true");
    cr_assert_neq(run.status, 0);
    fixture_assert_contains(run.err, "is offline, and has never been connected");
    MUST(sandbox_start_link(box, err));
    assert_state(fixture()->admin, BOX, "online");
    MUST_CLI("exec", BOX, "--", "true");
}

Test(restart, keeps_the_audit_whole)
{
    enroll_labelled("red", "team=red");
    int64_t before = STORE_NUMBER("SELECT max(seq) FROM audit");
    for (unsigned i = 0; i < 3; i++) {
        kill_and_start();
        MUST_CLI("ls");
    }
    cr_assert_geq(STORE_NUMBER("SELECT max(seq) FROM audit"), before + 3);
    MUST_CLI("audit", "--verify");
}
