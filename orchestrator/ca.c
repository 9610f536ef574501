/* Owns the CA's files, ca.pem, ca-key.pem and, during a rotation, old.pem, and the verbs that
 * issue certificates. The init and issue commands and the enrolment worker call it. Next:
 * orchestrator/ca_x509.c for what is in a certificate, common/identity_dir.c for how what is issued
 * gets to disk, orchestrator/ca_rotate.c for how one CA follows another. */
#include "orchestrator/ca-internal.h"

#include "common/file.h"
#include "common/identity_dir.h"
#include "common/swap_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define SERVER_COMMON_NAME "Sandstorm orchestrator"
#define INIT_HINT          "make one with: sandstorm-orchestrator init"

char *ca_path_join(const char *dir, const char *file, struct err *err)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", dir, file) < 0) {
        (void)err_nomem(err);
        return NULL;
    }
    return path;
}

static int write_pem(const char *dir, const char *file, BIO *pem, mode_t mode, struct err *err)
{
    CLEANUP_FREE char *path = ca_path_join(dir, file, err);
    if (!path)
        return -1;
    char *data = NULL;
    long size = BIO_get_mem_data(pem, &data);
    return file_write_atomic(path, data, (size_t)size, mode, err);
}

int ca_write_cert(const char *dir, const char *file, X509 *cert, struct err *err)
{
    CLEANUP_BIO BIO *pem = NULL;
    if (cert_pem_from_cert(cert, &pem, err) < 0)
        return -1;
    return write_pem(dir, file, pem, 0644, err);
}

int ca_write_root(const char *dir, EVP_PKEY *key, X509 *cert, struct err *err)
{
    CLEANUP_BIO BIO *pem = NULL;
    if (cert_pem_from_key(key, &pem, err) < 0 || write_pem(dir, "ca-key.pem", pem, 0600, err) < 0 ||
        ca_write_cert(dir, "ca.pem", cert, err) < 0)
        return err_wrap(err, "cannot save the new CA");
    return 0;
}

/* Makes the CA's directory if need be and returns it locked, so that two that create a CA in one
 * place at a time cannot mix their key and certificate. Closing the fd unlocks. */
static int lock_ca_dir(const char *dir, int *ret_fd, struct err *err)
{
    if (mkdir(dir, 0700) == 0) {
        CLEANUP_FREE char *target = NULL, *parent = NULL;
        if (swap_dir_resolve(dir, &target, &parent, err) < 0 || swap_dir_sync(parent, err) < 0)
            return -1;
    } else if (errno != EEXIST) {
        return err_errno(err, errno, "cannot make the directory %s; make its parent first", dir);
    }
    CLEANUP_FD int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot open the directory %s", dir);
    if (flock(fd, LOCK_EX) < 0)
        return err_errno(err, errno, "cannot lock the directory %s", dir);
    /* cppcheck-suppress unreadVariable ; it does not know the cleanup attribute. */
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int ca_create(const char *dir, const char *trust_domain, struct err *err)
{
    ERR_clear_error();
    CLEANUP_FD int lock = -1;
    if (trust_domain_check(trust_domain, err) < 0 || lock_ca_dir(dir, &lock, err) < 0)
        return -1;
    struct stat st;
    if (fstatat(lock, "ca.pem", &st, AT_SYMLINK_NOFOLLOW) == 0)
        return err_set(err, ERR_EXISTS,
                       "there is a CA in %s already; use it, or, if nobody needs its certificates "
                       "any more, move ca.pem and ca-key.pem away and try again",
                       dir);
    if (errno != ENOENT)
        return err_errno(err, errno, "cannot look for ca.pem in %s", dir);
    /* The new CA would take it for its own and trust what it signed. */
    if (fstatat(lock, "old.pem", &st, AT_SYMLINK_NOFOLLOW) == 0)
        return err_set(err, ERR_EXISTS,
                       "there is an old.pem of another CA in %s; move it away and try again", dir);
    CLEANUP_KEY EVP_PKEY *key = NULL;
    CLEANUP_X509 X509 *cert = NULL;
    if (cert_key_new(&key, err) < 0 || ca_x509_root(key, trust_domain, time(NULL), &cert, err) < 0)
        return -1;
    /* The certificate is last: it is what makes this a CA. After a crash in between, the next call
     * finds no ca.pem and replaces the key, which has signed nothing that anybody has. */
    return ca_write_root(dir, key, cert, err);
}

static int read_ca_file(int dir, const char *file, const char *hint, char **ret, size_t *ret_size,
                        struct err *err)
{
    struct err inner = { 0 };
    if (file_read_at(dir, file, CA_PEM_FILE_MAX, ret, ret_size, &inner) == 0)
        return 0;
    if (inner.code == ERR_NOT_FOUND)
        return err_set(err, ERR_NOT_FOUND, "there is no %s; %s", file, hint);
    if (err)
        *err = inner;
    return -1;
}

static int load_cert(int dir, X509 **ret, struct err *err)
{
    CLEANUP_FREE char *pem = NULL;
    size_t size = 0;
    if (read_ca_file(dir, "ca.pem", INIT_HINT, &pem, &size, err) < 0)
        return -1;
    return cert_pem_to_cert(pem, size, ret, err) < 0 ? err_wrap(err, "ca.pem") : 0;
}

static int load_key(int dir, EVP_PKEY **ret, struct err *err)
{
    CLEANUP_FREE char *pem = NULL;
    size_t size = 0;
    if (read_ca_file(dir, "ca-key.pem", "put the key that belongs to ca.pem back", &pem, &size,
                     err) < 0)
        return -1;
    int r = cert_pem_to_key(pem, size, ret, err);
    OPENSSL_cleanse(pem, size);
    return r < 0 ? err_wrap(err, "ca-key.pem") : 0;
}

/* The old CA may have expired meanwhile: then it vouches for nobody, which TLS sees to. */
static int load_old(int dir, struct ca *ca, struct err *err)
{
    CLEANUP_FREE char *pem = NULL;
    size_t size = 0;
    struct err inner = { 0 };
    if (read_ca_file(dir, "old.pem", "", &pem, &size, &inner) < 0) {
        if (inner.code == ERR_NOT_FOUND)
            return 0; /* no rotation */
        if (err)
            *err = inner;
        return -1;
    }
    if (cert_pem_to_cert(pem, size, &ca->old, err) < 0)
        return err_wrap(err, "old.pem");
    char domain[TRUST_DOMAIN_MAX + 1];
    bool is_ca = X509_check_ca(ca->old) == 1;
    ERR_clear_error();
    if (!is_ca || ca_x509_trust_domain(ca->old, domain, NULL) < 0 ||
        strcmp(domain, ca->trust_domain) != 0)
        return err_set(err, ERR_INVALID,
                       "old.pem is not the certificate of an earlier CA of trust domain %s; move "
                       "it away, or put the right one back",
                       ca->trust_domain);
    return 0;
}

static int make_bundle(struct ca *ca, struct err *err)
{
    CLEANUP_BIO BIO *pem = NULL, *old = NULL;
    CLEANUP_FREE char *first = NULL, *second = NULL;
    if (cert_pem_from_cert(ca->cert, &pem, err) < 0 || cert_bio_text(pem, &first, err) < 0)
        return -1;
    if (!ca->old) {
        ca->bundle = TAKE_PTR(first);
        return 0;
    }
    if (cert_pem_from_cert(ca->old, &old, err) < 0 || cert_bio_text(old, &second, err) < 0)
        return -1;
    if (asprintf(&ca->bundle, "%s%s", first, second) < 0) {
        ca->bundle = NULL;
        return err_nomem(err);
    }
    return 0;
}

/* During a rotation the server's certificate, beside the CA's directory, stays with the old CA for
 * as long as it can. Its signature says whether it still does. */
static bool server_is_of_new(const struct ca *ca, const char *dir)
{
    CLEANUP_FREE char *copy = strdup(dir);
    CLEANUP_FREE char *path = copy ? ca_path_join(dirname(copy), "server/cert.pem", NULL) : NULL;
    CLEANUP_FREE char *pem = NULL;
    CLEANUP_X509 X509 *cert = NULL;
    size_t size = 0;
    return path && file_read(path, CA_PEM_FILE_MAX, &pem, &size, NULL) == 0 &&
           cert_pem_to_cert(pem, size, &cert, NULL) == 0 && ca_x509_signed_by(cert, ca->cert);
}

static int make_fingerprint(struct ca *ca, const char *dir, struct err *err)
{
    const X509 *pinned = ca->old && !server_is_of_new(ca, dir) ? ca->old : ca->cert;
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    if (X509_digest(pinned, EVP_sha256(), digest, &size) != 1)
        return cert_openssl_err(err, ERR_INTERNAL, "cannot hash the CA certificate");
    const size_t prefix = strlen(CA_FINGERPRINT_PREFIX);
    memcpy(ca->fingerprint, CA_FINGERPRINT_PREFIX, prefix);
    for (unsigned i = 0; i < size; i++)
        (void)snprintf(ca->fingerprint + prefix + 2 * (size_t)i, 3, "%02x", digest[i]);
    return 0;
}

/* Through one open directory, so that a rotation that swaps it cannot mix two CAs. */
static int load(struct ca *ca, int dir, struct err *err)
{
    if (load_cert(dir, &ca->cert, err) < 0 || load_key(dir, &ca->key, err) < 0)
        return -1;
    if (X509_check_private_key(ca->cert, ca->key) != 1) {
        ERR_clear_error();
        return err_set(err, ERR_PRECONDITION,
                       "ca-key.pem is not the key of ca.pem; put back the one that is, from the "
                       "backup the certificate came from");
    }
    if (ca_x509_check_root(ca->cert, time(NULL), err) < 0 ||
        ca_x509_trust_domain(ca->cert, ca->trust_domain, err) < 0)
        return err_wrap(err, "ca.pem");
    return load_old(dir, ca, err);
}

int ca_open(const char *dir, struct ca **ret, struct err *err)
{
    ERR_clear_error();
    CLEANUP_CA struct ca *ca = calloc(1, sizeof(*ca));
    if (!ca)
        return err_nomem(err);
    CLEANUP_FD int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return err_set(err, ERR_NOT_FOUND, "there is no CA in %s; " INIT_HINT, dir);
    if (fd < 0)
        return err_errno(err, errno, "cannot open the directory %s", dir);
    if (load(ca, fd, err) < 0)
        return err_wrap(err, "the CA in %s", dir);
    if (make_bundle(ca, err) < 0 || make_fingerprint(ca, dir, err) < 0)
        return -1;
    *ret = TAKE_PTR(ca);
    return 0;
}

void ca_free(struct ca *ca)
{
    if (!ca)
        return;
    EVP_PKEY_free(ca->key);
    X509_free(ca->cert);
    X509_free(ca->old);
    free(ca->bundle);
    free(ca);
}

const char *ca_trust_domain(const struct ca *ca)
{
    return ca->trust_domain;
}

const char *ca_bundle(const struct ca *ca)
{
    return ca->bundle;
}

const char *ca_fingerprint(const struct ca *ca)
{
    return ca->fingerprint;
}

static int make_leaf(struct ca *ca, const struct ca_leaf *leaf, EVP_PKEY *subject_key, time_t now,
                     X509 **ret, struct err *err)
{
    if (leaf->lifetime_s == 0 || leaf->lifetime_s > CA_LIFETIME_S)
        return err_set(err, ERR_INVALID, "the lifetime must be 1 to %llu seconds", CA_LIFETIME_S);
    if (ca_x509_check_root(ca->cert, now, err) < 0)
        return -1;
    return ca_x509_leaf(leaf, subject_key, ca->cert, ca->key, now, ret, err);
}

static int write_identity(const struct ca *ca, const char *dir, X509 *cert, EVP_PKEY *key,
                          struct err *err)
{
    CLEANUP_BIO BIO *cert_bio = NULL, *key_bio = NULL;
    CLEANUP_FREE char *cert_text = NULL;
    char *key_text = NULL;
    if (cert_pem_from_cert(cert, &cert_bio, err) < 0 ||
        cert_bio_text(cert_bio, &cert_text, err) < 0 || cert_pem_from_key(key, &key_bio, err) < 0 ||
        cert_bio_text(key_bio, &key_text, err) < 0)
        return -1;
    const struct identity_files files = { .ca = ca->bundle, .cert = cert_text, .key = key_text };
    int r = identity_dir_write(dir, &files, err);
    OPENSSL_cleanse(key_text, strlen(key_text));
    free(key_text);
    return r;
}

static int issue_server(struct ca *ca, const char *dir, const struct ca_leaf *leaf, struct err *err)
{
    ERR_clear_error();
    CLEANUP_KEY EVP_PKEY *key = NULL;
    CLEANUP_X509 X509 *cert = NULL;
    if (cert_key_new(&key, err) < 0 || make_leaf(ca, leaf, key, time(NULL), &cert, err) < 0)
        return -1;
    return write_identity(ca, dir, cert, key, err);
}

int ca_issue_server(struct ca *ca, const char *dir, const char *const *names, unsigned count,
                    uint64_t lifetime_s, struct err *err)
{
    if (count == 0 || count > CA_DNS_NAMES_MAX)
        return err_set(err, ERR_INVALID,
                       "a server certificate needs 1 to %d DNS names or IP addresses",
                       CA_DNS_NAMES_MAX);
    const struct ca_leaf leaf = { .common_name = SERVER_COMMON_NAME,
                                  .usage = "serverAuth",
                                  .names = names,
                                  .name_count = count,
                                  .lifetime_s = lifetime_s };
    return issue_server(ca, dir, &leaf, err);
}

int ca_reissue_server(struct ca *ca, const char *dir, const X509 *until_now, struct err *err)
{
    const struct ca_leaf leaf = { .common_name = SERVER_COMMON_NAME,
                                  .usage = "serverAuth",
                                  .names_from = until_now,
                                  .lifetime_s = SERVER_LIFETIME_S };
    return issue_server(ca, dir, &leaf, err);
}

int ca_make_peer(struct ca *ca, EVP_PKEY *subject_key, enum identity_kind kind, const char *name,
                 uint64_t lifetime_s, X509 **ret, struct err *err)
{
    struct identity identity = { .kind = kind };
    (void)snprintf(identity.trust_domain, sizeof(identity.trust_domain), "%s", ca->trust_domain);
    if (strlen(name) >= sizeof(identity.name))
        return err_set(err, ERR_INVALID, "the name is longer than %zu characters",
                       sizeof(identity.name) - 1);
    (void)snprintf(identity.name, sizeof(identity.name), "%s", name);
    char uri[SPIFFE_URI_MAX];
    if (identity_format(&identity, uri, err) < 0)
        return -1;
    /* The name is in the URI only. In the common name some TLS library might take it for a host
     * name, since a client may be called orchestrator.example.com. */
    const struct ca_leaf leaf = { .common_name = kind == IDENTITY_AGENT ? "Sandstorm agent"
                                                                        : "Sandstorm client",
                                  .usage = "clientAuth",
                                  .uri = uri,
                                  .lifetime_s = lifetime_s };
    return make_leaf(ca, &leaf, subject_key, time(NULL), ret, err);
}

int ca_issue_peer(struct ca *ca, const char *dir, enum identity_kind kind, const char *name,
                  uint64_t lifetime_s, struct err *err)
{
    ERR_clear_error();
    CLEANUP_KEY EVP_PKEY *key = NULL;
    CLEANUP_X509 X509 *cert = NULL;
    if (cert_key_new(&key, err) < 0 ||
        ca_make_peer(ca, key, kind, name, lifetime_s, &cert, err) < 0)
        return -1;
    return write_identity(ca, dir, cert, key, err);
}
