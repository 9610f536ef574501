/* A whole fleet and its orchestrator's worst days: killed with commands running, started with
 * nobody there, most agents silent at once, a store that hangs. Nobody is punished for the
 * orchestrator's own faults, and no command is lost or run twice. Most of the fleet is one process
 * (bench/fleet_sim.c); the commands run in real sandboxes. */
#include "client/sandstorm.h"
#include "common/clock.h"
#include "tests/harness/fleet.h"
#include "tests/harness/watch.h"

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define FLEET_ALL 200u
#ifdef SANDSTORM_SANITIZED
#define FLEET_REAL 8u
#define COMMANDS   16u
#else
#define FLEET_REAL 25u
#define COMMANDS   50u
#endif
#define FLEET_SIM  (FLEET_ALL - FLEET_REAL)
#define CONNECT_US 120000000u

/* Short, but not so short that a busy machine is taken for a silent agent. Suspect after 1.5
 * intervals, offline after 3 and the slack (a second or two). */
#ifdef SANDSTORM_SANITIZED
#define INTERVAL   "heartbeat_interval: 3s\noffline_slack: 2s\n"
#define OFFLINE_MS 11000
#else
#define INTERVAL   "heartbeat_interval: 1s\noffline_slack: 1s\n"
#define OFFLINE_MS 4000
#endif

static struct service *fleet;

static void stop_all(void)
{
    struct err err = { 0 };
    int r = fleet && service_proc(fleet) ? service_stop(fleet, &err) : 0;
    if (r < 0)
        (void)fprintf(stderr, "the fleet did not end well: %s\n", err.text);
    service_free(TAKE_PTR(fleet));
    fixture_stop();
    if (r < 0)
        abort(); /* an assertion in a teardown does not count */
}

static void start_fleet(unsigned count, unsigned silent_percent)
{
    const struct fleet_config config = { .count = count, .silent_percent = silent_percent };
    MUST(fleet_new(fixture(), &config, &fleet, err));
    MUST(fleet_start(fleet, CONNECT_US, err));
}

static unsigned count_log(const char *text)
{
    return fixture_count_text(service_log(fixture()->orchestrator), text);
}

/* Killed with everything at work. */

/* Offline is soon here: an agent that was not back in time would be marked. */
static void start_for_kill(void)
{
    fixture_start_empty_with("heartbeat_interval: 2s\n"
                             "offline_slack: 4s\n"
                             "evict_after: 5s\n"
                             "amnesty: 20s\n");
}

TestSuite(fleetkill, .init = start_for_kill, .fini = stop_all);

/* Commands. */

struct run {
    struct command_id id;
    char box[16], script[512];
    unsigned code;
    char output[64];
    struct sandstorm_exec *exec;
};

static struct sandstorm_client *connect_client(void)
{
    char endpoint[64];
    struct sandstorm_client *client = NULL;
    struct sandstorm_error error;
    cluster_endpoint(fixture(), endpoint, sizeof(endpoint));
    const struct sandstorm_client_options options = { .endpoint = endpoint,
                                                      .identity_dir = fixture()->admin };
    cr_assert_eq(sandstorm_client_new(&options, &client, &error), 0, "%s", error.text);
    return client;
}

static void take_output(void *userdata, int stream, const void *data, size_t size)
{
    struct run *run = userdata;
    size_t used = strlen(run->output);
    (void)stream;
    cr_assert_lt(used + size, sizeof(run->output), "more output than there was");
    (void)memcpy(run->output + used, data, size);
    run->output[used + size] = '\0';
}

/* Starts it, or attaches to it. It goes on when its client is gone. */
static void open_run(struct sandstorm_client *client, struct run *run)
{
    struct sandstorm_error error;
    const struct sandstorm_exec_options options = {
        .spec = { .sandbox = run->box, .command_id = run->id.text, .shell = run->script },
        .streams = { .stdin_fd = -1,
                     .stdout_fd = -1,
                     .stderr_fd = -1,
                     .output = take_output,
                     .userdata = run,
                     /* These cases attach by themselves. */
                     .give_up_after_ms = 1 },
    };
    run->output[0] = '\0';
    cr_assert_eq(sandstorm_exec_start(client, &options, &run->exec, &error), 0, "%s", error.text);
}

/* Even ones end while there is no orchestrator, odd ones when there is one again: each waits until
 * somebody has its FIFO open for writing. */
static void start_run(struct sandstorm_client *client, struct run *run, unsigned number)
{
    char file[32];
    MUST(command_id_new(&run->id, err));
    run->code = number + 1;
    (void)snprintf(run->box, sizeof(run->box), "real-%u", number % FLEET_REAL);
    (void)snprintf(run->script, sizeof(run->script),
                   "cd %s; echo start >> starts-%u; echo before; : > started-%u; : < go-%s; "
                   "echo after %u; : > done-%u; exit %u",
                   fixture()->dir, number, number, number % 2 ? "late" : "early", number, number,
                   run->code);
    open_run(client, run);
    (void)snprintf(file, sizeof(file), "started-%u", number);
    fixture_wait_file(fixture_path(file));
}

/* Without an orchestrator there is no result, and none is made up. */
static void assert_no_result(struct run *run)
{
    struct sandstorm_outcome outcome;
    struct sandstorm_error error;
    cr_assert_lt(sandstorm_exec_wait(run->exec, &outcome, &error), 0);
    sandstorm_exec_free(TAKE_PTR(run->exec));
}

/* Stays open to the end of the case: what waits later is let go, too. */
static void let_go(const char *fifo)
{
    cr_assert_geq(open(fixture_path(fifo), O_RDWR | O_CLOEXEC), 0);
}

/* Attaching to the id tells what became of it; it is not run again. */
static void assert_run(struct sandstorm_client *client, struct run *run, unsigned number)
{
    char file[32], wanted[64];
    struct sandstorm_outcome outcome;
    struct sandstorm_error error;
    open_run(client, run);
    cr_assert_eq(sandstorm_exec_wait(run->exec, &outcome, &error), 0, "command %u: %s", number,
                 error.text);
    sandstorm_exec_free(TAKE_PTR(run->exec));
    cr_assert_eq(outcome.result, SANDSTORM_RESULT_EXITED, "command %u: %s", number, outcome.detail);
    cr_assert_eq(outcome.exit_code, run->code);
    (void)snprintf(wanted, sizeof(wanted), "before\nafter %u\n", number);
    cr_assert_str_eq(run->output, wanted);
    (void)snprintf(file, sizeof(file), "starts-%u", number);
    cr_assert_eq(fixture_count_lines(fixture_path(file)), 1u, "command %u ran more than once",
                 number);
}

/* What the history says of it, too: one command, ended, with this code. */
static void assert_history(const struct run *run)
{
    Sandstorm__V1__ListCommandsRequest request = SANDSTORM__V1__LIST_COMMANDS_REQUEST__INIT;
    CLEANUP_PEER struct peer *peer =
        peer_open(fixture()->admin, "/sandstorm.v1.CommandService/ListCommands");
    request.command_id = (char *)run->id.text;
    peer_send(peer, &request.base);
    peer_finish(peer);
    CLEANUP_WIRE ProtobufCMessage *message =
        peer_receive(peer, &sandstorm__v1__list_commands_response__descriptor);
    struct err status = peer_wait_closed(peer);
    cr_assert_not_null(message, "%s", status.text);
    const Sandstorm__V1__ListCommandsResponse *list =
        (const Sandstorm__V1__ListCommandsResponse *)message;
    cr_assert_eq(list->n_commands, 1u);
    const Sandstorm__V1__Command *command = list->commands[0];
    cr_assert_str_eq(command->sandbox_id, run->box);
    cr_assert_eq(command->state, SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_ENDED);
    cr_assert_not_null(command->outcome);
    cr_assert_eq(command->outcome->result_case, SANDSTORM__V1__OUTCOME__RESULT_EXITED);
    cr_assert_eq(command->outcome->exited->code, run->code);
}

static void assert_nobody_marked(const struct watch *watch)
{
    cr_assert_eq(watch_count_ever(watch, "", STATE_OFFLINE), 0u);
    cr_assert_eq(watch_count_ever(watch, "", STATE_EVICTED), 0u);
    cr_assert_eq(count_log("to=offline"), 0u);
    cr_assert_eq(count_log("to=evicted"), 0u);
}

Test(fleetkill, killed_orchestrator_marks_nobody_and_every_command_ends_once, .timeout = 280)
{
    static struct run runs[COMMANDS];
    char name[16];
    for (unsigned i = 0; i < FLEET_REAL; i++) {
        (void)snprintf(name, sizeof(name), "real-%u", i);
        (void)fixture_add(name);
    }
    start_fleet(FLEET_SIM, 0);
    cr_assert_eq(mkfifo(fixture_path("go-early"), 0600), 0);
    cr_assert_eq(mkfifo(fixture_path("go-late"), 0600), 0);
    struct sandstorm_client *client = connect_client();
    for (unsigned i = 0; i < COMMANDS; i++)
        start_run(client, &runs[i], i);
    MUST(service_kill(fixture()->orchestrator, err));
    for (unsigned i = 0; i < COMMANDS; i++)
        assert_no_result(&runs[i]);
    sandstorm_client_free(client);
    let_go("go-early");
    for (unsigned i = 0; i < COMMANDS; i += 2) {
        (void)snprintf(name, sizeof(name), "done-%u", i);
        fixture_wait_file(fixture_path(name));
    }
    MUST(cluster_start_orchestrator(fixture(), err));
    CLEANUP_WATCH struct watch *watch = watch_open();
    watch_wait_count(watch, "", STATE_ONLINE, FLEET_ALL);
    let_go("go-late");
    client = connect_client();
    for (unsigned i = 0; i < COMMANDS; i++)
        assert_run(client, &runs[i], i);
    sandstorm_client_free(client);
    for (unsigned i = 0; i < COMMANDS; i++)
        assert_history(&runs[i]);
    watch_for(watch, 0);
    cr_assert_eq(watch_count(watch, "", STATE_ONLINE), FLEET_ALL);
    assert_nobody_marked(watch);
}

/* Silence. */

#define SILENT_FLEET 100u

static void start_quick(void)
{
    fixture_start_empty_with(INTERVAL "evict_after: 1s\namnesty: 0s\n");
}

TestSuite(fleetsilence, .init = start_quick, .fini = stop_all);

Test(fleetsilence, brake_holds_when_most_fall_silent)
{
    start_fleet(SILENT_FLEET, 56);
    CLEANUP_WATCH struct watch *watch = watch_open();
    watch_wait_count(watch, FLEET_PREFIX, STATE_ONLINE, SILENT_FLEET);
    MUST(service_signal(fleet, SIGUSR1, err));
    watch_wait_count(watch, FLEET_PREFIX, STATE_OFFLINE, 56);
    MUST(service_wait_log(fixture()->orchestrator, "most of the fleet is silent at once",
                          PROC_DEADLINE_US, err));
    /* What would otherwise be long enough for an orchestrator that has been well all the time. */
    watch_for(watch, (OFFLINE_MS + 2000) * 1000u);
    cr_assert_eq(watch_count_ever(watch, FLEET_PREFIX, STATE_EVICTED), 0u);
    cr_assert_eq(watch_count(watch, FLEET_PREFIX, STATE_OFFLINE), 56u);
    MUST(service_signal(fleet, SIGUSR2, err));
    watch_wait_count(watch, FLEET_PREFIX, STATE_ONLINE, SILENT_FLEET);
    MUST(service_wait_log(fixture()->orchestrator, "event=brake_off", PROC_DEADLINE_US, err));
}

Test(fleetsilence, minority_is_evicted_and_comes_back)
{
    start_fleet(SILENT_FLEET, 30);
    CLEANUP_WATCH struct watch *watch = watch_open();
    watch_wait_count(watch, FLEET_PREFIX, STATE_ONLINE, SILENT_FLEET);
    watch_forget(watch);
    MUST(service_signal(fleet, SIGUSR1, err));
    watch_wait_count(watch, FLEET_PREFIX, STATE_EVICTED, 30);
    /* Those who spoke were never touched. */
    cr_assert_eq(watch_count_ever(watch, FLEET_PREFIX, STATE_OFFLINE), 30u);
    cr_assert_eq(watch_count(watch, FLEET_PREFIX, STATE_ONLINE), 70u);
    CLEANUP_RESULT struct proc_result list = CLI("ls", "--no-headers");
    cr_assert_null(strstr(list.out, FLEET_PREFIX "00000"), "an evicted one is listed: %s",
                   list.out);
    fixture_assert_contains(list.out, FLEET_PREFIX "00099");
    MUST(service_signal(fleet, SIGUSR2, err));
    watch_wait_count(watch, FLEET_PREFIX, STATE_ONLINE, SILENT_FLEET);
    CLEANUP_RESULT struct proc_result run = CLI("exec", "-n", FLEET_PREFIX "00000", "--", "true");
    cr_assert_eq(run.status, 0, "%s", run.err);
}

/* Nobody there after a start. */

#define AMNESTY_MS 6000

static void start_with_amnesty(void)
{
    fixture_start_empty_with("heartbeat_interval: 500ms\noffline_slack: 500ms\n"
                             "evict_after: 1s\namnesty: 6s\n");
}

TestSuite(fleetamnesty, .init = start_with_amnesty, .fini = stop_all);

Test(fleetamnesty, nobody_is_judged_before_it_is_over)
{
    start_fleet(20, 0);
    /* The store takes things in order: when this is in the audit, that they are online is stored.
     */
    CLEANUP_RESULT struct proc_result list = CLI("ls");
    cr_assert_eq(list.status, 0, "%s", list.err);
    MUST(service_kill(fixture()->orchestrator, err));
    MUST(service_kill(fleet, err));
    int64_t start_ms = wall_ms();
    MUST(cluster_start_orchestrator(fixture(), err));
    CLEANUP_WATCH struct watch *watch = watch_open();
    cr_assert_eq(watch_count(watch, FLEET_PREFIX, STATE_SUSPECT), 20u);
    struct watch_sandbox first = watch_wait(watch, FLEET_PREFIX "00000", STATE_OFFLINE);
    cr_assert_geq(first.state_ms - start_ms, AMNESTY_MS, "offline after %lld ms",
                  (long long)(first.state_ms - start_ms));
    cr_assert_eq(watch_count_ever(watch, FLEET_PREFIX, STATE_EVICTED), 0u);
}

/* A store that hangs. */

static void start_for_stall(void)
{
    fixture_start_empty_with(INTERVAL "evict_after: 1s\namnesty: 0s\n");
}

TestSuite(fleetstall, .init = start_for_stall, .fini = stop_all);

static void run_sql(sqlite3 *db, const char *text)
{
    cr_assert_eq(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK, "%s: %s", text,
                 sqlite3_errmsg(db));
}

Test(fleetstall, nobody_is_marked_while_the_store_hangs)
{
    char path[CLUSTER_PATH_MAX + 32];
    sqlite3 *db = NULL;
    start_fleet(20, 30);
    CLEANUP_WATCH struct watch *watch = watch_open();
    watch_wait_count(watch, FLEET_PREFIX, STATE_ONLINE, 20);
    (void)snprintf(path, sizeof(path), "%s/orchestrator.db", fixture()->state_dir);
    cr_assert_eq(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    (void)sqlite3_busy_timeout(db, (int)(PROC_DEADLINE_US / 1000));
    run_sql(db, "BEGIN EXCLUSIVE");
    /* Somebody waits for the store from now on: every call is in the audit first. */
    CLEANUP_CLIENT struct fixture_client waiting = CLI_START(0, "ls");
    MUST(service_signal(fleet, SIGUSR1, err));
    /* A few times as long as it takes to be offline: a lock is given up on after 5 s. */
    watch_for(watch, (OFFLINE_MS + 8000) * 1000u);
    cr_assert_eq(watch_count_ever(watch, FLEET_PREFIX, STATE_OFFLINE), 0u, "%u marked",
                 watch_count_ever(watch, FLEET_PREFIX, STATE_OFFLINE));
    cr_assert_eq(watch_count_ever(watch, FLEET_PREFIX, STATE_EVICTED), 0u);
    run_sql(db, "ROLLBACK");
    (void)sqlite3_close(db);
    cr_assert_neq(fixture_client_wait(&waiting), 0, "done without a row in the audit");
    /* Those who are silent even so are judged then. */
    watch_wait_count(watch, FLEET_PREFIX, STATE_EVICTED, 6);
    MUST(service_signal(fleet, SIGUSR2, err));
    watch_wait_count(watch, FLEET_PREFIX, STATE_ONLINE, 20);
}
