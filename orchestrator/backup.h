/* Everything that makes an orchestrator the one that its agents and clients know, in one file: the
 * database, and the files of ca/ and server/. Such a file holds the CA's private key, so it is made
 * with mode 0600 and is as secret as the state directory itself. Blocking; for the verbs `backup`
 * and `restore`. */
#pragma once

#include "common/err.h"

#include <stdint.h>

/* May be called while an orchestrator runs on that directory, which is not held up by it. The file
 * is there whole or not at all. ERR_EXISTS when there is one of that name. */
int backup_make(const char *state_dir, const char *file, struct err *err) must_use;
/* Makes the state directory if it is not there. ERR_PRECONDITION when it has a CA or a database, or
 * when the backup is damaged or of a newer version. A restore that is killed leaves no CA, so
 * nothing can start on it. */
int backup_restore(const char *state_dir, const char *file, int64_t *ret_made_ms,
                   struct err *err) must_use;
