/* What is inside the certificates, and what other people's code, here OpenSSL's own verifier, makes
 * of them. */
#include "tests/unit/ca_fixture.h"

/* cppcheck-suppress unknownMacro */
TestSuite(ca_x509, .init = fixture_setup, .fini = fixture_teardown);

static void expect_p256_and_sha256(const X509 *cert)
{
    char group[64] = "";
    cr_assert_eq(EVP_PKEY_get_group_name(X509_get0_pubkey(cert), group, sizeof(group), NULL), 1);
    cr_assert_str_eq(group, "prime256v1");
    cr_assert_eq(X509_get_signature_nid(cert), NID_ecdsa_with_SHA256);
    cr_assert_eq(X509_get_version(cert), X509_VERSION_3);
}

static time_t time_of(const ASN1_TIME *when)
{
    struct tm tm;
    cr_assert_eq(ASN1_TIME_to_tm(when, &tm), 1);
    return timegm(&tm);
}

Test(ca_x509, the_root_may_sign_leaves_and_nothing_else)
{
    ca_free(new_ca());
    CLEANUP_X509 X509 *cert = read_cert("ca/ca.pem");
    expect_extension(cert, NID_basic_constraints, "critical, CA:TRUE, pathlen:0");
    expect_extension(cert, NID_key_usage, "critical, Certificate Sign, CRL Sign");
    expect_extension(cert, NID_subject_alt_name, "URI:spiffe://" TRUST_DOMAIN);
    cr_assert_geq(X509_get_ext_by_NID(cert, NID_subject_key_identifier, -1), 0);
    cr_assert_eq(X509_self_signed(cert, 1), 1);
    expect_cn(cert, "Sandstorm CA");
    expect_p256_and_sha256(cert);
    time_t start = time_of(X509_get0_notBefore(cert)), end = time_of(X509_get0_notAfter(cert));
    cr_assert_eq(end - start, (time_t)(CA_LIFETIME_S + IDENTITY_BACKDATE_S));
}

static void open_with_root_made_at(time_t now, const char *complaint)
{
    struct err err = { 0 };
    CLEANUP_KEY EVP_PKEY *key = NULL;
    CLEANUP_X509 X509 *cert = NULL;
    struct ca *ca = NULL;
    OK(cert_key_new(&key, &err));
    OK(ca_x509_root(key, TRUST_DOMAIN, now, &cert, &err));
    put_ca(cert, key);
    FAILS(ca_open("ca", &ca, &err), ERR_PRECONDITION);
    cr_assert_not_null(strstr(err.text, complaint), "%s", err.text);
}

Test(ca_x509, open_refuses_an_expired_ca_and_one_from_the_future)
{
    open_with_root_made_at(time(NULL) - (time_t)CA_LIFETIME_S - 60, "expired on 20");
    open_with_root_made_at(time(NULL) + (time_t)IDENTITY_BACKDATE_S + 3600, "clock is behind");
}

struct uri_row {
    const char *uri;
    int size;
};

/* A CA certificate with these URIs as its subject names. */

static void put_ca_with_uris(const struct uri_row *rows, size_t count)
{
    struct err err = { 0 };
    CLEANUP_KEY EVP_PKEY *key = NULL;
    CLEANUP_X509 X509 *cert = NULL;
    OK(cert_key_new(&key, &err));
    OK(ca_x509_root(key, TRUST_DOMAIN, time(NULL), &cert, &err));
    X509_EXTENSION_free(X509_delete_ext(cert, X509_get_ext_by_NID(cert, NID_subject_alt_name, -1)));
    GENERAL_NAMES *names = sk_GENERAL_NAME_new_null();
    for (size_t i = 0; i < count; i++) {
        GENERAL_NAME *name = GENERAL_NAME_new();
        ASN1_IA5STRING *value = ASN1_IA5STRING_new();
        cr_assert_eq(ASN1_STRING_set(value, rows[i].uri, rows[i].size), 1);
        GENERAL_NAME_set0_value(name, GEN_URI, value);
        cr_assert_gt(sk_GENERAL_NAME_push(names, name), 0);
    }
    cr_assert_eq(X509_add1_ext_i2d(cert, NID_subject_alt_name, names, 0, 0), 1);
    GENERAL_NAMES_free(names);
    cr_assert_gt(X509_sign(cert, key, EVP_sha256()), 0);
    put_ca(cert, key);
}

Test(ca_x509, open_wants_exactly_one_trust_domain)
{
    static const struct uri_row good = { "spiffe://a.b", 12 };
    static const struct uri_row bad[] = {
        { "spiffe://a.b\0c", 14 },
        { "spiffe://a.b\0", 13 },
        { "spiffe://A.b", 12 },
        { "spiffe://a.b/", 13 },
        { "spiffe://", 9 },
        { "https://a.b", 11 },
        { "", 0 },
    };
    struct err err = { 0 };
    struct ca *ca = NULL;
    for (size_t i = 0; i < ELEMENTS(bad); i++) {
        put_ca_with_uris(&bad[i], 1);
        FAILS(ca_open("ca", &ca, &err), ERR_INVALID);
    }
    put_ca_with_uris(NULL, 0);
    FAILS(ca_open("ca", &ca, &err), ERR_INVALID);
    put_ca_with_uris((const struct uri_row[]){ good, good }, 2);
    FAILS(ca_open("ca", &ca, &err), ERR_INVALID);
    put_ca_with_uris(&good, 1);
    OK(ca_open("ca", &ca, &err));
    cr_assert_str_eq(ca_trust_domain(ca), "a.b");
    ca_free(ca);
}

Test(ca_x509, a_peer_certificate_is_for_clients_and_names_one_identity)
{
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca();
    OK(ca_issue_peer(ca, "agent", IDENTITY_AGENT, "web-1", LEAF_LIFETIME_S, &err));
    OK(ca_issue_peer(ca, "client", IDENTITY_CLIENT, "Al.ice", LEAF_LIFETIME_S, &err));
    CLEANUP_X509 X509 *agent = read_cert("agent/cert.pem");
    CLEANUP_X509 X509 *client = read_cert("client/cert.pem");
    expect_extension(agent, NID_subject_alt_name, "URI:spiffe://" TRUST_DOMAIN "/agent/web-1");
    expect_extension(client, NID_subject_alt_name, "URI:spiffe://" TRUST_DOMAIN "/client/Al.ice");
    expect_extension(agent, NID_basic_constraints, "critical, CA:FALSE");
    expect_extension(agent, NID_key_usage, "critical, Digital Signature");
    expect_extension(agent, NID_ext_key_usage, "TLS Web Client Authentication");
    expect_cn(agent, "Sandstorm agent");
    expect_cn(client, "Sandstorm client");
    expect_p256_and_sha256(agent);
    cr_assert_eq(verify("agent", X509_PURPOSE_SSL_CLIENT), X509_V_OK);
    cr_assert_eq(verify("client", X509_PURPOSE_SSL_CLIENT), X509_V_OK);
    cr_assert_eq(verify("agent", X509_PURPOSE_SSL_SERVER), X509_V_ERR_INVALID_PURPOSE);
}

Test(ca_x509, a_server_certificate_is_for_servers_and_keeps_names_and_addresses_apart)
{
    static const char *const names[] = { "orchestrator.example.com", "localhost", "127.0.0.1",
                                         "::1" };
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca();
    OK(ca_issue_server(ca, "server", names, ELEMENTS(names), SERVER_LIFETIME_S, &err));
    CLEANUP_X509 X509 *cert = read_cert("server/cert.pem");
    expect_extension(cert, NID_subject_alt_name,
                     "DNS:orchestrator.example.com, DNS:localhost, IP Address:127.0.0.1, "
                     "IP Address:0:0:0:0:0:0:0:1");
    expect_extension(cert, NID_basic_constraints, "critical, CA:FALSE");
    expect_extension(cert, NID_key_usage, "critical, Digital Signature");
    expect_extension(cert, NID_ext_key_usage, "TLS Web Server Authentication");
    expect_cn(cert, "Sandstorm orchestrator");
    cr_assert_eq(X509_check_host(cert, names[0], 0, 0, NULL), 1);
    cr_assert_eq(X509_check_ip_asc(cert, "::1", 0), 1);
    cr_assert_eq(verify("server", X509_PURPOSE_SSL_SERVER), X509_V_OK);
    cr_assert_eq(verify("server", X509_PURPOSE_SSL_CLIENT), X509_V_ERR_INVALID_PURPOSE);
}

#define L60 "abcdefghijabcdefghijabcdefghijabcdefghijabcdefghijabcdefghij"

Test(ca_x509, a_server_name_must_be_an_address_or_a_dns_name)
{
    static const char *const bad[] = {
        "",           ".",        "a.",
        ".a",         "a..b",     "-a",
        "a-",         "a_b",      "*.a",
        "a b",        "a,DNS:b",  "a\n",
        "a:5000",     "[::1]",    "fe80::1%lo",
        "10.0.0.256", "10.0.0",   "https://a",
        "\xc3\xa4",   L60 "abcd", L60 "." L60 "." L60 "." L60 ".abcdefghij",
    };
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca();
    for (size_t i = 0; i < ELEMENTS(bad); i++) {
        const char *names[] = { "fine", bad[i] };
        FAILS(ca_issue_server(ca, "server", names, 2, 60, &err), ERR_INVALID);
        cr_assert_not_null(strstr(err.text, "server name 2 of 2"));
    }
    cr_assert_eq(count_entries("."), 1u);
    const char *good[] = { "A-1.b", "3com", L60 "abc", L60 "." L60 "." L60 "." L60 ".abcdefghi" };
    OK(ca_issue_server(ca, "server", good, ELEMENTS(good), 60, &err));
}

Test(ca_x509, the_number_of_server_names_is_bounded)
{
    const char *names[CA_DNS_NAMES_MAX + 1];
    for (size_t i = 0; i < ELEMENTS(names); i++)
        names[i] = "a";
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca();
    FAILS(ca_issue_server(ca, "server", names, 0, 60, &err), ERR_INVALID);
    FAILS(ca_issue_server(ca, "server", names, ELEMENTS(names), 60, &err), ERR_INVALID);
    OK(ca_issue_server(ca, "server", names, CA_DNS_NAMES_MAX, 60, &err));
}

Test(ca_x509, issues_no_certificate_to_nobody_or_for_no_time)
{
    char longest[SANDBOX_ID_MAX + 2];
    memset(longest, 'a', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca();
    FAILS(ca_issue_peer(ca, "x", IDENTITY_NONE, "web-1", 60, &err), ERR_INVALID);
    FAILS(ca_issue_peer(ca, "x", IDENTITY_KIND_COUNT_, "web-1", 60, &err), ERR_INVALID);
    FAILS(ca_issue_peer(ca, "x", IDENTITY_AGENT, "Web", 60, &err), ERR_INVALID);
    FAILS(ca_issue_peer(ca, "x", IDENTITY_AGENT, "a/b", 60, &err), ERR_INVALID);
    FAILS(ca_issue_peer(ca, "x", IDENTITY_AGENT, "", 60, &err), ERR_INVALID);
    FAILS(ca_issue_peer(ca, "x", IDENTITY_AGENT, longest, 60, &err), ERR_INVALID);
    FAILS(ca_issue_peer(ca, "x", IDENTITY_AGENT, "web-1", 0, &err), ERR_INVALID);
    FAILS(ca_issue_peer(ca, "x", IDENTITY_AGENT, "web-1", UINT64_MAX, &err), ERR_INVALID);
    cr_assert_eq(count_entries("."), 1u);
    OK(ca_issue_peer(ca, "x", IDENTITY_AGENT, longest + 1, 60, &err));
}

Test(ca_x509, a_leaf_lives_as_long_as_asked_and_starts_a_little_in_the_past)
{
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca();
    time_t before = time(NULL);
    OK(ca_issue_peer(ca, "agent", IDENTITY_AGENT, "web-1", 1000, &err));
    time_t after = time(NULL);
    CLEANUP_X509 X509 *cert = read_cert("agent/cert.pem");
    time_t start = time_of(X509_get0_notBefore(cert)) + (time_t)IDENTITY_BACKDATE_S;
    cr_assert(before <= start && start <= after);
    cr_assert_eq(time_of(X509_get0_notAfter(cert)), start + 1000);
}

Test(ca_x509, a_leaf_never_outlives_its_ca)
{
    struct err err = { 0 };
    CLEANUP_KEY EVP_PKEY *key = NULL;
    CLEANUP_X509 X509 *cert = NULL;
    CLEANUP_CA struct ca *ca = NULL;
    OK(cert_key_new(&key, &err));
    OK(ca_x509_root(key, TRUST_DOMAIN, time(NULL) - (time_t)CA_LIFETIME_S + 3600, &cert, &err));
    put_ca(cert, key);
    OK(ca_open("ca", &ca, &err));
    OK(ca_issue_peer(ca, "agent", IDENTITY_AGENT, "web-1", LEAF_LIFETIME_S, &err));
    CLEANUP_X509 X509 *leaf = read_cert("agent/cert.pem");
    cr_assert_eq(ASN1_TIME_compare(X509_get0_notAfter(leaf), X509_get0_notAfter(cert)), 0);
}

Test(ca_x509, serial_numbers_are_positive_and_have_128_random_bits)
{
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca();
    BIGNUM *seen = BN_new();
    for (int i = 0; i < 16; i++) {
        OK(ca_issue_peer(ca, "agent", IDENTITY_AGENT, "web-1", 60, &err));
        CLEANUP_X509 X509 *cert = read_cert("agent/cert.pem");
        BIGNUM *serial = ASN1_INTEGER_to_BN(X509_get0_serialNumber(cert), NULL);
        cr_assert(!BN_is_negative(serial) && BN_num_bits(serial) <= 128);
        for (int bit = 0; bit < 128; bit++)
            if (BN_is_bit_set(serial, bit))
                cr_assert_eq(BN_set_bit(seen, bit), 1);
        BN_free(serial);
    }
    /* A bit stays clear in all 16 once in 512 runs. Four of them: never. */
    int clear = 0;
    for (int bit = 0; bit < 128; bit++)
        clear += !BN_is_bit_set(seen, bit);
    BN_free(seen);
    cr_assert_lt(clear, 4);
}
