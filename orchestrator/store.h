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
#define STORE_INFO_MAX   6144u /* eight texts and the labels, see orchestrator/registry.h */

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
/* How long the jobs that are being done have been at it, or for how long nothing could be saved; 0
 * while there is nothing to do. A store that is stuck is no reason to blame agents. Any thread. */
uint64_t store_busy_us(struct store *store);
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

/* What a sandbox was when it was last heard of. */
struct sandbox_note {
    int state; /* enum fleet_state of orchestrator/fleet.h */
    int64_t state_ms, last_seen_ms;
    char last_error[STORE_TEXT_MAX]; /* its agent's own words */
    int64_t last_error_ms;
    uint8_t info[STORE_INFO_MAX]; /* sandstorm.v1.SandboxInfo, packed */
    size_t info_size;
};

struct sandbox_record {
    char id[SANDBOX_ID_MAX + 1];
    char labels[STORE_LABELS_MAX];
    uint8_t key[STORE_KEY_LEN]; /* the only one whose certificates count */
    int64_t enrolled_ms, revoked_ms;
    char token_id[SECRET_ID_LEN + 1]; /* that it joined with */
    /* What follows is not store_sandbox_put()'s to change. */
    bool draining;
    struct sandbox_note note;
};

/* Adds it, or replaces what its enrolment says. */
int store_sandbox_put(struct store_tx *tx, const struct sandbox_record *sandbox,
                      struct err *err) must_use;
int store_sandbox_get(struct store_tx *tx, const char *id, struct sandbox_record *ret,
                      struct err *err) must_use;
int store_sandbox_revoke(struct store_tx *tx, const char *id, int64_t now_ms,
                         struct err *err) must_use;
/* Each of these: ERR_NOT_FOUND. */
int store_sandbox_note(struct store_tx *tx, const char *id, const struct sandbox_note *note,
                       struct err *err) must_use;
int store_sandbox_drain(struct store_tx *tx, const char *id, bool draining,
                        struct err *err) must_use;
int store_sandbox_label(struct store_tx *tx, const char *id, const char *labels,
                        struct err *err) must_use;
/* With its events and its log. */
int store_sandbox_remove(struct store_tx *tx, const char *id, struct err *err) must_use;
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

/* Commands: what was ordered, and how it ended. Not what it was told to run. */

#define STORE_DIGEST_LEN      32u
#define STORE_OUTCOME_MAX     2048u                 /* bytes of a packed sandstorm.v1.Outcome */
#define STORE_COMMANDS_KEPT   100000u               /* that have ended; the oldest go */
#define STORE_COMMANDS_AGE_MS (90ll * 86400 * 1000) /* and those that ended longer ago */

struct command_record {
    int64_t number; /* in order of coming, from 1; the store's */
    char id[COMMAND_ID_LEN + 1];
    char sandbox_id[SANDBOX_ID_MAX + 1];
    char ordered_by[STORE_ACTOR_MAX]; /* "client/ann" */
    char labels[STORE_LABELS_MAX];
    uint8_t digest[STORE_DIGEST_LEN]; /* of its spec */
    char runner[COMMAND_ID_LEN + 1];  /* the life of the runner that was there then, or "" */
    int64_t ordered_ms, started_ms, pid;
    int64_t ended_ms; /* 0: it has not ended, as far as is known */
    uint8_t outcome[STORE_OUTCOME_MAX];
    size_t outcome_size;
    uint64_t end_offset;
};

enum command_choice { COMMANDS_ALL, COMMANDS_OPEN, COMMANDS_ENDED };

struct command_filter {
    const char *sandbox_id, *id; /* "": any */
    enum command_choice choice;
    int64_t before; /* only numbers below this one; 0: from the newest */
};

/* ERR_EXISTS when the id is known, whatever of. */
int store_command_put(struct store_tx *tx, const struct command_record *command,
                      struct err *err) must_use;
/* ERR_NOT_FOUND. */
int store_command_get(struct store_tx *tx, const char *id, struct command_record *ret,
                      struct err *err) must_use;
/* The first time and pid stay. ERR_NOT_FOUND. */
int store_command_start(struct store_tx *tx, const char *id, int64_t started_ms, int64_t pid,
                        struct err *err) must_use;
/* Takes ended_ms, outcome, end_offset and, where none is known, started_ms and pid. The first end
 * stays. ERR_NOT_FOUND. */
int store_command_end(struct store_tx *tx, const struct command_record *command,
                      struct err *err) must_use;
/* Newest first. */
int store_command_list(struct store_tx *tx, const struct command_filter *filter,
                       struct command_record *ret, unsigned max, unsigned *ret_count,
                       struct err *err) must_use;
/* Calls `each` for every one that has not ended. -1 from it ends the walk. */
int store_command_each_open(struct store_tx *tx,
                            int (*each)(void *userdata, const struct command_record *command,
                                        struct err *err),
                            void *userdata, struct err *err) must_use;
/* Forgets those that ended before `before_ms`, and all but the newest `kept` that have ended. */
int store_command_prune(struct store_tx *tx, unsigned kept, int64_t before_ms,
                        struct err *err) must_use;

/* The log. */

#define STORE_LOG_MESSAGE_MAX 512u
#define STORE_LOG_FIELDS_MAX  2048u

struct log_record {
    uint64_t number; /* given when it is put; grows */
    int64_t time_us;
    int level; /* enum log_level of common/log.h */
    char origin[16];
    char sandbox_id[SANDBOX_ID_MAX + 1];
    char command_id[COMMAND_ID_LEN + 1]; /* "": about none */
    char message[STORE_LOG_MESSAGE_MAX + 1];
    char fields[STORE_LOG_FIELDS_MAX + 1]; /* a JSON object of strings */
};

struct log_query {
    char sandbox_id[SANDBOX_ID_MAX + 1];
    char command_id[COMMAND_ID_LEN + 1]; /* "": of any, and of none */
    int64_t since_us;
    uint64_t after; /* a record's number; 0: from the first */
    uint32_t last;  /* no more than the last so many of these; 0: all */
};

/* ERR_NOT_FOUND when there is no such sandbox. */
int store_log_put(struct store_tx *tx, const struct log_record *record, struct err *err) must_use;
/* Up to `max`, in the order in which they were put. */
int store_log_list(struct store_tx *tx, const struct log_query *query, struct log_record *ret,
                   unsigned max, unsigned *ret_count, struct err *err) must_use;
/* Forgets all but the newest `keep` of a sandbox. */
int store_log_trim(struct store_tx *tx, const char *sandbox_id, unsigned keep,
                   struct err *err) must_use;
/* Looks at the `max` oldest records of all and forgets those from before `before_us`; how many, so
 * that the caller comes back while there are more. The newest record always stays: numbers must
 * not begin again. */
int store_log_expire(struct store_tx *tx, int64_t before_us, unsigned max, unsigned *ret_forgotten,
                     struct err *err) must_use;

static inline void store_cleanup(struct store **store)
{
    store_free(*store);
}
#define CLEANUP_STORE CLEANUP(store_cleanup)
