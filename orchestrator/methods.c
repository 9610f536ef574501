/* Every method that the orchestrator serves, and who may call it: the one table. METHOD_LIST comes
 * from the schema (orchestrator/method_list.c), and each entry of it needs a METHOD_ row here: a
 * method without one does not compile. orchestrator/access.c reads the rules; what is not in the
 * schema does not exist.
 *
 *              who of the clients, at least; agents   scope               audit
 */
#include "orchestrator/access.h"
#include "orchestrator/control.h"
#include "orchestrator/exec.h"
#include "orchestrator/orchestrator-internal.h"
#include "orchestrator/session.h"

#include "grpc/health/v1/health.pb-c.h"
#include "orchestrator/method_list.h"
#include "sandstorm/v1/admin.pb-c.h"

/* What a request is about, for the scope and for the audit. */

static const char *get_target(const ProtobufCMessage *request)
{
    return ((const Sandstorm__V1__GetSandboxRequest *)request)->id;
}

static const char *revoke_target(const ProtobufCMessage *request)
{
    return ((const Sandstorm__V1__RevokeSandboxRequest *)request)->id;
}

static const char *label_target(const ProtobufCMessage *request)
{
    return ((const Sandstorm__V1__LabelSandboxRequest *)request)->id;
}

static const char *drain_target(const ProtobufCMessage *request)
{
    return ((const Sandstorm__V1__DrainSandboxRequest *)request)->id;
}

static const char *remove_target(const ProtobufCMessage *request)
{
    return ((const Sandstorm__V1__RemoveSandboxRequest *)request)->id;
}

static const char *ready_target(const ProtobufCMessage *request)
{
    return ((const Sandstorm__V1__SandboxReadyRequest *)request)->id;
}

static const char *commands_target(const ProtobufCMessage *request)
{
    return ((const Sandstorm__V1__ListCommandsRequest *)request)->sandbox_id;
}

#define RULE(agents_, least_, scope_, audit_, target_)                                             \
    .rule = &(const struct access_rule)                                                            \
    {                                                                                              \
        .agents = (agents_), .least = ROLE_##least_, .scope = ACCESS_##scope_,                     \
        .audit = ACCESS_AUDIT_##audit_, .target = (target_)                                        \
    }
#define OPEN(fn)        .open = (fn)
#define UNARY(type, fn) .request = &type##__descriptor, .unary = (fn)
#define LATER(type, fn) .request = &type##__descriptor, .later = (fn)
#define AGENTS_TOO      true
#define CLIENTS_ONLY    false

/* clang-format off */

#define METHOD_sandstorm_v1_LinkService_Connect \
    RULE(AGENTS_TOO, NONE, SELF, CALL, NULL), OPEN(session_open)

#define METHOD_sandstorm_v1_SandboxService_ListSandboxes \
    RULE(CLIENTS_ONLY, VIEWER, FILTERED, CALL, NULL), \
    UNARY(sandstorm__v1__list_sandboxes_request, control_list_sandboxes)
#define METHOD_sandstorm_v1_SandboxService_GetSandbox \
    RULE(CLIENTS_ONLY, VIEWER, ONE, CALL, get_target), \
    LATER(sandstorm__v1__get_sandbox_request, control_get_sandbox)
#define METHOD_sandstorm_v1_SandboxService_WatchSandboxes \
    RULE(CLIENTS_ONLY, VIEWER, FILTERED, CALL, NULL), OPEN(control_watch_sandboxes)
#define METHOD_sandstorm_v1_SandboxService_SandboxReady \
    RULE(CLIENTS_ONLY, VIEWER, ONE, CALL, ready_target), \
    LATER(sandstorm__v1__sandbox_ready_request, control_sandbox_ready)
/* Labels decide who sees a sandbox, so they are an admin's. */
#define METHOD_sandstorm_v1_SandboxService_LabelSandbox \
    RULE(CLIENTS_ONLY, ADMIN, ONE, OWN, label_target), \
    LATER(sandstorm__v1__label_sandbox_request, control_label_sandbox)
#define METHOD_sandstorm_v1_SandboxService_DrainSandbox \
    RULE(CLIENTS_ONLY, OPERATOR, ONE, CALL, drain_target), \
    LATER(sandstorm__v1__drain_sandbox_request, control_drain_sandbox)
#define METHOD_sandstorm_v1_SandboxService_RemoveSandbox \
    RULE(CLIENTS_ONLY, ADMIN, ONE, OWN, remove_target), \
    LATER(sandstorm__v1__remove_sandbox_request, control_remove_sandbox)
#define METHOD_sandstorm_v1_SandboxService_RevokeSandbox \
    RULE(CLIENTS_ONLY, ADMIN, ONE, OWN, revoke_target), \
    LATER(sandstorm__v1__revoke_sandbox_request, control_revoke_sandbox)

#define METHOD_sandstorm_v1_CommandService_Exec \
    RULE(CLIENTS_ONLY, OPERATOR, OF_MESSAGE, OWN, NULL), OPEN(exec_open)

/* Which sandbox a command belongs to, only the method knows. */
#define METHOD_sandstorm_v1_CommandService_StartCommand \
    RULE(CLIENTS_ONLY, OPERATOR, OF_MESSAGE, OWN, NULL), \
    LATER(sandstorm__v1__start_command_request, control_start_command)
#define METHOD_sandstorm_v1_CommandService_GetCommand \
    RULE(CLIENTS_ONLY, VIEWER, OF_MESSAGE, CALL, NULL), \
    LATER(sandstorm__v1__get_command_request, control_get_command)
#define METHOD_sandstorm_v1_CommandService_WaitCommand \
    RULE(CLIENTS_ONLY, VIEWER, OF_MESSAGE, CALL, NULL), \
    LATER(sandstorm__v1__wait_command_request, control_wait_command)
#define METHOD_sandstorm_v1_CommandService_SignalCommand \
    RULE(CLIENTS_ONLY, OPERATOR, OF_MESSAGE, OWN, NULL), \
    LATER(sandstorm__v1__signal_command_request, control_signal_command)
#define METHOD_sandstorm_v1_CommandService_CancelCommand \
    RULE(CLIENTS_ONLY, OPERATOR, OF_MESSAGE, OWN, NULL), \
    LATER(sandstorm__v1__cancel_command_request, control_cancel_command)
#define METHOD_sandstorm_v1_CommandService_WriteStdin \
    RULE(CLIENTS_ONLY, OPERATOR, OF_MESSAGE, OWN, NULL), \
    LATER(sandstorm__v1__write_stdin_request, control_write_stdin)
#define METHOD_sandstorm_v1_CommandService_CloseStdin \
    RULE(CLIENTS_ONLY, OPERATOR, OF_MESSAGE, OWN, NULL), \
    LATER(sandstorm__v1__close_stdin_request, control_close_stdin)

#define METHOD_sandstorm_v1_CommandService_ListCommands \
    RULE(CLIENTS_ONLY, VIEWER, FILTERED, CALL, commands_target), \
    LATER(sandstorm__v1__list_commands_request, control_list_commands)

#define METHOD_sandstorm_v1_LogService_StreamLogs \
    RULE(CLIENTS_ONLY, VIEWER, OF_MESSAGE, OWN, NULL), OPEN(control_stream_logs)

#define METHOD_sandstorm_v1_TokenService_CreateToken \
    RULE(CLIENTS_ONLY, ADMIN, ANYWHERE, OWN, NULL), \
    LATER(sandstorm__v1__create_token_request, control_create_token)
#define METHOD_sandstorm_v1_TokenService_ListTokens \
    RULE(CLIENTS_ONLY, ADMIN, ANYWHERE, CALL, NULL), \
    LATER(sandstorm__v1__list_tokens_request, control_list_tokens)
#define METHOD_sandstorm_v1_TokenService_RevokeToken \
    RULE(CLIENTS_ONLY, ADMIN, ANYWHERE, OWN, NULL), \
    LATER(sandstorm__v1__revoke_token_request, control_revoke_token)

#define METHOD_sandstorm_v1_ClientService_CreateClient \
    RULE(CLIENTS_ONLY, ADMIN, ANYWHERE, OWN, NULL), \
    LATER(sandstorm__v1__create_client_request, control_create_client)
#define METHOD_sandstorm_v1_ClientService_ListClients \
    RULE(CLIENTS_ONLY, ADMIN, ANYWHERE, CALL, NULL), \
    LATER(sandstorm__v1__list_clients_request, control_list_clients)
#define METHOD_sandstorm_v1_ClientService_RevokeClient \
    RULE(CLIENTS_ONLY, ADMIN, ANYWHERE, OWN, NULL), \
    LATER(sandstorm__v1__revoke_client_request, control_revoke_client)

#define METHOD_sandstorm_v1_AuditService_StreamAudit \
    RULE(CLIENTS_ONLY, ADMIN, ANYWHERE, CALL, NULL), OPEN(control_stream_audit)

#define METHOD_sandstorm_v1_IdentityService_RenewCertificate \
    RULE(AGENTS_TOO, VIEWER, SELF, OWN, NULL), \
    LATER(sandstorm__v1__renew_certificate_request, control_renew_certificate)
#define METHOD_sandstorm_v1_IdentityService_GetIdentity \
    RULE(AGENTS_TOO, VIEWER, SELF, NONE, NULL), \
    UNARY(sandstorm__v1__get_identity_request, control_get_identity)

/* Load balancers and watchdogs ask every second. */
#define METHOD_grpc_health_v1_Health_Check \
    RULE(AGENTS_TOO, VIEWER, ANYWHERE, NONE, NULL), \
    UNARY(grpc__health__v1__health_check_request, health_check)
#define METHOD_grpc_health_v1_Health_Watch \
    RULE(AGENTS_TOO, VIEWER, ANYWHERE, NONE, NULL), OPEN(health_watch)

#define METHOD_grpc_reflection_v1_ServerReflection_ServerReflectionInfo \
    RULE(CLIENTS_ONLY, VIEWER, ANYWHERE, NONE, NULL), OPEN(reflection_open)
#define METHOD_grpc_reflection_v1alpha_ServerReflection_ServerReflectionInfo \
    RULE(CLIENTS_ONLY, VIEWER, ANYWHERE, NONE, NULL), OPEN(reflection_open_v1alpha)

/* clang-format on */

#define ROW(name, path_) { .path = (path_), METHOD_##name },

const struct rpc_method orchestrator_methods[] = { METHOD_LIST(ROW){ .path = NULL } };
