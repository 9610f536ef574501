/* What a caller's certificate, and nothing else, lets it see and do: scopes, names that look like
 * others, and everything that a peer could say about itself. Whole methods by role are in
 * tests/integration/test_matrix.c. */
#include "tests/harness/neighbour.h"
#include "tests/harness/peer.h"
#include "tests/integration/identity_fixture.h"

#include "common/file.h"
#include "common/http_client.h"
#include "common/rpc_creds.h"
#include "sandstorm/v1/admin.pb-c.h"
#include "sandstorm/v1/control.pb-c.h"
#include "sandstorm/v1/link.pb-c.h"

#define LIST    "/sandstorm.v1.SandboxService/ListSandboxes"
#define GET     "/sandstorm.v1.SandboxService/GetSandbox"
#define REVOKE  "/sandstorm.v1.SandboxService/RevokeSandbox"
#define EXEC    "/sandstorm.v1.CommandService/Exec"
#define CONNECT "/sandstorm.v1.LinkService/Connect"
#define TOKENS  "/sandstorm.v1.TokenService/ListTokens"

TestSuite(roles, .init = fixture_start, .fini = fixture_stop);
TestSuite(viewer, .init = neighbour_start, .fini = neighbour_stop);

static void login(const char *name, const char *role, const char *scope, char *ret)
{
    MUST(cluster_login(fixture(), name, role, scope, ret, err));
}

static struct err ask_get(const char *identity, const char *id)
{
    CLEANUP_PEER struct peer *peer = peer_open(identity, GET);
    Sandstorm__V1__GetSandboxRequest request = SANDSTORM__V1__GET_SANDBOX_REQUEST__INIT;
    request.id = (char *)id;
    peer_send(peer, &request.base);
    peer_finish(peer);
    return peer_wait_closed(peer);
}

/* Opens a command that would leave DIR/ran behind, and waits for the end of the stream. */
static struct err ask_exec(const char *identity, const char *id)
{
    CLEANUP_PEER struct peer *peer = peer_open(identity, EXEC);
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    Sandstorm__V1__ExecOpen open = SANDSTORM__V1__EXEC_OPEN__INIT;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    spec.argv = (char *[]){ (char *)"touch", (char *)fixture_path("ran") };
    spec.n_argv = 2;
    open.sandbox_id = (char *)id;
    open.spec = &spec;
    open.server_credit = true;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN;
    request.open = &open;
    peer_send(peer, &request.base);
    return peer_wait_closed(peer);
}

static void assert_nothing_ran(void)
{
    cr_assert_neq(access(fixture_path("ran"), F_OK), 0, "the command was run");
}

/* Metadata. */

struct header {
    const char *name;
    const char *value;
    size_t size;
};

/* A call with one header of the test's own, and with or without a certificate: its status. */
static grpc_status_code call_with(const char *identity, const char *method,
                                  const struct header *header)
{
    char endpoint[64];
    struct rpc_creds creds;
    cluster_endpoint(fixture(), endpoint, sizeof(endpoint));
    MUST(rpc_creds_load(identity ? identity : fixture()->admin, &creds, err));
    grpc_init();
    grpc_channel_credentials *secrets =
        identity ? rpc_creds_channel(&creds)
                 : grpc_ssl_credentials_create(creds.ca, NULL, NULL, NULL);
    grpc_channel *channel = grpc_channel_create(endpoint, secrets, NULL);
    grpc_completion_queue *queue = grpc_completion_queue_create_for_pluck(NULL);
    gpr_timespec deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                         gpr_time_from_micros(PROC_DEADLINE_US, GPR_TIMESPAN));
    grpc_call *call =
        grpc_channel_create_call(channel, NULL, GRPC_PROPAGATE_DEFAULTS, queue,
                                 grpc_slice_from_static_string(method), NULL, deadline, NULL);
    grpc_metadata metadata = {
        .key = grpc_slice_from_copied_string(header->name),
        .value = grpc_slice_from_copied_buffer(header->value, header->size),
    };
    grpc_slice nothing = grpc_empty_slice();
    grpc_byte_buffer *request = grpc_raw_byte_buffer_create(&nothing, 1), *answer = NULL;
    grpc_metadata_array first, last;
    grpc_metadata_array_init(&first);
    grpc_metadata_array_init(&last);
    grpc_status_code status = GRPC_STATUS_UNKNOWN;
    grpc_slice details = grpc_empty_slice();
    grpc_op ops[] = {
        { .op = GRPC_OP_SEND_INITIAL_METADATA,
          .data.send_initial_metadata = { 1, &metadata, { 0 } } },
        { .op = GRPC_OP_SEND_MESSAGE, .data.send_message = { request } },
        { .op = GRPC_OP_SEND_CLOSE_FROM_CLIENT },
        { .op = GRPC_OP_RECV_INITIAL_METADATA, .data.recv_initial_metadata = { &first } },
        { .op = GRPC_OP_RECV_MESSAGE, .data.recv_message = { &answer } },
        { .op = GRPC_OP_RECV_STATUS_ON_CLIENT,
          .data.recv_status_on_client = { &last, &status, &details, NULL } },
    };
    cr_assert_eq(grpc_call_start_batch(call, ops, ELEMENTS(ops), &ops, NULL), GRPC_CALL_OK, "%s",
                 header->name);
    (void)grpc_completion_queue_pluck(queue, &ops, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    grpc_slice_unref(details);
    grpc_metadata_array_destroy(&first);
    grpc_metadata_array_destroy(&last);
    grpc_byte_buffer_destroy(request);
    grpc_byte_buffer_destroy(answer);
    grpc_slice_unref(metadata.key);
    grpc_slice_unref(metadata.value);
    grpc_call_unref(call);
    grpc_channel_destroy(channel);
    grpc_channel_credentials_release(secrets);
    grpc_completion_queue_shutdown(queue);
    (void)grpc_completion_queue_pluck(queue, NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    grpc_completion_queue_destroy(queue);
    grpc_shutdown();
    rpc_creds_clear(&creds);
    return status;
}

#define TEXT_HEADER(name, value)                                                                   \
    {                                                                                              \
        (name), (value), sizeof(value) - 1                                                         \
    }

Test(roles, do_not_come_from_metadata)
{
    static const struct header headers[] = {
        TEXT_HEADER("authorization", ""),
        TEXT_HEADER("authorization", "Bearer "),
        TEXT_HEADER("authorization", "Bearer admin"),
        TEXT_HEADER("authorization", "Basic YWRtaW46YWRtaW4="),
        TEXT_HEADER("authorization-bin", "Bearer \0admin\0"),
        TEXT_HEADER("x-forwarded-client-cert", "URI=spiffe://sandstorm.local/client/admin"),
        TEXT_HEADER("x-sandstorm-role", "admin"),
        TEXT_HEADER("x-forwarded-user", "admin"),
    };
    char viewer[CLUSTER_PATH_MAX];
    login("eve", "viewer", NULL, viewer);
    for (size_t i = 0; i < ELEMENTS(headers); i++) {
        cr_expect_eq(call_with(viewer, TOKENS, &headers[i]), GRPC_STATUS_PERMISSION_DENIED,
                     "%s: %s", headers[i].name, headers[i].value);
        cr_expect_eq(call_with(NULL, TOKENS, &headers[i]), GRPC_STATUS_UNAVAILABLE,
                     "without a certificate, %s: %s", headers[i].name, headers[i].value);
        cr_expect_eq(call_with(fixture()->admin, TOKENS, &headers[i]), GRPC_STATUS_OK, "%s: %s",
                     headers[i].name, headers[i].value);
    }
}

Test(roles, do_not_come_from_large_metadata_either)
{
    static char value[64 * 1024];
    char viewer[CLUSTER_PATH_MAX];
    login("eve", "viewer", NULL, viewer);
    (void)memset(value, 'a', sizeof(value));
    const struct header header = { "authorization", value, sizeof(value) };
    /* As large as that it is nobody's, the admin's neither. */
    cr_expect_neq(call_with(viewer, TOKENS, &header), GRPC_STATUS_OK);
    cr_expect_eq(call_with(NULL, TOKENS, &header), GRPC_STATUS_UNAVAILABLE);
    cr_expect_eq(call_with(fixture()->admin, TOKENS, &header), GRPC_STATUS_RESOURCE_EXHAUSTED);
    MUST_CLI("ls");
}

/* Agents as clients, clients as agents. */

static void send_register(struct peer *peer, Sandstorm__V1__SandboxInfo *info)
{
    Sandstorm__V1__Register enlist = SANDSTORM__V1__REGISTER__INIT;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    Sandstorm__V1__ConnectRequest request = SANDSTORM__V1__CONNECT_REQUEST__INIT;
    enlist.protocol_min = enlist.protocol_max = 1;
    enlist.info = info;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_REGISTER;
    frame.register_ = &enlist;
    request.frames = (Sandstorm__V1__AgentFrame *[]){ &frame };
    request.n_frames = 1;
    peer_send(peer, &request.base);
}

Test(roles, a_client_cannot_register_as_the_sandbox_of_its_name)
{
    char boxer[CLUSTER_PATH_MAX];
    login(BOX, "admin", NULL, boxer); /* the most that a client can be */
    int64_t rows = STORE_NUMBER("SELECT count(*) FROM sandboxes");
    CLEANUP_PEER struct peer *peer = peer_open(boxer, CONNECT);
    Sandstorm__V1__SandboxInfo info = SANDSTORM__V1__SANDBOX_INFO__INIT;
    send_register(peer, &info);
    struct err status = peer_wait_closed(peer);
    cr_assert_eq(status.code, ERR_DENIED, "%s", status.text);
    cr_assert_eq(STORE_NUMBER("SELECT count(*) FROM sandboxes"), rows);
    /* The sandbox has still its own link. */
    MUST_CLI("exec", BOX, "--", "true");
    MUST(service_check(fixture_box()->link, err));
    fixture_assert_contains(service_status(fixture_box()->link), "online as");
}

Test(roles, an_agent_cannot_run_commands_not_even_in_itself)
{
    struct err status = ask_exec(fixture_box()->identity, BOX);
    cr_assert_eq(status.code, ERR_DENIED, "%s", status.text);
    assert_nothing_ran();
    cr_assert_eq(STORE_NUMBER("SELECT count(*) FROM audit WHERE action = 'command.start'"), 0);
    cr_assert_eq(STORE_NUMBER(AUDIT_DENIED, "agent/" BOX, "Exec"), 1);
}

/* Scopes. */

/* Where it is quoted: "sandbox" has a box in it. */
static void replace_name(char *text, const char *name)
{
    char quoted[64];
    size_t length = (size_t)snprintf(quoted, sizeof(quoted), "\"%s\"", name);
    for (char *at = strstr(text, quoted); at; at = strstr(at + length, quoted))
        (void)memset(at, '?', length);
}

static void assert_same_refusal(struct err one, const char *its_name, struct err other,
                                const char *other_name)
{
    replace_name(one.text, its_name);
    replace_name(other.text, other_name);
    cr_assert_eq(one.code, ERR_NOT_FOUND, "%s", one.text);
    cr_assert_eq(other.code, ERR_NOT_FOUND, "%s", other.text);
    cr_assert_str_eq(one.text, other.text);
}

Test(roles, what_is_out_of_scope_is_answered_as_what_is_not_there)
{
    char red[CLUSTER_PATH_MAX];
    enroll_labelled("red", "team=red");
    enroll_labelled("blue", "team=blue");
    enroll_labelled("dead", "team=blue");
    MUST_CLI("sandbox", "revoke", "dead");
    login("scoped", "operator", "team=red", red);
    cr_assert_eq(ask_get(red, "red").code, ERR_NONE);
    fixture_assert_contains(ask_exec(red, "red").text, "is offline");
    /* One that is online, one that is offline, one that was revoked; and none. */
    assert_same_refusal(ask_get(red, BOX), BOX, ask_get(red, "bix"), "bix");
    assert_same_refusal(ask_get(red, "blue"), "blue", ask_get(red, "grey"), "grey");
    assert_same_refusal(ask_get(red, "dead"), "dead", ask_get(red, "grey"), "grey");
    assert_same_refusal(ask_exec(red, BOX), BOX, ask_exec(red, "bix"), "bix");
    assert_same_refusal(ask_exec(red, "blue"), "blue", ask_exec(red, "grey"), "grey");
    assert_same_refusal(ask_exec(red, "dead"), "dead", ask_exec(red, "grey"), "grey");
    assert_nothing_ran();
}

Test(roles, the_client_prints_the_same_for_both)
{
    char red[CLUSTER_PATH_MAX];
    login("scoped", "operator", "team=red", red);
    CLEANUP_RESULT struct proc_result hidden = CLI("exec", BOX, "--identity", red, "--", "true");
    CLEANUP_RESULT struct proc_result none = CLI("exec", "bix", "--identity", red, "--", "true");
    replace_name(hidden.err, BOX);
    replace_name(none.err, "bix");
    cr_assert_eq(hidden.status, none.status);
    cr_assert_neq(hidden.status, 0);
    cr_assert_str_eq(hidden.err, none.err);
}

Test(roles, a_list_shows_only_the_scope_page_by_page_too)
{
    char red[CLUSTER_PATH_MAX], page[64] = "", seen[256] = "";
    enroll_labelled("a-blue", "team=blue");
    enroll_labelled("b-red", "team=red");
    enroll_labelled("c-blue", "team=blue");
    enroll_labelled("d-red", "team=red");
    enroll_labelled("e-blue", "team=blue");
    login("scoped", "viewer", "team=red", red);
    do {
        CLEANUP_PEER struct peer *peer = peer_open(red, LIST);
        Sandstorm__V1__ListSandboxesRequest request = SANDSTORM__V1__LIST_SANDBOXES_REQUEST__INIT;
        request.page_size = 1;
        request.page_token = page;
        peer_send(peer, &request.base);
        peer_finish(peer);
        CLEANUP_WIRE ProtobufCMessage *message =
            peer_receive(peer, &sandstorm__v1__list_sandboxes_response__descriptor);
        cr_assert_not_null(message);
        const Sandstorm__V1__ListSandboxesResponse *answer =
            (const Sandstorm__V1__ListSandboxesResponse *)message;
        for (size_t i = 0; i < answer->n_sandboxes; i++) {
            size_t used = strlen(seen);
            (void)snprintf(seen + used, sizeof(seen) - used, "%s ", answer->sandboxes[i]->id);
        }
        (void)snprintf(page, sizeof(page), "%s", answer->next_page_token);
    } while (*page);
    cr_assert_str_eq(seen, "b-red d-red ");
    CLEANUP_RESULT struct proc_result run = CLI("ls", "--identity", red);
    fixture_assert_contains(run.out, "b-red");
    cr_assert_null(strstr(run.out, "blue"), "%s", run.out);
    cr_assert_null(strstr(run.out, BOX), "%s", run.out);
}

Test(roles, a_scope_is_no_pattern)
{
    static const char *const scopes[] = { "team=*", "team=RED", "team=re", "team=redd", "team=" };
    char who[16], identity[CLUSTER_PATH_MAX];
    enroll_labelled("red", "team=red");
    for (size_t i = 0; i < ELEMENTS(scopes); i++) {
        (void)snprintf(who, sizeof(who), "scoped-%zu", i);
        CLEANUP_RESULT struct proc_result tried =
            CLI("client", "add", who, "--role", "viewer", "--scope", scopes[i], "--out",
                fixture_path("tried"));
        (void)unlink(fixture_path("tried"));
        if (tried.status != 0)
            continue; /* not even a label */
        MUST_CLI("client", "revoke", who);
        login(who, "viewer", scopes[i], identity);
        struct err status = ask_get(identity, "red");
        cr_expect_eq(status.code, ERR_NOT_FOUND, "%s: %s", scopes[i], status.text);
    }
}

/* What an agent says about itself. */

Test(roles, labels_of_an_agent_widen_no_scope)
{
    char red[CLUSTER_PATH_MAX];
    Sandstorm__V1__Label label = SANDSTORM__V1__LABEL__INIT;
    Sandstorm__V1__SandboxInfo info = SANDSTORM__V1__SANDBOX_INFO__INIT;
    enroll_labelled("blue", "team=blue");
    login("scoped", "viewer", "team=red", red);
    label.name = (char *)"team";
    label.value = (char *)"red";
    info.labels = (Sandstorm__V1__Label *[]){ &label };
    info.n_labels = 1;
    CLEANUP_PEER struct peer *peer = peer_open(fixture_path("blue"), CONNECT);
    send_register(peer, &info);
    CLEANUP_WIRE ProtobufCMessage *welcome =
        peer_receive(peer, &sandstorm__v1__connect_response__descriptor);
    cr_assert_not_null(welcome);
    cr_assert_eq(ask_get(red, "blue").code, ERR_NOT_FOUND);
}

Test(roles, names_in_a_register_frame_do_not_count)
{
    Sandstorm__V1__SandboxInfo info = SANDSTORM__V1__SANDBOX_INFO__INIT;
    enroll_labelled("blue", "team=blue");
    info.vm_id = info.hostname = (char *)BOX;
    CLEANUP_PEER struct peer *peer = peer_open(fixture_path("blue"), CONNECT);
    send_register(peer, &info);
    CLEANUP_WIRE ProtobufCMessage *message =
        peer_receive(peer, &sandstorm__v1__connect_response__descriptor);
    cr_assert_not_null(message, "%s", peer_wait_closed(peer).text);
    const Sandstorm__V1__ConnectResponse *answer = (const Sandstorm__V1__ConnectResponse *)message;
    cr_assert_eq(answer->frames[0]->kind_case, SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_WELCOME);
    cr_assert_str_eq(answer->frames[0]->welcome->sandbox_id, "blue");
    /* Orders for the other one still go to the other one. */
    MUST_CLI("exec", BOX, "--", "true");
}

/* A name that is given to another machine. */

#define THEIRS "5b8a1f50-6a53-4b0e-9d1c-0d6f0a7d9e11"
#define OURS   "0d5e3c7a-2f41-4c7c-8a39-5e1b7c2d4f60"

static void open_command(struct peer *peer, const char *id)
{
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    Sandstorm__V1__ExecOpen open = SANDSTORM__V1__EXEC_OPEN__INIT;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    spec.argv = (char *[]){ (char *)"true" };
    spec.n_argv = 1;
    open.sandbox_id = (char *)"red";
    open.command_id = (char *)id;
    open.spec = &spec;
    open.server_credit = true;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN;
    request.open = &open;
    peer_send(peer, &request.base);
    CLEANUP_WIRE ProtobufCMessage *accepted =
        peer_receive(peer, &sandstorm__v1__exec_response__descriptor);
    cr_assert_not_null(accepted, "%s", peer_wait_closed(peer).text);
}

/* As an agent whose runner has nothing. */
static struct peer *attach(const char *identity, bool with_inventory)
{
    struct peer *peer = peer_open(identity, CONNECT);
    Sandstorm__V1__SandboxInfo info = SANDSTORM__V1__SANDBOX_INFO__INIT;
    send_register(peer, &info);
    CLEANUP_WIRE ProtobufCMessage *message =
        peer_receive(peer, &sandstorm__v1__connect_response__descriptor);
    cr_assert_not_null(message, "%s", peer_wait_closed(peer).text);
    if (!with_inventory)
        return peer;
    Sandstorm__V1__Inventory inventory = SANDSTORM__V1__INVENTORY__INIT;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    Sandstorm__V1__ConnectRequest request = SANDSTORM__V1__CONNECT_REQUEST__INIT;
    inventory.epoch = ((const Sandstorm__V1__ConnectResponse *)message)->frames[0]->welcome->epoch;
    inventory.complete = true;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_INVENTORY;
    frame.inventory = &inventory;
    request.frames = (Sandstorm__V1__AgentFrame *[]){ &frame };
    request.n_frames = 1;
    peer_send(peer, &request.base);
    return peer;
}

Test(roles, a_command_does_not_follow_a_name_to_another_machine)
{
    char red[CLUSTER_PATH_MAX], old[CLUSTER_PATH_MAX + 64];
    login("scoped", "operator", "team=red", red);
    enroll_labelled("red", "team=red");
    CLEANUP_PEER struct peer *before = attach(fixture_path("red"), false);
    CLEANUP_PEER struct peer *theirs = peer_open(red, EXEC);
    open_command(theirs, THEIRS); /* and waits for the runner there */

    (void)snprintf(old, sizeof(old), "%s", fixture_path("red-old"));
    cr_assert_eq(rename(fixture_path("red"), old), 0);
    enroll_labelled("red", "team=blue");
    cr_assert_neq(peer_wait_closed(before).code, ERR_NONE);
    cr_assert_eq(ask_get(red, "red").code, ERR_NOT_FOUND);
    CLEANUP_PEER struct peer *after = attach(fixture_path("red"), true);
    CLEANUP_PEER struct peer *ours = peer_open(fixture()->admin, EXEC);
    open_command(ours, OURS);
    CLEANUP_WIRE ProtobufCMessage *message =
        peer_receive(after, &sandstorm__v1__connect_response__descriptor);
    cr_assert_not_null(message);
    const Sandstorm__V1__OrchestratorFrame *first =
        ((const Sandstorm__V1__ConnectResponse *)message)->frames[0];
    cr_assert_eq(first->kind_case, SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_ORDER);
    cr_assert_str_eq(first->order->command_id, OURS, "the other machine is told to run %s",
                     first->order->command_id);
    cr_assert_neq(peer_wait_closed(theirs).code, ERR_NONE);
}

/* Names that are nobody's. */

static const char *const odd_names[] = {
    "",     "*",    ".",       "..",     "BOX",   "Box",        "box.",
    "box ", " box", "box/",    "../box", "box\n", "b\xd0\xbex", "box\xe2\x80\x8b",
    "b%78", "bo?",  "box,box", "all",
};

Test(roles, names_that_look_like_one_are_nobody)
{
    char operator[CLUSTER_PATH_MAX];
    login("olga", "operator", NULL, operator);
    for (size_t i = 0; i < ELEMENTS(odd_names); i++) {
        struct err status = ask_get(operator, odd_names[i]);
        cr_expect(status.code == ERR_NOT_FOUND || status.code == ERR_INVALID, "get \"%s\": %d %s",
                  odd_names[i], (int)status.code, status.text);
        status = ask_exec(operator, odd_names[i]);
        cr_expect(status.code == ERR_NOT_FOUND || status.code == ERR_INVALID, "exec \"%s\": %d %s",
                  odd_names[i], (int)status.code, status.text);
    }
    assert_nothing_ran();
    cr_assert_eq(ask_exec(operator, BOX).code, ERR_NONE);
    cr_assert_eq(access(fixture_path("ran"), F_OK), 0);
}

Test(roles, names_that_look_like_one_revoke_nobody)
{
    for (size_t i = 0; i < ELEMENTS(odd_names); i++) {
        CLEANUP_PEER struct peer *peer = peer_open(fixture()->admin, REVOKE);
        Sandstorm__V1__RevokeSandboxRequest request = SANDSTORM__V1__REVOKE_SANDBOX_REQUEST__INIT;
        request.id = (char *)odd_names[i];
        peer_send(peer, &request.base);
        peer_finish(peer);
        struct err status = peer_wait_closed(peer);
        cr_expect(status.code == ERR_NOT_FOUND || status.code == ERR_INVALID, "\"%s\": %d %s",
                  odd_names[i], (int)status.code, status.text);
    }
    cr_assert_eq(STORE_NUMBER("SELECT count(*) FROM sandboxes WHERE revoked_ms <> 0"), 0);
    MUST_CLI("exec", BOX, "--", "true");
}

/* Looking only. */

static void send_exec_kind(struct peer *peer, Sandstorm__V1__ExecRequest__KindCase kind)
{
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    Sandstorm__V1__ExecOpen open = SANDSTORM__V1__EXEC_OPEN__INIT;
    Sandstorm__V1__Credit credit = SANDSTORM__V1__CREDIT__INIT;
    Sandstorm__V1__Stdin input = SANDSTORM__V1__STDIN__INIT;
    Sandstorm__V1__Signal number = SANDSTORM__V1__SIGNAL__INIT;
    Sandstorm__V1__TerminalSize size = SANDSTORM__V1__TERMINAL_SIZE__INIT;
    Sandstorm__V1__Cancel cancel = SANDSTORM__V1__CANCEL__INIT;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    /* Of the neighbour's command, as it was started. */
    spec.argv = (char *[]){ (char *)"cat" };
    spec.n_argv = 1;
    spec.stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
    open.sandbox_id = (char *)BOX;
    open.command_id = (char *)NEIGHBOUR_ID;
    open.spec = &spec;
    open.server_credit = true;
    input.eof = true;
    number.name = (char *)"KILL";
    request.kind_case = kind;
    void *const kinds[] = { &open, &credit, &input, &number, &size, &cancel };
    request.open = kinds[kind - SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN];
    peer_send(peer, &request.base);
}

Test(viewer, may_do_nothing_to_a_command)
{
    char viewer[CLUSTER_PATH_MAX];
    login("vera", "viewer", NULL, viewer);
    for (int kind = SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN;
         kind <= SANDSTORM__V1__EXEC_REQUEST__KIND_CANCEL; kind++) {
        CLEANUP_PEER struct peer *peer = peer_open(viewer, EXEC);
        send_exec_kind(peer, SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN);
        if (kind != SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN)
            send_exec_kind(peer, (Sandstorm__V1__ExecRequest__KindCase)kind);
        struct err status = peer_wait_closed(peer);
        cr_assert_eq(status.code, ERR_DENIED, "%s", status.text);
        fixture_assert_contains(status.text, "is a viewer");
        fixture_assert_contains(status.text, "needs the role operator");
    }
    cr_assert_eq(ask_get(viewer, BOX).code, ERR_NONE);
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "--identity", viewer, "--", "true");
    cr_assert_neq(run.status, 0);
    fixture_assert_contains(run.err, "needs the role operator");
    neighbour_assert_well();
}

/* The other port. */

Test(roles, the_https_port_serves_nothing_but_enrolment_and_health)
{
    static const char *const paths[] = {
        "/",           "/metrics",  "/debug",           "/debug/pprof/",  "/v1/tokens",
        "/v1/clients", "/v1/audit", "/v1/sandboxes",    "/v1/exec",       "/v1",
        "/healthz/",   "/status",   "/v1/ca/../tokens", "/server-status", "/channelz",
        TOKENS,        "/.env",     "/v1/enroll/x",
    };
    /* Who asks for so much that is not there would be refused after a while. */
    static const char settings[] = "source_penalties: false\n";
    char endpoint[64];
    MUST(service_stop(fixture()->orchestrator, err));
    MUST(file_write_atomic(fixture()->settings, settings, sizeof(settings) - 1, 0600, err));
    MUST(cluster_start_orchestrator(fixture(), err));
    (void)snprintf(endpoint, sizeof(endpoint), "127.0.0.1:%d", fixture()->http_port);
    for (size_t i = 0; i < 2 * ELEMENTS(paths); i++) {
        const struct http_request request = { .endpoint = endpoint,
                                              .path = paths[i / 2],
                                              .body = i % 2 ? "{}" : NULL,
                                              .timeout_ms = PROC_DEADLINE_US / 1000 };
        CLEANUP_ANSWER struct http_answer answer = { 0 };
        MUST(http_client_run(&request, &answer, err));
        cr_expect(answer.status == 404, "%s: %d %s", paths[i / 2], answer.status, answer.body);
    }
    MUST_CLI("ls");
}
