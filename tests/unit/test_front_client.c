/* The JSON of the orchestrator's front: what is asked, which answers are believed, and what becomes
 * of every answer that is not as it should be. */
#include "common/front_client.h"
#include "tests/unit/https_fixture.h"

#define TIMEOUT_MS 15000

static struct https_pki pki, other;
static struct https_server server;
static struct err err;
static int status = 200;
static const char *answer = "{}";

static void handle(void *userdata, const struct https_request *request, struct https_reply *reply)
{
    (void)userdata;
    (void)request;
    https_reply_json(reply, status, answer);
}

static void set_up(void)
{
    https_pki_new(&pki, "127.0.0.1");
    https_pki_new(&other, "127.0.0.1");
    server.tls = https_tls(pki.cert, pki.key);
    server.handle = handle;
    https_start(&server);
}

static void tear_down(void)
{
    https_stop(&server);
    https_pki_done(&pki);
    https_pki_done(&other);
}

/* cppcheck-suppress unknownMacro */
TestSuite(front_client, .init = set_up, .fini = tear_down, .timeout = 50);

static int enroll(struct front_certificate *ret)
{
    const struct front_enrolment enrolment = { .token = "ssjoin_x",
                                               .csr = "CSR \"quoted\"\n",
                                               .sandbox_id = "web-1",
                                               .vm_id = "i-1",
                                               .hostname = "h" };
    return front_enroll(server.endpoint, pki.ca_pem, &enrolment, TIMEOUT_MS, ret, &err);
}

static void expect_enroll_failure(enum err_code code, const char *word)
{
    struct front_certificate got = { .not_after_ms = 77 };
    cr_assert_eq(enroll(&got), -1, "%s", answer);
    cr_expect_eq(err.code, code, "%s -> %s", answer, err.text);
    cr_expect(strstr(err.text, word), "%s -> %s", answer, err.text);
    cr_expect_eq(got.not_after_ms, 77, "written on success only");
}

#define GOOD(name)                                                                                 \
    "{\"" name "\":\"web-1\",\"certificate\":\"C\",\"ca\":\"A\",\"not_after_unix_ms\":2000,"       \
    "\"server_unix_ms\":1000,\"later\":[1]}"

static void expect_certificate(struct front_certificate *got)
{
    cr_expect_str_eq(got->name, "web-1");
    cr_expect_str_eq(got->certificate, "C");
    cr_expect_str_eq(got->ca, "A");
    cr_expect_eq(got->not_after_ms, 2000);
    cr_expect_eq(got->server_ms, 1000);
    front_certificate_done(got);
}

Test(front_client, enrolment_sends_what_it_is_given_and_takes_the_certificate)
{
    struct front_certificate got = { 0 };
    answer = GOOD("sandbox_id");
    OK(enroll(&got));
    expect_certificate(&got);
    cr_expect(strstr(server.seen, "POST /v1/enroll "), "%s", server.seen);
    cr_expect(strstr(server.seen, "{\"token\":\"ssjoin_x\",\"csr\":\"CSR \\\"quoted\\\"\\n\","
                                  "\"sandbox_id\":\"web-1\",\"vm_id\":\"i-1\",\"hostname\":\"h\"}"),
              "%s", server.seen);
}

Test(front_client, what_is_not_known_is_not_sent)
{
    const struct front_enrolment enrolment = { .token = "t", .csr = "c", .sandbox_id = "" };
    CLEANUP_FRONT_CERTIFICATE struct front_certificate got = { 0 };
    answer = GOOD("sandbox_id");
    OK(front_enroll(server.endpoint, pki.ca_pem, &enrolment, TIMEOUT_MS, &got, &err));
    cr_expect(strstr(server.seen, "\r\n\r\n{\"token\":\"t\",\"csr\":\"c\"}"), "%s", server.seen);
}

Test(front_client, login_and_renewal_have_requests_of_their_own)
{
    struct front_certificate got = { 0 };
    answer = GOOD("client");
    OK(front_login(server.endpoint, pki.ca_pem, "sslogin_x", "c", TIMEOUT_MS, &got, &err));
    expect_certificate(&got);
    cr_expect(strstr(server.seen, "POST /v1/login "));
    cr_expect(strstr(server.seen, "{\"key\":\"sslogin_x\",\"csr\":\"c\"}"), "%s", server.seen);
    answer = GOOD("name");
    OK(front_renew(server.endpoint, pki.ca_pem, "old", "c", TIMEOUT_MS, &got, &err));
    expect_certificate(&got);
    cr_expect(strstr(server.seen, "POST /v1/renew "));
    cr_expect(strstr(server.seen, "{\"certificate\":\"old\",\"csr\":\"c\"}"), "%s", server.seen);
}

Test(front_client, a_wrong_answer_is_named_and_not_believed)
{
#define REST "\"certificate\":\"C\",\"ca\":\"A\",\"not_after_unix_ms\":2,\"server_unix_ms\":1}"
    static const struct {
        const char *answer, *word;
    } rows[] = {
        { "", "not a JSON object" },
        { "{", "not a JSON object" },
        { "[]", "not a JSON object" },
        { "\"text\"", "not a JSON object" },
        { "<html></html>", "not a JSON object" },
        { GOOD("sandbox_id") "x", "not a JSON object" },
        { "{\"sandbox_id\":\"a\",\"sandbox_id\":\"b\"," REST, "not a JSON object" },
        { "{\"sandbox_id\":\"a\\u0000b\"," REST, "not a JSON object" },
        { "{\"sandbox_id\":\"\xff\"," REST, "not a JSON object" },
        { "{}", "sandbox_id" },
        { "{" REST, "sandbox_id" },
        { GOOD("client"), "sandbox_id" },
        { "{\"sandbox_id\":1," REST, "sandbox_id" },
        { "{\"sandbox_id\":\"\"," REST, "sandbox_id" },
        { "{\"sandbox_id\":\"../etc\"," REST, "sandbox_id" },
        { "{\"sandbox_id\":\"Upper\"," REST, "sandbox_id" },
        { "{\"sandbox_id\":\"a\",\"ca\":\"A\",\"not_after_unix_ms\":2,\"server_unix_ms\":1}",
          "certificate" },
        { "{\"sandbox_id\":\"a\",\"certificate\":\"C\",\"ca\":[],\"not_after_unix_ms\":2,"
          "\"server_unix_ms\":1}",
          "(ca)" },
        { "{\"sandbox_id\":\"a\",\"certificate\":\"C\",\"ca\":\"A\",\"server_unix_ms\":1}",
          "not_after_unix_ms" },
        { "{\"sandbox_id\":\"a\",\"certificate\":\"C\",\"ca\":\"A\",\"not_after_unix_ms\":\"2\","
          "\"server_unix_ms\":1}",
          "not_after_unix_ms" },
        { "{\"sandbox_id\":\"a\",\"certificate\":\"C\",\"ca\":\"A\",\"not_after_unix_ms\":2.5,"
          "\"server_unix_ms\":1}",
          "not_after_unix_ms" },
        { "{\"sandbox_id\":\"a\",\"certificate\":\"C\",\"ca\":\"A\",\"not_after_unix_ms\":2,"
          "\"server_unix_ms\":-1}",
          "server_unix_ms" },
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        answer = rows[i].answer;
        expect_enroll_failure(ERR_PROTOCOL, rows[i].word);
    }
}

Test(front_client, a_certificate_beyond_the_bound_is_refused)
{
    CLEANUP_FREE char *large = NULL;
    CLEANUP_FREE char *filler = malloc(70001);
    cr_assert_not_null(filler);
    (void)memset(filler, 'x', 70000);
    filler[70000] = '\0';
    cr_assert_geq(asprintf(&large,
                           "{\"sandbox_id\":\"a\",\"certificate\":\"%s\",\"ca\":\"A\","
                           "\"not_after_unix_ms\":2,\"server_unix_ms\":1}",
                           filler),
                  0);
    answer = large;
    expect_enroll_failure(ERR_PROTOCOL, "certificate");
}

Test(front_client, an_error_answer_has_the_code_and_the_words_of_the_orchestrator)
{
    for (int code = ERR_NONE + 1; code < ERR_CODE_COUNT_; code++) {
        CLEANUP_FREE char *json = NULL;
        cr_assert_geq(asprintf(&json, "{\"error\":{\"code\":\"%s\",\"message\":\"words %d\"}}",
                               err_name((enum err_code)code), code),
                      0);
        char words[32];
        (void)snprintf(words, sizeof(words), "words %d", code);
        status = code % 2 ? 400 : 503;
        answer = json;
        expect_enroll_failure((enum err_code)code, words);
        cr_expect_str_eq(err.text, words);
    }
}

Test(front_client, the_orchestrators_words_hold_no_control_characters)
{
    status = 403;
    answer = "{\"error\":{\"code\":\"denied\",\"message\":\"a\\u001b[31mb\\nc\"}}";
    expect_enroll_failure(ERR_DENIED, "a?[31mb?c");
}

Test(front_client, an_error_without_readable_words_is_told_by_its_status)
{
    static const char *const bodies[] = {
        "",
        "busy",
        "[]",
        "{}",
        "{\"error\":1}",
        "{\"error\":{}}",
        "{\"error\":{\"code\":\"ok\",\"message\":\"m\"}}",
        "{\"error\":{\"code\":\"no-such\",\"message\":\"m\"}}",
        "{\"error\":{\"code\":\"denied\"}}",
        "{\"error\":{\"code\":\"denied\",\"message\":\"\"}}",
        "{\"error\":{\"code\":7,\"message\":\"m\"}}",
        "{\"error\":{\"code\":\"denied\",\"code\":\"denied\",\"message\":\"m\"}}",
    };
    static const struct {
        int status;
        enum err_code code;
    } rows[] = { { 429, ERR_EXHAUSTED }, { 503, ERR_UNAVAILABLE }, { 502, ERR_UNAVAILABLE },
                 { 404, ERR_PROTOCOL },  { 500, ERR_PROTOCOL },    { 301, ERR_PROTOCOL },
                 { 201, ERR_PROTOCOL } };
    for (size_t i = 0; i < ELEMENTS(bodies); i++)
        for (size_t j = 0; j < ELEMENTS(rows); j++) {
            char word[32];
            answer = bodies[i];
            status = rows[j].status;
            (void)snprintf(word, sizeof(word), "HTTP status %d", status);
            expect_enroll_failure(rows[j].code, word);
        }
}

Test(front_client, text_that_is_no_utf8_is_refused_before_it_is_sent)
{
    const struct front_enrolment enrolment = { .token = "\xff", .csr = "c" };
    struct front_certificate got;
    cr_assert_eq(front_enroll(server.endpoint, pki.ca_pem, &enrolment, TIMEOUT_MS, &got, &err), -1);
    cr_expect_eq(err.code, ERR_INVALID);
    cr_expect_eq(atomic_load(&server.connections), 0);
}

/* Fingerprints. */

static char *ca_answer(const char *first, const char *second)
{
    char *json = NULL;
    cr_assert_geq(asprintf(&json, "{\"ca\":\"%s%s\",\"fingerprint\":\"x\",\"server_unix_ms\":1234}",
                           first, second),
                  0);
    /* As JSON wants it: a new line is \n, and PEM needs nothing else. */
    char *escaped = calloc(2, strlen(json) + 1);
    cr_assert_not_null(escaped);
    char *to = escaped;
    for (const char *from = json; *from; from++) {
        *to++ = *from == '\n' ? '\\' : *from;
        if (*from == '\n')
            *to++ = 'n';
    }
    free(json);
    return escaped;
}

Test(front_client, a_fingerprint_is_that_of_the_der_form)
{
    char got[FRONT_FINGERPRINT_LEN + 1], expected[FRONT_FINGERPRINT_LEN + 1] = "sha256:";
    unsigned char *der = NULL, digest[32];
    int size = i2d_X509(pki.root, &der);
    cr_assert(size > 0 && EVP_Digest(der, (size_t)size, digest, NULL, EVP_sha256(), NULL) == 1);
    OPENSSL_free(der);
    for (size_t i = 0; i < sizeof(digest); i++)
        (void)snprintf(expected + 7 + 2 * i, 3, "%02x", digest[i]);
    OK(front_fingerprint(pki.ca_pem, got, &err));
    cr_expect_str_eq(got, expected);
    cr_expect_eq(front_fingerprint("nothing", got, &err), -1);
    cr_expect_eq(err.code, ERR_INVALID);
}

Test(front_client, a_fingerprint_may_be_typed_in_capitals_and_nothing_else)
{
#define HEX "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde"
    char got[FRONT_FINGERPRINT_LEN + 1];
    OK(front_fingerprint_parse("SHA256:" HEX "F", got, &err));
    cr_expect_str_eq(got, "sha256:" HEX "f");
    static const char *const rows[] = { "",
                                        "sha256:",
                                        HEX "f",
                                        "sha256:" HEX,
                                        "sha256:" HEX "ff",
                                        "sha256:" HEX "g",
                                        "sha512:" HEX "f",
                                        " sha256:" HEX "f",
                                        "sha256:" HEX "f " };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        cr_expect_eq(front_fingerprint_parse(rows[i], got, &err), -1, "%s", rows[i]);
        cr_expect_eq(err.code, ERR_INVALID);
    }
}

Test(front_client, the_ca_with_the_fingerprint_is_taken_alone)
{
    char fingerprint[FRONT_FINGERPRINT_LEN + 1];
    OK(front_fingerprint(pki.ca_pem, fingerprint, &err));
    fingerprint[0] = 'S'; /* as somebody typed it */
    for (unsigned first = 0; first < 2; first++) {
        CLEANUP_FREE char *json =
            first ? ca_answer(pki.ca_pem, other.ca_pem) : ca_answer(other.ca_pem, pki.ca_pem);
        CLEANUP_FREE char *got = NULL;
        answer = json;
        OK(front_fetch_ca(server.endpoint, fingerprint, TIMEOUT_MS, &got, &err));
        cr_expect_str_eq(got, pki.ca_pem);
    }
    cr_expect(strstr(server.seen, "GET /v1/ca "), "%s", server.seen);
}

Test(front_client, a_ca_with_another_fingerprint_is_refused_and_both_are_shown)
{
    char expected[FRONT_FINGERPRINT_LEN + 1], shown[FRONT_FINGERPRINT_LEN + 1];
    OK(front_fingerprint(pki.ca_pem, expected, &err));
    OK(front_fingerprint(other.ca_pem, shown, &err));
    CLEANUP_FREE char *json = ca_answer(other.ca_pem, "");
    char *got = NULL;
    answer = json;
    cr_assert_eq(front_fetch_ca(server.endpoint, expected, TIMEOUT_MS, &got, &err), -1);
    cr_expect_eq(err.code, ERR_UNAUTHENTICATED);
    cr_expect(strstr(err.text, expected) && strstr(err.text, shown), "%s", err.text);
    cr_expect_null(got);
}

Test(front_client, an_answer_without_a_ca_is_strange)
{
    static const char *const rows[] = { "{}", "{\"ca\":\"\"}", "{\"ca\":1}", "{\"ca\":\"text\"}" };
    char fingerprint[FRONT_FINGERPRINT_LEN + 1];
    OK(front_fingerprint(pki.ca_pem, fingerprint, &err));
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        char *got = NULL;
        answer = rows[i];
        cr_assert_eq(front_fetch_ca(server.endpoint, fingerprint, TIMEOUT_MS, &got, &err), -1);
        cr_expect_eq(err.code, ERR_PROTOCOL, "%s", err.text);
    }
}

Test(front_client, the_time_is_asked_of_anybody)
{
    int64_t got = 0;
    CLEANUP_FREE char *json = ca_answer("x", "");
    answer = json;
    OK(front_server_time(server.endpoint, TIMEOUT_MS, &got, &err));
    cr_expect_eq(got, 1234);
    answer = "{\"server_unix_ms\":0}";
    cr_expect_eq(front_server_time(server.endpoint, TIMEOUT_MS, &got, &err), -1);
    cr_expect_eq(err.code, ERR_PROTOCOL);
}
