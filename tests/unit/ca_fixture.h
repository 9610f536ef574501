/* What the tests of the CA share. Every test runs under umask 0 in a directory of its own, so that
 * a mode which only the umask had made right would show. Criterion gives each test a process, and
 * so each has its own `root` and may change its directory. */
#pragma once

#include "common/file.h"
#include "orchestrator/ca-internal.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <ftw.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PEM_MAX        16384
#define TRUST_DOMAIN   "prod.example.com"
#define OK(call)       cr_assert_eq((call), 0, "%s", err.text)
#define FAILS(call, c) cr_assert((call) == -1 && err.code == (c), "%s", err.text)

static char root[] = "/tmp/test-ca-XXXXXX";

static inline void fixture_setup(void)
{
    (void)umask(0);
    cr_assert(mkdtemp(root) && chdir(root) == 0);
}

static inline int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline void fixture_teardown(void)
{
    (void)nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static inline struct ca *new_ca(void)
{
    struct err err = { 0 };
    struct ca *ca = NULL;
    OK(ca_create("ca", TRUST_DOMAIN, &err));
    OK(ca_open("ca", &ca, &err));
    return ca;
}

static inline X509 *read_cert(const char *path)
{
    struct err err = { 0 };
    CLEANUP_FREE char *pem = NULL;
    size_t size = 0;
    X509 *cert = NULL;
    OK(file_read(path, PEM_MAX, &pem, &size, &err));
    OK(cert_pem_to_cert(pem, size, &cert, &err));
    return cert;
}

static inline EVP_PKEY *read_key(const char *path)
{
    struct err err = { 0 };
    CLEANUP_FREE char *pem = NULL;
    size_t size = 0;
    EVP_PKEY *key = NULL;
    OK(file_read(path, PEM_MAX, &pem, &size, &err));
    OK(cert_pem_to_key(pem, size, &key, &err));
    return key;
}

static inline void put_bio(const char *path, BIO *bio)
{
    char *data = NULL;
    long size = BIO_get_mem_data(bio, &data);
    struct err err = { 0 };
    OK(file_write_atomic(path, data, (size_t)size, 0600, &err));
    BIO_free(bio);
}

/* Makes ca/ by hand, with a certificate of the caller's making. */
static inline void put_ca(X509 *cert, EVP_PKEY *key)
{
    struct err err = { 0 };
    BIO *pem = NULL;
    (void)mkdir("ca", 0700);
    OK(cert_pem_from_key(key, &pem, &err));
    put_bio("ca/ca-key.pem", pem);
    OK(cert_pem_from_cert(cert, &pem, &err));
    put_bio("ca/ca.pem", pem);
}

static inline bool same_files(const char *a, const char *b)
{
    CLEANUP_FREE char *x = NULL, *y = NULL;
    size_t m = 0, n = 0;
    return file_read(a, PEM_MAX, &x, &m, NULL) == 0 && file_read(b, PEM_MAX, &y, &n, NULL) == 0 &&
           m == n && memcmp(x, y, m) == 0;
}

static inline void copy_file(const char *from, const char *to)
{
    struct err err = { 0 };
    CLEANUP_FREE char *data = NULL;
    size_t size = 0;
    OK(file_read(from, PEM_MAX, &data, &size, &err));
    OK(file_write_atomic(to, data, size, 0600, &err));
}

static inline unsigned mode_of(const char *path)
{
    struct stat st;
    cr_assert_eq(lstat(path, &st), 0, "%s", path);
    return st.st_mode & 07777;
}

static inline unsigned count_entries(const char *dir)
{
    DIR *listing = opendir(dir);
    cr_assert_not_null(listing);
    unsigned count = 0;
    while (readdir(listing))
        count++;
    (void)closedir(listing);
    return count - 2;
}

/* X509_V_OK, or why OpenSSL refuses the certificate of `dir` for `purpose`. */
static inline int verify(const char *dir, int purpose)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/cert.pem", dir);
    CLEANUP_X509 X509 *cert = read_cert(path);
    (void)snprintf(path, sizeof(path), "%s/ca.pem", dir);
    CLEANUP_X509 X509 *anchor = read_cert(path);
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *context = X509_STORE_CTX_new();
    cr_assert_eq(X509_STORE_add_cert(store, anchor), 1);
    cr_assert_eq(X509_STORE_CTX_init(context, store, cert, NULL), 1);
    X509_STORE_CTX_set_flags(context, X509_V_FLAG_X509_STRICT);
    cr_assert_eq(X509_STORE_CTX_set_purpose(context, purpose), 1);
    int ok = X509_verify_cert(context), why = X509_STORE_CTX_get_error(context);
    X509_STORE_CTX_free(context);
    X509_STORE_free(store);
    return ok == 1 ? X509_V_OK : why;
}

/* An extension as OpenSSL prints it, with "critical, " in front when it is. */
static inline void expect_extension(X509 *cert, int nid, const char *expected)
{
    int at = X509_get_ext_by_NID(cert, nid, -1);
    cr_assert_geq(at, 0, "no %s", OBJ_nid2sn(nid));
    cr_assert_lt(X509_get_ext_by_NID(cert, nid, at), 0, "two %s", OBJ_nid2sn(nid));
    X509_EXTENSION *extension = X509_get_ext(cert, at);
    CLEANUP_BIO BIO *bio = BIO_new(BIO_s_mem());
    if (X509_EXTENSION_get_critical(extension))
        (void)BIO_puts(bio, "critical, ");
    cr_assert_eq(X509V3_EXT_print(bio, extension, 0, 0), 1);
    char *text = NULL;
    long size = BIO_get_mem_data(bio, &text);
    cr_assert((size_t)size == strlen(expected) && memcmp(text, expected, (size_t)size) == 0,
              "%s is \"%.*s\"", OBJ_nid2sn(nid), (int)size, text);
}

static inline void expect_cn(const X509 *cert, const char *expected)
{
    const X509_NAME *subject = X509_get_subject_name(cert);
    const X509_NAME_ENTRY *entry = X509_NAME_get_entry(subject, 0);
    cr_assert_eq(X509_NAME_entry_count(subject), 1);
    cr_assert_eq(OBJ_obj2nid(X509_NAME_ENTRY_get_object(entry)), NID_commonName);
    cr_assert_str_eq((const char *)ASN1_STRING_get0_data(X509_NAME_ENTRY_get_data(entry)),
                     expected);
}
