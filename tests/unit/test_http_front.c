/* What the HTTP front promises to clients and to routes: answers, limits, penalties and life, over
 * real TLS on loopback. */
#include "tests/unit/http_fixture.h"

#include <sched.h>

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
TestSuite(http_front, .init = setup, .fini = teardown, .timeout = 60);

static void start(void)
{
    world_start(&world, "127.0.0.1:0", false);
}

#define EXPECT(request, status)                                                                    \
    do {                                                                                           \
        char answer_[ANSWER_MAX];                                                                  \
        int got_ = ask(&world, request, answer_);                                                  \
        cr_expect_eq(got_, status, "%d: %s", got_, answer_);                                       \
    } while (0)

Test(http_front, an_answer_is_json_that_nobody_stores)
{
    start();
    char answer[ANSWER_MAX];
    cr_assert_eq(ask(&world, GET("/ok"), answer), 200);
    cr_expect_str_eq(answer, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                             "content-length: 11\r\ncache-control: no-store\r\n"
                             "connection: close\r\n\r\n{\"ok\":true}");
}

Test(http_front, routes_are_found_by_method_and_path)
{
    start();
    EXPECT(GET("/ok"), 200);
    EXPECT(GET("/ok?probe=1"), 200);
    EXPECT(POST("/ok", "0"), 200);
    EXPECT(GET("/ok/"), 404);
    EXPECT(GET("/o"), 404);
    EXPECT(GET("/"), 404);
    EXPECT(GET("/OK"), 404);
    EXPECT(GET("/ok%2f"), 404);
    cr_expect_eq(world.calls, 3u);
}

Test(http_front, a_wrong_method_is_told_the_right_ones)
{
    start();
    char answer[ANSWER_MAX];
    cr_expect_eq(ask(&world, "DELETE /ok HTTP/1.1\r\nHost: x\r\n\r\n", answer), 405);
    cr_expect(strstr(answer, "\r\nallow: GET, POST\r\n"), "%s", answer);
    cr_expect_eq(ask(&world, GET("/echo"), answer), 405);
    cr_expect(strstr(answer, "\r\nallow: POST\r\n"), "%s", answer);
    cr_expect_eq(ask(&world, "HEAD /ok HTTP/1.1\r\nHost: x\r\n\r\n", answer), 405);
    cr_expect_str_eq(strstr(answer, "\r\n\r\n"), "\r\n\r\n", "an answer to HEAD has no body");
    cr_expect_eq(world.calls, 0u);
}

Test(http_front, errors_have_a_code_and_a_message)
{
    start();
    char answer[ANSWER_MAX];
    cr_assert_eq(ask(&world, GET("/nothing"), answer), 404);
    cr_expect(strstr(answer, "\r\n\r\n{\"error\":{\"code\":\"not-found\",\"message\":\"there is "
                             "nothing at this path\"}}"),
              "%s", answer);
}

/* Refused with an answer of ours or of lws, or closed: but never served, nor in the way of others.
 */
static void expect_refused(const char *request, size_t size)
{
    struct client client = client_open(&world, NULL);
    char answer[ANSWER_MAX];
    (void)client_send(&client, request, size);
    (void)client_read(&client, answer, sizeof(answer));
    client_close(&client);
    int status = 0;
    (void)sscanf(answer, "HTTP/1.%*c %d", &status);
    cr_expect(answer[0] == '\0' || (status >= 400 && status < 500), "%s: %s", request, answer);
    cr_expect_eq(world.calls, 0u, "%s", request);
}

Test(http_front, what_is_not_a_request_is_refused)
{
    start();
    static const char *const requests[] = {
        "GET /ok\r\n\r\n",
        "GET /ok HTTP/1.1\r\n\r\n",
        "GET ok HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET http://x/ok HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /ok HTTP/2.0\r\nHost: x\r\n\r\n",
        "GET /ok HTTP/1.1x\r\nHost: x\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
        "BREW /ok HTTP/1.1\r\nHost: x\r\n\r\n",
        "CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        "CONNECT /ok HTTP/1.1\r\nHost: x\r\n\r\n" GET("/ok"),
        GET("/ok%00"),
        "\r\n\r\n\r\n",
        "\x16\x03\x01garbage",
        "\xff\xfe\xfd",
    };
    for (size_t i = 0; i < ELEMENTS(requests); i++)
        expect_refused(requests[i], strlen(requests[i]));
    static const char nul[] = "GET /o\0k HTTP/1.1\r\nHost: x\r\n\r\n";
    expect_refused(nul, sizeof(nul) - 1);
    EXPECT(GET("/ok"), 200);
}

/* lws speaks h2c and websocket, but not here. */
Test(http_front, upgrades_are_not_taken)
{
    start();
    static const char *const upgrades[] = { "websocket", "h2c",       "WebSocket", "H2C",
                                            "foo",       "foo, h2c",  "h2c, foo",  "websocket/13",
                                            "",          "websocket " };
    static const char *const methods[] = { "GET", "POST", "OPTIONS" };
    for (size_t i = 0; i < ELEMENTS(upgrades) * ELEMENTS(methods); i++) {
        char request[384];
        int size = snprintf(request, sizeof(request),
                            "%s /ok HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\n"
                            "Upgrade: %s\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                            "Sec-WebSocket-Version: 13\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
                            "Content-Type: application/json\r\nContent-Length: 0\r\n\r\n",
                            methods[i % ELEMENTS(methods)], upgrades[i / ELEMENTS(methods)]);
        char answer[ANSWER_MAX];
        (void)ask_from(&world, NULL, request, (size_t)size, answer);
        cr_expect_null(strstr(answer, " 101 "), "%s: %s", request, answer);
    }
    wait_for_connections(&world, 0);
}

Test(http_front, a_post_needs_json_and_a_length)
{
    start();
    EXPECT("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 415);
    EXPECT("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
           "Content-Length: 2\r\n\r\n{}",
           415);
    EXPECT("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\r\n", 411);
    EXPECT("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
           "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
           411);
    EXPECT("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
           "Content-Length: -1\r\n\r\n",
           400);
    EXPECT("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
           "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
           411);
    EXPECT("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
           "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
           400);
    EXPECT("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
           "Content-Length: 0x2\r\n\r\n{}",
           400);
    EXPECT("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
           "Content-Length: 18446744073709551618\r\n\r\n{}",
           400);
    EXPECT("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
           "Content-Length: 9999999999999999999\r\n\r\n{}",
           413);
    EXPECT("GET /ok HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 400);
    cr_expect_eq(world.calls, 0u);
    EXPECT("POST /echo HTTP/1.1\r\nHost: x\r\ncontent-type: Application/JSON; charset=utf-8\r\n"
           "content-length: 2\r\n\r\n{}",
           200);
    cr_expect_eq(world.calls, 1u);
}

static int post_echo(size_t size, char fill, char answer[ANSWER_MAX])
{
    char *request = malloc(size + 256);
    cr_assert_not_null(request);
    int head = snprintf(request, 256,
                        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                        "Content-Length: %zu\r\n\r\n",
                        size);
    (void)memset(request + head, fill, size);
    int status = ask_from(&world, NULL, request, (size_t)head + size, answer);
    free(request);
    return status;
}

Test(http_front, a_body_may_have_the_limit_and_no_byte_more)
{
    start();
    char answer[ANSWER_MAX];
    cr_expect_eq(post_echo(HTTP_BODY_MAX, 1, answer), 200, "%s", answer);
    cr_expect(strstr(answer, "{\"size\":65536,\"sum\":65536,\"end\":0}"), "%s", answer);
    cr_expect_eq(post_echo(HTTP_BODY_MAX + 1, 1, answer), 413, "%s", answer);
    /* More than the socket's buffers hold: the answer must not be lost in a reset. */
    for (int i = 0; i < 20; i++)
        cr_expect_eq(post_echo(512u * 1024, 1, answer), 413, "%s", answer);
    cr_expect_eq(world.calls, 1u);
}

Test(http_front, nul_bytes_in_a_body_are_bytes)
{
    start();
    char answer[ANSWER_MAX];
    cr_expect_eq(post_echo(1000, 0, answer), 200);
    cr_expect(strstr(answer, "{\"size\":1000,\"sum\":0,\"end\":0}"), "%s", answer);
}

Test(http_front, a_request_may_come_byte_by_byte)
{
    start();
    static const char request[] = POST("/echo", "3") "abc";
    struct client client = client_open(&world, NULL);
    for (size_t i = 0; i < sizeof(request) - 1; i++)
        cr_assert(client_send(&client, request + i, 1));
    char answer[ANSWER_MAX];
    (void)client_read(&client, answer, sizeof(answer));
    cr_expect(strstr(answer, "{\"size\":3,\"sum\":294,\"end\":0}"), "%s", answer);
    client_close(&client);
}

/* Headers that lws keeps, `size` bytes of them. */
static void send_head(const char *name, size_t size, char answer[ANSWER_MAX])
{
    static char request[32 * HTTP_HEAD_MAX];
    int n = snprintf(request, sizeof(request), "GET /ok HTTP/1.1\r\nHost: x\r\n%s: %0*d\r\n\r\n",
                     name, (int)size, 0);
    cr_assert_lt(n, (int)sizeof(request));
    (void)ask_from(&world, NULL, request, (size_t)n, answer);
}

Test(http_front, headers_have_a_limit)
{
    static const char *const names[] = { "Cookie", "Content-Type", "X-Unknown" };
    start();
    char answer[ANSWER_MAX];
    for (size_t i = 0; i < ELEMENTS(names); i++) {
        send_head(names[i], HTTP_HEAD_MAX / 2, answer);
        cr_expect_eq(status_of(answer), 200, "%s: %s", names[i], answer);
    }
    unsigned calls = world.calls;
    for (size_t i = 0; i < ELEMENTS(names); i++)
        for (size_t size = HTTP_HEAD_MAX; size < 32 * HTTP_HEAD_MAX; size *= 2)
            send_head(names[i], size, answer);
    cr_expect_eq(world.calls, calls);
    EXPECT(GET("/ok"), 200);
}

Test(http_front, a_connection_carries_one_request)
{
    start();
    char answer[ANSWER_MAX];
    cr_expect_eq(ask(&world, GET("/ok") GET("/ok") POST("/echo", "2") "{}", answer), 200);
    const char *body = strstr(answer, "\r\n\r\n");
    cr_expect_str_eq(body, "\r\n\r\n{\"ok\":true}");
    cr_expect_eq(world.calls, 1u);
}

Test(http_front, a_client_that_waits_for_100_gets_it)
{
    start();
    struct client client = client_open(&world, NULL);
    static const char request[] = "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                                  "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n";
    cr_assert(client_send(&client, request, sizeof(request) - 1));
    char answer[ANSWER_MAX];
    int n = SSL_read(client.ssl, answer, sizeof(answer) - 1);
    cr_assert_gt(n, 0);
    answer[n] = '\0';
    cr_expect_str_eq(answer, "HTTP/1.1 100 Continue\r\n\r\n");
    cr_assert(client_send(&client, "{}", 2));
    (void)client_read(&client, answer, sizeof(answer));
    cr_expect_eq(status_of(answer), 200);
    client_close(&client);
    /* Nor is a body asked for that will be refused. */
    EXPECT("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
           "Content-Type: application/json\r\nContent-Length: 65537\r\n\r\n",
           413);
}

Test(http_front, a_large_answer_comes_whole)
{
    start();
    struct client client = client_open(&world, NULL);
    cr_assert(client_send(&client, GET("/big"), strlen(GET("/big"))));
    char *answer = malloc(BIG_ANSWER + ANSWER_MAX);
    size_t size = client_read(&client, answer, BIG_ANSWER + ANSWER_MAX);
    cr_assert_gt(size, BIG_ANSWER);
    cr_expect_eq(strstr(answer, "\r\n\r\n") + 4 + BIG_ANSWER, answer + size);
    cr_expect_eq(SSL_get_shutdown(client.ssl) & SSL_RECEIVED_SHUTDOWN, SSL_RECEIVED_SHUTDOWN);
    free(answer);
    client_close(&client);
}

Test(http_front, the_source_is_the_address_without_port)
{
    char answer[ANSWER_MAX];
    start();
    (void)ask_from(&world, "127.0.0.9", GET("/source"), strlen(GET("/source")), answer);
    cr_expect(strstr(answer, "{\"source\":\"127.0.0.9\"}"), "%s", answer);
}

Test(http_front, the_wildcard_is_for_ipv4_too)
{
    char answer[ANSWER_MAX];
    world_start(&world, "[::]:0", false);
    (void)ask_from(&world, "127.0.0.9", GET("/source"), strlen(GET("/source")), answer);
    cr_expect(strstr(answer, "{\"source\":\"127.0.0.9\"}"), "%s", answer);
}

/* Later, and from other threads. */

static void *answerer(void *userdata)
{
    (void)userdata;
    http_reply(world_held(&world), 200, "{\"late\":true}", HTTP_BLAME_NONE);
    return NULL;
}

Test(http_front, a_route_may_answer_later_from_another_thread)
{
    start();
    enum { COUNT = 20 };
    pthread_t threads[COUNT];
    struct client clients[COUNT];
    for (int i = 0; i < COUNT; i++) {
        clients[i] = client_open(&world, NULL);
        cr_assert(client_send(&clients[i], GET("/later"), strlen(GET("/later"))));
    }
    for (int i = 0; i < COUNT; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, answerer, NULL), 0);
    for (int i = 0; i < COUNT; i++) {
        char answer[ANSWER_MAX];
        (void)client_read(&clients[i], answer, sizeof(answer));
        cr_expect(strstr(answer, "{\"late\":true}"), "%s", answer);
        client_close(&clients[i]);
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
    }
}

Test(http_front, an_answer_to_nobody_goes_nowhere)
{
    start();
    struct client client = client_open(&world, NULL);
    cr_assert(client_send(&client, GET("/later"), strlen(GET("/later"))));
    struct http_exchange *exchange = world_held(&world);
    client_reset(&client);
    wait_for_connections(&world, 0);
    cr_expect_str_eq(http_source(exchange), "127.0.0.1");
    http_reply(exchange, 200, "{}", HTTP_BLAME_NONE);
    EXPECT(GET("/ok"), 200);
}

/* It says nothing when it goes, so that only the answer finds out. */
Test(http_front, an_answer_ends_the_connection_of_one_who_has_left)
{
    start();
    struct client client = client_open(&world, NULL);
    cr_assert(client_send(&client, GET("/later"), strlen(GET("/later"))));
    struct http_exchange *exchange = world_held(&world);
    client_close(&client);
    http_reply(exchange, 200, "{}", HTTP_BLAME_NONE);
    wait_for_connections(&world, 0);
}

Test(http_front, an_answer_may_come_after_the_end_of_the_front)
{
    start();
    struct client client = client_open(&world, NULL);
    cr_assert(client_send(&client, GET("/later"), strlen(GET("/later"))));
    struct http_exchange *exchange = world_held(&world);
    http_front_free(TAKE_PTR(world.front));
    char answer[ANSWER_MAX];
    cr_expect_eq(client_read(&client, answer, sizeof(answer)), 0u);
    size_t size;
    cr_expect_str_eq(http_body(exchange, &size), "");
    http_reply(exchange, 200, "{}", HTTP_BLAME_NONE);
    client_close(&client);
}

static atomic_bool answering;

static void *answer_everything(void *userdata)
{
    (void)userdata;
    while (atomic_load(&answering)) {
        (void)pthread_mutex_lock(&world.lock);
        struct http_exchange *exchange =
            world.held_count > 0 ? world.held[--world.held_count] : NULL;
        (void)pthread_mutex_unlock(&world.lock);
        if (exchange)
            http_reply(exchange, 200, "{}", HTTP_BLAME_CLUMSY);
        else
            (void)sched_yield();
    }
    return NULL;
}

Test(http_front, answers_may_race_with_the_end_of_connections_and_front)
{
    enum { ROUNDS = 25, CLIENTS = 12, THREADS = 2 };
    pthread_t threads[THREADS];
    atomic_store(&answering, true);
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, answer_everything, NULL), 0);
    for (int round = 0; round < ROUNDS; round++) {
        start();
        struct client clients[CLIENTS];
        for (int i = 0; i < CLIENTS; i++) {
            clients[i] = client_open(&world, NULL);
            (void)client_send(&clients[i], GET("/later"), strlen(GET("/later")));
            if (i % 3 == 0)
                client_close(&clients[i]);
        }
        http_front_free(TAKE_PTR(world.front));
        for (int i = 0; i < CLIENTS; i++)
            if (i % 3 != 0)
                client_close(&clients[i]);
    }
    atomic_store(&answering, false);
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
    while (world.held_count > 0)
        http_reply(world.held[--world.held_count], 200, "{}", HTTP_BLAME_NONE);
}

Test(http_front, too_many_open_requests_get_503)
{
    start();
    struct client clients[HTTP_PENDING_MAX];
    char from[32], answer[ANSWER_MAX];
    for (unsigned i = 0; i < HTTP_PENDING_MAX; i++) {
        (void)snprintf(from, sizeof(from), "127.0.0.%u", 2 + i % 4);
        clients[i] = client_open(&world, from);
        cr_assert(client_send(&clients[i], GET("/later"), strlen(GET("/later"))));
    }
    struct http_exchange *held[HTTP_PENDING_MAX];
    for (unsigned i = 0; i < HTTP_PENDING_MAX; i++)
        held[i] = world_held(&world);
    cr_expect_eq(ask(&world, GET("/ok"), answer), 503);
    cr_expect(strstr(answer, "\r\nretry-after: 5\r\n"), "%s", answer);
    /* Those whose client has gone are still work of ours. */
    client_close(&clients[0]);
    cr_expect_eq(ask(&world, GET("/ok"), answer), 503);
    for (unsigned i = 0; i < HTTP_PENDING_MAX; i++)
        http_reply(held[i], 200, "{}", HTTP_BLAME_NONE);
    for (unsigned i = 1; i < HTTP_PENDING_MAX; i++) {
        (void)client_read(&clients[i], answer, sizeof(answer));
        cr_expect_eq(status_of(answer), 200);
        client_close(&clients[i]);
    }
    EXPECT(GET("/ok"), 200);
}

/* Penalties. */

Test(http_front, guessing_is_refused_before_the_route_and_only_for_its_source)
{
    world_start(&world, "127.0.0.1:0", true);
    static const char request[] = POST("/guess", "2") "{}";
    char answer[ANSWER_MAX];
    int status = 0;
    unsigned tries = 0;
    while (tries < 10 && (status = ask(&world, request, answer)) == 401)
        tries++;
    cr_assert_eq(status, 429, "%s", answer);
    /* 15 s of penalty, less what ran off meanwhile: the third or fourth answer was the last. */
    cr_expect(tries == 3 || tries == 4, "%u", tries);
    cr_expect(strstr(answer, "\r\nretry-after: "), "%s", answer);
    cr_expect(strstr(answer, "\"code\":\"exhausted\""), "%s", answer);
    unsigned calls = world.calls;
    cr_expect_eq(ask(&world, GET("/ok"), answer), 429);
    /* Not a byte of the body is waited for. */
    cr_expect_eq(ask(&world, POST("/echo", "1000"), answer), 429);
    cr_expect_eq(world.calls, calls);
    cr_expect_eq(ask_from(&world, "127.0.0.2", GET("/ok"), strlen(GET("/ok")), answer), 200);
}

Test(http_front, who_does_not_wait_for_the_answer_is_blamed_too)
{
    world_start(&world, "127.0.0.1:0", true);
    struct http_exchange *held[5];
    for (size_t i = 0; i < ELEMENTS(held); i++) {
        struct client client = client_open(&world, "127.0.0.2");
        cr_assert(client_send(&client, GET("/later"), strlen(GET("/later"))));
        held[i] = world_held(&world);
        client_reset(&client);
    }
    wait_for_connections(&world, 0);
    for (size_t i = 0; i < ELEMENTS(held); i++)
        http_reply(held[i], 401, "{}", HTTP_BLAME_GUESSING);
    EXPECT(GET("/ok"), 200);
    char answer[ANSWER_MAX];
    cr_expect_eq(ask_from(&world, "127.0.0.2", GET("/ok"), strlen(GET("/ok")), answer), 429);
}

Test(http_front, clumsiness_adds_up_more_slowly)
{
    world_start(&world, "127.0.0.1:0", true);
    char answer[ANSWER_MAX];
    int status = 0;
    unsigned tries = 0;
    while (tries < 200 && (status = ask(&world, GET("/nothing"), answer)) == 404)
        tries++;
    cr_expect_eq(status, 429, "%s", answer);
    cr_expect_geq(tries, SOURCES_THRESHOLD_US / SOURCES_CLUMSY_US - 1);
}

Test(http_front, penalties_can_be_off)
{
    start();
    for (int i = 0; i < 8; i++)
        EXPECT(POST("/guess", "2") "{}", 401);
    EXPECT(GET("/ok"), 200);
}
