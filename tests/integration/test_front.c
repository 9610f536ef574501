/* The HTTPS port, which anybody may reach: what it answers, what it does not, and that whoever
 * abuses it, or the gRPC port beside it, costs nobody else anything. */
#include "tests/harness/joiner.h"
#include "tests/harness/neighbour.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define WRONG_TOKEN                                                                                \
    "ssjoin_0123456789ab_0000000000000000000000000000000000000000000000000000000000000000"

static void start_lenient(void)
{
    fixture_start_empty_with("source_penalties: false\n");
}

TestSuite(front, .init = start_lenient, .fini = fixture_stop);
TestSuite(front_abuse, .init = neighbour_start, .fini = neighbour_stop);

static void assert_answer(const char *path, const char *body, int status, const char *words)
{
    CLEANUP_ANSWER struct http_answer answer = joiner_ask(path, body);
    cr_assert_eq(answer.status, status, "%s %.60s: %d %s", path, body ? body : "", answer.status,
                 answer.body);
    fixture_assert_contains(answer.body, words);
}

/* Answers. */

Test(front, everybody_may_ask_how_it_is_and_for_the_ca)
{
    assert_answer("/healthz", NULL, 200, "alive");
    assert_answer("/readyz", NULL, 200, "ready");
    assert_answer("/v1/ca", NULL, 200, fixture()->fingerprint);
    assert_answer("/v1/ca", NULL, 200, "BEGIN CERTIFICATE");
}

Test(front, a_request_that_is_not_one_is_told_what_is_wrong_with_it)
{
    static const struct {
        const char *body, *words;
    } cases[] = {
        { "{", "not JSON" },
        { "[]", "not a JSON object" },
        { "\"text\"", "not JSON" },
        { "{\"token\":\"a\",\"token\":\"b\",\"csr\":\"c\"}", "not JSON" },
        { "{}", "\\\"token\\\" must be there, and a string" },
        { "{\"token\":7,\"csr\":\"c\"}", "\\\"token\\\" must be there, and a string" },
        { "{\"token\":null,\"csr\":\"c\"}", "\\\"token\\\" must be there, and a string" },
        { "{\"token\":\"a\"}", "\\\"csr\\\" must be there, and a string" },
        { "{\"token\":\"a\",\"csr\":\"c\",\"role\":\"admin\"}", "a field that is not known here" },
        { "{\"token\":\"a\\u0000b\",\"csr\":\"c\"}", "" },
        { "{\"token\":\"\xff\xfe\",\"csr\":\"c\"}", "not JSON" },
        { "{\"token\":\"a\",\"csr\":\"c\",\"sandbox_id\":[\"x\"]}", "\\\"sandbox_id\\\" must be" },
    };
    for (size_t i = 0; i < ELEMENTS(cases); i++)
        assert_answer("/v1/enroll", cases[i].body, 400, cases[i].words);
    assert_answer("/v1/login", "{\"token\":\"a\",\"csr\":\"c\"}", 400, "\\\"key\\\" must be there");
    assert_answer("/v1/renew", "{}", 400, "\\\"certificate\\\" must be there");
    assert_answer("/v1/renew", "{\"certificate\":\"x\",\"csr\":\"y\"}", 400, "");
    assert_answer("/v1/enroll", NULL, 405, "does not take that method");
    assert_answer("/healthz", "{}", 405, "does not take that method");
    assert_answer("/v1/tokens", "{}", 404, "nothing at this path");
    cr_assert_eq(AUDIT_COUNT("\"allowed\":true", "certificate."), 0);
    assert_answer("/readyz", NULL, 200, "ready");
}

/* The answer comes before the body is taken; whoever is still sending may meet a closed door first,
 * RFC 9112, 9.6. It never gets another answer than that. */
static void assert_too_large(const char *body)
{
    const struct http_request request = {
        .endpoint = joiner_endpoint(),
        .path = "/v1/enroll",
        .body = body,
        .ca_pem = joiner_ca(),
        .timeout_ms = FRONT_TIMEOUT_MS,
    };
    bool answered = false;
    for (unsigned i = 0; i < 50 && !answered; i++) {
        CLEANUP_ANSWER struct http_answer answer = { 0 };
        struct err err;
        answered = http_client_run(&request, &answer, &err) == 0;
        if (!answered)
            continue;
        cr_assert_eq(answer.status, 413, "%d %s", answer.status, answer.body);
        fixture_assert_contains(answer.body, "larger than this port takes");
    }
    cr_assert(answered, "it was never told why");
}

Test(front, a_request_that_is_too_large_is_refused)
{
    CLEANUP_FREE char *body = calloc(1, 80000), *nested = calloc(1, 60001);
    cr_assert(body && nested);
    (void)snprintf(body, 80000, "{\"token\":\"%0200d\",\"csr\":\"c\"}", 1);
    assert_answer("/v1/enroll", body, 400, "longer than 128 bytes");
    (void)snprintf(body, 80000, "{\"token\":\"a\",\"csr\":\"%017000d\"}", 1);
    assert_answer("/v1/enroll", body, 400, "longer than 16384 bytes");
    (void)snprintf(body, 80000, "{\"token\":\"a\",\"csr\":\"%070000d\"}", 1);
    assert_too_large(body);
    (void)memset(nested, '[', 60000);
    assert_answer("/v1/enroll", nested, 400, "not JSON");
    assert_answer("/readyz", NULL, 200, "ready");
}

/* Floods. A stranger's address is one of 127/8, all of which is this machine. */

static int dial(int port, unsigned stranger)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK + stranger),
    };
    const struct timeval limit = { .tv_sec = PROC_DEADLINE_US / 1000000 };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    cr_assert_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)port);
    cr_assert_eq(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

#define CROWD 300u

/* Half of them say nothing, half of them begin a handshake and do not go on. */
static void crowd(int port, unsigned first_stranger, unsigned strangers, int *ret_fds)
{
    static const unsigned char hello[] = { 0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01 };
    for (unsigned i = 0; i < CROWD; i++) {
        ret_fds[i] = dial(port, first_stranger + i % strangers);
        if (i % 2 == 0)
            /* One that was not let in has been closed; that is no failure here. */
            (void)send(ret_fds[i], hello, sizeof(hello), MSG_NOSIGNAL);
    }
}

static void disperse(int *fds)
{
    for (unsigned i = 0; i < CROWD; i++)
        close_fd(&fds[i]);
}

Test(front_abuse, silent_connections_and_half_handshakes_stop_neither_enrolment_nor_commands)
{
    int front[CROWD], grpc[CROWD];
    crowd(fixture()->http_port, 1, 5, front);
    crowd(fixture()->port, 1, 5, grpc);
    fixture_add("second");
    CLEANUP_RESULT struct proc_result run = CLI("exec", "second", "--", "echo", "served");
    cr_assert_str_eq(run.out, "served\n", "%s", run.err);
    neighbour_assert_well();
    /* They are sent away without being asked: each stream ends. */
    for (unsigned i = 0; i < CROWD; i++) {
        char byte[64];
        ssize_t n = recv(front[i], byte, sizeof(byte), 0);
        while (n > 0)
            n = recv(front[i], byte, sizeof(byte), 0);
        cr_assert(n == 0 || errno == ECONNRESET, "connection %u is still open: %m", i);
    }
    disperse(front);
    disperse(grpc);
    assert_answer("/readyz", NULL, 200, "ready");
}

Test(front_abuse, silent_connections_from_its_own_address_delay_an_enrolment_and_do_not_stop_it)
{
    int front[CROWD];
    crowd(fixture()->http_port, 0, 1, front);
    fixture_add("second");
    disperse(front);
    neighbour_assert_well();
}

/* How many wrong tokens it takes until the address is not listened to any more. */
static unsigned guess_until_refused(void)
{
    for (unsigned i = 0; i < 100; i++) {
        struct err why = joiner_try(WRONG_TOKEN, "");
        if (why.code == ERR_EXHAUSTED) {
            fixture_assert_contains(why.text, "too many failed requests came from this address");
            return i;
        }
        cr_assert_eq(why.code, ERR_UNAUTHENTICATED, "%s", why.text);
    }
    return 100;
}

static SSL *greet(int fd, SSL_CTX *context)
{
    SSL *ssl = SSL_new(context);
    cr_assert_eq(SSL_set_fd(ssl, fd), 1);
    ERR_clear_error();
    return ssl;
}

/* What the front answers another address's GET. */
static int get_from(unsigned stranger, const char *path)
{
    char text[512] = "";
    CLEANUP_FD int fd = dial(fixture()->http_port, stranger);
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL *ssl = greet(fd, context);
    cr_assert_eq(SSL_connect(ssl), 1);
    int size = snprintf(text, sizeof(text), "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path);
    cr_assert_eq(SSL_write(ssl, text, size), size);
    int n = SSL_read(ssl, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    SSL_free(ssl);
    SSL_CTX_free(context);
    int status = 0;
    cr_assert_eq(sscanf(text, "HTTP/1.1 %d", &status), 1, "it said %s", text);
    return status;
}

Test(front_abuse, an_address_that_guesses_tokens_is_shut_out_while_everybody_else_is_served)
{
    unsigned guesses = guess_until_refused();
    cr_assert(guesses >= 2 && guesses <= 20, "%u guesses", guesses);
    CLEANUP_FREE char *good = JOIN_TOKEN("--uses", "1");
    /* Also with a right one: else it would be an oracle. */
    cr_assert_eq(joiner_try(good, "").code, ERR_EXHAUSTED);
    for (unsigned i = 0; i < 200; i++)
        cr_assert_eq(joiner_try(WRONG_TOKEN, "").code, ERR_EXHAUSTED);
    cr_assert_eq(get_from(0, "/healthz"), 429);
    cr_assert_eq(get_from(1, "/healthz"), 200);
    cr_assert_eq(get_from(1, "/readyz"), 200);
    neighbour_assert_well();
    /* The record says so without being filled by it. */
    cr_assert_leq(AUDIT_COUNT("\"token.use\"", "\"allowed\":false"), 20);
    cr_assert_geq(AUDIT_COUNT("\"token.use\"", "\"allowed\":false"), 2);
    cr_assert_gt(fixture_count_text(service_log(fixture()->orchestrator),
                                    "HTTP source refused after failed requests"),
                 0);
}

/* TLS. */

struct hello {
    int version; /* 0: the newest */
    const char *ciphers, *alpn;
};

static int count_asked(SSL *ssl, void *userdata)
{
    (void)ssl;
    *(bool *)userdata = true;
    return 1;
}

/* 0 when the handshake ends well; *ret_asked: were we asked for a certificate? */
static int handshake(const struct hello *hello, bool *ret_asked)
{
    CLEANUP_FD int fd = dial(fixture()->http_port, 0);
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_security_level(context, 0); /* OpenSSL itself would not offer some of it */
    if (hello->version) {
        cr_assert_eq(SSL_CTX_set_min_proto_version(context, hello->version), 1);
        cr_assert_eq(SSL_CTX_set_max_proto_version(context, hello->version), 1);
    }
    if (hello->ciphers)
        cr_assert_eq(SSL_CTX_set_cipher_list(context, hello->ciphers), 1);
    if (ret_asked)
        SSL_CTX_set_cert_cb(context, count_asked, ret_asked);
    SSL *ssl = greet(fd, context);
    if (hello->alpn)
        cr_assert_eq(SSL_set_alpn_protos(ssl, (const unsigned char *)hello->alpn,
                                         (unsigned)strlen(hello->alpn)),
                     0);
    int reason = 0;
    if (SSL_connect(ssl) != 1) {
        reason = ERR_GET_REASON(ERR_peek_error());
        reason = reason ? reason : -1;
    }
    SSL_free(ssl);
    SSL_CTX_free(context);
    return reason;
}

Test(front, speaks_tls_1_2_and_1_3_and_nothing_older)
{
    cr_assert_eq(handshake(&(struct hello){ 0 }, NULL), 0);
    cr_assert_eq(handshake(&(struct hello){ .version = TLS1_3_VERSION }, NULL), 0);
    cr_assert_eq(handshake(&(struct hello){ .version = TLS1_2_VERSION }, NULL), 0);
    cr_assert_neq(handshake(&(struct hello){ .version = TLS1_1_VERSION }, NULL), 0);
    cr_assert_neq(handshake(&(struct hello){ .version = TLS1_VERSION }, NULL), 0);
    assert_answer("/readyz", NULL, 200, "ready");
}

Test(front, takes_no_weak_ciphers)
{
    static const char *const weak[] = {
        "NULL-SHA256",           "ECDHE-ECDSA-NULL-SHA", "AES128-SHA",
        "AES256-GCM-SHA384",     "ADH-AES128-SHA256",    "AECDH-AES128-SHA",
        "ECDHE-ECDSA-AES128-SHA"
    };
    for (size_t i = 0; i < ELEMENTS(weak); i++)
        cr_assert_neq(
            handshake(&(struct hello){ .version = TLS1_2_VERSION, .ciphers = weak[i] }, NULL), 0,
            "%s was taken", weak[i]);
}

Test(front, does_not_ask_for_certificates_so_that_nobody_can_send_a_huge_one)
{
    bool asked = false;
    cr_assert_eq(handshake(&(struct hello){ .version = TLS1_3_VERSION }, &asked), 0);
    cr_assert_eq(handshake(&(struct hello){ .version = TLS1_2_VERSION }, &asked), 0);
    cr_assert_not(asked);
}

Test(front, speaks_http_1_1_alone_whatever_a_peer_offers)
{
    cr_assert_eq(handshake(&(struct hello){ .alpn = "\x08http/1.1" }, NULL), 0);
    cr_assert_eq(handshake(&(struct hello){ .alpn = "\x02h2\x08http/1.1" }, NULL), 0);
    cr_assert_neq(handshake(&(struct hello){ .alpn = "\x02h2" }, NULL), 0);
    cr_assert_neq(handshake(&(struct hello){ .alpn = "\x03"
                                                     "foo" },
                            NULL),
                  0);
    assert_answer("/readyz", NULL, 200, "ready");
}

Test(front, does_not_speak_plain_http)
{
    static const char request[] = "GET /v1/ca HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char answer[512] = "";
    CLEANUP_FD int fd = dial(fixture()->http_port, 0);
    cr_assert_eq(send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL),
                 (ssize_t)sizeof(request) - 1);
    ssize_t n = recv(fd, answer, sizeof(answer) - 1, 0);
    cr_assert_null(strstr(answer, "HTTP"), "it said %s", answer);
    while (n > 0)
        n = recv(fd, answer, sizeof(answer) - 1, 0);
    assert_answer("/readyz", NULL, 200, "ready");
}
