/* Where a new secret goes: stdout, or a new file that only its owner can read. The file is made
 * before the secret is, so that none is made that cannot be kept. Main thread. */
#pragma once

#include "common/err.h"

#include <stdbool.h>

struct secret_out {
    const char *path; /* NULL: stdout */
    int fd;
    bool kept;
};

int secret_out_open(const char *path, struct secret_out *ret, struct err *err) must_use;
/* One line. */
int secret_out_put(struct secret_out *out, const char *secret, struct err *err) must_use;
/* Removes the file when nothing was put. */
void secret_out_done(struct secret_out *out);
#define CLEANUP_SECRET_OUT CLEANUP(secret_out_done)

/* For hints on stderr: the name of the file, or "FILE" for the reader to choose. */
const char *secret_out_name(const struct secret_out *out);
/* Somebody is reading along: hints are wanted. */
bool secret_out_hints(const struct secret_out *out, bool quiet);
