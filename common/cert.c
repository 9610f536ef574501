/* Owns the reading of keys and certificates. common/csr.c and the CA hand it PEM texts and take
 * OpenSSL's objects back. Texts of peers go through cert_pem_block(), which is stricter than
 * OpenSSL: two readers must never see two different things in one text. Calls nobody. */
#include "common/cert.h"

#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LABEL_LINE_MAX 64
#define WHITE_SPACE    " \t\r\n"

int cert_openssl_err(struct err *err, enum err_code code, const char *what)
{
    /* The first entry is the one nearest to the cause; the others say who called whom. */
    unsigned long first = ERR_get_error();
    ERR_clear_error();
    char reason[256] = "OpenSSL gives no reason";
    if (first)
        ERR_error_string_n(first, reason, sizeof(reason));
    return err_set(err, code, "%s: %s", what, reason);
}

int cert_key_new(EVP_PKEY **ret, struct err *err)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    if (!key)
        return cert_openssl_err(err, ERR_INTERNAL, "cannot make a P-256 key");
    *ret = key;
    return 0;
}

int cert_pem_from_key(EVP_PKEY *key, BIO **ret, struct err *err)
{
    CLEANUP_BIO BIO *bio = BIO_new(BIO_s_secmem());
    if (!bio || PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) != 1)
        return cert_openssl_err(err, ERR_INTERNAL, "cannot write the key as PEM");
    *ret = TAKE_PTR(bio);
    return 0;
}

int cert_pem_from_cert(X509 *cert, BIO **ret, struct err *err)
{
    CLEANUP_BIO BIO *bio = BIO_new(BIO_s_mem());
    if (!bio || PEM_write_bio_X509(bio, cert) != 1)
        return cert_openssl_err(err, ERR_INTERNAL, "cannot write the certificate as PEM");
    *ret = TAKE_PTR(bio);
    return 0;
}

/* Without a callback OpenSSL would stop and ask for a passphrase on the terminal. */
static int no_passphrase(char *buf, int size, int writing, void *data)
{
    (void)buf;
    (void)size;
    (void)writing;
    (void)data;
    return -1;
}

int cert_pem_to_key(const char *pem, size_t size, EVP_PKEY **ret, struct err *err)
{
    CLEANUP_BIO BIO *bio = BIO_new_mem_buf(pem, (int)MIN(size, (size_t)INT_MAX));
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL) : NULL;
    if (!key)
        return cert_openssl_err(err, ERR_INVALID, "not an unencrypted private key in PEM");
    *ret = key;
    return 0;
}

int cert_pem_to_cert(const char *pem, size_t size, X509 **ret, struct err *err)
{
    CLEANUP_BIO BIO *bio = BIO_new_mem_buf(pem, (int)MIN(size, (size_t)INT_MAX));
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, no_passphrase, NULL) : NULL;
    if (!cert)
        return cert_openssl_err(err, ERR_INVALID, "not a certificate in PEM");
    *ret = cert;
    return 0;
}

int cert_bio_text(BIO *bio, char **ret, struct err *err)
{
    char *data = NULL;
    long size = BIO_get_mem_data(bio, &data);
    char *text = strndup(data ? data : "", (size_t)MAX(size, 0));
    if (!text)
        return err_nomem(err);
    *ret = text;
    return 0;
}

/* Is `text` one block of this label, with white space at most around it? */
static bool is_one_block(const char *text, const char *label)
{
    char begin[LABEL_LINE_MAX], end[LABEL_LINE_MAX];
    (void)snprintf(begin, sizeof(begin), "-----BEGIN %s-----", label);
    (void)snprintf(end, sizeof(end), "\n-----END %s-----", label);
    text += strspn(text, WHITE_SPACE);
    if (strncmp(text, begin, strlen(begin)) != 0)
        return false;
    const char *body = text + strlen(begin);
    const char *stop = strstr(body, end);
    /* The first dashes after the begin line are those of the end line. */
    if (strspn(body, "\r\n") == 0 || !stop || strstr(body, "-----") != stop + 1)
        return false;
    const char *rest = stop + strlen(end);
    return rest[strspn(rest, WHITE_SPACE)] == '\0';
}

int cert_pem_block(const char *pem, size_t size, const char *label, unsigned char **ret_der,
                   long *ret_size, struct err *err)
{
    if (memchr(pem, '\0', size))
        return err_set(err, ERR_INVALID, "there is a NUL byte in the text; send PEM");
    CLEANUP_FREE char *text = strndup(pem, size);
    if (!text)
        return err_nomem(err);
    if (!is_one_block(text, label))
        return err_set(err, ERR_INVALID,
                       "the text must be exactly one PEM block, from -----BEGIN %s----- to its "
                       "end line, with nothing before or after it",
                       label);
    CLEANUP_BIO BIO *bio = BIO_new_mem_buf(text, -1);
    char *name = NULL, *header = NULL;
    unsigned char *der = NULL;
    long der_size = 0;
    int ok = bio && PEM_read_bio(bio, &name, &header, &der, &der_size) == 1;
    /* A header would mean that the block is encrypted. */
    bool plain = ok && strcmp(name, label) == 0 && *header == '\0';
    OPENSSL_free(name);
    OPENSSL_free(header);
    if (!ok)
        return cert_openssl_err(err, ERR_INVALID, "the PEM block cannot be read");
    if (!plain) {
        OPENSSL_free(der);
        return err_set(err, ERR_INVALID, "the PEM block has a header; send it without one");
    }
    *ret_der = der;
    *ret_size = der_size;
    return 0;
}

int cert_pem_one_cert(const char *pem, size_t size, X509 **ret, struct err *err)
{
    unsigned char *der = NULL;
    long der_size = 0;
    if (cert_pem_block(pem, size, PEM_STRING_X509, &der, &der_size, err) < 0)
        return -1;
    const unsigned char *at = der;
    CLEANUP_X509 X509 *cert = d2i_X509(NULL, &at, der_size);
    bool whole = cert && at == der + der_size;
    OPENSSL_free(der);
    if (!whole)
        return cert_openssl_err(err, ERR_INVALID, "the PEM block is not exactly one certificate");
    *ret = TAKE_PTR(cert);
    return 0;
}

static void names_cleanup(GENERAL_NAMES **names)
{
    GENERAL_NAMES_free(*names);
}

int cert_uri(const X509 *cert, char ret_uri[SPIFFE_URI_MAX], struct err *err)
{
    CLEANUP(names_cleanup)
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    ERR_clear_error();
    const ASN1_IA5STRING *uri = NULL;
    unsigned found = 0;
    for (int i = 0; names && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_URI)
            continue;
        uri = name->d.uniformResourceIdentifier;
        found++;
    }
    if (found != 1)
        return err_set(err, ERR_INVALID,
                       "the certificate has %u URI names; it needs exactly one, the SPIFFE id",
                       found);
    size_t size = (size_t)ASN1_STRING_length(uri);
    /* ASN.1 strings have a length and may hold a NUL; a text cut there would be another name. */
    if (size >= SPIFFE_URI_MAX || memchr(ASN1_STRING_get0_data(uri), '\0', size))
        return err_set(err, ERR_INVALID, "the URI name of the certificate is no SPIFFE id");
    memcpy(ret_uri, ASN1_STRING_get0_data(uri), size);
    ret_uri[size] = '\0';
    return 0;
}

int cert_check_peer(X509 *cert, struct identity *ret, struct err *err)
{
    /* This call parses the extensions, which the next two and the key usages need. */
    bool is_ca = X509_check_ca(cert) != 0;
    uint32_t flags = X509_get_extension_flags(cert);
    ERR_clear_error();
    if (flags & EXFLAG_INVALID)
        return err_set(err, ERR_INVALID, "the certificate has extensions that cannot be read");
    if (is_ca)
        return err_set(err, ERR_INVALID, "the certificate is a CA's, not a peer's");
    if (!(flags & EXFLAG_XKUSAGE) || X509_get_extended_key_usage(cert) != XKU_SSL_CLIENT)
        return err_set(err, ERR_INVALID,
                       "the certificate is not for TLS clients only; its extended key usage must "
                       "be clientAuth");
    char uri[SPIFFE_URI_MAX];
    if (cert_uri(cert, uri, err) < 0)
        return -1;
    return identity_parse(uri, ret, err);
}
