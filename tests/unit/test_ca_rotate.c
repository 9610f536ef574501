/* One CA follows another: what changes in a state directory and what stays, and what is refused.
 * Kills are in test_ca_rotate_kill.c, handshakes in test_ca_rotate_tls.c. */
#include "tests/unit/rotate_fixture.h"

#define HOUR_S 3600

/* cppcheck-suppress unknownMacro */
TestSuite(ca_rotate, .init = fixture_setup, .fini = fixture_teardown);

static void begin(void)
{
    struct err err = { 0 };
    OK(ca_rotate_begin(STATE, &err));
}

Test(ca_rotate, begin_makes_a_ca_that_signs_and_keeps_trust_in_the_old_one)
{
    struct err err = { 0 };
    make_state();
    CLEANUP_CA struct ca *before = state_ca();
    copy_file(STATE "/server/cert.pem", "server-cert");
    copy_file(STATE "/server/key.pem", "server-key");
    copy_file(ADMIN "/cert.pem", "admin-cert");
    copy_file(STATE "/ca/ca.pem", "old-ca");
    begin();
    CLEANUP_CA struct ca *ca = state_ca();
    cr_assert_str_eq(ca_trust_domain(ca), TRUST_DOMAIN);
    cr_assert(same_files(STATE "/ca/old.pem", "old-ca"));
    cr_assert_neq(EVP_PKEY_eq(ca->key, before->key), 1);
    CLEANUP_FREE char *newest = NULL, *bundle = NULL;
    size_t size = 0;
    OK(file_read(STATE "/ca/ca.pem", PEM_MAX, &newest, &size, &err));
    cr_assert_geq(asprintf(&bundle, "%s%s", newest, ca_bundle(before)), 0);
    cr_assert_str_eq(ca_bundle(ca), bundle);
    cr_assert(file_holds(STATE "/server/ca.pem", bundle));
    cr_assert(file_holds(ADMIN "/ca.pem", bundle));
    cr_assert(same_files(STATE "/server/cert.pem", "server-cert"));
    cr_assert(same_files(STATE "/server/key.pem", "server-key"));
    cr_assert(same_files(ADMIN "/cert.pem", "admin-cert"));
    cr_assert_eq(count_entries(STATE "/ca"), 3u);
    cr_assert_eq(count_entries(STATE), 3u);
    cr_assert_eq(mode_of(STATE "/ca"), 0700u);
    cr_assert_eq(mode_of(STATE "/ca/ca-key.pem"), 0600u);
    OK(ca_issue_peer(ca, "peer", IDENTITY_AGENT, "a", 60, &err));
    cr_assert(is_signed_by("peer/cert.pem", ca->cert));
    cr_assert(file_holds("peer/ca.pem", bundle));
}

Test(ca_rotate, the_fingerprint_is_of_the_ca_behind_the_server)
{
    struct err err = { 0 };
    make_state();
    CLEANUP_CA struct ca *before = state_ca();
    char old[CA_FINGERPRINT_TEXT_MAX], new[CA_FINGERPRINT_TEXT_MAX];
    fingerprint_of(before->cert, old);
    cr_assert_str_eq(ca_fingerprint(before), old);
    begin();
    CLEANUP_CA struct ca *during = state_ca();
    fingerprint_of(during->cert, new);
    cr_assert_str_eq(ca_fingerprint(during), old);
    /* The server's certificate had to be renewed in the overlap. */
    static const char *const names[] = { "localhost" };
    OK(ca_issue_server(during, STATE "/server", names, 1, 60, &err));
    CLEANUP_CA struct ca *late = state_ca();
    cr_assert_str_eq(ca_fingerprint(late), new);
    OK(ca_rotate_finish(STATE, 0, &err));
    CLEANUP_CA struct ca *after = state_ca();
    cr_assert_str_eq(ca_fingerprint(after), new);
}

Test(ca_rotate, a_second_begin_is_refused_and_changes_nothing)
{
    struct err err = { 0 };
    make_state();
    begin();
    copy_file(STATE "/ca/ca.pem", "ca");
    FAILS(ca_rotate_begin(STATE, &err), ERR_PRECONDITION);
    cr_assert_not_null(strstr(err.text, "finish it first"));
    cr_assert(same_files(STATE "/ca/ca.pem", "ca"));
}

Test(ca_rotate, finish_moves_everybody_to_the_new_ca)
{
    struct err err = { 0 };
    make_state();
    CLEANUP_X509 X509 *server = read_cert(STATE "/server/cert.pem");
    CLEANUP_X509 X509 *admin = read_cert(ADMIN "/cert.pem");
    copy_file(ADMIN "/key.pem", "admin-key");
    begin();
    OK(ca_rotate_finish(STATE, 0, &err));
    CLEANUP_CA struct ca *ca = state_ca();
    cr_assert_null(ca->old);
    cr_assert_eq(count_entries(STATE "/ca"), 2u);
    cr_assert(file_holds(STATE "/ca/ca.pem", ca_bundle(ca)));
    cr_assert(file_holds(STATE "/server/ca.pem", ca_bundle(ca)));
    cr_assert(file_holds(ADMIN "/ca.pem", ca_bundle(ca)));
    CLEANUP_X509 X509 *new_server = read_cert(STATE "/server/cert.pem");
    CLEANUP_X509 X509 *new_admin = read_cert(ADMIN "/cert.pem");
    static const int same[] = { NID_subject_alt_name, NID_ext_key_usage, NID_key_usage,
                                NID_basic_constraints };
    for (size_t i = 0; i < ELEMENTS(same); i++) {
        const int nid = same[i];
        X509_EXTENSION *a = X509_get_ext(server, X509_get_ext_by_NID(server, nid, -1));
        X509_EXTENSION *b = X509_get_ext(new_server, X509_get_ext_by_NID(new_server, nid, -1));
        cr_assert_eq(ASN1_OCTET_STRING_cmp(X509_EXTENSION_get_data(a), X509_EXTENSION_get_data(b)),
                     0);
    }
    expect_extension(new_admin, NID_subject_alt_name, "URI:spiffe://" TRUST_DOMAIN "/client/admin");
    cr_assert(same_files(ADMIN "/key.pem", "admin-key"));
    cr_assert(is_matching_pair(ADMIN) && is_matching_pair(STATE "/server"));
    /* Nobody's credential gets longer by a rotation. */
    cr_assert_leq(ASN1_TIME_compare(X509_get0_notAfter(new_admin), X509_get0_notAfter(admin)), 0);
    cr_assert_eq(verify(STATE "/server", X509_PURPOSE_SSL_SERVER), X509_V_OK);
    cr_assert_eq(verify(ADMIN, X509_PURPOSE_SSL_CLIENT), X509_V_OK);
    FAILS(ca_rotate_finish(STATE, 0, &err), ERR_PRECONDITION);
    begin();
    OK(ca_rotate_finish(STATE, 0, &err));
}

Test(ca_rotate, finish_without_begin_is_refused)
{
    struct err err = { 0 };
    make_state();
    FAILS(ca_rotate_finish(STATE, 0, &err), ERR_PRECONDITION);
    cr_assert_not_null(strstr(err.text, "begin one first"));
}

static X509 *make_root(EVP_PKEY **ret_key, const char *domain, time_t now)
{
    struct err err = { 0 };
    X509 *cert = NULL;
    OK(cert_key_new(ret_key, &err));
    OK(ca_x509_root(*ret_key, domain, now, &cert, &err));
    return cert;
}

/* As if the rotation had begun `ago` seconds before now. */
static void age_rotation(time_t ago)
{
    struct err err = { 0 };
    CLEANUP_KEY EVP_PKEY *key = NULL;
    CLEANUP_X509 X509 *cert = make_root(&key, TRUST_DOMAIN, time(NULL) - ago);
    OK(ca_write_root(STATE "/ca", key, cert, &err));
}

Test(ca_rotate, finish_waits_for_the_overlap_and_says_until_when)
{
    struct err err = { 0 };
    make_state();
    begin();
    FAILS(ca_rotate_finish(STATE, 60, &err), ERR_PRECONDITION);
    FAILS(ca_rotate_finish(STATE, UINT64_MAX, &err), ERR_PRECONDITION);
    age_rotation(2 * HOUR_S);
    FAILS(ca_rotate_finish(STATE, 3 * HOUR_S, &err), ERR_PRECONDITION);
    time_t until = time(NULL) + HOUR_S;
    char day[16];
    struct tm tm;
    (void)strftime(day, sizeof(day), "%F %H:", gmtime_r(&until, &tm));
    cr_assert_not_null(strstr(err.text, day), "%s", err.text);
    cr_assert_eq(access(STATE "/ca/old.pem", F_OK), 0);
    OK(ca_rotate_finish(STATE, HOUR_S, &err));
    cr_assert_lt(access(STATE "/ca/old.pem", F_OK), 0);
}

static void put_client(struct ca *ca, const char *dir, time_t now)
{
    struct err err = { 0 };
    const struct ca_leaf leaf = { .common_name = "Sandstorm client",
                                  .usage = "clientAuth",
                                  .uri = "spiffe://" TRUST_DOMAIN "/client/bob",
                                  .lifetime_s = HOUR_S };
    char path[256];
    CLEANUP_X509 X509 *cert = NULL;
    BIO *pem = NULL;
    OK(ca_issue_peer(ca, dir, IDENTITY_CLIENT, "bob", HOUR_S, &err));
    (void)snprintf(path, sizeof(path), "%s/key.pem", dir);
    CLEANUP_KEY EVP_PKEY *key = read_key(path);
    OK(ca_x509_leaf(&leaf, key, ca->cert, ca->key, now, &cert, &err));
    OK(cert_pem_from_cert(cert, &pem, &err));
    (void)snprintf(path, sizeof(path), "%s/cert.pem", dir);
    put_bio(path, pem);
}

Test(ca_rotate, finish_does_not_revive_an_expired_client)
{
    struct err err = { 0 };
    make_state();
    CLEANUP_CA struct ca *old = state_ca();
    put_client(old, STATE "/clients/gone", time(NULL) - 2 * HOUR_S);
    put_client(old, STATE "/clients/here", time(NULL));
    copy_file(STATE "/clients/gone/cert.pem", "gone-cert");
    begin();
    OK(ca_rotate_finish(STATE, 0, &err));
    CLEANUP_CA struct ca *ca = state_ca();
    cr_assert(same_files(STATE "/clients/gone/cert.pem", "gone-cert"));
    cr_assert(is_signed_by(STATE "/clients/here/cert.pem", ca->cert));
}

Test(ca_rotate, what_else_is_among_the_clients_stays)
{
    struct err err = { 0 };
    make_state();
    CLEANUP_CA struct ca *old = state_ca(), *other = new_ca();
    put_client(other, STATE "/clients/other", time(NULL));
    put_client(old, STATE "/clients/notes", time(NULL));
    copy_file("ca/ca.pem", STATE "/clients/notes/my-notes");
    put_client(old, STATE "/clients/taken", time(NULL));
    cr_assert_eq(unlink(STATE "/clients/taken/key.pem"), 0);
    copy_file("ca/ca.pem", STATE "/clients/file");
    cr_assert_eq(mkdir(STATE "/clients/empty", 0700), 0);
    cr_assert_eq(symlink("/nowhere", STATE "/clients/link"), 0);
    begin();
    OK(ca_rotate_finish(STATE, 0, &err));
    CLEANUP_CA struct ca *ca = state_ca();
    cr_assert(file_holds(STATE "/clients/other/ca.pem", ca_bundle(other)));
    cr_assert(is_signed_by(STATE "/clients/other/cert.pem", other->cert));
    cr_assert(same_files(STATE "/clients/notes/my-notes", "ca/ca.pem"));
    cr_assert(file_holds(STATE "/clients/notes/ca.pem", ca_bundle(ca)));
    cr_assert(is_signed_by(STATE "/clients/notes/cert.pem", ca->cert));
    cr_assert(file_holds(STATE "/clients/taken/ca.pem", ca_bundle(old)));
    cr_assert_eq(count_entries(STATE "/clients"), 7u);
}

Test(ca_rotate, begin_refuses_to_lose_other_files_of_the_ca_directory)
{
    struct err err = { 0 };
    make_state();
    copy_file(STATE "/ca/ca-key.pem", "key");
    copy_file(STATE "/ca/ca.pem", STATE "/ca/notes");
    FAILS(ca_rotate_begin(STATE, &err), ERR_PRECONDITION);
    cr_assert_not_null(strstr(err.text, "notes"));
    cr_assert(same_files(STATE "/ca/ca-key.pem", "key"));
    cr_assert_eq(count_entries(STATE), 3u);
}

Test(ca_rotate, works_through_a_symbolic_link)
{
    struct err err = { 0 };
    make_state();
    cr_assert_eq(rename(STATE "/ca", "elsewhere"), 0);
    cr_assert_eq(symlink("../elsewhere", STATE "/ca"), 0);
    begin();
    cr_assert_eq(count_entries("elsewhere"), 3u);
    CLEANUP_CA struct ca *ca = state_ca();
    cr_assert_not_null(ca->old);
    OK(ca_rotate_finish(STATE, 0, &err));
    cr_assert_eq(count_entries("elsewhere"), 2u);
    cr_assert_eq(count_entries("."), 2u);
}

Test(ca_rotate, nothing_to_rotate_is_said_and_nothing_to_refresh_is_fine)
{
    struct err err = { 0 };
    cr_assert_eq(mkdir(STATE, 0700), 0);
    FAILS(ca_rotate_begin(STATE, &err), ERR_NOT_FOUND);
    cr_assert_not_null(strstr(err.text, "sandstorm-orchestrator init"));
    FAILS(ca_rotate_finish(STATE, 0, &err), ERR_NOT_FOUND);
    OK(ca_refresh_server(STATE, &err));
    FAILS(ca_refresh_server("nowhere", &err), ERR_SYSTEM);
    cr_assert_eq(count_entries(STATE), 0u);
}

Test(ca_rotate, refresh_renews_the_server_in_the_last_third_of_its_life)
{
    struct err err = { 0 };
    make_state();
    CLEANUP_CA struct ca *ca = state_ca();
    const time_t now = time(NULL), year = (time_t)SERVER_LIFETIME_S;
    put_server(ca, now - year * 60 / 100, SERVER_LIFETIME_S);
    copy_file(STATE "/server/cert.pem", "until-now");
    OK(ca_refresh_server(STATE, &err));
    cr_assert(same_files(STATE "/server/cert.pem", "until-now"));
    put_server(ca, now - year * 70 / 100, SERVER_LIFETIME_S);
    OK(ca_refresh_server(STATE, &err));
    CLEANUP_X509 X509 *cert = read_cert(STATE "/server/cert.pem");
    cr_assert_gt(ASN1_TIME_cmp_time_t(X509_get0_notAfter(cert), now + year - 60), 0);
    expect_extension(cert, NID_subject_alt_name, "DNS:localhost");
    cr_assert(is_matching_pair(STATE "/server"));
    put_server(ca, now - year * 2, SERVER_LIFETIME_S);
    OK(ca_refresh_server(STATE, &err));
    cr_assert_eq(verify(STATE "/server", X509_PURPOSE_SSL_SERVER), X509_V_OK);
}

Test(ca_rotate, begin_gives_the_server_a_certificate_that_outlasts_the_overlap)
{
    make_state();
    CLEANUP_CA struct ca *old = state_ca();
    const time_t now = time(NULL), year = (time_t)SERVER_LIFETIME_S;
    put_server(old, now - year * 40 / 100, SERVER_LIFETIME_S);
    begin();
    CLEANUP_X509 X509 *cert = read_cert(STATE "/server/cert.pem");
    cr_assert(ca_x509_signed_by(cert, old->cert));
    cr_assert_gt(ASN1_TIME_cmp_time_t(X509_get0_notAfter(cert), now + year - 60), 0);
}

Test(ca_rotate, refresh_replaces_a_server_certificate_of_a_ca_that_is_gone)
{
    struct err err = { 0 };
    make_state();
    CLEANUP_CA struct ca *gone = new_ca(), *ca = state_ca();
    put_server(gone, time(NULL), SERVER_LIFETIME_S);
    OK(ca_refresh_server(STATE, &err));
    cr_assert(is_signed_by(STATE "/server/cert.pem", ca->cert));
    cr_assert(is_matching_pair(STATE "/server"));
}

static void rename_issuer(X509 *cert)
{
    X509_NAME *name = X509_get_subject_name(cert);
    X509_NAME_ENTRY_free(X509_NAME_delete_entry(name, 0));
    cr_assert_eq(X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                            (const unsigned char *)"Somebody else", -1, -1, 0),
                 1);
}

Test(ca_rotate, refresh_keeps_a_server_certificate_of_somebody_elses_ca)
{
    struct err err = { 0 };
    make_state();
    CLEANUP_CA struct ca *foreign = new_ca();
    rename_issuer(foreign->cert);
    put_server(foreign, time(NULL) - 2 * (time_t)SERVER_LIFETIME_S, SERVER_LIFETIME_S);
    copy_file(STATE "/server/cert.pem", "cert");
    copy_file(STATE "/server/key.pem", "key");
    begin();
    OK(ca_rotate_finish(STATE, 0, &err));
    CLEANUP_CA struct ca *ca = state_ca();
    cr_assert(same_files(STATE "/server/cert.pem", "cert"));
    cr_assert(same_files(STATE "/server/key.pem", "key"));
    cr_assert(file_holds(STATE "/server/ca.pem", ca_bundle(ca)));
}

Test(ca_rotate, refresh_writes_nothing_when_all_is_well)
{
    struct err err = { 0 };
    struct stat before[3], after[3];
    static const char *const paths[] = { STATE "/server", ADMIN "/ca.pem", STATE "/ca/ca.pem" };
    make_state();
    for (size_t i = 0; i < ELEMENTS(paths); i++)
        cr_assert_eq(stat(paths[i], &before[i]), 0);
    OK(ca_refresh_server(STATE, &err));
    for (size_t i = 0; i < ELEMENTS(paths); i++)
        cr_assert(stat(paths[i], &after[i]) == 0 && before[i].st_ino == after[i].st_ino &&
                  before[i].st_mtim.tv_nsec == after[i].st_mtim.tv_nsec);
}

Test(ca_rotate, inspect_knows_the_old_ca_until_the_end)
{
    struct err err = { 0 };
    make_state();
    CLEANUP_CA struct ca *before = state_ca();
    OK(ca_issue_peer(before, "peer", IDENTITY_AGENT, "a", 60, &err));
    CLEANUP_FREE char *pem = NULL;
    size_t size = 0;
    OK(file_read("peer/cert.pem", PEM_MAX, &pem, &size, &err));
    struct identity identity;
    uint8_t key[CA_KEY_LEN];
    int64_t end;
    begin();
    CLEANUP_CA struct ca *during = state_ca();
    OK(ca_inspect_peer(during, pem, size, &identity, key, &end, &err));
    OK(ca_rotate_finish(STATE, 0, &err));
    CLEANUP_CA struct ca *after = state_ca();
    FAILS(ca_inspect_peer(after, pem, size, &identity, key, &end, &err), ERR_UNAUTHENTICATED);
}

Test(ca_rotate, open_refuses_an_old_pem_that_is_none_of_ours)
{
    struct err err = { 0 };
    make_state();
    CLEANUP_KEY EVP_PKEY *key = NULL;
    CLEANUP_X509 X509 *elsewhere = make_root(&key, "elsewhere.example.com", time(NULL));
    struct ca *ca = NULL;
    OK(ca_write_cert(STATE "/ca", "old.pem", elsewhere, &err));
    FAILS(ca_open(STATE "/ca", &ca, &err), ERR_INVALID);
    copy_file(ADMIN "/cert.pem", STATE "/ca/old.pem");
    FAILS(ca_open(STATE "/ca", &ca, &err), ERR_INVALID);
    copy_file(ADMIN "/key.pem", STATE "/ca/old.pem");
    FAILS(ca_open(STATE "/ca", &ca, &err), ERR_INVALID);
    cr_assert_not_null(strstr(err.text, "old.pem"));
}

Test(ca_rotate, a_new_ca_does_not_inherit_an_old_pem)
{
    struct err err = { 0 };
    make_state();
    begin();
    cr_assert(unlink(STATE "/ca/ca.pem") == 0 && unlink(STATE "/ca/ca-key.pem") == 0);
    FAILS(ca_create(STATE "/ca", TRUST_DOMAIN, &err), ERR_EXISTS);
    cr_assert_not_null(strstr(err.text, "old.pem"));
}
