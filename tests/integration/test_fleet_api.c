/* The fleet as clients see it: states, lists, watching, waiting, labels, draining, removal, and
 * what of it survives a kill. Agents are peers that say what the test wants, or the real ones. */
#include "tests/harness/peer.h"
#include "tests/integration/identity_fixture.h"

#include "orchestrator/session.h"
#include "sandstorm/v1/control.pb-c.h"
#include "sandstorm/v1/link.pb-c.h"

#define CONNECT "/sandstorm.v1.LinkService/Connect"
#define WATCH   "/sandstorm.v1.SandboxService/WatchSandboxes"
#define READY   "/sandstorm.v1.SandboxService/SandboxReady"
#define LIST    "/sandstorm.v1.SandboxService/ListSandboxes"
#define LABEL   "/sandstorm.v1.SandboxService/LabelSandbox"
#define DRAIN   "/sandstorm.v1.SandboxService/DrainSandbox"
#define REMOVE  "/sandstorm.v1.SandboxService/RemoveSandbox"

#define ONLINE  SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_ONLINE
#define SUSPECT SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_SUSPECT
#define OFFLINE SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_OFFLINE
#define EVICTED SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_EVICTED

/* Offline after 1.1 s of silence, evicted a second later. */
static void start_fast(void)
{
    fixture_start_empty_with("heartbeat_interval: 200ms\noffline_slack: 500ms\nevict_after: 1s\n"
                             "amnesty: 0s\n");
}

TestSuite(fleet_states, .init = start_fast, .fini = fixture_stop);
TestSuite(fleet_calls, .init = fixture_start_empty, .fini = fixture_stop);
TestSuite(fleet_real, .init = fixture_start, .fini = fixture_stop);

/* Agents. */

static void send_frame(struct peer *peer, Sandstorm__V1__AgentFrame *frame)
{
    Sandstorm__V1__ConnectRequest request = SANDSTORM__V1__CONNECT_REQUEST__INIT;
    request.frames = &frame;
    request.n_frames = 1;
    peer_send(peer, &request.base);
}

/* Registers with that label of its own (NULL: none), and waits for the welcome. */
static struct peer *connect_agent(const char *name, const char *key, const char *value)
{
    struct peer *peer = peer_open(fixture_path(name), CONNECT);
    Sandstorm__V1__Label label = SANDSTORM__V1__LABEL__INIT;
    Sandstorm__V1__SandboxInfo info = SANDSTORM__V1__SANDBOX_INFO__INIT;
    Sandstorm__V1__Register hello = SANDSTORM__V1__REGISTER__INIT;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    Sandstorm__V1__Label *labels[] = { &label };
    info.hostname = (char *)"host";
    info.labels = labels;
    if (key) {
        label.name = (char *)key;
        label.value = (char *)value;
        info.n_labels = 1;
    }
    hello.protocol_min = hello.protocol_max = SESSION_PROTOCOL;
    hello.info = &info;
    hello.last_error = (char *)"the name\ndoes not resolve";
    hello.last_error_unix_ms = 12345;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_REGISTER;
    frame.register_ = &hello;
    send_frame(peer, &frame);
    CLEANUP_WIRE ProtobufCMessage *welcome =
        peer_receive(peer, &sandstorm__v1__connect_response__descriptor);
    cr_assert_not_null(welcome, "%s was not welcomed", name);
    return peer;
}

static void beat(struct peer *peer)
{
    Sandstorm__V1__Metrics metrics = SANDSTORM__V1__METRICS__INIT;
    Sandstorm__V1__Heartbeat heartbeat = SANDSTORM__V1__HEARTBEAT__INIT;
    Sandstorm__V1__AgentFrame frame = SANDSTORM__V1__AGENT_FRAME__INIT;
    metrics.cpu_basis_points = 1234;
    metrics.memory_total_bytes = 1000;
    metrics.memory_available_bytes = 750;
    heartbeat.metrics = &metrics;
    heartbeat.runner_connected = true;
    frame.kind_case = SANDSTORM__V1__AGENT_FRAME__KIND_HEARTBEAT;
    frame.heartbeat = &heartbeat;
    send_frame(peer, &frame);
}

/* Watching. */

static struct peer *watch(const char *identity, const char *selector, const char *id, bool metrics)
{
    struct peer *peer = peer_open(identity, WATCH);
    Sandstorm__V1__WatchSandboxesRequest request = SANDSTORM__V1__WATCH_SANDBOXES_REQUEST__INIT;
    request.selector = (char *)selector;
    request.id = (char *)id;
    request.metrics = metrics;
    peer_send(peer, &request.base);
    return peer;
}

/* The next thing that it says; the message is the caller's. */
static Sandstorm__V1__WatchSandboxesResponse *next(struct peer *peer)
{
    ProtobufCMessage *message =
        peer_receive(peer, &sandstorm__v1__watch_sandboxes_response__descriptor);
    cr_assert_not_null(message, "the watch has ended");
    return (Sandstorm__V1__WatchSandboxesResponse *)message;
}

static void expect_kind(struct peer *peer, Sandstorm__V1__WatchKind kind, const char *id)
{
    Sandstorm__V1__WatchSandboxesResponse *said = next(peer);
    cr_assert_eq(said->kind, kind, "%d, not %d", (int)said->kind, (int)kind);
    if (id)
        cr_assert_str_eq(said->sandbox->id, id);
    wire_free(&said->base);
}
#define expect_current(peer) expect_kind(peer, SANDSTORM__V1__WATCH_KIND__WATCH_KIND_CURRENT, NULL)
#define expect_sandbox(peer, id)                                                                   \
    expect_kind(peer, SANDSTORM__V1__WATCH_KIND__WATCH_KIND_SANDBOX, id)
#define expect_gone(peer, id) expect_kind(peer, SANDSTORM__V1__WATCH_KIND__WATCH_KIND_GONE, id)

static void wait_state(struct peer *peer, const char *id, Sandstorm__V1__SandboxState state)
{
    for (bool there = false; !there;) {
        Sandstorm__V1__WatchSandboxesResponse *said = next(peer);
        there =
            said->sandbox && strcmp(said->sandbox->id, id) == 0 && said->sandbox->state == state;
        wire_free(&said->base);
    }
}

/* Calls. */

static struct err call(const char *identity, const char *method, const ProtobufCMessage *request,
                       const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret)
{
    CLEANUP_PEER struct peer *peer = peer_open(identity, method);
    peer_send(peer, request);
    peer_finish(peer);
    ProtobufCMessage *answer = peer_receive(peer, type);
    struct err status = { 0 };
    if (!answer)
        status = peer_wait_closed(peer);
    if (ret)
        *ret = answer;
    else
        wire_free(answer);
    return status;
}

/* "a b c": the ids that are listed. */
static void list(const char *identity, const char *selector,
                 const Sandstorm__V1__SandboxState *states, size_t count, char out[256])
{
    Sandstorm__V1__ListSandboxesRequest request = SANDSTORM__V1__LIST_SANDBOXES_REQUEST__INIT;
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    request.selector = (char *)selector;
    request.states = (Sandstorm__V1__SandboxState *)states;
    request.n_states = count;
    struct err status = call(identity, LIST, &request.base,
                             &sandstorm__v1__list_sandboxes_response__descriptor, &message);
    cr_assert_eq(status.code, ERR_NONE, "%s", status.text);
    const Sandstorm__V1__ListSandboxesResponse *page =
        (const Sandstorm__V1__ListSandboxesResponse *)message;
    out[0] = '\0';
    for (size_t i = 0; i < page->n_sandboxes; i++)
        (void)snprintf(out + strlen(out), 256 - strlen(out), "%s%s", i ? " " : "",
                       page->sandboxes[i]->id);
}

static struct err label(const char *identity, const char *id, const char *key, const char *value,
                        const char *remove)
{
    Sandstorm__V1__LabelSandboxRequest request = SANDSTORM__V1__LABEL_SANDBOX_REQUEST__INIT;
    Sandstorm__V1__Label one = SANDSTORM__V1__LABEL__INIT;
    Sandstorm__V1__Label *set[] = { &one };
    char *removed[] = { (char *)remove };
    request.id = (char *)id;
    request.set = set;
    request.remove = removed;
    request.n_remove = remove ? 1 : 0;
    if (key) {
        one.name = (char *)key;
        one.value = (char *)value;
        request.n_set = 1;
    }
    return call(identity, LABEL, &request.base, &sandstorm__v1__label_sandbox_response__descriptor,
                NULL);
}

static struct err drain(const char *id, bool draining)
{
    Sandstorm__V1__DrainSandboxRequest request = SANDSTORM__V1__DRAIN_SANDBOX_REQUEST__INIT;
    request.id = (char *)id;
    request.draining = draining;
    return call(fixture()->admin, DRAIN, &request.base,
                &sandstorm__v1__drain_sandbox_response__descriptor, NULL);
}

static struct err forget(const char *id, bool force)
{
    Sandstorm__V1__RemoveSandboxRequest request = SANDSTORM__V1__REMOVE_SANDBOX_REQUEST__INIT;
    request.id = (char *)id;
    request.force = force;
    return call(fixture()->admin, REMOVE, &request.base,
                &sandstorm__v1__remove_sandbox_response__descriptor, NULL);
}

#define expect_listed(selector, wanted)                                                            \
    do {                                                                                           \
        char ids_[256];                                                                            \
        list(fixture()->admin, selector, NULL, 0, ids_);                                           \
        cr_assert_str_eq(ids_, wanted);                                                            \
    } while (0)

/* States. */

Test(fleet_states, silence_leads_to_eviction_and_a_return_to_online)
{
    /* A real one beside it: alone it would be the whole fleet, and the brake would hold. */
    (void)fixture_add("b");
    enroll_labelled("a", NULL);
    struct peer *agent = connect_agent("a", NULL, NULL);
    CLEANUP_PEER struct peer *watcher = watch(fixture()->admin, "", "a", false);
    wait_state(watcher, "a", ONLINE);
    peer_free(agent);
    wait_state(watcher, "a", SUSPECT);
    wait_state(watcher, "a", OFFLINE);
    wait_state(watcher, "a", EVICTED);
    expect_listed("", "b");
    CLEANUP_RESULT struct proc_result run = CLI("exec", "a", "--", "true");
    cr_assert_eq(run.status, 125);
    fixture_assert_contains(run.err, "is evicted");
    CLEANUP_PEER struct peer *again = connect_agent("a", NULL, NULL);
    (void)again;
    wait_state(watcher, "a", ONLINE);
    expect_listed("", "a b");
    CLEANUP_RESULT struct proc_result shown = CLI("describe", "a");
    fixture_assert_contains(shown.out, "evicted: silent for");
    fixture_assert_contains(shown.out, "returned: it was evicted");
}

Test(fleet_states, a_stream_that_says_nothing_is_cut)
{
    enroll_labelled("a", NULL);
    CLEANUP_PEER struct peer *agent = connect_agent("a", NULL, NULL);
    CLEANUP_PEER struct peer *watcher = watch(fixture()->admin, "", "", false);
    wait_state(watcher, "a", ONLINE);
    wait_state(watcher, "a", SUSPECT);
    wait_state(watcher, "a", OFFLINE);
    struct err status = peer_wait_closed(agent);
    cr_assert_neq(status.code, ERR_NONE);
    /* All of the fleet is silent: nobody is evicted. */
    MUST(service_wait_log(fixture()->orchestrator, "most of the fleet is silent", PROC_DEADLINE_US,
                          err));
    expect_listed("", "a");
}

Test(fleet_states, what_is_known_survives_a_kill)
{
    enroll_labelled("a", "env=ci");
    struct peer *agent = connect_agent("a", "zone", "x");
    beat(agent);
    CLEANUP_PEER struct peer *watcher = watch(fixture()->admin, "", "", false);
    wait_state(watcher, "a", ONLINE);
    cr_assert_eq(drain("a", true).code, ERR_NONE);
    MUST(service_kill(fixture()->orchestrator, err));
    peer_free(agent);
    MUST(cluster_start_orchestrator(fixture(), err));
    CLEANUP_PEER struct peer *after = watch(fixture()->admin, "env=ci,zone=x", "", false);
    Sandstorm__V1__WatchSandboxesResponse *said = next(after);
    cr_assert_str_eq(said->sandbox->id, "a");
    cr_expect_eq(said->sandbox->state, SUSPECT);
    cr_expect(said->sandbox->draining);
    cr_expect_str_eq(said->sandbox->info->hostname, "host");
    cr_expect_str_eq(said->sandbox->last_error, "the name does not resolve");
    cr_expect_eq(said->sandbox->last_error_unix_ms, 12345);
    cr_expect_gt(said->sandbox->last_seen_unix_ms, 0);
    wire_free(&said->base);
}

Test(fleet_states, a_flood_of_heartbeats_ends_the_stream)
{
    enroll_labelled("a", NULL);
    CLEANUP_PEER struct peer *agent = connect_agent("a", NULL, NULL);
    for (unsigned i = 0; i < 4 * SESSION_BEATS_MAX; i++)
        beat(agent);
    struct err status = peer_wait_closed(agent);
    fixture_assert_contains(status.text, "heartbeats");
}

/* Lists. */

Test(fleet_calls, lists_are_selected_by_label_and_state)
{
    enroll_labelled("a", "env=ci");
    enroll_labelled("b", "env=prod");
    enroll_labelled("c", NULL);
    CLEANUP_PEER struct peer *agent = connect_agent("b", "zone", "x");
    (void)agent;
    /* What an agent says of itself selects, but not against what is known of it. */
    CLEANUP_PEER struct peer *liar = connect_agent("c", "env", "ci");
    (void)liar;
    expect_listed("", "a b c");
    expect_listed("env=ci", "a c");
    expect_listed("env", "a b c");
    expect_listed("env!=ci", "b");
    expect_listed("zone=x,env=prod", "b");
    expect_listed("!zone", "a c");
    char ids[256];
    list(fixture()->admin, "", (Sandstorm__V1__SandboxState[]){ ONLINE }, 1, ids);
    cr_assert_str_eq(ids, "b c");
    list(fixture()->admin, "", (Sandstorm__V1__SandboxState[]){ OFFLINE, EVICTED }, 2, ids);
    cr_assert_str_eq(ids, "a");
    Sandstorm__V1__ListSandboxesRequest request = SANDSTORM__V1__LIST_SANDBOXES_REQUEST__INIT;
    request.selector = (char *)"a=*";
    struct err status = call(fixture()->admin, LIST, &request.base,
                             &sandstorm__v1__list_sandboxes_response__descriptor, NULL);
    cr_assert_eq(status.code, ERR_INVALID);
    fixture_assert_contains(status.text, "selector");
}

Test(fleet_calls, an_agents_own_labels_open_no_scope)
{
    char red[CLUSTER_PATH_MAX];
    enroll_labelled("a", "team=blue");
    CLEANUP_PEER struct peer *agent = connect_agent("a", "team", "red");
    enroll_labelled("b", NULL);
    CLEANUP_PEER struct peer *other = connect_agent("b", "team", "red");
    MUST(cluster_login(fixture(), "rita", "operator", "team=red", red, err));
    char ids[256];
    list(red, "", NULL, 0, ids);
    cr_assert_str_eq(ids, "");
    CLEANUP_PEER struct peer *watcher = watch(red, "", "", true);
    expect_current(watcher);
    beat(agent);
    beat(other);
    /* An admin makes it red: that is the first thing the watcher hears. */
    cr_assert_eq(label(fixture()->admin, "b", "team", "red", NULL).code, ERR_NONE);
    expect_sandbox(watcher, "b");
}

/* Watching and waiting. */

Test(fleet_calls, a_watch_begins_with_what_is_there_and_goes_on_with_what_changes)
{
    enroll_labelled("a", "env=ci");
    enroll_labelled("b", "env=ci");
    CLEANUP_PEER struct peer *watcher = watch(fixture()->admin, "env=ci", "", false);
    expect_sandbox(watcher, "a");
    expect_sandbox(watcher, "b");
    expect_current(watcher);
    CLEANUP_PEER struct peer *agent = connect_agent("b", NULL, NULL);
    (void)agent;
    wait_state(watcher, "b", ONLINE);
    enroll_labelled("c", "env=ci");
    expect_sandbox(watcher, "c");
    enroll_labelled("d", "env=prod");
    cr_assert_eq(label(fixture()->admin, "a", "env", "prod", NULL).code, ERR_NONE);
    expect_gone(watcher, "a");
    cr_assert_eq(label(fixture()->admin, "d", "env", "ci", NULL).code, ERR_NONE);
    expect_sandbox(watcher, "d");
    cr_assert_eq(forget("c", false).code, ERR_NONE);
    expect_gone(watcher, "c");
    /* What is out of sight is not heard of when it goes. */
    cr_assert_eq(forget("a", false).code, ERR_NONE);
    cr_assert_eq(drain("b", true).code, ERR_NONE);
    expect_sandbox(watcher, "b");
    MUST(service_stop(fixture()->orchestrator, err));
    struct err status = peer_wait_closed(watcher);
    fixture_assert_contains(status.text, "stopping");
    MUST(cluster_start_orchestrator(fixture(), err));
}

Test(fleet_calls, a_watch_with_metrics_hears_every_heartbeat)
{
    enroll_labelled("a", NULL);
    CLEANUP_PEER struct peer *agent = connect_agent("a", NULL, NULL);
    CLEANUP_PEER struct peer *watcher = watch(fixture()->admin, "", "a", true);
    wait_state(watcher, "a", ONLINE);
    beat(agent);
    for (bool told = false; !told;) {
        Sandstorm__V1__WatchSandboxesResponse *said = next(watcher);
        told = said->sandbox && said->sandbox->metrics &&
               said->sandbox->metrics->cpu_basis_points == 1234;
        wire_free(&said->base);
    }
    CLEANUP_PEER struct peer *nobody = watch(fixture()->admin, "", "nobody", true);
    struct err status = peer_wait_closed(nobody);
    cr_assert_eq(status.code, ERR_NOT_FOUND);
}

static struct peer *ask_ready(const char *id, uint64_t timeout_ms)
{
    struct peer *peer = peer_open(fixture()->admin, READY);
    Sandstorm__V1__SandboxReadyRequest request = SANDSTORM__V1__SANDBOX_READY_REQUEST__INIT;
    request.id = (char *)id;
    request.timeout_ms = timeout_ms;
    peer_send(peer, &request.base);
    peer_finish(peer);
    return peer;
}

Test(fleet_real, ready_waits_for_an_agent_with_a_runner)
{
    struct sandbox_processes *box = NULL;
    MUST(cluster_add_sandbox(fixture(), "late", &box, err));
    MUST(service_start(box->link, err));
    MUST(service_wait_status(box->link, "connected to", PROC_DEADLINE_US, err));
    CLEANUP_PEER struct peer *brief = ask_ready("late", 300);
    struct err status = peer_wait_closed(brief);
    cr_assert_eq(status.code, ERR_TIMEOUT, "%s", status.text);
    fixture_assert_contains(status.text, "runner has not answered");
    CLEANUP_PEER struct peer *waiter = ask_ready("late", 60000);
    MUST(sandbox_start_runner(box, err));
    CLEANUP_WIRE ProtobufCMessage *answer =
        peer_receive(waiter, &sandstorm__v1__sandbox_ready_response__descriptor);
    cr_assert_not_null(answer);
    MUST_CLI("exec", "late", "--", "true");
    CLEANUP_PEER struct peer *doomed = ask_ready("late", 60000);
    CLEANUP_WIRE ProtobufCMessage *at_once =
        peer_receive(doomed, &sandstorm__v1__sandbox_ready_response__descriptor);
    cr_assert_not_null(at_once);
    cr_assert_eq(drain("late", true).code, ERR_NONE);
    CLEANUP_PEER struct peer *removed = ask_ready("late", 60000);
    cr_assert_eq(forget("late", true).code, ERR_NONE);
    cr_assert_eq(peer_wait_closed(removed).code, ERR_NOT_FOUND);
}

/* Draining and removal. */

Test(fleet_real, one_that_drains_takes_no_new_commands_and_ends_those_it_has)
{
    CLEANUP_CLIENT struct fixture_client running =
        CLI_START(PIPE_IN | PIPE_OUT, "exec", BOX, "--", "sh", "-c", "echo go; read x; exit 5");
    char line[16];
    fixture_read_line(running.out, line, sizeof(line));
    cr_assert_eq(drain(BOX, true).code, ERR_NONE);
    CLEANUP_RESULT struct proc_result refused = CLI("exec", BOX, "--", "true");
    cr_assert_eq(refused.status, 125);
    fixture_assert_contains(refused.err, "is draining");
    close_fd(&running.in);
    cr_assert_eq(fixture_client_wait(&running), 5);
    cr_assert_eq(drain(BOX, false).code, ERR_NONE);
    MUST_CLI("exec", BOX, "--", "true");
}

Test(fleet_real, removing_one_that_is_connected_takes_force_and_ends_it)
{
    struct err status = forget(BOX, false);
    cr_assert_eq(status.code, ERR_PRECONDITION);
    fixture_assert_contains(status.text, "is connected");
    cr_assert_eq(forget(BOX, true).code, ERR_NONE);
    expect_listed("", "");
    MUST(service_wait_log(fixture_box()->link, "was removed", PROC_DEADLINE_US, err));
    cr_assert_eq(forget(BOX, true).code, ERR_NOT_FOUND);
    /* Its name is free for another machine. */
    enroll_labelled(BOX, NULL);
    expect_listed("", BOX);
    MUST_CLI("audit", "--verify");
}

Test(fleet_calls, labels_are_checked_bounded_and_an_admins)
{
    char operator_id[CLUSTER_PATH_MAX];
    enroll_labelled("a", "env=ci");
    MUST(cluster_login(fixture(), "otto", "operator", NULL, operator_id, err));
    cr_assert_eq(label(operator_id, "a", "env", "prod", NULL).code, ERR_DENIED);
    cr_assert_eq(label(fixture()->admin, "a", "ENV", "x", NULL).code, ERR_INVALID);
    cr_assert_eq(label(fixture()->admin, "a", "env", "x", "env").code, ERR_INVALID);
    cr_assert_eq(label(fixture()->admin, "a", NULL, NULL, "*").code, ERR_INVALID);
    cr_assert_eq(label(fixture()->admin, "nobody", "env", "x", NULL).code, ERR_NOT_FOUND);
    for (unsigned i = 1; i < LABELS_MAX; i++) {
        char key[8];
        (void)snprintf(key, sizeof(key), "k%u", i);
        cr_assert_eq(label(fixture()->admin, "a", key, "v", NULL).code, ERR_NONE);
    }
    cr_assert_eq(label(fixture()->admin, "a", "more", "v", NULL).code, ERR_EXHAUSTED);
    cr_assert_eq(label(fixture()->admin, "a", "more", "v", "k1").code, ERR_NONE);
    expect_listed("env=ci,!k1,more=v", "a");
    MUST(service_kill(fixture()->orchestrator, err));
    MUST(cluster_start_orchestrator(fixture(), err));
    expect_listed("env=ci,!k1,more=v", "a");
}
