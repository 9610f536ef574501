/* UTF-8 by counting: there are so many characters of each length and no more, so every other
 * sequence of bytes must be refused. */
#include "common/utf8.h"

#include "common/macros.h"

#include <criterion/criterion.h>
#include <string.h>

Test(utf8, exactly_the_characters_of_up_to_three_bytes_are_accepted)
{
    unsigned long found[5] = { 0 };
    for (uint32_t i = 0; i < 1u << 24; i++) {
        const uint8_t bytes[] = { (uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i };
        found[utf8_character(bytes, sizeof(bytes))]++;
    }
    cr_expect_eq(found[1], 0x80u << 16);
    cr_expect_eq(found[2], (0x800u - 0x80u) << 8);
    cr_expect_eq(found[3], 0x10000u - 0x800u - 0x800u, "without the surrogates");
    cr_expect_eq(found[4], 0u);
}

/* The last two bytes are free, so their edges stand for all of them. */
Test(utf8, exactly_the_characters_of_four_bytes_are_accepted)
{
    static const uint8_t edges[] = { 0x00, 0x7f, 0x80, 0xbf, 0xc0, 0xff };
    unsigned long found = 0;
    for (unsigned i = 0; i < 0x1000; i++)
        for (size_t k = 0; k < ELEMENTS(edges); k++)
            for (size_t m = 0; m < ELEMENTS(edges); m++) {
                const uint8_t bytes[] = { (uint8_t)(0xf0 + i / 256), (uint8_t)i, edges[k],
                                          edges[m] };
                size_t length = utf8_character(bytes, 4);
                cr_assert(length == 0 || length == 4);
                found += length == 4;
                cr_assert_eq(utf8_character(bytes, 3), 0u, "a cut character");
            }
    cr_expect_eq(found, 4 * (0x110000u - 0x10000u) / 0x1000u);
}

Test(utf8, a_text_is_valid_when_all_of_it_is)
{
    cr_expect(utf8_valid(NULL, 0));
    cr_expect(utf8_valid((const uint8_t *)"a\0b", 3), "a NUL is a character");
    cr_expect(utf8_valid((const uint8_t *)"\xe2\x82\xac uro", 7));
    cr_expect_not(utf8_valid((const uint8_t *)"\xe2\x82\xac uro", 2));
    cr_expect_not(utf8_valid((const uint8_t *)"fine until \xc3", 12));
}

Test(utf8, cleaning_replaces_each_bad_byte_and_nothing_else)
{
    char text[] = "\xc3\xa4 \xc0\xaf \xed\xa0\x80 z\xe2\x82";
    utf8_clean(text);
    cr_expect_str_eq(text, "\xc3\xa4 ?? ??? z??");
}

Test(utf8, one_line_has_no_control_characters_and_no_cut_character)
{
    char line[16];
    utf8_one_line("a\tb\nc\x7f"
                  "d\x1b[0m",
                  line, sizeof(line));
    cr_expect_str_eq(line, "a b c d [0m");
    utf8_one_line("\xc2\x9b"
                  "31m \xc2\xa0 \xff",
                  line, sizeof(line));
    cr_expect_str_eq(line, " 31m \xc2\xa0 ?");
    utf8_one_line("", line, 1);
    cr_expect_str_eq(line, "");
    utf8_one_line("abc", line, 1);
    cr_expect_str_eq(line, "");
    /* At every size what comes is well-formed, a prefix, and as long as it can be. */
    static const char text[] = "z\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z";
    static const size_t lengths[] = { 0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11 };
    for (size_t room = 0; room < ELEMENTS(lengths); room++) {
        utf8_one_line(text, line, room + 1);
        cr_expect_eq(strlen(line), lengths[room], "in %zu", room);
        cr_expect_eq(memcmp(line, text, strlen(line)), 0);
        cr_expect(utf8_valid((const uint8_t *)line, strlen(line)));
    }
}
