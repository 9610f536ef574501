/* Who may talk to the orchestrator, and what everybody else is told. The strangers here come with
 * plain sockets and OpenSSL; the known ones with real certificates on the wrong method. */
#include "tests/harness/peer.h"
#include "tests/integration/identity_fixture.h"

#include "sandstorm/v1/control.pb-c.h"
#include "sandstorm/v1/link.pb-c.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define LIST    "/sandstorm.v1.SandboxService/ListSandboxes"
#define EXEC    "/sandstorm.v1.CommandService/Exec"
#define CONNECT "/sandstorm.v1.LinkService/Connect"

TestSuite(access, .init = fixture_start, .fini = fixture_stop);

/* The stranger left no trace: everybody else is served as before. */
static void assert_still_serving(void)
{
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "--", "echo", "served");
    cr_assert_str_eq(run.out, "served\n");
    cr_assert_eq(run.status, 0);
}

/* Strangers. */

static int dial(void)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)fixture()->port),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    const struct timeval limit = { .tv_sec = PROC_DEADLINE_US / 1000000 };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    cr_assert_eq(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

struct stranger {
    const char *identity; /* NULL: no certificate */
    int max_version;      /* 0: the newest */
};

/* The orchestrator's answer to a TLS client that goes on to speak HTTP/2: the OpenSSL reason of its
 * refusal, or 0 when it has sent a byte of its own, which only an accepted peer gets. */
static int tls_refusal(const struct stranger *stranger)
{
    static const char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
    static const unsigned char alpn[] = { 2, 'h', '2' };
    char path[CLUSTER_PATH_MAX + 16], byte;
    CLEANUP_FD int fd = dial();
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (stranger->max_version) {
        SSL_CTX_set_security_level(context, 0); /* OpenSSL itself would not offer it */
        cr_assert_eq(SSL_CTX_set_min_proto_version(context, stranger->max_version), 1);
        cr_assert_eq(SSL_CTX_set_max_proto_version(context, stranger->max_version), 1);
    }
    if (stranger->identity) {
        (void)snprintf(path, sizeof(path), "%s/cert.pem", stranger->identity);
        cr_assert_eq(SSL_CTX_use_certificate_file(context, path, SSL_FILETYPE_PEM), 1);
        (void)snprintf(path, sizeof(path), "%s/key.pem", stranger->identity);
        cr_assert_eq(SSL_CTX_use_PrivateKey_file(context, path, SSL_FILETYPE_PEM), 1);
    }
    SSL *ssl = SSL_new(context);
    cr_assert_eq(SSL_set_fd(ssl, fd), 1);
    cr_assert_eq(SSL_set_alpn_protos(ssl, alpn, sizeof(alpn)), 0);
    ERR_clear_error();
    int reason = 0;
    if (SSL_connect(ssl) != 1 || SSL_write(ssl, hello, sizeof(hello) - 1) <= 0 ||
        SSL_read(ssl, &byte, 1) != 1) {
        reason = ERR_GET_REASON(ERR_peek_error());
        reason = reason ? reason : -1;
    }
    SSL_free(ssl);
    SSL_CTX_free(context);
    return reason;
}

Test(access, accepts_a_client_with_a_certificate_of_its_ca)
{
    /* The measure for the refusals below, which libgrpc gives no alert for: it hangs up. */
    cr_assert_eq(tls_refusal(&(struct stranger){ .identity = fixture()->admin }), 0);
    cr_assert_eq(tls_refusal(&(struct stranger){ .identity = fixture()->admin,
                                                 .max_version = TLS1_2_VERSION }),
                 0);
}

Test(access, refuses_a_peer_without_a_certificate)
{
    cr_assert_neq(tls_refusal(&(struct stranger){ 0 }), 0);
    assert_still_serving();
}

Test(access, refuses_a_peer_without_a_certificate_in_tls_1_2_too)
{
    cr_assert_neq(tls_refusal(&(struct stranger){ .max_version = TLS1_2_VERSION }), 0);
    assert_still_serving();
}

Test(access, refuses_tls_1_1)
{
    cr_assert_neq(tls_refusal(&(struct stranger){ .identity = fixture()->admin,
                                                  .max_version = TLS1_1_VERSION }),
                  0);
    assert_still_serving();
}

Test(access, does_not_speak_plain_http)
{
    static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    char answer[256] = "";
    CLEANUP_FD int fd = dial();
    cr_assert_eq(send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL),
                 (ssize_t)sizeof(request) - 1);
    ssize_t n = recv(fd, answer, sizeof(answer) - 1, 0);
    cr_assert_null(strstr(answer, "HTTP"), "it said %s", answer);
    while (n > 0)
        n = recv(fd, answer, sizeof(answer) - 1, 0);
    assert_still_serving();
}

/* Another CA's admin, who trusts our server. */
static const char *make_foreign_identity(void)
{
    static char admin[CLUSTER_PATH_MAX + 32];
    char dir[CLUSTER_PATH_MAX + 32], theirs[CLUSTER_PATH_MAX + 64], ours[CLUSTER_PATH_MAX + 64];
    (void)snprintf(dir, sizeof(dir), "%s/foreign", fixture()->dir);
    const struct proc_spec spec = { .argv =
                                        (const char *[]){ cluster_program("sandstorm-orchestrator"),
                                                          "init", "--state-dir", dir, NULL } };
    CLEANUP_RESULT struct proc_result made = { 0 };
    MUST(proc_run(&spec, NULL, 0, PROC_DEADLINE_US, &made, err));
    cr_assert_eq(made.status, 0, "%s", made.err);
    (void)snprintf(admin, sizeof(admin), "%s/foreign/clients/admin", fixture()->dir);
    (void)snprintf(theirs, sizeof(theirs), "%s/ca.pem", admin);
    (void)snprintf(ours, sizeof(ours), "%s/ca.pem", fixture()->admin);
    cr_assert_eq(unlink(theirs), 0);
    cr_assert_eq(symlink(ours, theirs), 0);
    return admin;
}

Test(access, refuses_a_certificate_of_another_ca)
{
    const char *foreign = make_foreign_identity();
    cr_assert_neq(tls_refusal(&(struct stranger){ .identity = foreign }), 0);
    CLEANUP_PEER struct peer *peer = peer_open(foreign, LIST);
    cr_assert_eq(peer_wait_closed(peer).code, ERR_UNAVAILABLE);
    CLEANUP_RESULT struct proc_result run = CLI("ls", "--identity", foreign);
    cr_assert_neq(run.status, 0);
    fixture_assert_contains(run.err, "refused our certificate");
    fixture_assert_contains(run.err, "signed by that orchestrator's CA");
    assert_still_serving();
}

Test(access, tells_a_client_that_its_orchestrator_has_another_ca)
{
    make_foreign_identity();
    const char *ca = fixture_path("foreign/clients/admin/ca.pem");
    cr_assert_eq(unlink(ca), 0);
    cr_assert_eq(symlink("../../ca/ca.pem", ca), 0);
    CLEANUP_RESULT struct proc_result run =
        CLI("ls", "--identity", fixture_path("foreign/clients/admin"));
    cr_assert_neq(run.status, 0);
    fixture_assert_contains(run.err, "not signed by our CA");
    fixture_assert_contains(run.err, "ca.pem");
}

/* Known, but not allowed. */

Test(access, keeps_agents_from_listing_sandboxes)
{
    CLEANUP_PEER struct peer *peer = peer_open(fixture_box()->identity, LIST);
    const Sandstorm__V1__ListSandboxesRequest request = SANDSTORM__V1__LIST_SANDBOXES_REQUEST__INIT;
    peer_send(peer, &request.base);
    peer_finish(peer);
    struct err status = peer_wait_closed(peer);
    cr_assert_eq(status.code, ERR_DENIED, "%s", status.text);
    fixture_assert_contains(status.text, "this is an agent's certificate");
}

Test(access, keeps_agents_from_running_commands)
{
    CLEANUP_PEER struct peer *peer = peer_open(fixture_box()->identity, EXEC);
    struct err status = peer_wait_closed(peer);
    cr_assert_eq(status.code, ERR_DENIED, "%s", status.text);
}

Test(access, keeps_clients_from_being_agents)
{
    CLEANUP_PEER struct peer *peer = peer_open(fixture()->admin, CONNECT);
    struct err status = peer_wait_closed(peer);
    cr_assert_eq(status.code, ERR_DENIED, "%s", status.text);
    fixture_assert_contains(status.text, "this is a client's certificate");
}

Test(access, does_not_know_other_methods)
{
    static const char *const methods[] = {
        "/sandstorm.v1.SandboxService/DeleteSandbox",
        "/no.such.Service/Method",
        "/sandstorm.v1.SandboxService/ListSandboxes/",
        "/",
    };
    for (size_t i = 0; i < ELEMENTS(methods); i++) {
        CLEANUP_PEER struct peer *peer = peer_open(fixture()->admin, methods[i]);
        struct err status = peer_wait_closed(peer);
        cr_assert_eq(status.code, ERR_UNIMPLEMENTED, "%s: %s", methods[i], status.text);
    }
}

/* What the one who typed it is told. */

Test(access, says_that_a_certificate_has_expired)
{
    char late[CLUSTER_PATH_MAX];
    MUST(cluster_login(fixture(), "late", "operator", NULL, late, err));
    expire(late);
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "--identity", late, "--", "true");
    cr_assert_eq(run.status, 125, "status %d", run.status);
    fixture_assert_contains(run.err, "client \"late\"");
    fixture_assert_contains(run.err, "expired 3 h ago");
    fixture_assert_contains(run.err, "get a new one");
    assert_still_serving();
}

Test(access, says_that_nobody_is_listening)
{
    MUST(service_stop(fixture()->orchestrator, err));
    CLEANUP_RESULT struct proc_result run = CLI("exec", BOX, "--", "true");
    cr_assert_eq(run.status, 125, "status %d", run.status);
    fixture_assert_contains(run.err, "nothing is listening");
    fixture_assert_contains(run.err, "is the orchestrator running there?");
}

Test(access, says_that_the_certificate_is_for_another_name)
{
    /* The whole of 127/8 is this machine; the certificate is for 127.0.0.1. */
    char listen[32], endpoint[32];
    MUST(service_stop(fixture()->orchestrator, err));
    (void)snprintf(listen, sizeof(listen), "127.0.0.2:%d", fixture()->port);
    MUST(service_set_argument(fixture()->orchestrator, 3, listen, err));
    MUST(service_start(fixture()->orchestrator, err));
    MUST(service_wait_ready(fixture()->orchestrator, PROC_DEADLINE_US, err));
    (void)snprintf(endpoint, sizeof(endpoint), "127.0.0.2:%d", fixture()->port);
    CLEANUP_RESULT struct proc_result run = CLI("ls", "--endpoint", endpoint);
    cr_assert_neq(run.status, 0);
    fixture_assert_contains(run.err, "is not for \"127.0.0.2\"");
    fixture_assert_contains(run.err, "--name 127.0.0.2");
}

Test(access, says_that_an_identity_is_needed)
{
    CLEANUP_RESULT struct proc_result run =
        CLI("ls", "--identity", fixture_path("no-such-directory"));
    cr_assert_neq(run.status, 0);
    fixture_assert_contains(run.err, "no-such-directory");
}
