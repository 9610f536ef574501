/* CommandService.ListCommands: what ran and what runs, newest first, page by page. Calls through
 * client/client.c. next: client/outcome.c, which client/exec.c shares. */
#include "client/client-internal.h"

#include "common/wire.h"

static const char *const state_names[] = {
    [SANDSTORM_COMMAND_OTHER] = "unknown",   [SANDSTORM_COMMAND_ORDERED] = "ordered",
    [SANDSTORM_COMMAND_RUNNING] = "running", [SANDSTORM_COMMAND_ENDED] = "ended",
    [SANDSTORM_COMMAND_UNKNOWN] = "unknown",
};

const char *sandstorm_command_state_name(enum sandstorm_command_state state)
{
    return (size_t)state < ELEMENTS(state_names) ? state_names[state] : "unknown";
}

int client_deliver_command(const Sandstorm__V1__Command *message, sandstorm_command_fn one,
                           void *userdata, struct err *err)
{
    CLEANUP_FREE char *labels = NULL;
    if (!message)
        return err_set(err, ERR_PROTOCOL, "the orchestrator's answer has no command in it");
    if (!one)
        return 0;
    if (client_labels_join(message->labels, message->n_labels, &labels, err) < 0)
        return -1;
    struct sandstorm_command command = {
        .id = message->id,
        .sandbox = message->sandbox_id,
        .ordered_by = message->ordered_by,
        .labels = labels,
        .state = (enum sandstorm_command_state)message->state,
        .ordered_unix_ms = message->ordered_unix_ms,
        .started_unix_ms = message->started_unix_ms,
        .ended_unix_ms = message->ended_unix_ms,
        .pid = message->pid,
        .end_offset = message->end_offset,
        .stored_from = message->stored_from,
        .stored_to = message->stored_to,
        .terminal = message->terminal,
        .clients = message->clients,
    };
    if (message->outcome)
        client_outcome(message->outcome, &command.outcome);
    one(userdata, &command);
    return 0;
}

struct listing {
    const struct sandstorm_commands_options *options;
    bool enough;
};

static void pass_on(void *userdata, const struct sandstorm_command *command)
{
    struct listing *listing = userdata;
    listing->enough = !listing->options->each(listing->options->userdata, command);
}

/* 1 when the caller has enough. */
static int list_page(struct sandstorm_client *client,
                     const Sandstorm__V1__ListCommandsRequest *request,
                     const struct sandstorm_commands_options *options,
                     char token[CLIENT_PAGE_TOKEN_MAX], struct err *err)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    if (client_unary(client, "/sandstorm.v1.CommandService/ListCommands", &request->base,
                     &sandstorm__v1__list_commands_response__descriptor, &message, err) < 0)
        return -1;
    const Sandstorm__V1__ListCommandsResponse *page =
        (const Sandstorm__V1__ListCommandsResponse *)message;
    struct listing listing = { .options = options };
    for (size_t i = 0; i < page->n_commands; i++) {
        if (client_deliver_command(page->commands[i], pass_on, &listing, err) < 0)
            return -1;
        if (listing.enough)
            return 1;
    }
    return client_next_page(page->next_page_token, token, err);
}

int sandstorm_commands(struct sandstorm_client *client,
                       const struct sandstorm_commands_options *options,
                       struct sandstorm_error *error)
{
    struct err err = { 0 };
    char token[CLIENT_PAGE_TOKEN_MAX] = "";
    Sandstorm__V1__CommandState states[ELEMENTS(state_names)];
    Sandstorm__V1__ListCommandsRequest request = SANDSTORM__V1__LIST_COMMANDS_REQUEST__INIT;
    request.page_token = token;
    request.states = states;
    if (options->sandbox)
        request.sandbox_id = (char *)options->sandbox;
    if (options->command_id)
        request.command_id = (char *)options->command_id;
    if (options->selector)
        request.selector = (char *)options->selector;
    if (options->ordered_by)
        request.ordered_by = (char *)options->ordered_by;
    request.since_unix_ms = options->since_unix_ms;
    request.until_unix_ms = options->until_unix_ms;
    for (unsigned state = 1; state < ELEMENTS(state_names); state++)
        if (options->states & SANDSTORM_STATE_BIT(state))
            states[request.n_states++] = (Sandstorm__V1__CommandState)state;
    int r;
    do
        r = list_page(client, &request, options, token, &err);
    while (r == 0 && *token);
    return r < 0 ? client_error(&err, error) : 0;
}
