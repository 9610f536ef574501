/* What the verbs print for what an orchestrator answers: secrets alone on stdout or in a file of
 * the owner's, tables, words for times, verdicts on the audit with their exit status, and nothing
 * of a peer's that could steer a terminal. */
#include "cli/cli.h"
#include "common/audit_chain.h"
#include "common/clock.h"
#include "common/file.h"
#include "sandstorm/v1/admin.pb-c.h"
#include "sandstorm/v1/control.pb-c.h"
#include "tests/unit/client_fixture.h"

#include <criterion/redirect.h>
#include <fcntl.h>
#include <sys/stat.h>

#define ROWS     5u
#define EVIL     "a\x1b[2J\xe2\x80\xae"
#define HARMLESS "a\\x1b[2J\\u202e"

#define CONTAINS(text, part)                                                                       \
    cr_assert(strstr((text), (part)), "\"%s\" lacks \"%s\"", (text), (part))
#define LACKS(text, part) cr_assert(!strstr((text), (part)), "\"%s\" has \"%s\"", (text), (part))

static struct service service;
static struct err err;
static uint64_t changed_row, left_out_row;

static int create_token(void *userdata, struct rpc_call *call, const ProtobufCMessage *message,
                        struct err *why)
{
    (void)userdata;
    const Sandstorm__V1__CreateTokenRequest *request =
        (const Sandstorm__V1__CreateTokenRequest *)message;
    Sandstorm__V1__CreateTokenResponse response = SANDSTORM__V1__CREATE_TOKEN_RESPONSE__INIT;
    Sandstorm__V1__Token token = SANDSTORM__V1__TOKEN__INIT;
    token.id = (char *)"0123456789ab";
    token.prefix = request->prefix;
    token.labels = request->labels;
    token.n_labels = request->n_labels;
    token.uses_max = request->uses_max;
    token.expires_unix_ms = wall_ms() + (int64_t)request->ttl_ms + 30000;
    response.token = &token;
    response.secret = (char *)"ssjoin_secret";
    response.ca_fingerprint = (char *)"sha256:00";
    return rpc_call_send(call, &response.base, why);
}

static int list_tokens(void *userdata, struct rpc_call *call, const ProtobufCMessage *message,
                       struct err *why)
{
    (void)userdata;
    (void)message;
    Sandstorm__V1__ListTokensResponse response = SANDSTORM__V1__LIST_TOKENS_RESPONSE__INIT;
    Sandstorm__V1__Token tokens[4], *pointers[4];
    for (unsigned i = 0; i < 4; i++) {
        sandstorm__v1__token__init(&tokens[i]);
        tokens[i].id = (char *)"0123456789ab";
        tokens[i].uses_max = 2;
        tokens[i].expires_unix_ms = wall_ms() + 14 * 60000 + 30000;
        pointers[i] = &tokens[i];
    }
    tokens[0].prefix = (char *)"ci-";
    tokens[1].sandbox_id = (char *)"web-1";
    tokens[1].uses = 2;
    tokens[2].expires_unix_ms = 1;
    tokens[2].created_by = (char *)EVIL;
    tokens[3].revoked_unix_ms = 1;
    response.tokens = pointers;
    response.n_tokens = 4;
    return rpc_call_send(call, &response.base, why);
}

static int get_identity(void *userdata, struct rpc_call *call, const ProtobufCMessage *message,
                        struct err *why)
{
    (void)userdata;
    (void)message;
    Sandstorm__V1__GetIdentityResponse response = SANDSTORM__V1__GET_IDENTITY_RESPONSE__INIT;
    response.uri = (char *)"spiffe://test.example.com/client/alice";
    response.role = SANDSTORM__V1__ROLE__ROLE_OPERATOR;
    response.not_after_unix_ms = 1763466604000;
    return rpc_call_send(call, &response.base, why);
}

static void fill_sandbox(Sandstorm__V1__Sandbox *sandbox, const char *id)
{
    static Sandstorm__V1__SandboxInfo info;
    static Sandstorm__V1__SandboxEvent event, *events[] = { &event };
    static Sandstorm__V1__Label label, *labels[] = { &label };
    sandstorm__v1__sandbox__init(sandbox);
    sandstorm__v1__sandbox_info__init(&info);
    sandstorm__v1__sandbox_event__init(&event);
    sandstorm__v1__label__init(&label);
    label.name = (char *)"env";
    label.value = (char *)"ci";
    info.hostname = (char *)EVIL;
    event.time_unix_ms = 1763466604000;
    event.kind = (char *)"duplicate_link";
    event.detail = (char *)"x\ny";
    sandbox->id = (char *)id;
    sandbox->state = SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_ONLINE;
    sandbox->info = &info;
    sandbox->events = events;
    sandbox->n_events = 1;
    sandbox->labels = labels;
    sandbox->n_labels = 1;
    sandbox->last_seen_unix_ms = wall_ms();
    sandbox->clock_skew_ms = -32LL * 3600 * 1000;
}

static int get_sandbox(void *userdata, struct rpc_call *call, const ProtobufCMessage *message,
                       struct err *why)
{
    (void)userdata;
    (void)message;
    Sandstorm__V1__GetSandboxResponse response = SANDSTORM__V1__GET_SANDBOX_RESPONSE__INIT;
    Sandstorm__V1__Sandbox sandbox;
    fill_sandbox(&sandbox, "web-1");
    response.sandbox = &sandbox;
    return rpc_call_send(call, &response.base, why);
}

static int revoke_sandbox(void *userdata, struct rpc_call *call, const ProtobufCMessage *message,
                          struct err *why)
{
    (void)userdata;
    (void)message;
    Sandstorm__V1__RevokeSandboxResponse response = SANDSTORM__V1__REVOKE_SANDBOX_RESPONSE__INIT;
    Sandstorm__V1__Sandbox sandbox;
    fill_sandbox(&sandbox, "web-1");
    response.sandbox = &sandbox;
    return rpc_call_send(call, &response.base, why);
}

static int stream_audit(void *userdata, struct rpc_call *call, const ProtobufCMessage *message,
                        struct err *why)
{
    (void)userdata;
    (void)message;
    uint8_t hashes[ROWS + 1][32] = { 0 };
    Sandstorm__V1__AuditRow rows[ROWS], *pointers[ROWS];
    Sandstorm__V1__StreamAuditResponse response = SANDSTORM__V1__STREAM_AUDIT_RESPONSE__INIT;
    for (unsigned i = 0; i < ROWS; i++) {
        const struct audit_chain_row chained = { .seq = i + 1,
                                                 .time_ms = 1763466604000,
                                                 .actor = "client/admin",
                                                 .action = "call",
                                                 .target = EVIL,
                                                 .detail = "" };
        audit_chain_hash(hashes[i], &chained, hashes[i + 1]);
        sandstorm__v1__audit_row__init(&rows[i]);
        rows[i].seq = i + 1;
        rows[i].time_unix_ms = 1763466604000;
        rows[i].actor = (char *)"client/admin";
        rows[i].action = (char *)"call";
        rows[i].target = (char *)EVIL;
        rows[i].allowed = i + 1 == changed_row;
        rows[i].hash.data = hashes[i + 1];
        rows[i].hash.len = 32;
        if (i + 1 != left_out_row)
            pointers[response.n_rows++] = &rows[i];
    }
    response.rows = pointers;
    response.head_seq = ROWS;
    response.head_hash.data = hashes[ROWS];
    response.head_hash.len = 32;
    return rpc_call_send(call, &response.base, why);
}

static const struct rpc_method methods[] = {
    { .path = "/sandstorm.v1.TokenService/CreateToken",
      .request = &sandstorm__v1__create_token_request__descriptor,
      .unary = create_token },
    { .path = "/sandstorm.v1.TokenService/ListTokens",
      .request = &sandstorm__v1__list_tokens_request__descriptor,
      .unary = list_tokens },
    { .path = "/sandstorm.v1.IdentityService/GetIdentity",
      .request = &sandstorm__v1__get_identity_request__descriptor,
      .unary = get_identity },
    { .path = "/sandstorm.v1.SandboxService/GetSandbox",
      .request = &sandstorm__v1__get_sandbox_request__descriptor,
      .unary = get_sandbox },
    { .path = "/sandstorm.v1.SandboxService/RevokeSandbox",
      .request = &sandstorm__v1__revoke_sandbox_request__descriptor,
      .unary = revoke_sandbox },
    { .path = "/sandstorm.v1.AuditService/StreamAudit",
      .request = &sandstorm__v1__stream_audit_request__descriptor,
      .unary = stream_audit },
    { .path = NULL },
};

static void set_up(void)
{
    service = (struct service){ .dir = "/tmp/test-output-XXXXXX", .methods = methods };
    cr_assert(mkdtemp(service.dir) && chdir(service.dir) == 0);
    service_start(&service);
    cr_assert_eq(ca_issue_peer(service.ca, "alice", IDENTITY_CLIENT, "alice", 3600, &err), 0, "%s",
                 err.text);
    cr_assert_eq(setenv("SANDSTORM_ENDPOINT", service.endpoint, 1), 0);
    cr_assert_eq(setenv("SANDSTORM_IDENTITY", "alice", 1), 0);
    cr_redirect_stdout();
    cr_redirect_stderr();
}

static void tear_down(void)
{
    char command[80];
    service_stop(&service);
    (void)snprintf(command, sizeof(command), "rm -rf %s", service.dir);
    cr_assert_eq(system(command), 0);
}

/* cppcheck-suppress unknownMacro */
TestSuite(cli_output, .init = set_up, .fini = tear_down, .timeout = 60);

static char out[16384], errors[4096];

static void hear(FILE *said, char *text, size_t size)
{
    (void)fcntl(fileno(said), F_SETFL, O_NONBLOCK);
    text[fread(text, 1, size - 1, said)] = '\0';
    clearerr(said);
}

static int run_words(const char *const *words)
{
    int argc = 0;
    while (words[argc])
        argc++;
    int status = cli_run(&cli_root, argc, (char **)words);
    (void)fflush(NULL);
    hear(cr_get_redirected_stdout(), out, sizeof(out));
    hear(cr_get_redirected_stderr(), errors, sizeof(errors));
    LACKS(out, "\x1b");
    LACKS(errors, "\x1b");
    LACKS(out, "\xe2\x80\xae");
    return status;
}
#define RUN(...) run_words((const char *[]){ "sandstorm", __VA_ARGS__, NULL })

Test(cli_output, a_token_is_alone_on_stdout_when_nobody_watches)
{
    cr_assert_eq(RUN("token", "create", "--ttl", "15m", "--uses", "3"), 0);
    cr_assert_str_eq(out, "ssjoin_secret\n");
    cr_assert_str_eq(errors, "");
}

Test(cli_output, a_token_in_a_file_is_its_owners_and_the_hint_is_ready_to_paste)
{
    CLEANUP_FREE char *text = NULL;
    size_t size;
    struct stat st;
    (void)umask(0);
    cr_assert_eq(RUN("token", "create", "--ttl", "14m", "--uses", "3", "--prefix", "ci-", "--label",
                     "env=ci", "--out", "token"),
                 0);
    cr_assert_str_eq(out, "");
    LACKS(errors, "ssjoin_");
    CONTAINS(errors, "3 VMs join as ci-");
    CONTAINS(errors, "env=ci");
    CONTAINS(errors, "in 14m");
    char command[192];
    (void)snprintf(command, sizeof(command),
                   "  sandstorm-agent enroll --endpoint %.60s --token-file token "
                   "--ca-fingerprint sha256:00\n",
                   service.endpoint);
    CONTAINS(errors, command);
    cr_assert_eq(stat("token", &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0600u);
    cr_assert_eq(file_read("token", 100, &text, &size, &err), 0);
    cr_assert_str_eq(text, "ssjoin_secret\n");
}

Test(cli_output, tokens_are_listed_with_what_has_become_of_them)
{
    cr_assert_eq(RUN("token", "list"), 0);
    CONTAINS(out, "SANDBOX/PREFIX");
    CONTAINS(out, "ci-*");
    CONTAINS(out, "in 14m");
    CONTAINS(out, "open");
    CONTAINS(out, "2/2");
    CONTAINS(out, "used up");
    CONTAINS(out, "expired");
    CONTAINS(out, "revoked");
    CONTAINS(out, HARMLESS);
    cr_assert_eq(RUN("token", "ls", "--no-headers"), 0);
    LACKS(out, "SANDBOX/PREFIX");
}

Test(cli_output, whoami_says_who_as_what_and_until_when)
{
    cr_assert_eq(RUN("whoami"), 0);
    CONTAINS(out, "alice\n");
    CONTAINS(out, "operator\n");
    CONTAINS(out, "all sandboxes\n");
    CONTAINS(out, "2025-11-18T11:50:04Z");
    CONTAINS(out, service.endpoint);
}

Test(cli_output, describe_has_labels_a_clock_in_words_and_events)
{
    cr_assert_eq(RUN("describe", "web-1"), 0);
    CONTAINS(out, "env=ci\n");
    CONTAINS(out, "32h behind the orchestrator's");
    CONTAINS(out, "2025-11-18T11:50:04Z duplicate_link: x\\x0ay\n");
    CONTAINS(out, HARMLESS);
    CONTAINS(out, "without a runner");
}

Test(cli_output, a_revoked_sandbox_comes_with_the_way_back)
{
    cr_assert_eq(RUN("sandbox", "revoke", "web-1"), 0);
    CONTAINS(out, "web-1 is revoked");
    CONTAINS(out, "sandstorm token create --sandbox web-1");
}

Test(cli_output, the_audit_is_a_table_or_lines_of_json)
{
    cr_assert_eq(RUN("audit"), 0);
    CONTAINS(out, "TIME");
    CONTAINS(out, "2025-11-18T11:50:04Z  client/admin");
    CONTAINS(out, HARMLESS);
    CONTAINS(out, "denied");
    cr_assert_eq(RUN("audit", "-o", "json"), 0);
    LACKS(out, "TIME");
    CONTAINS(out, "{\"seq\":1,\"time\":\"2025-11-18T11:50:04Z\"");
    CONTAINS(out, "\"target\":\"a\\u001B[2J\\u202E\"");
}

Test(cli_output, a_whole_audit_is_verified)
{
    cr_assert_eq(RUN("audit", "--verify"), 0);
    CONTAINS(out, "audit: 5 rows, chain is whole, head 5:");
    cr_assert_eq(strlen(strstr(out, "head 5:")), strlen("head 5:") + 64 + 1);
}

Test(cli_output, a_head_that_was_printed_earlier_must_still_be_there)
{
    char earlier[100], forged[100];
    cr_assert_eq(RUN("audit", "--verify"), 0);
    (void)snprintf(earlier, sizeof(earlier), "%.66s", strstr(out, "head 5:") + 5);
    cr_assert_eq(RUN("audit", "--verify", "--expect", earlier), 0);
    (void)snprintf(forged, sizeof(forged), "%s", earlier);
    forged[10] = forged[10] == 'a' ? 'b' : 'a';
    cr_assert_eq(RUN("audit", "--verify", "--expect", forged), 1);
    CONTAINS(errors, "written anew");
    (void)snprintf(forged, sizeof(forged), "6%s", earlier + 1);
    cr_assert_eq(RUN("audit", "--verify", "--expect", forged), 1);
    CONTAINS(errors, "is not there now");
    cr_assert_eq(RUN("audit", "--verify", "--expect", "5:short"), 2);
    cr_assert_eq(RUN("audit", "--expect", earlier), 2);
}

Test(cli_output, a_broken_audit_fails_and_names_the_row)
{
    changed_row = 3;
    cr_assert_eq(RUN("audit", "--verify"), 1);
    cr_assert_str_eq(out, "");
    CONTAINS(errors, "row 3 was changed");
    /* Also when it is only shown. */
    cr_assert_eq(RUN("audit"), 1);
    CONTAINS(errors, "row 3 was changed");
    changed_row = 0;
    left_out_row = 2;
    cr_assert_eq(RUN("audit", "--verify"), 1);
    CONTAINS(errors, "rows 2 to 2 are missing");
    left_out_row = ROWS;
    cr_assert_eq(RUN("audit", "--verify"), 1);
    CONTAINS(errors, "the end is missing");
}
