/* The drain for pipes that outlive their command. Gets them from agent/runner.c when a command is
 * let go; keeps the promise that a background process is neither blocked nor killed by that. */
#include "agent/drainer.h"

#include <errno.h>
#include <utlist.h>

struct pipe {
    struct drainer *drainer;
    int fd;
    struct loop_io *io;
    struct pipe *prev, *next;
};

struct drainer {
    struct loop *loop;
    struct pipe *pipes;
    unsigned count;
};

static void pipe_free(struct pipe *pipe)
{
    struct drainer *drainer = pipe->drainer;
    DL_DELETE(drainer->pipes, pipe);
    drainer->count--;
    loop_io_free(pipe->io);
    close_fd(&pipe->fd);
    free(pipe);
}

static void on_readable(void *userdata, uint32_t events)
{
    (void)events;
    struct pipe *pipe = userdata;
    char scratch[4096];
    ssize_t n = read(pipe->fd, scratch, sizeof(scratch));
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        pipe_free(pipe);
}

int drainer_new(struct loop *loop, struct drainer **ret, struct err *err)
{
    struct drainer *drainer = calloc(1, sizeof(*drainer));
    if (!drainer)
        return err_nomem(err);
    drainer->loop = loop;
    *ret = drainer;
    return 0;
}

void drainer_free(struct drainer *drainer)
{
    if (!drainer)
        return;
    while (drainer->pipes)
        pipe_free(drainer->pipes);
    free(drainer);
}

void drainer_each(struct drainer *drainer, void (*each)(void *userdata, int fd), void *userdata)
{
    const struct pipe *pipe;
    DL_FOREACH (drainer->pipes, pipe)
        each(userdata, pipe->fd);
}

void drainer_adopt(struct drainer *drainer, int fd)
{
    CLEANUP_FD int owned = fd;
    struct err ignored;
    struct pipe *pipe = drainer->count < DRAINER_PIPES_MAX ? calloc(1, sizeof(*pipe)) : NULL;
    if (!pipe)
        return;
    pipe->drainer = drainer;
    pipe->fd = -1;
    DL_APPEND(drainer->pipes, pipe);
    drainer->count++;
    if (loop_io_new(drainer->loop, owned, EPOLLIN, on_readable, pipe, &pipe->io, &ignored) < 0)
        pipe_free(pipe);
    else
        pipe->fd = TAKE_FD(owned);
}
