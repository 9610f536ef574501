/* Whole files: bounds, odd file types, short reads and writes, and what is left behind when a step
 * of the atomic write fails. The system calls below shadow libc's in this binary, so that a test
 * can shorten them, make one fail, or note their order; otherwise they pass through. */
#include "common/file.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum step { STEP_NONE, STEP_FCHMOD, STEP_WRITE, STEP_FSYNC, STEP_RENAME, STEP_FSYNC_DIRECTORY };

static struct {
    bool shorten;
    enum step fail;
    char order[16]; /* one letter per step, writes counted once */
    char renamed_from[512];
    const char *grow; /* the first read also appends one byte to this file */
    unsigned shortened;
} hooks;

static uint64_t state = 7;

static unsigned roll(unsigned below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(state >> 33) % below;
}

static int step(enum step step, char letter)
{
    size_t used = strlen(hooks.order);
    if (used + 1 < sizeof(hooks.order) && (used == 0 || hooks.order[used - 1] != letter))
        hooks.order[used] = letter;
    if (hooks.fail != step)
        return 0;
    errno = EDQUOT;
    return -1;
}

static bool interrupted(size_t *size)
{
    if (!hooks.shorten || *size == 0)
        return false;
    hooks.shortened++;
    *size = 1 + roll((unsigned)MIN(*size, 5000u));
    errno = EINTR;
    return roll(4) == 0;
}

static void append(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    cr_assert_eq(syscall(SYS_write, fd, "+", 1), 1);
    (void)close(fd);
}

ssize_t read(int fd, void *data, size_t size)
{
    if (interrupted(&size))
        return -1;
    if (hooks.grow)
        append(hooks.grow);
    hooks.grow = NULL;
    return syscall(SYS_read, fd, data, size);
}

/* What read() becomes in a build with FORTIFY. */
ssize_t __read_chk(int fd, void *out, size_t size, size_t room);

ssize_t __read_chk(int fd, void *out, size_t size, size_t room)
{
    cr_assert_leq(size, room);
    return read(fd, out, size);
}

ssize_t write(int fd, const void *data, size_t size)
{
    if (interrupted(&size) || step(STEP_WRITE, 'w') < 0)
        return -1;
    return syscall(SYS_write, fd, data, size);
}

int fsync(int fd)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        return step(STEP_FSYNC_DIRECTORY, 'd');
    return step(STEP_FSYNC, 's');
}

int fchmod(int fd, mode_t mode)
{
    return step(STEP_FCHMOD, 'm') < 0 ? -1 : (int)syscall(SYS_fchmod, fd, mode);
}

int rename(const char *from, const char *to)
{
    (void)snprintf(hooks.renamed_from, sizeof(hooks.renamed_from), "%s", from);
    return step(STEP_RENAME, 'r') < 0 ? -1
                                      : (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
}

static char directory[] = "/tmp/test-file-XXXXXX";
static char path[64];
static struct err err;

static void put(const char *where, const void *data, size_t size)
{
    FILE *out = fopen(where, "we");
    cr_assert(out);
    cr_assert_eq(fwrite(data, 1, size, out), size);
    cr_assert_eq(fclose(out), 0);
}

static void set_up(void)
{
    cr_assert(mkdtemp(directory));
    (void)snprintf(path, sizeof(path), "%s/file", directory);
}

static void tear_down(void)
{
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf %s", directory);
    cr_assert_eq(system(command), 0);
}

/* cppcheck-suppress unknownMacro */
TestSuite(file, .init = set_up, .fini = tear_down, .timeout = 30);

static unsigned count_entries(void)
{
    unsigned count = 0;
    DIR *dir = opendir(directory);
    cr_assert(dir);
    while (readdir(dir))
        count++;
    (void)closedir(dir);
    return count - 2;
}

static void expect_content(const char *where, const char *data, size_t size)
{
    CLEANUP_FREE char *got = NULL;
    size_t got_size = 0;
    cr_assert_eq(file_read(where, 1 << 20, &got, &got_size, &err), 0, "%s", err.text);
    cr_assert_eq(got_size, size);
    cr_assert_eq(memcmp(got, data, size), 0);
    cr_assert_eq(got[size], '\0');
}

static void expect_read_failure(const char *where, size_t max, enum err_code code)
{
    char *got = path;
    size_t size = 77;
    int before = dup(0);
    (void)close(before);
    cr_assert_eq(file_read(where, max, &got, &size, &err), -1);
    cr_assert_eq(err.code, code, "%s", err.text);
    cr_assert_eq(got, path, "written on success only");
    cr_assert_eq(size, 77);
    int after = dup(0);
    (void)close(after);
    cr_assert_eq(before, after, "a descriptor leaked");
    cr_assert_eq(file_read(where, max, &got, &size, NULL), -1, "no err wanted");
}

Test(file, read_gives_all_bytes_and_a_nul)
{
    put(path, "a\0b\n", 4);
    expect_content(path, "a\0b\n", 4);
    put(path, "", 0);
    expect_content(path, "", 0);
}

Test(file, read_takes_up_to_the_bound_and_no_more)
{
    put(path, "12345", 5);
    char *got = NULL;
    size_t size = 0;
    cr_assert_eq(file_read(path, 5, &got, &size, &err), 0);
    cr_assert_str_eq(got, "12345");
    free(got);
    expect_read_failure(path, 4, ERR_EXHAUSTED);
    expect_read_failure(path, 0, ERR_EXHAUSTED);
}

Test(file, read_notices_a_file_that_grows_meanwhile)
{
    put(path, "12345", 5);
    hooks.grow = path;
    expect_content(path, "12345+", 6);
    char *got = NULL;
    size_t size = 0;
    hooks.grow = path;
    cr_assert_eq(file_read(path, 6, &got, &size, &err), -1);
    cr_assert_eq(err.code, ERR_EXHAUSTED);
    cr_assert_null(got);
}

Test(file, read_trusts_no_size_of_zero)
{
    char *got = NULL;
    size_t size = 0;
    cr_assert_eq(file_read("/proc/self/status", 65536, &got, &size, &err), 0, "%s", err.text);
    cr_assert(strstr(got, "\nPid:"));
    cr_assert_eq(strlen(got), size);
    free(got);
    expect_read_failure("/proc/self/status", 10, ERR_EXHAUSTED);
}

Test(file, read_of_nothing_says_not_found)
{
    expect_read_failure(path, 10, ERR_NOT_FOUND);
    cr_assert_eq(err.sys_errno, ENOENT);
    cr_assert(strstr(err.text, path));
}

Test(file, read_follows_a_symlink_but_not_in_circles)
{
    char link[80];
    (void)snprintf(link, sizeof(link), "%s/link", directory);
    put(path, "x", 1);
    cr_assert_eq(symlink("file", link), 0);
    expect_content(link, "x", 1);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(symlink("link", path), 0);
    expect_read_failure(path, 10, ERR_SYSTEM);
    cr_assert_eq(err.sys_errno, ELOOP);
}

Test(file, read_refuses_what_is_no_regular_file_without_waiting)
{
    cr_assert_eq(mkfifo(path, 0600), 0);
    expect_read_failure(path, 10, ERR_INVALID);
    expect_read_failure(directory, 10, ERR_INVALID);
    expect_read_failure("/dev/null", 10, ERR_INVALID);
}

Test(file, random_contents_survive_short_reads_and_writes)
{
    static char data[40000];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (char)roll(256);
    hooks.shorten = true;
    for (unsigned round = 0; round < 300; round++) {
        size_t size = roll(3) ? roll(sizeof(data)) : roll(4);
        size_t start = roll((unsigned)(sizeof(data) - size));
        cr_assert_eq(file_write_atomic(path, data + start, size, 0600, &err), 0, "%s", err.text);
        expect_content(path, data + start, size);
        size_t max = roll(sizeof(data)), got_size = 0;
        CLEANUP_FREE char *got = NULL;
        cr_assert_eq(file_read(path, max, &got, &got_size, &err), size <= max ? 0 : -1);
    }
    hooks.shorten = false;
    cr_assert(hooks.shortened > 1000, "the shortened calls are not the ones in use");
    cr_assert_eq(count_entries(), 1);
}

Test(file, write_gives_exactly_the_mode_whatever_the_umask)
{
    const mode_t modes[] = { 0600, 0400, 0644, 0666, 0755, 0000 };
    const mode_t masks[] = { 0, 0022, 0077, 0777 };
    for (size_t i = 0; i < ELEMENTS(modes); i++)
        for (size_t j = 0; j < ELEMENTS(masks); j++) {
            (void)umask(masks[j]);
            struct stat st;
            cr_assert_eq(file_write_atomic(path, "x", 1, modes[i], &err), 0, "%s", err.text);
            cr_assert_eq(stat(path, &st), 0);
            cr_assert_eq(st.st_mode & 07777, modes[i]);
        }
}

Test(file, write_syncs_before_the_rename_and_the_directory_after)
{
    put(path, "old", 3);
    memset(hooks.order, 0, sizeof(hooks.order));
    cr_assert_eq(file_write_atomic(path, "new", 3, 0644, &err), 0);
    cr_assert_str_eq(hooks.order, "mwsrd");
    expect_content(path, "new", 3);
}

Test(file, write_uses_a_hidden_name_in_the_same_directory)
{
    char prefix[80];
    (void)snprintf(prefix, sizeof(prefix), "%s/.file.", directory);
    cr_assert_eq(file_write_atomic(path, "x", 1, 0644, &err), 0);
    cr_assert_eq(strncmp(hooks.renamed_from, prefix, strlen(prefix)), 0);
}

Test(file, a_failed_step_leaves_the_old_file_and_nothing_else)
{
    put(path, "old", 3);
    for (enum step step = STEP_FCHMOD; step <= STEP_RENAME; step++) {
        hooks.fail = step;
        cr_assert_eq(file_write_atomic(path, "new", 3, 0644, &err), -1);
        hooks.fail = STEP_NONE;
        cr_assert_eq(err.sys_errno, EDQUOT);
        cr_assert_eq(count_entries(), 1, "step %d", (int)step);
        expect_content(path, "old", 3);
    }
}

Test(file, a_failed_sync_of_the_directory_is_told)
{
    hooks.fail = STEP_FSYNC_DIRECTORY;
    cr_assert_eq(file_write_atomic(path, "new", 3, 0644, &err), -1);
    cr_assert(strstr(err.text, "a crash may undo it"), "%s", err.text);
    cr_assert_eq(count_entries(), 1);
}

Test(file, write_refuses_what_cannot_be_a_file)
{
    char where[80];
    (void)snprintf(where, sizeof(where), "%s/", directory);
    cr_assert_eq(file_write_atomic(where, "x", 1, 0644, &err), -1);
    cr_assert_eq(err.code, ERR_INVALID);
    cr_assert_eq(file_write_atomic("", "x", 1, 0644, &err), -1);
    cr_assert_eq(err.code, ERR_INVALID);
    (void)snprintf(where, sizeof(where), "%s/none/file", directory);
    cr_assert_eq(file_write_atomic(where, "x", 1, 0644, &err), -1);
    cr_assert_eq(err.sys_errno, ENOENT);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(file_write_atomic(path, "x", 1, 0644, &err), -1);
    cr_assert_eq(count_entries(), 1);
}

Test(file, write_takes_a_bare_name_and_the_longest_one)
{
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    cr_assert_eq(chdir(directory), 0);
    cr_assert_eq(file_write_atomic("bare", "x", 1, 0644, &err), 0, "%s", err.text);
    cr_assert_eq(file_write_atomic(name, "y", 1, 0644, &err), 0, "%s", err.text);
    expect_content("bare", "x", 1);
    expect_content(name, "y", 1);
    cr_assert_eq(count_entries(), 2);
}

Test(file, missing_directories_are_made_and_those_that_are_there_are_kept)
{
    char top[] = "/tmp/test-file-XXXXXX", dir[64];
    struct stat info;
    cr_assert(mkdtemp(top));
    (void)snprintf(dir, sizeof(dir), "%s/a/b/c", top);
    (void)umask(0);
    cr_assert_eq(file_make_dirs(dir, 0755, &err), 0, "%s", err.text);
    cr_assert_eq(file_make_dirs(dir, 0755, &err), 0, "%s", err.text);
    cr_assert(stat(dir, &info) == 0 && (info.st_mode & 07777) == 0700);
    *strrchr(dir, '/') = '\0';
    cr_assert(stat(dir, &info) == 0 && (info.st_mode & 07777) == 0755);
    (void)snprintf(dir, sizeof(dir), "%s/a/file", top);
    cr_assert_eq(file_write_atomic(dir, "", 0, 0600, &err), 0);
    (void)snprintf(dir, sizeof(dir), "%s/a/file/d", top);
    cr_assert_eq(file_make_dirs(dir, 0755, &err), -1);
    cr_assert_eq(err.sys_errno, ENOTDIR);
    char command[64];
    (void)snprintf(command, sizeof(command), "rm -rf %s", top);
    cr_assert_eq(system(command), 0);
}
