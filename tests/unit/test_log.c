/* The log as text: its format, its levels and names, colour, and the limit on repeated lines. */
#include "common/log.h"
#include "tests/unit/log_capture.h"

#include <pty.h>
#include <stdio.h>

Test(log, text_has_time_level_program_message_and_fields)
{
    int fd = capture_stderr();
    log_setup("sandstorm-agent", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    log_info("command started", LF_STR("command", "web-1"), LF_INT("pid", -5),
             LF_UINT("big", UINT64_MAX));
    const char *line = next_line(fd);
    int year, month, day, hour, minute, second, milli, end = 0;
    cr_expect_eq(sscanf(line, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ %n", &year, &month, &day, &hour,
                        &minute, &second, &milli, &end),
                 7, "%s", line);
    cr_expect_eq(end, 25);
    cr_expect_geq(year, 2024);
    cr_expect_str_eq(line + end, "info  sandstorm-agent: command started command=web-1 pid=-5 "
                                 "big=18446744073709551615");
}

Test(log, every_level_has_a_column_of_the_same_width)
{
    int fd = capture_stderr();
    log_setup("prog", LOG_LEVEL_DEBUG, LOG_FORMAT_TEXT);
    log_error("x");
    cr_expect_str_eq(next_line(fd) + 25, "error prog: x");
    log_warn("x");
    cr_expect_str_eq(next_line(fd) + 25, "warn  prog: x");
    log_info("x");
    cr_expect_str_eq(next_line(fd) + 25, "info  prog: x");
    log_debug("x");
    cr_expect_str_eq(next_line(fd) + 25, "debug prog: x");
}

Test(log, events_below_the_level_are_dropped_and_not_evaluated)
{
    int fd = capture_stderr();
    log_setup("prog", LOG_LEVEL_WARN, LOG_FORMAT_TEXT);
    int evaluated = 0;
    log_info("x", LF_INT("n", ++evaluated));
    log_event(LOG_LEVEL_DEBUG, "x", NULL, 0);
    expect_silence(fd);
    cr_expect_eq(evaluated, 0);
    cr_expect(log_enabled(LOG_LEVEL_WARN));
    cr_expect_not(log_enabled(LOG_LEVEL_INFO));
}

struct text_case {
    const char *value;
    const char *shown;
};

Test(log, text_values_are_quoted_and_escaped_where_they_must)
{
    static const struct text_case cases[] = {
        { "plain", "v=plain" },
        { "/a/b:c,d", "v=/a/b:c,d" },
        { "", "v=\"\"" },
        { NULL, "v=\"\"" },
        { "two words", "v=\"two words\"" },
        { "a=b", "v=\"a=b\"" },
        { "say \"hi\"", "v=\"say \\\"hi\\\"\"" },
        { "a\\b", "v=\"a\\\\b\"" },
        { "a\nb\r\t", "v=\"a\\nb\\r\\t\"" },
        { "\x1b[31mred", "v=\"\\x1b[31mred\"" },
        { "\x7f\x01", "v=\"\\x7f\\x01\"" },
        { "gr\xc3\xbc\xc3\x9f \xe2\x82\xac\xf0\x9f\x8c\xaa",
          "v=\"gr\xc3\xbc\xc3\x9f \xe2\x82\xac\xf0\x9f\x8c\xaa\"" },
        { "\xff\xc3", "v=\"\\xff\\xc3\"" },
        { "\xc0\xaf", "v=\"\\xc0\\xaf\"" },
        { "\xed\xa0\x80", "v=\"\\xed\\xa0\\x80\"" },
        { "\xc2\x9b", "v=\"\\u009b\"" },
        { "\xe2\x80\xa8", "v=\"\\u2028\"" },
        { "\xe2\x80\xae", "v=\"\\u202e\"" },
    };
    int fd = capture_stderr();
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    for (size_t i = 0; i < ELEMENTS(cases); i++) {
        log_info("m", LF_STR("v", cases[i].value));
        cr_expect_str_eq(next_event(fd) + strlen("m "), cases[i].shown, "case %zu", i);
    }
}

Test(log, a_value_is_cut_only_past_its_maximum_and_never_inside_a_character)
{
    int fd = capture_stderr();
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    char value[LOG_VALUE_MAX + 200], expected[LOG_VALUE_MAX + 8];
    (void)memset(value, 'a', sizeof(value));
    value[LOG_VALUE_MAX] = '\0';
    log_info("m", LF_STR("v", value));
    cr_expect_str_eq(next_event(fd) + strlen("m v="), value);

    value[LOG_VALUE_MAX] = 'a';
    value[LOG_VALUE_MAX + 1] = '\0';
    (void)snprintf(expected, sizeof(expected), "%.*s...", LOG_VALUE_MAX - 3, value);
    log_info("m", LF_STR("v", value));
    cr_expect_str_eq(next_event(fd) + strlen("m v="), expected);

    /* 169 characters of three bytes and two more of the next one would fit before the dots. */
    value[0] = '\0';
    long_value(value, sizeof(value), "\xe2\x82\xac");
    log_info("m", LF_STR("v", value));
    const char *shown = next_event(fd) + strlen("m v=");
    cr_expect_eq(strlen(shown), 169 * 3 + 3);
    cr_expect_str_eq(shown + 169 * 3 - 3, "\xe2\x82\xac...");
}

/* True when a line on a terminal holds an escape sequence. */
static bool terminal_is_coloured(const char *term, const char *no_color)
{
    int master, terminal;
    cr_assert_eq(openpty(&master, &terminal, NULL, NULL, NULL), 0);
    cr_assert_eq(dup2(terminal, STDERR_FILENO), STDERR_FILENO);
    cr_assert_eq(term ? setenv("TERM", term, 1) : unsetenv("TERM"), 0);
    cr_assert_eq(no_color ? setenv("NO_COLOR", no_color, 1) : unsetenv("NO_COLOR"), 0);
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    log_info("m", LF_STR("v", "x"));
    char out[512] = "";
    cr_assert_gt(read(master, out, sizeof(out) - 1), 0);
    close_fd(&master);
    close_fd(&terminal);
    cr_assert_not_null(strstr(out, "prog: m"));
    return strchr(out, '\x1b') != NULL;
}

Test(log, only_a_terminal_that_wants_it_gets_colour)
{
    cr_expect(terminal_is_coloured("xterm", NULL));
    cr_expect(terminal_is_coloured("xterm", ""));
    cr_expect_not(terminal_is_coloured("xterm", "1"));
    cr_expect_not(terminal_is_coloured("dumb", NULL));
    cr_expect_not(terminal_is_coloured(NULL, NULL));
}

Test(log, logging_keeps_errno_even_when_stderr_is_closed)
{
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    (void)close(STDERR_FILENO);
    errno = ENOTTY;
    log_info("m");
    cr_expect_eq(errno, ENOTTY);
}

Test(log, an_error_makes_two_fields)
{
    int fd = capture_stderr();
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    struct err err;
    (void)err_set(&err, ERR_TIMEOUT, "no answer");
    log_error("failed", LF_ERR(&err));
    cr_expect_str_eq(next_event(fd), "failed error=\"no answer\" error_code=timeout");
}

Test(log, level_and_format_names_parse_and_nothing_else)
{
    static const char *const levels[] = { "error", "warn", "info", "debug" };
    static const char *const formats[] = { "auto", "text", "json", "journal" };
    for (unsigned i = 0; i < 4; i++) {
        enum log_level level;
        enum log_format format;
        cr_expect_eq(log_level_parse(levels[i], &level, NULL), 0);
        cr_expect_eq((unsigned)level, i);
        cr_expect_eq(log_format_parse(formats[i], &format, NULL), 0);
        cr_expect_eq((unsigned)format, i);
    }
    struct err err = { 0 };
    enum log_level level = LOG_LEVEL_WARN;
    enum log_format format = LOG_FORMAT_JSON;
    cr_expect_eq(log_level_parse("Info", &level, &err), -1);
    cr_expect_eq(err.code, ERR_INVALID);
    cr_expect_eq(log_format_parse("", &format, &err), -1);
    cr_expect_eq(level, LOG_LEVEL_WARN);
    cr_expect_eq(format, LOG_FORMAT_JSON);
}

Test(log, a_limit_lets_a_burst_pass_and_counts_the_rest)
{
    struct log_limit limit = LOG_LIMIT(1000, 3);
    uint64_t suppressed = 99;
    for (unsigned i = 0; i < 3; i++) {
        cr_expect(log_limit_pass(&limit, 50 + i, &suppressed));
        cr_expect_eq(suppressed, 0);
    }
    for (unsigned i = 0; i < 7; i++)
        cr_expect_not(log_limit_pass(&limit, 1049, &suppressed));
    cr_expect(log_limit_pass(&limit, 1050, &suppressed));
    cr_expect_eq(suppressed, 7);
    cr_expect(log_limit_pass(&limit, 1051, &suppressed));
    cr_expect_eq(suppressed, 0);
}

Test(log, a_limit_counts_what_passes_and_loses_nothing)
{
    struct log_limit limit = LOG_LIMIT(100, 5);
    uint64_t now = 0, seed = 3, passed = 0, reported = 0;
    for (unsigned i = 0; i < 20000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        now += (seed >> 40) % 20;
        uint64_t suppressed;
        if (log_limit_pass(&limit, now, &suppressed)) {
            passed++;
            reported += suppressed;
        }
    }
    cr_expect_eq(passed + reported + limit.suppressed, 20000);
    cr_expect_leq(passed, (now / 100 + 1) * 5);
    cr_expect_gt(reported, 0);
}

Test(log, a_limit_of_zero_lines_is_silent_and_a_clock_running_back_is_not)
{
    struct log_limit limit = LOG_LIMIT(1000, 0);
    uint64_t suppressed;
    cr_expect_not(log_limit_pass(&limit, 1, &suppressed));
    cr_expect_not(log_limit_pass(&limit, 5000, &suppressed));
    limit = LOG_LIMIT(1000, 1);
    cr_expect(log_limit_pass(&limit, 5000, &suppressed));
    cr_expect(log_limit_pass(&limit, 10, &suppressed));
}
