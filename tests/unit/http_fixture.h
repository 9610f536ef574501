/* What the tests of the HTTP front share: a front with a few routes on a loopback port, and a TLS
 * client that sends raw bytes and reads until the end. Criterion gives each test a process. */
#pragma once

#include "common/clock.h"
#include "orchestrator/http_front-internal.h"
#include "tests/unit/ca_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#define DEADLINE_MS 30000
#define ANSWER_MAX  8192u
#define BIG_ANSWER  (4u * 1024 * 1024)
#define HELD_MAX    256u

struct world {
    struct http_front *front;
    char *cert_pem, *key_pem;
    SSL_CTX *client;
    atomic_uint calls;
    /* Exchanges that /later has left, for other threads to answer. */
    pthread_mutex_t lock;
    pthread_cond_t more;
    struct http_exchange *held[HELD_MAX];
    unsigned held_count;
};

static inline void route_ok(void *userdata, struct http_exchange *exchange)
{
    struct world *world = userdata;
    atomic_fetch_add(&world->calls, 1);
    http_reply(exchange, 200, "{\"ok\":true}", HTTP_BLAME_NONE);
}

/* {"size":N,"sum":N,"end":the byte beyond} */
static inline void route_echo(void *userdata, struct http_exchange *exchange)
{
    struct world *world = userdata;
    atomic_fetch_add(&world->calls, 1);
    size_t size;
    const char *body = http_body(exchange, &size);
    unsigned sum = 0;
    for (size_t i = 0; i < size; i++)
        sum += (unsigned char)body[i];
    char json[96];
    (void)snprintf(json, sizeof(json), "{\"size\":%zu,\"sum\":%u,\"end\":%d}", size, sum,
                   body[size]);
    http_reply(exchange, 200, json, HTTP_BLAME_NONE);
}

static inline void route_guess(void *userdata, struct http_exchange *exchange)
{
    struct world *world = userdata;
    atomic_fetch_add(&world->calls, 1);
    http_reply(exchange, 401, "{}", HTTP_BLAME_GUESSING);
}

static inline void route_source(void *userdata, struct http_exchange *exchange)
{
    (void)userdata;
    char json[96];
    (void)snprintf(json, sizeof(json), "{\"source\":\"%s\"}", http_source(exchange));
    http_reply(exchange, 200, json, HTTP_BLAME_NONE);
}

/* On the front's thread, so that it may look. */
static inline void route_count(void *userdata, struct http_exchange *exchange)
{
    struct world *world = userdata;
    char json[64];
    (void)snprintf(json, sizeof(json), "{\"connections\":%u}", world->front->connections);
    http_reply(exchange, 200, json, HTTP_BLAME_NONE);
}

/* Which of two signals the front's thread does not take. */
static inline void route_signals(void *userdata, struct http_exchange *exchange)
{
    (void)userdata;
    sigset_t blocked;
    (void)pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    char json[64];
    (void)snprintf(json, sizeof(json), "{\"pipe\":%d,\"term\":%d}", sigismember(&blocked, SIGPIPE),
                   sigismember(&blocked, SIGTERM));
    http_reply(exchange, 200, json, HTTP_BLAME_NONE);
}

static inline void route_later(void *userdata, struct http_exchange *exchange)
{
    struct world *world = userdata;
    atomic_fetch_add(&world->calls, 1);
    (void)pthread_mutex_lock(&world->lock);
    cr_assert_lt(world->held_count, HELD_MAX);
    world->held[world->held_count++] = exchange;
    (void)pthread_cond_signal(&world->more);
    (void)pthread_mutex_unlock(&world->lock);
}

static inline void route_big(void *userdata, struct http_exchange *exchange)
{
    (void)userdata;
    char *json = malloc(BIG_ANSWER + 1);
    cr_assert_not_null(json);
    (void)memset(json, ' ', BIG_ANSWER);
    json[BIG_ANSWER] = '\0';
    http_reply(exchange, 200, json, HTTP_BLAME_NONE);
    free(json);
}

static const struct http_route world_routes[] = {
    { "GET", "/ok", route_ok },           { "POST", "/ok", route_ok },
    { "POST", "/echo", route_echo },      { "POST", "/guess", route_guess },
    { "GET", "/source", route_source },   { "GET", "/count", route_count },
    { "GET", "/signals", route_signals }, { "GET", "/later", route_later },
    { "GET", "/big", route_big },         { 0 },
};

static inline struct http_front_config world_config(struct world *world, const char *listen)
{
    return (struct http_front_config){ .listen = listen,
                                       .cert_pem = world->cert_pem,
                                       .key_pem = world->key_pem,
                                       .routes = world_routes,
                                       .userdata = world };
}

static inline void world_start(struct world *world, const char *listen, bool penalties)
{
    struct err err = { 0 };
    struct http_front_config config = world_config(world, listen);
    config.penalties = penalties;
    OK(http_front_new(&config, &world->front, &err));
}

/* Certificates, and a client that trusts them. */
static inline void world_init(struct world *world)
{
    static const char *const names[] = { "localhost", "127.0.0.1" };
    struct err err = { 0 };
    size_t size;
    (void)signal(SIGPIPE, SIG_IGN);
    *world = (struct world){ .calls = 0 };
    (void)pthread_mutex_init(&world->lock, NULL);
    (void)pthread_cond_init(&world->more, NULL);
    CLEANUP_CA struct ca *ca = new_ca();
    OK(ca_issue_server(ca, "server", names, ELEMENTS(names), 3600, &err));
    OK(file_read("server/cert.pem", PEM_MAX, &world->cert_pem, &size, &err));
    OK(file_read("server/key.pem", PEM_MAX, &world->key_pem, &size, &err));
    world->client = SSL_CTX_new(TLS_client_method());
    cr_assert_eq(SSL_CTX_load_verify_file(world->client, "ca/ca.pem"), 1);
    SSL_CTX_set_verify(world->client, SSL_VERIFY_PEER, NULL);
}

static inline void world_done(struct world *world)
{
    http_front_free(world->front);
    SSL_CTX_free(world->client);
    free(world->cert_pem);
    free(world->key_pem);
    (void)pthread_cond_destroy(&world->more);
    (void)pthread_mutex_destroy(&world->lock);
}

/* Waits for the next exchange that /later leaves. */
static inline struct http_exchange *world_held(struct world *world)
{
    (void)pthread_mutex_lock(&world->lock);
    while (world->held_count == 0)
        (void)pthread_cond_wait(&world->more, &world->lock);
    struct http_exchange *exchange = world->held[--world->held_count];
    (void)pthread_mutex_unlock(&world->lock);
    return exchange;
}

/* The client. */

struct client {
    int fd;
    SSL *ssl;
};

/* TCP only. `from` is the client's own address, or NULL. */
static inline int tcp_open(const struct world *world, const char *from)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(fd, 0);
    const struct timeval limit = { DEADLINE_MS / 1000, 0 };
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    struct sockaddr_in address = { .sin_family = AF_INET };
    if (from) {
        cr_assert_eq(inet_pton(AF_INET, from, &address.sin_addr), 1);
        cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    }
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)http_front_port(world->front));
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static inline void client_close(struct client *client)
{
    SSL_free(client->ssl);
    close_fd(&client->fd);
    ERR_clear_error();
}

/* The server learns of it at once, also when it does not read. */
static inline void client_reset(struct client *client)
{
    const struct linger reset = { 1, 0 };
    (void)setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    client_close(client);
}

static inline bool client_try_open(struct client *client, const struct world *world, SSL_CTX *tls,
                                   const char *from)
{
    client->fd = tcp_open(world, from);
    client->ssl = SSL_new(tls);
    cr_assert_eq(SSL_set_fd(client->ssl, client->fd), 1);
    cr_assert_eq(SSL_set1_host(client->ssl, "localhost"), 1);
    if (SSL_connect(client->ssl) == 1)
        return true;
    client_close(client);
    return false;
}

static inline struct client client_open(const struct world *world, const char *from)
{
    struct client client;
    cr_assert(client_try_open(&client, world, world->client, from), "no TLS");
    return client;
}

static inline bool client_send(struct client *client, const void *data, size_t size)
{
    return size == 0 || SSL_write(client->ssl, data, (int)size) == (int)size;
}

/* Until the server's end, which must be a clean one; how much came. */
static inline size_t client_read(struct client *client, char *out, size_t size)
{
    size_t used = 0;
    int n;
    while (used + 1 < size && (n = SSL_read(client->ssl, out + used, (int)(size - 1 - used))) > 0)
        used += (size_t)n;
    out[used] = '\0';
    return used;
}

static inline int status_of(const char *answer)
{
    int status = 0;
    return sscanf(answer, "HTTP/1.1 %d ", &status) == 1 ? status : 0;
}

/* One request from the address `from`; the answer's status, 0 when there is none. */
static inline int ask_from(const struct world *world, const char *from, const void *request,
                           size_t size, char answer[ANSWER_MAX])
{
    struct client client = client_open(world, from);
    (void)client_send(&client, request, size);
    (void)client_read(&client, answer, ANSWER_MAX);
    client_close(&client);
    return status_of(answer);
}

static inline int ask(const struct world *world, const char *request, char answer[ANSWER_MAX])
{
    return ask_from(world, NULL, request, strlen(request), answer);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: localhost\r\n\r\n"
#define POST(path, len)                                                                            \
    "POST " path " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"              \
    "Content-Length: " len "\r\n\r\n"

/* Until the front has noticed that all but `count` are gone; asking takes one itself. */
static inline void wait_for_connections(const struct world *world, unsigned count)
{
    char expected[64], answer[ANSWER_MAX] = "";
    (void)snprintf(expected, sizeof(expected), "{\"connections\":%u}", count + 1);
    uint64_t deadline = monotonic_us() + DEADLINE_MS * 1000ull;
    do {
        cr_assert_lt(monotonic_us(), deadline, "never %s: %s", expected, answer);
        cr_assert_eq(ask(world, GET("/count"), answer), 200, "%s", answer);
    } while (!strstr(answer, expected));
}
