/* One command as its client sees it: CommandService.Exec. Orders it, takes its output in order and
 * at the reader's pace, feeds its input at its own pace, and knows a result only when the end
 * record is here. next: client/exec_open.c, client/sink.c, client/source.c, client/outcome.c. */
#include "client/client-internal.h"
#include "client/sink.h"
#include "client/source.h"
#include "common/window.h"
#include "common/wire.h"

#include <stdio.h>
#include <string.h>

#define EXEC_METHOD "/sandstorm.v1.CommandService/Exec"
#define WINDOW      (512u * 1024)
/* The sandbox keeps output until it is acknowledged, and keeps a bounded number of records: many
 * small ones are acknowledged before they are half a window. */
#define ACK_RECORDS 512u

struct sandstorm_exec {
    struct sandstorm_client *client;
    struct rpc_call *call;
    char id[COMMAND_ID_LEN + 1];
    void (*notice)(void *userdata, const char *text);
    void *userdata;
    struct sink *sinks[2];
    struct source *source;
    struct window_receiver output;
    struct window input;
    unsigned records; /* since the last credit */
    bool accepted, ended, acknowledged, closed, pipe_told;
    uint64_t end_offset;
    struct sandstorm_outcome outcome;
    struct err err;        /* why there is no result */
    struct err output_err; /* why output was lost on our side */
};

static void fail(struct sandstorm_exec *exec, const struct err *why)
{
    if (exec->err.code == ERR_NONE)
        exec->err = *why;
    if (!exec->closed)
        rpc_call_cancel(exec->call);
}

static void say(struct sandstorm_exec *exec, Sandstorm__V1__ExecRequest *request)
{
    struct err err;
    if (!exec->closed && rpc_call_send(exec->call, &request->base, &err) < 0)
        fail(exec, &err);
}

/* Output. */

static void send_credit(struct sandstorm_exec *exec, uint64_t limit)
{
    Sandstorm__V1__Credit credit = SANDSTORM__V1__CREDIT__INIT;
    exec->records = 0;
    credit.acked = exec->output.taken;
    credit.limit = limit;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_CREDIT;
    request.credit = &credit;
    say(exec, &request);
}

/* The result counts once every byte before it has been taken; then we say so, and are done. */
static void maybe_acknowledge(struct sandstorm_exec *exec)
{
    if (!exec->ended || exec->acknowledged || exec->output.taken != exec->end_offset)
        return;
    exec->acknowledged = true;
    send_credit(exec, exec->output.granted);
    if (!exec->closed)
        rpc_call_finish(exec->call, NULL);
}

static void on_taken(void *owner, size_t size)
{
    struct sandstorm_exec *exec = owner;
    uint64_t limit;
    window_take(&exec->output, size);
    if (!exec->ended && window_should_grant(&exec->output, &limit))
        send_credit(exec, limit);
    else if (!exec->ended && exec->records >= ACK_RECORDS)
        send_credit(exec, exec->output.granted);
    maybe_acknowledge(exec);
}

static void on_sink_broken(void *owner, int stream, int error)
{
    struct sandstorm_exec *exec = owner;
    /* A reader that left is not a fault of ours; a disk that is full is, whatever the command says.
     */
    if (error != EPIPE && exec->output_err.code == ERR_NONE)
        (void)err_errno(&exec->output_err, error, "cannot write the command's %s",
                        stream == 1 ? "output" : "errors");
    if (exec->pipe_told || exec->ended)
        return;
    /* Our reader is gone: the command hears what it would have heard had it written there itself.
     */
    exec->pipe_told = true;
    (void)sandstorm_exec_signal(exec, "PIPE", NULL);
}

static int on_output(struct sandstorm_exec *exec, const Sandstorm__V1__Output *output,
                     struct err *err)
{
    uint64_t skip;
    if (exec->ended || (output->stream != SANDSTORM__V1__STREAM__STREAM_STDOUT &&
                        output->stream != SANDSTORM__V1__STREAM__STREAM_STDERR))
        return err_set(err, ERR_PROTOCOL, "output of an unknown stream, or after the end");
    if (window_receive(&exec->output, output->offset, output->data.len, &skip, err) < 0)
        return -1;
    if (skip == output->data.len)
        return 0;
    exec->records++;
    return sink_put(exec->sinks[output->stream - 1], output->data.data + skip,
                    output->data.len - skip, err);
}

static int on_gap(struct sandstorm_exec *exec, const Sandstorm__V1__Gap *gap, struct err *err)
{
    if (gap->offset != exec->output.received || gap->size > UINT64_MAX - gap->offset)
        return err_set(err, ERR_PROTOCOL, "a gap at offset %llu, expected at %llu",
                       (unsigned long long)gap->offset, (unsigned long long)exec->output.received);
    exec->outcome.gap_bytes += gap->size;
    /* Bytes that never come are received and taken at once. */
    exec->output.received += gap->size;
    exec->output.granted = MAX(exec->output.granted, exec->output.received);
    char text[128];
    (void)snprintf(text, sizeof(text), "%llu bytes of output were %s before they could be sent",
                   (unsigned long long)gap->size,
                   gap->reason == SANDSTORM__V1__GAP_REASON__GAP_REASON_TRIMMED ? "let go"
                                                                                : "dropped");
    if (exec->notice)
        exec->notice(exec->userdata, text);
    on_taken(exec, gap->size);
    return 0;
}

/* The result. */

static int on_ended(struct sandstorm_exec *exec, const Sandstorm__V1__Ended *ended, struct err *err)
{
    if (exec->ended || !ended->outcome || ended->end_offset != exec->output.received)
        return err_set(err, ERR_PROTOCOL, "an end record that does not fit the output before it");
    client_outcome(ended->outcome, &exec->outcome);
    exec->end_offset = ended->end_offset;
    exec->ended = true;
    source_free(TAKE_PTR(exec->source));
    maybe_acknowledge(exec);
    return 0;
}

/* Input. */

static void on_input(void *owner, const void *data, size_t size)
{
    struct sandstorm_exec *exec = owner;
    Sandstorm__V1__Stdin input = SANDSTORM__V1__STDIN__INIT;
    input.offset = exec->input.sent;
    input.data = (ProtobufCBinaryData){ size, (uint8_t *)data };
    input.eof = size == 0;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_STDIN;
    request.stdin = &input;
    window_spend(&exec->input, size);
    say(exec, &request);
}

static void on_stdin_credit(struct sandstorm_exec *exec, const Sandstorm__V1__StdinCredit *credit)
{
    if (!exec->source)
        return;
    if (credit->closed) {
        source_free(TAKE_PTR(exec->source));
        return;
    }
    window_grant(&exec->input, credit->limit);
    source_allow(exec->source, window_available(&exec->input));
}

/* The stream. */

static int on_response(struct sandstorm_exec *exec, const Sandstorm__V1__ExecResponse *response,
                       struct err *err)
{
    switch (response->kind_case) {
    case SANDSTORM__V1__EXEC_RESPONSE__KIND_ACCEPTED:
        exec->accepted = true;
        (void)snprintf(exec->id, sizeof(exec->id), "%s", response->accepted->command_id);
        return 0;
    case SANDSTORM__V1__EXEC_RESPONSE__KIND_OUTPUT:
        return on_output(exec, response->output, err);
    case SANDSTORM__V1__EXEC_RESPONSE__KIND_GAP:
        return on_gap(exec, response->gap, err);
    case SANDSTORM__V1__EXEC_RESPONSE__KIND_ENDED:
        return on_ended(exec, response->ended, err);
    case SANDSTORM__V1__EXEC_RESPONSE__KIND_STDIN_CREDIT:
        on_stdin_credit(exec, response->stdin_credit);
        return 0;
    case SANDSTORM__V1__EXEC_RESPONSE__KIND_NOTICE:
        if (exec->notice)
            exec->notice(exec->userdata, response->notice->detail);
        return 0;
    default:
        return 0; /* started, and what a newer orchestrator may say */
    }
}

static void on_message(void *owner, const uint8_t *data, size_t size)
{
    struct sandstorm_exec *exec = owner;
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    struct err err;
    if (wire_unpack(&sandstorm__v1__exec_response__descriptor, data, size, &message, &err) < 0 ||
        on_response(exec, (const Sandstorm__V1__ExecResponse *)message, &err) < 0)
        fail(exec, &err);
}

static void on_closed(void *owner, const struct err *status)
{
    struct sandstorm_exec *exec = owner;
    exec->closed = true;
    source_free(TAKE_PTR(exec->source));
    if (exec->err.code == ERR_NONE && !exec->ended)
        exec->err = *status;
}

static const struct rpc_call_handler handler = {
    .message = on_message,
    .closed = on_closed,
};

/* Starting. */

static int open_streams(struct sandstorm_exec *exec, const struct sandstorm_exec_options *options,
                        struct err *err)
{
    struct loop *loop = exec->client->loop;
    struct sink_config sink = {
        .max = WINDOW,
        .output = options->output,
        .userdata = options->userdata,
        .taken = on_taken,
        .broken = on_sink_broken,
        .owner = exec,
    };
    for (int i = 0; i < 2; i++) {
        sink.fd = i == 0 ? options->stdout_fd : options->stderr_fd;
        sink.stream = i + 1;
        if (sink_new(loop, &sink, &exec->sinks[i], err) < 0)
            return -1;
    }
    const struct source_config source = { options->stdin_fd, on_input, exec };
    if (options->stdin_fd >= 0 && source_new(loop, &source, &exec->source, err) < 0)
        return -1;
    return 0;
}

static int start(struct sandstorm_exec *exec, const struct sandstorm_exec_options *options,
                 struct err *err)
{
    if (open_streams(exec, options, err) < 0)
        return -1;
    if (rpc_channel_call(exec->client->channel, EXEC_METHOD, RPC_NO_DEADLINE, &handler, exec,
                         &exec->call, err) < 0)
        return -1;
    return client_send_open(exec->call, options, exec->output.granted, err);
}

int sandstorm_exec_start(struct sandstorm_client *client,
                         const struct sandstorm_exec_options *options, struct sandstorm_exec **ret,
                         struct sandstorm_error *error)
{
    struct err err = { 0 };
    struct sandstorm_exec *exec = calloc(1, sizeof(*exec));
    if (!exec) {
        (void)err_nomem(&err);
        return client_error(&err, error);
    }
    exec->client = client;
    exec->notice = options->notice;
    exec->userdata = options->userdata;
    window_receiver_init(&exec->output, 0, WINDOW);
    window_init(&exec->input, 0, 0);
    if (start(exec, options, &err) < 0) {
        sandstorm_exec_free(exec);
        return client_error(&err, error);
    }
    *ret = exec;
    return 0;
}

const char *sandstorm_exec_id(const struct sandstorm_exec *exec)
{
    return exec->id;
}

int sandstorm_exec_signal(struct sandstorm_exec *exec, const char *name,
                          struct sandstorm_error *error)
{
    Sandstorm__V1__Signal signal = SANDSTORM__V1__SIGNAL__INIT;
    signal.name = (char *)name;
    signal.target = SANDSTORM__V1__SIGNAL_TARGET__SIGNAL_TARGET_TREE;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_SIGNAL;
    request.signal = &signal;
    struct err err;
    if (exec->closed)
        (void)err_set(&err, ERR_PRECONDITION, "the command has ended or the connection is lost");
    else if (rpc_call_send(exec->call, &request.base, &err) == 0)
        return 0;
    return client_error(&err, error);
}

static bool settled(const struct sandstorm_exec *exec)
{
    /* With the end record here, bytes that wait for a slow reader are still to be taken. */
    return exec->closed && (!exec->ended || exec->output.taken == exec->end_offset);
}

int sandstorm_exec_wait(struct sandstorm_exec *exec, struct sandstorm_outcome *ret,
                        struct sandstorm_error *error)
{
    struct err err = { 0 };
    while (!settled(exec))
        if (loop_turn(exec->client->loop, UINT64_MAX, &err) < 0)
            return client_error(&err, error);
    if (exec->output_err.code != ERR_NONE)
        return client_error(&exec->output_err, error);
    if (exec->ended) {
        *ret = exec->outcome;
        return 0;
    }
    err = exec->err;
    if (err.code == ERR_NONE)
        (void)err_set(&err, ERR_PROTOCOL, "the orchestrator ended the stream without a result");
    client_explain(exec->client, &err);
    if (exec->accepted)
        (void)err_wrap(
            &err,
            "the result of command %s is unknown; the same call with this id attaches to "
            "it again",
            exec->id);
    return client_error(&err, error);
}

void sandstorm_exec_free(struct sandstorm_exec *exec)
{
    if (!exec)
        return;
    struct err ignored;
    if (exec->call && !exec->closed) {
        rpc_call_cancel(exec->call);
        while (!exec->closed && loop_turn(exec->client->loop, UINT64_MAX, &ignored) == 0)
            ;
    }
    rpc_call_release(exec->call);
    source_free(exec->source);
    for (int i = 0; i < 2; i++)
        sink_free(exec->sinks[i]);
    free(exec);
}
