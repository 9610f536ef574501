/* The link's end of the socket to the runner. Packets are frames: those from the runner go up as
 * they are, several in one message; those from the orchestrator come down as they are. A slow side
 * stops the other side's reading; nothing piles up here. */
#include "agent/link-internal.h"

#include "agent/runner.h"
#include "common/clock.h"
#include "common/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

/* Bytes of frames that go up in one message. */
#define BATCH_MAX    (WIRE_MESSAGE_MAX - 16u * 1024)
#define BATCH_FRAMES 32u

#define RETRY_BASE_US 100000u
#define RETRY_CAP_US  2000000u

static void disconnected(struct link *link, const char *why);

bool link_runner_connected(const struct link *link)
{
    return link->runner.fd >= 0;
}

/* What goes down. */

static void clear_queue(struct link_runner *runner)
{
    while (runner->first) {
        struct link_packet *packet = runner->first;
        runner->first = packet->next;
        free(packet);
    }
    runner->last = &runner->first;
}

static void want_events(struct link *link)
{
    struct link_runner *runner = &link->runner;
    /* While the stream is up but full, the runner waits in its socket. */
    bool read = link->stream.state != STREAM_ACTIVE || link_stream_writable(link);
    loop_io_want(runner->io, (read ? EPOLLIN : 0) | (runner->first ? EPOLLOUT : 0));
}

static void flush_queue(struct link *link)
{
    struct link_runner *runner = &link->runner;
    while (runner->first) {
        struct link_packet *packet = runner->first;
        ssize_t n = send(runner->fd, packet->data, packet->size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == ENOBUFS))
            return;
        runner->first = packet->next;
        if (!runner->first)
            runner->last = &runner->first;
        free(packet);
        if (n < 0) {
            /* Gone, which reading tells too, or refused: an order may not vanish between others. */
            disconnected(link, strerror(errno));
            return;
        }
    }
    link_stream_pause(link, false);
}

void link_runner_send(struct link *link, const uint8_t *frame, size_t size)
{
    struct link_runner *runner = &link->runner;
    if (runner->fd < 0)
        return;
    struct link_packet *packet = malloc(sizeof(*packet) + size);
    if (!packet) {
        /* An order may not vanish between two that arrive: start over, both ends know how. */
        disconnected(link, "out of memory");
        return;
    }
    packet->next = NULL;
    packet->size = size;
    (void)memcpy(packet->data, frame, size);
    *runner->last = packet;
    runner->last = &packet->next;
    flush_queue(link);
    if (runner->fd < 0)
        return;
    /* At most the rest of one message can follow before the pause takes hold. */
    if (runner->first)
        link_stream_pause(link, true);
    want_events(link);
}

/* What goes up. */

static void on_status(struct link *link, const struct wire_field *field)
{
    struct link_runner *runner = &link->runner;
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    struct err err;
    if (wire_unpack(&sandstorm__v1__runner_status__descriptor, field->data, field->size, &message,
                    &err) < 0) {
        log_warn("the runner's status makes no sense", LF_ERR(&err));
        return;
    }
    const Sandstorm__V1__RunnerStatus *status = (const Sandstorm__V1__RunnerStatus *)message;
    runner->commands_running = status->commands_running;
    runner->spool_bytes = status->spool_bytes;
    (void)snprintf(runner->version, sizeof(runner->version), "%s", status->version);
    size_t used = 0;
    (void)snprintf(runner->enforces, sizeof(runner->enforces), "none");
    for (size_t i = 0; i < status->n_enforces && used < sizeof(runner->enforces); i++)
        used += (size_t)snprintf(runner->enforces + used, sizeof(runner->enforces) - used, "%s%s",
                                 used ? ", " : "", status->enforces[i]);
}

static bool answers_welcome(struct link *link, const struct wire_field *field)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    struct err err;
    if (wire_unpack(&sandstorm__v1__inventory__descriptor, field->data, field->size, &message,
                    &err) < 0)
        return false;
    return ((const Sandstorm__V1__Inventory *)message)->epoch == link->stream.epoch;
}

/* Does this frame go up? What a runner said to an earlier stream does not: between a welcome and
 * the inventory that answers it, old frames may still lie in the socket. */
static bool goes_up(struct link *link, const uint8_t *frame, size_t size)
{
    struct wire_field kind;
    const uint8_t *position = frame;
    struct err err;
    if (wire_next(&position, frame + size, &kind, &err) <= 0 || kind.type != WIRE_BYTES)
        return false;
    switch (kind.number) {
    case SANDSTORM__V1__AGENT_FRAME__KIND_RUNNER_STATUS:
        on_status(link, &kind);
        return false;
    case SANDSTORM__V1__AGENT_FRAME__KIND_INVENTORY:
        if (link->stream.state == STREAM_ACTIVE && !link->runner.in_step &&
            answers_welcome(link, &kind)) {
            link->runner.in_step = true;
            link_say_status(link);
        }
        return link->runner.in_step;
    case SANDSTORM__V1__AGENT_FRAME__KIND_EVENT:
        return link->runner.in_step;
    case SANDSTORM__V1__AGENT_FRAME__KIND_LOGS:
        link_logs_relay(link, kind.data, kind.size);
        return false; /* it goes up with our own, also when there is no stream now */
    default:
        return false; /* registers and heartbeats are ours to make */
    }
}

static void read_packets(struct link *link)
{
    struct link_runner *runner = &link->runner;
    uint8_t batch[BATCH_MAX];
    struct iovec frames[BATCH_FRAMES];
    size_t used = 0;
    unsigned count = 0;
    ssize_t n = 0;
    while (count < BATCH_FRAMES && sizeof(batch) - used >= RUNNER_PACKET_MAX) {
        n = recv(runner->fd, batch + used, RUNNER_PACKET_MAX, MSG_DONTWAIT);
        if (n <= 0)
            break;
        runner->greeted = true;
        if (goes_up(link, batch + used, (size_t)n)) {
            frames[count++] = (struct iovec){ batch + used, (size_t)n };
            used += (size_t)n;
        }
    }
    bool gone = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (count > 0)
        link_stream_carry(link, frames, count);
    if (gone)
        disconnected(link, runner->greeted ? "the runner closed the connection"
                                           : "the runner closed the connection at once: it serves "
                                             "another agent, or it is stopping");
}

static void on_ready(void *userdata, uint32_t events)
{
    struct link *link = userdata;
    if (events & EPOLLOUT)
        flush_queue(link);
    if (link->runner.io && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        read_packets(link);
    if (link->runner.io)
        want_events(link);
}

void link_runner_resume(struct link *link)
{
    if (link->runner.io)
        want_events(link);
}

void link_runner_stream_active(struct link *link)
{
    if (link->runner.fd >= 0)
        link_runner_send(link, link->stream.welcome_frame, link->stream.welcome_size);
}

void link_runner_stream_lost(struct link *link)
{
    link->runner.in_step = false;
    clear_queue(&link->runner);
    if (link->runner.io)
        want_events(link);
}

/* Connecting. */

static void disconnected(struct link *link, const char *why)
{
    struct link_runner *runner = &link->runner;
    log_warn("the runner is away", LF_STR("reason", why));
    backoff_disconnected(&runner->backoff, monotonic_us());
    loop_io_free(TAKE_PTR(runner->io));
    close_fd(&runner->fd);
    clear_queue(runner);
    runner->in_step = false;
    runner->commands_running = 0;
    runner->spool_bytes = 0;
    link_stream_pause(link, false);
    if (link->stream.state == STREAM_ACTIVE)
        link_send_heartbeat(link);
    link_say_status(link);
    loop_timer_start(runner->retry, backoff_next_us(&runner->backoff, random_u64()));
}

static int connect_runner(struct link *link, struct err *err)
{
    struct link_runner *runner = &link->runner;
    const char *path = link->config.runner_socket;
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    if (strlen(path) >= sizeof(address.sun_path))
        return err_set(err, ERR_INVALID, "the socket path \"%s\" is too long", path);
    (void)memcpy(address.sun_path, path, strlen(path));
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(err, errno, "cannot create a socket");
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return err_errno(err, errno,
                         "cannot connect to the runner at %s; is sandstorm-runner "
                         "running?",
                         path);
    const int buffer = RUNNER_SOCKET_BUFFER;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
    struct ucred peer = { 0 };
    socklen_t size = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ||
        (peer.uid != 0 && peer.uid != getuid()))
        return err_set(err, ERR_DENIED,
                       "%s belongs to user %u, neither root nor us; is it the runner's?", path,
                       peer.uid);
    if (loop_io_new(link->loop, fd, EPOLLIN, on_ready, link, &runner->io, err) < 0)
        return -1;
    runner->fd = TAKE_FD(fd);
    return 0;
}

static void try_connect(void *userdata)
{
    struct link *link = userdata;
    struct link_runner *runner = &link->runner;
    struct err err;
    if (connect_runner(link, &err) < 0) {
        if (!runner->warned)
            log_warn("waiting for the runner", LF_ERR(&err));
        runner->warned = true;
        loop_timer_start(runner->retry, backoff_next_us(&runner->backoff, random_u64()));
        return;
    }
    runner->warned = runner->greeted = false;
    backoff_connected(&runner->backoff, monotonic_us());
    log_info("connected to the runner", LF_STR("socket", link->config.runner_socket));
    if (link->stream.state == STREAM_ACTIVE) {
        link_send_heartbeat(link);
        link_runner_stream_active(link);
    }
}

int link_runner_init(struct link *link, struct err *err)
{
    struct link_runner *runner = &link->runner;
    runner->fd = -1;
    runner->last = &runner->first;
    backoff_init(&runner->backoff);
    runner->backoff.base_us = RETRY_BASE_US;
    runner->backoff.cap_us = RETRY_CAP_US;
    return loop_timer_new(link->loop, try_connect, link, &runner->retry, err);
}

void link_runner_start(struct link *link)
{
    try_connect(link);
}

void link_runner_done(struct link *link)
{
    struct link_runner *runner = &link->runner;
    loop_io_free(runner->io);
    close_fd(&runner->fd);
    clear_queue(runner);
    loop_timer_free(runner->retry);
}
