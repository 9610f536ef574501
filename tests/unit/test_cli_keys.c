/* The escape keys of a terminal session: ours never reach the command, everything else does. */
#include "cli/keys.h"
#include "tests/unit/random.h"

#include <criterion/criterion.h>
#include <string.h>

static struct keys keys;
static char out[256];
static size_t out_size;

/* Types a text piece by piece ("|" is where one read ends) and returns the last action. */
static enum keys_action type(const char *text)
{
    enum keys_action last = KEYS_PASS, action;
    while (*text) {
        char piece[64];
        size_t size = strcspn(text, "|");
        (void)memcpy(piece, text, size);
        size_t left = keys_filter(&keys, piece, size, &action);
        (void)memcpy(out + out_size, piece, left);
        out_size += left;
        out[out_size] = '\0';
        if (action != KEYS_PASS)
            last = action;
        text += size + (text[size] == '|');
    }
    return last;
}

static void setup(void)
{
    keys_init(&keys, KEYS_ESCAPE);
}

/* cppcheck-suppress unknownMacro */
TestSuite(cli_keys, .init = setup);

Test(cli_keys, what_is_typed_goes_through)
{
    cr_expect_eq(type("ls -l ~/src\r"), KEYS_PASS);
    cr_expect_str_eq(out, "ls -l ~/src\r");
}

Test(cli_keys, escape_and_dot_at_the_beginning_of_a_line_leave)
{
    cr_expect_eq(type("~."), KEYS_LEAVE);
    cr_expect_eq(type("ls\r~."), KEYS_LEAVE);
    cr_expect_eq(type("ls\n~|."), KEYS_LEAVE);
    cr_expect_str_eq(out, "ls\rls\n");
}

Test(cli_keys, in_the_middle_of_a_line_they_are_text)
{
    cr_expect_eq(type("a~.b"), KEYS_PASS);
    cr_expect_str_eq(out, "a~.b");
}

Test(cli_keys, an_escape_that_means_nothing_is_text_with_what_follows)
{
    cr_expect_eq(type("~x"), KEYS_PASS);
    cr_expect_eq(type("\r~|y"), KEYS_PASS);
    cr_expect_eq(type("\r~\r~."), KEYS_LEAVE);
    cr_expect_str_eq(out, "~x\r~y\r~\r");
}

Test(cli_keys, an_escape_is_held_until_the_next_key)
{
    (void)type("~");
    cr_expect_str_eq(out, "");
    (void)type("z");
    cr_expect_str_eq(out, "~z");
}

Test(cli_keys, a_doubled_escape_is_one)
{
    cr_expect_eq(type("~~."), KEYS_PASS);
    cr_expect_eq(type("\r~|~|."), KEYS_PASS);
    cr_expect_str_eq(out, "~.\r~.");
}

Test(cli_keys, help_and_suspend_leave_the_line_where_it_was)
{
    cr_expect_eq(type("~?"), KEYS_HELP);
    cr_expect_eq(type("~\x1a"), KEYS_SUSPEND);
    cr_expect_eq(type("~."), KEYS_LEAVE);
    cr_expect_str_eq(out, "");
}

Test(cli_keys, what_follows_ours_in_one_piece_is_not_lost)
{
    cr_expect_eq(type("~?ls\r~x"), KEYS_HELP);
    cr_expect_eq(type("\r~.~?"), KEYS_LEAVE);
    cr_expect_str_eq(out, "ls\r~x\r");
}

Test(cli_keys, another_character_or_none_can_be_chosen)
{
    int escape;
    cr_expect(keys_parse("%", &escape));
    keys_init(&keys, escape);
    cr_expect_eq(type("~.\r%."), KEYS_LEAVE);
    cr_expect(keys_parse("none", &escape));
    keys_init(&keys, escape);
    cr_expect_eq(type("~.%."), KEYS_PASS);
    cr_expect_str_eq(out, "~.\r~.%.");
    cr_expect(keys_parse(NULL, &escape));
    cr_expect_eq(escape, KEYS_ESCAPE);
    cr_expect_not(keys_parse("", &escape));
    cr_expect_not(keys_parse("ab", &escape));
}

/* However the keys are cut into pieces, the command gets the same. */
Test(cli_keys, pieces_make_no_difference)
{
    static const char alphabet[] = "~.?\r\nab";
    uint64_t seed = 11;
    for (unsigned round = 0; round < 2000; round++) {
        char text[40], whole[80], cut[80];
        size_t size = 1 + random_below(&seed, sizeof(text) - 1);
        for (size_t i = 0; i < size; i++)
            text[i] = alphabet[random_below(&seed, sizeof(alphabet) - 1)];
        enum keys_action action;
        size_t from[2] = { 0, 0 }, length[2] = { 0, 0 };
        char *into[2] = { whole, cut };
        for (unsigned k = 0; k < 2; k++) {
            keys_init(&keys, KEYS_ESCAPE);
            while (from[k] < size) {
                char piece[64];
                size_t step = k == 0 ? 1 : 1 + random_below(&seed, 2);
                step = step < size - from[k] ? step : size - from[k];
                (void)memcpy(piece, text + from[k], step);
                size_t left = keys_filter(&keys, piece, step, &action);
                (void)memcpy(into[k] + length[k], piece, left);
                length[k] += left;
                from[k] += step;
            }
        }
        cr_assert_eq(length[0], length[1], "%.*s", (int)size, text);
        cr_assert_arr_eq(whole, cut, length[0]);
    }
}
