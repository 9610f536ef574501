/* A thread for what blocks: DNS, TLS probes, disks. Jobs run one after another; each comes back to
 * the loop that gave it. */
#pragma once

#include "common/loop.h"

#define WORKER_JOBS_MAX 256

struct worker;

struct worker_job {
    void (*work)(struct worker_job *job); /* on the worker's thread; touches the job alone */
    void (*done)(struct worker_job *job); /* on the loop's thread */
    struct loop_post post;                /* the worker's */
    struct worker_job *next;              /* the worker's */
};

int worker_new(struct loop *loop, const char *name, struct worker **ret, struct err *err) must_use;
/* ERR_EXHAUSTED when WORKER_JOBS_MAX are waiting. */
int worker_submit(struct worker *worker, struct worker_job *job, struct err *err) must_use;
/* Finishes the job under way, runs done() for every job it was given, and joins the thread. */
void worker_free(struct worker *worker);
/* The same, but gives the jobs only this long: name servers that do not answer hold a thread for
 * minutes, and nothing can call it back. False when it still works then: nothing is freed, nothing
 * comes back any more, and the caller must keep all that the jobs and the worker may touch until
 * the process ends. */
bool worker_free_within(struct worker *worker, uint64_t timeout_us) must_use;
