/* The audit: a row for everything that was done or refused, before it is done, in a chain that
 * shows what somebody with the database in hand has changed. */
#include "tests/harness/peer.h"
#include "tests/integration/identity_fixture.h"

#include "common/csr.h"
#include "common/rpc_creds.h"
#include "sandstorm/v1/admin.pb-c.h"

#include <jansson.h>

TestSuite(audit, .init = fixture_start, .fini = fixture_stop);

/* Rows. */

static void assert_row(bool allowed, const char *actor, const char *action, const char *target)
{
    const char *sql = allowed ? AUDIT_ALLOWED " AND target = ?3" : AUDIT_DENIED " AND target = ?3";
    cr_expect_eq(STORE_NUMBER(sql, actor, action, target), 1, "%s %s %s %s", actor, action, target,
                 allowed ? "allowed" : "denied");
}

static void read_token_id(const char *file, char ret[SECRET_ID_LEN + 1])
{
    CLEANUP_FREE char *text = NULL;
    size_t size;
    CLEANUP_SECRET struct secret secret = { 0 };
    MUST(file_read(fixture_path(file), SECRET_TEXT_MAX, &text, &size, err));
    text[strcspn(text, "\n")] = '\0';
    MUST(secret_parse(text, SECRET_JOIN, &secret, err));
    (void)snprintf(ret, SECRET_ID_LEN + 1, "%s", secret.id);
}

Test(audit, has_a_row_for_everything_about_tokens_and_sandboxes)
{
    char id[SECRET_ID_LEN + 1], dead[SECRET_ID_LEN + 1];
    MUST(cluster_token(fixture(), "red.join", (const char *[]){ "--sandbox", "red", NULL }, err));
    MUST(cluster_token(fixture(), "dead.join", (const char *[]){ "--sandbox", "dead", NULL }, err));
    read_token_id("red.join", id);
    copy_token("red.join", "stolen.join");
    read_token_id("dead.join", dead);
    assert_row(true, "client/admin", "token.create", id);
    CLEANUP_RESULT struct proc_result joined = enroll("red.join", "red");
    cr_assert_eq(joined.status, 0, "%s", joined.err);
    assert_row(true, "source/127.0.0.1", "certificate.issue", "agent/red");
    cr_expect_eq(STORE_NUMBER("SELECT count(*) FROM audit WHERE action = 'certificate.issue'"
                              " AND detail = 'joined with token ' || ?1",
                              id),
                 1);
    CLEANUP_RESULT struct proc_result again = enroll("stolen.join", "thief");
    cr_assert_neq(again.status, 0);
    assert_row(false, "source/127.0.0.1", "token.use", id);
    MUST_CLI("token", "revoke", dead);
    assert_row(true, "client/admin", "token.revoke", dead);
    CLEANUP_RESULT struct proc_result late = enroll("dead.join", "dead");
    cr_assert_neq(late.status, 0);
    assert_row(false, "source/127.0.0.1", "token.use", dead);
    MUST_CLI("sandbox", "revoke", "red");
    assert_row(true, "client/admin", "sandbox.revoke", "red");
    MUST_CLI("ls");
    cr_expect_eq(STORE_NUMBER(AUDIT_ALLOWED, "client/admin", "ListSandboxes"), 1);
    /* The fixture's link. */
    cr_expect_eq(STORE_NUMBER(AUDIT_ALLOWED, "agent/" BOX, "Connect"), 1);
    /* Never a secret. */
    CLEANUP_FREE char *text = NULL;
    size_t size;
    MUST(file_read(fixture_path("stolen.join"), SECRET_TEXT_MAX, &text, &size, err));
    text[strcspn(text, "\n")] = '\0';
    cr_expect_eq(
        STORE_NUMBER("SELECT count(*) FROM audit WHERE instr(detail || target, ?1) > 0", text), 0);
}

/* A new certificate for the same key, as the client asks for one by itself when it is time. */
static void renew(const char *identity)
{
    CLEANUP_FREE char *csr = NULL;
    struct rpc_creds creds;
    MUST(rpc_creds_load(identity, &creds, err));
    MUST(csr_new(creds.key, &csr, err));
    rpc_creds_clear(&creds);
    CLEANUP_PEER struct peer *peer =
        peer_open(identity, "/sandstorm.v1.IdentityService/RenewCertificate");
    Sandstorm__V1__RenewCertificateRequest request = SANDSTORM__V1__RENEW_CERTIFICATE_REQUEST__INIT;
    request.csr_pem = csr;
    peer_send(peer, &request.base);
    peer_finish(peer);
    struct err status = peer_wait_closed(peer);
    cr_assert_eq(status.code, ERR_NONE, "%s", status.text);
}

Test(audit, has_a_row_for_everything_about_clients)
{
    char olga[CLUSTER_PATH_MAX];
    MUST(cluster_login(fixture(), "olga", "operator", "team=red", olga, err));
    assert_row(true, "client/admin", "client.add", "olga");
    assert_row(true, "source/127.0.0.1", "login", "client/olga");
    renew(olga);
    assert_row(true, "client/olga", "certificate.renew", "client/olga");
    CLEANUP_RESULT struct proc_result denied = CLI("token", "list", "--identity", olga);
    cr_assert_neq(denied.status, 0);
    cr_expect_eq(STORE_NUMBER(AUDIT_DENIED, "client/olga", "ListTokens"), 1);
    MUST_CLI("client", "revoke", "olga");
    assert_row(true, "client/admin", "client.revoke", "olga");
    CLEANUP_RESULT struct proc_result gone = CLI("ls", "--identity", olga);
    cr_assert_neq(gone.status, 0);
    cr_expect_eq(STORE_NUMBER(AUDIT_DENIED, "client/olga", "ListSandboxes"), 1);
}

Test(audit, names_a_command_by_its_hash_and_not_by_its_text)
{
    MUST_CLI("exec", BOX, "--", "echo", "hunter2");
    assert_row(true, "client/admin", "command.start", BOX);
    cr_expect_eq(STORE_NUMBER("SELECT count(*) FROM audit WHERE action = 'command.start'"
                              " AND detail LIKE '%-%-%-%-% spec sha256:%'"
                              " AND length(detail) = 36 + 13 + 64"),
                 1);
    cr_expect_eq(STORE_NUMBER("SELECT count(*) FROM audit WHERE instr(detail, 'hunter2') > 0"
                              " OR instr(detail, 'echo') > 0"),
                 0);
}

Test(audit, has_a_row_for_a_refused_command)
{
    char vera[CLUSTER_PATH_MAX], red[CLUSTER_PATH_MAX];
    MUST(cluster_login(fixture(), "vera", "viewer", NULL, vera, err));
    MUST(cluster_login(fixture(), "red", "operator", "team=red", red, err));
    CLEANUP_RESULT struct proc_result viewer = CLI("exec", BOX, "--identity", vera, "--", "true");
    cr_assert_neq(viewer.status, 0);
    cr_expect_eq(STORE_NUMBER(AUDIT_DENIED, "client/vera", "Exec"), 1);
    CLEANUP_RESULT struct proc_result scope = CLI("exec", BOX, "--identity", red, "--", "true");
    cr_assert_neq(scope.status, 0);
    assert_row(false, "client/red", "command.start", BOX);
}

Test(audit, has_a_row_for_a_command_in_a_revoked_sandbox)
{
    /* PERMISSION_DENIED: a refusal like others. */
    MUST_CLI("sandbox", "revoke", BOX);
    CLEANUP_RESULT struct proc_result revoked = CLI("exec", BOX, "--", "true");
    cr_assert_neq(revoked.status, 0);
    fixture_assert_contains(revoked.err, "was revoked");
    assert_row(false, "client/admin", "command.start", BOX);
}

Test(audit, has_the_row_before_the_command_does_anything)
{
    char line[64], script[CLUSTER_PATH_MAX + 64];
    /* Blocks with its mark set, so that the row is not one of its end. */
    (void)snprintf(script, sizeof(script), "touch %s; echo there; cat", fixture_path("mark"));
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_IN | PIPE_OUT, "exec", BOX, "--", "sh", "-c", script);
    fixture_wait_file(fixture_path("mark"));
    assert_row(true, "client/admin", "command.start", BOX);
    fixture_read_line(client.out, line, sizeof(line));
    close_fd(&client.in);
    cr_assert_eq(fixture_client_wait(&client), 0);
}

/* Somebody else holds the database for longer than the orchestrator waits. */
Test(audit, has_no_effect_without_its_row)
{
    sqlite3 *db = store_open_file(SQLITE_OPEN_READWRITE);
    cr_assert_eq(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "--", "touch", fixture_path("mark"));
    cr_expect_neq(run.status, 0);
    cr_expect(strstr(run.err, "the audit cannot be written"), "%s", run.err);
    cr_assert_eq(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    cr_assert_eq(sqlite3_close(db), SQLITE_OK);
    cr_assert_neq(access(fixture_path("mark"), F_OK), 0);
    cr_assert_eq(STORE_NUMBER("SELECT count(*) FROM audit WHERE action = 'command.start'"), 0);
    MUST_CLI("exec", BOX, "--", "touch", fixture_path("mark"));
    cr_assert_eq(access(fixture_path("mark"), F_OK), 0);
}

/* Reading. */

static int64_t seq_of(const char *line)
{
    json_t *object = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
    cr_assert_not_null(object, "%s", line);
    int64_t seq = json_integer_value(json_object_get(object, "seq"));
    json_decref(object);
    return seq;
}

static unsigned count_lines(const char *text)
{
    unsigned lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

Test(audit, is_read_from_the_end_or_after_a_row)
{
    for (unsigned i = 0; i < 5; i++)
        MUST_CLI("ls");
    int64_t head = STORE_NUMBER("SELECT max(seq) FROM audit");
    /* Each reading is a row itself. */
    CLEANUP_RESULT struct proc_result last = CLI("audit", "--last", "3", "-o", "json");
    cr_assert_eq(last.status, 0, "%s", last.err);
    cr_assert_eq(count_lines(last.out), 3, "%s", last.out);
    cr_assert_eq(seq_of(last.out), head - 1);
    CLEANUP_RESULT struct proc_result after = CLI("audit", "--after", "2", "-o", "json");
    cr_assert_eq(seq_of(after.out), 3);
    cr_assert_eq(count_lines(after.out), head + 2 - 2);
    CLEANUP_RESULT struct proc_result beyond = CLI("audit", "--after", "1000000", "-o", "json");
    cr_assert_str_eq(beyond.out, "");
    CLEANUP_RESULT struct proc_result both = CLI("audit", "--after", "2", "--last", "1");
    cr_assert_neq(both.status, 0);
    CLEANUP_RESULT struct proc_result table = CLI("audit");
    fixture_assert_contains(table.out, "ACTOR");
    fixture_assert_contains(table.out, "ListSandboxes");
}

Test(audit, is_followed_as_it_is_written)
{
    char line[1024];
    CLEANUP_CLIENT struct fixture_client reader =
        CLI_START(PIPE_OUT, "audit", "-f", "--last", "1", "-o", "json");
    fixture_read_line(reader.out, line, sizeof(line));
    fixture_assert_contains(line, "StreamAudit");
    int64_t seq = seq_of(line);
    static const char *const rows[] = { "ListSandboxes", "command.start", "token.create" };
    MUST_CLI("ls");
    MUST_CLI("exec", BOX, "--", "true");
    MUST_CLI("token", "create", "--out", fixture_path("some.token"));
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        fixture_read_line(reader.out, line, sizeof(line));
        fixture_assert_contains(line, rows[i]);
        cr_assert_eq(seq_of(line), ++seq);
    }
}
