/* Which machine is this: what is read, what means nothing, and when two are the same. */
#include "agent/machine.h"
#include "common/file.h"

#include <criterion/criterion.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define OK(call) cr_assert_eq((call), 0, "%s", err.text)

static char root[] = "/tmp/test-machine-XXXXXX";
static struct err err;

static void put(const char *path, const char *text)
{
    char full[256];
    (void)snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        (void)mkdir(full, 0700);
        *slash = '/';
    }
    OK(file_write_atomic(full, text, strlen(text), 0600, &err));
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void set_up(void)
{
    cr_assert(mkdtemp(root));
}

static void tear_down(void)
{
    (void)nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* cppcheck-suppress unknownMacro */
TestSuite(machine, .init = set_up, .fini = tear_down, .timeout = 30);

static struct machine read_root(void)
{
    struct machine machine;
    (void)memset(&machine, 'z', sizeof(machine));
    machine_read(root, &machine);
    return machine;
}

Test(machine, all_three_are_read_and_trimmed)
{
    put("/etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    put("/sys/class/dmi/id/product_uuid", "4c4c4544-0042-3510-8052-b4c04f333432\n");
    put("/var/lib/cloud/data/instance-id", "  i-0abc \r\n");
    struct machine got = read_root();
    cr_expect_str_eq(got.smbios_uuid, "4c4c4544-0042-3510-8052-b4c04f333432");
    cr_expect_str_eq(got.instance_id, "i-0abc");
    cr_expect_eq(strlen(got.machine_id), 32);
    cr_expect_null(strstr(got.machine_id, "0123456789abcdef"), "the id itself must not be kept");
    /* HMAC-SHA256, computed with another program. */
    cr_expect_str_eq(got.machine_id, "a5b60bdfd3f54624b47eefc1943a28f7");
}

Test(machine, what_is_not_there_is_empty)
{
    struct machine got = read_root();
    cr_expect_str_eq(got.machine_id, "");
    cr_expect_str_eq(got.smbios_uuid, "");
    cr_expect_str_eq(got.instance_id, "");
}

Test(machine, values_that_mean_nothing_are_ignored)
{
    static const struct {
        const char *path, *text;
    } rows[] = {
        { "/etc/machine-id", "" },
        { "/etc/machine-id", "uninitialized\n" },
        { "/etc/machine-id", "00000000000000000000000000000000\n" },
        { "/etc/machine-id", "0123456789abcdef0123456789abcde\n" },
        { "/sys/class/dmi/id/product_uuid", "00000000-0000-0000-0000-000000000000\n" },
        { "/sys/class/dmi/id/product_uuid", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF\n" },
        { "/sys/class/dmi/id/product_uuid", "03000200-0400-0500-0006-000700080009\n" },
        { "/sys/class/dmi/id/product_uuid", "Not Settable\n" },
        { "/var/lib/cloud/data/instance-id", "iid-datasource-none\n" },
        { "/var/lib/cloud/data/instance-id", "i-\x01\n" },
        { "/var/lib/cloud/data/instance-id", "i-\xc3\xa4\n" },
        { "/var/lib/cloud/data/instance-id", "two\nlines\n" },
        { "/var/lib/cloud/data/instance-id", "" },
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        put(rows[i].path, rows[i].text);
        struct machine got = read_root();
        cr_expect_str_eq(got.machine_id, "", "%s", rows[i].text);
        cr_expect_str_eq(got.smbios_uuid, "", "%s", rows[i].text);
        cr_expect_str_eq(got.instance_id, "", "%s", rows[i].text);
    }
}

Test(machine, a_weak_instance_id_is_one)
{
    put("/var/lib/cloud/data/instance-id", "nocloud\n");
    cr_expect_str_eq(read_root().instance_id, "nocloud");
}

Test(machine, a_text_may_be_as_long_as_the_bound_and_no_longer)
{
    char text[MACHINE_TEXT_MAX + 1];
    (void)memset(text, 'x', sizeof(text));
    text[MACHINE_TEXT_MAX] = '\0';
    put("/var/lib/cloud/data/instance-id", text);
    cr_expect_str_eq(read_root().instance_id, "");
    text[MACHINE_TEXT_MAX - 1] = '\0';
    put("/var/lib/cloud/data/instance-id", text);
    cr_expect_str_eq(read_root().instance_id, text);
}

/* systemd's function reads this machine's own id; ours, a copy of the file. */
Test(machine, both_ways_to_the_machine_id_agree)
{
    CLEANUP_FREE char *text = NULL;
    size_t size;
    struct machine mine, copy;
    machine_read("", &mine);
    if (!mine.machine_id[0])
        cr_skip_test("this machine has no machine id");
    OK(file_read("/etc/machine-id", 4096, &text, &size, &err));
    put("/etc/machine-id", text);
    copy = read_root();
    cr_expect_str_eq(copy.machine_id, mine.machine_id);
}

Test(machine, json_and_back_is_the_same)
{
    const struct machine rows[] = { { "", "", "" },
                                    { "a", "b", "c" },
                                    { "", "quote\" and back\\slash", "" } };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        CLEANUP_FREE char *text = NULL;
        struct machine back;
        OK(machine_to_json(&rows[i], &text, &err));
        OK(machine_from_json(text, strlen(text), &back, &err));
        cr_expect_eq(memcmp(&back, &rows[i], sizeof(back)), 0, "%s", text);
    }
}

Test(machine, other_json_is_refused)
{
    char longer[MACHINE_TEXT_MAX + 64];
    (void)snprintf(longer, sizeof(longer), "{\"version\":1,\"machine_id\":\"%0*d\"}",
                   (int)MACHINE_TEXT_MAX, 0);
    const char *const rows[] = { "",
                                 "{",
                                 "[]",
                                 "{}",
                                 "{\"version\":2}",
                                 "{\"version\":\"1\"}",
                                 "{\"version\":1,\"machine_id\":7}",
                                 "{\"version\":1,\"machine_id\":null}",
                                 "{\"version\":1,\"version\":1}",
                                 "{\"version\":1,\"instance_id\":\"\\u0000\"}",
                                 longer };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        struct machine got = { .machine_id = "kept" };
        cr_expect_eq(machine_from_json(rows[i], strlen(rows[i]), &got, &err), -1, "%s", rows[i]);
        cr_expect_eq(err.code, ERR_INVALID);
        cr_expect_str_eq(got.machine_id, "kept");
    }
}

Test(machine, one_that_differs_makes_another_machine_and_is_named)
{
    const struct machine a = { "m", "u", "i" };
    static const struct {
        struct machine b;
        const char *what; /* NULL: the same */
    } rows[] = {
        { { "m", "u", "i" }, NULL },
        { { "", "", "" }, NULL },
        { { "m", "", "" }, NULL },
        { { "", "U", "" }, NULL },
        { { "x", "u", "i" }, "machine id" },
        { { "m", "x", "i" }, "firmware UUID" },
        { { "m", "u", "x" }, "cloud instance id" },
        { { "", "", "x" }, "cloud instance id" },
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++)
        for (unsigned turned = 0; turned < 2; turned++) {
            const char *what = NULL;
            bool same =
                turned ? machine_same(&rows[i].b, &a, &what) : machine_same(&a, &rows[i].b, &what);
            cr_expect_eq(same, rows[i].what == NULL, "row %zu", i);
            if (!same)
                cr_expect_str_eq(what, rows[i].what);
        }
}
