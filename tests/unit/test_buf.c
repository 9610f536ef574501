/* The ring of bytes: a random walk against a flat model, with readv(2) and writev(2) replaced in
 * this binary so that every call may be short or interrupted, and the edges one by one. */
#include "common/buf.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>

/* What the two system calls below do next; 0 and SIZE_MAX leave them alone. Each Criterion test is
 * a process of its own, so nothing leaks from one to another. */
static size_t io_cap = SIZE_MAX;
static unsigned io_interrupts;
static unsigned io_calls;

/* Cuts a copy of the iovecs down to io_cap bytes, then asks the kernel. */
static ssize_t capped_io(long number, int fd, const struct iovec *iov, int count)
{
    io_calls++;
    if (io_interrupts > 0) {
        io_interrupts--;
        errno = EINTR;
        return -1;
    }
    if (io_cap == SIZE_MAX || count > 2)
        return syscall(number, fd, iov, count);
    struct iovec cut[2] = { 0 };
    size_t left = io_cap;
    for (int i = 0; i < count; i++) {
        cut[i].iov_base = iov[i].iov_base;
        cut[i].iov_len = MIN(iov[i].iov_len, left);
        left -= cut[i].iov_len;
    }
    return syscall(number, fd, cut, count);
}

ssize_t readv(int fd, const struct iovec *iov, int count)
{
    return capped_io(SYS_readv, fd, iov, count);
}

ssize_t writev(int fd, const struct iovec *iov, int count)
{
    return capped_io(SYS_writev, fd, iov, count);
}

/* xorshift64, from a fixed seed: a failure repeats. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#define WALK_MAX  50000u /* not a power of two: the last growth is clipped */
#define PIPE_SIZE 65536u

struct walk {
    struct buf buf;
    uint8_t model[WALK_MAX];
    size_t used;
    uint8_t next_byte;
    uint64_t seed;
    int pipe[2];
    unsigned wraps, grew_wrapped, emptied;
};

static size_t pick(struct walk *walk, size_t limit)
{
    /* Mostly small, now and then large, so that the ring both crawls and jumps. */
    size_t range = next_random(&walk->seed) % 4 ? MIN(limit, 700) : limit;
    return (size_t)(next_random(&walk->seed) % (range + 1));
}

static void fill(struct walk *walk, uint8_t *out, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        /* A step that is not a divisor of 256 makes a byte from another place visible. */
        walk->next_byte = (uint8_t)(walk->next_byte * 5 + 1);
        out[i] = walk->next_byte;
    }
}

static void model_append(struct walk *walk, const uint8_t *data, size_t size)
{
    cr_assert_leq(walk->used + size, WALK_MAX);
    (void)memcpy(walk->model + walk->used, data, size);
    walk->used += size;
}

static void model_drop(struct walk *walk, size_t size)
{
    (void)memmove(walk->model, walk->model + size, walk->used - size);
    walk->used -= size;
    walk->emptied += walk->used == 0 && size > 0;
}

static void step_push(struct walk *walk)
{
    static uint8_t data[WALK_MAX + 700];
    size_t size = pick(walk, sizeof(data));
    bool fits = size <= WALK_MAX - walk->used;
    fill(walk, data, size);
    struct err err = { 0 };
    int result = buf_push(&walk->buf, data, size, &err);
    cr_assert_eq(result, fits ? 0 : -1);
    cr_assert_eq(err.code, fits ? ERR_NONE : ERR_EXHAUSTED);
    if (fits)
        model_append(walk, data, size);
}

static void step_peek(struct walk *walk)
{
    static uint8_t out[WALK_MAX];
    size_t skip = pick(walk, walk->used);
    size_t size = pick(walk, walk->used - skip);
    buf_peek(&walk->buf, skip, out, size);
    cr_assert_arr_eq(out, walk->model + skip, size);
}

static void step_drop(struct walk *walk)
{
    size_t size = pick(walk, walk->used);
    buf_drop(&walk->buf, size);
    model_drop(walk, size);
}

static void inject(struct walk *walk)
{
    io_cap = next_random(&walk->seed) % 6 ? 1 + pick(walk, 4000) : SIZE_MAX;
    io_interrupts = next_random(&walk->seed) % 5 == 0;
}

static void step_read(struct walk *walk)
{
    static uint8_t data[PIPE_SIZE];
    size_t offered = 1 + pick(walk, PIPE_SIZE - 1);
    size_t limit = pick(walk, PIPE_SIZE);
    fill(walk, data, offered);
    cr_assert_eq(write(walk->pipe[1], data, offered), (ssize_t)offered);
    inject(walk);
    ssize_t n = buf_read(&walk->buf, walk->pipe[0], limit);
    if (limit == 0 || walk->used == WALK_MAX) {
        cr_assert_eq(n, -1);
        cr_assert_eq(errno, ENOBUFS);
        n = 0;
    } else {
        cr_assert_eq(n, (ssize_t)MIN(MIN(offered, io_cap), MIN(limit, WALK_MAX - walk->used)));
        model_append(walk, data, (size_t)n);
    }
    while (n < (ssize_t)offered) {
        ssize_t rest = read(walk->pipe[0], data, offered - (size_t)n);
        cr_assert_gt(rest, 0);
        n += rest;
    }
}

static void step_write(struct walk *walk)
{
    static uint8_t data[PIPE_SIZE];
    inject(walk);
    ssize_t n = buf_write(&walk->buf, walk->pipe[1]);
    cr_assert_eq(n, (ssize_t)MIN(MIN(walk->used, io_cap), PIPE_SIZE));
    for (size_t got = 0; got < (size_t)n;) {
        ssize_t part = read(walk->pipe[0], data + got, (size_t)n - got);
        cr_assert_gt(part, 0);
        got += (size_t)part;
    }
    cr_assert_arr_eq(data, walk->model, (size_t)n);
    model_drop(walk, (size_t)n);
}

static void check_invariants(const struct walk *walk)
{
    static uint8_t out[WALK_MAX];
    const struct buf *buf = &walk->buf;
    cr_assert_eq(buf_used(buf), walk->used);
    cr_assert_eq(buf_room(buf), WALK_MAX - walk->used);
    cr_assert_leq(buf->capacity, WALK_MAX);
    cr_assert(buf->capacity == WALK_MAX || (buf->capacity & (buf->capacity - 1)) == 0);
    cr_assert(buf->start < buf->capacity || buf->capacity == 0);
    cr_assert_eq(buf->data == NULL, walk->used == 0);
    cr_assert_eq(buf->capacity == 0, walk->used == 0);
    buf_peek(buf, 0, out, walk->used);
    cr_assert_arr_eq(out, walk->model, walk->used);
}

static bool is_wrapped(const struct buf *buf)
{
    return buf->start + buf->used > buf->capacity;
}

static void walk_run(struct walk *walk, unsigned steps)
{
    static void (*const verbs[])(struct walk *) = { step_push, step_peek, step_drop, step_read,
                                                    step_write };
    buf_init(&walk->buf, WALK_MAX);
    cr_assert_eq(pipe2(walk->pipe, O_CLOEXEC | O_NONBLOCK), 0);
    cr_assert_eq(fcntl(walk->pipe[1], F_SETPIPE_SZ, PIPE_SIZE), (int)PIPE_SIZE);
    for (unsigned i = 0; i < steps; i++) {
        bool wrapped = is_wrapped(&walk->buf);
        size_t capacity = walk->buf.capacity;
        verbs[next_random(&walk->seed) % ELEMENTS(verbs)](walk);
        walk->wraps += wrapped;
        walk->grew_wrapped += wrapped && walk->buf.capacity > capacity;
        check_invariants(walk);
    }
    buf_done(&walk->buf);
    close_fd(&walk->pipe[0]);
    close_fd(&walk->pipe[1]);
}

Test(buf, random_walk_with_short_and_interrupted_io_agrees_with_the_model)
{
    static struct walk walk;
    unsigned wraps = 0, grew_wrapped = 0, emptied = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        (void)memset(&walk, 0, sizeof(walk));
        walk.seed = seed * 0x9e3779b97f4a7c15u;
        walk_run(&walk, 4000);
        wraps += walk.wraps;
        grew_wrapped += walk.grew_wrapped;
        emptied += walk.emptied;
    }
    /* A walk that never met the hard cases would prove nothing. */
    cr_expect_gt(wraps, 500, "only %u steps began wrapped", wraps);
    cr_expect_gt(grew_wrapped, 10, "only %u growths while wrapped", grew_wrapped);
    cr_expect_gt(emptied, 50, "only %u times empty", emptied);
}

/* Leaves `tail` bytes before the end of a full-capacity ring and the rest wrapped to its front. */
static void make_wrapped(struct buf *buf, size_t tail, size_t front)
{
    static uint8_t data[BUF_CAPACITY_MIN];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (uint8_t)(i % 251);
    cr_assert_eq(buf_push(buf, data, sizeof(data), NULL), 0);
    buf_drop(buf, sizeof(data) - tail);
    cr_assert_eq(buf_push(buf, data, front, NULL), 0);
    cr_assert(is_wrapped(buf));
}

Test(buf, growth_while_wrapped_keeps_the_order)
{
    struct buf buf;
    buf_init(&buf, 1 << 20);
    make_wrapped(&buf, 100, 200);
    static uint8_t more[BUF_CAPACITY_MIN];
    (void)memset(more, 0xee, sizeof(more));
    cr_assert_eq(buf_push(&buf, more, sizeof(more), NULL), 0);
    cr_expect_eq(buf.capacity, 2 * BUF_CAPACITY_MIN);
    uint8_t out[301];
    buf_peek(&buf, 0, out, sizeof(out));
    cr_expect_eq(out[0], (BUF_CAPACITY_MIN - 100) % 251);
    cr_expect_eq(out[99], (BUF_CAPACITY_MIN - 1) % 251);
    cr_expect_eq(out[100], 0);
    cr_expect_eq(out[299], 199);
    cr_expect_eq(out[300], 0xee);
    buf_done(&buf);
}

Test(buf, a_write_cut_anywhere_around_the_wrap_loses_nothing)
{
    for (size_t cut = 98; cut <= 102; cut++) {
        struct buf buf;
        buf_init(&buf, BUF_CAPACITY_MIN);
        make_wrapped(&buf, 100, 200);
        int fds[2];
        cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
        io_cap = cut;
        cr_assert_eq(buf_write(&buf, fds[1]), (ssize_t)cut);
        cr_assert_lt(buf.start, buf.capacity);
        io_cap = SIZE_MAX;
        cr_assert_eq(buf_write(&buf, fds[1]), (ssize_t)(300 - cut));
        uint8_t out[300];
        cr_assert_eq(read(fds[0], out, sizeof(out)), 300);
        for (size_t i = 0; i < 300; i++) {
            size_t origin = i < 100 ? BUF_CAPACITY_MIN - 100 + i : i - 100;
            cr_assert_eq(out[i], origin % 251, "cut %zu, byte %zu", cut, i);
        }
        close_fd(&fds[0]);
        close_fd(&fds[1]);
        buf_done(&buf);
    }
}

Test(buf, push_is_all_or_nothing_at_the_cap)
{
    struct buf buf;
    buf_init(&buf, 5000);
    static uint8_t data[5001];
    struct err err = { 0 };
    cr_expect_eq(buf_push(&buf, data, 5001, &err), -1);
    cr_expect_eq(err.code, ERR_EXHAUSTED);
    cr_expect_null(buf.data);
    cr_expect_eq(buf_push(&buf, data, 5000, &err), 0);
    cr_expect_eq(buf.capacity, 5000);
    cr_expect_eq(buf_push(&buf, data, 1, &err), -1);
    cr_expect_eq(buf_push(&buf, data, SIZE_MAX, &err), -1);
    cr_expect_eq(buf_used(&buf), 5000);
    buf_done(&buf);
}

Test(buf, takes_no_memory_before_the_first_byte_and_none_after_the_last)
{
    struct buf buf;
    buf_init(&buf, 1 << 20);
    cr_expect_null(buf.data);
    cr_expect_eq(buf_push(&buf, NULL, 0, NULL), 0);
    cr_expect_null(buf.data);
    cr_assert_eq(buf_push(&buf, "x", 1, NULL), 0);
    cr_expect_not_null(buf.data);
    buf_drop(&buf, 1);
    cr_expect_null(buf.data);
    cr_expect_eq(buf.capacity, 0);
    buf_done(&buf);
    buf_done(&buf);
}

Test(buf, a_read_with_nothing_to_read_keeps_errno_and_gives_memory_back)
{
    struct buf buf;
    buf_init(&buf, 1 << 20);
    int fds[2];
    cr_assert_eq(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
    cr_expect_eq(buf_read(&buf, fds[0], SIZE_MAX), -1);
    cr_expect_eq(errno, EAGAIN);
    cr_expect_null(buf.data);
    close_fd(&fds[1]);
    cr_expect_eq(buf_read(&buf, fds[0], SIZE_MAX), 0);
    cr_expect_null(buf.data);
    close_fd(&fds[0]);
}

Test(buf, an_empty_write_makes_no_system_call)
{
    struct buf buf;
    buf_init(&buf, 1 << 20);
    cr_expect_eq(buf_write(&buf, -1), 0);
    cr_expect_eq(io_calls, 0);
}

Test(buf, a_failed_write_keeps_the_bytes)
{
    struct buf buf;
    buf_init(&buf, 1 << 20);
    cr_assert_eq(buf_push(&buf, "abc", 3, NULL), 0);
    cr_expect_eq(buf_write(&buf, -1), -1);
    cr_expect_eq(errno, EBADF);
    cr_expect_eq(buf_used(&buf), 3);
    buf_done(&buf);
}

Test(buf, the_cap_is_never_below_the_smallest_allocation)
{
    struct buf buf;
    buf_init(&buf, 1);
    cr_expect_eq(buf_room(&buf), BUF_CAPACITY_MIN);
}
