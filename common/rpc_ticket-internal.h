/* For common/rpc_server.c only: how a ticket is made. */
#pragma once

#include "common/rpc_server.h"

/* Takes the call over: binds it, waits for a unary call's message, asks the guard. */
int rpc_ticket_new(const struct rpc_server_config *config, const struct rpc_method *method,
                   struct rpc_call *call, struct err *err) must_use;
