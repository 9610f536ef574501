/* An HTTPS server in the test's own process, on a loopback port of its own: a thread that takes one
 * connection after the other, reads one whole request and sends the bytes that the test's handler
 * chose, or garbage, or nothing. OpenSSL only, so that it shares no code with the client. */
#pragma once

#include "orchestrator/ca-internal.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define HTTPS_REQUEST_MAX 65536
#define HTTPS_SAFETY_S    20 /* never waited for unless something is broken */
#define OK(call)          cr_assert_eq((call), 0, "%s", err.text)

/* A CA and a server's certificate. */
struct https_pki {
    EVP_PKEY *root_key, *key;
    X509 *root, *cert;
    char *ca_pem;
};

struct https_request {
    const char *path; /* "POST /v1/enroll" */
    const char *head, *body;
};

struct https_reply {
    char *bytes; /* freed by the server */
    size_t size;
    size_t step; /* bytes in one TLS record; 0: as many as fit */
    bool hang;   /* afterwards, until the server is stopped */
    bool reset;  /* the connection ends without a word */
};

struct https_server {
    SSL_CTX *tls;        /* NULL: not TLS; `garbage` is sent */
    const char *garbage; /* NULL: nothing is ever sent */
    void (*handle)(void *userdata, const struct https_request *request, struct https_reply *reply);
    void *userdata;
    int fd, stop[2];
    char endpoint[64];
    pthread_t thread;
    atomic_uint connections, requests;
    char seen[HTTPS_REQUEST_MAX]; /* the last request; read it after https_stop() */
};

static inline char *https_pem(X509 *cert)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *data = NULL;
    cr_assert(bio && PEM_write_bio_X509(bio, cert) == 1);
    long size = BIO_get_mem_data(bio, &data);
    char *text = strndup(data, (size_t)size);
    cr_assert_not_null(text);
    BIO_free(bio);
    return text;
}

/* A server's certificate for `name`, made `age_s` ago and good for `lifetime_s`. */
static inline void https_pki_issue(struct https_pki *pki, const char *name, long age_s,
                                   unsigned long lifetime_s)
{
    struct err err = { 0 };
    const char *const names[] = { name };
    const struct ca_leaf leaf = { .common_name = "test",
                                  .usage = "serverAuth",
                                  .names = names,
                                  .name_count = 1,
                                  .lifetime_s = lifetime_s };
    X509_free(pki->cert);
    pki->cert = NULL;
    OK(ca_x509_leaf(&leaf, pki->key, pki->root, pki->root_key, time(NULL) - age_s, &pki->cert,
                    &err));
}

static inline void https_pki_new(struct https_pki *pki, const char *name)
{
    struct err err = { 0 };
    *pki = (struct https_pki){ 0 };
    pki->root_key = EVP_EC_gen("P-256");
    pki->key = EVP_EC_gen("P-256");
    cr_assert(pki->root_key && pki->key);
    OK(ca_x509_root(pki->root_key, "test.example.com", time(NULL), &pki->root, &err));
    pki->ca_pem = https_pem(pki->root);
    https_pki_issue(pki, name, 0, 3600);
}

static inline void https_pki_done(struct https_pki *pki)
{
    EVP_PKEY_free(pki->root_key);
    EVP_PKEY_free(pki->key);
    X509_free(pki->root);
    X509_free(pki->cert);
    free(pki->ca_pem);
}

static inline SSL_CTX *https_tls(X509 *cert, EVP_PKEY *key)
{
    SSL_CTX *tls = SSL_CTX_new(TLS_server_method());
    cr_assert(tls && SSL_CTX_use_certificate(tls, cert) == 1 &&
              SSL_CTX_use_PrivateKey(tls, key) == 1);
    return tls;
}

__attribute__((format(printf, 2, 3))) static inline void https_reply_raw(struct https_reply *reply,
                                                                         const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    int n = vasprintf(&reply->bytes, format, ap);
    va_end(ap);
    cr_assert_geq(n, 0);
    reply->size = (size_t)n;
}

static inline void https_reply_json(struct https_reply *reply, int status, const char *json)
{
    https_reply_raw(reply,
                    "HTTP/1.1 %d Word\r\nContent-Type: application/json\r\nContent-Length: "
                    "%zu\r\nConnection: close\r\n\r\n%s",
                    status, strlen(json), json);
}

static inline void https_wait_for_stop(const struct https_server *server)
{
    struct pollfd stop = { .fd = server->stop[0], .events = POLLIN };
    (void)poll(&stop, 1, HTTPS_SAFETY_S * 1000);
}

/* One whole request into server->seen; 0 when the peer went away before its end. */
static inline size_t https_read(struct https_server *server, SSL *ssl, char **ret_body)
{
    size_t used = 0;
    for (;;) {
        int n = SSL_read(ssl, server->seen + used, (int)(sizeof(server->seen) - 1 - used));
        if (n <= 0)
            return 0;
        used += (size_t)n;
        server->seen[used] = '\0';
        char *end = strstr(server->seen, "\r\n\r\n");
        if (!end)
            continue;
        const char *length = strcasestr(server->seen, "content-length:");
        size_t body = length && length < end ? strtoul(length + 15, NULL, 10) : 0;
        *ret_body = end + 4;
        if (used >= (size_t)(*ret_body - server->seen) + body)
            return used;
    }
}

static inline void https_exchange(struct https_server *server, SSL *ssl)
{
    char *body = NULL, path[128] = "";
    if (SSL_accept(ssl) != 1 || https_read(server, ssl, &body) == 0)
        return;
    atomic_fetch_add(&server->requests, 1);
    (void)sscanf(server->seen, "%127[^\r]", path);
    char *version = strstr(path, " HTTP/");
    if (version)
        *version = '\0';
    struct https_reply reply = { 0 };
    server->handle(server->userdata,
                   &(struct https_request){ .path = path, .head = server->seen, .body = body },
                   &reply);
    int n = 1;
    for (size_t at = 0; at < reply.size && n > 0; at += (size_t)n) {
        size_t left = reply.size - at;
        n = SSL_write(ssl, reply.bytes + at, (int)(reply.step ? MIN(reply.step, left) : left));
    }
    free(reply.bytes);
    if (reply.hang)
        https_wait_for_stop(server);
    if (!reply.reset)
        (void)SSL_shutdown(ssl);
}

static inline void https_connection(struct https_server *server, int fd)
{
    const struct timeval limit = { .tv_sec = HTTPS_SAFETY_S };
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    atomic_fetch_add(&server->connections, 1);
    if (server->tls) {
        SSL *ssl = SSL_new(server->tls);
        if (ssl && SSL_set_fd(ssl, fd) == 1)
            https_exchange(server, ssl);
        SSL_free(ssl);
    } else if (server->garbage) {
        (void)send(fd, server->garbage, strlen(server->garbage), MSG_NOSIGNAL);
        (void)shutdown(fd, SHUT_WR);
        char rest[512];
        while (recv(fd, rest, sizeof(rest), 0) > 0)
            ;
    } else {
        https_wait_for_stop(server);
    }
}

static inline void *https_main(void *userdata)
{
    struct https_server *server = userdata;
    sigset_t all;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, NULL);
    for (;;) {
        struct pollfd fds[] = { { .fd = server->stop[0], .events = POLLIN },
                                { .fd = server->fd, .events = POLLIN } };
        (void)poll(fds, ELEMENTS(fds), -1);
        if (fds[0].revents)
            return NULL;
        CLEANUP_FD int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            https_connection(server, fd);
    }
}

/* Address is "127.0.0.1" or "::1"; the caller has set what it wants to be served with. */
static inline void https_start_at(struct https_server *server, const char *address)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6 };
    bool six = inet_pton(AF_INET6, address, &v6.sin6_addr) == 1;
    cr_assert(six || inet_pton(AF_INET, address, &v4.sin_addr) == 1);
    struct sockaddr *where = six ? (struct sockaddr *)&v6 : (struct sockaddr *)&v4;
    socklen_t size = six ? sizeof(v6) : sizeof(v4);
    server->fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(server->fd >= 0 && bind(server->fd, where, size) == 0 &&
              listen(server->fd, 16) == 0 && getsockname(server->fd, where, &size) == 0);
    (void)snprintf(server->endpoint, sizeof(server->endpoint), six ? "[%s]:%u" : "%s:%u", address,
                   ntohs(six ? v6.sin6_port : v4.sin_port));
    cr_assert_eq(pipe2(server->stop, O_CLOEXEC), 0);
    cr_assert_eq(pthread_create(&server->thread, NULL, https_main, server), 0);
}

static inline void https_start(struct https_server *server)
{
    https_start_at(server, "127.0.0.1");
}

static inline void https_stop(struct https_server *server)
{
    close_fd(&server->stop[1]);
    (void)pthread_join(server->thread, NULL);
    close_fd(&server->stop[0]);
    close_fd(&server->fd);
    SSL_CTX_free(server->tls);
    server->tls = NULL;
}
