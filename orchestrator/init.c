/* Setting up an orchestrator's state directory. Called by orchestrator/main.c for its verbs; next:
 * orchestrator/ca.c makes the certificates, orchestrator/store.c remembers the admin. */
#include "orchestrator/init.h"

#include "common/clock.h"
#include "common/file.h"
#include "orchestrator/access.h"
#include "orchestrator/ca.h"
#include "orchestrator/store.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ADMIN_NAME       "admin"
#define ADMIN_LIFETIME_S (365ull * 86400)
#define CERT_MAX         (64u * 1024)

static char *below(const char *dir, const char *name, struct err *err)
{
    char *path;
    if (asprintf(&path, "%s/%s", dir, name) < 0) {
        (void)err_nomem(err);
        return NULL;
    }
    return path;
}

static bool listed(const char *const *names, unsigned count, const char *name)
{
    for (unsigned i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static int issue_server(struct ca *ca, const struct init_config *config, struct err *err)
{
    char host[256] = "";
    const char *names[CA_DNS_NAMES_MAX];
    unsigned count = 0;
    names[count++] = "localhost";
    names[count++] = "127.0.0.1";
    names[count++] = "::1";
    if (gethostname(host, sizeof(host) - 1) == 0 && *host && !listed(names, count, host))
        names[count++] = host;
    for (unsigned i = 0; i < config->name_count; i++) {
        if (listed(names, count, config->names[i]))
            continue;
        if (count == CA_DNS_NAMES_MAX)
            return err_set(err, ERR_INVALID, "at most %d names", CA_DNS_NAMES_MAX);
        names[count++] = config->names[i];
    }
    CLEANUP_FREE char *dir = below(config->state_dir, "server", err);
    return dir ? ca_issue_server(ca, dir, names, count, SERVER_LIFETIME_S, err) : -1;
}

/* The admin's row in the store: without it the certificate opens nothing. */

struct admin_job {
    struct store_job job;
    const char *action;
    struct client_record client;
};

static int admin_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    const struct admin_job *admin = CONTAINER_OF(job, struct admin_job, job);
    const struct audit_entry entry = {
        .actor = "system",
        .action = admin->action,
        .target = admin->client.name,
        .allowed = true,
        .detail = "role admin, on the orchestrator's own host",
    };
    if (store_audit_append(tx, &entry, err) < 0)
        return -1;
    return store_client_put(tx, &admin->client, err);
}

/* The key that was just issued, out of its certificate. */
static int read_key(struct ca *ca, const char *dir, uint8_t ret[STORE_KEY_LEN], struct err *err)
{
    CLEANUP_FREE char *path = below(dir, "cert.pem", err);
    CLEANUP_FREE char *pem = NULL;
    struct identity identity;
    int64_t not_after;
    size_t size;
    if (!path || file_read(path, CERT_MAX, &pem, &size, err) < 0)
        return -1;
    return ca_inspect_peer(ca, pem, size, &identity, ret, &not_after, err);
}

static int make_admin(struct store *store, struct ca *ca, const char *dir, const char *name,
                      const char *action, struct err *err)
{
    struct admin_job admin = { .job = { .work = admin_work, .durable = true }, .action = action };
    struct client_record *client = &admin.client;
    (void)snprintf(client->name, sizeof(client->name), "%s", name);
    (void)snprintf(client->created_by, sizeof(client->created_by), "system");
    client->role = ROLE_ADMIN;
    client->created_ms = client->last_login_ms = wall_ms();
    client->has_key = true;
    if (ca_issue_peer(ca, dir, IDENTITY_CLIENT, name, ADMIN_LIFETIME_S, err) < 0 ||
        read_key(ca, dir, client->key, err) < 0)
        return -1;
    return store_run(store, &admin.job, err);
}

/* A CA without a server's certificate is what an init leaves that was cut short: this one goes on
 * where that one ended. */
static int create_ca(const struct init_config *config, const char *ca_dir, struct err *err)
{
    CLEANUP_FREE char *server = below(config->state_dir, "server/cert.pem", err);
    if (!server)
        return -1;
    struct err why = { 0 };
    if (ca_create(ca_dir, config->trust_domain, &why) == 0 ||
        (why.code == ERR_EXISTS && access(server, F_OK) < 0))
        return 0;
    *err = why;
    return -1;
}

/* Before anything is made. */
static int check_names(const struct init_config *config, struct err *err)
{
    for (unsigned i = 0; i < config->name_count; i++)
        if (ca_server_name_check(config->names[i], err) < 0)
            return err_wrap(err, "--name %s", config->names[i]);
    return 0;
}

int init_run(const struct init_config *config, struct err *err)
{
    CLEANUP_FREE char *ca_dir = below(config->state_dir, "ca", err);
    CLEANUP_FREE char *clients = below(config->state_dir, "clients", err);
    CLEANUP_FREE char *admin = below(config->state_dir, "clients/" ADMIN_NAME, err);
    CLEANUP_CA struct ca *ca = NULL;
    CLEANUP_STORE struct store *store = NULL;
    if (!ca_dir || !clients || !admin || file_make_dirs(config->state_dir, 0755, err) < 0 ||
        file_make_dirs(ca_dir, 0700, err) < 0 || file_make_dirs(clients, 0700, err) < 0 ||
        check_names(config, err) < 0 || store_open(config->state_dir, NULL, &store, err) < 0 ||
        create_ca(config, ca_dir, err) < 0 || ca_open(ca_dir, &ca, err) < 0 ||
        issue_server(ca, config, err) < 0)
        return -1;
    return make_admin(store, ca, admin, ADMIN_NAME, "client.add", err);
}

static int open_ca(const char *state_dir, struct ca **ret, struct err *err)
{
    CLEANUP_FREE char *ca_dir = below(state_dir, "ca", err);
    if (!ca_dir)
        return -1;
    if (access(ca_dir, F_OK) < 0)
        return err_set(
            err, ERR_NOT_FOUND,
            "there is no CA in %s; run 'sandstorm-orchestrator init --state-dir %s' first", ca_dir,
            state_dir);
    return ca_open(ca_dir, ret, err);
}

int init_recover(const char *state_dir, const char *name, struct err *err)
{
    CLEANUP_FREE char *clients = below(state_dir, "clients", err);
    CLEANUP_FREE char *dir = NULL;
    CLEANUP_CA struct ca *ca = NULL;
    CLEANUP_STORE struct store *store = NULL;
    if (!clients || client_name_check(name, err) < 0 || open_ca(state_dir, &ca, err) < 0 ||
        file_make_dirs(clients, 0700, err) < 0 || store_open(state_dir, NULL, &store, err) < 0)
        return -1;
    dir = below(clients, name, err);
    return dir ? make_admin(store, ca, dir, name, "client.recover", err) : -1;
}

int init_fingerprint(const char *state_dir, char ret[INIT_FINGERPRINT_MAX], struct err *err)
{
    CLEANUP_CA struct ca *ca = NULL;
    if (open_ca(state_dir, &ca, err) < 0)
        return -1;
    (void)snprintf(ret, INIT_FINGERPRINT_MAX, "%s", ca_fingerprint(ca));
    return 0;
}
