/* Control groups where there are controllers, which the machine that builds us may lack: a tree of
 * ordinary files in which directories come with the files that the kernel would put there. The
 * kernel's part is played by the functions at the top, in place of libc's. */
#include "agent/cgroup-internal.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define ID        "0189f7a2-7f6c-4c1e-9d55-8a1c2f3e4d5b"
#define LINGERING "0189f7a2-7f6c-4c1e-9d55-8a1c2f3e4d5c"
#define EMPTY     "0189f7a2-7f6c-4c1e-9d55-8a1c2f3e4d5d"

static char top[64], path_buffer[512];
static struct loop *loop;
static const char *busy; /* a controller that OWN may not hand on */

/* A path in the fake tree; the result is static. */
static const char *at(const char *name)
{
    (void)snprintf(path_buffer, sizeof(path_buffer), "%s/%s", top, name);
    return path_buffer;
}

static void put(int group, const char *name, const char *text)
{
    CLEANUP_FD int fd = openat(group, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    cr_assert(fd >= 0 && syscall(SYS_write, fd, text, strlen(text)) == (long)strlen(text));
}

static void populate(int group, const char *controllers)
{
    put(group, "cgroup.procs", "");
    put(group, "cgroup.type", "domain\n");
    put(group, "cgroup.controllers", controllers);
    put(group, "cgroup.subtree_control", "");
    put(group, "cgroup.events", "populated 0\nfrozen 0\n");
    put(group, "cgroup.kill", "");
    static const char *const files[] = {
        "memory.max", "memory.swap.max", "memory.oom.group", "cpu.max", "pids.max",
    };
    for (size_t i = 0; i < ELEMENTS(files); i++)
        if (strstr(controllers, (char[]){ files[i][0], files[i][1], files[i][2], '\0' }))
            put(group, files[i], "max\n");
}

int mkdirat(int above, const char *name, mode_t mode)
{
    char controllers[64] = "";
    if (syscall(SYS_mkdirat, above, name, mode) < 0)
        return -1;
    if (cgroup_read(above, "cgroup.subtree_control", controllers, sizeof(controllers)) < 0)
        return 0;
    CLEANUP_FD int group = cgroup_open_dir(above, name);
    populate(group, controllers);
    return 0;
}

int unlinkat(int above, const char *name, int flags)
{
    uint64_t populated = 0;
    char command[128];
    CLEANUP_FD int group = flags & AT_REMOVEDIR ? cgroup_open_dir(above, name) : -1;
    if (group < 0)
        return (int)syscall(SYS_unlinkat, above, name, flags);
    if (cgroup_read_key(group, "cgroup.events", "populated", &populated) && populated) {
        errno = EBUSY;
        return -1;
    }
    /* The kernel's files go with the group; those of groups below do not. */
    (void)snprintf(command, sizeof(command),
                   "cd /proc/%d/fd/%d/ && rm -f cgroup.* memory.* cpu.* pids.*", (int)getpid(),
                   group);
    cr_assert_eq(system(command), 0);
    if (syscall(SYS_unlinkat, above, name, flags) == 0)
        return 0;
    populate(group, "");
    errno = EBUSY;
    return -1;
}

/* "+memory" and "-memory" change a list of words. */
ssize_t write(int fd, const void *data, size_t size)
{
    char link[64], path[512] = "", words[128] = "";
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    (void)!readlink(link, path, sizeof(path) - 1);
    if (!*top || strncmp(path, top, strlen(top)) != 0 || !strstr(path, "/cgroup.subtree_control"))
        return syscall(SYS_write, fd, data, size);
    const char *text = data;
    if (busy && strncmp(text + 1, busy, strlen(busy)) == 0 && !strstr(path, "/sandstorm-")) {
        errno = EBUSY;
        return -1;
    }
    CLEANUP_FD int in = open(path, O_RDWR | O_CLOEXEC);
    (void)!read(in, words, sizeof(words) - 1);
    char *found = strstr(words, text + 1);
    if (*text == '+' && !found)
        (void)strcat(strcat(words, text + 1), " ");
    else if (*text == '-' && found)
        (void)memmove(found, found + size, strlen(found + size) + 1);
    cr_assert(ftruncate(in, 0) == 0 &&
              pwrite(in, words, strlen(words), 0) == (ssize_t)strlen(words));
    return (ssize_t)size;
}

/* The fake machine. */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static const struct cgroup_paths *machine(const char *self, const char *mounts)
{
    static char files[3][128];
    static const struct cgroup_paths paths = { files[0], files[1], files[2] };
    char text[512];
    (void)snprintf(files[0], sizeof(files[0]), "%s/self", top);
    (void)snprintf(files[1], sizeof(files[1]), "%s/mounts", top);
    (void)snprintf(files[2], sizeof(files[2]), "%s/systemd", top);
    put(AT_FDCWD, files[0], self);
    const char *place = strchr(mounts, '@'); /* where the fake is mounted */
    (void)snprintf(text, sizeof(text), "%.*s%s%s", (int)strcspn(mounts, "@"), mounts,
                   place ? top : "", place ? place + 1 : "");
    put(AT_FDCWD, files[1], text);
    return &paths;
}

#define MOUNT "41 31 0:38 / @/fs rw,relatime shared:9 - cgroup2 cgroup2 rw\n"

static void setup(void)
{
    struct err err = { 0 };
    char own[128] = "/tmp/test-cgroup-XXXXXX";
    cr_assert_not_null(mkdtemp(own));
    (void)snprintf(top, sizeof(top), "%s", own);
    cr_assert(mkdir(at("fs"), 0755) == 0 && mkdir(at("fs/own"), 0755) == 0);
    cr_assert_eq(loop_new(&loop, &err), 0, "%s", err.text);
    CLEANUP_FD int group = open(at("fs/own"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    populate(group, "cpuset cpu io memory pids\n");
}

static void teardown(void)
{
    loop_free(loop);
    (void)nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* cppcheck-suppress unknownMacro */
TestSuite(cgroup, .init = setup, .fini = teardown);

/* Where we are. */

static void expect_own(const char *self, const char *mounts, const char *wanted)
{
    struct err err = { 0 };
    char own[CGROUP_PATH_MAX];
    cr_assert_eq(cgroup_find_own(machine(self, mounts), own, &err), 0, "%s", err.text);
    cr_expect_str_eq(own, at(wanted));
}

static void expect_none(const char *self, const char *mounts, const char *why)
{
    struct err err = { 0 };
    char own[CGROUP_PATH_MAX];
    cr_assert_eq(cgroup_find_own(machine(self, mounts), own, &err), -1);
    cr_expect(strstr(err.text, why), "%s", err.text);
}

Test(cgroup, our_own_is_where_version_2_is_mounted)
{
    expect_own("0::/own\n", MOUNT, "fs/own");
    expect_own("0::/\n", MOUNT, "fs");
    expect_own("0::/a/b c\n", MOUNT, "fs/a/b c");
}

Test(cgroup, beside_version_1_only_the_line_of_version_2_counts)
{
    expect_own("9:name=systemd:/x\n4:memory:/y\n0::/own\n",
               "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" MOUNT, "fs/own");
}

Test(cgroup, a_part_that_is_mounted_is_cut_from_the_path)
{
    expect_own("0::/docker/abc/own\n",
               "41 31 0:38 /docker/abc @/fs rw,relatime - cgroup2 cgroup2 rw\n", "fs/own");
    expect_own("0::/docker/abc\n", "41 31 0:38 /docker/abc @/fs rw,relatime - cgroup2 cgroup2 rw\n",
               "fs");
    expect_none("0::/docker/abcdef\n",
                "41 31 0:38 /docker/abc @/fs rw,relatime - cgroup2 cgroup2 rw\n", "not mounted");
}

Test(cgroup, escapes_in_the_list_of_mounts_are_read)
{
    expect_own("0::/own\n", "41 31 0:38 / @/a\\040b rw - cgroup2 cgroup2 rw\n", "a b/own");
}

Test(cgroup, where_there_is_none_it_says_why)
{
    expect_none("4:memory:/y\n", MOUNT, "no control groups of version 2");
    expect_none("0::/own\n", "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n",
                "not mounted");
    expect_none("0::/../../x\n", MOUNT, "outside of our view");
    expect_none("", "", "no control groups of version 2");
}

/* Our part. */

static struct cgroup_root *open_root(void)
{
    struct err err = { 0 };
    struct cgroup_root *root;
    cr_assert_eq(
        cgroup_root_new(loop, machine("0::/own\n", MOUNT), "/run/x.sock", false, &root, &err), 0,
        "%s", err.text);
    return root;
}

static void expect_no_root(const char *why)
{
    struct err err = { 0 };
    struct cgroup_root *root;
    cr_assert_eq(
        cgroup_root_new(loop, machine("0::/own\n", MOUNT), "/run/x.sock", false, &root, &err), -1);
    cr_expect(strstr(err.text, why), "%s", err.text);
}

static const char *part(const char *name)
{
    static char path[256];
    char called[CGROUP_NAME_MAX];
    cgroup_part_name("/run/x.sock", called);
    (void)snprintf(path, sizeof(path), "fs/own/%s%s%s", called, *name ? "/" : "", name);
    return at(path);
}

static void expect_text(const char *path, const char *wanted)
{
    char text[128] = "";
    cr_assert_geq(cgroup_read(AT_FDCWD, path, text, sizeof(text)), 0, "%s", path);
    cr_expect_str_eq(text, wanted, "%s", path);
}

#define ALL (1u << TREE_MEMORY | 1u << TREE_CPU | 1u << TREE_PIDS)

Test(cgroup, controllers_are_handed_on_to_commands_and_we_step_aside)
{
    struct cgroup_root *root = open_root();
    cr_expect_eq(cgroup_root_enforces(root), ALL);
    cr_expect_str_eq(cgroup_root_why_not(root), "");
    expect_text(at("fs/own/cgroup.subtree_control"), "memory cpu pids ");
    expect_text(part("commands/cgroup.subtree_control"), "memory cpu pids ");
    expect_text(part("runner/cgroup.procs"), "0");
    cgroup_root_free(root);
    expect_text(at("fs/own/cgroup.subtree_control"), "");
    expect_text(at("fs/own/cgroup.procs"), "0");
    cr_expect_eq(access(part(""), F_OK), -1, "our part was left behind");
}

Test(cgroup, a_controller_that_others_hand_on_is_left_as_it_was)
{
    put(AT_FDCWD, at("fs/own/cgroup.subtree_control"), "memory ");
    cgroup_root_free(open_root());
    expect_text(at("fs/own/cgroup.subtree_control"), "memory ");
}

Test(cgroup, without_controllers_there_are_groups_and_no_limits)
{
    put(AT_FDCWD, at("fs/own/cgroup.controllers"), "hugetlb\n");
    struct cgroup_root *root = open_root();
    cr_expect_eq(cgroup_root_enforces(root), 0u);
    cr_expect(strstr(cgroup_root_why_not(root), "no \"memory\" controller"), "%s",
              cgroup_root_why_not(root));
    cr_expect_eq(access(part("runner"), F_OK), -1, "we moved for nothing");
    cgroup_root_free(root);
}

Test(cgroup, a_controller_that_cannot_be_handed_on_costs_only_itself)
{
    busy = "memory";
    struct cgroup_root *root = open_root();
    cr_expect_eq(cgroup_root_enforces(root), ALL & ~(1u << TREE_MEMORY));
    cr_expect(strstr(cgroup_root_why_not(root), "other processes"), "%s",
              cgroup_root_why_not(root));
    cgroup_root_free(root);
}

Test(cgroup, what_systemd_has_not_delegated_is_not_touched)
{
    (void)machine("", "");
    put(AT_FDCWD, at("systemd"), "");
    expect_no_root("Delegate=yes");
    cr_expect_eq(access(part(""), F_OK), -1);
}

Test(cgroup, a_threaded_group_is_no_place_for_commands)
{
    cr_assert(mkdir(part(""), 0755) == 0 && mkdir(part("commands"), 0755) == 0);
    put(AT_FDCWD, part("commands/cgroup.type"), "domain invalid\n");
    expect_no_root("threaded");
}

Test(cgroup, a_group_that_is_not_there_is_said_with_its_path)
{
    struct err err = { 0 };
    struct cgroup_root *root;
    cr_assert_eq(
        cgroup_root_new(loop, machine("0::/missing\n", MOUNT), "/run/x.sock", false, &root, &err),
        -1);
    cr_expect(strstr(err.text, at("fs/missing")), "%s", err.text);
}

Test(cgroup, after_a_re_exec_the_same_runner_finds_the_same_part)
{
    char called[CGROUP_NAME_MAX], self[128];
    struct err err = { 0 };
    struct cgroup_root *root;
    cgroup_part_name("/run/x.sock", called);
    (void)snprintf(self, sizeof(self), "0::/own/%s/runner\n", called);
    cr_assert_eq(cgroup_root_new(loop, machine(self, MOUNT), "/run/x.sock", false, &root, &err), 0,
                 "%s", err.text);
    cr_expect_eq(access(part("commands"), F_OK), 0);
    cgroup_root_free(root);
}

/* Groups of commands. */

static struct cgroup *open_command(struct cgroup_root *root)
{
    struct err err = { 0 };
    struct command_id id;
    struct cgroup *cgroup;
    cr_assert_eq(command_id_parse(ID, &id, &err), 0, "%s", err.text);
    cr_assert_eq(cgroup_new(root, &id, &cgroup, &err), 0, "%s", err.text);
    return cgroup;
}

Test(cgroup, limits_are_written_as_the_kernel_wants_them)
{
    struct err err = { 0 };
    struct cgroup_root *root = open_root();
    struct cgroup *cgroup = open_command(root);
    cr_assert_eq(cgroup_set_limit(cgroup, TREE_MEMORY, 268435456, &err), 0, "%s", err.text);
    cr_assert_eq(cgroup_set_limit(cgroup, TREE_CPU, 1500, &err), 0, "%s", err.text);
    cr_assert_eq(cgroup_set_limit(cgroup, TREE_PIDS, 32, &err), 0, "%s", err.text);
    /* An ordinary file keeps the tail of what was longer. */
    expect_text(part("commands/" ID "/memory.max"), "268435456");
    expect_text(part("commands/" ID "/cpu.max"), "150000 100000");
    expect_text(part("commands/" ID "/memory.oom.group"), "1ax\n");
    expect_text(part("commands/" ID "/memory.swap.max"), "0ax\n");
    expect_text(part("commands/" ID "/pids.max"), "32x\n");
    cgroup_free(cgroup, false);
    cr_expect_eq(access(part("commands/" ID), F_OK), -1);
    cgroup_root_free(root);
}

Test(cgroup, a_limit_that_the_kernel_refuses_is_named)
{
    struct err err = { 0 };
    struct cgroup_root *root = open_root();
    struct cgroup *cgroup = open_command(root);
    cr_assert_eq(unlink(part("commands/" ID "/pids.max")), 0);
    cr_assert_eq(cgroup_set_limit(cgroup, TREE_PIDS, 32, &err), -1);
    cr_expect_eq(err.sys_errno, ENOENT);
    cr_expect(strstr(err.text, "\"pids\""), "%s", err.text);
    cgroup_free(cgroup, false);
    cgroup_root_free(root);
}

Test(cgroup, what_it_cost_is_read_at_the_end)
{
    struct cgroup_root *root = open_root();
    struct cgroup *cgroup = open_command(root);
    struct tree_usage usage = { 0 };
    cgroup_usage(cgroup, &usage);
    cr_expect(usage.peak_memory_bytes == 0 && !usage.oom_killed);
    put(cgroup_fd(cgroup), "memory.peak", "12345678\n");
    put(cgroup_fd(cgroup), "memory.events", "low 0\nhigh 3\nmax 9\noom 1\noom_kill 0\n");
    cgroup_usage(cgroup, &usage);
    cr_expect_eq(usage.peak_memory_bytes, 12345678u);
    cr_expect_not(usage.oom_killed);
    put(cgroup_fd(cgroup), "memory.events", "oom 2\noom_kill 1\noom_group_kill 1\n");
    cgroup_usage(cgroup, &usage);
    cr_expect(usage.oom_killed);
    cgroup_free(cgroup, false);
    cgroup_root_free(root);
}

/* An earlier life of the runner. */

static void leave_populated(bool kept)
{
    struct cgroup_root *root = open_root();
    struct cgroup *cgroup = open_command(root);
    put(cgroup_fd(cgroup), "cgroup.events", "populated 1\n");
    cgroup_free(cgroup, kept);
    cgroup_root_free(root);
    cr_assert_eq(access(part("commands/" ID), F_OK), 0, "a group with a process was removed");
}

Test(cgroup, a_command_of_an_earlier_life_is_ended)
{
    leave_populated(false);
    cgroup_root_free(open_root());
    expect_text(part("commands/" ID "/cgroup.kill"), "1");
}

Test(cgroup, an_empty_group_of_an_earlier_life_is_removed)
{
    leave_populated(false);
    put(AT_FDCWD, part("commands/" ID "/cgroup.events"), "populated 0\n");
    cgroup_root_free(open_root());
    cr_expect_eq(access(part(""), F_OK), -1);
}

Test(cgroup, a_directory_that_is_no_command_of_ours_is_left_alone)
{
    struct cgroup_root *root = open_root();
    cr_assert_eq(mkdir(part("commands/somebody-elses"), 0755), 0);
    cr_assert_eq(mkdir(part("commands/somebody-elses/x"), 0755), 0);
    put(AT_FDCWD, part("commands/somebody-elses/cgroup.events"), "populated 1\n");
    put(AT_FDCWD, part("commands/somebody-elses/cgroup.kill"), "");
    cgroup_root_free(root);
    cgroup_root_free(open_root());
    expect_text(part("commands/somebody-elses/cgroup.kill"), "");
}

Test(cgroup, two_sockets_are_two_parts)
{
    char a[CGROUP_NAME_MAX], b[CGROUP_NAME_MAX];
    cgroup_part_name("/run/a.sock", a);
    cgroup_part_name("/run/b.sock", b);
    cr_expect_str_neq(a, b);
    cr_expect_null(strchr(a, '/'));
}

/* The same life in another program. */

static bool is_ours(const void *userdata, const struct command_id *id)
{
    (void)userdata;
    return strcmp(id->text, ID) == 0;
}

static struct cgroup_root *open_again(void)
{
    struct err err = { 0 };
    struct cgroup_root *root;
    char called[CGROUP_NAME_MAX], self[128];
    cgroup_part_name("/run/x.sock", called);
    (void)snprintf(self, sizeof(self), "0::/own/%s/runner\n", called);
    cr_assert_eq(cgroup_root_new(loop, machine(self, MOUNT), "/run/x.sock", true, &root, &err), 0,
                 "%s", err.text);
    return root;
}

static void make_group(const char *id, const char *events)
{
    char name[128];
    (void)snprintf(name, sizeof(name), "commands/%s", id);
    if (mkdir(part(name), 0755) < 0)
        cr_assert_eq(errno, EEXIST);
    CLEANUP_FD int group = open(part(name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    populate(group, "");
    put(group, "cgroup.events", events);
}

Test(cgroup, a_program_that_goes_on_ends_nobody_and_leaves_as_its_predecessor_would_have)
{
    struct err err = { 0 };
    struct command_id id;
    struct cgroup *adopted;
    struct cgroup_root *root = open_root();
    unsigned handed_on = cgroup_root_handed_on(root);
    cr_assert_eq(handed_on, ALL);
    make_group(ID, "populated 1\n");
    make_group(LINGERING, "populated 1\n");
    int fd = open(part("commands/" ID), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert(fd >= 0 && command_id_parse(ID, &id, &err) == 0);
    cgroup_root_free(root); /* it stays, because somebody lives in it */
    expect_text(at("fs/own/cgroup.subtree_control"), "memory cpu pids ");
    make_group(EMPTY, "populated 0\n");

    root = open_again();
    cr_assert_eq(cgroup_adopt(root, &id, fd, &adopted, &err), 0, "%s", err.text);
    make_group(ID, "populated 0\n"); /* and its leader is not reaped yet */
    cgroup_root_go_on(root, handed_on, is_ours, NULL);
    expect_text(part("commands/" ID "/cgroup.kill"), "");
    expect_text(part("commands/" LINGERING "/cgroup.kill"), "");
    cr_expect_eq(access(part("commands/" EMPTY), F_OK), -1);
    cgroup_free(adopted, false);
    cr_expect_eq(access(part("commands/" ID), F_OK), -1);
    make_group(LINGERING, "populated 0\n");
    cgroup_root_free(root);
    expect_text(at("fs/own/cgroup.subtree_control"), "");
    cr_expect_eq(access(part(""), F_OK), -1, "our part was left behind");
}

Test(cgroup, one_that_makes_no_groups_any_more_removes_those_it_was_given)
{
    struct err err = { 0 };
    struct command_id id;
    struct cgroup *adopted;
    struct cgroup_root *root = open_root();
    make_group(ID, "populated 1\n");
    int fd = open(part("commands/" ID), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert(fd >= 0 && command_id_parse(ID, &id, &err) == 0);
    cgroup_root_free(root);
    cr_assert_eq(cgroup_adopt(NULL, &id, fd, &adopted, &err), 0, "%s", err.text);
    make_group(ID, "populated 0\n");
    cgroup_free(adopted, false);
    cr_expect_eq(access(part("commands/" ID), F_OK), -1);
}
