/* For the store's own files: the connection behind a transaction, and the thin layer over SQLite
 * that all of them speak. One thread at a time. */
#pragma once

#include "orchestrator/store.h"

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

struct store_tx {
    char *dir;
    char *path; /* of the database's file, in DIR or, for a backup, elsewhere */
    int lock;   /* fd of DIR/lock, or -1 */
    sqlite3 *db;
    bool made;         /* the file was missing or empty */
    bool audit_broken; /* the audit's end is not where the notes say, when it was opened */
    bool marked;       /* DIR/lock says that the log is needed */
    bool full_sync;    /* PRAGMA synchronous is FULL, not NORMAL */
    char action[STORE_ACTOR_MAX]; /* of this transaction's last audit row; for failpoints */
    sqlite3_stmt *audit[AUDIT_STATEMENT_COUNT_];
};

/* Lock, file, checks, schema; store_db_close() accepts what is half open. */
int store_db_open(const char *dir, struct store_tx *tx, struct err *err) must_use;
void store_db_close(struct store_tx *tx);
/* The steps of it, for those who care for a database that nobody serves from: the lock of the
 * directory, which also sets dir and path; a connection to tx->path; is it ours, of a version that
 * we know, undamaged; is it a new one, then make it ours and give it its tables. */
int store_db_lock(const char *dir, struct store_tx *tx, struct err *err) must_use;
int store_db_connect(struct store_tx *tx, int flags, struct err *err) must_use;
/* Whoever closes last moves the log into the database and removes it; one that is only looked at
 * keeps its log, and so do all until store_db_open() has found nothing wrong. */
void store_db_keep_log(struct store_tx *tx, bool keep);
/* The database was not closed in order, and its log is not there; the lock is held. */
int store_db_log_lost(const struct store_tx *tx, bool *ret, struct err *err) must_use;
int store_db_check_log(const struct store_tx *tx, struct err *err) must_use;
/* From here on the log is needed; and not any more. */
int store_db_mark_open(const struct store_tx *tx, struct err *err) must_use;
int store_db_mark_closed(const struct store_tx *tx, struct err *err) must_use;
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
int store_audit_check_end(struct store_tx *tx, bool *ret_broken, struct err *err) must_use;

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
