/* Identities that no program of ours would hand out, and a look into the orchestrator's database:
 * for the tests of who may do what. Criterion; one thread. */
#pragma once

#include "common/file.h"
#include "common/secret.h"
#include "orchestrator/ca.h"
#include "tests/harness/fixture.h"

#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

/* The client as the admin, to an end without complaint. */
static inline void must_cli(const char *const *arguments)
{
    CLEANUP_RESULT struct proc_result run = fixture_cli(arguments, NULL, 0);
    cr_assert_eq(run.status, 0, "%s", run.err);
}
#define MUST_CLI(...) must_cli((const char *[]){ __VA_ARGS__, NULL })

/* Of a token, before the agent removes the file that it was in: DIR/FROM to DIR/TO. */
static inline void copy_token(const char *from, const char *to)
{
    CLEANUP_FREE char *text = NULL;
    size_t size;
    MUST(file_read(fixture_path(from), SECRET_TEXT_MAX + 1, &text, &size, err));
    MUST(file_write_atomic(fixture_path(to), text, size, 0600, err));
}

/* `sandstorm-agent enroll` with the token in DIR/TOKEN: an identity in DIR/OUT, and a sandbox that
 * is offline. */
static inline struct proc_result enroll(const char *token, const char *out)
{
    char texts[5][CLUSTER_PATH_MAX + 128];
    const struct cluster *cluster = fixture();
    (void)snprintf(texts[0], sizeof(texts[0]), "SANDSTORM_TOKEN_FILE=%s", fixture_path(token));
    (void)snprintf(texts[1], sizeof(texts[1]), "SANDSTORM_IDENTITY=%s", fixture_path(out));
    (void)snprintf(texts[2], sizeof(texts[2]), "SANDSTORM_CA_FINGERPRINT=%s", cluster->fingerprint);
    (void)snprintf(texts[3], sizeof(texts[3]), "SANDSTORM_ENROLL_ENDPOINT=127.0.0.1:%d",
                   cluster->http_port);
    (void)snprintf(texts[4], sizeof(texts[4]), "SANDSTORM_ORCHESTRATOR_ENDPOINT=127.0.0.1:%d",
                   cluster->port);
    const struct proc_spec spec = {
        .argv = (const char *[]){ cluster_program("sandstorm-agent"), "enroll", NULL },
        .env = (const char *[]){ texts[0], texts[1], texts[2], texts[3], texts[4], NULL },
    };
    struct proc_result result = { 0 };
    MUST(proc_run(&spec, NULL, 0, PROC_DEADLINE_US, &result, err));
    return result;
}

/* With a token of its own that gives this label, or none for NULL. Its identity is in DIR/NAME. */
static inline void enroll_labelled(const char *name, const char *label)
{
    char token[64];
    (void)snprintf(token, sizeof(token), "%s.join", name);
    (void)unlink(fixture_path(token));
    MUST(cluster_token(fixture(), token,
                       (const char *[]){ "--sandbox", name, label ? "--label" : NULL, label, NULL },
                       err));
    CLEANUP_RESULT struct proc_result result = enroll(token, name);
    cr_assert_eq(result.status, 0, "%s", result.err);
}

/* A certificate of our CA for somebody of whom the orchestrator has never heard. */
static inline void issue(enum identity_kind kind, const char *name)
{
    char dir[CLUSTER_PATH_MAX + 16];
    CLEANUP_CA struct ca *ca = NULL;
    (void)snprintf(dir, sizeof(dir), "%s/ca", fixture()->state_dir);
    MUST(ca_open(dir, &ca, err));
    MUST(ca_issue_peer(ca, fixture_path(name), kind, name, LEAF_LIFETIME_S, err));
}

/* The certificate in that directory as it will be three hours after its end. */
static inline void expire(const char *dir)
{
    char path[CLUSTER_PATH_MAX + 96];
    (void)snprintf(path, sizeof(path), "%s/ca/ca-key.pem", fixture()->state_dir);
    FILE *file = fopen(path, "re");
    cr_assert_not_null(file);
    EVP_PKEY *key = PEM_read_PrivateKey(file, NULL, NULL, NULL);
    (void)fclose(file);
    (void)snprintf(path, sizeof(path), "%s/cert.pem", dir);
    file = fopen(path, "r+e");
    cr_assert_not_null(file);
    X509 *cert = PEM_read_X509(file, NULL, NULL, NULL);
    cr_assert_not_null(cert);
    (void)X509_gmtime_adj(X509_getm_notBefore(cert), -90000);
    (void)X509_gmtime_adj(X509_getm_notAfter(cert), -3600 * 3);
    cr_assert_gt(X509_sign(cert, key, EVP_sha256()), 0);
    rewind(file);
    cr_assert_eq(PEM_write_X509(file, cert), 1);
    cr_assert_eq(ftruncate(fileno(file), ftell(file)), 0);
    (void)fclose(file);
    X509_free(cert);
    EVP_PKEY_free(key);
}

/* The store. */

#define STORE_BUSY_MS 5000

static inline sqlite3 *store_open_file(int flags)
{
    char path[CLUSTER_PATH_MAX + 32];
    sqlite3 *db = NULL;
    (void)snprintf(path, sizeof(path), "%s/orchestrator.db", fixture()->state_dir);
    cr_assert_eq(sqlite3_open_v2(path, &db, flags, NULL), SQLITE_OK, "%s", path);
    (void)sqlite3_busy_timeout(db, STORE_BUSY_MS);
    return db;
}

/* The number that a query gives, with these texts for its parameters. May be asked while the
 * orchestrator runs. */
#define STORE_NUMBER(...) store_number((const char *[]){ __VA_ARGS__, NULL })
static inline int64_t store_number(const char *const *query)
{
    sqlite3 *db = store_open_file(SQLITE_OPEN_READONLY);
    sqlite3_stmt *statement = NULL;
    cr_assert_eq(sqlite3_prepare_v2(db, query[0], -1, &statement, NULL), SQLITE_OK, "%s: %s",
                 query[0], sqlite3_errmsg(db));
    for (int i = 1; query[i]; i++)
        cr_assert_eq(sqlite3_bind_text(statement, i, query[i], -1, SQLITE_STATIC), SQLITE_OK);
    cr_assert_eq(sqlite3_step(statement), SQLITE_ROW, "%s: %s", query[0], sqlite3_errmsg(db));
    int64_t number = sqlite3_column_int64(statement, 0);
    (void)sqlite3_finalize(statement);
    cr_assert_eq(sqlite3_close(db), SQLITE_OK);
    return number;
}

/* Rows of the audit with this actor and this action. */
#define AUDIT_DENIED  "SELECT count(*) FROM audit WHERE actor = ?1 AND action = ?2 AND allowed = 0"
#define AUDIT_ALLOWED "SELECT count(*) FROM audit WHERE actor = ?1 AND action = ?2 AND allowed = 1"
