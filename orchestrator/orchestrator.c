/* The orchestrator's root object: makes the parts, serves until it is told to stop, and then lets
 * everybody go in order: goodbye to the agents, a grace for the clients, then the cut. next:
 * orchestrator/methods.c says where each call goes. */
#include "orchestrator/orchestrator-internal.h"

#include "orchestrator/session.h"

#include <stdio.h>

#define FAULTS_LOGGED    5u
#define FAULTS_PERIOD_US 10000000u
/* Spreads a draining orchestrator's agents, so that its successor is not hit by all at once. */
#define DRAIN_RETRY_MS 1000u

struct health *health_of(void *userdata)
{
    return ((struct orchestrator *)userdata)->health;
}

struct reflection *reflection_of(void *userdata)
{
    return ((struct orchestrator *)userdata)->reflection;
}

static void on_drained(void *userdata)
{
    struct orchestrator *orchestrator = userdata;
    loop_quit(orchestrator->loop);
}

static void on_stop(void *userdata, bool hurry)
{
    struct orchestrator *orchestrator = userdata;
    if (hurry) {
        rpc_server_cut(orchestrator->server);
        return;
    }
    health_set_serving(orchestrator->health, false);
    for (struct sandbox *one = registry_any(orchestrator->registry); one; one = one->hh.next)
        if (one->session)
            session_close(one->session, SANDSTORM__V1__GOODBYE_REASON__GOODBYE_REASON_DRAINING,
                          DRAIN_RETRY_MS, "the orchestrator is stopping");
    health_end_watches(orchestrator->health);
    rpc_server_drain(orchestrator->server, ORCHESTRATOR_DRAIN_US, on_drained, orchestrator);
}

static int load_identity(struct orchestrator *orchestrator, const char *state_dir, struct err *err)
{
    char dir[4096];
    (void)snprintf(dir, sizeof(dir), "%s/server", state_dir);
    if (rpc_creds_load(dir, &orchestrator->creds, err) < 0)
        return err_wrap(err, "run 'sandstorm-orchestrator init --state-dir %s' first", state_dir);
    if (rpc_creds_check(&orchestrator->creds, err) < 0)
        return err_wrap(err, "%s", dir);
    return rpc_creds_trust_domain(&orchestrator->creds, orchestrator->trust_domain, err);
}

int orchestrator_new(const struct orchestrator_config *config, struct orchestrator **ret,
                     struct err *err)
{
    struct orchestrator *orchestrator = calloc(1, sizeof(*orchestrator));
    if (!orchestrator)
        return err_nomem(err);
    orchestrator->heartbeat_ms = config->heartbeat_ms;
    orchestrator->faults = LOG_LIMIT(FAULTS_PERIOD_US, FAULTS_LOGGED);
    if (load_identity(orchestrator, config->state_dir, err) < 0 ||
        loop_new(&orchestrator->loop, err) < 0 ||
        daemon_new(orchestrator->loop, on_stop, orchestrator, &orchestrator->daemon, err) < 0 ||
        registry_new(&orchestrator->registry, err) < 0 ||
        health_new(&orchestrator->health, err) < 0 ||
        reflection_new(&orchestrator->reflection, err) < 0 ||
        rpc_pump_new(orchestrator->loop, &orchestrator->pump, err) < 0)
        goto fail;
    const struct rpc_server_config server = {
        .listen = config->listen,
        .trust_domain = orchestrator->trust_domain,
        .creds = &orchestrator->creds,
        .methods = orchestrator_methods,
        .userdata = orchestrator,
    };
    if (rpc_server_new(orchestrator->pump, &server, &orchestrator->server, err) < 0)
        goto fail;
    log_info("listening", LF_STR("address", config->listen),
             LF_INT("port", rpc_server_port(orchestrator->server)),
             LF_STR("trust_domain", orchestrator->trust_domain));
    *ret = orchestrator;
    return 0;
fail:
    orchestrator_free(orchestrator);
    return -1;
}

int orchestrator_run(struct orchestrator *orchestrator, struct err *err)
{
    health_set_serving(orchestrator->health, true);
    daemon_ready("serving on port %d", rpc_server_port(orchestrator->server));
    return loop_run(orchestrator->loop, err);
}

void orchestrator_free(struct orchestrator *orchestrator)
{
    if (!orchestrator)
        return;
    rpc_server_free(orchestrator->server);
    rpc_pump_free(orchestrator->pump);
    reflection_free(orchestrator->reflection);
    health_free(orchestrator->health);
    registry_free(orchestrator->registry);
    daemon_free(orchestrator->daemon);
    loop_free(orchestrator->loop);
    rpc_creds_clear(&orchestrator->creds);
    free(orchestrator);
}
