/* Reads what can still be read of one damaged table into its counterpart in a new database.
 * orchestrator/store_sqlite_repair.c hands it table after table. Next: libsqlite3.
 *
 * A table is a tree by row number. Where a page of it cannot be read, the walk looks for the next
 * number from which it can go on: first by leaps that double, then by halving the last leap, so
 * that only the rows of the lost page are left behind. */
#include "orchestrator/store_sqlite_salvage.h"

#include <stdio.h>
#include <string.h>

#define SQL_MAX     2048u
#define COLUMNS_MAX 64

struct walk {
    struct store_tx *from, *to;
    const char *table;
    char columns[SQL_MAX / 4]; /* those that both have */
    int count;
    bool numbered; /* has row numbers */
    sqlite3_stmt *read, *write;
};

static void walk_done(struct walk *walk)
{
    store_sql_finalize(&walk->read);
    store_sql_finalize(&walk->write);
}

/* An older database has fewer; the others get what the migrations give them. */
static int find_columns(struct walk *walk, struct err *err)
{
    static const char what[] = "cannot read the columns of a table";
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    if (store_sql_prepare(walk->to, "SELECT name FROM pragma_table_info(?1)", what, &statement,
                          err) < 0)
        return -1;
    store_bind_text(statement, 1, walk->table);
    size_t used = 0;
    for (;;) {
        bool row = false;
        if (store_sql_step(walk->to, statement, what, &row, err) < 0)
            return -1;
        if (!row)
            return 0;
        const char *name = (const char *)sqlite3_column_text(statement, 0);
        if (!name || !store_db_has_column(walk->from, walk->table, name))
            continue;
        int n = snprintf(walk->columns + used, sizeof(walk->columns) - used, "%s\"%s\"",
                         walk->count > 0 ? ", " : "", name);
        used += (size_t)n;
        if (used >= sizeof(walk->columns) || walk->count == COLUMNS_MAX)
            return err_set(err, ERR_INTERNAL, "%s has too many columns to repair", walk->table);
        walk->count++;
    }
}

/* Tables without row numbers are small and of no great worth; those are read up to the first page
 * that is lost. NOT INDEXED, because an index may be lost, too, and its table not. */
static bool prepare_read(struct walk *walk)
{
    char sql[SQL_MAX];
    walk->numbered = true;
    (void)snprintf(sql, sizeof(sql),
                   "SELECT rowid, %s FROM \"%s\" NOT INDEXED WHERE rowid >= ?1 ORDER BY rowid",
                   walk->columns, walk->table);
    if (sqlite3_prepare_v2(store_sqlite(walk->from)->db, sql, -1, &walk->read, NULL) == SQLITE_OK)
        return true;
    walk->numbered = false;
    (void)snprintf(sql, sizeof(sql), "SELECT 0, %s FROM \"%s\"", walk->columns, walk->table);
    return sqlite3_prepare_v2(store_sqlite(walk->from)->db, sql, -1, &walk->read, NULL) ==
           SQLITE_OK;
}

static int prepare_write(struct walk *walk, struct err *err)
{
    char sql[SQL_MAX], marks[COLUMNS_MAX * 2 + 1] = "";
    for (int i = 0; i < walk->count; i++)
        (void)memcpy(marks + i * 2, i > 0 ? ",?" : " ?", 3);
    (void)snprintf(sql, sizeof(sql), "INSERT INTO \"%s\"(%s) VALUES(%s)", walk->table,
                   walk->columns, marks);
    return store_sql_prepare(walk->to, sql, "cannot repair a table", &walk->write, err);
}

static int copy_row(struct walk *walk, struct store_salvage *salvage, struct err *err)
{
    for (int i = 0; i < walk->count; i++)
        if (sqlite3_bind_value(walk->write, i + 1, sqlite3_column_value(walk->read, i + 1)) !=
            SQLITE_OK)
            return store_sql_fail(walk->to, err, "cannot copy a row");
    int r = sqlite3_step(walk->write);
    (void)sqlite3_reset(walk->write); /* says again what the step said */
    if (r == SQLITE_DONE)
        salvage->copied++;
    else if ((r & 0xff) == SQLITE_CONSTRAINT || (r & 0xff) == SQLITE_MISMATCH)
        salvage->left_out++;
    else
        return store_sql_fail(walk->to, err, "cannot copy a row");
    return 0;
}

static int start_at(struct walk *walk, int64_t number)
{
    (void)sqlite3_reset(walk->read); /* says again what the last step said */
    if (walk->numbered)
        store_bind_int(walk->read, 1, number);
    return sqlite3_step(walk->read);
}

static bool readable(int r)
{
    return r == SQLITE_ROW || r == SQLITE_DONE;
}

/* The least number above `bad` from which reading goes on; false when there is none. */
static bool find_next(struct walk *walk, int64_t bad, int64_t *ret)
{
    int64_t good = 0, leap = 1;
    for (;; leap *= 2) {
        if (leap > INT64_MAX / 2 || __builtin_add_overflow(bad, leap, &good))
            return false;
        if (readable(start_at(walk, good)))
            break;
    }
    for (int64_t low = good - leap / 2; good - low > 1;) {
        int64_t middle = low + (good - low) / 2;
        if (readable(start_at(walk, middle)))
            good = middle;
        else
            low = middle;
    }
    *ret = good;
    return true;
}

static int copy_rows(struct walk *walk, struct store_salvage *salvage, struct err *err)
{
    int64_t next = INT64_MIN;
    int r = start_at(walk, next);
    for (;;) {
        for (; r == SQLITE_ROW; r = sqlite3_step(walk->read)) {
            int64_t number = sqlite3_column_int64(walk->read, 0);
            if (walk->numbered && number < next)
                break; /* pages that lead in a circle */
            if (copy_row(walk, salvage, err) < 0)
                return -1;
            if (number < INT64_MAX)
                next = number + 1;
        }
        if (r == SQLITE_DONE)
            return 0;
        salvage->cut_short = true;
        /* Nothing of ours has a negative number. */
        if (!walk->numbered || !find_next(walk, MAX(next, (int64_t)-1), &next))
            return 0;
        r = start_at(walk, next);
    }
}

/* As many as an index says, if there is one that can be read. */
static uint64_t count_known(struct store_tx *tx, const char *table)
{
    CLEANUP_STATEMENT sqlite3_stmt *statement = NULL;
    char sql[SQL_MAX];
    (void)snprintf(sql, sizeof(sql), "SELECT count(*) FROM \"%s\"", table);
    if (sqlite3_prepare_v2(store_sqlite(tx)->db, sql, -1, &statement, NULL) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_ROW)
        return 0;
    return (uint64_t)MAX(sqlite3_column_int64(statement, 0), (int64_t)0);
}

int store_salvage_table(struct store_tx *from, struct store_tx *to, const char *table,
                        struct store_salvage *ret, struct err *err)
{
    CLEANUP(walk_done) struct walk walk = { .from = from, .to = to, .table = table };
    *ret = (struct store_salvage){ .table = table };
    if (find_columns(&walk, err) < 0)
        return -1;
    if (walk.count == 0 || !prepare_read(&walk)) {
        ret->cut_short = true;
        return 0;
    }
    if (prepare_write(&walk, err) < 0 || copy_rows(&walk, ret, err) < 0)
        return -1;
    uint64_t known = count_known(from, table), read = ret->copied + ret->left_out;
    ret->missing = known > read ? known - read : 0;
    return 0;
}
