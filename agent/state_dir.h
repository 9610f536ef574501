/* The runner's state directory: one file for each command that it knows, and the ids that it has
 * let go of. Everything in it is void after a boot, which the file "boot-id" tells; so it has to
 * survive a crash of the runner, not a power cut, and nothing in it is ever synced. Also counts
 * what output all commands keep there. Owner-only, locked by one runner. Runner's thread. */
#pragma once

#include "common/ids.h"
#include "common/log.h"

/* Of output that all commands keep in files; the setting "spool_quota". */
#define STATE_QUOTA_DEFAULT (1024ull * 1024 * 1024)

struct state_dir {
    int fd;
    uint64_t used, quota; /* bytes of output in files */
    int failing;          /* errno of the last write that failed, 0 since one succeeded */
    struct log_limit changes;
};

/* Makes it where it is missing, refuses one that somebody else could have prepared, locks it, and
 * empties it when it is of another boot. */
int state_dir_open(const char *path, uint64_t quota, struct state_dir **ret,
                   struct err *err) must_use;
/* Takes over a descriptor that is open and locked, from this process's earlier self. */
int state_dir_adopt(int fd, uint64_t quota, struct state_dir **ret, struct err *err) must_use;
void state_dir_free(struct state_dir *state);

/* Calls `each` with every command that has a file. What has the name of a command and is no file of
 * ours is told of and left alone. -1 as soon as a call says so. */
int state_dir_list(struct state_dir *state,
                   int (*each)(void *userdata, const struct command_id *id, struct err *err),
                   void *userdata, struct err *err) must_use;
/* A regular file of ours with one name, open for reading and writing. ERR_NOT_FOUND, or
 * ERR_INVALID for anything else under that name. */
int state_dir_open_file(const struct state_dir *state, const char *name, int *ret,
                        struct err *err) must_use;

/* What became of a write: said in the log when that changes, and not too often. */
void state_dir_note_failure(struct state_dir *state, const struct err *err);
void state_dir_note_success(struct state_dir *state);
