/* The output of one command: each byte once and in order, at the reader's pace. Gets records from
 * client/exec_stream.c, checks their offsets, hands the bytes to client/sink.c and returns credit
 * when they are really taken. */
#include "client/exec-internal.h"

/* The sandbox keeps output until it is acknowledged, and keeps a bounded number of records: many
 * small ones are acknowledged before they are half a window. */
#define ACK_RECORDS 512u

void exec_send_credit(struct sandstorm_exec *exec, uint64_t limit)
{
    Sandstorm__V1__Credit credit = SANDSTORM__V1__CREDIT__INIT;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    exec->records = 0;
    credit.acked = exec->output.taken;
    credit.limit = limit;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_CREDIT;
    request.credit = &credit;
    exec_say(exec, &request);
}

/* The result counts once every byte before it has been taken; then we say so, and are done. */
static void maybe_acknowledge(struct sandstorm_exec *exec)
{
    if (!exec->ended || exec->acknowledged || exec->output.taken != exec->end_offset)
        return;
    exec->acknowledged = true;
    exec_send_credit(exec, exec->output.granted);
    if (exec->call)
        rpc_call_finish(exec->call, NULL);
}

static void on_taken(void *owner, size_t size)
{
    struct sandstorm_exec *exec = owner;
    uint64_t limit;
    window_take(&exec->output, size);
    if (!exec->ended && window_should_grant(&exec->output, &limit))
        exec_send_credit(exec, limit);
    else if (!exec->ended && exec->records >= ACK_RECORDS)
        exec_send_credit(exec, exec->output.granted);
    maybe_acknowledge(exec);
}

static void on_broken(void *owner, int stream, int error)
{
    struct sandstorm_exec *exec = owner;
    /* A reader that left is not a fault of ours; a disk that is full is, whatever the command says.
     */
    if (error != EPIPE && exec->output_err.code == ERR_NONE)
        (void)err_errno(&exec->output_err, error, "cannot write the command's %s",
                        stream == 1 ? "output" : "errors");
    if (exec->pipe_told || exec->ended)
        return;
    exec->pipe_told = true;
    /* Our reader is gone: the command hears what it would have heard had it written there itself;
     * but not from somebody who only looks. */
    if (exec->watch)
        sandstorm_exec_detach(exec);
    else
        (void)sandstorm_exec_signal(exec, "PIPE", NULL);
}

int exec_open_sinks(struct sandstorm_exec *exec, struct err *err)
{
    const struct sandstorm_streams *streams = &exec->streams;
    struct sink_config config = {
        .max = EXEC_WINDOW,
        .output = streams->output,
        .userdata = streams->userdata,
        .taken = on_taken,
        .broken = on_broken,
        .owner = exec,
    };
    for (int i = 0; i < 2; i++) {
        config.fd = i == 0 ? streams->stdout_fd : streams->stderr_fd;
        config.stream = i + 1;
        if (sink_new(exec->client->loop, &config, &exec->sinks[i], err) < 0)
            return -1;
    }
    return 0;
}

int exec_on_output(struct sandstorm_exec *exec, const Sandstorm__V1__Output *output,
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

static const char *gap_verb(Sandstorm__V1__GapReason reason)
{
    static const char *const verbs[] = { "dropped", "dropped", "let go", "damaged" };
    return (size_t)reason < ELEMENTS(verbs) ? verbs[reason] : verbs[0];
}

int exec_on_gap(struct sandstorm_exec *exec, const Sandstorm__V1__Gap *gap, struct err *err)
{
    uint64_t expected = exec->output.received;
    if (exec->ended || gap->offset > expected || gap->size > UINT64_MAX - gap->offset)
        return err_set(err, ERR_PROTOCOL, "a gap at offset %llu, expected at %llu",
                       (unsigned long long)gap->offset, (unsigned long long)expected);
    /* What we had before it was lost there is no gap here. */
    uint64_t end = gap->offset + gap->size;
    if (end <= expected)
        return 0;
    uint64_t size = end - expected;
    exec->outcome.gap_bytes += size;
    /* Bytes that never come are received and taken at once. */
    exec->output.received = end;
    exec->output.granted = MAX(exec->output.granted, end);
    exec_notice(exec, "%llu bytes of output were %s before they could be sent",
                (unsigned long long)size, gap_verb(gap->reason));
    on_taken(exec, size);
    return 0;
}

int exec_on_ended(struct sandstorm_exec *exec, const Sandstorm__V1__Ended *ended, struct err *err)
{
    if (exec->ended || !ended->outcome || ended->end_offset != exec->output.received)
        return err_set(err, ERR_PROTOCOL, "an end record that does not fit the output before it");
    client_outcome(ended->outcome, &exec->outcome);
    exec->end_offset = ended->end_offset;
    exec->ended = true;
    exec_close_source(exec);
    maybe_acknowledge(exec);
    return 0;
}
