/* The state directory: what is not ours is refused and never followed, what is of another boot
 * goes, and the ids of released commands outlive their runner. */
#include "agent/released.h"
#include "tests/unit/state_fixture.h"

TestSuite(state_dir, .init = state_setup, .fini = state_teardown);

#define OK(call) cr_assert_eq((call), 0, "%s", err.text)

static void expect_refused(const char *path, enum err_code code, const char *why)
{
    struct err err = { 0 };
    struct state_dir *state;
    cr_assert_eq(state_dir_open(path, 0, &state, &err), -1);
    cr_expect_eq(err.code, code, "%s", err.text);
    cr_expect_not_null(strstr(err.text, why), "%s", err.text);
}

Test(state_dir, it_is_made_for_its_owner_alone)
{
    struct stat st;
    struct state_dir *state = state_open(1 << 20);
    cr_assert_eq(stat(state_path, &st), 0);
    cr_expect_eq(st.st_mode & 07777, 0700u);
    state_dir_free(state);
    state_dir_free(NULL);
}

Test(state_dir, a_symbolic_link_in_its_place_is_refused)
{
    char elsewhere[64];
    (void)snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", state_root);
    cr_assert_eq(mkdir(elsewhere, 0700), 0);
    cr_assert_eq(symlink(elsewhere, state_path), 0);
    expect_refused(state_path, ERR_SYSTEM, "must be a directory itself");
}

Test(state_dir, a_file_in_its_place_is_refused)
{
    cr_assert_eq(mkfifo(state_path, 0600), 0);
    expect_refused(state_path, ERR_SYSTEM, "must be a directory itself");
}

Test(state_dir, one_that_others_may_enter_is_refused)
{
    cr_assert_eq(mkdir(state_path, 0700), 0);
    cr_assert_eq(chmod(state_path, 0750), 0);
    expect_refused(state_path, ERR_DENIED, "open to nobody else");
}

Test(state_dir, one_that_somebody_else_made_is_refused)
{
    if (geteuid() != 0)
        return; /* only root can give it away */
    cr_assert_eq(mkdir(state_path, 0700), 0);
    cr_assert_eq(chown(state_path, 12345, (gid_t)-1), 0);
    expect_refused(state_path, ERR_DENIED, "must belong to");
}

Test(state_dir, a_parent_that_everybody_may_write_to_is_refused)
{
    cr_assert_eq(chmod(state_root, 0777), 0);
    expect_refused(state_path, ERR_DENIED, "others may write to the directory above");
}

Test(state_dir, a_parent_that_is_somebody_elses_is_refused)
{
    if (geteuid() != 0)
        return;
    cr_assert_eq(chown(state_root, 12345, (gid_t)-1), 0);
    expect_refused(state_path, ERR_DENIED, "could replace it");
}

Test(state_dir, a_relative_path_is_refused)
{
    expect_refused("state", ERR_INVALID, "absolute");
}

Test(state_dir, two_runners_do_not_share_one)
{
    struct state_dir *state = state_open(1 << 20);
    expect_refused(state_path, ERR_EXISTS, "another runner uses");
    state_dir_free(state);
    state_dir_free(state_open(1 << 20));
}

Test(state_dir, no_more_than_half_of_its_file_system_is_used)
{
    struct state_dir *state = state_open(UINT64_MAX);
    cr_expect_lt(state->quota, UINT64_MAX / 2);
    cr_expect_gt(state->quota, 0u);
    state_dir_free(state);
}

/* Files in it. */

static void expect_no_file(const struct state_dir *state, const char *name)
{
    struct err err = { 0 };
    int fd;
    cr_assert_eq(state_dir_open_file(state, name, &fd, &err), -1);
    cr_expect_eq(err.code, ERR_INVALID, "%s", err.text);
    cr_expect_not_null(strstr(err.text, "not a file that we made"), "%s", err.text);
}

Test(state_dir, what_was_put_under_a_files_name_is_refused_and_not_followed)
{
    struct state_dir *state = state_open(1 << 20);
    char target[64];
    (void)snprintf(target, sizeof(target), "%s/target", state_root);
    CLEANUP_FD int fd = open(target, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert(fd >= 0);
    cr_assert_eq(symlink(target, state_file("symlink")), 0);
    cr_assert_eq(link(target, state_file("hardlink")), 0);
    cr_assert_eq(mkfifo(state_file("fifo"), 0600), 0);
    cr_assert_eq(mkdir(state_file("dir"), 0700), 0);
    expect_no_file(state, "symlink");
    expect_no_file(state, "hardlink");
    expect_no_file(state, "fifo");
    expect_no_file(state, "dir");
    state_dir_free(state);
}

Test(state_dir, a_file_that_others_may_read_is_refused)
{
    struct state_dir *state = state_open(1 << 20);
    CLEANUP_FD int fd = open(state_file("open"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert(fd >= 0);
    cr_assert_eq(fchmod(fd, 0644), 0);
    expect_no_file(state, "open");
    state_dir_free(state);
}

/* Boots. */

static void touch(const char *name)
{
    CLEANUP_FD int fd = open(state_file(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert(fd >= 0);
}

static void expect_wiped(bool wiped)
{
    const struct command_id id = state_id(1);
    state_dir_free(state_open(1 << 20));
    cr_expect_eq(access(state_file(id.text), F_OK) < 0, wiped);
    cr_expect_eq(access(state_file("released"), F_OK) < 0, wiped);
    cr_expect_eq(access(state_file("somebody's"), F_OK), 0, "it was not ours to remove");
}

static void fill(void)
{
    const struct command_id id = state_id(1);
    state_dir_free(state_open(1 << 20));
    touch(id.text);
    touch("released");
    touch("somebody's");
}

Test(state_dir, what_is_of_this_boot_stays)
{
    fill();
    expect_wiped(false);
}

Test(state_dir, what_is_of_another_boot_goes)
{
    fill();
    CLEANUP_FD int fd = open(state_file("boot-id"), O_WRONLY | O_CLOEXEC);
    cr_assert_eq(pwrite(fd, "0000", 4, 0), 4);
    expect_wiped(true);
    fill();
    expect_wiped(false);
}

Test(state_dir, a_torn_boot_id_is_another_boots)
{
    fill();
    cr_assert_eq(truncate(state_file("boot-id"), 20), 0);
    expect_wiped(true);
}

Test(state_dir, so_is_a_boot_id_that_is_a_link_to_the_kernels)
{
    fill();
    cr_assert_eq(unlink(state_file("boot-id")), 0);
    cr_assert_eq(symlink("/proc/sys/kernel/random/boot_id", state_file("boot-id")), 0);
    expect_wiped(true);
}

/* Ids of released commands. */

static struct released *open_released(const struct state_dir *state)
{
    struct err err = { 0 };
    struct released *released;
    OK(released_new(&released, &err));
    OK(released_open(released, state, &err));
    return released;
}

static bool has(const struct released *released, unsigned number)
{
    const struct command_id id = state_id(number);
    return released_has(released, &id);
}

Test(state_dir, released_ids_outlive_their_runner_the_newest_of_them)
{
    enum { MORE = 100 };
    struct state_dir *state = state_open(1 << 20);
    for (unsigned from = 0; from < RELEASED_MAX + MORE; from += MORE) {
        struct released *released = open_released(state);
        for (unsigned i = from; i < MIN(from + MORE, RELEASED_MAX + MORE); i++) {
            const struct command_id id = state_id(i);
            cr_assert_not(released_has(released, &id));
            released_add(released, &id);
        }
        released_free(released);
    }
    struct released *released = open_released(state);
    for (unsigned i = 0; i < RELEASED_MAX + MORE; i++)
        cr_assert_eq(has(released, i), i >= MORE, "%u", i);
    released_free(released);
    state_dir_free(state);
}

Test(state_dir, a_torn_released_id_hides_no_other)
{
    struct state_dir *state = state_open(1 << 20);
    struct released *released = open_released(state);
    for (unsigned i = 0; i < 10; i++) {
        const struct command_id id = state_id(i);
        released_add(released, &id);
    }
    cr_assert_eq(pwrite(released_fd(released), "x", 1, 4 * 48 + 20), 1);
    released_free(released);
    released = open_released(state);
    for (unsigned i = 0; i < 10; i++)
        cr_expect_eq(has(released, i), i != 4, "%u", i);
    for (unsigned i = 10; i < 20; i++) {
        const struct command_id id = state_id(i);
        released_add(released, &id);
    }
    released_free(released);
    released = open_released(state);
    for (unsigned i = 0; i < 20; i++)
        cr_expect_eq(has(released, i), i != 4, "%u", i);
    released_free(released);
    state_dir_free(state);
}

Test(state_dir, released_ids_behind_a_link_are_refused)
{
    struct err err = { 0 };
    struct state_dir *state = state_open(1 << 20);
    cr_assert_eq(symlink("/tmp/nowhere", state_file("released")), 0);
    struct released *released;
    OK(released_new(&released, &err));
    cr_expect_eq(released_open(released, state, &err), -1);
    cr_expect_eq(err.code, ERR_INVALID);
    cr_expect_eq(access("/tmp/nowhere", F_OK), -1);
    released_free(released);
    state_dir_free(state);
}
