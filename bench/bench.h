/* What the parts of sandstorm-bench share: figures in rows, ours beside a floor. */
#pragma once

#include "common/err.h"

#include <stdint.h>

/* Times of one kind of operation, in microseconds. */
struct series {
    const char *name;
    uint64_t *us;
    size_t count;
};

/* Sorts both. */
void bench_print_row(struct series *ours, struct series *floor);

/* bench_spawn.c: what it costs to make a command's process, without the rest of the system. */
int bench_spawn(size_t count, struct err *err) must_use;
