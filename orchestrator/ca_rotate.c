/* Owns what happens to a whole state directory when its CA changes: ca/ itself, and server/ and
 * clients/NAME/, which must follow it. The ca commands and the start of the orchestrator call it.
 * Next: orchestrator/ca.c for certificates, common/identity_dir.c and common/swap_dir.c for the
 * disk.
 *
 * What makes a kill at any point harmless: each step is one atomic change of one directory, the
 * state between two of them is one that everybody can work with, and ca_refresh_server() derives
 * everything else from ca/ alone. Beginning builds the new CA in ca.next/ (ca.pem, ca-key.pem and
 * the certificate until now as old.pem) and swaps it with ca/: before that nothing has happened,
 * after it the rotation has begun, and in both cases ca.next/ is what may go. Finishing first moves
 * the server and the clients to the new CA while both are trusted, and then removes old.pem: before
 * that it can be repeated, after it only bundles are left to be shortened. */
#include "orchestrator/ca-internal.h"

#include "common/file.h"
#include "common/identity_dir.h"
#include "common/rpc_creds.h"
#include "common/swap_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define NEXT_SUFFIX ".next"

/* How much of the server certificate's life may be over, in thirds. Less when a rotation begins:
 * afterwards only the new CA can sign, which peers that have not renewed do not know. */
#define THIRDS_LATE  2
#define THIRDS_EARLY 1

static const char *const ca_names[] = { "ca.pem", "ca-key.pem", "old.pem", NULL };

/* One at a time on a state directory. Closing the fd unlocks. */
static int lock_state(const char *state_dir, int *ret_fd, struct err *err)
{
    CLEANUP_FD int fd = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        return err_errno(err, errno, "cannot lock the state directory %s", state_dir);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int open_ca(const char *state_dir, struct ca **ret, struct err *err)
{
    CLEANUP_FREE char *dir = ca_path_join(state_dir, "ca", err);
    return dir ? ca_open(dir, ret, err) : -1;
}

/* Some of our certificates are of a CA that is gone; those of other people's are not our business.
 */
static bool is_named_as_ours(const struct ca *ca, const X509 *cert)
{
    return X509_NAME_cmp(X509_get_issuer_name(cert), X509_get_subject_name(ca->cert)) == 0;
}

static bool is_of_bundle(const struct ca *ca, X509 *cert)
{
    return ca_x509_signed_by(cert, ca->cert) || ca_x509_signed_by(cert, ca->old);
}

static int is_due(const X509 *cert, int thirds, bool *ret, struct err *err)
{
    int64_t start, end;
    if (ca_x509_time(X509_get0_notBefore(cert), &start, err) < 0 ||
        ca_x509_time(X509_get0_notAfter(cert), &end, err) < 0)
        return -1;
    *ret = ((int64_t)time(NULL) - start) * 3 > (end - start) * thirds;
    return 0;
}

static int load_identity(const char *dir, struct rpc_creds *ret, X509 **ret_cert, struct err *err)
{
    if (rpc_creds_load(dir, ret, err) < 0)
        return -1;
    if (cert_pem_to_cert(ret->cert, strlen(ret->cert), ret_cert, err) < 0)
        return err_wrap(err, "%s/cert.pem", dir);
    return 0;
}

static int refresh_server(struct ca *ca, const char *state_dir, int thirds, struct err *err)
{
    CLEANUP_FREE char *dir = ca_path_join(state_dir, "server", err);
    CLEANUP(rpc_creds_clear) struct rpc_creds creds = { 0 };
    CLEANUP_X509 X509 *cert = NULL;
    bool due = false;
    if (!dir || identity_dir_tidy(dir, err) < 0 || load_identity(dir, &creds, &cert, err) < 0 ||
        is_due(cert, thirds, &due, err) < 0)
        return -1;
    if (is_named_as_ours(ca, cert) && (due || !is_of_bundle(ca, cert)))
        return ca_reissue_server(ca, dir, cert, err);
    if (strcmp(creds.ca, ca->bundle) == 0)
        return 0;
    const struct identity_files files = { .ca = ca->bundle, .cert = creds.cert, .key = creds.key };
    return identity_dir_write(dir, &files, err);
}

/* The same name, key and end, from the CA that signs now. */
static int reissue_client(struct ca *ca, const char *dir, X509 *cert, struct err *err)
{
    struct identity identity;
    int64_t end, now = (int64_t)time(NULL);
    CLEANUP_X509 X509 *fresh = NULL;
    if (cert_check_peer(cert, &identity, err) < 0 ||
        ca_x509_time(X509_get0_notAfter(cert), &end, err) < 0)
        return -1;
    if (end <= now)
        return 0;
    if (ca_make_peer(ca, X509_get0_pubkey(cert), identity.kind, identity.name,
                     (uint64_t)(end - now), &fresh, err) < 0)
        return -1;
    return ca_write_cert(dir, "cert.pem", fresh, err);
}

/* File by file: the key stays, so whatever mixture a reader sees fits together, and whatever else
 * the operator keeps in there stays too. */
static int refresh_client(struct ca *ca, const char *dir, bool reissue, struct err *err)
{
    CLEANUP(rpc_creds_clear) struct rpc_creds creds = { 0 };
    CLEANUP_X509 X509 *cert = NULL;
    /* What is not a complete identity of ours, the operator has taken away or put there. */
    if (load_identity(dir, &creds, &cert, NULL) < 0 || !is_of_bundle(ca, cert))
        return 0;
    if (reissue && ca_x509_signed_by(cert, ca->old) && reissue_client(ca, dir, cert, err) < 0)
        return err_wrap(err, "cannot renew the certificate in %s", dir);
    if (strcmp(creds.ca, ca->bundle) == 0)
        return 0;
    CLEANUP_FREE char *path = ca_path_join(dir, "ca.pem", err);
    return path ? file_write_atomic(path, ca->bundle, strlen(ca->bundle), 0644, err) : -1;
}

static int refresh_listed(struct ca *ca, const char *dir, DIR *listing, bool reissue,
                          struct err *err)
{
    const struct dirent *entry;
    while (errno = 0, (entry = readdir(listing))) {
        struct stat st;
        if (entry->d_name[0] == '.' ||
            fstatat(dirfd(listing), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISDIR(st.st_mode))
            continue;
        CLEANUP_FREE char *path = ca_path_join(dir, entry->d_name, err);
        if (!path || refresh_client(ca, path, reissue, err) < 0)
            return -1;
    }
    return errno == 0 ? 0 : err_errno(err, errno, "cannot list %s", dir);
}

static int refresh_clients(struct ca *ca, const char *state_dir, bool reissue, struct err *err)
{
    CLEANUP_FREE char *dir = ca_path_join(state_dir, "clients", err);
    CLEANUP_FREE char *any = dir ? ca_path_join(dir, "any", err) : NULL;
    if (!any || identity_dir_tidy(any, err) < 0)
        return -1;
    DIR *listing = opendir(dir);
    if (!listing)
        return errno == ENOENT ? 0 : err_errno(err, errno, "cannot list %s", dir);
    int r = refresh_listed(ca, dir, listing, reissue, err);
    (void)closedir(listing);
    return r;
}

/* Where ca/ really is, what it is in, and where the next one is built. */
struct places {
    char *target, *parent, *next;
};

static void places_clear(struct places *places)
{
    free(places->target);
    free(places->parent);
    free(places->next);
}
#define CLEANUP_PLACES CLEANUP(places_clear)

static int find_places(const char *state_dir, struct places *places, struct err *err)
{
    CLEANUP_FREE char *dir = ca_path_join(state_dir, "ca", err);
    if (!dir || swap_dir_resolve(dir, &places->target, &places->parent, err) < 0)
        return -1;
    if (asprintf(&places->next, "%s" NEXT_SUFFIX, places->target) < 0) {
        places->next = NULL;
        return err_nomem(err);
    }
    return 0;
}

/* With the lock held. *ret is NULL where there is no CA. */
static int refresh(const char *state_dir, struct ca **ret, struct err *err)
{
    CLEANUP_PLACES struct places places = { 0 };
    CLEANUP_CA struct ca *ca = NULL;
    if (find_places(state_dir, &places, err) < 0)
        return -1;
    CLEANUP_FREE char *cert = ca_path_join(places.target, "ca.pem", err);
    if (!cert)
        return -1;
    if (access(cert, F_OK) < 0 && errno == ENOENT) {
        *ret = NULL;
        return 0;
    }
    /* Of a rotation that was killed: a CA that never came into force, or the key of one that is no
     * longer to sign. */
    if (swap_dir_remove(places.next, ca_names, err) < 0 || open_ca(state_dir, &ca, err) < 0)
        return -1;
    if (refresh_server(ca, state_dir, THIRDS_LATE, err) < 0 ||
        refresh_clients(ca, state_dir, false, err) < 0)
        return err_wrap(err, "cannot bring %s in line with its CA", state_dir);
    *ret = TAKE_PTR(ca);
    return 0;
}

int ca_refresh_server(const char *state_dir, struct err *err)
{
    ERR_clear_error();
    CLEANUP_FD int lock = -1;
    CLEANUP_CA struct ca *ca = NULL;
    if (lock_state(state_dir, &lock, err) < 0)
        return -1;
    return refresh(state_dir, &ca, err);
}

static int fill_next(const struct ca *ca, const char *next, struct err *err)
{
    CLEANUP_KEY EVP_PKEY *key = NULL;
    CLEANUP_X509 X509 *cert = NULL;
    if (cert_key_new(&key, err) < 0 ||
        ca_x509_root(key, ca->trust_domain, time(NULL), &cert, err) < 0 ||
        ca_write_root(next, key, cert, err) < 0)
        return -1;
    return ca_write_cert(next, "old.pem", ca->cert, err);
}

static int switch_ca(const struct ca *ca, const char *state_dir, struct err *err)
{
    CLEANUP_PLACES struct places places = { 0 };
    if (find_places(state_dir, &places, err) < 0 ||
        swap_dir_check(places.target, ca_names, err) < 0)
        return -1;
    if (mkdir(places.next, 0700) < 0)
        return err_errno(err, errno, "cannot make the directory %s", places.next);
    if (fill_next(ca, places.next, err) < 0) {
        swap_dir_discard(places.next, ca_names);
        return -1;
    }
    return swap_dir_install(places.next, places.parent, places.target, ca_names, err);
}

/* Locked and mended; the CA must be there. */
static int start(const char *state_dir, int *ret_lock, struct ca **ret, struct err *err)
{
    ERR_clear_error();
    if (lock_state(state_dir, ret_lock, err) < 0 || refresh(state_dir, ret, err) < 0)
        return -1;
    /* The error says what to do. */
    return *ret ? 0 : open_ca(state_dir, ret, err);
}

int ca_rotate_begin(const char *state_dir, struct err *err)
{
    CLEANUP_FD int lock = -1;
    CLEANUP_CA struct ca *ca = NULL, *after = NULL;
    if (start(state_dir, &lock, &ca, err) < 0)
        return -1;
    if (ca->old)
        return err_set(err, ERR_PRECONDITION,
                       "a rotation of the CA has begun already; finish it first");
    if (refresh_server(ca, state_dir, THIRDS_EARLY, err) < 0 || switch_ca(ca, state_dir, err) < 0)
        return err_wrap(err, "cannot begin the rotation");
    return refresh(state_dir, &after, err);
}

static int check_overlap(const struct ca *ca, uint64_t min_overlap_s, struct err *err)
{
    int64_t begun;
    if (ca_x509_time(X509_get0_notBefore(ca->cert), &begun, err) < 0)
        return -1;
    time_t until = begun + (time_t)IDENTITY_BACKDATE_S + (time_t)MIN(min_overlap_s, CA_LIFETIME_S);
    if (time(NULL) >= until)
        return 0;
    struct tm tm;
    char text[CA_TIME_TEXT_SIZE] = "then";
    if (gmtime_r(&until, &tm))
        (void)strftime(text, sizeof(text), "%F %T UTC", &tm);
    return err_set(err, ERR_PRECONDITION,
                   "the rotation can be finished from %s on; whoever has not renewed until then "
                   "would be locked out",
                   text);
}

/* Still trusting both, so that a kill after this leaves everybody able to connect. */
static int move_server(struct ca *ca, const char *state_dir, struct err *err)
{
    CLEANUP_FREE char *dir = ca_path_join(state_dir, "server", err);
    CLEANUP(rpc_creds_clear) struct rpc_creds creds = { 0 };
    CLEANUP_X509 X509 *cert = NULL;
    if (!dir || load_identity(dir, &creds, &cert, err) < 0)
        return -1;
    return ca_x509_signed_by(cert, ca->old) ? ca_reissue_server(ca, dir, cert, err) : 0;
}

static int drop_old(const char *state_dir, struct err *err)
{
    CLEANUP_FREE char *dir = ca_path_join(state_dir, "ca", err);
    CLEANUP_FREE char *path = dir ? ca_path_join(dir, "old.pem", err) : NULL;
    if (!path)
        return -1;
    if (unlink(path) < 0)
        return err_errno(err, errno, "cannot remove %s", path);
    return swap_dir_sync(dir, err);
}

int ca_rotate_finish(const char *state_dir, uint64_t min_overlap_s, struct err *err)
{
    CLEANUP_FD int lock = -1;
    CLEANUP_CA struct ca *ca = NULL, *after = NULL;
    if (start(state_dir, &lock, &ca, err) < 0)
        return -1;
    if (!ca->old)
        return err_set(err, ERR_PRECONDITION,
                       "there is no rotation of the CA to finish; begin one first");
    if (check_overlap(ca, min_overlap_s, err) < 0)
        return -1;
    if (move_server(ca, state_dir, err) < 0 || refresh_clients(ca, state_dir, true, err) < 0 ||
        drop_old(state_dir, err) < 0)
        return err_wrap(err, "cannot finish the rotation");
    return refresh(state_dir, &after, err);
}
