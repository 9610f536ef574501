/* The client's ends: output to a slow reader, to nobody and to a file; input as far as it is
 * welcome. The descriptors stay as they were given: others may share them. */
#include "client/sink.h"
#include "client/source.h"
#include "common/clock.h"
#include "tests/unit/random.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define OK(call) cr_assert_eq((call), 0, "%s", err.text)
#define TOTAL    300000u
#define SINK_MAX 400000u
#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        uint64_t deadline_ = monotonic_us() + 30000000u;                                           \
        while (!(condition)) {                                                                     \
            cr_assert_lt(monotonic_us(), deadline_, "never came: %s", #condition);                 \
            OK(loop_turn(loop, 100000, &err));                                                     \
        }                                                                                          \
    } while (0)

static struct err err;
static struct loop *loop;
static size_t taken, callback_bytes;
static unsigned broken;
static uint8_t data[TOTAL], got[TOTAL];

static void setup(void)
{
    uint64_t seed = 3;
    (void)signal(SIGPIPE, SIG_IGN);
    OK(loop_new(&loop, &err));
    for (size_t i = 0; i < TOTAL; i++)
        data[i] = (uint8_t)next_random(&seed);
}

static void teardown(void)
{
    loop_free(loop);
}

/* cppcheck-suppress unknownMacro */
TestSuite(sink, .init = setup, .fini = teardown);
TestSuite(source, .init = setup, .fini = teardown);

static void on_taken(void *owner, size_t size)
{
    (void)owner;
    taken += size;
}

static void on_broken(void *owner, int stream, int error)
{
    cr_expect_eq(error, EPIPE);
    (void)owner;
    cr_assert_eq(stream, 2);
    broken++;
}

static void on_output(void *userdata, int stream, const void *bytes, size_t size)
{
    (void)userdata;
    cr_assert_eq(stream, 2);
    cr_assert_arr_eq(bytes, data + callback_bytes, size);
    callback_bytes += size;
}

static struct sink *new_sink(int fd)
{
    const struct sink_config config = { .fd = fd,
                                        .stream = 2,
                                        .max = SINK_MAX,
                                        .output = on_output,
                                        .taken = on_taken,
                                        .broken = on_broken };
    struct sink *sink;
    OK(sink_new(loop, &config, &sink, &err));
    return sink;
}

Test(sink, a_slow_reader_gets_everything_and_only_what_is_taken_counts)
{
    int ends[2];
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    struct sink *sink = new_sink(ends[1]);
    OK(sink_put(sink, data, TOTAL / 2, &err));
    OK(sink_put(sink, data + TOTAL / 2, TOTAL / 2, &err));
    cr_assert_lt(taken, TOTAL, "a pipe does not hold that much");
    cr_expect_eq(sink_put(sink, data, TOTAL, &err), -1, "more than may wait");
    cr_expect_eq(err.code, ERR_EXHAUSTED);
    size_t read_so_far = 0;
    while (read_so_far < TOTAL) {
        ssize_t n = read(ends[0], got + read_so_far, MIN(7000u, TOTAL - read_so_far));
        cr_assert_gt(n, 0);
        read_so_far += (size_t)n;
        OK(loop_turn(loop, 0, &err));
        cr_assert_geq(taken, read_so_far);
        cr_assert_leq(taken, read_so_far + 65536u);
    }
    cr_expect_eq(taken, TOTAL);
    cr_expect_arr_eq(got, data, TOTAL);
    cr_expect_not(fcntl(ends[1], F_GETFL) & O_NONBLOCK, "the descriptor's flags were changed");
    sink_free(sink);
    sink_free(NULL);
    close_fd(&ends[0]);
    close_fd(&ends[1]);
}

Test(sink, a_reader_that_leaves_is_told_once_and_the_rest_counts_as_taken)
{
    int ends[2];
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    struct sink *sink = new_sink(ends[1]);
    OK(sink_put(sink, data, TOTAL, &err));
    close_fd(&ends[0]);
    UNTIL(broken);
    cr_expect_eq(taken, TOTAL);
    OK(sink_put(sink, data, TOTAL, &err));
    OK(sink_put(sink, data, TOTAL, &err));
    cr_expect_eq(taken, 3 * TOTAL);
    OK(loop_turn(loop, 1000, &err));
    cr_expect_eq(broken, 1u);
    sink_free(sink);
    close_fd(&ends[1]);
}

Test(sink, a_file_takes_everything_at_once)
{
    FILE *file = tmpfile();
    struct sink *sink = new_sink(fileno(file));
    OK(sink_put(sink, data, TOTAL, &err));
    cr_expect_eq(taken, TOTAL);
    cr_expect_eq(pread(fileno(file), got, TOTAL, 0), (ssize_t)TOTAL);
    cr_expect_arr_eq(got, data, TOTAL);
    sink_free(sink);
    (void)fclose(file);
}

Test(sink, without_a_descriptor_the_callback_gets_the_bytes)
{
    struct sink *sink = new_sink(-1);
    OK(sink_put(sink, data, 1000, &err));
    OK(sink_put(sink, data + 1000, 500, &err));
    cr_expect_eq(callback_bytes, 1500u);
    cr_expect_eq(taken, 1500u);
    sink_free(sink);
}

/* Input. */

static size_t input_bytes;
static unsigned input_ends;
static struct source *source;
static size_t allow_more; /* granted again after each piece */

static void on_input(void *owner, void *bytes, size_t size)
{
    (void)owner;
    cr_assert_leq(size, SOURCE_READ_MAX);
    cr_assert_eq(input_ends, 0u, "input after its end");
    if (size == 0) {
        input_ends++;
        return;
    }
    cr_assert_leq(input_bytes + size, TOTAL);
    cr_assert_arr_eq(bytes, data + input_bytes, size);
    input_bytes += size;
    if (allow_more)
        source_allow(source, allow_more);
}

static void new_source(int fd)
{
    const struct source_config config = { fd, on_input, NULL };
    OK(source_new(loop, &config, &source, &err));
}

Test(source, nothing_is_read_beyond_what_is_welcome)
{
    int ends[2];
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    cr_assert_eq(write(ends[1], data, 1000), 1000);
    new_source(ends[0]);
    OK(loop_turn(loop, 1000, &err));
    cr_expect_eq(input_bytes, 0u);
    source_allow(source, 7);
    UNTIL(input_bytes == 7);
    OK(loop_turn(loop, 1000, &err));
    cr_expect_eq(input_bytes, 7u);
    source_allow(source, 0);
    OK(loop_turn(loop, 1000, &err));
    source_allow(source, 100000);
    UNTIL(input_bytes == 1000);
    close_fd(&ends[1]);
    UNTIL(input_ends);
    OK(loop_turn(loop, 1000, &err));
    cr_expect_eq(input_ends, 1u);
    source_free(source);
    source_free(NULL);
    close_fd(&ends[0]);
}

Test(source, a_file_is_read_to_its_end)
{
    FILE *file = tmpfile();
    cr_assert_eq(pwrite(fileno(file), data, TOTAL, 0), (ssize_t)TOTAL);
    new_source(fileno(file));
    OK(loop_turn(loop, 1000, &err));
    cr_expect_eq(input_bytes, 0u);
    allow_more = 50000;
    source_allow(source, allow_more);
    UNTIL(input_ends);
    cr_expect_eq(input_bytes, TOTAL);
    source_free(source);
    (void)fclose(file);
}

Test(source, what_cannot_be_read_is_at_its_end)
{
    CLEANUP_FD int dir = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    new_source(dir);
    source_allow(source, 10);
    UNTIL(input_ends);
    cr_expect_eq(input_bytes, 0u);
    source_free(source);
}
