/* Owns identity directories: what is in one, and how one gets to disk or goes. The CA, enrolment
 * and renewal hand it texts. Next: common/file.c for each file, common/swap_dir.c for the swap and
 * its order.
 *
 * A crash leaves at worst a directory .sandstorm-XXXXXX beside DIR: a new identity that is not
 * complete or not in place yet, or an old one that is not wholly removed. Its writer holds a lock
 * on it while it is filled, flock(2), which a crash lets go: that is how identity_dir_tidy() tells
 * the two apart. */
#include "common/identity_dir.h"

#include "common/file.h"
#include "common/swap_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

#define FRESH_PREFIX     ".sandstorm-"
#define FRESH_SUFFIX_LEN 6u /* mkdtemp(3) */

static const char *const identity_names[] = { "ca.pem", "cert.pem", "key.pem", "machine.json",
                                              NULL };

static char *path_join(const char *dir, const char *file, struct err *err)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", dir, file) < 0) {
        (void)err_nomem(err);
        return NULL;
    }
    return path;
}

static int write_file(const char *dir, const char *file, const char *text, mode_t mode,
                      struct err *err)
{
    CLEANUP_FREE char *path = path_join(dir, file, err);
    return path ? file_write_atomic(path, text, strlen(text), mode, err) : -1;
}

/* Each file is synced, and the directory after each of them. */
static int fill(const char *dir, const struct identity_files *files, struct err *err)
{
    if (write_file(dir, "ca.pem", files->ca, 0644, err) < 0 ||
        write_file(dir, "cert.pem", files->cert, 0644, err) < 0 ||
        write_file(dir, "key.pem", files->key, 0600, err) < 0)
        return -1;
    return files->machine ? write_file(dir, "machine.json", files->machine, 0600, err) : 0;
}

/* Born with mode 0700, mkdtemp(3), so that nobody else can look in even while it is filled. */
static char *make_fresh(const char *parent, struct err *err)
{
    CLEANUP_FREE char *fresh = path_join(parent, FRESH_PREFIX "XXXXXX", err);
    if (!fresh)
        return NULL;
    if (!mkdtemp(fresh)) {
        (void)err_errno(err, errno, "cannot make a directory in %s", parent);
        return NULL;
    }
    return TAKE_PTR(fresh);
}

/* Closing the fd unlocks. */
static int lock_dir(const char *dir, int *ret_fd, struct err *err)
{
    CLEANUP_FD int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        return err_errno(err, errno, "cannot lock the directory %s", dir);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int identity_dir_write(const char *dir, const struct identity_files *files, struct err *err)
{
    CLEANUP_FREE char *target = NULL, *parent = NULL;
    if (swap_dir_resolve(dir, &target, &parent, err) < 0 ||
        swap_dir_check(target, identity_names, err) < 0)
        return -1;
    CLEANUP_FREE char *fresh = make_fresh(parent, err);
    if (!fresh)
        return -1;
    CLEANUP_FD int lock = -1;
    if (lock_dir(fresh, &lock, err) < 0 || fill(fresh, files, err) < 0) {
        swap_dir_discard(fresh, identity_names);
        return -1;
    }
    return swap_dir_install(fresh, parent, target, identity_names, err);
}

/* The directory leaves its name in one step; only then its files go. */
static int move_away_and_remove(const char *target, const char *parent, struct err *err)
{
    CLEANUP_FREE char *gone = make_fresh(parent, err);
    if (!gone)
        return -1;
    if (rename(target, gone) < 0) {
        (void)err_errno(err, errno, "cannot move %s out of the way", target);
        (void)rmdir(gone);
        return -1;
    }
    if (swap_dir_sync(parent, err) < 0 || swap_dir_remove(gone, identity_names, err) < 0)
        return -1;
    return swap_dir_sync(parent, err);
}

int identity_dir_remove(const char *dir, struct err *err)
{
    CLEANUP_FREE char *target = NULL, *parent = NULL;
    if (swap_dir_resolve(dir, &target, &parent, err) < 0 ||
        swap_dir_check(target, identity_names, err) < 0)
        return -1;
    if (access(target, F_OK) == 0 && move_away_and_remove(target, parent, err) < 0)
        return -1;
    return identity_dir_tidy(dir, err);
}

static bool is_fresh_name(const char *name)
{
    const size_t prefix = strlen(FRESH_PREFIX);
    return strncmp(name, FRESH_PREFIX, prefix) == 0 && strlen(name + prefix) == FRESH_SUFFIX_LEN;
}

static int tidy_one(const char *parent, const char *name, struct err *err)
{
    CLEANUP_FREE char *path = path_join(parent, name, err);
    if (!path)
        return -1;
    CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    /* Gone meanwhile, not a directory, somebody else's, or somebody is at work on it. */
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 ||
        swap_dir_check(path, identity_names, NULL) < 0)
        return 0;
    return swap_dir_remove(path, identity_names, err);
}

int identity_dir_tidy(const char *dir, struct err *err)
{
    CLEANUP_FREE char *target = NULL, *parent = NULL;
    if (swap_dir_resolve(dir, &target, &parent, err) < 0)
        return -1;
    DIR *listing = opendir(parent);
    if (!listing)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot list %s", parent);
    int r = 0;
    const struct dirent *entry;
    while (errno = 0, r == 0 && (entry = readdir(listing)))
        if (is_fresh_name(entry->d_name))
            r = tidy_one(parent, entry->d_name, err);
    if (r == 0 && errno != 0)
        r = err_errno(err, errno, "cannot list %s", parent);
    (void)closedir(listing);
    return r;
}
