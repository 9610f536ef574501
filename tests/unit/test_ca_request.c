/* What a peer can make the CA sign: whatever it sends, it gets an error or a certificate with the
 * identity that the server chose, and with nothing else. */
#include "tests/unit/csr_builder.h"

#include <openssl/err.h>
#include <openssl/param_build.h>

#define NAME         "web-1"
#define URI          "URI:spiffe://" TRUST_DOMAIN "/agent/" NAME
#define MANY_NAMES   1000
#define BIG_SIZE     (64u * 1024)
#define EXTENSIONS   6
#define LIFETIME_S   1000u
#define FLIP_ROUNDS  2000
#define OTHER_DOMAIN "elsewhere.example.com"

/* cppcheck-suppress unknownMacro */
TestSuite(ca_request, .init = fixture_setup, .fini = fixture_teardown);

static void expect_refused(const char *pem, size_t size)
{
    struct err err = { 0 };
    struct ca_request *request = NULL;
    FAILS(ca_request_parse(pem, size, &request, &err), ERR_INVALID);
    cr_assert_null(request);
    cr_assert_gt(strlen(err.text), 10u);
    cr_assert_eq(ERR_peek_error(), 0ul);
}

/* The whole certificate: every extension, every name, the subject, the key and the times. */
static void expect_chosen_identity(struct ca *ca, const char *pem, const EVP_PKEY *key)
{
    struct err err = { 0 };
    CLEANUP_X509 X509 *cert = NULL;
    OK(cert_pem_one_cert(pem, strlen(pem), &cert, &err));
    expect_cn(cert, "Sandstorm agent");
    cr_assert_eq(X509_get_ext_count(cert), EXTENSIONS);
    expect_extension(cert, NID_subject_alt_name, URI);
    expect_extension(cert, NID_basic_constraints, "critical, CA:FALSE");
    expect_extension(cert, NID_key_usage, "critical, Digital Signature");
    expect_extension(cert, NID_ext_key_usage, "TLS Web Client Authentication");
    cr_assert_geq(X509_get_ext_by_NID(cert, NID_subject_key_identifier, -1), 0);
    cr_assert_geq(X509_get_ext_by_NID(cert, NID_authority_key_identifier, -1), 0);
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    cr_assert_eq(sk_GENERAL_NAME_num(names), 1);
    GENERAL_NAMES_free(names);
    cr_assert_eq(EVP_PKEY_eq(X509_get0_pubkey(cert), key), 1);
    cr_assert(ca_x509_signed_by(cert, ca->cert));
}

static void expect_accepted(struct ca *ca, const char *pem, size_t size, const EVP_PKEY *key)
{
    struct err err = { 0 };
    CLEANUP_CA_REQUEST struct ca_request *request = NULL;
    CLEANUP_FREE char *cert = NULL;
    int64_t end = 0;
    OK(ca_request_parse(pem, size, &request, &err));
    time_t before = time(NULL);
    OK(ca_sign_peer(ca, request, IDENTITY_AGENT, NAME, LIFETIME_S, &cert, &end, &err));
    cr_assert(before + (time_t)LIFETIME_S <= end && end <= time(NULL) + (time_t)LIFETIME_S);
    expect_chosen_identity(ca, cert, key);
    struct identity identity;
    uint8_t hash[CA_KEY_LEN];
    int64_t inspected_end;
    OK(ca_inspect_peer(ca, cert, strlen(cert), &identity, hash, &inspected_end, &err));
    cr_assert(identity.kind == IDENTITY_AGENT && strcmp(identity.name, NAME) == 0 &&
              strcmp(identity.trust_domain, TRUST_DOMAIN) == 0);
    cr_assert(memcmp(hash, ca_request_key(request), sizeof(hash)) == 0 && inspected_end == end);
}

Test(ca_request, nothing_that_a_request_wishes_for_is_in_the_certificate)
{
    static const struct wish wishes[] = {
        { 0 },
        { .common_name = "root" },
        { .common_name = "Sandstorm client" },
        { .common_name = "orchestrator.example.com", .names = "DNS:orchestrator.example.com" },
        { .common_name = NAME, .names = "URI:spiffe://" TRUST_DOMAIN "/agent/another" },
        { .names = "URI:spiffe://" TRUST_DOMAIN "/client/admin" },
        { .names = "DNS:*.example.com" },
        { .names = "IP:127.0.0.1,IP:::1" },
        { .names = "email:root@example.com" },
        { .names = "DNS:a,URI:spiffe://" OTHER_DOMAIN "/agent/a,IP:10.0.0.1,email:a@b" },
        { .constraints = "critical,CA:TRUE" },
        { .constraints = "critical,CA:TRUE,pathlen:9", .key_usage = "critical,keyCertSign" },
        { .key_usage = "keyAgreement,cRLSign", .extended_usage = "serverAuth,codeSigning" },
        { .extended_usage = "anyExtendedKeyUsage" },
    };
    CLEANUP_CA struct ca *ca = new_ca();
    CLEANUP_KEY EVP_PKEY *key = make_key("EC", "P-256", 0);
    for (size_t i = 0; i < ELEMENTS(wishes); i++) {
        CLEANUP_FREE char *pem = request_for(key, &wishes[i]);
        expect_accepted(ca, pem, strlen(pem), key);
    }
}

Test(ca_request, only_p256_by_its_name_passes)
{
    static const struct {
        const char *type, *group;
        unsigned bits;
    } rows[] = {
        { "RSA", NULL, 1024 },    { "RSA", NULL, 2048 },          { "EC", "P-192", 0 },
        { "EC", "P-224", 0 },     { "EC", "P-384", 0 },           { "EC", "P-521", 0 },
        { "EC", "secp256k1", 0 }, { "EC", "brainpoolP256r1", 0 }, { "ED25519", NULL, 0 },
    };
    const struct wish none = { 0 };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        CLEANUP_KEY EVP_PKEY *key = make_key(rows[i].type, rows[i].group, rows[i].bits);
        CLEANUP_FREE char *pem = request_for(key, &none);
        expect_refused(pem, strlen(pem));
    }
}

/* An RSA key whose exponent is 1 signs nothing: the signature is the message. */
Test(ca_request, rsa_with_exponent_1_is_refused)
{
    CLEANUP_KEY EVP_PKEY *good = make_key("RSA", NULL, 2048);
    BIGNUM *modulus = NULL;
    cr_assert_eq(EVP_PKEY_get_bn_param(good, OSSL_PKEY_PARAM_RSA_N, &modulus), 1);
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    cr_assert(OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, modulus) == 1 &&
              OSSL_PARAM_BLD_push_ulong(build, OSSL_PKEY_PARAM_RSA_E, 1) == 1);
    OSSL_PARAM *parameters = OSSL_PARAM_BLD_to_param(build);
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, "RSA", NULL);
    CLEANUP_KEY EVP_PKEY *weak = NULL;
    cr_assert(EVP_PKEY_fromdata_init(context) == 1 &&
              EVP_PKEY_fromdata(context, &weak, EVP_PKEY_PUBLIC_KEY, parameters) == 1);
    EVP_PKEY_CTX_free(context);
    OSSL_PARAM_free(parameters);
    OSSL_PARAM_BLD_free(build);
    BN_free(modulus);
    CLEANUP_FREE char *pem = sign_request(make_request(weak, &(struct wish){ 0 }), good);
    expect_refused(pem, strlen(pem));
}

static EVP_PKEY *with_encoding(const char *parameter, const char *value)
{
    EVP_PKEY *key = make_key("EC", "P-256", 0);
    cr_assert_eq(EVP_PKEY_set_utf8_string_param(key, parameter, value), 1);
    return key;
}

Test(ca_request, a_curve_by_its_parameters_or_a_compressed_point_is_refused)
{
    CLEANUP_KEY EVP_PKEY *explicit = with_encoding(OSSL_PKEY_PARAM_EC_ENCODING, "explicit");
    CLEANUP_KEY EVP_PKEY *compressed =
        with_encoding(OSSL_PKEY_PARAM_EC_POINT_CONVERSION_FORMAT, "compressed");
    EVP_PKEY *keys[] = { explicit, compressed };
    for (size_t i = 0; i < ELEMENTS(keys); i++) {
        CLEANUP_FREE char *pem = request_for(keys[i], &(struct wish){ 0 });
        BIO *bio = BIO_new_mem_buf(pem, -1);
        X509_REQ *request = PEM_read_bio_X509_REQ(bio, NULL, NULL, NULL);
        /* OpenSSL itself finds nothing wrong with it. */
        cr_assert_eq(X509_REQ_verify(request, X509_REQ_get0_pubkey(request)), 1);
        X509_REQ_free(request);
        BIO_free(bio);
        expect_refused(pem, strlen(pem));
    }
}

Test(ca_request, the_signature_must_be_that_of_the_key_inside)
{
    CLEANUP_KEY EVP_PKEY *mine = make_key("EC", "P-256", 0);
    CLEANUP_KEY EVP_PKEY *victim = make_key("EC", "P-256", 0);
    const struct wish wish = { .common_name = "a" };
    /* Somebody else's public key. */
    CLEANUP_FREE char *swapped = sign_request(make_request(victim, &wish), mine);
    expect_refused(swapped, strlen(swapped));
    /* A signature over something else. */
    X509_REQ *request = make_request(mine, &wish);
    cr_assert_gt(X509_REQ_sign(request, mine, EVP_sha256()), 0);
    const ASN1_BIT_STRING *signature = NULL;
    X509_REQ_get0_signature(request, &signature, NULL);
    unsigned char *bytes = (unsigned char *)ASN1_STRING_get0_data(signature);
    bytes[ASN1_STRING_length(signature) - 1] ^= 1;
    CLEANUP_FREE char *broken = request_pem(request);
    X509_REQ_free(request);
    expect_refused(broken, strlen(broken));
}

Test(ca_request, another_version_is_refused)
{
    CLEANUP_KEY EVP_PKEY *key = make_key("EC", "P-256", 0);
    X509_REQ *request = make_request(key, &(struct wish){ 0 });
    cr_assert_eq(X509_REQ_set_version(request, 1), 1);
    CLEANUP_FREE char *pem = sign_request(request, key);
    expect_refused(pem, strlen(pem));
}

/* White space behind the text, up to this size. */
static char *padded(const char *text, size_t size)
{
    char *big = malloc(size + 1);
    memset(big, '\n', size);
    big[size] = '\0';
    for (size_t i = 0; text[i]; i++)
        big[i] = text[i];
    return big;
}

Test(ca_request, a_thousand_names_and_64_kilobytes_hit_the_bound)
{
    CLEANUP_CA struct ca *ca = new_ca();
    CLEANUP_KEY EVP_PKEY *key = make_key("EC", "P-256", 0);
    CLEANUP_FREE char *names = calloc(MANY_NAMES, sizeof("DNS:host-0000.example.com,"));
    size_t used = 0;
    for (unsigned i = 0; i < MANY_NAMES; i++)
        used += (size_t)sprintf(names + used, "%sDNS:host-%u.example.com", i ? "," : "", i);
    CLEANUP_FREE char *many = request_for(key, &(struct wish){ .names = names });
    cr_assert_gt(strlen(many), CA_PEM_MAX);
    expect_refused(many, strlen(many));
    /* Fewer, below the bound: not one of them is in the certificate. */
    names[5000] = '\0';
    *strrchr(names, ',') = '\0';
    CLEANUP_FREE char *some = request_for(key, &(struct wish){ .names = names });
    cr_assert_lt(strlen(some), CA_PEM_MAX);
    expect_accepted(ca, some, strlen(some), key);
    CLEANUP_FREE char *small = request_for(key, &(struct wish){ 0 });
    CLEANUP_FREE char *big = padded(small, BIG_SIZE);
    expect_refused(big, BIG_SIZE);
    expect_refused(big, CA_PEM_MAX + 1);
    expect_accepted(ca, big, CA_PEM_MAX, key);
}

static char *joined(const char *a, const char *b)
{
    char *text = NULL;
    cr_assert_geq(asprintf(&text, "%s%s", a, b), 0);
    return text;
}

Test(ca_request, exactly_one_block_and_nothing_around_it)
{
    CLEANUP_CA struct ca *ca = new_ca();
    CLEANUP_KEY EVP_PKEY *key = make_key("EC", "P-256", 0);
    CLEANUP_FREE char *good = request_for(key, &(struct wish){ 0 });
    static const char *const extras[] = {
        "garbage",
        "-",
        "-----BEGIN CERTIFICATE REQUEST-----\n",
        "-----BEGIN CERTIFICATE REQUEST-----\nMAAA\n-----END CERTIFICATE REQUEST-----\n",
        "-----BEGIN CERTIFICATE-----\nMAAA\n-----END CERTIFICATE-----\n",
        "-----END CERTIFICATE REQUEST-----\n",
    };
    for (size_t i = 0; i < ELEMENTS(extras); i++) {
        CLEANUP_FREE char *after = joined(good, extras[i]);
        CLEANUP_FREE char *before = joined(extras[i], good);
        expect_refused(after, strlen(after));
        expect_refused(before, strlen(before));
    }
    CLEANUP_FREE char *twice = joined(good, good);
    expect_refused(twice, strlen(twice));
    CLEANUP_FREE char *spaced = joined(" \r\n", good);
    expect_accepted(ca, spaced, strlen(spaced), key);
    expect_refused("", 0);
    expect_refused("\n", 1);
    expect_refused("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n", 70);
}

Test(ca_request, other_labels_headers_and_bytes_behind_the_request_are_refused)
{
    CLEANUP_KEY EVP_PKEY *key = make_key("EC", "P-256", 0);
    X509_REQ *request = make_request(key, &(struct wish){ 0 });
    cr_assert_gt(X509_REQ_sign(request, key, EVP_sha256()), 0);
    unsigned char der[2048], *end = der;
    int size = i2d_X509_REQ(request, &end);
    X509_REQ_free(request);
    der[size] = 0;
    static const struct {
        const char *label, *header;
        int extra;
    } rows[] = {
        { "NEW CERTIFICATE REQUEST", "", 0 },
        { "CERTIFICATE", "", 0 },
        { "X509 CRL", "", 0 },
        { "CERTIFICATE REQUEST", "Proc-Type: 4,ENCRYPTED\n", 0 },
        { "CERTIFICATE REQUEST", "", 1 },
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        struct err err = { 0 };
        CLEANUP_BIO BIO *bio = BIO_new(BIO_s_mem());
        CLEANUP_FREE char *text = NULL;
        cr_assert_gt(PEM_write_bio(bio, rows[i].label, rows[i].header, der, size + rows[i].extra),
                     0);
        OK(cert_bio_text(bio, &text, &err));
        expect_refused(text, strlen(text));
    }
}

Test(ca_request, a_nul_anywhere_is_refused)
{
    CLEANUP_KEY EVP_PKEY *key = make_key("EC", "P-256", 0);
    CLEANUP_FREE char *good = request_for(key, &(struct wish){ 0 });
    size_t size = strlen(good);
    expect_refused(good, size + 1);
    for (size_t i = 0; i < size; i++) {
        char saved = good[i];
        good[i] = '\0';
        expect_refused(good, size);
        good[i] = saved;
    }
}

Test(ca_request, cut_at_any_byte_it_is_refused)
{
    CLEANUP_CA struct ca *ca = new_ca();
    CLEANUP_KEY EVP_PKEY *key = make_key("EC", "P-256", 0);
    CLEANUP_FREE char *good = request_for(key, &(struct wish){ .common_name = "a" });
    size_t size = strlen(good);
    for (size_t i = 0; i + 1 < size; i++) {
        /* A copy of that size, so that a read beyond it shows. */
        CLEANUP_FREE char *cut = malloc(MAX(i, 1u));
        memcpy(cut, good, i);
        expect_refused(cut, i);
    }
    expect_accepted(ca, good, size - 1, key); /* only the last newline is missing */
}

/* Bytes of the DER form changed at random: an error, or the same key and the chosen identity. */
Test(ca_request, changed_anywhere_it_is_refused_or_harmless)
{
    CLEANUP_CA struct ca *ca = new_ca();
    CLEANUP_KEY EVP_PKEY *key = make_key("EC", "P-256", 0);
    X509_REQ *request = make_request(key, &(struct wish){ .names = "DNS:a" });
    cr_assert_gt(X509_REQ_sign(request, key, EVP_sha256()), 0);
    unsigned char der[2048], *end = der;
    int size = i2d_X509_REQ(request, &end);
    X509_REQ_free(request);
    unsigned refused = 0;
    for (unsigned i = 0; i < FLIP_ROUNDS; i++) {
        unsigned at = i % (unsigned)size;
        unsigned char saved = der[at];
        der[at] ^= (unsigned char)(1u << (i / (unsigned)size % 8));
        struct err err = { 0 };
        CLEANUP_BIO BIO *bio = BIO_new(BIO_s_mem());
        CLEANUP_FREE char *text = NULL;
        struct ca_request *parsed = NULL;
        cr_assert_gt(PEM_write_bio(bio, "CERTIFICATE REQUEST", "", der, size), 0);
        OK(cert_bio_text(bio, &text, &err));
        if (ca_request_parse(text, strlen(text), &parsed, &err) == 0) {
            ca_request_free(parsed);
            expect_accepted(ca, text, strlen(text), key);
        } else {
            cr_assert_eq(err.code, ERR_INVALID, "%s", err.text);
            refused++;
        }
        der[at] = saved;
    }
    cr_assert_gt(refused, FLIP_ROUNDS * 9 / 10);
}

Test(ca_request, sign_checks_the_name_and_the_lifetime)
{
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca();
    CLEANUP_KEY EVP_PKEY *key = make_key("EC", "P-256", 0);
    CLEANUP_FREE char *pem = request_for(key, &(struct wish){ 0 });
    CLEANUP_CA_REQUEST struct ca_request *request = NULL;
    char *cert = NULL;
    int64_t end;
    OK(ca_request_parse(pem, strlen(pem), &request, &err));
    FAILS(ca_sign_peer(ca, request, IDENTITY_AGENT, "a/b", 60, &cert, &end, &err), ERR_INVALID);
    FAILS(ca_sign_peer(ca, request, IDENTITY_NONE, "a", 60, &cert, &end, &err), ERR_INVALID);
    FAILS(ca_sign_peer(ca, request, IDENTITY_AGENT, "a", 0, &cert, &end, &err), ERR_INVALID);
    FAILS(ca_sign_peer(ca, request, IDENTITY_AGENT, "a", UINT64_MAX, &cert, &end, &err),
          ERR_INVALID);
    cr_assert_null(cert);
}

static char *leaf_pem(struct ca *ca, const struct ca_leaf *leaf, time_t now)
{
    struct err err = { 0 };
    CLEANUP_KEY EVP_PKEY *key = NULL;
    CLEANUP_X509 X509 *cert = NULL;
    CLEANUP_BIO BIO *bio = NULL;
    char *text = NULL;
    OK(cert_key_new(&key, &err));
    OK(ca_x509_leaf(leaf, key, ca->cert, ca->key, now, &cert, &err));
    OK(cert_pem_from_cert(cert, &bio, &err));
    OK(cert_bio_text(bio, &text, &err));
    return text;
}

static enum err_code inspect(struct ca *ca, const char *pem, size_t size)
{
    struct err err = { 0 };
    struct identity identity;
    uint8_t key[CA_KEY_LEN];
    int64_t end;
    int r = ca_inspect_peer(ca, pem, size, &identity, key, &end, &err);
    cr_assert_eq(ERR_peek_error(), 0ul);
    return r == 0 ? ERR_NONE : err.code;
}

Test(ca_request, inspect_knows_our_certificates_whatever_the_time)
{
    CLEANUP_CA struct ca *ca = new_ca();
    const time_t day = 86400,
                 moments[] = { time(NULL), time(NULL) - 30 * day, time(NULL) + 30 * day };
    const struct ca_leaf leaf = { .common_name = "Sandstorm agent",
                                  .usage = "clientAuth",
                                  .uri = "spiffe://" TRUST_DOMAIN "/agent/" NAME,
                                  .lifetime_s = LIFETIME_S };
    for (size_t i = 0; i < ELEMENTS(moments); i++) {
        CLEANUP_FREE char *pem = leaf_pem(ca, &leaf, moments[i]);
        struct err err = { 0 };
        struct identity identity;
        uint8_t key[CA_KEY_LEN];
        int64_t end = 0;
        OK(ca_inspect_peer(ca, pem, strlen(pem), &identity, key, &end, &err));
        cr_assert_eq(end, (int64_t)moments[i] + LIFETIME_S);
        cr_assert_str_eq(identity.name, NAME);
    }
}

Test(ca_request, inspect_refuses_what_is_not_a_peer_of_ours)
{
    static const char *const names[] = { "localhost" };
    static const struct {
        struct ca_leaf leaf;
        enum err_code code;
    } rows[] = {
        { { "Sandstorm orchestrator", "serverAuth", NULL, names, 1, NULL, 60 }, ERR_INVALID },
        { { "x", "serverAuth", "spiffe://" TRUST_DOMAIN "/agent/a", NULL, 0, NULL, 60 },
          ERR_INVALID },
        { { "x", "clientAuth,serverAuth", "spiffe://" TRUST_DOMAIN "/agent/a", NULL, 0, NULL, 60 },
          ERR_INVALID },
        { { "x", "clientAuth", NULL, names, 1, NULL, 60 }, ERR_INVALID },
        { { "x", "clientAuth", "spiffe://" TRUST_DOMAIN "/agent/A", NULL, 0, NULL, 60 },
          ERR_INVALID },
        { { "x", "clientAuth", "spiffe://" TRUST_DOMAIN, NULL, 0, NULL, 60 }, ERR_INVALID },
        { { "x", "clientAuth", "spiffe://" OTHER_DOMAIN "/agent/a", NULL, 0, NULL, 60 },
          ERR_UNAUTHENTICATED },
        { { "x", "clientAuth", "spiffe://" TRUST_DOMAIN "/agent/a", NULL, 0, NULL, 60 }, ERR_NONE },
    };
    CLEANUP_CA struct ca *ca = new_ca();
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        CLEANUP_FREE char *pem = leaf_pem(ca, &rows[i].leaf, time(NULL));
        cr_assert_eq(inspect(ca, pem, strlen(pem)), rows[i].code, "row %zu", i);
    }
    cr_assert_eq(inspect(ca, ca_bundle(ca), strlen(ca_bundle(ca))), ERR_INVALID);
}

Test(ca_request, inspect_refuses_other_cas_two_certificates_and_broken_ones)
{
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca(), *other = NULL;
    OK(ca_create("other", TRUST_DOMAIN, &err));
    OK(ca_open("other", &other, &err));
    const struct ca_leaf leaf = { .common_name = "x",
                                  .usage = "clientAuth",
                                  .uri = "spiffe://" TRUST_DOMAIN "/agent/a",
                                  .lifetime_s = 60 };
    CLEANUP_FREE char *foreign = leaf_pem(other, &leaf, time(NULL));
    CLEANUP_FREE char *good = leaf_pem(ca, &leaf, time(NULL));
    CLEANUP_FREE char *two = joined(good, foreign);
    size_t size = strlen(good);
    cr_assert_eq(inspect(ca, foreign, strlen(foreign)), ERR_UNAUTHENTICATED);
    cr_assert_eq(inspect(ca, two, strlen(two)), ERR_INVALID);
    cr_assert_eq(inspect(ca, good, size + 1), ERR_INVALID);
    for (size_t i = 0; i + 1 < size; i++)
        cr_assert_eq(inspect(ca, good, i), ERR_INVALID, "cut at %zu", i);
    cr_assert_eq(inspect(ca, good, size), ERR_NONE);
    CLEANUP_FREE char *big = padded(good, BIG_SIZE);
    cr_assert_eq(inspect(ca, big, BIG_SIZE), ERR_INVALID);
}
