/* Starts sandstorm-fleet-sim for a cluster. Used by the tests of a fleet and by bench/fleet.c;
 * next: tests/harness/service.c. */
#include "tests/harness/fleet.h"

#include <stdio.h>

#define TOKEN_FILE "fleet.token"

int fleet_new(struct cluster *cluster, const struct fleet_config *config, struct service **ret,
              struct err *err)
{
    char count[16], silent[16], command[24], endpoint[64], front[96];
    char token[CLUSTER_PATH_MAX + 32], keys[CLUSTER_PATH_MAX + 32], report[CLUSTER_PATH_MAX + 64];
    (void)snprintf(count, sizeof(count), "%u", config->count);
    (void)snprintf(silent, sizeof(silent), "%u", config->silent_percent);
    (void)snprintf(command, sizeof(command), "%ums", config->command_ms ? config->command_ms : 100);
    (void)snprintf(token, sizeof(token), "%s/" TOKEN_FILE, cluster->dir);
    (void)snprintf(keys, sizeof(keys), "%s/fleet-keys", cluster->dir);
    (void)snprintf(report, sizeof(report), "%s/%s", cluster->dir,
                   config->report ? config->report : "fleet.json");
    cluster_endpoint(cluster, endpoint, sizeof(endpoint));
    (void)snprintf(front, sizeof(front), "%s:%d", cluster->host, cluster->http_port);
    if (cluster_token(
            cluster, TOKEN_FILE,
            (const char *[]){ "--prefix", FLEET_PREFIX, "--uses", count, "--ttl", "1h", NULL },
            err) < 0)
        return -1;
    const struct service_config service = {
        .name = "fleet",
        .dir = cluster->dir,
        .argv = (const char *[]){ cluster_program("sandstorm-fleet-sim"),
                                  "--count",
                                  count,
                                  "--endpoint",
                                  endpoint,
                                  "--enroll-endpoint",
                                  front,
                                  "--token-file",
                                  token,
                                  "--ca-fingerprint",
                                  cluster->fingerprint,
                                  "--dir",
                                  keys,
                                  "--silent",
                                  silent,
                                  "--command-time",
                                  command,
                                  "--report",
                                  report,
                                  NULL },
    };
    return service_new(&service, ret, err);
}

int fleet_start(struct service *fleet, uint64_t timeout_us, struct err *err)
{
    if (service_start(fleet, err) < 0)
        return -1;
    return service_wait_ready(fleet, timeout_us, err);
}

int fleet_wait_online(struct service *fleet, unsigned online, unsigned count, uint64_t timeout_us,
                      struct err *err)
{
    char wanted[64];
    (void)snprintf(wanted, sizeof(wanted), "online %u of %u", online, count);
    return service_wait_status(fleet, wanted, timeout_us, err);
}
