/* Owns what is inside our certificates: which extensions, which names, how long. No file is here.
 * orchestrator/ca.c hands it keys, names and the time and takes certificates back. Names are put
 * into the certificate as values, never through OpenSSL's configuration syntax, where a comma in a
 * name would start another name. Next: common/cert.c for keys and PEM. */
#include "orchestrator/ca-internal.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SERIAL_BYTES  16
#define DNS_NAME_MAX  253
#define DNS_LABEL_MAX 63
#define DIGITS        "0123456789"
#define LETTERS       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define ROOT_NAME     "Sandstorm CA"
#define SPIFFE_SCHEME "spiffe://"

static void names_cleanup(GENERAL_NAMES **names)
{
    GENERAL_NAMES_free(*names);
}
#define CLEANUP_NAMES CLEANUP(names_cleanup)

static int ca_openssl_err(struct err *err, const char *what)
{
    return cert_openssl_err(err, ERR_INTERNAL, what);
}

static int set_serial(X509 *cert, struct err *err)
{
    unsigned char bytes[SERIAL_BYTES];
    if (RAND_bytes(bytes, sizeof(bytes)) != 1)
        return ca_openssl_err(err, "cannot draw a serial number");
    BIGNUM *number = BN_bin2bn(bytes, sizeof(bytes), NULL);
    int ok = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert));
    BN_free(number);
    return ok ? 0 : ca_openssl_err(err, "cannot set the serial number");
}

/* What root and leaf have in common. */
static int set_basics(X509 *cert, EVP_PKEY *key, const char *common_name, time_t now,
                      uint64_t lifetime_s, struct err *err)
{
    if (set_serial(cert, err) < 0)
        return -1;
    X509_NAME *subject = X509_get_subject_name(cert);
    if (X509_set_version(cert, X509_VERSION_3) != 1 || X509_set_pubkey(cert, key) != 1 ||
        X509_NAME_add_entry_by_NID(subject, NID_commonName, MBSTRING_ASC,
                                   (const unsigned char *)common_name, -1, -1, 0) != 1 ||
        !ASN1_TIME_set(X509_getm_notBefore(cert), now - (time_t)IDENTITY_BACKDATE_S) ||
        !ASN1_TIME_set(X509_getm_notAfter(cert), now + (time_t)lifetime_s))
        return ca_openssl_err(err, "cannot fill in the certificate");
    return 0;
}

struct extension {
    int nid;
    const char *value;
};

/* The values are ours, never input. The issuer may be the certificate itself. */
static int add_extensions(X509 *cert, const X509 *issuer, const struct extension *rows,
                          size_t count, struct err *err)
{
    X509V3_CTX context = { 0 };
    X509V3_set_ctx(&context, (X509 *)issuer, cert, NULL, NULL, 0);
    for (size_t i = 0; i < count; i++) {
        X509_EXTENSION *extension =
            X509V3_EXT_nconf_nid(NULL, &context, rows[i].nid, rows[i].value);
        int ok = extension && X509_add_ext(cert, extension, -1);
        X509_EXTENSION_free(extension);
        if (!ok)
            return ca_openssl_err(err, "cannot add an extension to the certificate");
    }
    return 0;
}

static int push_name(GENERAL_NAMES *names, int type, const void *data, size_t size, struct err *err)
{
    GENERAL_NAME *name = GENERAL_NAME_new();
    ASN1_STRING *value =
        ASN1_STRING_type_new(type == GEN_IPADD ? V_ASN1_OCTET_STRING : V_ASN1_IA5STRING);
    if (!name || !value || ASN1_STRING_set(value, data, (int)size) != 1) {
        ASN1_STRING_free(value);
        GENERAL_NAME_free(name);
        return ca_openssl_err(err, "cannot build a subject name");
    }
    GENERAL_NAME_set0_value(name, type, value);
    if (sk_GENERAL_NAME_push(names, name) <= 0) {
        GENERAL_NAME_free(name);
        return ca_openssl_err(err, "cannot build the list of subject names");
    }
    return 0;
}

static int bad_server_name(struct err *err)
{
    return err_set(err, ERR_INVALID,
                   "a server name must be an IP address (no brackets, port or zone) or a DNS name "
                   "such as orchestrator.example.com: labels of letters, digits and inner dashes, "
                   "no wildcard, no dot at the end");
}

/* A last label of digits only is refused: 10.0.0.256 is a mistyped address, not a name. */
static int dns_name_check(const char *name, struct err *err)
{
    if (strnlen(name, DNS_NAME_MAX + 1) > DNS_NAME_MAX)
        return bad_server_name(err);
    for (const char *label = name;;) {
        size_t len = strcspn(label, ".");
        if (len == 0 || len > DNS_LABEL_MAX || label[0] == '-' || label[len - 1] == '-')
            return bad_server_name(err);
        if (strspn(label, LETTERS DIGITS "-") < len)
            return bad_server_name(err);
        if (label[len] == '\0')
            return strspn(label, DIGITS) < len ? 0 : bad_server_name(err);
        label += len + 1;
    }
}

int ca_server_name_check(const char *name, struct err *err)
{
    struct in6_addr any;
    if (inet_pton(AF_INET, name, &any) == 1 || inet_pton(AF_INET6, name, &any) == 1)
        return 0;
    return dns_name_check(name, err);
}

static int push_server_name(GENERAL_NAMES *names, const char *name, struct err *err)
{
    struct in_addr v4;
    if (inet_pton(AF_INET, name, &v4) == 1)
        return push_name(names, GEN_IPADD, &v4, sizeof(v4), err);
    struct in6_addr v6;
    if (inet_pton(AF_INET6, name, &v6) == 1)
        return push_name(names, GEN_IPADD, &v6, sizeof(v6), err);
    if (dns_name_check(name, err) < 0)
        return -1;
    return push_name(names, GEN_DNS, name, strlen(name), err);
}

/* The names of an earlier server certificate, as they are. */
static int copy_names(X509 *cert, const X509 *from, struct err *err)
{
    CLEANUP_NAMES GENERAL_NAMES *names = X509_get_ext_d2i(from, NID_subject_alt_name, NULL, NULL);
    int count = names ? sk_GENERAL_NAME_num(names) : 0;
    bool good = count > 0 && count <= CA_DNS_NAMES_MAX;
    for (int i = 0; good && i < count; i++) {
        int type = sk_GENERAL_NAME_value(names, i)->type;
        good = type == GEN_DNS || type == GEN_IPADD;
    }
    ERR_clear_error();
    if (!good)
        return err_set(err, ERR_INVALID,
                       "the names in the server's certificate are not 1 to %d DNS names and IP "
                       "addresses, so that it cannot be renewed",
                       CA_DNS_NAMES_MAX);
    if (X509_add1_ext_i2d(cert, NID_subject_alt_name, names, 0, X509V3_ADD_DEFAULT) != 1)
        return ca_openssl_err(err, "cannot add the subject names to the certificate");
    return 0;
}

static int add_names(X509 *cert, const char *uri, const char *const *server_names, unsigned count,
                     struct err *err)
{
    CLEANUP_NAMES GENERAL_NAMES *names = sk_GENERAL_NAME_new_null();
    if (!names)
        return ca_openssl_err(err, "cannot build the list of subject names");
    if (uri && push_name(names, GEN_URI, uri, strlen(uri), err) < 0)
        return -1;
    for (unsigned i = 0; i < count; i++)
        if (push_server_name(names, server_names[i], err) < 0)
            return err_wrap(err, "server name %u of %u", i + 1, count);
    if (X509_add1_ext_i2d(cert, NID_subject_alt_name, names, 0, X509V3_ADD_DEFAULT) != 1)
        return ca_openssl_err(err, "cannot add the subject names to the certificate");
    return 0;
}

int ca_x509_root(EVP_PKEY *key, const char *trust_domain, time_t now, X509 **ret, struct err *err)
{
    static const struct extension extensions[] = {
        { NID_basic_constraints, "critical,CA:TRUE,pathlen:0" },
        { NID_key_usage, "critical,keyCertSign,cRLSign" },
        { NID_subject_key_identifier, "hash" },
    };
    char uri[SPIFFE_URI_MAX];
    (void)snprintf(uri, sizeof(uri), SPIFFE_SCHEME "%s", trust_domain);
    CLEANUP_X509 X509 *cert = X509_new();
    if (!cert)
        return ca_openssl_err(err, "cannot make a certificate");
    if (set_basics(cert, key, ROOT_NAME, now, CA_LIFETIME_S, err) < 0)
        return -1;
    if (X509_set_issuer_name(cert, X509_get_subject_name(cert)) != 1)
        return ca_openssl_err(err, "cannot name the issuer");
    if (add_extensions(cert, cert, extensions, ELEMENTS(extensions), err) < 0 ||
        add_names(cert, uri, NULL, 0, err) < 0)
        return -1;
    if (X509_sign(cert, key, EVP_sha256()) <= 0)
        return ca_openssl_err(err, "cannot sign the CA certificate");
    *ret = TAKE_PTR(cert);
    return 0;
}

/* A certificate that promises to outlive its CA would only fail later, and harder to explain. */
static int clamp_to_issuer(X509 *cert, const X509 *issuer, struct err *err)
{
    const ASN1_TIME *end = X509_get0_notAfter(issuer);
    if (ASN1_TIME_compare(X509_get0_notAfter(cert), end) <= 0)
        return 0;
    if (X509_set1_notAfter(cert, end) != 1)
        return ca_openssl_err(err, "cannot shorten the certificate to its issuer's life");
    return 0;
}

int ca_x509_leaf(const struct ca_leaf *leaf, EVP_PKEY *subject_key, const X509 *issuer,
                 EVP_PKEY *issuer_key, time_t now, X509 **ret, struct err *err)
{
    const struct extension extensions[] = {
        { NID_basic_constraints, "critical,CA:FALSE" },
        { NID_key_usage, "critical,digitalSignature" },
        { NID_ext_key_usage, leaf->usage },
        { NID_subject_key_identifier, "hash" },
        { NID_authority_key_identifier, "keyid:always" },
    };
    CLEANUP_X509 X509 *cert = X509_new();
    if (!cert)
        return ca_openssl_err(err, "cannot make a certificate");
    if (set_basics(cert, subject_key, leaf->common_name, now, leaf->lifetime_s, err) < 0 ||
        clamp_to_issuer(cert, issuer, err) < 0)
        return -1;
    if (X509_set_issuer_name(cert, X509_get_subject_name(issuer)) != 1)
        return ca_openssl_err(err, "cannot name the issuer");
    if (add_extensions(cert, issuer, extensions, ELEMENTS(extensions), err) < 0)
        return -1;
    if (leaf->names_from ? copy_names(cert, leaf->names_from, err) < 0
                         : add_names(cert, leaf->uri, leaf->names, leaf->name_count, err) < 0)
        return -1;
    if (X509_sign(cert, issuer_key, EVP_sha256()) <= 0)
        return ca_openssl_err(err, "cannot sign the certificate");
    *ret = TAKE_PTR(cert);
    return 0;
}

int ca_x509_check_root(X509 *root, time_t now, struct err *err)
{
    bool is_ca = X509_check_ca(root) == 1;
    ERR_clear_error();
    if (!is_ca)
        return err_set(err, ERR_INVALID,
                       "this is not a CA certificate; it needs basicConstraints CA:TRUE and "
                       "keyUsage keyCertSign");
    char text[CA_TIME_TEXT_SIZE];
    const ASN1_TIME *start = X509_get0_notBefore(root);
    if (ASN1_TIME_cmp_time_t(start, now) > 0) {
        ca_x509_time_text(start, text);
        return err_set(err, ERR_PRECONDITION,
                       "the CA is valid only from %s on; this machine's clock is behind, set it",
                       text);
    }
    const ASN1_TIME *end = X509_get0_notAfter(root);
    if (ASN1_TIME_cmp_time_t(end, now) < 0) {
        ca_x509_time_text(end, text);
        return err_set(err, ERR_PRECONDITION,
                       "the CA expired on %s; if this machine's clock is right, move ca.pem and "
                       "ca-key.pem away, make a new CA and enrol everybody again",
                       text);
    }
    return 0;
}

int ca_x509_trust_domain(const X509 *root, char ret_domain[TRUST_DOMAIN_MAX + 1], struct err *err)
{
    const size_t prefix = strlen(SPIFFE_SCHEME);
    char text[SPIFFE_URI_MAX];
    if (cert_uri(root, text, NULL) < 0 || strncmp(text, SPIFFE_SCHEME, prefix) != 0)
        return err_set(err, ERR_INVALID,
                       "the CA certificate does not name its trust domain; it needs exactly one "
                       "URI subject alternative name, spiffe://<trust-domain>");
    if (trust_domain_check(text + prefix, err) < 0)
        return err_wrap(err, "the URI name of the CA certificate");
    memcpy(ret_domain, text + prefix, strlen(text + prefix) + 1);
    return 0;
}

int ca_x509_time(const ASN1_TIME *when, int64_t *ret_s, struct err *err)
{
    struct tm tm;
    if (ASN1_TIME_to_tm(when, &tm) != 1)
        return cert_openssl_err(err, ERR_INVALID, "the certificate has a date that is none");
    *ret_s = (int64_t)timegm(&tm);
    return 0;
}

void ca_x509_time_text(const ASN1_TIME *when, char ret[CA_TIME_TEXT_SIZE])
{
    struct tm tm;
    if (ASN1_TIME_to_tm(when, &tm) != 1 || strftime(ret, CA_TIME_TEXT_SIZE, "%F %T UTC", &tm) == 0)
        (void)snprintf(ret, CA_TIME_TEXT_SIZE, "an unreadable date");
}

bool ca_x509_signed_by(X509 *cert, const X509 *issuer)
{
    EVP_PKEY *key = issuer ? X509_get0_pubkey(issuer) : NULL;
    bool good = key && X509_verify(cert, key) == 1;
    ERR_clear_error();
    return good;
}
