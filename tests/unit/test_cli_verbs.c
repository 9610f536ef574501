/* The built client as a person meets it, without an orchestrator: help and manual page of every
 * verb in the tree, near misses, wrong arguments, and the exit status of each. */
#include "cli/cli.h"
#include "tests/harness/proc.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define WORDS_MAX  40u
#define STATUS_BAD 2

static char home[] = "/tmp/test-cli-XXXXXX";

#define CONTAINS(text, part)                                                                       \
    cr_assert(strstr((text), (part)), "\"%s\" lacks \"%s\"", (text), (part))
#define LACKS(text, part) cr_assert(!strstr((text), (part)), "\"%s\" has \"%s\"", (text), (part))

static void set_up(void)
{
    cr_assert(mkdtemp(home));
}

static void tear_down(void)
{
    char command[64];
    (void)snprintf(command, sizeof(command), "rm -rf %s", home);
    cr_assert_eq(system(command), 0);
}

/* cppcheck-suppress unknownMacro */
TestSuite(cli_verbs, .init = set_up, .fini = tear_down, .timeout = 120);

static struct proc_result run_words(const char *const *words, const char *input)
{
    const char *argv[WORDS_MAX + 2] = { TEST_CLI };
    char variable[64];
    (void)snprintf(variable, sizeof(variable), "HOME=%s", home);
    const char *const env[] = { variable, "XDG_CONFIG_HOME=", NULL };
    for (unsigned i = 0; words[i]; i++)
        argv[i + 1] = words[i];
    const struct proc_spec spec = { .argv = argv, .env = env };
    struct proc_result result = { 0 };
    struct err err;
    cr_assert_eq(proc_run(&spec, input, strlen(input), PROC_DEADLINE_US, &result, &err), 0, "%s",
                 err.text);
    return result;
}
#define RUN(...) run_words((const char *[]){ __VA_ARGS__, NULL }, "")

/* "sandstorm token create" as words, without the first. */
static unsigned split(const char *program, char *copy, size_t size, const char *words[WORDS_MAX])
{
    unsigned count = 0;
    char *rest = NULL;
    (void)snprintf(copy, size, "%s", program);
    (void)strtok_r(copy, " ", &rest);
    for (char *word = strtok_r(NULL, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        words[count++] = word;
    return count;
}

static void for_each(const struct cli_verb *verb, void (*look)(const struct cli_verb *verb))
{
    look(verb);
    for (size_t i = 0; verb->verbs && verb->verbs[i]; i++)
        for_each(verb->verbs[i], look);
}

static void look_at_help(const struct cli_verb *verb)
{
    char copy[128];
    const char *words[WORDS_MAX] = { 0 };
    unsigned count = split(verb->page->program, copy, sizeof(copy), words);
    words[count] = "--help";
    CLEANUP_RESULT struct proc_result result = run_words(words, "");
    cr_assert_eq(result.status, 0, "%s", verb->page->program);
    cr_assert_eq(result.err_size, 0u, "%s", result.err);
    CONTAINS(result.out, verb->page->program);
    CONTAINS(result.out, verb->page->summary);
    CONTAINS(result.out, "\nExamples:\n");
    for (size_t i = 0; verb->verbs && verb->verbs[i]; i++)
        CONTAINS(result.out, verb->verbs[i]->name);
}

Test(cli_verbs, every_verb_has_help_with_examples)
{
    for_each(&cli_root, look_at_help);
}

static void look_at_man(const struct cli_verb *verb)
{
    char title[128], command[512], path[256];
    (void)snprintf(title, sizeof(title), "%s", verb->page->program);
    for (char *space = strchr(title, ' '); space; space = strchr(space, ' '))
        *space = '-';
    cr_assert_eq(cli_find_page(&cli_root, title), verb, "%s", title);
    const char *dash = strchr(title, '-');
    (void)snprintf(command, sizeof(command), "%s --man %s | scdoc > %s/page", TEST_CLI,
                   dash ? dash + 1 : "", home);
    cr_assert_eq(system(command), 0, "%s", command);
    (void)snprintf(command, sizeof(command), "grep -q '^.SH EXAMPLES' %s/page", home);
    cr_assert_eq(system(command), 0, "%s", title);
    /* What the build installs: the list in cli/CMakeLists.txt has it too. */
    (void)snprintf(path, sizeof(path), "%s/%s.1", TEST_MAN_DIR, title);
    cr_assert_eq(access(path, R_OK), 0, "%s is not built; add it to cli/CMakeLists.txt", path);
}

Test(cli_verbs, every_verb_has_a_manual_page)
{
    for_each(&cli_root, look_at_man);
}

static void look_at_group(const struct cli_verb *verb)
{
    char copy[128];
    const char *words[WORDS_MAX] = { 0 };
    if (!verb->verbs)
        return;
    unsigned count = split(verb->page->program, copy, sizeof(copy), words);
    CLEANUP_RESULT struct proc_result alone = run_words(words, "");
    cr_assert_eq(alone.status, STATUS_BAD);
    cr_assert_eq(alone.out_size, 0u);
    CONTAINS(alone.err, "Commands:");
    for (size_t i = 0; verb->verbs[i]; i++) {
        char wrong[64];
        (void)snprintf(wrong, sizeof(wrong), "%sx", verb->verbs[i]->name);
        words[count] = wrong;
        CLEANUP_RESULT struct proc_result missed = run_words(words, "");
        cr_assert_eq(missed.status, STATUS_BAD);
        cr_assert_eq(missed.out_size, 0u);
        CONTAINS(missed.err, "did you mean");
        CONTAINS(missed.err, verb->verbs[i]->name);
    }
}

Test(cli_verbs, a_group_alone_shows_its_verbs_and_a_near_miss_is_guessed)
{
    for_each(&cli_root, look_at_group);
}

static void look_at_words(const struct cli_verb *verb)
{
    char copy[128];
    const char *words[WORDS_MAX] = { 0 };
    if (!verb->act)
        return;
    unsigned count = split(verb->page->program, copy, sizeof(copy), words);
    if (verb->words_min > 0) {
        CLEANUP_RESULT struct proc_result missing = run_words(words, "");
        cr_assert_eq(missing.status, STATUS_BAD, "%s", verb->page->program);
        CONTAINS(missing.err, "something is missing");
    }
    for (unsigned i = 0; i <= verb->words_max; i++)
        words[count + i] = "too-many";
    CLEANUP_RESULT struct proc_result many = run_words(words, "");
    cr_assert_eq(many.status, STATUS_BAD, "%s: %s", verb->page->program, many.err);
    CONTAINS(many.err, "is not expected");
    words[count] = "--no-such-option";
    words[count + 1] = NULL;
    CLEANUP_RESULT struct proc_result option = run_words(words, "");
    cr_assert_eq(option.status, STATUS_BAD);
    CONTAINS(option.err, "unknown option");
}

Test(cli_verbs, too_few_and_too_many_words_are_said)
{
    for_each(&cli_root, look_at_words);
}

static void look_at_login(const struct cli_verb *verb)
{
    char copy[128];
    const char *words[WORDS_MAX] = { 0 };
    if (!verb->act || verb->page->options->name == NULL ||
        strcmp(verb->page->options->name, "endpoint") != 0)
        return;
    unsigned count = split(verb->page->program, copy, sizeof(copy), words);
    for (unsigned i = 0; i < verb->words_min; i++)
        words[count++] = i == 0 ? "web-1" : "env=ci";
    if (strcmp(verb->name, "add") == 0)
        words[count] = "--role=admin";
    CLEANUP_RESULT struct proc_result result = run_words(words, "");
    cr_assert_eq(result.status, 1, "%s", verb->page->program);
    CONTAINS(result.err, "sandstorm login");
}

Test(cli_verbs, without_a_login_every_verb_says_how_to_log_in)
{
    for_each(&cli_root, look_at_login);
}

static void expect_bad(struct proc_result result, const char *part)
{
    cr_assert_eq(result.status, STATUS_BAD, "%d: %s", result.status, result.err);
    cr_assert_eq(result.out_size, 0u, "%s", result.out);
    CONTAINS(result.err, part);
    proc_result_done(&result);
}

Test(cli_verbs, options_may_follow_words)
{
    expect_bad(RUN("client", "add", "bob", "--role", "king"), "\"king\"");
    expect_bad(RUN("client", "add", "--role", "king", "bob"), "\"king\"");
    expect_bad(RUN("client", "add", "--", "bob", "--role"), "\"--role\" is not expected");
    CLEANUP_RESULT struct proc_result help = RUN("client", "add", "bob", "--help");
    cr_assert_eq(help.status, 0);
    CONTAINS(help.out, "Usage: sandstorm client add");
}

Test(cli_verbs, token_create_refuses_what_makes_no_sense)
{
    expect_bad(RUN("token", "create", "--role", "admin"), "sandstorm client add");
    expect_bad(RUN("token", "create", "--sandbox", "a", "--uses", "2"), "--prefix");
    expect_bad(RUN("token", "create", "--sandbox", "a", "--prefix", "b"), "not both");
    expect_bad(RUN("token", "create", "--label", "nonsense"), "--label");
    expect_bad(RUN("token", "create", "--ttl", "15"), "15m");
    expect_bad(RUN("token", "create", "--uses", "0"), "at least 1");
}

Test(cli_verbs, client_add_needs_a_role_and_a_name_that_is_one)
{
    expect_bad(RUN("client", "add", "bob"), "viewer, operator or admin");
    expect_bad(RUN("client", "add", "b/ob", "--role", "admin"), "sandstorm");
    expect_bad(RUN("client", "add", "bob", "--role", "admin", "--scope", "x"), "--scope");
}

Test(cli_verbs, audit_refuses_what_makes_no_sense)
{
    expect_bad(RUN("audit", "--verify", "--follow"), "--verify");
    expect_bad(RUN("audit", "--verify", "--last", "3"), "--verify");
    expect_bad(RUN("audit", "--last", "3", "--after", "3"), "not both");
    expect_bad(RUN("audit", "-o", "xml"), "table or json");
}

Test(cli_verbs, listings_refuse_what_makes_no_sense)
{
    expect_bad(RUN("ls", "--state", "onlin"), "did you mean \"online\"?");
    expect_bad(RUN("ls", "--state", "online,xyzzyx"),
               "online, suspect, offline, evicted and revoked");
    expect_bad(RUN("ls", "--state", ","), "is none");
    expect_bad(RUN("ls", "--state", ""), "--state is empty");
    expect_bad(RUN("ls", "-o", "xml"), "table, wide, json or name, not \"xml\"");
    expect_bad(RUN("describe", "web-1", "-o", "table"), "text or json");
    expect_bad(RUN("ps", "-o", "wide"), "table, json or name");
    expect_bad(RUN("ps", "-n", "0"), "at least 1");
    expect_bad(RUN("top", "-n", "0"), "at least 1");
    expect_bad(RUN("top", "--once", "-n", "2"), "not both");
}

Test(cli_verbs, logs_refuse_what_makes_no_sense)
{
    expect_bad(RUN("logs", "web-1", "--since", "yesterday"), "--since: \"yesterday\" is no time");
    expect_bad(RUN("logs", "web-1", "--since", "2026-02-30"), "is no time");
    expect_bad(RUN("logs", "web-1", "-n", "x"), "not a number");
    expect_bad(RUN("logs", "web-1", "--command", "7"), "--command");
    expect_bad(RUN("logs", "web-1", "-o", "table"), "text or json");
}

Test(cli_verbs, changes_to_sandboxes_refuse_what_makes_no_sense)
{
    expect_bad(RUN("label", "web-1", "env"), "KEY=VALUE to set a label");
    expect_bad(RUN("label", "web-1", "-"), "KEY=VALUE to set a label");
    expect_bad(RUN("label", "web-1", "En-"), "\"En-\"");
    expect_bad(RUN("label", "web-1", "env=a b"), "\"a b\"");
    expect_bad(RUN("label", "web-1", "env=a", "env-"), "both set and taken away");
    expect_bad(RUN("wait-ready", "web-1", "--timeout", "2h"), "at most 1h");
    expect_bad(RUN("wait-ready", "web-1", "--timeout", "5"), "5m");
    expect_bad(RUN("drain", "web-1", "--force"), "unknown option");
}

Test(cli_verbs, exec_waits_only_so_long)
{
    CLEANUP_RESULT struct proc_result result = RUN("exec", "--wait", "2h", "web-1", "--", "true");
    cr_assert_eq(result.status, 125);
    CONTAINS(result.err, "at most 1h");
}

#define HEX64      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define LOGIN_KEY  "sslogin_0123456789ab_" HEX64
#define JOIN_TOKEN "ssjoin_0123456789ab_" HEX64

Test(cli_verbs, login_says_what_it_needs)
{
    expect_bad(RUN("login", "localhost"), "HOST:PORT");
    expect_bad(RUN("login", "localhost:1"), "--key-file");
    expect_bad(RUN("login", "localhost:1", "--key", "x", "--key-file", "y"), "not both");
    expect_bad(RUN("login", "localhost:1", "--key", "nonsense"), "not a login key");
    expect_bad(RUN("login", "localhost:1", "--key", JOIN_TOKEN), "join token");
    expect_bad(RUN("login", "localhost:1", "--key", LOGIN_KEY), "--ca-fingerprint");
    expect_bad(RUN("login", "localhost:1", "--key", LOGIN_KEY, "--ca-fingerprint", "sha1:00"),
               "--ca-fingerprint");
    expect_bad(RUN("login", "localhost:1", "--context", "../x", "--key", LOGIN_KEY), "context");
}

Test(cli_verbs, a_login_key_in_argv_is_warned_of_and_never_repeated)
{
    CLEANUP_RESULT struct proc_result argv = RUN("login", "127.0.0.1:1", "--key", LOGIN_KEY);
    CONTAINS(argv.err, "--key-file FILE");
    LACKS(argv.err, HEX64);
    CLEANUP_RESULT struct proc_result in =
        run_words((const char *[]){ "login", "127.0.0.1:1", "--key", "-", NULL }, LOGIN_KEY "\n");
    LACKS(in.err, "list of processes");
    LACKS(in.err, HEX64);
    CONTAINS(in.err, "--ca-fingerprint");
}

Test(cli_verbs, a_login_that_finds_nobody_leaves_no_context)
{
    CLEANUP_RESULT struct proc_result result =
        RUN("login", "127.0.0.1:1", "--key", LOGIN_KEY, "--ca-fingerprint", "sha256:" HEX64);
    cr_assert_eq(result.status, 1, "%s", result.err);
    LACKS(result.err, "sslogin_");
    CLEANUP_RESULT struct proc_result list = RUN("context", "list");
    cr_assert_eq(list.status, 0);
    cr_assert_eq(list.out_size, 0u);
    CONTAINS(list.err, "sandstorm login");
}

Test(cli_verbs, a_context_that_is_not_there_is_named)
{
    CLEANUP_RESULT struct proc_result use = RUN("context", "use", "staging");
    cr_assert_eq(use.status, 1);
    CONTAINS(use.err, "\"staging\"");
    CLEANUP_RESULT struct proc_result ls = RUN("ls", "--context", "staging");
    cr_assert_eq(ls.status, 1);
    CONTAINS(ls.err, "\"staging\"");
}

Test(cli_verbs, errors_cannot_steer_a_terminal)
{
    CLEANUP_RESULT struct proc_result result = RUN("ls", "\x1b[2J");
    cr_assert_eq(result.status, STATUS_BAD);
    CONTAINS(result.err, "\\x1b[2J");
    LACKS(result.err, "\x1b");
}

Test(cli_verbs, version_and_aliases_work)
{
    CLEANUP_RESULT struct proc_result option = RUN("--version"), verb = RUN("version");
    cr_assert_eq(option.status, 0);
    cr_assert_str_eq(option.out, verb.out);
    CLEANUP_RESULT struct proc_result tokens = RUN("token", "ls", "--help"),
                                      clients = RUN("client", "ls", "--help");
    CONTAINS(tokens.out, "Usage: sandstorm token list");
    CONTAINS(clients.out, "Usage: sandstorm client list");
}

Test(cli_verbs, a_token_file_that_is_there_is_not_overwritten)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/token", home);
    FILE *file = fopen(path, "we");
    cr_assert(file);
    (void)fclose(file);
    CLEANUP_RESULT struct proc_result there =
        RUN("token", "create", "--out", path, "--identity", "/nonexistent");
    cr_assert_eq(there.status, 1);
    CONTAINS(there.err, "is there already");
    /* And one that could not be filled does not stay. */
    (void)snprintf(path, sizeof(path), "%s/fresh", home);
    CLEANUP_RESULT struct proc_result fresh =
        RUN("token", "create", "--out", path, "--identity", "/nonexistent");
    cr_assert_eq(fresh.status, 1);
    cr_assert_neq(access(path, F_OK), 0);
}
