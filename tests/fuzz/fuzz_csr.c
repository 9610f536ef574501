/* Signing requests and certificates of peers. The first byte says what the rest is: a request or
 * (1) a certificate; its text or (2) what is in the text; and whether (4) it is signed anew with a
 * key that passes, so that the fuzzer gets behind the signature. Whatever is accepted gives the
 * identity that was chosen here and nothing else. */
#include "orchestrator/ca-internal.h"
#include "tests/fuzz/check.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <string.h>

#define DOMAIN     "a.b"
#define NAME       "chosen"
#define EXTENSIONS 6

enum mode { MODE_CERT = 1, MODE_DER = 2, MODE_SIGN = 4 };

static struct ca *the_ca(void)
{
    static struct ca ca;
    if (!ca.key) {
        check(cert_key_new(&ca.key, NULL) == 0 &&
              ca_x509_root(ca.key, DOMAIN, time(NULL), &ca.cert, NULL) == 0);
        (void)memcpy(ca.trust_domain, DOMAIN, sizeof(DOMAIN));
    }
    return &ca;
}

static void try_request(const char *pem, size_t size)
{
    struct err err = { 0 };
    CLEANUP_CA_REQUEST struct ca_request *request = NULL;
    CLEANUP_FREE char *text = NULL;
    CLEANUP_X509 X509 *cert = NULL;
    int64_t end;
    char uri[SPIFFE_URI_MAX];
    int r = ca_request_parse(pem, size, &request, &err);
    check(ERR_peek_error() == 0);
    if (r < 0) {
        check(err.code == ERR_INVALID);
        return;
    }
    check(ca_sign_peer(the_ca(), request, IDENTITY_AGENT, NAME, 60, &text, &end, &err) == 0);
    check(cert_pem_one_cert(text, strlen(text), &cert, &err) == 0);
    check(X509_get_ext_count(cert) == EXTENSIONS && cert_uri(cert, uri, &err) == 0 &&
          strcmp(uri, "spiffe://" DOMAIN "/agent/" NAME) == 0);
    struct identity identity;
    uint8_t key[CA_KEY_LEN];
    check(ca_inspect_peer(the_ca(), text, strlen(text), &identity, key, &end, &err) == 0 &&
          memcmp(key, ca_request_key(request), sizeof(key)) == 0);
}

static void try_cert(const char *pem, size_t size)
{
    struct err err = { 0 };
    struct identity identity;
    uint8_t key[CA_KEY_LEN];
    int64_t end;
    char uri[SPIFFE_URI_MAX];
    int r = ca_inspect_peer(the_ca(), pem, size, &identity, key, &end, &err);
    check(ERR_peek_error() == 0);
    if (r < 0)
        check(err.code == ERR_INVALID || err.code == ERR_UNAUTHENTICATED);
    else
        check(strcmp(identity.trust_domain, DOMAIN) == 0 &&
              identity_format(&identity, uri, &err) == 0);
}

/* False when there is nothing to sign. */
static bool sign_request(const uint8_t *data, size_t size, BIO *out)
{
    X509_REQ *request = d2i_X509_REQ(NULL, &data, (long)size);
    EVP_PKEY *key = the_ca()->key;
    bool good = request && X509_REQ_set_pubkey(request, key) == 1 &&
                X509_REQ_sign(request, key, EVP_sha256()) > 0 &&
                PEM_write_bio_X509_REQ(out, request) == 1;
    X509_REQ_free(request);
    return good;
}

static bool sign_cert(const uint8_t *data, size_t size, BIO *out)
{
    CLEANUP_X509 X509 *cert = d2i_X509(NULL, &data, (long)size);
    return cert && X509_sign(cert, the_ca()->key, EVP_sha256()) > 0 &&
           PEM_write_bio_X509(out, cert) == 1;
}

static bool wrap(unsigned mode, const uint8_t *data, size_t size, BIO *out)
{
    if (mode & MODE_SIGN)
        return mode & MODE_CERT ? sign_cert(data, size, out) : sign_request(data, size, out);
    const char *label = mode & MODE_CERT ? PEM_STRING_X509 : PEM_STRING_X509_REQ;
    return PEM_write_bio(out, label, "", data, (long)size) > 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = { data, size };
    unsigned mode = input_byte(&input);
    CLEANUP_BIO BIO *bio = BIO_new(BIO_s_mem());
    const char *text = (const char *)input.data;
    size_t text_size = input.size;
    if (mode & (MODE_DER | MODE_SIGN)) {
        bool good = wrap(mode, input.data, input.size, bio);
        ERR_clear_error();
        if (!good)
            return 0;
        char *wrapped = NULL;
        text_size = (size_t)BIO_get_mem_data(bio, &wrapped);
        text = wrapped;
    }
    if (mode & MODE_CERT)
        try_cert(text, text_size);
    else
        try_request(text, text_size);
    return 0;
}
