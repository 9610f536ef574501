/* What the link says about its VM: the size of a heartbeat at its largest, and what a register
 * tells about labels and about earlier failures. No network: only the link's own numbers and words.
 */
#include "agent/link-internal.h"
#include "common/utf8.h"
#include "common/wire.h"

#include <criterion/criterion.h>
#include <string.h>

#define PIB (1ull << 50)
#define TIB (1ull << 40)
#define GIB (1ull << 30)

/* The bytes of one heartbeat as the link sends it: a ConnectRequest with one frame. */
static size_t message_size(struct link *link, const struct metrics_sample *sample)
{
    struct link_heartbeat heartbeat;
    uint8_t header[WIRE_HEADER_MAX], packed[1024];
    link_fill_heartbeat(link, sample, &heartbeat);
    size_t size = sandstorm__v1__agent_frame__get_packed_size(&heartbeat.frame);
    cr_assert_leq(size, sizeof(packed));
    cr_assert_eq(sandstorm__v1__agent_frame__pack(&heartbeat.frame, packed), size);
    /* All of it arrives. */
    Sandstorm__V1__AgentFrame *read = sandstorm__v1__agent_frame__unpack(NULL, size, packed);
    cr_assert_not_null(read);
    const Sandstorm__V1__Metrics *metrics = read->heartbeat->metrics;
    cr_expect_eq(metrics->network_received_bytes, sample->network_received_bytes);
    cr_expect_eq(metrics->network_sent_bytes, sample->network_sent_bytes);
    cr_expect_eq(metrics->state_disk_total_bytes, sample->state_disk_total_bytes);
    cr_expect_eq(metrics->state_disk_free_bytes, sample->state_disk_free_bytes);
    cr_expect_eq(metrics->pressure != NULL, sample->pressure_known);
    if (metrics->pressure) {
        cr_expect_eq(metrics->pressure->cpu_some, sample->cpu_some);
        cr_expect_eq(metrics->pressure->memory_some, sample->memory_some);
        cr_expect_eq(metrics->pressure->memory_full, sample->memory_full);
        cr_expect_eq(metrics->pressure->io_some, sample->io_some);
        cr_expect_eq(metrics->pressure->io_full, sample->io_full);
    }
    sandstorm__v1__agent_frame__free_unpacked(read, NULL);
    return wire_header(1, size, header) + size;
}

Test(link_heartbeat, a_large_machine_fits_into_300_bytes)
{
    static struct link link;
    link.runner.fd = -1;
    link.runner.commands_running = 1024;
    link.runner.spool_bytes = TIB;
    link.stream.heartbeat_sequence = 100000000;
    link.stream.clock_skew_ms = -86400000; /* a negative number takes ten bytes */
    link.own.not_after_ms = 4102444800000;
    const struct metrics_sample sample = {
        .cpu_basis_points = 10000,
        .cpus = 4096,
        .load1_centi = 999999999,
        .memory_total_bytes = 64 * TIB,
        .memory_available_bytes = 63 * TIB,
        .disk_total_bytes = 8 * PIB,
        .disk_free_bytes = 7 * PIB,
        .processes = 4194304,
        .uptime_s = 10ull * 365 * 86400,
        .network_received_bytes = 400ull * GIB * 86400,
        .network_sent_bytes = TIB * 86400 * 30,
        .state_disk_total_bytes = 8 * PIB,
        .state_disk_free_bytes = 7 * PIB,
        .pressure_known = true,
        .cpu_some = 10000,
        .memory_some = 10000,
        .memory_full = 10000,
        .io_some = 10000,
        .io_full = 10000,
    };
    size_t size = message_size(&link, &sample);
    cr_log_info("a large machine: %zu bytes", size);
    cr_expect_leq(size, LINK_HEARTBEAT_BYTES);
}

/* Whatever a kernel, a clock or a runner may say. */
Test(link_heartbeat, no_numbers_make_it_larger)
{
    static struct link link;
    struct metrics_sample sample;
    (void)memset(&sample, 0xff, sizeof(sample));
    sample.pressure_known = true;
    link.runner.commands_running = UINT32_MAX;
    link.runner.spool_bytes = UINT64_MAX;
    link.stream.heartbeat_sequence = UINT64_MAX - 1;
    link.stream.clock_skew_ms = link.own.not_after_ms = -1;
    size_t size = message_size(&link, &sample);
    cr_log_info("the largest of all: %zu bytes", size);
    cr_expect_leq(size, LINK_HEARTBEAT_BYTES);
    cr_expect_gt(size, 200u, "something is left out");
}

Test(link_heartbeat, pressure_is_left_out_where_there_is_none)
{
    static struct link link;
    const struct metrics_sample with = { .pressure_known = true }, without = { .cpu_some = 7 };
    cr_expect_lt(message_size(&link, &without), message_size(&link, &with));
}

/* What a register says. */

struct said {
    Sandstorm__V1__Register message;
    Sandstorm__V1__SandboxInfo info;
};

static void fill(struct link *link, bool taking_over, struct said *ret)
{
    static const struct enroll_config enroll;
    link->config.enroll = &enroll;
    sandstorm__v1__register__init(&ret->message);
    sandstorm__v1__sandbox_info__init(&ret->info);
    link_fill_register(link, taking_over, &ret->message, &ret->info);
}

Test(link_heartbeat, labels_of_the_settings_are_in_the_register)
{
    static struct link link;
    struct said said;
    fill(&link, false, &said);
    cr_expect_eq(said.info.n_labels, 0u);
    link.config.labels = "env=ci,role=web";
    fill(&link, false, &said);
    cr_assert_eq(said.info.n_labels, 2u);
    cr_expect_str_eq(said.info.labels[0]->name, "env");
    cr_expect_str_eq(said.info.labels[0]->value, "ci");
    cr_expect_str_eq(said.info.labels[1]->name, "role");
    cr_expect_str_eq(said.info.labels[1]->value, "web");
    cr_expect_gt(sandstorm__v1__register__get_packed_size(&said.message), 0u);
}

Test(link_heartbeat, the_last_failure_is_told_once_in_one_clean_line)
{
    static struct link link;
    struct said said;
    fill(&link, false, &said);
    cr_expect_str_eq(said.message.last_error, "", "nothing has failed yet");
    cr_expect_eq(said.message.last_error_unix_ms, 0);

    char text[400];
    (void)memset(text, 'x', sizeof(text));
    (void)memcpy(text, "two\nlines\x1b[31m", 14);
    (void)memcpy(text + 254, "\xe2\x82\xac", 3); /* across the end */
    text[sizeof(text) - 1] = '\0';
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "%s", text);
    link_retry_lost(&link, &err);
    fill(&link, false, &said);
    cr_expect_eq(strlen(said.message.last_error), 254u);
    cr_expect_eq(strncmp(said.message.last_error, "two lines [31mxxx", 17), 0, "%s",
                 said.message.last_error);
    cr_expect(
        utf8_valid((const uint8_t *)said.message.last_error, strlen(said.message.last_error)));
    cr_expect_gt(said.message.last_error_unix_ms, 0);

    /* A stream that takes over follows no failure, whatever is still noted. */
    fill(&link, true, &said);
    cr_expect_str_eq(said.message.last_error, "");
    cr_expect_eq(said.message.last_error_unix_ms, 0);
    link_retry_clear(&link);
    fill(&link, false, &said);
    cr_expect_str_eq(said.message.last_error, "", "it was welcomed since");
}

Test(link_heartbeat, a_goodbye_in_good_order_is_no_failure)
{
    static struct link link;
    struct said said;
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the orchestrator is stopping");
    link.stream.drained = true;
    link_retry_lost(&link, &err);
    cr_expect(strstr(link.stream.last_error, "the orchestrator is stopping"), "status has it");
    cr_expect_eq(link.stream.failing_since_ms, 0);
    fill(&link, false, &said);
    cr_expect_str_eq(said.message.last_error, "");
    /* The attempt after it may well fail. */
    link_retry_begin(&link);
    (void)err_set(&err, ERR_UNAVAILABLE, "nothing is listening");
    link_retry_note(&link, &err);
    fill(&link, false, &said);
    cr_expect_str_eq(said.message.last_error, "nothing is listening");
}
