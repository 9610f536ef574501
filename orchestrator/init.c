/* Setting up an orchestrator's state directory. Called by orchestrator/main.c for its verbs; next:
 * orchestrator/ca.c makes the certificates. */
#include "orchestrator/init.h"

#include "orchestrator/ca.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ADMIN_NAME       "admin"
#define ADMIN_LIFETIME_S (365ull * 86400)

static int make_dir(const char *path, struct err *err)
{
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot create the directory %s", path);
    return 0;
}

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

int init_run(const struct init_config *config, struct err *err)
{
    CLEANUP_FREE char *ca_dir = below(config->state_dir, "ca", err);
    CLEANUP_FREE char *clients = below(config->state_dir, "clients", err);
    CLEANUP_FREE char *admin = below(config->state_dir, "clients/" ADMIN_NAME, err);
    CLEANUP_CA struct ca *ca = NULL;
    if (!ca_dir || !clients || !admin || make_dir(config->state_dir, err) < 0 ||
        make_dir(ca_dir, err) < 0 || make_dir(clients, err) < 0 ||
        ca_create(ca_dir, config->trust_domain, err) < 0 || ca_open(ca_dir, &ca, err) < 0 ||
        issue_server(ca, config, err) < 0)
        return -1;
    return ca_issue_peer(ca, admin, IDENTITY_CLIENT, ADMIN_NAME, ADMIN_LIFETIME_S, err);
}

static int issue(const char *state_dir, enum identity_kind kind, const char *name, const char *out,
                 uint64_t lifetime_s, struct err *err)
{
    CLEANUP_FREE char *ca_dir = below(state_dir, "ca", err);
    CLEANUP_CA struct ca *ca = NULL;
    if (!ca_dir)
        return -1;
    if (access(ca_dir, F_OK) < 0)
        return err_set(
            err, ERR_NOT_FOUND,
            "there is no CA in %s; run 'sandstorm-orchestrator init --state-dir %s' first", ca_dir,
            state_dir);
    if (ca_open(ca_dir, &ca, err) < 0)
        return -1;
    return ca_issue_peer(ca, out, kind, name, lifetime_s, err);
}

int init_issue_agent(const char *state_dir, const char *sandbox_id, const char *out,
                     uint64_t lifetime_s, struct err *err)
{
    if (sandbox_id_check(sandbox_id, err) < 0)
        return -1;
    return issue(state_dir, IDENTITY_AGENT, sandbox_id, out, lifetime_s, err);
}

int init_issue_client(const char *state_dir, const char *name, const char *out, uint64_t lifetime_s,
                      struct err *err)
{
    if (client_name_check(name, err) < 0)
        return -1;
    return issue(state_dir, IDENTITY_CLIENT, name, out, lifetime_s, err);
}
