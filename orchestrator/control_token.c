/* TokenService: join tokens, made, listed and revoked in the store. The secret is in the answer to
 * CreateToken and nowhere else. next: orchestrator/enrol_work.c uses them up. */
#include "orchestrator/control.h"
#include "orchestrator/orchestrator-internal.h"

#include "common/clock.h"
#include "orchestrator/ca.h"
#include "sandstorm/v1/admin.pb-c.h"

#include <stdio.h>
#include <string.h>

#define TOKEN_TTL_MS     (15ull * 60 * 1000)
#define TOKEN_TTL_MAX_MS (365ull * 86400 * 1000)
#define TOKEN_USES_MAX   100000u
#define TOKEN_PAGE_MAX   64u                   /* with their labels they fit a message */
#define TOKEN_KEEP_MS    (30ll * 86400 * 1000) /* ended tokens stay in the list this long */

/* A record as the wire has it. */
struct token_message {
    Sandstorm__V1__Token message;
    struct label_messages labels;
};

static void describe(const struct token_record *token, struct token_message *ret)
{
    Sandstorm__V1__Token *message = &ret->message;
    sandstorm__v1__token__init(message);
    message->id = (char *)token->id;
    message->sandbox_id = (char *)token->sandbox_id;
    message->prefix = (char *)token->prefix;
    message->n_labels = label_messages_fill(&ret->labels, token->labels);
    message->labels = ret->labels.pointers;
    message->uses_max = token->uses_max;
    message->uses = token->uses;
    message->created_unix_ms = token->created_ms;
    message->expires_unix_ms = token->expires_ms;
    message->revoked_unix_ms = token->revoked_ms;
    message->created_by = (char *)token->created_by;
}

/* Making one. */

struct create_job {
    struct control_job control;
    struct token_record token;
    struct secret secret;
};

static int create_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct create_job *create = CONTAINER_OF(job, struct create_job, control.job);
    const struct token_record *token = &create->token;
    char detail[STORE_TEXT_MAX];
    (void)snprintf(detail, sizeof(detail),
                   "sandbox \"%s\", prefix \"%s\", %u uses, labels \"%.80s\"", token->sandbox_id,
                   token->prefix, token->uses_max, token->labels);
    if (control_job_audit(&create->control, tx, "token.create", token->id, detail, err) < 0 ||
        store_token_prune(tx, token->created_ms - TOKEN_KEEP_MS, err) < 0)
        return -1;
    return store_token_put(tx, token, err);
}

static void create_done(struct store_job *job)
{
    struct create_job *create = CONTAINER_OF(job, struct create_job, control.job);
    CLEANUP_SECRET struct secret secret = create->secret;
    secret_clear(&create->secret);
    if (control_job_failed(&create->control))
        return;
    struct token_message token;
    Sandstorm__V1__CreateTokenResponse response = SANDSTORM__V1__CREATE_TOKEN_RESPONSE__INIT;
    describe(&create->token, &token);
    response.token = &token.message;
    response.secret = secret.text;
    response.ca_fingerprint = (char *)ca_fingerprint(create->control.orchestrator->ca);
    control_job_end(&create->control, &response.base);
}

static int check_prefix(const char *prefix, struct err *err)
{
    /* It must be able to begin a sandbox id, with a dash at its end or without. */
    char id[SANDBOX_ID_MAX + 2];
    size_t room = SANDBOX_ID_MAX - 16;
    if (strlen(prefix) > room)
        return err_set(err, ERR_INVALID, "a prefix has at most %zu characters", room);
    (void)snprintf(id, sizeof(id), "%sx", prefix);
    return sandbox_id_check(id, err) < 0 ? err_wrap(err, "prefix") : 0;
}

static int check_request(const Sandstorm__V1__CreateTokenRequest *request, struct err *err)
{
    if (*request->sandbox_id && *request->prefix)
        return err_set(err, ERR_INVALID, "a token has a sandbox id or a prefix, not both");
    if (*request->sandbox_id && sandbox_id_check(request->sandbox_id, err) < 0)
        return -1;
    if (*request->prefix && check_prefix(request->prefix, err) < 0)
        return -1;
    if (*request->sandbox_id && request->uses_max > 1)
        return err_set(err, ERR_INVALID,
                       "a token for one sandbox can be used once; use a prefix for several");
    if (request->uses_max > TOKEN_USES_MAX)
        return err_set(err, ERR_INVALID, "a token has at most %u uses", TOKEN_USES_MAX);
    if (request->ttl_ms > TOKEN_TTL_MAX_MS)
        return err_set(err, ERR_INVALID, "a token lives for at most 365 days");
    return 0;
}

int control_create_token(void *userdata, struct rpc_ticket *ticket, const ProtobufCMessage *message,
                         struct err *err)
{
    const Sandstorm__V1__CreateTokenRequest *request =
        (const Sandstorm__V1__CreateTokenRequest *)message;
    CLEANUP_FREE char *labels = NULL;
    CLEANUP_SECRET struct secret secret = { 0 };
    if (check_request(request, err) < 0 ||
        label_messages_read(request->labels, request->n_labels, &labels, err) < 0 ||
        secret_new(SECRET_JOIN, &secret, err) < 0)
        return -1;
    struct create_job *create = control_job_new(sizeof(*create), userdata, ticket, err);
    if (!create)
        return -1;
    struct token_record *token = &create->token;
    create->secret = secret;
    (void)memcpy(token->id, secret.id, sizeof(token->id));
    (void)memcpy(token->hash, secret.hash, sizeof(token->hash));
    (void)snprintf(token->sandbox_id, sizeof(token->sandbox_id), "%s", request->sandbox_id);
    (void)snprintf(token->prefix, sizeof(token->prefix), "%s", request->prefix);
    (void)snprintf(token->labels, sizeof(token->labels), "%s", labels ? labels : "");
    (void)snprintf(token->created_by, sizeof(token->created_by), "%s", create->control.actor);
    token->uses_max = request->uses_max ? request->uses_max : 1;
    token->created_ms = wall_ms();
    token->expires_ms =
        token->created_ms + (int64_t)(request->ttl_ms ? request->ttl_ms : TOKEN_TTL_MS);
    return control_job_submit(&create->control, create_work, create_done, true, err);
}

/* Listing them. */

struct list_job {
    struct control_job control;
    char after[SECRET_ID_LEN + 1];
    unsigned wanted, count;
    struct token_record tokens[TOKEN_PAGE_MAX];
    struct token_message messages[TOKEN_PAGE_MAX];
    Sandstorm__V1__Token *pointers[TOKEN_PAGE_MAX];
};

static int list_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct list_job *list = CONTAINER_OF(job, struct list_job, control.job);
    return store_token_list(tx, list->after, list->tokens, list->wanted, &list->count, err);
}

static void list_done(struct store_job *job)
{
    struct list_job *list = CONTAINER_OF(job, struct list_job, control.job);
    Sandstorm__V1__ListTokensResponse response = SANDSTORM__V1__LIST_TOKENS_RESPONSE__INIT;
    if (control_job_failed(&list->control))
        return;
    for (unsigned i = 0; i < list->count; i++) {
        describe(&list->tokens[i], &list->messages[i]);
        list->pointers[i] = &list->messages[i].message;
    }
    response.n_tokens = list->count;
    response.tokens = list->pointers;
    if (list->count == list->wanted)
        response.next_page_token = list->tokens[list->count - 1].id;
    control_job_end(&list->control, &response.base);
}

int control_list_tokens(void *userdata, struct rpc_ticket *ticket, const ProtobufCMessage *message,
                        struct err *err)
{
    const Sandstorm__V1__ListTokensRequest *request =
        (const Sandstorm__V1__ListTokensRequest *)message;
    if (strlen(request->page_token) > SECRET_ID_LEN)
        return err_set(err, ERR_INVALID, "the page token is not one of ours");
    struct list_job *list = control_job_new(sizeof(*list), userdata, ticket, err);
    if (!list)
        return -1;
    (void)snprintf(list->after, sizeof(list->after), "%s", request->page_token);
    list->wanted = request->page_size ? MIN(request->page_size, TOKEN_PAGE_MAX) : TOKEN_PAGE_MAX;
    return control_job_submit(&list->control, list_work, list_done, false, err);
}

/* Revoking one. */

struct revoke_job {
    struct control_job control;
    struct token_record token;
};

static int revoke_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct revoke_job *revoke = CONTAINER_OF(job, struct revoke_job, control.job);
    struct token_record *token = &revoke->token;
    char id[SECRET_ID_LEN + 1];
    (void)memcpy(id, token->id, sizeof(id));
    if (store_token_get(tx, id, token, err) < 0)
        return err->code != ERR_NOT_FOUND
                   ? -1
                   : err_set(err, ERR_NOT_FOUND,
                             "there is no token \"%s\"; 'sandstorm token list' shows them", id);
    if (control_job_audit(&revoke->control, tx, "token.revoke", id, "", err) < 0)
        return -1;
    if (!token->revoked_ms) {
        token->revoked_ms = wall_ms();
        return store_token_revoke(tx, id, token->revoked_ms, err);
    }
    return 0;
}

static void revoke_done(struct store_job *job)
{
    struct revoke_job *revoke = CONTAINER_OF(job, struct revoke_job, control.job);
    struct token_message token;
    Sandstorm__V1__RevokeTokenResponse response = SANDSTORM__V1__REVOKE_TOKEN_RESPONSE__INIT;
    if (control_job_failed(&revoke->control))
        return;
    describe(&revoke->token, &token);
    response.token = &token.message;
    control_job_end(&revoke->control, &response.base);
}

int control_revoke_token(void *userdata, struct rpc_ticket *ticket, const ProtobufCMessage *message,
                         struct err *err)
{
    const Sandstorm__V1__RevokeTokenRequest *request =
        (const Sandstorm__V1__RevokeTokenRequest *)message;
    if (strlen(request->id) != SECRET_ID_LEN)
        return err_set(err, ERR_INVALID, /* not repeated: it may be the secret itself */
                       "a token's id has %u characters; 'sandstorm token list' shows them",
                       SECRET_ID_LEN);
    struct revoke_job *revoke = control_job_new(sizeof(*revoke), userdata, ticket, err);
    if (!revoke)
        return -1;
    (void)snprintf(revoke->token.id, sizeof(revoke->token.id), "%s", request->id);
    return control_job_submit(&revoke->control, revoke_work, revoke_done, true, err);
}
