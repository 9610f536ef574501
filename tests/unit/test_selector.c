/* Selectors: what people type, and what it selects. */
#include "common/selector.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static bool selects(const char *text, const char *trusted, const char *reported)
{
    struct selector selector;
    struct err err;
    cr_assert_eq(selector_parse(text, &selector, &err), 0, "%s: %s", text, err.text);
    return selector_matches(&selector, trusted, reported);
}

Test(selector, selects_by_all_of_its_parts)
{
    static const struct {
        const char *text;
        bool yes;
    } rows[] = {
        { "", true },
        { "env=ci", true },
        { "env==ci", true },
        { "env=prod", false },
        { "env!=prod", true },
        { "env!=ci", false },
        { "gone!=x", true },
        { "env", true },
        { "gone", false },
        { "!gone", true },
        { "!env", false },
        { "env=ci,role=web", true },
        { "env=ci,role!=web", false },
        { "env,role,!gone", true },
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++)
        cr_expect_eq(selects(rows[i].text, "env=ci,role=web", NULL), rows[i].yes, "%s",
                     rows[i].text);
}

Test(selector, of_two_sets_the_trusted_one_counts)
{
    cr_expect(selects("env=ci", "env=ci", "env=prod"));
    cr_expect_not(selects("env=prod", "env=ci", "env=prod"));
    cr_expect(selects("zone=a", "env=ci", "zone=a"));
    cr_expect(selects("!zone", NULL, NULL));
}

Test(selector, says_what_is_wrong_with_it)
{
    char many[40 * 8] = "";
    for (unsigned i = 0; i <= SELECTOR_MAX; i++)
        (void)snprintf(many + strlen(many), sizeof(many) - strlen(many), "%sk%u", i ? "," : "", i);
    const char *const rows[] = { ",",     "a,",  ",a",  "a,,b", "=x", "a=",          "!", "!=x",
                                 "a=b=c", "A=b", "a!=", "a b",  "*",  "env=ci;role", many };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        struct selector selector;
        struct err err = { 0 };
        cr_expect_eq(selector_parse(rows[i], &selector, &err), -1, "\"%s\" passed", rows[i]);
        cr_expect_eq(err.code, ERR_INVALID, "%s", rows[i]);
    }
}
