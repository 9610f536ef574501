/* The decision about a certificate, inside one transaction. Runs on the store's thread, which is
 * also the only one that uses the CA. Asked by orchestrator/enrol.c; next: orchestrator/store_*.c
 * for what is known, orchestrator/ca_request.c for the signing request, orchestrator/ca.c for the
 * signature.
 *
 * A refusal is an answer, not a failure: it is written to the audit, so the job commits. Whoever
 * has no valid secret gets one and the same answer, whatever was wrong with it. */
#include "orchestrator/enrol.h"

#include "common/clock.h"
#include "common/failpoint.h"
#include "orchestrator/ca.h"
#include "orchestrator/orchestrator-internal.h"

#include <stdio.h>
#include <string.h>

#define SUFFIX_LEN        8u
#define GENERATED_PREFIX  "vm"
#define DENIALS_ROWS      20u /* audit rows for refused secrets: strangers must not fill the disk */
#define DENIALS_PERIOD_US 10000000u

/* 1 when a look-up has found something, 0 when there is nothing, -1 when it could not be done: only
 * the store's own word means that a name or a key is free. */
static int find(int result, const struct err *err)
{
    if (result == 0)
        return 1;
    return err->code == ERR_NOT_FOUND ? 0 : -1;
}

/* Answers. */

/* Says no, with the words for the one who asked, and the reason for those who read the audit. */
static int refuse(struct enrol *enrol, struct store_tx *tx, const char *action, const char *target,
                  const char *reason, struct err *err)
{
    struct log_limit *limit = &enrol->orchestrator->denials;
    uint64_t suppressed = 0;
    char detail[STORE_TEXT_MAX];
    if (limit->interval_us == 0)
        *limit = LOG_LIMIT(DENIALS_PERIOD_US, DENIALS_ROWS);
    if (!log_limit_pass(limit, monotonic_us(), &suppressed))
        return 0;
    (void)snprintf(detail, sizeof(detail), "%s", reason);
    if (suppressed)
        (void)snprintf(detail, sizeof(detail), "%.180s (and %llu refusals that have no row)",
                       reason, (unsigned long long)suppressed);
    const struct audit_entry entry = {
        .actor = enrol->source, .action = action, .target = target, .detail = detail
    };
    return store_audit_append(tx, &entry, err);
}

static int refuse_secret(struct enrol *enrol, struct store_tx *tx, const char *action,
                         const char *target, const char *reason, struct err *err)
{
    enrol->guessing = true;
    (void)err_set(
        &enrol->verdict, ERR_UNAUTHENTICATED, "%s",
        enrol->kind == ENROL_LOGIN
            ? "this login key is not valid: it is wrong, has expired, was used or revoked; "
              "ask an admin for a new one ('sandstorm client add')"
            : "this join token is not valid: it is wrong, has expired, was used up or "
              "revoked; make a new one with 'sandstorm token create'");
    return refuse(enrol, tx, action, target, reason, err);
}

/* The verdict is set already. */
static int refuse_request(struct enrol *enrol, struct store_tx *tx, const char *action,
                          const char *target, struct err *err)
{
    return refuse(enrol, tx, action, target, enrol->verdict.text, err);
}

static int grant(struct enrol *enrol, struct store_tx *tx, const struct ca_request *request,
                 const char *action, const char *detail, struct err *err)
{
    struct orchestrator *orchestrator = enrol->orchestrator;
    const struct identity *identity = &enrol->identity;
    char target[STORE_ACTOR_MAX];
    (void)snprintf(target, sizeof(target), "%s/%s", identity_kind_name(identity->kind),
                   identity->name);
    const struct audit_entry entry = {
        .actor = enrol->source,
        .action = action,
        .target = target,
        .allowed = true,
        .detail = detail,
    };
    /* The row first: nothing is signed that is not written down. */
    if (store_audit_append(tx, &entry, err) < 0)
        return -1;
    return ca_sign_peer(orchestrator->ca, request, identity->kind, identity->name,
                        orchestrator->lifetime_s, &enrol->pem, &enrol->not_after_s, err);
}

static void name_identity(struct enrol *enrol, enum identity_kind kind, const char *name)
{
    enrol->identity.kind = kind;
    (void)snprintf(enrol->identity.trust_domain, sizeof(enrol->identity.trust_domain), "%s",
                   ca_trust_domain(enrol->orchestrator->ca));
    (void)snprintf(enrol->identity.name, sizeof(enrol->identity.name), "%s", name);
}

static int64_t window_ms(const struct enrol *enrol)
{
    return (int64_t)enrol->orchestrator->window_s * 1000;
}

/* Joining. */

/* Wrong in any way: the same work and the same answer. The comparison is made for a token that does
 * not exist, too. */
static const char *judge_token(bool found, const struct token_record *token,
                               const struct secret *secret, bool readable)
{
    static const uint8_t nothing[SECRET_HASH_LEN];
    bool same = secret_hash_equal(found ? token->hash : nothing, secret->hash);
    if (!readable)
        return "not a join token";
    if (!found)
        return "unknown token";
    if (!same)
        return "wrong secret";
    return token->revoked_ms ? "revoked token" : NULL;
}

static int random_suffix(char *out)
{
    static const char letters[] = "abcdefghijkmnpqrstuvwxyz23456789"; /* none that look alike */
    uint64_t bits = random_u64();
    for (unsigned i = 0; i < SUFFIX_LEN; i++, bits >>= 5)
        out[i] = letters[bits & 31];
    out[SUFFIX_LEN] = '\0';
    return 0;
}

static int choose_id(struct enrol *enrol, const struct token_record *token,
                     char ret[SANDBOX_ID_MAX + 1])
{
    struct err *verdict = &enrol->verdict;
    const char *wish = enrol->sandbox_id;
    if (*wish && sandbox_id_check(wish, verdict) < 0)
        return -1;
    if (*token->sandbox_id) {
        if (*wish && strcmp(wish, token->sandbox_id) != 0)
            return err_set(verdict, ERR_INVALID,
                           "this token is for sandbox \"%s\", not \"%s\"; correct the agent's "
                           "sandbox_id or leave it out",
                           token->sandbox_id, wish);
        wish = token->sandbox_id;
    } else if (*token->prefix && *wish &&
               strncmp(wish, token->prefix, strlen(token->prefix)) != 0) {
        return err_set(verdict, ERR_INVALID,
                       "this token gives names that begin with \"%s\", not \"%s\"; correct the "
                       "agent's sandbox_id or leave it out",
                       token->prefix, wish);
    }
    char suffix[SUFFIX_LEN + 1];
    if (*wish) {
        (void)snprintf(ret, SANDBOX_ID_MAX + 1, "%s", wish);
        return 0;
    }
    (void)random_suffix(suffix);
    size_t room = SANDBOX_ID_MAX - SUFFIX_LEN - 1;
    const char *prefix = *token->prefix ? token->prefix : GENERATED_PREFIX;
    size_t length = strnlen(prefix, room);
    (void)snprintf(ret, SANDBOX_ID_MAX + 1, "%.*s%s%s", (int)length, prefix,
                   prefix[length - 1] == '-' ? "" : "-", suffix);
    return 0;
}

/* Only a token that names a sandbox may take that name from the key that has it. */
static int check_taken(struct enrol *enrol, struct store_tx *tx, const struct token_record *token,
                       const char *id, const uint8_t *key, struct err *err)
{
    struct sandbox_record known;
    unsigned count = 0;
    int found = find(store_sandbox_get(tx, id, &known, err), err);
    if (found < 0)
        return -1;
    if (found) {
        if (*token->sandbox_id ||
            (!known.revoked_ms && memcmp(known.key, key, sizeof(known.key)) == 0))
            return 0;
        return err_set(
            &enrol->verdict, ERR_EXISTS,
            "there is a sandbox \"%s\" already; choose another sandbox_id, or replace it "
            "with a token from 'sandstorm token create --sandbox %s'",
            id, id);
    }
    if (store_sandbox_count(tx, &count, err) < 0)
        return -1;
    if (count >= REGISTRY_SANDBOXES_MAX)
        return err_set(&enrol->verdict, ERR_EXHAUSTED,
                       "this orchestrator already knows %u sandboxes", REGISTRY_SANDBOXES_MAX);
    return 0;
}

static void fill_sandbox(struct enrol *enrol, const struct token_record *token, const char *id,
                         const uint8_t *key, int64_t now)
{
    struct sandbox_record *sandbox = &enrol->sandbox;
    (void)snprintf(sandbox->id, sizeof(sandbox->id), "%s", id);
    (void)snprintf(sandbox->labels, sizeof(sandbox->labels), "%s", token->labels);
    (void)memcpy(sandbox->key, key, sizeof(sandbox->key));
    (void)snprintf(sandbox->token_id, sizeof(sandbox->token_id), "%s", token->id);
    sandbox->enrolled_ms = now;
    sandbox->revoked_ms = 0;
    enrol->event.time_ms = now;
    (void)snprintf(enrol->event.kind, sizeof(enrol->event.kind), "enrolled");
    (void)snprintf(enrol->event.detail, sizeof(enrol->event.detail),
                   "from %.64s with token %s, host \"%.60s\"", enrol->source, token->id,
                   enrol->hostname);
}

/* The token is right; is it still good for this key? A key that has used it may come again, also
 * when the token has ended meanwhile: it has lost its answer, or its disk before it was written. */
static int join(struct enrol *enrol, struct store_tx *tx, const struct token_record *token,
                struct err *err)
{
    CLEANUP_CA_REQUEST struct ca_request *request = NULL;
    char id[SANDBOX_ID_MAX + 1] = "";
    int64_t now = wall_ms(), used_ms = 0;
    if (ca_request_parse(enrol->csr, strlen(enrol->csr), &request, &enrol->verdict) < 0)
        return refuse_request(enrol, tx, "token.use", token->id, err);
    const uint8_t *key = ca_request_key(request);
    int again = find(store_token_used_by(tx, token->id, key, id, &used_ms, err), err);
    if (again < 0)
        return -1;
    if (again && now - used_ms > window_ms(enrol))
        return refuse_secret(enrol, tx, "token.use", token->id, "used too long ago", err);
    if (!again && now >= token->expires_ms)
        return refuse_secret(enrol, tx, "token.use", token->id, "expired token", err);
    if (!again && token->uses >= token->uses_max)
        return refuse_secret(enrol, tx, "token.use", token->id, "token is used up", err);
    if (again) {
        struct sandbox_record known;
        int there = find(store_sandbox_get(tx, id, &known, err), err);
        if (there < 0)
            return -1;
        if (!there || known.revoked_ms || memcmp(known.key, key, sizeof(known.key)) != 0)
            return refuse_secret(enrol, tx, "token.use", token->id,
                                 "revoked, replaced or removed since", err);
        name_identity(enrol, IDENTITY_AGENT, id);
        return grant(enrol, tx, request, "certificate.issue", "asked again with the same key", err);
    }
    if (choose_id(enrol, token, id) < 0)
        return refuse_request(enrol, tx, "token.use", token->id, err);
    if (check_taken(enrol, tx, token, id, key, err) < 0)
        return enrol->verdict.code == ERR_NONE
                   ? -1
                   : refuse_request(enrol, tx, "token.use", token->id, err);
    char detail[64];
    (void)snprintf(detail, sizeof(detail), "joined with token %s", token->id);
    fill_sandbox(enrol, token, id, key, now);
    name_identity(enrol, IDENTITY_AGENT, id);
    if (store_token_use(tx, token->id, key, id, now, err) < 0 ||
        store_sandbox_put(tx, &enrol->sandbox, err) < 0 ||
        store_event_put(tx, id, &enrol->event, err) < 0 ||
        grant(enrol, tx, request, "certificate.issue", detail, err) < 0)
        return -1;
    enrol->changed = true;
    failpoint("enroll.work");
    return 0;
}

static int work_join(struct enrol *enrol, struct store_tx *tx, struct err *err)
{
    CLEANUP_SECRET struct secret secret = { 0 };
    struct token_record token = { 0 };
    struct err none;
    bool readable = secret_parse(enrol->secret, SECRET_JOIN, &secret, &none) == 0;
    int found = find(store_token_get(tx, secret.id, &token, err), err);
    if (found < 0)
        return -1;
    const char *wrong = judge_token(found, &token, &secret, readable);
    if (wrong)
        return refuse_secret(enrol, tx, "token.use", found ? token.id : "", wrong, err);
    return join(enrol, tx, &token, err);
}

/* Logging in. */

static const char *judge_login(bool found, const struct client_record *client,
                               const struct secret *secret, bool readable)
{
    static const uint8_t nothing[SECRET_HASH_LEN];
    bool same = secret_hash_equal(found ? client->login_hash : nothing, secret->hash);
    if (!readable)
        return "not a login key";
    if (!found)
        return "unknown login key";
    if (!same)
        return "wrong secret";
    return client->revoked_ms ? "revoked client" : NULL;
}

static int work_login(struct enrol *enrol, struct store_tx *tx, struct err *err)
{
    CLEANUP_SECRET struct secret secret = { 0 };
    CLEANUP_CA_REQUEST struct ca_request *request = NULL;
    struct client_record *client = &enrol->client;
    struct err none;
    int64_t now = wall_ms();
    bool readable = secret_parse(enrol->secret, SECRET_LOGIN, &secret, &none) == 0;
    int found = find(store_client_by_login(tx, secret.id, client, err), err);
    if (found < 0)
        return -1;
    const char *wrong = judge_login(found, client, &secret, readable);
    char target[STORE_ACTOR_MAX] = "";
    if (found)
        (void)snprintf(target, sizeof(target), "client/%s", client->name);
    if (wrong)
        return refuse_secret(enrol, tx, "login", target, wrong, err);
    if (ca_request_parse(enrol->csr, strlen(enrol->csr), &request, &enrol->verdict) < 0)
        return refuse_request(enrol, tx, "login", target, err);
    const uint8_t *key = ca_request_key(request);
    bool again = client->has_key && memcmp(client->key, key, sizeof(client->key)) == 0;
    if (client->has_key && !again)
        return refuse_secret(enrol, tx, "login", target, "used with another key", err);
    if (now >= client->login_expires_ms + (again ? window_ms(enrol) : 0))
        return refuse_secret(enrol, tx, "login", target, "expired login key", err);
    client->has_key = true;
    (void)memcpy(client->key, key, sizeof(client->key));
    client->last_login_ms = now;
    name_identity(enrol, IDENTITY_CLIENT, client->name);
    if (store_client_put(tx, client, err) < 0 ||
        grant(enrol, tx, request, "login", again ? "asked again with the same key" : "", err) < 0)
        return -1;
    enrol->changed = true;
    failpoint("enroll.work");
    return 0;
}

/* Renewing. */

/* The name and the key are proven; do they still count? The words may be exact. */
static int check_standing(struct enrol *enrol, struct store_tx *tx, const struct identity *peer,
                          const uint8_t *key, struct err *err)
{
    struct sandbox_record sandbox;
    struct client_record client;
    bool agent = peer->kind == IDENTITY_AGENT;
    bool revoked = false, same = false;
    int known = agent ? find(store_sandbox_get(tx, peer->name, &sandbox, err), err)
                      : find(store_client_get(tx, peer->name, &client, err), err);
    if (known < 0)
        return -1;
    if (known && agent) {
        revoked = sandbox.revoked_ms != 0;
        same = memcmp(sandbox.key, key, sizeof(sandbox.key)) == 0;
    } else if (known) {
        revoked = client.revoked_ms != 0;
        same = client.has_key && memcmp(client.key, key, sizeof(client.key)) == 0;
    }
    if (known && !revoked && same)
        return 0;
    return err_set(&enrol->verdict, ERR_DENIED, "%s \"%s\" was %s; %s",
                   agent ? "sandbox" : "client", peer->name,
                   !known    ? "never known here"
                   : revoked ? "revoked"
                             : "given to another key since",
                   agent ? "enrol it again with a new join token ('sandstorm token create "
                           "--sandbox')"
                         : "ask an admin for a new login key ('sandstorm client add')");
}

static int check_window(struct enrol *enrol, const struct identity *peer, int64_t not_after_s)
{
    int64_t ago = wall_ms() / 1000 - not_after_s;
    int64_t window = (int64_t)enrol->orchestrator->window_s;
    if (ago <= window)
        return 0;
    return err_set(
        &enrol->verdict, ERR_DENIED,
        "the certificate of \"%s\" expired %lld h ago; it could be renewed for %lld h. %s",
        peer->name, (long long)(ago / 3600), (long long)(window / 3600),
        peer->kind == IDENTITY_AGENT
            ? "Enrol again with a new join token ('sandstorm token create --sandbox')"
            : "Ask an admin for a new login key ('sandstorm client add')");
}

static int work_renew(struct enrol *enrol, struct store_tx *tx, struct err *err)
{
    CLEANUP_CA_REQUEST struct ca_request *request = NULL;
    struct identity peer = enrol->peer;
    uint8_t key[STORE_KEY_LEN];
    int64_t not_after_s = INT64_MAX;
    struct err *verdict = &enrol->verdict;
    char target[STORE_ACTOR_MAX] = "";
    (void)memcpy(key, enrol->peer_key, sizeof(key));
    int r = 0;
    if (enrol->kind == ENROL_RENEW_EXPIRED) {
        r = ca_inspect_peer(enrol->orchestrator->ca, enrol->certificate, strlen(enrol->certificate),
                            &peer, key, &not_after_s, verdict);
        if (r < 0)
            enrol->guessing = true;
    }
    if (r == 0) {
        (void)snprintf(target, sizeof(target), "%s/%s", identity_kind_name(peer.kind), peer.name);
        r = ca_request_parse(enrol->csr, strlen(enrol->csr), &request, verdict);
    }
    if (r == 0 && memcmp(ca_request_key(request), key, sizeof(key)) != 0)
        r = err_set(verdict, ERR_DENIED,
                    "the request is not signed by the key of the certificate; a renewal keeps its "
                    "key");
    if (r == 0)
        r = check_standing(enrol, tx, &peer, key, err);
    if (r == 0)
        r = check_window(enrol, &peer, not_after_s);
    if (r < 0)
        return verdict->code == ERR_NONE
                   ? -1
                   : refuse_request(enrol, tx, "certificate.renew", target, err);
    name_identity(enrol, peer.kind, peer.name);
    return grant(enrol, tx, request, "certificate.renew",
                 enrol->kind == ENROL_RENEW_EXPIRED ? "after its end, over HTTPS" : "", err);
}

int enrol_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct enrol *enrol = CONTAINER_OF(job, struct enrol, job);
    switch (enrol->kind) {
    case ENROL_JOIN:
        return work_join(enrol, tx, err);
    case ENROL_LOGIN:
        return work_login(enrol, tx, err);
    default:
        return work_renew(enrol, tx, err);
    }
}
