/* Label sets: one form whatever the order, and a scope that never matches by accident. */
#include "common/label.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static char *set(const char *const *items)
{
    char *labels = NULL;
    struct err err;
    for (; *items; items++)
        cr_assert(labels_add_text(&labels, *items, &err) == 0, "%s", err.text);
    return labels;
}
#define SET(...) set((const char *[]){ __VA_ARGS__, NULL })

Test(label, order_of_adding_does_not_matter)
{
    CLEANUP_FREE char *a = SET("role=web", "env=ci", "a/b.c=1");
    CLEANUP_FREE char *b = SET("a/b.c=1", "env=ci", "role=web");
    cr_assert_str_eq(a, "a/b.c=1,env=ci,role=web");
    cr_assert_str_eq(b, a);
    cr_assert_eq(labels_count(a), 3);
    cr_assert_eq(labels_count(NULL), 0);
    cr_assert_eq(labels_count(""), 0);
}

Test(label, same_label_twice_is_one_and_a_contradiction_is_refused)
{
    CLEANUP_FREE char *labels = SET("env=ci", "env=ci");
    struct err err;
    cr_assert_str_eq(labels, "env=ci");
    cr_assert_eq(labels_add_text(&labels, "env=prod", &err), -1);
    cr_assert_eq(err.code, ERR_EXISTS);
    cr_assert_str_eq(labels, "env=ci");
}

Test(label, bad_keys_and_values_are_refused)
{
    static const char *const bad[] = { "",      "env",   "=ci",    "env=",   "Env=ci", "e nv=ci",
                                       "-e=ci", "e-=ci", "e=-ci",  "e=ci-",  "e=c,i",  "e=c=i",
                                       "e,f=1", "e=*",   "e=\xc3", "e=c\ni", "*=*",    "e=c i",
                                       ".=a",   "e=.",   "e=..",   "../x=1", "e=\x01" };
    for (size_t i = 0; i < ELEMENTS(bad); i++) {
        char *labels = NULL;
        struct err err = { 0 };
        cr_assert_eq(labels_add_text(&labels, bad[i], &err), -1, "\"%s\" passed", bad[i]);
        cr_assert_eq(err.code, ERR_INVALID);
        cr_assert_null(labels);
    }
    char key[80];
    (void)memset(key, 'k', sizeof(key));
    key[LABEL_KEY_MAX] = '\0';
    cr_assert_eq(label_check(key, "v", NULL), 0);
    key[LABEL_KEY_MAX] = 'k';
    key[LABEL_KEY_MAX + 1] = '\0';
    cr_assert_eq(label_check(key, "v", NULL), -1);
}

Test(label, a_full_set_takes_no_more)
{
    char *labels = NULL;
    char text[16];
    struct err err;
    for (unsigned i = 0; i < LABELS_MAX; i++) {
        (void)snprintf(text, sizeof(text), "k%u=v", i);
        cr_assert_eq(labels_add_text(&labels, text, &err), 0);
    }
    cr_assert_eq(labels_add_text(&labels, "z=v", &err), -1);
    cr_assert_eq(err.code, ERR_EXHAUSTED);
    cr_assert_eq(labels_count(labels), LABELS_MAX);
    free(labels);
}

Test(label, scope_needs_all_of_its_labels)
{
    CLEANUP_FREE char *labels = SET("env=ci", "role=web");
    cr_assert(labels_contain(labels, NULL));
    cr_assert(labels_contain(labels, ""));
    cr_assert(labels_contain(NULL, ""));
    cr_assert(labels_contain(labels, "env=ci"));
    cr_assert(labels_contain(labels, "env=ci,role=web"));
    cr_assert(!labels_contain(labels, "env=c"));
    cr_assert(!labels_contain(labels, "env=cii"));
    cr_assert(!labels_contain(labels, "en=ci"));
    cr_assert(!labels_contain(labels, "env=ci,role=db"));
    cr_assert(!labels_contain(labels, "env=ci,zone=a"));
    cr_assert(!labels_contain("", "env=ci"));
    cr_assert(!labels_contain(NULL, "env=ci"));
}

Test(label, a_text_of_several_is_sorted_and_checked)
{
    struct err err = { 0 };
    static const struct {
        const char *text, *labels;
    } rows[] = {
        { "", NULL },
        { "  ", NULL },
        { "env=ci", "env=ci" },
        { "role=web,env=ci", "env=ci,role=web" },
        { "  role=web , env=ci\t", "env=ci,role=web" },
        { "env=ci,env=ci", "env=ci" },
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        CLEANUP_FREE char *labels = NULL;
        cr_assert_eq(labels_parse(rows[i].text, &labels, &err), 0, "%s", err.text);
        if (rows[i].labels)
            cr_expect_str_eq(labels, rows[i].labels);
        else
            cr_expect_null(labels);
    }
    static const char *const bad[] = { ",",          "env",         "env=",       "=ci",
                                       "env=ci,",    "env=ci, ",    ",env=ci",    "env=ci,,a=b",
                                       "env = ci",   "env=ci prod", "env=ci;a=b", "Env=ci",
                                       "env=a,env=b" };
    for (size_t i = 0; i < ELEMENTS(bad); i++) {
        char *labels = (char *)"kept";
        cr_expect_eq(labels_parse(bad[i], &labels, &err), -1, "\"%s\" passed", bad[i]);
        cr_expect_str_eq(labels, "kept");
    }
}

Test(label, neither_a_long_label_nor_too_many_are_cut_to_fit)
{
    char text[LABELS_TEXT_MAX + 64], *labels = NULL;
    struct err err = { 0 };
    (void)snprintf(text, sizeof(text), "%063d=%063d", 1, 2);
    cr_assert_eq(labels_parse(text, &labels, &err), 0, "%s", err.text);
    cr_expect_str_eq(labels, text);
    free(labels);
    labels = NULL;
    (void)snprintf(text, sizeof(text), "%063d=%064d", 1, 2);
    cr_expect_eq(labels_parse(text, &labels, &err), -1);
    (void)snprintf(text, sizeof(text), "a=b,%01000d=1", 1);
    cr_expect_eq(labels_parse(text, &labels, &err), -1);
    size_t used = 0;
    for (unsigned i = 0; i <= LABELS_MAX; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%sk%u=v", i ? "," : "", i);
    cr_expect_eq(labels_parse(text, &labels, &err), -1);
    cr_expect_eq(err.code, ERR_EXHAUSTED);
    cr_expect_null(labels);
}
