/* Owns the CA's files: ca.pem and ca-key.pem, and the directories with the pairs it issues. The
 * init and issue commands and the enrolment worker call it. Next: orchestrator/ca_x509.c for what
 * is in a certificate, common/file.c for how a file gets to disk.
 *
 * A pair (ca.pem, cert.pem, key.pem) is replaced as a whole directory: the new one is built beside
 * the old one, renameat2(RENAME_EXCHANGE) swaps the two, and the old one is removed. A reader that
 * resolves DIR once, open(DIR, O_DIRECTORY) and then openat(), reads files of one pair. When it
 * meets ENOENT the pair was replaced under it, and it opens DIR again. A reader that opens
 * DIR/cert.pem and DIR/key.pem by path must check that they match, and read again if not. A crash
 * leaves at worst a directory .sandstorm-XXXXXX beside DIR, which can be removed. */
#include "orchestrator/ca-internal.h"

#include "common/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define PEM_FILE_MAX (64 * 1024)

struct ca {
    EVP_PKEY *key;
    X509 *cert;
    char trust_domain[TRUST_DOMAIN_MAX + 1];
};

static const char *const pair_files[] = { "ca.pem", "cert.pem", "key.pem" };

static char *path_join(const char *dir, const char *file, struct err *err)
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
    CLEANUP_FREE char *path = path_join(dir, file, err);
    if (!path)
        return -1;
    char *data = NULL;
    long size = BIO_get_mem_data(pem, &data);
    return file_write_atomic(path, data, (size_t)size, mode, err);
}

static int write_key(const char *dir, const char *file, EVP_PKEY *key, struct err *err)
{
    CLEANUP_BIO BIO *pem = NULL;
    if (ca_pem_from_key(key, &pem, err) < 0)
        return -1;
    return write_pem(dir, file, pem, 0600, err);
}

static int write_cert(const char *dir, const char *file, X509 *cert, struct err *err)
{
    CLEANUP_BIO BIO *pem = NULL;
    if (ca_pem_from_cert(cert, &pem, err) < 0)
        return -1;
    return write_pem(dir, file, pem, 0644, err);
}

static int sync_dir(const char *dir, struct err *err)
{
    CLEANUP_FD int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return err_errno(err, errno, "cannot bring the directory %s to disk", dir);
    return 0;
}

/* The directory `path` is in, as a new string. */
static char *path_parent(const char *path, struct err *err)
{
    CLEANUP_FREE char *copy = strdup(path);
    char *parent = copy ? strdup(dirname(copy)) : NULL;
    if (!parent)
        (void)err_nomem(err);
    return parent;
}

/* Makes the CA's directory if need be and returns it locked, so that two that create a CA in one
 * place at a time cannot mix their key and certificate. Closing the fd unlocks. */
static int lock_ca_dir(const char *dir, int *ret_fd, struct err *err)
{
    if (mkdir(dir, 0700) == 0) {
        CLEANUP_FREE char *parent = path_parent(dir, err);
        if (!parent || sync_dir(parent, err) < 0)
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
    CLEANUP_KEY EVP_PKEY *key = NULL;
    CLEANUP_X509 X509 *cert = NULL;
    if (ca_key_new(&key, err) < 0 || ca_x509_root(key, trust_domain, time(NULL), &cert, err) < 0)
        return -1;
    /* The certificate is last: it is what makes this a CA. After a crash in between, the next call
     * finds no ca.pem and replaces the key, which has signed nothing that anybody has. */
    if (write_key(dir, "ca-key.pem", key, err) < 0 || write_cert(dir, "ca.pem", cert, err) < 0)
        return err_wrap(err, "cannot save the new CA");
    return 0;
}

/* The code is ERR_NOT_FOUND for a file that is not there, whoever says so. */
static int read_ca_file(const char *dir, const char *file, const char *hint, char **ret,
                        size_t *ret_size, struct err *err)
{
    CLEANUP_FREE char *path = path_join(dir, file, err);
    if (!path)
        return -1;
    struct err inner = { 0 };
    if (file_read(path, PEM_FILE_MAX, ret, ret_size, &inner) == 0)
        return 0;
    if (inner.code == ERR_NOT_FOUND || inner.sys_errno == ENOENT)
        return err_set(err, ERR_NOT_FOUND, "there is no %s in %s; %s", file, dir, hint);
    if (err)
        *err = inner;
    return -1;
}

static int load_cert(const char *dir, X509 **ret, struct err *err)
{
    CLEANUP_FREE char *pem = NULL;
    size_t size = 0;
    if (read_ca_file(dir, "ca.pem", "make a CA with: sandstorm-orchestrator init", &pem, &size,
                     err) < 0)
        return -1;
    return ca_pem_to_cert(pem, size, ret, err) < 0 ? err_wrap(err, "%s/ca.pem", dir) : 0;
}

static int load_key(const char *dir, EVP_PKEY **ret, struct err *err)
{
    CLEANUP_FREE char *pem = NULL;
    size_t size = 0;
    if (read_ca_file(dir, "ca-key.pem", "put the key that belongs to ca.pem back", &pem, &size,
                     err) < 0)
        return -1;
    int r = ca_pem_to_key(pem, size, ret, err);
    OPENSSL_cleanse(pem, size);
    return r < 0 ? err_wrap(err, "%s/ca-key.pem", dir) : 0;
}

int ca_open(const char *dir, struct ca **ret, struct err *err)
{
    ERR_clear_error();
    CLEANUP_CA struct ca *ca = calloc(1, sizeof(*ca));
    if (!ca)
        return err_nomem(err);
    if (load_cert(dir, &ca->cert, err) < 0 || load_key(dir, &ca->key, err) < 0)
        return -1;
    if (X509_check_private_key(ca->cert, ca->key) != 1) {
        ERR_clear_error();
        return err_set(err, ERR_PRECONDITION,
                       "%s/ca-key.pem is not the key of %s/ca.pem; put back the one that is, from "
                       "the backup the certificate came from",
                       dir, dir);
    }
    if (ca_x509_check_root(ca->cert, time(NULL), err) < 0 ||
        ca_x509_trust_domain(ca->cert, ca->trust_domain, err) < 0)
        return err_wrap(err, "%s/ca.pem", dir);
    *ret = TAKE_PTR(ca);
    return 0;
}

void ca_free(struct ca *ca)
{
    if (!ca)
        return;
    EVP_PKEY_free(ca->key);
    X509_free(ca->cert);
    free(ca);
}

const char *ca_trust_domain(const struct ca *ca)
{
    return ca->trust_domain;
}

static bool is_pair_file(const char *name)
{
    for (size_t i = 0; i < ELEMENTS(pair_files); i++)
        if (strcmp(name, pair_files[i]) == 0)
            return true;
    return false;
}

/* The old directory is thrown away, so it must hold nothing but an old pair. This is what keeps
 * somebody who issues into the CA's own directory from losing ca-key.pem. */
static int pair_check_old(const char *dir, struct err *err)
{
    DIR *listing = opendir(dir);
    if (!listing)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot list %s", dir);
    int r = 0;
    const struct dirent *entry;
    while (errno = 0, r == 0 && (entry = readdir(listing))) {
        const char *name = entry->d_name;
        if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && !is_pair_file(name))
            r = err_set(err, ERR_PRECONDITION,
                        "%s holds %s; a certificate needs a directory of its own, because it is "
                        "replaced as a whole. Choose a new or an empty one",
                        dir, name);
    }
    if (errno != 0)
        r = err_errno(err, errno, "cannot list %s", dir);
    (void)closedir(listing);
    return r;
}

/* Follows symbolic links, so that the directory is swapped and not the link that leads to it. */
static char *pair_resolve(const char *dir, struct err *err)
{
    CLEANUP_FREE char *target = realpath(dir, NULL);
    if (target)
        return TAKE_PTR(target);
    if (errno != ENOENT) {
        (void)err_errno(err, errno, "cannot find %s", dir);
        return NULL;
    }
    target = strdup(dir);
    if (!target) {
        (void)err_nomem(err);
        return NULL;
    }
    for (size_t len = strlen(target); len > 1 && target[len - 1] == '/'; len--)
        target[len - 1] = '\0';
    struct stat st;
    if (lstat(target, &st) == 0) {
        (void)err_set(err, ERR_PRECONDITION,
                      "%s is a symbolic link to nowhere; remove it, or make the directory that it "
                      "names",
                      target);
        return NULL;
    }
    return TAKE_PTR(target);
}

static int pair_remove(const char *dir, struct err *err)
{
    for (size_t i = 0; i < ELEMENTS(pair_files); i++) {
        CLEANUP_FREE char *path = path_join(dir, pair_files[i], err);
        if (!path)
            return -1;
        if (unlink(path) < 0 && errno != ENOENT)
            return err_errno(err, errno, "cannot remove %s", path);
    }
    if (rmdir(dir) < 0)
        return err_errno(err, errno, "cannot remove the directory %s", dir);
    return 0;
}

/* Puts `fresh` in the place of `target`, and the old pair, if there is one, in the place of
 * `fresh`. */
static int pair_swap(const char *fresh, const char *target, bool *ret_replaced, struct err *err)
{
    bool replaced = renameat2(AT_FDCWD, fresh, AT_FDCWD, target, RENAME_EXCHANGE) == 0;
    if (!replaced && (errno != ENOENT || rename(fresh, target) < 0))
        return err_errno(err, errno,
                         "cannot put the new certificate in place at %s; it must be a plain "
                         "directory on a local file system, not a mount point",
                         target);
    *ret_replaced = replaced;
    return 0;
}

/* `fresh` is a complete pair. It is gone afterwards, in place or removed. */
static int pair_install(const char *fresh, const char *parent, const char *target, struct err *err)
{
    bool replaced = false;
    if (pair_swap(fresh, target, &replaced, err) < 0) {
        (void)pair_remove(fresh, NULL);
        return -1;
    }
    /* Before the old files go: else a crash could undo the swap and keep the removal. */
    if (sync_dir(parent, err) < 0)
        return -1;
    if (replaced && pair_remove(fresh, err) < 0)
        return err_wrap(err,
                        "the new certificate is in place, but the old one is still in %s; "
                        "remove it by hand",
                        fresh);
    return 0;
}

static int pair_write(const struct ca *ca, const char *dir, X509 *cert, EVP_PKEY *key,
                      struct err *err)
{
    CLEANUP_FREE char *target = pair_resolve(dir, err);
    if (!target || pair_check_old(target, err) < 0)
        return -1;
    CLEANUP_FREE char *parent = path_parent(target, err);
    CLEANUP_FREE char *fresh = parent ? path_join(parent, ".sandstorm-XXXXXX", err) : NULL;
    if (!fresh)
        return -1;
    /* Born with mode 0700, mkdtemp(3), so that nobody else can look in even while it is filled. */
    if (!mkdtemp(fresh))
        return err_errno(err, errno, "cannot make a directory in %s", parent);
    if (write_cert(fresh, "ca.pem", ca->cert, err) < 0 ||
        write_cert(fresh, "cert.pem", cert, err) < 0 || write_key(fresh, "key.pem", key, err) < 0) {
        (void)pair_remove(fresh, NULL);
        return -1;
    }
    return pair_install(fresh, parent, target, err);
}

static int issue(struct ca *ca, const char *dir, const struct ca_leaf *leaf, struct err *err)
{
    ERR_clear_error();
    if (leaf->lifetime_s == 0 || leaf->lifetime_s > CA_LIFETIME_S)
        return err_set(err, ERR_INVALID, "the lifetime must be 1 to %llu seconds", CA_LIFETIME_S);
    CLEANUP_KEY EVP_PKEY *key = NULL;
    CLEANUP_X509 X509 *cert = NULL;
    time_t now = time(NULL);
    if (ca_x509_check_root(ca->cert, now, err) < 0 || ca_key_new(&key, err) < 0 ||
        ca_x509_leaf(leaf, key, ca->cert, ca->key, now, &cert, err) < 0)
        return -1;
    return pair_write(ca, dir, cert, key, err);
}

int ca_issue_server(struct ca *ca, const char *dir, const char *const *names, unsigned count,
                    uint64_t lifetime_s, struct err *err)
{
    if (count == 0 || count > CA_DNS_NAMES_MAX)
        return err_set(err, ERR_INVALID,
                       "a server certificate needs 1 to %d DNS names or IP addresses",
                       CA_DNS_NAMES_MAX);
    struct ca_leaf leaf = { .common_name = "Sandstorm orchestrator",
                            .usage = "serverAuth",
                            .names = names,
                            .name_count = count,
                            .lifetime_s = lifetime_s };
    return issue(ca, dir, &leaf, err);
}

int ca_issue_peer(struct ca *ca, const char *dir, enum identity_kind kind, const char *name,
                  uint64_t lifetime_s, struct err *err)
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
    struct ca_leaf leaf = { .common_name =
                                kind == IDENTITY_AGENT ? "Sandstorm agent" : "Sandstorm client",
                            .usage = "clientAuth",
                            .uri = uri,
                            .lifetime_s = lifetime_s };
    return issue(ca, dir, &leaf, err);
}
