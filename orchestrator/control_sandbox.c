/* SandboxService: the registry as clients see it. Requests come from common/rpc_server.c, unpacked
 * and from a client certificate. */
#include "orchestrator/orchestrator-internal.h"

#include "common/wire.h"

#include <string.h>

#define PAGE_DEFAULT 100u
#define PAGE_MAX     200u
#define PAGE_BYTES   (192u * 1024) /* a page fits a message, whatever agents call themselves */

int control_list_sandboxes(void *userdata, struct rpc_call *call, const ProtobufCMessage *message,
                           struct err *err)
{
    struct orchestrator *orchestrator = userdata;
    const Sandstorm__V1__ListSandboxesRequest *request =
        (const Sandstorm__V1__ListSandboxesRequest *)message;
    size_t wanted = request->page_size ? MIN(request->page_size, PAGE_MAX) : PAGE_DEFAULT;
    if (*request->page_token && sandbox_id_check(request->page_token, err) < 0)
        return err_set(err, ERR_INVALID, "the page token is not one of ours");
    Sandstorm__V1__Sandbox sandboxes[PAGE_MAX];
    Sandstorm__V1__Sandbox *pointers[PAGE_MAX];
    Sandstorm__V1__ListSandboxesResponse response = SANDSTORM__V1__LIST_SANDBOXES_RESPONSE__INIT;
    struct sandbox *sandbox = registry_next(orchestrator->registry, request->page_token);
    size_t bytes = 0;
    for (; sandbox && response.n_sandboxes < wanted; sandbox = sandbox->hh.next) {
        size_t i = response.n_sandboxes;
        sandbox_describe(sandbox, &sandboxes[i]);
        bytes += sandstorm__v1__sandbox__get_packed_size(&sandboxes[i]) + WIRE_HEADER_MAX;
        if (bytes > PAGE_BYTES)
            break;
        pointers[i] = &sandboxes[i];
        response.n_sandboxes++;
    }
    response.sandboxes = pointers;
    if (sandbox && response.n_sandboxes > 0)
        response.next_page_token = pointers[response.n_sandboxes - 1]->id;
    return rpc_call_send(call, &response.base, err);
}

int control_get_sandbox(void *userdata, struct rpc_call *call, const ProtobufCMessage *message,
                        struct err *err)
{
    struct orchestrator *orchestrator = userdata;
    const Sandstorm__V1__GetSandboxRequest *request =
        (const Sandstorm__V1__GetSandboxRequest *)message;
    struct sandbox *sandbox;
    if (registry_get(orchestrator->registry, request->id, &sandbox, err) < 0)
        return -1;
    Sandstorm__V1__Sandbox description;
    sandbox_describe(sandbox, &description);
    Sandstorm__V1__GetSandboxResponse response = SANDSTORM__V1__GET_SANDBOX_RESPONSE__INIT;
    response.sandbox = &description;
    return rpc_call_send(call, &response.base, err);
}
