/* A command's three streams. Output goes from the pipes into the spool whatever the link does, as
 * far as the spool's bound and the policy allow; input goes from agent/command_orders.c into the
 * command's pipe, and its credit grows only as the command takes it. next: agent/command_events.c
 * sends what the spool holds. */
#include "agent/command-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>

/* Bytes that go at once when the oldest have to make room: a gap record for every few bytes would
 * be as large as what it reports. */
#define DROP_STEP (SPOOL_BYTES_MAX / 8)

#define RETRY_US      100000u /* after a read for which there was no memory */
#define DISK_RETRY_US 500000u /* of a write for which there was no space */

static void close_pipe(struct command_pipe *pipe)
{
    loop_io_free(pipe->io);
    pipe->io = NULL;
    close_fd(&pipe->fd);
    pipe->must_read = 0;
}

static void close_input(struct command_stdin *input)
{
    loop_io_free(input->io);
    input->io = NULL;
    close_fd(&input->fd);
    buf_done(&input->bytes);
}

void command_close_pipes(struct command *command)
{
    for (size_t i = 0; i < ELEMENTS(command->pipes); i++)
        close_pipe(&command->pipes[i]);
    close_input(&command->input);
}

int command_take_pipe(struct command *command)
{
    for (size_t i = 0; i < ELEMENTS(command->pipes); i++)
        if (command->pipes[i].fd >= 0) {
            int fd = TAKE_FD(command->pipes[i].fd);
            close_pipe(&command->pipes[i]);
            return fd;
        }
    return -1;
}

static bool drops_oldest(const struct command *command)
{
    if (command->output_policy == SANDSTORM__V1__OUTPUT_POLICY__OUTPUT_POLICY_UNSPECIFIED)
        return !command->client;
    return command->output_policy == SANDSTORM__V1__OUTPUT_POLICY__OUTPUT_POLICY_DROP_OLDEST;
}

/* True when a read may follow. */
static bool make_room(struct command *command)
{
    while (!spool_make_room(&command->spool)) {
        uint64_t first = spool_first(&command->spool), end = spool_end(&command->spool);
        if (!drops_oldest(command) || first == end)
            return false;
        spool_trim(&command->spool, first + MIN(end - first, (uint64_t)DROP_STEP));
    }
    return true;
}

/* The ledger is closed, but a process that the leader left behind still writes: it must neither
 * block nor die of SIGPIPE on our account. */
static void discard(struct command_pipe *pipe)
{
    uint8_t scratch[4096];
    ssize_t n = read(pipe->fd, scratch, sizeof(scratch));
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        close_pipe(pipe);
}

static void on_output(void *userdata, uint32_t events)
{
    (void)events;
    struct command_pipe *pipe = userdata;
    struct command *command = pipe->command;
    if (command->state == COMMAND_ENDED) {
        discard(pipe);
        return;
    }
    if (!make_room(command)) {
        loop_io_want(pipe->io, 0);
        if (spool_waits_for_disk(&command->spool))
            loop_timer_start(command->retry, DISK_RETRY_US);
        return;
    }
    ssize_t n = spool_read(&command->spool, pipe->fd, pipe->stream);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n < 0 && (errno == ENOMEM || errno == ENOBUFS)) {
        /* No memory is not the end of the output. */
        loop_io_want(pipe->io, 0);
        loop_timer_start(command->retry, RETRY_US);
        return;
    }
    if (n > 0) {
        pipe->bytes += (uint64_t)n;
        command_keep_position(command);
        pipe->must_read -= MIN(pipe->must_read, (uint64_t)n);
    } else {
        close_pipe(pipe);
    }
    command_check_finished(command);
    command_changed(command);
}

void command_resume_reading(struct command *command)
{
    if (spool_room(&command->spool) == 0 && !spool_waits_for_disk(&command->spool) &&
        !drops_oldest(command))
        return;
    for (size_t i = 0; i < ELEMENTS(command->pipes); i++)
        if (command->pipes[i].io)
            loop_io_want(command->pipes[i].io, EPOLLIN);
}

void command_note_unread(struct command *command)
{
    for (size_t i = 0; i < ELEMENTS(command->pipes); i++) {
        int unread = 0;
        if (command->pipes[i].fd >= 0 && ioctl(command->pipes[i].fd, FIONREAD, &unread) == 0)
            command->pipes[i].must_read = (uint64_t)MAX(unread, 0);
    }
}

/* Standard input. */

static void feed(struct command *command)
{
    struct command_stdin *input = &command->input;
    while (input->fd >= 0 && buf_used(&input->bytes) > 0) {
        ssize_t n = buf_write(&input->bytes, input->fd);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            /* EPIPE: the command does not read any more. That is its right, not an error. */
            input->broken = true;
            close_input(input);
            command->stdin_due = true;
            command_changed(command);
            return;
        }
        /* Inline input was never sent, so it is no part of the window. */
        window_take(&input->window, MIN((uint64_t)n, input->window.received - input->window.taken));
    }
    if (input->fd >= 0 && input->eof && buf_used(&input->bytes) == 0)
        close_input(input);
    if (input->io)
        loop_io_want(input->io, buf_used(&input->bytes) > 0 ? EPOLLOUT : 0);
    uint64_t limit;
    if (!input->eof && window_should_grant(&input->window, &limit)) {
        command->stdin_due = true;
        command_changed(command);
    }
}

static void on_input_writable(void *userdata, uint32_t events)
{
    (void)events;
    feed(userdata);
}

bool command_input(struct command *command, const Sandstorm__V1__Stdin *record,
                   struct command_refusal *ret)
{
    struct command_stdin *input = &command->input;
    uint64_t skip;
    struct err err;
    if (input->eof && record->data.len <= input->window.received &&
        record->offset <= input->window.received - record->data.len)
        return true; /* a repetition after a resume */
    if (input->eof) {
        *ret = (struct command_refusal){ SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_BAD_POSITION,
                                         "input after the end of input" };
        return false;
    }
    if (window_receive(&input->window, record->offset, record->data.len, &skip, &err) < 0) {
        *ret = (struct command_refusal){ SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_BAD_POSITION,
                                         "input at an offset that was not granted" };
        return false;
    }
    input->eof = record->eof;
    if (input->fd < 0)
        return true; /* closed by the command: its taker is gone, StdinCredit has said so */
    if (record->data.len > skip &&
        buf_push(&input->bytes, record->data.data + skip, record->data.len - skip, &err) < 0) {
        *ret = (struct command_refusal){ SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_UNSUPPORTED,
                                         "out of memory for input" };
        return false;
    }
    feed(command);
    return true;
}

int command_input_keep(struct command *command, const ProtobufCBinaryData *data, struct err *err)
{
    command->input.eof = true;
    return data->len > 0 ? buf_push(&command->input.bytes, data->data, data->len, err) : 0;
}

void command_input_feed(struct command *command)
{
    feed(command);
}

/* Life. */

static int open_output(struct command_pipe *pipe, int *ret_child, struct err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot create a pipe");
    pipe->fd = ends[0];
    *ret_child = ends[1];
    /* Only our end: the command expects its descriptors to block. */
    if (fcntl(pipe->fd, F_SETFL, O_NONBLOCK) < 0)
        return err_errno(err, errno, "cannot prepare a pipe");
    return 0;
}

static int open_input(struct command *command, Sandstorm__V1__StdinMode mode, int *ret_child,
                      struct err *err)
{
    if (mode == SANDSTORM__V1__STDIN_MODE__STDIN_MODE_UNSPECIFIED) {
        command->input.eof = true;
        *ret_child = open("/dev/null", O_RDONLY | O_CLOEXEC);
        return *ret_child < 0 ? err_errno(err, errno, "cannot open /dev/null") : 0;
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot create a pipe");
    *ret_child = ends[0];
    command->input.fd = ends[1];
    if (fcntl(ends[1], F_SETFL, O_NONBLOCK) < 0)
        return err_errno(err, errno, "cannot prepare a pipe");
    command->stdin_due = mode == SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
    return 0;
}

int command_open_pipes(struct command *command, Sandstorm__V1__StdinMode mode, int child_fds[3],
                       struct err *err)
{
    if (open_input(command, mode, &child_fds[0], err) < 0 ||
        open_output(&command->pipes[0], &child_fds[1], err) < 0 ||
        open_output(&command->pipes[1], &child_fds[2], err) < 0)
        return -1;
    return 0;
}

int command_watch_pipes(struct command *command, struct err *err)
{
    struct command_stdin *input = &command->input;
    for (size_t i = 0; i < ELEMENTS(command->pipes); i++) {
        struct command_pipe *pipe = &command->pipes[i];
        if (pipe->fd >= 0 &&
            loop_io_new(command->host.loop, pipe->fd, EPOLLIN, on_output, pipe, &pipe->io, err) < 0)
            return -1;
    }
    if (input->fd >= 0) {
        if (loop_io_new(command->host.loop, input->fd, EPOLLOUT, on_input_writable, command,
                        &input->io, err) < 0)
            return -1;
        loop_io_want(input->io, 0);
    }
    return 0;
}
