/* Owns the steps that replace a directory as a whole. common/identity_dir.c and
 * orchestrator/ca_rotate.c build the new directory and hand it in; the kernel does the rest. Calls
 * nobody.
 *
 * The order of swap_dir_install(), and why: the caller has synced the files and the directory that
 * holds them, so whatever the swap shows is complete; the swap; the sync of the parent; only then
 * the removal of the old files, else a crash could undo the swap and keep the removal. A reader
 * that resolves the directory once, open(DIR, O_DIRECTORY) and then openat(), reads files of one
 * generation. When it meets ENOENT they were replaced under it, and it opens the directory again.
 */
#include "common/swap_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define TEMPORARY_SUFFIX_LEN 6u /* mkostemp(3) in file_write_atomic() */

static void close_listing(DIR **listing)
{
    if (*listing)
        (void)closedir(*listing);
}
#define CLEANUP_LISTING CLEANUP(close_listing)

/* "cert.pem", or the ".cert.pem.XXXXXX" of a write that was cut short. */
static bool is_named(const char *name, const char *file)
{
    if (strcmp(name, file) == 0)
        return true;
    size_t len = strlen(file);
    return name[0] == '.' && strncmp(name + 1, file, len) == 0 && name[len + 1] == '.' &&
           strlen(name + len + 2) == TEMPORARY_SUFFIX_LEN;
}

static bool is_listed(const char *name, const char *const *files)
{
    for (; *files; files++)
        if (is_named(name, *files))
            return true;
    return false;
}

static bool is_self_or_parent(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Not through a symbolic link: what is removed is what was looked at. NULL and ENOENT is "not
 * there"; the caller knows whether that is bad. */
static DIR *open_listing(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    DIR *listing = fdopendir(fd);
    if (!listing)
        (void)close(fd);
    return listing;
}

static int check_listing(DIR *listing, const char *dir, const char *const *files, struct err *err)
{
    const struct dirent *entry;
    while (errno = 0, (entry = readdir(listing)))
        if (!is_self_or_parent(entry->d_name) && !is_listed(entry->d_name, files))
            return err_set(err, ERR_PRECONDITION,
                           "%s holds %s, which would be lost, because the directory is replaced "
                           "as a whole; move that file away or choose a new or an empty directory",
                           dir, entry->d_name);
    return errno == 0 ? 0 : err_errno(err, errno, "cannot list %s", dir);
}

int swap_dir_check(const char *dir, const char *const *files, struct err *err)
{
    CLEANUP_LISTING DIR *listing = open_listing(dir);
    if (!listing)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot list %s", dir);
    return check_listing(listing, dir, files, err);
}

int swap_dir_remove(const char *dir, const char *const *files, struct err *err)
{
    CLEANUP_LISTING DIR *listing = open_listing(dir);
    if (!listing)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot list %s", dir);
    if (check_listing(listing, dir, files, err) < 0)
        return -1;
    rewinddir(listing);
    const struct dirent *entry;
    while (errno = 0, (entry = readdir(listing)))
        if (!is_self_or_parent(entry->d_name) && unlinkat(dirfd(listing), entry->d_name, 0) < 0 &&
            errno != ENOENT)
            return err_errno(err, errno, "cannot remove %s/%s", dir, entry->d_name);
    if (errno != 0)
        return err_errno(err, errno, "cannot list %s", dir);
    if (rmdir(dir) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot remove the directory %s", dir);
    return 0;
}

void swap_dir_discard(const char *dir, const char *const *files)
{
    struct err unsaid;
    if (swap_dir_remove(dir, files, &unsaid) < 0)
        return; /* what is left looks like what a crash leaves, and goes with it */
}

int swap_dir_sync(const char *dir, struct err *err)
{
    CLEANUP_FD int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return err_errno(err, errno, "cannot bring the directory %s to disk", dir);
    return 0;
}

/* realpath(3) for what is there; for what is not, the name without the slashes at its end. */
static char *resolve(const char *dir, struct err *err)
{
    CLEANUP_FREE char *target = realpath(dir, NULL);
    if (target)
        return TAKE_PTR(target);
    if (errno != ENOENT) {
        (void)err_errno(err, errno, "cannot find %s", dir);
        return NULL;
    }
    target = strdup(dir);
    if (!target) {
        (void)err_nomem(err);
        return NULL;
    }
    for (size_t len = strlen(target); len > 1 && target[len - 1] == '/'; len--)
        target[len - 1] = '\0';
    struct stat st;
    if (lstat(target, &st) == 0) {
        (void)err_set(err, ERR_PRECONDITION,
                      "%s is a symbolic link to nowhere; remove it, or make the directory that it "
                      "names",
                      target);
        return NULL;
    }
    return TAKE_PTR(target);
}

int swap_dir_resolve(const char *dir, char **ret_target, char **ret_parent, struct err *err)
{
    CLEANUP_FREE char *target = resolve(dir, err);
    if (!target)
        return -1;
    CLEANUP_FREE char *copy = strdup(target);
    char *parent = copy ? strdup(dirname(copy)) : NULL;
    if (!parent)
        return err_nomem(err);
    *ret_target = TAKE_PTR(target);
    *ret_parent = parent;
    return 0;
}

int swap_dir_install(const char *fresh, const char *parent, const char *target,
                     const char *const *files, struct err *err)
{
    bool replaced = renameat2(AT_FDCWD, fresh, AT_FDCWD, target, RENAME_EXCHANGE) == 0;
    if (!replaced && (errno != ENOENT || rename(fresh, target) < 0)) {
        (void)err_errno(err, errno,
                        "cannot put the new files in place at %s; it must be a plain directory on "
                        "a local file system, not a mount point",
                        target);
        swap_dir_discard(fresh, files);
        return -1;
    }
    if (swap_dir_sync(parent, err) < 0)
        return -1;
    if (replaced && swap_dir_remove(fresh, files, err) < 0)
        return err_wrap(err,
                        "the new files are in place, but the old ones are still in %s; remove "
                        "them by hand",
                        fresh);
    return 0;
}
