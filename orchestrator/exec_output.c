/* A command's ledger on its way to one client, from where the client is: out of memory while it
 * keeps up (orchestrator/ledger.c), from the disk when it is behind (orchestrator/ledger_log.c).
 * Called by orchestrator/relay.c when there is more, and by orchestrator/exec.c when there is room.
 */
#include "orchestrator/exec-internal.h"

#include <string.h>

struct exec_read {
    struct ledger_read read;
    struct exec *exec; /* NULL: it has gone */
    bool done;
    const uint8_t *at; /* the run that is next */
    uint64_t offset;   /* of its first byte */
    uint8_t bytes[LEDGER_BLOCK_MAX + 4u * LEDGER_RUN_HEADER];
};

void exec_forget_read(struct exec *exec)
{
    struct exec_read *read = TAKE_PTR(exec->read);
    if (!read)
        return;
    if (read->done)
        free(read);
    else
        read->exec = NULL;
}

static void on_read(struct ledger_read *done)
{
    struct exec_read *read = CONTAINER_OF(done, struct exec_read, read);
    struct exec *exec = read->exec;
    if (!exec) {
        free(read);
        return;
    }
    read->done = true;
    if (done->result < 0 && done->err.code == ERR_NOT_FOUND) {
        exec_forget_read(exec); /* it was let go of meanwhile, and reads as a gap */
    } else if (done->result < 0) {
        struct err err = done->err;
        (void)err_wrap(&err, "the command's output cannot be read");
        exec_fail(exec, &err);
        return;
    }
    exec_pump(exec);
}

static void read_back(struct exec *exec)
{
    struct err err = { 0 };
    struct exec_read *read = malloc(sizeof(*read));
    if (!read) {
        (void)err_nomem(&err);
        exec_fail(exec, &err);
        return;
    }
    (void)memset(&read->read, 0, sizeof(read->read));
    read->read.id = exec->relay->id;
    read->read.offset = read->offset = exec->sent;
    read->read.out = read->bytes;
    read->read.capacity = sizeof(read->bytes);
    read->read.done = on_read;
    read->at = read->bytes;
    read->exec = exec;
    read->done = false;
    exec->read = read;
    if (ledger_log_read(exec->orchestrator->ledgers, &read->read, &err) == 0)
        return;
    exec->read = NULL;
    free(read);
    exec_fail(exec, &err);
}

/* What was read, from where the client is; false when that is used up. */
static bool read_peek(struct exec *exec, struct ledger_piece *ret)
{
    struct exec_read *read = exec->read;
    const uint8_t *end = read->bytes + read->read.size, *data;
    while (exec->sent < read->read.ret_end && read->at < end) {
        const uint8_t *next = read->at;
        uint64_t size;
        if (ledger_run_next(&next, end, &ret->kind, &size, &data) < 0)
            break;
        if (exec->sent < read->offset + size) {
            uint64_t skip = exec->sent - read->offset;
            ret->size = size - skip;
            ret->data = data ? data + skip : NULL;
            return true;
        }
        read->at = next;
        read->offset += size;
    }
    exec_forget_read(exec);
    return false;
}

/* The next piece; false when there is none now. */
static bool next_piece(struct exec *exec, struct ledger_piece *ret)
{
    const struct ledger *ledger = exec->relay->ledger;
    uint64_t first = ledger_first(ledger);
    if (exec->sent >= ledger_end(ledger))
        return false;
    if (exec->read && !exec->read->done)
        return false;
    if (exec->read && read_peek(exec, ret))
        return true;
    if (exec->sent < first) {
        *ret = (struct ledger_piece){ .kind = LEDGER_TRIMMED, .size = first - exec->sent };
        return true;
    }
    if (ledger_peek(ledger, &exec->cursor, exec->sent, ret))
        return true;
    read_back(exec);
    return false;
}

static bool is_output(const struct ledger_piece *piece)
{
    return piece->kind == LEDGER_STDOUT || piece->kind == LEDGER_STDERR;
}

static void send_output(struct exec *exec, const struct ledger_piece *piece, uint64_t size)
{
    Sandstorm__V1__Output output = SANDSTORM__V1__OUTPUT__INIT;
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    output.offset = exec->sent;
    output.stream = piece->kind == LEDGER_STDERR ? SANDSTORM__V1__STREAM__STREAM_STDERR
                                                 : SANDSTORM__V1__STREAM__STREAM_STDOUT;
    output.data = (ProtobufCBinaryData){ (size_t)size, (uint8_t *)piece->data };
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_OUTPUT;
    response.output = &output;
    exec->sent += size;
    exec_reply(exec, &response);
}

static void send_gap(struct exec *exec, const struct ledger_piece *piece)
{
    Sandstorm__V1__Gap gap = SANDSTORM__V1__GAP__INIT;
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    gap.offset = exec->sent;
    gap.size = piece->size;
    gap.reason = piece->kind == LEDGER_DROPPED   ? SANDSTORM__V1__GAP_REASON__GAP_REASON_DROPPED
                 : piece->kind == LEDGER_DAMAGED ? SANDSTORM__V1__GAP_REASON__GAP_REASON_DAMAGED
                                                 : SANDSTORM__V1__GAP_REASON__GAP_REASON_TRIMMED;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_GAP;
    response.gap = &gap;
    exec->sent += piece->size;
    exec_reply(exec, &response);
}

/* False when it has to wait: for room, for credit, for the disk, or for more. */
static bool send_piece(struct exec *exec)
{
    struct ledger_piece piece;
    if (exec->state != EXEC_FOLLOWING || !rpc_call_writable(exec->call) ||
        !next_piece(exec, &piece))
        return false;
    if (!is_output(&piece)) {
        send_gap(exec, &piece);
        return true;
    }
    uint64_t room = exec->grants_itself        ? UINT64_MAX
                    : exec->limit > exec->sent ? exec->limit - exec->sent
                                               : 0;
    uint64_t size = MIN(MIN(piece.size, room), WIRE_PAYLOAD_MAX);
    if (size == 0)
        return false;
    send_output(exec, &piece, size);
    return true;
}

static void send_end(struct exec *exec)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    const struct relay_result *result = exec->relay->result;
    Sandstorm__V1__Ended ended = SANDSTORM__V1__ENDED__INIT;
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    struct err err;
    /* A runner that was killed may have lost what this client has already seen. */
    if (exec->sent > ledger_end(exec->relay->ledger) && !result->lost) {
        (void)err_set(&err, ERR_INVALID, "command %s: its output ends at offset %llu",
                      exec->relay->id.text, (unsigned long long)ledger_end(exec->relay->ledger));
        exec_fail(exec, &err);
        return;
    }
    if (wire_unpack(&sandstorm__v1__outcome__descriptor, result->outcome, result->size, &message,
                    &err) < 0) {
        exec_fail(exec, &err);
        return;
    }
    ended.outcome = (Sandstorm__V1__Outcome *)message;
    ended.end_offset = exec->sent;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_ENDED;
    response.ended = &ended;
    exec_reply(exec, &response);
    if (exec->state != EXEC_FOLLOWING)
        return;
    /* Who acknowledges by offset is waited for; who leaves credit to us has it when the stream has
     * closed in order. */
    exec_set_state(exec, EXEC_ENDED);
    rpc_call_resume(exec->call);
    loop_timer_start(exec->deadline, EXEC_FAREWELL_US);
    if (exec->grants_itself)
        exec_close_stream(exec, NULL);
}

void exec_pump(struct exec *exec)
{
    if (exec->pumping || exec->state != EXEC_FOLLOWING)
        return; /* sending may find that the call has room again, and so on */
    exec->pumping = true;
    while (send_piece(exec))
        ;
    exec->pumping = false;
    if (exec->state != EXEC_FOLLOWING || exec->sent < ledger_end(exec->relay->ledger))
        return;
    if (exec->relay->state == RELAY_ENDED)
        send_end(exec);
    else if (exec->snapshot && exec->sent >= exec->until)
        exec_close_stream(exec, NULL);
}
