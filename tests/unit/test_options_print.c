/* That --help and the manual page show every row of a table, fit a terminal, and survive scdoc
 * whatever characters the texts contain. */
#include "common/config.h"
#include "common/options.h"

#include <criterion/criterion.h>
#include <string.h>

/* Nothing is parsed here, so the offsets stay 0. */
static const struct option options[] = {
    { .name = "verbose", .letter = 'v', .kind = OPTION_FLAG, .help = "Say more" },
    { .name = "work-dir",
      .letter = 'C',
      .kind = OPTION_STRING,
      .argument = "DIR_NAME",
      .help = "Change to *this* directory before the command starts, which has to exist in the "
              "sandbox and be readable by the_user \\ that runs it" },
    { .name = "timeout",
      .kind = OPTION_DURATION,
      .argument = "TIME",
      .help = "Give up after this time" },
    { .name = "a-label-with-a-long-name",
      .letter = 'l',
      .kind = OPTION_LIST,
      .argument = "KEY=VALUE",
      .help = "Match this label" },
    { 0 },
};

static const struct option_verb verbs[] = {
    { "exec", "SANDBOX -- ARGV...", "Run a command" },
    { "list", NULL, "List sandboxes" },
    { 0 },
};

static const char *const examples[] = { "sandstorm exec web_1 -- sh -c 'printf \"a\\n\" *'",
                                        "Print a line", NULL };
static const char *const environment[] = { "SANDSTORM_HOME_DIR", "Where *things* are kept", NULL };

static const struct option_page page = {
    .program = "sandstorm exec",
    .section = 1,
    .summary = "run a command in a sandbox_",
    .usage = "[OPTION...] SANDBOX -- ARGV...",
    .options = options,
    .verbs = verbs,
    .examples = examples,
    .environment = environment,
};

static char *print(void (*printer)(const struct option_page *, FILE *),
                   const struct option_page *what)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    cr_assert(out);
    printer(what, out);
    cr_assert_eq(fclose(out), 0);
    return text;
}

Test(options_print, help_shows_every_row_in_its_place)
{
    CLEANUP_FREE char *text = print(options_help, &page);
    const char *in_order[] = {
        "Usage: sandstorm exec [OPTION...] SANDBOX -- ARGV...\n\nrun a command in a sandbox_\n",
        "\nCommands:\n  exec SANDBOX -- ARGV...   Run a command\n",
        "\n  list                      List sandboxes\n",
        "\nOptions:\n  -v, --verbose             Say more\n",
        "\n  -C, --work-dir=DIR_NAME   Change to *this* directory",
        "\n      --timeout=TIME        Give up after this time\n",
        "\n  -l, --a-label-with-a-long-name=KEY=VALUE\n                            Match this "
        "label "
        "(may be repeated)\n",
        "\n  -h, --help                Show this help and exit\n",
        "\nEnvironment:\n  SANDSTORM_HOME_DIR        Where *things* are kept\n",
        "\nExamples:\n  sandstorm exec web_1 -- sh -c 'printf \"a\\n\" *'\n      Print a line\n",
    };
    const char *at = text;
    for (size_t i = 0; i < ELEMENTS(in_order); i++) {
        const char *found = strstr(at, in_order[i]);
        cr_assert(found, "missing or misplaced: %s\nin:\n%s", in_order[i], text);
        at = found + 1;
    }
}

Test(options_print, help_fits_a_terminal_without_trailing_spaces)
{
    CLEANUP_FREE char *text = print(options_help, &page);
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        cr_assert(length <= 80, "%.*s", (int)length, line);
        cr_assert(length == 0 || line[length - 1] != ' ', "%.*s", (int)length, line);
        line += length + (line[length] == '\n');
    }
    cr_assert(strstr(text, "\n                            "), "long help wraps under its column");
}

Test(options_print, help_a_page_may_have_nothing_but_a_name)
{
    const struct option_page bare = { .program = "x", .section = 1, .summary = "nothing" };
    CLEANUP_FREE char *text = print(options_help, &bare);
    cr_assert_str_eq(text, "Usage: x\n\nnothing\n\nOptions:\n"
                           "  -h, --help                Show this help and exit\n");
}

/* Runs the page through scdoc and returns the roff. */
static char *roff(const struct option_page *what)
{
    if (system("command -v scdoc >/dev/null") != 0)
        cr_skip_test("scdoc is not installed");
    char path[] = "/tmp/test-options-XXXXXX", command[128];
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    (void)snprintf(command, sizeof(command), "scdoc >%s", path);
    FILE *pipe = popen(command, "w");
    cr_assert(pipe);
    options_man(what, pipe);
    int status = pclose(pipe);
    char *text = calloc(1, 65536);
    cr_assert(text && read(fd, text, 65535) >= 0);
    (void)close(fd);
    (void)unlink(path);
    CLEANUP_FREE char *source = print(options_man, what);
    cr_assert_eq(status, 0, "scdoc refuses:\n%s", source);
    return text;
}

Test(options_print, scdoc_accepts_the_page_and_keeps_every_special_character)
{
    CLEANUP_FREE char *text = roff(&page);
    const char *parts[] = {
        ".TH \"sandstorm-exec\" \"1\"",
        "sandstorm-exec - run a command in a sandbox_",
        "\\fBsandstorm exec\\fR [OPTION.",
        "\\fB-C\\fR, \\fB--work-dir\\fR=\\fIDIR_NAME\\fR\n",
        "Change to *this* directory",
        "the_user \\\\ that",
        "\\fB-l\\fR, \\fB--a-label-with-a-long-name\\fR=\\fIKEY=VALUE\\fR\n",
        "May be repeated.",
        "\\fB-h\\fR, \\fB--help\\fR\n",
        "\\fBexec\\fR SANDBOX -- ARGV.",
        "\\fBSANDSTORM_HOME_DIR\\fR\n",
        "Where *things* are kept.",
        "printf \"a\\\\n\" *",
    };
    for (size_t i = 0; i < ELEMENTS(parts); i++)
        cr_assert(strstr(text, parts[i]), "missing: %s\nin:\n%s", parts[i], text);
}

Test(options_print, scdoc_accepts_text_that_begins_like_markup)
{
    const char *starts[] = { "#zq",   "- zq",        "; zq", "[ zq", "] zq", "| zq", "`zq",
                             "```zq", "zq ++",       "_zq",  "*zq",  "\\zq", " zq",  ".zq",
                             "'zq",   "- y\n\n- zq", "zq\t", "+zq",  "++zq" };
    for (size_t i = 0; i < ELEMENTS(starts); i++) {
        const struct option rows[] = {
            { "flag", 0, OPTION_FLAG, NULL, starts[i], 0, 0, 0 },
            { "value", 0, OPTION_STRING, starts[i], "x", 0, 0, 0 },
            { 0 },
        };
        const char *const pairs[] = { "x", starts[i], NULL };
        const struct option_page odd = { .program = "x",
                                         .section = 8,
                                         .summary = starts[i],
                                         .usage = starts[i],
                                         .options = rows,
                                         .examples = pairs,
                                         .environment = pairs };
        CLEANUP_FREE char *text = roff(&odd);
        /* As summary, usage, help, argument, variable and example. */
        unsigned count = 0;
        for (const char *at = text; (at = strstr(at, "zq")); at++)
            count++;
        cr_assert_not(strstr(text, "\\(bu"), "became a list: %s", starts[i]);
        cr_assert_eq(count, 6, "\"%s\" got lost in:\n%s", starts[i], text);
    }
}

Test(options_print, help_lists_the_settings_with_their_defaults)
{
    static const struct config_key keys[] = {
        { "endpoint", NULL, CONFIG_STRING, 0, "localhost:5000", 0, 0, "where it dials" },
        { "vm_id", NULL, CONFIG_STRING, 8, NULL, 0, 0, "a name" },
        { 0 },
    };
    static const struct option none[] = { { 0 } };
    const struct option_page with_settings = {
        .program = "p",
        .section = 8,
        .summary = "s",
        .options = none,
        .settings_file = "/etc/p.yaml",
        .settings = keys,
    };
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    options_help(&with_settings, out);
    (void)fclose(out);
    cr_expect_not_null(strstr(text, "/etc/p.yaml"));
    cr_expect_not_null(strstr(text, "endpoint: localhost:5000"));
    cr_expect_not_null(strstr(text, "vm_id: \"\""));
    free(text);
}
