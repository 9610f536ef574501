/* Standard input on its way to a command: from the client that controls it (orchestrator/exec.c) or
 * from calls by id (orchestrator/control_command_input.c), kept until the command has taken it,
 * sent again from where the runner is when the link comes back. next: orchestrator/relay_orders.c.
 */
#include "orchestrator/relay-internal.h"

#include <string.h>

uint64_t relay_input_end(const struct relay *relay)
{
    return relay->input_taken + buf_used(&relay->input);
}

/* What is known already is passed over: a client that comes back begins where it likes. */
static int take(struct relay *relay, uint64_t offset, const ProtobufCBinaryData *data, bool eof,
                struct err *err)
{
    uint64_t end = relay_input_end(relay), size = data->len;
    if (offset > end)
        return err_set(err, ERR_INVALID, "input at offset %llu; go on at %llu",
                       (unsigned long long)offset, (unsigned long long)end);
    uint64_t known = MIN(end - offset, size);
    if (relay->input_eof && (known < size || offset + size < end))
        return err_set(err, ERR_INVALID, "input after the end of input");
    if (known < size && buf_push(&relay->input, data->data + known, size - known, err) < 0)
        return -1;
    relay->input_eof = relay->input_eof || eof;
    return 0;
}

int relay_take_input(struct relay *relay, const Sandstorm__V1__Stdin *input, struct err *err)
{
    uint64_t size = input->data.len;
    if (relay->state == RELAY_ENDED)
        return 0; /* crossed with the end record */
    if (size > relay->input_limit || input->offset > relay->input_limit - size)
        return err_set(err, ERR_INVALID, "input at offset %llu; it is allowed up to %llu",
                       (unsigned long long)input->offset, (unsigned long long)relay->input_limit);
    return take(relay, input->offset, &input->data, input->eof, err);
}

void relay_input_at(struct relay *relay, uint64_t received, uint64_t taken)
{
    relay->input_known = MAX(relay->input_known, received);
    if (received >= relay_input_end(relay)) {
        /* Known to the runner already, from this client or from an earlier one: not needed here. */
        buf_drop(&relay->input, buf_used(&relay->input));
        relay->input_taken = relay->input_sent = received;
        return;
    }
    uint64_t keep_from = MAX(MIN(taken, received), relay->input_taken);
    buf_drop(&relay->input, (size_t)(keep_from - relay->input_taken));
    relay->input_taken = keep_from;
    relay->input_sent = MAX(relay->input_sent, relay->input_taken);
}

bool relay_input_due(const struct relay *relay)
{
    return relay->state == RELAY_RUNNING && (relay->input_sent < relay_input_end(relay) ||
                                             (relay->input_eof && !relay->input_eof_sent));
}

void relay_send_input(struct relay *relay)
{
    uint8_t bytes[WIRE_PAYLOAD_MAX];
    uint64_t end = relay_input_end(relay);
    size_t size = (size_t)MIN(end - relay->input_sent, sizeof(bytes));
    buf_peek(&relay->input, (size_t)(relay->input_sent - relay->input_taken), bytes, size);
    Sandstorm__V1__Stdin input = SANDSTORM__V1__STDIN__INIT;
    input.offset = relay->input_sent;
    input.data = (ProtobufCBinaryData){ size, bytes };
    input.eof = relay->input_eof && relay->input_sent + size == end;
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_STDIN;
    order.stdin = &input;
    relay->input_sent += size;
    relay->input_eof_sent = input.eof;
    relay_pass(relay, &order);
}

void relay_end_input(struct relay *relay)
{
    relay->input_eof_sent = true;
    buf_drop(&relay->input, buf_used(&relay->input));
    relay->input_sent = relay->input_taken;
}

/* Calls by id. */

static int check_takes(const struct relay *relay, struct err *err)
{
    const Sandstorm__V1__Started *started = relay_started(relay);
    const char *id = relay->id.text;
    if (relay->state == RELAY_ENDED || relay->result)
        return err_set(err, ERR_PRECONDITION, "command %s has ended", id);
    if (relay->controller)
        return err_set(err, ERR_PRECONDITION,
                       "a client is attached to command %s, and its input is that client's", id);
    if (!started)
        return err_set(err, ERR_UNAVAILABLE, "command %s has not started yet; try again", id);
    if (!started->takes_input)
        return err_set(err, ERR_PRECONDITION,
                       "command %s was started without an input; start it with a streamed one", id);
    if (relay->input_closed)
        return err_set(err, ERR_PRECONDITION, "command %s has closed its input", id);
    return 0;
}

int relay_write(struct relay *relay, const Sandstorm__V1__WriteStdinRequest *request,
                uint64_t *ret_end, struct err *err)
{
    uint64_t offset = request->append ? relay_input_end(relay) : request->offset;
    if (check_takes(relay, err) < 0)
        return -1;
    if (request->data.len > WIRE_PAYLOAD_MAX)
        return err_set(err, ERR_INVALID, "%zu bytes of input at once; at most %u",
                       request->data.len, WIRE_PAYLOAD_MAX);
    uint64_t known = offset < relay_input_end(relay)
                         ? MIN(relay_input_end(relay) - offset, request->data.len)
                         : 0;
    if (request->data.len - known > buf_room(&relay->input))
        return 1;
    if (take(relay, offset, &request->data, request->eof, err) < 0)
        return -1;
    *ret_end = relay_input_end(relay);
    relay_flush(relay);
    return 0;
}

int relay_writer_wait(struct relay *relay, struct relay_writer *writer, struct err *err)
{
    unsigned count = 0;
    struct relay_writer *other;
    DL_COUNT(relay->writers, other, count);
    if (count >= RELAY_WRITERS_MAX)
        return err_set(err, ERR_EXHAUSTED,
                       "%u calls wait already for command %s to take its input; try again later",
                       RELAY_WRITERS_MAX, relay->id.text);
    DL_APPEND(relay->writers, writer);
    return 0;
}

void relay_writer_stop(struct relay *relay, struct relay_writer *writer)
{
    relay_enter(relay);
    DL_DELETE(relay->writers, writer);
    relay_exit(relay);
}

/* Each is taken off before it is called, and may wait again: it is looked at once. */
void relay_wake_writers(struct relay *relay, const struct err *gone)
{
    struct relay_writer *waiting = relay->writers;
    relay->writers = NULL;
    while (waiting) {
        struct relay_writer *writer = waiting;
        DL_DELETE(waiting, writer);
        writer->ready(writer, gone);
    }
}
