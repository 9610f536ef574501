/* The link's root object: makes the parts, runs them until it is told to stop. next:
 * agent/link_stream.c talks to the orchestrator, agent/link_runner.c to the runner. */
#include "agent/link-internal.h"

#include "common/clock.h"
#include "common/rpc_diagnose.h"
#include "common/version.h"

#include <stdio.h>
#include <string.h>

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

/* What does not change while this process lives. */
static void init_status(struct link *link)
{
    struct agent_status *status = &link->status;
    status->pid = getpid();
    link_read_boot_id(status->boot_id, sizeof(status->boot_id));
    (void)snprintf(status->endpoint, sizeof(status->endpoint), "%s", link->config.endpoint);
    (void)snprintf(status->agent_version, sizeof(status->agent_version), "%s", SANDSTORM_VERSION);
}

/* The same for `sandstorm-agent status`. */
static void write_status(struct link *link, const char *state)
{
    struct agent_status *status = &link->status;
    const struct link_stream *stream = &link->stream;
    struct err err;
    if (!link->config.status_file || !*link->config.status_file)
        return;
    status->written_unix_ms = wall_ms();
    if (strcmp(status->state, state) != 0)
        status->since_unix_ms = status->written_unix_ms;
    (void)snprintf(status->state, sizeof(status->state), "%s", state);
    (void)snprintf(status->sandbox_id, sizeof(status->sandbox_id), "%s", link->identity.name);
    (void)snprintf(status->last_error, sizeof(status->last_error), "%s", stream->last_error);
    status->last_error_unix_ms = stream->last_error_ms;
    status->certificate_not_after_unix_ms = link->own.not_after_ms;
    status->clock_known = stream->clock_known;
    status->clock_skew_ms = stream->clock_skew_ms;
    if (status_write(link->config.status_file, status, &err) < 0)
        log_debug("the status file cannot be written", LF_ERR(&err));
}

void link_say_status(struct link *link)
{
    const struct link_stream *stream = &link->stream;
    write_status(link, link->stopping                                          ? "stopped"
                       : link->own.task == TASK_ENROLL                         ? "enrolling"
                       : stream->state == STREAM_ACTIVE && link->runner.fd < 0 ? "no-runner"
                       : stream->state == STREAM_ACTIVE                        ? "online"
                                                                               : "connecting");
    if (link->own.task == TASK_ENROLL)
        daemon_status("enrolling at %s: %s", link->config.enroll->endpoint,
                      *stream->last_error ? stream->last_error : "first attempt");
    else if (stream->state == STREAM_ACTIVE && link->runner.in_step)
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
    link->started_us = monotonic_us();
    metrics_init(&link->metrics, "/proc", "/");
    struct command_id instance;
    struct endpoint endpoint;
    if (endpoint_parse(config->endpoint, &endpoint, err) < 0 ||
        command_id_new(&instance, err) < 0 || loop_new(&link->loop, err) < 0 ||
        link_logs_init(link, err) < 0 ||
        daemon_new(link->loop, on_stop, link, &link->daemon, err) < 0 ||
        rpc_pump_new(link->loop, &link->pump, err) < 0 ||
        worker_new(link->loop, "diagnosis", &link->worker, err) < 0 ||
        link_stream_init(link, err) < 0 || link_runner_init(link, err) < 0 ||
        link_identity_init(link, err) < 0) {
        link_free(link);
        return -1;
    }
    (void)memcpy(link->instance, instance.text, sizeof(link->instance));
    init_status(link);
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
    link_identity_start(link);
    int r = loop_run(link->loop, err);
    write_status(link, "stopped");
    return r;
}

void link_free(struct link *link)
{
    if (!link)
        return;
    /* The worker first: its last job reports into the stream. */
    worker_free(link->worker);
    link_runner_done(link);
    link_stream_done(link);
    link_identity_done(link);
    rpc_pump_free(link->pump);
    daemon_free(link->daemon);
    link_logs_done(link);
    loop_free(link->loop);
    free(link);
}
