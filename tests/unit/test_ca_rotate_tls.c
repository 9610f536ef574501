/* Real handshakes, in memory, before, during and after a rotation: who gets in with which
 * certificate and which knowledge of the CAs. The two CAs have the same name, so this is also the
 * proof that libssl finds the right one by its key. */
#include "tests/unit/rotate_fixture.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#define PAIR_BYTES (64u * 1024)
#define TURNS_MAX  32
#define HOST       "orchestrator.example.com"

/* cppcheck-suppress unknownMacro */
TestSuite(ca_rotate_tls, .init = fixture_setup, .fini = fixture_teardown);

static void copy_identity(const char *from, const char *to)
{
    static const char *const files[] = { "ca.pem", "cert.pem", "key.pem" };
    cr_assert_eq(mkdir(to, 0700), 0);
    for (size_t i = 0; i < ELEMENTS(files); i++) {
        char a[256], b[256];
        (void)snprintf(a, sizeof(a), "%s/%s", from, files[i]);
        (void)snprintf(b, sizeof(b), "%s/%s", to, files[i]);
        copy_file(a, b);
    }
}

static SSL_CTX *make_context(const SSL_METHOD *method, const char *identity, const char *trust,
                             int version)
{
    char cert[256], key[256];
    (void)snprintf(cert, sizeof(cert), "%s/cert.pem", identity);
    (void)snprintf(key, sizeof(key), "%s/key.pem", identity);
    SSL_CTX *context = SSL_CTX_new(method);
    cr_assert(SSL_CTX_use_certificate_file(context, cert, SSL_FILETYPE_PEM) == 1 &&
              SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1 &&
              SSL_CTX_load_verify_locations(context, trust, NULL) == 1);
    cr_assert(SSL_CTX_set_min_proto_version(context, version) == 1 &&
              SSL_CTX_set_max_proto_version(context, version) == 1);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    return context;
}

/* True when it is done or may go on, false when it has failed. */
static bool turn(SSL *ssl, bool *done)
{
    int r = SSL_do_handshake(ssl);
    *done = r == 1;
    int error = SSL_get_error(ssl, r);
    ERR_clear_error();
    return *done || error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
}

static bool connects(const char *server, const char *peer, const char *peer_trust, int version)
{
    char trust[256];
    (void)snprintf(trust, sizeof(trust), "%s/ca.pem", server);
    SSL_CTX *server_context = make_context(TLS_server_method(), server, trust, version);
    SSL_CTX *client_context = make_context(TLS_client_method(), peer, peer_trust, version);
    SSL *a = SSL_new(server_context), *b = SSL_new(client_context);
    BIO *left = NULL, *right = NULL;
    cr_assert_eq(BIO_new_bio_pair(&left, PAIR_BYTES, &right, PAIR_BYTES), 1);
    SSL_set_bio(a, left, left);
    SSL_set_bio(b, right, right);
    SSL_set_accept_state(a);
    SSL_set_connect_state(b);
    cr_assert_eq(SSL_set1_host(b, HOST), 1);
    bool a_done = false, b_done = false, good = true;
    for (int i = 0; good && !(a_done && b_done) && i < TURNS_MAX; i++)
        good = turn(b, &b_done) && turn(a, &a_done);
    good = good && a_done && b_done;
    SSL_free(a);
    SSL_free(b);
    SSL_CTX_free(server_context);
    SSL_CTX_free(client_context);
    return good;
}

/* The three servers, as orchestrators that were started at these times would run. */
static void play_rotation(void)
{
    struct err err = { 0 };
    make_state();
    CLEANUP_CA struct ca *before = state_ca();
    OK(ca_issue_peer(before, "peer-old", IDENTITY_AGENT, "a", 60, &err));
    copy_file(STATE "/ca/ca.pem", "only-old");
    copy_identity(STATE "/server", "before");
    copy_identity(ADMIN, "admin-before");
    OK(ca_rotate_begin(STATE, &err));
    CLEANUP_CA struct ca *during = state_ca();
    OK(ca_issue_peer(during, "peer-new", IDENTITY_AGENT, "a", 60, &err));
    copy_file("peer-new/ca.pem", "both");
    copy_file(STATE "/ca/ca.pem", "only-new");
    copy_identity(STATE "/server", "during");
    copy_identity(ADMIN, "admin-during");
    OK(ca_rotate_finish(STATE, 0, &err));
    copy_identity(STATE "/server", "after");
    copy_identity(ADMIN, "admin-after");
}

struct row {
    const char *server, *peer, *trust;
    bool connects;
};

static void try_rows(const struct row *rows, size_t count)
{
    static const int versions[] = { TLS1_2_VERSION, TLS1_3_VERSION };
    for (size_t i = 0; i < count; i++)
        for (size_t v = 0; v < ELEMENTS(versions); v++)
            cr_assert_eq(connects(rows[i].server, rows[i].peer, rows[i].trust, versions[v]),
                         rows[i].connects, "%s, %s, %s", rows[i].server, rows[i].peer,
                         rows[i].trust);
}

Test(ca_rotate_tls, who_gets_in_when)
{
    static const struct row rows[] = {
        { "before", "peer-old", "only-old", true },  { "before", "peer-old", "both", true },
        { "before", "peer-old", "only-new", false }, { "before", "peer-new", "only-old", false },
        { "before", "peer-new", "both", false },     { "before", "peer-new", "only-new", false },
        { "during", "peer-old", "only-old", true },  { "during", "peer-old", "both", true },
        { "during", "peer-old", "only-new", false }, { "during", "peer-new", "only-old", true },
        { "during", "peer-new", "both", true },      { "during", "peer-new", "only-new", false },
        { "after", "peer-old", "only-old", false },  { "after", "peer-old", "both", false },
        { "after", "peer-old", "only-new", false },  { "after", "peer-new", "only-old", false },
        { "after", "peer-new", "both", true },       { "after", "peer-new", "only-new", true },
    };
    play_rotation();
    try_rows(rows, ELEMENTS(rows));
}

/* Copies that were made at one time, against the orchestrator of each time. The admin whose
 * directory stayed in the state directory is never locked out. */
Test(ca_rotate_tls, the_admin_of_the_state_directory_always_gets_in)
{
    static const struct row rows[] = {
        { "before", "admin-before", "admin-before/ca.pem", true },
        { "during", "admin-before", "admin-before/ca.pem", true },
        { "during", "admin-during", "admin-during/ca.pem", true },
        { "after", "admin-after", "admin-after/ca.pem", true },
        { "after", "admin-before", "admin-before/ca.pem", false },
        { "after", "admin-during", "admin-during/ca.pem", false },
    };
    play_rotation();
    try_rows(rows, ELEMENTS(rows));
}

Test(ca_rotate_tls, a_server_is_no_peer_and_a_peer_no_server)
{
    static const struct row rows[] = {
        { "during", "before", "both", false },
        { "peer-old", "peer-new", "both", false },
    };
    play_rotation();
    try_rows(rows, ELEMENTS(rows));
}
