/* Identity directories: modes, what is refused, what a failure or a kill at any step leaves, and in
 * which order things get to disk. */
#include "common/identity_dir.h"

#include "common/file.h"
#include "tests/unit/disk_steps.h"

#include <dirent.h>
#include <ftw.h>

#define TEXT_MAX 4096
#define OK(call) cr_assert_eq((call), 0, "%s", err.text)

static char root[] = "/tmp/test-identity-dir-XXXXXX";

static const struct identity_files old_files = { "old ca", "old cert", "old key", "old machine" };
static const struct identity_files new_files = { "new ca", "new cert", "new key", NULL };

static void setup(void)
{
    (void)umask(0);
    cr_assert(mkdtemp(root) && chdir(root) == 0);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void teardown(void)
{
    (void)nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* cppcheck-suppress unknownMacro */
TestSuite(identity_dir, .init = setup, .fini = teardown);

static bool holds(const char *path, const char *text)
{
    CLEANUP_FREE char *data = NULL;
    size_t size = 0;
    return file_read(path, TEXT_MAX, &data, &size, NULL) == 0 && strcmp(data, text) == 0;
}

static unsigned mode_of(const char *path)
{
    struct stat st;
    cr_assert_eq(lstat(path, &st), 0, "%s", path);
    return st.st_mode & 07777;
}

static unsigned count_entries(const char *dir)
{
    DIR *listing = opendir(dir);
    cr_assert_not_null(listing);
    unsigned count = 0;
    while (readdir(listing))
        count++;
    (void)closedir(listing);
    return count - 2;
}

static bool is_old(void)
{
    return holds("id/ca.pem", "old ca") && holds("id/cert.pem", "old cert") &&
           holds("id/key.pem", "old key") && holds("id/machine.json", "old machine") &&
           count_entries("id") == 4;
}

static bool is_new(void)
{
    return holds("id/ca.pem", "new ca") && holds("id/cert.pem", "new cert") &&
           holds("id/key.pem", "new key") && count_entries("id") == 3;
}

static void put(const char *path, const char *text)
{
    struct err err = { 0 };
    OK(file_write_atomic(path, text, strlen(text), 0600, &err));
}

static void write_old(void)
{
    struct err err = { 0 };
    OK(identity_dir_write("id", &old_files, &err));
}

Test(identity_dir, secrets_are_private_under_umask_0)
{
    write_old();
    cr_assert(is_old());
    cr_assert_eq(mode_of("id"), 0700u);
    cr_assert_eq(mode_of("id/key.pem"), 0600u);
    cr_assert_eq(mode_of("id/machine.json"), 0600u);
    cr_assert_eq(mode_of("id/cert.pem"), 0644u);
    cr_assert_eq(mode_of("id/ca.pem"), 0644u);
}

Test(identity_dir, the_next_one_replaces_all_of_the_one_before)
{
    struct err err = { 0 };
    write_old();
    OK(identity_dir_write("id/", &new_files, &err));
    cr_assert(is_new());
    cr_assert_eq(count_entries("."), 1u);
}

Test(identity_dir, refuses_to_lose_other_files)
{
    struct err err = { 0 };
    write_old();
    put("id/notes", "mine");
    cr_assert_eq(identity_dir_write("id", &new_files, &err), -1);
    cr_assert_eq(err.code, ERR_PRECONDITION);
    cr_assert_not_null(strstr(err.text, "notes"));
    cr_assert_eq(identity_dir_remove("id", &err), -1);
    cr_assert_eq(err.code, ERR_PRECONDITION);
    cr_assert_eq(unlink("id/notes"), 0);
    cr_assert(is_old());
    cr_assert_eq(count_entries("."), 1u);
}

Test(identity_dir, remove_leaves_nothing_and_may_be_repeated)
{
    struct err err = { 0 };
    write_old();
    OK(identity_dir_remove("id", &err));
    cr_assert_eq(count_entries("."), 0u);
    OK(identity_dir_remove("id", &err));
    OK(identity_dir_remove("no/such/id", &err));
    cr_assert_eq(count_entries("."), 0u);
}

static void make_dir_with(const char *dir, const char *file)
{
    char path[256];
    cr_assert_eq(mkdir(dir, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/%s", dir, file);
    put(path, "x");
}

Test(identity_dir, remove_clears_what_crashes_left_and_nothing_else)
{
    struct err err = { 0 };
    write_old();
    make_dir_with(".sandstorm-aaaaaa", "key.pem");
    make_dir_with(".sandstorm-bbbbbb", ".cert.pem.Xy12Zz");
    cr_assert_eq(mkdir(".sandstorm-cccccc", 0700), 0);
    make_dir_with(".sandstorm-keep1a", "notes");
    put(".sandstorm-keep1a/key.pem", "x");
    make_dir_with(".sandstorm-long-name", "key.pem");
    make_dir_with("other", "key.pem");
    put(".sandstorm-keep2a", "a file");
    cr_assert_eq(symlink("other", ".sandstorm-keep3a"), 0);
    OK(identity_dir_remove("id", &err));
    cr_assert_eq(count_entries("."), 5u);
    cr_assert_eq(count_entries(".sandstorm-keep1a"), 2u);
    cr_assert_eq(count_entries(".sandstorm-long-name"), 1u);
    cr_assert_eq(count_entries("other"), 1u);
    cr_assert(holds(".sandstorm-keep2a", "a file"));
    cr_assert_eq(access(".sandstorm-keep3a", F_OK), 0);
}

Test(identity_dir, tidy_leaves_a_writer_at_work_alone)
{
    struct err err = { 0 };
    make_dir_with(".sandstorm-aaaaaa", "key.pem");
    int fd = open(".sandstorm-aaaaaa", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert_eq(flock(fd, LOCK_EX), 0);
    OK(identity_dir_tidy("id", &err));
    cr_assert_eq(count_entries(".sandstorm-aaaaaa"), 1u);
    (void)close(fd);
    OK(identity_dir_tidy("id", &err));
    cr_assert_eq(count_entries("."), 0u);
}

Test(identity_dir, everything_is_on_disk_before_the_swap_and_the_swap_before_the_removal)
{
    static const char *const files[] = { "ca.pem", "cert.pem", "key.pem" };
    struct err err = { 0 };
    write_old();
    steps.record = true;
    OK(identity_dir_write("id", &new_files, &err));
    steps.record = false;
    int swap = find_step("renameat2 id", 0);
    cr_assert_gt(swap, 0);
    cr_assert_eq(find_step("renameat2", swap + 1), -1);
    for (size_t i = 0; i < ELEMENTS(files); i++) {
        char text[64];
        (void)snprintf(text, sizeof(text), "write .%s.", files[i]);
        int written = find_step(text, 0);
        (void)snprintf(text, sizeof(text), "fsync .%s.", files[i]);
        int synced = find_step(text, MAX(written, 0));
        (void)snprintf(text, sizeof(text), "rename %s", files[i]);
        int named = find_step(text, MAX(synced, 0));
        int listed = find_step("fsync .sandstorm-", MAX(named, 0));
        cr_assert(0 <= written && written < synced && synced < named && named < listed &&
                      listed < swap,
                  "%s: %d %d %d %d %d", files[i], written, synced, named, listed, swap);
    }
    int removal = find_step("unlinkat", 0);
    int parent = find_step("fsync test-identity-dir-", swap);
    cr_assert(swap < parent && parent < removal, "%d %d %d", swap, parent, removal);
}

Test(identity_dir, a_step_that_fails_leaves_the_old_or_the_new_one_and_nothing_beside)
{
    for (unsigned n = 1;; n++) {
        struct err err = { 0 };
        write_old();
        steps.fail_at = n;
        int r = identity_dir_write("id", &new_files, &err);
        bool failed = steps.fail_at == 0;
        steps.fail_at = 0;
        cr_assert(r == 0 || (err.code == ERR_SYSTEM && err.sys_errno == ENOSPC), "%s", err.text);
        cr_assert(r == 0 ? is_new() : is_old() || is_new(), "step %u", n);
        OK(identity_dir_tidy("id", &err));
        cr_assert_eq(count_entries("."), 1u);
        if (!failed) {
            cr_assert_gt(n, 15u);
            break;
        }
    }
}

static void child_write(void)
{
    if (identity_dir_write("id", &new_files, NULL) < 0)
        _exit(1);
}

Test(identity_dir, a_kill_at_any_step_of_a_write_leaves_all_of_the_old_or_all_of_the_new)
{
    struct err err = { 0 };
    unsigned n = 1, seen_old = 0, seen_new = 0;
    for (bool killed = true; killed; n++) {
        write_old();
        killed = run_and_kill(child_write, n);
        cr_assert(is_old() || is_new(), "step %u", n);
        seen_old += is_old();
        seen_new += is_new();
        OK(identity_dir_tidy("id", &err));
        cr_assert_eq(count_entries("."), 1u, "step %u", n);
    }
    cr_assert(seen_old > 10 && seen_new > 3, "%u %u", seen_old, seen_new);
}

static void child_remove(void)
{
    if (identity_dir_remove("id", NULL) < 0)
        _exit(1);
}

Test(identity_dir, a_kill_at_any_step_of_a_removal_leaves_all_or_nothing)
{
    struct err err = { 0 };
    unsigned n = 1, seen_gone = 0;
    for (bool killed = true; killed; n++) {
        write_old();
        killed = run_and_kill(child_remove, n);
        bool gone = access("id", F_OK) < 0;
        cr_assert(gone || is_old(), "step %u", n);
        seen_gone += gone;
        OK(identity_dir_remove("id", &err));
        cr_assert_eq(count_entries("."), 0u, "step %u", n);
    }
    cr_assert(n > 6 && seen_gone > 3 && seen_gone < n - 1, "%u %u", n, seen_gone);
}
