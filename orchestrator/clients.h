/* The clients that may call, in memory, as the store has them. Loop thread. */
#pragma once

#include "common/log.h"
#include "orchestrator/access.h"
#include "orchestrator/store.h"

#define CLIENTS_MAX 10000u

struct client {
    char name[CLIENT_NAME_MAX + 1];
    enum role role;
    char *scope; /* labels; "" is everything */
    bool has_key, revoked;
    uint8_t key[STORE_KEY_LEN];
    struct log_limit denials; /* audit rows about what it may not do */
    UT_hash_handle hh;
};

struct clients;

int clients_new(struct clients **ret, struct err *err) must_use;
void clients_free(struct clients *clients);
/* NULL when there is none. */
struct client *clients_find(const struct clients *clients, const char *name);
/* Adds or replaces. */
int clients_set(struct clients *clients, const struct client_record *record,
                struct err *err) must_use;
unsigned clients_count(const struct clients *clients);
