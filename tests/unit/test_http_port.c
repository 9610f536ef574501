/* The port of the HTTP front as strangers find it: TLS and nothing else, bounds on connections that
 * are paired exactly, timeouts, and no trace in the rest of the process. */
#include "tests/unit/http_fixture.h"
#include "tests/unit/log_capture.h"

#include <fcntl.h>
#include <sys/resource.h>

#define FDS_BEFORE 3000

static struct world world;

static void setup(void)
{
    fixture_setup();
    world_init(&world);
}

static void teardown(void)
{
    world_done(&world);
    fixture_teardown();
}

/* cppcheck-suppress unknownMacro */
TestSuite(http_port, .init = setup, .fini = teardown, .timeout = 60);

static void start(void)
{
    world_start(&world, "127.0.0.1:0", false);
}

static void expect_service(const char *from)
{
    char answer[ANSWER_MAX];
    int status = ask_from(&world, from, GET("/ok"), strlen(GET("/ok")), answer);
    cr_expect_eq(status, 200, "%d: %s", status, answer);
}

/* TLS. */

Test(http_port, plain_http_is_closed_without_a_word_of_http)
{
    start();
    CLEANUP_FD int fd = tcp_open(&world, NULL);
    cr_assert_gt(send(fd, GET("/ok"), strlen(GET("/ok")), MSG_NOSIGNAL), 0);
    char answer[ANSWER_MAX];
    size_t used = 0;
    ssize_t n;
    while (used + 1 < sizeof(answer) &&
           (n = recv(fd, answer + used, sizeof(answer) - 1 - used, 0)) > 0)
        used += (size_t)n;
    cr_expect(n == 0 || errno == ECONNRESET, "not closed: %zd", n);
    cr_expect_null(memmem(answer, used, "HTTP", 4));
    cr_expect_eq(world.calls, 0u);
    expect_service(NULL);
}

static bool connects(int version)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_security_level(tls, 0);
    cr_assert_eq(SSL_CTX_set_min_proto_version(tls, version), 1);
    cr_assert_eq(SSL_CTX_set_max_proto_version(tls, version), 1);
    cr_assert_eq(SSL_CTX_set_cipher_list(tls, "ALL:@SECLEVEL=0"), 1);
    struct client client;
    bool ok = client_try_open(&client, &world, tls, NULL);
    if (ok)
        client_close(&client);
    SSL_CTX_free(tls);
    ERR_clear_error();
    return ok;
}

/* OpenSSL reads its configuration once, and the one of most systems refuses old TLS by itself; so
 * this is another one, and set before anything else. */
static void setup_lax(void)
{
    static const char conf[] = "openssl_conf = init\n[init]\nssl_conf = ssl\n[ssl]\n"
                               "system_default = lax\n[lax]\nMinProtocol = TLSv1\n"
                               "CipherString = ALL:@SECLEVEL=0\n";
    struct err err = { 0 };
    fixture_setup();
    OK(file_write_atomic("lax.cnf", conf, sizeof(conf) - 1, 0600, &err));
    cr_assert_eq(setenv("OPENSSL_CONF", "lax.cnf", 1), 0);
    world_init(&world);
}

TestSuite(http_port_lax, .init = setup_lax, .fini = teardown, .timeout = 60);

Test(http_port_lax, tls_is_1_2_or_newer_whatever_the_system_allows)
{
    start();
    cr_expect(connects(TLS1_3_VERSION));
    cr_expect(connects(TLS1_2_VERSION));
    cr_expect_not(connects(TLS1_1_VERSION));
    cr_expect_not(connects(TLS1_VERSION));
}

static unsigned certificates_asked;

static int certificate_asked(SSL *ssl, X509 **cert, EVP_PKEY **key)
{
    (void)ssl;
    (void)cert;
    (void)key;
    certificates_asked++;
    return 0;
}

Test(http_port, no_client_certificate_no_ticket_no_renegotiation)
{
    start();
    SSL_CTX_set_client_cert_cb(world.client, certificate_asked);
    cr_assert_eq(SSL_CTX_set_max_proto_version(world.client, TLS1_2_VERSION), 1);
    struct client client = client_open(&world, NULL);
    cr_expect_eq(certificates_asked, 0u);
    cr_expect_eq(SSL_SESSION_has_ticket(SSL_get0_session(client.ssl)), 0);
    cr_expect_eq(SSL_renegotiate(client.ssl), 1);
    cr_expect_neq(SSL_do_handshake(client.ssl), 1);
    client_close(&client);
}

Test(http_port, alpn_is_http_1_1_and_never_h2)
{
    static const unsigned char both[] = "\x02h2\x08http/1.1", h2[] = "\x02h2";
    start();
    const unsigned char *chosen;
    unsigned len;
    cr_assert_eq(SSL_CTX_set_alpn_protos(world.client, both, sizeof(both) - 1), 0);
    struct client client = client_open(&world, NULL);
    SSL_get0_alpn_selected(client.ssl, &chosen, &len);
    cr_expect(len == 8 && memcmp(chosen, "http/1.1", 8) == 0);
    client_close(&client);
    expect_service(NULL);
    cr_assert_eq(SSL_CTX_set_alpn_protos(world.client, h2, sizeof(h2) - 1), 0);
    struct client other;
    if (client_try_open(&other, &world, world.client, NULL)) {
        SSL_get0_alpn_selected(other.ssl, &chosen, &len);
        cr_expect_eq(len, 0u);
        client_close(&other);
    }
}

Test(http_port, a_chain_of_certificates_is_sent_whole)
{
    struct err err = { 0 };
    CLEANUP_FREE char *ca_pem = NULL, *leaf = world.cert_pem;
    size_t size;
    OK(file_read("ca/ca.pem", PEM_MAX, &ca_pem, &size, &err));
    cr_assert_geq(asprintf(&world.cert_pem, "%s%s", leaf, ca_pem), 0);
    start();
    struct client client = client_open(&world, NULL);
    cr_expect_eq(sk_X509_num(SSL_get_peer_cert_chain(client.ssl)), 2);
    client_close(&client);
}

/* Bounds. */

Test(http_port, half_handshakes_are_counted_in_and_out)
{
    start();
    /* The first bytes of a ClientHello of 512 bytes. */
    static const char hello[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    for (unsigned i = 0; i < 1000; i++) {
        int fd = tcp_open(&world, NULL);
        size_t size = i % sizeof(hello);
        if (size > 0)
            (void)send(fd, hello, size, MSG_NOSIGNAL);
        if (i % 5 == 0) {
            const struct linger reset = { 1, 0 };
            (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        }
        close_fd(&fd);
        /* The per-source bound would drop what the front has not seen closing yet. */
        if (i % 32 == 31)
            wait_for_connections(&world, 0);
    }
    wait_for_connections(&world, 0);
}

Test(http_port, silent_connections_do_not_stop_a_good_one)
{
    start();
    int fds[200];
    char from[32];
    for (unsigned i = 0; i < ELEMENTS(fds); i++) {
        (void)snprintf(from, sizeof(from), "127.0.1.%u", 1 + i % 4);
        fds[i] = tcp_open(&world, from);
    }
    for (int i = 0; i < 5; i++)
        expect_service(NULL);
    wait_for_connections(&world, ELEMENTS(fds));
    for (unsigned i = 0; i < ELEMENTS(fds); i++)
        close_fd(&fds[i]);
    wait_for_connections(&world, 0);
}

/* Waits for the server to close it. */
static void expect_closed(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, 0);
    cr_expect(n == 0 || (n < 0 && errno == ECONNRESET), "%zd", n);
}

Test(http_port, one_source_has_a_bound)
{
    start();
    int fds[HTTP_PER_SOURCE_MAX];
    for (unsigned i = 0; i < HTTP_PER_SOURCE_MAX; i++)
        fds[i] = tcp_open(&world, "127.0.0.2");
    CLEANUP_FD int extra = tcp_open(&world, "127.0.0.2");
    expect_closed(extra);
    expect_service("127.0.0.3");
    close_fd(&fds[0]);
    wait_for_connections(&world, HTTP_PER_SOURCE_MAX - 1);
    expect_service("127.0.0.2");
    for (unsigned i = 1; i < HTTP_PER_SOURCE_MAX; i++)
        close_fd(&fds[i]);
}

Test(http_port, all_sources_have_a_bound)
{
    start();
    int fds[HTTP_CONNECTIONS_MAX];
    char from[32];
    for (unsigned i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
        (void)snprintf(from, sizeof(from), "127.0.1.%u", 1 + i % 10);
        /* All but one are in, and the one that asks is the last. */
        if (i == HTTP_CONNECTIONS_MAX - 1)
            wait_for_connections(&world, i);
        fds[i] = tcp_open(&world, from);
    }
    for (int i = 0; i < 5; i++) {
        CLEANUP_FD int extra = tcp_open(&world, "127.0.2.1");
        expect_closed(extra);
    }
    for (unsigned i = 0; i < 2; i++)
        close_fd(&fds[i]);
    /* Until the front has seen it, this may be dropped as the others were. */
    struct client client;
    uint64_t deadline = monotonic_us() + DEADLINE_MS * 1000ull;
    while (!client_try_open(&client, &world, world.client, NULL))
        cr_assert_lt(monotonic_us(), deadline);
    client_close(&client);
    for (unsigned i = 2; i < HTTP_CONNECTIONS_MAX; i++)
        close_fd(&fds[i]);
}

Test(http_port, descriptors_may_have_high_numbers)
{
    int fds[FDS_BEFORE];
    for (int i = 0; i < FDS_BEFORE; i++)
        cr_assert_geq(fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC), 0);
    start();
    for (int i = 0; i < 20; i++)
        expect_service(NULL);
    for (int i = 0; i < FDS_BEFORE; i++)
        close_fd(&fds[i]);
    expect_service(NULL);
}

Test(http_port, running_out_of_descriptors_is_survived)
{
    start();
    expect_service(NULL);
    int fds[64];
    struct rlimit before, none;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    int sockets[4];
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                   .sin_port = htons((uint16_t)http_front_port(world.front)) };
    for (size_t i = 0; i < ELEMENTS(sockets); i++)
        sockets[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* No number is left below the limit. */
    int top = 0;
    for (size_t i = 0; i < ELEMENTS(fds); i++)
        top = MAX(top, fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC));
    none = (struct rlimit){ (rlim_t)top + 1, before.rlim_max };
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (size_t i = 0; i < ELEMENTS(sockets); i++)
        cr_assert_eq(connect(sockets[i], (struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    SSL *ssl = SSL_new(world.client);
    cr_assert_eq(SSL_set_fd(ssl, sockets[0]), 1);
    cr_expect_eq(SSL_connect(ssl), 1);
    SSL_free(ssl);
    for (size_t i = 0; i < ELEMENTS(sockets); i++)
        close_fd(&sockets[i]);
    for (size_t i = 0; i < ELEMENTS(fds); i++)
        close_fd(&fds[i]);
    expect_service(NULL);
}

/* Each of them would stay for ever, if it were for the client. All at once, since they take
 * HTTP_IDLE_S. */
Test(http_port, whoever_stops_in_the_middle_is_cut)
{
    start();
    static const char *const beginnings[] = { "", "GET /ok HT", POST("/echo", "2") "{" };
    struct client clients[ELEMENTS(beginnings)];
    CLEANUP_FD int silent = tcp_open(&world, NULL);
    CLEANUP_FD int half = tcp_open(&world, NULL);
    cr_assert_eq(send(half, "\x16\x03\x01", 3, MSG_NOSIGNAL), 3);
    for (size_t i = 0; i < ELEMENTS(beginnings); i++) {
        clients[i] = client_open(&world, NULL);
        cr_assert(client_send(&clients[i], beginnings[i], strlen(beginnings[i])));
    }
    /* It has its answer and its end, and does not close. */
    struct client lingering = client_open(&world, NULL);
    cr_assert(client_send(&lingering, GET("/ok"), strlen(GET("/ok"))));
    expect_closed(silent);
    expect_closed(half);
    for (size_t i = 0; i < ELEMENTS(beginnings); i++) {
        char answer[ANSWER_MAX];
        cr_expect_eq(client_read(&clients[i], answer, sizeof(answer)), 0u, "%s", answer);
    }
    wait_for_connections(&world, 0);
    for (size_t i = 0; i < ELEMENTS(beginnings); i++)
        client_close(&clients[i]);
    client_close(&lingering);
    cr_expect_eq(world.calls, 1u);
}

/* They trickle, so that no single wait is long; the whole of it has a bound all the same. */
Test(http_port, a_trickle_is_cut_too)
{
    start();
    static const char *const heads[] = { "GET /ok HTTP/1.1\r\nX: ", POST("/echo", "60000") };
    struct client clients[ELEMENTS(heads)];
    bool alive[ELEMENTS(heads)];
    for (size_t i = 0; i < ELEMENTS(heads); i++) {
        clients[i] = client_open(&world, NULL);
        alive[i] = client_send(&clients[i], heads[i], strlen(heads[i]));
    }
    for (unsigned turn = 0; turn < 600 && (alive[0] || alive[1]); turn++)
        for (size_t i = 0; i < ELEMENTS(heads); i++) {
            struct pollfd wait = { .fd = clients[i].fd, .events = POLLIN };
            alive[i] = alive[i] && poll(&wait, 1, 50) == 0 && client_send(&clients[i], "x", 1);
        }
    for (size_t i = 0; i < ELEMENTS(heads); i++) {
        cr_expect_not(alive[i], "%s", heads[i]);
        client_close(&clients[i]);
    }
    wait_for_connections(&world, 0);
    cr_expect_eq(world.calls, 0u);
}

/* The process around it. */

Test(http_port, a_taken_port_is_said_in_words)
{
    start();
    struct http_front *second = NULL;
    char listen[64];
    struct err err = { 0 };
    (void)snprintf(listen, sizeof(listen), "127.0.0.1:%d", http_front_port(world.front));
    struct http_front_config config = world_config(&world, listen);
    FAILS(http_front_new(&config, &second, &err), ERR_UNAVAILABLE);
    cr_expect(strstr(err.text, listen) && strstr(err.text, "another program uses that port"), "%s",
              err.text);
    config.listen = "127.0.0.1";
    FAILS(http_front_new(&config, &second, &err), ERR_INVALID);
    config.listen = "192.0.2.1:0";
    FAILS(http_front_new(&config, &second, &err), ERR_UNAVAILABLE);
    cr_expect(strstr(err.text, "does not have that address"), "%s", err.text);
    cr_expect_null(second);
    cr_expect_eq(http_front_new(&config, &second, NULL), -1);
    expect_service(NULL);
}

Test(http_port, a_certificate_that_does_not_fit_is_said_in_words)
{
    struct err err = { 0 };
    struct http_front *front = NULL;
    struct http_front_config config = world_config(&world, "127.0.0.1:0");
    config.cert_pem = "garbage";
    FAILS(http_front_new(&config, &front, &err), ERR_INVALID);
    cr_expect(strstr(err.text, "the server's certificate cannot be used"), "%s", err.text);
    CLEANUP_FREE char *other = NULL;
    size_t size;
    OK(file_read("ca/ca-key.pem", PEM_MAX, &other, &size, &err));
    config = world_config(&world, "127.0.0.1:0");
    config.key_pem = other;
    FAILS(http_front_new(&config, &front, &err), ERR_INVALID);
    cr_expect(strstr(err.text, "the server's key cannot be used"), "%s", err.text);
    cr_expect_null(front);
    cr_expect_eq(ERR_peek_error(), 0ul);
}

/* Every open descriptor that does not close on exec. */
static unsigned count_inherited(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        int flags = fcntl(fd, F_GETFD);
        count += flags >= 0 && !(flags & FD_CLOEXEC);
    }
    return count;
}

Test(http_port, signals_and_descriptors_of_the_process_stay_as_they_are)
{
    (void)signal(SIGPIPE, SIG_DFL);
    unsigned before = count_inherited();
    start();
    struct client client = client_open(&world, NULL);
    cr_assert(client_send(&client, GET("/later"), strlen(GET("/later"))));
    struct http_exchange *exchange = world_held(&world);
    cr_expect_eq(count_inherited(), before);
    struct sigaction sigpipe;
    cr_assert_eq(sigaction(SIGPIPE, NULL, &sigpipe), 0);
    cr_expect_eq(sigpipe.sa_handler, SIG_DFL);
    /* And still the front survives writing to clients that have gone. */
    char answer[ANSWER_MAX];
    (void)ask(&world, GET("/signals"), answer);
    cr_expect(strstr(answer, "{\"pipe\":1,\"term\":1}"), "%s", answer);
    http_reply(exchange, 200, "{}", HTTP_BLAME_NONE);
    for (int i = 0; i < 20; i++) {
        struct client gone = client_open(&world, NULL);
        cr_assert(client_send(&gone, GET("/big"), strlen(GET("/big"))));
        client_reset(&gone);
    }
    client_close(&client);
    expect_service(NULL);
}

Test(http_port, nothing_is_written_to_stderr)
{
    int log = capture_stderr();
    log_setup("prog", LOG_LEVEL_WARN, LOG_FORMAT_TEXT);
    start();
    expect_service(NULL);
    CLEANUP_FD int fd = tcp_open(&world, NULL);
    (void)send(fd, "garbage\r\n", 9, MSG_NOSIGNAL);
    expect_closed(fd);
    http_front_free(TAKE_PTR(world.front));
    expect_silence(log);
    close_fd(&log);
}
