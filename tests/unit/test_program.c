/* What every main() begins and ends with. */
#include "common/program.h"

#include "common/version.h"

#include <criterion/criterion.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct values {
    const char *name;
};

static const struct option options[] = {
    { "name", 'n', OPTION_STRING, "NAME", "A name", offsetof(struct values, name), 0, 0 },
    { 0 },
};

static const struct option_page page = {
    .program = "prog",
    .section = 1,
    .summary = "do a thing",
    .usage = "[OPTION...] WORD",
    .options = options,
};

static struct err err;

/* Stdout or stderr becomes a file; Criterion's report goes another way. */
static FILE *capture(int fd)
{
    FILE *file = tmpfile();
    cr_assert(file && dup2(fileno(file), fd) == fd);
    return file;
}

static const char *captured(FILE *file)
{
    static char text[16384];
    (void)fflush(NULL);
    ssize_t n = pread(fileno(file), text, sizeof(text) - 1, 0);
    cr_assert_geq(n, 0);
    text[n] = '\0';
    (void)fclose(file);
    return text;
}

static bool parse_one(char *word)
{
    char *argv[] = { (char *)"prog", word, NULL };
    struct values values = { 0 };
    bool done = false;
    int rest;
    cr_assert_eq(program_parse(&page, 2, argv, &values, &done, &rest, &err), 0, "%s", err.text);
    return done;
}

Test(program, version_help_and_manual_are_printed_and_that_is_all)
{
    FILE *out = capture(STDOUT_FILENO);
    cr_expect(parse_one((char *)"--version"));
    cr_expect_str_eq(captured(out), "prog " SANDSTORM_VERSION "\n");
    out = capture(STDOUT_FILENO);
    cr_expect(parse_one((char *)"--help"));
    cr_expect_not_null(strstr(captured(out), "--name"));
    out = capture(STDOUT_FILENO);
    cr_expect(parse_one((char *)"--man"));
    cr_expect_not_null(strstr(captured(out), "prog(1)"));
}

Test(program, options_are_parsed_and_the_rest_is_left)
{
    char *argv[] = { (char *)"prog", (char *)"--name=x", (char *)"word", (char *)"--version",
                     NULL };
    struct values values = { 0 };
    bool done = true;
    int rest = 0;
    cr_assert_eq(program_parse(&page, 4, argv, &values, &done, &rest, &err), 0, "%s", err.text);
    cr_expect_not(done);
    cr_expect_str_eq(values.name, "x");
    cr_expect_eq(rest, 2);
}

Test(program, a_wrong_option_is_an_error)
{
    char *argv[] = { (char *)"prog", (char *)"--nmae=x", NULL };
    struct values values = { 0 };
    bool done;
    int rest;
    cr_assert_eq(program_parse(&page, 2, argv, &values, &done, &rest, &err), -1);
    cr_expect_eq(err.code, ERR_INVALID);
}

Test(program, the_log_takes_known_levels_and_formats)
{
    cr_expect_eq(program_log("prog", "debug", "json", &err), 0, "%s", err.text);
    cr_expect_eq(program_log("prog", "loud", "json", &err), -1);
    cr_expect_eq(program_log("prog", "info", "xml", &err), -1);
}

Test(program, a_failure_is_one_sentence_and_the_codes_exit_status)
{
    FILE *out = capture(STDERR_FILENO);
    (void)err_set(&err, ERR_NOT_FOUND, "there is no sandbox \"x\"");
    int status = program_fail("prog", &err);
    cr_expect_str_eq(captured(out), "prog: there is no sandbox \"x\"\n");
    cr_expect_eq(status, err_exit_code(ERR_NOT_FOUND));
    cr_expect_neq(status, 0);
}
