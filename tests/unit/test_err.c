/* The error value: every row of the table, texts at their bound, and that NULL is allowed. */
#include "common/err.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

/* The numbers of grpc_status_code, written out: this table must not move with the one it checks. */
static const int grpc_numbers[ERR_CODE_COUNT_] = {
    [ERR_NONE] = 0,         [ERR_INVALID] = 3,          [ERR_NOT_FOUND] = 5,    [ERR_EXISTS] = 6,
    [ERR_DENIED] = 7,       [ERR_UNAUTHENTICATED] = 16, [ERR_UNAVAILABLE] = 14, [ERR_EXHAUSTED] = 8,
    [ERR_PRECONDITION] = 9, [ERR_UNIMPLEMENTED] = 12,   [ERR_TIMEOUT] = 4,      [ERR_CANCELLED] = 1,
    [ERR_PROTOCOL] = 3,     [ERR_INTERNAL] = 13,        [ERR_SYSTEM] = 13,
};

Test(err, every_code_has_a_name_of_its_own)
{
    for (int a = 0; a < ERR_CODE_COUNT_; a++) {
        cr_assert_not_null(err_name((enum err_code)a), "code %d has no row", a);
        cr_expect_str_neq(err_name((enum err_code)a), "unknown", "code %d", a);
        for (int b = 0; b < a; b++)
            cr_expect_str_neq(err_name((enum err_code)a), err_name((enum err_code)b));
    }
}

Test(err, every_code_has_its_grpc_status)
{
    for (int code = 0; code < ERR_CODE_COUNT_; code++)
        cr_expect_eq(err_grpc_status((enum err_code)code), grpc_numbers[code], "%s",
                     err_name((enum err_code)code));
}

Test(err, every_grpc_status_comes_back_as_a_code_with_that_status)
{
    for (int code = 0; code < ERR_CODE_COUNT_; code++) {
        int status = err_grpc_status((enum err_code)code);
        cr_expect_eq(err_grpc_status(err_from_grpc_status(status)), status);
        if (code != ERR_PROTOCOL && code != ERR_SYSTEM)
            cr_expect_eq(err_from_grpc_status(status), (enum err_code)code);
    }
    cr_expect_eq(err_from_grpc_status(3), ERR_INVALID);
    cr_expect_eq(err_from_grpc_status(13), ERR_INTERNAL);
}

Test(err, a_grpc_status_without_a_row_is_internal)
{
    static const int strange[] = { -1, 2, 10, 11, 15, 17, 1000 };
    for (size_t i = 0; i < ELEMENTS(strange); i++)
        cr_expect_eq(err_from_grpc_status(strange[i]), ERR_INTERNAL, "%d", strange[i]);
}

Test(err, only_success_exits_with_zero)
{
    cr_expect_eq(err_exit_code(ERR_NONE), 0);
    cr_expect_eq(err_exit_code(ERR_INVALID), 2);
    for (int code = 1; code < ERR_CODE_COUNT_; code++)
        cr_expect_neq(err_exit_code((enum err_code)code), 0);
}

Test(err, a_code_outside_the_table_is_answered_all_the_same)
{
    enum err_code strange = (enum err_code)ERR_CODE_COUNT_;
    cr_expect_str_eq(err_name(strange), "unknown");
    cr_expect_eq(err_grpc_status(strange), 2);
    cr_expect_eq(err_exit_code(strange), 1);
}

Test(err, set_formats_and_clears_an_old_errno)
{
    struct err err = { .sys_errno = EIO };
    cr_expect_eq(err_set(&err, ERR_NOT_FOUND, "no sandbox %s", "web-1"), -1);
    cr_expect_eq(err.code, ERR_NOT_FOUND);
    cr_expect_eq(err.sys_errno, 0);
    cr_expect_str_eq(err.text, "no sandbox web-1");
}

Test(err, errno_is_kept_and_said_in_words)
{
    struct err err = { 0 };
    cr_expect_eq(err_errno(&err, ENOENT, "cannot open %s", "/x"), -1);
    cr_expect_eq(err.code, ERR_SYSTEM);
    cr_expect_eq(err.sys_errno, ENOENT);
    cr_expect_str_eq(err.text, "cannot open /x: No such file or directory");
    cr_expect_eq(err_nomem(&err), -1);
    cr_expect_eq(err.sys_errno, ENOMEM);
}

Test(err, wrap_puts_context_in_front_and_keeps_the_rest)
{
    struct err err = { 0 };
    (void)err_errno(&err, EACCES, "cannot open key");
    cr_expect_eq(err_wrap(&err, "starting %s", "link"), -1);
    cr_expect_str_eq(err.text, "starting link: cannot open key: Permission denied");
    cr_expect_eq(err.code, ERR_SYSTEM);
    cr_expect_eq(err.sys_errno, EACCES);
}

/* Every length around the bound, for the text and for the context that is put before it. */
Test(err, long_texts_are_cut_and_always_end)
{
    char longer[2 * ERR_TEXT_MAX];
    for (size_t size = ERR_TEXT_MAX - 4; size < sizeof(longer); size++) {
        (void)memset(longer, 'a', size);
        longer[size] = '\0';
        struct err err;
        (void)memset(&err, 'z', sizeof(err));
        (void)err_set(&err, ERR_INVALID, "%s", longer);
        cr_assert_eq(strnlen(err.text, sizeof(err.text)), MIN(size, ERR_TEXT_MAX - 1u));
        (void)err_wrap(&err, "context");
        cr_assert_eq(strlen(err.text), ERR_TEXT_MAX - 1u);
        cr_assert_eq(strncmp(err.text, "context: aaa", 12), 0);
        (void)err_wrap(&err, "%s", longer);
        cr_assert_leq(strnlen(err.text, sizeof(err.text)), ERR_TEXT_MAX - 1u);
        (void)err_errno(&err, ENOENT, "%s", longer);
        cr_assert_eq(strnlen(err.text, sizeof(err.text)), ERR_TEXT_MAX - 1u);
        cr_assert_eq(err.sys_errno, ENOENT);
    }
}

Test(err, a_caller_that_does_not_want_the_reason_passes_null)
{
    cr_expect_eq(err_set(NULL, ERR_INVALID, "x"), -1);
    cr_expect_eq(err_errno(NULL, EIO, "x"), -1);
    cr_expect_eq(err_wrap(NULL, "x"), -1);
    cr_expect_eq(err_nomem(NULL), -1);
}

Test(err, every_name_leads_back_to_its_code)
{
    for (int code = ERR_NONE + 1; code < ERR_CODE_COUNT_; code++)
        cr_expect_eq(err_from_name(err_name((enum err_code)code)), (enum err_code)code);
    static const char *const rows[] = { "", "ok", "unknown", "Denied", "denied " };
    for (size_t i = 0; i < ELEMENTS(rows); i++)
        cr_expect_eq(err_from_name(rows[i]), ERR_NONE, "%s", rows[i]);
}
