/* Where an event goes and that nothing in it can do harm there: JSON, the journal, and hostile
 * values in every format. sd_journal_sendv(3) and the look at the journal's socket are replaced in
 * this binary, so no journald is needed. */
#include "common/log_ids.h"
#include "tests/unit/log_capture.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static bool journal_is_running = true;
static int journal_result;
static char journal_fields[32][LOG_VALUE_MAX * LOG_FIELDS_MAX * 2];
static int journal_count;

int sd_journal_sendv(const struct iovec *iov, int n);
int sd_journal_sendv(const struct iovec *iov, int n)
{
    cr_assert_leq(n, (int)ELEMENTS(journal_fields));
    for (int i = 0; i < n; i++) {
        cr_assert_lt(iov[i].iov_len, sizeof(journal_fields[i]));
        (void)memcpy(journal_fields[i], iov[i].iov_base, iov[i].iov_len);
        journal_fields[i][iov[i].iov_len] = '\0';
    }
    journal_count = n;
    return journal_result;
}

int access(const char *path, int mode)
{
    if (strcmp(path, "/run/systemd/journal/socket") == 0)
        return journal_is_running ? 0 : -1;
    return (int)syscall(SYS_faccessat, AT_FDCWD, path, mode);
}

static bool journal_has(const char *field)
{
    for (int i = 0; i < journal_count; i++)
        if (strcmp(journal_fields[i], field) == 0)
            return true;
    return false;
}

Test(log_sink, the_largest_possible_line_is_still_one_line)
{
    int fd = capture_stderr();
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    char value[2 * LOG_VALUE_MAX] = "";
    long_value(value, sizeof(value), "\x1b");
    struct log_field fields[LOG_FIELDS_MAX];
    for (unsigned i = 0; i < LOG_FIELDS_MAX; i++)
        fields[i] = LF_STR("a_rather_long_name_for_a_field", value);
    log_event(LOG_LEVEL_INFO, value, fields, LOG_FIELDS_MAX);
    const char *line = next_line(fd);
    cr_expect_str_eq(line + strlen(line) - 5, "b...\"", "the last field was lost");

    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    log_event(LOG_LEVEL_INFO, value, fields, LOG_FIELDS_MAX);
    (void)next_line(fd);
}

static json_t *next_json(int fd)
{
    const char *line = next_line(fd);
    for (const char *at = line; *at != '\0'; at++)
        cr_assert(*at >= 0x20 && *at < 0x7f, "byte %d in %s", *at, line);
    json_t *object = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(object, "not JSON: %s", line);
    return object;
}

static const char *json_get(const json_t *object, const char *name)
{
    const char *value = json_string_value(json_object_get(object, name));
    return value ? value : "(no string)";
}

Test(log_sink, json_is_one_object_with_typed_fields)
{
    int fd = capture_stderr();
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    log_warn("slow", LF_STR("command", "a \"b\""), LF_INT("pid", INT64_MIN),
             LF_UINT("small", INT64_MAX), LF_UINT("big", UINT64_MAX), LF_STR("none", NULL));
    json_t *object = next_json(fd);
    cr_expect_str_eq(json_get(object, "level"), "warn");
    cr_expect_str_eq(json_get(object, "program"), "prog");
    cr_expect_str_eq(json_get(object, "message"), "slow");
    cr_expect_eq(strlen(json_get(object, "time")), strlen("2026-11-18T08:34:46.123Z"));
    cr_expect_str_eq(json_get(object, "command"), "a \"b\"");
    cr_expect_eq(json_integer_value(json_object_get(object, "pid")), INT64_MIN);
    cr_expect_eq(json_integer_value(json_object_get(object, "small")), INT64_MAX);
    cr_expect_str_eq(json_get(object, "big"), "18446744073709551615");
    cr_expect(json_is_null(json_object_get(object, "none")));
    json_decref(object);
}

Test(log_sink, json_keeps_good_text_and_replaces_what_is_not_utf8)
{
    int fd = capture_stderr();
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    log_info("m", LF_STR("bad", "a\xff\xc3"), LF_STR("good", "gr\xc3\xbc\xc3\x9f\n\x1b[0m\x7f"),
             LF_STR("level", "forged"));
    const char *line = next_line(fd);
    json_t *object = json_loads(line, 0, NULL);
    cr_assert_not_null(object, "%s", line);
    cr_expect_str_eq(json_get(object, "bad"), "a\xef\xbf\xbd\xef\xbf\xbd");
    cr_expect_str_eq(json_get(object, "good"), "gr\xc3\xbc\xc3\x9f\n\x1b[0m\x7f");
    cr_expect_str_eq(json_get(object, "level"), "info");
    json_decref(object);
}

/* Random bytes, weighted towards the ones that could do harm. */
static void hostile_value(uint64_t *seed, char *out, size_t size)
{
    static const unsigned char nasty[] = { '\n', '\r', 0x1b, '"',  '\\', '=',  ' ',  0x7f,
                                           0x80, 0xc2, 0x9b, 0xe2, 0x80, 0xa8, 0xf0, 0xff };
    size_t length = 0;
    for (; length + 1 < size; length++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        unsigned roll = (unsigned)(*seed >> 40);
        unsigned char byte = roll & 1 ? nasty[(roll >> 1) % sizeof(nasty)] : (roll >> 8) & 0xff;
        if (byte == 0)
            break;
        out[length] = (char)byte;
    }
    out[length] = '\0';
}

/* A reader of the text format: the closing quote is the first one without a backslash before it. */
static void expect_one_quoted_value(const char *event)
{
    static const char prefix[] = "m v=";
    cr_assert_eq(strncmp(event, prefix, strlen(prefix)), 0);
    const char *at = event + strlen(prefix);
    cr_assert_null(strpbrk(at, "\x1b\x7f\r\x01"), "a control character is left: %s", at);
    if (*at != '"') {
        cr_assert_null(strpbrk(at, " \"=\\"), "should have been quoted: %s", at);
        return;
    }
    for (at++; *at != '"'; at++) {
        cr_assert_neq(*at, '\0', "no closing quote: %s", event);
        at += *at == '\\';
    }
    cr_assert_eq(at[1], '\0', "text after the value: %s", event);
}

Test(log_sink, no_value_breaks_a_line)
{
    int fd = capture_stderr();
    uint64_t seed = 7;
    for (unsigned i = 0; i < 5000; i++) {
        char value[LOG_VALUE_MAX + 100];
        hostile_value(&seed, value, i % 2 ? sizeof(value) : 12);
        log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
        log_info("m", LF_STR("v", value));
        expect_one_quoted_value(next_event(fd));
        log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_JSON);
        log_info("m", LF_STR("v", value));
        json_t *object = json_loads(next_line(fd), JSON_REJECT_DUPLICATES, NULL);
        cr_assert_not_null(object);
        cr_assert_eq(json_object_size(object), 5);
        json_decref(object);
    }
}

Test(log_sink, the_journal_gets_the_message_and_each_field)
{
    int fd = capture_stderr();
    log_setup("prog", LOG_LEVEL_DEBUG, LOG_FORMAT_JOURNAL);
    log_warn("command started", LF_STR("exit_code2", "a\nMESSAGE=forged"), LF_INT("pid", 12));
    cr_expect_eq(journal_count, 5);
    cr_expect(journal_has("MESSAGE=command started exit_code2=\"a\\nMESSAGE=forged\" pid=12"));
    cr_expect(journal_has("PRIORITY=4"));
    cr_expect(journal_has("SYSLOG_IDENTIFIER=prog"));
    cr_expect(journal_has("SANDSTORM_EXIT_CODE2=a\\nMESSAGE=forged"));
    cr_expect(journal_has("SANDSTORM_PID=12"));
    expect_silence(fd);

    log_error("x");
    cr_expect(journal_has("PRIORITY=3"));
    log_info("x");
    cr_expect(journal_has("PRIORITY=6"));
    log_debug("x");
    cr_expect(journal_has("PRIORITY=7"));
}

Test(log_sink, the_journal_takes_the_largest_event)
{
    log_setup("prog", LOG_LEVEL_DEBUG, LOG_FORMAT_JOURNAL);
    char value[2 * LOG_VALUE_MAX] = "", name[200] = "";
    long_value(value, sizeof(value), "\x1b");
    long_value(name, sizeof(name), "n");
    struct log_field fields[LOG_FIELDS_MAX];
    for (unsigned i = 0; i < LOG_FIELDS_MAX; i++)
        fields[i] = LF_STR(name, value);
    log_event(LOG_LEVEL_INFO, value, fields, LOG_FIELDS_MAX);
    cr_expect_eq(journal_count, 3 + LOG_FIELDS_MAX);
}

Test(log_sink, a_journal_that_fails_or_is_absent_becomes_text)
{
    int fd = capture_stderr();
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_JOURNAL);
    journal_result = -ENOBUFS;
    log_info("m");
    cr_expect_str_eq(next_event(fd), "m");

    journal_is_running = false;
    journal_count = 0;
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_JOURNAL);
    log_info("n");
    cr_expect_str_eq(next_event(fd), "n");
    cr_expect_eq(journal_count, 0);
}

static void set_journal_stream(int offset)
{
    struct stat st;
    cr_assert_eq(fstat(STDERR_FILENO, &st), 0);
    char text[64];
    (void)snprintf(text, sizeof(text), "%ju:%ju", (uintmax_t)st.st_dev,
                   (uintmax_t)st.st_ino + (uintmax_t)offset);
    cr_assert_eq(setenv("JOURNAL_STREAM", text, 1), 0);
}

Test(log_sink, auto_is_the_journal_only_where_stderr_is_the_journal_stream)
{
    int fd = capture_stderr();
    set_journal_stream(0);
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_AUTO);
    log_info("m");
    cr_expect_eq(journal_count, 3);
    expect_silence(fd);

    set_journal_stream(1);
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_AUTO);
    log_info("m");
    cr_expect_str_eq(next_event(fd), "m");

    cr_assert_eq(unsetenv("JOURNAL_STREAM"), 0);
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_AUTO);
    log_info("m");
    cr_expect_str_eq(next_event(fd), "m");
}

Test(log_sink, the_kind_of_an_event_is_the_journals_own_field_and_is_shown_nowhere_else)
{
    int fd = capture_stderr();
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_JOURNAL);
    log_info("command ended", LF_EVENT("command_ended", event_command_ended.message_id));
    cr_expect(journal_has("MESSAGE_ID=e7a685f53cd2373a761b0f05a55be9fc"));
    cr_expect(journal_has("SANDSTORM_EVENT=command_ended"));
    cr_expect(journal_has("MESSAGE=command ended event=command_ended"));
    for (int i = 0; i < journal_count; i++)
        cr_expect_null(strstr(journal_fields[i], "SANDSTORM_MESSAGE_ID"));

    /* A field that only has the name is not one. */
    log_info("x", LF_STR("message_id", "forged"));
    cr_expect(journal_has("SANDSTORM_MESSAGE_ID=forged"));
    cr_expect_not(journal_has("MESSAGE_ID=forged"));

    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    log_info("x", LF_EVENT("e", "00"));
    cr_expect_str_eq(next_event(fd), "x event=e");
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    log_info("x", LF_EVENT("e", "00"));
    json_t *object = next_json(fd);
    cr_expect_str_eq(json_get(object, "event"), "e");
    cr_expect_null(json_object_get(object, "message_id"));
    json_decref(object);
}
