/* Output on its way out of the client. Gets records from client/exec_output.c, whose credit grows
 * only as the bytes here are really taken. */
#include "client/sink.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>

struct sink {
    struct sink_config config;
    struct buf bytes;
    struct loop_io *io; /* NULL for files, which are always ready, and for callbacks */
    bool broken;
};

/* A pipe that is writable takes PIPE_BUF bytes without blocking, see poll(2) and pipe(7); so that
 * much is written at a time, and O_NONBLOCK is not needed. */
static bool ready(const struct sink *sink)
{
    struct pollfd now = { .fd = sink->config.fd, .events = POLLOUT };
    return poll(&now, 1, 0) == 1;
}

static void discard(struct sink *sink)
{
    size_t size = buf_used(&sink->bytes);
    buf_drop(&sink->bytes, size);
    if (size > 0)
        sink->config.taken(sink->config.owner, size);
}

static void flush(struct sink *sink)
{
    uint8_t chunk[PIPE_BUF];
    size_t taken = 0;
    int error = 0;
    while (!sink->broken && buf_used(&sink->bytes) > 0 && ready(sink)) {
        size_t size = MIN(buf_used(&sink->bytes), sizeof(chunk));
        buf_peek(&sink->bytes, 0, chunk, size);
        ssize_t n = write(sink->config.fd, chunk, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            sink->broken = true;
            error = errno;
            break;
        }
        buf_drop(&sink->bytes, (size_t)n);
        taken += (size_t)n;
    }
    if (sink->io)
        loop_io_want(sink->io, !sink->broken && buf_used(&sink->bytes) > 0 ? EPOLLOUT : 0);
    if (taken > 0)
        sink->config.taken(sink->config.owner, taken);
    if (sink->broken) {
        discard(sink);
        sink->config.broken(sink->config.owner, sink->config.stream, error);
    }
}

static void on_writable(void *userdata, uint32_t events)
{
    (void)events;
    flush(userdata);
}

int sink_new(struct loop *loop, const struct sink_config *config, struct sink **ret,
             struct err *err)
{
    struct sink *sink = calloc(1, sizeof(*sink));
    if (!sink)
        return err_nomem(err);
    sink->config = *config;
    buf_init(&sink->bytes, config->max);
    /* epoll refuses regular files with EPERM: they never block. */
    struct err why = { 0 };
    if (config->fd >= 0 &&
        loop_io_new(loop, config->fd, EPOLLOUT, on_writable, sink, &sink->io, &why) < 0 &&
        why.sys_errno != EPERM) {
        sink_free(sink);
        if (err)
            *err = why;
        return -1;
    }
    if (sink->io)
        loop_io_want(sink->io, 0);
    *ret = sink;
    return 0;
}

void sink_free(struct sink *sink)
{
    if (!sink)
        return;
    loop_io_free(sink->io);
    buf_done(&sink->bytes);
    free(sink);
}

int sink_put(struct sink *sink, const void *data, size_t size, struct err *err)
{
    if (sink->config.fd < 0 || sink->broken) {
        if (sink->config.fd < 0 && sink->config.output)
            sink->config.output(sink->config.userdata, sink->config.stream, data, size);
        sink->config.taken(sink->config.owner, size);
        return 0;
    }
    if (buf_push(&sink->bytes, data, size, err) < 0)
        return -1;
    flush(sink);
    return 0;
}
