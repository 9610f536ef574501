/* ClientService: people and programs that may call, with their role and scope. What is committed is
 * taken over into the table that orchestrator/access.c reads. next: orchestrator/enrol_work.c turns
 * the login key into a certificate. */
#include "orchestrator/control.h"
#include "orchestrator/orchestrator-internal.h"

#include "common/clock.h"
#include "orchestrator/ca.h"
#include "orchestrator/clients.h"
#include "sandstorm/v1/admin.pb-c.h"

#include <stdio.h>
#include <string.h>

#define LOGIN_TTL_MS     (12ull * 3600 * 1000)
#define LOGIN_TTL_MAX_MS (30ull * 86400 * 1000)
#define CLIENT_PAGE_MAX  64u /* with their scopes they fit a message */

struct client_message {
    Sandstorm__V1__Client message;
    struct label_messages scope;
};

static void describe(const struct client_record *client, struct client_message *ret)
{
    Sandstorm__V1__Client *message = &ret->message;
    sandstorm__v1__client__init(message);
    message->name = (char *)client->name;
    message->role = (Sandstorm__V1__Role)client->role;
    message->n_scope = label_messages_fill(&ret->scope, client->scope);
    message->scope = ret->scope.pointers;
    message->created_unix_ms = client->created_ms;
    message->last_login_unix_ms = client->last_login_ms;
    message->revoked_unix_ms = client->revoked_ms;
    message->login_expires_unix_ms = client->has_key ? 0 : client->login_expires_ms;
    message->created_by = (char *)client->created_by;
}

/* Adding one. */

struct create_job {
    struct control_job control;
    struct client_record client;
    struct secret secret;
};

static int create_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct create_job *create = CONTAINER_OF(job, struct create_job, control.job);
    const struct client_record *client = &create->client;
    struct client_record known = { 0 };
    char detail[STORE_TEXT_MAX];
    int found = store_client_get(tx, client->name, &known, err);
    if (found < 0 && err->code != ERR_NOT_FOUND)
        return -1;
    if (found == 0 && !known.revoked_ms)
        return err_set(err, ERR_EXISTS,
                       "there is a client \"%s\" already; to give it another role or a new login "
                       "key, revoke it first: 'sandstorm client revoke %s'",
                       client->name, client->name);
    (void)snprintf(detail, sizeof(detail), "role %s, scope \"%.150s\"",
                   role_name((enum role)client->role), client->scope);
    if (control_job_audit(&create->control, tx, "client.add", client->name, detail, err) < 0)
        return -1;
    return store_client_put(tx, client, err);
}

static void create_done(struct store_job *job)
{
    struct create_job *create = CONTAINER_OF(job, struct create_job, control.job);
    CLEANUP_SECRET struct secret secret = create->secret;
    secret_clear(&create->secret);
    if (job->result == 0)
        job->result =
            clients_set(create->control.orchestrator->clients, &create->client, &job->err);
    if (control_job_failed(&create->control))
        return;
    struct client_message client;
    Sandstorm__V1__CreateClientResponse response = SANDSTORM__V1__CREATE_CLIENT_RESPONSE__INIT;
    describe(&create->client, &client);
    response.client = &client.message;
    response.login_key = secret.text;
    response.ca_fingerprint = (char *)ca_fingerprint(create->control.orchestrator->ca);
    control_job_end(&create->control, &response.base);
}

static int check_request(const Sandstorm__V1__CreateClientRequest *request, struct err *err)
{
    if (client_name_check(request->name, err) < 0)
        return -1;
    if ((int)request->role <= ROLE_NONE || (int)request->role >= ROLE_COUNT_)
        return err_set(err, ERR_INVALID, "a client's role is viewer, operator or admin");
    if ((int)request->role == ROLE_ADMIN && request->n_scope > 0)
        return err_set(
            err, ERR_INVALID,
            "an admin may give itself any scope, so one that is held to a scope would be "
            "a pretence; choose operator or viewer, or leave the scope out");
    if (request->ttl_ms > LOGIN_TTL_MAX_MS)
        return err_set(err, ERR_INVALID, "a login key lives for at most 30 days");
    return 0;
}

int control_create_client(void *userdata, struct rpc_ticket *ticket,
                          const ProtobufCMessage *message, struct err *err)
{
    const Sandstorm__V1__CreateClientRequest *request =
        (const Sandstorm__V1__CreateClientRequest *)message;
    struct orchestrator *orchestrator = userdata;
    CLEANUP_FREE char *scope = NULL;
    CLEANUP_SECRET struct secret secret = { 0 };
    if (check_request(request, err) < 0 ||
        label_messages_read(request->scope, request->n_scope, &scope, err) < 0 ||
        secret_new(SECRET_LOGIN, &secret, err) < 0)
        return -1;
    if (clients_count(orchestrator->clients) >= CLIENTS_MAX)
        return err_set(err, ERR_EXHAUSTED, "this orchestrator already knows %u clients",
                       CLIENTS_MAX);
    struct create_job *create = control_job_new(sizeof(*create), userdata, ticket, err);
    if (!create)
        return -1;
    struct client_record *client = &create->client;
    create->secret = secret;
    (void)snprintf(client->name, sizeof(client->name), "%s", request->name);
    (void)snprintf(client->scope, sizeof(client->scope), "%s", scope ? scope : "");
    (void)snprintf(client->created_by, sizeof(client->created_by), "%s", create->control.actor);
    (void)memcpy(client->login_id, secret.id, sizeof(client->login_id));
    (void)memcpy(client->login_hash, secret.hash, sizeof(client->login_hash));
    client->role = (int)request->role;
    client->created_ms = wall_ms();
    client->login_expires_ms =
        client->created_ms + (int64_t)(request->ttl_ms ? request->ttl_ms : LOGIN_TTL_MS);
    return control_job_submit(&create->control, create_work, create_done, true, err);
}

/* Listing them. */

struct list_job {
    struct control_job control;
    char after[CLIENT_NAME_MAX + 1];
    unsigned wanted, count;
    struct client_record clients[CLIENT_PAGE_MAX];
    struct client_message messages[CLIENT_PAGE_MAX];
    Sandstorm__V1__Client *pointers[CLIENT_PAGE_MAX];
};

static int list_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct list_job *list = CONTAINER_OF(job, struct list_job, control.job);
    return store_client_list(tx, list->after, list->clients, list->wanted, &list->count, err);
}

static void list_done(struct store_job *job)
{
    struct list_job *list = CONTAINER_OF(job, struct list_job, control.job);
    Sandstorm__V1__ListClientsResponse response = SANDSTORM__V1__LIST_CLIENTS_RESPONSE__INIT;
    if (control_job_failed(&list->control))
        return;
    for (unsigned i = 0; i < list->count; i++) {
        describe(&list->clients[i], &list->messages[i]);
        list->pointers[i] = &list->messages[i].message;
    }
    response.n_clients = list->count;
    response.clients = list->pointers;
    if (list->count == list->wanted)
        response.next_page_token = list->clients[list->count - 1].name;
    control_job_end(&list->control, &response.base);
}

int control_list_clients(void *userdata, struct rpc_ticket *ticket, const ProtobufCMessage *message,
                         struct err *err)
{
    const Sandstorm__V1__ListClientsRequest *request =
        (const Sandstorm__V1__ListClientsRequest *)message;
    if (strlen(request->page_token) > CLIENT_NAME_MAX)
        return err_set(err, ERR_INVALID, "the page token is not one of ours");
    struct list_job *list = control_job_new(sizeof(*list), userdata, ticket, err);
    if (!list)
        return -1;
    (void)snprintf(list->after, sizeof(list->after), "%s", request->page_token);
    list->wanted = request->page_size ? MIN(request->page_size, CLIENT_PAGE_MAX) : CLIENT_PAGE_MAX;
    return control_job_submit(&list->control, list_work, list_done, false, err);
}

/* Revoking one. */

struct revoke_job {
    struct control_job control;
    struct client_record client;
};

static int revoke_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct revoke_job *revoke = CONTAINER_OF(job, struct revoke_job, control.job);
    struct client_record *client = &revoke->client;
    char name[CLIENT_NAME_MAX + 1];
    (void)memcpy(name, client->name, sizeof(name));
    if (store_client_get(tx, name, client, err) < 0)
        return err->code != ERR_NOT_FOUND
                   ? -1
                   : err_set(err, ERR_NOT_FOUND,
                             "there is no client \"%s\"; 'sandstorm client list' shows them", name);
    if (control_job_audit(&revoke->control, tx, "client.revoke", name, "", err) < 0)
        return -1;
    if (client->revoked_ms)
        return 0;
    client->revoked_ms = wall_ms();
    client->login_id[0] = '\0';
    return store_client_put(tx, client, err);
}

static void revoke_done(struct store_job *job)
{
    struct revoke_job *revoke = CONTAINER_OF(job, struct revoke_job, control.job);
    struct orchestrator *orchestrator = revoke->control.orchestrator;
    struct client_message client;
    Sandstorm__V1__RevokeClientResponse response = SANDSTORM__V1__REVOKE_CLIENT_RESPONSE__INIT;
    if (job->result == 0)
        job->result = clients_set(orchestrator->clients, &revoke->client, &job->err);
    if (control_job_failed(&revoke->control))
        return;
    log_info("client revoked", LF_STR("client", revoke->client.name),
             LF_STR("by", revoke->control.actor));
    describe(&revoke->client, &client);
    response.client = &client.message;
    control_job_end(&revoke->control, &response.base);
    warden_sweep(orchestrator);
}

int control_revoke_client(void *userdata, struct rpc_ticket *ticket,
                          const ProtobufCMessage *message, struct err *err)
{
    const Sandstorm__V1__RevokeClientRequest *request =
        (const Sandstorm__V1__RevokeClientRequest *)message;
    if (client_name_check(request->name, err) < 0)
        return -1;
    if (strcmp(request->name, rpc_ticket_peer(ticket)->name) == 0)
        return err_set(err, ERR_PRECONDITION,
                       "you are \"%s\"; let another admin revoke it, so that one is left",
                       request->name);
    struct revoke_job *revoke = control_job_new(sizeof(*revoke), userdata, ticket, err);
    if (!revoke)
        return -1;
    (void)snprintf(revoke->client.name, sizeof(revoke->client.name), "%s", request->name);
    return control_job_submit(&revoke->control, revoke_work, revoke_done, true, err);
}
