/* The agent's enrolment against a server that plays the orchestrator's front with a real CA: every
 * step that can fail leaves the identity as it was, the token where it was and the key for the next
 * attempt; and whoever is not the orchestrator never sees the token. */
#include "agent/enroll.h"
#include "common/csr.h"
#include "common/file.h"
#include "common/front_client.h"
#include "common/identity_dir.h"
#include "common/log.h"
#include "common/rpc_creds.h"
#include "common/secret.h"
#include "orchestrator/ca.h"
#include "tests/unit/https_fixture.h"

#include <ftw.h>
#include <jansson.h>
#include <openssl/pem.h>
#include <sys/file.h>
#include <sys/stat.h>

#define TIMEOUT_MS 15000
#define LIFETIME_S 3600

/* What the orchestrator does with a request. */
enum mood {
    GOOD,
    BUSY,
    DENIED,
    GARBAGE,
    CUT,
    FOR_ANOTHER_KEY,
    FOR_A_CLIENT,
    FOR_ANOTHER_NAME,
    FROM_ANOTHER_CA,
    NO_CERTIFICATE,
    MOOD_COUNT_
};

static char root[] = "/tmp/test-enroll-XXXXXX";
static struct err err;
static struct ca *ca, *other_ca;
static struct https_server server;
static struct secret token;
static enum mood mood;
static unsigned attempts; /* requests with a token */
static bool token_taken;
static uint8_t token_key[CA_KEY_LEN], last_key[CA_KEY_LEN];
static const char *name = "web-1";

/* The orchestrator; on the server's thread. */

static char *sign(const char *csr, enum mood how, int64_t *ret_not_after)
{
    CLEANUP_CA_REQUEST struct ca_request *request = NULL;
    CLEANUP_FREE char *other_csr = NULL;
    CLEANUP_KEY_PEM char *other_key = NULL;
    char *pem = NULL;
    if (how == FOR_ANOTHER_KEY &&
        (csr_key_new(&other_key, NULL) < 0 || csr_new(other_key, &other_csr, NULL) < 0))
        return NULL;
    const char *text = other_csr ? other_csr : csr;
    if (ca_request_parse(text, strlen(text), &request, NULL) < 0 ||
        ca_sign_peer(how == FROM_ANOTHER_CA ? other_ca : ca, request,
                     how == FOR_A_CLIENT ? IDENTITY_CLIENT : IDENTITY_AGENT,
                     how == FOR_ANOTHER_NAME ? "web-2" : name, LIFETIME_S, &pem, ret_not_after,
                     NULL) < 0)
        return NULL;
    return how == NO_CERTIFICATE ? strcpy(pem, "nothing") : pem;
}

static void reply_certificate(const char *csr, const char *name_key, struct https_reply *reply)
{
    int64_t not_after = 0;
    CLEANUP_FREE char *pem = sign(csr, mood, &not_after);
    json_t *json = json_pack("{s:s, s:s, s:s, s:I, s:I}", name_key, name, "certificate",
                             pem ? pem : "", "ca", ca_bundle(ca), "not_after_unix_ms",
                             (json_int_t)not_after * 1000, "server_unix_ms", (json_int_t)1);
    char *text = json_dumps(json, 0);
    https_reply_json(reply, 200, text);
    free(text);
    json_decref(json);
    if (mood == CUT) {
        reply->size -= 100;
        reply->reset = true;
    }
}

static void enrol_one(const json_t *request, struct https_reply *reply)
{
    const char *csr = json_string_value(json_object_get(request, "csr"));
    const char *given = json_string_value(json_object_get(request, "token"));
    CLEANUP_CA_REQUEST struct ca_request *parsed = NULL;
    attempts++;
    if (!csr || !given || strcmp(given, token.text) != 0 ||
        ca_request_parse(csr, strlen(csr), &parsed, NULL) < 0) {
        https_reply_json(reply, 401,
                         "{\"error\":{\"code\":\"unauthenticated\",\"message\":\"no\"}}");
        return;
    }
    (void)memcpy(last_key, ca_request_key(parsed), CA_KEY_LEN);
    if (token_taken && memcmp(token_key, last_key, CA_KEY_LEN) != 0) {
        https_reply_json(reply, 403,
                         "{\"error\":{\"code\":\"denied\",\"message\":\"the token is used\"}}");
        return;
    }
    token_taken = true;
    (void)memcpy(token_key, last_key, CA_KEY_LEN);
    reply_certificate(csr, "sandbox_id", reply);
}

static void renew_one(const json_t *request, struct https_reply *reply)
{
    const char *csr = json_string_value(json_object_get(request, "csr"));
    const char *old = json_string_value(json_object_get(request, "certificate"));
    CLEANUP_CA_REQUEST struct ca_request *parsed = NULL;
    struct identity identity;
    uint8_t key[CA_KEY_LEN];
    int64_t not_after;
    if (csr && old && ca_request_parse(csr, strlen(csr), &parsed, NULL) == 0 &&
        ca_inspect_peer(ca, old, strlen(old), &identity, key, &not_after, NULL) == 0 &&
        memcmp(key, ca_request_key(parsed), CA_KEY_LEN) == 0)
        reply_certificate(csr, "name", reply);
    else
        https_reply_json(reply, 401,
                         "{\"error\":{\"code\":\"unauthenticated\",\"message\":\"no\"}}");
}

static void handle(void *userdata, const struct https_request *request, struct https_reply *reply)
{
    (void)userdata;
    json_t *json = json_loads(request->body, JSON_REJECT_DUPLICATES, NULL);
    if (strcmp(request->path, "GET /v1/ca") == 0) {
        json_t *answer = json_pack("{s:s, s:s, s:I}", "ca", ca_bundle(ca), "fingerprint",
                                   ca_fingerprint(ca), "server_unix_ms", (json_int_t)1);
        char *text = json_dumps(answer, 0);
        https_reply_json(reply, 200, text);
        free(text);
        json_decref(answer);
    } else if (mood == BUSY) {
        https_reply_json(reply, 503, "");
    } else if (mood == DENIED) {
        https_reply_json(reply, 403,
                         "{\"error\":{\"code\":\"denied\",\"message\":\"make a new token\"}}");
    } else if (mood == GARBAGE) {
        https_reply_json(reply, 200, "{\"certificate\":");
    } else if (strcmp(request->path, "POST /v1/enroll") == 0) {
        enrol_one(json, reply);
    } else if (strcmp(request->path, "POST /v1/renew") == 0) {
        renew_one(json, reply);
    } else {
        https_reply_json(reply, 404, "");
    }
    json_decref(json);
}

/* The machine. */

static void put(const char *path, const char *text)
{
    OK(file_write_atomic(path, text, strlen(text), 0600, &err));
}

static char *get(const char *path)
{
    char *text = NULL;
    size_t size;
    return file_read(path, PEM_MAX, &text, &size, NULL) == 0 ? text : NULL;
}

static bool exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0;
}

static struct enroll_config config = {
    .identity_dir = "identity", .token_file = "token", .root = "machine", .timeout_ms = TIMEOUT_MS
};

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void put_token(void)
{
    char line[SECRET_TEXT_MAX + 2];
    token_taken = false;
    OK(secret_new(SECRET_JOIN, &token, &err));
    (void)snprintf(line, sizeof(line), "%s\n", token.text);
    put("token", line);
}

static void set_up(void)
{
    static const char *const names[] = { "127.0.0.1" };
    (void)umask(0);
    log_setup("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    cr_assert(mkdtemp(root) && chdir(root) == 0);
    OK(ca_create("ca", "prod.example.com", &err));
    OK(ca_open("ca", &ca, &err));
    OK(ca_create("other-ca", "prod.example.com", &err));
    OK(ca_open("other-ca", &other_ca, &err));
    OK(ca_issue_server(ca, "server", names, 1, LIFETIME_S, &err));
    cr_assert_eq(mkdir("machine", 0700) | mkdir("machine/etc", 0700), 0);
    put("machine/etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    put_token();
    server.tls = SSL_CTX_new(TLS_server_method());
    cr_assert(SSL_CTX_use_certificate_file(server.tls, "server/cert.pem", SSL_FILETYPE_PEM) == 1 &&
              SSL_CTX_use_PrivateKey_file(server.tls, "server/key.pem", SSL_FILETYPE_PEM) == 1);
    server.handle = handle;
    https_start(&server);
    config.endpoint = server.endpoint;
    config.ca_fingerprint = ca_fingerprint(ca);
}

static void tear_down(void)
{
    https_stop(&server);
    ca_free(ca);
    ca_free(other_ca);
    (void)nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* cppcheck-suppress unknownMacro */
TestSuite(enroll, .init = set_up, .fini = tear_down, .timeout = 50);

static void expect_failure(int result, enum err_code code, const char *word)
{
    cr_assert_eq(result, -1);
    cr_expect_eq(err.code, code, "%s", err.text);
    cr_expect(strstr(err.text, word), "%s", err.text);
    cr_expect_null(strstr(err.text, token.text), "the token is in the text");
}

static enum enroll_state look(const char *word)
{
    enum enroll_state state;
    char words[256] = "";
    OK(enroll_look(&config, &state, words, sizeof(words), &err));
    cr_expect(strstr(words, word), "%s", words);
    return state;
}

/* The key's public half, as the orchestrator knows it. */
static void key_of(const char *path, uint8_t ret[CA_KEY_LEN])
{
    CLEANUP_KEY_PEM char *pem = get(path);
    CLEANUP_FREE char *csr = NULL;
    CLEANUP_CA_REQUEST struct ca_request *request = NULL;
    cr_assert_not_null(pem, "%s", path);
    OK(csr_new(pem, &csr, &err));
    OK(ca_request_parse(csr, strlen(csr), &request, &err));
    (void)memcpy(ret, ca_request_key(request), CA_KEY_LEN);
}

static void expect_identity(const char *expected)
{
    struct rpc_creds creds = { 0 };
    struct identity identity;
    int64_t not_after;
    struct stat st;
    OK(rpc_creds_load("identity", &creds, &err));
    OK(rpc_creds_check(&creds, &err));
    OK(rpc_creds_identity(&creds, &identity, &not_after, &err));
    OK(csr_check_answer(creds.key, creds.cert, creds.ca, &err));
    cr_expect_str_eq(creds.ca, ca_bundle(ca));
    cr_expect_eq(identity.kind, IDENTITY_AGENT);
    cr_expect_str_eq(identity.name, expected);
    rpc_creds_clear(&creds);
    cr_assert_eq(stat("identity/key.pem", &st), 0);
    cr_expect_eq(st.st_mode & 0777, 0600);
    cr_expect(exists("identity/machine.json"));
}

Test(enroll, a_machine_joins_with_a_token_and_a_fingerprint)
{
    uint8_t key[CA_KEY_LEN];
    cr_expect_eq(look("there is no identity"), ENROLL_NEEDED);
    OK(enroll_run(&config, &err));
    expect_identity("web-1");
    key_of("identity/key.pem", key);
    cr_expect_eq(memcmp(key, token_key, CA_KEY_LEN), 0);
    cr_expect_not(exists("token"));
    cr_expect_not(exists("identity.pending"));
    cr_expect_eq(look("this machine is web-1"), ENROLL_READY);
}

Test(enroll, a_copy_of_the_ca_will_do)
{
    config.ca_fingerprint = NULL;
    config.ca_file = "ca/ca.pem";
    config.sandbox_id = "web-7";
    config.vm_id = "i-0abc";
    OK(enroll_run(&config, &err));
    expect_identity("web-1");
    cr_expect(strstr(server.seen, "\"sandbox_id\":\"web-7\"") &&
                  strstr(server.seen, "\"vm_id\":\"i-0abc\"") &&
                  strstr(server.seen, "\"hostname\":\""),
              "%s", server.seen);
}

Test(enroll, an_orchestrator_with_another_fingerprint_never_sees_the_token)
{
    config.ca_fingerprint = ca_fingerprint(other_ca);
    expect_failure(enroll_run(&config, &err), ERR_UNAUTHENTICATED, ca_fingerprint(ca));
    cr_expect(strstr(err.text, ca_fingerprint(other_ca)), "%s", err.text);
    config.ca_fingerprint = "sha256:1234";
    expect_failure(enroll_run(&config, &err), ERR_INVALID, "fingerprint");
    https_stop(&server);
    cr_expect_eq(attempts, 0);
    cr_expect_null(strstr(server.seen, token.text));
    cr_expect(exists("token"));
    cr_expect_not(exists("identity"));
    https_start(&server);
}

/* Somebody in the middle who shows the right CA, which is public, but has not its key. */
Test(enroll, a_server_that_only_shows_the_right_ca_never_sees_the_token)
{
    struct https_pki fake;
    https_stop(&server);
    https_pki_new(&fake, "127.0.0.1");
    server.tls = https_tls(fake.cert, fake.key);
    https_start(&server);
    expect_failure(enroll_run(&config, &err), ERR_UNAVAILABLE, "not signed by our CA");
    config.ca_file = "ca/ca.pem";
    expect_failure(enroll_run(&config, &err), ERR_UNAVAILABLE, "not signed by our CA");
    https_stop(&server);
    cr_expect_eq(attempts, 0);
    cr_expect_null(strstr(server.seen, token.text));
    cr_expect(exists("token"));
    https_pki_done(&fake);
    https_start(&server);
}

Test(enroll, what_is_missing_is_said_before_anything_is_asked)
{
    config.ca_fingerprint = NULL;
    expect_failure(enroll_run(&config, &err), ERR_PRECONDITION, "which orchestrator to trust");
    config.ca_file = "no-such.pem";
    expect_failure(enroll_run(&config, &err), ERR_NOT_FOUND, "no-such.pem");
    config.ca_file = NULL;
    config.ca_fingerprint = ca_fingerprint(ca);
    config.token_file = "no-such-token";
    expect_failure(enroll_run(&config, &err), ERR_PRECONDITION, "there is none in no-such-token");
    config.token_file = NULL;
    expect_failure(enroll_run(&config, &err), ERR_PRECONDITION, "needs a join token");
    config.token_file = "machine";
    expect_failure(enroll_run(&config, &err), ERR_INVALID, "not a regular file");
    cr_expect_eq(atomic_load(&server.connections), 0);
}

Test(enroll, only_a_join_token_is_sent)
{
    CLEANUP_SECRET struct secret login = { 0 };
    static char large[8192];
    OK(secret_new(SECRET_LOGIN, &login, &err));
    (void)memset(large, 's', sizeof(large) - 1);
    put("token", login.text);
    expect_failure(enroll_run(&config, &err), ERR_INVALID, "does not hold a join token");
    cr_expect_null(strstr(err.text, login.text));
    put("token", "");
    expect_failure(enroll_run(&config, &err), ERR_INVALID, "does not hold a join token");
    put("token", large);
    expect_failure(enroll_run(&config, &err), ERR_EXHAUSTED, "larger than 4096");
    cr_expect_eq(atomic_load(&server.connections), 0);
}

Test(enroll, every_failure_leaves_all_as_it_was_and_the_next_attempt_has_the_same_key)
{
    static const enum err_code codes[MOOD_COUNT_] = {
        [BUSY] = ERR_UNAVAILABLE,          [DENIED] = ERR_DENIED,
        [GARBAGE] = ERR_PROTOCOL,          [CUT] = ERR_UNAVAILABLE,
        [FOR_ANOTHER_KEY] = ERR_PROTOCOL,  [FOR_A_CLIENT] = ERR_PROTOCOL,
        [FOR_ANOTHER_NAME] = ERR_PROTOCOL, [FROM_ANOTHER_CA] = ERR_PROTOCOL,
        [NO_CERTIFICATE] = ERR_PROTOCOL,
    };
    uint8_t pending[CA_KEY_LEN], now[CA_KEY_LEN];
    struct stat before, after;
    OK(ca_issue_peer(ca, "identity", IDENTITY_AGENT, "old", LIFETIME_S, &err));
    cr_assert_eq(stat("identity", &before), 0);
    for (int i = GOOD + 1; i < MOOD_COUNT_; i++) {
        mood = (enum mood)i;
        expect_failure(enroll_run(&config, &err), codes[i], "");
        cr_assert_eq(stat("identity", &after), 0);
        cr_expect_eq(before.st_ino, after.st_ino, "mood %d", i);
        CLEANUP_FREE char *kept = get("token");
        cr_expect(kept && strstr(kept, token.text), "mood %d", i);
        key_of("identity.pending/key.pem", now);
        if (i > GOOD + 1)
            cr_expect_eq(memcmp(pending, now, CA_KEY_LEN), 0, "mood %d", i);
        (void)memcpy(pending, now, CA_KEY_LEN);
    }
    cr_assert_eq(stat("identity.pending", &after), 0);
    cr_expect_eq(after.st_mode & 0777, 0700);
    cr_assert_eq(stat("identity.pending/key.pem", &after), 0);
    cr_expect_eq(after.st_mode & 0777, 0600);
    mood = GOOD;
    OK(enroll_run(&config, &err));
    expect_identity("web-1");
    key_of("identity/key.pem", now);
    cr_expect_eq(memcmp(pending, now, CA_KEY_LEN), 0);
    cr_expect_not(exists("token"));
    cr_expect_not(exists("identity.pending"));
}

Test(enroll, to_enrol_again_is_to_have_a_new_key)
{
    uint8_t first[CA_KEY_LEN], second[CA_KEY_LEN];
    OK(enroll_run(&config, &err));
    key_of("identity/key.pem", first);
    put_token();
    name = "web-9";
    OK(enroll_run(&config, &err));
    expect_identity("web-9");
    key_of("identity/key.pem", second);
    cr_expect_neq(memcmp(first, second, CA_KEY_LEN), 0);
}

Test(enroll, a_pending_key_of_another_machine_or_of_nobody_is_not_used)
{
    uint8_t first[CA_KEY_LEN], second[CA_KEY_LEN], third[CA_KEY_LEN];
    mood = BUSY;
    expect_failure(enroll_run(&config, &err), ERR_UNAVAILABLE, "");
    key_of("identity.pending/key.pem", first);
    put("machine/etc/machine-id", "ffffffffffffffff0123456789abcdef\n");
    expect_failure(enroll_run(&config, &err), ERR_UNAVAILABLE, "");
    key_of("identity.pending/key.pem", second);
    cr_expect_neq(memcmp(first, second, CA_KEY_LEN), 0);
    cr_assert_eq(unlink("identity.pending/machine.json"), 0);
    expect_failure(enroll_run(&config, &err), ERR_UNAVAILABLE, "");
    key_of("identity.pending/key.pem", third);
    cr_expect_neq(memcmp(second, third, CA_KEY_LEN), 0);
    put("identity.pending/key.pem", "half a key");
    mood = GOOD;
    OK(enroll_run(&config, &err));
    expect_identity("web-1");
}

Test(enroll, two_attempts_do_not_mix)
{
    cr_assert_eq(mkdir("identity.pending", 0700), 0);
    CLEANUP_FD int fd = open("identity.pending", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert_eq(flock(fd, LOCK_EX), 0);
    expect_failure(enroll_run(&config, &err), ERR_PRECONDITION, "another process");
    close_fd(&fd);
    OK(enroll_run(&config, &err));
}

Test(enroll, a_token_that_cannot_be_removed_is_no_failure)
{
    char path[64];
    CLEANUP_FD int fd = open("token", O_RDONLY | O_CLOEXEC);
    /* Not even root can unlink this name. */
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    config.token_file = path;
    OK(enroll_run(&config, &err));
    expect_identity("web-1");
}

Test(enroll, a_used_token_is_overwritten_before_it_is_unlinked)
{
    char line[SECRET_TEXT_MAX];
    CLEANUP_FD int fd = open("token", O_RDONLY | O_CLOEXEC);
    OK(enroll_run(&config, &err));
    ssize_t n = read(fd, line, sizeof(line));
    cr_assert_gt(n, 0);
    for (ssize_t i = 0; i < n; i++)
        cr_assert_eq(line[i], '\0');
}

/* A crash between the identity and the rest. */
Test(enroll, tidying_finishes_what_a_crash_left)
{
    OK(enroll_run(&config, &err));
    CLEANUP_KEY_PEM char *key = get("identity/key.pem");
    CLEANUP_KEY_PEM char *other = NULL;
    OK(csr_key_new(&other, &err));
    cr_assert_eq(mkdir("identity.pending", 0700), 0);
    put("identity.pending/key.pem", other);
    put("token", "x");
    enroll_tidy(&config);
    cr_expect(exists("token") && exists("identity.pending/key.pem"),
              "an attempt that is not over was removed");
    put("identity.pending/key.pem", key);
    put("identity.pending/.key.pem.abcdef", "left by a crash");
    enroll_tidy(&config);
    cr_expect_not(exists("token"));
    cr_expect_not(exists("identity.pending"));
    expect_identity("web-1");
    put("token", "x");
    enroll_tidy(&config);
    cr_expect(exists("token"), "there was nothing to tidy");
}

Test(enroll, a_clone_is_told_by_what_differs)
{
    OK(enroll_run(&config, &err));
    put("machine/etc/machine-id", "ffffffffffffffff0123456789abcdef\n");
    cr_expect_eq(look("the machine id differs"), ENROLL_CLONE);
    cr_assert_eq(unlink("machine/etc/machine-id"), 0);
    cr_expect_eq(look("web-1"), ENROLL_READY);
    cr_assert_eq(unlink("identity/machine.json"), 0);
    put("machine/etc/machine-id", "ffffffffffffffff0123456789abcdef\n");
    cr_expect_eq(look("web-1"), ENROLL_READY);
}

Test(enroll, a_damaged_identity_is_an_error_and_an_empty_directory_is_none)
{
    enum enroll_state state;
    char words[64];
    OK(enroll_run(&config, &err));
    put("identity/machine.json", "{");
    expect_failure(enroll_look(&config, &state, words, sizeof(words), &err), ERR_INVALID,
                   "machine.json");
    put("identity/key.pem", "x");
    expect_failure(enroll_look(&config, &state, words, sizeof(words), &err), ERR_INVALID,
                   "damaged");
    config.identity_dir = "empty";
    cr_assert_eq(mkdir("empty", 0700), 0);
    cr_expect_eq(look("there is no identity"), ENROLL_NEEDED);
    OK(ca_issue_peer(ca, "client", IDENTITY_CLIENT, "alice", LIFETIME_S, &err));
    config.identity_dir = "client";
    expect_failure(enroll_look(&config, &state, words, sizeof(words), &err), ERR_PROTOCOL,
                   "that of a client");
}

Test(enroll, a_renewal_keeps_the_key_and_the_machine)
{
    OK(enroll_run(&config, &err));
    CLEANUP_KEY_PEM char *key = get("identity/key.pem");
    CLEANUP_FREE char *cert = get("identity/cert.pem"), *machine = get("identity/machine.json");
    OK(enroll_renew_expired(&config, &err));
    expect_identity("web-1");
    CLEANUP_KEY_PEM char *key_after = get("identity/key.pem");
    CLEANUP_FREE char *cert_after = get("identity/cert.pem");
    CLEANUP_FREE char *machine_after = get("identity/machine.json");
    cr_expect_str_eq(key, key_after);
    cr_expect_str_neq(cert, cert_after);
    cr_expect_str_eq(machine, machine_after);
    cr_assert_eq(unlink("identity/machine.json"), 0);
    OK(enroll_renew_expired(&config, &err));
    cr_expect_not(exists("identity/machine.json"));
}

Test(enroll, a_renewal_that_fails_leaves_the_identity_as_it_was)
{
    struct stat before, after;
    OK(enroll_run(&config, &err));
    cr_assert_eq(stat("identity", &before), 0);
    for (int i = GOOD + 1; i < MOOD_COUNT_; i++) {
        mood = (enum mood)i;
        cr_assert_eq(enroll_renew_expired(&config, &err), -1, "mood %d", i);
        if (mood == DENIED)
            cr_expect(err.code == ERR_DENIED && strstr(err.text, "make a new token"), "%s",
                      err.text);
        cr_assert_eq(stat("identity", &after), 0);
        cr_expect_eq(before.st_ino, after.st_ino, "mood %d", i);
    }
}

Test(enroll, an_image_keeps_nothing)
{
    OK(enroll_run(&config, &err));
    cr_assert_eq(mkdir("identity.pending", 0700), 0);
    put("identity.pending/key.pem", "k");
    put("token", "t");
    put("status.json", "{}");
    OK(enroll_prepare_image(&config, "status.json", &err));
    cr_expect_not(exists("identity"));
    cr_expect_not(exists("identity.pending"));
    cr_expect_not(exists("token"));
    cr_expect_not(exists("status.json"));
    OK(enroll_prepare_image(&config, "status.json", &err));
}
