/* The care of a database that lies in a state directory: a snapshot of it in one file, together
 * with a few other small files, and the way back; and what to do when it is damaged and there is no
 * snapshot. orchestrator/backup.c decides what goes in and where it goes. Blocking; not for the
 * loop thread. */
#pragma once

#include "common/err.h"

#include <stdbool.h>
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

/* What a repair did with one table. */
struct store_salvage {
    const char *table;
    uint64_t copied;
    uint64_t left_out; /* read, but not valid: of a wrong form, there twice, or of a lost owner */
    uint64_t missing;  /* known to have been there, or 0 where nobody knows */
    bool cut_short;    /* some of it could not be read */
};

/* Copies every row that can still be read into a new database, which takes the place of the damaged
 * one; that one is kept, with its log, under the name that is written to `ret_kept`. Shows each
 * table. *ret_needed is false when nothing is wrong: then nothing was done. ERR_PRECONDITION when
 * the clients or the sandboxes are lost altogether, or nothing can be read at all: then everything
 * is as it was. ERR_PRECONDITION also while an orchestrator runs there. */
#define STORE_KEPT_MAX 128u
int store_repair(const char *dir, void (*each)(void *userdata, const struct store_salvage *salvage),
                 void *userdata, bool *ret_needed, char ret_kept[STORE_KEPT_MAX],
                 struct err *err) must_use;
