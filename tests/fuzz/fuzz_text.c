/* Text from peers, certificates and command lines: ids, identities, endpoints, durations, UTF-8.
 * What is accepted keeps its promises. */
#include "common/identity.h"
#include "common/options.h"
#include "common/rpc_diagnose.h"
#include "common/utf8.h"
#include "tests/fuzz/check.h"

#include <string.h>

static void try_identity(const char *text)
{
    struct err err = { 0 };
    struct identity identity;
    char uri[SPIFFE_URI_MAX];
    if (identity_parse(text, &identity, &err) < 0) {
        check(err.code != ERR_NONE);
        return;
    }
    check(identity.kind == IDENTITY_AGENT || identity.kind == IDENTITY_CLIENT);
    check(trust_domain_check(identity.trust_domain, &err) == 0);
    check(identity_format(&identity, uri, &err) == 0 && strcmp(uri, text) == 0);
}

static void try_ids(const char *text)
{
    struct err err = { 0 };
    struct command_id id;
    if (command_id_parse(text, &id, &err) == 0)
        check(strcmp(id.text, text) == 0 && strlen(text) == COMMAND_ID_LEN);
    if (sandbox_id_check(text, &err) == 0)
        check(strlen(text) <= SANDBOX_ID_MAX && !strpbrk(text, "/.\n %") &&
              client_name_check(text, &err) == 0);
    if (client_name_check(text, &err) == 0)
        check(strlen(text) <= CLIENT_NAME_MAX && !strpbrk(text, "/\n %"));
    if (vm_id_check(text, &err) == 0)
        check(strlen(text) <= VM_ID_MAX && !strpbrk(text, " \n"));
}

static void try_endpoint(const char *text)
{
    struct err err = { 0 };
    struct endpoint endpoint;
    if (endpoint_parse(text, &endpoint, &err) == 0)
        check(*endpoint.host && *endpoint.port && strstr(text, endpoint.host));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    CLEANUP_FREE char *text = malloc(size + 1);
    (void)memcpy(text, data, size);
    text[size] = '\0';
    struct err err = { 0 };
    uint64_t time;
    try_identity(text);
    try_ids(text);
    try_endpoint(text);
    if (duration_parse(text, &time, &err) < 0)
        check(err.code != ERR_NONE && utf8_valid((const uint8_t *)err.text, strlen(err.text)));
    bool valid = utf8_valid((const uint8_t *)text, strlen(text));
    size_t length = strlen(text);
    CLEANUP_FREE char *clean = strdup(text);
    utf8_clean(clean);
    check(strlen(clean) == length && utf8_valid((const uint8_t *)clean, length));
    check(!valid || strcmp(clean, text) == 0);
    return 0;
}
