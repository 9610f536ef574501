/* Why is this VM offline? For each reason that can be made on one machine, `sandstorm-agent status`
 * on the VM says what is wrong and what to do, how often it was tried, and when it is tried again.
 */
#include "tests/harness/joiner.h"

#include "common/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define STOP_US 5000000u /* a link is gone by then, whatever it was doing */

static void start(void)
{
    fixture_start_empty_with("heartbeat_interval: 100ms\nsource_penalties: false\n");
}

TestSuite(agent_offline, .init = start, .fini = fixture_stop);

/* The box with an identity of the fixture's orchestrator; nothing of it runs. */
static struct sandbox_processes *make_box(void)
{
    struct sandbox_processes *box = NULL;
    MUST(cluster_add_sandbox(fixture(), BOX, &box, err));
    cr_assert_eq(unlink(box->token), 0);
    MUST(cluster_enroll(fixture(), BOX, BOX, err));
    return box;
}

static void set_endpoint(struct sandbox_processes *box, const char *host, int port)
{
    char variable[128];
    (void)snprintf(variable, sizeof(variable), "SANDSTORM_ORCHESTRATOR_ENDPOINT=%s:%d", host, port);
    MUST(service_set_env(box->link, variable, err));
}

/* Names below .invalid are the test's, also for libgrpc, which else asks name servers by itself. */
static void own_names(struct sandbox_processes *box)
{
    MUST(service_set_env(box->link, "LD_PRELOAD=" RESOLVER_LIBRARY, err));
    MUST(service_set_env(box->link, "GRPC_DNS_RESOLVER=native", err));
}

/* A port of ours on the loopback. */
static int take_port(int *ret_port)
{
    struct sockaddr_in address = { .sin_family = AF_INET };
    socklen_t size = sizeof(address);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    *ret_port = ntohs(address.sin_port);
    return fd;
}

/* Until `status` says this; what it says then, for free(). */
static char *wait_status(const struct sandbox_processes *box, const char *words)
{
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    for (;;) {
        CLEANUP_RESULT struct proc_result status = joiner_status(box);
        if (strstr(status.out, words)) {
            char *copy = strdup(status.out);
            cr_assert_not_null(copy);
            return copy;
        }
        cr_assert_lt(monotonic_us(), deadline, "it says: %s%s", status.out, status.err);
    }
}

/* Starts the link, which cannot connect for this reason, and lets it say so. */
static void assert_explains(struct sandbox_processes *box, const char *reason)
{
    MUST(service_start(box->link, err));
    /* A part of it that has no quotes: the log escapes them. */
    char part[128];
    const char *quote = strchr(reason, '"');
    (void)snprintf(part, sizeof(part), "%.*s", quote ? (int)(quote - reason) : (int)sizeof(part),
                   reason);
    MUST(service_wait_log(box->link, part, PROC_DEADLINE_US, err));
    CLEANUP_FREE char *text = wait_status(box, reason);
    fixture_assert_contains(text, BOX " is not connected to ");
    fixture_assert_contains(text, " failed since ");
    fixture_assert_contains(text, "the next one is ");
    CLEANUP_RESULT struct proc_result status = joiner_status(box);
    cr_assert_eq(status.status, 1, "a script can tell");
}

Test(agent_offline, a_port_where_nothing_listens)
{
    struct sandbox_processes *box = make_box();
    char reason[160];
    int port;
    CLEANUP_FD int fd = take_port(&port);
    cr_assert_geq(fd, 0);
    set_endpoint(box, "127.0.0.1", port);
    (void)snprintf(reason, sizeof(reason),
                   "nothing is listening on 127.0.0.1 port %d; is the orchestrator running there?",
                   port);
    assert_explains(box, reason);
    /* It goes on trying, and counts: more than one. */
    free(wait_status(box, " attempts have failed since "));
}

Test(agent_offline, a_name_that_does_not_resolve)
{
    struct sandbox_processes *box = make_box();
    own_names(box);
    set_endpoint(box, "orchestrator.invalid", fixture()->port);
    assert_explains(box, "cannot find the address of \"orchestrator.invalid\" (Name or service not "
                         "known); check the endpoint and DNS");
}

Test(agent_offline, a_name_that_the_certificate_is_not_for)
{
    struct sandbox_processes *box = make_box();
    own_names(box);
    set_endpoint(box, "box.loopback.invalid", fixture()->port);
    assert_explains(box,
                    "the orchestrator's certificate is not for \"box.loopback.invalid\"; use a "
                    "name it is for, or run 'sandstorm-orchestrator init' with --name "
                    "box.loopback.invalid");
}

Test(agent_offline, an_orchestrator_of_another_ca)
{
    struct sandbox_processes *box = make_box();
    CLEANUP_CLUSTER struct cluster *other = NULL;
    char variable[128];
    MUST(cluster_new(&(struct cluster_config){ 0 }, &other, err));
    MUST(cluster_start_orchestrator(other, err));
    set_endpoint(box, "127.0.0.1", other->port);
    (void)snprintf(variable, sizeof(variable), "SANDSTORM_ENROLL_ENDPOINT=127.0.0.1:%d",
                   other->http_port);
    MUST(service_set_env(box->link, variable, err));
    assert_explains(box, "is not signed by our CA");
    free(wait_status(box, "is ca.pem the one of this orchestrator?"));
    MUST(cluster_stop(other, err));
}

Test(agent_offline, somebody_who_accepts_and_never_answers)
{
    struct sandbox_processes *box = make_box();
    char reason[160];
    int port;
    CLEANUP_FD int fd = take_port(&port);
    cr_assert_eq(listen(fd, 16), 0);
    set_endpoint(box, "127.0.0.1", port);
    (void)snprintf(reason, sizeof(reason),
                   "127.0.0.1 port %d accepts connections but does not answer; is it an "
                   "orchestrator?",
                   port);
    assert_explains(box, reason);
}

/* A firewall that drops everything looks like a queue that is full. */
Test(agent_offline, an_address_that_swallows_everything)
{
    struct sandbox_processes *box = make_box();
    char reason[160];
    int port, fillers[8];
    CLEANUP_FD int fd = take_port(&port);
    cr_assert_eq(listen(fd, 0), 0);
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (size_t i = 0; i < ELEMENTS(fillers); i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        cr_assert_geq(fillers[i], 0);
        cr_assert(connect(fillers[i], (struct sockaddr *)&address, sizeof(address)) == 0 ||
                  errno == EINPROGRESS);
    }
    set_endpoint(box, "127.0.0.1", port);
    (void)snprintf(reason, sizeof(reason),
                   "cannot reach 127.0.0.1 port %d (Connection timed out); check the endpoint, "
                   "routes and firewalls",
                   port);
    assert_explains(box, reason);
    for (size_t i = 0; i < ELEMENTS(fillers); i++)
        close_fd(&fillers[i]);
}

/* The reason holds for a second, the one that the orchestrator asks for; the link is stopped in the
 * middle of it, so that there is time to look. */
Test(agent_offline, an_orchestrator_that_is_stopping)
{
    struct sandbox_processes *box = make_box();
    MUST(sandbox_start_runner(box, err));
    MUST(sandbox_start_link(box, err));
    MUST(service_signal(fixture()->orchestrator, SIGTERM, err));
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    while (fixture_count_text(box->status, "has asked its agents to go") == 0 ||
           fixture_count_text(box->status, "\"next_attempt_unix_ms\": 0") > 0)
        cr_assert_lt(monotonic_us(), deadline, "the status does not say so");
    MUST(service_signal(box->link, SIGSTOP, err));
    CLEANUP_RESULT struct proc_result status = joiner_status(box);
    fixture_assert_contains(status.out, "the orchestrator has asked its agents to go (the "
                                        "orchestrator is stopping); there is nothing to do here: "
                                        "this agent comes back by itself");
    fixture_assert_contains(status.out, "\nThe next attempt is ");
    cr_assert_null(strstr(status.out, "failed"), "%s", status.out);
    MUST(service_signal(box->link, SIGCONT, err));
    /* And it does come back. */
    int ended;
    MUST(service_wait_ended(fixture()->orchestrator, &ended, err));
    cr_assert_eq(ended, 0);
    service_forget_status(box->link);
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(box, err));
}

/* Also before it knows anything: what the process before it has left there is not true any more. */
Test(agent_offline, a_first_attempt_that_takes_long)
{
    struct sandbox_processes *box = make_box();
    int port;
    CLEANUP_FD int fd = take_port(&port);
    cr_assert_eq(listen(fd, 16), 0);
    set_endpoint(box, "127.0.0.1", port);
    for (unsigned i = 0; i < 2; i++) {
        service_forget_status(box->link);
        MUST(service_start(box->link, err));
        MUST(service_wait_ready(box->link, PROC_DEADLINE_US, err));
        free(wait_status(box, "; the first attempt is under way."));
        MUST(service_stop(box->link, err));
        free(wait_status(box, "it was stopped "));
    }
}

Test(agent_offline, online_says_when_it_last_spoke)
{
    struct sandbox_processes *box = make_box();
    MUST(sandbox_start_runner(box, err));
    MUST(sandbox_start_link(box, err));
    CLEANUP_FREE char *text = wait_status(box, BOX " is online at ");
    fixture_assert_contains(text, "Heartbeat every 0.1 s; the last one known of was sent ");
    cr_assert_null(strstr(text, "attempt"), "%s", text);
}

/* Nothing can call a thread back that waits for name servers. */
Test(agent_offline, a_resolver_that_hangs_does_not_hold_up_a_stop)
{
    struct sandbox_processes *box = make_box();
    char variable[CLUSTER_PATH_MAX + 64];
    own_names(box);
    (void)snprintf(variable, sizeof(variable), "SANDSTORM_TEST_RESOLVER=%s",
                   fixture_path("hanging"));
    MUST(service_set_env(box->link, variable, err));
    set_endpoint(box, "orchestrator.invalid", fixture()->port);
    MUST(service_start(box->link, err));
    fixture_wait_file(fixture_path("hanging"));
    free(wait_status(box, BOX " is not connected to orchestrator.invalid:"));
    uint64_t before = monotonic_us();
    MUST(service_stop(box->link, err));
    cr_assert_lt(monotonic_us() - before, STOP_US);
    free(wait_status(box, "it was stopped "));
}

Test(agent_offline, labels_that_are_none_are_refused_at_the_start)
{
    struct sandbox_processes *box = make_box();
    int status = 0;
    MUST(service_set_env(box->link, "SANDSTORM_LABELS=env=ci,Role=web", err));
    MUST(service_start(box->link, err));
    MUST(service_wait_ended(box->link, &status, err));
    cr_assert_neq(status, 0);
    cr_assert_eq(fixture_count_text(service_log(box->link), "SANDSTORM_LABELS"), 1u);
    cr_assert_eq(fixture_count_text(service_log(box->link), "Role"), 1u);
}
