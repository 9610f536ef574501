/* All that a runner is, on its way to the program that it becomes (agent/runner_upgrade.c), and
 * back into a runner there. next: agent/command_handover.c and agent/command_takeover.c for each
 * command.
 */
#include "agent/runner-internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

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
    header.socket = runner->socket_path;
    header.oom_score_adj = runner->oom_score_adj;
    header.handed_on = forest_handed_on(runner->forest);
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

/* The socket stays where it is, whatever the settings say by now: the link has to find it. */
static int take_socket(struct runner *runner, const Sandstorm__Runner__Handover *header,
                       const struct runner_config *config, struct err *err)
{
    if (strcmp(header->socket, config->socket) != 0)
        log_warn("the socket stays where it is until the runner is restarted",
                 LF_STR("socket", header->socket), LF_STR("setting", config->socket));
    runner->listen_fd = header->listen_fd;
    runner->socket_path = strdup(header->socket);
    if (!runner->socket_path)
        return err_nomem(err);
    if (chown(runner->socket_path, config->link_uid, (gid_t)-1) < 0)
        return err_errno(err, errno, "cannot give the socket %s to the link", header->socket);
    return 0;
}

static int take_header(struct runner *runner, const Sandstorm__Runner__Handover *header,
                       const struct runner_config *config, struct err *err)
{
    const int fds[] = { header->listen_fd, header->state_fd, header->released_fd };
    uint64_t quota = config->spool_quota ? config->spool_quota : STATE_QUOTA_DEFAULT;
    for (size_t i = 0; i < ELEMENTS(fds); i++)
        if (own(fds[i], err) < 0)
            return -1;
    if (strlen(header->instance) != COMMAND_ID_LEN)
        return err_set(err, ERR_INVALID, "the handover names no instance");
    (void)memcpy(runner->instance, header->instance, sizeof(runner->instance));
    runner->files = (struct rlimit){ header->files_soft, header->files_hard };
    /* We have it from our predecessor, and what it had from before is the commands'. */
    (void)snprintf(runner->oom_score_adj, sizeof(runner->oom_score_adj), "%s",
                   header->oom_score_adj);
    if (take_socket(runner, header, config, err) < 0 ||
        runner_plant(runner, config, true, err) < 0 ||
        state_dir_adopt(header->state_fd, quota, &runner->state, err) < 0 ||
        released_adopt(runner->released, header->released_fd, err) < 0)
        return -1;
    runner_host(runner);
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

/* Has it a tree? */
static bool is_growing(const void *userdata, const struct command_id *id)
{
    const struct runner_entry *entry = runner_find((struct runner *)userdata, id);
    return entry && command_state(entry->command) != COMMAND_ENDED;
}

static int take_all(struct runner *runner, struct handover_in *in,
                    const struct runner_config *config, struct err *err)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    if (next_header(in, &message, err) < 0)
        return -1;
    const Sandstorm__Runner__Handover *header = (const Sandstorm__Runner__Handover *)message;
    if (take_header(runner, header, config, err) < 0 || take_records(runner, in, err) < 0)
        return -1;
    forest_go_on(runner->forest, header->handed_on, is_growing, runner);
    for (struct runner_entry *entry = runner->commands; entry; entry = entry->hh.next) {
        if (command_go_on(entry->command, err) < 0)
            return err_wrap(err, "command %s", entry->id.text);
        runner_note_ready(runner, entry);
    }
    reaper_sweep(forest_reaper(runner->forest));
    return 0;
}

int runner_take_over(struct runner *runner, const struct runner_config *config, struct err *err)
{
    struct handover_in in;
    CLEANUP_FD int fd = config->handover_fd;
    if (runner_handover_check(fd, err) < 0 || handover_map(fd, &in, err) < 0)
        return -1;
    int r = take_all(runner, &in, config, err);
    handover_unmap(&in);
    if (r < 0)
        return err_wrap(err, "cannot take over from the runner before");
    log_info("runner goes on", LF_UINT("commands", HASH_COUNT(runner->commands)),
             LF_UINT("running", runner_count_running(runner)));
    return 0;
}
