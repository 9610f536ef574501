/* Where a command's standard input comes from: a descriptor that is read only as far as the command
 * has room. One thread. */
#pragma once

#include "common/loop.h"

struct source;

struct source_config {
    int fd;
    /* Up to SOURCE_READ_MAX bytes, with room for SOURCE_SPARE more behind them, for the callee to
     * change; size 0 is the end. May free the source.
     */
    void (*input)(void *owner, void *data, size_t size);
    void *owner;
};

#define SOURCE_READ_MAX (32u * 1024)
#define SOURCE_SPARE    1u

int source_new(struct loop *loop, const struct source_config *config, struct source **ret,
               struct err *err) must_use;
void source_free(struct source *source);
/* How many more bytes are welcome; 0 stops reading. */
void source_allow(struct source *source, uint64_t size);
