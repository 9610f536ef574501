/* A directory with a few known files that is replaced as a whole: the new one is built beside the
 * old one and renameat2(RENAME_EXCHANGE) swaps the two. `files` is the list of names it may hold,
 * NULL at the end; what file_write_atomic() leaves of them in a crash counts as theirs. Below
 * identity_dir.h and the CA's own directory. Blocking. Any thread. */
#pragma once

#include "common/err.h"

/* Where `dir` really is, symbolic links followed, and the directory that it is in. It need not be
 * there yet. */
int swap_dir_resolve(const char *dir, char **ret_target, char **ret_parent,
                     struct err *err) must_use;
/* ERR_PRECONDITION when `dir` holds anything else, which a swap would lose. Not being there is
 * fine. */
int swap_dir_check(const char *dir, const char *const *files, struct err *err) must_use;
/* Puts the complete and synced `fresh` in the place of `target` and removes the old one. `fresh`
 * is gone afterwards, also when this fails. */
int swap_dir_install(const char *fresh, const char *parent, const char *target,
                     const char *const *files, struct err *err) must_use;
/* All or, when it holds anything else, nothing. Not being there is fine. */
int swap_dir_remove(const char *dir, const char *const *files, struct err *err) must_use;
/* The same, as far as it goes, for one who has a worse error to report. */
void swap_dir_discard(const char *dir, const char *const *files);
/* Brings what was made, renamed and removed in `dir` to disk. */
int swap_dir_sync(const char *dir, struct err *err) must_use;
