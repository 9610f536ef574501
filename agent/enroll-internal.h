/* Between agent/enroll.c (the steps) and agent/enroll_files.c (what lies on disk meanwhile). Nobody
 * else includes this. */
#pragma once

#include "agent/enroll.h"
#include "agent/machine.h"

/* DIR.pending: the key of an attempt that has not ended yet, and the machine that made it. While it
 * is open it is locked, so that two attempts cannot mix. */
struct pending {
    char *path;
    int fd;
};

int pending_open(const char *identity_dir, struct pending *ret, struct err *err) must_use;
void pending_close(struct pending *pending);
#define CLEANUP_PENDING CLEANUP(pending_close)
/* The key that is there, if this machine made it; else a new one, which is on disk before this
 * returns. With a signing request for it. */
int pending_key(const struct pending *pending, const struct machine *machine, char **ret_key_pem,
                char **ret_csr_pem, struct err *err) must_use;
/* Is this the key of an attempt that is not tidied up? */
bool pending_has_key(const char *identity_dir, const char *key_pem);
/* Not an error when there is none. */
int pending_remove(const char *identity_dir, bool *ret_found, struct err *err) must_use;

/* The token's text; free it with csr_key_free(), which wipes it. */
int token_read(const struct enroll_config *config, char **ret, struct err *err) must_use;
/* Overwritten, brought to disk and unlinked. Not an error when there is none. */
int wipe_file(const char *path, bool *ret_found, struct err *err) must_use;
