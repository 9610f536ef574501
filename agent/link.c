/* The link's root object: makes the parts, runs them until it is told to stop. next:
 * agent/link_stream.c talks to the orchestrator, agent/link_runner.c to the runner. */
#include "agent/link-internal.h"

#include "common/rpc_diagnose.h"

#include <string.h>
#include <time.h>

/* Who we are is what our certificate says; a configured id that differs is a mistake to name. */
static int check_identity(struct link *link, struct err *err)
{
    struct rpc_creds creds;
    int64_t not_after = 0;
    if (rpc_creds_load(link->config.identity_dir, &creds, err) < 0)
        return err_wrap(err, "no identity; make one with 'sandstorm-orchestrator issue-agent'");
    int r = rpc_creds_check(&creds, err);
    if (r == 0)
        r = rpc_creds_identity(&creds, &link->identity, &not_after, err);
    rpc_creds_clear(&creds);
    if (r < 0)
        return err_wrap(err, "%s", link->config.identity_dir);
    if (link->identity.kind != IDENTITY_AGENT)
        return err_set(err, ERR_INVALID,
                       "%s holds a %s certificate; the agent needs one made by "
                       "'sandstorm-orchestrator issue-agent'",
                       link->config.identity_dir, identity_kind_name(link->identity.kind));
    const char *wanted = link->config.sandbox_id;
    if (wanted && *wanted && strcmp(wanted, link->identity.name) != 0)
        return err_set(err, ERR_INVALID,
                       "SANDSTORM_SANDBOX_ID is \"%s\" but the certificate in %s is for \"%s\"; "
                       "correct one of them",
                       wanted, link->config.identity_dir, link->identity.name);
    if (not_after < (int64_t)time(NULL))
        log_warn("our certificate has expired", LF_STR("sandbox", link->identity.name));
    return 0;
}

static void maybe_quit(struct link *link)
{
    if (link->stopping && link_stream_stop(link))
        loop_quit(link->loop);
}

static void on_stop(void *userdata, bool hurry)
{
    struct link *link = userdata;
    link->stopping = true;
    if (hurry)
        loop_quit(link->loop);
    else
        maybe_quit(link);
}

void link_say_status(struct link *link)
{
    const struct link_stream *stream = &link->stream;
    if (stream->state == STREAM_ACTIVE && link->runner.in_step)
        daemon_status("online as \"%s\" at %s", link->identity.name, link->config.endpoint);
    else if (stream->state == STREAM_ACTIVE)
        daemon_status("connected to %s, waiting for the runner at %s", link->config.endpoint,
                      link->config.runner_socket);
    else
        daemon_status("connecting to %s: %s", link->config.endpoint,
                      *stream->last_error ? stream->last_error : "first attempt");
    maybe_quit(link);
}

int link_new(const struct link_config *config, struct link **ret, struct err *err)
{
    struct link *link = calloc(1, sizeof(*link));
    if (!link)
        return err_nomem(err);
    link->config = *config;
    link->runner.fd = -1;
    metrics_init(&link->metrics, "/proc", "/");
    struct endpoint endpoint;
    if (endpoint_parse(config->endpoint, &endpoint, err) < 0 || check_identity(link, err) < 0 ||
        loop_new(&link->loop, err) < 0 ||
        daemon_new(link->loop, on_stop, link, &link->daemon, err) < 0 ||
        rpc_pump_new(link->loop, &link->pump, err) < 0 ||
        worker_new(link->loop, "diagnosis", &link->worker, err) < 0 ||
        link_stream_init(link, err) < 0 || link_runner_init(link, err) < 0) {
        link_free(link);
        return -1;
    }
    *ret = link;
    return 0;
}

int link_run(struct link *link, struct err *err)
{
    log_info("agent starting", LF_STR("sandbox", link->identity.name),
             LF_STR("endpoint", link->config.endpoint));
    /* Ready means that it works on connecting: an orchestrator that is away must not make the
     * service manager believe that the agent is broken. */
    daemon_ready("connecting to %s", link->config.endpoint);
    link_runner_start(link);
    link_stream_start(link);
    return loop_run(link->loop, err);
}

void link_free(struct link *link)
{
    if (!link)
        return;
    /* The worker first: its last job reports into the stream. */
    worker_free(link->worker);
    link_runner_done(link);
    link_stream_done(link);
    rpc_pump_free(link->pump);
    daemon_free(link->daemon);
    loop_free(link->loop);
    free(link);
}
