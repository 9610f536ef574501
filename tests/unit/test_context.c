/* Contexts on disk: what is written is read back, names cannot leave the directory, and which
 * endpoint and identity win. Every case has a home of its own. */
#include "cli/connect.h"
#include "common/file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static char home[] = "/tmp/test-context-XXXXXX";
static struct err err;

#define OK(call)       cr_assert_eq((call), 0, "%s", err.text)
#define FAILS(call, e) cr_assert((call) == -1 && err.code == (e), "%d: %s", err.code, err.text)
#define CONTAINS(text, part)                                                                       \
    cr_assert(strstr((text), (part)), "\"%s\" lacks \"%s\"", (text), (part))

static void set_up(void)
{
    static const char *const variables[] = { "SANDSTORM_ENDPOINT", "SANDSTORM_IDENTITY",
                                             "SANDSTORM_CONTEXT", "XDG_CONFIG_HOME" };
    cr_assert(mkdtemp(home));
    (void)umask(0);
    for (size_t i = 0; i < ELEMENTS(variables); i++)
        (void)unsetenv(variables[i]);
    cr_assert_eq(setenv("HOME", home, 1), 0);
}

static void tear_down(void)
{
    char command[64];
    (void)snprintf(command, sizeof(command), "rm -rf %s", home);
    cr_assert_eq(system(command), 0);
}

/* cppcheck-suppress unknownMacro */
TestSuite(context, .init = set_up, .fini = tear_down, .timeout = 30);

static void save(const char *name, const char *endpoint)
{
    CLEANUP_CONTEXT struct context context = { 0 };
    OK(context_make(name, endpoint, NULL, &context, &err));
    OK(context_save(&context, &err));
}

static unsigned mode_of(const char *below)
{
    char path[256];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/.config/sandstorm/%s", home, below);
    cr_assert_eq(stat(path, &st), 0, "%s", path);
    return st.st_mode & 07777;
}

static void put(const char *below, const char *text)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/.config/sandstorm/%s", home, below);
    OK(file_write_atomic(path, text, strlen(text), 0600, &err));
}

Test(context, what_is_saved_is_loaded_again)
{
    CLEANUP_CONTEXT struct context made = { 0 }, loaded = { 0 };
    OK(context_make("staging", "[::1]:5000", "front.example.com:443", &made, &err));
    OK(context_save(&made, &err));
    OK(context_load("staging", &loaded, &err));
    cr_assert_str_eq(loaded.name, "staging");
    cr_assert_str_eq(loaded.endpoint, "[::1]:5000");
    cr_assert_str_eq(loaded.enroll_endpoint, "front.example.com:443");
    cr_assert_str_eq(loaded.identity_dir, made.identity_dir);
    CONTAINS(loaded.identity_dir, "/.config/sandstorm/contexts/staging/identity");
    cr_assert_eq(mode_of("contexts/staging/context.yaml"), 0600u);
    cr_assert_eq(mode_of("current"), 0600u);
    cr_assert_eq(mode_of("contexts/staging"), 0700u);
    cr_assert_eq(mode_of(""), 0700u);
}

Test(context, the_last_login_is_the_current_one_until_another_is_chosen)
{
    CLEANUP_FREE char *none = NULL, *first = NULL, *second = NULL;
    OK(context_current(&none, &err));
    cr_assert_null(none);
    save("one", "one.example.com:5000");
    save("two", "two.example.com:5000");
    OK(context_current(&first, &err));
    cr_assert_str_eq(first, "two");
    OK(context_use("one", &err));
    OK(context_current(&second, &err));
    cr_assert_str_eq(second, "one");
    FAILS(context_use("three", &err), ERR_NOT_FOUND);
    CONTAINS(err.text, "three");
}

static void collect(void *userdata, const char *name, bool current)
{
    (void)strcat(userdata, name);
    (void)strcat(userdata, current ? "* " : " ");
}

Test(context, the_list_is_sorted_marks_the_current_one_and_leaves_out_unfinished_logins)
{
    char text[256] = "";
    OK(context_list(collect, text, &err));
    cr_assert_str_eq(text, "");
    save("b", "b.example.com:5000");
    save("c", "c.example.com:5000");
    save("a", "a.example.com:5000");
    OK(context_use("b", &err));
    CLEANUP_CONTEXT struct context unfinished = { 0 };
    OK(context_make("d", "d.example.com:5000", NULL, &unfinished, &err));
    OK(context_create(&unfinished, &err));
    OK(context_list(collect, text, &err));
    cr_assert_str_eq(text, "a b* c ");
}

Test(context, names_that_could_leave_the_directory_are_refused)
{
    static const char *const names[] = { "",   ".",    "..",  "../x", "a/b", "/etc",
                                         ".x", "a\nb", "a b", "-x",   "x-" };
    for (size_t i = 0; i < ELEMENTS(names); i++) {
        struct context context = { 0 };
        FAILS(context_make(names[i], "localhost:5000", NULL, &context, &err), ERR_INVALID);
        FAILS(context_load(names[i], &context, &err), ERR_INVALID);
        FAILS(context_use(names[i], &err), ERR_INVALID);
    }
}

Test(context, the_default_name_is_the_host_and_always_a_name)
{
    static const char *const pairs[][2] = {
        { "orchestrator.example.com:5000", "orchestrator.example.com" },
        { "127.0.0.1:5000", "127.0.0.1" },
        { "[::1]:5000", "1" },
        { "[fe80::1%eth0]:5000", "fe80--1-eth0" },
        { "[::]:5000", "default" },
    };
    for (size_t i = 0; i < ELEMENTS(pairs); i++) {
        CLEANUP_CONTEXT struct context context = { 0 };
        OK(context_make(NULL, pairs[i][0], NULL, &context, &err));
        cr_assert_str_eq(context.name, pairs[i][1]);
    }
    char longest[300];
    CLEANUP_CONTEXT struct context context = { 0 };
    (void)snprintf(longest, sizeof(longest), "%0200d.example.com:5000", 1);
    OK(context_make(NULL, longest, NULL, &context, &err));
    cr_assert_eq(strlen(context.name), 63u);
}

Test(context, the_front_is_at_the_next_port)
{
    CLEANUP_FREE char *plain = NULL, *v6 = NULL, *none = NULL;
    OK(context_enroll_endpoint("host:5000", &plain, &err));
    cr_assert_str_eq(plain, "host:5001");
    OK(context_enroll_endpoint("[::1]:9", &v6, &err));
    cr_assert_str_eq(v6, "[::1]:10");
    FAILS(context_enroll_endpoint("host:65535", &none, &err), ERR_INVALID);
    FAILS(context_enroll_endpoint("host", &none, &err), ERR_INVALID);
}

Test(context, an_endpoint_cannot_write_yaml)
{
    static const char *const endpoints[] = { "a\"b:5000", "a b:5000", "a\nx: y:5000", "a#:1",
                                             "a\\:1" };
    for (size_t i = 0; i < ELEMENTS(endpoints); i++) {
        struct context context = { 0 };
        FAILS(context_make("x", endpoints[i], NULL, &context, &err), ERR_INVALID);
        FAILS(context_make("x", "good:1", endpoints[i], &context, &err), ERR_INVALID);
    }
}

Test(context, broken_files_are_named)
{
    struct context context = { 0 };
    save("one", "one.example.com:5000");
    put("contexts/one/context.yaml", "endpoint: one.example.com:5000\n");
    FAILS(context_load("one", &context, &err), ERR_INVALID);
    CONTAINS(err.text, "sandstorm login");
    put("contexts/one/context.yaml", "endpont: x\n");
    FAILS(context_load("one", &context, &err), ERR_INVALID);
    CONTAINS(err.text, "contexts/one/context.yaml:1");
    put("current", "../../../etc\n");
    CLEANUP_FREE char *name = NULL;
    FAILS(context_current(&name, &err), ERR_INVALID);
}

Test(context, xdg_config_home_is_used_when_it_is_absolute)
{
    char path[64];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/elsewhere", home);
    cr_assert_eq(setenv("XDG_CONFIG_HOME", path, 1), 0);
    save("one", "one.example.com:5000");
    (void)snprintf(path, sizeof(path), "%s/elsewhere/sandstorm/current", home);
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(setenv("XDG_CONFIG_HOME", "relative", 1), 0);
    struct context context = { 0 };
    FAILS(context_load("one", &context, &err), ERR_NOT_FOUND);
}

/* Who wins. */

static void expect_target(const struct cli_common *common, const char *endpoint,
                          const char *identity, bool own)
{
    CLEANUP_TARGET struct cli_target target = { 0 };
    OK(cli_target_find(common, &target, &err));
    cr_assert_str_eq(target.endpoint, endpoint);
    CONTAINS(target.identity, identity);
    cr_assert_eq(target.own_identity, own);
}

Test(context, options_win_over_the_environment_over_the_context_over_the_default)
{
    struct cli_common common = { 0 };
    struct cli_target none = { 0 };
    FAILS(cli_target_find(&common, &none, &err), ERR_UNAUTHENTICATED);
    CONTAINS(err.text, "sandstorm login");

    common.identity = "/option";
    expect_target(&common, CLI_ENDPOINT, "/option", false);
    common.identity = NULL;

    save("two", "two.example.com:5000");
    save("one", "one.example.com:5000");
    expect_target(&common, "one.example.com:5000", "contexts/one/identity", true);

    cr_assert_eq(setenv("SANDSTORM_CONTEXT", "two", 1), 0);
    expect_target(&common, "two.example.com:5000", "contexts/two/identity", true);

    cr_assert_eq(setenv("SANDSTORM_ENDPOINT", "env:1", 1), 0);
    expect_target(&common, "env:1", "contexts/two/identity", true);
    cr_assert_eq(setenv("SANDSTORM_IDENTITY", "/env", 1), 0);
    expect_target(&common, "env:1", "/env", false);

    common.context = "one";
    expect_target(&common, "one.example.com:5000", "contexts/one/identity", true);
    common.endpoint = "option:1";
    expect_target(&common, "option:1", "contexts/one/identity", true);
    common.identity = "/option";
    expect_target(&common, "option:1", "/option", false);
}

Test(context, a_context_that_is_not_needed_need_not_be_in_order)
{
    struct cli_common common = { .endpoint = "option:1", .identity = "/option" };
    save("one", "one.example.com:5000");
    put("current", "broken name\n");
    expect_target(&common, "option:1", "/option", false);
}

Test(context, the_front_is_told_where_it_is_not_at_the_next_port_of_the_same_endpoint)
{
    CLEANUP_CONTEXT struct context context = { 0 };
    OK(context_make("one", "one.example.com:5000", "front.example.com:443", &context, &err));
    OK(context_save(&context, &err));
    struct cli_common common = { 0 };
    CLEANUP_TARGET struct cli_target own = { 0 }, other = { 0 };
    CLEANUP_FREE char *own_front = NULL, *other_front = NULL;
    OK(cli_target_find(&common, &own, &err));
    OK(cli_target_front(&own, &own_front, &err));
    cr_assert_str_eq(own_front, " --enroll-endpoint front.example.com:443");
    common.endpoint = "two.example.com:5000";
    OK(cli_target_find(&common, &other, &err));
    OK(cli_target_front(&other, &other_front, &err));
    cr_assert_str_eq(other_front, "");
}
