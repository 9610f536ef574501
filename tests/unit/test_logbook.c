/* The fleet's log on a real store: what an agent's lines become, what it cannot claim, batches,
 * limits, holes and retention. */
#include "orchestrator/logbook.h"
#include "orchestrator/orchestrator-internal.h"
#include "store_fixture.h"
#include "tests/unit/log_capture.h"

#include <jansson.h>

#define COMMAND "0b0c5a1e-7f0e-4a53-9c55-3d7a1f2e9b10"
#define ROOM    4096u

static struct orchestrator orchestrator;
static struct sandbox *web;
static struct log_record *rows;
static unsigned row_count;

struct done_job {
    struct store_job job;
    const struct sandbox_record *put; /* or the rows of `list` */
    const char *list;
    unsigned done;
};

static int work(struct store_job *job, struct store_tx *tx, struct err *error)
{
    const struct done_job *mine = CONTAINER_OF(job, struct done_job, job);
    if (mine->put)
        return store_sandbox_put(tx, mine->put, error);
    struct log_query query = { 0 };
    (void)snprintf(query.sandbox_id, sizeof(query.sandbox_id), "%s", mine->list);
    return store_log_list(tx, &query, rows, ROOM, &row_count, error);
}

static void finished(struct store_job *job)
{
    CONTAINER_OF(job, struct done_job, job)->done++;
}

static void run_job(struct done_job *mine)
{
    mine->job.work = work;
    mine->job.done = finished;
    OK(store_submit(orchestrator.store, &mine->job, &err));
    turn_until(orchestrator.loop, &mine->done, 1);
    cr_assert_eq(mine->job.result, 0, "%s", mine->job.err.text);
}

static struct sandbox *add_sandbox(const char *id)
{
    struct sandbox *sandbox;
    struct sandbox_record record = { .labels = "" };
    (void)snprintf(record.id, sizeof(record.id), "%s", id);
    OK(registry_set(orchestrator.registry, &record, &sandbox, &err));
    run_job(&(struct done_job){ .put = &record });
    return sandbox;
}

static void set_up(void)
{
    make_directory();
    rows = calloc(ROOM, sizeof(*rows));
    OK(loop_new(&orchestrator.loop, &err));
    orchestrator.store = open_store(orchestrator.loop);
    OK(registry_new(&orchestrator.registry, &err));
    OK(logbook_new(&orchestrator, &orchestrator.logbook, &err));
    web = add_sandbox("web");
    (void)add_sandbox("other");
    log_setup("prog", LOG_LEVEL_ERROR, LOG_FORMAT_JSON);
}

static void tear_down(void)
{
    logbook_flush(orchestrator.logbook);
    store_free(TAKE_PTR(orchestrator.store));
    logbook_free(orchestrator.logbook);
    registry_free(orchestrator.registry);
    loop_free(orchestrator.loop);
    free(rows);
    remove_directory();
}

/* cppcheck-suppress unknownMacro */
TestSuite(logbook, .init = set_up, .fini = tear_down, .timeout = 60);

static struct watch watch;
static unsigned notified;

static void on_new(struct watch *unused)
{
    (void)unused;
    notified += logbook_wrote(orchestrator.logbook, "web");
}

/* Until what was said so far is in the store. */
static void list_after_flush(const char *sandbox)
{
    logbook_flush(orchestrator.logbook);
    run_job(&(struct done_job){ .list = sandbox });
}

static void forward(const char *message, const char *origin, const char *const (*fields)[2],
                    size_t count)
{
    Sandstorm__V1__LogField items[64];
    Sandstorm__V1__LogField *pointers[64];
    Sandstorm__V1__LogLine line = SANDSTORM__V1__LOG_LINE__INIT;
    Sandstorm__V1__LogLine *lines[] = { &line };
    Sandstorm__V1__Logs logs = SANDSTORM__V1__LOGS__INIT;
    for (size_t i = 0; i < count; i++) {
        sandstorm__v1__log_field__init(&items[i]);
        items[i].name = (char *)fields[i][0];
        items[i].value = (char *)fields[i][1];
        pointers[i] = &items[i];
    }
    line.time_unix_us = wall_us();
    line.level = SANDSTORM__V1__LOG_LEVEL__LOG_LEVEL_INFO;
    line.message = (char *)message;
    line.origin = (char *)origin;
    line.n_fields = count;
    line.fields = pointers;
    logs.n_lines = 1;
    logs.lines = lines;
    logbook_take(&orchestrator, web, &logs);
}

static const char *field(const json_t *object, const char *name)
{
    const char *value = json_string_value(json_object_get(object, name));
    return value ? value : "(none)";
}

Test(logbook, an_agent_writes_under_its_own_name_only)
{
    static const char *const forged[][2] = {
        { "sandbox", "other" },
        { "command", "not-an-id" },
        { "command", COMMAND },
        { "event", "command_ended" },
        { "message_id", "e7a685f53cd2373a761b0f05a55be9fc" },
        { "error", "forged" },
        { "origin", "orchestrator" },
        { "level", "error" },
        { "time", "1970" },
        { "BAD NAME=x\n", "v" },
        { "", "v" },
        { "pid", "12\x1b[2J\n" },
    };
    int fd = capture_stderr();
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_JSON);
    forward("command ended", "orchestrator", forged, ELEMENTS(forged));
    json_t *line = json_loads(next_line(fd), JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(line);
    cr_expect_str_eq(field(line, "sandbox"), "web");
    cr_expect_str_eq(field(line, "origin"), "agent");
    cr_expect_str_eq(field(line, "command"), COMMAND);
    cr_expect_str_eq(field(line, "level"), "info");
    cr_expect_str_eq(field(line, "program"), "prog");
    cr_expect_str_eq(field(line, "agent_sandbox"), "other");
    cr_expect_str_eq(field(line, "agent_event"), "command_ended");
    cr_expect_str_eq(field(line, "agent_error"), "forged");
    cr_expect_null(json_object_get(line, "event"));
    cr_expect_null(json_object_get(line, "message_id"));
    cr_expect_null(json_object_get(line, "error"));
    cr_expect_eq(json_object_size(line), 4u + 3u + 9u, "a name that is none came through");
    json_decref(line);
    expect_silence(fd);

    list_after_flush("web");
    cr_assert_eq(row_count, 1u);
    cr_expect_str_eq(rows[0].origin, "agent");
    cr_expect_str_eq(rows[0].command_id, COMMAND);
    cr_expect_str_eq(rows[0].message, "command ended");
    json_t *stored = json_loads(rows[0].fields, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(stored);
    cr_expect_str_eq(field(stored, "agent_sandbox"), "other");
    cr_expect_null(json_object_get(stored, "event"));
    json_decref(stored);
    list_after_flush("other");
    cr_expect_eq(row_count, 0u);
}

Test(logbook, the_time_of_a_line_is_corrected_and_never_absurd)
{
    int64_t now = wall_us();
    struct {
        int64_t said_us, skew_ms, least_us, most_us;
    } const cases[] = {
        { now - 5000000, 0, now - 5000000, now - 5000000 },
        { now - 5000000 + 3600000000, 3600000, now - 5000000, now - 5000000 },
        { now + 3600000000, 0, now, INT64_MAX },
        { INT64_MIN, INT64_MAX, now, INT64_MAX },
        { 0, 0, now - LOGBOOK_AGE_US, now - LOGBOOK_AGE_US + 60000000 },
        { INT64_MAX, INT64_MIN, now, INT64_MAX },
    };
    for (size_t i = 0; i < ELEMENTS(cases); i++) {
        Sandstorm__V1__LogLine line = SANDSTORM__V1__LOG_LINE__INIT;
        Sandstorm__V1__LogLine *lines[] = { &line };
        Sandstorm__V1__Logs logs = SANDSTORM__V1__LOGS__INIT;
        line.time_unix_us = cases[i].said_us;
        line.level = (Sandstorm__V1__LogLevel)99;
        logs.n_lines = 1;
        logs.lines = lines;
        web->clock_skew_ms = cases[i].skew_ms;
        logbook_take(&orchestrator, web, &logs);
    }
    list_after_flush("web");
    cr_assert_eq(row_count, ELEMENTS(cases));
    for (size_t i = 0; i < ELEMENTS(cases); i++) {
        cr_expect_geq(rows[i].time_us, cases[i].least_us, "case %zu", i);
        cr_expect_leq(rows[i].time_us, MIN(cases[i].most_us, wall_us()), "case %zu", i);
        cr_expect_eq(rows[i].level, LOG_LEVEL_INFO);
    }
}

Test(logbook, more_lines_than_an_agent_may_send_are_counted)
{
    for (unsigned i = 0; i < 10000; i++)
        forward("flood", "runner", NULL, 0);
    cr_expect_eq(web->log.limited, 10000u - LOGBOOK_LINES);
    list_after_flush("web");
    list_after_flush("web"); /* the rest, which gathered while the first was written */
    cr_expect_eq(row_count, LOGBOOK_LINES);
    cr_expect_str_eq(rows[0].origin, "runner");
    /* The marker comes by itself, when the period is over. */
    uint64_t deadline = monotonic_us() + DEADLINE_US;
    while (web->log.limited > 0) {
        cr_assert_lt(monotonic_us(), deadline);
        OK(loop_turn(orchestrator.loop, 1000000, &err));
    }
    list_after_flush("web");
    cr_assert_eq(row_count, LOGBOOK_LINES + 1);
    cr_expect_str_eq(rows[LOGBOOK_LINES].message, event_log_left_out.message);
    cr_expect_not_null(strstr(rows[LOGBOOK_LINES].fields, "\"dropped\":\"9488\""));
}

Test(logbook, what_the_agent_left_out_is_a_line)
{
    Sandstorm__V1__Logs logs = SANDSTORM__V1__LOGS__INIT;
    logs.dropped = 7;
    logbook_take(&orchestrator, web, &logs);
    list_after_flush("web");
    cr_assert_eq(row_count, 1u);
    cr_expect_str_eq(rows[0].message, event_log_left_out.message);
    cr_expect_not_null(strstr(rows[0].fields, "\"dropped\":\"7\""));
}

Test(logbook, an_event_is_a_line_with_its_kind_and_a_row)
{
    int fd = capture_stderr();
    log_setup("prog", LOG_LEVEL_INFO, LOG_FORMAT_TEXT);
    LOGBOOK_EVENT(&orchestrator, LOG_LEVEL_INFO, &event_command_ended, "web", COMMAND,
                  LF_INT("code", 3), LF_UINT("bytes", 10));
    cr_expect_str_eq(next_event(fd), "command ended sandbox=web command=" COMMAND
                                     " event=command_ended code=3 bytes=10");
    LOGBOOK_EVENT(&orchestrator, LOG_LEVEL_INFO, &event_sandbox_online, "removed", NULL);
    cr_expect_str_eq(next_event(fd), "sandbox online sandbox=removed event=sandbox_online");
    list_after_flush("web");
    cr_assert_eq(row_count, 1u);
    cr_expect_str_eq(rows[0].origin, "orchestrator");
    cr_expect_str_eq(rows[0].command_id, COMMAND);
    cr_expect_str_eq(rows[0].fields,
                     "{\"event\":\"command_ended\",\"code\":\"3\",\"bytes\":\"10\"}");
}

Test(logbook, fields_that_do_not_fit_are_left_out_and_the_rest_stays)
{
    char value[LOG_VALUE_MAX] = "";
    long_value(value, sizeof(value), "\x01"); /* six bytes each in JSON */
    static const char *const names[] = { "a", "b", "c", "d" };
    struct log_field fields[LOGBOOK_FIELDS_MAX];
    for (unsigned i = 0; i < LOGBOOK_FIELDS_MAX; i++)
        fields[i] = LF_STR(names[i % ELEMENTS(names)], value);
    fields[LOGBOOK_FIELDS_MAX - 1] = LF_STR("small", "fits");
    logbook_event(&orchestrator, LOG_LEVEL_INFO, &event_sandbox_note, "web", NULL, fields,
                  LOGBOOK_FIELDS_MAX);
    list_after_flush("web");
    cr_assert_eq(row_count, 1u);
    json_t *stored = json_loads(rows[0].fields, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(stored, "%s", rows[0].fields);
    cr_expect_str_eq(field(stored, "small"), "fits");
    json_decref(stored);
}

Test(logbook, what_gathers_is_written_by_itself_and_watchers_hear_of_their_own)
{
    watch.fn = on_new;
    watch_start(logbook_watches(orchestrator.logbook), &watch);
    for (unsigned i = 0; i < 3; i++)
        LOGBOOK_EVENT(&orchestrator, LOG_LEVEL_INFO, &event_sandbox_online, "other", NULL);
    list_after_flush("other");
    cr_expect_eq(row_count, 3u);
    cr_expect_eq(notified, 0u);
    for (unsigned i = 0; i < 10; i++)
        LOGBOOK_EVENT(&orchestrator, LOG_LEVEL_INFO, &event_sandbox_online, "web", NULL);
    turn_until(orchestrator.loop, &notified, 1);
    run_job(&(struct done_job){ .list = "web" });
    cr_expect_eq(row_count, 10u);
    cr_expect_eq(notified, 1u, "ten lines were more than one job");
    watch_stop(&watch);
}

Test(logbook, only_the_newest_lines_of_a_sandbox_are_kept)
{
    for (unsigned i = 0; i < LOGBOOK_ROWS_MAX + 3 * LOGBOOK_TRIM_EVERY; i++) {
        LOGBOOK_EVENT(&orchestrator, LOG_LEVEL_INFO, &event_sandbox_note, "web", NULL,
                      LF_UINT("i", i));
        if (i % LOGBOOK_BATCH == 0)
            list_after_flush("web");
    }
    list_after_flush("web");
    list_after_flush("web");
    cr_expect_geq(row_count, LOGBOOK_ROWS_MAX);
    cr_expect_leq(row_count, LOGBOOK_ROWS_MAX + LOGBOOK_TRIM_EVERY);
    cr_expect_not_null(strstr(rows[row_count - 1].fields, "\"i\":\"2599\""), "%s",
                       rows[row_count - 1].fields);
}

Test(logbook, what_the_store_does_not_take_is_counted_and_said)
{
    cr_assert_eq(raw("CREATE TRIGGER no_logs BEFORE INSERT ON logs BEGIN SELECT RAISE(ABORT, "
                     "'full'); END"),
                 -1);
    for (unsigned i = 0; i < 5; i++)
        LOGBOOK_EVENT(&orchestrator, LOG_LEVEL_INFO, &event_sandbox_online, "web", NULL);
    list_after_flush("web");
    cr_expect_eq(row_count, 0u);
    cr_expect_eq(web->log.lost, 5u);
    /* A marker that is lost too stands for those it named. */
    LOGBOOK_EVENT(&orchestrator, LOG_LEVEL_INFO, &event_sandbox_online, "web", NULL);
    list_after_flush("web");
    cr_expect_eq(web->log.lost, 6u);
    cr_assert_eq(raw("DROP TRIGGER no_logs"), -1);
    LOGBOOK_EVENT(&orchestrator, LOG_LEVEL_INFO, &event_sandbox_online, "web", NULL);
    list_after_flush("web");
    cr_assert_eq(row_count, 2u);
    cr_expect_not_null(strstr(rows[0].fields, "\"dropped\":\"6\""), "%s", rows[0].fields);
    cr_expect_str_eq(rows[1].message, event_sandbox_online.message);
}

Test(logbook, a_store_that_is_far_behind_costs_lines_and_not_memory)
{
    for (unsigned i = 0; i < 5 * LOGBOOK_WAITING_MAX; i++)
        LOGBOOK_EVENT(&orchestrator, LOG_LEVEL_INFO, &event_sandbox_online, "web", NULL);
    uint64_t lost = web->log.lost;
    cr_expect_gt(lost, 3u * LOGBOOK_WAITING_MAX);
    for (unsigned i = 0; i < 4; i++)
        list_after_flush("web");
    cr_expect_eq(row_count + lost, 5 * LOGBOOK_WAITING_MAX);
}
