/* The event loop over sd-event. Owns the epoll set, the timers and the queue through which other
 * threads (the gRPC pump, workers) hand over work. Hands each event to the callback of whoever made
 * the source; next: common/daemon.c runs one until a signal comes. */
#include "common/loop.h"

#include "common/clock.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <systemd/sd-event.h>

/* sd-event groups timers within this slack to save wake-ups. */
#define TIMER_SLACK_US 1000u

struct loop {
    sd_event *event;
    int post_fd;
    sd_event_source *post_source;
    _Atomic(struct loop_post *) posts; /* newest first */
};

struct loop_timer {
    sd_event_source *source;
    loop_timer_fn fn;
    void *userdata;
};

struct loop_io {
    sd_event_source *source;
    loop_io_fn fn;
    void *userdata;
};

struct loop_child {
    struct loop_io *io;
    int pidfd; /* the caller's */
    loop_child_fn fn;
    void *userdata;
};

struct loop_signal {
    sd_event_source *source;
    loop_signal_fn fn;
    void *userdata;
};

static int on_posted(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    (void)source;
    (void)events;
    uint64_t count;
    /* Only resets the counter; an error would mean that another round already did. */
    (void)!read(fd, &count, sizeof(count));
    loop_drain_posts(userdata);
    return 0;
}

int loop_new(struct loop **ret, struct err *err)
{
    CLEANUP_LOOP struct loop *loop = calloc(1, sizeof(*loop));
    if (!loop)
        return err_nomem(err);
    loop->post_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (loop->post_fd < 0)
        return err_errno(err, errno, "cannot create an eventfd");
    int r = sd_event_new(&loop->event);
    if (r < 0)
        return err_errno(err, -r, "cannot create an event loop");
    r = sd_event_add_io(loop->event, &loop->post_source, loop->post_fd, EPOLLIN, on_posted, loop);
    if (r < 0)
        return err_errno(err, -r, "cannot watch the event loop's own queue");
    *ret = TAKE_PTR(loop);
    return 0;
}

void loop_free(struct loop *loop)
{
    if (!loop)
        return;
    sd_event_source_disable_unref(loop->post_source);
    sd_event_unref(loop->event);
    close_fd(&loop->post_fd);
    free(loop);
}

int loop_run(struct loop *loop, struct err *err)
{
    int r = sd_event_loop(loop->event);
    return r < 0 ? err_errno(err, -r, "the event loop failed") : 0;
}

int loop_turn(struct loop *loop, uint64_t timeout_us, struct err *err)
{
    int r = sd_event_run(loop->event, timeout_us);
    return r < 0 ? err_errno(err, -r, "the event loop failed") : 0;
}

void loop_quit(struct loop *loop)
{
    (void)sd_event_exit(loop->event, 0);
}

int loop_enable_watchdog(struct loop *loop, struct err *err)
{
    int r = sd_event_set_watchdog(loop->event, true);
    return r < 0 ? err_errno(err, -r, "cannot start the watchdog timer") : 0;
}

/* Timers. */

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
    (void)source;
    (void)usec;
    struct loop_timer *timer = userdata;
    timer->fn(timer->userdata);
    return 0;
}

int loop_timer_new(struct loop *loop, loop_timer_fn fn, void *userdata, struct loop_timer **ret,
                   struct err *err)
{
    CLEANUP_FREE struct loop_timer *timer = calloc(1, sizeof(*timer));
    if (!timer)
        return err_nomem(err);
    timer->fn = fn;
    timer->userdata = userdata;
    int r = sd_event_add_time(loop->event, &timer->source, CLOCK_MONOTONIC, UINT64_MAX,
                              TIMER_SLACK_US, on_timer, timer);
    if (r >= 0)
        r = sd_event_source_set_enabled(timer->source, SD_EVENT_OFF);
    if (r < 0) {
        sd_event_source_disable_unref(timer->source);
        return err_errno(err, -r, "cannot create a timer");
    }
    *ret = TAKE_PTR(timer);
    return 0;
}

void loop_timer_start(struct loop_timer *timer, uint64_t after_us)
{
    uint64_t now = monotonic_us();
    uint64_t at = after_us < UINT64_MAX - now ? now + after_us : UINT64_MAX - 1;
    /* These fail only for a dead source or another process, which would be our bug; and on a loop
     * that has run to its end, where what is being let go of may still ask for time that never
     * comes. */
    int r = sd_event_source_set_time(timer->source, at);
    assert(r >= 0 || r == -ESTALE);
    r = sd_event_source_set_enabled(timer->source, SD_EVENT_ONESHOT);
    assert(r >= 0 || r == -ESTALE);
    (void)r;
}

void loop_timer_stop(struct loop_timer *timer)
{
    if (timer)
        (void)sd_event_source_set_enabled(timer->source, SD_EVENT_OFF);
}

bool loop_timer_running(const struct loop_timer *timer)
{
    return sd_event_source_get_enabled(timer->source, NULL) > 0;
}

uint64_t loop_timer_left_us(const struct loop_timer *timer)
{
    uint64_t at, now = monotonic_us();
    if (!loop_timer_running(timer) || sd_event_source_get_time(timer->source, &at) < 0)
        return UINT64_MAX;
    return at > now ? at - now : 0;
}

void loop_timer_free(struct loop_timer *timer)
{
    if (!timer)
        return;
    sd_event_source_disable_unref(timer->source);
    free(timer);
}

/* File descriptors. */

static int on_io(sd_event_source *source, int fd, uint32_t events, void *userdata)
{
    (void)source;
    (void)fd;
    struct loop_io *io = userdata;
    io->fn(io->userdata, events);
    return 0;
}

int loop_io_new(struct loop *loop, int fd, uint32_t events, loop_io_fn fn, void *userdata,
                struct loop_io **ret, struct err *err)
{
    CLEANUP_FREE struct loop_io *io = calloc(1, sizeof(*io));
    if (!io)
        return err_nomem(err);
    io->fn = fn;
    io->userdata = userdata;
    int r = sd_event_add_io(loop->event, &io->source, fd, events, on_io, io);
    if (r < 0)
        return err_errno(err, -r, "cannot watch a file descriptor");
    *ret = TAKE_PTR(io);
    return 0;
}

void loop_io_want(struct loop_io *io, uint32_t events)
{
    /* With no event wanted epoll still reports EPOLLHUP, level-triggered: a source that nobody
     * wants to hear from must be off, or it spins. */
    int r = sd_event_source_set_io_events(io->source, events);
    assert(r >= 0 || r == -ESTALE);
    r = sd_event_source_set_enabled(io->source, events ? SD_EVENT_ON : SD_EVENT_OFF);
    assert(r >= 0 || r == -ESTALE);
    (void)r;
}

void loop_io_free(struct loop_io *io)
{
    if (!io)
        return;
    sd_event_source_disable_unref(io->source);
    free(io);
}

/* Children. */

static void on_child(void *userdata, uint32_t events)
{
    (void)events;
    struct loop_child *child = userdata;
    siginfo_t info = { 0 };
    struct rusage usage = { 0 };
    /* glibc's waitid(3) hides the fifth argument; see waitid(2), "C library/kernel differences". */
    long r = syscall(SYS_waitid, P_PIDFD, child->pidfd, &info, WEXITED | WNOHANG, &usage);
    if (r < 0 && errno == EINTR)
        return;
    if (r == 0 && info.si_pid == 0)
        return;
    loop_io_want(child->io, 0);
    /* ECHILD means that somebody else reaped it, which only our own bug could do; an all-zero info
     * says so to the owner, who reports the outcome as lost rather than as an exit code. */
    child->fn(child->userdata, &info, &usage);
}

int loop_child_new(struct loop *loop, int pidfd, loop_child_fn fn, void *userdata,
                   struct loop_child **ret, struct err *err)
{
    CLEANUP_FREE struct loop_child *child = calloc(1, sizeof(*child));
    if (!child)
        return err_nomem(err);
    child->pidfd = pidfd;
    child->fn = fn;
    child->userdata = userdata;
    if (loop_io_new(loop, pidfd, EPOLLIN, on_child, child, &child->io, err) < 0)
        return -1;
    *ret = TAKE_PTR(child);
    return 0;
}

void loop_child_reap(struct loop_child *child)
{
    on_child(child, EPOLLIN);
}

void loop_child_free(struct loop_child *child)
{
    if (!child)
        return;
    loop_io_free(child->io);
    free(child);
}

/* Signals. */

static int on_signal(sd_event_source *source, const struct signalfd_siginfo *info, void *userdata)
{
    (void)source;
    struct loop_signal *signal = userdata;
    signal->fn(signal->userdata, (int)info->ssi_signo);
    return 0;
}

int loop_signals_block(const int *signals, unsigned count, struct err *err)
{
    sigset_t set;
    (void)sigemptyset(&set);
    for (unsigned i = 0; i < count; i++)
        (void)sigaddset(&set, signals[i]);
    int r = pthread_sigmask(SIG_BLOCK, &set, NULL);
    return r ? err_errno(err, r, "cannot block signals") : 0;
}

int loop_signal_new(struct loop *loop, int number, loop_signal_fn fn, void *userdata,
                    struct loop_signal **ret, struct err *err)
{
    CLEANUP_FREE struct loop_signal *signal = calloc(1, sizeof(*signal));
    if (!signal)
        return err_nomem(err);
    signal->fn = fn;
    signal->userdata = userdata;
    int r = sd_event_add_signal(loop->event, &signal->source, number, on_signal, signal);
    if (r < 0)
        return err_errno(err, -r, "cannot watch signal %d", number);
    *ret = TAKE_PTR(signal);
    return 0;
}

void loop_signal_free(struct loop_signal *signal)
{
    if (!signal)
        return;
    sd_event_source_disable_unref(signal->source);
    free(signal);
}

/* Posts. A stack that is taken whole and reversed: pushing is one compare-and-swap, and the eventfd
 * is written only by whoever found the stack empty. */

void loop_post(struct loop *loop, struct loop_post *post)
{
    struct loop_post *head = atomic_load_explicit(&loop->posts, memory_order_relaxed);
    do {
        post->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&loop->posts, &head, post, memory_order_release,
                                                    memory_order_relaxed));
    if (head)
        return;
    const uint64_t one = 1;
    /* EAGAIN would mean a counter near 2^64, and the loop is awake then anyway. */
    (void)!write(loop->post_fd, &one, sizeof(one));
}

void loop_drain_posts(struct loop *loop)
{
    struct loop_post *newest = atomic_exchange_explicit(&loop->posts, NULL, memory_order_acquire);
    struct loop_post *oldest = NULL;
    while (newest) {
        struct loop_post *next = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest) {
        struct loop_post *post = oldest;
        oldest = post->next;
        post->fn(post);
    }
}
