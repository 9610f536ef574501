/* The side that asks: its request passes the CA's checks and carries nothing but the key, and of
 * the answers only the right one is taken. */
#include "common/csr.h"

#include "tests/unit/csr_builder.h"

#include <openssl/err.h>

/* cppcheck-suppress unknownMacro */
TestSuite(csr, .init = fixture_setup, .fini = fixture_teardown);

struct asked {
    char *key, *csr, *cert;
};

static void asked_clear(struct asked *asked)
{
    csr_key_free(asked->key);
    free(asked->csr);
    free(asked->cert);
}

static struct asked ask(struct ca *ca)
{
    struct err err = { 0 };
    struct asked asked = { 0 };
    CLEANUP_CA_REQUEST struct ca_request *request = NULL;
    int64_t end;
    OK(csr_key_new(&asked.key, &err));
    OK(csr_new(asked.key, &asked.csr, &err));
    OK(ca_request_parse(asked.csr, strlen(asked.csr), &request, &err));
    OK(ca_sign_peer(ca, request, IDENTITY_AGENT, "web-1", 60, &asked.cert, &end, &err));
    return asked;
}

Test(csr, a_request_carries_the_key_and_nothing_else)
{
    struct err err = { 0 };
    CLEANUP_KEY_PEM char *pem = NULL;
    CLEANUP_FREE char *csr = NULL;
    CLEANUP_KEY EVP_PKEY *key = NULL;
    OK(csr_key_new(&pem, &err));
    OK(csr_new(pem, &csr, &err));
    OK(cert_pem_to_key(pem, strlen(pem), &key, &err));
    CLEANUP_BIO BIO *bio = BIO_new_mem_buf(csr, -1);
    X509_REQ *request = PEM_read_bio_X509_REQ(bio, NULL, NULL, NULL);
    cr_assert_not_null(request);
    cr_assert_eq(X509_NAME_entry_count(X509_REQ_get_subject_name(request)), 0);
    cr_assert_eq(X509_REQ_get_attr_count(request), 0);
    cr_assert_eq(EVP_PKEY_eq(X509_REQ_get0_pubkey(request), key), 1);
    X509_REQ_free(request);
}

Test(csr, every_key_is_another)
{
    struct err err = { 0 };
    CLEANUP_KEY_PEM char *a = NULL, *b = NULL;
    OK(csr_key_new(&a, &err));
    OK(csr_key_new(&b, &err));
    cr_assert_str_neq(a, b);
}

Test(csr, the_answer_to_our_request_is_taken)
{
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca();
    CLEANUP(asked_clear) struct asked asked = ask(ca);
    OK(csr_check_answer(asked.key, asked.cert, ca_bundle(ca), &err));
    cr_assert_eq(ERR_peek_error(), 0ul);
}

Test(csr, a_bundle_of_two_cas_of_one_name_finds_the_right_one)
{
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca(), *other = NULL;
    OK(ca_create("other", TRUST_DOMAIN, &err));
    OK(ca_open("other", &other, &err));
    CLEANUP(asked_clear) struct asked asked = ask(ca);
    CLEANUP_FREE char *first = NULL, *last = NULL;
    cr_assert_geq(asprintf(&first, "%s%s", ca_bundle(ca), ca_bundle(other)), 0);
    cr_assert_geq(asprintf(&last, "%s%s", ca_bundle(other), ca_bundle(ca)), 0);
    OK(csr_check_answer(asked.key, asked.cert, first, &err));
    OK(csr_check_answer(asked.key, asked.cert, last, &err));
    FAILS(csr_check_answer(asked.key, asked.cert, ca_bundle(other), &err), ERR_PROTOCOL);
}

Test(csr, a_wrong_answer_is_refused)
{
    struct err err = { 0 };
    CLEANUP_CA struct ca *ca = new_ca();
    CLEANUP(asked_clear) struct asked asked = ask(ca);
    CLEANUP(asked_clear) struct asked other = ask(ca);
    const char *bundle = ca_bundle(ca);
    CLEANUP_FREE char *chain = NULL, *dirty = NULL;
    cr_assert_geq(asprintf(&chain, "%s%s", asked.cert, bundle), 0);
    cr_assert_geq(asprintf(&dirty,
                           "%s-----BEGIN CERTIFICATE-----\nMAAA\n"
                           "-----END CERTIFICATE-----\n",
                           bundle),
                  0);
    FAILS(csr_check_answer(asked.key, other.cert, bundle, &err), ERR_PROTOCOL);
    cr_assert_not_null(strstr(err.text, "another key"));
    FAILS(csr_check_answer(asked.key, chain, bundle, &err), ERR_PROTOCOL);
    FAILS(csr_check_answer(asked.key, bundle, bundle, &err), ERR_PROTOCOL);
    FAILS(csr_check_answer(asked.key, "", bundle, &err), ERR_PROTOCOL);
    FAILS(csr_check_answer(asked.key, asked.csr, bundle, &err), ERR_PROTOCOL);
    FAILS(csr_check_answer(asked.key, asked.cert, "", &err), ERR_PROTOCOL);
    FAILS(csr_check_answer(asked.key, asked.cert, asked.cert, &err), ERR_PROTOCOL);
    FAILS(csr_check_answer(asked.key, asked.cert, dirty, &err), ERR_PROTOCOL);
    FAILS(csr_check_answer("no key", asked.cert, bundle, &err), ERR_INVALID);
    cr_assert_eq(ERR_peek_error(), 0ul);
    cr_assert_eq(csr_check_answer(asked.key, "", bundle, NULL), -1);
}

/* A certificate for this key that the CA signed, but for another purpose or at another time. */
static int check_leaf(struct ca *ca, const char *usage, const char *uri, time_t now)
{
    static const char *const names[] = { "localhost" };
    struct err err = { 0 };
    CLEANUP_KEY_PEM char *pem = NULL;
    CLEANUP_KEY EVP_PKEY *key = NULL;
    CLEANUP_X509 X509 *cert = NULL;
    CLEANUP_BIO BIO *bio = NULL;
    CLEANUP_FREE char *text = NULL;
    const struct ca_leaf leaf = { .common_name = "x",
                                  .usage = usage,
                                  .uri = uri,
                                  .names = names,
                                  .name_count = uri ? 0 : 1,
                                  .lifetime_s = 60 };
    OK(csr_key_new(&pem, &err));
    OK(cert_pem_to_key(pem, strlen(pem), &key, &err));
    OK(ca_x509_leaf(&leaf, key, ca->cert, ca->key, now, &cert, &err));
    OK(cert_pem_from_cert(cert, &bio, &err));
    OK(cert_bio_text(bio, &text, &err));
    return csr_check_answer(pem, text, ca_bundle(ca), &err);
}

Test(csr, the_purpose_and_the_identity_count_and_the_time_does_not)
{
    CLEANUP_CA struct ca *ca = new_ca();
    const char *uri = "spiffe://" TRUST_DOMAIN "/agent/a";
    time_t now = time(NULL);
    cr_assert_eq(check_leaf(ca, "clientAuth", uri, now), 0);
    cr_assert_eq(check_leaf(ca, "clientAuth", uri, now - 86400), 0);
    cr_assert_eq(check_leaf(ca, "clientAuth", uri, now + 86400), 0);
    cr_assert_eq(check_leaf(ca, "serverAuth", uri, now), -1);
    cr_assert_eq(check_leaf(ca, "clientAuth,serverAuth", uri, now), -1);
    cr_assert_eq(check_leaf(ca, "clientAuth", NULL, now), -1);
    cr_assert_eq(check_leaf(ca, "clientAuth", "spiffe://" TRUST_DOMAIN "/agent/A", now), -1);
}

Test(csr, no_request_without_a_key)
{
    struct err err = { 0 };
    char *csr = NULL;
    FAILS(csr_new("", &csr, &err), ERR_INVALID);
    FAILS(csr_new("-----BEGIN PRIVATE KEY-----\nMAAA\n-----END PRIVATE KEY-----\n", &csr, &err),
          ERR_INVALID);
    cr_assert_null(csr);
    csr_key_free(NULL);
}
