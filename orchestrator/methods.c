/* Every method that the orchestrator serves, and who may call it. What is not in this table does
 * not exist: unknown paths are UNIMPLEMENTED, other certificates PERMISSION_DENIED. */
#include "orchestrator/exec.h"
#include "orchestrator/orchestrator-internal.h"
#include "orchestrator/session.h"

#include "grpc/health/v1/health.pb-c.h"

#define AGENTS   (1u << IDENTITY_AGENT)
#define CLIENTS  (1u << IDENTITY_CLIENT)
#define EVERYONE (AGENTS | CLIENTS)

const struct rpc_method orchestrator_methods[] = {
    { .path = "/sandstorm.v1.LinkService/Connect", .allowed = AGENTS, .open = session_open },
    { .path = "/sandstorm.v1.CommandService/Exec", .allowed = CLIENTS, .open = exec_open },
    { .path = "/sandstorm.v1.SandboxService/ListSandboxes",
      .allowed = CLIENTS,
      .request = &sandstorm__v1__list_sandboxes_request__descriptor,
      .unary = control_list_sandboxes },
    { .path = "/sandstorm.v1.SandboxService/GetSandbox",
      .allowed = CLIENTS,
      .request = &sandstorm__v1__get_sandbox_request__descriptor,
      .unary = control_get_sandbox },
    { .path = "/grpc.health.v1.Health/Check",
      .allowed = EVERYONE,
      .request = &grpc__health__v1__health_check_request__descriptor,
      .unary = health_check },
    { .path = "/grpc.health.v1.Health/Watch", .allowed = EVERYONE, .open = health_watch },
    { .path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
      .allowed = CLIENTS,
      .open = reflection_open },
    { .path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
      .allowed = CLIENTS,
      .open = reflection_open_v1alpha },
    { .path = NULL },
};
