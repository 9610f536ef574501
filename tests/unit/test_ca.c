/* What the CA does with files: that keys stay private, that a crash or a failure leaves something
 * usable, and that a reader never finds half of one pair and half of another. */
#include "tests/unit/ca_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define REISSUES 50
#define CREATORS 8
#define GLANCES  300

/* cppcheck-suppress unknownMacro */
TestSuite(ca, .init = fixture_setup, .fini = fixture_teardown);

Test(ca, a_new_ca_opens_and_knows_its_trust_domain)
{
    CLEANUP_CA struct ca *ca = new_ca();
    cr_assert_str_eq(ca_trust_domain(ca), TRUST_DOMAIN);
}

Test(ca, create_leaves_private_files_under_umask_0)
{
    ca_free(new_ca());
    cr_assert_eq(mode_of("ca"), 0700u);
    cr_assert_eq(mode_of("ca/ca-key.pem"), 0600u);
    cr_assert_eq(mode_of("ca/ca.pem"), 0644u);
    cr_assert_eq(count_entries("ca"), 2u);
}

Test(ca, create_never_replaces_a_ca)
{
    struct err err = { 0 };
    ca_free(new_ca());
    copy_file("ca/ca.pem", "old-cert");
    copy_file("ca/ca-key.pem", "old-key");
    FAILS(ca_create("ca", TRUST_DOMAIN, &err), ERR_EXISTS);
    cr_assert_not_null(strstr(err.text, "move ca.pem and ca-key.pem away"));
    cr_assert(same_files("ca/ca.pem", "old-cert"));
    cr_assert(same_files("ca/ca-key.pem", "old-key"));
}

Test(ca, create_gets_over_a_crash_between_key_and_certificate)
{
    struct err err = { 0 };
    cr_assert_eq(mkdir("ca", 0700), 0);
    OK(file_write_atomic("ca/ca-key.pem", "half", 4, 0600, &err));
    CLEANUP_CA struct ca *ca = new_ca();
    cr_assert_not_null(ca);
}

Test(ca, create_refuses_a_bad_trust_domain_and_makes_nothing)
{
    struct err err = { 0 };
    FAILS(ca_create("ca", "Prod.example.com", &err), ERR_INVALID);
    FAILS(ca_create("ca", "", &err), ERR_INVALID);
    cr_assert_eq(count_entries("."), 0u);
}

Test(ca, create_needs_the_parent)
{
    struct err err = { 0 };
    FAILS(ca_create("no/ca", TRUST_DOMAIN, &err), ERR_SYSTEM);
    cr_assert_eq(err.sys_errno, ENOENT);
}

static void *creator(void *result)
{
    struct err err = { 0 };
    int r = ca_create("ca", TRUST_DOMAIN, &err);
    *(enum err_code *)result = r == 0 ? ERR_NONE : err.code;
    return NULL;
}

Test(ca, of_many_that_create_at_once_one_wins)
{
    pthread_t threads[CREATORS];
    enum err_code results[CREATORS];
    for (int i = 0; i < CREATORS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, creator, &results[i]), 0);
    unsigned winners = 0;
    for (int i = 0; i < CREATORS; i++) {
        cr_assert_eq(pthread_join(threads[i], NULL), 0);
        cr_assert(results[i] == ERR_NONE || results[i] == ERR_EXISTS);
        winners += results[i] == ERR_NONE;
    }
    cr_assert_eq(winners, 1u);
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = NULL;
    OK(ca_open("ca", &ca, &err));
}

Test(ca, open_says_which_file_is_missing)
{
    struct err err = { 0 };
    struct ca *ca = NULL;
    FAILS(ca_open("ca", &ca, &err), ERR_NOT_FOUND);
    cr_assert_not_null(strstr(err.text, "sandstorm-orchestrator init"));
    ca_free(new_ca());
    cr_assert_eq(unlink("ca/ca-key.pem"), 0);
    FAILS(ca_open("ca", &ca, &err), ERR_NOT_FOUND);
    cr_assert_not_null(strstr(err.text, "ca-key.pem"));
    cr_assert_null(ca);
    cr_assert_eq(ca_open("ca", &ca, NULL), -1);
}

Test(ca, open_refuses_the_key_of_another_ca)
{
    struct err err = { 0 };
    struct ca *ca = NULL;
    ca_free(new_ca());
    OK(ca_create("other", TRUST_DOMAIN, &err));
    copy_file("other/ca-key.pem", "ca/ca-key.pem");
    FAILS(ca_open("ca", &ca, &err), ERR_PRECONDITION);
    cr_assert_not_null(strstr(err.text, "is not the key of"));
    cr_assert_eq(ERR_peek_error(), 0ul);
}

struct garbage {
    const char *file;
    const char *text;
};

Test(ca, open_refuses_garbage_and_empties_the_openssl_error_queue)
{
    static const struct garbage rows[] = {
        { "ca/ca.pem", "garbage\n" },
        { "ca/ca-key.pem", "garbage\n" },
        /* Well wrapped, so that several layers of OpenSSL have something to say. */
        { "ca/ca.pem", "-----BEGIN CERTIFICATE-----\nMAAA\n-----END CERTIFICATE-----\n" },
        { "ca/ca-key.pem", "-----BEGIN PRIVATE KEY-----\nMAAA\n-----END PRIVATE KEY-----\n" },
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        struct err err = { 0 };
        struct ca *ca = NULL;
        ca_free(new_ca());
        OK(file_write_atomic(rows[i].file, rows[i].text, strlen(rows[i].text), 0600, &err));
        FAILS(ca_open("ca", &ca, &err), ERR_INVALID);
        cr_assert_not_null(strstr(err.text, strrchr(rows[i].file, '/') + 1));
        cr_assert_not_null(strstr(err.text, "error:"));
        cr_assert_eq(ERR_peek_error(), 0ul);
        cr_assert(unlink("ca/ca.pem") == 0 && unlink("ca/ca-key.pem") == 0);
    }
}

Test(ca, open_refuses_a_leaf_as_ca)
{
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca();
    struct ca *bad = NULL;
    OK(ca_issue_peer(ca, "leaf", IDENTITY_CLIENT, "alice", 60, &err));
    copy_file("leaf/cert.pem", "ca/ca.pem");
    copy_file("leaf/key.pem", "ca/ca-key.pem");
    FAILS(ca_open("ca", &bad, &err), ERR_INVALID);
    cr_assert_not_null(strstr(err.text, "not a CA certificate"));
}

Test(ca, a_pair_is_private_complete_and_fits_together)
{
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca();
    cr_assert_eq(mkdir("agent", 0777), 0);
    OK(ca_issue_peer(ca, "agent/", IDENTITY_AGENT, "web-1", 60, &err));
    OK(ca_issue_peer(ca, "fresh/", IDENTITY_AGENT, "web-1", 60, &err));
    cr_assert_eq(mode_of("agent"), 0700u);
    cr_assert_eq(mode_of("fresh"), 0700u);
    cr_assert_eq(mode_of("agent/key.pem"), 0600u);
    cr_assert_eq(mode_of("agent/cert.pem"), 0644u);
    cr_assert_eq(mode_of("agent/ca.pem"), 0644u);
    cr_assert_eq(count_entries("agent"), 3u);
    cr_assert_eq(count_entries("."), 3u);
    cr_assert(same_files("agent/ca.pem", "ca/ca.pem"));
    CLEANUP_X509 X509 *cert = read_cert("agent/cert.pem");
    CLEANUP_KEY EVP_PKEY *key = read_key("agent/key.pem");
    cr_assert_eq(X509_check_private_key(cert, key), 1);
}

Test(ca, refuses_to_issue_into_a_directory_with_other_files)
{
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca();
    copy_file("ca/ca-key.pem", "old-key");
    FAILS(ca_issue_peer(ca, "ca", IDENTITY_AGENT, "web-1", 60, &err), ERR_PRECONDITION);
    cr_assert_not_null(strstr(err.text, "ca-key.pem"));
    cr_assert(same_files("ca/ca-key.pem", "old-key"));
    FAILS(ca_issue_peer(ca, "old-key", IDENTITY_AGENT, "web-1", 60, &err), ERR_SYSTEM);
    FAILS(ca_issue_peer(ca, "no/agent", IDENTITY_AGENT, "web-1", 60, &err), ERR_SYSTEM);
    cr_assert_eq(symlink("nowhere", "dangling"), 0);
    FAILS(ca_issue_peer(ca, "dangling/", IDENTITY_AGENT, "web-1", 60, &err), ERR_PRECONDITION);
    cr_assert_eq(count_entries("."), 3u);
}

Test(ca, a_failed_reissue_keeps_the_old_pair)
{
    static const char *const good[] = { "localhost" };
    static const char *const bad[] = { "local host" };
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca();
    OK(ca_issue_server(ca, "server", good, 1, 60, &err));
    copy_file("server/key.pem", "old-key");
    FAILS(ca_issue_server(ca, "server", bad, 1, 60, &err), ERR_INVALID);
    cr_assert(same_files("server/key.pem", "old-key"));
    cr_assert_eq(verify("server", X509_PURPOSE_SSL_SERVER), X509_V_OK);
}

Test(ca, reissue_goes_through_a_symbolic_link)
{
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca();
    OK(ca_issue_peer(ca, "agent", IDENTITY_AGENT, "web-1", 60, &err));
    copy_file("agent/key.pem", "old-key");
    cr_assert_eq(symlink("agent", "link"), 0);
    OK(ca_issue_peer(ca, "link", IDENTITY_AGENT, "web-1", 60, &err));
    cr_assert_not(same_files("agent/key.pem", "old-key"));
    cr_assert(same_files("agent/key.pem", "link/key.pem"));
    struct stat st;
    cr_assert(lstat("link", &st) == 0 && S_ISLNK(st.st_mode));
    cr_assert_eq(count_entries("."), 4u);
}

Test(ca, an_open_directory_never_shows_the_next_pair)
{
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca();
    OK(ca_issue_peer(ca, "agent", IDENTITY_AGENT, "web-1", 60, &err));
    CLEANUP_FD int dir = open("agent", O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    OK(ca_issue_peer(ca, "agent", IDENTITY_AGENT, "web-1", 60, &err));
    cr_assert(openat(dir, "key.pem", O_RDONLY | O_CLOEXEC) == -1 && errno == ENOENT);
}

struct reader {
    atomic_bool started, stop;
    unsigned pairs, vanished;
    const char *fault;
};

static FILE *open_in(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? NULL : fdopen(fd, "r");
}

/* As the comment in common/swap_dir.c asks of a reader. NULL, or what is wrong. */

static const char *read_pair(struct reader *reader)
{
    CLEANUP_FD int dir = open("agent", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return "the directory is not there";
    FILE *cert_file = open_in(dir, "cert.pem"), *key_file = open_in(dir, "key.pem");
    const char *fault = NULL;
    if (cert_file && key_file) {
        CLEANUP_X509 X509 *cert = PEM_read_X509(cert_file, NULL, NULL, NULL);
        CLEANUP_KEY EVP_PKEY *key = PEM_read_PrivateKey(key_file, NULL, NULL, NULL);
        if (!cert || !key)
            fault = "a file is not complete";
        else if (X509_check_private_key(cert, key) != 1)
            fault = "key and certificate do not match";
        reader->pairs++;
    } else {
        reader->vanished++;
    }
    if (cert_file)
        (void)fclose(cert_file);
    if (key_file)
        (void)fclose(key_file);
    return fault;
}

static void *reader_main(void *data)
{
    struct reader *reader = data;
    while (!reader->fault && !atomic_load(&reader->stop)) {
        reader->fault = read_pair(reader);
        /* Parsing is slow; a moment without the directory would be over before the next look. */
        for (int i = 0; i < GLANCES && !reader->fault; i++)
            if (access("agent", F_OK) < 0)
                reader->fault = "the directory was not there for a moment";
        atomic_store(&reader->started, true);
    }
    atomic_store(&reader->started, true);
    return NULL;
}

Test(ca, a_reader_during_reissues_always_finds_a_pair_that_matches, .timeout = 60)
{
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca();
    OK(ca_issue_peer(ca, "agent", IDENTITY_AGENT, "web-1", 60, &err));
    struct reader reader = { 0 };
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, reader_main, &reader), 0);
    while (!atomic_load(&reader.started))
        (void)sched_yield();
    int r = 0;
    for (int i = 0; i < REISSUES && r == 0; i++)
        r = ca_issue_peer(ca, "agent", IDENTITY_AGENT, "web-1", 60, &err);
    atomic_store(&reader.stop, true);
    cr_assert_eq(pthread_join(thread, NULL), 0);
    cr_assert_eq(r, 0, "%s", err.text);
    cr_assert_null(reader.fault, "%s", reader.fault);
    cr_assert_gt(reader.pairs, 0u);
    cr_assert_eq(count_entries("."), 2u);
}
