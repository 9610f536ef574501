/* Every method of the schema, called by everybody who can hold a certificate. What each must be
 * told is written here a second time, on purpose apart from orchestrator/methods.c: a row that is
 * wrong there is wrong here only if somebody thinks so twice. A method without a row here does not
 * compile (tests/checks/method-matrix). */
#include "tests/harness/peer.h"
#include "tests/integration/identity_fixture.h"

#include "grpc/reflection/v1/reflection.pb-c.h"
#include "orchestrator/access.h"
#include "orchestrator/method_list.h"
#include "sandstorm/v1/admin.pb-c.h"
#include "sandstorm/v1/control.pb-c.h"
#include "sandstorm/v1/link.pb-c.h"

TestSuite(matrix, .init = fixture_start_empty, .fini = fixture_stop);

/* Everybody. Those from "revoked" on hold a certificate of our CA and would be let in by their
 * name: the clients are admins. */
#define CALLERS(X)                                                                                 \
    X(agent, "agent/red")                                                                          \
    X(viewer, "client/viewer")                                                                     \
    X(operator, "client/operator")                                                                 \
    X(admin, "client/admin")                                                                       \
    X(operator_in_scope, "client/red-operator")                                                    \
    X(operator_out_of_scope, "client/blue-operator")                                               \
    X(revoked_client, "client/revoked")                                                            \
    X(client_with_an_old_key, "client/again")                                                      \
    X(unknown_client, "client/stranger")                                                           \
    X(agent_never_enrolled, "agent/ghost")                                                         \
    X(revoked_agent, "agent/fired")                                                                \
    X(agent_with_an_old_key, "agent/twice")                                                        \
    X(expired_client, "client/late")

enum caller {
#define CALLER(name, actor) CALLER_##name,
    CALLERS(CALLER) CALLER_COUNT_
#undef CALLER
};

static const struct {
    const char *name, *actor;
} callers[CALLER_COUNT_] = {
#define CALLER(name, actor) { #name, actor },
    CALLERS(CALLER)
#undef CALLER
};

static char identities[CALLER_COUNT_][CLUSTER_PATH_MAX + 64];

static void login(enum caller caller, const char *role, const char *scope)
{
    const char *name = strchr(callers[caller].actor, '/') + 1;
    char made[CLUSTER_PATH_MAX];
    MUST(cluster_login(fixture(), name, role, scope, made, err));
    (void)snprintf(identities[caller], sizeof(identities[caller]), "%s", made);
}

static void keep(enum caller caller, const char *name)
{
    (void)snprintf(identities[caller], sizeof(identities[caller]), "%s", fixture_path(name));
}

/* The context of "again" moves away, and with it the old key. */
static void add_again(void)
{
    char old[CLUSTER_PATH_MAX + 64];
    login(CALLER_client_with_an_old_key, "admin", NULL);
    (void)snprintf(old, sizeof(old), "%s", fixture_path("sandstorm/contexts/old"));
    cr_assert_eq(rename(fixture_path("sandstorm/contexts/again"), old), 0);
    MUST_CLI("client", "revoke", "again");
    cr_assert_eq(unlink(fixture_path("again.login")), 0);
    login(CALLER_client_with_an_old_key, "admin", NULL);
    keep(CALLER_client_with_an_old_key, "sandstorm/contexts/old/identity");
}

static void enroll_again(void)
{
    char old[CLUSTER_PATH_MAX + 64];
    enroll_labelled("twice", NULL);
    (void)snprintf(old, sizeof(old), "%s", fixture_path("twice-old"));
    cr_assert_eq(rename(fixture_path("twice"), old), 0);
    enroll_labelled("twice", NULL);
    keep(CALLER_agent_with_an_old_key, "twice-old");
}

static void make_callers(void)
{
    enroll_labelled("red", "team=red");
    enroll_labelled("spare", "team=red");
    enroll_labelled("surplus", "team=red");
    keep(CALLER_agent, "red");
    login(CALLER_viewer, "viewer", NULL);
    login(CALLER_operator, "operator", NULL);
    keep(CALLER_admin, "state/clients/admin");
    login(CALLER_operator_in_scope, "operator", "team=red");
    login(CALLER_operator_out_of_scope, "operator", "team=blue");
    login(CALLER_revoked_client, "admin", NULL);
    MUST_CLI("client", "revoke", "revoked");
    add_again();
    issue(IDENTITY_CLIENT, "stranger");
    keep(CALLER_unknown_client, "stranger");
    issue(IDENTITY_AGENT, "ghost");
    keep(CALLER_agent_never_enrolled, "ghost");
    enroll_labelled("fired", NULL);
    keep(CALLER_revoked_agent, "fired");
    MUST_CLI("sandbox", "revoke", "fired");
    enroll_again();
    login(CALLER_expired_client, "admin", NULL);
    expire(identities[CALLER_expired_client]);
}

/* What is asked: enough to be sure that the method itself answers, and as little as that. */

static void ask_nothing(struct peer *peer)
{
    peer_send_bytes(peer, "", 0);
}

static void ask_get(struct peer *peer)
{
    Sandstorm__V1__GetSandboxRequest request = SANDSTORM__V1__GET_SANDBOX_REQUEST__INIT;
    request.id = (char *)"red";
    peer_send(peer, &request.base);
}

static void ask_revoke(struct peer *peer)
{
    Sandstorm__V1__RevokeSandboxRequest request = SANDSTORM__V1__REVOKE_SANDBOX_REQUEST__INIT;
    request.id = (char *)"spare";
    peer_send(peer, &request.base);
}

static void ask_label(struct peer *peer)
{
    Sandstorm__V1__LabelSandboxRequest request = SANDSTORM__V1__LABEL_SANDBOX_REQUEST__INIT;
    request.id = (char *)"spare";
    peer_send(peer, &request.base);
}

static void ask_drain(struct peer *peer)
{
    Sandstorm__V1__DrainSandboxRequest request = SANDSTORM__V1__DRAIN_SANDBOX_REQUEST__INIT;
    request.id = (char *)"red";
    peer_send(peer, &request.base);
}

static void ask_remove_box(struct peer *peer)
{
    Sandstorm__V1__RemoveSandboxRequest request = SANDSTORM__V1__REMOVE_SANDBOX_REQUEST__INIT;
    request.id = (char *)"surplus";
    peer_send(peer, &request.base);
}

static void ask_ready(struct peer *peer)
{
    Sandstorm__V1__SandboxReadyRequest request = SANDSTORM__V1__SANDBOX_READY_REQUEST__INIT;
    request.id = (char *)"red";
    request.timeout_ms = 1; /* it is offline */
    peer_send(peer, &request.base);
}

static void ask_logs(struct peer *peer)
{
    Sandstorm__V1__StreamLogsRequest request = SANDSTORM__V1__STREAM_LOGS_REQUEST__INIT;
    request.sandbox_id = (char *)"red";
    peer_send(peer, &request.base);
}

static void ask_add(struct peer *peer)
{
    Sandstorm__V1__CreateClientRequest request = SANDSTORM__V1__CREATE_CLIENT_REQUEST__INIT;
    request.name = (char *)"added";
    request.role = SANDSTORM__V1__ROLE__ROLE_VIEWER;
    peer_send(peer, &request.base);
}

static void ask_remove(struct peer *peer)
{
    Sandstorm__V1__RevokeClientRequest request = SANDSTORM__V1__REVOKE_CLIENT_REQUEST__INIT;
    request.name = (char *)"added";
    peer_send(peer, &request.base);
}

static void ask_start(struct peer *peer)
{
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    spec.shell = (char *)"true";
    Sandstorm__V1__StartCommandRequest request = SANDSTORM__V1__START_COMMAND_REQUEST__INIT;
    request.sandbox_id = (char *)"red";
    request.spec = &spec;
    peer_send(peer, &request.base);
}

static void ask_exec(struct peer *peer)
{
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    Sandstorm__V1__ExecOpen open = SANDSTORM__V1__EXEC_OPEN__INIT;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    spec.argv = (char *[]){ (char *)"true" };
    spec.n_argv = 1;
    open.sandbox_id = (char *)"red";
    open.spec = &spec;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN;
    request.open = &open;
    peer_send(peer, &request.base);
}

static void ask_connect(struct peer *peer)
{
    Sandstorm__V1__Register enlist = SANDSTORM__V1__REGISTER__INIT;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    Sandstorm__V1__ConnectRequest request = SANDSTORM__V1__CONNECT_REQUEST__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_REGISTER;
    frame.register_ = &enlist;
    request.frames = (Sandstorm__V1__AgentFrame *[]){ &frame };
    request.n_frames = 1;
    peer_send(peer, &request.base);
}

static void ask_services(struct peer *peer)
{
    Grpc__Reflection__V1__ServerReflectionRequest request =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    request.message_request_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES;
    request.list_services = (char *)"*";
    peer_send(peer, &request.base);
}

/* What they must be told. Yes: the method answers. Denied: PERMISSION_DENIED. Not found: as if the
 * sandbox did not exist. Unknown: UNAUTHENTICATED. Cut: no call is made at all. */
#define STRANGERS "UUUUUUC"
/*                         agent viewer operator admin in-scope out-of-scope */
#define CELLS_AGENTS       "YDDDDD"
#define CELLS_EVERYBODY    "YYYYYY"
#define CELLS_CLIENTS      "DYYYYY"
#define CELLS_VIEWERS_HERE "DYYYYN"
#define CELLS_EXEC         "DDYYYN"
#define CELLS_OPERATORS    "DDYYYY"
#define CELLS_ADMINS       "DDDYDD"

/* Cells, the request, and the row that the audit has of each call that was let in. NULL: none, of
 * what tells nothing about sandboxes; here also of what is asked for something impossible. */
/* clang-format off */

#define EXPECT_sandstorm_v1_LinkService_Connect \
    CELLS_AGENTS, ask_connect, "Connect"
#define EXPECT_sandstorm_v1_SandboxService_ListSandboxes \
    CELLS_CLIENTS, ask_nothing, "ListSandboxes"
#define EXPECT_sandstorm_v1_SandboxService_GetSandbox \
    CELLS_VIEWERS_HERE, ask_get, "GetSandbox"
#define EXPECT_sandstorm_v1_SandboxService_WatchSandboxes \
    CELLS_CLIENTS, ask_nothing, "WatchSandboxes"
#define EXPECT_sandstorm_v1_SandboxService_SandboxReady \
    CELLS_VIEWERS_HERE, ask_ready, "SandboxReady"
#define EXPECT_sandstorm_v1_SandboxService_LabelSandbox \
    CELLS_ADMINS, ask_label, "sandbox.label"
#define EXPECT_sandstorm_v1_SandboxService_DrainSandbox \
    CELLS_EXEC, ask_drain, "DrainSandbox"
#define EXPECT_sandstorm_v1_SandboxService_RemoveSandbox \
    CELLS_ADMINS, ask_remove_box, "sandbox.remove"
#define EXPECT_sandstorm_v1_SandboxService_RevokeSandbox \
    CELLS_ADMINS, ask_revoke, "sandbox.revoke"
#define EXPECT_sandstorm_v1_CommandService_Exec \
    CELLS_EXEC, ask_exec, NULL /* it is offline */
/* Which sandbox a command is of, is looked up: here it is none. */
#define EXPECT_sandstorm_v1_CommandService_StartCommand \
    CELLS_EXEC, ask_start, NULL /* it is offline */
#define EXPECT_sandstorm_v1_CommandService_GetCommand \
    CELLS_CLIENTS, ask_nothing, "GetCommand"
#define EXPECT_sandstorm_v1_CommandService_WaitCommand \
    CELLS_CLIENTS, ask_nothing, "WaitCommand"
#define EXPECT_sandstorm_v1_CommandService_SignalCommand \
    CELLS_OPERATORS, ask_nothing, NULL
#define EXPECT_sandstorm_v1_CommandService_CancelCommand \
    CELLS_OPERATORS, ask_nothing, NULL
#define EXPECT_sandstorm_v1_CommandService_WriteStdin \
    CELLS_OPERATORS, ask_nothing, NULL
#define EXPECT_sandstorm_v1_CommandService_CloseStdin \
    CELLS_OPERATORS, ask_nothing, NULL
#define EXPECT_sandstorm_v1_CommandService_ListCommands \
    CELLS_CLIENTS, ask_nothing, "ListCommands"
#define EXPECT_sandstorm_v1_LogService_StreamLogs \
    CELLS_VIEWERS_HERE, ask_logs, "StreamLogs"
#define EXPECT_sandstorm_v1_TokenService_CreateToken \
    CELLS_ADMINS, ask_nothing, "token.create"
#define EXPECT_sandstorm_v1_TokenService_ListTokens \
    CELLS_ADMINS, ask_nothing, "ListTokens"
#define EXPECT_sandstorm_v1_TokenService_RevokeToken \
    CELLS_ADMINS, ask_nothing, NULL /* it is none */
#define EXPECT_sandstorm_v1_ClientService_CreateClient \
    CELLS_ADMINS, ask_add, "client.add"
#define EXPECT_sandstorm_v1_ClientService_ListClients \
    CELLS_ADMINS, ask_nothing, "ListClients"
#define EXPECT_sandstorm_v1_ClientService_RevokeClient \
    CELLS_ADMINS, ask_remove, "client.revoke"
#define EXPECT_sandstorm_v1_AuditService_StreamAudit \
    CELLS_ADMINS, ask_nothing, "StreamAudit"
#define EXPECT_sandstorm_v1_IdentityService_RenewCertificate \
    CELLS_EVERYBODY, ask_nothing, NULL /* no request in it */
#define EXPECT_sandstorm_v1_IdentityService_GetIdentity \
    CELLS_EVERYBODY, ask_nothing, NULL
#define EXPECT_grpc_health_v1_Health_Check \
    CELLS_EVERYBODY, ask_nothing, NULL
#define EXPECT_grpc_health_v1_Health_Watch \
    CELLS_EVERYBODY, ask_nothing, NULL
#define EXPECT_grpc_reflection_v1_ServerReflection_ServerReflectionInfo \
    CELLS_CLIENTS, ask_services, NULL
#define EXPECT_grpc_reflection_v1alpha_ServerReflection_ServerReflectionInfo \
    CELLS_CLIENTS, ask_services, NULL

/* clang-format on */

static const struct expectation {
    const char *path, *cells;
    void (*ask)(struct peer *peer);
    const char *row;
} expectations[] = {
#define ROW(name, path) { path, EXPECT_##name },
    METHOD_LIST(ROW)
#undef ROW
};

static char verdict_of(const struct err *status)
{
    switch (status->code) {
    case ERR_DENIED:
        return 'D';
    case ERR_UNAUTHENTICATED:
        return 'U';
    case ERR_NOT_FOUND:
        return strstr(status->text, "there is no sandbox") ? 'N' : 'Y';
    case ERR_UNAVAILABLE:
        return strstr(status->text, "is offline") ? 'Y' : 'C';
    default:
        return 'Y';
    }
}

static char call(enum caller caller, const struct expectation *method, struct err *ret_status)
{
    CLEANUP_PEER struct peer *peer = peer_open(identities[caller], method->path);
    method->ask(peer);
    peer_finish(peer);
    /* Any message will do, so it is read as one without fields. */
    CLEANUP_WIRE ProtobufCMessage *answer =
        peer_receive(peer, &sandstorm__v1__get_identity_request__descriptor);
    if (answer)
        return 'Y';
    *ret_status = peer_wait_closed(peer);
    return verdict_of(ret_status);
}

static char wanted(enum caller caller, const struct expectation *method)
{
    return caller < CALLER_revoked_client ? method->cells[caller]
                                          : STRANGERS[caller - CALLER_revoked_client];
}

/* What the guard calls it; an exec that is out of scope is refused by its first message. */
static const char *action(const struct expectation *method, char verdict)
{
    if (verdict == 'N' && (strstr(method->path, "/Exec") || strstr(method->path, "/StartCommand")))
        return "command.start";
    return strrchr(method->path, '/') + 1;
}

static void try_cell(enum caller caller, const struct expectation *method)
{
    struct err status = { 0 };
    char want = wanted(caller, method);
    const char *who = callers[caller].actor, *what = action(method, want);
    const char *allowed = method->row ? method->row : "";
    int64_t before = STORE_NUMBER(AUDIT_DENIED, who, what);
    int64_t allowed_before = STORE_NUMBER(AUDIT_ALLOWED, who, allowed);
    char got = call(caller, method, &status);
    cr_expect_eq(got, want, "%s as %s: %c, not %c: %s", method->path, callers[caller].name, got,
                 want, status.text);
    /* Without a call there is nobody to name. */
    int64_t rows = want == 'D' || want == 'U' || want == 'N' ? 1 : 0;
    cr_expect_eq(STORE_NUMBER(AUDIT_DENIED, who, what) - before, rows,
                 "%s as %s: %s is not in the audit once", method->path, callers[caller].name,
                 rows ? "the refusal" : "no refusal");
    rows = want == 'Y' && method->row ? 1 : 0;
    cr_expect_eq(STORE_NUMBER(AUDIT_ALLOWED, who, allowed) - allowed_before, rows,
                 "%s as %s: %s is not in the audit once", method->path, callers[caller].name,
                 rows ? "the call" : "no call");
}

Test(matrix, answers_every_caller_of_every_method_as_the_table_says, .timeout = 240)
{
    make_callers();
    cr_assert_eq(strlen(STRANGERS), CALLER_COUNT_ - CALLER_revoked_client);
    for (size_t i = 0; i < ELEMENTS(expectations); i++) {
        /* Only so many refusals have a row, and two callers are strangers together. */
        if (i > 0 && i % (ACCESS_DENIAL_ROWS / 2) == 0) {
            MUST(service_stop(fixture()->orchestrator, err));
            MUST(cluster_start_orchestrator(fixture(), err));
        }
        cr_assert_eq(strlen(expectations[i].cells), CALLER_revoked_client, "%s",
                     expectations[i].path);
        for (enum caller caller = 0; caller < CALLER_COUNT_; caller++)
            try_cell(caller, &expectations[i]);
    }
    MUST_CLI("audit", "--verify");
}
