/* Standard input on its way into the client; hands what it reads to client/exec_input.c. */
#include "client/source.h"

#include <errno.h>

struct source {
    struct source_config config;
    struct loop_io *io;       /* NULL for files, which epoll does not take */
    struct loop_timer *again; /* stands in for it */
    uint64_t allowed;
    bool ended;
};

static void want(struct source *source)
{
    bool wanted = source->allowed > 0 && !source->ended;
    if (source->io)
        loop_io_want(source->io, wanted ? EPOLLIN : 0);
    else if (wanted)
        loop_timer_start(source->again, 0);
    else
        loop_timer_stop(source->again);
}

static void read_once(struct source *source)
{
    uint8_t bytes[SOURCE_READ_MAX + SOURCE_SPARE];
    size_t max = (size_t)MIN(source->allowed, SOURCE_READ_MAX);
    ssize_t n = read(source->config.fd, bytes, max);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    /* An input that cannot be read ends here; the command sees the end of what there was. */
    size_t size = n > 0 ? (size_t)n : 0;
    source->allowed -= size;
    source->ended = size == 0;
    want(source);
    source->config.input(source->config.owner, bytes, size); /* may free the source */
}

static void on_readable(void *userdata, uint32_t events)
{
    (void)events;
    read_once(userdata);
}

static void on_again(void *userdata)
{
    read_once(userdata);
}

int source_new(struct loop *loop, const struct source_config *config, struct source **ret,
               struct err *err)
{
    struct source *source = calloc(1, sizeof(*source));
    if (!source)
        return err_nomem(err);
    source->config = *config;
    struct err why = { 0 };
    if (loop_timer_new(loop, on_again, source, &source->again, err) < 0) {
        source_free(source);
        return -1;
    }
    if (loop_io_new(loop, config->fd, EPOLLIN, on_readable, source, &source->io, &why) < 0 &&
        why.sys_errno != EPERM) {
        source_free(source);
        if (err)
            *err = why;
        return -1;
    }
    want(source);
    *ret = source;
    return 0;
}

void source_free(struct source *source)
{
    if (!source)
        return;
    loop_io_free(source->io);
    loop_timer_free(source->again);
    free(source);
}

void source_allow(struct source *source, uint64_t size)
{
    source->allowed = size;
    want(source);
}
