/* Shows an option table to people: --help for a terminal of 80 columns, and the manual page as
 * scdoc(5) source, which the build turns into roff. main() and the verbs hand in the page that
 * common/options.c parsed with; everything goes to the caller's FILE. */
#include "common/config.h"
#include "common/options-internal.h"

#include <string.h>

#define HELP_WIDTH  80u
#define HELP_COLUMN 28u /* where the explanations start */

/* Columns on a terminal, near enough: continuation bytes of UTF-8 take none. */
static unsigned columns(const char *text, size_t size)
{
    unsigned count = 0;
    for (size_t i = 0; i < size; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

static const char *skip_spaces(const char *text)
{
    return text + strspn(text, " \t\n");
}

/* Words from column `at` on, further lines from `indent` on. A word too long for a line is left
 * whole: cut, it could not be copied. */
static void print_wrapped(FILE *out, const char *text, unsigned at, unsigned indent)
{
    bool first = true;
    for (text = skip_spaces(text); *text != '\0'; text = skip_spaces(text)) {
        size_t size = strcspn(text, " \t\n");
        unsigned width = columns(text, size);
        if (!first && at + 1 + width > HELP_WIDTH) {
            (void)fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        (void)fprintf(out, "%s%.*s", first ? "" : " ", (int)size, text);
        at += width + !first;
        first = false;
        text += size;
    }
    (void)fputc('\n', out);
}

static void print_row(FILE *out, const char *left, const char *help)
{
    unsigned at = columns(left, strlen(left));
    (void)fputs(left, out);
    if (at + 2 > HELP_COLUMN) {
        (void)fputc('\n', out);
        at = 0;
    }
    (void)fprintf(out, "%*s", (int)(HELP_COLUMN - at), "");
    print_wrapped(out, help, HELP_COLUMN, HELP_COLUMN);
}

static const char *default_of(const struct config_key *key)
{
    return key->fallback ? key->fallback : "\"\"";
}

static const char *value_name(const struct option *option)
{
    return option->argument ? option->argument : "VALUE";
}

static void print_option(FILE *out, const struct option_page *page, const struct option *option)
{
    char dash[] = "    ", left[128], help[512];
    char letter = options_letter(page, option);
    if (letter)
        (void)memcpy(dash, (const char[]){ '-', letter, ',' }, 3);
    bool flag = option->kind == OPTION_FLAG;
    (void)snprintf(left, sizeof(left), "  %s--%s%s%s", dash, option->name, flag ? "" : "=",
                   flag ? "" : value_name(option));
    (void)snprintf(help, sizeof(help), "%s%s", option->help,
                   option->kind == OPTION_LIST ? " (may be repeated)" : "");
    print_row(out, left, help);
}

static void print_verbs(FILE *out, const struct option_page *page)
{
    (void)fputs("\nCommands:\n", out);
    for (const struct option_verb *verb = page->verbs; verb->name; verb++) {
        char left[128];
        (void)snprintf(left, sizeof(left), "  %s%s%s", verb->name, verb->arguments ? " " : "",
                       verb->arguments ? verb->arguments : "");
        print_row(out, left, verb->help);
    }
}

void options_help(const struct option_page *page, FILE *out)
{
    (void)fprintf(out, "Usage: %s%s", page->program, page->usage ? " " : "");
    unsigned at = columns(page->program, strlen(page->program)) + 8;
    print_wrapped(out, page->usage ? page->usage : "", at, 8);
    (void)fputc('\n', out);
    print_wrapped(out, page->summary, 0, 0);
    if (page->verbs)
        print_verbs(out, page);
    (void)fputs("\nOptions:\n", out);
    for (const struct option *row = page->options; row && row->name; row++)
        print_option(out, page, row);
    print_option(out, page, &options_help_row);
    if (page->settings)
        (void)fprintf(out, "\nSettings (%s, then its .d/*.yaml):\n", page->settings_file);
    for (const struct config_key *key = page->settings; key && key->name; key++) {
        char left[128];
        (void)snprintf(left, sizeof(left), "  %s: %s", key->name, default_of(key));
        print_row(out, left, key->help);
    }
    if (page->environment)
        (void)fputs("\nEnvironment:\n", out);
    for (const char *const *pair = page->environment; pair && pair[0]; pair += 2) {
        char left[128];
        (void)snprintf(left, sizeof(left), "  %s", pair[0]);
        print_row(out, left, pair[1]);
    }
    if (page->examples)
        (void)fputs("\nExamples:\n", out);
    for (const char *const *pair = page->examples; pair && pair[0]; pair += 2) {
        (void)fprintf(out, "  %s\n      ", pair[0]);
        print_wrapped(out, pair[1], 6, 6);
    }
}

/* Text that scdoc shall not read as markup. Whitespace becomes one space, since a line break could
 * begin a list or a comment. A leading full stop stays bare: scdoc protects it from roff itself,
 * but not when escaped. */
static void man_text(FILE *out, const char *text)
{
    bool start = true;
    for (const char *p = skip_spaces(text); *p != '\0'; p++, start = false) {
        if (strchr(" \t\n", *p)) {
            if (*skip_spaces(p) == '\0')
                return;
            (void)fputc(' ', out);
            p = skip_spaces(p) - 1;
            continue;
        }
        if (strchr("\\*_+`", *p) || (start && strchr("#-;[]|", *p)))
            (void)fputc('\\', out);
        (void)fputc(*p, out);
    }
}

static void man_marked(FILE *out, char mark, const char *text)
{
    (void)fputc(mark, out);
    man_text(out, text);
    (void)fputc(mark, out);
}

/* What stands indented under a bold name: a sentence, which the table wrote without full stop. */
static void man_explanation(FILE *out, const char *text, const char *more)
{
    (void)fputs("\n\t", out);
    man_text(out, text);
    (void)fprintf(out, ".%s\n\n", more);
}

static void man_option(FILE *out, const struct option_page *page, const struct option *option)
{
    char letter = options_letter(page, option);
    if (letter)
        (void)fprintf(out, "*-%c*, ", letter);
    (void)fputs("*--", out);
    man_text(out, option->name);
    (void)fputc('*', out);
    if (option->kind != OPTION_FLAG) {
        (void)fputc('=', out);
        man_marked(out, '_', value_name(option));
    }
    man_explanation(out, option->help, option->kind == OPTION_LIST ? " May be repeated." : "");
}

static void man_verb(FILE *out, const struct option_verb *verb)
{
    man_marked(out, '*', verb->name);
    if (verb->arguments) {
        (void)fputc(' ', out);
        man_text(out, verb->arguments);
    }
    man_explanation(out, verb->help, "");
}

/* In a literal block only the backslash is special. */
static void man_example(FILE *out, const char *command, const char *what)
{
    man_text(out, what);
    (void)fputs(":\n\n```\n", out);
    for (; *command != '\0'; command++)
        (void)fprintf(out, *command == '\\' ? "\\%c" : "%c", *command);
    (void)fputs("\n```\n\n", out);
}

/* "sandstorm exec" is sandstorm-exec(1), as git-commit(1) is. */
static void man_title(FILE *out, const char *program)
{
    for (; *program != '\0'; program++)
        (void)fputc(*program == ' ' ? '-' : *program, out);
}

void options_man(const struct option_page *page, FILE *out)
{
    man_title(out, page->program);
    (void)fprintf(out, "(%u)\n\n# NAME\n\n", page->section);
    man_title(out, page->program);
    (void)fputs(" - ", out);
    man_text(out, page->summary);
    (void)fputs("\n\n# SYNOPSIS\n\n", out);
    man_marked(out, '*', page->program);
    (void)fputc(' ', out);
    man_text(out, page->usage ? page->usage : "");
    (void)fputs("\n\n", out);
    if (page->verbs)
        (void)fputs("# COMMANDS\n\n", out);
    for (const struct option_verb *verb = page->verbs; verb && verb->name; verb++)
        man_verb(out, verb);
    (void)fputs("# OPTIONS\n\n", out);
    for (const struct option *row = page->options; row && row->name; row++)
        man_option(out, page, row);
    man_option(out, page, &options_help_row);
    if (page->settings) {
        (void)fputs("# SETTINGS\n\nRead from ", out);
        man_text(out, page->settings_file);
        (void)fputs(", then from the files in the directory of that name with .d, a flat YAML "
                    "mapping each. Shown with their defaults.\n\n",
                    out);
    }
    for (const struct config_key *key = page->settings; key && key->name; key++) {
        man_marked(out, '*', key->name);
        (void)fputs(": ", out);
        man_text(out, default_of(key));
        man_explanation(out, key->help, "");
    }
    if (page->environment)
        (void)fputs("# ENVIRONMENT\n\n", out);
    for (const char *const *pair = page->environment; pair && pair[0]; pair += 2) {
        man_marked(out, '*', pair[0]);
        man_explanation(out, pair[1], "");
    }
    if (page->examples)
        (void)fputs("# EXAMPLES\n\n", out);
    for (const char *const *pair = page->examples; pair && pair[0]; pair += 2)
        man_example(out, pair[0], pair[1]);
}
