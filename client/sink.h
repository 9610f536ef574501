/* Where a stream's bytes go: a descriptor, without blocking the loop and without changing the
 * descriptor's flags, which others may share; or a callback. One thread. */
#pragma once

#include "common/buf.h"
#include "common/loop.h"

struct sink;

struct sink_config {
    int fd;     /* -1: the callback */
    int stream; /* 1 or 2 */
    size_t max; /* bytes that may wait */
    void (*output)(void *userdata, int stream, const void *data, size_t size);
    /* The consumer took this many bytes. */
    void (*taken)(void *owner, size_t size);
    /* It cannot be written to any more (EPIPE: the reader is gone); what follows is discarded, and
     * counts as taken. */
    void (*broken)(void *owner, int stream, int error);
    void *userdata; /* of output */
    void *owner;    /* of taken and broken */
};

int sink_new(struct loop *loop, const struct sink_config *config, struct sink **ret,
             struct err *err) must_use;
void sink_free(struct sink *sink);
int sink_put(struct sink *sink, const void *data, size_t size, struct err *err) must_use;
