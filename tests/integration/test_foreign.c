/* A client that is none of ours: `buf curl`, written in Go, with nothing but reflection and a
 * certificate. Skipped, with a word, where buf is not installed (`make deps` installs it). */
#include "tests/harness/fixture.h"

#include <stdio.h>
#include <string.h>

TestSuite(foreign, .init = fixture_start, .fini = fixture_stop);

static const char *find_buf(void)
{
    const char *buf = getenv("BUF");
    if (!buf || !*buf)
        buf = FOREIGN_BUF;
    if (access(buf, X_OK) == 0)
        return buf;
    cr_skip("there is no %s; install it with npm in tests/proto, or set BUF", buf);
    return NULL;
}

/* buf curl with the admin's certificate; `more` begins with options and ends with NULL. */
static struct proc_result run_buf(const char *const *more)
{
    static char ca[160], cert[160], key[160], url[128];
    const char *argv[32] = { find_buf(), "curl",   "--protocol", "grpc",  "--cacert",
                             ca,         "--cert", cert,         "--key", key };
    unsigned count = 10;
    char endpoint[64];
    (void)snprintf(ca, sizeof(ca), "%s/ca.pem", fixture()->admin);
    (void)snprintf(cert, sizeof(cert), "%s/cert.pem", fixture()->admin);
    (void)snprintf(key, sizeof(key), "%s/key.pem", fixture()->admin);
    while (*more)
        argv[count++] = *more++;
    cluster_endpoint(fixture(), endpoint, sizeof(endpoint));
    (void)snprintf(url, sizeof(url), "https://%s%s", endpoint, argv[count - 1]);
    argv[count - 1] = url;
    const struct proc_spec spec = { .argv = argv, .env = (const char *[]){ "HOME=/tmp", NULL } };
    struct proc_result result = { 0 };
    MUST(proc_run(&spec, NULL, 0, PROC_DEADLINE_US, &result, err));
    return result;
}
#define BUF(...) run_buf((const char *[]){ __VA_ARGS__, NULL })

Test(foreign, lists_the_services_by_reflection)
{
    CLEANUP_RESULT struct proc_result run = BUF("--list-services", "");
    cr_assert_eq(run.status, 0, "%s", run.err);
    fixture_assert_contains(run.out, "sandstorm.v1.SandboxService");
    fixture_assert_contains(run.out, "sandstorm.v1.CommandService");
    fixture_assert_contains(run.out, "sandstorm.v1.LinkService");
    fixture_assert_contains(run.out, "grpc.health.v1.Health");
}

Test(foreign, lists_the_sandboxes)
{
    CLEANUP_RESULT struct proc_result run =
        BUF("--data", "{}", "/sandstorm.v1.SandboxService/ListSandboxes");
    cr_assert_eq(run.status, 0, "%s", run.err);
    fixture_assert_contains(run.out, "\"" BOX "\"");
    fixture_assert_contains(run.out, "SANDBOX_STATE_ONLINE");
}

Test(foreign, asks_for_the_health)
{
    CLEANUP_RESULT struct proc_result run = BUF("--data", "{}", "/grpc.health.v1.Health/Check");
    cr_assert_eq(run.status, 0, "%s", run.err);
    fixture_assert_contains(run.out, "SERVING");
}

Test(foreign, runs_a_command)
{
    CLEANUP_RESULT struct proc_result run = BUF(
        "--data", "{\"open\":{\"sandboxId\":\"" BOX "\",\"spec\":{\"shell\":\"echo hi; exit 6\"}}}",
        "/sandstorm.v1.CommandService/Exec");
    cr_assert_eq(run.status, 0, "%s", run.err);
    fixture_assert_contains(run.out, "\"aGkK\""); /* hi and a newline, in base64 */
    fixture_assert_contains(run.out, "\"code\": 6");
}

Test(foreign, is_told_what_it_asked_wrongly)
{
    CLEANUP_RESULT struct proc_result run =
        BUF("--data", "{\"id\":\"nobody\"}", "/sandstorm.v1.SandboxService/GetSandbox");
    cr_assert_neq(run.status, 0);
    fixture_assert_contains(run.err, "not_found");
    fixture_assert_contains(run.err, "there is no sandbox");
}
