/* What a repair saves of a damaged database, what it refuses to go on without, and that whatever it
 * does not understand stays as it was. */
#include "store_fixture.h"

#include "disk_steps.h"

#include "common/file.h"
#include "orchestrator/store_tools.h"

#define ROWS      2000u
#define SANDBOXES 300u
#define PAGE      4096
#define FILE_MAX  (1u << 24)

static char kept[STORE_KEPT_MAX];
static struct store_salvage shown[64];
static char names[64][32];
static unsigned shown_count;

static int put_records(struct store_tx *tx, void *userdata, struct err *error)
{
    (void)userdata;
    struct client_record client = { .name = "admin" };
    struct event_record event = { .kind = "joined" };
    if (store_client_put(tx, &client, error) < 0)
        return -1;
    for (unsigned i = 0; i < SANDBOXES; i++) {
        struct sandbox_record sandbox = { 0 };
        (void)snprintf(sandbox.id, sizeof(sandbox.id), "sandbox-%u", i);
        if (store_sandbox_put(tx, &sandbox, error) < 0 ||
            store_event_put(tx, sandbox.id, &event, error) < 0)
            return -1;
    }
    return 0;
}

static int put_rows(struct store_tx *tx, void *detail, struct err *error)
{
    for (unsigned i = 0; i < ROWS; i++)
        if (append_audit(tx, detail, error) < 0)
            return -1;
    return 0;
}

static void set_up(void)
{
    make_directory();
    struct store *store = open_store(NULL);
    OK(run(store, put_records, NULL));
    OK(run(store, put_rows, WORDS("detail")));
    store_free(store);
}

/* cppcheck-suppress unknownMacro */
TestSuite(store_repair, .init = set_up, .fini = remove_directory, .timeout = 120);

static void show(void *userdata, const struct store_salvage *salvage)
{
    (void)userdata;
    (void)snprintf(names[shown_count], sizeof(names[0]), "%s", salvage->table);
    shown[shown_count] = *salvage;
    shown[shown_count].table = names[shown_count];
    shown_count++;
}

static int repair(bool *ret_needed)
{
    shown_count = 0;
    return store_repair(directory, show, NULL, ret_needed, kept, &err);
}

static void must_repair(void)
{
    bool needed = false;
    OK(repair(&needed));
    cr_assert(needed);
}

static const struct store_salvage *table(const char *name)
{
    for (unsigned i = 0; i < shown_count; i++)
        if (strcmp(shown[i].table, name) == 0)
            return &shown[i];
    cr_assert_fail("nothing was said about %s", name);
    return NULL;
}

static void expect_whole(const char *name, unsigned rows)
{
    const struct store_salvage *salvage = table(name);
    cr_assert_eq(salvage->copied, rows, "%s: %u", name, (unsigned)salvage->copied);
    cr_assert_eq(salvage->left_out, 0);
    cr_assert_eq(salvage->missing, 0);
    cr_assert_not(salvage->cut_short, "%s", name);
}

static char *read_all(const char *path, size_t *ret_size)
{
    char *data = NULL;
    OK(file_read(path, FILE_MAX, &data, ret_size, &err));
    return data;
}

static void spoil(int64_t page, int byte)
{
    char noise[PAGE];
    memset(noise, byte, sizeof(noise));
    int fd = open(db_path, O_RDWR | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    cr_assert_gt(page, 1);
    cr_assert_eq(pwrite(fd, noise, sizeof(noise), (page - 1) * PAGE), PAGE);
    cr_assert_eq(close(fd), 0);
}

/* The n-th leaf of a table or an index. */
static int64_t leaf(const char *name, unsigned n)
{
    char sql[160];
    (void)snprintf(sql, sizeof(sql),
                   "SELECT pageno FROM dbstat WHERE name = '%s' AND pagetype = 'leaf'"
                   " ORDER BY path LIMIT 1 OFFSET %u",
                   name, n);
    return raw(sql);
}

static int64_t root(const char *name)
{
    char sql[160];
    (void)snprintf(sql, sizeof(sql), "SELECT rootpage FROM sqlite_schema WHERE name = '%s'", name);
    return raw(sql);
}

static void expect_opens(void)
{
    struct store *store = open_store(NULL);
    cr_assert_not(store_is_new(store));
    OK(run(store, append_audit, WORDS("after")));
    store_free(store);
}

/* Damaged, refused with words of what to do, and as it was. */
static void expect_refused_as_it_is(void)
{
    struct store *store = NULL;
    FAILS(store_open(directory, NULL, &store, &err), ERR_PRECONDITION);
    cr_assert(strstr(err.text, "sandstorm-orchestrator restore FILE"), "%s", err.text);
    cr_assert(strstr(err.text, "sandstorm-orchestrator repair"), "%s", err.text);
}

static void expect_unrepairable(const char *words)
{
    size_t before_size = 0, after_size = 0;
    CLEANUP_FREE char *before = read_all(db_path, &before_size);
    bool needed = false;
    FAILS(repair(&needed), ERR_PRECONDITION);
    cr_assert(strstr(err.text, words), "%s", err.text);
    CLEANUP_FREE char *after = read_all(db_path, &after_size);
    cr_assert_eq(before_size, after_size);
    cr_assert_eq(memcmp(before, after, after_size), 0);
    char path[96];
    (void)snprintf(path, sizeof(path), "%s.repairing", db_path);
    cr_assert_neq(access(path, F_OK), 0);
}

Test(store_repair, leaves_alone_what_is_not_damaged)
{
    size_t before_size = 0, after_size = 0;
    CLEANUP_FREE char *before = read_all(db_path, &before_size);
    bool needed = true;
    OK(repair(&needed));
    cr_assert_not(needed);
    CLEANUP_FREE char *after = read_all(db_path, &after_size);
    cr_assert_eq(before_size, after_size);
    cr_assert_eq(memcmp(before, after, after_size), 0);
}

Test(store_repair, is_refused_while_an_orchestrator_runs)
{
    struct store *store = open_store(NULL);
    bool needed = false;
    FAILS(repair(&needed), ERR_PRECONDITION);
    store_free(store);
}

/* Three leaves of many, two of them side by side: what is around them is saved. */
Test(store_repair, saves_all_rows_but_those_of_the_lost_pages)
{
    const int64_t lost[] = { leaf("audit", 5), leaf("audit", 6), leaf("audit", 20) };
    for (size_t i = 0; i < ELEMENTS(lost); i++)
        spoil(lost[i], 0x5a);
    expect_refused_as_it_is();
    size_t before_size = 0, after_size = 0;
    CLEANUP_FREE char *before = read_all(db_path, &before_size);
    must_repair();
    const struct store_salvage *audit = table("audit");
    cr_assert(audit->cut_short);
    cr_assert_lt(audit->copied, ROWS);
    cr_assert_gt(audit->copied, ROWS - 3 * 60, "%u", (unsigned)audit->copied);
    expect_whole("clients", 1);
    expect_whole("sandboxes", SANDBOXES);
    expect_whole("events", SANDBOXES);
    char path[STORE_KEPT_MAX + 64];
    (void)snprintf(path, sizeof(path), "%s/%s", directory, kept);
    CLEANUP_FREE char *after = read_all(path, &after_size);
    cr_assert_eq(before_size, after_size);
    cr_assert_eq(memcmp(before, after, after_size), 0, "the damaged one was changed");
    expect_opens();
    cr_assert_eq(raw("SELECT count(*) FROM audit WHERE action = 'store.repair'"), 1);
    cr_assert_eq(raw("SELECT max(seq) FROM audit"), ROWS + 2, "the holes are seen");
    cr_assert_eq(raw("SELECT count(*) FROM audit"), (int64_t)audit->copied + 2);
}

Test(store_repair, makes_a_damaged_index_again_and_loses_nothing)
{
    spoil(leaf("sqlite_autoindex_sandboxes_1", 0), 0x5a);
    expect_refused_as_it_is();
    must_repair();
    expect_whole("sandboxes", SANDBOXES);
    expect_whole("events", SANDBOXES);
    expect_whole("audit", ROWS);
    expect_opens();
}

Test(store_repair, leaves_out_what_belongs_to_nothing)
{
    (void)raw("PRAGMA foreign_keys = OFF; DELETE FROM sandboxes WHERE id = 'sandbox-7'");
    expect_refused_as_it_is();
    must_repair();
    cr_assert_eq(table("events")->left_out, 1);
    cr_assert_eq(table("events")->copied, SANDBOXES - 1);
    expect_opens();
}

Test(store_repair, goes_on_with_the_last_row_when_the_note_of_it_is_lost)
{
    spoil(root("notes"), 0x5a);
    must_repair();
    cr_assert(table("notes")->cut_short);
    expect_whole("audit", ROWS);
    struct store *store = open_store(NULL);
    cr_assert_not(store_audit_broken(store));
    store_free(store);
}

Test(store_repair, is_refused_where_the_clients_or_the_sandboxes_are_lost)
{
    size_t size = 0;
    CLEANUP_FREE char *whole = read_all(db_path, &size);
    static const char *const essential[] = { "clients", "sandboxes" };
    for (size_t i = 0; i < ELEMENTS(essential); i++) {
        spoil(root(essential[i]), 0x5a);
        expect_unrepairable(essential[i]);
        cr_assert_eq(table(essential[i])->copied, 0);
        OK(file_write_atomic(db_path, whole, size, 0600, &err));
    }
}

/* An empty page is a well-formed table; the index knows better. */
Test(store_repair, is_refused_where_a_table_only_looks_empty)
{
    static const unsigned char empty_leaf[] = { 13, 0, 0, 0, 0, 0x10, 0, 0 };
    int64_t page = root("sandboxes");
    spoil(page, 0);
    int fd = open(db_path, O_RDWR | O_CLOEXEC);
    cr_assert_eq(pwrite(fd, empty_leaf, sizeof(empty_leaf), (page - 1) * PAGE),
                 (ssize_t)sizeof(empty_leaf));
    cr_assert_eq(close(fd), 0);
    expect_refused_as_it_is();
    expect_unrepairable("sandboxes");
}

Test(store_repair, is_refused_where_nothing_can_be_read)
{
    int fd = open(db_path, O_RDWR | O_CLOEXEC);
    char noise[PAGE];
    memset(noise, 0x5a, sizeof(noise));
    cr_assert_eq(pwrite(fd, noise, sizeof(noise), 0), PAGE);
    cr_assert_eq(close(fd), 0);
    expect_unrepairable("nothing was changed");
}

Test(store_repair, is_refused_where_there_is_nothing_or_something_else)
{
    bool needed = false;
    cr_assert_eq(unlink(db_path), 0);
    FAILS(repair(&needed), ERR_NOT_FOUND);
    cr_assert_eq(raw("CREATE TABLE diary(day)"), -1);
    expect_unrepairable("not a database of the orchestrator");
}

/* Rows that are only in the log are saved, and the log is kept beside the damaged file. */
Test(store_repair, reads_the_log_and_keeps_it)
{
    int64_t lost = leaf("audit", 5);
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        struct store *store = open_store(NULL);
        OK(run(store, append_audit, WORDS("in the log")));
        _exit(0); /* as a kill would leave it */
    }
    cr_assert_eq(waitpid(child, NULL, 0), child);
    spoil(lost, 0x5a);
    must_repair();
    char path[STORE_KEPT_MAX + 64];
    (void)snprintf(path, sizeof(path), "%s/%s-wal", directory, kept);
    cr_assert_eq(access(path, F_OK), 0);
    (void)snprintf(path, sizeof(path), "%s-wal", db_path);
    cr_assert_neq(access(path, F_OK), 0);
    expect_opens();
    cr_assert_eq(raw("SELECT count(*) FROM audit WHERE detail = 'in the log'"), 1);
}

static void repair_quietly(void)
{
    bool needed = false;
    if (repair(&needed) < 0)
        _exit(1);
}

Test(store_repair, that_was_killed_is_finished_by_the_next)
{
    spoil(leaf("audit", 5), 0x5a);
    size_t size = 0;
    CLEANUP_FREE char *damaged = read_all(db_path, &size);
    bool killed = true;
    for (unsigned n = 1; killed; n++) {
        killed = run_and_kill(repair_quietly, n);
        /* The file is the damaged one, or missing, or the new one: never an empty one. */
        struct stat st;
        if (stat(db_path, &st) == 0)
            cr_assert_gt(st.st_size, 100000);
        bool needed = false;
        OK(repair(&needed));
        expect_opens();
        cr_assert_eq(raw("SELECT count(*) FROM sandboxes"), SANDBOXES);
        char command[128];
        (void)snprintf(command, sizeof(command), "rm -f %s*", db_path);
        cr_assert_eq(system(command), 0);
        OK(file_write_atomic(db_path, damaged, size, 0600, &err));
    }
}
