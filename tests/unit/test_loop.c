/* The event loop: what fires, how often, in which order, and that a source may be freed by its own
 * callback. */
#include "common/loop.h"

#include "common/clock.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/pidfd.h>

#define OK(call) cr_assert_eq((call), 0, "%s", err.text)
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
static struct loop_timer *timer;
static struct loop_io *io;
static struct loop_child *child;
static unsigned fired;

static void setup(void)
{
    OK(loop_new(&loop, &err));
}

static void teardown(void)
{
    loop_free(loop);
}

/* cppcheck-suppress unknownMacro */
TestSuite(loop, .init = setup, .fini = teardown);

/* Timers. */

static void on_timer(void *userdata)
{
    (void)userdata;
    fired++;
}

Test(loop, a_timer_fires_once_and_not_before_its_time)
{
    OK(loop_timer_new(loop, on_timer, NULL, &timer, &err));
    cr_expect_not(loop_timer_running(timer));
    uint64_t before = monotonic_us();
    loop_timer_start(timer, 20000);
    cr_expect(loop_timer_running(timer));
    UNTIL(fired);
    cr_expect_geq(monotonic_us() - before, 20000u);
    cr_expect_not(loop_timer_running(timer));
    OK(loop_turn(loop, 30000, &err));
    cr_expect_eq(fired, 1u);
    loop_timer_start(timer, 0);
    UNTIL(fired == 2);
    loop_timer_free(timer);
    loop_timer_free(NULL);
}

Test(loop, a_stopped_timer_does_not_fire_and_a_far_one_does_not_wrap)
{
    OK(loop_timer_new(loop, on_timer, NULL, &timer, &err));
    loop_timer_start(timer, 1);
    loop_timer_stop(timer);
    loop_timer_stop(NULL);
    OK(loop_turn(loop, 5000, &err));
    loop_timer_start(timer, UINT64_MAX);
    OK(loop_turn(loop, 5000, &err));
    cr_expect_eq(fired, 0u);
    cr_expect(loop_timer_running(timer));
    loop_timer_free(timer);
}

static void free_timer(void *userdata)
{
    (void)userdata;
    fired++;
    loop_timer_free(timer);
}

Test(loop, a_timer_may_be_freed_in_its_own_callback)
{
    OK(loop_timer_new(loop, free_timer, NULL, &timer, &err));
    loop_timer_start(timer, 0);
    UNTIL(fired);
    OK(loop_turn(loop, 0, &err));
}

/* Descriptors. */

static uint32_t seen;

static void on_io(void *userdata, uint32_t events)
{
    (void)userdata;
    seen = events;
    fired++;
}

Test(loop, a_descriptor_is_reported_as_long_as_it_is_ready)
{
    int ends[2];
    char byte;
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    OK(loop_io_new(loop, ends[0], EPOLLIN, on_io, NULL, &io, &err));
    OK(loop_turn(loop, 1000, &err));
    cr_expect_eq(fired, 0u);
    cr_assert_eq(write(ends[1], "x", 1), 1);
    UNTIL(fired == 3);
    cr_assert_eq(read(ends[0], &byte, 1), 1);
    OK(loop_turn(loop, 1000, &err));
    cr_expect_eq(fired, 3u);
    /* A hang-up that nobody wants to hear of does not spin. */
    loop_io_want(io, 0);
    close_fd(&ends[1]);
    OK(loop_turn(loop, 1000, &err));
    cr_expect_eq(fired, 3u);
    loop_io_want(io, EPOLLIN);
    UNTIL(fired == 4);
    cr_expect(seen & EPOLLHUP);
    loop_io_free(io);
    loop_io_free(NULL);
    close_fd(&ends[0]);
}

static void free_io(void *userdata, uint32_t events)
{
    (void)userdata;
    (void)events;
    fired++;
    loop_io_free(io);
}

Test(loop, a_descriptors_source_may_be_freed_in_its_own_callback)
{
    int ends[2];
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    close_fd(&ends[1]);
    OK(loop_io_new(loop, ends[0], EPOLLIN, free_io, NULL, &io, &err));
    UNTIL(fired);
    OK(loop_turn(loop, 1000, &err));
    cr_expect_eq(fired, 1u);
    close_fd(&ends[0]);
}

Test(loop, a_file_cannot_be_watched_and_says_so)
{
    CLEANUP_FD int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    cr_expect_eq(loop_io_new(loop, fd, EPOLLIN, on_io, NULL, &io, &err), -1);
    cr_expect_eq(err.sys_errno, EPERM);
}

/* Children and signals. */

static siginfo_t child_info;
static struct rusage child_usage;

static void on_child(void *userdata, const siginfo_t *info, const struct rusage *usage)
{
    (void)userdata;
    child_info = *info;
    child_usage = *usage;
    fired++;
    loop_child_free(child);
}

Test(loop, a_child_is_reaped_once_with_its_usage)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(42);
    int pidfd = pidfd_open(pid, 0);
    cr_assert_geq(pidfd, 0);
    OK(loop_child_new(loop, pidfd, on_child, NULL, &child, &err));
    UNTIL(fired);
    cr_expect_eq(child_info.si_pid, pid);
    cr_expect_eq(child_info.si_code, CLD_EXITED);
    cr_expect_eq(child_info.si_status, 42);
    cr_expect_gt(child_usage.ru_maxrss, 0);
    cr_expect_eq(waitpid(pid, NULL, 0), -1, "it was not reaped");
    OK(loop_turn(loop, 1000, &err));
    cr_expect_eq(fired, 1u);
    close_fd(&pidfd);
}

Test(loop, a_child_that_somebody_else_reaped_is_told_as_nobody)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    int pidfd = pidfd_open(pid, 0);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    OK(loop_child_new(loop, pidfd, on_child, NULL, &child, &err));
    UNTIL(fired);
    cr_expect_eq(child_info.si_pid, 0);
    close_fd(&pidfd);
}

static void on_signal(void *userdata, int number)
{
    (void)userdata;
    cr_assert_eq(number, SIGUSR1);
    fired++;
}

Test(loop, a_blocked_signal_becomes_an_event)
{
    const int signals[] = { SIGUSR1 };
    struct loop_signal *source;
    OK(loop_signals_block(signals, 1, &err));
    OK(loop_signal_new(loop, SIGUSR1, on_signal, NULL, &source, &err));
    cr_assert_eq(kill(getpid(), SIGUSR1), 0);
    UNTIL(fired);
    loop_signal_free(source);
    loop_signal_free(NULL);
}

/* Posts. */

#define THREADS 4u
#define POSTS   5000u

struct item {
    struct loop_post post;
    unsigned thread, number;
};

static struct item items[THREADS][POSTS];
static unsigned next_number[THREADS];
static pthread_t loop_thread;

static void on_post(struct loop_post *post)
{
    const struct item *item = CONTAINER_OF(post, struct item, post);
    cr_assert(pthread_equal(pthread_self(), loop_thread));
    cr_assert_eq(item->number, next_number[item->thread]++);
    fired++;
}

static void *post_all(void *userdata)
{
    struct item *mine = userdata;
    for (unsigned i = 0; i < POSTS; i++)
        loop_post(loop, &mine[i].post);
    return NULL;
}

Test(loop, posts_of_every_thread_run_in_its_order_on_the_loops_thread)
{
    pthread_t threads[THREADS];
    loop_thread = pthread_self();
    for (unsigned i = 0; i < THREADS; i++) {
        for (unsigned k = 0; k < POSTS; k++)
            items[i][k] = (struct item){ .post.fn = on_post, .thread = i, .number = k };
        cr_assert_eq(pthread_create(&threads[i], NULL, post_all, items[i]), 0);
    }
    UNTIL(fired == THREADS * POSTS);
    for (unsigned i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
}

static void post_again(struct loop_post *post)
{
    if (++fired < 10)
        loop_post(loop, post);
}

Test(loop, a_post_may_post_itself_again)
{
    struct loop_post post = { .fn = post_again };
    loop_post(loop, &post);
    UNTIL(fired == 10);
    fired = 0;
    loop_post(loop, &post);
    loop_drain_posts(loop);
    cr_expect_eq(fired, 1u, "what is posted meanwhile is for the next time");
    UNTIL(fired == 10);
}

static void quit(struct loop_post *post)
{
    (void)post;
    loop_quit(loop);
}

Test(loop, running_ends_when_it_is_told_to_quit)
{
    struct loop_post post = { .fn = quit };
    loop_post(loop, &post);
    OK(loop_run(loop, &err));
}

/* What is freed behind loop_run() may start timers that will never run. */
static void leave(void *userdata)
{
    loop_quit(userdata);
}

Test(loop, a_timer_may_be_started_when_the_loop_is_over)
{
    struct loop_timer *late;
    cr_assert_eq(loop_timer_new(loop, leave, loop, &late, &err), 0);
    loop_timer_start(late, 0);
    cr_assert_eq(loop_run(loop, &err), 0);
    loop_timer_start(late, 1000);
    loop_timer_free(late);
}
