/* Server reflection (grpc.reflection.v1 and v1alpha): tools such as grpcurl and buf ask the server
 * for its schema. Files, symbols and services; no extensions, as we have none. Loop thread only. */
#pragma once

#include "common/rpc_call.h"

struct reflection;

/* Fails only when the program was built with a broken schema. */
int reflection_new(struct reflection **ret, struct err *err) must_use;
/* When no call is left: after the server has drained. */
void reflection_free(struct reflection *reflection);

/* The orchestrator's part: where a method finds its struct reflection. */
struct reflection *reflection_of(void *userdata);

/* For the method table: ServerReflectionInfo of either version. */
int reflection_open(void *userdata, struct rpc_call *call, struct err *err);
int reflection_open_v1alpha(void *userdata, struct rpc_call *call, struct err *err);
