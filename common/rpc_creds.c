/* Credentials for both ends of mutual TLS. Files come from enrolment, login and
 * orchestrator/init.c; goes to common/rpc_server.c, common/rpc_channel.c and common/rpc_diagnose.c.
 */
#include "common/rpc_creds.h"

#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>
#include <string.h>

#define LOAD_ATTEMPTS       3u
#define RENEW_FROM_PERMILLE 600
#define RENEW_SPAN_PERMILLE 200

static int load_once(const char *dir, struct rpc_creds *ret, struct err *err)
{
    CLEANUP_FD int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot open the identity directory \"%s\"", dir);
    struct rpc_creds creds = { 0 };
    size_t size;
    if (file_read_at(fd, "ca.pem", PEM_MAX, &creds.ca, &size, err) < 0 ||
        file_read_at(fd, "cert.pem", PEM_MAX, &creds.cert, &size, err) < 0 ||
        file_read_at(fd, "key.pem", PEM_MAX, &creds.key, &size, err) < 0) {
        rpc_creds_clear(&creds);
        return err_wrap(err, "identity directory \"%s\"", dir);
    }
    *ret = creds;
    return 0;
}

int rpc_creds_load(const char *dir, struct rpc_creds *ret, struct err *err)
{
    /* A directory that is swapped away while it is read loses its files one by one. */
    struct err why = { 0 };
    for (unsigned i = 0; i < LOAD_ATTEMPTS; i++) {
        if (load_once(dir, ret, &why) == 0)
            return 0;
        if (why.sys_errno != ENOENT)
            break;
    }
    if (err)
        *err = why;
    return -1;
}

void rpc_creds_clear(struct rpc_creds *creds)
{
    free(creds->ca);
    free(creds->cert);
    if (creds->key)
        OPENSSL_cleanse(creds->key, strlen(creds->key));
    free(creds->key);
    *creds = (struct rpc_creds){ 0 };
}

static X509 *parse_cert(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    BIO_free(bio);
    return cert;
}

static EVP_PKEY *parse_key(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
    BIO_free(bio);
    return key;
}

int rpc_creds_check(const struct rpc_creds *creds, struct err *err)
{
    X509 *ca = parse_cert(creds->ca), *cert = parse_cert(creds->cert);
    EVP_PKEY *key = parse_key(creds->key);
    int r = 0;
    if (!ca || !cert)
        r = err_set(err, ERR_INVALID, "%s.pem does not hold a certificate", ca ? "cert" : "ca");
    else if (!key)
        r = err_set(err, ERR_INVALID, "key.pem does not hold a private key");
    else if (X509_check_private_key(cert, key) != 1)
        r = err_set(err, ERR_INVALID, "key.pem does not belong to cert.pem");
    X509_free(ca);
    X509_free(cert);
    EVP_PKEY_free(key);
    ERR_clear_error();
    return r;
}

/* The only URI name of a certificate. */
static int uri_of(X509 *cert, char uri[SPIFFE_URI_MAX], struct err *err)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);
    unsigned found = 0;
    uri[0] = '\0';
    for (int i = 0; names && i < sk_GENERAL_NAME_num(names); i++) {
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
        if (name->type != GEN_URI)
            continue;
        found++;
        const ASN1_STRING *text = name->d.uniformResourceIdentifier;
        int size = ASN1_STRING_length(text);
        if (size > 0 && size < SPIFFE_URI_MAX) {
            (void)memcpy(uri, ASN1_STRING_get0_data(text), (size_t)size);
            uri[size] = '\0';
        }
    }
    GENERAL_NAMES_free(names);
    if (found != 1)
        return err_set(err, ERR_INVALID,
                       "the certificate has %u URI names; exactly one, the "
                       "SPIFFE id, is needed",
                       found);
    return 0;
}

int rpc_creds_identity(const struct rpc_creds *creds, struct identity *ret, int64_t *ret_not_after,
                       struct err *err)
{
    X509 *cert = parse_cert(creds->cert);
    if (!cert)
        return err_set(err, ERR_INVALID, "cert.pem does not hold a certificate");
    char uri[SPIFFE_URI_MAX];
    struct tm end = { 0 };
    int r = uri_of(cert, uri, err);
    if (r == 0 && ASN1_TIME_to_tm(X509_get0_notAfter(cert), &end) != 1)
        r = err_set(err, ERR_INVALID, "cert.pem has no readable end of validity");
    X509_free(cert);
    if (r < 0 || identity_parse(uri, ret, err) < 0)
        return -1;
    *ret_not_after = (int64_t)timegm(&end);
    return 0;
}

int rpc_creds_times(const struct rpc_creds *creds, struct rpc_creds_times *ret, struct err *err)
{
    X509 *cert = parse_cert(creds->cert);
    struct tm first = { 0 }, last = { 0 };
    unsigned char hash[SHA256_DIGEST_LENGTH];
    int ok = cert && ASN1_TIME_to_tm(X509_get0_notBefore(cert), &first) == 1 &&
             ASN1_TIME_to_tm(X509_get0_notAfter(cert), &last) == 1;
    X509_free(cert);
    ERR_clear_error();
    int64_t end = ok ? (int64_t)timegm(&last) : 0;
    int64_t made = ok ? (int64_t)timegm(&first) + IDENTITY_BACKDATE_S : 0;
    if (!ok || end <= made)
        return err_set(err, ERR_INVALID, "cert.pem does not hold a certificate that we can use");
    /* The hash is as good as dice, and needs no notes. */
    (void)SHA256((const unsigned char *)creds->cert, strlen(creds->cert), hash);
    unsigned dice = (unsigned)hash[0] << 8 | hash[1];
    int64_t permille = RENEW_FROM_PERMILLE + dice % (RENEW_SPAN_PERMILLE + 1);
    *ret = (struct rpc_creds_times){ .due_ms = made * 1000 + (end - made) * permille,
                                     .end_ms = end * 1000 };
    return 0;
}

int rpc_creds_trust_domain(const struct rpc_creds *creds, char ret[TRUST_DOMAIN_MAX + 1],
                           struct err *err)
{
    static const char scheme[] = "spiffe://";
    X509 *cert = parse_cert(creds->ca);
    if (!cert)
        return err_set(err, ERR_INVALID, "ca.pem does not hold a certificate");
    char uri[SPIFFE_URI_MAX];
    int r = uri_of(cert, uri, err);
    X509_free(cert);
    if (r < 0)
        return err_wrap(err, "ca.pem");
    const char *domain = uri + strlen(scheme);
    if (strncmp(uri, scheme, strlen(scheme)) != 0 || trust_domain_check(domain, err) < 0)
        return err_set(err, ERR_INVALID, "ca.pem does not name a trust domain (spiffe://DOMAIN)");
    (void)memcpy(ret, domain, strlen(domain) + 1);
    return 0;
}

grpc_server_credentials *rpc_creds_server(const struct rpc_creds *creds)
{
    grpc_ssl_pem_key_cert_pair pair = { creds->key, creds->cert };
    return grpc_ssl_server_credentials_create_ex(
        creds->ca, &pair, 1, GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY, NULL);
}

grpc_channel_credentials *rpc_creds_channel(const struct rpc_creds *creds)
{
    grpc_ssl_pem_key_cert_pair pair = { creds->key, creds->cert };
    return grpc_ssl_credentials_create_ex(creds->ca, &pair, NULL, NULL);
}
