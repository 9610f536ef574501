/* What is known of commands after the orchestrator was killed, the runner was killed, or nobody
 * looked: all of them, with their true ends, and none of them ran twice. */
#include "common/clock.h"
#include "tests/integration/history_fixture.h"
#include "tests/integration/identity_fixture.h"

#define RUNNING SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_RUNNING
#define ENDED   SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_ENDED
#define UNKNOWN SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_UNKNOWN

TestSuite(history, .init = fixture_start, .fini = fixture_stop);
TestSuite(history_list, .init = fixture_start_empty, .fini = fixture_stop);

enum { HELD = 10, ENDING = 5 };

Test(history, a_killed_orchestrator_knows_all_commands_their_ends_and_runs_none_twice)
{
    struct held held[HELD];
    struct fixture_client clients[HELD];
    struct sandbox_processes *box = fixture_box();
    for (unsigned i = 0; i < HELD; i++) {
        held_init(&held[i], i);
        clients[i] = held_start(&held[i]);
    }
    MUST(service_kill(fixture()->orchestrator, err));
    for (unsigned i = 0; i < ENDING; i++)
        held_open(&held[i]);
    for (unsigned i = 0; i < ENDING; i++) {
        char line[96];
        (void)snprintf(line, sizeof(line), "command ended command=%.36s", held[i].id);
        MUST(service_wait_log(box->runner, line, PROC_DEADLINE_US, err));
    }
    for (unsigned i = 0; i < HELD; i++)
        fixture_client_done(&clients[i]);
    service_forget_status(box->link);
    MUST(cluster_start_orchestrator(fixture(), err));
    for (unsigned i = 0; i < HELD; i++) {
        CLEANUP_WIRE ProtobufCMessage *page = NULL;
        const Sandstorm__V1__Command *command = history_get(held[i].id, &page);
        cr_assert_not_null(command, "command %u is not in the history", i);
        cr_assert_str_eq(command->ordered_by, "client/admin");
        cr_assert_str_eq(command->sandbox_id, BOX);
        cr_assert(command->state == RUNNING || command->state == ENDED);
        cr_assert_gt(command->pid, 1);
    }
    MUST(sandbox_wait_online(box, err));
    for (unsigned i = 0; i < ENDING; i++)
        history_expect_exit(held[i].id, i);
    for (unsigned i = ENDING; i < HELD; i++) {
        CLEANUP_WIRE ProtobufCMessage *page = NULL;
        (void)history_wait(held[i].id, RUNNING, &page);
        held_open(&held[i]);
    }
    for (unsigned i = ENDING; i < HELD; i++)
        history_expect_exit(held[i].id, i);
    /* The same again is the same command, with what the runner still has of it. */
    for (unsigned i = 0; i < HELD; i++) {
        CLEANUP_RESULT struct proc_result again =
            CLI("exec", BOX, "--id", held[i].id, "-n", "-c", held[i].script);
        cr_assert_eq(again.status, (int)i, "%s", again.err);
        cr_assert_str_eq(again.out, "said\n", "%s", again.err);
        cr_assert_eq(fixture_count_lines(held[i].count), 1u, "command %u ran again", i);
    }
}

Test(history, an_id_is_another_commands_for_ever)
{
    struct held held;
    held_init(&held, 3);
    CLEANUP_CLIENT struct fixture_client client = held_start(&held);
    held_open(&held);
    cr_assert_eq(fixture_client_wait(&client), 3);
    history_expect_exit(held.id, 3);
    MUST(service_kill(fixture_box()->runner, err));
    MUST(sandbox_start_runner(fixture_box(), err));
    history_restart();
    CLEANUP_RESULT struct proc_result other = CLI("exec", BOX, "--id", held.id, "-n", "--", "true");
    cr_assert_neq(other.status, 0);
    fixture_assert_contains(other.err, "taken by a different command");
    cr_assert_eq(AUDIT_COUNT("\"command.start\"", "taken by a different command"), 1u);
    /* The runner that ran it is gone; what it said and how it ended is not, nor is it run again. */
    CLEANUP_RESULT struct proc_result same =
        CLI("exec", BOX, "--id", held.id, "-n", "-c", held.script);
    cr_assert_eq(same.status, 3, "%s", same.err);
    cr_assert_str_eq(same.out, "said\n");
    cr_assert_eq(fixture_count_lines(held.count), 1u);
}

Test(history, a_command_that_nobody_follows_ends_in_the_history_too)
{
    struct held held;
    held_init(&held, 4);
    struct fixture_client client = held_start(&held);
    fixture_client_done(&client);
    held_open(&held);
    history_expect_exit(held.id, 4);
    CLEANUP_RESULT struct proc_result attached =
        CLI("exec", BOX, "--id", held.id, "-n", "-c", held.script);
    cr_assert_eq(attached.status, 4, "%s", attached.err);
    cr_assert_str_eq(attached.out, "said\n");
}

Test(history, a_killed_runner_loses_its_commands_and_the_history_says_so)
{
    struct held held[2];
    struct sandbox_processes *box = fixture_box();
    for (unsigned i = 0; i < 2; i++) {
        held_init(&held[i], i);
        struct fixture_client client = held_start(&held[i]);
        fixture_client_done(&client);
    }
    MUST(service_kill(box->runner, err));
    MUST(sandbox_start_runner(box, err));
    history_expect_lost(held[0].id, SANDSTORM__V1__LOST_REASON__LOST_REASON_RUNNER_RESTARTED);
    history_expect_lost(held[1].id, SANDSTORM__V1__LOST_REASON__LOST_REASON_RUNNER_RESTARTED);
    CLEANUP_RESULT struct proc_result again =
        CLI("exec", BOX, "--id", held[0].id, "-n", "-c", held[0].script);
    cr_assert_eq(again.status, 255, "%s", again.err);
    fixture_assert_contains(again.err, "the runner was restarted");
    cr_assert_eq(fixture_count_lines(held[0].count), 1u);
}

Test(history, so_it_does_when_the_orchestrator_was_away_meanwhile_and_a_client_waits)
{
    struct held held;
    struct sandbox_processes *box = fixture_box();
    held_init(&held, 6);
    struct fixture_client client = held_start(&held);
    {
        CLEANUP_WIRE ProtobufCMessage *page = NULL;
        (void)history_wait(held.id, RUNNING, &page);
    }
    MUST(service_kill(fixture()->orchestrator, err));
    fixture_client_done(&client);
    MUST(service_kill(box->runner, err));
    MUST(sandbox_start_runner(box, err));
    service_forget_status(box->link);
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(box, err));
    CLEANUP_RESULT struct proc_result again =
        CLI("exec", BOX, "--id", held.id, "-n", "-c", held.script);
    cr_assert_eq(again.status, 255, "%s", again.err);
    fixture_assert_contains(again.err, "the runner was restarted");
    cr_assert_eq(fixture_count_lines(held.count), 1u, "it ran again");
    history_expect_lost(held.id, SANDSTORM__V1__LOST_REASON__LOST_REASON_RUNNER_RESTARTED);
}

/* Pages and scopes. */

static void insert(const char *sandbox, unsigned first, unsigned count)
{
    char sql[512];
    const long long later = (long long)wall_ms() + 1000; /* than the enrolment of its sandbox */
    sqlite3 *db = store_open_file(SQLITE_OPEN_READWRITE);
    for (unsigned i = first; i < first + count; i++) {
        (void)snprintf(sql, sizeof(sql),
                       "INSERT INTO commands VALUES(NULL, '%08x-7f6c-4c1e-9d55-8a1c2f3e4d5b', '%s',"
                       " 'client/admin', 'env=ci', zeroblob(32), %lld, 0, '', 0, 0, x'', 0)",
                       i, sandbox, later + i);
        cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
    }
    cr_assert_eq(sqlite3_close(db), SQLITE_OK);
}

/* Every page, to the end: how many commands there are, each older than the one before. */
static unsigned count_all(const char *identity, const char *sandbox, uint32_t page_size,
                          Sandstorm__V1__CommandState *ret_state)
{
    char token[32] = "";
    unsigned total = 0;
    int64_t last = INT64_MAX;
    do {
        Sandstorm__V1__ListCommandsRequest request = SANDSTORM__V1__LIST_COMMANDS_REQUEST__INIT;
        request.page_size = page_size;
        request.page_token = token;
        request.sandbox_id = (char *)sandbox;
        CLEANUP_WIRE ProtobufCMessage *message = history_page(identity, &request);
        const Sandstorm__V1__ListCommandsResponse *page =
            (const Sandstorm__V1__ListCommandsResponse *)message;
        cr_assert_leq(page->n_commands, page_size);
        for (size_t i = 0; i < page->n_commands; i++) {
            cr_assert_lt(page->commands[i]->ordered_unix_ms, last);
            last = page->commands[i]->ordered_unix_ms;
            cr_assert_eq(page->commands[i]->n_labels, 1u);
            *ret_state = page->commands[i]->state;
        }
        total += (unsigned)page->n_commands;
        (void)snprintf(token, sizeof(token), "%s", page->next_page_token);
    } while (*token);
    return total;
}

Test(history_list, shows_each_client_what_is_in_its_scope_page_by_page)
{
    char red[CLUSTER_PATH_MAX], viewer[CLUSTER_PATH_MAX];
    Sandstorm__V1__CommandState state = 0;
    enroll_labelled("red", "team=red");
    enroll_labelled("blue", "team=blue");
    MUST(cluster_login(fixture(), "scoped", "viewer", "team=red", red, err));
    MUST(cluster_login(fixture(), "vera", "viewer", NULL, viewer, err));
    MUST(service_stop(fixture()->orchestrator, err));
    insert("red", 0, 3);
    insert("blue", 3, 700);
    insert("gone", 703, 2);
    insert("red", 705, 1);
    MUST(cluster_start_orchestrator(fixture(), err));
    cr_assert_eq(count_all(fixture()->admin, "", 150, &state), 706u);
    cr_assert_eq(count_all(viewer, "", 200, &state), 706u);
    cr_assert_eq(count_all(red, "", 2, &state), 4u);
    cr_assert_eq(state, SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_ORDERED);
    cr_assert_eq(count_all(red, "blue", 100, &state), 0u);
    cr_assert_eq(count_all(red, "gone", 100, &state), 0u);
    cr_assert_eq(count_all(viewer, "gone", 100, &state), 2u);
    cr_assert_eq(state, UNKNOWN);
    cr_assert_eq(count_all(viewer, "red", 3, &state), 4u);
}

Test(history_list, refuses_what_makes_no_sense)
{
    static const struct {
        const char *token, *sandbox, *id;
        int state;
    } rows[] = { { "x", "", "", 0 },
                 { "-1", "", "", 0 },
                 { "", "NO", "", 0 },
                 { "", "", "1", 0 },
                 { "", "", "", 99 } };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        Sandstorm__V1__CommandState states[] = { (Sandstorm__V1__CommandState)rows[i].state };
        Sandstorm__V1__ListCommandsRequest request = SANDSTORM__V1__LIST_COMMANDS_REQUEST__INIT;
        request.page_token = (char *)rows[i].token;
        request.sandbox_id = (char *)rows[i].sandbox;
        request.command_id = (char *)rows[i].id;
        request.states = states;
        request.n_states = rows[i].state ? 1 : 0;
        CLEANUP_PEER struct peer *peer = peer_open(fixture()->admin, LIST_COMMANDS);
        peer_send(peer, &request.base);
        peer_finish(peer);
        struct err status = peer_wait_closed(peer);
        cr_assert_eq(status.code, ERR_INVALID, "row %zu: %s", i, status.text);
    }
}
