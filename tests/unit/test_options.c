/* Command lines: what is accepted in which spelling and what errors say. The random tests compare
 * with models simple enough to trust. What --help shows is in test_options_print.c. */
#include "common/options.h"

#include <criterion/criterion.h>
#include <stddef.h>
#include <string.h>

struct values {
    bool verbose, quiet;
    const char *directory;
    uint64_t count, timeout;
    struct option_list labels;
};

#define ROW(field) offsetof(struct values, field)

static const struct option options[] = {
    { "verbose", 'v', OPTION_FLAG, NULL, "Say more", ROW(verbose), 0, 0 },
    { "quiet", 'q', OPTION_FLAG, NULL, "Say less", ROW(quiet), 0, 0 },
    { "work-dir", 'C', OPTION_STRING, "DIR_NAME", "Change to it first", ROW(directory), 0, 0 },
    { "count", 'n', OPTION_UINT, "N", "Run that often", ROW(count), 1, 100 },
    { "timeout", 0, OPTION_DURATION, "TIME", "Give up after this time", ROW(timeout), 1000000,
      UINT64_C(3600000000) },
    { "a-label-with-a-long-name", 'l', OPTION_LIST, "KEY=VALUE", "Match this label", ROW(labels), 0,
      0 },
    { 0 },
};

static const struct option_page page = {
    .program = "sandstorm exec",
    .section = 1,
    .summary = "run a command in a sandbox",
    .usage = "[OPTION...] SANDBOX -- ARGV...",
    .options = options,
};

struct outcome {
    int r, rest;
    bool help;
    struct values values;
    struct err err;
};

/* Parses the words after argv[0]; the list ends with NULL. */
static struct outcome parse(const char *const *words)
{
    struct outcome o = { .rest = -7 };
    char *argv[128] = { (char *)(uintptr_t) "exec" };
    int argc = 1;
    for (; *words; words++)
        argv[argc++] = (char *)(uintptr_t)*words;
    o.r = options_parse(&page, argc, argv, &o.values, &o.help, &o.rest, &o.err);
    return o;
}
#define PARSE(...) parse((const char *const[]){ __VA_ARGS__, NULL })

static void expect_error(struct outcome o, const char *text)
{
    cr_assert_eq(o.r, -1);
    cr_assert_eq(o.err.code, ERR_INVALID);
    cr_assert_str_eq(o.err.text, text);
    cr_assert_eq(o.rest, -7, "out-parameters are written on success only");
}

Test(options, long_value_after_equals_or_as_next_word)
{
    struct outcome o = PARSE("--work-dir=/a=b", "--count", "7");
    cr_assert_eq(o.r, 0, "%s", o.err.text);
    cr_assert_str_eq(o.values.directory, "/a=b");
    cr_assert_eq(o.values.count, 7);
    cr_assert_eq(o.rest, 4);
    cr_assert_not(o.help);
}

Test(options, an_attached_empty_value_is_a_value)
{
    struct outcome o = PARSE("--work-dir=", "x");
    cr_assert_eq(o.r, 0);
    cr_assert_str_eq(o.values.directory, "");
    cr_assert_eq(o.rest, 2);
}

Test(options, letters_bundle_and_the_last_may_take_a_value)
{
    struct outcome o = PARSE("-vqn5", "-C", "/tmp", "-lx=1");
    cr_assert_eq(o.r, 0, "%s", o.err.text);
    cr_assert(o.values.verbose && o.values.quiet);
    cr_assert_eq(o.values.count, 5);
    cr_assert_str_eq(o.values.directory, "/tmp");
    cr_assert_eq(o.values.labels.count, 1);
    cr_assert_str_eq(o.values.labels.items[0], "x=1");
}

Test(options, the_last_of_several_wins)
{
    cr_assert_eq(PARSE("-n1", "--count=2", "-n", "3").values.count, 3);
}

Test(options, stops_at_the_first_word)
{
    struct outcome o = PARSE("-v", "box", "-q");
    cr_assert_eq(o.r, 0);
    cr_assert_eq(o.rest, 2);
    cr_assert_not(o.values.quiet);
}

Test(options, a_lone_dash_is_a_word)
{
    cr_assert_eq(PARSE("-v", "-").rest, 2);
}

Test(options, two_dashes_end_options_and_are_skipped)
{
    struct outcome o = PARSE("-v", "--", "-q");
    cr_assert_eq(o.rest, 3);
    cr_assert_not(o.values.quiet);
}

Test(options, no_words_at_all)
{
    struct values v = { 0 };
    bool help = true;
    int rest = -1;
    struct err err;
    char *none[] = { NULL };
    cr_assert_eq(options_parse(&page, 0, none, &v, &help, &rest, &err), 0);
    cr_assert_eq(rest, 0);
    cr_assert_not(help);
}

Test(options, help_is_always_known_and_ends_parsing)
{
    struct outcome o = PARSE("-v", "--help", "--nonsense");
    cr_assert_eq(o.r, 0);
    cr_assert(o.help);
    cr_assert_eq(o.rest, 3);
    cr_assert(PARSE("-vh").help);
    expect_error(PARSE("--help=me"), "--help takes no value; leave out \"=me\"");
}

Test(options, the_table_may_take_the_letter_h_for_itself)
{
    static const struct option own[] = {
        { "human", 'h', OPTION_FLAG, NULL, "Readable", ROW(verbose), 0, 0 },
        { 0 },
    };
    struct option_page other = page;
    other.options = own;
    struct values v = { 0 };
    bool help = true;
    int rest = 0;
    struct err err;
    char name[] = "x", word[] = "-h";
    char *argv[] = { name, word, NULL };
    cr_assert_eq(options_parse(&other, 2, argv, &v, &help, &rest, &err), 0);
    cr_assert(v.verbose && !help);
}

Test(options, errors_say_what_was_probably_meant)
{
    expect_error(PARSE("--work-dri=x"), "unknown option \"--work-dri\"; "
                                        "did you mean \"--work-dir\"?");
    expect_error(PARSE("--time"), "unknown option \"--time\"; did you mean \"--timeout\"?");
    expect_error(PARSE("-quiet"), "unknown option \"-quiet\"; did you mean \"--quiet\"?");
    expect_error(PARSE("--zzzzzz=x"), "unknown option \"--zzzzzz\"; "
                                      "\"sandstorm exec --help\" lists them all");
    expect_error(PARSE("-vz"), "unknown option \"-z\"; \"sandstorm exec --help\" lists them all");
    expect_error(PARSE("--=x"), "unknown option \"--\"; \"sandstorm exec --help\" lists them all");
}

Test(options, a_very_long_unknown_option_is_cut)
{
    char word[4096];
    memset(word, 'x', sizeof(word) - 1);
    word[sizeof(word) - 1] = '\0';
    memcpy(word, "--count", 7);
    struct outcome o = PARSE(word);
    cr_assert_eq(o.r, -1);
    cr_assert(strlen(o.err.text) < 200);
}

Test(options, errors_about_values_name_option_and_remedy)
{
    expect_error(PARSE("-v", "--count"), "--count needs a value; write --count=N");
    expect_error(PARSE("-vC"), "--work-dir needs a value; write --work-dir=DIR_NAME");
    expect_error(PARSE("--verbose=1"), "--verbose takes no value; leave out \"=1\"");
    expect_error(PARSE("-n0"), "--count: 0 is too small; give at least 1");
    expect_error(PARSE("-n101"), "--count: 101 is too large; give at most 100");
    expect_error(PARSE("--timeout=999ms"), "--timeout: 999ms is too small; give at least 1s");
    expect_error(PARSE("--timeout=2h"), "--timeout: 2h is too large; give at most 1h");
    expect_error(PARSE("--timeout=5"), "--timeout: \"5\" is not a duration; write it like 500ms, "
                                       "30s, 15m, 12h or 7d");
}

Test(options, numbers_are_plain_digits_without_overflow)
{
    const char *bad[] = { "", " 1", "+1", "-1", "1 ", "0x1", "1.0", "18446744073709551616" };
    for (size_t i = 0; i < ELEMENTS(bad); i++)
        cr_assert_eq(PARSE("-n", bad[i]).r, -1, "%s", bad[i]);
    static const struct option wide[] = {
        { "count", 0, OPTION_UINT, "N", "", ROW(count), 0, 0 },
        { 0 },
    };
    struct option_page other = page;
    other.options = wide;
    struct values v = { 0 };
    bool help;
    int rest;
    struct err err;
    char name[] = "x", word[] = "--count=18446744073709551615";
    char *argv[] = { name, word, NULL };
    cr_assert_eq(options_parse(&other, 2, argv, &v, &help, &rest, &err), 0);
    cr_assert_eq(v.count, UINT64_MAX);
}

Test(options, a_list_has_a_bound)
{
    const char *words[OPTION_LIST_MAX + 2] = { 0 };
    for (unsigned i = 0; i < OPTION_LIST_MAX; i++)
        words[i] = "-lx";
    struct outcome o = parse(words);
    cr_assert_eq(o.r, 0);
    cr_assert_eq(o.values.labels.count, OPTION_LIST_MAX);
    words[OPTION_LIST_MAX] = "-ly";
    expect_error(parse(words), "--a-label-with-a-long-name may be given at most 64 times");
}

static uint64_t state = 42;

static unsigned roll(unsigned below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(state >> 33) % below;
}

/* Writes one random option in a random spelling and notes in the model what it means. */
static unsigned random_option(const char **words, char (*text)[64], struct values *model)
{
    switch (roll(5)) {
    case 0:
        words[0] = roll(2) ? "-v" : "--verbose";
        model->verbose = true;
        return 1;
    case 1:
        words[0] = "-qv";
        model->quiet = model->verbose = true;
        return 1;
    case 2:
        model->count = 1 + roll(100);
        (void)snprintf(text[0], 64, roll(2) ? "--count=%u" : "-qn%u", (unsigned)model->count);
        model->quiet |= text[0][1] == 'q';
        words[0] = text[0];
        return 1;
    case 3:
        model->timeout = 1000000 + roll(3599000) * UINT64_C(1000);
        (void)snprintf(text[0], 64, "%llums", (unsigned long long)model->timeout / 1000);
        words[0] = "--timeout";
        words[1] = text[0];
        return 2;
    default:
        (void)snprintf(text[0], 64, "-%u", roll(1000));
        words[0] = roll(2) ? "-l" : "--a-label-with-a-long-name";
        words[1] = text[0];
        model->labels.items[model->labels.count++] = text[0];
        return 2;
    }
}

Test(options, any_sequence_in_any_spelling_means_what_the_model_says)
{
    for (unsigned round = 0; round < 2000; round++) {
        const char *words[64] = { 0 };
        char text[24][64];
        struct values model = { 0 };
        unsigned count = 0, wanted = roll(24);
        for (unsigned i = 0; i < wanted; i++)
            count += random_option(words + count, &text[i], &model);
        unsigned end = roll(3);
        if (end > 0)
            words[count] = end == 1 ? "--" : "word";
        struct outcome o = parse(words);
        cr_assert_eq(o.r, 0, "%s", o.err.text);
        cr_assert_eq(o.rest, (int)count + 1 + (end == 1));
        cr_assert_eq(memcmp(&o.values, &model, sizeof(model)), 0);
    }
}

Test(options, duration_units_scale_to_microseconds)
{
    static const struct {
        const char *text;
        uint64_t us;
    } good[] = {
        { "0s", 0 },
        { "500ms", 500000 },
        { "30s", 30000000 },
        { "15m", UINT64_C(900000000) },
        { "007s", 7000000 },
        { "12h", UINT64_C(43200000000) },
        { "18446744073709551ms", UINT64_C(18446744073709551000) },
        { "7d", UINT64_C(604800000000) },
    };
    for (size_t i = 0; i < ELEMENTS(good); i++) {
        uint64_t us = 1;
        struct err err;
        cr_assert_eq(duration_parse(good[i].text, &us, &err), 0, "%s", good[i].text);
        cr_assert_eq(us, good[i].us, "%s", good[i].text);
    }
}

Test(options, duration_of_any_other_form_is_refused_and_leaves_the_result_alone)
{
    const char *bad[] = { "",    "5",    "s",  "-1s", "1 s",  " 1s", "1s ", "1.5s",
                          "1us", "1h5m", "1S", "1w",  "1sec", "+1s", "ms",  "18446744073709552ms" };
    for (size_t i = 0; i < ELEMENTS(bad); i++) {
        uint64_t us = 77;
        struct err err = { 0 };
        cr_assert_eq(duration_parse(bad[i], &us, &err), -1, "%s", bad[i]);
        cr_assert_eq(us, 77);
        cr_assert_eq(err.code, ERR_INVALID);
        cr_assert(strstr(err.text, "write it like 500ms"));
    }
}

static const char *const verbs_known[] = { "exec", "list", "logs", "ls", "list-tokens", NULL };

Test(options, nearest_misspellings_and_beginnings_are_found)
{
    cr_assert_str_eq(nearest_name("exce", verbs_known), "exec");
    cr_assert_str_eq(nearest_name("lst", verbs_known), "list");
    cr_assert_str_eq(nearest_name("exec", verbs_known), "exec");
    cr_assert_str_eq(nearest_name("list-t", verbs_known), "list");
    cr_assert_str_eq(nearest_name("list-tok", verbs_known), "list-tokens");
    cr_assert_str_eq(nearest_name("e", verbs_known), "exec");
    const char *const two[] = { "sandbox-list-all", "sandbox-list", NULL };
    cr_assert_str_eq(nearest_name("sandbox", two), "sandbox-list", "the shortest is nearest");
}

Test(options, nearest_what_has_nothing_in_common_is_not_near)
{
    cr_assert_null(nearest_name("", verbs_known));
    cr_assert_null(nearest_name("zz", verbs_known));
    cr_assert_null(nearest_name("frobnicate", verbs_known));
    char word[5000];
    memset(word, 'e', sizeof(word) - 1);
    word[sizeof(word) - 1] = '\0';
    cr_assert_null(nearest_name(word, verbs_known));
    const char *const long_names[] = { word, NULL };
    cr_assert_null(nearest_name("eeee", long_names));
    const char *const none[] = { NULL };
    cr_assert_null(nearest_name("exec", none));
}

/* The definition of the edit distance, word for word. */
static unsigned model_distance(const char *a, const char *b)
{
    if (!*a || !*b)
        return (unsigned)(strlen(a) + strlen(b));
    unsigned change = model_distance(a + 1, b + 1) + (*a != *b);
    unsigned drop = model_distance(a + 1, b) + 1, add = model_distance(a, b + 1) + 1;
    return MIN(change, MIN(drop, add));
}

static void random_word(char *out)
{
    unsigned length = 1 + roll(5);
    for (unsigned i = 0; i < length; i++)
        out[i] = (char)('a' + roll(3));
    out[length] = '\0';
}

Test(options, nearest_agrees_with_the_definition_on_random_words)
{
    for (unsigned round = 0; round < 2000; round++) {
        char word[8], text[4][8];
        const char *names[5] = { 0 };
        unsigned best = 3;
        bool prefix = false;
        random_word(word);
        for (unsigned i = 0; i < 4; i++) {
            random_word(text[i]);
            names[i] = text[i];
            unsigned distance = model_distance(word, text[i]);
            if (distance < MAX(strlen(word), strlen(text[i])))
                best = MIN(best, distance);
            prefix |= strncmp(word, text[i], strlen(word)) == 0;
        }
        const char *near = nearest_name(word, names);
        if (best < 3)
            cr_assert_eq(model_distance(word, near), best, "%s -> %s", word, near);
        else if (prefix)
            cr_assert_eq(strncmp(word, near, strlen(word)), 0);
        else
            cr_assert_null(near);
    }
}
