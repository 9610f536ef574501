/* The worker thread: jobs go out and come back in order, their number is bounded, and none is lost
 * at the end. pthread_join(3) is replaced in this binary, because it is the one thing that shows
 * when the worker has been told to stop. */
#include "common/worker.h"

#include "common/clock.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>

#define OK(call) cr_assert_eq((call), 0, "%s", err.text)

struct job {
    struct worker_job job;
    unsigned number;
    bool worked, done;
};

static pthread_t loop_thread;
static unsigned worked, returned;
static sem_t gate, entered;

static void work(struct worker_job *base)
{
    struct job *job = CONTAINER_OF(base, struct job, job);
    cr_assert_not(pthread_equal(pthread_self(), loop_thread));
    cr_assert_eq(job->number, worked++);
    job->worked = true;
}

static void work_behind_the_gate(struct worker_job *base)
{
    cr_assert_eq(sem_post(&entered), 0);
    cr_assert_eq(sem_wait(&gate), 0);
    work(base);
}

static void done(struct worker_job *base)
{
    struct job *job = CONTAINER_OF(base, struct job, job);
    cr_assert(pthread_equal(pthread_self(), loop_thread));
    cr_assert(job->worked && !job->done);
    cr_assert_eq(job->number, returned++);
    job->done = true;
}

/* From here on the worker knows that it ends, with its queue still full. */
int pthread_join(pthread_t thread, void **result)
{
    cr_assert_eq(sem_post(&gate), 0);
    int (*join)(pthread_t, void **) = NULL;
    *(void **)&join = dlsym(RTLD_NEXT, "pthread_join");
    return join(thread, result);
}

static struct job jobs[WORKER_JOBS_MAX + 2];

static void setup_jobs(void)
{
    loop_thread = pthread_self();
    for (unsigned i = 0; i < ELEMENTS(jobs); i++)
        jobs[i] = (struct job){ .job = { .work = work, .done = done }, .number = i };
    cr_assert_eq(sem_init(&gate, 0, 0), 0);
    cr_assert_eq(sem_init(&entered, 0, 0), 0);
}

Test(worker, jobs_come_back_to_the_loop_in_order)
{
    struct err err = { 0 };
    CLEANUP_LOOP struct loop *loop = NULL;
    struct worker *worker;
    setup_jobs();
    OK(loop_new(&loop, &err));
    OK(worker_new(loop, "test", &worker, &err));
    for (unsigned i = 0; i < 100; i++)
        OK(worker_submit(worker, &jobs[i].job, &err));
    uint64_t deadline = monotonic_us() + 30000000u;
    while (returned < 100) {
        cr_assert_lt(monotonic_us(), deadline);
        OK(loop_turn(loop, 100000, &err));
    }
    worker_free(worker);
    worker_free(NULL);
}

Test(worker, a_full_queue_refuses_and_freeing_finishes_every_job)
{
    struct err err = { 0 };
    CLEANUP_LOOP struct loop *loop = NULL;
    struct worker *worker;
    setup_jobs();
    OK(loop_new(&loop, &err));
    OK(worker_new(loop, "test", &worker, &err));
    jobs[0].job.work = work_behind_the_gate;
    OK(worker_submit(worker, &jobs[0].job, &err));
    cr_assert_eq(sem_wait(&entered), 0); /* it is under way and waits no more in the queue */
    for (unsigned i = 1; i <= WORKER_JOBS_MAX; i++)
        OK(worker_submit(worker, &jobs[i].job, &err));
    cr_expect_eq(worker_submit(worker, &jobs[WORKER_JOBS_MAX + 1].job, &err), -1);
    cr_expect_eq(err.code, ERR_EXHAUSTED);
    worker_free(worker);
    cr_expect_eq(returned, WORKER_JOBS_MAX + 1u);
    cr_expect_not(jobs[WORKER_JOBS_MAX + 1].worked, "the job that was refused");
}

Test(worker, a_job_that_hangs_is_left_behind_and_nothing_of_it_is_touched)
{
    struct err err = { 0 };
    CLEANUP_LOOP struct loop *loop = NULL;
    struct worker *worker;
    setup_jobs();
    OK(loop_new(&loop, &err));
    OK(worker_new(loop, "test", &worker, &err));
    jobs[0].job.work = work_behind_the_gate;
    OK(worker_submit(worker, &jobs[0].job, &err));
    OK(worker_submit(worker, &jobs[1].job, &err));
    cr_assert_eq(sem_wait(&entered), 0);
    uint64_t before = monotonic_us();
    cr_assert_not(worker_free_within(worker, 50000));
    uint64_t waited = monotonic_us() - before;
    cr_expect(waited >= 50000 && waited < 10000000, "%lu us", (unsigned long)waited);
    /* It comes back after all: the job is handed over, the one behind it is not begun. */
    cr_assert_eq(sem_post(&gate), 0);
    worker_free(worker);
    cr_expect(jobs[0].done);
    cr_expect_not(jobs[1].worked);
}

Test(worker, jobs_that_end_in_time_are_finished)
{
    struct err err = { 0 };
    CLEANUP_LOOP struct loop *loop = NULL;
    struct worker *worker;
    setup_jobs();
    OK(loop_new(&loop, &err));
    OK(worker_new(loop, "test", &worker, &err));
    for (unsigned i = 0; i < 100; i++)
        OK(worker_submit(worker, &jobs[i].job, &err));
    cr_expect(worker_free_within(worker, 30000000));
    cr_expect_eq(returned, 100u);
    cr_expect(worker_free_within(NULL, 0));
}
