/* The event loop: a thin layer on sd-event. One thread runs a loop and owns every object on it;
 * the only thing another thread may do is loop_post(). Sources are freed by their owner, also
 * inside their own callback. */
#pragma once

#include "common/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>

struct loop;
struct loop_timer;
struct loop_io;
struct loop_child;
struct loop_signal;

int loop_new(struct loop **ret, struct err *err) must_use;
void loop_free(struct loop *loop);
/* Runs until loop_quit(). */
int loop_run(struct loop *loop, struct err *err) must_use;
/* One round; waits at most `timeout_us` (UINT64_MAX: for ever). For callers that own no thread. */
int loop_turn(struct loop *loop, uint64_t timeout_us, struct err *err) must_use;
void loop_quit(struct loop *loop);
/* The watchdog of systemd, when it is asked for by the environment. */
int loop_enable_watchdog(struct loop *loop, struct err *err) must_use;

/* One shot, on the monotonic clock. Created stopped. */
typedef void (*loop_timer_fn)(void *userdata);
int loop_timer_new(struct loop *loop, loop_timer_fn fn, void *userdata, struct loop_timer **ret,
                   struct err *err) must_use;
void loop_timer_start(struct loop_timer *timer, uint64_t after_us);
void loop_timer_stop(struct loop_timer *timer);
bool loop_timer_running(const struct loop_timer *timer);
/* Until it is due; UINT64_MAX when it is stopped. */
uint64_t loop_timer_left_us(const struct loop_timer *timer);
void loop_timer_free(struct loop_timer *timer);

/* Level-triggered; `events` are those of epoll(7). Does not own the fd. */
typedef void (*loop_io_fn)(void *userdata, uint32_t events);
int loop_io_new(struct loop *loop, int fd, uint32_t events, loop_io_fn fn, void *userdata,
                struct loop_io **ret, struct err *err) must_use;
void loop_io_want(struct loop_io *io, uint32_t events);
void loop_io_free(struct loop_io *io);

/* Reaps the process behind a pidfd, once: no SIGCHLD, no pid that could be somebody else's. */
typedef void (*loop_child_fn)(void *userdata, const siginfo_t *info, const struct rusage *usage);
int loop_child_new(struct loop *loop, int pidfd, loop_child_fn fn, void *userdata,
                   struct loop_child **ret, struct err *err) must_use;
void loop_child_free(struct loop_child *child);
/* Now, if it has ended, and not when the loop comes to it: calls fn. */
void loop_child_reap(struct loop_child *child);

/* The signal must be blocked in every thread; loop_signals_block() before the first thread. */
typedef void (*loop_signal_fn)(void *userdata, int signal);
int loop_signals_block(const int *signals, unsigned count, struct err *err) must_use;
int loop_signal_new(struct loop *loop, int signal, loop_signal_fn fn, void *userdata,
                    struct loop_signal **ret, struct err *err) must_use;
void loop_signal_free(struct loop_signal *signal);

/* Any thread: run node->fn on the loop's thread. The node is the caller's until fn is called. Posts
 * of one thread run in order. */
struct loop_post {
    struct loop_post *next;
    void (*fn)(struct loop_post *post);
};
void loop_post(struct loop *loop, struct loop_post *post);
/* Loop thread: runs what has been posted so far. */
void loop_drain_posts(struct loop *loop);

static inline void loop_cleanup(struct loop **loop)
{
    loop_free(*loop);
}
#define CLEANUP_LOOP CLEANUP(loop_cleanup)
