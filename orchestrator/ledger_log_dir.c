/* Names and files below DIR/ledger. Nothing is ever opened through a symbolic link, nothing that is
 * no plain file of our own is used, and nobody else may be able to write there: who could, could
 * put words into the mouths of commands. Called by the other ledger_log*.c; next: the kernel. */
#include "orchestrator/ledger_log-internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define LEDGER_DIR      "ledger"
#define LEDGER_SUFFIX   ".seg"
#define LEDGER_UNDONE   ".tmp" /* of an emptying */
#define LEDGER_DIGITS   8
#define LEDGER_LIST_MAX (1u << 20)

static int check_dir(int fd, const char *path, mode_t refused, bool root_too, struct err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot stat %s", path);
    if (st.st_uid != geteuid() && !(root_too && st.st_uid == 0))
        return err_set(err, ERR_PRECONDITION,
                       "%s belongs to user %u, who could change what commands have printed; chown "
                       "it to user %u",
                       path, (unsigned)st.st_uid, (unsigned)geteuid());
    if (st.st_mode & refused)
        return err_set(err, ERR_PRECONDITION,
                       "others may write to %s, and could change what commands have printed; "
                       "chmod it to 0700",
                       path);
    return 0;
}

static int open_dir(int at, const char *name, const char *path, int *ret_fd, struct err *err)
{
    *ret_fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*ret_fd >= 0)
        return 0;
    if (errno == ELOOP || errno == ENOTDIR)
        return err_set(err, ERR_PRECONDITION,
                       "%s is not a directory; move it away, and a directory is made there", path);
    return err_errno(err, errno, "cannot open the directory %s", path);
}

int ledger_dir_open(struct ledger_log *log, const char *dir, struct err *err)
{
    if (asprintf(&log->path, "%s/%s", dir, LEDGER_DIR) < 0) {
        log->path = NULL;
        return err_nomem(err);
    }
    CLEANUP_FD int above = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (above < 0)
        return err_errno(err, errno, "cannot open the directory %s", dir);
    if (check_dir(above, dir, S_IWOTH, true, err) < 0)
        return -1;
    bool made = mkdirat(above, LEDGER_DIR, 0700) == 0;
    if (!made && errno != EEXIST)
        return err_errno(err, errno, "cannot make the directory %s", log->path);
    if (made && fsync(above) < 0)
        return err_errno(err, errno, "cannot sync the directory %s", dir);
    if (open_dir(above, LEDGER_DIR, log->path, &log->dir_fd, err) < 0 ||
        check_dir(log->dir_fd, log->path, S_IWGRP | S_IWOTH, false, err) < 0)
        return -1;
    if (flock(log->dir_fd, LOCK_EX | LOCK_NB) == 0)
        return 0;
    if (errno == EWOULDBLOCK)
        return err_set(err, ERR_PRECONDITION,
                       "another program uses %s; stop the other orchestrator first", log->path);
    return err_errno(err, errno, "cannot lock %s", log->path);
}

void ledger_segment_name(uint32_t number, char ret[LEDGER_NAME_MAX])
{
    (void)snprintf(ret, LEDGER_NAME_MAX, "%08" PRIx32 LEDGER_SUFFIX, number);
}

/* "0000002a" and the suffix, and nothing else. */
static bool parse_name(const char *name, const char *suffix, uint32_t *ret)
{
    uint32_t number = 0;
    for (unsigned i = 0; i < LEDGER_DIGITS; i++) {
        const char *digit = name[i] ? strchr("0123456789abcdef", name[i]) : NULL;
        if (!digit)
            return false;
        number = number << 4 | (uint32_t)(digit - "0123456789abcdef");
    }
    *ret = number;
    return strcmp(name + LEDGER_DIGITS, suffix) == 0;
}

struct names {
    uint32_t *numbers;
    unsigned count, capacity;
};

static int add_number(struct names *names, uint32_t number, struct err *err)
{
    if (names->count == names->capacity) {
        if (names->capacity >= LEDGER_LIST_MAX)
            return err_set(err, ERR_EXHAUSTED, "there are more than %u files; move some away",
                           LEDGER_LIST_MAX);
        unsigned capacity = MAX(names->capacity * 2, 64u);
        uint32_t *grown = reallocarray(names->numbers, capacity, sizeof(*grown));
        if (!grown)
            return err_nomem(err);
        names->numbers = grown;
        names->capacity = capacity;
    }
    names->numbers[names->count++] = number;
    return 0;
}

static int take_name(struct ledger_log *log, const char *name, struct names *names, struct err *err)
{
    uint32_t number;
    if (parse_name(name, LEDGER_SUFFIX, &number) && number < UINT32_MAX)
        return add_number(names, number, err);
    if (parse_name(name, LEDGER_UNDONE, &number) && unlinkat(log->dir_fd, name, 0) < 0)
        return err_errno(err, errno, "cannot remove %s, which a crash left behind", name);
    return 0;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

int ledger_dir_list(struct ledger_log *log, uint32_t **ret, unsigned *ret_count, struct err *err)
{
    int fd = openat(log->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    if (!listing) {
        int number = errno;
        if (fd >= 0)
            (void)close(fd);
        return err_errno(err, number, "cannot list %s", log->path);
    }
    struct names names = { 0 };
    const struct dirent *entry;
    int r = 0;
    while (r == 0 && (errno = 0, (entry = readdir(listing))))
        r = take_name(log, entry->d_name, &names, err);
    if (r == 0 && errno != 0)
        r = err_errno(err, errno, "cannot list %s", log->path);
    (void)closedir(listing);
    if (r < 0) {
        free(names.numbers);
        return -1;
    }
    if (names.count > 0)
        qsort(names.numbers, names.count, sizeof(*names.numbers), by_number);
    *ret = names.numbers;
    *ret_count = names.count;
    return 0;
}

int ledger_segment_open(const struct ledger_log *log, uint32_t number, int flags, int *ret_fd,
                        uint64_t *ret_size, struct err *err)
{
    char name[LEDGER_NAME_MAX];
    ledger_segment_name(number, name);
    /* O_NONBLOCK, so that a FIFO is refused below and not waited for. */
    CLEANUP_FD int fd =
        openat(log->dir_fd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && errno != ELOOP && errno != ENXIO)
        return err_errno(err, errno, "cannot open %s/%s", log->path, name);
    struct stat st = { 0 };
    if (fd >= 0 && fstat(fd, &st) < 0)
        return err_errno(err, errno, "cannot stat %s/%s", log->path, name);
    /* A second name is somebody's backup, unless we are about to write to it. */
    bool shared = flags != O_RDONLY && st.st_nlink != 1;
    if (fd < 0 || !S_ISREG(st.st_mode) || shared || st.st_uid != geteuid() ||
        (st.st_mode & (S_IWGRP | S_IWOTH)))
        return err_set(err, ERR_PRECONDITION,
                       "%s/%s is not a plain file that only user %u can write; move it away",
                       log->path, name, (unsigned)geteuid());
    *ret_size = (uint64_t)st.st_size;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int ledger_segment_make(const struct ledger_log *log, const char *name, int *ret_fd,
                        struct err *err)
{
    int fd = openat(log->dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(err, errno, "cannot make %s/%s", log->path, name);
    *ret_fd = fd;
    return 0;
}

int ledger_segment_remove(const struct ledger_log *log, uint32_t number, struct err *err)
{
    char name[LEDGER_NAME_MAX];
    ledger_segment_name(number, name);
    if (unlinkat(log->dir_fd, name, 0) < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot remove %s/%s", log->path, name);
    return 0;
}

int ledger_dir_sync(const struct ledger_log *log, struct err *err)
{
    if (fsync(log->dir_fd) < 0)
        return err_errno(err, errno, "cannot sync the directory %s", log->path);
    return 0;
}
