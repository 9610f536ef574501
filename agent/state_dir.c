/* Trust in a directory: it is ours alone, no symbolic link, below a parent in which nobody else may
 * put another one in its place, and every file in it is opened by a name that is checked, without
 * following anything. Opened by agent/runner.c; next: agent/spool_file.c keeps commands in it,
 * agent/released.c their ids. */
#include "agent/state_dir.h"

#include "common/clock.h"
#include "common/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#define BOOT_ID_SOURCE "/proc/sys/kernel/random/boot_id"
#define BOOT_ID_NAME   "boot-id"
#define BOOT_ID_LEN    36u

#define CHANGES_LOGGED    6u
#define CHANGES_PERIOD_US 60000000u

/* Nobody but us and root may be able to put another directory in the place of ours; where everybody
 * may write, the sticky bit keeps them from that, see unlink(2). */
static int check_parent(int fd, const char *path, struct err *err)
{
    struct stat above;
    if (fstatat(fd, "..", &above, 0) < 0)
        return err_errno(err, errno, "cannot look at the directory above %s", path);
    if (above.st_uid != 0 && above.st_uid != geteuid())
        return err_set(err, ERR_DENIED,
                       "the directory above %s belongs to user %u, who could replace it; give it "
                       "to root or change the setting \"state_dir\"",
                       path, above.st_uid);
    if (above.st_mode & (S_IWGRP | S_IWOTH) && !(above.st_mode & S_ISVTX))
        return err_set(err, ERR_DENIED,
                       "others may write to the directory above %s; take that right away (chmod "
                       "go-w) or change the setting \"state_dir\"",
                       path);
    return 0;
}

static int check_directory(int fd, const char *path, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot look at %s", path);
    if (st.st_uid != geteuid() || st.st_mode & (S_IRWXG | S_IRWXO))
        return err_set(err, ERR_DENIED,
                       "%s must belong to user %u and be open to nobody else (chmod 0700); look "
                       "who made it, then remove it",
                       path, geteuid());
    return check_parent(fd, path, err);
}

/* The directories above it are made as the socket's are. */
static int open_directory(const char *path, int *ret, struct err *err)
{
    if (*path != '/')
        return err_set(err, ERR_INVALID, "the state directory \"%s\" is not an absolute path",
                       path);
    if (file_make_dirs(path, 0755, err) < 0)
        return -1;
    CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot open the state directory %s%s", path,
                         errno == ELOOP || errno == ENOTDIR
                             ? ", which must be a directory itself; look who put it there"
                             : "");
    if (check_directory(fd, path, err) < 0)
        return -1;
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK
                   ? err_set(err, ERR_EXISTS, "another runner uses %s; stop it first", path)
                   : err_errno(err, errno, "cannot lock %s", path);
    *ret = TAKE_FD(fd);
    return 0;
}

int state_dir_open_file(const struct state_dir *state, const char *name, int *ret, struct err *err)
{
    /* O_NONBLOCK for a FIFO, which is then refused like all that is not a plain file of ours. A
     * second name of a file would let its other owner read what we write. */
    CLEANUP_FD int fd = openat(state->fd, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return err_set(err, ERR_NOT_FOUND, "there is no file %s in the state directory", name);
    if (fd < 0 && errno != ELOOP && errno != EISDIR && errno != ENXIO)
        return err_errno(err, errno, "cannot open %s in the state directory", name);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink != 1 ||
        st.st_uid != geteuid() || st.st_mode & (S_IRWXG | S_IRWXO))
        return err_set(err, ERR_INVALID,
                       "%s in the state directory is not a file that we made; look who put it "
                       "there, then remove it",
                       name);
    *ret = TAKE_FD(fd);
    return 0;
}

/* Everything that is a file of ours by its name; unlink(2) follows nothing. */
static int wipe(const struct state_dir *state, struct err *err)
{
    unsigned removed = 0;
    struct command_id id;
    int copy = openat(state->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    if (!dir) {
        close_fd(&copy);
        return err_errno(err, errno, "cannot read the state directory");
    }
    for (const struct dirent *entry; (entry = readdir(dir));) {
        bool ours = strcmp(entry->d_name, "released") == 0 ||
                    strcmp(entry->d_name, BOOT_ID_NAME) == 0 ||
                    command_id_parse(entry->d_name, &id, NULL) == 0;
        if (ours && unlinkat(state->fd, entry->d_name, 0) == 0)
            removed++;
    }
    (void)closedir(dir);
    if (removed > 0)
        log_info("state of an earlier boot removed", LF_UINT("files", removed));
    return 0;
}

static int write_boot_id(const struct state_dir *state, const char *boot, struct err *err)
{
    CLEANUP_FD int fd =
        openat(state->fd, BOOT_ID_NAME, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot create %s in the state directory", BOOT_ID_NAME);
    ssize_t n = write(fd, boot, BOOT_ID_LEN);
    if (n != (ssize_t)BOOT_ID_LEN)
        return err_errno(err, n < 0 ? errno : ENOSPC, "cannot write %s in the state directory",
                         BOOT_ID_NAME);
    return 0;
}

/* What was kept is of this boot, or it goes: processes, clocks and pids of another one mean nothing
 * now. A file that is torn counts as another boot's. */
static int check_boot(const struct state_dir *state, struct err *err)
{
    CLEANUP_FREE char *now = NULL;
    size_t size;
    if (file_read(BOOT_ID_SOURCE, 64, &now, &size, err) < 0)
        return err_wrap(err, "cannot tell one boot from another");
    if (size < BOOT_ID_LEN)
        return err_set(err, ERR_INVALID, "%s is too short; is /proc the kernel's?", BOOT_ID_SOURCE);
    CLEANUP_FD int fd = -1;
    struct err ignored;
    char before[BOOT_ID_LEN + 1];
    if (state_dir_open_file(state, BOOT_ID_NAME, &fd, &ignored) == 0 &&
        read(fd, before, sizeof(before)) == (ssize_t)BOOT_ID_LEN &&
        memcmp(before, now, BOOT_ID_LEN) == 0)
        return 0;
    return wipe(state, err) < 0 ? -1 : write_boot_id(state, now, err);
}

/* On a small file system, /run above all, others need room too. */
static void set_quota(struct state_dir *state, uint64_t quota)
{
    struct statfs fs;
    state->quota = quota;
    if (fstatfs(state->fd, &fs) == 0 && fs.f_bsize > 0 && fs.f_blocks > 0)
        state->quota = MIN(quota, (uint64_t)fs.f_blocks / 2 * (uint64_t)fs.f_bsize);
}

int state_dir_adopt(int fd, uint64_t quota, struct state_dir **ret, struct err *err)
{
    struct state_dir *state = calloc(1, sizeof(*state));
    if (!state)
        return err_nomem(err);
    state->fd = fd;
    state->changes = LOG_LIMIT(CHANGES_PERIOD_US, CHANGES_LOGGED);
    set_quota(state, quota);
    *ret = state;
    return 0;
}

int state_dir_open(const char *path, uint64_t quota, struct state_dir **ret, struct err *err)
{
    CLEANUP_FD int fd = -1;
    struct state_dir *state;
    if (open_directory(path, &fd, err) < 0 || state_dir_adopt(fd, quota, &state, err) < 0)
        return -1;
    (void)TAKE_FD(fd);
    if (check_boot(state, err) < 0) {
        state_dir_free(state);
        return -1;
    }
    if (state->quota < quota)
        log_info("the file system of the state directory is small: less output is kept",
                 LF_UINT("spool_quota", state->quota));
    *ret = state;
    return 0;
}

void state_dir_free(struct state_dir *state)
{
    if (!state)
        return;
    close_fd(&state->fd);
    free(state);
}

int state_dir_list(struct state_dir *state,
                   int (*each)(void *userdata, const struct command_id *id, struct err *err),
                   void *userdata, struct err *err)
{
    int copy = openat(state->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    if (!dir) {
        close_fd(&copy);
        return err_errno(err, errno, "cannot read the state directory");
    }
    int r = 0;
    for (const struct dirent *entry; r == 0 && (entry = readdir(dir));) {
        struct command_id id;
        if (command_id_parse(entry->d_name, &id, NULL) == 0)
            r = each(userdata, &id, err);
    }
    (void)closedir(dir);
    return r;
}

void state_dir_note_failure(struct state_dir *state, const struct err *err)
{
    uint64_t suppressed;
    if (state->failing == err->sys_errno)
        return;
    state->failing = err->sys_errno;
    if (log_limit_pass(&state->changes, monotonic_us(), &suppressed))
        log_error("cannot keep state; commands that fill their memory wait or drop output",
                  LF_ERR(err), LF_UINT("bytes_kept", state->used),
                  LF_UINT("suppressed", suppressed));
}

void state_dir_note_success(struct state_dir *state)
{
    uint64_t suppressed;
    if (state->failing && log_limit_pass(&state->changes, monotonic_us(), &suppressed))
        log_info("state can be kept again", LF_UINT("suppressed", suppressed));
    state->failing = 0;
}
