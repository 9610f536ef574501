/* The store under a full disk, a failing one, one that is held by somebody else, and a kill in the
 * middle of it all. pwrite(2) and fdatasync(2) are replaced in this binary, as SQLite calls them,
 * and usleep(3), with which SQLite would wait for somebody else. */
#include "store_fixture.h"

#include "common/audit_chain.h"

#include <fcntl.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static atomic_int write_error, sync_error;
static atomic_uint writes;

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    (void)atomic_fetch_add(&writes, 1);
    int number = atomic_load(&write_error);
    if (number == 0)
        return syscall(SYS_pwrite64, fd, data, size, offset);
    errno = number;
    return -1;
}

int fdatasync(int fd)
{
    int number = atomic_load(&sync_error);
    if (number == 0)
        return (int)syscall(SYS_fdatasync, fd);
    errno = number;
    return -1;
}

int usleep(useconds_t duration)
{
    (void)duration;
    return 0;
}

static struct loop *loop;
static struct store *store;
static unsigned returned;
static sem_t gate, entered;

static void set_up(void)
{
    make_directory();
    OK(loop_new(&loop, &err));
    store = open_store(loop);
    cr_assert_eq(sem_init(&gate, 0, 0), 0);
    cr_assert_eq(sem_init(&entered, 0, 0), 0);
    cr_assert_gt(atomic_load(&writes), 0, "the replaced calls are not the ones in use");
}

static void tear_down(void)
{
    store_free(store);
    loop_free(loop);
    remove_directory();
}

/* cppcheck-suppress unknownMacro */
TestSuite(store_faults, .init = set_up, .fini = tear_down, .timeout = 120);

static void done(struct store_job *job)
{
    (void)job;
    returned++;
}

static int hold(struct store_tx *tx, void *userdata, struct err *error)
{
    (void)tx;
    (void)userdata;
    (void)error;
    cr_assert_eq(sem_post(&entered), 0);
    cr_assert_eq(sem_wait(&gate), 0);
    return 0;
}

/* Runs these in one transaction, which the first, empty job of another one holds back. */
static void run_together(struct body_job *jobs, unsigned count)
{
    struct body_job first = { .job = { .work = run_body, .done = done }, .body = hold };
    returned = 0;
    OK(store_submit(store, &first.job, &err));
    cr_assert_eq(sem_wait(&entered), 0);
    for (unsigned i = 0; i < count; i++) {
        jobs[i].job.work = run_body;
        jobs[i].job.done = done;
        OK(store_submit(store, &jobs[i].job, &err));
    }
    cr_assert_eq(sem_post(&gate), 0);
    turn_until(loop, &returned, count + 1);
}

static void expect_results(const struct body_job *jobs, unsigned count, enum err_code code)
{
    for (unsigned i = 0; i < count; i++) {
        cr_assert_eq(jobs[i].job.result, code == ERR_NONE ? 0 : -1, "%u", i);
        cr_assert_eq(jobs[i].job.err.code, code, "%u: %s", i, jobs[i].job.err.text);
    }
}

static void expect_whole(unsigned rows)
{
    char sql[160];
    (void)snprintf(sql, sizeof(sql),
                   "SELECT (SELECT count(*) = %u AND coalesce(max(seq), 0) = %u FROM audit) AND"
                   " (SELECT number = %u FROM notes)",
                   rows, rows, rows);
    cr_assert_eq(raw(sql), 1, "not %u rows", rows);
}

Test(store_faults, a_disk_that_fills_up_fails_the_batch_and_the_next_one_works_again)
{
    struct body_job jobs[3] = { { .body = append_audit, .userdata = WORDS("a") },
                                { .body = append_audit, .userdata = WORDS("b") },
                                { .body = append_audit, .userdata = WORDS("c") } };
    run_together(jobs, 3);
    expect_results(jobs, 3, ERR_NONE);
    atomic_store(&write_error, ENOSPC);
    run_together(jobs, 3);
    atomic_store(&write_error, 0);
    expect_results(jobs, 3, ERR_EXHAUSTED);
    cr_assert(strstr(jobs[1].job.err.text, "is full"), "%s", jobs[1].job.err.text);
    cr_assert(strstr(jobs[1].job.err.text, directory));
    expect_whole(3);
    run_together(jobs, 3);
    expect_results(jobs, 3, ERR_NONE);
    expect_whole(6);
}

Test(store_faults, a_disk_that_fails_is_told_with_the_words_of_sqlite)
{
    struct body_job jobs[2] = { { .body = append_audit, .userdata = WORDS("a") },
                                { .body = append_audit, .userdata = WORDS("b") } };
    atomic_store(&write_error, EIO);
    run_together(jobs, 2);
    atomic_store(&write_error, 0);
    expect_results(jobs, 2, ERR_INTERNAL);
    cr_assert(strstr(jobs[0].job.err.text, "disk I/O error"), "%s", jobs[0].job.err.text);
    run_together(jobs, 2);
    expect_results(jobs, 2, ERR_NONE);
    expect_whole(2);
}

Test(store_faults, a_sync_that_fails_is_no_success)
{
    struct body_job job = { .job = { .durable = true },
                            .body = append_audit,
                            .userdata = WORDS("a") };
    atomic_store(&sync_error, EIO);
    run_together(&job, 1);
    atomic_store(&sync_error, 0);
    expect_results(&job, 1, ERR_INTERNAL);
    run_together(&job, 1);
    expect_results(&job, 1, ERR_NONE);
    expect_whole(1);
}

/* More than SQLite's cache holds, so that it has to write before the commit. */
static int write_much(struct store_tx *tx, void *userdata, struct err *error)
{
    const int *number = userdata;
    struct sandbox_record sandbox = { 0 };
    memset(sandbox.labels, 'x', sizeof(sandbox.labels) - 1);
    atomic_store(&write_error, *number);
    int r = 0;
    for (unsigned i = 0; r == 0 && i < 4000; i++) {
        (void)snprintf(sandbox.id, sizeof(sandbox.id), "s-%u", i);
        r = store_sandbox_put(tx, &sandbox, error);
    }
    atomic_store(&write_error, 0);
    return r;
}

/* The disk is well again when the job is over: what the others are told must be what the file
 * holds. */
Test(store_faults, a_disk_that_fills_up_inside_a_job_fails_what_it_undoes)
{
    int number = ENOSPC;
    struct body_job jobs[3] = { { .body = append_audit, .userdata = WORDS("a") },
                                { .body = write_much, .userdata = &number },
                                { .body = append_audit, .userdata = WORDS("c") } };
    run_together(jobs, 3);
    expect_results(jobs, 3, ERR_EXHAUSTED);
    cr_assert_null(strstr(jobs[1].job.err.text, "another change"), "%s", jobs[1].job.err.text);
    cr_assert(strstr(jobs[0].job.err.text, "undone together with another change"));
    cr_assert(strstr(jobs[2].job.err.text, "is full"), "%s", jobs[2].job.err.text);
    expect_whole(0);
    number = 0;
    run_together(jobs, 3);
    expect_results(jobs, 3, ERR_NONE);
    expect_whole(2);
    cr_assert_eq(raw("SELECT count(*) FROM sandboxes"), 4000);
}

/* The job does not tell, but the transaction has gone all the same. */
static int write_much_and_keep_quiet(struct store_tx *tx, void *userdata, struct err *error)
{
    (void)error;
    struct err unseen = { 0 };
    cr_assert_eq(write_much(tx, userdata, &unseen), -1);
    return 0;
}

Test(store_faults, a_job_that_hides_a_lost_transaction_is_found_out)
{
    int number = ENOSPC;
    struct body_job jobs[2] = { { .body = append_audit, .userdata = WORDS("a") },
                                { .body = write_much_and_keep_quiet, .userdata = &number } };
    run_together(jobs, 2);
    expect_results(jobs, 2, ERR_UNAVAILABLE);
    expect_whole(0);
    run_together(jobs, 1);
    expect_results(jobs, 1, ERR_NONE);
}

Test(store_faults, a_database_held_by_another_program_is_unavailable_until_it_is_free)
{
    sqlite3 *other = NULL;
    cr_assert_eq(sqlite3_open(db_path, &other), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    struct body_job job = { .job = { .work = run_body, .done = done },
                            .body = append_audit,
                            .userdata = WORDS("a") };
    OK(store_submit(store, &job.job, &err));
    turn_until(loop, &returned, 1);
    expect_results(&job, 1, ERR_UNAVAILABLE);
    cr_assert_eq(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    cr_assert_eq(sqlite3_close(other), SQLITE_OK);
    OK(store_submit(store, &job.job, &err));
    turn_until(loop, &returned, 2);
    expect_results(&job, 1, ERR_NONE);
}

/* A kill in the middle. */

#define KILL_ROUNDS 8u
#define KILL_JOBS   64u /* in flight */

struct counted {
    struct body_job base;
    uint64_t number;
    char detail[32];
    struct counted_run *run;
};

struct counted_run {
    struct store *store;
    int acknowledge;
    uint64_t submitted;
    struct counted jobs[KILL_JOBS];
};

static void submit_next(struct counted_run *run, struct counted *job)
{
    job->number = ++run->submitted;
    (void)snprintf(job->detail, sizeof(job->detail), "%llu", (unsigned long long)job->number);
    if (store_submit(run->store, &job->base.job, NULL) < 0)
        _exit(3);
}

static void acknowledged(struct store_job *base)
{
    struct counted *job = CONTAINER_OF(base, struct counted, base.job);
    if (base->result < 0 ||
        write(job->run->acknowledge, &job->number, sizeof(job->number)) != sizeof(job->number))
        _exit(4);
    submit_next(job->run, job);
}

static _Noreturn void write_until_killed(int acknowledge, uint64_t from)
{
    static struct counted_run run;
    struct loop *own = NULL;
    run.acknowledge = acknowledge;
    run.submitted = from;
    if (loop_new(&own, NULL) < 0 || store_open(directory, own, &run.store, NULL) < 0)
        _exit(1);
    for (unsigned i = 0; i < KILL_JOBS; i++) {
        struct counted *job = &run.jobs[i];
        job->run = &run;
        job->base = (struct body_job){
            .job = { .work = run_body, .done = acknowledged, .durable = i % 7 == 0 },
            .body = append_audit,
            .userdata = job->detail,
        };
        submit_next(&run, job);
    }
    (void)!loop_run(own, NULL);
    _exit(2);
}

/* Kills the writer after so many acknowledgements; the last one that it gave. */
static uint64_t write_and_kill(uint64_t from, unsigned after)
{
    int pipes[2];
    cr_assert_eq(pipe2(pipes, O_CLOEXEC), 0);
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        (void)close(pipes[0]);
        write_until_killed(pipes[1], from);
    }
    (void)close(pipes[1]);
    uint64_t number = 0, last = from;
    unsigned count = 0;
    while (read(pipes[0], &number, sizeof(number)) == (ssize_t)sizeof(number)) {
        cr_assert_eq(number, last + 1, "out of order");
        last = number;
        if (++count == after)
            cr_assert_eq(kill(child, SIGKILL), 0);
    }
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", status);
    (void)close(pipes[0]);
    return last;
}

/* Rows 1 to the end, each with its own number in it, chained; the number of them. */
static int verify(struct store_tx *tx, void *userdata, struct err *error)
{
    uint64_t *ret = userdata, head = 0;
    uint8_t hash[32] = { 0 }, head_hash[32];
    static struct audit_row rows[STORE_AUDIT_PAGE];
    uint64_t last = 0;
    for (unsigned count = 1; count > 0;) {
        if (store_audit_read(tx, last, rows, STORE_AUDIT_PAGE, &count, error) < 0)
            return -1;
        for (unsigned i = 0; i < count; i++) {
            const struct audit_row *row = &rows[i];
            cr_assert_eq(row->seq, ++last);
            cr_assert_eq(strtoull(row->detail, NULL, 10), last);
            const struct audit_chain_row chained = { row->seq,   row->time_ms, row->allowed,
                                                     row->actor, row->action,  row->target,
                                                     row->detail };
            audit_chain_hash(hash, &chained, hash);
            cr_assert_eq(memcmp(hash, row->hash, sizeof(hash)), 0, "row %u", (unsigned)last);
        }
    }
    if (store_audit_head(tx, &head, head_hash, error) < 0)
        return -1;
    cr_assert_eq(head, last);
    cr_assert_eq(memcmp(head_hash, hash, sizeof(hash)), 0);
    *ret = last;
    return 0;
}

Test(store_faults, a_kill_loses_nothing_that_was_acknowledged_and_tears_no_row)
{
    store_free(store);
    store = NULL;
    uint64_t rows = 0;
    for (unsigned round = 0; round < KILL_ROUNDS; round++) {
        uint64_t told = write_and_kill(rows, 1 + round * round * 37);
        struct store *reopened = open_store(NULL);
        cr_assert_not(store_audit_broken(reopened));
        OK(run(reopened, verify, &rows));
        store_free(reopened);
        cr_assert_geq(rows, told, "an acknowledged row is gone");
        cr_assert_leq(rows, told + KILL_JOBS, "rows that nobody submitted");
    }
    cr_assert_gt(rows, 1000);
}

/* As ext4 does it to itself after an error. */
Test(store_faults, a_filesystem_that_turns_read_only_fails_the_batch_until_it_is_mended)
{
    struct body_job jobs[2] = { { .body = append_audit, .userdata = WORDS("a") },
                                { .body = append_audit, .userdata = WORDS("b") } };
    run_together(jobs, 2);
    atomic_store(&write_error, EROFS);
    run_together(jobs, 2);
    atomic_store(&write_error, 0);
    for (size_t i = 0; i < ELEMENTS(jobs); i++) {
        cr_assert_eq(jobs[i].job.result, -1);
        cr_assert(jobs[i].job.unsaved);
        cr_assert(strstr(jobs[i].job.err.text, directory), "%s", jobs[i].job.err.text);
    }
    expect_whole(2);
    run_together(jobs, 2);
    expect_results(jobs, 2, ERR_NONE);
    expect_whole(4);
}
