/* The care of a database that lies in a state directory: a snapshot of it in one file, together
 * with a few other small files, and the way back. orchestrator/backup.c decides what goes in and
 * where it goes. Blocking; not for the loop thread. */
#pragma once

#include "common/err.h"

#include <stdint.h>

#define STORE_TOOLS_FILES_MAX 64u
#define STORE_TOOLS_FILE_MAX  (1u << 20)

/* A file that travels in a snapshot under a name of the caller's. */
struct store_file {
    const char *name;
    const void *data;
    size_t size;
};

/* Copies the database in `dir` into `path`, an empty file of the caller's, as it is at one moment:
 * nobody who uses the database meanwhile waits or is refused, and nothing in `dir` is changed.
 * ERR_PRECONDITION when there is none, or when the copy is damaged. */
int store_snapshot_make(const char *dir, const char *path, const struct store_file *files,
                        unsigned count, int64_t now_ms, struct err *err) must_use;
/* The way back: the database of the snapshot at `path` becomes `to`, an empty file of the caller's,
 * without those files, each of which is shown to `each` instead. Everything is checked first;
 * ERR_PRECONDITION says what is wrong with the snapshot. *ret_made_ms is when it was made. */
int store_snapshot_unpack(const char *path, const char *to,
                          int (*each)(void *userdata, const struct store_file *file,
                                      struct err *err),
                          void *userdata, int64_t *ret_made_ms, struct err *err) must_use;
