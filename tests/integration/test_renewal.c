/* Certificates that live for ten seconds, so that a test sees several: renewed in time no command
 * notices, renewed late the agent comes back by itself, and too late it says what to do. */
#include "tests/harness/joiner.h"

#include "common/clock.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LIFETIME_S 10
#define SHORT      "heartbeat_interval: 100ms\ncertificate_lifetime: 10s\nsource_penalties: false\n"

static void start(void)
{
    fixture_start_with(SHORT);
}

static void start_without_window(void)
{
    fixture_start_with(SHORT "renewal_window: 0s\n");
}

TestSuite(renewal, .init = start, .fini = fixture_stop);
TestSuite(renewal_window, .init = start_without_window, .fini = fixture_stop);

static unsigned renewals(void)
{
    return fixture_count_text(service_log(fixture_box()->link), "certificate renewed ");
}

static void assert_serves(void)
{
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "--", "echo", "served");
    cr_assert_str_eq(run.out, "served\n", "%s", run.err);
    cr_assert_eq(run.status, 0, "status %d: %s", run.status, run.err);
}

/* Numbers, one by one, until the file "go" is there; then how many they were, and 7. */
static const char *ticking_script(void)
{
    static char script[512];
    (void)snprintf(script, sizeof(script),
                   "i=0; while [ ! -e %s/go ]; do echo $i; i=$((i+1)); sleep 0.01; done; "
                   "echo all $i; exit 7",
                   fixture()->dir);
    return script;
}

/* Reads numbers until `enough` says so, which is asked now and then; returns the next one. */
static unsigned read_ticks(const struct fixture_client *client, unsigned next, bool (*enough)(void))
{
    char line[64], expected[64];
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    do {
        for (unsigned end = next + 20; next < end; next++) {
            fixture_read_line(client->out, line, sizeof(line));
            (void)snprintf(expected, sizeof(expected), "%u", next);
            cr_assert_str_eq(line, expected);
        }
        cr_assert_lt(monotonic_us(), deadline, "it did not come");
    } while (!enough());
    return next;
}

static void assert_ends_after(struct fixture_client *client, unsigned next)
{
    char line[64], expected[64];
    fixture_touch("go");
    for (;; next++) {
        fixture_read_line(client->out, line, sizeof(line));
        if (line[0] == 'a')
            break;
        (void)snprintf(expected, sizeof(expected), "%u", next);
        cr_assert_str_eq(line, expected);
    }
    (void)snprintf(expected, sizeof(expected), "all %u", next);
    cr_assert_str_eq(line, expected);
    cr_assert_eq(fixture_client_wait(client), 7);
}

static bool renewed_twice(void)
{
    return renewals() >= 2;
}

static bool describes_end(int64_t end)
{
    char text[64];
    const time_t seconds = (time_t)end;
    struct tm parts;
    cr_assert_gt(strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &parts)), 0);
    CLEANUP_RESULT struct proc_result seen = CLI("describe", BOX);
    return strstr(seen.out, text);
}

/* In time. */

Test(renewal, a_command_runs_across_renewals_and_nobody_notices)
{
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT | PIPE_ERR, "exec", BOX, "-c", ticking_script());
    int64_t first = joiner_certificate_end(fixture_box()->identity);
    unsigned next = read_ticks(&client, 0, renewed_twice);
    cr_assert_gt(joiner_certificate_end(fixture_box()->identity), first);
    assert_ends_after(&client, next);
    size_t size;
    CLEANUP_FREE char *notes = fixture_read_all(client.err, &size);
    cr_assert_eq(size, 0, "%s", notes);
    cr_assert_eq(fixture_count_text(service_log(fixture()->orchestrator), "sandbox disconnected"),
                 0);
    cr_assert_eq(fixture_count_text(service_log(fixture_box()->link), "stream lost"), 0);
}

Test(renewal, the_new_end_is_what_everybody_says)
{
    MUST(service_wait_log(fixture_box()->link, "certificate renewed ", PROC_DEADLINE_US, err));
    /* The stream that uses it follows at once, and before the next renewal. */
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    while (!describes_end(joiner_certificate_end(fixture_box()->identity)))
        cr_assert_lt(monotonic_us(), deadline);
    CLEANUP_RESULT struct proc_result status = joiner_status(fixture_box());
    cr_assert_eq(status.status, 0, "%s%s", status.out, status.err);
    fixture_assert_contains(status.out, BOX " is online at");
    fixture_assert_contains(status.out, "Certificate valid until ");
    fixture_assert_contains(status.out, "Clock: ");
    CLEANUP_RESULT struct proc_result seen = CLI("describe", BOX);
    fixture_assert_contains(seen.out, "agrees with the orchestrator's");
}

Test(renewal, a_renewal_keeps_the_key_and_is_written_down)
{
    const char *key = fixture_path(BOX "/key.pem");
    CLEANUP_RESULT struct proc_result before = RUN(NULL, "cat", key);
    MUST(service_wait_log(fixture_box()->link, "certificate renewed ", PROC_DEADLINE_US, err));
    CLEANUP_RESULT struct proc_result after = RUN(NULL, "cat", fixture_path(BOX "/key.pem"));
    cr_assert_str_eq(before.out, after.out);
    cr_assert_geq(AUDIT_COUNT("\"certificate.renew\"", "\"agent/" BOX "\"", "\"allowed\":true"), 1);
}

/* The client with a context of its own, as cluster_login() has made it. */
static struct proc_result as_op(const char *command)
{
    char config[CLUSTER_PATH_MAX + 32];
    (void)snprintf(config, sizeof(config), "XDG_CONFIG_HOME=%s", fixture()->dir);
    return RUN(((const char *[]){ config, NULL }), cluster_program("sandstorm"), "exec",
               "--context", "op", BOX, "-c", command);
}

Test(renewal, a_client_renews_by_itself_with_its_next_call)
{
    char identity[CLUSTER_PATH_MAX];
    MUST(cluster_login(fixture(), "op", "operator", NULL, identity, err));
    /* Due, but not over; then over. */
    for (unsigned i = 0; i < 2; i++) {
        int64_t end = joiner_certificate_end(identity);
        fixture_wait_time(i == 0 ? end - 2 : end);
        CLEANUP_RESULT struct proc_result run = as_op("echo served");
        cr_assert_str_eq(run.out, "served\n", "%s", run.err);
        cr_assert_gt(joiner_certificate_end(identity), end);
    }
}

/* The stream is cut at the end of the certificate, and goes on with the next one. */
Test(renewal, a_call_that_outlives_its_clients_certificate_goes_on_with_a_new_one)
{
    char identity[CLUSTER_PATH_MAX];
    MUST(cluster_login(fixture(), "op", "operator", NULL, identity, err));
    int64_t end = joiner_certificate_end(identity);
    CLEANUP_RESULT struct proc_result run =
        as_op("i=10; while [ $i -lt 26 ]; do echo $i; sleep 1; i=$((i + 1)); done; exit 6");
    cr_assert_geq(wall_ms(), end * 1000, "%s", run.err);
    cr_assert_eq(run.status, 6, "%d: %s", run.status, run.err);
    cr_assert_str_eq(run.out, "10\n11\n12\n13\n14\n15\n16\n17\n18\n19\n20\n21\n22\n23\n24\n25\n");
    cr_assert_gt(joiner_certificate_end(identity), end);
}

/* Late. */

Test(renewal, a_stream_ends_with_its_certificate_and_comes_back_with_the_next)
{
    struct sandbox_processes *box = fixture_box();
    MUST(service_signal(box->link, SIGSTOP, err));
    int64_t end = joiner_certificate_end(box->identity);
    MUST(service_wait_log(fixture()->orchestrator, "sandbox disconnected", PROC_DEADLINE_US, err));
    cr_assert_geq(wall_ms(), end * 1000, "it was cut before its end");
    CLEANUP_RESULT struct proc_result seen = CLI("describe", BOX);
    fixture_assert_contains(seen.out, "suspect");
    MUST(service_signal(box->link, SIGCONT, err));
    /* Not because it was silent: because its time was over. */
    MUST(service_wait_log(box->link, "the certificate of this stream has expired", PROC_DEADLINE_US,
                          err));
    MUST(service_wait_log(box->link, "certificate renewed after its end", PROC_DEADLINE_US, err));
    MUST(sandbox_wait_online(box, err));
    assert_serves();
    cr_assert_gt(joiner_certificate_end(box->identity), end);
    cr_assert_eq(AUDIT_COUNT("\"certificate.renew\"", "after its end, over HTTPS"), 1);
}

Test(renewal, a_vm_that_was_paused_for_three_lifetimes_comes_back_and_no_byte_is_lost)
{
    struct sandbox_processes *box = fixture_box();
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_OUT, "exec", BOX, "-c", ticking_script());
    char line[64];
    fixture_read_line(client.out, line, sizeof(line));
    cr_assert_str_eq(line, "0");
    MUST(service_signal(box->link, SIGSTOP, err));
    fixture_wait_time(wall_ms() / 1000 + 3 * LIFETIME_S);
    MUST(service_signal(box->link, SIGCONT, err));
    MUST(service_wait_log(box->link, "certificate renewed after its end", PROC_DEADLINE_US, err));
    assert_ends_after(&client, 1);
}

Test(renewal, an_agent_that_starts_with_an_expired_certificate_renews_it)
{
    struct sandbox_processes *box = fixture_box();
    MUST(service_stop(box->link, err));
    fixture_wait_time(joiner_certificate_end(box->identity));
    MUST(sandbox_start_link(box, err));
    assert_serves();
    cr_assert_eq(AUDIT_COUNT("\"certificate.renew\"", "after its end, over HTTPS"), 1);
}

Test(renewal, an_agent_whose_orchestrator_was_away_for_longer_than_its_certificate_comes_back)
{
    struct sandbox_processes *box = fixture_box();
    MUST(service_stop(fixture()->orchestrator, err));
    fixture_wait_time(joiner_certificate_end(box->identity));
    /* It has asked the front at least once, and nobody was there. */
    char nobody[64];
    (void)snprintf(nobody, sizeof(nobody), "nothing is listening on 127.0.0.1 port %d",
                   fixture()->http_port);
    MUST(service_wait_log(box->link, nobody, PROC_DEADLINE_US, err));
    service_forget_status(box->link);
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(box, err));
    assert_serves();
    /* It went on asking the front; it did not sit out a pause with a certificate that opens
     * nothing. */
    cr_assert_eq(fixture_count_text(service_log(box->link), "expired"), 0, "%s",
                 service_log(box->link));
}

/* Too late. */

Test(renewal_window, an_agent_that_comes_too_late_says_what_to_do_and_that_helps)
{
    struct sandbox_processes *box = fixture_box();
    MUST(service_stop(box->link, err));
    fixture_wait_time(joiner_certificate_end(box->identity) + 1);
    service_forget_status(box->link);
    MUST(service_start(box->link, err));
    MUST(service_wait_log(box->link, "Enrol again with a new join token", PROC_DEADLINE_US, err));
    CLEANUP_RESULT struct proc_result status = joiner_status(box);
    cr_assert_eq(status.status, 1);
    fixture_assert_contains(status.out, "Enrol again with a new join token ('sandstorm token "
                                        "create --sandbox')");
    cr_assert_eq(AUDIT_COUNT("\"certificate.renew\"", "\"allowed\":false", "expired"), 1);
    cr_assert_eq(strncmp(service_status(box->link), "online", 6) == 0, 0);
    /* As it was told. */
    MUST(service_stop(box->link, err));
    MUST(cluster_enroll(fixture(), BOX, BOX, err));
    MUST(sandbox_start_link(box, err));
    assert_serves();
}
