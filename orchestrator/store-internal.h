/* For the store's own files: what a backend of the store is. orchestrator/store.c has the thread,
 * the queue and the batches and knows no database; orchestrator/store_verbs.c hands each verb of
 * store.h to the backend, which is a table of functions as the one of
 * orchestrator/store_sqlite.c. One thread at a time. */
#pragma once

#include "orchestrator/store.h"

/* What every backend's transaction begins with; the backend has its own struct around it. */
struct store_tx {
    const struct store_backend *backend;
    bool made;         /* there was nothing */
    bool audit_broken; /* the audit's end is not where the notes say, when it was opened */
    char action[STORE_ACTOR_MAX]; /* of this transaction's last audit row; for failpoints */
};

/* The verbs mean exactly what store.h says of the function of the same name, errors included: the
 * tests of one backend are those of all. */
struct store_backend {
    const char *name;

    /* Life: the connection with all its checks and migrations; `where` is the backend's to read. */
    int (*open)(const char *where, struct store_tx **ret, struct err *err);
    void (*close)(struct store_tx *tx);

    /* One transaction, and inside it one job at a time that can be undone alone. */
    int (*begin)(struct store_tx *tx, bool durable, struct err *err);
    int (*commit)(struct store_tx *tx, struct err *err);
    void (*rollback)(struct store_tx *tx);
    int (*probe)(struct store_tx *tx, struct err *err); /* writes something that changes nothing */
    bool (*lost)(struct store_tx *tx); /* the database has ended the transaction by itself */
    int (*job_begin)(struct store_tx *tx, struct err *err);
    int (*job_keep)(struct store_tx *tx, struct err *err);
    int (*job_undo)(struct store_tx *tx);

    /* The audit. */
    int (*audit_read)(struct store_tx *tx, uint64_t after, struct audit_row *rows, unsigned max,
                      unsigned *ret_count, struct err *err);
    int (*audit_head)(struct store_tx *tx, uint64_t *ret_seq, uint8_t ret_hash[32],
                      struct err *err);
    int (*audit_hash)(struct store_tx *tx, uint64_t seq, uint8_t ret_hash[32], struct err *err);
    /* For store_audit_append(): a row with its number and its hash, and the note that it is the
     * last. */
    int (*audit_insert)(struct store_tx *tx, const struct audit_row *row, struct err *err);

    /* Tokens. */
    int (*token_put)(struct store_tx *tx, const struct token_record *token, struct err *err);
    int (*token_get)(struct store_tx *tx, const char *id, struct token_record *ret,
                     struct err *err);
    int (*token_list)(struct store_tx *tx, const char *after, struct token_record *ret,
                      unsigned max, unsigned *ret_count, struct err *err);
    int (*token_revoke)(struct store_tx *tx, const char *id, int64_t now_ms, struct err *err);
    int (*token_use)(struct store_tx *tx, const char *id, const uint8_t key[STORE_KEY_LEN],
                     const char *sandbox_id, int64_t now_ms, struct err *err);
    int (*token_used_by)(struct store_tx *tx, const char *id, const uint8_t key[STORE_KEY_LEN],
                         char ret_sandbox[SANDBOX_ID_MAX + 1], int64_t *ret_when_ms,
                         struct err *err);
    int (*token_prune)(struct store_tx *tx, int64_t before_ms, struct err *err);

    /* Sandboxes. */
    int (*sandbox_put)(struct store_tx *tx, const struct sandbox_record *sandbox, struct err *err);
    int (*sandbox_get)(struct store_tx *tx, const char *id, struct sandbox_record *ret,
                       struct err *err);
    int (*sandbox_revoke)(struct store_tx *tx, const char *id, int64_t now_ms, struct err *err);
    int (*sandbox_note)(struct store_tx *tx, const char *id, const struct sandbox_note *note,
                        struct err *err);
    int (*sandbox_drain)(struct store_tx *tx, const char *id, bool draining, struct err *err);
    int (*sandbox_label)(struct store_tx *tx, const char *id, const char *labels, struct err *err);
    int (*sandbox_remove)(struct store_tx *tx, const char *id, struct err *err);
    int (*sandbox_count)(struct store_tx *tx, unsigned *ret, struct err *err);
    int (*sandbox_each)(struct store_tx *tx,
                        int (*each)(void *userdata, const struct sandbox_record *sandbox,
                                    struct err *err),
                        void *userdata, struct err *err);
    int (*event_put)(struct store_tx *tx, const char *sandbox_id, const struct event_record *event,
                     struct err *err);
    int (*event_list)(struct store_tx *tx, const char *sandbox_id, struct event_record *ret,
                      unsigned max, unsigned *ret_count, struct err *err);

    /* Clients. */
    int (*client_put)(struct store_tx *tx, const struct client_record *client, struct err *err);
    int (*client_get)(struct store_tx *tx, const char *name, struct client_record *ret,
                      struct err *err);
    int (*client_by_login)(struct store_tx *tx, const char *login_id, struct client_record *ret,
                           struct err *err);
    int (*client_list)(struct store_tx *tx, const char *after, struct client_record *ret,
                       unsigned max, unsigned *ret_count, struct err *err);

    /* Commands, and the log. */
    int (*command_put)(struct store_tx *tx, const struct command_record *command, struct err *err);
    int (*command_get)(struct store_tx *tx, const char *id, struct command_record *ret,
                       struct err *err);
    int (*command_start)(struct store_tx *tx, const char *id, int64_t started_ms, int64_t pid,
                         struct err *err);
    int (*command_end)(struct store_tx *tx, const struct command_record *command, struct err *err);
    int (*command_list)(struct store_tx *tx, const struct command_filter *filter,
                        struct command_record *ret, unsigned max, unsigned *ret_count,
                        struct err *err);
    int (*command_each_open)(struct store_tx *tx,
                             int (*each)(void *userdata, const struct command_record *command,
                                         struct err *err),
                             void *userdata, struct err *err);
    int (*command_prune)(struct store_tx *tx, unsigned kept, int64_t before_ms, struct err *err);
    int (*log_put)(struct store_tx *tx, const struct log_record *record, struct err *err);
    int (*log_list)(struct store_tx *tx, const struct log_query *query, struct log_record *ret,
                    unsigned max, unsigned *ret_count, struct err *err);
    int (*log_trim)(struct store_tx *tx, const char *sandbox_id, unsigned keep, struct err *err);
    int (*log_expire)(struct store_tx *tx, int64_t before_us, unsigned max, unsigned *ret_forgotten,
                      struct err *err);
};

extern const struct store_backend store_backend_sqlite;
