/* Owns the store's thread, its queue of jobs and the transactions they run in. The loop's objects
 * hand it jobs; each comes back through loop_post() when its transaction is committed. Next:
 * orchestrator/store_verbs.c for what jobs do inside, and the backend, orchestrator/store_sqlite.c.
 *
 * One transaction for all the jobs that wait, because the commit is what costs; a savepoint around
 * each, so that one that fails undoes itself alone. */
#include "orchestrator/store-internal.h"

#include "common/clock.h"
#include "common/failpoint.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define STORE_PROBE_US 1000000u /* between two looks whether a store that failed can save again */

struct store {
    struct store_tx *tx;
    bool tx_failed; /* the last transaction; of whoever runs them */
    struct loop *loop;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    /* Under the lock. */
    struct store_job *first, **last;
    unsigned waiting;
    bool stopping;
    uint64_t busy_since_us; /* 0: nothing is being done */
    bool failing;           /* nothing could be saved since then */
};

/* Transactions. */

static int begin(struct store_tx *tx, bool durable, struct err *err)
{
    tx->action[0] = '\0';
    return tx->backend->begin(tx, durable, err);
}

static void run_job(struct store_tx *tx, struct store_job *job)
{
    job->result = -1;
    if (tx->backend->job_begin(tx, &job->err) < 0)
        return;
    job->result = job->work(job, tx, &job->err);
    if (tx->backend->lost(tx))
        return;
    if (job->result >= 0 && tx->backend->job_keep(tx, &job->err) < 0)
        job->result = -1;
    if (job->result < 0 && tx->backend->job_undo(tx) < 0)
        tx->backend->rollback(tx); /* half a job must not stay, so nothing does */
}

/* Those that failed by themselves keep their own reason. */
static void fail_all(struct store_job *jobs, const struct err *why)
{
    for (struct store_job *job = jobs; job; job = job->next) {
        job->unsaved = true;
        if (job->result >= 0 || job->err.code == ERR_NONE) {
            job->result = -1;
            job->err = *why;
        }
    }
}

/* Runs the jobs in order. -1 when the transaction went down with one of them. */
static int run_jobs(struct store_tx *tx, struct store_job *jobs, struct err *why)
{
    for (struct store_job *job = jobs; job; job = job->next) {
        run_job(tx, job);
        if (!tx->backend->lost(tx))
            continue;
        if (job->err.code == ERR_NONE)
            return err_set(why, ERR_UNAVAILABLE,
                           "the database undid a transaction; see that its disk is well, then try "
                           "again");
        *why = job->err;
        return err_wrap(why, "undone together with another change");
    }
    return 0;
}

/* Where a test may kill us, by what the transaction does: its last row in the audit. */
static void failpoint_at(const char *where, const struct store_tx *tx)
{
#ifdef SANDSTORM_FAILPOINTS
    char name[STORE_ACTOR_MAX + 32];
    (void)snprintf(name, sizeof(name), "store.%s.%s", where, tx->action);
    failpoint(name);
#else
    (void)where;
    (void)tx;
#endif
}

static int commit(struct store_tx *tx, struct err *err)
{
    failpoint_at("saving", tx);
    if (tx->backend->commit(tx, err) < 0)
        return -1;
    failpoint_at("saved", tx);
    return 0;
}

static void run_batch(struct store_tx *tx, struct store_job *jobs, bool *ret_failed)
{
    bool durable = false;
    *ret_failed = false;
    for (struct store_job *job = jobs; job; job = job->next) {
        job->result = 0;
        job->unsaved = false;
        job->err = (struct err){ 0 };
        durable |= job->durable;
    }
    struct err why = { 0 };
    if (begin(tx, durable, &why) < 0 || (!jobs && tx->backend->probe(tx, &why) < 0) ||
        run_jobs(tx, jobs, &why) < 0 || commit(tx, &why) < 0) {
        tx->backend->rollback(tx);
        fail_all(jobs, &why);
        *ret_failed = true;
    }
}

/* The thread. */

static void job_returned(struct loop_post *post)
{
    struct store_job *job = CONTAINER_OF(post, struct store_job, post);
    job->done(job);
}

/* Cuts a batch off the front of the queue; the lock is held. */
static struct store_job *take_batch(struct store *store)
{
    struct store_job *jobs = store->first, **end = &store->first;
    for (unsigned i = 0; i < STORE_BATCH_MAX && *end; i++) {
        end = &(*end)->next;
        store->waiting--;
    }
    store->first = *end;
    if (!store->first)
        store->last = &store->first;
    if (jobs)
        *end = NULL;
    return jobs;
}

/* The store could not save, and nobody asks for anything now: looks for itself whether it can
 * again. The lock is held, and given up meanwhile. */
static void wait_and_probe(struct store *store)
{
    const uint64_t at = monotonic_us() + STORE_PROBE_US;
    const struct timespec until = { .tv_sec = (time_t)(at / 1000000),
                                    .tv_nsec = (long)(at % 1000000) * 1000 };
    if (pthread_cond_clockwait(&store->wake, &store->lock, CLOCK_MONOTONIC, &until) == 0)
        return;
    (void)pthread_mutex_unlock(&store->lock);
    run_batch(store->tx, NULL, &store->tx_failed);
    (void)pthread_mutex_lock(&store->lock);
    store->failing = store->tx_failed;
}

static struct store_job *wait_batch(struct store *store)
{
    (void)pthread_mutex_lock(&store->lock);
    store->failing = store->tx_failed;
    while (!store->first && !store->stopping) {
        if (store->failing) {
            wait_and_probe(store);
            continue;
        }
        store->busy_since_us = 0;
        (void)pthread_cond_wait(&store->wake, &store->lock);
    }
    struct store_job *jobs = take_batch(store);
    /* Failing again and again is one stall, not many short ones. */
    if (!store->failing || !store->busy_since_us)
        store->busy_since_us = jobs ? monotonic_us() : 0;
    (void)pthread_mutex_unlock(&store->lock);
    return jobs;
}

/* False at the end: nothing is waiting, and nothing will come. */
static bool run_waiting(struct store *store)
{
    struct store_job *job = wait_batch(store);
    if (!job)
        return false;
    run_batch(store->tx, job, &store->tx_failed);
    while (job) {
        struct store_job *next = job->next; /* done() may free the job */
        job->post.fn = job_returned;
        loop_post(store->loop, &job->post);
        job = next;
    }
    return true;
}

static void *store_main(void *userdata)
{
    while (run_waiting(userdata))
        continue;
    return NULL;
}

const struct store_backend *store_backend_find(const char *name)
{
    static const struct store_backend *const backends[] = { &store_backend_sqlite };
    for (size_t i = 0; i < ELEMENTS(backends); i++)
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i];
    return NULL;
}

int store_open(const char *dir, struct loop *loop, struct store **ret, struct err *err)
{
    return store_open_on(&store_backend_sqlite, dir, loop, ret, err);
}

int store_open_on(const struct store_backend *backend, const char *where, struct loop *loop,
                  struct store **ret, struct err *err)
{
    struct store *store = calloc(1, sizeof(*store));
    if (!store)
        return err_nomem(err);
    store->loop = loop;
    store->last = &store->first;
    (void)pthread_mutex_init(&store->lock, NULL);
    (void)pthread_cond_init(&store->wake, NULL);
    if (backend->open(where, &store->tx, err) < 0) {
        store_free(store);
        return -1;
    }
    int r = loop ? pthread_create(&store->thread, NULL, store_main, store) : 0;
    if (r) {
        store_free(store);
        return err_errno(err, r, "cannot start the store's thread");
    }
    store->started = loop;
    if (loop)
        (void)pthread_setname_np(store->thread, "store");
    *ret = store;
    return 0;
}

bool store_is_new(const struct store *store)
{
    return store->tx->made;
}

bool store_audit_broken(const struct store *store)
{
    return store->tx->audit_broken;
}

int store_submit(struct store *store, struct store_job *job, struct err *err)
{
    assert(store->loop);
    bool full = false;
    (void)pthread_mutex_lock(&store->lock);
    if (store->waiting >= STORE_JOBS_MAX) {
        full = true;
    } else {
        job->next = NULL;
        *store->last = job;
        store->last = &job->next;
        store->waiting++;
        (void)pthread_cond_signal(&store->wake);
    }
    (void)pthread_mutex_unlock(&store->lock);
    if (full)
        return err_set(err, ERR_EXHAUSTED,
                       "%u changes wait for the disk already; try again later, and look whether "
                       "the disk is slow",
                       STORE_JOBS_MAX);
    return 0;
}

uint64_t store_busy_us(struct store *store)
{
    (void)pthread_mutex_lock(&store->lock);
    uint64_t since = store->busy_since_us;
    (void)pthread_mutex_unlock(&store->lock);
    return since ? monotonic_us() - since : 0;
}

int store_run(struct store *store, struct store_job *job, struct err *err)
{
    assert(!store->loop);
    job->next = NULL;
    run_batch(store->tx, job, &store->tx_failed);
    if (job->result < 0 && err)
        *err = job->err;
    return job->result < 0 ? -1 : 0;
}

void store_free(struct store *store)
{
    if (!store)
        return;
    (void)pthread_mutex_lock(&store->lock);
    store->stopping = true;
    (void)pthread_cond_signal(&store->wake);
    (void)pthread_mutex_unlock(&store->lock);
    if (store->started) {
        (void)pthread_join(store->thread, NULL);
        /* What done() submits now is work that was submitted, too. */
        do
            loop_drain_posts(store->loop);
        while (run_waiting(store));
    }
    if (store->tx)
        store->tx->backend->close(store->tx);
    (void)pthread_cond_destroy(&store->wake);
    (void)pthread_mutex_destroy(&store->lock);
    free(store);
}
