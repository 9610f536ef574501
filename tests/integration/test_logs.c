/* The fleet's log with real daemons: what link and runner say arrives under their sandbox's name,
 * what a hostile agent says stays under its own, floods are counted, and readers get it all. */
#include "orchestrator/logbook.h"
#include "tests/harness/neighbour.h"
#include "tests/harness/peer.h"
#include "tests/integration/identity_fixture.h"

#include "common/clock.h"
#include "sandstorm/v1/control.pb-c.h"

#include <stdio.h>
#include <string.h>

#define STREAM_LOGS "/sandstorm.v1.LogService/StreamLogs"
#define EVIL        "evil"

/* Readers. */

static struct peer *read_logs(const char *identity, const char *sandbox,
                              const Sandstorm__V1__StreamLogsRequest *how)
{
    struct peer *peer = peer_open(identity, STREAM_LOGS);
    Sandstorm__V1__StreamLogsRequest request = SANDSTORM__V1__STREAM_LOGS_REQUEST__INIT;
    if (how)
        request = *how;
    request.sandbox_id = (char *)sandbox;
    peer_send(peer, &request.base);
    peer_finish(peer);
    return peer;
}

static struct peer *follow_logs(const char *sandbox)
{
    Sandstorm__V1__StreamLogsRequest request = SANDSTORM__V1__STREAM_LOGS_REQUEST__INIT;
    request.follow = true;
    return read_logs(fixture()->admin, sandbox, &request);
}

/* "origin: message name=value ...", which is enough to look for. */
static void print_line(const Sandstorm__V1__LogLine *line, FILE *out)
{
    (void)fprintf(out, "%s: %s", line->origin, line->message);
    for (size_t i = 0; i < line->n_fields; i++)
        (void)fprintf(out, " %s=%s", line->fields[i]->name, line->fields[i]->value);
    (void)fputc('\n', out);
}

/* The next message as text; NULL at the end. */
static char *next_lines(struct peer *peer, unsigned *count)
{
    CLEANUP_WIRE ProtobufCMessage *message =
        peer_receive(peer, &sandstorm__v1__stream_logs_response__descriptor);
    if (!message)
        return NULL;
    const Sandstorm__V1__StreamLogsResponse *response =
        (const Sandstorm__V1__StreamLogsResponse *)message;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    cr_assert_not_null(out);
    for (size_t i = 0; i < response->n_lines; i++)
        print_line(response->lines[i], out);
    (void)fclose(out);
    *count += (unsigned)response->n_lines;
    return text;
}

/* Reads on until a line has that text; what was read before stays in *seen. */
static void await_line(struct peer *peer, char **seen, const char *wanted)
{
    unsigned count = 0;
    while (!*seen || !strstr(*seen, wanted)) {
        CLEANUP_FREE char *more = next_lines(peer, &count);
        cr_assert_not_null(more, "the stream ended before \"%s\": %s", wanted,
                           peer_wait_closed(peer).text);
        char *both = NULL;
        cr_assert_gt(asprintf(&both, "%s%s", *seen ? *seen : "", more), 0);
        free(*seen);
        *seen = both;
    }
}

/* All that is kept now. */
static char *all_lines(const char *sandbox, const Sandstorm__V1__StreamLogsRequest *how,
                       unsigned *ret_count)
{
    CLEANUP_PEER struct peer *peer = read_logs(fixture()->admin, sandbox, how);
    char *all = strdup("");
    unsigned count = 0;
    for (char *more = next_lines(peer, &count); more; more = next_lines(peer, &count)) {
        char *both = NULL;
        cr_assert_gt(asprintf(&both, "%s%s", all, more), 0);
        free(all);
        free(more);
        all = both;
    }
    struct err status = peer_wait_closed(peer);
    cr_assert_eq(status.code, ERR_NONE, "%s", status.text);
    if (ret_count)
        *ret_count = count;
    return all;
}

/* cppcheck-suppress unknownMacro */
TestSuite(logs, .init = fixture_start, .fini = fixture_stop);

Test(logs, lines_of_link_and_runner_arrive_under_their_sandbox)
{
    CLEANUP_PEER struct peer *peer = follow_logs(BOX);
    CLEANUP_FREE char *seen = NULL;
    await_line(peer, &seen, "orchestrator: sandbox online event=sandbox_online");
    await_line(peer, &seen, "agent: connected");
    await_line(peer, &seen, "runner: orchestrator attached");
    MUST_CLI("exec", BOX, "--id", NEIGHBOUR_ID, "--", "true");
    await_line(peer, &seen, "runner: command started command=" NEIGHBOUR_ID " agent_pid=");
    await_line(peer, &seen, "runner: command ended command=" NEIGHBOUR_ID);
    MUST(service_wait_log(fixture()->orchestrator,
                          "command ended sandbox=" BOX " origin=runner command=" NEIGHBOUR_ID,
                          PROC_DEADLINE_US, err));
}

Test(logs, are_filtered_by_time_command_and_number)
{
    CLEANUP_PEER struct peer *peer = follow_logs(BOX);
    CLEANUP_FREE char *seen = NULL;
    await_line(peer, &seen, "runner: orchestrator attached");
    int64_t since = wall_us();
    MUST_CLI("exec", BOX, "--id", NEIGHBOUR_ID, "--", "true");
    await_line(peer, &seen, "runner: command ended");

    Sandstorm__V1__StreamLogsRequest how = SANDSTORM__V1__STREAM_LOGS_REQUEST__INIT;
    /* The agent's clock is this one. Its skew has the way there in it, and so makes lines later,
     * but none later than it came. */
    how.since_unix_us = since;
    CLEANUP_FREE char *later = all_lines(BOX, &how, NULL);
    fixture_assert_contains(later, "runner: command ended");
    cr_expect_null(strstr(later, "runner ready"), "%s", later);

    sandstorm__v1__stream_logs_request__init(&how);
    how.command_id = (char *)NEIGHBOUR_ID;
    unsigned count = 0;
    CLEANUP_FREE char *about = all_lines(BOX, &how, &count);
    fixture_assert_contains(about, "command started");
    cr_expect_null(strstr(about, "connected"), "%s", about);
    cr_expect_geq(count, 2u);

    sandstorm__v1__stream_logs_request__init(&how);
    how.last = 2;
    CLEANUP_FREE char *last = all_lines(BOX, &how, &count);
    cr_expect_eq(count, 2u, "%s", last);
}

Test(logs, outlive_the_orchestrator_and_a_lost_stream)
{
    CLEANUP_PEER struct peer *peer = follow_logs(BOX);
    CLEANUP_FREE char *seen = NULL;
    await_line(peer, &seen, "runner: orchestrator attached");
    MUST(service_kill(fixture()->orchestrator, err));
    MUST(service_wait_log(fixture_box()->link, "stream lost", PROC_DEADLINE_US, err));
    service_forget_status(fixture_box()->link);
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(fixture_box(), err));
    CLEANUP_PEER struct peer *again = follow_logs(BOX);
    CLEANUP_FREE char *after = NULL;
    /* Said while nobody was there to hear it. */
    await_line(again, &after, "agent: stream lost agent_error=");
    fixture_assert_contains(after, "runner: orchestrator attached");
}

Test(logs, hold_no_argument_no_environment_and_no_output)
{
    static const char secret[] = "hunter2-correct-horse";
    CLEANUP_PEER struct peer *peer = follow_logs(BOX);
    CLEANUP_FREE char *seen = NULL;
    MUST_CLI("exec", BOX, "--env", "SECRET=hunter2-correct-horse", "--", "sh", "-c",
             "echo hunter2-correct-horse; echo $SECRET >&2");
    await_line(peer, &seen, "runner: command ended");
    cr_expect_null(strstr(seen, secret));
    cr_expect_eq(fixture_count_text(service_log(fixture()->orchestrator), secret), 0u);
}

Test(logs, are_for_those_who_may_see_the_sandbox_and_reading_is_in_the_audit)
{
    char viewer[CLUSTER_PATH_MAX], stranger[CLUSTER_PATH_MAX];
    MUST(cluster_login(fixture(), "viewer", "viewer", NULL, viewer, err));
    MUST(cluster_login(fixture(), "stranger", "operator", "team=red", stranger, err));
    /* The first lines may still be on their way into the store. */
    Sandstorm__V1__StreamLogsRequest follow = SANDSTORM__V1__STREAM_LOGS_REQUEST__INIT;
    follow.follow = true;
    CLEANUP_PEER struct peer *allowed = read_logs(viewer, BOX, &follow);
    unsigned count = 0;
    CLEANUP_FREE char *lines = next_lines(allowed, &count);
    cr_assert_not_null(lines);
    cr_expect_eq(AUDIT_COUNT("client/viewer", "\"StreamLogs\"", BOX, "\"allowed\":true"), 1u);

    CLEANUP_PEER struct peer *denied = read_logs(stranger, BOX, NULL);
    struct err status = peer_wait_closed(denied);
    cr_expect_eq(status.code, ERR_NOT_FOUND, "%s", status.text);
    CLEANUP_PEER struct peer *unknown = read_logs(stranger, "nowhere", NULL);
    cr_expect_eq(peer_wait_closed(unknown).code, ERR_NOT_FOUND);
    cr_expect_eq(AUDIT_COUNT("client/stranger", "\"StreamLogs\"", "\"allowed\":false"), 2u);

    CLEANUP_PEER struct peer *nonsense = read_logs(viewer, "../x", NULL);
    cr_expect_eq(peer_wait_closed(nonsense).code, ERR_INVALID);
}

/* An agent that says what it likes. */

static void start_hostile(void)
{
    neighbour_start();
    MUST(cluster_enroll(fixture(), EVIL, EVIL, err));
}

TestSuite(hostile_logs, .init = start_hostile, .fini = neighbour_stop);

static void say(struct peer *peer, Sandstorm__V1__AgentFrame *frame)
{
    Sandstorm__V1__AgentFrame *frames[] = { frame };
    Sandstorm__V1__ConnectRequest request = SANDSTORM__V1__CONNECT_REQUEST__INIT;
    request.n_frames = 1;
    request.frames = frames;
    peer_send(peer, &request.base);
}

static struct peer *join(void)
{
    struct peer *peer = peer_open(fixture_path(EVIL), "/sandstorm.v1.LinkService/Connect");
    Sandstorm__V1__SandboxInfo info = SANDSTORM__V1__SANDBOX_INFO__INIT;
    Sandstorm__V1__Register message = SANDSTORM__V1__REGISTER__INIT;
    message.protocol_min = message.protocol_max = 1;
    message.info = &info;
    message.sent_unix_ms = wall_ms();
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_REGISTER;
    frame.register_ = &message;
    say(peer, &frame);
    CLEANUP_WIRE ProtobufCMessage *welcome =
        peer_receive(peer, &sandstorm__v1__connect_response__descriptor);
    cr_assert_not_null(welcome, "%s", peer_wait_closed(peer).text);
    return peer;
}

static void say_logs(struct peer *peer, Sandstorm__V1__LogLine *line, size_t times)
{
    Sandstorm__V1__LogLine *lines[500];
    Sandstorm__V1__Logs logs = SANDSTORM__V1__LOGS__INIT;
    cr_assert_leq(times, ELEMENTS(lines));
    for (size_t i = 0; i < times; i++)
        lines[i] = line;
    logs.n_lines = times;
    logs.lines = lines;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_LOGS;
    frame.logs = &logs;
    say(peer, &frame);
}

Test(hostile_logs, a_forged_field_claims_nobody_elses_name)
{
    CLEANUP_PEER struct peer *agent = join();
    Sandstorm__V1__LogField fields[] = {
        SANDSTORM__V1__LOG_FIELD__INIT,
        SANDSTORM__V1__LOG_FIELD__INIT,
        SANDSTORM__V1__LOG_FIELD__INIT,
    };
    Sandstorm__V1__LogField *pointers[] = { &fields[0], &fields[1], &fields[2] };
    fields[0].name = (char *)"sandbox";
    fields[0].value = (char *)BOX;
    fields[1].name = (char *)"event";
    fields[1].value = (char *)"command_ended";
    fields[2].name = (char *)"x\nsandbox=" BOX;
    fields[2].value = (char *)"v";
    Sandstorm__V1__LogLine line = SANDSTORM__V1__LOG_LINE__INIT;
    line.message = (char *)"forged\n2026-01-01 info sandbox=" BOX;
    line.origin = (char *)"orchestrator";
    line.time_unix_us = INT64_MAX;
    line.n_fields = ELEMENTS(fields);
    line.fields = pointers;
    say_logs(agent, &line, 1);

    /* The frames go out while somebody turns the agent's loop. */
    CLEANUP_CLIENT struct fixture_client client = CLI_START(0, "ls");
    cr_assert_eq(peer_wait_client(agent, &client), 0);
    CLEANUP_PEER struct peer *reader = follow_logs(EVIL);
    CLEANUP_FREE char *seen = NULL;
    await_line(reader, &seen, "agent: forged");
    fixture_assert_contains(seen, "agent_sandbox=" BOX " agent_event=command_ended");
    cr_expect_null(strstr(seen, "orchestrator: forged"));
    CLEANUP_FREE char *boxes = all_lines(BOX, NULL, NULL);
    cr_expect_null(strstr(boxes, "forged"), "%s", boxes);
    const char *log = service_log(fixture()->orchestrator);
    cr_expect_eq(fixture_count_text(log, "forged\\n2026-01-01 info sandbox=" BOX " sandbox=" EVIL
                                         " origin=agent agent_sandbox=" BOX),
                 1u);
    cr_expect_eq(fixture_count_text(log, "\n2026-01-01"), 0u, "a line was broken in two");
    neighbour_assert_well();
}

Test(hostile_logs, a_flood_is_bounded_and_counted_and_slows_nobody)
{
    CLEANUP_PEER struct peer *agent = join();
    CLEANUP_PEER struct peer *reader = follow_logs(EVIL);
    CLEANUP_FREE char *seen = NULL;
    uint64_t begun = monotonic_us();
    Sandstorm__V1__LogLine line = SANDSTORM__V1__LOG_LINE__INIT;
    line.message = (char *)"flood";
    line.origin = (char *)"runner";
    line.time_unix_us = wall_us();
    for (unsigned i = 0; i < 20; i++) {
        say_logs(agent, &line, 500);
        /* One that does not wait for the flood. */
        CLEANUP_CLIENT struct fixture_client client =
            CLI_START(PIPE_ERR, "exec", BOX, "--", "true");
        int status = peer_wait_client(agent, &client);
        size_t size;
        CLEANUP_FREE char *complaint = fixture_read_all(client.err, &size);
        cr_assert_eq(status, 0, "%d, round %u: %s", status, i, complaint);
    }
    await_line(reader, &seen, "orchestrator: log lines were left out event=log_left_out");
    fixture_assert_contains(seen, "reason=the agent sent more than it may");
    unsigned flood = 0;
    for (const char *at = seen; (at = strstr(at, "runner: flood")); at++)
        flood++;
    cr_expect_geq(flood, LOGBOOK_LINES / 2);
    uint64_t periods = (monotonic_us() - begun) / LOGBOOK_PERIOD_US + 1;
    cr_expect_leq(flood, periods * LOGBOOK_LINES, "%u lines came through", flood);
    neighbour_assert_well();
}
