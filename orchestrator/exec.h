/* A client that follows one command: the Exec stream on one side, the command in its sandbox on the
 * other. It relays; the runner owns the command and the client owns the output. Ends with its
 * stream; the command does not. Loop thread. */
#pragma once

#include "common/ids.h"
#include "common/rpc_call.h"
#include "common/wire.h"
#include "orchestrator/registry.h"
#include "sandstorm/v1/link.pb-c.h"

#define EXEC_WINDOW      (512u * 1024) /* output on its way to one client */
#define EXEC_OPEN_US     10000000u     /* from the stream's start to its open message */
#define EXEC_FAREWELL_US 30000000u     /* from the end record to the client's acknowledgement */
/* A request becomes an order with an address around it, which must fit a message too: one that did
 * not would end the agent's stream, and with it everybody's commands there. */
#define EXEC_REQUEST_MAX   (WIRE_MESSAGE_MAX - 1024u)
#define EXEC_FIELDS_AROUND 64u /* fields of the frames around a spec, with room to grow */

struct exec;
struct history;

/* The `open` of CommandService.Exec; userdata is the struct orchestrator. */
int exec_open(void *userdata, struct rpc_call *call, struct err *err);

/* From the sandbox's session. -1: the agent broke the protocol. */
struct exec *exec_find(struct sandbox *sandbox, const struct command_id *id);
int exec_event(struct exec *exec, const Sandstorm__V1__CommandEvent *event,
               struct err *err) must_use;
int exec_inventory(struct history *history, struct sandbox *sandbox,
                   const Sandstorm__V1__Inventory *inventory, struct err *err) must_use;
/* `back_at_once`: another stream of the same link takes over in this moment; nobody need know. */
void exec_session_lost(struct sandbox *sandbox, bool back_at_once);
/* The machine behind it does not count any more: its commands go on without us, and nobody hears of
 * them here. `why` as in "was revoked". */
void exec_sandbox_gone(struct sandbox *sandbox, const char *why);
/* The link is there, its runner is not. */
void exec_runner_away(struct sandbox *sandbox);
void exec_session_writable(struct sandbox *sandbox);
/* The end of a command is acknowledged and written down: the runner may forget it; now, or when it
 * is in step again. */
void exec_let_go(struct sandbox *sandbox, const struct command_id *id);
