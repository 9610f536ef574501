/* Whole files: read with a bound, written so that a crash leaves the old or the new one. Blocking.
 * Any thread. */
#pragma once

#include "common/err.h"

#include <stdint.h>
#include <sys/types.h>

/* Regular files only, at most `max` bytes; the result is NUL-terminated beyond *ret_size. */
int file_read(const char *path, size_t max, char **ret, size_t *ret_size, struct err *err) must_use;
/* The same, below an open directory. */
int file_read_at(int directory, const char *path, size_t max, char **ret, size_t *ret_size,
                 struct err *err) must_use;
/* Temporary name in the same directory, fsync, rename, fsync of the directory. */
int file_write_atomic(const char *path, const void *data, size_t size, mode_t mode,
                      struct err *err) must_use;
/* The directory with mode 0700, and those above it that are missing with mode `above`. Not an error
 * when it is there. */
int file_make_dirs(const char *path, mode_t above, struct err *err) must_use;
