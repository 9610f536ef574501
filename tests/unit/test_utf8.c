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
