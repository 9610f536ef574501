/* Settings: which files are accepted, what each refusal says and for which line, and who wins
 * among defaults, file, drop-ins and environment. */
#include "common/config.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

struct settings {
    char *endpoint, *token;
    bool drain;
    uint64_t agents, heartbeat;
};

#define AT(field) offsetof(struct settings, field)

static const struct config_key keys[] = {
    { "orchestrator_endpoint", "TEST_ENDPOINT", CONFIG_STRING, AT(endpoint), "localhost:5000", 0, 0,
      "" },
    { "join_token", NULL, CONFIG_STRING, AT(token), NULL, 0, 0, "" },
    { "drain", "TEST_DRAIN", CONFIG_BOOL, AT(drain), "yes", 0, 0, "" },
    { "agents_max", "TEST_AGENTS", CONFIG_UINT, AT(agents), "10", 1, 1000, "" },
    { "heartbeat", "TEST_HEARTBEAT", CONFIG_DURATION, AT(heartbeat), "30s", 1000000, 0, "" },
    { 0 },
};

static struct settings values;
static struct err err;
static char directory[] = "/tmp/test-config-XXXXXX";
static char path[64];

static void set_up(void)
{
    cr_assert(mkdtemp(directory));
    (void)snprintf(path, sizeof(path), "%s/agent.yaml", directory);
}

static void tear_down(void)
{
    config_free(keys, &values);
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf %s", directory);
    cr_assert_eq(system(command), 0);
}

/* cppcheck-suppress unknownMacro */
TestSuite(config, .init = set_up, .fini = tear_down, .timeout = 30);

/* `name` below the directory of this test. */
static void put(const char *name, const char *text)
{
    char where[256];
    (void)snprintf(where, sizeof(where), "%s/%s", directory, name);
    FILE *out = fopen(where, "we");
    cr_assert(out);
    cr_assert(fputs(text, out) >= 0);
    cr_assert_eq(fclose(out), 0);
}

static void make_drop_ins(void)
{
    char where[80];
    (void)snprintf(where, sizeof(where), "%s.d", path);
    cr_assert_eq(mkdir(where, 0755), 0);
}

static int parse(const char *text)
{
    return config_parse(keys, "agent.yaml", text, strlen(text), &values, &err);
}

static void expect_good(const char *text)
{
    cr_assert_eq(parse(text), 0, "%s", err.text);
}

static void expect_bad(const char *text, const char *wanted)
{
    cr_assert_eq(parse(text), -1, "accepted: %s", text);
    cr_assert_eq(err.code, ERR_INVALID);
    cr_assert_str_eq(err.text, wanted);
}

static void load(void)
{
    cr_assert_eq(config_load(keys, path, false, &values, &err), 0, "%s", err.text);
}

static void expect_load_failure(const char *part)
{
    cr_assert_eq(config_load(keys, path, true, &values, &err), -1);
    cr_assert(strstr(err.text, part), "%s", err.text);
}

Test(config, every_kind_is_read)
{
    expect_good("# comment\n"
                "orchestrator_endpoint: example.org:5000\n"
                "join_token: 'a b'\n"
                "drain: true\n"
                "agents_max: 7\n"
                "heartbeat: 500s\n");
    cr_assert_str_eq(values.endpoint, "example.org:5000");
    cr_assert_str_eq(values.token, "a b");
    cr_assert(values.drain);
    cr_assert_eq(values.agents, 7);
    cr_assert_eq(values.heartbeat, 500000000);
}

Test(config, all_spellings_of_a_mapping_are_one)
{
    expect_good("---\n{ agents_max: \"7\", join_token: \"\\u00e9\" }\n...\n");
    cr_assert_eq(values.agents, 7);
    cr_assert_str_eq(values.token, "\xc3\xa9");
    expect_good("? agents_max\n: 8\n");
    cr_assert_eq(values.agents, 8);
    expect_good("\xef\xbb\xbf"
                "agents_max: 9\ndrain: no\n");
    cr_assert_eq(values.agents, 9);
    expect_good("\xef\xbb\xbf");
    expect_good("join_token: |\n  line\n");
    cr_assert_str_eq(values.token, "line\n");
}

Test(config, booleans_have_six_spellings)
{
    const char *names[] = { "false", "true", "no", "yes", "off", "on" };
    for (size_t i = 0; i < ELEMENTS(names); i++) {
        values.drain = i % 2 == 0;
        cr_assert_eq(config_set(keys, "drain", names[i], &values, &err), 0);
        cr_assert_eq(values.drain, i % 2 == 1);
    }
    cr_assert_eq(config_set(keys, "drain", "True", &values, &err), -1);
    cr_assert_str_eq(err.text, "drain: \"True\" is neither true nor false; write one of them");
}

Test(config, a_file_without_settings_is_good)
{
    expect_good("");
    expect_good("# nothing\n\n");
    expect_good("---\n# nothing\n");
    expect_good("{}\n");
    cr_assert_eq(config_parse(keys, "x", NULL, 0, &values, &err), 0);
}

Test(config, an_unknown_key_names_line_and_near_key)
{
    expect_bad("drain: no\n\norchestrator_endpont: x\n",
               "agent.yaml:3: unknown key \"orchestrator_endpont\"; did you mean "
               "\"orchestrator_endpoint\"?");
    expect_bad("zebra: x\n", "agent.yaml:1: unknown key \"zebra\"; remove it");
    expect_bad("<<: x\n", "agent.yaml:1: unknown key \"<<\"; remove it");
}

Test(config, a_duplicate_names_both_lines)
{
    expect_bad("drain: no\njoin_token: x\ndrain: no\n",
               "agent.yaml:3: duplicate key \"drain\", first set in line 1; remove one");
}

Test(config, only_single_values_are_values)
{
    const char *list = "agent.yaml:2: drain: must be a single value, not a list or a mapping";
    expect_bad("drain:\n  - yes\n", list);
    expect_bad("drain:\n  x: yes\n", list);
    expect_bad("drain:\n  [yes]\n", list);
    expect_bad("{ [a]: b }\n", "agent.yaml:1: a key must be a single value; write \"key: value\"");
    const char *top = "agent.yaml:1: the file must consist of \"key: value\" lines, no more";
    expect_bad("- drain\n", top);
    expect_bad("drain\n", top);
    expect_bad("''\n", top);
    expect_bad("&a {}\n", top);
    expect_bad("!!map {}\n", top);
}

Test(config, anchors_aliases_and_tags_are_refused)
{
    const char *text =
        "agent.yaml:1: anchors, aliases and tags are not supported; write the value itself";
    expect_bad("join_token: &a x\n", text);
    expect_bad("join_token: *a\n", text);
    expect_bad("*a : x\n", text);
    expect_bad("&a join_token: x\n", text);
    expect_bad("agents_max: !!int 7\n", text);
    expect_bad("%TAG ! tag:x,2000:\n---\njoin_token: x\n",
               "agent.yaml:1: %TAG is not supported; remove it");
}

Test(config, a_second_document_is_refused)
{
    expect_bad("drain: no\n---\ndrain: no\n",
               "agent.yaml:2: only one document is allowed; remove this one");
}

Test(config, broken_yaml_names_its_line)
{
    const char *bad[] = { "drain: no\n\t: x\n", "drain: no\n'x\n", "drain: no\n\xff\n",
                          "drain: no\n}\n", "drain: no\n\x01\n" };
    for (size_t i = 0; i < ELEMENTS(bad); i++) {
        cr_assert_eq(parse(bad[i]), -1);
        cr_assert(strncmp(err.text, "agent.yaml:2: not valid YAML: ", 30) == 0 ||
                      strncmp(err.text, "agent.yaml:3: not valid YAML: ", 30) == 0,
                  "%zu: %s", i, err.text);
    }
    const char utf16[] = "\xff\xfe"
                         "d\0:\0 \0x\0";
    cr_assert_eq(config_parse(keys, "agent.yaml", utf16, sizeof(utf16), &values, &err), -1);
}

Test(config, values_are_checked_with_their_line)
{
    expect_bad("\nagents_max: many\n", "agent.yaml:2: agents_max: \"many\" is not a number; write "
                                       "it in decimal digits");
    expect_bad("agents_max: 0\n", "agent.yaml:1: agents_max: 0 is too small; give at least 1");
    expect_bad("agents_max: 1001\n",
               "agent.yaml:1: agents_max: 1001 is too large; give at most 1000");
    expect_bad("heartbeat:\n  30\n", "agent.yaml:2: heartbeat: \"30\" is not a duration; write it "
                                     "like 500ms, 30s, 15m, 12h or 7d");
    expect_bad("heartbeat: 999ms\n",
               "agent.yaml:1: heartbeat: 999ms is too small; give at least 1s");
    expect_bad("heartbeat:\n", "agent.yaml:1: heartbeat: is empty; give it a value or remove it");
    expect_bad("join_token: \"a\\0b\"\n", "agent.yaml:1: contains a NUL character; remove it");
    expect_bad("\"drain\\0\": no\n", "agent.yaml:1: contains a NUL character; remove it");
}

Test(config, an_empty_string_is_a_string)
{
    expect_good("join_token:\norchestrator_endpoint: ''\n");
    cr_assert_str_eq(values.token, "");
    cr_assert_str_eq(values.endpoint, "");
}

Test(config, a_value_has_a_bound)
{
    static char text[CONFIG_VALUE_MAX + 64];
    (void)snprintf(text, sizeof(text), "join_token: %0*d", (int)CONFIG_VALUE_MAX, 0);
    expect_good(text);
    cr_assert_eq(strlen(values.token), CONFIG_VALUE_MAX);
    (void)snprintf(text, sizeof(text), "join_token: %0*d", (int)CONFIG_VALUE_MAX + 1, 0);
    expect_bad(text, "agent.yaml:1: join_token: longer than 1024 bytes; shorten it");
}

Test(config, a_file_has_a_bound)
{
    static char text[CONFIG_FILE_MAX + 2];
    memset(text, '#', CONFIG_FILE_MAX + 1);
    cr_assert_eq(config_parse(keys, "x", text, CONFIG_FILE_MAX, &values, &err), 0);
    cr_assert_eq(config_parse(keys, "x", text, CONFIG_FILE_MAX + 1, &values, &err), -1);
    cr_assert_str_eq(err.text, "x: larger than 65536 bytes; shorten it");
    put("agent.yaml", text);
    expect_load_failure("agent.yaml is larger than 65536 bytes; shorten it");
}

Test(config, freeing_twice_or_nothing_is_harmless)
{
    expect_good("join_token: x\nagents_max: 3\n");
    config_free(keys, &values);
    cr_assert_null(values.token);
    cr_assert_eq(values.agents, 0);
    config_free(keys, &values);
    config_free(keys, NULL);
}

Test(config, defaults_hold_without_any_file)
{
    load();
    cr_assert_str_eq(values.endpoint, "localhost:5000");
    cr_assert_null(values.token);
    cr_assert(values.drain);
    cr_assert_eq(values.agents, 10);
    cr_assert_eq(values.heartbeat, 30000000);
}

Test(config, a_second_load_forgets_the_first)
{
    put("agent.yaml", "join_token: x\nagents_max: 3\n");
    load();
    put("agent.yaml", "");
    load();
    cr_assert_null(values.token);
    cr_assert_eq(values.agents, 10);
}

Test(config, a_missing_file_matters_only_when_required)
{
    load();
    expect_load_failure("agent.yaml: No such file or directory");
    cr_assert_eq(err.code, ERR_NOT_FOUND);
    cr_assert_eq(mkdir(path, 0700), 0);
    cr_assert_eq(config_load(keys, path, false, &values, &err), -1, "a directory is no file");
    cr_assert_eq(config_load(keys, path, false, &values, NULL), -1, "no err wanted");
}

Test(config, later_sources_win)
{
    put("agent.yaml", "agents_max: 1\nheartbeat: 1s\njoin_token: file\n");
    load();
    cr_assert_eq(values.agents, 1);
    make_drop_ins();
    put("agent.yaml.d/10-first.yaml", "agents_max: 2\nheartbeat: 2s\n");
    put("agent.yaml.d/20-second.yaml", "agents_max: 3\n");
    load();
    cr_assert_eq(values.agents, 3);
    cr_assert_eq(values.heartbeat, 2000000);
    cr_assert_str_eq(values.token, "file");
    (void)setenv("TEST_AGENTS", "4", 1);
    load();
    cr_assert_eq(values.agents, 4);
}

Test(config, drop_ins_are_read_without_the_main_file)
{
    make_drop_ins();
    put("agent.yaml.d/a.yaml", "agents_max: 2\n");
    load();
    cr_assert_eq(values.agents, 2);
}

Test(config, drop_ins_follow_byte_order_in_any_locale)
{
    (void)setlocale(LC_ALL, "en_US.UTF-8");
    make_drop_ins();
    put("agent.yaml.d/a.yaml", "join_token: a\n");
    put("agent.yaml.d/B.yaml", "join_token: B\n");
    put("agent.yaml.d/10.yaml", "join_token: 10\n");
    put("agent.yaml.d/9.yaml", "join_token: 9\n");
    load();
    cr_assert_str_eq(values.token, "a");
}

Test(config, drop_ins_are_visible_yaml_files_only)
{
    make_drop_ins();
    put("agent.yaml.d/.hidden.yaml", "nonsense");
    put("agent.yaml.d/.yaml", "nonsense");
    put("agent.yaml.d/yaml", "nonsense");
    put("agent.yaml.d/a.yml", "nonsense");
    put("agent.yaml.d/a.yaml~", "nonsense");
    put("agent.yaml.d/a.yaml.rpmsave", "nonsense");
    load();
}

Test(config, a_bad_drop_in_is_named)
{
    make_drop_ins();
    put("agent.yaml", "drain: no\n");
    put("agent.yaml.d/x.yaml", "\nnonsense: 1\n");
    expect_load_failure("/agent.yaml.d/x.yaml:2: unknown key \"nonsense\"");
}

Test(config, drop_ins_have_a_bound)
{
    make_drop_ins();
    put("agent.yaml", "");
    for (unsigned i = 0; i <= CONFIG_FILES_MAX; i++) {
        char name[64];
        (void)snprintf(name, sizeof(name), "agent.yaml.d/%03u.yaml", i);
        put(name, i == CONFIG_FILES_MAX - 1 ? "agents_max: 9\n" : "agents_max: 8\n");
        if (i != CONFIG_FILES_MAX - 1)
            continue;
        load();
        cr_assert_eq(values.agents, 9);
    }
    expect_load_failure("agent.yaml.d holds 65 files; merge them into 64 or fewer");
}

Test(config, a_bad_variable_is_named)
{
    put("agent.yaml", "");
    (void)setenv("TEST_AGENTS", "many", 1);
    expect_load_failure("environment TEST_AGENTS: agents_max: \"many\" is not a number");
}

Test(config, an_empty_variable_is_an_empty_string_or_an_error)
{
    put("agent.yaml", "");
    (void)setenv("TEST_ENDPOINT", "", 1);
    load();
    cr_assert_str_eq(values.endpoint, "");
    (void)setenv("TEST_DRAIN", "", 1);
    expect_load_failure("environment TEST_DRAIN: drain: is empty");
}

Test(config, a_bad_default_is_our_bug_and_said_so)
{
    const struct config_key broken[] = {
        { "drain", NULL, CONFIG_BOOL, AT(drain), "perhaps", 0, 0, "" },
        { 0 },
    };
    cr_assert_eq(config_load(broken, path, false, &values, &err), -1);
    cr_assert(strstr(err.text, "report this bug"), "%s", err.text);
}
