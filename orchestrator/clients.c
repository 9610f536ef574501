/* The table of clients. Filled from the store at start (orchestrator/orchestrator.c) and after each
 * change that was committed; read by orchestrator/access.c for every call. */
#include "orchestrator/clients.h"

#include <string.h>

struct clients {
    struct client *table;
};

int clients_new(struct clients **ret, struct err *err)
{
    struct clients *clients = calloc(1, sizeof(*clients));
    if (!clients)
        return err_nomem(err);
    *ret = clients;
    return 0;
}

void clients_free(struct clients *clients)
{
    if (!clients)
        return;
    struct client *client, *next;
    HASH_ITER (hh, clients->table, client, next) {
        HASH_DEL(clients->table, client);
        free(client->scope);
        free(client);
    }
    free(clients);
}

struct client *clients_find(const struct clients *clients, const char *name)
{
    struct client *client;
    HASH_FIND_STR(clients->table, name, client);
    return client;
}

int clients_set(struct clients *clients, const struct client_record *record, struct err *err)
{
    CLEANUP_FREE char *scope = strdup(record->scope);
    struct client *client;
    if (!scope)
        return err_nomem(err);
    HASH_FIND_STR(clients->table, record->name, client);
    if (!client) {
        client = calloc(1, sizeof(*client));
        if (!client)
            return err_nomem(err);
        (void)memcpy(client->name, record->name, sizeof(client->name));
        client->denials = LOG_LIMIT(ACCESS_PERIOD_US, ACCESS_DENIAL_ROWS);
        HASH_ADD_STR(clients->table, name, client);
    }
    free(client->scope);
    client->scope = TAKE_PTR(scope);
    client->role = (enum role)record->role;
    client->has_key = record->has_key;
    client->revoked = record->revoked_ms != 0;
    (void)memcpy(client->key, record->key, sizeof(client->key));
    return 0;
}

unsigned clients_count(const struct clients *clients)
{
    return HASH_COUNT(clients->table);
}
