/* Requests to the front without an agent. Used by the tests of enrolment; next:
 * common/front_client.c, common/http_client.c. */
#include "tests/harness/joiner.h"

#include "common/file.h"
#include "common/rpc_creds.h"

#include <stdio.h>
#include <string.h>

#define SECRET_FILE_MAX 4096u
#define CA_FILE_MAX     65536u

char *joiner_read(const char *name)
{
    char *text = NULL;
    size_t size;
    MUST(file_read(fixture_path(name), SECRET_FILE_MAX, &text, &size, err));
    text[strcspn(text, "\n")] = '\0';
    return text;
}

char *joiner_token(const char *const *options)
{
    static unsigned count;
    char name[32];
    (void)snprintf(name, sizeof(name), "joiner-%u.token", count++);
    MUST(cluster_token(fixture(), name, options, err));
    char *text = joiner_read(name);
    cr_assert_eq(unlink(fixture_path(name)), 0);
    return text;
}

void joiner_secret_id(const char *secret, char ret[16])
{
    const char *id = strchr(secret, '_');
    cr_assert_not_null(id);
    (void)snprintf(ret, 16, "%.*s", (int)strcspn(id + 1, "_"), id + 1);
}

const char *joiner_endpoint(void)
{
    static char text[64];
    if (!*text)
        (void)snprintf(text, sizeof(text), "127.0.0.1:%d", fixture()->http_port);
    return text;
}

const char *joiner_ca(void)
{
    static char *text;
    size_t size;
    if (!text)
        MUST(file_read(fixture_path("state/clients/admin/ca.pem"), CA_FILE_MAX, &text, &size, err));
    return text;
}

int joiner_join(const char *token, const char *key_pem, const char *sandbox_id,
                struct front_certificate *ret, struct err *err)
{
    CLEANUP_FREE char *csr = NULL;
    if (csr_new(key_pem, &csr, err) < 0)
        return -1;
    const struct front_enrolment enrolment = {
        .token = token, .csr = csr, .sandbox_id = sandbox_id, .vm_id = "", .hostname = "joiner"
    };
    return front_enroll(joiner_endpoint(), joiner_ca(), &enrolment, FRONT_TIMEOUT_MS, ret, err);
}

struct err joiner_try(const char *token, const char *sandbox_id)
{
    CLEANUP_KEY_PEM char *key = NULL;
    CLEANUP_FRONT_CERTIFICATE struct front_certificate answer = { 0 };
    struct err why = { 0 };
    MUST(csr_key_new(&key, err));
    if (joiner_join(token, key, sandbox_id, &answer, &why) == 0)
        why = (struct err){ 0 };
    return why;
}

struct http_answer joiner_ask(const char *path, const char *body)
{
    struct http_answer answer = { 0 };
    const struct http_request request = {
        .endpoint = joiner_endpoint(),
        .path = path,
        .body = body,
        .ca_pem = joiner_ca(),
        .timeout_ms = FRONT_TIMEOUT_MS,
    };
    MUST(http_client_run(&request, &answer, err));
    return answer;
}

int64_t joiner_certificate_end(const char *identity_dir)
{
    struct rpc_creds creds;
    struct identity identity;
    int64_t end = 0;
    MUST(rpc_creds_load(identity_dir, &creds, err));
    MUST(rpc_creds_check(&creds, err));
    MUST(csr_check_answer(creds.key, creds.cert, creds.ca, err));
    MUST(rpc_creds_identity(&creds, &identity, &end, err));
    rpc_creds_clear(&creds);
    return end;
}

struct proc_result joiner_status(const struct sandbox_processes *sandbox)
{
    char file[CLUSTER_PATH_MAX + 64];
    (void)snprintf(file, sizeof(file), "SANDSTORM_STATUS_FILE=%s", sandbox->status);
    return RUN(((const char *[]){ file, NULL }), cluster_program("sandstorm-agent"), "status");
}
