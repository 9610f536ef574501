/* SandboxService.WatchSandboxes: what is there, then what changes, until the caller has enough.
 * Calls through client/client.c; each sandbox goes through client/sandbox.c to the caller. */
#include "client/client-internal.h"

struct watching {
    const struct sandstorm_watch_options *options;
    enum sandstorm_change change;
    bool stopped; /* by the caller */
};

static void pass_on(void *userdata, const struct sandstorm_sandbox *sandbox)
{
    struct watching *watching = userdata;
    const struct sandstorm_watch_options *options = watching->options;
    watching->stopped = !options->each(options->userdata, watching->change, sandbox);
}

static int on_message(void *owner, ProtobufCMessage **message, struct err *err)
{
    struct watching *watching = owner;
    const Sandstorm__V1__WatchSandboxesResponse *answer =
        (const Sandstorm__V1__WatchSandboxesResponse *)*message;
    watching->change = (enum sandstorm_change)answer->kind;
    switch (watching->change) {
    case SANDSTORM_CHANGE_SANDBOX:
    case SANDSTORM_CHANGE_GONE:
        if (client_deliver(answer->sandbox, pass_on, watching, err) < 0)
            return -1;
        break;
    case SANDSTORM_CHANGE_CURRENT:
        pass_on(watching, NULL);
        break;
    default:
        /* A kind of change that this version does not know is none that it can tell of. */
        break;
    }
    return watching->stopped;
}

int sandstorm_watch(struct sandstorm_client *client, const struct sandstorm_watch_options *options,
                    struct sandstorm_error *error)
{
    /* A peer that is gone is noticed by the channel's keepalive. */
    static const struct client_method method = {
        "/sandstorm.v1.SandboxService/WatchSandboxes",
        &sandstorm__v1__watch_sandboxes_response__descriptor,
        RPC_NO_DEADLINE,
    };
    struct err err = { 0 };
    struct watching watching = { .options = options };
    Sandstorm__V1__WatchSandboxesRequest request = SANDSTORM__V1__WATCH_SANDBOXES_REQUEST__INIT;
    if (options->selector)
        request.selector = (char *)options->selector;
    if (options->id)
        request.id = (char *)options->id;
    request.metrics = options->metrics;
    if (client_stream(client, &method, &request.base, on_message, &watching, &err) < 0) {
        client_explain(client, &err);
        return client_error(&err, error);
    }
    if (watching.stopped || client_left(client))
        return 0;
    /* It goes on until somebody ends it, and it was not us. */
    (void)err_set(&err, ERR_UNAVAILABLE, "the orchestrator has ended the watch; start it again");
    return client_error(&err, error);
}
