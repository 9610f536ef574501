/* What a runner reads of an earlier one: a command's file after a crash, and a handover. Both are
 * its own and have checksums, which the fuzzer cannot guess; so the input says what the records
 * hold, and they are sealed here. Whatever comes of it must be a command that says what a link
 * would take, to its end. No process is touched: what would is wrapped (see CMakeLists.txt). */
#include "agent/command-internal.h"
#include "agent/runner-internal.h"
#include "tests/fuzz/check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define ID "12345678-7f0e-4a53-9c55-3d7a1f2e9b10"

int __wrap_pidfd_open(pid_t pid, unsigned flags);
int __wrap_kill(pid_t pid, int number);
void __wrap_log_event(enum log_level level, const char *message, const struct log_field *fields,
                      unsigned count);

int __wrap_pidfd_open(pid_t pid, unsigned flags)
{
    (void)flags;
    check(pid > 1);
    errno = ESRCH;
    return -1;
}

int __wrap_kill(pid_t pid, int number)
{
    (void)pid;
    (void)number;
    check(false);
    return 0;
}

void __wrap_log_event(enum log_level level, const char *message, const struct log_field *fields,
                      unsigned count)
{
    (void)level;
    (void)message;
    (void)fields;
    (void)count;
}

static struct command_host host;

static void changed(void *userdata, struct command *command)
{
    (void)userdata;
    (void)command;
}

static void prepare(void)
{
    static char path[] = "/tmp/fuzz-kept-XXXXXX";
    struct err err;
    check(mkdtemp(path) != NULL);
    check(loop_new(&host.loop, &err) == 0);
    check(state_dir_open(path, 1u << 20, &host.state, &err) == 0);
    host.changed = changed;
}

/* A number that is small, large, or near one of the others. */
static uint64_t number(struct input *input)
{
    uint64_t value = input_byte(input);
    switch (input_byte(input) % 4) {
    case 0:
        return value;
    case 1:
        return value * 65536;
    case 2:
        return UINT64_MAX - value;
    default:
        return 4096 + value * 16;
    }
}

/* A sealed record, with what the input says, at the file's end or over what is there. */
static void put_record(struct input *input, int fd, enum record_kind kind, uint32_t salt,
                       const void *bytes, size_t size, off_t at)
{
    uint32_t runs[8] = { 0 };
    struct record record = { .kind = kind, .size = (uint32_t)size, .salt = salt };
    if (kind == RECORD_HANDOVER)
        record.offset = HANDOVER_VERSION;
    if (kind == RECORD_OUTPUT) {
        record.offset = number(input);
        record.runs = input_byte(input) % ELEMENTS(runs);
        for (uint32_t i = 0; i < record.runs; i++)
            runs[i] = RECORD_RUN(number(input), input_byte(input));
        if (input_byte(input) % 2 && record.runs > 0)
            runs[record.runs - 1] = RECORD_RUN(size, 1);
    }
    const struct iovec pieces[] = { { &record, sizeof(record) },
                                    { runs, record.runs * sizeof(*runs) },
                                    { (void *)bytes, size } };
    record_seal(&record, runs, &pieces[2], 1);
    (void)!pwritev(fd, pieces, ELEMENTS(pieces), at);
}

static void put_blocks(struct input *input, int fd, uint32_t salt)
{
    for (off_t at = 4096; input->size > 0 && input_byte(input) % 8;) {
        size_t size;
        const uint8_t *bytes = input_block(input, &size);
        put_record(input, fd, RECORD_OUTPUT, salt, bytes, size, at);
        at = lseek(fd, 0, SEEK_END);
    }
}

/* Everything that it has to say, from any offset, while it is acknowledged. */
static void follow(struct input *input, struct command *command)
{
    static uint8_t packet[RUNNER_PACKET_MAX];
    struct command_refusal refusal;
    Sandstorm__V1__Attach attach = SANDSTORM__V1__ATTACH__INIT;
    attach.from_offset = number(input);
    attach.limit = UINT64_MAX;
    if (!command_attach(command, &attach, &refusal)) {
        attach.from_offset = 0;
        check(command_attach(command, &attach, &refusal));
    }
    for (unsigned i = 0; command_has_event(command); i++) {
        struct err err;
        ProtobufCMessage *message;
        size_t size = command_pack_event(command, packet, sizeof(packet));
        check(i < 1000000);
        check(wire_unpack(&sandstorm__v1__agent_frame__descriptor, packet, size, &message, &err) ==
              0);
        wire_free(message);
        if (i % 3 == 2)
            spool_trim(&command->spool, command->output.sent);
    }
    check(command->output.sent == spool_end(&command->spool));
}

static void read_file(struct input *input)
{
    struct err err;
    struct command_id id;
    struct command *command;
    uint8_t digest[COMMAND_DIGEST_LEN] = { 0 }, packed[512];
    Sandstorm__Runner__Head head = SANDSTORM__RUNNER__HEAD__INIT;
    uint32_t salt = input_byte(input);
    CLEANUP_FD int fd = openat(host.state->fd, ID, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    check(fd >= 0 && command_id_parse(ID, &id, &err) == 0);
    head.command_id = (char *)ID;
    head.spec_digest = (ProtobufCBinaryData){ sizeof(digest), digest };
    head.pid = (int64_t)number(input);
    put_record(input, fd, RECORD_HEAD, salt, packed, sandstorm__runner__head__pack(&head, packed),
               0);
    size_t size;
    const uint8_t *bytes = input_block(input, &size);
    (void)!pwrite(fd, bytes, MIN(size, 120u), 1536);
    if (input_byte(input) % 2) {
        Sandstorm__Runner__End end = SANDSTORM__RUNNER__END__INIT;
        bytes = input_block(input, &size);
        end.outcome = (ProtobufCBinaryData){ MIN(size, 300u), (uint8_t *)bytes };
        end.end_offset = number(input);
        put_record(input, fd, RECORD_END, salt, packed, sandstorm__runner__end__pack(&end, packed),
                   1664);
    }
    put_blocks(input, fd, salt);
    bytes = input_block(input, &size);
    (void)!pwrite(fd, bytes, size, (off_t)number(input) % 65536);
    if (command_load(&host, &id, &command, &err) == 0) {
        follow(input, command);
        command_forget_file(command);
        command_free(command);
    }
    check(host.state->used == 0);
}

/* A whole one, as a program that is asked would see it. */
static void read_handover(struct input *input)
{
    struct err err = { 0 };
    if (runner_handover_check_bytes(input->data, input->size, &err) < 0)
        check(err.code != ERR_NONE);
    int fd = memfd_create("handover", MFD_CLOEXEC);
    while (input->size > 0) {
        size_t size;
        enum record_kind kind = input_byte(input) % 10;
        const uint8_t *bytes = input_block(input, &size);
        put_record(input, fd, kind, 0, bytes, size, lseek(fd, 0, SEEK_END));
    }
    (void)!runner_handover_check(fd, &err);
    close_fd(&fd);
}

static void fill_command(struct input *input, uint8_t *digest, Sandstorm__Runner__Command *message)
{
    message->command_id = (char *)ID;
    message->spec_digest = (ProtobufCBinaryData){ COMMAND_DIGEST_LEN, digest };
    message->state = COMMAND_DRAINING + input_byte(input) % 2;
    message->pidfd = message->input_fd = message->file_fd = message->slave_fd = -1;
    message->timeout_left_us = message->kill_left_us = message->alone_left_us = UINT64_MAX;
    message->drain_left_us = message->patience_left_us = UINT64_MAX;
    message->input_received = number(input);
    message->input_taken = number(input);
    message->input_granted = number(input);
    message->input_eof = input_byte(input) % 2;
    message->sent = number(input);
    message->limit = number(input);
    message->acked = number(input);
    message->ledger_first = number(input);
    message->ledger_memory = number(input);
    message->ledger_max = number(input);
    message->file_first = number(input);
    message->file_write_position = number(input);
    message->outcome.data = (uint8_t *)input_block(input, &message->outcome.len);
    /* Mostly one that passes the check. */
    if (input_byte(input) % 8) {
        message->limit = MAX(message->limit, message->sent);
        message->ledger_memory = MAX(message->ledger_memory, message->ledger_first);
        message->input_received = MAX(message->input_received, message->input_taken);
    }
    message->terminal = input_byte(input) % 2;
    message->input_last = (uint32_t)number(input);
    message->input_ended = input_byte(input) % 2;
    message->not_enforced = (uint32_t)number(input);
    message->cause = input_byte(input) % 4;
    if (input_byte(input) % 8 == 0)
        message->patience_left_us = number(input);
}

static int take_rest(struct input *input, struct command *command, struct err *err)
{
    for (unsigned i = input_byte(input) % 8; i > 0; i--) {
        size_t size;
        const struct spool_block block = { number(input), number(input) };
        const uint8_t *bytes = input_block(input, &size);
        if (input_byte(input) % 2 && command_take_blocks(command, &block, sizeof(block), err) < 0)
            return -1;
        if (input_byte(input) % 2 &&
            command_take_output(command, spool_end(&command->spool), 1 + input_byte(input) % 3,
                                bytes, size, err) < 0)
            return -1;
    }
    return command_go_on(command, err);
}

static void take_command(struct input *input)
{
    struct err err;
    struct command *command = NULL;
    uint8_t digest[COMMAND_DIGEST_LEN] = { 0 };
    Sandstorm__Runner__Pipe pipe = SANDSTORM__RUNNER__PIPE__INIT, *pipes[2] = { &pipe, &pipe };
    Sandstorm__Runner__Command message = SANDSTORM__RUNNER__COMMAND__INIT;
    pipe.fd = -1;
    message.output = pipes;
    message.n_output = ELEMENTS(pipes);
    fill_command(input, digest, &message);
    CLEANUP_FD int fd = memfd_create("file", MFD_CLOEXEC);
    put_blocks(input, fd, 7);
    message.file_salt = 7;
    if (input_byte(input) % 2)
        message.file_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    int r = command_take_over(&host, &message, &command, &err);
    bool owned = r == 0 && command->spool.file;
    if (r == 0 && take_rest(input, command, &err) == 0 && command_state(command) == COMMAND_ENDED)
        follow(input, command);
    command_free(command);
    if (!owned)
        close_fd(&message.file_fd);
    check(host.state->used == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = { data, size };
    if (!host.loop)
        prepare();
    switch (input_byte(&input) % 3) {
    case 0:
        read_file(&input);
        break;
    case 1:
        read_handover(&input);
        break;
    default:
        take_command(&input);
        break;
    }
    return 0;
}
