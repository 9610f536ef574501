/* When a context's certificate is renewed, and what happens when that fails: the point in its life,
 * the lock, and whom a failure stops. The wall clock below shadows libc's in this binary, so that a
 * certificate can be made to have expired. Where it shall fail, nobody listens. */
#include "cli/renew.h"
#include "cli/text.h"
#include "common/csr.h"
#include "common/file.h"
#include "sandstorm/v1/admin.pb-c.h"
#include "tests/unit/client_fixture.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#define NOBODY "127.0.0.1:1"

static time_t ahead_s;

int clock_gettime(clockid_t id, struct timespec *now)
{
    long r = syscall(SYS_clock_gettime, id, now);
    if (id == CLOCK_REALTIME)
        now->tv_sec += ahead_s;
    return (int)r;
}

static char home[] = "/tmp/test-renew-XXXXXX";
static struct err err;
static struct context context;

#define OK(call) cr_assert_eq((call), 0, "%s", err.text)
#define CONTAINS(text, part)                                                                       \
    cr_assert(strstr((text), (part)), "\"%s\" lacks \"%s\"", (text), (part))

static void set_up(void)
{
    cr_assert(mkdtemp(home));
    (void)unsetenv("XDG_CONFIG_HOME");
    cr_assert_eq(setenv("HOME", home, 1), 0);
    cr_redirect_stderr();
}

static void tear_down(void)
{
    char command[64];
    context_done(&context);
    (void)snprintf(command, sizeof(command), "rm -rf %s", home);
    cr_assert_eq(system(command), 0);
}

/* cppcheck-suppress unknownMacro */
TestSuite(renew, .init = set_up, .fini = tear_down, .timeout = 60);

/* A context whose certificate is good for an hour and `age_s` old. */
static void log_in(time_t age_s)
{
    char path[64];
    CLEANUP_CA struct ca *ca = NULL;
    (void)snprintf(path, sizeof(path), "%s/ca", home);
    OK(ca_create(path, "test.example.com", &err));
    OK(ca_open(path, &ca, &err));
    OK(context_make("one", NOBODY, NOBODY, &context, &err));
    OK(context_save(&context, &err));
    OK(ca_issue_peer(ca, context.identity_dir, IDENTITY_CLIENT, "alice", 3600, &err));
    ahead_s = age_s;
}

static char *read_cert(void)
{
    char path[256];
    char *text = NULL;
    size_t size;
    (void)snprintf(path, sizeof(path), "%s/cert.pem", context.identity_dir);
    OK(file_read(path, 65536, &text, &size, &err));
    return text;
}

static void expect_silence(void)
{
    (void)fflush(stderr);
    FILE *said = cr_get_redirected_stderr();
    char text[64] = "";
    (void)fcntl(fileno(said), F_SETFL, O_NONBLOCK);
    cr_assert_eq(fread(text, 1, sizeof(text) - 1, said), 0u, "%s", text);
}

static size_t hear(char *text, size_t size)
{
    (void)fflush(stderr);
    FILE *said = cr_get_redirected_stderr();
    (void)fcntl(fileno(said), F_SETFL, O_NONBLOCK);
    size_t used = fread(text, 1, size - 1, said);
    text[used] = '\0';
    return used;
}

Test(renew, the_point_is_between_60_and_80_per_cent_and_stays_where_it_is)
{
    int64_t low = INT64_MAX, high = 0;
    char path[64], dir[64];
    CLEANUP_CA struct ca *ca = NULL;
    (void)snprintf(path, sizeof(path), "%s/ca", home);
    OK(ca_create(path, "test.example.com", &err));
    OK(ca_open(path, &ca, &err));
    for (unsigned i = 0; i < 40; i++) {
        CLEANUP(rpc_creds_clear) struct rpc_creds creds = { 0 };
        struct rpc_creds_times once, again;
        (void)snprintf(dir, sizeof(dir), "%s/%u", home, i);
        OK(ca_issue_peer(ca, dir, IDENTITY_CLIENT, "alice", 86400, &err));
        OK(rpc_creds_load(dir, &creds, &err));
        OK(rpc_creds_times(&creds, &once, &err));
        OK(rpc_creds_times(&creds, &again, &err));
        cr_assert_eq(once.due_ms, again.due_ms);
        int64_t permille = 1000 - (once.end_ms - once.due_ms) / 86400;
        cr_assert(permille >= 600 && permille <= 801, "%lld", (long long)permille);
        low = permille < low ? permille : low;
        high = permille > high ? permille : high;
    }
    cr_assert(high - low > 50, "they all fall together: %lld to %lld", (long long)low,
              (long long)high);
}

#define FLEET 2000u
#define BINS  20u

/* FAULTS A16, for the choice itself: enrolled in one second, renewed over a fifth of the day. */
Test(renew, a_fleet_that_enrolled_together_renews_spread_out)
{
    CLEANUP_KEY_PEM char *key = NULL;
    CLEANUP_FREE char *csr = NULL;
    CLEANUP_CA_REQUEST struct ca_request *request = NULL;
    CLEANUP_CA struct ca *ca = NULL;
    unsigned bins[BINS] = { 0 };
    char path[64];
    (void)snprintf(path, sizeof(path), "%s/ca", home);
    OK(ca_create(path, "test.example.com", &err));
    OK(ca_open(path, &ca, &err));
    OK(csr_key_new(&key, &err));
    OK(csr_new(key, &csr, &err));
    OK(ca_request_parse(csr, strlen(csr), &request, &err));
    for (unsigned i = 0; i < FLEET; i++) {
        CLEANUP_FREE char *pem = NULL;
        int64_t not_after;
        struct rpc_creds_times times;
        OK(ca_sign_peer(ca, request, IDENTITY_AGENT, "s", 86400, &pem, &not_after, &err));
        const struct rpc_creds creds = { .cert = pem };
        OK(rpc_creds_times(&creds, &times, &err));
        int64_t permille = 1000 - (times.end_ms - times.due_ms) / 86400;
        cr_assert(permille >= 600 && permille <= 801);
        bins[MIN((permille - 600) * BINS / 201, BINS - 1)]++;
    }
    for (unsigned i = 0; i < BINS; i++)
        cr_expect_lt(bins[i], 3 * FLEET / BINS, "%u of %u fall together", bins[i], FLEET);
}

Test(renew, what_is_no_certificate_has_no_times)
{
    struct rpc_creds_times times;
    char nothing[] = "nothing";
    const struct rpc_creds creds = { .cert = nothing };
    cr_assert_eq(rpc_creds_times(&creds, &times, &err), -1);
    cr_assert_eq(err.code, ERR_INVALID);
}

Test(renew, a_young_certificate_is_left_alone)
{
    log_in(0);
    OK(renew_if_due(&context, &err));
    expect_silence();
}

Test(renew, a_renewal_that_fails_is_one_warning_while_the_certificate_is_good)
{
    char text[1024];
    log_in(3000);
    CLEANUP_FREE char *before = read_cert();
    OK(renew_if_due(&context, &err));
    cr_assert_gt(hear(text, sizeof(text)), 0u);
    CONTAINS(text, "could not be renewed yet");
    cr_assert_eq(strchr(text, '\n'), text + strlen(text) - 1, "more than one line: %s", text);
    CLEANUP_FREE char *after = read_cert();
    cr_assert_str_eq(before, after);
}

Test(renew, who_comes_second_goes_on_with_a_good_certificate)
{
    log_in(3000);
    CLEANUP_FD int other = open(context.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert_eq(flock(other, LOCK_EX), 0);
    OK(renew_if_due(&context, &err));
    expect_silence();
}

Test(renew, an_expired_certificate_that_cannot_be_renewed_stops_the_verb)
{
    log_in(3601);
    cr_assert_eq(renew_if_due(&context, &err), -1);
    cr_assert_eq(err.code, ERR_UNAVAILABLE, "%s", err.text);
    CONTAINS(err.text, "has expired");
    CONTAINS(err.text, "\"one\"");
    expect_silence();
}

Test(renew, a_context_without_an_identity_is_named)
{
    OK(context_make("one", NOBODY, NOBODY, &context, &err));
    OK(context_save(&context, &err));
    cr_assert_eq(renew_if_due(&context, &err), -1);
    CONTAINS(err.text, "contexts/one/identity");
}

/* With somebody who answers. */

static struct service service;
static unsigned renewals;
static bool wrong_ca;

static int renew_certificate(void *userdata, struct rpc_call *call, const ProtobufCMessage *message,
                             struct err *why)
{
    (void)userdata;
    const char *csr = ((const Sandstorm__V1__RenewCertificateRequest *)message)->csr_pem;
    CLEANUP_CA_REQUEST struct ca_request *request = NULL;
    CLEANUP_FREE char *cert = NULL;
    int64_t not_after;
    Sandstorm__V1__RenewCertificateResponse response =
        SANDSTORM__V1__RENEW_CERTIFICATE_RESPONSE__INIT;
    renewals++;
    if (ca_request_parse(csr, strlen(csr), &request, why) < 0 ||
        ca_sign_peer(service.ca, request, IDENTITY_CLIENT, "alice", 86400, &cert, &not_after, why) <
            0)
        return -1;
    response.certificate_pem = cert;
    response.ca_pem = wrong_ca ? cert : (char *)ca_bundle(service.ca);
    return rpc_call_send(call, &response.base, why);
}

static const struct rpc_method methods[] = {
    { .path = "/sandstorm.v1.IdentityService/RenewCertificate",
      .request = &sandstorm__v1__renew_certificate_request__descriptor,
      .unary = renew_certificate },
    { .path = NULL },
};

static void serve(void)
{
    service = (struct service){ .methods = methods };
    (void)snprintf(service.dir, sizeof(service.dir), "%s/service", home);
    cr_assert_eq(mkdir(service.dir, 0700), 0);
    service_start(&service);
    OK(context_make("one", service.endpoint, NOBODY, &context, &err));
    OK(context_save(&context, &err));
    OK(ca_issue_peer(service.ca, context.identity_dir, IDENTITY_CLIENT, "alice", 3600, &err));
    ahead_s = 3000;
}

Test(renew, a_certificate_that_is_due_is_renewed_for_the_same_key_once)
{
    char path[256];
    CLEANUP_FREE char *key = NULL, *same_key = NULL;
    size_t size;
    serve();
    CLEANUP_FREE char *before = read_cert();
    (void)snprintf(path, sizeof(path), "%s/key.pem", context.identity_dir);
    OK(file_read(path, 65536, &key, &size, &err));
    OK(renew_if_due(&context, &err));
    OK(renew_if_due(&context, &err));
    expect_silence();
    service_stop(&service);
    cr_assert_eq(renewals, 1u);
    CLEANUP_FREE char *after = read_cert();
    cr_assert_str_neq(before, after);
    OK(file_read(path, 65536, &same_key, &size, &err));
    cr_assert_str_eq(key, same_key);
    CLEANUP(rpc_creds_clear) struct rpc_creds creds = { 0 };
    OK(rpc_creds_load(context.identity_dir, &creds, &err));
    OK(rpc_creds_check(&creds, &err));
}

Test(renew, an_answer_that_does_not_fit_is_not_put_in_place)
{
    char text[1024];
    serve();
    wrong_ca = true;
    CLEANUP_FREE char *before = read_cert();
    OK(renew_if_due(&context, &err));
    service_stop(&service);
    CLEANUP_FREE char *after = read_cert();
    cr_assert_str_eq(before, after);
    cr_assert_gt(hear(text, sizeof(text)), 0u);
    CONTAINS(text, "could not be renewed yet");
}
