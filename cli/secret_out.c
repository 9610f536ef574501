/* Secrets on their way to a person or a file. Called by cli/cmd_token.c and cli/cmd_client.c. */
#include "cli/secret_out.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int secret_out_open(const char *path, struct secret_out *ret, struct err *err)
{
    int fd = -1;
    if (path) {
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd < 0 && errno == EEXIST)
            return err_set(err, ERR_EXISTS, "%s is there already; give --out a new name", path);
        if (fd < 0)
            return err_errno(err, errno, "cannot make %s", path);
    }
    *ret = (struct secret_out){ .path = path, .fd = fd };
    return 0;
}

int secret_out_put(struct secret_out *out, const char *secret, struct err *err)
{
    const char *name = out->path ? out->path : "stdout";
    int copy = dup(out->path ? out->fd : STDOUT_FILENO);
    FILE *stream = copy >= 0 ? fdopen(copy, "w") : NULL;
    if (!stream) {
        int error = errno;
        close_fd(&copy);
        return err_errno(err, error, "cannot write to %s", name);
    }
    bool failed = fprintf(stream, "%s\n", secret) < 0;
    failed = fflush(stream) != 0 || failed;
    failed = (out->path && fsync(copy) < 0) || failed;
    int error = errno;
    if (fclose(stream) != 0 || failed)
        return err_errno(err, error, "cannot write to %s", name);
    out->kept = true;
    return 0;
}

void secret_out_done(struct secret_out *out)
{
    if (out->fd >= 0 && out->path && !out->kept)
        (void)unlink(out->path);
    close_fd(&out->fd);
}

const char *secret_out_name(const struct secret_out *out)
{
    return out->path ? out->path : "FILE";
}

bool secret_out_hints(const struct secret_out *out, bool quiet)
{
    return !quiet && (out->path || isatty(STDOUT_FILENO));
}
