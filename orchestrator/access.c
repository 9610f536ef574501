/* Who may do what, answered from the tables of sandboxes and clients. Asked by
 * orchestrator/access_guard.c about every call, and by those whose messages name a sandbox. */
#include "orchestrator/access.h"

#include "orchestrator/clients.h"
#include "orchestrator/orchestrator-internal.h"

#include <stdio.h>
#include <string.h>

static const char *const role_names[ROLE_COUNT_] = {
    [ROLE_NONE] = "none",
    [ROLE_VIEWER] = "viewer",
    [ROLE_OPERATOR] = "operator",
    [ROLE_ADMIN] = "admin",
};

const char *role_name(enum role role)
{
    return (unsigned)role < ROLE_COUNT_ ? role_names[role] : "unknown";
}

void access_actor(const struct identity *peer, char ret[ACCESS_ACTOR_MAX])
{
    (void)snprintf(ret, ACCESS_ACTOR_MAX, "%s/%s", identity_kind_name(peer->kind), peer->name);
}

/* Who. */

static int identify_agent(struct orchestrator *orchestrator, const char *name,
                          const uint8_t key[RPC_KEY_LEN], struct err *err)
{
    const struct sandbox *sandbox = registry_find(orchestrator->registry, name);
    if (sandbox && !sandbox->revoked_ms && memcmp(sandbox->key, key, RPC_KEY_LEN) == 0)
        return 0;
    return err_set(err, ERR_UNAUTHENTICATED,
                   "the certificate of sandbox \"%s\" does not count here: it was %s; enrol it "
                   "again with a token from 'sandstorm token create --sandbox %s'",
                   name,
                   !sandbox              ? "never enrolled"
                   : sandbox->revoked_ms ? "revoked"
                                         : "replaced by a newer enrolment",
                   name);
}

static int identify_client(struct orchestrator *orchestrator, const char *name,
                           const uint8_t key[RPC_KEY_LEN], struct err *err)
{
    const struct client *client = clients_find(orchestrator->clients, name);
    if (client && !client->revoked && client->has_key && memcmp(client->key, key, RPC_KEY_LEN) == 0)
        return 0;
    return err_set(err, ERR_UNAUTHENTICATED,
                   "the certificate of client \"%s\" does not count here: it was %s; ask an admin "
                   "for a new login key ('sandstorm client add')",
                   name, client && client->revoked ? "revoked" : "replaced, or never given a role");
}

int access_identify(struct orchestrator *orchestrator, const struct identity *peer,
                    const uint8_t key[RPC_KEY_LEN], struct err *err)
{
    switch (peer->kind) {
    case IDENTITY_AGENT:
        return identify_agent(orchestrator, peer->name, key, err);
    case IDENTITY_CLIENT:
        return identify_client(orchestrator, peer->name, key, err);
    default:
        return err_set(err, ERR_UNAUTHENTICATED, "nobody is known by this certificate");
    }
}

/* What. */

bool access_sees(struct orchestrator *orchestrator, const struct identity *peer,
                 const struct sandbox *sandbox)
{
    if (peer->kind != IDENTITY_CLIENT)
        return false;
    const struct client *client = clients_find(orchestrator->clients, peer->name);
    return client && labels_contain(sandbox->labels, client->scope);
}

int access_sandbox(struct orchestrator *orchestrator, const struct identity *peer, const char *id,
                   struct sandbox **ret, struct err *err)
{
    struct sandbox *sandbox;
    if (registry_get(orchestrator->registry, id, &sandbox, err) < 0)
        return -1;
    if (!access_sees(orchestrator, peer, sandbox))
        return registry_not_found(id, err);
    *ret = sandbox;
    return 0;
}

int access_check_role(struct orchestrator *orchestrator, const struct identity *peer,
                      const struct access_rule *rule, const char *path, struct err *err)
{
    if (peer->kind == IDENTITY_AGENT)
        return rule->agents
                   ? 0
                   : err_set(err, ERR_DENIED,
                             "this is an agent's certificate, which may not call %s; use a "
                             "client's",
                             path);
    if (rule->least == ROLE_NONE)
        return err_set(err, ERR_DENIED,
                       "this is a client's certificate, which may not call %s; use an agent's",
                       path);
    const struct client *client = clients_find(orchestrator->clients, peer->name);
    enum role role = client ? client->role : ROLE_NONE;
    if (role < rule->least)
        return err_set(
            err, ERR_DENIED,
            "client \"%s\" is %s %s; %s needs the role %s. An admin can revoke you and add "
            "you again with it",
            peer->name, role == ROLE_OPERATOR || role == ROLE_ADMIN ? "an" : "a", role_name(role),
            strrchr(path, '/') + 1, role_name(rule->least));
    return 0;
}
