/* How a command line becomes a verb: finds it in the tree of cli/verbs.c, parses its options, and
 * says what was wrong. Called by cli/main.c; next: cli/cmd_*.c. */
#include "cli/cli.h"

#include "common/label.h"

#include "cli/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX   20u /* of any verb */
#define VERBS_MAX   32u /* of any group */
#define SUMMARY_MAX 96u
#define OPTIONAL    "[OPTION...]"

void cli_complain(const char *text)
{
    CLEANUP_FREE char *harmless = text_escape(text);
    (void)fprintf(stderr, "sandstorm: %s\n", harmless ? harmless : "out of memory");
}

int cli_error(const struct err *err, struct sandstorm_error *ret)
{
    ret->code = (enum sandstorm_code)err->code;
    (void)memcpy(ret->text, err->text, sizeof(ret->text));
    return -1;
}

static int fail(const struct err *err)
{
    cli_complain(err->text);
    return err_exit_code(err->code);
}

/* What a verb is given besides its options: "SANDBOX". */
static const char *arguments_of(const struct option_page *page)
{
    const char *usage = page->usage ? page->usage : "";
    if (strncmp(usage, OPTIONAL, strlen(OPTIONAL)) == 0)
        usage += strlen(OPTIONAL);
    return usage + strspn(usage, " ");
}

/* A verb's page with the list of what is below it. */
struct full_page {
    struct option_page page;
    struct option_verb list[VERBS_MAX + 1];
    char summaries[VERBS_MAX][SUMMARY_MAX];
};

static void fill_page(const struct cli_verb *verb, struct full_page *full)
{
    *full = (struct full_page){ .page = *verb->page };
    for (size_t i = 0; verb->verbs && i < VERBS_MAX && verb->verbs[i]; i++) {
        const struct cli_verb *below = verb->verbs[i];
        const char *arguments = below->verbs ? "VERB" : arguments_of(below->page);
        char *summary = full->summaries[i];
        (void)snprintf(summary, SUMMARY_MAX, "%s", below->page->summary);
        summary[0] = (char)toupper((unsigned char)summary[0]);
        full->list[i] = (struct option_verb){ below->name, *arguments ? arguments : NULL, summary };
        full->page.verbs = full->list;
    }
}

void cli_help(const struct cli_verb *verb, FILE *out)
{
    struct full_page full;
    fill_page(verb, &full);
    options_help(&full.page, out);
}

void cli_man(const struct cli_verb *verb, FILE *out)
{
    struct full_page full;
    fill_page(verb, &full);
    options_man(&full.page, out);
}

const struct cli_verb *cli_find_page(const struct cli_verb *verb, const char *title)
{
    char own[128];
    (void)snprintf(own, sizeof(own), "%s", verb->page->program);
    for (char *space = strchr(own, ' '); space; space = strchr(space, ' '))
        *space = '-';
    if (strcmp(own, title) == 0)
        return verb;
    for (size_t i = 0; verb->verbs && verb->verbs[i]; i++) {
        const struct cli_verb *found = cli_find_page(verb->verbs[i], title);
        if (found)
            return found;
    }
    return NULL;
}

static int unknown_verb(const struct cli_verb *group, const char *word)
{
    const char *names[VERBS_MAX + 1] = { 0 };
    for (size_t i = 0; i < VERBS_MAX && group->verbs[i]; i++)
        names[i] = group->verbs[i]->name;
    const char *near = nearest_name(word, names);
    const char *program = group->page->program;
    struct err err;
    (void)err_set(&err, ERR_INVALID, "%s has no verb \"%.64s\"%s%s%s See '%s --help'.", program,
                  word, near ? "; did you mean \"" : ".", near ? near : "", near ? "\"?" : "",
                  program);
    return fail(&err);
}

static int run_group(const struct cli_verb *group, int argc, char **argv)
{
    struct err err = { 0 };
    bool help;
    int rest, unused = 0;
    if (options_parse(group->page, argc, argv, &unused, &help, &rest, &err) < 0)
        return fail(&err);
    if (!help && rest >= argc) {
        cli_help(group, stderr);
        return err_exit_code(ERR_INVALID);
    }
    if (help || strcmp(argv[rest], "help") == 0) {
        cli_help(group, stdout);
        return 0;
    }
    for (size_t i = 0; group->verbs[i]; i++) {
        const struct cli_verb *verb = group->verbs[i];
        if (strcmp(verb->name, argv[rest]) == 0 ||
            (verb->alias && strcmp(verb->alias, argv[rest]) == 0))
            return cli_run(verb, argc - rest, argv + rest);
    }
    return unknown_verb(group, argv[rest]);
}

/* Options may stand before, between and after the words. */
static int parse(const struct cli_verb *verb, int argc, char **argv, void *arguments,
                 char *words[WORDS_MAX + 1], bool *ret_help, struct err *err)
{
    const struct option_page *page = verb->page;
    unsigned count = 0;
    bool literal = false;
    for (int at = 0; at < argc; count++) {
        int rest = 1;
        *ret_help = false;
        if (!literal &&
            options_parse(page, argc - at, argv + at, arguments, ret_help, &rest, err) < 0)
            return -1;
        if (*ret_help)
            return 0;
        literal = literal || (rest > 1 && strcmp(argv[at + rest - 1], "--") == 0);
        at += rest;
        if (at >= argc)
            break;
        if (count >= MIN(verb->words_max, WORDS_MAX))
            return err_set(err, ERR_INVALID, "\"%.64s\" is not expected; see '%s --help'", argv[at],
                           page->program);
        words[count] = argv[at];
    }
    if (count < verb->words_min)
        return err_set(err, ERR_INVALID, "something is missing: %s needs %s; see '%s --help'",
                       page->program, arguments_of(page), page->program);
    return 0;
}

static int run_act(const struct cli_verb *verb, int argc, char **argv)
{
    struct err err = { 0 };
    struct sandstorm_error error = { 0 };
    char *words[WORDS_MAX + 1] = { 0 };
    bool help = false;
    CLEANUP_FREE void *arguments = calloc(1, MAX(verb->size, (size_t)1));
    if (!arguments)
        (void)err_nomem(&err);
    if (!arguments || parse(verb, argc, argv, arguments, words, &help, &err) < 0)
        return fail(&err);
    if (help) {
        cli_help(verb, stdout);
        return 0;
    }
    int status = verb->act(arguments, words, &error);
    if (status >= 0)
        return status;
    cli_complain(error.text);
    return err_exit_code((enum err_code)error.code);
}

int cli_run(const struct cli_verb *verb, int argc, char **argv)
{
    if (verb->verbs)
        return run_group(verb, argc, argv);
    return verb->run ? verb->run(argc, argv) : run_act(verb, argc, argv);
}

char *cli_label_options(const char *option, const char *labels)
{
    char key[LABEL_KEY_MAX + 1], value[LABEL_VALUE_MAX + 1];
    char *text = strdup("");
    while (text && labels_next(&labels, key, value)) {
        CLEANUP_FREE char *before = text;
        if (asprintf(&text, "%s %s %s=%s", before, option, key, value) < 0)
            text = NULL;
    }
    return text;
}
