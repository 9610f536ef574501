/* For the store's tests: a directory, jobs made of a function and its argument, and a second, raw
 * connection to the same file, as an administrator or an attacker would have one. */
#pragma once

#include "common/clock.h"
#include "orchestrator/store.h"

#include <criterion/criterion.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#define OK(call)    cr_assert_eq((call), 0, "%s", err.text)
#define DEADLINE_US 30000000u /* only so that a hang ends */
#define FAILS(call, as)                                                                            \
    do {                                                                                           \
        cr_assert_eq((call), -1);                                                                  \
        cr_assert_eq(err.code, (as), "%s", err.text);                                              \
    } while (0)

/* A text for a job, which takes what is not const. */
#define WORDS(text) ((char[]){ text })

static char directory[] = "/tmp/test-store-XXXXXX";
static char db_path[64];
static struct err err;

static inline void make_directory(void)
{
    cr_assert(mkdtemp(directory));
    (void)snprintf(db_path, sizeof(db_path), "%s/orchestrator.db", directory);
}

static inline void remove_directory(void)
{
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf %s", directory);
    cr_assert_eq(system(command), 0);
}

typedef int (*body_fn)(struct store_tx *tx, void *userdata, struct err *err);

struct body_job {
    struct store_job job;
    body_fn body;
    void *userdata;
};

static inline int run_body(struct store_job *job, struct store_tx *tx, struct err *error)
{
    struct body_job *base = CONTAINER_OF(job, struct body_job, job);
    return base->body(tx, base->userdata, error);
}

/* One job on a store without a loop. */
static inline int run(struct store *store, body_fn body, void *userdata)
{
    struct body_job job = { .job = { .work = run_body }, .body = body, .userdata = userdata };
    return store_run(store, &job.job, &err);
}

/* The backend that the cases run on: SANDSTORM_TEST_STORE names another, and
 * SANDSTORM_TEST_STORE_AT says where that one is. What is about SQLite's own files
 * (test_store_open, test_store_faults, test_store_repair, test_backup) has no meaning for others;
 * raw() is the other thing that would have to know them. */
static inline const struct store_backend *test_backend(void)
{
    const char *name = getenv("SANDSTORM_TEST_STORE");
    const struct store_backend *backend = store_backend_find(name ? name : "sqlite");
    cr_assert_not_null(backend, "there is no backend %s", name);
    return backend;
}

static inline struct store *open_store(struct loop *loop)
{
    struct store *store = NULL;
    const char *at = getenv("SANDSTORM_TEST_STORE_AT");
    cr_assert_eq(store_open_on(test_backend(), at ? at : directory, loop, &store, &err), 0, "%s",
                 err.text);
    return store;
}

static inline void turn_until(struct loop *loop, const unsigned *count, unsigned wanted)
{
    uint64_t deadline = monotonic_us() + DEADLINE_US;
    while (*count < wanted) {
        cr_assert_lt(monotonic_us(), deadline, "%u of %u", *count, wanted);
        OK(loop_turn(loop, 100000, &err));
    }
}

/* One statement, or several without rows, on a connection of its own; the number in the first row's
 * first column, or -1. */
static inline int64_t raw(const char *sql)
{
    sqlite3 *db = NULL;
    cr_assert_eq(sqlite3_open(db_path, &db), SQLITE_OK);
    int64_t number = -1;
    for (const char *rest = sql; *rest;) {
        sqlite3_stmt *statement = NULL;
        cr_assert_eq(sqlite3_prepare_v2(db, rest, -1, &statement, &rest), SQLITE_OK, "%s: %s", sql,
                     sqlite3_errmsg(db));
        int r = sqlite3_step(statement);
        cr_assert(r == SQLITE_ROW || r == SQLITE_DONE, "%s: %s", sql, sqlite3_errmsg(db));
        if (r == SQLITE_ROW && number < 0)
            number = sqlite3_column_int64(statement, 0);
        cr_assert_eq(sqlite3_finalize(statement), SQLITE_OK);
    }
    cr_assert_eq(sqlite3_close(db), SQLITE_OK);
    return number;
}

static inline int append_audit(struct store_tx *tx, void *detail, struct err *error)
{
    const struct audit_entry entry = { "client/admin", "exec", "web-1", true, detail };
    return store_audit_append(tx, &entry, error);
}
