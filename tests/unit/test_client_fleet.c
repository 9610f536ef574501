/* The client library's calls about a fleet, over loopback mutual TLS: what is asked arrives, what
 * is answered is handed on whole, lists go on over pages, streams can be left, and answers that are
 * none are errors. */
#include "tests/unit/fleet_stub.h"

static struct service service;
static struct sandstorm_client *client;
static struct sandstorm_error error;
static char text[1024];

#define OK(call) cr_assert_eq((call), 0, "%s", error.text)

static void set_up(void)
{
    struct err err = { 0 };
    char path[80];
    service = (struct service){ .dir = "/tmp/test-fleet-XXXXXX", .methods = stub_methods };
    cr_assert(mkdtemp(service.dir));
    service_start(&service);
    (void)snprintf(path, sizeof(path), "%s/alice", service.dir);
    cr_assert_eq(ca_issue_peer(service.ca, path, IDENTITY_CLIENT, "alice", 3600, &err), 0, "%s",
                 err.text);
    const struct sandstorm_client_options options = { .endpoint = service.endpoint,
                                                      .identity_dir = path };
    OK(sandstorm_client_new(&options, &client, &error));
}

static void tear_down(void)
{
    char command[80];
    sandstorm_client_free(client);
    service_stop(&service);
    (void)snprintf(command, sizeof(command), "rm -rf %s", service.dir);
    cr_assert_eq(system(command), 0);
}

/* cppcheck-suppress unknownMacro */
TestSuite(client_fleet, .init = set_up, .fini = tear_down, .timeout = 60);

static void note_id(void *userdata, const struct sandstorm_sandbox *sandbox)
{
    (void)userdata;
    (void)strcat(strcat(text, sandbox->id), " ");
}

Test(client_fleet, a_list_leaves_the_evicted_out_unless_they_are_asked_for)
{
    OK(sandstorm_list(client, NULL, note_id, NULL, &error));
    cr_assert_str_eq(text, "web-1 web-2 db-1 ");
    cr_assert_str_eq(script.seen, "|0");
    *text = '\0';
    struct sandstorm_list_options options = { .states = SANDSTORM_STATES_ALL };
    OK(sandstorm_list(client, &options, note_id, NULL, &error));
    cr_assert_str_eq(text, "web-1 web-2 db-1 old-1 ");
    *text = '\0';
    options.states =
        SANDSTORM_STATE_BIT(SANDSTORM_STATE_OFFLINE) | SANDSTORM_STATE_BIT(SANDSTORM_STATE_EVICTED);
    options.selector = "env=prod";
    OK(sandstorm_list(client, &options, note_id, NULL, &error));
    cr_assert_str_eq(text, "db-1 old-1 ");
    cr_assert_str_eq(script.seen, "env=prod|2");
}

Test(client_fleet, a_list_that_goes_in_circles_is_an_error)
{
    script.same_page = true;
    cr_assert_eq(sandstorm_list(client, NULL, note_id, NULL, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_PROTOCOL, "%s", error.text);
}

static void check_all(void *userdata, const struct sandstorm_sandbox *sandbox)
{
    *(bool *)userdata = true;
    cr_assert_str_eq(sandbox->labels, "env=ci");
    cr_assert_str_eq(sandbox->reported_labels, "zone=" EVIL);
    cr_assert_str_eq(sandbox->boot_id, "boot-1");
    cr_assert_str_eq(sandbox->runner_version, "0.0.2");
    cr_assert_str_eq(sandbox->last_error, "");
    cr_assert(sandbox->runner_connected && !sandbox->draining);
    cr_assert_neq(sandbox->state_unix_ms, 0);
    cr_assert_eq(sandbox->heartbeat_interval_ms, 30000u);
    cr_assert_eq(sandbox->load1_centi, 142u);
    cr_assert_eq(sandbox->uptime_s, 3u * 86400);
    cr_assert_eq(sandbox->spool_bytes, 5u << 20);
    cr_assert_eq(sandbox->network_received_bytes, 3 * GIB);
    cr_assert_eq(sandbox->network_sent_bytes, 2048u);
    cr_assert_eq(sandbox->state_disk_total_bytes, 10 * GIB);
    cr_assert_eq(sandbox->state_disk_free_bytes, 9 * GIB);
    cr_assert(sandbox->pressure.known);
    cr_assert_eq(sandbox->pressure.cpu_some, 150u);
    cr_assert_eq(sandbox->pressure.io_full, 1234u);
    cr_assert_eq(sandbox->sample_count, STUB_SAMPLES);
    cr_assert_eq(sandbox->samples[STUB_SAMPLES - 1].cpu_basis_points, 9996u);
    cr_assert_eq(sandbox->samples[0].memory_basis_points, 5000u);
    cr_assert_eq(sandbox->event_count, 1u);
}

Test(client_fleet, a_sandbox_comes_with_all_that_is_known_of_it)
{
    bool seen = false;
    OK(sandstorm_sandbox_get(client, "web-1", check_all, &seen, &error));
    cr_assert(seen);
    cr_assert_eq(sandstorm_sandbox_get(client, "nobody", check_all, &seen, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_NOT_FOUND);
}

Test(client_fleet, readiness_is_waited_for_and_a_late_one_is_a_timeout)
{
    OK(sandstorm_ready(client, "web-1", 1500, note_id, NULL, &error));
    cr_assert_str_eq(script.seen, "ready web-1 1500");
    cr_assert_str_eq(text, "web-1 ");
    script.not_ready = true;
    cr_assert_eq(sandstorm_ready(client, "web-1", 0, NULL, NULL, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_TIMEOUT);
    cr_assert_str_eq(error.text, "it did not come");
    cr_assert_str_eq(script.seen, "ready web-1 600000");
}

Test(client_fleet, labels_are_set_and_taken_away)
{
    const char *const remove[] = { "old", "older", NULL };
    OK(sandstorm_sandbox_label(client, "web-1", "a=b,c=d", remove, note_id, NULL, &error));
    cr_assert_str_eq(script.seen, "label web-1 a=b c=d old- older-");
    cr_assert_str_eq(text, "web-1 ");
    OK(sandstorm_sandbox_label(client, "web-1", NULL, NULL, NULL, NULL, &error));
    cr_assert_str_eq(script.seen, "label web-1");
}

static void note_draining(void *userdata, const struct sandstorm_sandbox *sandbox)
{
    *(bool *)userdata = sandbox->draining;
}

Test(client_fleet, draining_begins_and_ends)
{
    bool draining = false;
    OK(sandstorm_sandbox_drain(client, "web-1", true, note_draining, &draining, &error));
    cr_assert(draining);
    OK(sandstorm_sandbox_drain(client, "web-1", false, note_draining, &draining, &error));
    cr_assert_not(draining);
    cr_assert_str_eq(script.seen, "drain web-1 0");
}

Test(client_fleet, a_removal_is_refused_unless_forced)
{
    cr_assert_eq(sandstorm_sandbox_remove(client, "web-1", false, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_PRECONDITION);
    OK(sandstorm_sandbox_remove(client, "web-1", true, &error));
    cr_assert_str_eq(script.seen, "remove web-1 1");
}

Test(client_fleet, an_answer_without_a_sandbox_is_an_error)
{
    script.no_sandbox = true;
    cr_assert_eq(sandstorm_ready(client, "web-1", 0, NULL, NULL, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_PROTOCOL);
    cr_assert_eq(sandstorm_sandbox_drain(client, "web-1", true, NULL, NULL, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_PROTOCOL);
    cr_assert_eq(sandstorm_sandbox_label(client, "web-1", NULL, NULL, NULL, NULL, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_PROTOCOL);
}

/* Watching. */

static bool note_change(void *userdata, enum sandstorm_change change,
                        const struct sandstorm_sandbox *sandbox)
{
    const char *enough = userdata;
    char line[128];
    (void)snprintf(line, sizeof(line), "%d%s%s%s ", change, sandbox ? sandbox->id : "",
                   change == SANDSTORM_CHANGE_SANDBOX ? ":" : "",
                   change == SANDSTORM_CHANGE_SANDBOX ? sandstorm_state_name(sandbox->state) : "");
    (void)strcat(text, line);
    return !enough || !strstr(text, enough);
}

#define SNAPSHOT "1web-1:online 1web-2:suspect 1db-1:offline 3 "
#define CHANGES  "1web-1:suspect 1web-1:suspect 1web-1:suspect 1old-1:evicted 2db-1 "

Test(client_fleet, a_watch_tells_what_is_there_then_what_changes_until_the_caller_has_enough)
{
    struct sandstorm_watch_options options = {
        .selector = "env", .metrics = true, .each = note_change, .userdata = (void *)"2db-1"
    };
    OK(sandstorm_watch(client, &options, &error));
    cr_assert_str_eq(text, SNAPSHOT CHANGES);
    cr_assert_str_eq(script.seen, "watch env||1");
    /* And the client can go on; what it does not know it passes over. */
    *text = '\0';
    script.odd = true;
    options = (struct sandstorm_watch_options){ .id = "web-1",
                                                .each = note_change,
                                                .userdata = (void *)"3" };
    OK(sandstorm_watch(client, &options, &error));
    cr_assert_str_eq(text, SNAPSHOT);
    cr_assert_str_eq(script.seen, "watch |web-1|0");
}

Test(client_fleet, a_watch_that_the_orchestrator_ends_is_an_error)
{
    const struct sandstorm_watch_options options = { .each = note_change };
    script.ends = true;
    cr_assert_eq(sandstorm_watch(client, &options, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_UNAVAILABLE);
    cr_assert_str_eq(text, SNAPSHOT CHANGES);
    script.breaks = true;
    cr_assert_eq(sandstorm_watch(client, &options, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_UNAVAILABLE);
    cr_assert_str_eq(error.text, "going down");
}

static void leave(void *userdata)
{
    client_leave(userdata);
}

Test(client_fleet, a_stream_is_left_from_its_loop)
{
    struct loop_timer *timer;
    struct err err;
    const struct sandstorm_watch_options options = { .each = note_change };
    cr_assert_eq(loop_timer_new(client_loop(client), leave, client, &timer, &err), 0);
    loop_timer_start(timer, 1);
    OK(sandstorm_watch(client, &options, &error));
    loop_timer_free(timer);
    /* And one that begins afterwards ends at once. */
    OK(sandstorm_watch(client, &options, &error));
}

/* The history. */

static bool note_command(void *userdata, const struct sandstorm_command *command)
{
    unsigned *left = userdata;
    char line[128];
    (void)snprintf(line, sizeof(line), "%c%s:%d%s ", command->id[35],
                   sandstorm_command_state_name(command->state), command->outcome.result,
                   command->outcome.lost);
    (void)strcat(text, line);
    return --*left > 0;
}

Test(client_fleet, the_history_goes_on_over_its_pages)
{
    unsigned left = 100;
    struct sandstorm_commands_options options = { .each = note_command, .userdata = &left };
    OK(sandstorm_commands(client, &options, &error));
    cr_assert_str_eq(text, "0running:0 1ordered:0 2unknown:0 3ended:1 4ended:2 5ended:3 6ended:5 "
                           "7ended:7runner restarted ");
    cr_assert_eq(script.calls, 3u);
    *text = '\0';
    left = 4;
    options.sandbox = "web-1";
    options.command_id = "x";
    options.states = SANDSTORM_STATE_BIT(SANDSTORM_COMMAND_ENDED);
    OK(sandstorm_commands(client, &options, &error));
    cr_assert_str_eq(text, "3ended:1 4ended:2 5ended:3 6ended:5 ");
    cr_assert_str_eq(script.seen, "commands web-1|x|1");
    script.same_page = true;
    left = 100;
    cr_assert_eq(sandstorm_commands(client, &options, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_PROTOCOL);
}

/* Logs. */

static bool note_line(void *userdata, const struct sandstorm_log_line *line)
{
    unsigned *left = userdata;
    (void)strcat(strcat(strcat(text, line->origin), "|"), sandstorm_level_name(line->level));
    (void)strcat(strcat(strcat(text, "|"), line->message), "|");
    cr_assert_eq(line->time_unix_us, 1763466604123456);
    cr_assert_eq(line->field_count, 1u);
    (void)strcat(strcat(strcat(text, line->fields[0].name), line->fields[0].value), " ");
    return --*left > 0;
}

Test(client_fleet, logs_come_as_they_are_and_can_be_left)
{
    unsigned left = 100;
    struct sandstorm_logs_options options = { .sandbox = "web-1",
                                              .command_id = "c",
                                              .since_unix_us = 17,
                                              .last = 9,
                                              .each = note_line,
                                              .userdata = &left };
    OK(sandstorm_logs(client, &options, &error));
    cr_assert_str_eq(text, "agent|warn|link lost|detail" EVIL " runner|info|x\ny|detail" EVIL " ");
    cr_assert_str_eq(script.seen, "logs web-1|17|9|0|c");
    options.follow = true;
    script.breaks = true;
    left = 100;
    cr_assert_eq(sandstorm_logs(client, &options, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_UNAVAILABLE);
    left = 1; /* the last one: the service may still be at it when we have left */
    OK(sandstorm_logs(client, &options, &error));
}

Test(client_fleet, a_refusal_is_told_in_the_orchestrators_words)
{
    script.deny = true;
    cr_assert_eq(sandstorm_sandbox_drain(client, "web-1", true, NULL, NULL, &error), -1);
    cr_assert_eq(error.code, SANDSTORM_DENIED);
    cr_assert_str_eq(error.text, "only admins may");
}
