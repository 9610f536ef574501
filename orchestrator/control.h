/* The methods of the API that clients call, besides Exec: each takes a request that the guard
 * (orchestrator/access.c) has let through. Those that need the store answer later. Loop thread. */
#pragma once

#include "common/rpc_server.h"
#include "orchestrator/access.h"
#include "orchestrator/store.h"

#define CONTROL_PAGE_DEFAULT      100u
#define CONTROL_PAGE_MAX          200u
#define CONTROL_WATCHES_MAX       1024u
#define CONTROL_READY_MAX         1024u /* calls that wait for a sandbox */
#define CONTROL_COMMAND_WAITS_MAX 1024u /* and for commands */
#define CONTROL_READY_MS          600000u
#define CONTROL_READY_MAX_MS      3600000u

#define CONTROL_UNARY(name)                                                                        \
    int name(void *userdata, struct rpc_call *call, const ProtobufCMessage *request,               \
             struct err *err)
#define CONTROL_LATER(name)                                                                        \
    int name(void *userdata, struct rpc_ticket *ticket, const ProtobufCMessage *request,           \
             struct err *err)

/* control_sandbox.c */
CONTROL_UNARY(control_list_sandboxes);
CONTROL_LATER(control_get_sandbox);
CONTROL_LATER(control_revoke_sandbox);
/* control_fleet.c */
CONTROL_LATER(control_label_sandbox);
CONTROL_LATER(control_drain_sandbox);
CONTROL_LATER(control_remove_sandbox);
/* control_ready.c */
CONTROL_LATER(control_sandbox_ready);
void control_ready_stop(struct orchestrator *orchestrator);
/* control_watch.c */
int control_watch_sandboxes(void *userdata, struct rpc_call *call, struct err *err);
void control_watch_stop(struct orchestrator *orchestrator);
/* Tells those who watch and saw it, and would not any more: its labels are others now, or it is
 * about to be removed (`gone`). */
void control_watch_left(struct orchestrator *orchestrator, const struct sandbox *sandbox,
                        const char *labels_before, const char *reported_before, bool gone);
/* control_command.c */
CONTROL_LATER(control_list_commands);
CONTROL_LATER(control_start_command);
CONTROL_LATER(control_get_command);
CONTROL_LATER(control_wait_command);
CONTROL_LATER(control_signal_command);
CONTROL_LATER(control_cancel_command);
CONTROL_LATER(control_write_stdin);
CONTROL_LATER(control_close_stdin);
void control_command_stop(struct orchestrator *orchestrator);
/* control_logs.c */
int control_stream_logs(void *userdata, struct rpc_call *call, struct err *err);
/* control_token.c */
CONTROL_LATER(control_create_token);
CONTROL_LATER(control_list_tokens);
CONTROL_LATER(control_revoke_token);
/* control_client.c */
CONTROL_LATER(control_create_client);
CONTROL_LATER(control_list_clients);
CONTROL_LATER(control_revoke_client);
/* control_identity.c */
CONTROL_LATER(control_renew_certificate);
CONTROL_UNARY(control_get_identity);
/* control_audit.c */
int control_stream_audit(void *userdata, struct rpc_call *call, struct err *err);

/* What the ones that answer later begin with: a job that remembers who asked. */
struct control_job {
    struct store_job job;
    struct orchestrator *orchestrator;
    struct rpc_ticket *ticket;
    struct identity peer;
    uint8_t key[RPC_KEY_LEN];
    char actor[ACCESS_ACTOR_MAX];
};

typedef int (*control_work)(struct store_job *job, struct store_tx *tx, struct err *err);
typedef void (*control_done)(struct store_job *job);

/* Makes a zeroed job of `size` bytes, of which a struct control_job is the first member. */
void *control_job_new(size_t size, struct orchestrator *orchestrator, struct rpc_ticket *ticket,
                      struct err *err);
/* The job is freed by `done`, by control_job_end(), or here on failure. */
int control_job_submit(struct control_job *job, control_work work, control_done done, bool durable,
                       struct err *err) must_use;
/* The job failed: tells so and frees it, true. Else false: there is an answer to give. */
bool control_job_failed(struct control_job *job);
/* Answers and frees. */
void control_job_end(struct control_job *job, const ProtobufCMessage *answer);
/* A row about what this job, an admin's, does: in its own transaction, and only if the admin is one
 * there, too. */
int control_job_audit(struct control_job *job, struct store_tx *tx, const char *action,
                      const char *target, const char *detail, struct err *err) must_use;
