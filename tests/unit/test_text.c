/* Words for people: what a peer sends cannot steer a terminal, and times read well. */
#include "cli/text.h"

#include "common/clock.h"
#include "common/macros.h"

#include <criterion/criterion.h>
#include <string.h>

static void expect_escaped(const char *text, const char *wanted)
{
    CLEANUP_FREE char *escaped = text_escape(text);
    cr_assert_str_eq(escaped, wanted);
}

/* cppcheck-suppress unknownMacro */
Test(text, plain_text_of_any_language_stays)
{
    expect_escaped("", "");
    expect_escaped("a \"b\" \\ c~", "a \"b\" \\ c~");
    expect_escaped("grüße 日本語 🏜", "grüße 日本語 🏜");
}

Test(text, what_moves_a_cursor_or_hides_becomes_visible)
{
    expect_escaped("\x1b[2J", "\\x1b[2J");
    expect_escaped("a\nb\r\t\x7f", "a\\x0ab\\x0d\\x09\\x7f");
    expect_escaped("\xc2\x9b"
                   "31m",
                   "\\u009b31m");
    expect_escaped("\xe2\x80\xae"
                   "abc",
                   "\\u202eabc");
    expect_escaped("\xe2\x80\x8b\xef\xbb\xbf\xe2\x81\xa6", "\\u200b\\ufeff\\u2066");
    expect_escaped("\xff\xc3", "\\xff\\xc3");
}

Test(text, no_text_gets_a_control_character_through)
{
    for (unsigned first = 1; first < 256; first++)
        for (unsigned second = 1; second < 256; second++) {
            const char text[] = { (char)first, (char)second, '\0' };
            CLEANUP_FREE char *escaped = text_escape(text);
            for (const char *p = escaped; *p; p++) {
                cr_assert((unsigned char)*p >= 0x20 && *p != 0x7f, "%u %u", first, second);
                cr_assert((unsigned char)*p != 0xc2 || (unsigned char)p[1] >= 0xa0, "%u %u", first,
                          second);
            }
        }
}

Test(text, durations_have_one_unit)
{
    static const struct {
        int64_t ms;
        const char *text;
    } rows[] = {
        { -5, "0s" },         { 999, "0s" },       { 119999, "119s" },
        { 120000, "2m" },     { 7199000, "119m" }, { 7200000, "2h" },
        { 172799000, "47h" }, { 172800000, "2d" }, { INT64_MAX, "106751991167d" },
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        char text[TEXT_TIME_MAX];
        text_duration(rows[i].ms, text);
        cr_assert_str_eq(text, rows[i].text);
    }
}

Test(text, times_are_utc_and_any_number_is_survived)
{
    char text[TEXT_TIME_MAX];
    text_time(1763466604000, text);
    cr_assert_str_eq(text, "2025-11-18T11:50:04Z");
    text_time(0, text);
    cr_assert_str_eq(text, "-");
    static const int64_t odd[] = { INT64_MIN, INT64_MAX, -1, 1 };
    for (size_t i = 0; i < ELEMENTS(odd); i++) {
        text_time(odd[i], text);
        cr_assert(*text);
        text_when(odd[i], text);
        cr_assert(*text);
    }
    text_when(wall_ms() + 14 * 60000 + 30000, text);
    cr_assert_str_eq(text, "in 14m");
    text_when(wall_ms() - 14 * 60000 - 30000, text);
    cr_assert_str_eq(text, "14m ago");
}
