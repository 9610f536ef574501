/* The network between a sandbox and the orchestrator fails in every way that it can, with a command
 * running: the orchestrator notices within the times that it promises, and when the network is back
 * the command's output and exit code arrive as if nothing had happened. Each case has two network
 * namespaces of its own. */
#include "common/clock.h"
#include "tests/harness/netns.h"
#include "tests/harness/watch.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Suspect after 1.5 intervals of silence, offline after 3 and the slack. */
#define INTERVAL_MS 1000
#define SLACK_MS    1000
#define SETTINGS                                                                                   \
    "heartbeat_interval: 1s\n"                                                                     \
    "offline_slack: 1s\n"                                                                          \
    "amnesty: 0s\n"
/* So seldom that only the keepalive of HTTP/2 can find a dead link in time. */
#define SETTINGS_RARE                                                                              \
    "heartbeat_interval: 5m\n"                                                                     \
    "amnesty: 0s\n"
#define KEEPALIVE_MS 30000
/* Machines that are busy with other tests; one heartbeat may also have been on its way. */
#ifdef SANDSTORM_SANITIZED
#define TOLERANCE_MS 6000
#else
#define TOLERANCE_MS 3000
#endif

#define FIRST_LINES 20000
#define ALL_LINES   60000
#define EXIT_CODE   7

static struct netns *net;

static void start_apart_with(const char *settings)
{
    MUST(netns_new(&net, err));
    fixture_start_cluster((struct cluster_config){
        .settings = settings, .host = NETNS_HOST, .agent_prefix = netns_enter(net) });
}

static void start_apart(void)
{
    start_apart_with(SETTINGS);
}

static void stop_apart(void)
{
    fixture_stop();
    netns_free(TAKE_PTR(net));
}

TestSuite(partition, .init = start_apart, .fini = stop_apart);

static int64_t cut(enum netns_cut how)
{
    MUST(netns_set_cut(net, how, err));
    return wall_ms();
}

/* A command that counts its starts, writes its first lines, waits for the test, and writes the
 * rest. */
static struct fixture_client start_command(void)
{
    char script[1024];
    cr_assert_eq(mkfifo(fixture_path("go"), 0600), 0);
    (void)snprintf(script, sizeof(script),
                   "cd %s; echo start >> starts; seq 1 %d; : > half; read word < go; seq %d %d; "
                   ": > done; exit %d",
                   fixture()->dir, FIRST_LINES, FIRST_LINES + 1, ALL_LINES, EXIT_CODE);
    struct fixture_client client = CLI_START(PIPE_OUT, "exec", "-n", "-q", BOX, "-c", script);
    fixture_wait_file(fixture_path("half"));
    return client;
}

/* The rest of the command happens now, whatever the network does. */
static void finish_command(void)
{
    CLEANUP_FD int go = open(fixture_path("go"), O_WRONLY | O_CLOEXEC);
    cr_assert_geq(go, 0);
    cr_assert_eq(write(go, "on\n", 3), 3);
    fixture_wait_file(fixture_path("done"));
}

/* Every byte once and in order, the code, and one start. */
static void assert_exact(struct fixture_client *client)
{
    size_t size, at = 0;
    CLEANUP_FREE char *output = fixture_read_all(client->out, &size);
    for (unsigned line = 1; line <= ALL_LINES; line++) {
        char wanted[16];
        int length = snprintf(wanted, sizeof(wanted), "%u\n", line);
        cr_assert(at + (size_t)length <= size && memcmp(output + at, wanted, (size_t)length) == 0,
                  "line %u is not as it was written, at byte %zu of %zu", line, at, size);
        at += (size_t)length;
    }
    cr_assert_eq(at, size, "%zu bytes too many", size - at);
    cr_assert_eq(fixture_client_wait(client), EXIT_CODE);
    cr_assert_eq(fixture_count_lines(fixture_path("starts")), 1u);
}

static void assert_within(int64_t from_ms, int64_t to_ms, int64_t bound_ms, const char *what)
{
    cr_assert_leq(to_ms - from_ms, bound_ms + TOLERANCE_MS, "%s after %lld ms, promised: %lld",
                  what, (long long)(to_ms - from_ms), (long long)bound_ms);
}

/* A cut that neither side is told of. */
static void cut_and_heal(enum netns_cut how)
{
    (void)fixture_add(BOX);
    CLEANUP_WATCH struct watch *watch = watch_open();
    (void)watch_wait(watch, BOX, STATE_ONLINE);
    CLEANUP_CLIENT struct fixture_client client = start_command();
    int64_t cut_ms = cut(how);
    struct watch_sandbox suspect = watch_wait(watch, BOX, STATE_SUSPECT);
    finish_command();
    struct watch_sandbox offline = watch_wait(watch, BOX, STATE_OFFLINE);
    /* What was on its way may still arrive: silence begins with the last thing heard. */
    cr_assert_leq(offline.seen_ms, cut_ms + 2 * INTERVAL_MS + TOLERANCE_MS);
    assert_within(cut_ms, suspect.state_ms, 2 * INTERVAL_MS + INTERVAL_MS * 3 / 2, "suspect");
    assert_within(offline.seen_ms, offline.state_ms, 3 * INTERVAL_MS + SLACK_MS, "offline");
    cr_assert_geq(offline.state_ms - offline.seen_ms, 3 * INTERVAL_MS,
                  "offline after %lld ms, which is too soon",
                  (long long)(offline.state_ms - offline.seen_ms));
    (void)cut(NETNS_WHOLE);
    (void)watch_wait(watch, BOX, STATE_ONLINE);
    assert_exact(&client);
}

Test(partition, cut_both_ways_is_noticed_and_loses_nothing)
{
    cut_and_heal(NETNS_CUT_BOTH);
}

Test(partition, cut_from_the_agent_only_is_noticed_and_loses_nothing)
{
    cut_and_heal(NETNS_CUT_UP);
}

Test(partition, cut_to_the_agent_only_is_noticed_and_loses_nothing)
{
    cut_and_heal(NETNS_CUT_DOWN);
}

Test(partition, reset_makes_it_suspect_at_once_and_loses_nothing)
{
    (void)fixture_add(BOX);
    CLEANUP_WATCH struct watch *watch = watch_open();
    (void)watch_wait(watch, BOX, STATE_ONLINE);
    CLEANUP_CLIENT struct fixture_client client = start_command();
    int64_t cut_ms = cut(NETNS_RESET);
    struct watch_sandbox suspect = watch_wait(watch, BOX, STATE_SUSPECT);
    assert_within(cut_ms, suspect.state_ms, INTERVAL_MS * 3 / 2, "suspect");
    finish_command();
    (void)cut(NETNS_WHOLE);
    (void)watch_wait(watch, BOX, STATE_ONLINE);
    assert_exact(&client);
}

static void start_apart_rare(void)
{
    start_apart_with(SETTINGS_RARE);
}

TestSuite(halfopen, .init = start_apart_rare, .fini = stop_apart);

/* The VM vanishes: no FIN, no RST, and with these settings no heartbeat is missed for minutes. */
Test(halfopen, vanished_peer_is_found_by_keepalive_and_its_command_goes_on)
{
    struct sandbox_processes *box = fixture_add(BOX);
    CLEANUP_WATCH struct watch *watch = watch_open();
    (void)watch_wait(watch, BOX, STATE_ONLINE);
    CLEANUP_CLIENT struct fixture_client client = start_command();
    int64_t cut_ms = cut(NETNS_CUT_BOTH);
    MUST(service_kill(box->link, err));
    struct watch_sandbox suspect = watch_wait(watch, BOX, STATE_SUSPECT);
    assert_within(cut_ms, suspect.state_ms, KEEPALIVE_MS, "suspect");
    finish_command();
    (void)cut(NETNS_WHOLE);
    MUST(sandbox_start_link(box, err));
    (void)watch_wait(watch, BOX, STATE_ONLINE);
    assert_exact(&client);
}

/* The other end: an agent that hears nothing any more dials again by itself. */
Test(halfopen, agent_whose_orchestrator_vanished_dials_again)
{
    struct sandbox_processes *box = fixture_add(BOX);
    CLEANUP_CLIENT struct fixture_client client = start_command();
    service_forget_status(box->link);
    (void)cut(NETNS_CUT_BOTH);
    int64_t cut_ms = wall_ms();
    MUST(service_wait_log(box->link, "stream lost", PROC_DEADLINE_US, err));
    assert_within(cut_ms, wall_ms(), KEEPALIVE_MS, "the agent noticed");
    finish_command();
    (void)cut(NETNS_WHOLE);
    MUST(sandbox_wait_online(box, err));
    assert_exact(&client);
}
