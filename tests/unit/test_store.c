/* The store's jobs: their order, their isolation, when they come back, and that none is lost.
 * fdatasync(2) is replaced in this binary to count what is brought to disk. */
#include "store_fixture.h"

#include "orchestrator/store-internal.h"

#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>

#define MANY 1000u

static atomic_uint syncs;

int fdatasync(int fd)
{
    (void)atomic_fetch_add(&syncs, 1);
    return (int)syscall(SYS_fdatasync, fd);
}

static struct loop *loop;
static struct store *store;
static pthread_t loop_thread;
static unsigned worked, returned;
static sem_t gate, entered;

struct job {
    struct store_job job;
    unsigned number;
    bool fails, waits;
    struct store_job *then; /* what done() submits */
};
static struct job jobs[STORE_BATCH_MAX + STORE_JOBS_MAX + 1];

static void sandbox_name(unsigned number, char ret[SANDBOX_ID_MAX + 1])
{
    (void)snprintf(ret, SANDBOX_ID_MAX + 1, "s-%u", number);
}

static int work(struct store_job *base, struct store_tx *tx, struct err *error)
{
    struct job *job = CONTAINER_OF(base, struct job, job);
    cr_assert_not(pthread_equal(pthread_self(), loop_thread));
    cr_assert_eq(job->number, worked++);
    if (job->waits) {
        cr_assert_eq(sem_post(&entered), 0);
        cr_assert_eq(sem_wait(&gate), 0);
    }
    struct sandbox_record sandbox = { .enrolled_ms = job->number };
    sandbox_name(job->number, sandbox.id);
    if (store_sandbox_put(tx, &sandbox, error) < 0)
        return -1;
    return job->fails ? err_set(error, ERR_DENIED, "job %u", job->number) : 0;
}

static void done(struct store_job *base)
{
    struct job *job = CONTAINER_OF(base, struct job, job);
    cr_assert(pthread_equal(pthread_self(), loop_thread));
    cr_assert_eq(job->number, returned++);
    if (job->then)
        OK(store_submit(store, job->then, &err));
}

static void set_up(void)
{
    make_directory();
    loop_thread = pthread_self();
    for (unsigned i = 0; i < ELEMENTS(jobs); i++)
        jobs[i] = (struct job){ .job = { .work = work, .done = done }, .number = i };
    cr_assert_eq(sem_init(&gate, 0, 0), 0);
    cr_assert_eq(sem_init(&entered, 0, 0), 0);
    OK(loop_new(&loop, &err));
    store = open_store(loop);
}

static void tear_down(void)
{
    store_free(store);
    loop_free(loop);
    remove_directory();
}

/* cppcheck-suppress unknownMacro */
TestSuite(store, .init = set_up, .fini = tear_down, .timeout = 60);

/* The first one holds the thread until the others wait together. */
static void submit_together(unsigned count)
{
    jobs[0].waits = true;
    OK(store_submit(store, &jobs[0].job, &err));
    cr_assert_eq(sem_wait(&entered), 0);
    for (unsigned i = 1; i < count; i++)
        OK(store_submit(store, &jobs[i].job, &err));
    cr_assert_eq(sem_post(&gate), 0);
}

static void done_and_look(struct store_job *base)
{
    const struct job *job = CONTAINER_OF(base, struct job, job);
    char sql[96];
    (void)snprintf(sql, sizeof(sql), "SELECT enrolled_ms FROM sandboxes WHERE id = 's-%u'",
                   job->number);
    cr_assert_eq(raw(sql), job->number, "done() came before the commit");
    done(base);
}

Test(store, done_comes_on_the_loop_in_order_and_after_the_commit)
{
    for (unsigned i = 0; i < 40; i++) {
        jobs[i].job.done = done_and_look;
        OK(store_submit(store, &jobs[i].job, &err));
    }
    turn_until(loop, &returned, 40);
    for (unsigned i = 0; i < 40; i++)
        cr_assert_eq(jobs[i].job.result, 0);
}

Test(store, a_job_that_fails_leaves_nothing_behind_and_harms_no_other)
{
    jobs[0].fails = jobs[2].fails = jobs[5].fails = true;
    submit_together(6);
    turn_until(loop, &returned, 6);
    for (unsigned i = 0; i < 6; i++) {
        cr_assert_eq(jobs[i].job.result, jobs[i].fails ? -1 : 0, "%u", i);
        cr_assert_eq(jobs[i].job.err.code, jobs[i].fails ? ERR_DENIED : ERR_NONE, "%u", i);
    }
    cr_assert_str_eq(jobs[5].job.err.text, "job 5");
    cr_assert_eq(raw("SELECT count(*) FROM sandboxes"), 3);
    cr_assert_eq(raw("SELECT count(*) FROM sandboxes WHERE id IN ('s-1', 's-3', 's-4')"), 3);
}

Test(store, a_job_can_be_submitted_again_after_it_failed)
{
    jobs[0].fails = true;
    submit_together(1);
    turn_until(loop, &returned, 1);
    cr_assert_eq(jobs[0].job.result, -1);
    worked = returned = 0;
    jobs[0].fails = jobs[0].waits = false;
    OK(store_submit(store, &jobs[0].job, &err));
    turn_until(loop, &returned, 1);
    cr_assert_eq(jobs[0].job.result, 0);
    cr_assert_eq(jobs[0].job.err.code, ERR_NONE);
}

Test(store, jobs_that_wait_together_share_a_transaction)
{
    for (unsigned i = 0; i < MANY; i++)
        jobs[i].job.durable = true;
    unsigned before = atomic_load(&syncs);
    submit_together(MANY);
    turn_until(loop, &returned, MANY);
    /* Five transactions: the first job, and then 256 at a time. The log is synced once for each,
     * and its beginning, the directory and a checkpoint may add a few. */
    cr_assert_leq(atomic_load(&syncs) - before, 20);
    cr_assert_eq(raw("SELECT count(*) FROM sandboxes"), MANY);
}

static unsigned syncs_of_one(unsigned number, bool durable)
{
    jobs[number].job.durable = durable;
    unsigned before = atomic_load(&syncs);
    OK(store_submit(store, &jobs[number].job, &err));
    turn_until(loop, &returned, number + 1);
    return atomic_load(&syncs) - before;
}

Test(store, only_a_durable_job_is_on_the_disk_when_it_is_done)
{
    (void)syncs_of_one(0, true); /* the log begins */
    cr_expect_eq(syncs_of_one(1, false), 0);
    cr_expect_geq(syncs_of_one(2, true), 1);
    cr_expect_geq(syncs_of_one(3, true), 1);
    cr_expect_eq(syncs_of_one(4, false), 0);
    cr_expect_geq(syncs_of_one(5, true), 1);
}

Test(store, one_durable_job_makes_its_whole_batch_durable)
{
    (void)syncs_of_one(0, false);
    worked = returned = 0;
    jobs[2].job.durable = true;
    unsigned before = atomic_load(&syncs);
    submit_together(4);
    turn_until(loop, &returned, 4);
    cr_assert_geq(atomic_load(&syncs) - before, 1);
}

Test(store, a_full_queue_refuses_and_freeing_finishes_what_was_taken)
{
    jobs[0].waits = true;
    OK(store_submit(store, &jobs[0].job, &err));
    cr_assert_eq(sem_wait(&entered), 0); /* it is under way and waits no more in the queue */
    for (unsigned i = 1; i <= STORE_JOBS_MAX; i++)
        OK(store_submit(store, &jobs[i].job, &err));
    FAILS(store_submit(store, &jobs[STORE_JOBS_MAX + 1].job, &err), ERR_EXHAUSTED);
    cr_assert_eq(sem_post(&gate), 0);
    store_free(TAKE_PTR(store));
    cr_assert_eq(worked, STORE_JOBS_MAX + 1);
    cr_assert_eq(returned, STORE_JOBS_MAX + 1);
    cr_assert_eq(raw("SELECT count(*) FROM sandboxes"), STORE_JOBS_MAX + 1);
}

static int work_on_any_thread(struct store_job *base, struct store_tx *tx, struct err *error)
{
    (void)base;
    worked++;
    struct sandbox_record sandbox = { .id = "last" };
    return store_sandbox_put(tx, &sandbox, error);
}

Test(store, freeing_also_finishes_what_done_submits)
{
    jobs[1].job.work = work_on_any_thread;
    jobs[0].then = &jobs[1].job;
    OK(store_submit(store, &jobs[0].job, &err));
    store_free(store); /* done() uses it meanwhile */
    store = NULL;
    cr_assert_eq(returned, 2);
    cr_assert_eq(raw("SELECT count(*) FROM sandboxes WHERE id = 'last'"), 1);
}

static int put_and_fail(struct store_tx *tx, void *userdata, struct err *error)
{
    struct sandbox_record sandbox = { .id = "x" };
    cr_assert_eq(store_sandbox_put(tx, &sandbox, error), 0);
    return *(bool *)userdata ? err_set(error, ERR_INVALID, "words") : 0;
}

Test(store, without_a_loop_a_job_runs_at_once)
{
    store_free(store);
    store = open_store(NULL);
    bool fails = true;
    FAILS(run(store, put_and_fail, &fails), ERR_INVALID);
    cr_assert_str_eq(err.text, "words");
    cr_assert_eq(raw("SELECT count(*) FROM sandboxes"), 0);
    fails = false;
    OK(run(store, put_and_fail, &fails));
    cr_assert_eq(raw("SELECT count(*) FROM sandboxes"), 1);
    store_free(NULL);
}

/* A verb that was added to the table and not to the backend would be found by the first who calls
 * it. */
Test(store, a_backend_has_every_verb)
{
    const struct store_backend *backend = test_backend();
    _Static_assert(sizeof(*backend) % sizeof(void *) == 0, "it holds nothing but pointers");
    for (size_t i = 0; i < sizeof(*backend) / sizeof(void *); i++) {
        void *member = NULL;
        memcpy(&member, (const char *)backend + i * sizeof(member), sizeof(member));
        cr_assert_not_null(member, "verb %zu", i);
    }
    cr_assert_null(store_backend_find("none"));
}
