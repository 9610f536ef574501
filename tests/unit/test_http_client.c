/* One HTTPS request against servers of every kind: good ones, slow ones, broken ones and ones that
 * are not who they should be, which may not see a byte of the request. */
#include "common/http_client.h"
#include "tests/unit/https_fixture.h"

#include <fcntl.h>
#include <sys/resource.h>

#define SECRET "{\"token\":\"a-secret\"}"

static struct https_pki pki;
static struct https_server server;
static struct err err;

static void set_up(void)
{
    https_pki_new(&pki, "127.0.0.1");
}

static void tear_down(void)
{
    https_pki_done(&pki);
}

/* cppcheck-suppress unknownMacro */
TestSuite(http_client, .init = set_up, .fini = tear_down, .timeout = 50);

static void answer_ok(void *userdata, const struct https_request *request,
                      struct https_reply *reply)
{
    (void)userdata;
    (void)request;
    https_reply_json(reply, 200, "{\"a\":1}");
}

static void serve(void (*handle)(void *, const struct https_request *, struct https_reply *))
{
    server.tls = https_tls(pki.cert, pki.key);
    server.handle = handle;
    https_start(&server);
}

static int ask(const char *endpoint, const char *ca_pem, const char *body, int timeout_ms,
               struct http_answer *ret)
{
    const struct http_request request = { .endpoint = endpoint,
                                          .path = "/v1/thing?x=1",
                                          .body = body,
                                          .ca_pem = ca_pem,
                                          .timeout_ms = timeout_ms };
    return http_client_run(&request, ret, &err);
}

static void expect_answer(int status, const char *body)
{
    CLEANUP_ANSWER struct http_answer answer = { 0 };
    OK(ask(server.endpoint, pki.ca_pem, SECRET, 15000, &answer));
    cr_expect_eq(answer.status, status, "%d", answer.status);
    cr_expect_str_eq(answer.body, body);
    cr_expect_eq(answer.size, strlen(body));
}

static void expect_failure(const char *ca_pem, int timeout_ms, enum err_code code, const char *word)
{
    struct http_answer answer = { .status = 77 };
    cr_assert_eq(ask(server.endpoint, ca_pem, SECRET, timeout_ms, &answer), -1);
    cr_expect_eq(err.code, code, "%s", err.text);
    cr_expect(strstr(err.text, word), "%s", err.text);
    cr_expect_eq(answer.status, 77, "written on success only");
}

/* For servers that may not see the request. */
static void expect_refusal(const char *ca_pem, enum err_code code, const char *word)
{
    expect_failure(ca_pem, 5000, code, word);
    https_stop(&server);
    cr_expect_eq(atomic_load(&server.requests), 0, "a request was sent");
    cr_expect_str_eq(server.seen, "", "bytes were sent");
}

Test(http_client, a_post_brings_its_body_and_the_answer_comes_back)
{
    serve(answer_ok);
    expect_answer(200, "{\"a\":1}");
    https_stop(&server);
    cr_expect(strstr(server.seen, "POST /v1/thing?x=1 HTTP/1.1\r\n"), "%s", server.seen);
    cr_expect(strcasestr(server.seen, "\r\nhost: 127.0.0.1:"), "%s", server.seen);
    cr_expect(strcasestr(server.seen, "\r\ncontent-type: application/json\r\n"));
    cr_expect(strstr(server.seen, "\r\n\r\n" SECRET), "%s", server.seen);
}

Test(http_client, a_get_has_no_body)
{
    serve(answer_ok);
    CLEANUP_ANSWER struct http_answer answer = { 0 };
    OK(ask(server.endpoint, pki.ca_pem, NULL, 15000, &answer));
    cr_expect_str_eq(answer.body, "{\"a\":1}");
    https_stop(&server);
    cr_expect(strstr(server.seen, "GET /v1/thing?x=1 HTTP/1.1\r\n"), "%s", server.seen);
    cr_expect_null(strcasestr(server.seen, "content-length"));
}

static void echo_size(void *userdata, const struct https_request *request,
                      struct https_reply *reply)
{
    (void)userdata;
    char json[32];
    (void)snprintf(json, sizeof(json), "%zu", strlen(request->body));
    https_reply_json(reply, 200, json);
}

Test(http_client, a_large_body_arrives_whole)
{
    enum { SIZE = 60000 };
    static char body[SIZE + 1];
    (void)memset(body, 'b', SIZE);
    serve(echo_size);
    CLEANUP_ANSWER struct http_answer answer = { 0 };
    OK(ask(server.endpoint, pki.ca_pem, body, 15000, &answer));
    cr_expect_str_eq(answer.body, "60000");
    https_stop(&server);
}

static void answer_bytewise(void *userdata, const struct https_request *request,
                            struct https_reply *reply)
{
    answer_ok(userdata, request, reply);
    reply->step = 1;
}

Test(http_client, an_answer_in_single_bytes_is_put_together)
{
    serve(answer_bytewise);
    expect_answer(200, "{\"a\":1}");
    https_stop(&server);
}

static void answer_chunked(void *userdata, const struct https_request *request,
                           struct https_reply *reply)
{
    (void)userdata;
    (void)request;
    https_reply_raw(reply, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                           "3\r\nabc\r\n1\r\nd\r\nA\r\n0123456789\r\n0\r\n\r\n");
    reply->step = 7;
}

Test(http_client, a_chunked_answer_is_put_together)
{
    serve(answer_chunked);
    expect_answer(200, "abcd0123456789");
    https_stop(&server);
}

static void answer_large(void *userdata, const struct https_request *request,
                         struct https_reply *reply)
{
    (void)request;
    const size_t *size = userdata;
    char *body = malloc(*size + 1);
    cr_assert_not_null(body);
    (void)memset(body, 'x', *size);
    body[*size] = '\0';
    https_reply_json(reply, 200, body);
    free(body);
}

Test(http_client, an_answer_may_be_as_large_as_the_bound_and_no_larger)
{
    size_t size = HTTP_ANSWER_MAX;
    server.userdata = &size;
    serve(answer_large);
    CLEANUP_ANSWER struct http_answer answer = { 0 };
    OK(ask(server.endpoint, pki.ca_pem, NULL, 15000, &answer));
    cr_expect_eq(answer.size, size);
    cr_expect_eq(strspn(answer.body, "x"), size);
    size++;
    expect_failure(pki.ca_pem, 15000, ERR_PROTOCOL, "larger than 262144 bytes");
    https_stop(&server);
}

static void answer_status(void *userdata, const struct https_request *request,
                          struct https_reply *reply)
{
    (void)request;
    const int *status = userdata;
    https_reply_json(reply, *status, "{}");
}

Test(http_client, every_status_is_an_answer)
{
    static const int rows[] = { 200, 201, 400, 401, 403, 404, 409, 413, 429, 500, 503 };
    int status = 0;
    server.userdata = &status;
    serve(answer_status);
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        status = rows[i];
        expect_answer(rows[i], "{}");
    }
    https_stop(&server);
}

static void redirect(void *userdata, const struct https_request *request, struct https_reply *reply)
{
    const int *status = userdata;
    (void)request;
    https_reply_raw(reply,
                    "HTTP/1.1 %d Elsewhere\r\nLocation: https://%s/else\r\nContent-Length: "
                    "2\r\n\r\n{}",
                    *status, server.endpoint);
}

Test(http_client, a_redirect_is_not_followed)
{
    static const int rows[] = { 301, 302, 303, 307, 308 };
    int status = 0;
    server.userdata = &status;
    serve(redirect);
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        status = rows[i];
        expect_answer(rows[i], "{}");
    }
    https_stop(&server);
    cr_expect_eq(atomic_load(&server.requests), ELEMENTS(rows));
}

static void hang(void *userdata, const struct https_request *request, struct https_reply *reply)
{
    (void)userdata;
    (void)request;
    reply->hang = true;
}

Test(http_client, a_server_without_an_answer_ends_at_the_deadline)
{
    serve(hang);
    expect_failure(pki.ca_pem, 300, ERR_UNAVAILABLE, "did not answer in 300 ms");
    https_stop(&server);
}

static void hang_in_the_middle(void *userdata, const struct https_request *request,
                               struct https_reply *reply)
{
    answer_ok(userdata, request, reply);
    reply->size -= 3;
    reply->hang = true;
}

Test(http_client, an_answer_that_stops_ends_at_the_deadline)
{
    serve(hang_in_the_middle);
    expect_failure(pki.ca_pem, 300, ERR_UNAVAILABLE, "did not answer in 300 ms");
    https_stop(&server);
}

static void cut(void *userdata, const struct https_request *request, struct https_reply *reply)
{
    const size_t *left = userdata;
    answer_ok(NULL, request, reply);
    reply->size -= *left;
    reply->reset = true;
}

Test(http_client, an_answer_that_is_cut_is_none)
{
    size_t left = 1;
    server.userdata = &left;
    serve(cut);
    expect_failure(pki.ca_pem, 15000, ERR_UNAVAILABLE, "in the middle of the answer");
    left = 40; /* in the headers */
    expect_failure(pki.ca_pem, 15000, ERR_UNAVAILABLE, "no answer in HTTP");
    https_stop(&server);
}

static void endless(void *userdata, const struct https_request *request, struct https_reply *reply)
{
    (void)userdata;
    (void)request;
    https_reply_raw(reply, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}");
    reply->reset = true;
}

Test(http_client, an_answer_without_a_length_ends_with_the_connection)
{
    serve(endless);
    expect_answer(200, "{}");
    https_stop(&server);
}

static void babble(void *userdata, const struct https_request *request, struct https_reply *reply)
{
    (void)userdata;
    (void)request;
    https_reply_raw(reply, "220 mail.example.com ESMTP\r\n\r\n");
}

Test(http_client, an_answer_that_is_no_http_is_named)
{
    serve(babble);
    expect_failure(pki.ca_pem, 15000, ERR_UNAVAILABLE, "no answer in HTTP");
    https_stop(&server);
}

Test(http_client, a_server_of_another_ca_sees_nothing)
{
    struct https_pki other;
    https_pki_new(&other, "127.0.0.1");
    serve(answer_ok);
    expect_refusal(other.ca_pem, ERR_UNAVAILABLE, "not signed by our CA");
    https_pki_done(&other);
}

Test(http_client, any_ca_of_a_bundle_is_believed)
{
    struct https_pki other;
    https_pki_new(&other, "127.0.0.1");
    serve(answer_ok);
    for (unsigned first = 0; first < 2; first++) {
        CLEANUP_FREE char *bundle = NULL;
        cr_assert_geq(asprintf(&bundle, "%s%s", first ? pki.ca_pem : other.ca_pem,
                               first ? other.ca_pem : pki.ca_pem),
                      0);
        CLEANUP_ANSWER struct http_answer answer = { 0 };
        OK(ask(server.endpoint, bundle, NULL, 15000, &answer));
    }
    https_stop(&server);
    https_pki_done(&other);
}

Test(http_client, the_systems_cas_are_not_believed_beside_ours)
{
    struct https_pki other;
    https_pki_new(&other, "127.0.0.1");
    char path[] = "/tmp/test-http-client-XXXXXX";
    CLEANUP_FD int fd = mkostemp(path, O_CLOEXEC);
    cr_assert(fd >= 0 && write(fd, pki.ca_pem, strlen(pki.ca_pem)) > 0);
    cr_assert_eq(setenv("SSL_CERT_FILE", path, 1), 0);
    serve(answer_ok);
    expect_refusal(other.ca_pem, ERR_UNAVAILABLE, "not signed by our CA");
    (void)unlink(path);
    https_pki_done(&other);
}

Test(http_client, a_certificate_for_another_name_sees_nothing)
{
    static const char *const rows[] = { "localhost", "orchestrator.example.com", "127.0.0.2" };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        https_pki_issue(&pki, rows[i], 0, 3600);
        serve(answer_ok);
        expect_refusal(pki.ca_pem, ERR_UNAVAILABLE, "is not for \"127.0.0.1\"");
    }
}

Test(http_client, a_name_is_checked_as_a_name)
{
    char endpoint[64];
    const char *port;
    https_pki_issue(&pki, "localhost", 0, 3600);
    serve(answer_ok);
    port = strrchr(server.endpoint, ':');
    (void)snprintf(endpoint, sizeof(endpoint), "localhost%s", port);
    CLEANUP_ANSWER struct http_answer answer = { 0 };
    OK(ask(endpoint, pki.ca_pem, SECRET, 15000, &answer));
    https_stop(&server);

    https_pki_issue(&pki, "local.example.com", 0, 3600);
    server.seen[0] = '\0';
    serve(answer_ok);
    (void)snprintf(endpoint, sizeof(endpoint), "localhost%s", strrchr(server.endpoint, ':'));
    cr_assert_eq(ask(endpoint, pki.ca_pem, SECRET, 15000, &answer), -1);
    cr_expect(strstr(err.text, "is not for \"localhost\""), "%s", err.text);
    https_stop(&server);
    cr_expect_str_eq(server.seen, "");
}

Test(http_client, ipv6_works_and_is_checked)
{
    int probe = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    bool have = probe >= 0 && bind(probe, (struct sockaddr *)&any, sizeof(any)) == 0;
    close_fd(&probe);
    if (!have)
        cr_skip_test("no IPv6 here");
    https_pki_issue(&pki, "::1", 0, 3600);
    server.tls = https_tls(pki.cert, pki.key);
    server.handle = answer_ok;
    https_start_at(&server, "::1");
    expect_answer(200, "{\"a\":1}");
    https_stop(&server);
    server.seen[0] = '\0';
    atomic_store(&server.requests, 0);
    https_pki_issue(&pki, "::2", 0, 3600);
    server.tls = https_tls(pki.cert, pki.key);
    https_start_at(&server, "::1");
    expect_refusal(pki.ca_pem, ERR_UNAVAILABLE, "is not for \"::1\"");
}

Test(http_client, an_expired_certificate_is_a_question_of_clocks)
{
    https_pki_issue(&pki, "127.0.0.1", 3 * 3600, 3600);
    serve(answer_ok);
    expect_refusal(pki.ca_pem, ERR_UNAVAILABLE, "expired 2 h ago, or this machine's clock");
}

Test(http_client, a_certificate_of_the_future_is_a_question_of_clocks)
{
    https_pki_issue(&pki, "127.0.0.1", -5 * 86400L, 3600);
    serve(answer_ok);
    expect_refusal(pki.ca_pem, ERR_UNAVAILABLE, "clock is at least 4 days behind");
}

Test(http_client, without_a_ca_any_server_will_do)
{
    https_pki_issue(&pki, "elsewhere.example.com", 3 * 3600, 3600);
    serve(answer_ok);
    CLEANUP_ANSWER struct http_answer answer = { 0 };
    OK(ask(server.endpoint, NULL, NULL, 15000, &answer));
    cr_expect_str_eq(answer.body, "{\"a\":1}");
    https_stop(&server);
}

Test(http_client, a_port_that_speaks_no_tls_is_named)
{
    server.garbage = "SSH-2.0-OpenSSH_9.2\r\n";
    https_start(&server);
    expect_refusal(pki.ca_pem, ERR_UNAVAILABLE, "does not speak TLS");
    cr_expect(strstr(err.text, "another program's port"), "%s", err.text);
}

Test(http_client, a_port_that_says_nothing_ends_at_the_deadline)
{
    https_start(&server);
    expect_failure(pki.ca_pem, 300, ERR_UNAVAILABLE, "accepts connections but does not answer");
    https_stop(&server);
}

Test(http_client, a_port_where_nobody_listens_is_named)
{
    serve(answer_ok);
    https_stop(&server);
    expect_failure(pki.ca_pem, 15000, ERR_UNAVAILABLE, "nothing is listening on 127.0.0.1");
}

Test(http_client, what_is_no_endpoint_or_no_ca_is_said_before_anything_is_sent)
{
    struct http_answer answer;
    cr_assert_eq(ask("nonsense", NULL, NULL, 1000, &answer), -1);
    cr_expect_eq(err.code, ERR_INVALID);
    static const char *const rows[] = { "", "no certificate",
                                        "-----BEGIN CERTIFICATE-----\nAAAA\n" };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        cr_assert_eq(ask("127.0.0.1:1", rows[i], NULL, 1000, &answer), -1);
        cr_expect_eq(err.code, ERR_INVALID, "%s", err.text);
    }
}

Test(http_client, the_hosts_signals_and_proxy_do_not_matter)
{
    struct sigaction before = { .sa_handler = SIG_DFL }, after;
    sigset_t mask, pending;
    cr_assert_eq(sigaction(SIGPIPE, &before, NULL), 0);
    cr_assert_eq(setenv("http_proxy", "127.0.0.1:1", 1), 0);
    cr_assert_eq(setenv("https_proxy", "127.0.0.1:1", 1), 0);
    serve(answer_ok);
    expect_answer(200, "{\"a\":1}");
    https_stop(&server);
    cr_assert_eq(sigaction(SIGPIPE, NULL, &after), 0);
    cr_expect(after.sa_handler == SIG_DFL, "SIGPIPE is ignored now");
    cr_assert_eq(pthread_sigmask(SIG_BLOCK, NULL, &mask), 0);
    cr_expect_eq(sigismember(&mask, SIGPIPE), 0);
    cr_assert_eq(sigpending(&pending), 0);
    cr_expect_eq(sigismember(&pending, SIGPIPE), 0);
}

Test(http_client, no_descriptor_stays_open_and_high_ones_work)
{
    enum { MANY = 600 };
    struct rlimit limit;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    serve(answer_ok);
    for (unsigned i = 0; i < MANY && i + 50 < limit.rlim_cur; i++)
        cr_assert_geq(fcntl(0, F_DUPFD_CLOEXEC, 0), 0);
    expect_answer(200, "{\"a\":1}");
    int before = dup(0);
    (void)close(before);
    for (unsigned i = 0; i < 5; i++) {
        expect_answer(200, "{\"a\":1}");
        expect_failure("", 1000, ERR_INVALID, "PEM");
    }
    int after = dup(0);
    (void)close(after);
    cr_expect_eq(before, after);
    https_stop(&server);
}

static void *ask_often(void *userdata)
{
    unsigned *good = userdata;
    for (unsigned i = 0; i < 10; i++) {
        struct http_answer answer = { 0 };
        const struct http_request request = {
            .endpoint = server.endpoint, .path = "/", .ca_pem = pki.ca_pem, .timeout_ms = 20000
        };
        if (http_client_run(&request, &answer, NULL) == 0 && answer.status == 200)
            (*good)++;
        http_answer_done(&answer);
    }
    return NULL;
}

Test(http_client, threads_do_not_disturb_each_other)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    unsigned good[THREADS] = { 0 };
    serve(answer_ok);
    for (unsigned i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, ask_often, &good[i]), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
        cr_expect_eq(good[i], 10, "thread %u: %u of 10", i, good[i]);
    }
    https_stop(&server);
}
