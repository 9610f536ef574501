/* What the orchestrator must not forget: sandboxes and their keys, tokens, clients, events and the
 * audit, in one SQLite file. One thread of its own does all of it: jobs come from the loop, those
 * that wait together share a transaction, and each comes back to the loop when that is committed.
 * A job that fails leaves nothing behind and harms no other job. */
#pragma once

#include "common/ids.h"
#include "common/label.h"
#include "common/loop.h"
#include "common/secret.h"

#define STORE_JOBS_MAX   4096u /* waiting; more is ERR_EXHAUSTED */
#define STORE_BATCH_MAX  256u  /* jobs in one transaction */
#define STORE_KEY_LEN    32u   /* SHA-256 of a public key's DER form */
#define STORE_EVENTS_MAX 32u   /* kept for each sandbox; the oldest goes */
#define STORE_LABELS_MAX (LABELS_TEXT_MAX + 1)
#define STORE_ACTOR_MAX  96u
#define STORE_TEXT_MAX   256u
#define STORE_AUDIT_PAGE 256u

struct store;
struct store_tx; /* the database inside a job; the store's thread only */

struct store_job {
    /* On the store's thread. -1 undoes what this job did. */
    int (*work)(struct store_job *job, struct store_tx *tx, struct err *err);
    /* On the loop's thread, after the commit. result and err are what work() or the commit said. */
    void (*done)(struct store_job *job);
    bool durable; /* survives a power cut before done(); else only a crash of this process */
    int result;
    bool unsaved; /* the transaction failed, whatever the job itself said */
    struct err err;
    struct loop_post post; /* the store's, from here on */
    struct store_job *next;
};

/* Opens or makes DIR/orchestrator.db, mode 0600, checks it and brings its schema up to date; takes
 * DIR/lock, so that a second process on this directory is refused with words. ERR_PRECONDITION,
 * with what to do, for a damaged file or one from a newer version. The loop may be NULL: then only
 * store_run() works, and no thread is made. Blocking. */
int store_open(const char *dir, struct loop *loop, struct store **ret, struct err *err) must_use;
/* The same on a named backend ("sqlite" is the one there is), with what it takes for a place: a
 * directory. store_open() is for SQLite. NULL from the first for a name that is none. */
struct store_backend;
const struct store_backend *store_backend_find(const char *name);
int store_open_on(const struct store_backend *backend, const char *where, struct loop *loop,
                  struct store **ret, struct err *err) must_use;
int store_submit(struct store *store, struct store_job *job, struct err *err) must_use;
/* The file was missing or empty, so this one begins with nothing: worth a line in the log. */
bool store_is_new(const struct store *store);
/* When it was opened, the audit did not end where the notes say. Nothing is refused or repaired:
 * worth a warning. */
bool store_audit_broken(const struct store *store);
/* Runs one job now, on this thread; for programs without a loop. done() is not called. */
int store_run(struct store *store, struct store_job *job, struct err *err) must_use;
/* Finishes what was submitted, also by a done() meanwhile, runs done() for all of it, and joins the
 * thread. */
void store_free(struct store *store);

/* The audit. */

struct audit_entry {
    const char *actor; /* "client/admin" */
    const char *action;
    const char *target; /* "" where there is none */
    bool allowed;
    const char *detail; /* "" or words; never a secret */
};

struct audit_row {
    uint64_t seq;
    int64_t time_ms;
    char actor[STORE_ACTOR_MAX], action[STORE_ACTOR_MAX], target[STORE_ACTOR_MAX];
    bool allowed;
    char detail[STORE_TEXT_MAX];
    uint8_t hash[32];
};

/* Longer texts are cut at a character. A row follows the one that the store's own notes name as the
 * last, not the one that happens to be last in the table: a removed tail leaves a hole. A job whose
 * append failed must fail. */
int store_audit_append(struct store_tx *tx, const struct audit_entry *entry,
                       struct err *err) must_use;
/* Up to `max` rows after `after`, in order. */
int store_audit_read(struct store_tx *tx, uint64_t after, struct audit_row *rows, unsigned max,
                     unsigned *ret_count, struct err *err) must_use;
/* According to the notes; and the hash of row `seq` as it stands in the table (zeros for 0,
 * ERR_NOT_FOUND when it is not there). */
int store_audit_head(struct store_tx *tx, uint64_t *ret_seq, uint8_t ret_hash[32],
                     struct err *err) must_use;
int store_audit_hash(struct store_tx *tx, uint64_t seq, uint8_t ret_hash[32],
                     struct err *err) must_use;

/* Tokens. */

struct token_record {
    char id[SECRET_ID_LEN + 1];
    uint8_t hash[SECRET_HASH_LEN];
    char sandbox_id[SANDBOX_ID_MAX + 1], prefix[SANDBOX_ID_MAX + 1]; /* one of them, or neither */
    char labels[STORE_LABELS_MAX];
    uint32_t uses_max, uses;
    int64_t created_ms, expires_ms, revoked_ms; /* revoked_ms 0: not */
    char created_by[STORE_ACTOR_MAX];
};

/* ERR_EXISTS. */
int store_token_put(struct store_tx *tx, const struct token_record *token,
                    struct err *err) must_use;
/* ERR_NOT_FOUND. */
int store_token_get(struct store_tx *tx, const char *id, struct token_record *ret,
                    struct err *err) must_use;
/* In order of creation, newest first, after the one named (""; from the start). ERR_NOT_FOUND when
 * that one has gone. */
int store_token_list(struct store_tx *tx, const char *after, struct token_record *ret, unsigned max,
                     unsigned *ret_count, struct err *err) must_use;
/* The first time stays; so it does for a sandbox. ERR_NOT_FOUND. */
int store_token_revoke(struct store_tx *tx, const char *id, int64_t now_ms,
                       struct err *err) must_use;
/* Notes that this key joined with this token as this sandbox, and counts the use. ERR_EXISTS when
 * the key did before, ERR_EXHAUSTED when uses_max is reached. */
int store_token_use(struct store_tx *tx, const char *id, const uint8_t key[STORE_KEY_LEN],
                    const char *sandbox_id, int64_t now_ms, struct err *err) must_use;
/* The sandbox that this key joined as with this token, and when; ERR_NOT_FOUND when it did not. */
int store_token_used_by(struct store_tx *tx, const char *id, const uint8_t key[STORE_KEY_LEN],
                        char ret_sandbox[SANDBOX_ID_MAX + 1], int64_t *ret_when_ms,
                        struct err *err) must_use;
/* Forgets tokens that expired or were revoked before `before_ms`, with their uses. */
int store_token_prune(struct store_tx *tx, int64_t before_ms, struct err *err) must_use;

/* Sandboxes. */

struct sandbox_record {
    char id[SANDBOX_ID_MAX + 1];
    char labels[STORE_LABELS_MAX];
    uint8_t key[STORE_KEY_LEN]; /* the only one whose certificates count */
    int64_t enrolled_ms, revoked_ms;
    char token_id[SECRET_ID_LEN + 1]; /* that it joined with */
};

/* Adds or replaces. */
int store_sandbox_put(struct store_tx *tx, const struct sandbox_record *sandbox,
                      struct err *err) must_use;
int store_sandbox_get(struct store_tx *tx, const char *id, struct sandbox_record *ret,
                      struct err *err) must_use;
int store_sandbox_revoke(struct store_tx *tx, const char *id, int64_t now_ms,
                         struct err *err) must_use;
int store_sandbox_count(struct store_tx *tx, unsigned *ret, struct err *err) must_use;
/* Calls `each` for every one, the greatest id first: so each is the first of a sorted list that is
 * being built. -1 from it ends the walk. */
int store_sandbox_each(struct store_tx *tx,
                       int (*each)(void *userdata, const struct sandbox_record *sandbox,
                                   struct err *err),
                       void *userdata, struct err *err) must_use;

struct event_record {
    int64_t time_ms;
    char kind[32];
    char detail[STORE_TEXT_MAX];
};
/* ERR_NOT_FOUND when there is no such sandbox. */
int store_event_put(struct store_tx *tx, const char *sandbox_id, const struct event_record *event,
                    struct err *err) must_use;
/* The newest `max`, oldest first; there are up to STORE_EVENTS_MAX. */
int store_event_list(struct store_tx *tx, const char *sandbox_id, struct event_record *ret,
                     unsigned max, unsigned *ret_count, struct err *err) must_use;

/* Clients. */

struct client_record {
    char name[CLIENT_NAME_MAX + 1];
    int role; /* enum role of orchestrator/access.h */
    char scope[STORE_LABELS_MAX];
    bool has_key;
    uint8_t key[STORE_KEY_LEN]; /* the only one whose certificates count */
    int64_t created_ms, last_login_ms, revoked_ms;
    char created_by[STORE_ACTOR_MAX];
    char login_id[SECRET_ID_LEN + 1]; /* "": no login key is open */
    uint8_t login_hash[SECRET_HASH_LEN];
    int64_t login_expires_ms;
};

/* Adds or replaces. ERR_EXISTS when another client has that login id. */
int store_client_put(struct store_tx *tx, const struct client_record *client,
                     struct err *err) must_use;
int store_client_get(struct store_tx *tx, const char *name, struct client_record *ret,
                     struct err *err) must_use;
int store_client_by_login(struct store_tx *tx, const char *login_id, struct client_record *ret,
                          struct err *err) must_use;
/* In order of name, after the one named. */
int store_client_list(struct store_tx *tx, const char *after, struct client_record *ret,
                      unsigned max, unsigned *ret_count, struct err *err) must_use;

static inline void store_cleanup(struct store **store)
{
    store_free(*store);
}
#define CLEANUP_STORE CLEANUP(store_cleanup)
