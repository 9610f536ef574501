/* Where a command's standard input comes from: a descriptor that is read only as far as the command
 * has room. One thread. */
#pragma once

#include "common/loop.h"

struct source;

struct source_config {
    int fd;
    /* Up to SOURCE_READ_MAX bytes; size 0 is the end. */
    void (*input)(void *owner, const void *data, size_t size);
    void *owner;
};

#define SOURCE_READ_MAX (32u * 1024)

int source_new(struct loop *loop, const struct source_config *config, struct source **ret,
               struct err *err) must_use;
void source_free(struct source *source);
/* How many more bytes are welcome; 0 stops reading. */
void source_allow(struct source *source, uint64_t size);
