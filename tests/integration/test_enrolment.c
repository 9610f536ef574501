/* From a token to a sandbox: who gets in, as whom, how often, and what everybody else is told. The
 * strangers here hold keys of their own and speak with the front themselves; the agents are real.
 */
#include "tests/harness/joiner.h"

#include "common/clock.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define NOT_VALID                                                                                  \
    "this join token is not valid: it is wrong, has expired, was used up or revoked; make a new "  \
    "one with 'sandstorm token create'"

static void start(void)
{
    fixture_start_empty_with("heartbeat_interval: 100ms\nsource_penalties: false\n");
}

TestSuite(enrolment, .init = start, .fini = fixture_stop);

static unsigned mode_of(const char *path)
{
    struct stat info;
    cr_assert_eq(lstat(path, &info), 0, "%s is not there", path);
    return info.st_mode & 07777;
}

static void assert_gone(const char *path)
{
    cr_assert_neq(access(path, F_OK), 0, "%s is still there", path);
}

static void assert_serves(const char *sandbox)
{
    CLEANUP_RESULT struct proc_result run = CLI("exec", sandbox, "--", "echo", "served");
    cr_assert_str_eq(run.out, "served\n", "%s", run.err);
    cr_assert_eq(run.status, 0);
}

/* A row of `token list`. */
static void assert_token(const char *token, const char *uses, const char *state)
{
    char id[16];
    joiner_secret_id(token, id);
    CLEANUP_RESULT struct proc_result list = CLI("token", "list", "--no-headers");
    char *row = strstr(list.out, id);
    cr_assert_not_null(row, "no %s in %s", id, list.out);
    row[strcspn(row, "\n")] = '\0';
    fixture_assert_contains(row, uses);
    fixture_assert_contains(row, state);
}

/* The whole path. */

Test(enrolment, a_token_makes_a_vm_a_sandbox_at_its_first_start)
{
    const struct sandbox_processes *box = fixture_add(BOX);
    char name[64];
    assert_gone(box->token);
    assert_gone(fixture_path(BOX ".pending"));
    cr_assert_eq(mode_of(box->identity), 0700);
    cr_assert_eq(mode_of(fixture_path(BOX "/key.pem")), 0600);
    cr_assert_eq(mode_of(fixture_path(BOX "/machine.json")), 0600);
    assert_serves(BOX);
    cr_assert_eq(AUDIT_COUNT("\"certificate.issue\"", "\"agent/" BOX "\"", "\"allowed\":true"), 1);
    CLEANUP_RESULT struct proc_result seen = CLI("describe", BOX);
    fixture_assert_contains(seen.out, "enrolled: from source/127.0.0.1 with token ");
    cr_assert_eq(gethostname(name, sizeof(name)), 0);
    fixture_assert_contains(seen.out, name);
}

Test(enrolment, an_enrolled_vm_needs_no_token_at_its_next_start)
{
    struct sandbox_processes *box = fixture_add(BOX);
    MUST(service_kill(box->link, err));
    MUST(sandbox_start_link(box, err));
    assert_serves(BOX);
    cr_assert_eq(AUDIT_COUNT("\"certificate.issue\""), 1);
}

/* `sandstorm-agent enroll` with the token in DIR/token and its identity in DIR/joined. */
static struct proc_result enroll(const char *fingerprint, const char *sandbox)
{
    char endpoint[64], identity[CLUSTER_PATH_MAX + 32], token[CLUSTER_PATH_MAX + 32];
    cluster_endpoint(fixture(), endpoint, sizeof(endpoint));
    (void)snprintf(identity, sizeof(identity), "SANDSTORM_IDENTITY=%s/joined", fixture()->dir);
    (void)snprintf(token, sizeof(token), "%s/token", fixture()->dir);
    return RUN(((const char *[]){ identity, NULL }), cluster_program("sandstorm-agent"), "enroll",
               "--endpoint", endpoint, "--enroll-endpoint", joiner_endpoint(), "--token-file",
               token, "--ca-fingerprint", fingerprint, sandbox ? "--sandbox" : NULL, sandbox);
}

Test(enrolment, the_enroll_verb_joins_without_a_daemon)
{
    MUST(cluster_token(fixture(), "token", NULL, err));
    CLEANUP_RESULT struct proc_result run = enroll(fixture()->fingerprint, "web-1");
    cr_assert_eq(run.status, 0, "%s", run.err);
    fixture_assert_contains(run.out, "This VM is sandbox \"web-1\" now");
    fixture_assert_contains(run.out, "Next: start sandstorm-runner");
    fixture_assert_contains(run.out, "SANDSTORM_ORCHESTRATOR_ENDPOINT=127.0.0.1:");
    assert_gone(fixture_path("token"));
    assert_gone(fixture_path("joined.pending"));
    cr_assert_eq(mode_of(fixture_path("joined/key.pem")), 0600);
    CLEANUP_RESULT struct proc_result seen = CLI("describe", "web-1");
    fixture_assert_contains(seen.out, "offline");
}

Test(enrolment, an_agent_with_the_wrong_fingerprint_does_not_send_its_token)
{
    static const char wrong[] =
        "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    MUST(cluster_token(fixture(), "token", NULL, err));
    CLEANUP_FREE char *token = joiner_read("token");
    CLEANUP_RESULT struct proc_result run = enroll(wrong, NULL);
    cr_assert_neq(run.status, 0);
    fixture_assert_contains(run.err, wrong);
    fixture_assert_contains(run.err, fixture()->fingerprint);
    assert_gone(fixture_path("joined"));
    cr_assert_eq(AUDIT_COUNT("\"token.use\""), 0);
    assert_token(token, "0/1", "open");
    /* And with the right one it is still good. */
    CLEANUP_RESULT struct proc_result again = enroll(fixture()->fingerprint, NULL);
    cr_assert_eq(again.status, 0, "%s", again.err);
}

Test(enrolment, an_agent_whose_token_file_holds_something_else_does_not_send_it)
{
    CLEANUP_RESULT struct proc_result made =
        CLI("client", "add", "eve", "--role", "viewer", "--out", fixture_path("token"));
    cr_assert_eq(made.status, 0, "%s", made.err);
    CLEANUP_FREE char *key = joiner_read("token");
    CLEANUP_RESULT struct proc_result run = enroll(fixture()->fingerprint, NULL);
    cr_assert_neq(run.status, 0);
    fixture_assert_contains(run.err, "does not hold a join token");
    cr_assert_null(strstr(run.err, key));
    cr_assert_eq(AUDIT_COUNT("\"token.use\""), 0);
    cr_assert_eq(mode_of(fixture_path("token")), 0600);
}

Test(enrolment, an_agent_tries_again_when_its_token_was_wrong_and_takes_a_better_one)
{
    struct sandbox_processes *box = NULL;
    MUST(cluster_add_sandbox(fixture(), BOX, &box, err));
    CLEANUP_FREE char *good = joiner_read(BOX ".token");
    FILE *file = fopen(box->token, "we");
    (void)fprintf(file, "ssjoin_%012d_%064d\n", 1, 1);
    cr_assert_eq(fclose(file), 0);
    MUST(sandbox_start_runner(box, err));
    MUST(service_start(box->link, err));
    MUST(service_wait_log(box->link, "this join token is not valid", PROC_DEADLINE_US, err));
    file = fopen(box->token, "we");
    (void)fprintf(file, "%s\n", good);
    cr_assert_eq(fclose(file), 0);
    MUST(sandbox_wait_online(box, err));
    assert_serves(BOX);
}

/* Tokens that are no good. */

static void assert_refused(const char *token)
{
    struct err why = joiner_try(token, "");
    cr_assert_eq(why.code, ERR_UNAUTHENTICATED, "%s", why.text);
    /* Whatever was wrong, the words are the same. */
    fixture_assert_contains(why.text, NOT_VALID);
    cr_assert_str_eq(strstr(why.text, "this join token"), NOT_VALID);
}

Test(enrolment, unknown_wrong_expired_revoked_and_used_tokens_get_one_and_the_same_answer)
{
    char id[16];
    assert_refused("ssjoin_");
    assert_refused("ssjoin_0123456789ab_"
                   "00000000000000000000000000000000000000000000000000000000000000ff");
    CLEANUP_FREE char *brief = JOIN_TOKEN("--ttl", "1s");
    fixture_wait_time(wall_ms() / 1000 + 1);
    assert_refused(brief);
    CLEANUP_FREE char *revoked = JOIN_TOKEN("--uses", "5");
    joiner_secret_id(revoked, id);
    CLEANUP_RESULT struct proc_result run = CLI("token", "revoke", id);
    cr_assert_eq(run.status, 0, "%s", run.err);
    assert_refused(revoked);
    assert_token(revoked, "0/5", "revoked");
    CLEANUP_FREE char *used = JOIN_TOKEN("--uses", "1");
    cr_assert_eq(joiner_try(used, "").code, ERR_NONE);
    assert_refused(used);
    /* The right id with another secret. */
    CLEANUP_FREE char *open = JOIN_TOKEN("--uses", "1");
    CLEANUP_FREE char *forged = strdup(open);
    char *last = &forged[strlen(forged) - 1];
    *last = *last == '0' ? '1' : '0';
    assert_refused(forged);
    cr_assert_eq(joiner_try(open, "").code, ERR_NONE);
    /* Those who read the audit are told which it was. */
    cr_assert_eq(AUDIT_COUNT("\"allowed\":false", "expired token"), 1);
    cr_assert_eq(AUDIT_COUNT("\"allowed\":false", "revoked token"), 1);
    cr_assert_eq(AUDIT_COUNT("\"allowed\":false", "token is used up"), 1);
    cr_assert_eq(AUDIT_COUNT("\"allowed\":false", "wrong secret"), 1);
    cr_assert_eq(AUDIT_COUNT("\"allowed\":false", "unknown token"), 1);
}

Test(enrolment, a_login_key_is_no_join_token_and_a_join_token_no_login_key)
{
    CLEANUP_RESULT struct proc_result made =
        CLI("client", "add", "eve", "--role", "admin", "--out", fixture_path("eve.login"));
    cr_assert_eq(made.status, 0, "%s", made.err);
    CLEANUP_FREE char *login = joiner_read("eve.login"), *token = JOIN_TOKEN("--uses", "1");
    CLEANUP_KEY_PEM char *key = NULL;
    CLEANUP_FREE char *csr = NULL, *as_join = NULL, *as_login = NULL;
    assert_refused(login);
    /* Nor when only its first word is changed. */
    cr_assert_gt(asprintf(&as_join, "ssjoin%s", strchr(login, '_')), 0);
    cr_assert_gt(asprintf(&as_login, "sslogin%s", strchr(token, '_')), 0);
    assert_refused(as_join);
    MUST(csr_key_new(&key, err));
    MUST(csr_new(key, &csr, err));
    const char *const texts[] = { token, as_login };
    for (size_t i = 0; i < ELEMENTS(texts); i++) {
        CLEANUP_FRONT_CERTIFICATE struct front_certificate answer = { 0 };
        struct err why = { 0 };
        cr_assert_lt(front_login(joiner_endpoint(), joiner_ca(), texts[i], csr, FRONT_TIMEOUT_MS,
                                 &answer, &why),
                     0);
        cr_assert_eq(why.code, ERR_UNAUTHENTICATED, "%s", why.text);
        fixture_assert_contains(why.text, "this login key is not valid");
    }
    /* Neither was harmed by it. */
    cr_assert_eq(joiner_try(token, "").code, ERR_NONE);
    CLEANUP_FRONT_CERTIFICATE struct front_certificate mine = { 0 };
    MUST(front_login(joiner_endpoint(), joiner_ca(), login, csr, FRONT_TIMEOUT_MS, &mine, err));
    cr_assert_str_eq(mine.name, "eve");
}

/* One token, several keys. */

Test(enrolment, a_used_token_is_good_for_its_key_alone_and_the_first_agent_does_not_notice)
{
    struct sandbox_processes *box = NULL;
    MUST(cluster_add_sandbox(fixture(), BOX, &box, err));
    CLEANUP_FREE char *token = joiner_read(BOX ".token");
    MUST(sandbox_start_runner(box, err));
    MUST(sandbox_start_link(box, err));
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_IN | PIPE_OUT | PIPE_ERR, "exec", BOX, "--", "cat");
    char line[64];
    cr_assert_eq(write(client.in, "before\n", 7), 7);
    fixture_read_line(client.out, line, sizeof(line));
    assert_refused(token);
    cr_assert_eq(AUDIT_COUNT("\"token.use\"", "\"allowed\":false", "token is used up"), 1);
    cr_assert_eq(write(client.in, "after\n", 6), 6);
    close_fd(&client.in);
    fixture_read_line(client.out, line, sizeof(line));
    cr_assert_str_eq(line, "after");
    cr_assert_eq(fixture_client_wait(&client), 0);
    size_t size;
    CLEANUP_FREE char *notes = fixture_read_all(client.err, &size);
    cr_assert_eq(size, 0, "%s", notes);
}

Test(enrolment, the_same_key_gets_its_certificate_again)
{
    CLEANUP_FREE char *token = JOIN_TOKEN("--sandbox", "web-1");
    CLEANUP_KEY_PEM char *key = NULL;
    MUST(csr_key_new(&key, err));
    for (unsigned i = 0; i < 3; i++) {
        CLEANUP_FRONT_CERTIFICATE struct front_certificate answer = { 0 };
        MUST(joiner_join(token, key, "", &answer, err));
        cr_assert_str_eq(answer.name, "web-1");
        MUST(csr_check_answer(key, answer.certificate, answer.ca, err));
    }
    assert_token(token, "1/1", "used up");
    assert_refused(token);
}

#define RIVALS 100u
struct rival {
    pthread_t thread;
    const char *token;
    char *key;
    struct err err;
    int result;
};

static void *rival_run(void *userdata)
{
    struct rival *rival = userdata;
    CLEANUP_FRONT_CERTIFICATE struct front_certificate answer = { 0 };
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    /* The front takes so many connections of one address at a time; the others ask again. */
    do
        rival->result = joiner_join(rival->token, rival->key, "", &answer, &rival->err);
    while (rival->result < 0 && rival->err.code != ERR_UNAUTHENTICATED &&
           monotonic_us() < deadline);
    return NULL;
}

/* A token of `uses`, a hundred keys at once. Returns how many got a certificate. */
static unsigned race(const char *token)
{
    struct rival *rivals = calloc(RIVALS, sizeof(*rivals));
    unsigned won = 0;
    cr_assert_not_null(rivals);
    (void)joiner_endpoint();
    (void)joiner_ca();
    for (unsigned i = 0; i < RIVALS; i++) {
        rivals[i].token = token;
        MUST(csr_key_new(&rivals[i].key, err));
    }
    for (unsigned i = 0; i < RIVALS; i++)
        cr_assert_eq(pthread_create(&rivals[i].thread, NULL, rival_run, &rivals[i]), 0);
    for (unsigned i = 0; i < RIVALS; i++)
        cr_assert_eq(pthread_join(rivals[i].thread, NULL), 0);
    for (unsigned i = 0; i < RIVALS; i++) {
        won += rivals[i].result == 0;
        if (rivals[i].result < 0)
            cr_assert_eq(rivals[i].err.code, ERR_UNAUTHENTICATED, "%s", rivals[i].err.text);
        csr_key_free(rivals[i].key);
    }
    free(rivals);
    return won;
}

Test(enrolment, of_a_hundred_keys_that_race_for_one_token_exactly_one_wins)
{
    CLEANUP_FREE char *token = JOIN_TOKEN("--uses", "1");
    cr_assert_eq(race(token), 1);
    assert_token(token, "1/1", "used up");
    cr_assert_eq(AUDIT_COUNT("\"certificate.issue\""), 1);
}

Test(enrolment, of_a_hundred_keys_that_race_for_a_token_of_seven_uses_exactly_seven_win)
{
    CLEANUP_FREE char *token = JOIN_TOKEN("--uses", "7", "--prefix", "ci-");
    cr_assert_eq(race(token), 7);
    assert_token(token, "7/7", "used up");
    CLEANUP_RESULT struct proc_result list = CLI("ls", "--no-headers");
    unsigned rows = 0;
    for (const char *at = list.out; (at = strstr(at, "ci-")); at += 3)
        rows++;
    cr_assert_eq(rows, 7, "%s", list.out);
}

/* Names. */

static void assert_joins_as(const char *token, const char *wish, const char *expected)
{
    CLEANUP_KEY_PEM char *key = NULL;
    CLEANUP_FRONT_CERTIFICATE struct front_certificate answer = { 0 };
    MUST(csr_key_new(&key, err));
    MUST(joiner_join(token, key, wish, &answer, err));
    cr_assert_eq(strncmp(answer.name, expected, strlen(expected)), 0, "it is %s", answer.name);
    if (*wish)
        cr_assert_str_eq(answer.name, wish);
}

static void assert_no_name(const char *token, const char *wish, enum err_code code,
                           const char *words)
{
    struct err why = joiner_try(token, wish);
    cr_assert_eq(why.code, code, "%d: %s", why.code, why.text);
    fixture_assert_contains(why.text, words);
}

Test(enrolment, a_token_says_which_names_it_is_for)
{
    CLEANUP_FREE char *bound = JOIN_TOKEN("--sandbox", "db-1"), *any = JOIN_TOKEN("--uses", "9");
    CLEANUP_FREE char *prefix = JOIN_TOKEN("--prefix", "ci-", "--uses", "9");
    assert_no_name(bound, "db-2", ERR_INVALID, "this token is for sandbox \"db-1\", not \"db-2\"");
    assert_no_name(prefix, "web-1", ERR_INVALID, "names that begin with \"ci-\", not \"web-1\"");
    assert_no_name(any, "../x", ERR_INVALID, "");
    assert_no_name(any, "a b", ERR_INVALID, "");
    /* None of these has cost a use. */
    assert_token(bound, "0/1", "open");
    assert_token(prefix, "0/9", "open");
    assert_token(any, "0/9", "open");
    assert_joins_as(bound, "", "db-1");
    assert_joins_as(prefix, "ci-web", "ci-web");
    assert_joins_as(prefix, "", "ci-");
    assert_joins_as(any, "web-1", "web-1");
    assert_joins_as(any, "", "vm-");
}

Test(enrolment, a_name_that_is_taken_needs_a_token_that_names_it)
{
    fixture_add(BOX);
    CLEANUP_FREE char *any = JOIN_TOKEN("--uses", "1");
    assert_no_name(any, BOX, ERR_EXISTS, "there is a sandbox \"" BOX "\" already");
    assert_no_name(any, BOX, ERR_EXISTS, "sandstorm token create --sandbox " BOX);
    assert_token(any, "0/1", "open");
    assert_serves(BOX);
}

Test(enrolment, a_token_that_names_a_sandbox_replaces_its_machine)
{
    struct sandbox_processes *box = fixture_add(BOX), *heir = NULL;
    MUST(cluster_add_sandbox(fixture(), "heir", &heir, err));
    cr_assert_eq(unlink(heir->token), 0);
    MUST(cluster_token(fixture(), "heir.token", (const char *[]){ "--sandbox", BOX, NULL }, err));
    MUST(sandbox_start_runner(heir, err));
    MUST(service_start(heir->link, err));
    MUST(service_wait_status(heir->link, "online as \"" BOX "\"", PROC_DEADLINE_US, err));
    MUST(service_wait_log(box->link, "this sandbox was enrolled again with another key",
                          PROC_DEADLINE_US, err));
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "-c", "echo $PPID");
    cr_assert_eq(strtol(run.out, NULL, 10), (long)proc_pid(service_proc(heir->runner)));
    /* Who comes with the old key is told, and gets no further. */
    MUST(service_kill(box->link, err));
    MUST(service_start(box->link, err));
    MUST(service_wait_log(box->link, "was given to another key since", PROC_DEADLINE_US, err));
    assert_serves(BOX);
}

Test(enrolment, the_labels_of_a_token_are_those_of_its_sandboxes)
{
    CLEANUP_FREE char *token =
        JOIN_TOKEN("--label", "env=ci", "--label", "team=red", "--sandbox", "web-1");
    cr_assert_eq(joiner_try(token, "").code, ERR_NONE);
    CLEANUP_RESULT struct proc_result seen = CLI("describe", "web-1");
    fixture_assert_contains(seen.out, "env=ci");
    fixture_assert_contains(seen.out, "team=red");
}
