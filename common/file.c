/* Whole files in and out of memory. Configuration, certificates and small state files come through
 * here; the callers bring the path and the bound, the kernel does the rest. Short reads and short
 * writes end here. Calls nobody. */
#include "common/file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_CHUNK    4096u
#define FILE_STEM_MAX 200 /* bytes of the name that the temporary one repeats; NAME_MAX is 255 */

static int open_regular(int directory, const char *path, off_t *ret_size, int *ret_fd,
                        struct err *err)
{
    /* O_NONBLOCK, so that a FIFO without a writer is refused below and not waited for; on a
     * regular file it means nothing. */
    CLEANUP_FD int fd = openat(directory, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        bool missing = errno == ENOENT;
        (void)err_errno(err, errno, "cannot open %s", path);
        if (err && missing)
            err->code = ERR_NOT_FOUND;
        return -1;
    }
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot stat %s", path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, "%s is not a regular file; put one there", path);
    *ret_size = st.st_size;
    /* cppcheck-suppress unreadVariable ; it does not know the cleanup attribute. */
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* Doubles, up to one byte beyond `max`; one more byte is always there for the NUL. */
static int grow(char **data, size_t *capacity, size_t max)
{
    size_t wanted = *capacity > max / 2 ? max + 1 : MAX(*capacity * 2, FILE_CHUNK);
    wanted = MIN(wanted, max + 1);
    char *grown = realloc(*data, wanted + 1);
    if (!grown)
        return -1;
    *data = grown;
    *capacity = wanted;
    return 0;
}

static int too_large(const char *path, size_t max, struct err *err)
{
    return err_set(err, ERR_EXHAUSTED, "%s is larger than %zu bytes; shorten it", path, max);
}

int file_read(const char *path, size_t max, char **ret, size_t *ret_size, struct err *err)
{
    return file_read_at(AT_FDCWD, path, max, ret, ret_size, err);
}

int file_read_at(int directory, const char *path, size_t max, char **ret, size_t *ret_size,
                 struct err *err)
{
    assert(max < SIZE_MAX - 1);
    CLEANUP_FD int fd = -1;
    off_t hint = 0;
    if (open_regular(directory, path, &hint, &fd, err) < 0)
        return -1;
    if ((uintmax_t)hint > max)
        return too_large(path, max, err);

    /* The size is only a hint: files in /proc say 0, and others may grow while we read. So this
     * reads until the end, and the byte beyond the hint is there to see the end with. */
    size_t used = 0, capacity = (size_t)hint + 1;
    CLEANUP_FREE char *data = malloc(capacity + 1);
    if (!data)
        return err_nomem(err);
    for (;;) {
        ssize_t n = read(fd, data + used, capacity - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(err, errno, "cannot read %s", path);
        if (n == 0)
            break;
        used += (size_t)n;
        if (used > max)
            return too_large(path, max, err);
        if (used == capacity && grow(&data, &capacity, max) < 0)
            return err_nomem(err);
    }
    data[used] = '\0';
    *ret = TAKE_PTR(data);
    *ret_size = used;
    return 0;
}

static int write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        data += n;
        size -= (size_t)n;
    }
    return 0;
}

/* Everything up to the rename; whoever calls this removes `temporary` when it fails. */
static int fill_and_rename(int fd, const char *temporary, const char *path, const void *data,
                           size_t size, mode_t mode, struct err *err)
{
    /* Born 0600 and then given its mode, so that neither the umask nor a race widens or narrows
     * it. */
    if (fchmod(fd, mode) < 0)
        return err_errno(err, errno, "cannot set the mode of %s", temporary);
    if (write_all(fd, data, size) < 0)
        return err_errno(err, errno, "cannot write %s", temporary);
    if (fsync(fd) < 0)
        return err_errno(err, errno, "cannot sync %s to disk", temporary);
    if (rename(temporary, path) < 0)
        return err_errno(err, errno, "cannot rename %s to %s", temporary, path);
    return 0;
}

int file_write_atomic(const char *path, const void *data, size_t size, mode_t mode, struct err *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (*name == '\0')
        return err_set(err, ERR_INVALID, "\"%s\" names no file; give a name after the directory",
                       path);
    CLEANUP_FREE char *directory = slash ? strndup(path, (size_t)(name - path)) : strdup("./");
    if (!directory)
        return err_nomem(err);
    /* Opened first: a directory that cannot be synced is better found before anything changed. */
    CLEANUP_FD int directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory_fd < 0)
        return err_errno(err, errno, "cannot open directory %s", directory);

    CLEANUP_FREE char *temporary = NULL;
    if (asprintf(&temporary, "%s.%.*s.XXXXXX", directory, FILE_STEM_MAX, name) < 0) {
        temporary = NULL;
        return err_nomem(err);
    }
    CLEANUP_FD int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot create a file in %s", directory);
    if (fill_and_rename(fd, temporary, path, data, size, mode, err) < 0) {
        (void)unlink(temporary);
        return -1;
    }
    if (fsync(directory_fd) < 0)
        return err_errno(err, errno, "%s is written, but a crash may undo it: cannot sync %s", path,
                         directory);
    return 0;
}

int file_make_dirs(const char *path, mode_t above, struct err *err)
{
    CLEANUP_FREE char *copy = strdup(path);
    if (!copy)
        return err_nomem(err);
    for (char *slash = strchr(copy + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = '\0';
        if (mkdir(copy, slash ? above : 0700) < 0 && errno != EEXIST)
            return err_errno(err, errno, "cannot make the directory %s", copy);
        if (!slash)
            return 0;
        *slash = '/';
    }
}
