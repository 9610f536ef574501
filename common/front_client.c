/* Owns the JSON of the orchestrator's front as its clients see it: requests are built here, answers
 * are looked at closely, and an error answer becomes an error. agent/enroll.c and the CLI's login
 * call it. Unknown keys of an answer are ignored, so that an orchestrator may learn to say more.
 * Next: common/http_client.c. */
#include "common/front_client.h"

#include "common/http_client.h"
#include "common/rpc_creds.h"

#include <ctype.h>
#include <jansson.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>

#define FINGERPRINT_PREFIX "sha256:"
#define FINGERPRINT_HEX    64u

static void json_cleanup(json_t **json)
{
    json_decref(*json);
}
#define CLEANUP_JSON CLEANUP(json_cleanup)

void front_certificate_done(struct front_certificate *certificate)
{
    free(certificate->certificate);
    free(certificate->ca);
    *certificate = (struct front_certificate){ 0 };
}

/* Fingerprints. */

static int digest_of(const X509 *cert, char ret[FRONT_FINGERPRINT_LEN + 1], struct err *err)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    if (X509_digest(cert, EVP_sha256(), digest, &size) != 1 || size * 2 != FINGERPRINT_HEX) {
        ERR_clear_error();
        return err_set(err, ERR_INTERNAL, "cannot compute the fingerprint of a certificate");
    }
    (void)memcpy(ret, FINGERPRINT_PREFIX, sizeof(FINGERPRINT_PREFIX));
    for (size_t i = 0; i < size; i++)
        (void)snprintf(ret + strlen(FINGERPRINT_PREFIX) + 2 * i, 3, "%02x", digest[i]);
    return 0;
}

int front_fingerprint(const char *ca_pem, char ret[FRONT_FINGERPRINT_LEN + 1], struct err *err)
{
    BIO *bio = BIO_new_mem_buf(ca_pem, -1);
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    int r = cert ? digest_of(cert, ret, err)
                 : err_set(err, ERR_INVALID, "this is not a certificate in PEM form");
    X509_free(cert);
    BIO_free(bio);
    ERR_clear_error();
    return r;
}

int front_fingerprint_parse(const char *text, char ret[FRONT_FINGERPRINT_LEN + 1], struct err *err)
{
    const size_t prefix = strlen(FINGERPRINT_PREFIX);
    bool ok = strnlen(text, FRONT_FINGERPRINT_LEN + 1) == FRONT_FINGERPRINT_LEN &&
              strncasecmp(text, FINGERPRINT_PREFIX, prefix) == 0 &&
              strspn(text + prefix, "0123456789abcdefABCDEF") == FINGERPRINT_HEX;
    if (!ok)
        return err_set(err, ERR_INVALID,
                       "this is not a CA's fingerprint; it reads sha256: and 64 hexadecimal "
                       "digits, and the orchestrator shows it when it makes a join token");
    for (size_t i = 0; i <= FRONT_FINGERPRINT_LEN; i++)
        ret[i] = (char)tolower((unsigned char)text[i]);
    return 0;
}

/* Answers. */

static int strange(const char *endpoint, const char *what, struct err *err)
{
    return err_set(err, ERR_PROTOCOL,
                   "%s gave an answer we do not understand (%s); is it the orchestrator's port for "
                   "enrolment and login, and not older than this program?",
                   endpoint, what);
}

/* A peer's words on a person's terminal: no control characters. */
static void make_printable(char *text)
{
    for (; *text; text++)
        if (iscntrl((unsigned char)*text))
            *text = '?';
}

static enum err_code code_of_status(int status)
{
    switch (status) {
    case 429:
        return ERR_EXHAUSTED;
    case 502:
    case 503:
    case 504:
        return ERR_UNAVAILABLE;
    default:
        return ERR_PROTOCOL;
    }
}

static int refused(const char *endpoint, int status, const json_t *answer, struct err *err)
{
    const json_t *error = json_object_get(answer, "error");
    const char *name = json_string_value(json_object_get(error, "code"));
    const char *message = json_string_value(json_object_get(error, "message"));
    enum err_code code = name ? err_from_name(name) : ERR_NONE;
    if (code != ERR_NONE && message && *message) {
        (void)err_set(err, code, "%s", message);
        if (err)
            make_printable(err->text);
        return -1;
    }
    code = code_of_status(status);
    if (code != ERR_PROTOCOL)
        return err_set(err, code, "%s is busy or not ready (HTTP status %d); try again later",
                       endpoint, status);
    char what[32];
    (void)snprintf(what, sizeof(what), "HTTP status %d", status);
    return strange(endpoint, what, err);
}

static int ask(const struct http_request *request, json_t **ret, struct err *err)
{
    CLEANUP_ANSWER struct http_answer answer = { 0 };
    if (http_client_run(request, &answer, err) < 0)
        return -1;
    json_error_t why;
    CLEANUP_JSON json_t *json = json_loadb(answer.body, answer.size, JSON_REJECT_DUPLICATES, &why);
    if (answer.status != 200)
        return refused(request->endpoint, answer.status, json, err);
    if (!json_is_object(json))
        return strange(request->endpoint, "not a JSON object", err);
    *ret = TAKE_PTR(json);
    return 0;
}

/* NULL when there is no such text or it is empty or too long. */
static const char *get_text(const json_t *json, const char *key, size_t max)
{
    const json_t *value = json_object_get(json, key);
    size_t size = json_string_length(value);
    return size > 0 && size <= max ? json_string_value(value) : NULL;
}

static bool get_time(const json_t *json, const char *key, int64_t *ret)
{
    const json_t *value = json_object_get(json, key);
    *ret = json_integer_value(value);
    return *ret > 0;
}

/* Requests. */

/* Frees a request that may hold a secret: the tree keeps copies of its own. */
static void request_free(json_t **request)
{
    const char *key;
    json_t *value;
    json_object_foreach(*request, key, value)
    {
        if (json_is_string(value))
            OPENSSL_cleanse((char *)(uintptr_t)json_string_value(value), json_string_length(value));
    }
    json_decref(*request);
}
#define CLEANUP_REQUEST CLEANUP(request_free)

static int post(const char *endpoint, const char *ca_pem, const char *path, const json_t *request,
                int timeout_ms, json_t **ret, struct err *err)
{
    /* Into memory of our own and of the right size at once: what realloc() leaves behind could not
     * be wiped. */
    size_t size = json_dumpb(request, NULL, 0, JSON_COMPACT);
    char *body = size ? malloc(size + 1) : NULL;
    if (!body || json_dumpb(request, body, size, JSON_COMPACT) != size) {
        free(body);
        return err_nomem(err);
    }
    body[size] = '\0';
    const struct http_request http = {
        .endpoint = endpoint, .path = path, .body = body, .ca_pem = ca_pem, .timeout_ms = timeout_ms
    };
    int r = ask(&http, ret, err);
    OPENSSL_cleanse(body, size);
    free(body);
    return r;
}

struct wanted {
    const char *path, *name_key;
    int (*check)(const char *text, struct err *err);
};

static int get_certificate(const char *endpoint, const char *ca_pem, const struct wanted *wanted,
                           const json_t *request, int timeout_ms, struct front_certificate *ret,
                           struct err *err)
{
    CLEANUP_JSON json_t *answer = NULL;
    if (post(endpoint, ca_pem, wanted->path, request, timeout_ms, &answer, err) < 0)
        return -1;
    const char *name = get_text(answer, wanted->name_key, SANDBOX_ID_MAX);
    const char *certificate = get_text(answer, "certificate", PEM_MAX);
    const char *ca = get_text(answer, "ca", PEM_MAX);
    struct front_certificate result = { 0 };
    if (!name || wanted->check(name, NULL) < 0)
        return strange(endpoint, wanted->name_key, err);
    if (!certificate || !ca)
        return strange(endpoint, certificate ? "ca" : "certificate", err);
    if (!get_time(answer, "not_after_unix_ms", &result.not_after_ms))
        return strange(endpoint, "not_after_unix_ms", err);
    if (!get_time(answer, "server_unix_ms", &result.server_ms))
        return strange(endpoint, "server_unix_ms", err);
    (void)snprintf(result.name, sizeof(result.name), "%s", name);
    result.certificate = strdup(certificate);
    result.ca = strdup(ca);
    if (!result.certificate || !result.ca) {
        front_certificate_done(&result);
        return err_nomem(err);
    }
    *ret = result;
    return 0;
}

static bool set_text(json_t *request, const char *key, const char *text)
{
    return !text || !*text || json_object_set_new(request, key, json_string(text)) == 0;
}

/* jansson takes nothing but UTF-8. */
static int cannot_say(struct err *err)
{
    return err_set(
        err, ERR_INVALID,
        "the request holds text that is not UTF-8; look at the token, the sandbox id and "
        "the host's name");
}

int front_enroll(const char *endpoint, const char *ca_pem, const struct front_enrolment *enrolment,
                 int timeout_ms, struct front_certificate *ret, struct err *err)
{
    static const struct wanted wanted = { "/v1/enroll", "sandbox_id", sandbox_id_check };
    CLEANUP_REQUEST json_t *request = json_object();
    if (!set_text(request, "token", enrolment->token) ||
        !set_text(request, "csr", enrolment->csr) ||
        !set_text(request, "sandbox_id", enrolment->sandbox_id) ||
        !set_text(request, "vm_id", enrolment->vm_id) ||
        !set_text(request, "hostname", enrolment->hostname))
        return cannot_say(err);
    return get_certificate(endpoint, ca_pem, &wanted, request, timeout_ms, ret, err);
}

int front_login(const char *endpoint, const char *ca_pem, const char *key, const char *csr,
                int timeout_ms, struct front_certificate *ret, struct err *err)
{
    static const struct wanted wanted = { "/v1/login", "client", client_name_check };
    CLEANUP_REQUEST json_t *request = json_object();
    if (!set_text(request, "key", key) || !set_text(request, "csr", csr))
        return cannot_say(err);
    return get_certificate(endpoint, ca_pem, &wanted, request, timeout_ms, ret, err);
}

int front_renew(const char *endpoint, const char *ca_pem, const char *certificate, const char *csr,
                int timeout_ms, struct front_certificate *ret, struct err *err)
{
    static const struct wanted wanted = { "/v1/renew", "name", client_name_check };
    CLEANUP_REQUEST json_t *request = json_object();
    if (!set_text(request, "certificate", certificate) || !set_text(request, "csr", csr))
        return cannot_say(err);
    return get_certificate(endpoint, ca_pem, &wanted, request, timeout_ms, ret, err);
}

/* The CA and the time, from anybody. */

static int to_pem(X509 *cert, char **ret, struct err *err)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *data = NULL;
    long size = bio && PEM_write_bio_X509(bio, cert) == 1 ? BIO_get_mem_data(bio, &data) : 0;
    char *text = size > 0 ? strndup(data, (size_t)size) : NULL;
    BIO_free(bio);
    if (!text)
        return err_nomem(err);
    *ret = text;
    return 0;
}

/* The certificate of the bundle that has this fingerprint, alone. */
static int pick(const char *endpoint, const char *bundle, const char *fingerprint, char **ret,
                struct err *err)
{
    char first[FRONT_FINGERPRINT_LEN + 1] = "", one[FRONT_FINGERPRINT_LEN + 1];
    BIO *bio = BIO_new_mem_buf(bundle, -1);
    if (!bio)
        return err_nomem(err);
    int r = 1;
    for (unsigned i = 0; r == 1; i++) {
        X509 *cert = PEM_read_bio_X509(bio, NULL, NULL, NULL);
        if (!cert)
            break;
        if (digest_of(cert, one, err) < 0)
            r = -1;
        else if (strcmp(one, fingerprint) == 0)
            r = to_pem(cert, ret, err);
        else if (i == 0)
            (void)memcpy(first, one, sizeof(first));
        X509_free(cert);
    }
    BIO_free(bio);
    ERR_clear_error();
    if (r == 1 && !first[0])
        return strange(endpoint, "ca", err);
    if (r == 1)
        return err_set(err, ERR_UNAUTHENTICATED,
                       "%s is not the orchestrator we were told to trust: its CA has the "
                       "fingerprint %s, we expect %s; nothing secret was sent. Check the endpoint "
                       "and the fingerprint",
                       endpoint, first, fingerprint);
    return r;
}

static int get_ca(const char *endpoint, int timeout_ms, json_t **ret, struct err *err)
{
    const struct http_request request = { .endpoint = endpoint,
                                          .path = "/v1/ca",
                                          .timeout_ms = timeout_ms };
    return ask(&request, ret, err);
}

int front_fetch_ca(const char *endpoint, const char *fingerprint, int timeout_ms, char **ret_ca_pem,
                   struct err *err)
{
    char expected[FRONT_FINGERPRINT_LEN + 1];
    CLEANUP_JSON json_t *answer = NULL;
    if (front_fingerprint_parse(fingerprint, expected, err) < 0 ||
        get_ca(endpoint, timeout_ms, &answer, err) < 0)
        return -1;
    const char *bundle = get_text(answer, "ca", PEM_MAX);
    if (!bundle)
        return strange(endpoint, "ca", err);
    return pick(endpoint, bundle, expected, ret_ca_pem, err);
}

int front_server_time(const char *endpoint, int timeout_ms, int64_t *ret_server_ms, struct err *err)
{
    CLEANUP_JSON json_t *answer = NULL;
    int64_t server_ms;
    if (get_ca(endpoint, timeout_ms, &answer, err) < 0)
        return -1;
    if (!get_time(answer, "server_unix_ms", &server_ms))
        return strange(endpoint, "server_unix_ms", err);
    *ret_server_ms = server_ms;
    return 0;
}
