/* A power cut at each step of getting and renewing a certificate, on either side: what comes back
 * has a key and a certificate that belong together, the token was not burnt, and no second key ever
 * got a certificate for it. Only in builds with failpoints (common/failpoint.h). */
#include "tests/harness/joiner.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define KILLED (128 + SIGKILL)

static void start(void)
{
    fixture_start_empty_with("heartbeat_interval: 100ms\nsource_penalties: false\n");
}

static void start_short(void)
{
    fixture_start_with(
        "heartbeat_interval: 100ms\ncertificate_lifetime: 10s\nsource_penalties: false\n");
}

TestSuite(failpoints, .init = start, .fini = fixture_stop);
TestSuite(failpoints_renewal, .init = start_short, .fini = fixture_stop);

static void assert_serves(void)
{
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "--", "echo", "served");
    cr_assert_str_eq(run.out, "served\n", "%s", run.err);
}

static void arm(struct service *service, const char *point)
{
    char variable[128];
    (void)snprintf(variable, sizeof(variable), "SANDSTORM_FAILPOINT=%s", point);
    MUST(service_set_env(service, variable, err));
}

/* Until it has died at its failpoint; the next start is without it. */
static void wait_killed(struct service *service)
{
    int status = 0;
    MUST(service_wait_ended(service, &status, err));
    cr_assert_eq(status, KILLED, "%s ended with %d", service_name(service), status);
    MUST(service_set_env(service, "SANDSTORM_FAILPOINT", err));
}

/* One key has used the token once, whatever happened on the way. */
static void assert_used_once(const char *token)
{
    char id[16];
    joiner_secret_id(token, id);
    CLEANUP_RESULT struct proc_result list = CLI("token", "list", "--no-headers");
    fixture_assert_contains(list.out, id);
    fixture_assert_contains(list.out, "1/1");
    struct err why = joiner_try(token, "");
    cr_assert_eq(why.code, ERR_UNAUTHENTICATED, "%s", why.text);
    cr_assert_eq(AUDIT_COUNT("\"certificate.issue\"", "joined with token"), 1);
}

static void assert_tidy(const struct sandbox_processes *box)
{
    cr_assert_neq(access(box->token, F_OK), 0, "the token is still there");
    cr_assert_neq(access(fixture_path(BOX ".pending"), F_OK), 0, "the attempt is still there");
    (void)joiner_certificate_end(box->identity);
}

/* Enrolment. */

static void kill_agent_at(const char *point)
{
    struct sandbox_processes *box = NULL;
    MUST(cluster_add_sandbox(fixture(), BOX, &box, err));
    CLEANUP_FREE char *token = joiner_read(BOX ".token");
    arm(box->link, point);
    MUST(sandbox_start_runner(box, err));
    MUST(service_start(box->link, err));
    wait_killed(box->link);
    MUST(sandbox_start_link(box, err));
    assert_serves();
    assert_tidy(box);
    assert_used_once(token);
}

#define AGENT_DIES(name, point)                                                                    \
    Test(failpoints, name)                                                                         \
    {                                                                                              \
        kill_agent_at(point);                                                                      \
    }

AGENT_DIES(an_agent_that_dies_before_it_began_joins, "enroll.start")
AGENT_DIES(an_agent_that_dies_with_a_key_and_no_answer_joins, "enroll.key-saved")
AGENT_DIES(an_agent_that_dies_with_an_answer_that_is_not_on_disk_joins, "enroll.answered")
AGENT_DIES(an_agent_that_dies_with_its_identity_in_place_is_one, "enroll.installed")
AGENT_DIES(an_agent_that_dies_after_it_removed_its_token_is_one, "enroll.token-removed")
AGENT_DIES(an_agent_that_dies_at_the_very_end_is_one, "enroll.pending-removed")

/* One after the other, each start dying one step further than the last. */
Test(failpoints, an_agent_that_dies_at_every_step_joins_with_its_first_key)
{
    static const char *const points[] = { "enroll.start", "enroll.key-saved", "enroll.answered",
                                          "enroll.answered", "enroll.installed" };
    struct sandbox_processes *box = NULL;
    MUST(cluster_add_sandbox(fixture(), BOX, &box, err));
    CLEANUP_FREE char *token = joiner_read(BOX ".token");
    MUST(sandbox_start_runner(box, err));
    for (size_t i = 0; i < ELEMENTS(points); i++) {
        arm(box->link, points[i]);
        MUST(service_start(box->link, err));
        wait_killed(box->link);
    }
    MUST(sandbox_start_link(box, err));
    assert_serves();
    assert_tidy(box);
    assert_used_once(token);
    cr_assert_eq(AUDIT_COUNT("\"certificate.issue\"", "asked again with the same key"), 2);
}

/* The orchestrator dies; the agent's own attempt fails and is made again. */
static void kill_orchestrator_at(const char *point)
{
    struct sandbox_processes *box = NULL;
    struct service *orchestrator = fixture()->orchestrator;
    MUST(cluster_add_sandbox(fixture(), BOX, &box, err));
    CLEANUP_FREE char *token = joiner_read(BOX ".token");
    MUST(service_stop(orchestrator, err));
    arm(orchestrator, point);
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_start_runner(box, err));
    MUST(service_start(box->link, err));
    wait_killed(orchestrator);
    MUST(cluster_start_orchestrator(fixture(), err));
    MUST(sandbox_wait_online(box, err));
    assert_serves();
    assert_tidy(box);
    assert_used_once(token);
    CLEANUP_RESULT struct proc_result whole = CLI("audit", "--verify");
    cr_assert_eq(whole.status, 0, "%s", whole.err);
}

Test(failpoints, an_orchestrator_that_dies_before_it_commits_burns_no_token)
{
    kill_orchestrator_at("enroll.work");
    cr_assert_eq(AUDIT_COUNT("\"certificate.issue\"", "asked again"), 0);
}

Test(failpoints, an_orchestrator_that_dies_before_its_answer_gives_it_to_the_same_key_again)
{
    kill_orchestrator_at("enroll.stored");
    cr_assert_eq(AUDIT_COUNT("\"certificate.issue\"", "asked again with the same key"), 1);
}

Test(failpoints, another_key_gets_nothing_where_the_first_lost_its_answer)
{
    struct service *orchestrator = fixture()->orchestrator;
    CLEANUP_FREE char *token = JOIN_TOKEN("--sandbox", BOX);
    CLEANUP_KEY_PEM char *first = NULL;
    CLEANUP_FRONT_CERTIFICATE struct front_certificate lost = { 0 }, answer = { 0 };
    struct err why = { 0 };
    MUST(csr_key_new(&first, err));
    MUST(service_stop(orchestrator, err));
    arm(orchestrator, "enroll.stored");
    MUST(cluster_start_orchestrator(fixture(), err));
    cr_assert_lt(joiner_join(token, first, "", &lost, &why), 0);
    cr_assert_eq(why.code, ERR_UNAVAILABLE, "%s", why.text);
    wait_killed(orchestrator);
    MUST(cluster_start_orchestrator(fixture(), err));
    cr_assert_eq(joiner_try(token, "").code, ERR_UNAUTHENTICATED);
    MUST(joiner_join(token, first, "", &answer, err));
    MUST(csr_check_answer(first, answer.certificate, answer.ca, err));
}

/* A person's login is the same. */
Test(failpoints, a_login_whose_answer_was_lost_is_answered_again)
{
    static const char *const points[] = { "enroll.work", "enroll.stored" };
    struct service *orchestrator = fixture()->orchestrator;
    for (size_t i = 0; i < ELEMENTS(points); i++) {
        char name[16], file[32];
        (void)snprintf(name, sizeof(name), "op-%zu", i);
        (void)snprintf(file, sizeof(file), "%s.login", name);
        CLEANUP_RESULT struct proc_result made =
            CLI("client", "add", name, "--role", "operator", "--out", fixture_path(file));
        cr_assert_eq(made.status, 0, "%s", made.err);
        CLEANUP_FREE char *login = joiner_read(file), *csr = NULL;
        CLEANUP_KEY_PEM char *key = NULL;
        CLEANUP_FRONT_CERTIFICATE struct front_certificate lost = { 0 }, answer = { 0 };
        MUST(csr_key_new(&key, err));
        MUST(csr_new(key, &csr, err));
        MUST(service_stop(orchestrator, err));
        arm(orchestrator, points[i]);
        MUST(cluster_start_orchestrator(fixture(), err));
        cr_assert_lt(
            front_login(joiner_endpoint(), joiner_ca(), login, csr, FRONT_TIMEOUT_MS, &lost, NULL),
            0);
        wait_killed(orchestrator);
        MUST(cluster_start_orchestrator(fixture(), err));
        MUST(front_login(joiner_endpoint(), joiner_ca(), login, csr, FRONT_TIMEOUT_MS, &answer,
                         err));
        cr_assert_str_eq(answer.name, name);
    }
}

/* Renewal. */

static void kill_renewal_at(const char *point)
{
    struct sandbox_processes *box = fixture_box();
    MUST(service_stop(box->link, err));
    arm(box->link, point);
    MUST(service_start(box->link, err));
    wait_killed(box->link);
    (void)joiner_certificate_end(box->identity);
    MUST(sandbox_start_link(box, err));
    (void)joiner_certificate_end(box->identity);
    assert_serves();
    MUST(service_wait_log(box->link, "certificate renewed", PROC_DEADLINE_US, err));
    assert_serves();
}

Test(failpoints_renewal, an_agent_that_dies_with_a_renewed_certificate_in_its_hands_goes_on)
{
    kill_renewal_at("renew.answered");
}

Test(failpoints_renewal, an_agent_that_dies_with_a_renewed_certificate_in_place_goes_on)
{
    kill_renewal_at("renew.installed");
}

/* The same where it came too late for its own stream. */
static void kill_late_renewal_at(const char *point)
{
    struct sandbox_processes *box = fixture_box();
    MUST(service_stop(box->link, err));
    fixture_wait_time(joiner_certificate_end(box->identity));
    arm(box->link, point);
    MUST(service_start(box->link, err));
    wait_killed(box->link);
    (void)joiner_certificate_end(box->identity);
    MUST(sandbox_start_link(box, err));
    assert_serves();
}

Test(failpoints_renewal, an_agent_that_dies_with_a_late_certificate_in_its_hands_goes_on)
{
    kill_late_renewal_at("renew.answered");
}

Test(failpoints_renewal, an_agent_that_dies_with_a_late_certificate_in_place_goes_on)
{
    kill_late_renewal_at("renew.installed");
}
