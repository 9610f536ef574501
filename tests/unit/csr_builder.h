/* Signing requests of every kind that a peer might send, good and bad, as PEM. */
#pragma once

#include "tests/unit/ca_fixture.h"

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

static inline EVP_PKEY *make_key(const char *type, const char *group, unsigned bits)
{
    EVP_PKEY *key = NULL;
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new_from_name(NULL, type, NULL);
    cr_assert(context && EVP_PKEY_keygen_init(context) == 1);
    if (group)
        cr_assert_eq(EVP_PKEY_CTX_set_group_name(context, group), 1);
    if (bits)
        cr_assert_eq(EVP_PKEY_CTX_set_rsa_keygen_bits(context, (int)bits), 1);
    cr_assert_eq(EVP_PKEY_generate(context, &key), 1, "%s %s", type, group ? group : "");
    EVP_PKEY_CTX_free(context);
    return key;
}

static inline char *request_pem(X509_REQ *request)
{
    struct err err = { 0 };
    char *text = NULL;
    CLEANUP_BIO BIO *bio = BIO_new(BIO_s_mem());
    cr_assert_eq(PEM_write_bio_X509_REQ(bio, request), 1);
    OK(cert_bio_text(bio, &text, &err));
    return text;
}

static inline void add_request_extension(STACK_OF(X509_EXTENSION) * list, int nid,
                                         const char *value)
{
    X509_EXTENSION *extension = X509V3_EXT_nconf_nid(NULL, NULL, nid, value);
    cr_assert_not_null(extension, "%s", value);
    cr_assert_gt(sk_X509_EXTENSION_push(list, extension), 0);
}

/* What a request may wish for; all of it optional. */
struct wish {
    const char *common_name;
    const char *names; /* as OpenSSL's configuration writes subjectAltName */
    const char *constraints, *key_usage, *extended_usage;
};

static inline X509_REQ *make_request(EVP_PKEY *key, const struct wish *wish)
{
    X509_REQ *request = X509_REQ_new();
    cr_assert(request && X509_REQ_set_version(request, X509_REQ_VERSION_1) == 1 &&
              X509_REQ_set_pubkey(request, key) == 1);
    if (wish->common_name)
        cr_assert_eq(X509_NAME_add_entry_by_NID(
                         X509_REQ_get_subject_name(request), NID_commonName, MBSTRING_UTF8,
                         (const unsigned char *)wish->common_name, -1, -1, 0),
                     1);
    STACK_OF(X509_EXTENSION) *list = sk_X509_EXTENSION_new_null();
    if (wish->names)
        add_request_extension(list, NID_subject_alt_name, wish->names);
    if (wish->constraints)
        add_request_extension(list, NID_basic_constraints, wish->constraints);
    if (wish->key_usage)
        add_request_extension(list, NID_key_usage, wish->key_usage);
    if (wish->extended_usage)
        add_request_extension(list, NID_ext_key_usage, wish->extended_usage);
    if (sk_X509_EXTENSION_num(list) > 0)
        cr_assert_eq(X509_REQ_add_extensions(request, list), 1);
    sk_X509_EXTENSION_pop_free(list, X509_EXTENSION_free);
    return request;
}

/* Ed25519 brings its own digest. */
static inline char *sign_request(X509_REQ *request, EVP_PKEY *key)
{
    const EVP_MD *digest = EVP_PKEY_is_a(key, "ED25519") ? NULL : EVP_sha256();
    cr_assert_gt(X509_REQ_sign(request, key, digest), 0);
    char *text = request_pem(request);
    X509_REQ_free(request);
    return text;
}

static inline char *request_for(EVP_PKEY *key, const struct wish *wish)
{
    return sign_request(make_request(key, wish), key);
}
