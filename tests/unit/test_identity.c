/* Identities: which URIs are somebody, and that each has one spelling only. The property tests
 * compare with a regular expression, which is too slow and too terse for the product. */
#include "common/identity.h"

#include <criterion/criterion.h>
#include <regex.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define DNS_LABEL   "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
#define CLIENT_NAME "[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
#define MODEL                                                                                      \
    "^spiffe://" DNS_LABEL "(\\." DNS_LABEL ")*/(agent/" DNS_LABEL "|client/" CLIENT_NAME ")$"

#define TEN    "abcdefghij"
#define SIXTY  TEN TEN TEN TEN TEN TEN
#define L63    SIXTY "abc"
#define D127   L63 "." L63
#define LONG_A SIXTY SIXTY SIXTY SIXTY SIXTY

struct good {
    const char *uri;
    enum identity_kind kind;
    const char *trust_domain;
    const char *name;
};

static const struct good goods[] = {
    { "spiffe://example.com/agent/web-1", IDENTITY_AGENT, "example.com", "web-1" },
    { "spiffe://example.com/client/alice", IDENTITY_CLIENT, "example.com", "alice" },
    { "spiffe://example.com/client/Ali_ce.B-2", IDENTITY_CLIENT, "example.com", "Ali_ce.B-2" },
    { "spiffe://a/agent/b", IDENTITY_AGENT, "a", "b" },
    { "spiffe://0/client/1", IDENTITY_CLIENT, "0", "1" },
    { "spiffe://a--b.c-d/agent/e--f", IDENTITY_AGENT, "a--b.c-d", "e--f" },
    { "spiffe://agent/agent/agent", IDENTITY_AGENT, "agent", "agent" },
    { "spiffe://" D127 "/client/" L63, IDENTITY_CLIENT, D127, L63 },
    { "spiffe://" D127 "/agent/" L63, IDENTITY_AGENT, D127, L63 },
};

static const char *const bads[] = {
    "",
    "s",
    "spiffe",
    "spiffe:",
    "spiffe:/",
    "spiffe://",
    "spiffe:///",
    "spiffe:////",
    /* Another scheme, or the right one spelled otherwise. */
    "https://example.com/agent/web-1",
    "SPIFFE://example.com/agent/web-1",
    "Spiffe://example.com/agent/web-1",
    "spiffe:example.com/agent/web-1",
    "spiffe:/example.com/agent/web-1",
    "spiffe:///example.com/agent/web-1",
    " spiffe://example.com/agent/web-1",
    "xspiffe://example.com/agent/web-1",
    "//example.com/agent/web-1",
    "example.com/agent/web-1",
    /* Too little. */
    "spiffe://example.com",
    "spiffe://example.com/",
    "spiffe://example.com/agent",
    "spiffe://example.com/agent/",
    "spiffe://example.com/client",
    "spiffe://example.com/client/",
    "spiffe:///agent/web-1",
    "spiffe://example.com//web-1",
    "spiffe://example.com//agent/web-1",
    "spiffe://example.com/agent//web-1",
    /* Too much. */
    "spiffe://example.com/agent/web-1/",
    "spiffe://example.com/agent/web-1//",
    "spiffe://example.com/agent/web-1/x",
    "spiffe://example.com/x/agent/web-1",
    "spiffe://example.com/agent/client/web-1",
    "spiffe://example.com/client/alice/agent/web-1",
    "spiffe://example.com/client/alice/",
    "spiffe://example.com/agent/../client/alice",
    "spiffe://example.com/agent/.",
    "spiffe://example.com/agent/..",
    "spiffe://example.com/client/.",
    "spiffe://example.com/client/..",
    "spiffe://example.com/agent/web-1?",
    "spiffe://example.com/agent/web-1?a=b",
    "spiffe://example.com/agent/web-1#",
    "spiffe://example.com/agent/web-1#top",
    "spiffe://example.com?/agent/web-1",
    "spiffe://example.com#/agent/web-1",
    "spiffe://example.com:/agent/web-1",
    "spiffe://example.com:5000/agent/web-1",
    "spiffe://root@example.com/agent/web-1",
    "spiffe://root:secret@example.com/agent/web-1",
    "spiffe://@example.com/agent/web-1",
    "spiffe://[::1]/agent/web-1",
    /* Kinds that are none. */
    "spiffe://example.com/none/web-1",
    "spiffe://example.com/admin/web-1",
    "spiffe://example.com/Agent/web-1",
    "spiffe://example.com/AGENT/web-1",
    "spiffe://example.com/agents/web-1",
    "spiffe://example.com/agen/web-1",
    "spiffe://example.com/agentweb-1",
    "spiffe://example.com/%61gent/web-1",
    /* Trust domains. */
    "spiffe://Example.com/agent/web-1",
    "spiffe://example.COM/agent/web-1",
    "spiffe://example_1.com/agent/web-1",
    "spiffe://example.com./agent/web-1",
    "spiffe://.example.com/agent/web-1",
    "spiffe://example..com/agent/web-1",
    "spiffe://./agent/web-1",
    "spiffe://-example.com/agent/web-1",
    "spiffe://example-.com/agent/web-1",
    "spiffe://example.com-/agent/web-1",
    "spiffe://exa mple.com/agent/web-1",
    "spiffe://ex%61mple.com/agent/web-1",
    "spiffe://*.example.com/agent/web-1",
    "spiffe://ex\xc3\xa4mple.com/agent/web-1",
    "spiffe://" L63 "x/agent/web-1",
    "spiffe://" L63 ".x." L63 "/agent/web-1",
    /* Names. */
    "spiffe://example.com/agent/Web-1",
    "spiffe://example.com/agent/web_1",
    "spiffe://example.com/agent/web.1",
    "spiffe://example.com/agent/-web",
    "spiffe://example.com/agent/web-",
    "spiffe://example.com/agent/web%2d1",
    "spiffe://example.com/agent/web-1%00",
    "spiffe://example.com/agent/web-1\n",
    "spiffe://example.com/agent/web 1",
    "spiffe://example.com/agent/\xc3\xa4",
    "spiffe://example.com/client/_alice",
    "spiffe://example.com/client/alice.",
    "spiffe://example.com/client/ali%63e",
    "spiffe://example.com/client/ali+ce",
    "spiffe://example.com/agent/" L63 "x",
    "spiffe://example.com/client/" L63 "x",
    "spiffe://" D127 "/client/" L63 "x",
    /* Long. */
    "spiffe://example.com/agent/" LONG_A,
    "spiffe://" LONG_A "/agent/web-1",
    "spiffe://" SIXTY "." SIXTY "." SIXTY "." TEN TEN TEN "/agent/web-1",
    "spiffe://example.com/" LONG_A "/web-1",
    LONG_A LONG_A LONG_A,
};

Test(identity, parses_every_good_uri_and_writes_it_back)
{
    for (size_t i = 0; i < ELEMENTS(goods); i++) {
        const struct good *good = &goods[i];
        struct identity identity;
        struct err err = { 0 };
        cr_assert_eq(identity_parse(good->uri, &identity, &err), 0, "%s: %s", good->uri, err.text);
        cr_assert_eq(identity.kind, good->kind, "%s", good->uri);
        cr_assert_str_eq(identity.trust_domain, good->trust_domain);
        cr_assert_str_eq(identity.name, good->name);
        char uri[SPIFFE_URI_MAX];
        cr_assert_eq(identity_format(&identity, uri, &err), 0, "%s: %s", good->uri, err.text);
        cr_assert_str_eq(uri, good->uri);
    }
}

Test(identity, refuses_every_bad_uri_and_leaves_the_result_alone)
{
    for (size_t i = 0; i < ELEMENTS(bads); i++) {
        struct identity identity = { .kind = IDENTITY_CLIENT, .name = "untouched" };
        struct err err = { 0 };
        cr_assert_eq(identity_parse(bads[i], &identity, &err), -1, "accepted %s", bads[i]);
        cr_assert_eq(err.code, ERR_INVALID, "%s", bads[i]);
        cr_assert_str_neq(err.text, "");
        cr_assert_eq(identity.kind, IDENTITY_CLIENT);
        cr_assert_str_eq(identity.name, "untouched");
    }
}

Test(identity, does_not_repeat_hostile_input_in_the_error)
{
    struct identity identity;
    struct err err = { 0 };
    cr_assert_eq(identity_parse("spiffe://example.com/agent/evil\nline", &identity, &err), -1);
    cr_assert_null(strstr(err.text, "evil"));
    cr_assert_eq(identity_parse("spiffe://evil\n/agent/x", &identity, &err), -1);
    cr_assert_null(strstr(err.text, "evil"));
    cr_assert_eq(identity_parse("evil\n", &identity, &err), -1);
    cr_assert_null(strstr(err.text, "evil"));
}

Test(identity, a_caller_may_leave_the_error_out)
{
    struct identity identity;
    for (size_t i = 0; i < ELEMENTS(bads); i++)
        cr_assert_eq(identity_parse(bads[i], &identity, NULL), -1);
}

Test(identity, zeroed_means_nobody_and_is_never_written)
{
    struct identity nobody = { 0 };
    char uri[SPIFFE_URI_MAX] = "untouched";
    struct err err = { 0 };
    cr_assert_eq(nobody.kind, IDENTITY_NONE);
    cr_assert_eq(identity_format(&nobody, uri, &err), -1);
    cr_assert_eq(err.code, ERR_INVALID);
    struct identity odd = { .kind = IDENTITY_NONE, .trust_domain = "a", .name = "b" };
    cr_assert_eq(identity_format(&odd, uri, &err), -1);
    odd.kind = IDENTITY_KIND_COUNT_;
    cr_assert_eq(identity_format(&odd, uri, &err), -1);
    cr_assert_str_eq(uri, "untouched");
}

Test(identity, writes_no_uri_that_it_would_not_read)
{
    const struct identity odd[] = {
        { IDENTITY_AGENT, "", "web-1" },          { IDENTITY_AGENT, "example.com", "" },
        { IDENTITY_AGENT, "Example.com", "w" },   { IDENTITY_AGENT, "example.com", "Web" },
        { IDENTITY_AGENT, "a/client", "b" },      { IDENTITY_CLIENT, "example.com", "a/b" },
        { IDENTITY_CLIENT, "example.com", ".." }, { IDENTITY_AGENT, "a:1", "b" },
    };
    for (size_t i = 0; i < ELEMENTS(odd); i++) {
        char uri[SPIFFE_URI_MAX] = "untouched";
        struct err err = { 0 };
        cr_assert_eq(identity_format(&odd[i], uri, &err), -1, "row %zu", i);
        cr_assert_eq(err.code, ERR_INVALID);
        cr_assert_str_eq(uri, "untouched");
    }
}

Test(identity, every_kind_has_a_name)
{
    cr_assert_str_eq(identity_kind_name(IDENTITY_NONE), "none");
    cr_assert_str_eq(identity_kind_name(IDENTITY_AGENT), "agent");
    cr_assert_str_eq(identity_kind_name(IDENTITY_CLIENT), "client");
    for (int kind = 0; kind < IDENTITY_KIND_COUNT_; kind++)
        cr_assert_not_null(identity_kind_name((enum identity_kind)kind));
    cr_assert_str_eq(identity_kind_name(IDENTITY_KIND_COUNT_), "unknown");
    cr_assert_str_eq(identity_kind_name((enum identity_kind) - 1), "unknown");
}

Test(identity, a_trust_domain_has_at_most_127_characters)
{
    cr_assert_eq(trust_domain_check(D127, NULL), 0);
    cr_assert_eq(trust_domain_check(L63 "." SIXTY ".abc", NULL), -1);
    cr_assert_eq(trust_domain_check(LONG_A, NULL), -1);
    cr_assert_eq(trust_domain_check("", NULL), -1);
}

/* xorshift64*: the same sequence on every machine. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717ull;
}

static size_t below(uint64_t *state, size_t bound)
{
    return (size_t)(next_random(state) >> 11) % bound;
}

/* Words of at most `max` characters over an alphabet whose last `inner` ones may not be at an
 * edge. */
static void random_word(uint64_t *state, const char *alphabet, size_t inner, size_t max, char *out)
{
    size_t all = strlen(alphabet), len = 1 + below(state, max);
    for (size_t i = 0; i < len; i++)
        out[i] = alphabet[below(state, i == 0 || i == len - 1 ? all - inner : all)];
    out[len] = '\0';
}

static void random_identity(uint64_t *state, struct identity *identity)
{
    static const char lower[] = "abcxyz0189-";
    static const char any[] = "abcXYZ0189-._";
    *identity = (struct identity){ 0 };
    size_t used = 0;
    for (size_t labels = 1 + below(state, 4); labels > 0; labels--) {
        random_word(state, lower, 1, 30, identity->trust_domain + used);
        used = strlen(identity->trust_domain);
        if (labels > 1)
            identity->trust_domain[used++] = '.';
    }
    bool agent = below(state, 2) == 0;
    identity->kind = agent ? IDENTITY_AGENT : IDENTITY_CLIENT;
    random_word(state, agent ? lower : any, agent ? 1 : 3, SANDBOX_ID_MAX, identity->name);
}

Test(identity, what_is_written_reads_back_the_same)
{
    uint64_t state = 0x5a4d;
    for (int round = 0; round < 20000; round++) {
        struct identity in, out;
        char uri[SPIFFE_URI_MAX];
        struct err err = { 0 };
        random_identity(&state, &in);
        cr_assert_eq(identity_format(&in, uri, &err), 0, "%s", err.text);
        cr_assert_eq(identity_parse(uri, &out, &err), 0, "%s: %s", uri, err.text);
        cr_assert_eq(memcmp(&in, &out, sizeof(in)), 0, "%s", uri);
    }
}

/* One to three random bytes replaced, put in or taken out. */
static void mutate(uint64_t *state, char *text, size_t size)
{
    static const char interesting[] = "/./-_%?#:@aZ0\x01\x80 ";
    for (size_t edits = 1 + below(state, 3); edits > 0; edits--) {
        size_t len = strlen(text), at = below(state, len + 1);
        char byte = interesting[below(state, sizeof(interesting) - 1)];
        switch (below(state, 3)) {
        case 0:
            if (at < len)
                text[at] = byte;
            break;
        case 1:
            if (len + 2 <= size) {
                memmove(text + at + 1, text + at, len - at + 1);
                text[at] = byte;
            }
            break;
        default:
            if (at < len)
                memmove(text + at, text + at + 1, len - at);
            break;
        }
    }
}

static bool model_accepts(const regex_t *model, const char *uri)
{
    if (regexec(model, uri, 0, NULL, 0) != 0)
        return false;
    const char *domain = uri + strlen("spiffe://");
    return strcspn(domain, "/") <= TRUST_DOMAIN_MAX;
}

Test(identity, agrees_with_the_model_on_damaged_uris)
{
    regex_t model;
    cr_assert_eq(regcomp(&model, MODEL, REG_EXTENDED | REG_NOSUB), 0);
    uint64_t state = 0xca;
    unsigned accepted = 0, refused = 0;
    for (int round = 0; round < 20000; round++) {
        struct identity identity;
        char uri[SPIFFE_URI_MAX * 2];
        random_identity(&state, &identity);
        cr_assert_eq(identity_format(&identity, uri, NULL), 0);
        mutate(&state, uri, sizeof(uri));
        bool ok = identity_parse(uri, &identity, NULL) == 0;
        cr_assert_eq(ok, model_accepts(&model, uri), "%s", uri);
        if (ok) {
            char again[SPIFFE_URI_MAX];
            cr_assert_eq(identity_format(&identity, again, NULL), 0);
            cr_assert_str_eq(again, uri);
        }
        accepted += ok;
        refused += !ok;
    }
    regfree(&model);
    cr_assert_gt(accepted, 1000u);
    cr_assert_gt(refused, 1000u);
}
