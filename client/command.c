/* Commands by their id: CommandService's calls with one answer. Those that may be repeated go on
 * through restarts of the orchestrator (client_insist); the others are the caller's to repeat.
 * Calls through client/client.c. next: client/spec.c for a start, client/commands.c for what comes
 * back. */
#include "client/client-internal.h"

#include "common/clock.h"
#include "common/ids.h"
#include "common/wire.h"

/* A wait is asked for again and again: so long each time, and the answer may take that much more.
 */
#define WAIT_SLICE_MS  300000u
#define WAIT_MARGIN_US 20000000u
/* There may be no room for input for a while. */
#define WRITE_DEADLINE_US 60000000u

#define METHOD(name) "/sandstorm.v1.CommandService/" name

int sandstorm_command_start(struct sandstorm_client *client, const struct sandstorm_spec *spec,
                            sandstorm_command_fn one, void *userdata, struct sandstorm_error *error)
{
    static const struct client_method method = {
        METHOD("StartCommand"),
        &sandstorm__v1__start_command_response__descriptor,
        CLIENT_DEADLINE_US,
    };
    CLEANUP_WIRE ProtobufCMessage *body = NULL, *answer = NULL;
    Sandstorm__V1__StartCommandRequest request = SANDSTORM__V1__START_COMMAND_REQUEST__INIT;
    struct command_id id;
    struct err err = { 0 };
    /* An id of our own, so that it can be repeated. */
    if ((spec->command_id ? command_id_parse(spec->command_id, &id, &err)
                          : command_id_new(&id, &err)) < 0 ||
        client_spec(spec, false, &body, &err) < 0)
        return client_error(&err, error);
    request.sandbox_id = (char *)spec->sandbox;
    request.command_id = id.text;
    request.spec = (Sandstorm__V1__CommandSpec *)body;
    if (client_insist(client, &method, &request.base, false, &answer, &err) < 0 ||
        client_deliver_command(((Sandstorm__V1__StartCommandResponse *)answer)->command, one,
                               userdata, &err) < 0)
        return client_error(&err, error);
    return 0;
}

int sandstorm_command_get(struct sandstorm_client *client, const char *id, sandstorm_command_fn one,
                          void *userdata, struct sandstorm_error *error)
{
    CLEANUP_WIRE ProtobufCMessage *answer = NULL;
    Sandstorm__V1__GetCommandRequest request = SANDSTORM__V1__GET_COMMAND_REQUEST__INIT;
    struct err err = { 0 };
    request.command_id = (char *)id;
    if (client_unary(client, METHOD("GetCommand"), &request.base,
                     &sandstorm__v1__get_command_response__descriptor, &answer, &err) < 0 ||
        client_deliver_command(((Sandstorm__V1__GetCommandResponse *)answer)->command, one,
                               userdata, &err) < 0)
        return client_error(&err, error);
    return 0;
}

/* 0 with the answer, 1 when it has not ended yet. */
static int wait_slice(struct sandstorm_client *client, const char *id, uint64_t slice_ms,
                      bool again, ProtobufCMessage **ret, struct err *err)
{
    const struct client_method method = {
        METHOD("WaitCommand"),
        &sandstorm__v1__wait_command_response__descriptor,
        slice_ms * 1000 + WAIT_MARGIN_US,
    };
    Sandstorm__V1__WaitCommandRequest request = SANDSTORM__V1__WAIT_COMMAND_REQUEST__INIT;
    request.command_id = (char *)id;
    request.timeout_ms = slice_ms;
    if (client_insist(client, &method, &request.base, again, ret, err) == 0)
        return 0;
    return err->code == ERR_TIMEOUT && !client_left(client) ? 1 : -1;
}

int sandstorm_command_wait(struct sandstorm_client *client, const char *id, uint64_t timeout_ms,
                           sandstorm_command_fn one, void *userdata, struct sandstorm_error *error)
{
    CLEANUP_WIRE ProtobufCMessage *answer = NULL;
    struct err err = { 0 };
    uint64_t begun_us = monotonic_us();
    int r = 1;
    for (bool again = false; r == 1; again = true) {
        uint64_t gone_ms = (monotonic_us() - begun_us) / 1000;
        if (timeout_ms && gone_ms >= timeout_ms)
            break;
        uint64_t left_ms = timeout_ms ? timeout_ms - gone_ms : UINT64_MAX;
        r = wait_slice(client, id, MIN(left_ms, WAIT_SLICE_MS), again, &answer, &err);
    }
    if (r == 1)
        (void)err_set(&err, ERR_TIMEOUT, "command %s has not ended yet", id);
    if (r != 0 || client_deliver_command(((Sandstorm__V1__WaitCommandResponse *)answer)->command,
                                         one, userdata, &err) < 0)
        return client_error(&err, error);
    return 0;
}

int sandstorm_command_signal(struct sandstorm_client *client, const char *id, const char *name,
                             bool leader, struct sandstorm_error *error)
{
    CLEANUP_WIRE ProtobufCMessage *answer = NULL;
    Sandstorm__V1__Signal signal = SANDSTORM__V1__SIGNAL__INIT;
    Sandstorm__V1__SignalCommandRequest request = SANDSTORM__V1__SIGNAL_COMMAND_REQUEST__INIT;
    struct err err = { 0 };
    signal.name = (char *)name;
    signal.target = leader ? SANDSTORM__V1__SIGNAL_TARGET__SIGNAL_TARGET_LEADER
                           : SANDSTORM__V1__SIGNAL_TARGET__SIGNAL_TARGET_TREE;
    request.command_id = (char *)id;
    request.signal = &signal;
    if (client_unary(client, METHOD("SignalCommand"), &request.base,
                     &sandstorm__v1__signal_command_response__descriptor, &answer, &err) < 0)
        return client_error(&err, error);
    return 0;
}

int sandstorm_command_cancel(struct sandstorm_client *client, const char *id, uint64_t grace_ms,
                             struct sandstorm_error *error)
{
    CLEANUP_WIRE ProtobufCMessage *answer = NULL;
    Sandstorm__V1__CancelCommandRequest request = SANDSTORM__V1__CANCEL_COMMAND_REQUEST__INIT;
    struct err err = { 0 };
    request.command_id = (char *)id;
    request.grace_ms = grace_ms;
    if (client_unary(client, METHOD("CancelCommand"), &request.base,
                     &sandstorm__v1__cancel_command_response__descriptor, &answer, &err) < 0)
        return client_error(&err, error);
    return 0;
}

int sandstorm_command_write(struct sandstorm_client *client, const char *id, const uint64_t *offset,
                            const void *data, size_t size, uint64_t *ret_end,
                            struct sandstorm_error *error)
{
    static const struct client_method method = {
        METHOD("WriteStdin"),
        &sandstorm__v1__write_stdin_response__descriptor,
        WRITE_DEADLINE_US,
    };
    CLEANUP_WIRE ProtobufCMessage *answer = NULL;
    Sandstorm__V1__WriteStdinRequest request = SANDSTORM__V1__WRITE_STDIN_REQUEST__INIT;
    struct err err = { 0 };
    request.command_id = (char *)id;
    request.data = (ProtobufCBinaryData){ size, (uint8_t *)data };
    request.append = offset == NULL;
    request.offset = offset ? *offset : 0;
    if (size > WIRE_PAYLOAD_MAX) {
        (void)err_set(&err, ERR_INVALID, "%zu bytes of input at once; at most %u can be sent", size,
                      WIRE_PAYLOAD_MAX);
        return client_error(&err, error);
    }
    if (client_call(client, &method, &request.base, &answer, &err) < 0) {
        client_explain(client, &err);
        return client_error(&err, error);
    }
    if (ret_end)
        *ret_end = ((Sandstorm__V1__WriteStdinResponse *)answer)->end_offset;
    return 0;
}

int sandstorm_command_close_stdin(struct sandstorm_client *client, const char *id,
                                  struct sandstorm_error *error)
{
    CLEANUP_WIRE ProtobufCMessage *answer = NULL;
    Sandstorm__V1__CloseStdinRequest request = SANDSTORM__V1__CLOSE_STDIN_REQUEST__INIT;
    struct err err = { 0 };
    request.command_id = (char *)id;
    if (client_unary(client, METHOD("CloseStdin"), &request.base,
                     &sandstorm__v1__close_stdin_response__descriptor, &answer, &err) < 0)
        return client_error(&err, error);
    return 0;
}
