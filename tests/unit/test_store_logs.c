/* The table of log lines: order, filters, the last ones, and what is forgotten. */
#include "store_fixture.h"

#define GOT(call) cr_assert_eq((call), 0, "%s", err.text)
#define ROOM      64u
#define COMMAND   "0b0c5a1e-7f0e-4a53-9c55-3d7a1f2e9b10"

static struct store *store;

static int put_sandboxes(struct store_tx *tx, void *userdata, struct err *error)
{
    (void)userdata;
    struct sandbox_record web = { .id = "web" }, other = { .id = "other" };
    return store_sandbox_put(tx, &web, error) < 0 ? -1 : store_sandbox_put(tx, &other, error);
}

static void set_up(void)
{
    make_directory();
    store = open_store(NULL);
    OK(run(store, put_sandboxes, NULL));
}

static void tear_down(void)
{
    store_free(store);
    remove_directory();
}

/* cppcheck-suppress unknownMacro */
TestSuite(store_logs, .init = set_up, .fini = tear_down, .timeout = 60);

/* Each test is one job: its body is the test. */
#define JOB_TEST(name)                                                                             \
    static int name##_job(struct store_tx *tx, void *userdata, struct err *error);                 \
    Test(store_logs, name)                                                                         \
    {                                                                                              \
        OK(run(store, name##_job, NULL));                                                          \
    }                                                                                              \
    static int name##_job(struct store_tx *tx, __attribute__((unused)) void *userdata,             \
                          __attribute__((unused)) struct err *error)

static void put(struct store_tx *tx, const char *sandbox, int64_t time_us, const char *command)
{
    struct log_record record = { .time_us = time_us, .level = 2, .origin = "agent" };
    (void)snprintf(record.sandbox_id, sizeof(record.sandbox_id), "%s", sandbox);
    (void)snprintf(record.command_id, sizeof(record.command_id), "%s", command);
    (void)snprintf(record.message, sizeof(record.message), "at %d", (int)time_us);
    (void)snprintf(record.fields, sizeof(record.fields), "{}");
    GOT(store_log_put(tx, &record, &err));
}

static struct log_record rows[ROOM];

static unsigned list(struct store_tx *tx, const struct log_query *query, unsigned max)
{
    unsigned count = 0;
    GOT(store_log_list(tx, query, rows, max, &count, &err));
    return count;
}

JOB_TEST(a_line_comes_back_as_it_was)
{
    struct log_record record = { .time_us = INT64_MIN, .level = 3 };
    memset(record.origin, 'o', sizeof(record.origin) - 1);
    (void)snprintf(record.sandbox_id, sizeof(record.sandbox_id), "web");
    (void)snprintf(record.command_id, sizeof(record.command_id), COMMAND);
    memset(record.message, '\'', sizeof(record.message) - 1);
    memset(record.fields, '"', sizeof(record.fields) - 1);
    GOT(store_log_put(tx, &record, &err));
    cr_assert_eq(list(tx, &(struct log_query){ .sandbox_id = "web", .since_us = INT64_MIN }, ROOM),
                 1u);
    cr_expect_eq(rows[0].time_us, INT64_MIN);
    cr_expect_eq(rows[0].level, 3);
    cr_expect_gt(rows[0].number, 0u);
    cr_expect_str_eq(rows[0].origin, record.origin);
    cr_expect_str_eq(rows[0].sandbox_id, "web");
    cr_expect_str_eq(rows[0].command_id, COMMAND);
    cr_expect_str_eq(rows[0].message, record.message);
    cr_expect_str_eq(rows[0].fields, record.fields);
    return 0;
}

JOB_TEST(a_sandbox_that_is_not_there_has_no_log)
{
    struct log_record record = { .sandbox_id = "gone", .fields = "{}" };
    FAILS(store_log_put(tx, &record, &err), ERR_NOT_FOUND);
    return 0;
}

JOB_TEST(lines_are_listed_by_sandbox_time_command_and_number)
{
    put(tx, "web", 30, "");
    put(tx, "other", 31, "");
    put(tx, "web", 10, COMMAND); /* a clock that went back */
    put(tx, "web", 20, "");
    put(tx, "web", 40, COMMAND);

    cr_assert_eq(list(tx, &(struct log_query){ .sandbox_id = "web" }, ROOM), 4u);
    static const int64_t order[] = { 30, 10, 20, 40 };
    for (unsigned i = 0; i < ELEMENTS(order); i++)
        cr_expect_eq(rows[i].time_us, order[i]);
    uint64_t second = rows[1].number;

    cr_assert_eq(list(tx, &(struct log_query){ .sandbox_id = "web", .since_us = 30 }, ROOM), 2u);
    cr_expect_eq(rows[0].time_us, 30);
    cr_expect_eq(rows[1].time_us, 40);
    cr_assert_eq(list(tx, &(struct log_query){ .sandbox_id = "web", .command_id = COMMAND }, ROOM),
                 2u);
    cr_assert_eq(list(tx, &(struct log_query){ .sandbox_id = "web", .after = second }, ROOM), 2u);
    cr_expect_eq(rows[0].time_us, 20);
    cr_assert_eq(list(tx, &(struct log_query){ .sandbox_id = "web", .after = UINT64_MAX }, ROOM),
                 0u);
    cr_assert_eq(list(tx, &(struct log_query){ .sandbox_id = "none" }, ROOM), 0u);
    cr_assert_eq(list(tx, &(struct log_query){ .sandbox_id = "' OR 1=1 --" }, ROOM), 0u);
    return 0;
}

JOB_TEST(the_last_ones_are_counted_from_the_end_and_read_from_their_first)
{
    for (int i = 1; i <= 10; i++)
        put(tx, "web", i, i % 2 ? COMMAND : "");
    struct log_query query = { .sandbox_id = "web", .last = 4 };
    cr_assert_eq(list(tx, &query, 3), 3u);
    cr_expect_eq(rows[0].time_us, 7);
    query.after = rows[2].number;
    query.last = 0;
    cr_assert_eq(list(tx, &query, 3), 1u);
    cr_expect_eq(rows[0].time_us, 10);
    query = (struct log_query){ .sandbox_id = "web", .last = 2, .command_id = COMMAND };
    cr_assert_eq(list(tx, &query, ROOM), 2u);
    cr_expect_eq(rows[0].time_us, 7);
    cr_expect_eq(rows[1].time_us, 9);
    query.last = UINT32_MAX;
    cr_assert_eq(list(tx, &query, ROOM), 5u);
    return 0;
}

JOB_TEST(a_trim_keeps_the_newest_of_one_sandbox_and_touches_no_other)
{
    for (int i = 1; i <= 20; i++) {
        put(tx, "web", 100 - i, "");
        put(tx, "other", i, "");
    }
    GOT(store_log_trim(tx, "web", 20, &err));
    cr_expect_eq(list(tx, &(struct log_query){ .sandbox_id = "web" }, ROOM), 20u);
    GOT(store_log_trim(tx, "web", 5, &err));
    cr_assert_eq(list(tx, &(struct log_query){ .sandbox_id = "web" }, ROOM), 5u);
    cr_expect_eq(rows[4].time_us, 80, "the newest by number is the last that was put");
    cr_expect_eq(list(tx, &(struct log_query){ .sandbox_id = "other" }, ROOM), 20u);
    return 0;
}

JOB_TEST(old_lines_go_a_few_at_a_time_and_the_newest_stays)
{
    unsigned forgotten = 0;
    for (int i = 1; i <= 10; i++)
        put(tx, i % 2 ? "web" : "other", i, "");
    GOT(store_log_expire(tx, 9, 3, &forgotten, &err));
    cr_expect_eq(forgotten, 3u);
    GOT(store_log_expire(tx, 9, 100, &forgotten, &err));
    cr_expect_eq(forgotten, 5u);
    GOT(store_log_expire(tx, INT64_MAX, 100, &forgotten, &err));
    cr_expect_eq(forgotten, 1u);
    cr_assert_eq(list(tx, &(struct log_query){ .sandbox_id = "other" }, ROOM), 1u);
    cr_expect_eq(rows[0].time_us, 10);
    put(tx, "web", 11, "");
    cr_assert_eq(list(tx, &(struct log_query){ .sandbox_id = "web" }, ROOM), 1u);
    cr_expect_eq(rows[0].number, 11u, "a number was given twice");
    return 0;
}

Test(store_logs, go_with_their_sandbox)
{
    cr_assert_eq(raw("INSERT INTO logs VALUES(1, 'web', 1, 1, 'agent', '', 'm', '{}')"), -1);
    cr_assert_eq(raw("SELECT count(*) FROM logs"), 1);
    cr_assert_eq(raw("PRAGMA foreign_keys = ON; DELETE FROM sandboxes WHERE id = 'web'"), -1);
    cr_expect_eq(raw("SELECT count(*) FROM logs"), 0);
}
