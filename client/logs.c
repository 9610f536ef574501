/* LogService.StreamLogs: lines as they come. Calls through client/client.c. */
#include "client/client-internal.h"

static const char *const level_names[] = {
    [SANDSTORM_LEVEL_UNKNOWN] = "unknown", [SANDSTORM_LEVEL_ERROR] = "error",
    [SANDSTORM_LEVEL_WARN] = "warn",       [SANDSTORM_LEVEL_INFO] = "info",
    [SANDSTORM_LEVEL_DEBUG] = "debug",
};

const char *sandstorm_level_name(enum sandstorm_level level)
{
    return (size_t)level < ELEMENTS(level_names) ? level_names[level] : "unknown";
}

/* 1 when the caller has enough. */
static int deliver(const Sandstorm__V1__LogLine *message,
                   const struct sandstorm_logs_options *options, struct err *err)
{
    CLEANUP_FREE struct sandstorm_log_field *fields =
        calloc(message->n_fields + 1, sizeof(*fields));
    if (!fields)
        return err_nomem(err);
    for (size_t i = 0; i < message->n_fields; i++)
        fields[i] =
            (struct sandstorm_log_field){ message->fields[i]->name, message->fields[i]->value };
    const struct sandstorm_log_line line = {
        .time_unix_us = message->time_unix_us,
        .level = (enum sandstorm_level)message->level,
        .origin = message->origin,
        .message = message->message,
        .fields = fields,
        .field_count = message->n_fields,
    };
    return !options->each(options->userdata, &line);
}

static int on_message(void *owner, ProtobufCMessage **message, struct err *err)
{
    const struct sandstorm_logs_options *options = owner;
    const Sandstorm__V1__StreamLogsResponse *answer =
        (const Sandstorm__V1__StreamLogsResponse *)*message;
    for (size_t i = 0; i < answer->n_lines; i++) {
        int r = deliver(answer->lines[i], options, err);
        if (r != 0)
            return r;
    }
    return 0;
}

int sandstorm_logs(struct sandstorm_client *client, const struct sandstorm_logs_options *options,
                   struct sandstorm_error *error)
{
    /* Everything may be long; a peer that is gone is noticed by the channel's keepalive. */
    static const struct client_method method = {
        "/sandstorm.v1.LogService/StreamLogs",
        &sandstorm__v1__stream_logs_response__descriptor,
        RPC_NO_DEADLINE,
    };
    struct err err = { 0 };
    Sandstorm__V1__StreamLogsRequest request = SANDSTORM__V1__STREAM_LOGS_REQUEST__INIT;
    request.sandbox_id = (char *)options->sandbox;
    if (options->command_id)
        request.command_id = (char *)options->command_id;
    request.since_unix_us = options->since_unix_us;
    request.last = options->last;
    request.follow = options->follow;
    if (client_stream(client, &method, &request.base, on_message, (void *)options, &err) == 0)
        return 0;
    client_explain(client, &err);
    return client_error(&err, error);
}
