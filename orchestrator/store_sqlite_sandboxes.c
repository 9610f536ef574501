/* Owns the sandboxes that have joined, and the last few events of each. Jobs of enrolment and of
 * the registry call it. Next: orchestrator/store_sqlite_sql.c. */
#include "orchestrator/store_sqlite.h"

#include "common/utf8.h"

#include <stdio.h>
#include <string.h>

#define ENROLLED "id, labels, key, enrolled_ms, revoked_ms, token_id"
#define COLUMNS                                                                                    \
    ENROLLED ", draining, state, state_ms, last_seen_ms, last_error, last_error_ms, info"

static int not_found(const char *id, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "there is no sandbox %s; list those that there are", id);
}

int store_sqlite_sandbox_put(struct store_tx *tx, const struct sandbox_record *sandbox,
                             struct err *err)
{
    static const char what[] = "cannot save the sandbox";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    /* Not INSERT OR REPLACE, which removes the old row and its events with it. */
    if (store_sql_prepare(tx,
                          "INSERT INTO sandboxes(" ENROLLED ") VALUES(?1, ?2, ?3, ?4, ?5, ?6)"
                          " ON CONFLICT(id) DO UPDATE SET labels = ?2, key = ?3, enrolled_ms = ?4,"
                          " revoked_ms = ?5, token_id = ?6",
                          what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, sandbox->id);
    store_bind_text(statement, 2, sandbox->labels);
    store_bind_blob(statement, 3, sandbox->key, sizeof(sandbox->key));
    store_bind_int(statement, 4, sandbox->enrolled_ms);
    store_bind_int(statement, 5, sandbox->revoked_ms);
    store_bind_text(statement, 6, sandbox->token_id);
    return store_sql_run(tx, statement, what, err);
}

static bool read_note(sqlite3_stmt *statement, struct sandbox_note *ret)
{
    const void *info = sqlite3_column_blob(statement, 12);
    size_t size = (size_t)sqlite3_column_bytes(statement, 12);
    uint32_t state;
    if (size > sizeof(ret->info) || !store_column_u32(statement, 7, &state) || state > INT32_MAX ||
        !store_column_text(statement, 10, ret->last_error, sizeof(ret->last_error)))
        return false;
    ret->state = (int)state;
    ret->state_ms = sqlite3_column_int64(statement, 8);
    ret->last_seen_ms = sqlite3_column_int64(statement, 9);
    ret->last_error_ms = sqlite3_column_int64(statement, 11);
    if (size > 0)
        (void)memcpy(ret->info, info, size);
    ret->info_size = size;
    return true;
}

static bool read_sandbox(sqlite3_stmt *statement, struct sandbox_record *ret)
{
    ret->enrolled_ms = sqlite3_column_int64(statement, 3);
    ret->revoked_ms = sqlite3_column_int64(statement, 4);
    return store_column_text(statement, 0, ret->id, sizeof(ret->id)) &&
           store_column_text(statement, 1, ret->labels, sizeof(ret->labels)) &&
           store_column_blob(statement, 2, ret->key, sizeof(ret->key)) &&
           store_column_text(statement, 5, ret->token_id, sizeof(ret->token_id)) &&
           store_column_bool(statement, 6, &ret->draining) && read_note(statement, &ret->note);
}

int store_sqlite_sandbox_get(struct store_tx *tx, const char *id, struct sandbox_record *ret,
                             struct err *err)
{
    static const char what[] = "cannot read the sandbox";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx, "SELECT " COLUMNS " FROM sandboxes WHERE id = ?1", what, &statement,
                          err) < 0)
        return -1;
    store_bind_text(statement, 1, id);
    bool row = false;
    if (store_sql_step(tx, statement, what, &row, err) < 0)
        return -1;
    if (!row)
        return not_found(id, err);
    struct sandbox_record sandbox;
    if (!read_sandbox(statement, &sandbox))
        return store_unreadable(tx, err, what);
    *ret = sandbox;
    return 0;
}

/* One row changes, or there is no such sandbox. */
static int change_one(struct store_tx *tx, sqlite3_stmt *statement, const char *id,
                      const char *what, struct err *err)
{
    if (store_sql_run(tx, statement, what, err) < 0)
        return -1;
    return sqlite3_changes(store_sqlite(tx)->db) == 0 ? not_found(id, err) : 0;
}

int store_sqlite_sandbox_revoke(struct store_tx *tx, const char *id, int64_t now_ms,
                                struct err *err)
{
    static const char what[] = "cannot revoke the sandbox";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    /* The first time stays. */
    if (store_sql_prepare(tx,
                          "UPDATE sandboxes SET revoked_ms ="
                          " CASE revoked_ms WHEN 0 THEN ?2 ELSE revoked_ms END WHERE id = ?1",
                          what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, id);
    store_bind_int(statement, 2, now_ms);
    return change_one(tx, statement, id, what, err);
}

int store_sqlite_sandbox_note(struct store_tx *tx, const char *id, const struct sandbox_note *note,
                              struct err *err)
{
    static const char what[] = "cannot note how the sandbox is";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx,
                          "UPDATE sandboxes SET state = ?2, state_ms = ?3, last_seen_ms = ?4,"
                          " last_error = ?5, last_error_ms = ?6, info = ?7 WHERE id = ?1",
                          what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, id);
    store_bind_int(statement, 2, note->state);
    store_bind_int(statement, 3, note->state_ms);
    store_bind_int(statement, 4, note->last_seen_ms);
    store_bind_text(statement, 5, note->last_error);
    store_bind_int(statement, 6, note->last_error_ms);
    store_bind_blob(statement, 7, note->info, note->info_size);
    return change_one(tx, statement, id, what, err);
}

int store_sqlite_sandbox_drain(struct store_tx *tx, const char *id, bool draining, struct err *err)
{
    static const char what[] = "cannot drain the sandbox";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx, "UPDATE sandboxes SET draining = ?2 WHERE id = ?1", what, &statement,
                          err) < 0)
        return -1;
    store_bind_text(statement, 1, id);
    store_bind_int(statement, 2, draining);
    return change_one(tx, statement, id, what, err);
}

int store_sqlite_sandbox_label(struct store_tx *tx, const char *id, const char *labels,
                               struct err *err)
{
    static const char what[] = "cannot label the sandbox";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx, "UPDATE sandboxes SET labels = ?2 WHERE id = ?1", what, &statement,
                          err) < 0)
        return -1;
    store_bind_text(statement, 1, id);
    store_bind_text(statement, 2, labels);
    return change_one(tx, statement, id, what, err);
}

int store_sqlite_sandbox_remove(struct store_tx *tx, const char *id, struct err *err)
{
    static const char what[] = "cannot remove the sandbox";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx, "DELETE FROM sandboxes WHERE id = ?1", what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, id);
    return change_one(tx, statement, id, what, err);
}

int store_sqlite_sandbox_count(struct store_tx *tx, unsigned *ret, struct err *err)
{
    static const char what[] = "cannot count the sandboxes";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    bool row = false;
    if (store_sql_prepare(tx, "SELECT count(*) FROM sandboxes", what, &statement, err) < 0 ||
        store_sql_step(tx, statement, what, &row, err) < 0)
        return -1;
    uint32_t count = 0;
    if (!row || !store_column_u32(statement, 0, &count))
        return store_unreadable(tx, err, what);
    *ret = count;
    return 0;
}

int store_sqlite_sandbox_each(struct store_tx *tx,
                              int (*each)(void *userdata, const struct sandbox_record *sandbox,
                                          struct err *err),
                              void *userdata, struct err *err)
{
    static const char what[] = "cannot read the sandboxes";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx, "SELECT " COLUMNS " FROM sandboxes ORDER BY id DESC", what,
                          &statement, err) < 0)
        return -1;
    for (;;) {
        bool row = false;
        if (store_sql_step(tx, statement, what, &row, err) < 0)
            return -1;
        if (!row)
            return 0;
        struct sandbox_record sandbox;
        if (!read_sandbox(statement, &sandbox))
            return store_unreadable(tx, err, what);
        if (each(userdata, &sandbox, err) < 0)
            return -1;
    }
}

/* Events. */

static int drop_oldest(struct store_tx *tx, const char *sandbox_id, struct err *err)
{
    static const char what[] = "cannot forget an old event";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    /* By number and not by time: clocks go back. */
    if (store_sql_prepare(tx,
                          "DELETE FROM events WHERE sandbox_id = ?1 AND number <= (SELECT number"
                          " FROM events WHERE sandbox_id = ?1 ORDER BY number DESC LIMIT 1"
                          " OFFSET ?2)",
                          what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, sandbox_id);
    store_bind_int(statement, 2, STORE_EVENTS_MAX);
    return store_sql_run(tx, statement, what, err);
}

int store_sqlite_event_put(struct store_tx *tx, const char *sandbox_id,
                           const struct event_record *event, struct err *err)
{
    static const char what[] = "cannot save the event";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx,
                          "INSERT INTO events(sandbox_id, time_ms, kind, detail)"
                          " VALUES(?1, ?2, ?3, ?4)",
                          what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, sandbox_id);
    store_bind_int(statement, 2, event->time_ms);
    store_bind_text(statement, 3, event->kind);
    char detail[STORE_TEXT_MAX];
    (void)snprintf(detail, sizeof(detail), "%s", event->detail);
    utf8_clean(detail); /* a cut may have gone through a character */
    store_bind_text(statement, 4, detail);
    if (store_sql_run(tx, statement, what, err) < 0)
        return sqlite3_extended_errcode(store_sqlite(tx)->db) == SQLITE_CONSTRAINT_FOREIGNKEY
                   ? not_found(sandbox_id, err)
                   : -1;
    return drop_oldest(tx, sandbox_id, err);
}

int store_sqlite_event_list(struct store_tx *tx, const char *sandbox_id, struct event_record *ret,
                            unsigned max, unsigned *ret_count, struct err *err)
{
    static const char what[] = "cannot list the events";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(tx,
                          "SELECT time_ms, kind, detail FROM (SELECT * FROM events"
                          " WHERE sandbox_id = ?1 ORDER BY number DESC LIMIT ?2) ORDER BY number",
                          what, &statement, err) < 0)
        return -1;
    store_bind_text(statement, 1, sandbox_id);
    store_bind_int(statement, 2, max);
    unsigned count = 0;
    for (bool row = false;; count++) {
        if (store_sql_step(tx, statement, what, &row, err) < 0)
            return -1;
        if (!row)
            break;
        struct event_record *event = &ret[count];
        event->time_ms = sqlite3_column_int64(statement, 0);
        if (!store_column_text(statement, 1, event->kind, sizeof(event->kind)) ||
            !store_column_text(statement, 2, event->detail, sizeof(event->detail)))
            return store_unreadable(tx, err, what);
    }
    *ret_count = count;
    return 0;
}
