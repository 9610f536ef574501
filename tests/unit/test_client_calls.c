/* The client library's calls over loopback mutual TLS: what is asked arrives, what is answered is
 * handed on, lists go on over pages, streams can be left, and answers that are none are errors. */
#include "client/client-internal.h"
#include "common/audit_chain.h"
#include "sandstorm/v1/admin.pb-c.h"
#include "tests/unit/client_fixture.h"

static struct service service;
static struct sandstorm_client *client;
static struct sandstorm_error error;

#define OK(call) cr_assert_eq((call), 0, "%s", error.text)
#define CONTAINS(text, part)                                                                       \
    cr_assert(strstr((text), (part)), "\"%s\" lacks \"%s\"", (text), (part))

/* What the methods do, and what they saw. */
static struct {
    bool empty, twice, deny, same_page, long_hash;
    unsigned calls;
    char seen[512];
    uint64_t tampered; /* the row that is changed */
} script;

static int answer(struct rpc_call *call, const ProtobufCMessage *message, struct err *err)
{
    script.calls++;
    if (script.deny)
        return err_set(err, ERR_DENIED, "only admins may");
    if (script.twice && rpc_call_send(call, message, err) < 0)
        return -1;
    return rpc_call_send(call, message, err);
}

static Sandstorm__V1__Token *token_message(const char *id)
{
    static Sandstorm__V1__Label labels[2];
    static Sandstorm__V1__Label *pointers[] = { &labels[0], &labels[1] };
    static Sandstorm__V1__Token token;
    sandstorm__v1__token__init(&token);
    for (size_t i = 0; i < 2; i++)
        sandstorm__v1__label__init(&labels[i]);
    labels[0].name = (char *)"role";
    labels[0].value = (char *)"web";
    labels[1].name = (char *)"env";
    labels[1].value = (char *)"ci";
    token.id = (char *)id;
    token.labels = pointers;
    token.n_labels = 2;
    token.uses_max = 3;
    token.expires_unix_ms = 77;
    return &token;
}

static int create_token(void *userdata, struct rpc_call *call, const ProtobufCMessage *message,
                        struct err *err)
{
    (void)userdata;
    const Sandstorm__V1__CreateTokenRequest *request =
        (const Sandstorm__V1__CreateTokenRequest *)message;
    Sandstorm__V1__CreateTokenResponse response = SANDSTORM__V1__CREATE_TOKEN_RESPONSE__INIT;
    (void)snprintf(script.seen, sizeof(script.seen), "%s|%s|%u|%llu|", request->sandbox_id,
                   request->prefix, request->uses_max, (unsigned long long)request->ttl_ms);
    for (size_t i = 0; i < request->n_labels; i++) {
        (void)strcat(script.seen, request->labels[i]->name);
        (void)strcat(script.seen, request->labels[i]->value);
    }
    if (!script.empty)
        response.token = token_message("0123456789ab");
    response.secret = (char *)"ssjoin_x";
    response.ca_fingerprint = (char *)"sha256:00";
    return answer(call, &response.base, err);
}

static int list_tokens(void *userdata, struct rpc_call *call, const ProtobufCMessage *message,
                       struct err *err)
{
    (void)userdata;
    const Sandstorm__V1__ListTokensRequest *request =
        (const Sandstorm__V1__ListTokensRequest *)message;
    Sandstorm__V1__ListTokensResponse response = SANDSTORM__V1__LIST_TOKENS_RESPONSE__INIT;
    static char id[16];
    char next[16];
    int page = atoi(request->page_token);
    (void)snprintf(id, sizeof(id), "t%d", page);
    (void)snprintf(next, sizeof(next), "%d", script.same_page ? 1 : page + 1);
    Sandstorm__V1__Token *tokens[] = { token_message(id) };
    response.tokens = tokens;
    response.n_tokens = 1;
    if (page < 2)
        response.next_page_token = next;
    return answer(call, &response.base, err);
}

static int create_client(void *userdata, struct rpc_call *call, const ProtobufCMessage *message,
                         struct err *err)
{
    (void)userdata;
    const Sandstorm__V1__CreateClientRequest *request =
        (const Sandstorm__V1__CreateClientRequest *)message;
    Sandstorm__V1__CreateClientResponse response = SANDSTORM__V1__CREATE_CLIENT_RESPONSE__INIT;
    Sandstorm__V1__Client user = SANDSTORM__V1__CLIENT__INIT;
    user.name = request->name;
    user.role = request->role;
    user.scope = request->scope;
    user.n_scope = request->n_scope;
    response.client = &user;
    response.login_key = (char *)"sslogin_x";
    return answer(call, &response.base, err);
}

static int get_sandbox(void *userdata, struct rpc_call *call, const ProtobufCMessage *message,
                       struct err *err)
{
    (void)userdata;
    Sandstorm__V1__GetSandboxResponse response = SANDSTORM__V1__GET_SANDBOX_RESPONSE__INIT;
    Sandstorm__V1__Sandbox sandbox = SANDSTORM__V1__SANDBOX__INIT;
    Sandstorm__V1__SandboxEvent event = SANDSTORM__V1__SANDBOX_EVENT__INIT;
    Sandstorm__V1__SandboxEvent *events[] = { &event };
    sandbox.id = ((const Sandstorm__V1__GetSandboxRequest *)message)->id;
    sandbox.state = SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_REVOKED;
    sandbox.clock_skew_ms = -5000;
    sandbox.revoked_unix_ms = 9;
    event.kind = (char *)"duplicate_link";
    event.detail = (char *)"two of them";
    sandbox.events = events;
    sandbox.n_events = 1;
    response.sandbox = &sandbox;
    return answer(call, &response.base, err);
}

/* Three messages of four rows. */
static int stream_audit(void *userdata, struct rpc_call *call, const ProtobufCMessage *message,
                        struct err *err)
{
    (void)userdata;
    (void)message;
    static uint8_t hashes[13][32];
    Sandstorm__V1__AuditRow rows[12], *pointers[12];
    for (unsigned i = 0; i < 12; i++) {
        sandstorm__v1__audit_row__init(&rows[i]);
        rows[i].seq = i + 1;
        rows[i].actor = (char *)"client/admin";
        rows[i].action = (char *)"call";
        const struct audit_chain_row chained = {
            .seq = i + 1, .actor = "client/admin", .action = "call", .target = "", .detail = ""
        };
        audit_chain_hash(hashes[i], &chained, hashes[i + 1]);
        rows[i].hash.data = hashes[i + 1];
        rows[i].hash.len = script.long_hash ? 31 : 32;
        rows[i].allowed = rows[i].seq == script.tampered;
        pointers[i] = &rows[i];
    }
    for (unsigned i = 0; i < 3; i++) {
        Sandstorm__V1__StreamAuditResponse response = SANDSTORM__V1__STREAM_AUDIT_RESPONSE__INIT;
        response.rows = pointers + (size_t)4 * i;
        response.n_rows = 4;
        if (i == 0) {
            response.head_seq = 12;
            response.head_hash.data = hashes[12];
            response.head_hash.len = 32;
        }
        if (rpc_call_send(call, &response.base, err) < 0)
            return -1;
    }
    return script.deny ? err_set(err, ERR_UNAVAILABLE, "going down") : 0;
}

static const struct rpc_method methods[] = {
    { .path = "/sandstorm.v1.TokenService/CreateToken",
      .request = &sandstorm__v1__create_token_request__descriptor,
      .unary = create_token },
    { .path = "/sandstorm.v1.TokenService/ListTokens",
      .request = &sandstorm__v1__list_tokens_request__descriptor,
      .unary = list_tokens },
    { .path = "/sandstorm.v1.ClientService/CreateClient",
      .request = &sandstorm__v1__create_client_request__descriptor,
      .unary = create_client },
    { .path = "/sandstorm.v1.SandboxService/GetSandbox",
      .request = &sandstorm__v1__get_sandbox_request__descriptor,
      .unary = get_sandbox },
    { .path = "/sandstorm.v1.AuditService/StreamAudit",
      .request = &sandstorm__v1__stream_audit_request__descriptor,
      .unary = stream_audit },
    { .path = NULL },
};

static void set_up(void)
{
    struct err err = { 0 };
    char path[80];
    service = (struct service){ .dir = "/tmp/test-client-XXXXXX", .methods = methods };
    cr_assert(mkdtemp(service.dir));
    service_start(&service);
    (void)snprintf(path, sizeof(path), "%s/alice", service.dir);
    cr_assert_eq(ca_issue_peer(service.ca, path, IDENTITY_CLIENT, "alice", 3600, &err), 0, "%s",
                 err.text);
    const struct sandstorm_client_options options = { .endpoint = service.endpoint,
                                                      .identity_dir = path };
    OK(sandstorm_client_new(&options, &client, &error));
}

static void tear_down(void)
{
    char command[80];
    sandstorm_client_free(client);
    service_stop(&service);
    (void)snprintf(command, sizeof(command), "rm -rf %s", service.dir);
    cr_assert_eq(system(command), 0);
}

/* cppcheck-suppress unknownMacro */
TestSuite(client_calls, .init = set_up, .fini = tear_down, .timeout = 60);

static void note_token(void *userdata, const struct sandstorm_token *token)
{
    char *text = userdata;
    (void)strcat(text, token->id);
    (void)strcat(text, " ");
    cr_assert_str_eq(token->labels, "env=ci,role=web");
    cr_assert_eq(token->uses_max, 3u);
    cr_assert_eq(token->expires_unix_ms, 77);
}

Test(client_calls, a_token_is_asked_for_and_handed_on)
{
    char text[64] = "";
    const struct sandstorm_token_options options = {
        .prefix = "ci-", .labels = "a=b,c=d", .uses_max = 3, .ttl_ms = 60000
    };
    OK(sandstorm_token_create(client, &options, note_token, text, &error));
    cr_assert_str_eq(script.seen, "|ci-|3|60000|abcd");
    cr_assert_str_eq(text, "0123456789ab ");
}

Test(client_calls, a_list_goes_on_over_its_pages)
{
    char text[64] = "";
    OK(sandstorm_token_list(client, note_token, text, &error));
    cr_assert_str_eq(text, "t0 t1 t2 ");
    cr_assert_eq(script.calls, 3u);
}

Test(client_calls, a_list_that_goes_in_circles_is_an_error)
{
    char text[64] = "";
    script.same_page = true;
    cr_assert_eq(sandstorm_token_list(client, note_token, text, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_PROTOCOL, "%s", error.text);
}

static void note_user(void *userdata, const struct sandstorm_user *user)
{
    (void)snprintf(userdata, 128, "%s %s %s %s", user->name, sandstorm_role_name(user->role),
                   user->scope, user->login_key);
}

Test(client_calls, a_user_is_asked_for_and_handed_on)
{
    char text[128] = "";
    const struct sandstorm_user_options options = { .name = "bob",
                                                    .role = SANDSTORM_ROLE_OPERATOR,
                                                    .scope = "env=ci" };
    OK(sandstorm_user_create(client, &options, note_user, text, &error));
    cr_assert_str_eq(text, "bob operator env=ci sslogin_x");
}

static void note_sandbox(void *userdata, const struct sandstorm_sandbox *sandbox)
{
    (void)snprintf(userdata, 128, "%s %s %lld %zu %s %s|%s", sandbox->id,
                   sandstorm_state_name(sandbox->state), (long long)sandbox->clock_skew_ms,
                   sandbox->event_count, sandbox->events[0].kind, sandbox->events[0].detail,
                   sandbox->labels);
}

Test(client_calls, a_sandbox_comes_with_its_events)
{
    char text[128] = "";
    OK(sandstorm_sandbox_get(client, "web-1", note_sandbox, text, &error));
    cr_assert_str_eq(text, "web-1 revoked -5000 1 duplicate_link two of them|");
}

Test(client_calls, a_refusal_is_told_in_the_orchestrators_words)
{
    char text[64] = "";
    script.deny = true;
    cr_assert_eq(sandstorm_token_list(client, note_token, text, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_DENIED);
    cr_assert_str_eq(error.text, "only admins may");
    cr_assert_eq(sandstorm_token_revoke(client, "x", NULL, NULL, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_UNIMPLEMENTED, "%s", error.text);
}

Test(client_calls, an_answer_that_is_none_is_an_error)
{
    const struct sandstorm_token_options options = { 0 };
    script.empty = true;
    cr_assert_eq(sandstorm_token_create(client, &options, NULL, NULL, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_PROTOCOL);
    CONTAINS(error.text, "without a token");
}

Test(client_calls, two_answers_to_one_question_are_an_error)
{
    const struct sandstorm_token_options options = { 0 };
    script.twice = true;
    cr_assert_eq(sandstorm_token_create(client, &options, NULL, NULL, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_PROTOCOL, "%s", error.text);
    /* And the client can go on. */
    script.twice = false;
    OK(sandstorm_token_create(client, &options, NULL, NULL, &error));
}

/* The audit. */

struct reading {
    unsigned rows, enough;
};

static bool note_row(void *userdata, const struct sandstorm_audit_row *row,
                     const struct sandstorm_audit_report *report)
{
    struct reading *reading = userdata;
    cr_assert_eq(row->seq, ++reading->rows);
    cr_assert_eq(report->rows, reading->rows);
    return reading->rows != reading->enough;
}

static struct sandstorm_audit_report read_audit(struct reading *reading)
{
    struct sandstorm_audit_report report = { 0 };
    const struct sandstorm_audit_options options = { .each = note_row, .userdata = reading };
    OK(sandstorm_audit(client, &options, &report, &error));
    return report;
}

Test(client_calls, the_audit_comes_whole)
{
    struct reading reading = { 0 };
    struct sandstorm_audit_report report = read_audit(&reading);
    cr_assert_eq(report.fault, SANDSTORM_AUDIT_WHOLE);
    cr_assert_eq(report.rows, 12u);
    cr_assert_eq(reading.rows, 12u);
}

Test(client_calls, a_row_that_was_changed_is_found_and_the_rest_still_comes)
{
    struct reading reading = { 0 };
    script.tampered = 6;
    struct sandstorm_audit_report report = read_audit(&reading);
    cr_assert_eq(report.fault, SANDSTORM_AUDIT_CHANGED);
    cr_assert_eq(report.first, 6u);
    cr_assert_eq(reading.rows, 12u);
}

Test(client_calls, a_stream_can_be_left_and_its_end_is_not_missed)
{
    struct reading reading = { .enough = 6 };
    struct sandstorm_audit_report report = read_audit(&reading);
    cr_assert_eq(report.fault, SANDSTORM_AUDIT_WHOLE);
    cr_assert_eq(reading.rows, 6u);
    /* And the client can go on. */
    reading = (struct reading){ 0 };
    report = read_audit(&reading);
    cr_assert_eq(report.rows, 12u);
}

Test(client_calls, a_hash_of_another_size_is_an_error)
{
    struct reading reading = { 0 };
    struct sandstorm_audit_report report;
    const struct sandstorm_audit_options options = { .each = note_row, .userdata = &reading };
    script.long_hash = true;
    cr_assert_eq(sandstorm_audit(client, &options, &report, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_PROTOCOL);
    cr_assert_eq(reading.rows, 0u);
}

Test(client_calls, a_stream_that_breaks_off_is_no_report)
{
    struct reading reading = { 0 };
    struct sandstorm_audit_report report;
    const struct sandstorm_audit_options options = { .each = note_row, .userdata = &reading };
    script.deny = true;
    cr_assert_eq(sandstorm_audit(client, &options, &report, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_UNAVAILABLE, "%s", error.text);
}
