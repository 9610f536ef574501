/* A ledger with a file behind it: it agrees with a plain list whatever is written, trimmed and
 * flushed in between, whatever the disk refuses, and a crash at any byte leaves a part of it that
 * is as it was. */
#include "agent/spool.h"
#include "tests/unit/random.h"
#include "tests/unit/state_fixture.h"

#include <errno.h>
#include <sys/syscall.h>

TestSuite(spool_file, .init = state_setup, .fini = state_teardown);

#define OK(call)   cr_assert_eq((call), 0, "%s", err.text)
#define LEDGER_MAX (8u << 20)

/* A disk that fails. Each write of a block asks. */
static int disk_error;      /* 0: none; ENOSPC, EIO ... */
static unsigned disk_short; /* that many bytes, then no more space */
static unsigned blocks_written, blocks_refused;

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t at)
{
    if (disk_error && disk_short)
        (void)!pwrite(fd, pieces[0].iov_base, MIN(disk_short, pieces[0].iov_len), at);
    blocks_refused += disk_error != 0;
    blocks_written += disk_error == 0;
    if (disk_error) {
        errno = disk_error;
        return disk_short ? (ssize_t)MIN(disk_short, pieces[0].iov_len) : -1;
    }
    return syscall(SYS_pwritev, fd, pieces, count, at, 0);
}

struct model {
    struct state_dir *state;
    struct command_id id;
    struct spool spool;
    uint64_t first, end;
    uint8_t *bytes, *streams;
    uint64_t seed;
    unsigned crashes;
};

static void model_init(struct model *model, uint64_t seed, uint64_t quota, uint64_t max)
{
    struct err err = { 0 };
    struct spool_file *file;
    *model = (struct model){ .state = state_open(quota), .id = state_id(1), .seed = seed };
    model->bytes = malloc(LEDGER_MAX);
    model->streams = malloc(LEDGER_MAX);
    cr_assert(model->bytes && model->streams);
    spool_init(&model->spool, SPOOL_BYTES_MAX / 8);
    OK(spool_file_create(model->state, &model->id, &file, &err));
    OK(spool_file_set_head(file, "head", 4, &err));
    spool_back(&model->spool, model->state, file, max);
}

static void model_done(struct model *model)
{
    spool_file_remove(model->spool.file);
    spool_done(&model->spool);
    cr_expect_eq(model->state->used, 0u, "space is still counted");
    state_dir_free(model->state);
    free(model->bytes);
    free(model->streams);
}

static void note_position(struct model *model)
{
    const struct spool_position position = { .first = model->first, .end = model->end };
    spool_file_set_position(model->spool.file, &position);
}

static void append_some(struct model *model)
{
    struct err err = { 0 };
    static uint8_t data[40000];
    size_t size = random_below(&model->seed, 4) ? 1 + random_below(&model->seed, 2000)
                                                : 1 + random_below(&model->seed, sizeof(data));
    enum spool_stream stream = random_below(&model->seed, 3) ? SPOOL_STDOUT : SPOOL_STDERR;
    if (!spool_make_room(&model->spool))
        return;
    size = MIN(size, spool_room(&model->spool));
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)next_random(&model->seed);
    OK(spool_append(&model->spool, stream, data, size, &err));
    (void)memcpy(model->bytes + model->end, data, size);
    (void)memset(model->streams + model->end, (int)stream, size);
    model->end += size;
    note_position(model);
}

static void trim_some(struct model *model)
{
    uint64_t held = model->end - model->first;
    uint64_t most = random_below(&model->seed, 20) ? held / 3 : held;
    model->first += random_below(&model->seed, most + 1);
    spool_trim(&model->spool, model->first);
    note_position(model);
}

/* Every byte from `at` on, and that nothing is said to be lost before `lost`. */
static void expect_ledger(const struct spool *spool, const struct model *model, uint64_t at,
                          uint64_t lost)
{
    static uint8_t data[70000];
    while (at < model->end) {
        enum spool_stream stream = 0;
        uint64_t beyond = 0;
        ssize_t n = spool_peek(spool, at, data, sizeof(data), &stream, &beyond);
        if (n < 0) {
            cr_assert(at >= lost && beyond == model->end, "lost from %lu to %lu", at, beyond);
            return;
        }
        cr_assert(n > 0);
        cr_assert_arr_eq(data, model->bytes + at, (size_t)n);
        for (ssize_t i = 0; i < n; i++)
            cr_assert_eq(model->streams[at + (uint64_t)i], (uint8_t)stream);
        at += (uint64_t)n;
    }
}

static void walk_some(struct model *model)
{
    expect_ledger(&model->spool, model,
                  model->first + random_below(&model->seed, model->end - model->first + 1),
                  UINT64_MAX);
}

static void flush_some(struct model *model)
{
    struct err err = { 0 };
    if (random_below(&model->seed, 4) == 0 && spool_flush(&model->spool, &err) < 0)
        cr_assert(disk_error || err.sys_errno == EDQUOT, "%s", err.text);
}

/* What the next runner would find now, the file cut after `size` bytes. */
static void expect_after_crash(struct model *model, uint64_t size)
{
    struct err err = { 0 };
    const struct command_id copy = state_id(2);
    struct spool_file *file;
    struct spool_file_content content;
    state_copy(&model->id, &copy, size);
    OK(spool_file_load(model->state, &copy, &file, &content, &err));
    cr_assert(content.head_size == 4 && memcmp(content.head, "head", 4) == 0);
    cr_assert_null(content.end);
    if (size == UINT64_MAX) {
        cr_assert_eq(content.position.first, model->first);
        cr_assert_eq(content.position.end, model->end);
    }
    struct spool spool;
    spool_init(&spool, SPOOL_BYTES_MAX);
    spool_back(&spool, model->state, file, SPOOL_COMMAND_DEFAULT);
    spool_restore(&spool, &content.position);
    uint64_t lost = MAX(spool_file_end(model->spool.file), model->first);
    if (size != UINT64_MAX)
        lost = MAX(spool_file_end(file), model->first);
    expect_ledger(&spool, model, content.position.first, lost);
    free(content.head);
    spool_file_remove(file);
    spool_done(&spool);
    model->crashes++;
}

static void crash_some(struct model *model)
{
    if (random_below(&model->seed, 8) == 0)
        expect_after_crash(model, UINT64_MAX);
}

static void torn_some(struct model *model)
{
    struct stat st;
    cr_assert_eq(stat(state_file(model->id.text), &st), 0);
    if (random_below(&model->seed, 8) == 0 && st.st_size > 4096)
        expect_after_crash(model,
                           4096 + random_below(&model->seed, (uint64_t)st.st_size - 4096 + 1));
}

static void fail_some(struct model *model)
{
    static const int errors[] = { 0, 0, 0, ENOSPC, EDQUOT, EIO, EROFS };
    disk_error = errors[random_below(&model->seed, ELEMENTS(errors))];
    disk_short = disk_error == ENOSPC ? (unsigned)random_below(&model->seed, 32) : 0;
}

static void (*const verbs[])(struct model *) = {
    append_some, append_some, append_some, append_some, trim_some,
    walk_some,   flush_some,  crash_some,  torn_some,   fail_some,
};

Test(spool_file, random_operations_crashes_and_full_disks_agree_with_a_plain_list)
{
    for (uint64_t round = 1; round <= 8; round++) {
        struct model model;
        uint64_t quota = round % 2 ? 1u << 30 : 600000;
        blocks_written = blocks_refused = 0;
        model_init(&model, round * 0x9e3779b97f4a7c15u, quota, round % 3 ? 1u << 20 : 16u << 20);
        for (unsigned i = 0; i < 1500 && model.end < LEDGER_MAX - 100000; i++) {
            verbs[random_below(&model.seed, ELEMENTS(verbs))](&model);
            cr_assert_eq(spool_first(&model.spool), model.first);
            cr_assert_eq(spool_end(&model.spool), model.end);
            cr_assert_leq(model.state->used, quota);
        }
        cr_expect(blocks_written > 5 && blocks_refused > 5 && model.crashes > 10,
                  "the round stalled: %u written, %u refused, %u crashes", blocks_written,
                  blocks_refused, model.crashes);
        disk_error = 0;
        model_done(&model);
    }
}

/* Appends until nothing fits any more. */
static void fill_up(struct model *model)
{
    for (uint64_t before = UINT64_MAX; before != model->end;) {
        before = model->end;
        append_some(model);
    }
}

Test(spool_file, no_more_is_held_than_the_command_may)
{
    struct model model;
    model_init(&model, 1, 1u << 30, 3000000);
    fill_up(&model);
    cr_expect_eq(model.end, 3000000u);
    cr_expect_not(spool_waits_for_disk(&model.spool), "it is full, not the disk");
    trim_some(&model);
    cr_expect(spool_make_room(&model.spool));
    model_done(&model);
}

Test(spool_file, when_all_commands_fill_the_quota_memory_is_all_that_is_left)
{
    struct model model;
    model_init(&model, 1, 500000, 1u << 30);
    fill_up(&model);
    cr_expect_leq(model.state->used, 500000u);
    cr_expect_geq(model.end, 500000 - 70000 + SPOOL_BYTES_MAX / 8 - 40000);
    cr_expect(spool_waits_for_disk(&model.spool));
    cr_expect_eq(model.state->failing, EDQUOT);
    walk_some(&model);
    /* Space comes back with what is acknowledged. */
    model.first = model.end - 1000;
    spool_trim(&model.spool, model.first);
    cr_expect_eq(model.state->used, 0u);
    cr_expect(spool_make_room(&model.spool));
    fill_up(&model);
    cr_expect_eq(model.state->failing, EDQUOT);
    model_done(&model);
}

Test(spool_file, a_disk_that_has_space_again_is_written_to_again)
{
    struct model model;
    model_init(&model, 1, 1u << 30, 1u << 22);
    disk_error = ENOSPC;
    disk_short = 7;
    fill_up(&model);
    cr_expect_leq(model.end, SPOOL_BYTES_MAX / 8);
    cr_expect(spool_waits_for_disk(&model.spool));
    cr_expect_eq(model.state->failing, ENOSPC);
    disk_error = 0;
    fill_up(&model);
    cr_expect_eq(model.end, 1u << 22);
    cr_expect_eq(model.state->failing, 0);
    expect_ledger(&model.spool, &model, 0, UINT64_MAX);
    model_done(&model);
}

static uint64_t blocks_on_disk(const struct model *model)
{
    struct stat st;
    cr_assert_eq(stat(state_file(model->id.text), &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

Test(spool_file, space_goes_back_as_output_is_acknowledged)
{
    struct model model;
    struct err err = { 0 };
    model_init(&model, 1, 1u << 30, 6u << 20);
    fill_up(&model);
    OK(spool_flush(&model.spool, &err));
    cr_expect_geq(blocks_on_disk(&model), 6u << 20);
    model.first = 4u << 20;
    spool_trim(&model.spool, model.first);
    cr_expect_leq(blocks_on_disk(&model), (3u << 20) + 65536);
    expect_ledger(&model.spool, &model, model.first, UINT64_MAX);
    note_position(&model);
    expect_after_crash(&model, UINT64_MAX);
    model.first = model.end;
    spool_trim(&model.spool, model.first);
    cr_expect_leq(blocks_on_disk(&model), 4096u * 2);
    model_done(&model);
}

/* Holes end in the middle of a page: what that leaves must not add up. */
Test(spool_file, much_output_through_a_spool_that_is_never_empty_takes_no_more_space)
{
    static uint8_t bytes[SPOOL_FILE_BLOCK_MAX - 1000];
    struct err err = { 0 };
    struct model model;
    uint32_t run = RECORD_RUN(sizeof(bytes), SPOOL_STDOUT);
    const struct iovec pieces[2] = { { bytes, sizeof(bytes) } };
    model_init(&model, 1, 1u << 30, 1u << 30);
    for (uint64_t i = 0; i < 8000; i++) {
        OK(spool_file_append(model.spool.file, i * sizeof(bytes), &run, 1, pieces, &err));
        if (i >= 16)
            spool_file_trim(model.spool.file, (i - 15) * sizeof(bytes));
    }
    cr_expect_leq(blocks_on_disk(&model), 3u << 20, "%lu bytes", blocks_on_disk(&model));
    model_done(&model);
}

Test(spool_file, a_block_that_rots_is_told_and_hides_no_other)
{
    struct model model;
    struct err err = { 0 };
    model_init(&model, 1, 1u << 30, 1u << 20);
    fill_up(&model);
    OK(spool_flush(&model.spool, &err));
    CLEANUP_FD int fd = open(state_file(model.id.text), O_WRONLY | O_CLOEXEC);
    cr_assert_eq(pwrite(fd, "rot", 3, 4096 + 1000), 3);
    uint8_t data[64];
    enum spool_stream stream;
    uint64_t beyond = 0;
    cr_assert_eq(spool_peek(&model.spool, 0, data, sizeof(data), &stream, &beyond), -1);
    cr_expect_gt(beyond, 1000u);
    expect_ledger(&model.spool, &model, beyond, UINT64_MAX);
    model_done(&model);
}

/* What a command prints may be anything, also what was once in a file of ours. */
Test(spool_file, output_that_looks_like_a_record_is_not_taken_for_one)
{
    struct err err = { 0 };
    struct model model;
    struct spool_file *other;
    const struct command_id id = state_id(7);
    model_init(&model, 1, 1u << 30, 1u << 20);
    OK(spool_file_create(model.state, &id, &other, &err));
    OK(spool_file_set_head(other, "head", 4, &err));
    uint32_t run = RECORD_RUN(5, SPOOL_STDOUT);
    const struct iovec bytes[2] = { { (void *)"forge", 5 } };
    OK(spool_file_append(other, 0, &run, 1, bytes, &err));
    /* The forged record comes to lie where the tail of a torn block is looked for. */
    state_copy(&id, &model.id, UINT64_MAX);
    spool_file_remove(other);
    spool_file_free(other);
    OK(spool_file_set_head(model.spool.file, "head", 4, &err));
    struct spool_file *file;
    struct spool_file_content content;
    const struct command_id copy = state_id(2);
    state_copy(&model.id, &copy, UINT64_MAX);
    OK(spool_file_load(model.state, &copy, &file, &content, &err));
    cr_expect_eq(spool_file_end(file), 0u);
    free(content.head);
    spool_file_remove(file);
    spool_file_free(file);
    model_done(&model);
}

Test(spool_file, the_end_is_read_back_and_needs_no_space)
{
    struct err err = { 0 };
    struct model model;
    struct spool_file *file;
    struct spool_file_content content;
    model_init(&model, 1, 0, 1u << 20);
    disk_error = ENOSPC;
    OK(spool_file_set_end(model.spool.file, "the end", 7, &err));
    disk_error = 0;
    const struct command_id copy = state_id(2);
    state_copy(&model.id, &copy, UINT64_MAX);
    OK(spool_file_load(model.state, &copy, &file, &content, &err));
    cr_expect(spool_file_has_end(file));
    cr_assert_eq(content.end_size, 7u);
    cr_expect_arr_eq(content.end, "the end", 7);
    free(content.head);
    free(content.end);
    spool_file_remove(file);
    spool_file_free(file);
    cr_expect_eq(spool_file_set_end(model.spool.file, state_path, SPOOL_FILE_END_MAX + 1, &err),
                 -1);
    model_done(&model);
}

Test(spool_file, a_name_that_is_taken_reserves_nothing)
{
    struct err err = { 0 };
    struct state_dir *state = state_open(1 << 20);
    struct spool_file *file;
    const char *made[] = { "file", "symlink", "fifo", "dir" };
    for (unsigned i = 0; i < ELEMENTS(made); i++) {
        const struct command_id id = state_id(i);
        const char *path = state_file(id.text);
        int r = i == 0   ? mknod(path, S_IFREG | 0600, 0)
                : i == 1 ? symlink("/tmp/elsewhere", path)
                : i == 2 ? mkfifo(path, 0600)
                         : mkdir(path, 0700);
        cr_assert_eq(r, 0);
        cr_expect_eq(spool_file_create(state, &id, &file, &err), -1, "%s", made[i]);
        cr_expect_eq(err.sys_errno, EEXIST);
        cr_expect_not_null(strstr(err.text, "not the runner's"));
    }
    cr_expect_eq(access("/tmp/elsewhere", F_OK), -1);
    state_dir_free(state);
}

Test(spool_file, a_file_that_is_cut_anywhere_in_its_head_is_refused_in_words)
{
    struct err err = { 0 };
    struct model model;
    model_init(&model, 1, 1u << 30, 1u << 20);
    append_some(&model);
    for (uint64_t size = 0; size < 36; size++) {
        struct spool_file *file;
        struct spool_file_content content;
        const struct command_id copy = state_id(2);
        state_copy(&model.id, &copy, size);
        cr_assert_eq(spool_file_load(model.state, &copy, &file, &content, &err), -1);
        cr_assert_eq(err.code, ERR_INVALID);
    }
    model_done(&model);
}
