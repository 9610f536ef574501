/* The link's root object: makes the parts, runs them until it is told to stop. next:
 * agent/link_stream.c talks to the orchestrator, agent/link_runner.c to the runner. */
#include "agent/link-internal.h"

#include "common/clock.h"
#include "common/rpc_diagnose.h"
#include "common/version.h"

#include <assert.h>
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

static int64_t wall_of(uint64_t then_us)
{
    int64_t distance_ms = (int64_t)(then_us - monotonic_us()) / 1000; /* either way */
    return wall_ms() + distance_ms;
}

/* How it goes with being online, or with getting there. */
static void fill_progress(struct link_stream *stream, struct agent_status *status)
{
    bool active = stream->state == STREAM_ACTIVE;
    bool under_way = stream->retry_at_us == 0;
    status->next_attempt_unix_ms = active || under_way ? 0 : wall_of(stream->retry_at_us);
    status->attempts_failed =
        active || !stream->attempts ? 0 : (int64_t)stream->attempts - (under_way ? 1 : 0);
    status->failing_since_unix_ms = active ? 0 : stream->failing_since_ms;
    status->heartbeat_interval_ms = active ? (int64_t)(stream->heartbeat_us / 1000) : 0;
    status->heartbeat_sent_unix_ms = active ? wall_of(stream->heartbeat_sent_us) : 0;
    stream->heartbeat_told_us = monotonic_us();
}

/* The same for `sandstorm-agent status`. */
static void write_status(struct link *link, const char *state)
{
    struct agent_status *status = &link->status;
    struct link_stream *stream = &link->stream;
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
    (void)snprintf(status->enforces, sizeof(status->enforces), "%s", link->runner.enforces);
    fill_progress(stream, status);
    if (status_write(link->config.status_file, status, &err) < 0)
        log_debug("the status file cannot be written", LF_ERR(&err));
}

void link_write_status(struct link *link)
{
    const struct link_stream *stream = &link->stream;
    write_status(link, link->stopping                                          ? "stopped"
                       : link->own.task == TASK_ENROLL                         ? "enrolling"
                       : stream->state == STREAM_ACTIVE && link->runner.fd < 0 ? "no-runner"
                       : stream->state == STREAM_ACTIVE                        ? "online"
                                                                               : "connecting");
}

void link_say_status(struct link *link)
{
    const struct link_stream *stream = &link->stream;
    link_write_status(link);
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

/* What the agent keeps is beside its identity. */
static void find_state_dir(struct link *link)
{
    const char *dir = link->config.enroll->identity_dir;
    size_t size = strlen(dir);
    while (size > 1 && dir[size - 1] == '/')
        size--;
    while (size > 0 && dir[size - 1] != '/')
        size--;
    while (size > 1 && dir[size - 1] == '/')
        size--;
    (void)snprintf(link->state_dir, sizeof(link->state_dir), "%.*s", size ? (int)size : 1,
                   size ? dir : ".");
}

int link_new(const struct link_config *config, struct link **ret, struct err *err)
{
    struct link *link = calloc(1, sizeof(*link));
    if (!link)
        return err_nomem(err);
    link->config = *config;
    link->runner.fd = -1;
    link->started_us = monotonic_us();
    find_state_dir(link);
    metrics_init(&link->metrics, "/proc", "/", link->state_dir);
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
        bool freed = link_free(link); /* the worker has no job yet */
        assert(freed);
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
    /* In place of what the process before this one has left there. */
    link_write_status(link);
    int r = loop_run(link->loop, err);
    write_status(link, "stopped");
    return r;
}

bool link_free(struct link *link)
{
    if (!link)
        return true;
    /* The worker first: its last job reports into the stream. */
    if (!worker_free_within(link->worker, LINK_WORKER_US))
        return false;
    link_runner_done(link);
    link_stream_done(link);
    link_identity_done(link);
    rpc_pump_free(link->pump);
    daemon_free(link->daemon);
    link_logs_done(link);
    loop_free(link->loop);
    free(link);
    return true;
}
