/* Who may join and who may ask: tokens, users and the caller itself, as TokenService, ClientService
 * and IdentityService know them. Calls through client/client.c; hands each answer to the caller's
 * function in the library's own words. next: client/labels.c. */
#include "client/client-internal.h"

#include "common/wire.h"
#include "sandstorm/v1/admin.pb-c.h"

#include <stdio.h>
#include <string.h>

static int no_answer(const char *what, struct err *err)
{
    return err_set(err, ERR_PROTOCOL, "the orchestrator sent an answer without a %s", what);
}

/* Tokens. */

static int deliver_token(const Sandstorm__V1__Token *message, const char *secret,
                         const char *fingerprint, sandstorm_token_fn each, void *userdata,
                         struct err *err)
{
    CLEANUP_FREE char *labels = NULL;
    if (!message)
        return no_answer("token", err);
    if (client_labels_text(message->labels, message->n_labels, &labels, err) < 0)
        return -1;
    const struct sandstorm_token token = {
        .id = message->id,
        .sandbox = message->sandbox_id,
        .prefix = message->prefix,
        .labels = labels,
        .created_by = message->created_by,
        .uses = message->uses,
        .uses_max = message->uses_max,
        .created_unix_ms = message->created_unix_ms,
        .expires_unix_ms = message->expires_unix_ms,
        .revoked_unix_ms = message->revoked_unix_ms,
        .secret = secret,
        .ca_fingerprint = fingerprint,
    };
    if (each)
        each(userdata, &token);
    return 0;
}

static int create_token(struct sandstorm_client *client,
                        const struct sandstorm_token_options *options, sandstorm_token_fn one,
                        void *userdata, struct err *err)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    CLEANUP_LABELS struct client_labels labels = { 0 };
    Sandstorm__V1__CreateTokenRequest request = SANDSTORM__V1__CREATE_TOKEN_REQUEST__INIT;
    if (client_labels_pack(options->labels, &labels, err) < 0)
        return -1;
    if (options->sandbox)
        request.sandbox_id = (char *)options->sandbox;
    if (options->prefix)
        request.prefix = (char *)options->prefix;
    request.labels = labels.pointers;
    request.n_labels = labels.count;
    request.uses_max = options->uses_max;
    request.ttl_ms = options->ttl_ms;
    if (client_unary(client, "/sandstorm.v1.TokenService/CreateToken", &request.base,
                     &sandstorm__v1__create_token_response__descriptor, &message, err) < 0)
        return -1;
    const Sandstorm__V1__CreateTokenResponse *answer =
        (const Sandstorm__V1__CreateTokenResponse *)message;
    return deliver_token(answer->token, answer->secret, answer->ca_fingerprint, one, userdata, err);
}

int sandstorm_token_create(struct sandstorm_client *client,
                           const struct sandstorm_token_options *options, sandstorm_token_fn one,
                           void *userdata, struct sandstorm_error *error)
{
    struct err err = { 0 };
    return create_token(client, options, one, userdata, &err) < 0 ? client_error(&err, error) : 0;
}

static int list_tokens(struct sandstorm_client *client, char token[CLIENT_PAGE_TOKEN_MAX],
                       sandstorm_token_fn each, void *userdata, struct err *err)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    Sandstorm__V1__ListTokensRequest request = SANDSTORM__V1__LIST_TOKENS_REQUEST__INIT;
    request.page_token = token;
    if (client_unary(client, "/sandstorm.v1.TokenService/ListTokens", &request.base,
                     &sandstorm__v1__list_tokens_response__descriptor, &message, err) < 0)
        return -1;
    const Sandstorm__V1__ListTokensResponse *page =
        (const Sandstorm__V1__ListTokensResponse *)message;
    for (size_t i = 0; i < page->n_tokens; i++)
        if (deliver_token(page->tokens[i], NULL, NULL, each, userdata, err) < 0)
            return -1;
    return client_next_page(page->next_page_token, token, err);
}

int sandstorm_token_list(struct sandstorm_client *client, sandstorm_token_fn each, void *userdata,
                         struct sandstorm_error *error)
{
    struct err err = { 0 };
    char token[CLIENT_PAGE_TOKEN_MAX] = "";
    do
        if (list_tokens(client, token, each, userdata, &err) < 0)
            return client_error(&err, error);
    while (*token);
    return 0;
}

int sandstorm_token_revoke(struct sandstorm_client *client, const char *id, sandstorm_token_fn one,
                           void *userdata, struct sandstorm_error *error)
{
    struct err err = { 0 };
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    Sandstorm__V1__RevokeTokenRequest request = SANDSTORM__V1__REVOKE_TOKEN_REQUEST__INIT;
    request.id = (char *)id;
    if (client_unary(client, "/sandstorm.v1.TokenService/RevokeToken", &request.base,
                     &sandstorm__v1__revoke_token_response__descriptor, &message, &err) < 0 ||
        deliver_token(((const Sandstorm__V1__RevokeTokenResponse *)message)->token, NULL, NULL, one,
                      userdata, &err) < 0)
        return client_error(&err, error);
    return 0;
}

/* Users. */

static const char *const role_names[] = {
    [SANDSTORM_ROLE_UNKNOWN] = "unknown",
    [SANDSTORM_ROLE_VIEWER] = "viewer",
    [SANDSTORM_ROLE_OPERATOR] = "operator",
    [SANDSTORM_ROLE_ADMIN] = "admin",
};
_Static_assert((int)SANDSTORM_ROLE_ADMIN == (int)SANDSTORM__V1__ROLE__ROLE_ADMIN,
               "roles must agree");

const char *sandstorm_role_name(enum sandstorm_role role)
{
    return (size_t)role < ELEMENTS(role_names) ? role_names[role] : "unknown";
}

int sandstorm_role_parse(const char *text, enum sandstorm_role *ret, struct sandstorm_error *error)
{
    for (size_t i = SANDSTORM_ROLE_UNKNOWN + 1; i < ELEMENTS(role_names); i++)
        if (strcmp(role_names[i], text) == 0) {
            *ret = (enum sandstorm_role)i;
            return 0;
        }
    struct err err;
    (void)err_set(&err, ERR_INVALID,
                  "there is no role \"%.64s\"; it is viewer (sees sandboxes), operator (runs "
                  "commands too) or admin (may do everything)",
                  text);
    return client_error(&err, error);
}

static int deliver_user(const Sandstorm__V1__Client *message, const char *login_key,
                        const char *fingerprint, sandstorm_user_fn each, void *userdata,
                        struct err *err)
{
    CLEANUP_FREE char *scope = NULL;
    if (!message)
        return no_answer("client", err);
    if (client_labels_text(message->scope, message->n_scope, &scope, err) < 0)
        return -1;
    const struct sandstorm_user user = {
        .name = message->name,
        .scope = scope,
        .created_by = message->created_by,
        .role = (enum sandstorm_role)message->role,
        .created_unix_ms = message->created_unix_ms,
        .last_login_unix_ms = message->last_login_unix_ms,
        .revoked_unix_ms = message->revoked_unix_ms,
        .login_expires_unix_ms = message->login_expires_unix_ms,
        .login_key = login_key,
        .ca_fingerprint = fingerprint,
    };
    if (each)
        each(userdata, &user);
    return 0;
}

static int create_user(struct sandstorm_client *client,
                       const struct sandstorm_user_options *options, sandstorm_user_fn one,
                       void *userdata, struct err *err)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    CLEANUP_LABELS struct client_labels scope = { 0 };
    Sandstorm__V1__CreateClientRequest request = SANDSTORM__V1__CREATE_CLIENT_REQUEST__INIT;
    if (client_labels_pack(options->scope, &scope, err) < 0)
        return -1;
    request.name = (char *)options->name;
    request.role = (Sandstorm__V1__Role)options->role;
    request.scope = scope.pointers;
    request.n_scope = scope.count;
    request.ttl_ms = options->ttl_ms;
    if (client_unary(client, "/sandstorm.v1.ClientService/CreateClient", &request.base,
                     &sandstorm__v1__create_client_response__descriptor, &message, err) < 0)
        return -1;
    const Sandstorm__V1__CreateClientResponse *answer =
        (const Sandstorm__V1__CreateClientResponse *)message;
    return deliver_user(answer->client, answer->login_key, answer->ca_fingerprint, one, userdata,
                        err);
}

int sandstorm_user_create(struct sandstorm_client *client,
                          const struct sandstorm_user_options *options, sandstorm_user_fn one,
                          void *userdata, struct sandstorm_error *error)
{
    struct err err = { 0 };
    return create_user(client, options, one, userdata, &err) < 0 ? client_error(&err, error) : 0;
}

static int list_users(struct sandstorm_client *client, char token[CLIENT_PAGE_TOKEN_MAX],
                      sandstorm_user_fn each, void *userdata, struct err *err)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    Sandstorm__V1__ListClientsRequest request = SANDSTORM__V1__LIST_CLIENTS_REQUEST__INIT;
    request.page_token = token;
    if (client_unary(client, "/sandstorm.v1.ClientService/ListClients", &request.base,
                     &sandstorm__v1__list_clients_response__descriptor, &message, err) < 0)
        return -1;
    const Sandstorm__V1__ListClientsResponse *page =
        (const Sandstorm__V1__ListClientsResponse *)message;
    for (size_t i = 0; i < page->n_clients; i++)
        if (deliver_user(page->clients[i], NULL, NULL, each, userdata, err) < 0)
            return -1;
    return client_next_page(page->next_page_token, token, err);
}

int sandstorm_user_list(struct sandstorm_client *client, sandstorm_user_fn each, void *userdata,
                        struct sandstorm_error *error)
{
    struct err err = { 0 };
    char token[CLIENT_PAGE_TOKEN_MAX] = "";
    do
        if (list_users(client, token, each, userdata, &err) < 0)
            return client_error(&err, error);
    while (*token);
    return 0;
}

int sandstorm_user_revoke(struct sandstorm_client *client, const char *name, sandstorm_user_fn one,
                          void *userdata, struct sandstorm_error *error)
{
    struct err err = { 0 };
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    Sandstorm__V1__RevokeClientRequest request = SANDSTORM__V1__REVOKE_CLIENT_REQUEST__INIT;
    request.name = (char *)name;
    if (client_unary(client, "/sandstorm.v1.ClientService/RevokeClient", &request.base,
                     &sandstorm__v1__revoke_client_response__descriptor, &message, &err) < 0 ||
        deliver_user(((const Sandstorm__V1__RevokeClientResponse *)message)->client, NULL, NULL,
                     one, userdata, &err) < 0)
        return client_error(&err, error);
    return 0;
}

/* The caller itself. */

int sandstorm_whoami(struct sandstorm_client *client,
                     void (*one)(void *userdata, const struct sandstorm_self *self), void *userdata,
                     struct sandstorm_error *error)
{
    struct err err = { 0 };
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    CLEANUP_FREE char *scope = NULL;
    Sandstorm__V1__GetIdentityRequest request = SANDSTORM__V1__GET_IDENTITY_REQUEST__INIT;
    if (client_unary(client, "/sandstorm.v1.IdentityService/GetIdentity", &request.base,
                     &sandstorm__v1__get_identity_response__descriptor, &message, &err) < 0)
        return client_error(&err, error);
    const Sandstorm__V1__GetIdentityResponse *answer =
        (const Sandstorm__V1__GetIdentityResponse *)message;
    if (client_labels_text(answer->scope, answer->n_scope, &scope, &err) < 0)
        return client_error(&err, error);
    const struct sandstorm_self self = {
        .uri = answer->uri,
        .scope = scope,
        .role = (enum sandstorm_role)answer->role,
        .not_after_unix_ms = answer->not_after_unix_ms,
    };
    one(userdata, &self);
    return 0;
}
