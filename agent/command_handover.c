/* A command on its way from one life of the runner's program to the next: everything that is in
 * memory, and the numbers of its descriptors. What is not in its file yet goes along as output.
 * Called by agent/runner_handover.c; next: agent/command_takeover.c, in the program that follows.
 * Whoever adds something to struct command that lives longer than a turn of the loop adds it to
 * both. */
#include "agent/command-internal.h"
#include "agent/handover.h"

#define BLOCKS_IN_RECORD 4096u

/* What a file's ledger is, as it goes into the message. */
static void fill_file(const struct spool *spool, Sandstorm__Runner__Command *ret)
{
    struct spool_file_state file;
    ret->file_fd = -1;
    if (!spool->file)
        return;
    spool_file_state(spool->file, &file);
    ret->file_fd = file.fd;
    ret->file_salt = file.salt;
    ret->file_first = file.first;
    ret->file_write_position = file.write_position;
    ret->file_has_end = file.has_end;
    ret->file_blocks = file.block_count;
}

static void fill_policy(const struct command *command, Sandstorm__Runner__Command *ret)
{
    ret->output_policy = command->output_policy;
    ret->takes_input = command->takes_input;
    ret->kill_when_alone = command->kill_when_alone;
    ret->alone_us = command->alone_us;
    ret->kill_grace_us = command->kill_grace_us;
    ret->timeout_us = command->timeout_us;
    ret->timeout_left_us = loop_timer_left_us(command->timeout);
    ret->kill_left_us = loop_timer_left_us(command->kill);
    ret->patience_left_us = loop_timer_left_us(command->patience);
    ret->drain_left_us = loop_timer_left_us(command->drain);
    ret->alone_left_us = loop_timer_left_us(command->alone);
    ret->drain_over = command->drain_over;
    ret->cause = command->cause;
    ret->swept = command->swept;
    if (command->cancel_reason)
        ret->cancel_reason = (char *)command->cancel_reason;
}

static void fill_speech(const struct command *command, Sandstorm__Runner__Command *ret)
{
    ret->speaking = command->speaking;
    ret->client = command->client;
    ret->sent = command->output.sent;
    ret->limit = command->output.limit;
    ret->acked = command->acked;
    ret->started_due = command->started_due;
    ret->ended_due = command->ended_due;
    ret->stdin_due = command->stdin_due;
    ret->settled_due = command->settled_due;
}

static void fill_input(const struct command *command, uint8_t *pending,
                       Sandstorm__Runner__Command *ret)
{
    const struct command_stdin *input = &command->input;
    size_t size = buf_used(&input->bytes);
    buf_peek(&input->bytes, 0, pending, size);
    ret->input_fd = input->fd;
    ret->input_pending = (ProtobufCBinaryData){ size, pending };
    ret->input_received = input->window.received;
    ret->input_taken = input->window.taken;
    ret->input_granted = input->window.granted;
    ret->input_last = input->last;
    ret->input_eof = input->eof;
    ret->input_ended = input->ended;
    ret->input_broken = input->broken;
}

/* What holds it together. Its limits, its peak and how often it ran out of memory stay with the
 * control group. */
static void fill_tree(const struct command *command, Sandstorm__Runner__Tree *tree,
                      Sandstorm__Runner__Command *ret)
{
    struct tree_state state;
    ret->not_enforced = command->not_enforced;
    if (!command->tree)
        return;
    tree_hand_over(command->tree, &state);
    sandstorm__runner__tree__init(tree);
    tree->reaped = state.reaped;
    tree->killing = state.killing;
    tree->cgroup_fd = state.cgroup_fd;
    ret->tree = tree;
}

static int keep_descriptors(struct handover_out *out, const Sandstorm__Runner__Command *message,
                            struct err *err)
{
    for (size_t i = 0; i < message->n_output; i++)
        if (handover_keep(out, message->output[i]->fd, err) < 0)
            return -1;
    if (handover_keep(out, message->pidfd, err) < 0 ||
        handover_keep(out, message->input_fd, err) < 0 ||
        handover_keep(out, message->slave_fd, err) < 0 ||
        (message->tree && handover_keep(out, message->tree->cgroup_fd, err) < 0))
        return -1;
    return handover_keep(out, message->file_fd, err);
}

static int put_message(struct command *command, struct handover_out *out, struct err *err)
{
    uint8_t pending[COMMAND_STDIN_WINDOW];
    Sandstorm__Runner__Tree tree;
    Sandstorm__Runner__Pipe pipes[2], *pointers[2] = { &pipes[0], &pipes[1] };
    Sandstorm__Runner__Command message = SANDSTORM__RUNNER__COMMAND__INIT;
    CLEANUP_FREE uint8_t *outcome = NULL;
    size_t size = 0;
    if (command->state != COMMAND_RUNNING &&
        command_pack_outcome(command, &outcome, &size, err) < 0)
        return -1;
    for (size_t i = 0; i < ELEMENTS(pipes); i++) {
        sandstorm__runner__pipe__init(&pipes[i]);
        pipes[i].fd = command->pipes[i].fd;
        pipes[i].bytes = command->pipes[i].bytes;
        pipes[i].must_read = command->pipes[i].must_read;
    }
    message.command_id = command->id.text;
    message.spec_digest = (ProtobufCBinaryData){ sizeof(command->digest), command->digest };
    message.state = command->state;
    message.pid = command->pid;
    message.pidfd = command->pidfd;
    message.started_monotonic_us = command->started_monotonic_us;
    message.started_unix_us = command->outcome.started_us;
    message.reserved_unix_us = command->keep.reserved_unix_us;
    message.reserved_boot_us = command->keep.reserved_boot_us;
    message.started_boot_us = command->keep.started_boot_us;
    message.outcome = (ProtobufCBinaryData){ size, outcome };
    message.output = pointers;
    message.n_output = ELEMENTS(pointers);
    fill_input(command, pending, &message);
    message.terminal = command->terminal;
    message.slave_fd = command->slave;
    fill_tree(command, &tree, &message);
    fill_policy(command, &message);
    fill_speech(command, &message);
    fill_file(&command->spool, &message);
    message.ledger_first = spool_first(&command->spool);
    message.ledger_memory = command->spool.memory;
    message.ledger_max = command->spool.max;
    if (handover_put(out, RECORD_COMMAND, 0, &message.base, err) < 0)
        return -1;
    return keep_descriptors(out, &message, err);
}

static int put_blocks(const struct command *command, struct handover_out *out, struct err *err)
{
    struct spool_block blocks[BLOCKS_IN_RECORD];
    if (!command->spool.file)
        return 0;
    for (unsigned from = 0;; from += BLOCKS_IN_RECORD) {
        unsigned count = spool_file_blocks(command->spool.file, from, blocks, ELEMENTS(blocks));
        if (count == 0)
            return 0;
        if (handover_put_bytes(out, RECORD_BLOCKS, from, 0, blocks, count * sizeof(*blocks), err) <
            0)
            return -1;
    }
}

static int put_memory(const struct command *command, struct handover_out *out, struct err *err)
{
    uint8_t bytes[WIRE_PAYLOAD_MAX];
    enum spool_stream stream;
    uint64_t beyond;
    ssize_t n;
    for (uint64_t at = command->spool.memory;
         (n = spool_peek(&command->spool, at, bytes, sizeof(bytes), &stream, &beyond)) > 0;
         at += (uint64_t)n)
        if (handover_put_bytes(out, RECORD_OUTPUT, at, stream, bytes, (size_t)n, err) < 0)
            return -1;
    return 0;
}

int command_hand_over(struct command *command, struct handover_out *out, struct err *err)
{
    struct err full;
    (void)!spool_flush(&command->spool, &full);
    if (put_message(command, out, err) < 0 || put_blocks(command, out, err) < 0)
        return -1;
    return put_memory(command, out, err);
}
