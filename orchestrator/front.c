/* The routes of the HTTPS port. Requests come whole from orchestrator/http_front.c, on its thread;
 * what is not exactly a request of ours ends there. The others are posted to the loop, which hands
 * them to orchestrator/enrol.c and answers when the store has committed. */
#include "orchestrator/front.h"

#include "common/clock.h"
#include "orchestrator/ca.h"
#include "orchestrator/enrol.h"
#include "orchestrator/orchestrator-internal.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define SECRET_FIELD_MAX 128u

/* Answers. */

int front_status(enum err_code code)
{
    switch (code) {
    case ERR_NONE:
        return 200;
    case ERR_INVALID:
    case ERR_PROTOCOL:
        return 400;
    case ERR_UNAUTHENTICATED:
        return 401;
    case ERR_DENIED:
        return 403;
    case ERR_NOT_FOUND:
        return 404;
    case ERR_EXISTS:
    case ERR_PRECONDITION:
        return 409;
    case ERR_EXHAUSTED:
        return 429;
    case ERR_UNAVAILABLE:
    case ERR_TIMEOUT:
        return 503;
    default:
        return 500;
    }
}

static void reply_json(struct http_exchange *exchange, int status, json_t *json,
                       enum http_blame blame)
{
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (text)
        http_reply(exchange, status, text, blame);
    else
        http_reply(exchange, 500,
                   "{\"error\":{\"code\":\"internal\",\"message\":\"out of memory\"}}",
                   HTTP_BLAME_NONE);
    free(text);
}

static void reply_error(struct http_exchange *exchange, const struct err *err,
                        enum http_blame blame)
{
    reply_json(
        exchange, front_status(err->code),
        json_pack("{s:{s:s, s:s}}", "error", "code", err_name(err->code), "message", err->text),
        blame);
}

/* Requests. */

struct front_request {
    struct loop_post post;
    struct orchestrator *orchestrator;
    struct http_exchange *exchange;
    struct enrol *enrol; /* NULL: is it ready? */
};

enum field_kind { FIELD_SECRET, FIELD_CSR, FIELD_CERTIFICATE, FIELD_SANDBOX, FIELD_VM, FIELD_HOST };

struct field {
    const char *name;
    enum field_kind kind;
    size_t max;
    bool required;
};

static const struct field join_fields[] = {
    { "token", FIELD_SECRET, SECRET_FIELD_MAX, true },
    { "csr", FIELD_CSR, ENROL_CSR_MAX, true },
    { "sandbox_id", FIELD_SANDBOX, SANDBOX_ID_MAX, false },
    { "vm_id", FIELD_VM, VM_ID_MAX, false },
    { "hostname", FIELD_HOST, 255, false },
    { 0 },
};

static const struct field login_fields[] = {
    { "key", FIELD_SECRET, SECRET_FIELD_MAX, true },
    { "csr", FIELD_CSR, ENROL_CSR_MAX, true },
    { 0 },
};

static const struct field renew_fields[] = {
    { "certificate", FIELD_CERTIFICATE, ENROL_CERT_MAX, true },
    { "csr", FIELD_CSR, ENROL_CSR_MAX, true },
    { 0 },
};

static int keep(struct enrol *enrol, enum field_kind kind, const char *text, struct err *err)
{
    char **copy = NULL;
    switch (kind) {
    case FIELD_SECRET:
        copy = &enrol->secret;
        break;
    case FIELD_CSR:
        copy = &enrol->csr;
        break;
    case FIELD_CERTIFICATE:
        copy = &enrol->certificate;
        break;
    case FIELD_SANDBOX:
        (void)snprintf(enrol->sandbox_id, sizeof(enrol->sandbox_id), "%s", text);
        return 0;
    case FIELD_VM:
        (void)snprintf(enrol->vm_id, sizeof(enrol->vm_id), "%s", text);
        return *text ? vm_id_check(text, err) : 0;
    case FIELD_HOST:
        (void)snprintf(enrol->hostname, sizeof(enrol->hostname), "%s", text);
        return 0;
    }
    *copy = strdup(text);
    return *copy ? 0 : err_nomem(err);
}

/* Every field is one that we know, of the right type and size; those that must be there are. */
static int read_fields(const json_t *body, const struct field *fields, struct enrol *enrol,
                       struct err *err)
{
    size_t known = 0;
    for (; fields->name; fields++) {
        const json_t *value = json_object_get(body, fields->name);
        if (!value && !fields->required)
            continue;
        if (!json_is_string(value))
            return err_set(err, ERR_INVALID, "\"%s\" must be there, and a string", fields->name);
        if (json_string_length(value) > fields->max ||
            strlen(json_string_value(value)) != json_string_length(value))
            return err_set(err, ERR_INVALID, "\"%s\" is longer than %zu bytes, or has a NUL in it",
                           fields->name, fields->max);
        if (keep(enrol, fields->kind, json_string_value(value), err) < 0)
            return -1;
        known++;
    }
    if (json_object_size(body) != known)
        return err_set(err, ERR_INVALID, "the request has a field that is not known here");
    return 0;
}

static int parse(struct http_exchange *exchange, const struct field *fields, struct enrol *enrol,
                 struct err *err)
{
    json_error_t error;
    size_t size;
    const char *text = http_body(exchange, &size);
    json_t *body = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!body)
        return err_set(err, ERR_INVALID, "the request is not JSON: %s at byte %d", error.text,
                       error.position);
    int r = json_is_object(body) ? read_fields(body, fields, enrol, err)
                                 : err_set(err, ERR_INVALID, "the request is not a JSON object");
    json_decref(body);
    return r;
}

/* Enrolment, login, renewal. */

static const char *const name_fields[] = {
    [ENROL_JOIN] = "sandbox_id",
    [ENROL_LOGIN] = "client",
    [ENROL_RENEW_EXPIRED] = "name",
};

static void on_enrolled(struct enrol *enrol)
{
    struct front_request *request = enrol->userdata;
    if (enrol->verdict.code == ERR_NONE)
        reply_json(request->exchange, 200,
                   json_pack("{s:s, s:s, s:s, s:I, s:I}", name_fields[enrol->kind],
                             enrol->identity.name, "certificate", enrol->pem, "ca",
                             ca_bundle(enrol->orchestrator->ca), "not_after_unix_ms",
                             (json_int_t)enrol->not_after_s * 1000, "server_unix_ms",
                             (json_int_t)wall_ms()),
                   HTTP_BLAME_NONE);
    else
        reply_error(request->exchange, &enrol->verdict,
                    enrol->guessing ? HTTP_BLAME_GUESSING
                    : enrol->verdict.code == ERR_UNAVAILABLE || enrol->verdict.code == ERR_EXHAUSTED
                        ? HTTP_BLAME_NONE
                        : HTTP_BLAME_CLUMSY);
    enrol_free(enrol);
    free(request);
}

static void on_loop(struct loop_post *post)
{
    struct front_request *request = CONTAINER_OF(post, struct front_request, post);
    enrol_submit(request->enrol, on_enrolled, request);
}

static void handle(struct orchestrator *orchestrator, struct http_exchange *exchange,
                   enum enrol_kind kind, const struct field *fields)
{
    struct front_request *request = calloc(1, sizeof(*request));
    struct enrol *enrol = NULL;
    struct err err = { 0 };
    int r = request ? enrol_new(orchestrator, kind, &enrol, &err) : err_nomem(&err);
    if (r == 0) {
        (void)snprintf(enrol->source, sizeof(enrol->source), "source/%s", http_source(exchange));
        r = parse(exchange, fields, enrol, &err);
    }
    if (r < 0) {
        reply_error(exchange, &err, HTTP_BLAME_CLUMSY);
        enrol_free(enrol);
        free(request);
        return;
    }
    request->exchange = exchange;
    request->enrol = enrol;
    request->post.fn = on_loop;
    loop_post(orchestrator->loop, &request->post);
}

static void handle_enroll(void *userdata, struct http_exchange *exchange)
{
    handle(userdata, exchange, ENROL_JOIN, join_fields);
}

static void handle_login(void *userdata, struct http_exchange *exchange)
{
    handle(userdata, exchange, ENROL_LOGIN, login_fields);
}

static void handle_renew(void *userdata, struct http_exchange *exchange)
{
    handle(userdata, exchange, ENROL_RENEW_EXPIRED, renew_fields);
}

/* What everybody may know. */

static void handle_ca(void *userdata, struct http_exchange *exchange)
{
    const struct orchestrator *orchestrator = userdata;
    reply_json(exchange, 200,
               json_pack("{s:s, s:s, s:I}", "ca", ca_bundle(orchestrator->ca), "fingerprint",
                         ca_fingerprint(orchestrator->ca), "server_unix_ms", (json_int_t)wall_ms()),
               HTTP_BLAME_NONE);
}

static void handle_healthz(void *userdata, struct http_exchange *exchange)
{
    (void)userdata;
    http_reply(exchange, 200, "{\"status\":\"alive\"}", HTTP_BLAME_NONE);
}

/* Ready means that a request gets an answer: the way through the loop is taken, too. */
static void ready_on_loop(struct loop_post *post)
{
    struct front_request *request = CONTAINER_OF(post, struct front_request, post);
    if (request->orchestrator->stopping)
        http_reply(request->exchange, 503, "{\"status\":\"stopping\"}", HTTP_BLAME_NONE);
    else
        http_reply(request->exchange, 200, "{\"status\":\"ready\"}", HTTP_BLAME_NONE);
    free(request);
}

static void handle_readyz(void *userdata, struct http_exchange *exchange)
{
    struct orchestrator *orchestrator = userdata;
    struct front_request *request = calloc(1, sizeof(*request));
    if (!request) {
        http_reply(exchange, 503, "{\"status\":\"out of memory\"}", HTTP_BLAME_NONE);
        return;
    }
    request->exchange = exchange;
    request->orchestrator = orchestrator;
    request->post.fn = ready_on_loop;
    loop_post(orchestrator->loop, &request->post);
}

const struct http_route front_routes[] = {
    { "POST", "/v1/enroll", handle_enroll },
    { "POST", "/v1/login", handle_login },
    { "POST", "/v1/renew", handle_renew },
    { "GET", "/v1/ca", handle_ca },
    { "GET", "/healthz", handle_healthz },
    { "GET", "/readyz", handle_readyz },
    { 0 },
};
