/* What the verbs for a fleet print for what an orchestrator answers, what they ask it, and their
 * exit status; and nothing of an agent's that could steer a terminal. */
#include "cli/cli.h"
#include "tests/unit/fleet_stub.h"

#include <criterion/redirect.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>

#define CONTAINS(text, part)                                                                       \
    cr_assert(strstr((text), (part)), "\"%s\" lacks \"%s\"", (text), (part))
#define LACKS(text, part) cr_assert(!strstr((text), (part)), "\"%s\" has \"%s\"", (text), (part))

static struct service service;

static void set_up(void)
{
    static const int numbers[] = { SIGINT, SIGTERM };
    struct err err = { 0 };
    service = (struct service){ .dir = "/tmp/test-clifleet-XXXXXX", .methods = stub_methods };
    cr_assert(mkdtemp(service.dir) && chdir(service.dir) == 0);
    /* As the verbs do it, before the service's threads exist. */
    cr_assert_eq(loop_signals_block(numbers, ELEMENTS(numbers), &err), 0, "%s", err.text);
    service_start(&service);
    cr_assert_eq(ca_issue_peer(service.ca, "alice", IDENTITY_CLIENT, "alice", 3600, &err), 0, "%s",
                 err.text);
    cr_assert_eq(setenv("SANDSTORM_ENDPOINT", service.endpoint, 1), 0);
    cr_assert_eq(setenv("SANDSTORM_IDENTITY", "alice", 1), 0);
    cr_assert_eq(setenv("LC_ALL", "C.UTF-8", 1), 0);
    cr_redirect_stdout();
    cr_redirect_stderr();
}

static void tear_down(void)
{
    char command[80];
    service_stop(&service);
    (void)snprintf(command, sizeof(command), "rm -rf %s", service.dir);
    cr_assert_eq(system(command), 0);
}

/* cppcheck-suppress unknownMacro */
TestSuite(cli_fleet, .init = set_up, .fini = tear_down, .timeout = 60);

static char out[32768], errors[4096];

static void hear(FILE *said, char *text, size_t size)
{
    (void)fcntl(fileno(said), F_SETFL, O_NONBLOCK);
    text[fread(text, 1, size - 1, said)] = '\0';
    clearerr(said);
}

static int run_words(const char *const *words)
{
    int argc = 0;
    while (words[argc])
        argc++;
    int status = cli_run(&cli_root, argc, (char **)words);
    (void)fflush(NULL);
    hear(cr_get_redirected_stdout(), out, sizeof(out));
    hear(cr_get_redirected_stderr(), errors, sizeof(errors));
    LACKS(out, "\x1b");
    LACKS(errors, "\x1b");
    LACKS(out, "\xe2\x80\xae");
    return status;
}
#define RUN(...) run_words((const char *[]){ "sandstorm", __VA_ARGS__, NULL })

/* Somebody who reads along and presses Ctrl-C when he has seen enough. */
struct reader {
    const char *enough;
    int number, fd;
    char text[sizeof(out)];
};

static void *read_along(void *argument)
{
    struct reader *reader = argument;
    struct pollfd ready = { .fd = reader->fd, .events = POLLIN };
    size_t size = 0;
    while (!strstr(reader->text, reader->enough) && poll(&ready, 1, 30000) == 1) {
        ssize_t got = read(reader->fd, reader->text + size, sizeof(reader->text) - 1 - size);
        size += got > 0 ? (size_t)got : 0;
    }
    /* To a thread that has it blocked, which is all of them. */
    (void)kill(getpid(), reader->number);
    return NULL;
}

static struct reader reader;

static int run_until(const char *enough, int number, const char *const *words)
{
    pthread_t thread;
    reader = (struct reader){ enough, number, fileno(cr_get_redirected_stdout()), "" };
    cr_assert_eq(pthread_create(&thread, NULL, read_along, &reader), 0);
    int status = run_words(words);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    CONTAINS(reader.text, enough);
    return status;
}
#define RUN_UNTIL(enough, number, ...)                                                             \
    run_until(enough, number, (const char *[]){ "sandstorm", __VA_ARGS__, NULL })

/* ls */

Test(cli_fleet, ls_shows_who_drains_and_leaves_the_evicted_out)
{
    cr_assert_eq(RUN("ls"), 0);
    CONTAINS(out, "SANDBOX");
    CONTAINS(out, "web-1   online");
    CONTAINS(out, "suspect,draining");
    CONTAINS(out, "db-1    offline");
    CONTAINS(out, "25%");
    CONTAINS(out, "2.0/8.0G");
    LACKS(out, "old-1");
    cr_assert_str_eq(script.seen, "|0");
    cr_assert_eq(RUN("ls", "-a", "--no-headers"), 0);
    CONTAINS(out, "old-1   evicted");
    LACKS(out, "SANDBOX");
    cr_assert_eq(RUN("ls", "--state", "evicted"), 0);
    CONTAINS(out, "old-1");
    LACKS(out, "web-1");
    cr_assert_str_eq(script.seen, "|1");
}

Test(cli_fleet, ls_selects)
{
    cr_assert_eq(RUN("ls", "-l", "env=ci", "--state", "online,suspect", "-o", "name"), 0);
    cr_assert_str_eq(out, "web-1\n");
    cr_assert_str_eq(script.seen, "env=ci|2");
}

Test(cli_fleet, ls_wide_has_labels_and_versions)
{
    cr_assert_eq(RUN("ls", "-o", "wide"), 0);
    CONTAINS(out, "LABELS");
    CONTAINS(out, "env=prod");
    CONTAINS(out, "0.0.1");
    CONTAINS(out, "1.42");
    CONTAINS(out, "40%");
}

Test(cli_fleet, ls_json_is_an_array_of_all_that_is_known)
{
    json_error_t where;
    cr_assert_eq(RUN("ls", "-o", "json"), 0);
    json_t *array = json_loads(out, 0, &where);
    cr_assert(json_is_array(array), "%s: %s", where.text, out);
    cr_assert_eq(json_array_size(array), 3u);
    json_t *last = json_array_get(array, 2), *first = json_array_get(array, 0);
    cr_assert_str_eq(json_string_value(json_object_get(last, "id")), "db-1");
    cr_assert_str_eq(json_string_value(json_object_get(last, "state")), "offline");
    cr_assert_str_eq(
        json_string_value(json_object_get(json_object_get(last, "reported_labels"), "zone")), EVIL);
    cr_assert_str_eq(json_string_value(json_object_get(json_object_get(last, "labels"), "env")),
                     "prod");
    cr_assert_str_eq(json_string_value(json_object_get(last, "last_error_time")),
                     "2025-11-18T11:50:04Z");
    cr_assert(json_is_null(json_object_get(last, "revoked")));
    cr_assert(json_is_false(json_object_get(first, "draining")));
    json_t *metrics = json_object_get(first, "metrics");
    cr_assert_eq(json_integer_value(json_object_get(metrics, "spool_bytes")), 5 << 20);
    cr_assert_eq(
        json_integer_value(json_object_get(json_object_get(metrics, "pressure"), "io_full")), 1234);
    json_decref(array);
    cr_assert_eq(RUN("ls", "-o", "json", "-l", "env=none"), 0);
    cr_assert_str_eq(out, "[]\n");
    cr_assert_str_eq(errors, "");
}

Test(cli_fleet, an_empty_list_says_why)
{
    cr_assert_eq(RUN("ls", "-l", "env=none"), 0);
    cr_assert_str_eq(out, "");
    CONTAINS(errors, "No sandbox fits; 'sandstorm ls -a -o wide' shows all that you may see (4)");
    cr_assert_eq(RUN("ls", "--state", "revoked"), 0);
    CONTAINS(errors, "No sandbox fits");
}

/* describe */

Test(cli_fleet, describe_has_everything_and_marks_what_the_agent_says)
{
    cr_assert_eq(RUN("describe", "web-1"), 0);
    CONTAINS(out, "since        ");
    CONTAINS(out, "labels       env=ci\n");
    CONTAINS(out, "own labels   zone=" HARMLESS " (its agent says so)\n");
    CONTAINS(out, "runner       0.0.2\n");
    CONTAINS(out, "heartbeat    every 30s\n");
    CONTAINS(out, "4, 25% busy, load 1.42\n");
    CONTAINS(out, "state disk   9.0G of 10G free\n");
    CONTAINS(out, "pressure     cpu 1.5%, memory 0.2% (all 0.0%), io 0.0% (all 12.3%)");
    CONTAINS(out, "network      3.0G received, 2.0K sent since boot\n");
    CONTAINS(out, "uptime       3d\n");
    CONTAINS(out, "spool        5.0M of output not yet fetched\n");
    CONTAINS(out, "recent cpu   \u2581\u2582\u2583\u2584\u2585\u2586\u2587\u2588 100%\n");
    CONTAINS(out, "recent mem   \u2585\u2585");
    CONTAINS(out, "duplicate_link: x\\x0ay\n");
    cr_assert_eq(setenv("LC_ALL", "C", 1), 0);
    cr_assert_eq(RUN("describe", "db-1"), 0);
    CONTAINS(out, "recent cpu   _.:-=+*# 100%\n");
    CONTAINS(out, "last error   2025-11-18T11:50:04Z: \"no route to host " HARMLESS "\"");
    cr_assert_eq(RUN("describe", "web-2"), 0);
    CONTAINS(out, "suspect, draining: it takes no new commands\n");
    cr_assert_eq(RUN("describe", "web-1", "-o", "json"), 0);
    CONTAINS(out, "{\"id\":\"web-1\"");
}

/* why */

Test(cli_fleet, why_exits_with_0_when_it_is_ready_and_1_when_not)
{
    cr_assert_eq(RUN("why", "web-1"), 0);
    CONTAINS(out, "web-1 can run commands: it is online since ");
    LACKS(out, "1. ");
    cr_assert_eq(RUN("why", "web-2"), 1);
    CONTAINS(out, "web-2 cannot run commands: it is suspect,draining since ");
    CONTAINS(out, "1. Its connection broke");
    CONTAINS(out, "2. Somebody drained it");
    CONTAINS(out, "sandstorm undrain web-2");
    cr_assert_eq(RUN("why", "db-1"), 1);
    CONTAINS(out, "1. Nothing was heard from it for 4h, and it is to be heard from every 30s");
    CONTAINS(out, "its agent gave this reason: \"no route to host " HARMLESS "\"");
    cr_assert_eq(RUN("why", "old-1"), 1);
    CONTAINS(out, "sandstorm rm old-1");
    cr_assert_eq(RUN("why", "nobody"), 1);
    CONTAINS(errors, "there is no sandbox");
}

/* label, drain, rm, wait-ready */

Test(cli_fleet, labels_are_set_and_taken_away)
{
    cr_assert_eq(RUN("label", "web-1", "role=web", "old-", "a=b", "-e", service.endpoint), 0);
    cr_assert_str_eq(script.seen, "label web-1 a=b role=web old-");
    cr_assert_str_eq(out, "web-1: env=ci\n");
}

Test(cli_fleet, draining_has_two_ways_back)
{
    cr_assert_eq(RUN("drain", "web-1"), 0);
    cr_assert_str_eq(
        out, "web-1 takes no new commands; 2 still run, 'sandstorm ps web-1' shows them.\n");
    cr_assert_eq(RUN("drain", "old-1"), 0);
    cr_assert_str_eq(out, "old-1 takes no new commands, and none runs there.\n");
    cr_assert_eq(RUN("undrain", "web-1"), 0);
    cr_assert_str_eq(script.seen, "drain web-1 0");
    cr_assert_str_eq(out, "web-1 takes commands again.\n");
    cr_assert_eq(RUN("drain", "web-1", "--undo"), 0);
    cr_assert_str_eq(script.seen, "drain web-1 0");
}

Test(cli_fleet, a_removal_is_refused_unless_forced)
{
    cr_assert_eq(RUN("rm", "web-1"), 1);
    cr_assert_str_eq(errors, "sandstorm: web-1 is connected; stop it, or use --force\n");
    cr_assert_eq(RUN("rm", "--force", "web-1"), 0);
    cr_assert_str_eq(script.seen, "remove web-1 1");
    CONTAINS(out, "web-1 is removed");
}

Test(cli_fleet, wait_ready_says_nothing_but_why_it_gave_up)
{
    cr_assert_eq(RUN("wait-ready", "web-1", "--timeout", "5m"), 0);
    cr_assert_str_eq(script.seen, "ready web-1 300000");
    cr_assert_str_eq(out, "");
    cr_assert_str_eq(errors, "");
    script.not_ready = true;
    cr_assert_eq(RUN("wait-ready", "web-1"), 1);
    cr_assert_str_eq(errors, "sandstorm: it did not come\n");
    cr_assert_eq(RUN("exec", "--wait", "1s", "web-1", "--", "true"), 125);
    cr_assert_str_eq(script.seen, "ready web-1 1000");
    CONTAINS(errors, "it did not come");
}

/* ps */

Test(cli_fleet, ps_shows_what_runs_and_with_all_how_the_others_ended)
{
    cr_assert_eq(RUN("ps"), 0);
    CONTAINS(out, "00000000-0000-4000-8000-000000000000 web-1   running");
    CONTAINS(out, "ordered");
    CONTAINS(out, HARMLESS);
    LACKS(out, "ended");
    cr_assert_eq(RUN("ps", "-a"), 0);
    CONTAINS(out, "client/ann");
    CONTAINS(out, "10m");
    CONTAINS(out, "65s");
    CONTAINS(out, "exit 7");
    CONTAINS(out, "killed by KILL");
    CONTAINS(out, "timed out");
    CONTAINS(out, "did not start: ENOENT at exec");
    CONTAINS(out, "lost: runner restarted");
    cr_assert_eq(RUN("ps", "web-1", "-a", "-n", "2", "-o", "name"), 0);
    cr_assert_str_eq(
        out, "00000000-0000-4000-8000-000000000000\n00000000-0000-4000-8000-000000000001\n");
    cr_assert_str_eq(errors, "");
    cr_assert_str_eq(script.seen, "commands web-1||0");
}

Test(cli_fleet, ps_as_json_has_a_result_only_where_there_is_one)
{
    json_error_t where;
    cr_assert_eq(RUN("ps", "-a", "-o", "json"), 0);
    json_t *array = json_loads(out, 0, &where);
    cr_assert_eq(json_array_size(array), STUB_COMMANDS, "%s", out);
    cr_assert(json_is_null(json_object_get(json_array_get(array, 0), "result")));
    cr_assert(json_is_null(json_object_get(json_array_get(array, 2), "exit_status")));
    cr_assert_eq(json_integer_value(json_object_get(json_array_get(array, 3), "exit_status")), 7);
    json_decref(array);
}

Test(cli_fleet, an_empty_history_says_so)
{
    cr_assert_eq(RUN("ps", "db-1", "-a"), 0);
    cr_assert_str_eq(out, "");
    CONTAINS(errors, "no command of db-1");
}

/* logs */

Test(cli_fleet, logs_are_lines_of_text_or_of_json)
{
    cr_assert_eq(RUN("logs", "web-1", "-n", "5", "--since", "2025-11-18T11:50:04Z", "--command",
                     "00000000-0000-4000-8000-000000000000"),
                 0);
    cr_assert_str_eq(script.seen,
                     "logs web-1|1763466604000000|5|0|00000000-0000-4000-8000-000000000000");
    CONTAINS(out,
             "2025-11-18T11:50:04.123Z  agent         warn   link lost  detail=" HARMLESS "\n");
    CONTAINS(out, "runner        info   x\\x0ay  detail=");
    cr_assert_eq(RUN("logs", "web-1", "-o", "json"), 0);
    CONTAINS(out, "{\"time\":\"2025-11-18T11:50:04.123Z\",\"time_unix_us\":1763466604123456,"
                  "\"level\":\"warn\",\"origin\":\"agent\",\"message\":\"link lost\","
                  "\"fields\":{\"detail\":\"a\\u001B[2J\\u202E\"}}\n");
}

Test(cli_fleet, logs_that_are_followed_end_with_0_on_ctrl_c)
{
    cr_assert_eq(RUN_UNTIL("runner", SIGINT, "logs", "web-1", "-f"), 0);
    CONTAINS(script.seen, "|1|");
    CONTAINS(reader.text, "link lost");
    cr_assert_str_eq(errors, "");
    cr_assert_eq(RUN_UNTIL("runner", SIGTERM, "logs", "web-1", "-f"), 128 + SIGTERM);
}

/* watch */

static unsigned count_of(const char *text, const char *part)
{
    unsigned count = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        count++;
    return count;
}

Test(cli_fleet, watch_has_a_line_for_every_change_and_ends_with_0_on_ctrl_c)
{
    cr_assert_eq(RUN_UNTIL("gone: ", SIGINT, "watch", "-l", "env"), 0);
    cr_assert_str_eq(script.seen, "watch env||0");
    const char *text = reader.text;
    CONTAINS(text, "Z  web-1                 online\n");
    CONTAINS(text, "Z  web-2                 suspect,draining\n");
    CONTAINS(text, "Z  web-1                 online -> suspect\n");
    CONTAINS(text, "Z  web-1                 draining; labels env=ci -> env=prod; it was away "
                   "because: " HARMLESS "\n");
    CONTAINS(text, "Z  old-1                 new: evicted\n");
    CONTAINS(text, "Z  db-1                  gone: ");
    /* A heartbeat is no news. */
    cr_assert_eq(count_of(text, "\n"), 7u, "%s", text);
    cr_assert_str_eq(errors, "");
}

Test(cli_fleet, a_watch_that_breaks_begins_again_and_tells_only_what_is_new)
{
    script.breaks = true;
    cr_assert_eq(RUN_UNTIL("new: offline", SIGINT, "watch"), 0);
    CONTAINS(errors, "going down");
    CONTAINS(reader.text, "suspect -> online");
    cr_assert_eq(count_of(reader.text, "web-2"), 1u, "%s", reader.text);
}

/* top */

Test(cli_fleet, top_without_a_terminal_is_one_table)
{
    cr_assert_eq(RUN("top"), 0);
    cr_assert_str_eq(script.seen, "watch ||1");
    CONTAINS(out, "3 sandboxes, 1 online, 1 suspect, 1 offline; 4 commands\n");
    CONTAINS(out, "SANDBOX        STATE");
    CONTAINS(out, "web-1          online");
    CONTAINS(out, "25%");
    cr_assert_eq(RUN("top", "--once", "-l", "env=ci"), 0);
    cr_assert_str_eq(script.seen, "watch env=ci||1");
}
