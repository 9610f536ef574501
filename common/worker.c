/* The worker thread. Owns a bounded queue of jobs under one mutex; takes them from the loop thread
 * and gives each back through loop_post(). */
#include "common/worker.h"

#include "common/clock.h"

#include <pthread.h>

struct worker {
    struct loop *loop;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t wake, over;
    /* Under the lock. */
    struct worker_job *first, **last;
    unsigned waiting;
    bool stopping;
    bool abandoned; /* nobody waits for the thread any more: it ends after its job */
    bool ended;
};

static void job_returned(struct loop_post *post)
{
    struct worker_job *job = CONTAINER_OF(post, struct worker_job, post);
    job->done(job);
}

static struct worker_job *next_job(struct worker *worker)
{
    (void)pthread_mutex_lock(&worker->lock);
    while (!worker->first && !worker->stopping)
        (void)pthread_cond_wait(&worker->wake, &worker->lock);
    struct worker_job *job = worker->abandoned ? NULL : worker->first;
    if (job) {
        worker->first = job->next;
        worker->waiting--;
        if (!worker->first)
            worker->last = &worker->first;
    }
    worker->ended = !job;
    if (worker->ended)
        (void)pthread_cond_signal(&worker->over);
    (void)pthread_mutex_unlock(&worker->lock);
    return job;
}

static void *worker_main(void *userdata)
{
    struct worker *worker = userdata;
    struct worker_job *job;
    while ((job = next_job(worker))) {
        job->work(job);
        job->post.fn = job_returned;
        loop_post(worker->loop, &job->post);
    }
    return NULL;
}

int worker_new(struct loop *loop, const char *name, struct worker **ret, struct err *err)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    if (!worker)
        return err_nomem(err);
    worker->loop = loop;
    worker->last = &worker->first;
    (void)pthread_mutex_init(&worker->lock, NULL);
    (void)pthread_cond_init(&worker->wake, NULL);
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&worker->over, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    int r = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (r) {
        worker_free(worker);
        return err_errno(err, r, "cannot start the %s thread", name);
    }
    worker->started = true;
    (void)pthread_setname_np(worker->thread, name);
    *ret = worker;
    return 0;
}

int worker_submit(struct worker *worker, struct worker_job *job, struct err *err)
{
    bool full = false;
    (void)pthread_mutex_lock(&worker->lock);
    if (worker->waiting >= WORKER_JOBS_MAX) {
        full = true;
    } else {
        job->next = NULL;
        *worker->last = job;
        worker->last = &job->next;
        worker->waiting++;
        (void)pthread_cond_signal(&worker->wake);
    }
    (void)pthread_mutex_unlock(&worker->lock);
    return full ? err_set(err, ERR_EXHAUSTED, "%d jobs are waiting already", WORKER_JOBS_MAX) : 0;
}

bool worker_free_within(struct worker *worker, uint64_t timeout_us)
{
    if (!worker)
        return true;
    uint64_t end_us = monotonic_us() + timeout_us;
    const struct timespec end = { (time_t)(end_us / 1000000), (long)(end_us % 1000000 * 1000) };
    int r = 0;
    (void)pthread_mutex_lock(&worker->lock);
    worker->stopping = true;
    (void)pthread_cond_signal(&worker->wake);
    while (worker->started && !worker->ended && r == 0)
        r = pthread_cond_timedwait(&worker->over, &worker->lock, &end);
    bool over = !worker->started || worker->ended;
    worker->abandoned = !over;
    (void)pthread_mutex_unlock(&worker->lock);
    if (over)
        worker_free(worker);
    return over;
}

void worker_free(struct worker *worker)
{
    if (!worker)
        return;
    (void)pthread_mutex_lock(&worker->lock);
    worker->stopping = true;
    (void)pthread_cond_signal(&worker->wake);
    (void)pthread_mutex_unlock(&worker->lock);
    if (worker->started) {
        (void)pthread_join(worker->thread, NULL);
        loop_drain_posts(worker->loop);
    }
    (void)pthread_cond_destroy(&worker->wake);
    (void)pthread_cond_destroy(&worker->over);
    (void)pthread_mutex_destroy(&worker->lock);
    free(worker);
}
