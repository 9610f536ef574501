/* Secrets that people carry: typed, random, and nothing but the exact form is one. */
#include "common/secret.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

Test(secret, what_was_made_can_be_read)
{
    struct secret made, read;
    struct err err;
    for (int kind = 0; kind < SECRET_KIND_COUNT_; kind++) {
        cr_assert_eq(secret_new((enum secret_kind)kind, &made, &err), 0);
        cr_assert_eq(secret_parse(made.text, (enum secret_kind)kind, &read, &err), 0);
        cr_assert_str_eq(read.id, made.id);
        cr_assert(secret_hash_equal(read.hash, made.hash));
        cr_assert_eq(strlen(made.id), SECRET_ID_LEN);
    }
}

Test(secret, one_kind_never_passes_for_another)
{
    struct secret join, login, read;
    struct err err;
    cr_assert_eq(secret_new(SECRET_JOIN, &join, &err), 0);
    cr_assert_eq(secret_new(SECRET_LOGIN, &login, &err), 0);
    cr_assert_eq(secret_parse(join.text, SECRET_LOGIN, &read, &err), -1);
    cr_assert_eq(secret_parse(login.text, SECRET_JOIN, &read, &err), -1);
    cr_assert_eq(err.code, ERR_UNAUTHENTICATED);
}

Test(secret, two_are_never_the_same)
{
    struct secret a, b;
    struct err err;
    cr_assert_eq(secret_new(SECRET_JOIN, &a, &err), 0);
    cr_assert_eq(secret_new(SECRET_JOIN, &b, &err), 0);
    cr_assert_str_neq(a.id, b.id);
    cr_assert(!secret_hash_equal(a.hash, b.hash));
}

Test(secret, any_change_of_form_is_refused_without_saying_why)
{
    struct secret made, read;
    struct err err, first;
    cr_assert_eq(secret_new(SECRET_JOIN, &made, &err), 0);
    cr_assert_eq(secret_parse("", SECRET_JOIN, &read, &first), -1);
    size_t size = strlen(made.text);
    char text[SECRET_TEXT_MAX + 8];
    for (size_t i = 0; i < size; i++) {
        (void)strcpy(text, made.text);
        text[i] = text[i] == '_' ? 'a' : 'G';
        cr_assert_eq(secret_parse(text, SECRET_JOIN, &read, &err), -1, "change at %zu", i);
        cr_assert_str_eq(err.text, first.text);
        (void)strcpy(text, made.text);
        text[i] = '\0';
        cr_assert_eq(secret_parse(text, SECRET_JOIN, &read, &err), -1, "cut at %zu", i);
    }
    (void)snprintf(text, sizeof(text), "%sa", made.text);
    cr_assert_eq(secret_parse(text, SECRET_JOIN, &read, &err), -1);
    (void)snprintf(text, sizeof(text), "%s\n", made.text);
    cr_assert_eq(secret_parse(text, SECRET_JOIN, &read, &err), -1);
}

Test(secret, another_secret_with_the_same_id_has_another_hash)
{
    struct secret made, read;
    struct err err;
    cr_assert_eq(secret_new(SECRET_LOGIN, &made, &err), 0);
    char text[SECRET_TEXT_MAX];
    (void)strcpy(text, made.text);
    size_t last = strlen(text) - 1;
    text[last] = text[last] == '0' ? '1' : '0';
    cr_assert_eq(secret_parse(text, SECRET_LOGIN, &read, &err), 0);
    cr_assert_str_eq(read.id, made.id);
    cr_assert(!secret_hash_equal(read.hash, made.hash));
}
