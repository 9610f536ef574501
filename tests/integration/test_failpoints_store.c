/* A kill in the middle of every kind of transaction, once before its commit and once right behind
 * it: what comes back has the old state or the new one, and the audit says the same. Only in builds
 * with failpoints (common/failpoint.h); orchestrator/store.c has the two places. */
#include "tests/harness/joiner.h"
#include "tests/integration/identity_fixture.h"

#include <signal.h>

#define KILLED (128 + SIGKILL)

static void start(void)
{
    fixture_start_empty_with("heartbeat_interval: 100ms\nsource_penalties: false\n");
}

TestSuite(failpoints_store, .init = start, .fini = fixture_stop, .timeout = 240);

/* A kind of transaction: what has to be there first, what begins it, and a number that it raises by
 * one. `name` is new for each round. */
struct kind {
    const char *action;
    void (*prepare)(const char *name);
    void (*begin)(const char *name);
    const char *state;
};

#define AUDIT_ROWS "SELECT count(*) FROM audit WHERE allowed = 1 AND action = ?1"

/* Whatever it answers: nobody is there any more to answer. */
static void cli_cut(const char *const *arguments)
{
    CLEANUP_RESULT struct proc_result run = fixture_cli(arguments, NULL, 0);
    cr_assert_neq(run.status, 0, "it was answered: %s", run.out);
}
#define CLI_CUT(...) cli_cut((const char *[]){ __VA_ARGS__, NULL })

static const char *file_of(const char *name, const char *suffix)
{
    static char path[CLUSTER_PATH_MAX];
    char file[64];
    (void)snprintf(file, sizeof(file), "%s.%s", name, suffix);
    (void)snprintf(path, sizeof(path), "%s", fixture_path(file));
    return path;
}

static void prepare_nothing(const char *name)
{
    (void)name;
}

static void prepare_token(const char *name)
{
    MUST_CLI("token", "create", "--sandbox", name, "--out", file_of(name, "token"));
}

static void prepare_client(const char *name)
{
    MUST_CLI("client", "add", name, "--role", "viewer", "--out", file_of(name, "login"));
}

static char *secret_of(const char *name, const char *suffix)
{
    char file[64];
    (void)snprintf(file, sizeof(file), "%s.%s", name, suffix);
    return joiner_read(file);
}

static void begin_token_create(const char *name)
{
    CLI_CUT("token", "create", "--sandbox", name, "--out", file_of(name, "made"));
}

static void begin_token_revoke(const char *name)
{
    CLEANUP_FREE char *token = secret_of(name, "token");
    char id[16];
    joiner_secret_id(token, id);
    CLI_CUT("token", "revoke", id);
}

static void begin_client_add(const char *name)
{
    CLI_CUT("client", "add", name, "--role", "viewer", "--out", file_of(name, "made"));
}

static void begin_client_revoke(const char *name)
{
    CLI_CUT("client", "revoke", name);
}

static void begin_login(const char *name)
{
    CLEANUP_FREE char *login = secret_of(name, "login"), *csr = NULL;
    CLEANUP_KEY_PEM char *key = NULL;
    CLEANUP_FRONT_CERTIFICATE struct front_certificate lost = { 0 };
    MUST(csr_key_new(&key, err));
    MUST(csr_new(key, &csr, err));
    cr_assert_lt(
        front_login(joiner_endpoint(), joiner_ca(), login, csr, FRONT_TIMEOUT_MS, &lost, NULL), 0);
}

static void begin_enrolment(const char *name)
{
    CLEANUP_FREE char *token = secret_of(name, "token");
    cr_assert_eq(joiner_try(token, "").code, ERR_UNAVAILABLE);
}

static void prepare_sandbox(const char *name)
{
    enroll_labelled(name, NULL);
}

static void begin_sandbox_revoke(const char *name)
{
    CLI_CUT("sandbox", "revoke", name);
}

static void begin_call(const char *name)
{
    (void)name;
    CLI_CUT("ls");
}

/* The sandbox of those who need one. Its link is started anew instead of being waited for: it would
 * back off longer with every kill. */
static struct sandbox_processes *box;

static void prepare_box(const char *name)
{
    (void)name;
    if (!box)
        box = fixture_add(BOX);
}

/* The row comes first, so it has not run either way. */
static void begin_command(const char *name)
{
    CLI_CUT("exec", "--give-up-after", "1s", BOX, "--", "touch", file_of(name, "ran"));
}

static const struct kind kinds[] = {
    { "token.create", prepare_nothing, begin_token_create, "SELECT count(*) FROM tokens" },
    { "token.revoke", prepare_token, begin_token_revoke,
      "SELECT count(*) FROM tokens WHERE revoked_ms <> 0" },
    { "client.add", prepare_nothing, begin_client_add, "SELECT count(*) FROM clients" },
    { "client.revoke", prepare_client, begin_client_revoke,
      "SELECT count(*) FROM clients WHERE revoked_ms <> 0" },
    { "login", prepare_client, begin_login, "SELECT count(*) FROM clients WHERE has_key = 1" },
    { "certificate.issue", prepare_token, begin_enrolment, "SELECT count(*) FROM sandboxes" },
    { "certificate.issue", prepare_token, begin_enrolment, "SELECT sum(uses) FROM tokens" },
    { "certificate.issue", prepare_token, begin_enrolment, "SELECT count(*) FROM token_uses" },
    { "sandbox.revoke", prepare_sandbox, begin_sandbox_revoke,
      "SELECT count(*) FROM sandboxes WHERE revoked_ms <> 0" },
    { "ListSandboxes", prepare_nothing, begin_call,
      "SELECT count(*) FROM audit WHERE action = 'ListSandboxes'" },
    { "command.start", prepare_box, begin_command,
      "SELECT count(*) FROM audit WHERE action = 'command.start'" },
};

static void start_again(const char *variable)
{
    MUST(service_set_env(fixture()->orchestrator, variable, err));
    /* The start checks the whole database. */
    MUST(cluster_start_orchestrator(fixture(), err));
    if (!box)
        return;
    MUST(service_stop(box->link, err));
    MUST(sandbox_start_link(box, err));
}

static void arm(const char *point)
{
    char variable[128];
    (void)snprintf(variable, sizeof(variable), "SANDSTORM_FAILPOINT=%s", point);
    MUST(service_stop(fixture()->orchestrator, err));
    start_again(variable);
}

static void wait_killed(void)
{
    int status = 0;
    MUST(service_wait_ended(fixture()->orchestrator, &status, err));
    cr_assert_eq(status, KILLED, "it ended with %d", status);
    start_again("SANDSTORM_FAILPOINT");
}

static void kill_in(const struct kind *kind, const char *where, unsigned round, int64_t change)
{
    char name[32], point[128];
    (void)snprintf(name, sizeof(name), "round-%u", round);
    (void)snprintf(point, sizeof(point), "store.%s.%s", where, kind->action);
    kind->prepare(name);
    arm(point);
    int64_t state = STORE_NUMBER(kind->state), rows = STORE_NUMBER(AUDIT_ROWS, kind->action);
    kind->begin(name);
    wait_killed();
    cr_assert_eq(STORE_NUMBER(kind->state) - state, change, "%s: %s", point, kind->state);
    cr_assert_eq(STORE_NUMBER(AUDIT_ROWS, kind->action) - rows, change, "%s: audit", point);
    cr_assert_neq(access(file_of(name, "ran"), F_OK), 0, "%s", point);
    MUST_CLI("audit", "--verify");
    if (box)
        MUST_CLI("exec", BOX, "--", "true");
}

Test(failpoints_store, a_kill_before_the_commit_leaves_the_old_state)
{
    for (unsigned i = 0; i < ELEMENTS(kinds); i++)
        kill_in(&kinds[i], "saving", i, 0);
}

Test(failpoints_store, a_kill_behind_the_commit_leaves_the_new_state)
{
    for (unsigned i = 0; i < ELEMENTS(kinds); i++)
        kill_in(&kinds[i], "saved", i, 1);
}
