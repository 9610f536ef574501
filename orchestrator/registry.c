/* The table of sandboxes. They come into it from the store at start and when they enrol
 * (orchestrator/enrol.c); clients read it through orchestrator/control_sandbox.c. */
#include "orchestrator/registry.h"

#include "common/wire.h"
#include "orchestrator/access.h"

#include <stdio.h>
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
    HASH_ITER (hh, registry->sandboxes, sandbox, next)
        registry_remove(registry, sandbox);
    free(registry);
}

void registry_remove(struct registry *registry, struct sandbox *sandbox)
{
    HASH_DEL(registry->sandboxes, sandbox);
    wire_free(sandbox->info);
    free(sandbox->reported);
    free(sandbox->labels);
    free(sandbox);
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

/* What it was when it was last heard of. A record that cannot be understood is one of another
 * version: the agent says it again when it comes. */
static void recall(struct sandbox *sandbox, const struct sandbox_record *record)
{
    const struct sandbox_note *note = &record->note;
    struct err ignored;
    sandbox->draining = record->draining;
    sandbox->state_ms = note->state_ms;
    sandbox->last_seen_ms = note->last_seen_ms;
    (void)snprintf(sandbox->last_error, sizeof(sandbox->last_error), "%s", note->last_error);
    sandbox->last_error_ms = note->last_error_ms;
    if (note->info_size == 0 || wire_unpack(&sandstorm__v1__sandbox_info__descriptor, note->info,
                                            note->info_size, &sandbox->info, &ignored) < 0)
        return;
    const Sandstorm__V1__SandboxInfo *info = (const Sandstorm__V1__SandboxInfo *)sandbox->info;
    if (label_messages_read(info->labels, info->n_labels, &sandbox->reported, &ignored) < 0) {
        wire_free(sandbox->info);
        sandbox->info = NULL;
    }
}

int registry_set(struct registry *registry, const struct sandbox_record *record,
                 struct sandbox **ret, struct err *err)
{
    CLEANUP_FREE char *labels = strdup(record->labels);
    struct sandbox *sandbox = registry_find(registry, record->id);
    if (!labels)
        return err_nomem(err);
    if (!sandbox) {
        if (add(registry, record->id, &sandbox, err) < 0)
            return -1;
        recall(sandbox, record);
    }
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
    CLEANUP_FREE char *reported = NULL;
    if (check_texts(info, err) < 0 ||
        label_messages_read(info->labels, info->n_labels, &reported, err) < 0 ||
        wire_pack(&known.base, &packed, &size, err) < 0)
        return -1;
    const Sandstorm__V1__SandboxInfo *before = (const Sandstorm__V1__SandboxInfo *)sandbox->info;
    /* Until its runner has answered, however often it registers before that. */
    sandbox->rebooted |= before && strcmp(before->boot_id, info->boot_id) != 0;
    int r = wire_unpack(&sandstorm__v1__sandbox_info__descriptor, packed, size, &copy, err);
    free(packed);
    if (r < 0)
        return -1;
    wire_free(sandbox->info);
    sandbox->info = copy;
    free(sandbox->reported);
    sandbox->reported = TAKE_PTR(reported);
    return 0;
}

void sandbox_add_sample(struct sandbox *sandbox, int64_t now_ms,
                        const Sandstorm__V1__Metrics *metrics)
{
    uint64_t total = metrics->memory_total_bytes, free_bytes = metrics->memory_available_bytes;
    uint64_t used = total - MIN(total, free_bytes);
    sandbox->samples[sandbox->sample_count++ % REGISTRY_SAMPLES_MAX] = (struct sandbox_sample){
        .time_ms = now_ms,
        .cpu_basis_points = metrics->cpu_basis_points,
        .memory_basis_points = total ? (uint32_t)((double)used / (double)total * 10000) : 0,
        .load1_centi = metrics->load1_centi,
    };
}

void sandbox_note(const struct sandbox *sandbox, struct sandbox_note *ret)
{
    ret->state = sandbox->member.state;
    ret->state_ms = sandbox->state_ms;
    ret->last_seen_ms = sandbox->last_seen_ms;
    (void)snprintf(ret->last_error, sizeof(ret->last_error), "%s", sandbox->last_error);
    ret->last_error_ms = sandbox->last_error_ms;
    ret->info_size = 0;
    if (sandbox->info && protobuf_c_message_get_packed_size(sandbox->info) <= sizeof(ret->info))
        ret->info_size = protobuf_c_message_pack(sandbox->info, ret->info);
}

Sandstorm__V1__SandboxState sandbox_state(const struct sandbox *sandbox)
{
    static const Sandstorm__V1__SandboxState states[FLEET_STATE_COUNT_] = {
        [FLEET_NEW] = SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_OFFLINE,
        [FLEET_ONLINE] = SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_ONLINE,
        [FLEET_SUSPECT] = SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_SUSPECT,
        [FLEET_OFFLINE] = SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_OFFLINE,
        [FLEET_EVICTED] = SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_EVICTED,
    };
    return sandbox->revoked_ms ? SANDSTORM__V1__SANDBOX_STATE__SANDBOX_STATE_REVOKED
                               : states[sandbox->member.state];
}

void sandbox_describe(struct sandbox *sandbox, struct sandbox_description *ret)
{
    Sandstorm__V1__Sandbox *message = &ret->message;
    sandstorm__v1__sandbox__init(message);
    message->id = sandbox->id;
    message->state = sandbox_state(sandbox);
    message->state_unix_ms = sandbox->state_ms;
    message->draining = sandbox->draining;
    message->last_error = sandbox->last_error;
    message->last_error_unix_ms = sandbox->last_error_ms;
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

unsigned sandbox_fields(const Sandstorm__V1__Sandbox *message)
{
    size_t labels = message->n_labels + (message->info ? message->info->n_labels : 0);
    return SANDBOX_FIELDS + 3 * (unsigned)labels;
}
