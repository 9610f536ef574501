/* The audit: what was appended comes back, the chain holds, and every change from outside shows to
 * whoever verifies as the command line client does. */
#include "store_fixture.h"

#include "common/audit_chain.h"

static struct store *store;

static void set_up(void)
{
    make_directory();
    store = open_store(NULL);
}

static void tear_down(void)
{
    store_free(store);
    remove_directory();
}

/* cppcheck-suppress unknownMacro */
TestSuite(store_audit, .init = set_up, .fini = tear_down, .timeout = 60);

static int append(struct store_tx *tx, void *entry, struct err *error)
{
    return store_audit_append(tx, entry, error);
}

struct page {
    uint64_t after;
    unsigned max, count;
    struct audit_row rows[16];
};

static int read_page(struct store_tx *tx, void *userdata, struct err *error)
{
    struct page *page = userdata;
    return store_audit_read(tx, page->after, page->rows, page->max, &page->count, error);
}

static struct page rows_after(uint64_t after, unsigned max)
{
    struct page page = { .after = after, .max = max };
    OK(run(store, read_page, &page));
    return page;
}

struct head {
    uint64_t seq;
    uint8_t hash[32];
};

static int read_head(struct store_tx *tx, void *userdata, struct err *error)
{
    struct head *head = userdata;
    return store_audit_head(tx, &head->seq, head->hash, error);
}

static int read_hash(struct store_tx *tx, void *userdata, struct err *error)
{
    struct head *head = userdata;
    return store_audit_hash(tx, head->seq, head->hash, error);
}

/* As the client does it: every number once, every hash as computed, and the end where the notes
 * say. The number of the first row that is wrong, or 0. */
static uint64_t verify(void)
{
    struct page page = rows_after(0, ELEMENTS(page.rows));
    uint8_t hash[32] = { 0 };
    for (unsigned i = 0; i < page.count; i++) {
        const struct audit_row *row = &page.rows[i];
        const struct audit_chain_row chained = { row->seq,   row->time_ms, row->allowed,
                                                 row->actor, row->action,  row->target,
                                                 row->detail };
        audit_chain_hash(hash, &chained, hash);
        if (row->seq != i + 1 || memcmp(hash, row->hash, sizeof(hash)) != 0)
            return i + 1;
    }
    struct head head;
    OK(run(store, read_head, &head));
    bool ends = head.seq == page.count && memcmp(head.hash, hash, sizeof(hash)) == 0;
    return ends ? 0 : page.count + 1u;
}

static void append_some(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char detail[16];
        (void)snprintf(detail, sizeof(detail), "%u", i);
        OK(run(store, append_audit, detail));
    }
}

#define NO_TRIGGERS "DROP TRIGGER audit_no_update; DROP TRIGGER audit_no_delete;"

Test(store_audit, rows_come_back_in_order_with_all_their_fields)
{
    int64_t before = wall_ms();
    struct audit_entry denied = { "client/eve", "token.create", "", false, "no such role" };
    append_some(4);
    OK(run(store, append, &denied));
    struct page page = rows_after(0, 16);
    cr_assert_eq(page.count, 5);
    for (unsigned i = 0; i < 4; i++) {
        cr_assert_eq(page.rows[i].seq, i + 1);
        cr_assert_eq((unsigned)atoi(page.rows[i].detail), i);
        cr_assert(page.rows[i].allowed);
    }
    const struct audit_row *last = &page.rows[4];
    cr_assert_str_eq(last->actor, "client/eve");
    cr_assert_str_eq(last->action, "token.create");
    cr_assert_str_eq(last->target, "");
    cr_assert_str_eq(last->detail, "no such role");
    cr_assert_not(last->allowed);
    cr_assert(last->time_ms >= before && last->time_ms <= wall_ms());
    cr_assert_eq(verify(), 0);
}

Test(store_audit, pages_begin_after_the_row_named)
{
    append_some(7);
    struct page page = rows_after(2, 3);
    cr_assert_eq(page.count, 3);
    cr_assert_eq(page.rows[0].seq, 3);
    cr_assert_eq(rows_after(6, 16).count, 1);
    cr_assert_eq(rows_after(7, 16).count, 0);
    cr_assert_eq(rows_after(UINT64_MAX, 16).count, 0);
    cr_assert_eq(rows_after(0, 0).count, 0);
}

Test(store_audit, head_and_hashes)
{
    static const uint8_t zeros[32];
    struct head head = { .seq = 1 };
    OK(run(store, read_head, &head));
    cr_assert_eq(head.seq, 0);
    cr_assert_eq(memcmp(head.hash, zeros, 32), 0);
    OK(run(store, read_hash, &head));
    cr_assert_eq(memcmp(head.hash, zeros, 32), 0);
    append_some(3);
    OK(run(store, read_head, &head));
    cr_assert_eq(head.seq, 3);
    struct head row = { .seq = 3 };
    OK(run(store, read_hash, &row));
    cr_assert_eq(memcmp(head.hash, row.hash, 32), 0);
    const uint64_t missing[] = { 4, INT64_MAX, UINT64_MAX };
    for (unsigned i = 0; i < ELEMENTS(missing); i++) {
        row.seq = missing[i];
        FAILS(run(store, read_hash, &row), ERR_NOT_FOUND);
    }
}

Test(store_audit, long_texts_are_cut_between_characters)
{
    char text[1024], expected[1024];
    for (unsigned shift = 0; shift < 3; shift++) {
        memset(text, 'x', shift);
        for (unsigned i = shift; i + 3 < sizeof(text); i += 3)
            memcpy(text + i, "\xe2\x82\xac", 4);
        struct audit_entry entry = { text, text, text, true, text };
        OK(run(store, append, &entry));
        struct page page = rows_after(shift, 1);
        memcpy(expected, text, sizeof(text));
        expected[shift + (STORE_ACTOR_MAX - 1 - shift) / 3 * 3] = '\0';
        cr_assert_str_eq(page.rows[0].actor, expected);
        cr_assert_str_eq(page.rows[0].action, expected);
        cr_assert_str_eq(page.rows[0].target, expected);
        memcpy(expected, text, sizeof(text));
        expected[shift + (STORE_TEXT_MAX - 1 - shift) / 3 * 3] = '\0';
        cr_assert_str_eq(page.rows[0].detail, expected);
    }
    cr_assert_eq(verify(), 0);
}

Test(store_audit, odd_texts_are_only_texts)
{
    struct audit_entry entry = { "'; DROP TABLE audit; --", "\"\n\t%s%n", "\xff\xfe", true,
                                 "?1, ?2) --'\\" };
    OK(run(store, append, &entry));
    struct page page = rows_after(0, 16);
    cr_assert_str_eq(page.rows[0].actor, entry.actor);
    cr_assert_str_eq(page.rows[0].action, entry.action);
    cr_assert_str_eq(page.rows[0].target, "??", "not UTF-8");
    cr_assert_str_eq(page.rows[0].detail, entry.detail);
    cr_assert_eq(verify(), 0);
}

static int append_and_fail(struct store_tx *tx, void *detail, struct err *error)
{
    cr_assert_eq(append_audit(tx, detail, error), 0);
    cr_assert_eq(append_audit(tx, detail, error), 0);
    return err_set(error, ERR_DENIED, "undo this");
}

Test(store_audit, an_undone_job_leaves_no_hole)
{
    append_some(2);
    FAILS(run(store, append_and_fail, WORDS("x")), ERR_DENIED);
    append_some(2);
    cr_assert_eq(rows_after(0, 16).count, 4);
    cr_assert_eq(verify(), 0);
}

Test(store_audit, the_database_itself_forbids_changes)
{
    append_some(2);
    sqlite3 *db = NULL;
    cr_assert_eq(sqlite3_open(db_path, &db), SQLITE_OK);
    cr_expect_eq(sqlite3_exec(db, "UPDATE audit SET allowed = 0", NULL, NULL, NULL),
                 SQLITE_CONSTRAINT);
    cr_expect_eq(sqlite3_exec(db, "DELETE FROM audit WHERE seq = 2", NULL, NULL, NULL),
                 SQLITE_CONSTRAINT);
    cr_assert_eq(sqlite3_close(db), SQLITE_OK);
    cr_assert_eq(verify(), 0);
}

/* Changes the file behind the store's back and opens it again. */
static void tamper(const char *sql)
{
    append_some(6);
    (void)raw(NO_TRIGGERS);
    (void)raw(sql);
    store_free(store);
    store = open_store(NULL);
}

Test(store_audit, an_edited_row_shows)
{
    static const char *const edits[] = {
        "UPDATE audit SET allowed = 0 WHERE seq = 3",
        "UPDATE audit SET actor = 'client/eve' WHERE seq = 3",
        "UPDATE audit SET action = 'ls' WHERE seq = 3",
        "UPDATE audit SET target = 'web-2' WHERE seq = 3",
        "UPDATE audit SET detail = '' WHERE seq = 3",
        "UPDATE audit SET time_ms = time_ms + 1 WHERE seq = 3",
        "UPDATE audit SET hash = zeroblob(32) WHERE seq = 3",
    };
    for (unsigned i = 0; i < ELEMENTS(edits); i++) {
        tamper(edits[i]);
        cr_expect_eq(verify(), 3, "%s", edits[i]);
        store_free(store);
        cr_assert_eq(unlink(db_path), 0);
        store = open_store(NULL);
    }
}

Test(store_audit, a_removed_row_shows)
{
    tamper("DELETE FROM audit WHERE seq = 4");
    cr_assert_eq(verify(), 4);
    cr_assert_not(store_audit_broken(store), "its end is as it was");
}

Test(store_audit, swapped_rows_show)
{
    tamper("UPDATE audit SET seq = 99 WHERE seq = 2; UPDATE audit SET seq = 2 WHERE seq = 3;"
           "UPDATE audit SET seq = 3 WHERE seq = 99");
    cr_assert_eq(verify(), 2);
}

Test(store_audit, a_removed_end_shows_at_once_and_for_ever)
{
    tamper("DELETE FROM audit WHERE seq > 4");
    cr_assert(store_audit_broken(store));
    cr_assert_eq(verify(), 5);
    append_some(1);
    struct page page = rows_after(4, 16);
    cr_assert_eq(page.count, 1);
    cr_assert_eq(page.rows[0].seq, 7, "a row fills no hole");
    cr_assert_eq(verify(), 5);
}

Test(store_audit, an_edited_end_shows_at_once)
{
    tamper("UPDATE audit SET hash = zeroblob(32) WHERE seq = 6");
    cr_assert(store_audit_broken(store));
}

Test(store_audit, an_emptied_audit_shows_at_once)
{
    tamper("DELETE FROM audit");
    cr_assert(store_audit_broken(store));
    cr_assert_eq(verify(), 1);
}

Test(store_audit, a_row_from_elsewhere_shows_and_stops_the_audit)
{
    tamper("INSERT INTO audit SELECT 7, time_ms, actor, action, target, allowed, detail, hash"
           " FROM audit WHERE seq = 6");
    cr_assert(store_audit_broken(store));
    FAILS(run(store, append_audit, WORDS("x")), ERR_PRECONDITION);
    cr_assert_eq(verify(), 7);
}

Test(store_audit, missing_notes_show_and_stop_the_audit)
{
    tamper("DELETE FROM notes");
    cr_assert(store_audit_broken(store));
    FAILS(run(store, append_audit, WORDS("x")), ERR_PRECONDITION);
    FAILS(run(store, read_head, &(struct head){ 0 }), ERR_PRECONDITION);
}

/* A text behind a NUL would be in no hash, and one too long in no row. */
Test(store_audit, a_row_that_cannot_be_ours_is_an_error_and_not_a_row)
{
    static const char *const edits[] = {
        "UPDATE audit SET detail = detail || char(0) || 'hidden' WHERE seq = 3",
        "UPDATE audit SET actor = hex(zeroblob(300)) WHERE seq = 3",
        "UPDATE audit SET hash = zeroblob(31) WHERE seq = 3",
    };
    for (unsigned i = 0; i < ELEMENTS(edits); i++) {
        tamper(edits[i]);
        struct page page = { .max = 16 };
        FAILS(run(store, read_page, &page), ERR_PRECONDITION);
        store_free(store);
        cr_assert_eq(unlink(db_path), 0);
        store = open_store(NULL);
    }
}
