/* The decision about a call: asked by common/rpc_ticket.c through the server's guard, made in
 * orchestrator/access.c, and in the audit (orchestrator/audit.c) before it takes effect. */
#include "orchestrator/access.h"

#include "common/clock.h"
#include "orchestrator/audit.h"
#include "orchestrator/clients.h"
#include "orchestrator/orchestrator-internal.h"

#include <stdio.h>
#include <string.h>

static int decide(struct orchestrator *orchestrator, const struct rpc_method *method,
                  const struct rpc_ticket *ticket, const char *target, struct err *err)
{
    const struct identity *peer = rpc_ticket_peer(ticket);
    const struct access_rule *rule = method->rule;
    struct sandbox *sandbox;
    /* TLS has judged it when the connection was made; that may be long ago. */
    if (rpc_ticket_certificate(ticket)->not_after_s * 1000 < wall_ms())
        return err_set(err, ERR_UNAUTHENTICATED,
                       "the certificate of \"%s\" has expired; renew it and connect again",
                       peer->name);
    if (access_identify(orchestrator, peer, rpc_ticket_certificate(ticket)->key, err) < 0 ||
        access_check_role(orchestrator, peer, rule, method->path, err) < 0)
        return -1;
    if (rule->scope == ACCESS_ONE)
        return access_sandbox(orchestrator, peer, target, &sandbox, err);
    return 0;
}

struct waiting {
    struct rpc_ticket *ticket;
    struct err denied; /* ERR_NONE: it was allowed */
};

static void on_written(void *userdata, const struct err *failed)
{
    struct waiting *waiting = userdata;
    if (waiting->denied.code != ERR_NONE)
        rpc_ticket_fail(waiting->ticket, &waiting->denied);
    else if (failed)
        rpc_ticket_fail(waiting->ticket, failed);
    else
        rpc_ticket_admit(waiting->ticket);
    free(waiting);
}

static void log_denial(struct orchestrator *orchestrator, const struct rpc_method *method,
                       const char *actor, const struct err *why)
{
    uint64_t suppressed;
    if (log_limit_pass(&orchestrator->faults, monotonic_us(), &suppressed))
        log_warn("call refused", LF_STR("method", method->path), LF_STR("peer", actor), LF_ERR(why),
                 LF_UINT("suppressed", suppressed));
}

/* An agent's key belongs to whoever is root in that VM: how often it may call is bounded, because
 * each call costs us a row, and a renewal a signature. A link needs a few calls in an hour. */
static int pace(struct orchestrator *orchestrator, const struct identity *peer, struct err *err)
{
    struct sandbox *sandbox =
        peer->kind == IDENTITY_AGENT ? registry_find(orchestrator->registry, peer->name) : NULL;
    uint64_t unused;
    if (!sandbox || log_limit_pass(&sandbox->calls, monotonic_us(), &unused))
        return 0;
    return err_set(err, ERR_EXHAUSTED, "sandbox \"%s\" calls too often; at most %u calls in %u s",
                   peer->name, ACCESS_AGENT_CALLS, ACCESS_PERIOD_US / 1000000);
}

/* Of the peer itself, or of all those together whom we do not know. */
static struct log_limit *denials_of(struct orchestrator *orchestrator, const struct identity *peer)
{
    struct sandbox *sandbox =
        peer->kind == IDENTITY_AGENT ? registry_find(orchestrator->registry, peer->name) : NULL;
    struct client *client =
        peer->kind == IDENTITY_CLIENT ? clients_find(orchestrator->clients, peer->name) : NULL;
    return sandbox  ? &sandbox->denials
           : client ? &client->denials
                    : &orchestrator->stranger_denials;
}

void access_guard(void *userdata, const struct rpc_method *method, const ProtobufCMessage *request,
                  struct rpc_ticket *ticket)
{
    struct orchestrator *orchestrator = userdata;
    const struct access_rule *rule = method->rule;
    const char *target = rule->target && request ? rule->target(request) : "";
    struct err err = { 0 };
    char actor[ACCESS_ACTOR_MAX];
    access_actor(rpc_ticket_peer(ticket), actor);
    int r = pace(orchestrator, rpc_ticket_peer(ticket), &err);
    if (r == 0)
        r = decide(orchestrator, method, ticket, target, &err);
    uint64_t unwritten = 0;
    if (r < 0) {
        log_denial(orchestrator, method, actor, &err);
        /* Nobody may fill the disk with what it is not allowed to do. */
        if (!log_limit_pass(denials_of(orchestrator, rpc_ticket_peer(ticket)), monotonic_us(),
                            &unwritten)) {
            rpc_ticket_fail(ticket, &err);
            return;
        }
    }
    if (r == 0 && rule->audit != ACCESS_AUDIT_CALL) {
        rpc_ticket_admit(ticket);
        return;
    }
    struct waiting *waiting = calloc(1, sizeof(*waiting));
    struct err failed;
    if (!waiting) {
        (void)err_nomem(&failed);
        rpc_ticket_fail(ticket, r < 0 ? &err : &failed);
        return;
    }
    waiting->ticket = ticket;
    waiting->denied = err;
    char detail[STORE_TEXT_MAX];
    (void)snprintf(detail, sizeof(detail), "%.255s", r < 0 ? err.text : "");
    if (unwritten)
        (void)snprintf(detail, sizeof(detail), "%.180s (and %llu refusals that have no row)",
                       err.text, (unsigned long long)unwritten);
    const struct audit_entry entry = {
        .actor = actor,
        .action = strrchr(method->path, '/') + 1,
        .target = target,
        .allowed = r == 0,
        .detail = detail,
    };
    if (audit_write(orchestrator, &entry, on_written, waiting, &failed) < 0)
        on_written(waiting, &failed);
}
