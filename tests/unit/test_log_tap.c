/* The tap, which sees the lines of this process, and the table of named events. */
#include "common/log_ids.h"
#include "tests/unit/log_capture.h"

#include <pthread.h>
#include <stdio.h>

struct seen {
    unsigned lines;
    enum log_level level;
    char message[64], field[64];
    unsigned count;
    bool answers; /* logs a line itself */
};

static void tap(void *userdata, enum log_level level, const char *message,
                const struct log_field *fields, unsigned count)
{
    struct seen *seen = userdata;
    seen->lines++;
    seen->level = level;
    seen->count = count;
    (void)snprintf(seen->message, sizeof(seen->message), "%s", message);
    if (count > 0)
        (void)snprintf(seen->field, sizeof(seen->field), "%s=%s", fields[0].name, fields[0].str);
    if (seen->answers)
        log_warn("from the tap");
}

Test(log_tap, sees_what_was_written_at_or_above_its_level)
{
    struct seen seen = { 0 };
    int fd = capture_stderr();
    log_setup("prog", LOG_LEVEL_DEBUG, LOG_FORMAT_TEXT);
    log_set_tap(tap, &seen, LOG_LEVEL_INFO);
    log_info("command started", LF_STR("command", "web-1"), LF_INT("pid", 5));
    cr_expect_eq(seen.lines, 1u);
    cr_expect_eq(seen.level, LOG_LEVEL_INFO);
    cr_expect_str_eq(seen.message, "command started");
    cr_expect_str_eq(seen.field, "command=web-1");
    cr_expect_eq(seen.count, 2u);
    cr_expect_str_eq(next_event(fd), "command started command=web-1 pid=5");

    log_debug("below its level");
    cr_expect_eq(seen.lines, 1u);
    cr_expect_str_eq(next_event(fd), "below its level");
    log_setup("prog", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    log_warn("below the log's own level");
    cr_expect_eq(seen.lines, 1u);
    expect_silence(fd);
}

Test(log_tap, a_line_of_its_own_is_written_and_not_seen)
{
    struct seen seen = { .answers = true };
    int fd = capture_stderr();
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    log_set_tap(tap, &seen, LOG_LEVEL_INFO);
    log_info("first");
    cr_expect_eq(seen.lines, 1u);
    cr_expect_str_eq(next_event(fd), "first");
    cr_expect_str_eq(next_event(fd), "from the tap");
    log_info("second");
    cr_expect_eq(seen.lines, 2u, "it stays on after a line of its own");
    cr_expect_str_eq(seen.message, "second");
}

static void *log_from_a_thread(void *unused)
{
    log_info("from a thread");
    return unused;
}

Test(log_tap, sees_every_thread_and_can_be_ended)
{
    struct seen seen = { 0 };
    pthread_t thread;
    (void)capture_stderr();
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    log_set_tap(tap, &seen, LOG_LEVEL_INFO);
    cr_assert_eq(pthread_create(&thread, NULL, log_from_a_thread, NULL), 0);
    (void)pthread_join(thread, NULL);
    cr_expect_str_eq(seen.message, "from a thread");
    log_set_tap(NULL, NULL, LOG_LEVEL_INFO);
    log_info("unseen");
    cr_expect_eq(seen.lines, 1u);
}

Test(log_tap, every_kind_of_event_has_an_id_of_its_own)
{
    static const struct log_event_kind *const kinds[] = {
        &event_sandbox_online, &event_sandbox_disconnected, &event_sandbox_state,
        &event_sandbox_note,   &event_command_ordered,      &event_command_started,
        &event_command_ended,  &event_log_left_out,
    };
    for (size_t i = 0; i < ELEMENTS(kinds); i++) {
        cr_expect_eq(strspn(kinds[i]->message_id, "0123456789abcdef"), 32u, "%s", kinds[i]->name);
        cr_expect_eq(strlen(kinds[i]->message_id), 32u);
        for (size_t j = 0; j < i; j++) {
            cr_expect_str_neq(kinds[i]->message_id, kinds[j]->message_id);
            cr_expect_str_neq(kinds[i]->name, kinds[j]->name);
        }
    }
}
