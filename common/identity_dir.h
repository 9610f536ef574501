/* An identity directory on disk: ca.pem (every CA to trust), cert.pem, key.pem and, for an agent,
 * machine.json (which machine it was made for). Written as a whole: the new directory is built
 * beside the old one, brought to disk, and renameat2(RENAME_EXCHANGE) swaps the two, so that a
 * reader, or a crash at any point, sees all of the old or all of the new one. The directory is
 * 0700, key.pem and machine.json are 0600; certificates are public. The caller wipes the key's
 * text. Blocking. Any thread, one writer of a directory at a time. */
#pragma once

#include "common/err.h"

struct identity_files {
    const char *ca, *cert, *key;
    const char *machine; /* NULL: no such file */
};

/* Refuses a directory that holds anything else: it would be lost. */
int identity_dir_write(const char *dir, const struct identity_files *files,
                       struct err *err) must_use;
/* Removes the directory, all at once, and what identity_dir_tidy() removes. Refuses a directory
 * that holds anything else. Not an error when there is nothing. */
int identity_dir_remove(const char *dir, struct err *err) must_use;
/* Removes what writes of this directory, or of others beside it, left there in a crash. Leaves
 * alone what a writer is still at work on, and whatever does not look like an identity. */
int identity_dir_tidy(const char *dir, struct err *err) must_use;
