/* May this client run this in that sandbox, or attach to that command? The answer is in the audit
 * and in the history before the command is ordered, or before it is refused. For streams
 * (orchestrator/exec.c) and for calls (orchestrator/control_command_start.c). Loop thread. */
#pragma once

#include "common/identity.h"
#include "common/wire.h"
#include "orchestrator/relay.h"

/* A request becomes an order with an address around it, which must fit a message too: one that did
 * not would end the agent's stream, and with it everybody's commands there. */
#define ADMISSION_REQUEST_MAX   (WIRE_MESSAGE_MAX - 1024u)
#define ADMISSION_FIELDS_AROUND 64u /* fields of the frames around a spec, with room to grow */

struct admission;

struct admission_request {
    const struct identity *peer;
    const char *sandbox_id, *command_id; /* command_id "": a new one is made */
    const Sandstorm__V1__CommandSpec *spec;
    uint64_t from_offset; /* where it is to be attached to; a new one begins at 0 */
};

/* `relay` is the command's, made or found; `existed`: nothing was started. Or `failed` says why
 * not. */
typedef void (*admission_done)(void *userdata, struct relay *relay, bool existed,
                               const struct err *failed);
/* -1: done() is not called. */
int admission_start(struct orchestrator *orchestrator, const struct admission_request *request,
                    admission_done done, void *userdata, struct admission **ret,
                    struct err *err) must_use;
/* The command of that id, for a peer that may see its sandbox: its relay, made or found. */
int admission_attach(struct orchestrator *orchestrator, const struct identity *peer,
                     const char *command_id, const char *action, admission_done done,
                     void *userdata, struct admission **ret, struct err *err) must_use;
/* Nobody waits for the answer any more. */
void admission_forget(struct admission *admission);
