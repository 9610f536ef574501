/* Agents whose clock is wrong: what works in spite of it, what cannot and says that it is the
 * clock, and that no clock makes an agent ask for certificates again and again. */
#include "tests/harness/joiner.h"

#include "common/clock.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define HOUR_S 3600
#define DAY_S  86400

static int64_t *skew_s;

static void start(void)
{
    fixture_start_empty_with("heartbeat_interval: 100ms\nsource_penalties: false\n");
}

TestSuite(clocks, .init = start, .fini = fixture_stop);

/* The box, not started, with a clock that is wrong by this much from the start. */
static struct sandbox_processes *make_box(int64_t seconds)
{
    struct sandbox_processes *box = NULL;
    char variable[CLUSTER_PATH_MAX + 64];
    MUST(cluster_add_sandbox(fixture(), BOX, &box, err));
    CLEANUP_FD int fd = open(fixture_path("clock"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(ftruncate(fd, sizeof(*skew_s)), 0);
    skew_s = mmap(NULL, sizeof(*skew_s), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert_neq(skew_s, MAP_FAILED);
    *skew_s = seconds;
    (void)snprintf(variable, sizeof(variable), "SANDSTORM_TEST_CLOCK=%s", fixture_path("clock"));
    MUST(service_set_env(box->link, variable, err));
    MUST(service_set_env(box->link, "LD_PRELOAD=" SKEW_LIBRARY, err));
    MUST(sandbox_start_runner(box, err));
    return box;
}

static void assert_serves(void)
{
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "--", "echo", "served");
    cr_assert_str_eq(run.out, "served\n", "%s", run.err);
}

static void assert_describes(const char *words)
{
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    bool seen = false;
    while (!seen && monotonic_us() < deadline) {
        CLEANUP_RESULT struct proc_result run = CLI("describe", BOX);
        seen = strstr(run.out, words);
    }
    cr_assert(seen, "describe does not say %s", words);
}

/* Listens to it for five seconds, so that it is not held up by what it says. More than one attempt
 * for each step of a backoff would be a storm. */
static void assert_no_storm(struct sandbox_processes *box, unsigned most)
{
    struct err err;
    cr_assert_lt(service_wait_status(box->link, "no such status", 5000000, &err), 0);
    cr_assert_eq(err.code, ERR_TIMEOUT, "%s", err.text);
    unsigned issued = AUDIT_COUNT("\"certificate.renew\"") + AUDIT_COUNT("\"certificate.issue\"");
    cr_assert_leq(issued, most, "%u certificates in five seconds", issued);
}

Test(clocks, an_hour_behind_is_named_where_a_certificate_is_not_valid_yet)
{
    struct sandbox_processes *box = make_box(-HOUR_S);
    MUST(service_start(box->link, err));
    MUST(service_wait_log(box->link, "clock", PROC_DEADLINE_US, err));
    CLEANUP_RESULT struct proc_result status = joiner_status(box);
    fixture_assert_contains(status.out, "clock");
    assert_no_storm(box, 1);
    /* Set right, it joins. */
    *skew_s = 0;
    MUST(sandbox_wait_online(box, err));
    assert_serves();
}

Test(clocks, a_day_behind_is_named_where_a_certificate_is_not_valid_yet)
{
    struct sandbox_processes *box = make_box(-DAY_S);
    MUST(service_start(box->link, err));
    MUST(service_wait_log(box->link, "clock", PROC_DEADLINE_US, err));
    assert_no_storm(box, 1);
}

Test(clocks, an_hour_ahead_works_and_is_shown)
{
    struct sandbox_processes *box = make_box(HOUR_S);
    MUST(sandbox_start_link(box, err));
    assert_serves();
    assert_describes("ahead of the orchestrator's; set the VM's clock");
    CLEANUP_RESULT struct proc_result status = joiner_status(box);
    fixture_assert_contains(status.out, "ahead of the orchestrator; set it (timedatectl)");
    assert_no_storm(box, 1);
}

Test(clocks, a_day_ahead_works_and_makes_no_storm_of_renewals)
{
    struct sandbox_processes *box = make_box(DAY_S + HOUR_S);
    MUST(sandbox_start_link(box, err));
    assert_serves();
    assert_describes("ahead of the orchestrator's; set the VM's clock");
    assert_no_storm(box, 3);
}

Test(clocks, jumps_during_life_cut_nothing)
{
    struct sandbox_processes *box = make_box(0);
    MUST(sandbox_start_link(box, err));
    CLEANUP_CLIENT struct fixture_client client =
        CLI_START(PIPE_IN | PIPE_OUT | PIPE_ERR, "exec", BOX, "--", "cat");
    static const int64_t jumps[] = { HOUR_S, -HOUR_S, 0 };
    static const char *const words[] = { "ahead of the orchestrator's", "behind the orchestrator's",
                                         "agrees with the orchestrator's" };
    for (size_t i = 0; i < ELEMENTS(jumps); i++) {
        char line[64];
        *skew_s = jumps[i];
        assert_describes(words[i]);
        cr_assert_eq(write(client.in, "tick\n", 5), 5);
        fixture_read_line(client.out, line, sizeof(line));
        cr_assert_str_eq(line, "tick");
    }
    close_fd(&client.in);
    cr_assert_eq(fixture_client_wait(&client), 0);
    size_t size;
    CLEANUP_FREE char *notes = fixture_read_all(client.err, &size);
    cr_assert_eq(size, 0, "%s", notes);
    assert_no_storm(box, 1);
}
