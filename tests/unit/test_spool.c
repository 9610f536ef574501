/* The ledger in the runner's memory: random appends, reads, trims and copies against a plain list
 * of (byte, stream), and the two bounds. */
#include "agent/spool.h"
#include "tests/unit/random.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define OK(call)       cr_assert_eq((call), 0, "%s", err.text)
#define FAILS(call, c) cr_assert((call) == -1 && err.code == (c), "%s", err.text)
#define MODEL_MAX      (1u << 20)

struct model {
    struct spool spool;
    uint64_t first, end;
    uint8_t *bytes, *streams; /* by offset */
    unsigned long runs, reads, trims;
    struct state_dir *state; /* NULL: memory alone */
    int pipe[2];
    uint64_t seed;
};

static enum spool_stream any_stream(struct model *model)
{
    return random_below(&model->seed, 2) ? SPOOL_STDOUT : SPOOL_STDERR;
}

static size_t any_size(struct model *model)
{
    /* Mostly small, sometimes more than there is room for. */
    return random_below(&model->seed, 10) ? 1 + random_below(&model->seed, 40)
                                          : random_below(&model->seed, 9000);
}

static void note(struct model *model, const uint8_t *data, size_t size, enum spool_stream stream)
{
    cr_assert_leq(model->end + size, MODEL_MAX);
    (void)memcpy(model->bytes + model->end, data, size);
    (void)memset(model->streams + model->end, (int)stream, size);
    model->end += size;
}

static void fill(struct model *model, uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)next_random(&model->seed);
}

static void append_some(struct model *model)
{
    struct err err = { 0 };
    uint8_t data[9000];
    size_t size = any_size(model);
    enum spool_stream stream = any_stream(model);
    fill(model, data, size);
    if (size <= buf_room(&model->spool.bytes)) {
        OK(spool_append(&model->spool, stream, data, size, &err));
        note(model, data, size, stream);
    } else {
        FAILS(spool_append(&model->spool, stream, data, size, &err), ERR_EXHAUSTED);
    }
}

/* The pipe may hold less than fits, or more. */
static void read_some(struct model *model)
{
    uint8_t data[9000];
    size_t size = 1 + random_below(&model->seed, 6000);
    enum spool_stream stream = any_stream(model);
    fill(model, data, size);
    cr_assert_eq(write(model->pipe[1], data, size), (ssize_t)size);
    size_t room = spool_room(&model->spool);
    ssize_t n = spool_read(&model->spool, model->pipe[0], stream);
    if (room == 0) {
        cr_assert(n == -1 && errno == ENOBUFS);
        n = 0;
    } else {
        cr_assert_eq((size_t)n, MIN(size, room));
        note(model, data, (size_t)n, stream);
        model->reads++;
    }
    size_t left = size - (size_t)n;
    cr_assert_eq(read(model->pipe[0], data, sizeof(data)), left ? (ssize_t)left : -1);
}

static void trim_some(struct model *model)
{
    uint64_t held = model->end - model->first;
    /* Mostly a little, so that segments pile up and the ring grows from any start. */
    uint64_t most = random_below(&model->seed, 8) ? held / 16 : held;
    uint64_t to = model->first + random_below(&model->seed, most + 1);
    if (random_below(&model->seed, 4) == 0)
        to = random_below(&model->seed, model->first + 1); /* late: changes nothing */
    spool_trim(&model->spool, to);
    model->trims += to > model->first;
    model->first = MAX(model->first, to);
}

/* Walks a part of the ledger as agent/command_events.c does, in runs of one stream. */
static void walk_some(struct model *model)
{
    uint8_t data[5000];
    uint64_t at = model->first + random_below(&model->seed, model->end - model->first + 1);
    for (unsigned i = 0; i < 5; i++) {
        enum spool_stream stream = 0;
        uint64_t beyond = 0;
        size_t max = 1 + random_below(&model->seed, sizeof(data));
        ssize_t n = spool_peek(&model->spool, at, data, max, &stream, &beyond);
        if (at == model->end) {
            cr_assert_eq(n, 0);
            return;
        }
        size_t expected = 0;
        while (expected < max && at + expected < model->end &&
               model->streams[at + expected] == model->streams[at])
            expected++;
        /* The edge of a block in the file ends a run early. */
        cr_assert(n > 0 && (size_t)n <= expected);
        cr_assert(model->state || (size_t)n == expected);
        cr_assert_eq((int)stream, model->streams[at]);
        cr_assert_arr_eq(data, model->bytes + at, (size_t)n);
        at += (size_t)n;
        model->runs++;
    }
}

static void check(const struct model *model)
{
    cr_assert_eq(spool_first(&model->spool), model->first);
    cr_assert_eq(spool_end(&model->spool), model->end);
    uint64_t segments = 0;
    for (uint64_t i = model->first; i < model->end; i++)
        segments += i == model->first || model->streams[i] != model->streams[i - 1];
    cr_assert_eq(model->spool.count, segments);
}

Test(spool, random_operations_agree_with_a_plain_list)
{
    static void (*const verbs[])(struct model *) = { append_some, read_some, trim_some, walk_some,
                                                     walk_some };
    for (uint64_t round = 1; round <= 6; round++) {
        struct model model = { .seed = round * 0x9e3779b97f4a7c15u };
        model.bytes = malloc(MODEL_MAX);
        model.streams = malloc(MODEL_MAX);
        cr_assert(model.bytes && model.streams);
        cr_assert_eq(pipe2(model.pipe, O_NONBLOCK | O_CLOEXEC), 0);
        spool_init(&model.spool, 4096 + random_below(&model.seed, 12000));
        for (unsigned i = 0; i < 1000 && model.end < MODEL_MAX - 20000; i++) {
            verbs[random_below(&model.seed, ELEMENTS(verbs))](&model);
            check(&model);
        }
        cr_expect(model.runs > 100 && model.reads > 10 && model.trims > 50, "the round stalled");
        spool_done(&model.spool);
        free(model.bytes);
        free(model.streams);
        close_fd(&model.pipe[0]);
        close_fd(&model.pipe[1]);
    }
}

Test(spool, streams_that_alternate_by_the_byte_stop_at_the_bound_of_segments)
{
    struct err err = { 0 };
    struct spool spool;
    spool_init(&spool, SPOOL_BYTES_MAX);
    for (unsigned i = 0; i < SPOOL_SEGMENTS_MAX; i++) {
        cr_assert_gt(spool_room(&spool), 0u);
        OK(spool_append(&spool, i % 2 ? SPOOL_STDERR : SPOOL_STDOUT, "x", 1, &err));
    }
    cr_assert_eq(spool_room(&spool), 0u);
    FAILS(spool_append(&spool, SPOOL_STDOUT, "x", 1, &err), ERR_EXHAUSTED);
    cr_assert_eq(spool_end(&spool), SPOOL_SEGMENTS_MAX);
    /* One byte less makes room for one segment more. */
    spool_trim(&spool, 1);
    OK(spool_append(&spool, SPOOL_STDOUT, "x", 1, &err));
    cr_assert_eq(spool_room(&spool), 0u);
    spool_done(&spool);
}

Test(spool, the_end_of_a_file_is_not_an_error)
{
    struct spool spool;
    int ends[2];
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    spool_init(&spool, SPOOL_BYTES_MAX);
    close_fd(&ends[1]);
    cr_assert_eq(spool_read(&spool, ends[0], SPOOL_STDOUT), 0);
    cr_assert_eq(spool_end(&spool), 0u);
    cr_assert_eq(spool.count, 0u);
    close_fd(&ends[0]);
    spool_done(&spool);
}
