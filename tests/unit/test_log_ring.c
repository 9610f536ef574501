/* Lines that wait to be forwarded: what is in a frame, what is left out and where it is counted. */
#include "common/log_ring.h"
#include "common/wire.h"
#include "tests/unit/log_capture.h"

#include <pthread.h>
#include <stdio.h>

static struct log_ring *ring;
static unsigned filled;

static void on_filled(void *userdata)
{
    (void)userdata;
    (void)__atomic_add_fetch(&filled, 1, __ATOMIC_RELAXED);
    /* Would hang if it were called under the lock. */
    cr_expect(log_ring_waiting(ring));
}

static void setup(void)
{
    struct err err;
    cr_assert_eq(log_ring_new("agent", on_filled, NULL, &ring, &err), 0);
}

static void teardown(void)
{
    log_ring_free(ring);
}

/* cppcheck-suppress unknownMacro */
TestSuite(log_ring, .init = setup, .fini = teardown);

/* The next frame, as the orchestrator unpacks it; NULL when there is none. */
static Sandstorm__V1__AgentFrame *next_frame(void)
{
    uint8_t data[LOG_RING_FRAME_MAX];
    size_t size = log_ring_pack(ring, data);
    if (size == 0)
        return NULL;
    cr_assert_leq(size, LOG_RING_FRAME_MAX);
    ProtobufCMessage *message = NULL;
    struct err err = { 0 };
    cr_assert_eq(wire_unpack(&sandstorm__v1__agent_frame__descriptor, data, size, &message, &err),
                 0, "%s", err.text);
    Sandstorm__V1__AgentFrame *frame = (Sandstorm__V1__AgentFrame *)message;
    cr_assert_eq(frame->kind_case, SANDSTORM__V1__AGENT_FRAME__KIND_LOGS);
    return frame;
}

static void relay_line(const char *message)
{
    Sandstorm__V1__LogLine line = SANDSTORM__V1__LOG_LINE__INIT;
    Sandstorm__V1__LogLine *lines[] = { &line };
    Sandstorm__V1__Logs logs = SANDSTORM__V1__LOGS__INIT;
    line.message = (char *)message;
    line.origin = (char *)"orchestrator";
    logs.n_lines = 1;
    logs.lines = lines;
    log_ring_relay(ring, "runner", &logs);
}

Test(log_ring, a_line_of_the_log_becomes_a_frame)
{
    (void)capture_stderr();
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    log_set_tap(log_ring_tap, ring, LOG_LEVEL_INFO);
    log_warn("command ended", LF_STR("command", "c"), LF_INT("code", -1), LF_MESSAGE_ID("00"),
             LF_UINT("bytes", 7), LF_STR("nothing", NULL));
    log_set_tap(NULL, NULL, LOG_LEVEL_INFO);
    cr_expect_eq(filled, 1u);
    Sandstorm__V1__AgentFrame *frame = next_frame();
    cr_assert_not_null(frame);
    cr_assert_eq(frame->logs->n_lines, 1u);
    cr_expect_eq(frame->logs->dropped, 0u);
    const Sandstorm__V1__LogLine *line = frame->logs->lines[0];
    cr_expect_str_eq(line->message, "command ended");
    cr_expect_str_eq(line->origin, "agent");
    cr_expect_eq(line->level, SANDSTORM__V1__LOG_LEVEL__LOG_LEVEL_WARN);
    cr_expect_gt(line->time_unix_us, 1700000000000000);
    cr_assert_eq(line->n_fields, 4u, "the message id stays here");
    cr_expect_str_eq(line->fields[1]->name, "code");
    cr_expect_str_eq(line->fields[1]->value, "-1");
    cr_expect_str_eq(line->fields[2]->value, "7");
    cr_expect_str_eq(line->fields[3]->value, "");
    wire_free(&frame->base);
    cr_expect_null(next_frame());
    cr_expect_not(log_ring_waiting(ring));
}

Test(log_ring, what_is_not_text_or_too_long_is_made_to_fit)
{
    char value[2 * LOG_RING_VALUE_MAX] = "x";
    long_value(value + 1, sizeof(value) - 1, "\xc3\xa4");
    const struct log_field field = LF_STR("v", value);
    log_ring_tap(ring, LOG_LEVEL_INFO, "\xff\xfe", &field, 1);
    Sandstorm__V1__AgentFrame *frame = next_frame();
    cr_assert_not_null(frame);
    cr_expect_str_eq(frame->logs->lines[0]->message, "??");
    cr_expect_leq(strlen(frame->logs->lines[0]->fields[0]->value), LOG_RING_VALUE_MAX);
    wire_free(&frame->base);
}

Test(log_ring, more_than_the_burst_is_left_out_and_counted_behind_it)
{
    for (unsigned i = 0; i < 10000; i++)
        log_ring_tap(ring, LOG_LEVEL_INFO, "flood", NULL, 0);
    cr_expect_eq(filled, 1u, "a wake-up for each line of a flood");
    unsigned lines = 0;
    uint64_t dropped = 0;
    for (Sandstorm__V1__AgentFrame *frame = next_frame(); frame; frame = next_frame()) {
        lines += frame->logs->n_lines;
        dropped += frame->logs->dropped;
        cr_expect(frame->logs->dropped == 0 || frame->logs->n_lines == 0,
                  "they are missing behind the lines, not before");
        wire_free(&frame->base);
    }
    cr_expect_eq(lines, LOG_RING_BURST);
    cr_expect_eq(dropped, 10000u - LOG_RING_BURST);
}

Test(log_ring, the_oldest_go_when_it_is_full_and_the_hole_is_in_its_place)
{
    char text[16];
    for (unsigned i = 0; i < LOG_RING_LINES + 44; i++) {
        (void)snprintf(text, sizeof(text), "%u", i);
        relay_line(text);
    }
    unsigned next = 44;
    uint64_t dropped = 0;
    for (Sandstorm__V1__AgentFrame *frame = next_frame(); frame; frame = next_frame()) {
        cr_expect(next == 44 || frame->logs->dropped == 0);
        dropped += frame->logs->dropped;
        for (size_t i = 0; i < frame->logs->n_lines; i++, next++) {
            (void)snprintf(text, sizeof(text), "%u", next);
            cr_expect_str_eq(frame->logs->lines[i]->message, text);
            cr_expect_str_eq(frame->logs->lines[i]->origin, "runner");
        }
        wire_free(&frame->base);
    }
    cr_expect_eq(next, LOG_RING_LINES + 44u);
    cr_expect_eq(dropped, 44u);
}

Test(log_ring, large_lines_are_bounded_in_bytes_and_one_too_large_is_counted)
{
    char *text = malloc(LOG_RING_FRAME_MAX + 1);
    cr_assert_not_null(text);
    (void)memset(text, 'x', LOG_RING_FRAME_MAX);
    text[LOG_RING_FRAME_MAX] = '\0';
    relay_line(text);
    cr_expect_eq(filled, 0u);
    text[LOG_RING_FRAME_MAX / 2] = '\0';
    for (unsigned i = 0; i < 20; i++)
        relay_line(text);
    unsigned lines = 0;
    uint64_t dropped = 0;
    for (Sandstorm__V1__AgentFrame *frame = next_frame(); frame; frame = next_frame()) {
        lines += frame->logs->n_lines;
        dropped += frame->logs->dropped;
        wire_free(&frame->base);
    }
    cr_expect_leq(lines * LOG_RING_FRAME_MAX / 2, LOG_RING_BYTES);
    cr_expect_gt(lines, 0u);
    cr_expect_eq(lines + dropped, 21u, "every line is there or counted");
    free(text);
}

static void *relay_many(void *unused)
{
    for (unsigned i = 0; i < 1000; i++)
        relay_line("x");
    return unused;
}

Test(log_ring, threads_lose_no_line_uncounted)
{
    pthread_t threads[4];
    for (size_t i = 0; i < ELEMENTS(threads); i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, relay_many, NULL), 0);
    uint64_t seen = 0;
    for (size_t i = 0; i < ELEMENTS(threads); i++)
        (void)pthread_join(threads[i], NULL);
    for (Sandstorm__V1__AgentFrame *frame = next_frame(); frame; frame = next_frame()) {
        seen += frame->logs->n_lines + frame->logs->dropped;
        wire_free(&frame->base);
    }
    cr_expect_eq(seen, 4000u);
}
