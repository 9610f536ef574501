/* The orchestrator's root object: makes the parts, serves until it is told to stop, and then lets
 * everybody go in order: goodbye to the agents, a grace for the clients, then the cut. next:
 * orchestrator/methods.c says where each call goes. */
#include "orchestrator/orchestrator-internal.h"

#include "orchestrator/access.h"
#include "orchestrator/ca.h"
#include "orchestrator/clients.h"
#include "orchestrator/control.h"
#include "orchestrator/front.h"
#include "orchestrator/history.h"
#include "orchestrator/ledger_log.h"
#include "orchestrator/liveness.h"
#include "orchestrator/logbook.h"
#include "orchestrator/relay.h"
#include "orchestrator/session.h"

#include <stdio.h>
#include <sys/stat.h>

#define FAULTS_LOGGED      5u
#define FAULTS_PERIOD_US   10000000u
#define DRAIN_RETRY_MS     1000u  /* when the first agent of one that stops is to come back */
#define DRAIN_RATE         200u   /* how many of them in a second */
#define DRAIN_RETRY_MAX_MS 30000u /* and when the last */

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

/* Agents are told to come back one after the other, so that our successor is not hit by all of
 * them at once; those who are told late have not lost anything meanwhile. */
static void send_away(struct orchestrator *orchestrator)
{
    uint64_t retry_ms = DRAIN_RETRY_MS;
    for (struct sandbox *one = registry_any(orchestrator->registry); one; one = one->hh.next) {
        if (!one->session)
            continue;
        session_close(one->session, SANDSTORM__V1__GOODBYE_REASON__GOODBYE_REASON_DRAINING,
                      retry_ms, "the orchestrator is stopping");
        retry_ms += 1000 / DRAIN_RATE;
        if (retry_ms > DRAIN_RETRY_MAX_MS)
            retry_ms = DRAIN_RETRY_MS;
    }
}

static void begin_stop(struct orchestrator *orchestrator)
{
    health_set_serving(orchestrator->health, false);
    send_away(orchestrator);
    control_ready_stop(orchestrator);
    control_command_stop(orchestrator);
    control_watch_stop(orchestrator);
    health_end_watches(orchestrator->health);
    rpc_server_drain(orchestrator->server, ORCHESTRATOR_DRAIN_US, on_drained, orchestrator);
}

static void on_stop(void *userdata, bool hurry)
{
    struct orchestrator *orchestrator = userdata;
    orchestrator->stopping = true;
    /* While it starts, whoever turns the loop looks at the flag. */
    if (orchestrator->serving && hurry)
        rpc_server_cut(orchestrator->server);
    else if (orchestrator->serving)
        begin_stop(orchestrator);
}

/* The server's identity and the CA, made consistent first: a rotation may have been cut short, and
 * the server's certificate may be near its end. */
static int load_identity(struct orchestrator *orchestrator, const char *state_dir, struct err *err)
{
    char server[4096], ca[4096];
    (void)snprintf(server, sizeof(server), "%s/server", state_dir);
    (void)snprintf(ca, sizeof(ca), "%s/ca", state_dir);
    if (ca_refresh_server(state_dir, err) < 0 || ca_open(ca, &orchestrator->ca, err) < 0 ||
        rpc_creds_load(server, &orchestrator->creds, err) < 0)
        return -1;
    if (rpc_creds_check(&orchestrator->creds, err) < 0)
        return err_wrap(err, "%s", server);
    struct rpc_creds_times times;
    if (rpc_creds_times(&orchestrator->creds, &times, err) < 0)
        return -1;
    orchestrator->server_not_after_ms = times.end_ms;
    return rpc_creds_trust_domain(&orchestrator->creds, orchestrator->trust_domain, err);
}

/* What the store knows, before anybody is let in. */

#define LOAD_PAGE 64u

struct load {
    struct store_job job;
    struct orchestrator *orchestrator;
    bool done;
};

/* Runs on the store's thread while the loop's does nothing but wait for it. */
static int load_sandbox(void *userdata, const struct sandbox_record *record, struct err *err)
{
    struct orchestrator *orchestrator = userdata;
    struct sandbox *sandbox;
    if (registry_set(orchestrator->registry, record, &sandbox, err) < 0)
        return -1;
    liveness_add(orchestrator, sandbox, record->note.state);
    return 0;
}

static int load_clients(struct orchestrator *orchestrator, struct store_tx *tx, struct err *err)
{
    CLEANUP_FREE struct client_record *page = calloc(LOAD_PAGE, sizeof(*page));
    char after[CLIENT_NAME_MAX + 1] = "";
    unsigned count;
    if (!page)
        return err_nomem(err);
    do {
        if (store_client_list(tx, after, page, LOAD_PAGE, &count, err) < 0)
            return -1;
        for (unsigned i = 0; i < count; i++) {
            if (clients_set(orchestrator->clients, &page[i], err) < 0)
                return -1;
            (void)snprintf(after, sizeof(after), "%s", page[i].name);
        }
    } while (count == LOAD_PAGE);
    return 0;
}

static int load_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    struct load *load = CONTAINER_OF(job, struct load, job);
    if (load_clients(load->orchestrator, tx, err) < 0)
        return -1;
    if (store_sandbox_each(tx, load_sandbox, load->orchestrator, err) < 0)
        return -1;
    return history_load(load->orchestrator->history, tx, err);
}

static void load_done(struct store_job *job)
{
    CONTAINER_OF(job, struct load, job)->done = true;
}

static int load_store(struct orchestrator *orchestrator, struct err *err)
{
    struct load load = { .orchestrator = orchestrator,
                         .job = { .work = load_work, .done = load_done } };
    if (store_submit(orchestrator->store, &load.job, err) < 0)
        return -1;
    while (!load.done)
        if (loop_turn(orchestrator->loop, UINT64_MAX, err) < 0)
            return -1;
    if (load.job.result < 0) {
        *err = load.job.err;
        return -1;
    }
    if (orchestrator->stopping)
        return err_set(err, ERR_CANCELLED, "told to stop while starting");
    if (store_audit_broken(orchestrator->store))
        log_error("the audit's last row is not the one that was written last; somebody has changed "
                  "the database. 'sandstorm audit --verify' says where");
    return 0;
}

static int open_ledgers(struct orchestrator *orchestrator, const struct orchestrator_config *config,
                        struct err *err)
{
    const struct ledger_log_config ledgers = {
        .dir = config->state_dir,
        .loop = orchestrator->loop,
        .total_max = config->output_total,
        .command_max = config->output_command,
        .age_max_ms = (int64_t)(config->output_age_us / 1000),
    };
    orchestrator->command_output_max = config->output_command;
    return ledger_log_open(&ledgers, &orchestrator->ledgers, err);
}

static int listen_http(struct orchestrator *orchestrator, const struct orchestrator_config *config,
                       struct err *err)
{
    const struct http_front_config front = {
        .listen = config->http_listen,
        .cert_pem = orchestrator->creds.cert,
        .key_pem = orchestrator->creds.key,
        .routes = front_routes,
        .userdata = orchestrator,
        .penalties = config->penalties,
    };
    return http_front_new(&front, &orchestrator->front, err);
}

static int listen_grpc(struct orchestrator *orchestrator, const struct orchestrator_config *config,
                       struct err *err)
{
    const struct rpc_server_config server = {
        .listen = config->listen,
        .trust_domain = orchestrator->trust_domain,
        .creds = &orchestrator->creds,
        .methods = orchestrator_methods,
        .guard = access_guard,
        .userdata = orchestrator,
    };
    return rpc_server_new(orchestrator->pump, &server, &orchestrator->server, err);
}

/* `init` makes the CA and the database together, so one without the other is a loss. */
static int check_state(const char *state_dir, struct err *err)
{
    char ca[4096], database[4096];
    struct stat st;
    (void)snprintf(ca, sizeof(ca), "%s/ca/ca.pem", state_dir);
    (void)snprintf(database, sizeof(database), "%s/orchestrator.db", state_dir);
    bool has_database = stat(database, &st) == 0 ? st.st_size > 0 : errno != ENOENT;
    if (access(ca, F_OK) < 0)
        return err_set(
            err, ERR_NOT_FOUND,
            "there is no CA in %s; run 'sandstorm-orchestrator init --state-dir %s' first%s",
            state_dir, state_dir,
            has_database ? ", or, when a restore was cut short, move its files away and restore "
                           "again"
                         : "");
    if (has_database)
        return 0;
    return err_set(
        err, ERR_PRECONDITION,
        "%s is missing or empty, but there is a CA: move what is in %s away and bring "
        "back a backup with 'sandstorm-orchestrator restore FILE'; or run "
        "'sandstorm-orchestrator repair' again when that was cut short; or begin without "
        "any sandbox, client or audit with 'sandstorm-orchestrator recover admin'",
        database, state_dir);
}

int orchestrator_new(const struct orchestrator_config *config, struct orchestrator **ret,
                     struct err *err)
{
    struct orchestrator *orchestrator = calloc(1, sizeof(*orchestrator));
    if (!orchestrator)
        return err_nomem(err);
    orchestrator->faults = LOG_LIMIT(FAULTS_PERIOD_US, FAULTS_LOGGED);
    orchestrator->refusals = LOG_LIMIT(FAULTS_PERIOD_US, FAULTS_LOGGED);
    orchestrator->ledger_faults = LOG_LIMIT(FAULTS_PERIOD_US, FAULTS_LOGGED);
    orchestrator->stranger_denials = LOG_LIMIT(ACCESS_PERIOD_US, ACCESS_DENIAL_ROWS);
    orchestrator->lifetime_s = config->lifetime_s;
    orchestrator->window_s = config->window_s;
    if (check_state(config->state_dir, err) < 0 || loop_new(&orchestrator->loop, err) < 0 ||
        daemon_new(orchestrator->loop, on_stop, orchestrator, &orchestrator->daemon, err) < 0 ||
        store_open(config->state_dir, orchestrator->loop, &orchestrator->store, err) < 0 ||
        load_identity(orchestrator, config->state_dir, err) < 0 ||
        registry_new(&orchestrator->registry, err) < 0 ||
        liveness_new(orchestrator, config, err) < 0 ||
        clients_new(&orchestrator->clients, err) < 0 ||
        history_new(orchestrator, &orchestrator->history, err) < 0 ||
        load_store(orchestrator, err) < 0 || open_ledgers(orchestrator, config, err) < 0 ||
        logbook_new(orchestrator, &orchestrator->logbook, err) < 0 ||
        health_new(&orchestrator->health, err) < 0 ||
        reflection_new(&orchestrator->reflection, err) < 0 ||
        rpc_pump_new(orchestrator->loop, &orchestrator->pump, err) < 0 ||
        listen_grpc(orchestrator, config, err) < 0)
        goto fail;
    if (listen_http(orchestrator, config, err) < 0 || warden_start(orchestrator, err) < 0) {
        /* libgrpc has armed calls by now; they are let go in order. */
        struct err more;
        rpc_server_drain(orchestrator->server, 0, on_drained, orchestrator);
        if (loop_run(orchestrator->loop, &more) < 0)
            log_error("cannot stop in order", LF_ERR(&more));
        goto fail;
    }
    log_info("listening", LF_STR("address", config->listen),
             LF_INT("port", rpc_server_port(orchestrator->server)),
             LF_INT("http_port", http_front_port(orchestrator->front)),
             LF_STR("trust_domain", orchestrator->trust_domain));
    *ret = orchestrator;
    return 0;
fail:
    orchestrator_free(orchestrator);
    return -1;
}

int orchestrator_run(struct orchestrator *orchestrator, struct err *err)
{
    orchestrator->serving = true;
    liveness_start(orchestrator);
    health_set_serving(orchestrator->health, !orchestrator->stopping);
    if (orchestrator->stopping)
        begin_stop(orchestrator);
    daemon_ready("serving on port %d, enrolment on port %d", rpc_server_port(orchestrator->server),
                 http_front_port(orchestrator->front));
    return loop_run(orchestrator->loop, err);
}

void orchestrator_free(struct orchestrator *orchestrator)
{
    if (!orchestrator)
        return;
    /* Those who hand us work first, then what works for us: each may still answer the one before.
     */
    http_front_free(orchestrator->front);
    if (orchestrator->loop)
        loop_drain_posts(orchestrator->loop);
    logbook_flush(orchestrator->logbook);
    store_free(orchestrator->store); /* its last jobs may still hand it more */
    orchestrator->store = NULL;
    relays_free(orchestrator);
    ledger_log_free(orchestrator->ledgers);
    loop_timer_free(orchestrator->warden);
    rpc_server_free(orchestrator->server);
    logbook_free(orchestrator->logbook);
    rpc_pump_free(orchestrator->pump);
    reflection_free(orchestrator->reflection);
    health_free(orchestrator->health);
    history_free(orchestrator->history);
    clients_free(orchestrator->clients);
    liveness_free(orchestrator);
    registry_free(orchestrator->registry);
    ca_free(orchestrator->ca);
    daemon_free(orchestrator->daemon);
    loop_free(orchestrator->loop);
    rpc_creds_clear(&orchestrator->creds);
    free(orchestrator);
}
