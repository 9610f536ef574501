/* Names that cross a trust boundary: what passes, what does not, and that every byte value in every
 * position is judged as the headers say. */
#include "common/ids.h"

#include <criterion/criterion.h>
#include <string.h>

static bool sandbox_ok(const char *text)
{
    return sandbox_id_check(text, NULL) == 0;
}

static bool client_ok(const char *text)
{
    return client_name_check(text, NULL) == 0;
}

static bool vm_ok(const char *text)
{
    return vm_id_check(text, NULL) == 0;
}

static bool lengths_accepted(bool (*ok)(const char *), size_t max)
{
    char text[512];
    for (size_t size = 0; size < sizeof(text); size++) {
        (void)memset(text, 'a', size);
        text[size] = '\0';
        if (ok(text) != (size >= 1 && size <= max))
            return false;
    }
    return true;
}

/* Puts every byte but NUL at the start, in the middle and at the end of an otherwise good name. */
static void check_every_byte(bool (*ok)(const char *), const char *edge, const char *inner)
{
    for (int c = 1; c < 256; c++) {
        bool is_edge = strchr(edge, c) != NULL;
        bool is_inner = is_edge || strchr(inner, c) != NULL;
        char first[] = { (char)c, 'a', 'a', '\0' };
        char middle[] = { 'a', (char)c, 'a', '\0' };
        char last[] = { 'a', 'a', (char)c, '\0' };
        char alone[] = { (char)c, '\0' };
        cr_expect_eq(ok(first), is_edge, "byte %d first", c);
        cr_expect_eq(ok(middle), is_inner, "byte %d inside", c);
        cr_expect_eq(ok(last), is_edge, "byte %d last", c);
        cr_expect_eq(ok(alone), is_edge, "byte %d alone", c);
    }
}

#define LOWER  "abcdefghijklmnopqrstuvwxyz"
#define UPPER  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS "0123456789"

Test(ids, sandbox_id_is_a_dns_label)
{
    check_every_byte(sandbox_ok, LOWER DIGITS, "-");
    cr_expect(sandbox_ok("web-1--blue"));
}

Test(ids, client_name_allows_dots_underscores_and_upper_case_inside)
{
    check_every_byte(client_ok, LOWER UPPER DIGITS, "-._");
    cr_expect(client_ok("Ada.Lovelace_2"));
    cr_expect_not(client_ok(".."));
}

Test(ids, vm_id_is_printable_ascii_without_spaces)
{
    char printable[128] = "";
    for (int c = '!'; c <= '~'; c++)
        printable[c - '!'] = (char)c;
    check_every_byte(vm_ok, printable, "");
}

Test(ids, lengths_end_exactly_at_the_maximum)
{
    cr_expect(lengths_accepted(sandbox_ok, SANDBOX_ID_MAX));
    cr_expect(lengths_accepted(client_ok, CLIENT_NAME_MAX));
    cr_expect(lengths_accepted(vm_ok, VM_ID_MAX));
}

Test(ids, rejection_says_what_is_allowed_and_does_not_quote_the_text)
{
    struct err err = { 0 };
    cr_assert_eq(sandbox_id_check("EVIL\x1b[31m", &err), -1);
    cr_expect_eq(err.code, ERR_INVALID);
    cr_expect_not_null(strstr(err.text, "a-z"));
    cr_expect_null(strstr(err.text, "EVIL"));
}

#define GOOD_UUID "0189f7ea-ae2c-7809-8aeb-b819cf5e9e7f"

Test(ids, command_id_takes_a_lower_case_uuid_of_any_version)
{
    struct command_id id;
    cr_assert_eq(command_id_parse(GOOD_UUID, &id, NULL), 0);
    cr_expect_str_eq(id.text, GOOD_UUID);
    cr_expect_eq(command_id_parse("00000000-0000-0000-0000-000000000000", &id, NULL), 0);
}

Test(ids, command_id_judges_every_byte_in_every_position)
{
    for (size_t i = 0; i < COMMAND_ID_LEN; i++) {
        for (int c = 1; c < 256; c++) {
            char text[] = GOOD_UUID;
            bool dash = text[i] == '-';
            text[i] = (char)c;
            bool good = dash ? c == '-' : strchr("0123456789abcdef", c) != NULL;
            struct command_id id;
            cr_expect_eq(command_id_parse(text, &id, NULL) == 0, good, "byte %d at %zu", c, i);
        }
    }
}

Test(ids, command_id_of_another_length_is_refused_and_the_result_untouched)
{
    struct command_id id = { .text = "before" };
    struct err err = { 0 };
    cr_expect_eq(command_id_parse("", &id, &err), -1);
    cr_expect_eq(command_id_parse(GOOD_UUID "0", &id, &err), -1);
    cr_expect_eq(command_id_parse("0189f7ea-ae2c-7809-8aeb-b819cf5e9e7", &id, &err), -1);
    cr_expect_eq(err.code, ERR_INVALID);
    cr_expect_str_eq(id.text, "before");
}

Test(ids, new_command_ids_are_version_4_and_differ)
{
    char last[COMMAND_ID_LEN + 1] = "";
    for (int i = 0; i < 1000; i++) {
        struct command_id id, parsed;
        cr_assert_eq(command_id_new(&id, NULL), 0);
        cr_assert_eq(command_id_parse(id.text, &parsed, NULL), 0, "%s", id.text);
        cr_assert_eq(id.text[14], '4');
        cr_assert_not_null(strchr("89ab", id.text[19]));
        cr_assert_str_neq(id.text, last);
        (void)memcpy(last, id.text, sizeof(last));
    }
}

Test(ids, random_numbers_use_all_their_bits)
{
    uint64_t ones = 0, zeros = 0;
    for (int i = 0; i < 256; i++) {
        uint64_t value = random_u64();
        ones |= value;
        zeros |= ~value;
    }
    cr_expect_eq(ones, UINT64_MAX);
    cr_expect_eq(zeros, UINT64_MAX);
}
