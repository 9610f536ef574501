/* A command that the program before this one has started: made again from what it wrote, with the
 * descriptors that are still open, and set going where it was. Called by agent/runner_handover.c,
 * after agent/command_handover.c in the program before. */
#include "agent/command-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define STOPPED UINT64_MAX /* of a timer */

/* What follows from its state: who has a process, a tree, an outcome, and which timers may run. */
static bool fits_state(const Sandstorm__Runner__Command *message)
{
    bool running = message->state == COMMAND_RUNNING;
    bool clearing = message->state == COMMAND_CLEARING;
    bool killing = message->kill_left_us != STOPPED || message->patience_left_us != STOPPED;
    if ((message->outcome.len == 0) != running || (message->pidfd < 0) == running ||
        (running && message->pid <= 1) || (!running && message->timeout_left_us != STOPPED))
        return false;
    if (((running || clearing) && !message->tree) ||
        (message->state == COMMAND_ENDED && message->tree))
        return false;
    if (running)
        return !killing || message->cause != CAUSE_NONE;
    return clearing ? killing && (message->cause != CAUSE_NONE || message->swept) : !killing;
}

int command_handover_check(const Sandstorm__Runner__Command *message, struct err *err)
{
    struct command_id id;
    if (command_id_parse(message->command_id, &id, err) < 0)
        return -1;
    if (message->spec_digest.len != COMMAND_DIGEST_LEN || message->state >= COMMAND_STATE_COUNT_ ||
        !fits_state(message) || message->n_output != 2 || message->pid < 0 ||
        message->pid > INT32_MAX || message->cause > CAUSE_CANCELLED ||
        message->not_enforced >= 1u << TREE_LIMIT_COUNT_ || message->input_last > UINT8_MAX ||
        message->input_pending.len > COMMAND_STDIN_WINDOW ||
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
    if (left_us != STOPPED)
        loop_timer_start(timer, left_us);
}

static void restore_policy(struct command *command, const Sandstorm__Runner__Command *message)
{
    command->output_policy = (Sandstorm__V1__OutputPolicy)message->output_policy;
    command->takes_input = message->takes_input;
    command->kill_when_alone = message->kill_when_alone;
    command->alone_us = message->alone_us;
    command->kill_grace_us = message->kill_grace_us;
    command->timeout_us = message->timeout_us;
    command->drain_over = message->drain_over;
    command->cause = (enum command_cause)message->cause;
    command->swept = message->swept;
    (void)snprintf(command->cancel_kept, sizeof(command->cancel_kept), "%s",
                   message->cancel_reason);
    command->cancel_reason = command->cancel_kept;
    restore_timer(command->timeout, message->timeout_left_us);
    restore_timer(command->kill, message->kill_left_us);
    restore_timer(command->patience, message->patience_left_us);
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

static void restore_result(struct command_outcome *outcome, const Sandstorm__V1__Outcome *message)
{
    const char *detail = "";
    switch (message->result_case) {
    case SANDSTORM__V1__OUTCOME__RESULT_EXITED:
        outcome->code = message->exited->code;
        break;
    case SANDSTORM__V1__OUTCOME__RESULT_SIGNALED:
        outcome->signal = message->signaled->signal;
        outcome->core_dumped = message->signaled->core_dumped;
        break;
    case SANDSTORM__V1__OUTCOME__RESULT_CANCELLED:
        detail = message->cancelled->reason;
        break;
    case SANDSTORM__V1__OUTCOME__RESULT_LOST:
        outcome->lost = message->lost->reason;
        detail = message->lost->detail;
        break;
    default:
        break;
    }
    outcome->kind = message->result_case;
    (void)snprintf(outcome->detail, sizeof(outcome->detail), "%s", detail);
}

static struct timeval to_timeval(uint64_t us)
{
    return (struct timeval){ .tv_sec = (time_t)(us / 1000000u),
                             .tv_usec = (suseconds_t)(us % 1000000u) };
}

/* Of one that has ended, the message itself is kept. What is not over yet may still find out who
 * survived it, what it cost, and that it ran out of memory: it needs the fields. */
static int restore_outcome(struct command *command, const Sandstorm__Runner__Command *message,
                           struct err *err)
{
    struct command_outcome *outcome = &command->outcome;
    CLEANUP_WIRE ProtobufCMessage *unpacked = NULL;
    outcome->started_us = message->started_unix_us;
    if (message->outcome.len == 0)
        return 0;
    if (wire_unpack(&sandstorm__v1__outcome__descriptor, message->outcome.data,
                    message->outcome.len, &unpacked, err) < 0)
        return -1;
    const Sandstorm__V1__Outcome *from = (const Sandstorm__V1__Outcome *)unpacked;
    restore_result(outcome, from);
    outcome->ended_us = from->ended_unix_us;
    outcome->duration_us = from->duration_us;
    if (from->usage) {
        outcome->usage.ru_utime = to_timeval(from->usage->user_us);
        outcome->usage.ru_stime = to_timeval(from->usage->system_us);
        outcome->usage.ru_maxrss = (long)(from->usage->max_rss_bytes / 1024);
    }
    if (command->state == COMMAND_ENDED)
        command->kept = TAKE_PTR(unpacked);
    return 0;
}

static int restore_tree(struct command *command, const Sandstorm__Runner__Command *message,
                        struct err *err)
{
    command->not_enforced = message->not_enforced;
    if (!message->tree)
        return 0;
    const struct tree_state state = {
        .leader = command->pid,
        .reaped = message->tree->reaped,
        .killing = message->tree->killing,
        .cgroup_fd = message->tree->cgroup_fd,
    };
    return tree_take_over(command->host.forest, &command->id, &state, &command->tree, err);
}

static int restore_input(struct command *command, const Sandstorm__Runner__Command *message,
                         struct err *err)
{
    struct command_stdin *input = &command->input;
    input->fd = message->input_fd;
    input->last = (uint8_t)message->input_last;
    input->eof = message->input_eof;
    input->ended = message->input_ended;
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
    const int fds[] = { message->output[0]->fd,
                        message->output[1]->fd,
                        message->pidfd,
                        message->input_fd,
                        message->slave_fd,
                        message->file_fd,
                        message->tree ? message->tree->cgroup_fd : -1 };
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
    command->terminal = message->terminal;
    command->slave = message->slave_fd;
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
    if (restore_outcome(command, message, err) < 0 || restore_input(command, message, err) < 0 ||
        restore_tree(command, message, err) < 0)
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
        (command->pidfd >= 0 && command_watch_leader(command, err) < 0))
        return -1;
    if (command->state == COMMAND_ENDED)
        command_keep_end(command);
    else
        command_input_feed(command);
    if (command->state == COMMAND_CLEARING)
        command_wait_cleared(command);
    return 0;
}
