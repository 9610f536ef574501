/* For the files of the SQLite backend, store_sqlite_*.c: the connection behind a transaction, and
 * the thin layer over SQLite that all of them speak. One thread at a time. */
#pragma once

#include "orchestrator/store-internal.h"

#include <sqlite3.h>

#define STORE_DB_FILE "orchestrator.db"
#define STORE_DB_MODE 0600
/* How long a program that reads along, as a backup does, may hold us up. */
#define STORE_DB_BUSY_MS 5000

/* The operator's choices; nothing is ever decided for them. */
#define STORE_DAMAGED_ADVICE                                                                       \
    "stop the orchestrator, then either move its files away and bring back a backup with "         \
    "'sandstorm-orchestrator restore FILE', or save what can still be read with "                  \
    "'sandstorm-orchestrator repair'"

/* Prepared once and kept, because every request appends to the audit. */
enum audit_statement { AUDIT_HEAD, AUDIT_INSERT, AUDIT_MOVE_HEAD, AUDIT_STATEMENT_COUNT_ };

struct store_sqlite {
    struct store_tx tx;
    char *dir;
    char *path; /* of the database's file, in DIR or, for a backup, elsewhere */
    int lock;   /* fd of DIR/lock, or -1 */
    sqlite3 *db;
    bool marked;    /* DIR/lock says that the log is needed */
    bool full_sync; /* PRAGMA synchronous is FULL, not NORMAL */
    sqlite3_stmt *audit[AUDIT_STATEMENT_COUNT_];
};

static inline struct store_sqlite *store_sqlite(struct store_tx *tx)
{
    return CONTAINER_OF(tx, struct store_sqlite, tx);
}

/* Before it is opened, and for those who are not opened as a store. */
#define STORE_SQLITE_NONE                                                                          \
    {                                                                                              \
        .tx = { .backend = &store_backend_sqlite }, .lock = -1                                     \
    }

/* Lock, file, checks, schema; store_db_close() accepts what is half open. */
int store_db_open(const char *dir, struct store_tx *tx, struct err *err) must_use;
void store_db_close(struct store_tx *tx);
static inline void store_sqlite_done(struct store_sqlite *sqlite)
{
    store_db_close(&sqlite->tx);
}
#define CLEANUP_SQLITE CLEANUP(store_sqlite_done)
/* The steps of it, for those who care for a database that nobody serves from: the lock of the
 * directory, which also sets dir and path; a connection to its path; is it ours, of a version that
 * we know, undamaged; is it a new one, then make it ours and give it its tables. */
int store_db_lock(const char *dir, struct store_tx *tx, struct err *err) must_use;
int store_db_connect(struct store_tx *tx, int flags, struct err *err) must_use;
/* Whoever closes last moves the log into the database and removes it; one that is only looked at
 * keeps its log, and so do all until store_db_open() has found nothing wrong. */
void store_db_keep_log(struct store_tx *tx, bool keep);
/* The database was not closed in order, and its log is not there; the lock is held. */
int store_db_log_lost(struct store_tx *tx, bool *ret, struct err *err) must_use;
int store_db_check_log(struct store_tx *tx, struct err *err) must_use;
/* From here on the log is needed; and not any more. */
int store_db_mark_open(struct store_tx *tx, struct err *err) must_use;
int store_db_mark_closed(struct store_tx *tx, struct err *err) must_use;
/* Every table and column that the migrations make is there, whatever the version says. */
int store_db_check_schema(struct store_tx *tx, struct err *err) must_use;
bool store_db_has_column(struct store_tx *tx, const char *table, const char *column);
int store_db_check_owner(struct store_tx *tx, struct err *err) must_use;
int store_db_check_version(struct store_tx *tx, int64_t *ret, struct err *err) must_use;
int store_db_check_damage(struct store_tx *tx, struct err *err) must_use;
/* The same without a judgement: what is wrong, or "". */
int store_db_find_damage(struct store_tx *tx, char ret[STORE_TEXT_MAX], struct err *err) must_use;
int store_db_mark(struct store_tx *tx, struct err *err) must_use;
int store_db_migrate(struct store_tx *tx, int64_t version, struct err *err) must_use;
int store_sqlite_audit_check_end(struct store_tx *tx, bool *ret_broken, struct err *err) must_use;

/* -1, with what SQLite said last in our words; `what` is "cannot ...". */
#define store_sql_fail(tx, err, what) (store_sql_fill((tx), (err), (what)), -1)
void store_sql_fill(struct store_tx *tx, struct err *err, const char *what);

int store_sql_exec(struct store_tx *tx, const char *sql, const char *what,
                   struct err *err) must_use;
int store_sql_prepare(struct store_tx *tx, const char *sql, const char *what, sqlite3_stmt **ret,
                      struct err *err) must_use;
static inline void store_sql_finalize(sqlite3_stmt **statement)
{
    /* Repeats the error of the last step, which was told then. */
    (void)sqlite3_finalize(*statement);
}
#define CLEANUP_STATEMENT CLEANUP(store_sql_finalize)

/* Bound by reference: the value must outlive the statement. */
void store_bind_int(sqlite3_stmt *statement, int index, int64_t value);
void store_bind_text(sqlite3_stmt *statement, int index, const char *text);
void store_bind_blob(sqlite3_stmt *statement, int index, const uint8_t *data, size_t size);

/* The next row, if there is one. */
int store_sql_step(struct store_tx *tx, sqlite3_stmt *statement, const char *what, bool *ret_row,
                   struct err *err) must_use;
/* For statements that give no row. */
int store_sql_run(struct store_tx *tx, sqlite3_stmt *statement, const char *what,
                  struct err *err) must_use;

/* False when the column does not fit exactly what is asked for: too long, a NUL inside, another
 * length, out of range. Our own code stores nothing like that. */
bool store_column_text(sqlite3_stmt *statement, int column, char *ret, size_t size) must_use;
bool store_column_blob(sqlite3_stmt *statement, int column, uint8_t *ret, size_t size) must_use;
bool store_column_u32(sqlite3_stmt *statement, int column, uint32_t *ret) must_use;
bool store_column_bool(sqlite3_stmt *statement, int column, bool *ret) must_use;
/* -1, for a row that one of those refused. */
#define store_unreadable(tx, err, what) (store_unreadable_fill((tx), (err), (what)), -1)
void store_unreadable_fill(struct store_tx *tx, struct err *err, const char *what);

/* The verbs; orchestrator/store_sqlite.c puts them into the table. */
int store_sqlite_audit_read(struct store_tx *tx, uint64_t after, struct audit_row *rows,
                            unsigned max, unsigned *ret_count, struct err *err) must_use;
int store_sqlite_audit_head(struct store_tx *tx, uint64_t *ret_seq, uint8_t ret_hash[32],
                            struct err *err) must_use;
int store_sqlite_audit_hash(struct store_tx *tx, uint64_t seq, uint8_t ret_hash[32],
                            struct err *err) must_use;
int store_sqlite_token_put(struct store_tx *tx, const struct token_record *token,
                           struct err *err) must_use;
int store_sqlite_token_get(struct store_tx *tx, const char *id, struct token_record *ret,
                           struct err *err) must_use;
int store_sqlite_token_list(struct store_tx *tx, const char *after, struct token_record *ret,
                            unsigned max, unsigned *ret_count, struct err *err) must_use;
int store_sqlite_token_revoke(struct store_tx *tx, const char *id, int64_t now_ms,
                              struct err *err) must_use;
int store_sqlite_token_use(struct store_tx *tx, const char *id, const uint8_t key[STORE_KEY_LEN],
                           const char *sandbox_id, int64_t now_ms, struct err *err) must_use;
int store_sqlite_token_used_by(struct store_tx *tx, const char *id,
                               const uint8_t key[STORE_KEY_LEN],
                               char ret_sandbox[SANDBOX_ID_MAX + 1], int64_t *ret_when_ms,
                               struct err *err) must_use;
int store_sqlite_token_prune(struct store_tx *tx, int64_t before_ms, struct err *err) must_use;
int store_sqlite_sandbox_put(struct store_tx *tx, const struct sandbox_record *sandbox,
                             struct err *err) must_use;
int store_sqlite_sandbox_get(struct store_tx *tx, const char *id, struct sandbox_record *ret,
                             struct err *err) must_use;
int store_sqlite_sandbox_revoke(struct store_tx *tx, const char *id, int64_t now_ms,
                                struct err *err) must_use;
int store_sqlite_sandbox_count(struct store_tx *tx, unsigned *ret, struct err *err) must_use;
int store_sqlite_sandbox_each(struct store_tx *tx,
                              int (*each)(void *userdata, const struct sandbox_record *sandbox,
                                          struct err *err),
                              void *userdata, struct err *err) must_use;
int store_sqlite_event_put(struct store_tx *tx, const char *sandbox_id,
                           const struct event_record *event, struct err *err) must_use;
int store_sqlite_event_list(struct store_tx *tx, const char *sandbox_id, struct event_record *ret,
                            unsigned max, unsigned *ret_count, struct err *err) must_use;
int store_sqlite_client_put(struct store_tx *tx, const struct client_record *client,
                            struct err *err) must_use;
int store_sqlite_client_get(struct store_tx *tx, const char *name, struct client_record *ret,
                            struct err *err) must_use;
int store_sqlite_client_by_login(struct store_tx *tx, const char *login_id,
                                 struct client_record *ret, struct err *err) must_use;
int store_sqlite_client_list(struct store_tx *tx, const char *after, struct client_record *ret,
                             unsigned max, unsigned *ret_count, struct err *err) must_use;
int store_sqlite_audit_insert(struct store_tx *tx, const struct audit_row *row,
                              struct err *err) must_use;
int store_sqlite_sandbox_note(struct store_tx *tx, const char *id, const struct sandbox_note *note,
                              struct err *err) must_use;
int store_sqlite_sandbox_drain(struct store_tx *tx, const char *id, bool draining,
                               struct err *err) must_use;
int store_sqlite_sandbox_label(struct store_tx *tx, const char *id, const char *labels,
                               struct err *err) must_use;
int store_sqlite_sandbox_remove(struct store_tx *tx, const char *id, struct err *err) must_use;
int store_sqlite_command_put(struct store_tx *tx, const struct command_record *command,
                             struct err *err) must_use;
int store_sqlite_command_get(struct store_tx *tx, const char *id, struct command_record *ret,
                             struct err *err) must_use;
int store_sqlite_command_start(struct store_tx *tx, const char *id, int64_t started_ms, int64_t pid,
                               struct err *err) must_use;
int store_sqlite_command_end(struct store_tx *tx, const struct command_record *command,
                             struct err *err) must_use;
int store_sqlite_command_list(struct store_tx *tx, const struct command_filter *filter,
                              struct command_record *ret, unsigned max, unsigned *ret_count,
                              struct err *err) must_use;
int store_sqlite_command_each_open(struct store_tx *tx,
                                   int (*each)(void *userdata, const struct command_record *command,
                                               struct err *err),
                                   void *userdata, struct err *err) must_use;
int store_sqlite_command_prune(struct store_tx *tx, unsigned kept, int64_t before_ms,
                               struct err *err) must_use;
int store_sqlite_log_put(struct store_tx *tx, const struct log_record *record,
                         struct err *err) must_use;
int store_sqlite_log_list(struct store_tx *tx, const struct log_query *query,
                          struct log_record *ret, unsigned max, unsigned *ret_count,
                          struct err *err) must_use;
int store_sqlite_log_trim(struct store_tx *tx, const char *sandbox_id, unsigned keep,
                          struct err *err) must_use;
int store_sqlite_log_expire(struct store_tx *tx, int64_t before_us, unsigned max,
                            unsigned *ret_forgotten, struct err *err) must_use;
