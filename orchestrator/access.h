/* Who may do what: roles, scopes, and the one decision that every call passes before its method
 * sees it. The rules themselves are the rows of orchestrator/methods.c. What was decided is in the
 * audit before it takes effect. Loop thread. */
#pragma once

#include "common/rpc_server.h"
#include "orchestrator/registry.h"

/* As sandstorm.v1.Role has them. Each may do what the one before may. */
enum role { ROLE_NONE, ROLE_VIEWER, ROLE_OPERATOR, ROLE_ADMIN, ROLE_COUNT_ };

enum access_scope {
    ACCESS_ANYWHERE,   /* names no sandbox */
    ACCESS_ONE,        /* names one, which must be in the caller's scope */
    ACCESS_FILTERED,   /* the method shows only what is in the caller's scope */
    ACCESS_OF_MESSAGE, /* a stream whose first message names one; its owner asks access_sandbox() */
    ACCESS_SELF,       /* about the caller alone */
};

enum access_audit {
    ACCESS_AUDIT_CALL, /* a row for every call, before it is made */
    ACCESS_AUDIT_OWN,  /* the method writes its row together with what it does */
    ACCESS_AUDIT_NONE, /* tells nothing about sandboxes; only what is denied has a row */
};

struct access_rule {
    bool agents;
    enum role least; /* of the clients; ROLE_NONE: none may */
    enum access_scope scope;
    enum access_audit audit;
    const char *(*target)(const ProtobufCMessage *request); /* NULL, or what a request is about */
};

/* Audit rows for what one peer was denied, and calls of one agent, in ACCESS_PERIOD_US. */
#define ACCESS_PERIOD_US   10000000u
#define ACCESS_DENIAL_ROWS 20u
#define ACCESS_AGENT_CALLS 60u

struct orchestrator;

const char *role_name(enum role role);

/* The guard of the server; userdata is the struct orchestrator. */
void access_guard(void *userdata, const struct rpc_method *method, const ProtobufCMessage *request,
                  struct rpc_ticket *ticket);
/* Does this certificate still stand for this name? ERR_UNAUTHENTICATED when it was revoked or
 * replaced, or when nobody here is called that. */
int access_identify(struct orchestrator *orchestrator, const struct identity *peer,
                    const uint8_t key[RPC_KEY_LEN], struct err *err) must_use;
int access_check_role(struct orchestrator *orchestrator, const struct identity *peer,
                      const struct access_rule *rule, const char *path, struct err *err) must_use;
/* The sandbox, if the caller may know of it: one that is out of its scope is answered exactly as
 * one that does not exist. */
int access_sandbox(struct orchestrator *orchestrator, const struct identity *peer, const char *id,
                   struct sandbox **ret, struct err *err) must_use;
bool access_sees(struct orchestrator *orchestrator, const struct identity *peer,
                 const struct sandbox *sandbox);
/* "client/admin", for the audit. */
#define ACCESS_ACTOR_MAX 96u
void access_actor(const struct identity *peer, char ret[ACCESS_ACTOR_MAX]);
