/* `sandstorm login` and the renewal of an expired certificate against a front of the test's own:
 * the context that comes out, the key that a retry uses again, and what is left when it is refused.
 */
#include "cli/cli.h"
#include "cli/renew.h"
#include "common/clock.h"
#include "common/rpc_creds.h"
#include "tests/unit/https_fixture.h"

#include <criterion/redirect.h>
#include <jansson.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define HEX64     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define LOGIN_KEY "sslogin_0123456789ab_" HEX64
#define NOBODY    "127.0.0.1:1"

static time_t ahead_s;

int clock_gettime(clockid_t id, struct timespec *now)
{
    long r = syscall(SYS_clock_gettime, id, now);
    if (id == CLOCK_REALTIME)
        now->tv_sec += ahead_s;
    return (int)r;
}

static char home[] = "/tmp/test-login-XXXXXX";
static struct https_server server;
static struct ca *ca;
static struct err err;
static uint8_t keys[8][CA_KEY_LEN];
static unsigned asked;
static enum { ANSWER, CUT, REFUSE } script;

static void sign(const char *field, const char *csr, uint64_t lifetime_s, struct https_reply *reply)
{
    CLEANUP_CA_REQUEST struct ca_request *request = NULL;
    CLEANUP_FREE char *cert = NULL;
    int64_t not_after;
    OK(ca_request_parse(csr, strlen(csr), &request, &err));
    (void)memcpy(keys[asked++ % 8], ca_request_key(request), CA_KEY_LEN);
    OK(ca_sign_peer(ca, request, IDENTITY_CLIENT, "alice", lifetime_s, &cert, &not_after, &err));
    json_t *json = json_pack("{s:s, s:s, s:s, s:I, s:I}", field, "alice", "certificate", cert, "ca",
                             ca_bundle(ca), "not_after_unix_ms", (json_int_t)not_after * 1000,
                             "server_unix_ms", (json_int_t)1000);
    CLEANUP_FREE char *text = json_dumps(json, 0);
    json_decref(json);
    https_reply_json(reply, 200, text);
}

static void handle(void *userdata, const struct https_request *request, struct https_reply *reply)
{
    (void)userdata;
    json_t *body = json_loads(request->body, 0, NULL);
    const char *csr = json_string_value(json_object_get(body, "csr"));
    if (strcmp(request->path, "GET /v1/ca") == 0) {
        json_t *json =
            json_pack("{s:s, s:I}", "ca", ca_bundle(ca), "server_unix_ms", (json_int_t)1000);
        CLEANUP_FREE char *text = json_dumps(json, 0);
        json_decref(json);
        https_reply_json(reply, 200, text);
    } else if (script == REFUSE) {
        https_reply_json(reply, 403, "{\"error\":{\"code\":\"denied\",\"message\":\"too late\"}}");
    } else if (strcmp(request->path, "POST /v1/login") == 0) {
        cr_assert_str_eq(json_string_value(json_object_get(body, "key")), LOGIN_KEY);
        sign("client", csr, 60, reply);
    } else {
        sign("name", csr, 86400, reply);
    }
    if (script == CUT && csr) {
        free(reply->bytes);
        *reply = (struct https_reply){ .reset = true };
    }
    json_decref(body);
}

static void set_up(void)
{
    static const char *const names[] = { "127.0.0.1" };
    cr_assert(mkdtemp(home) && chdir(home) == 0);
    (void)unsetenv("XDG_CONFIG_HOME");
    cr_assert_eq(setenv("HOME", home, 1), 0);
    cr_redirect_stdout();
    cr_redirect_stderr();
    OK(ca_create("ca", "test.example.com", &err));
    OK(ca_open("ca", &ca, &err));
    OK(ca_issue_server(ca, "server", names, 1, 7200, &err));
    server.tls = SSL_CTX_new(TLS_server_method());
    cr_assert(server.tls &&
              SSL_CTX_use_certificate_file(server.tls, "server/cert.pem", SSL_FILETYPE_PEM) == 1 &&
              SSL_CTX_use_PrivateKey_file(server.tls, "server/key.pem", SSL_FILETYPE_PEM) == 1);
    server.handle = handle;
    https_start(&server);
}

static void tear_down(void)
{
    char command[64];
    https_stop(&server);
    ca_free(ca);
    (void)snprintf(command, sizeof(command), "rm -rf %s", home);
    cr_assert_eq(system(command), 0);
}

/* cppcheck-suppress unknownMacro */
TestSuite(login, .init = set_up, .fini = tear_down, .timeout = 60);

static int log_in(const char *fingerprint)
{
    cr_assert_eq(setenv("SANDSTORM_LOGIN_KEY", LOGIN_KEY, 1), 0);
    const char *const argv[] = { "sandstorm",         "login",         NOBODY,
                                 "--enroll-endpoint", server.endpoint, "--ca-fingerprint",
                                 fingerprint,         "--context",     "one" };
    return cli_run(&cli_root, ELEMENTS(argv), (char **)argv);
}

static size_t hear(FILE *said, char *text, size_t size)
{
    (void)fflush(NULL);
    (void)fcntl(fileno(said), F_SETFL, O_NONBLOCK);
    size_t used = fread(text, 1, size - 1, said);
    text[used] = '\0';
    return used;
}

static bool there(const char *below)
{
    char path[256];
    struct stat st;
    (void)snprintf(path, sizeof(path), ".config/sandstorm/contexts/one/%s", below);
    return stat(path, &st) == 0;
}

static struct context load(void)
{
    struct context context = { 0 };
    OK(context_load("one", &context, &err));
    return context;
}

Test(login, a_login_key_becomes_a_context_with_a_certificate)
{
    char text[512];
    cr_assert_eq(log_in(ca_fingerprint(ca)), 0);
    CLEANUP_CONTEXT struct context context = load();
    CLEANUP(rpc_creds_clear) struct rpc_creds creds = { 0 };
    struct identity identity;
    int64_t end;
    cr_assert_str_eq(context.endpoint, NOBODY);
    cr_assert_str_eq(context.enroll_endpoint, server.endpoint);
    OK(rpc_creds_load(context.identity_dir, &creds, &err));
    OK(rpc_creds_check(&creds, &err));
    OK(rpc_creds_identity(&creds, &identity, &end, &err));
    cr_assert_str_eq(identity.name, "alice");
    cr_assert_not(there("identity.pending"));
    (void)hear(cr_get_redirected_stdout(), text, sizeof(text));
    cr_assert(strstr(text, "as alice"), "%s", text);
    cr_assert_null(strstr(text, "sslogin_"));
}

Test(login, a_retry_after_a_lost_answer_uses_the_same_key)
{
    script = CUT;
    cr_assert_eq(log_in(ca_fingerprint(ca)), 1);
    cr_assert(there("identity.pending/key.pem"));
    cr_assert_not(there("identity"));
    cr_assert_not(there("context.yaml"));
    script = ANSWER;
    cr_assert_eq(log_in(ca_fingerprint(ca)), 0);
    cr_assert_eq(asked, 2u);
    cr_assert_eq(memcmp(keys[0], keys[1], CA_KEY_LEN), 0);
    cr_assert_not(there("identity.pending"));
}

Test(login, the_next_login_has_a_key_of_its_own)
{
    cr_assert_eq(log_in(ca_fingerprint(ca)), 0);
    cr_assert_eq(log_in(ca_fingerprint(ca)), 0);
    cr_assert_eq(asked, 2u);
    cr_assert_neq(memcmp(keys[0], keys[1], CA_KEY_LEN), 0);
}

Test(login, nothing_secret_goes_to_a_stranger)
{
    char text[1024];
    cr_assert_eq(log_in("sha256:" HEX64), 1);
    (void)hear(cr_get_redirected_stderr(), text, sizeof(text));
    cr_assert(strstr(text, "sha256:" HEX64), "%s", text);
    cr_assert_eq(asked, 0u);
    cr_assert_not(there(""));
}

Test(login, a_refusal_is_told_and_leaves_no_context)
{
    char text[1024];
    script = REFUSE;
    cr_assert_eq(log_in(ca_fingerprint(ca)), 1);
    (void)hear(cr_get_redirected_stderr(), text, sizeof(text));
    cr_assert(strstr(text, "too late"), "%s", text);
    cr_assert_not(there("context.yaml"));
}

Test(login, an_expired_certificate_is_renewed_at_the_front)
{
    struct rpc_creds_times times;
    CLEANUP(rpc_creds_clear) struct rpc_creds creds = { 0 };
    cr_assert_eq(log_in(ca_fingerprint(ca)), 0);
    CLEANUP_CONTEXT struct context context = load();
    ahead_s = 3600;
    OK(renew_if_due(&context, &err));
    cr_assert_eq(asked, 2u);
    cr_assert_eq(memcmp(keys[0], keys[1], CA_KEY_LEN), 0);
    OK(rpc_creds_load(context.identity_dir, &creds, &err));
    OK(rpc_creds_times(&creds, &times, &err));
    cr_assert_gt(times.end_ms, wall_ms());
}

Test(login, beyond_the_window_a_new_login_key_is_needed)
{
    cr_assert_eq(log_in(ca_fingerprint(ca)), 0);
    CLEANUP_CONTEXT struct context context = load();
    ahead_s = 3600;
    script = REFUSE;
    cr_assert_eq(renew_if_due(&context, &err), -1);
    cr_assert_eq(err.code, ERR_DENIED, "%s", err.text);
    cr_assert(strstr(err.text, "too late") && strstr(err.text, "new login key"), "%s", err.text);
}
