/* Shut out for good: a sandbox or a client that was revoked loses what is open, gets nothing new,
 * and is told why; and a CA that is replaced while everything runs. */
#include "tests/harness/joiner.h"

#include "common/clock.h"
#include "common/file.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

static void start(void)
{
    fixture_start_with("heartbeat_interval: 100ms\nsource_penalties: false\n");
}

static void start_short(void)
{
    fixture_start_with(
        "heartbeat_interval: 100ms\ncertificate_lifetime: 10s\nsource_penalties: false\n");
}

TestSuite(revocation, .init = start, .fini = fixture_stop);
TestSuite(rotation, .init = start_short, .fini = fixture_stop);

static void assert_serves(const char *sandbox)
{
    CLEANUP_RESULT struct proc_result run = CLI("exec", sandbox, "--", "echo", "served");
    cr_assert_str_eq(run.out, "served\n", "%s", run.err);
    cr_assert_eq(run.status, 0);
}

static void assert_done(struct proc_result run)
{
    cr_assert_eq(run.status, 0, "%s", run.err);
    proc_result_done(&run);
}

/* Sandboxes. */

Test(revocation, a_revoked_sandbox_loses_its_stream_and_its_commands_end_with_words)
{
    struct sandbox_processes *box = fixture_box();
    fixture_add("other");
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT | PIPE_ERR, "exec", BOX, "--", "sh", "-c", "echo ready; exec sleep 600");
    CLEANUP_CLIENT struct fixture_client bystander =
        CLI_START(PIPE_IN | PIPE_OUT, "exec", "other", "--", "cat");
    char line[256];
    fixture_read_line(client.out, line, sizeof(line));
    cr_assert_eq(write(bystander.in, "before\n", 7), 7);
    fixture_read_line(bystander.out, line, sizeof(line));
    assert_done(CLI("sandbox", "revoke", BOX));
    cr_assert_neq(fixture_client_wait(&client), 0);
    size_t size;
    CLEANUP_FREE char *notes = fixture_read_all(client.err, &size);
    fixture_assert_contains(notes, "revoked");
    MUST(service_wait_log(box->link, "revoked", PROC_DEADLINE_US, err));
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "--", "true");
    cr_assert_eq(run.status, 125, "%d", run.status);
    fixture_assert_contains(run.err, "revoked");
    CLEANUP_RESULT struct proc_result seen = CLI("describe", BOX);
    fixture_assert_contains(seen.out, "revoked");
    cr_assert_eq(write(bystander.in, "after\n", 6), 6);
    fixture_read_line(bystander.out, line, sizeof(line));
    cr_assert_str_eq(line, "after");
    cr_assert_eq(AUDIT_COUNT("\"sandbox.revoke\"", "\"client/admin\"", "\"allowed\":true"), 1);
}

Test(revocation, a_revoked_agent_stays_out_says_so_and_comes_back_with_a_new_token)
{
    struct sandbox_processes *box = fixture_box();
    assert_done(CLI("sandbox", "revoke", BOX));
    MUST(service_stop(box->link, err));
    service_forget_status(box->link);
    MUST(service_start(box->link, err));
    MUST(service_wait_log(box->link, "sandbox \\\"" BOX "\\\" was revoked; enrol it again",
                          PROC_DEADLINE_US, err));
    CLEANUP_RESULT struct proc_result status = joiner_status(box);
    cr_assert_eq(status.status, 1);
    fixture_assert_contains(status.out, "enrol it again with a new join token");
    /* Nor over HTTPS with its key, which has not expired. */
    cr_assert_geq(AUDIT_COUNT("\"certificate.renew\"", "\"allowed\":false", "was revoked"), 1);
    MUST(service_stop(box->link, err));
    MUST(cluster_enroll(fixture(), BOX, BOX, err));
    MUST(sandbox_start_link(box, err));
    assert_serves(BOX);
}

Test(revocation, a_new_token_where_the_agent_looks_brings_it_back_without_anybody_there)
{
    struct sandbox_processes *box = fixture_box();
    MUST(service_stop(box->link, err));
    assert_done(CLI("sandbox", "revoke", BOX));
    MUST(cluster_token(fixture(), "box.token", (const char *[]){ "--sandbox", BOX, NULL }, err));
    service_forget_status(box->link);
    MUST(sandbox_start_link(box, err));
    assert_serves(BOX);
    cr_assert_neq(access(box->token, F_OK), 0, "the token is still there");
}

Test(revocation, hints_for_coming_back_keep_what_was_given)
{
    char ann[CLUSTER_PATH_MAX];
    MUST(cluster_login(fixture(), "ann", "viewer", "env=ci", ann, err));
    CLEANUP_RESULT struct proc_result client = CLI("client", "revoke", "ann");
    fixture_assert_contains(client.out, "client add ann --role viewer --scope env=ci");
    MUST(cluster_enroll(fixture(), "other", "other", err));
    CLEANUP_RESULT struct proc_result none = CLI("sandbox", "revoke", "other");
    fixture_assert_contains(none.out, "token create --sandbox other\n");
}

Test(revocation, a_login_does_not_replace_somebody_elses)
{
    char ann[CLUSTER_PATH_MAX], endpoint[64], home[CLUSTER_PATH_MAX + 32];
    MUST(cluster_login(fixture(), "127.0.0.1", "viewer", NULL, ann, err));
    cluster_endpoint(fixture(), endpoint, sizeof(endpoint));
    (void)snprintf(home, sizeof(home), "XDG_CONFIG_HOME=%s", fixture()->dir);
    const struct proc_spec spec = {
        .argv =
            (const char *[]){ cluster_program("sandstorm"), "login", endpoint, "--key",
                              "sslogin_000000000000_"
                              "0000000000000000000000000000000000000000000000000000000000000000",
                              "--ca-fingerprint", fixture()->fingerprint, NULL },
        .env = (const char *[]){ home, NULL },
    };
    CLEANUP_RESULT struct proc_result run = { 0 };
    MUST(proc_run(&spec, NULL, 0, PROC_DEADLINE_US, &run, err));
    cr_assert_eq(run.status, 1, "%d", run.status);
    fixture_assert_contains(run.err, "there is a login for");
    fixture_assert_contains(run.err, "--context NAME");
}

Test(revocation, the_token_that_a_revoked_sandbox_came_with_brings_nobody_back)
{
    CLEANUP_FREE char *token = JOIN_TOKEN("--sandbox", "web-1");
    CLEANUP_KEY_PEM char *key = NULL;
    CLEANUP_FRONT_CERTIFICATE struct front_certificate first = { 0 }, second = { 0 };
    struct err why = { 0 };
    MUST(csr_key_new(&key, err));
    MUST(joiner_join(token, key, "", &first, err));
    assert_done(CLI("sandbox", "revoke", "web-1"));
    cr_assert_lt(joiner_join(token, key, "", &second, &why), 0);
    cr_assert_eq(why.code, ERR_UNAUTHENTICATED, "%s", why.text);
}

/* Clients. */

Test(revocation, a_revoked_client_loses_its_command_and_its_access_and_nobody_else_does)
{
    char identity[CLUSTER_PATH_MAX], line[256];
    MUST(cluster_login(fixture(), "op", "operator", NULL, identity, err));
    CLEANUP_CLIENT struct fixture_client theirs =
        CLI_START(PIPE_OUT | PIPE_ERR, "exec", BOX, "--identity", identity, "--", "sh", "-c",
                  "echo ready; exec sleep 600");
    CLEANUP_CLIENT struct fixture_client ours =
        CLI_START(PIPE_IN | PIPE_OUT, "exec", BOX, "--", "cat");
    fixture_read_line(theirs.out, line, sizeof(line));
    cr_assert_eq(write(ours.in, "before\n", 7), 7);
    fixture_read_line(ours.out, line, sizeof(line));
    assert_done(CLI("client", "revoke", "op"));
    cr_assert_neq(fixture_client_wait(&theirs), 0);
    size_t size;
    CLEANUP_FREE char *notes = fixture_read_all(theirs.err, &size);
    fixture_assert_contains(notes, "client \"op\" does not count here: it was revoked");
    CLEANUP_RESULT struct proc_result run = CLI("ls", "--identity", identity);
    cr_assert_neq(run.status, 0);
    fixture_assert_contains(run.err, "revoked");
    cr_assert_eq(write(ours.in, "after\n", 6), 6);
    fixture_read_line(ours.out, line, sizeof(line));
    cr_assert_str_eq(line, "after");
    close_fd(&ours.in);
    cr_assert_eq(fixture_client_wait(&ours), 0);
}

/* The CA. */

static struct proc_result rotate(const char *first, const char *second)
{
    return RUN(NULL, cluster_program("sandstorm-orchestrator"), "ca", "rotate", "--state-dir",
               fixture()->state_dir, "--config", fixture()->settings, first, second);
}

static unsigned certificates_in(const char *path)
{
    return fixture_count_text(path, "BEGIN CERTIFICATE");
}

/* Until the agent has a certificate of the new CA: until its bundle has both and it has renewed. */
static void wait_renewed(const struct sandbox_processes *sandbox, int64_t after)
{
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    fixture_wait_time(after);
    while (joiner_certificate_end(sandbox->identity) <= after)
        cr_assert_lt(monotonic_us(), deadline);
}

Test(rotation, the_ca_is_replaced_under_running_commands)
{
    struct sandbox_processes *box = fixture_box(), *sleeper = fixture_add("sleeper");
    char old[sizeof(fixture()->fingerprint)];
    (void)snprintf(old, sizeof(old), "%s", fixture()->fingerprint);
    MUST(service_stop(sleeper->link, err));
    CLEANUP_RESULT struct proc_result busy = rotate(NULL, NULL);
    cr_assert_neq(busy.status, 0);
    fixture_assert_contains(busy.err, "stop it first");
    /* Begin: both are trusted. */
    MUST(service_stop(fixture()->orchestrator, err));
    assert_done(rotate(NULL, NULL));
    service_forget_status(box->link);
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(box, err));
    assert_serves(BOX);
    wait_renewed(box, joiner_certificate_end(box->identity));
    cr_assert_eq(certificates_in(fixture_path(BOX "/ca.pem")), 2);
    /* Finish: not before its time, unless told to. */
    MUST(service_stop(fixture()->orchestrator, err));
    CLEANUP_RESULT struct proc_result early = rotate("--finish", NULL);
    cr_assert_neq(early.status, 0);
    fixture_assert_contains(early.err, "the rotation can be finished from ");
    assert_done(rotate("--finish", "--force"));
    service_forget_status(box->link);
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(box, err));
    assert_serves(BOX);
    wait_renewed(box, joiner_certificate_end(box->identity));
    cr_assert_eq(certificates_in(fixture_path(BOX "/ca.pem")), 1);
    assert_serves(BOX);
    /* Who slept through it knows the old CA alone, and trusts nobody else. */
    MUST(service_start(sleeper->link, err));
    MUST(service_wait_log(sleeper->link, "not signed by our CA", PROC_DEADLINE_US, err));
    /* New ones come with the new fingerprint. */
    MUST(cluster_read_fingerprint(fixture(), err));
    cr_assert_str_neq(fixture()->fingerprint, old);
    fixture_add("fresh");
    assert_serves("fresh");
}

Test(rotation, a_command_runs_across_the_restarts_of_a_rotation)
{
    struct sandbox_processes *box = fixture_box();
    MUST(service_stop(fixture()->orchestrator, err));
    assert_done(rotate(NULL, NULL));
    service_forget_status(box->link);
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(box, err));
    char line[64];
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_IN | PIPE_OUT | PIPE_ERR, "exec", BOX, "--", "cat");
    /* Its link renews to the new CA while it runs. */
    for (unsigned i = 0; i < 3; i++) {
        (void)snprintf(line, sizeof(line), "%u\n", i);
        cr_assert_eq(write(client.in, line, 2), 2);
        fixture_read_line(client.out, line, sizeof(line));
        cr_assert_eq(strtoul(line, NULL, 10), i);
        if (i < 2)
            wait_renewed(box, joiner_certificate_end(box->identity));
    }
    close_fd(&client.in);
    cr_assert_eq(fixture_client_wait(&client), 0);
    size_t size;
    CLEANUP_FREE char *notes = fixture_read_all(client.err, &size);
    cr_assert_eq(size, 0, "%s", notes);
}
