/* Owns what an enrolment leaves on disk besides the identity: the key of an attempt under way and
 * the file with the join token. agent/enroll.c decides when each is made and when it goes. */
#include "agent/enroll-internal.h"

#include "common/csr.h"
#include "common/failpoint.h"
#include "common/file.h"
#include "common/rpc_creds.h"
#include "common/secret.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define TOKEN_FILE_MAX   4096u
#define MACHINE_FILE_MAX 4096u
#define WIPE_CHUNK       4096u

static int sync_parent(const char *path, struct err *err)
{
    CLEANUP_FREE char *copy = strdup(path);
    if (!copy)
        return err_nomem(err);
    const char *parent = dirname(copy);
    CLEANUP_FD int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return err_errno(err, errno, "cannot bring the directory %s to disk", parent);
    return 0;
}

/* "DIR.pending"; slashes at the end of DIR do not count. */
static char *pending_path(const char *identity_dir, struct err *err)
{
    size_t size = strlen(identity_dir);
    while (size > 1 && identity_dir[size - 1] == '/')
        size--;
    char *path = NULL;
    if (asprintf(&path, "%.*s.pending", (int)size, identity_dir) < 0) {
        (void)err_nomem(err);
        return NULL;
    }
    return path;
}

void pending_close(struct pending *pending)
{
    free(pending->path);
    if (pending->path)
        close_fd(&pending->fd);
    pending->path = NULL;
}

int pending_open(const char *identity_dir, struct pending *ret, struct err *err)
{
    CLEANUP_FREE char *path = pending_path(identity_dir, err);
    if (!path || file_make_dirs(path, 0755, err) < 0 || sync_parent(path, err) < 0)
        return -1;
    CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return err_errno(err, errno, "cannot open the directory %s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK
                   ? err_set(err, ERR_PRECONDITION,
                             "another process is enrolling this machine; wait for it, or end it")
                   : err_errno(err, errno, "cannot lock the directory %s", path);
    ret->path = TAKE_PTR(path);
    /* cppcheck-suppress unreadVariable ; it does not know the cleanup attribute. */
    ret->fd = TAKE_FD(fd);
    return 0;
}

/* An attempt that was in progress when an image was taken is in every machine made from it: only
 * what says that it is of this machine is used again. */
static bool made_here(const struct pending *pending, const struct machine *machine)
{
    CLEANUP_FREE char *text = NULL;
    size_t size;
    struct machine then;
    const char *what;
    return file_read_at(pending->fd, "machine.json", MACHINE_FILE_MAX, &text, &size, NULL) == 0 &&
           machine_from_json(text, size, &then, NULL) == 0 && machine_same(&then, machine, &what);
}

static int put(const struct pending *pending, const char *file, const char *text, struct err *err)
{
    CLEANUP_FREE char *path = NULL;
    if (asprintf(&path, "%s/%s", pending->path, file) < 0) {
        path = NULL;
        return err_nomem(err);
    }
    return file_write_atomic(path, text, strlen(text), 0600, err);
}

static int make_key(const struct pending *pending, const struct machine *machine,
                    char **ret_key_pem, struct err *err)
{
    CLEANUP_FREE char *json = NULL;
    CLEANUP_KEY_PEM char *key = NULL;
    /* A key that is not ours may not be taken for ours after a crash between the two writes. */
    if (unlinkat(pending->fd, "key.pem", 0) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot remove key.pem from %s", pending->path);
    if (machine_to_json(machine, &json, err) < 0 || csr_key_new(&key, err) < 0 ||
        put(pending, "machine.json", json, err) < 0 || put(pending, "key.pem", key, err) < 0)
        return err_wrap(err, "cannot save a new key; the join token was not used");
    *ret_key_pem = TAKE_PTR(key);
    return 0;
}

int pending_key(const struct pending *pending, const struct machine *machine, char **ret_key_pem,
                char **ret_csr_pem, struct err *err)
{
    CLEANUP_KEY_PEM char *key = NULL;
    size_t size;
    if (made_here(pending, machine) &&
        file_read_at(pending->fd, "key.pem", PEM_MAX, &key, &size, NULL) == 0 &&
        csr_new(key, ret_csr_pem, NULL) == 0) {
        *ret_key_pem = TAKE_PTR(key);
        return 0;
    }
    csr_key_free(TAKE_PTR(key));
    if (make_key(pending, machine, &key, err) < 0)
        return -1;
    failpoint("enroll.key-saved");
    if (csr_new(key, ret_csr_pem, err) < 0)
        return -1;
    *ret_key_pem = TAKE_PTR(key);
    return 0;
}

bool pending_has_key(const char *identity_dir, const char *key_pem)
{
    CLEANUP_FREE char *path = pending_path(identity_dir, NULL), *file = NULL;
    CLEANUP_KEY_PEM char *key = NULL;
    size_t size;
    if (!path || asprintf(&file, "%s/key.pem", path) < 0) {
        file = NULL;
        return false;
    }
    return file_read(file, PEM_MAX, &key, &size, NULL) == 0 && strcmp(key, key_pem) == 0;
}

static int write_zeros(int fd, off_t size)
{
    static const char zeros[WIPE_CHUNK];
    while (size > 0) {
        ssize_t n = write(fd, zeros, (size_t)MIN(size, (off_t)sizeof(zeros)));
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0)
            size -= n;
    }
    return fsync(fd);
}

static int wipe_at(int directory, const char *file, bool *ret_found, struct err *err)
{
    /* The directory may belong to somebody with fewer rights than ours: a link to another file, of
     * either kind, is removed and not followed. */
    CLEANUP_FD int fd =
        openat(directory, file, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
    struct stat st;
    /* As far as it goes: a file may be read-only, and a file system that copies on write keeps the
     * old blocks whatever is written. Unlinking is what counts. */
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1)
        (void)write_zeros(fd, st.st_size);
    if (unlinkat(directory, file, 0) == 0) {
        *ret_found = true;
        return 0;
    }
    return errno == ENOENT ? 0 : err_errno(err, errno, "cannot remove %s", file);
}

int wipe_file(const char *path, bool *ret_found, struct err *err)
{
    bool found = false;
    if (wipe_at(AT_FDCWD, path, &found, err) < 0 || (found && sync_parent(path, err) < 0))
        return -1;
    *ret_found = found;
    return 0;
}

int pending_remove(const char *identity_dir, bool *ret_found, struct err *err)
{
    CLEANUP_FREE char *path = pending_path(identity_dir, err);
    if (!path)
        return -1;
    *ret_found = false;
    DIR *listing = opendir(path);
    if (!listing)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot list %s", path);
    int r = 0;
    const struct dirent *entry;
    while (r == 0 && (entry = readdir(listing)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            r = wipe_at(dirfd(listing), entry->d_name, ret_found, err);
    (void)closedir(listing);
    if (r < 0)
        return err_wrap(err, "in %s", path);
    if (rmdir(path) < 0)
        return err_errno(err, errno, "cannot remove the directory %s", path);
    *ret_found = true;
    return sync_parent(path, err);
}

/* The token. */

static int no_token(const struct enroll_config *config, struct err *err)
{
    if (config->token_file)
        return err_set(
            err, ERR_PRECONDITION,
            "this machine needs a join token to enrol, and there is none in %s; make one "
            "with 'sandstorm token create' and put it there",
            config->token_file);
    return err_set(err, ERR_PRECONDITION,
                   "this machine needs a join token to enrol; make one with 'sandstorm token "
                   "create' and name the file it is in (token_file)");
}

int token_read(const struct enroll_config *config, char **ret, struct err *err)
{
    CLEANUP_KEY_PEM char *text = NULL;
    CLEANUP_SECRET struct secret secret = { 0 };
    size_t size = 0;
    struct err why = { 0 };
    if (!config->token_file)
        return no_token(config, err);
    if (file_read(config->token_file, TOKEN_FILE_MAX, &text, &size, &why) < 0) {
        if (why.code == ERR_NOT_FOUND)
            return no_token(config, err);
        if (err)
            *err = why;
        return err_wrap(err, "cannot read the join token");
    }
    text[strcspn(text, " \t\r\n")] = '\0';
    /* Looked at before it is sent, so that a secret of another kind, pasted into the wrong place,
     * does not travel. The text is not repeated: it may be one. */
    if (secret_parse(text, SECRET_JOIN, &secret, NULL) < 0)
        return err_set(err, ERR_INVALID,
                       "the file %s does not hold a join token; it reads ssjoin_..., as 'sandstorm "
                       "token create' printed it, and nothing else",
                       config->token_file);
    *ret = TAKE_PTR(text);
    return 0;
}
