/* The runner's program executes itself anew, in the same process: after an upgrade, on SIGUSR2.
 * Commands stay its children and their descriptors stay open; everything else goes through a memory
 * file (agent/handover.c). The new program is asked first whether it can read that; one that cannot
 * leaves the old one running. next: agent/command_handover.c for each command. */
#include "agent/runner-internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

/* How long the new program may take to read what it is asked about; commands wait meanwhile. */
#define CHECK_MS      10000
#define ARGUMENTS_MAX 6u

/* Writing. */

struct pipes_out {
    struct handover_out *out;
    struct err *err;
    int result;
};

static void put_pipe(void *userdata, int fd)
{
    struct pipes_out *pipes = userdata;
    Sandstorm__Runner__Pipe pipe = SANDSTORM__RUNNER__PIPE__INIT;
    pipe.fd = fd;
    if (pipes->result == 0)
        pipes->result = handover_put(pipes->out, RECORD_PIPE, 0, &pipe.base, pipes->err);
    if (pipes->result == 0)
        pipes->result = handover_keep(pipes->out, fd, pipes->err);
}

static int put_header(struct runner *runner, struct handover_out *out, struct err *err)
{
    Sandstorm__Runner__Handover header = SANDSTORM__RUNNER__HANDOVER__INIT;
    header.instance = runner->instance;
    header.listen_fd = runner->listen_fd;
    header.state_fd = runner->state->fd;
    header.released_fd = released_fd(runner->released);
    header.files_soft = runner->files.rlim_cur;
    header.files_hard = runner->files.rlim_max;
    header.link_fd = -1;
    /* One that is in the middle of something is cut: it comes back and hears everything anew. */
    if (runner->link)
        runner_link_hand_over(runner->link, &header);
    if (handover_put(out, RECORD_HANDOVER, HANDOVER_VERSION, &header.base, err) < 0 ||
        handover_keep(out, header.listen_fd, err) < 0 ||
        handover_keep(out, header.state_fd, err) < 0 ||
        handover_keep(out, header.released_fd, err) < 0)
        return -1;
    return handover_keep(out, header.link_fd, err);
}

int runner_hand_over(struct runner *runner, struct handover_out *out, struct err *err)
{
    struct pipes_out pipes = { .out = out, .err = err };
    if (handover_begin(out, err) < 0 || put_header(runner, out, err) < 0)
        return -1;
    for (struct runner_entry *entry = runner->commands; entry; entry = entry->hh.next)
        if (command_hand_over(entry->command, out, err) < 0)
            return -1;
    drainer_each(runner->drainer, put_pipe, &pipes);
    return pipes.result < 0 ? -1 : handover_end(out, err);
}

/* Reading. Both readers walk the same records; only one of them makes something of it. */

static int unpack(const struct handover_record *record, const ProtobufCMessageDescriptor *type,
                  ProtobufCMessage **ret, struct err *err)
{
    return wire_unpack(type, record->bytes, record->header.size, ret, err);
}

static int out_of_order(struct err *err)
{
    return err_set(err, ERR_INVALID, "the handover is in an order that makes no sense");
}

static int next_header(struct handover_in *in, ProtobufCMessage **ret, struct err *err)
{
    struct handover_record record;
    if (handover_next(in, &record, err) < 0)
        return -1;
    if (record.header.kind != RECORD_HANDOVER)
        return out_of_order(err);
    if (record.header.offset != HANDOVER_VERSION)
        return err_set(err, ERR_UNIMPLEMENTED,
                       "the handover has version %llu and this program knows %u; install the "
                       "program that fits, or stop the commands and restart the runner",
                       (unsigned long long)record.header.offset, HANDOVER_VERSION);
    return unpack(&record, &sandstorm__runner__handover__descriptor, ret, err);
}

/* What would be refused when there is no way back is refused here. */
int runner_handover_check_bytes(const uint8_t *data, size_t size, struct err *err)
{
    struct handover_in in = { data, data, data + size };
    struct handover_record record;
    CLEANUP_WIRE ProtobufCMessage *header = NULL;
    bool commands = false;
    if (next_header(&in, &header, err) < 0)
        return -1;
    for (;;) {
        CLEANUP_WIRE ProtobufCMessage *message = NULL;
        if (handover_next(&in, &record, err) < 0)
            return -1;
        switch (record.header.kind) {
        case RECORD_COMMAND:
            if (unpack(&record, &sandstorm__runner__command__descriptor, &message, err) < 0 ||
                command_handover_check((const Sandstorm__Runner__Command *)message, err) < 0)
                return -1;
            commands = true;
            break;
        case RECORD_BLOCKS:
        case RECORD_OUTPUT:
            if (!commands)
                return out_of_order(err);
            break;
        case RECORD_PIPE:
            if (unpack(&record, &sandstorm__runner__pipe__descriptor, &message, err) < 0)
                return -1;
            commands = false;
            break;
        case RECORD_DONE:
            return in.at == in.end ? 0 : out_of_order(err);
        default:
            return out_of_order(err);
        }
    }
}

int runner_handover_check(int fd, struct err *err)
{
    struct handover_in in;
    if (handover_map(fd, &in, err) < 0)
        return -1;
    int r = runner_handover_check_bytes(in.data, (size_t)(in.end - in.data), err);
    handover_unmap(&in);
    return r < 0 ? err_wrap(err, "cannot go on with the handover") : 0;
}

static int own(int fd, struct err *err)
{
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return err_errno(err, errno, "descriptor %d of the handover is not there", fd);
    return 0;
}

static int take_header(struct runner *runner, const Sandstorm__Runner__Handover *header,
                       uint64_t quota, struct err *err)
{
    const int fds[] = { header->listen_fd, header->state_fd, header->released_fd };
    for (size_t i = 0; i < ELEMENTS(fds); i++)
        if (own(fds[i], err) < 0)
            return -1;
    if (strlen(header->instance) != COMMAND_ID_LEN)
        return err_set(err, ERR_INVALID, "the handover names no instance");
    (void)memcpy(runner->instance, header->instance, sizeof(runner->instance));
    runner->listen_fd = header->listen_fd;
    runner->files = (struct rlimit){ header->files_soft, header->files_hard };
    if (state_dir_adopt(header->state_fd, quota, &runner->state, err) < 0 ||
        released_adopt(runner->released, header->released_fd, err) < 0)
        return -1;
    runner->host.state = runner->state;
    runner->host.files = runner->files.rlim_max ? &runner->files : NULL;
    if (header->link_fd < 0)
        return 0;
    return own(header->link_fd, err) < 0 ? -1 : runner_link_take_over(runner, header, err);
}

static int take_command(struct runner *runner, const struct handover_record *record,
                        struct runner_entry **ret, struct err *err)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    if (unpack(record, &sandstorm__runner__command__descriptor, &message, err) < 0)
        return -1;
    struct runner_entry *entry = calloc(1, sizeof(*entry));
    if (!entry)
        return err_nomem(err);
    if (command_take_over(&runner->host, (const Sandstorm__Runner__Command *)message,
                          &entry->command, err) < 0) {
        command_free(entry->command);
        free(entry);
        return -1;
    }
    entry->id = *command_id(entry->command);
    HASH_ADD_KEYPTR(hh, runner->commands, entry->id.text, COMMAND_ID_LEN, entry);
    *ret = entry;
    return 0;
}

static int take_pipe(struct runner *runner, const struct handover_record *record, struct err *err)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    if (unpack(record, &sandstorm__runner__pipe__descriptor, &message, err) < 0)
        return -1;
    int fd = ((const Sandstorm__Runner__Pipe *)message)->fd;
    if (own(fd, err) < 0)
        return -1;
    drainer_adopt(runner->drainer, fd);
    return 0;
}

/* Blocks and output are those of the command before them. */
static int take_record(struct runner *runner, const struct handover_record *record,
                       struct runner_entry **entry, struct err *err)
{
    if (record->header.kind == RECORD_COMMAND)
        return take_command(runner, record, entry, err);
    if (record->header.kind == RECORD_PIPE)
        return take_pipe(runner, record, err);
    if (!*entry)
        return out_of_order(err);
    if (record->header.kind == RECORD_BLOCKS)
        return command_take_blocks((*entry)->command, record->bytes, record->header.size, err);
    return command_take_output((*entry)->command, record->header.offset, record->stream,
                               record->bytes, record->header.size, err);
}

static int take_records(struct runner *runner, struct handover_in *in, struct err *err)
{
    struct runner_entry *entry = NULL;
    for (;;) {
        struct handover_record record;
        if (handover_next(in, &record, err) < 0)
            return -1;
        if (record.header.kind == RECORD_DONE)
            return 0;
        if (take_record(runner, &record, &entry, err) < 0)
            return -1;
    }
}

static int take_all(struct runner *runner, struct handover_in *in, uint64_t quota, struct err *err)
{
    CLEANUP_WIRE ProtobufCMessage *header = NULL;
    if (next_header(in, &header, err) < 0 ||
        take_header(runner, (const Sandstorm__Runner__Handover *)header, quota, err) < 0 ||
        take_records(runner, in, err) < 0)
        return -1;
    for (struct runner_entry *entry = runner->commands; entry; entry = entry->hh.next) {
        if (command_go_on(entry->command, err) < 0)
            return err_wrap(err, "command %s", entry->id.text);
        runner_note_ready(runner, entry);
    }
    return 0;
}

int runner_take_over(struct runner *runner, int fd, uint64_t quota, struct err *err)
{
    struct handover_in in;
    CLEANUP_FD int owned = fd;
    if (runner_handover_check(owned, err) < 0 || handover_map(owned, &in, err) < 0)
        return -1;
    int r = take_all(runner, &in, quota, err);
    handover_unmap(&in);
    if (r < 0)
        return err_wrap(err, "cannot take over from the runner before");
    log_info("runner goes on", LF_UINT("commands", HASH_COUNT(runner->commands)),
             LF_UINT("running", runner_count_running(runner)));
    return 0;
}

/* From one program to the next. */

/* Waits for it; what it has to say it says on our standard error. */
static int wait_check(pid_t pid, struct err *err)
{
    siginfo_t info = { 0 };
    CLEANUP_FD int pidfd = pidfd_open(pid, 0);
    struct pollfd end = { .fd = pidfd, .events = POLLIN };
    bool in_time = pidfd >= 0 && poll(&end, 1, CHECK_MS) == 1;
    if (!in_time)
        (void)kill(pid, SIGKILL);
    while (waitid(P_PID, (id_t)pid, &info, WEXITED) < 0 && errno == EINTR)
        continue;
    if (!in_time)
        return err_set(err, ERR_TIMEOUT, "the new program does not answer");
    if (info.si_code != CLD_EXITED || info.si_status != 0)
        return err_set(err, ERR_PRECONDITION, "the new program cannot take over (it ended with %d)",
                       info.si_status);
    return 0;
}

static int ask(const struct runner *runner, int fd, struct err *err)
{
    const char *const argv[] = { runner->program, "--check-handover", NULL };
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int r = posix_spawn_file_actions_init(&actions);
    if (r)
        return err_errno(err, r, "cannot ask the new program");
    r = posix_spawn_file_actions_adddup2(&actions, fd, STDIN_FILENO);
    if (r == 0)
        r = posix_spawn(&pid, runner->program, &actions, NULL, (char *const *)argv, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    if (r)
        return err_errno(err, r, "cannot run %s", runner->program);
    return wait_check(pid, err);
}

/* Comes back only when it failed. */
static int become(const struct runner *runner, const struct handover_out *out, struct err *err)
{
    char number[32];
    unsigned count = 0;
    const char *argv[ARGUMENTS_MAX] = { runner->program };
    struct err ignored;
    (void)snprintf(number, sizeof(number), "%d", out->fd);
    argv[++count] = "--handover";
    argv[++count] = number;
    if (runner->settings_file) {
        argv[++count] = "--config";
        argv[++count] = runner->settings_file;
    }
    if (handover_inherit(out, true, err) == 0) {
        (void)execv(runner->program, (char *const *)argv);
        (void)err_errno(err, errno, "cannot execute %s", runner->program);
    }
    (void)!handover_inherit(out, false, &ignored);
    return -1;
}

static int upgrade(struct runner *runner, struct handover_out *out, struct err *err)
{
    if (!runner->state || runner->stopping)
        return err_set(err, ERR_PRECONDITION, "%s",
                       runner->stopping ? "the runner is stopping"
                                        : "the runner has no state directory");
    if (runner_hand_over(runner, out, err) < 0 || ask(runner, out->fd, err) < 0)
        return -1;
    log_info("runner executes itself anew", LF_STR("program", runner->program),
             LF_UINT("commands", HASH_COUNT(runner->commands)));
    daemon_reloading();
    return become(runner, out, err);
}

void runner_upgrade(struct runner *runner)
{
    struct handover_out out = { .fd = -1 };
    struct err err = { 0 };
    (void)!upgrade(runner, &out, &err);
    log_error("the runner goes on as it is", LF_ERR(&err));
    daemon_ready("listening on %s", runner->socket_path);
    handover_done(&out);
}
