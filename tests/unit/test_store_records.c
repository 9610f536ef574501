/* Tokens, sandboxes, events and clients: what is put comes back as it was, with the largest values
 * that fit and with texts that would be SQL. */
#include "store_fixture.h"

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
TestSuite(store_records, .init = set_up, .fini = tear_down, .timeout = 60);

/* Each test is one job: its body is the test. */
#define JOB_TEST(name)                                                                             \
    static int name##_job(struct store_tx *tx, void *userdata, struct err *error);                 \
    Test(store_records, name)                                                                      \
    {                                                                                              \
        OK(run(store, name##_job, NULL));                                                          \
    }                                                                                              \
    static int name##_job(struct store_tx *tx, __attribute__((unused)) void *userdata,             \
                          __attribute__((unused)) struct err *error)

/* Values that fill their fields, are empty, or would be SQL. Records are compared whole, so they
 * begin as zeros. */
enum kind { KIND_LONGEST, KIND_EMPTY, KIND_SQL, KIND_COUNT };

static void text(enum kind kind, char *ret, size_t size)
{
    if (kind == KIND_LONGEST)
        memset(ret, 'z', size - 1);
    else if (kind == KIND_SQL)
        (void)snprintf(ret, size, "'; DROP TABLE clients; --\"%%s\x7f\n");
}
#define TEXT(kind, field) text((kind), (field), sizeof(field))

static int64_t number(enum kind kind, bool negative)
{
    return kind == KIND_LONGEST ? (negative ? INT64_MIN : INT64_MAX) : kind == KIND_EMPTY ? 0 : 42;
}

static struct token_record token_of(enum kind kind)
{
    struct token_record token = { .created_ms = number(kind, true),
                                  .expires_ms = number(kind, false),
                                  .revoked_ms = number(kind, true),
                                  .uses_max = kind == KIND_LONGEST ? UINT32_MAX : 0,
                                  .uses = kind == KIND_LONGEST ? UINT32_MAX : 0 };
    (void)snprintf(token.id, sizeof(token.id), "%s%d", kind == KIND_SQL ? "' OR 1=1" : "", kind);
    memset(token.hash, kind == KIND_EMPTY ? 0 : 0xff, sizeof(token.hash));
    TEXT(kind, token.sandbox_id);
    TEXT(kind, token.prefix);
    TEXT(kind, token.labels);
    TEXT(kind, token.created_by);
    return token;
}

static struct token_record plain_token(const char *id)
{
    struct token_record token = { .uses_max = 2, .created_ms = 10, .expires_ms = 1000 };
    (void)snprintf(token.id, sizeof(token.id), "%s", id);
    return token;
}

#define GOT(call)       cr_assert_eq((call), 0, "%s", err.text)
#define KEY(byte)       ((const uint8_t[STORE_KEY_LEN]){ (byte) })
#define TOKEN_LIST_ROOM 8

JOB_TEST(tokens_come_back_as_they_were)
{
    for (enum kind kind = 0; kind < KIND_COUNT; kind++) {
        struct token_record token = token_of(kind), got;
        memset(&got, 0, sizeof(got));
        GOT(store_token_put(tx, &token, &err));
        GOT(store_token_get(tx, token.id, &got, &err));
        cr_assert_str_eq(got.id, token.id);
        cr_assert_eq(memcmp(got.hash, token.hash, sizeof(got.hash)), 0);
        cr_assert_str_eq(got.sandbox_id, token.sandbox_id);
        cr_assert_str_eq(got.prefix, token.prefix);
        cr_assert_str_eq(got.labels, token.labels);
        cr_assert_str_eq(got.created_by, token.created_by);
        cr_assert_eq(got.uses_max, token.uses_max);
        cr_assert_eq(got.uses, token.uses);
        cr_assert_eq(got.created_ms, token.created_ms);
        cr_assert_eq(got.expires_ms, token.expires_ms);
        cr_assert_eq(got.revoked_ms, token.revoked_ms);
        FAILS(store_token_put(tx, &token, &err), ERR_EXISTS);
    }
    struct token_record untouched = { .uses = 7 };
    FAILS(store_token_get(tx, "none", &untouched, &err), ERR_NOT_FOUND);
    cr_assert_eq(untouched.uses, 7);
    return 0;
}

JOB_TEST(tokens_are_listed_newest_first_whatever_their_clock_says)
{
    struct token_record list[TOKEN_LIST_ROOM];
    unsigned count = 9;
    GOT(store_token_list(tx, "", list, TOKEN_LIST_ROOM, &count, &err));
    cr_assert_eq(count, 0);
    static const char *const ids[] = { "c", "a", "d", "b" };
    for (unsigned i = 0; i < ELEMENTS(ids); i++) {
        struct token_record token = plain_token(ids[i]);
        token.created_ms = 100 - i;
        GOT(store_token_put(tx, &token, &err));
    }
    GOT(store_token_list(tx, "", list, 3, &count, &err));
    cr_assert_eq(count, 3);
    cr_assert_str_eq(list[0].id, "b");
    cr_assert_str_eq(list[1].id, "d");
    cr_assert_str_eq(list[2].id, "a");
    GOT(store_token_list(tx, "a", list, 3, &count, &err));
    cr_assert_eq(count, 1);
    cr_assert_str_eq(list[0].id, "c");
    FAILS(store_token_list(tx, "gone", list, 3, &count, &err), ERR_NOT_FOUND);
    return 0;
}

JOB_TEST(a_token_is_revoked_once)
{
    struct token_record token = plain_token("t");
    GOT(store_token_put(tx, &token, &err));
    GOT(store_token_revoke(tx, "t", 5, &err));
    GOT(store_token_revoke(tx, "t", 6, &err));
    GOT(store_token_get(tx, "t", &token, &err));
    cr_assert_eq(token.revoked_ms, 5);
    FAILS(store_token_revoke(tx, "u", 5, &err), ERR_NOT_FOUND);
    return 0;
}

JOB_TEST(uses_of_a_token_are_counted_and_end)
{
    struct token_record token = plain_token("t");
    GOT(store_token_put(tx, &token, &err));
    char sandbox[SANDBOX_ID_MAX + 1] = "kept";
    int64_t when = 77;
    FAILS(store_token_used_by(tx, "t", KEY(1), sandbox, &when, &err), ERR_NOT_FOUND);
    cr_assert_str_eq(sandbox, "kept");
    GOT(store_token_use(tx, "t", KEY(1), "one", 11, &err));
    FAILS(store_token_use(tx, "t", KEY(1), "one-again", 12, &err), ERR_EXISTS);
    GOT(store_token_use(tx, "t", KEY(2), "two", 13, &err));
    FAILS(store_token_use(tx, "t", KEY(3), "three", 14, &err), ERR_EXHAUSTED);
    FAILS(store_token_use(tx, "u", KEY(3), "three", 14, &err), ERR_NOT_FOUND);
    GOT(store_token_get(tx, "t", &token, &err));
    cr_assert_eq(token.uses, 2);
    GOT(store_token_used_by(tx, "t", KEY(1), sandbox, &when, &err));
    cr_assert_str_eq(sandbox, "one");
    cr_assert_eq(when, 11);
    FAILS(store_token_used_by(tx, "t", KEY(3), sandbox, &when, &err), ERR_NOT_FOUND);
    cr_assert_str_eq(sandbox, "one", "a refused use is noted nowhere, even if the job goes on");
    FAILS(store_token_used_by(tx, "u", KEY(1), sandbox, &when, &err), ERR_NOT_FOUND);
    return 0;
}

JOB_TEST(tokens_that_ended_are_forgotten_with_their_uses)
{
    struct token_record expired = plain_token("expired"), revoked = plain_token("revoked"),
                        late = plain_token("late"), used = plain_token("used"), got;
    late.expires_ms = revoked.expires_ms = used.expires_ms = 2000;
    revoked.revoked_ms = 900;
    used.uses_max = 1;
    struct token_record *const all[] = { &expired, &revoked, &late, &used };
    for (unsigned i = 0; i < ELEMENTS(all); i++) {
        GOT(store_token_put(tx, all[i], &err));
        GOT(store_token_use(tx, all[i]->id, KEY(9), "s", 1, &err));
    }
    GOT(store_token_prune(tx, 1000, &err));
    GOT(store_token_get(tx, "expired", &got, &err));
    FAILS(store_token_get(tx, "revoked", &got, &err), ERR_NOT_FOUND);
    GOT(store_token_prune(tx, 1001, &err));
    FAILS(store_token_get(tx, "expired", &got, &err), ERR_NOT_FOUND);
    GOT(store_token_get(tx, "late", &got, &err));
    GOT(store_token_get(tx, "used", &got, &err));
    char sandbox[SANDBOX_ID_MAX + 1];
    int64_t when;
    FAILS(store_token_used_by(tx, "expired", KEY(9), sandbox, &when, &err), ERR_NOT_FOUND);
    GOT(store_token_used_by(tx, "late", KEY(9), sandbox, &when, &err));
    return 0;
}

static struct sandbox_record sandbox_of(enum kind kind)
{
    struct sandbox_record sandbox = { .enrolled_ms = number(kind, true),
                                      .revoked_ms = number(kind, false) };
    TEXT(kind, sandbox.id);
    TEXT(kind, sandbox.labels);
    TEXT(kind, sandbox.token_id);
    memset(sandbox.key, kind == KIND_EMPTY ? 0 : 0xff, sizeof(sandbox.key));
    return sandbox;
}

static void expect_sandbox(const struct sandbox_record *got, const struct sandbox_record *wanted)
{
    cr_assert_str_eq(got->id, wanted->id);
    cr_assert_str_eq(got->labels, wanted->labels);
    cr_assert_str_eq(got->token_id, wanted->token_id);
    cr_assert_eq(memcmp(got->key, wanted->key, sizeof(got->key)), 0);
    cr_assert_eq(got->enrolled_ms, wanted->enrolled_ms);
    cr_assert_eq(got->revoked_ms, wanted->revoked_ms);
}

JOB_TEST(sandboxes_come_back_as_they_were_and_are_replaced)
{
    struct sandbox_record got;
    unsigned count = 0;
    for (enum kind kind = 0; kind < KIND_COUNT; kind++) {
        struct sandbox_record sandbox = sandbox_of(kind);
        GOT(store_sandbox_put(tx, &sandbox, &err));
        GOT(store_sandbox_get(tx, sandbox.id, &got, &err));
        expect_sandbox(&got, &sandbox);
        struct sandbox_record other = sandbox_of((kind + 1) % KIND_COUNT);
        memcpy(other.id, sandbox.id, sizeof(other.id));
        GOT(store_sandbox_put(tx, &other, &err));
        GOT(store_sandbox_get(tx, sandbox.id, &got, &err));
        expect_sandbox(&got, &other);
        GOT(store_sandbox_count(tx, &count, &err));
        cr_assert_eq(count, kind + 1u);
    }
    FAILS(store_sandbox_get(tx, "none", &got, &err), ERR_NOT_FOUND);
    return 0;
}

JOB_TEST(a_sandbox_is_revoked_once)
{
    struct sandbox_record sandbox = { .id = "s" };
    GOT(store_sandbox_put(tx, &sandbox, &err));
    GOT(store_sandbox_revoke(tx, "s", 5, &err));
    GOT(store_sandbox_revoke(tx, "s", 6, &err));
    GOT(store_sandbox_get(tx, "s", &sandbox, &err));
    cr_assert_eq(sandbox.revoked_ms, 5);
    FAILS(store_sandbox_revoke(tx, "t", 5, &err), ERR_NOT_FOUND);
    return 0;
}

static char walked[16];

static int walk(void *userdata, const struct sandbox_record *sandbox, struct err *error)
{
    (void)strcat(walked, sandbox->id);
    return strcmp(sandbox->id, userdata) == 0 ? err_set(error, ERR_CANCELLED, "enough") : 0;
}

JOB_TEST(the_walk_begins_with_the_greatest_and_can_be_ended)
{
    static const char *const ids[] = { "c", "a", "b" };
    for (unsigned i = 0; i < ELEMENTS(ids); i++) {
        struct sandbox_record sandbox = { 0 };
        (void)snprintf(sandbox.id, sizeof(sandbox.id), "%s", ids[i]);
        GOT(store_sandbox_put(tx, &sandbox, &err));
    }
    GOT(store_sandbox_each(tx, walk, WORDS(""), &err));
    cr_assert_str_eq(walked, "cba");
    walked[0] = '\0';
    FAILS(store_sandbox_each(tx, walk, WORDS("b"), &err), ERR_CANCELLED);
    cr_assert_str_eq(walked, "cb");
    return 0;
}

JOB_TEST(events_are_the_newest_of_each_sandbox_oldest_first)
{
    struct sandbox_record sandboxes[] = { { .id = "a" }, { .id = "b" } };
    GOT(store_sandbox_put(tx, &sandboxes[0], &err));
    GOT(store_sandbox_put(tx, &sandboxes[1], &err));
    struct event_record event = { .kind = "joined" }, got[STORE_EVENTS_MAX + 8];
    unsigned count = 9;
    GOT(store_event_list(tx, "a", got, ELEMENTS(got), &count, &err));
    cr_assert_eq(count, 0);
    for (unsigned i = 0; i < 100; i++) {
        event.time_ms = -(int64_t)i;
        (void)snprintf(event.detail, sizeof(event.detail), "%u", i);
        GOT(store_event_put(tx, "a", &event, &err));
        if (i < 3)
            GOT(store_event_put(tx, "b", &event, &err));
        GOT(store_event_list(tx, "a", got, ELEMENTS(got), &count, &err));
        cr_assert_eq(count, MIN(i + 1, STORE_EVENTS_MAX));
        for (unsigned j = 0; j < count; j++)
            cr_assert_eq((unsigned)atoi(got[j].detail), i + 1 - count + j);
    }
    GOT(store_event_list(tx, "a", got, 2, &count, &err));
    cr_assert_eq(count, 2);
    cr_assert_str_eq(got[1].detail, "99");
    cr_assert_eq(got[1].time_ms, -99);
    GOT(store_event_list(tx, "b", got, ELEMENTS(got), &count, &err));
    cr_assert_eq(count, 3);
    FAILS(store_event_put(tx, "stranger", &event, &err), ERR_NOT_FOUND);
    GOT(store_sandbox_put(tx, &sandboxes[1], &err));
    GOT(store_event_list(tx, "b", got, ELEMENTS(got), &count, &err));
    cr_assert_eq(count, 3, "replacing a sandbox keeps its events");
    return 0;
}

JOB_TEST(events_come_back_as_they_were)
{
    for (enum kind kind = 0; kind < KIND_COUNT; kind++) {
        struct sandbox_record sandbox = sandbox_of(kind);
        struct event_record event = { .time_ms = number(kind, true) }, got;
        unsigned count = 0;
        TEXT(kind, event.kind);
        TEXT(kind, event.detail);
        GOT(store_sandbox_put(tx, &sandbox, &err));
        GOT(store_event_put(tx, sandbox.id, &event, &err));
        GOT(store_event_list(tx, sandbox.id, &got, 1, &count, &err));
        cr_assert_eq(count, 1);
        cr_assert_str_eq(got.kind, event.kind);
        cr_assert_str_eq(got.detail, event.detail);
        cr_assert_eq(got.time_ms, event.time_ms);
    }
    return 0;
}

static struct client_record client_of(enum kind kind)
{
    struct client_record client = { .role = kind == KIND_LONGEST ? INT32_MAX : (int)kind - 1,
                                    .has_key = kind != KIND_EMPTY,
                                    .created_ms = number(kind, true),
                                    .last_login_ms = number(kind, false),
                                    .revoked_ms = number(kind, true),
                                    .login_expires_ms = number(kind, false) };
    TEXT(kind, client.name);
    TEXT(kind, client.scope);
    TEXT(kind, client.created_by);
    TEXT(kind, client.login_id);
    memset(client.key, kind == KIND_EMPTY ? 0 : 0xff, sizeof(client.key));
    memset(client.login_hash, kind == KIND_EMPTY ? 0 : 0xee, sizeof(client.login_hash));
    return client;
}

static void expect_client(const struct client_record *got, const struct client_record *wanted)
{
    cr_assert_str_eq(got->name, wanted->name);
    cr_assert_eq(got->role, wanted->role);
    cr_assert_str_eq(got->scope, wanted->scope);
    cr_assert_eq(got->has_key, wanted->has_key);
    cr_assert_eq(memcmp(got->key, wanted->key, sizeof(got->key)), 0);
    cr_assert_eq(got->created_ms, wanted->created_ms);
    cr_assert_eq(got->last_login_ms, wanted->last_login_ms);
    cr_assert_eq(got->revoked_ms, wanted->revoked_ms);
    cr_assert_str_eq(got->created_by, wanted->created_by);
    cr_assert_str_eq(got->login_id, wanted->login_id);
    cr_assert_eq(memcmp(got->login_hash, wanted->login_hash, sizeof(got->login_hash)), 0);
    cr_assert_eq(got->login_expires_ms, wanted->login_expires_ms);
}

JOB_TEST(clients_come_back_as_they_were_and_are_replaced)
{
    struct client_record got;
    for (enum kind kind = 0; kind < KIND_COUNT; kind++) {
        struct client_record client = client_of(kind);
        GOT(store_client_put(tx, &client, &err));
        GOT(store_client_get(tx, client.name, &got, &err));
        expect_client(&got, &client);
    }
    struct client_record client = client_of(KIND_LONGEST), other = client_of(KIND_EMPTY);
    memcpy(other.name, client.name, sizeof(other.name));
    GOT(store_client_put(tx, &other, &err));
    GOT(store_client_get(tx, other.name, &got, &err));
    expect_client(&got, &other);
    FAILS(store_client_get(tx, "none", &got, &err), ERR_NOT_FOUND);
    return 0;
}

JOB_TEST(a_login_key_finds_its_client_and_no_other)
{
    struct client_record clients[] = { { .name = "a", .login_id = "111" },
                                       { .name = "b", .login_id = "" },
                                       { .name = "c", .login_id = "" } };
    for (unsigned i = 0; i < ELEMENTS(clients); i++)
        GOT(store_client_put(tx, &clients[i], &err));
    struct client_record got;
    GOT(store_client_by_login(tx, "111", &got, &err));
    expect_client(&got, &clients[0]);
    FAILS(store_client_by_login(tx, "", &got, &err), ERR_NOT_FOUND);
    FAILS(store_client_by_login(tx, "222", &got, &err), ERR_NOT_FOUND);
    struct client_record thieves[] = { { .name = "b", .login_id = "111" },
                                       { .name = "new", .login_id = "111" } };
    FAILS(store_client_put(tx, &thieves[0], &err), ERR_EXISTS);
    FAILS(store_client_put(tx, &thieves[1], &err), ERR_EXISTS);
    GOT(store_client_by_login(tx, "111", &got, &err));
    cr_assert_str_eq(got.name, "a");
    return 0;
}

JOB_TEST(clients_are_listed_by_name)
{
    static const char *const names[] = { "carol", "Bob", "alice" };
    for (unsigned i = 0; i < ELEMENTS(names); i++) {
        struct client_record client = { 0 };
        (void)snprintf(client.name, sizeof(client.name), "%s", names[i]);
        GOT(store_client_put(tx, &client, &err));
    }
    struct client_record list[4];
    unsigned count = 0;
    GOT(store_client_list(tx, "", list, 2, &count, &err));
    cr_assert_eq(count, 2);
    cr_assert_str_eq(list[0].name, "Bob");
    cr_assert_str_eq(list[1].name, "alice");
    GOT(store_client_list(tx, "alice", list, 4, &count, &err));
    cr_assert_eq(count, 1);
    cr_assert_str_eq(list[0].name, "carol");
    GOT(store_client_list(tx, "carol", list, 4, &count, &err));
    cr_assert_eq(count, 0);
    return 0;
}
