/* The table of sandboxes. They come into it from the store at start and when they enrol
 * (orchestrator/enrol.c); clients read it through orchestrator/control_sandbox.c. */
#include "orchestrator/registry.h"

#include "common/wire.h"
#include "orchestrator/access.h"

#include <stdlib.h>
#include <string.h>

struct registry {
    struct sandbox *sandboxes;
};

int registry_new(struct registry **ret, struct err *err)
{
    struct registry *registry = calloc(1, sizeof(*registry));
    if (!registry)
        return err_nomem(err);
    *ret = registry;
    return 0;
}

void registry_free(struct registry *registry)
{
    if (!registry)
        return;
    struct sandbox *sandbox, *next;
    HASH_ITER (hh, registry->sandboxes, sandbox, next) {
        HASH_DEL(registry->sandboxes, sandbox);
        wire_free(sandbox->info);
        free(sandbox->labels);
        free(sandbox);
    }
    free(registry);
}

struct sandbox *registry_find(struct registry *registry, const char *id)
{
    struct sandbox *sandbox;
    HASH_FIND_STR(registry->sandboxes, id, sandbox);
    return sandbox;
}

int registry_not_found(const char *id, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND,
                   "there is no sandbox \"%s\"; 'sandstorm ls' lists those that have joined", id);
}

int registry_get(struct registry *registry, const char *id, struct sandbox **ret, struct err *err)
{
    if (sandbox_id_check(id, err) < 0)
        return -1;
    struct sandbox *sandbox = registry_find(registry, id);
    if (!sandbox)
        return registry_not_found(id, err);
    *ret = sandbox;
    return 0;
}

static int by_id(const struct sandbox *a, const struct sandbox *b)
{
    return strcmp(a->id, b->id);
}

static int add(struct registry *registry, const char *id, struct sandbox **ret, struct err *err)
{
    if (registry_count(registry) >= REGISTRY_SANDBOXES_MAX)
        return err_set(err, ERR_EXHAUSTED, "this orchestrator already knows %u sandboxes",
                       REGISTRY_SANDBOXES_MAX);
    struct sandbox *sandbox = calloc(1, sizeof(*sandbox));
    if (!sandbox)
        return err_nomem(err);
    (void)memcpy(sandbox->id, id, strnlen(id, SANDBOX_ID_MAX));
    sandbox->calls = LOG_LIMIT(ACCESS_PERIOD_US, ACCESS_AGENT_CALLS);
    sandbox->denials = LOG_LIMIT(ACCESS_PERIOD_US, ACCESS_DENIAL_ROWS);
    sandstorm__v1__metrics__init(&sandbox->metrics);
    HASH_ADD_KEYPTR_INORDER(hh, registry->sandboxes, sandbox->id, strlen(sandbox->id), sandbox,
                            by_id);
    *ret = sandbox;
    return 0;
}

int registry_set(struct registry *registry, const struct sandbox_record *record,
                 struct sandbox **ret, struct err *err)
{
    CLEANUP_FREE char *labels = strdup(record->labels);
    struct sandbox *sandbox = registry_find(registry, record->id);
    if (!labels)
        return err_nomem(err);
    if (!sandbox && add(registry, record->id, &sandbox, err) < 0)
        return -1;
    free(sandbox->labels);
    sandbox->labels = TAKE_PTR(labels);
    (void)memcpy(sandbox->key, record->key, sizeof(sandbox->key));
    sandbox->enrolled_ms = record->enrolled_ms;
    sandbox->revoked_ms = record->revoked_ms;
    *ret = sandbox;
    return 0;
}

struct sandbox *registry_next(struct registry *registry, const char *after)
{
    struct sandbox *known = registry_find(registry, after);
    if (known)
        return known->hh.next;
    /* The page before ended with a sandbox that is gone, or this is the first page. */
    struct sandbox *one = registry->sandboxes;
    while (one && strcmp(one->id, after) <= 0)
        one = one->hh.next;
    return one;
}

struct sandbox *registry_any(struct registry *registry)
{
    return registry->sandboxes;
}

unsigned registry_count(const struct registry *registry)
{
    return HASH_COUNT(registry->sandboxes);
}

static int check_texts(const Sandstorm__V1__SandboxInfo *info, struct err *err)
{
    const char *const texts[] = {
        info->vm_id, info->hostname, info->kernel,        info->os,
        info->arch,  info->boot_id,  info->agent_version, info->runner_version,
    };
    for (size_t i = 0; i < ELEMENTS(texts); i++) {
        if (strlen(texts[i]) > REGISTRY_TEXT_MAX)
            return err_set(err, ERR_PROTOCOL, "a text about the sandbox is longer than %u bytes",
                           REGISTRY_TEXT_MAX);
        /* People will read it on a terminal. */
        for (const char *c = texts[i]; *c; c++)
            if ((unsigned char)*c < ' ' || *c == 0x7f)
                return err_set(err, ERR_PROTOCOL,
                               "a text about the sandbox has control characters in it");
    }
    if (info->n_labels > 0)
        return err_set(err, ERR_UNIMPLEMENTED, "labels from the agent are not supported yet");
    return 0;
}

int sandbox_set_info(struct sandbox *sandbox, const Sandstorm__V1__SandboxInfo *info,
                     struct err *err)
{
    uint8_t *packed;
    size_t size;
    ProtobufCMessage *copy;
    /* Only what we know: fields from a newer agent would be kept, and sent to everybody who lists.
     */
    Sandstorm__V1__SandboxInfo known = *info;
    known.base.n_unknown_fields = 0;
    known.base.unknown_fields = NULL;
    if (check_texts(info, err) < 0 || wire_pack(&known.base, &packed, &size, err) < 0)
        return -1;
    const Sandstorm__V1__SandboxInfo *before = (const Sandstorm__V1__SandboxInfo *)sandbox->info;
    sandbox->rebooted = before && strcmp(before->boot_id, info->boot_id) != 0;
    int r = wire_unpack(&sandstorm__v1__sandbox_info__descriptor, packed, size, &copy, err);
    free(packed);
    if (r < 0)
        return -1;
    wire_free(sandbox->info);
    sandbox->info = copy;
    return 0;
}

void sandbox_describe(struct sandbox *sandbox, struct sandbox_description *ret)
{
    Sandstorm__V1__Sandbox *message = &ret->message;
    sandstorm__v1__sandbox__init(message);
    message->id = sandbox->id;
    message->state = sandbox->revoked_ms ? SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_REVOKED
                     : sandbox->session  ? SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_ONLINE
                                         : SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_OFFLINE;
    message->info = (Sandstorm__V1__SandboxInfo *)sandbox->info;
    message->metrics = sandbox->has_metrics ? &sandbox->metrics : NULL;
    message->connected_unix_ms = sandbox->connected_ms;
    message->last_seen_unix_ms = sandbox->last_seen_ms;
    message->runner_connected = sandbox->session && sandbox->runner_connected;
    message->enrolled_unix_ms = sandbox->enrolled_ms;
    message->revoked_unix_ms = sandbox->revoked_ms;
    message->certificate_not_after_unix_ms = sandbox->certificate_not_after_ms;
    message->clock_skew_ms = sandbox->clock_skew_ms;
    message->n_labels = label_messages_fill(&ret->labels, sandbox->labels);
    message->labels = ret->labels.pointers;
}
