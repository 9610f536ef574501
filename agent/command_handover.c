/* A command on its way from one life of the runner's program to the next: everything that is in
 * memory, and the numbers of its descriptors. What is not in its file yet goes along as output.
 * Called by agent/runner_handover.c. Whoever adds something to struct command that lives longer
 * than a turn of the loop adds it here too. */
#include "agent/command-internal.h"
#include "agent/handover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

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
    ret->kill_when_alone = command->kill_when_alone;
    ret->alone_us = command->alone_us;
    ret->kill_grace_us = command->kill_grace_us;
    ret->timeout_us = command->timeout_us;
    ret->timeout_left_us = loop_timer_left_us(command->timeout);
    ret->kill_left_us = loop_timer_left_us(command->kill);
    ret->drain_left_us = loop_timer_left_us(command->drain);
    ret->alone_left_us = loop_timer_left_us(command->alone);
    ret->drain_over = command->drain_over;
    ret->cause = command->cause;
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
    ret->input_eof = input->eof;
    ret->input_broken = input->broken;
}

static int keep_descriptors(struct handover_out *out, const Sandstorm__Runner__Command *message,
                            struct err *err)
{
    for (size_t i = 0; i < message->n_output; i++)
        if (handover_keep(out, message->output[i]->fd, err) < 0)
            return -1;
    if (handover_keep(out, message->pidfd, err) < 0 ||
        handover_keep(out, message->input_fd, err) < 0)
        return -1;
    return handover_keep(out, message->file_fd, err);
}

static int put_message(struct command *command, struct handover_out *out, struct err *err)
{
    uint8_t pending[COMMAND_STDIN_WINDOW];
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

/* And back. */

int command_handover_check(const Sandstorm__Runner__Command *message, struct err *err)
{
    struct command_id id;
    if (command_id_parse(message->command_id, &id, err) < 0)
        return -1;
    bool running = message->state == COMMAND_RUNNING;
    if (message->spec_digest.len != COMMAND_DIGEST_LEN || message->state >= COMMAND_STATE_COUNT_ ||
        message->n_output != 2 || message->pid < 0 || message->pid > INT32_MAX ||
        (message->outcome.len == 0) != running || (message->pidfd < 0) == running ||
        message->cause > CAUSE_CANCELLED || message->input_pending.len > COMMAND_STDIN_WINDOW ||
        message->ledger_first > message->ledger_memory || message->ledger_memory > INT64_MAX ||
        message->sent > message->limit || message->input_taken > message->input_received)
        return err_set(err, ERR_INVALID, "the handover of a command contradicts itself");
    return 0;
}

static int restore_file(struct command *command, const Sandstorm__Runner__Command *message,
                        struct err *err)
{
    struct spool_file *file;
    const struct spool_file_state from = {
        .fd = message->file_fd,
        .salt = message->file_salt,
        .first = message->file_first,
        .write_position = message->file_write_position,
        .has_end = message->file_has_end,
    };
    const struct spool_position position = { .first = message->ledger_first,
                                             .end = message->ledger_memory };
    spool_restore(&command->spool, &position);
    command->spool.max = message->ledger_max;
    if (message->file_fd < 0)
        return 0;
    if (spool_file_adopt(command->host.state, &command->id, &from, &file, err) < 0)
        return -1;
    spool_back(&command->spool, command->host.state, file, message->ledger_max);
    return 0;
}

static void restore_timer(struct loop_timer *timer, uint64_t left_us)
{
    if (left_us != UINT64_MAX)
        loop_timer_start(timer, left_us);
}

static void restore_policy(struct command *command, const Sandstorm__Runner__Command *message)
{
    command->output_policy = (Sandstorm__V1__OutputPolicy)message->output_policy;
    command->kill_when_alone = message->kill_when_alone;
    command->alone_us = message->alone_us;
    command->kill_grace_us = message->kill_grace_us;
    command->timeout_us = message->timeout_us;
    command->drain_over = message->drain_over;
    command->cause = (enum command_cause)message->cause;
    (void)snprintf(command->cancel_kept, sizeof(command->cancel_kept), "%s",
                   message->cancel_reason);
    command->cancel_reason = command->cancel_kept;
    restore_timer(command->timeout, message->timeout_left_us);
    restore_timer(command->kill, message->kill_left_us);
    restore_timer(command->drain, message->drain_left_us);
    restore_timer(command->alone, message->alone_left_us);
}

static void restore_speech(struct command *command, const Sandstorm__Runner__Command *message)
{
    command->speaking = message->speaking;
    command->client = message->client;
    window_init(&command->output, message->sent, message->limit);
    command->acked = message->acked;
    command->started_due = message->started_due;
    command->ended_due = message->ended_due;
    command->stdin_due = message->stdin_due;
    command->settled_due = message->settled_due;
}

/* For the log; the orchestrator hears it from the message itself. */
static int restore_outcome(struct command *command, const Sandstorm__Runner__Command *message,
                           struct err *err)
{
    command->outcome.started_us = message->started_unix_us;
    if (message->outcome.len == 0)
        return 0;
    if (wire_unpack(&sandstorm__v1__outcome__descriptor, message->outcome.data,
                    message->outcome.len, &command->kept, err) < 0)
        return -1;
    const Sandstorm__V1__Outcome *outcome = (const Sandstorm__V1__Outcome *)command->kept;
    command->outcome.kind = outcome->result_case;
    command->outcome.duration_us = outcome->duration_us;
    if (outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT_EXITED)
        command->outcome.code = outcome->exited->code;
    if (outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT_SIGNALED)
        command->outcome.signal = outcome->signaled->signal;
    return 0;
}

static int restore_input(struct command *command, const Sandstorm__Runner__Command *message,
                         struct err *err)
{
    struct command_stdin *input = &command->input;
    input->fd = message->input_fd;
    input->eof = message->input_eof;
    input->broken = message->input_broken;
    input->window.received = message->input_received;
    input->window.taken = message->input_taken;
    input->window.granted = message->input_granted;
    if (message->input_pending.len == 0)
        return 0;
    return buf_push(&input->bytes, message->input_pending.data, message->input_pending.len, err);
}

/* Numbers become descriptors again; none of them is for a command that starts later. */
static int adopt_descriptors(const Sandstorm__Runner__Command *message, struct err *err)
{
    const int fds[] = { message->output[0]->fd, message->output[1]->fd, message->pidfd,
                        message->input_fd, message->file_fd };
    for (size_t i = 0; i < ELEMENTS(fds); i++)
        if (fds[i] >= 0 && fcntl(fds[i], F_SETFD, FD_CLOEXEC) < 0)
            return err_errno(err, errno, "descriptor %d of a command is not there", fds[i]);
    return 0;
}

int command_take_over(const struct command_host *host, const Sandstorm__Runner__Command *message,
                      struct command **ret, struct err *err)
{
    struct command_id id;
    struct command *command;
    if (command_handover_check(message, err) < 0 || adopt_descriptors(message, err) < 0 ||
        command_id_parse(message->command_id, &id, err) < 0 ||
        command_new_bare(host, &id, &command, err) < 0)
        return -1;
    (void)memcpy(command->digest, message->spec_digest.data, sizeof(command->digest));
    command->state = (enum command_state)message->state;
    command->pid = (pid_t)message->pid;
    command->pidfd = message->pidfd;
    command->started_monotonic_us = message->started_monotonic_us;
    command->keep.reserved_unix_us = message->reserved_unix_us;
    command->keep.reserved_boot_us = message->reserved_boot_us;
    command->keep.started_boot_us = message->started_boot_us;
    for (size_t i = 0; i < ELEMENTS(command->pipes); i++) {
        command->pipes[i].fd = message->output[i]->fd;
        command->pipes[i].bytes = message->output[i]->bytes;
        command->pipes[i].must_read = message->output[i]->must_read;
    }
    restore_policy(command, message);
    restore_speech(command, message);
    *ret = command;
    if (restore_outcome(command, message, err) < 0 || restore_input(command, message, err) < 0)
        return -1;
    return restore_file(command, message, err);
}

int command_take_blocks(struct command *command, const void *bytes, size_t size, struct err *err)
{
    struct spool_block block;
    if (!command->spool.file || size % sizeof(block) != 0)
        return err_set(err, ERR_INVALID, "blocks of a command that has no file");
    for (const uint8_t *at = bytes; size > 0; at += sizeof(block), size -= sizeof(block)) {
        (void)memcpy(&block, at, sizeof(block));
        if (spool_file_adopt_block(command->spool.file, &block, err) < 0)
            return -1;
    }
    return 0;
}

int command_take_output(struct command *command, uint64_t offset, unsigned stream,
                        const void *bytes, size_t size, struct err *err)
{
    if (offset != spool_end(&command->spool) ||
        (stream != SPOOL_STDOUT && stream != SPOOL_STDERR) || size == 0)
        return err_set(err, ERR_INVALID, "output of a command that does not follow on");
    return spool_append(&command->spool, (enum spool_stream)stream, bytes, size, err);
}

/* Its pieces belong together: what was sent is there, and what is in memory follows the file. */
static bool holds_together(const struct command *command)
{
    const struct spool *spool = &command->spool;
    uint64_t end = spool_end(spool), written = spool->file ? spool_file_end(spool->file) : 0;
    if (command->output.sent > end || command->acked > end || written > end)
        return false;
    return written == 0 || written >= spool->memory || buf_used(&spool->bytes) == 0;
}

int command_go_on(struct command *command, struct err *err)
{
    if (!holds_together(command))
        return err_set(err, ERR_INVALID, "the ledger of a command does not hold together");
    command_keep_position(command);
    if (command_watch_pipes(command, err) < 0 ||
        (command->pidfd >= 0 && command_watch_child(command, err) < 0))
        return -1;
    if (command->state == COMMAND_ENDED)
        command_keep_end(command);
    else
        command_input_feed(command);
    return 0;
}
