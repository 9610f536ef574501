/* A client that follows one command: the stream CommandService.Exec. It controls the command or
 * only looks at it; what it is shown comes from the command's relay (orchestrator/relay.h). Ends
 * with its stream; the command does not. Loop thread. */
#pragma once

#include "common/rpc_call.h"

#define EXEC_WINDOW      (512u * 1024) /* output on its way to one client */
#define EXEC_OPEN_US     10000000u     /* from the stream's start to its open message */
#define EXEC_FAREWELL_US 30000000u     /* from the end record to the client's acknowledgement */

/* The `open` of CommandService.Exec; userdata is the struct orchestrator. */
int exec_open(void *userdata, struct rpc_call *call, struct err *err);
