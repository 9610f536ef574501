/* A real runner whose link is the test: no orchestrator, so what is said and when is the test's
 * own. Everything that a command says is checked for what holds always: offsets follow on, and its
 * output is what the script of raw_script() prints, byte for byte. Criterion; one thread. */
#pragma once

#include "agent/runner.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/ids.h"
#include "common/wire.h"
#include "sandstorm/v1/link.pb-c.h"
#include "tests/harness/fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define NO_LIMIT UINT64_MAX

struct raw {
    char dir[64], state[96], settings[96], path[96];
    struct service *runner;
    int fd;
    uint64_t epoch;
    unsigned listed; /* commands in the last inventory */
    char instance[COMMAND_ID_LEN + 1];
};

/* A command as the test follows it. */
struct raw_command {
    struct command_id id;
    char script[1024];
    Sandstorm__V1__OutputPolicy policy;
    uint64_t spool_bytes, timeout_ms;
    Sandstorm__V1__StdinMode stdin_mode;
    bool terminal;
    char text[4096]; /* what it said, where that is no lines of raw_lines() */
    bool keeps_text;

    bool listed, listed_ended;
    uint64_t next, received; /* the ledger's next offset; bytes that came */
    uint64_t dropped, damaged, trimmed, settled_end;
    unsigned settled, started, refused;
    Sandstorm__V1__RefusalReason refusal;
    bool ended;
    Sandstorm__V1__Outcome__ResultCase result;
    unsigned code, survivors;
    bool held_open;
    Sandstorm__V1__StartStep step;
    Sandstorm__V1__LostReason lost;
    char detail[256];
    uint64_t stdin_limit;
};

static struct raw raw;

/* The daemon. */

static inline void raw_setup(void)
{
    (void)snprintf(raw.dir, sizeof(raw.dir), "/tmp/sandstorm-raw-%d", (int)getpid());
    (void)snprintf(raw.state, sizeof(raw.state), "%s/state", raw.dir);
    (void)snprintf(raw.settings, sizeof(raw.settings), "%s/runner.yaml", raw.dir);
    (void)snprintf(raw.path, sizeof(raw.path), "%s/sock", raw.dir);
    cr_assert_eq(mkdir(raw.dir, 0700), 0);
    raw.fd = -1;
}

/* For the next program that runs. */
static inline void raw_set(const char *settings)
{
    MUST(file_write_atomic(raw.settings, settings, strlen(settings), 0600, err));
}

static inline void raw_new(const char *settings)
{
    char socket[160], state[160];
    (void)snprintf(socket, sizeof(socket), "SANDSTORM_RUNNER_SOCKET=%s", raw.path);
    (void)snprintf(state, sizeof(state), "SANDSTORM_RUNNER_STATE_DIR=%s", raw.state);
    raw_set(settings);
    const struct service_config config = {
        .name = "runner",
        .dir = raw.dir,
        .argv =
            (const char *[]){ cluster_program("sandstorm-runner"), "--config", raw.settings, NULL },
        .env = (const char *[]){ socket, state, NULL },
    };
    MUST(service_new(&config, &raw.runner, err));
}

static inline void raw_start(void)
{
    MUST(service_start(raw.runner, err));
    MUST(service_wait_ready(raw.runner, PROC_DEADLINE_US, err));
}

static inline void raw_teardown(void)
{
    close_fd(&raw.fd);
    if (raw.runner && service_proc(raw.runner))
        (void)!service_kill(raw.runner, &(struct err){ 0 });
    service_free(raw.runner);
    cluster_remove_dir(raw.dir);
}

static inline void raw_disconnect(void)
{
    close_fd(&raw.fd);
}

static inline void raw_connect(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const int buffer = RUNNER_SOCKET_BUFFER;
    (void)memcpy(address.sun_path, raw.path, strlen(raw.path));
    raw_disconnect();
    raw.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(raw.fd, (struct sockaddr *)&address, sizeof(address)), 0, "%s",
                 strerror(errno));
    (void)setsockopt(raw.fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
}

/* It ends by itself at a failpoint, or is killed; then the next one begins. */
static inline void raw_restart(void)
{
    int status;
    MUST(service_wait_ended(raw.runner, &status, err));
    cr_assert_eq(status, 128 + SIGKILL);
    raw_disconnect();
    MUST(service_set_env(raw.runner, "SANDSTORM_FAILPOINT", err));
    raw_start();
}

static inline void raw_kill(void)
{
    MUST(service_kill(raw.runner, err));
    raw_disconnect();
    raw_start();
}

/* SIGUSR2, until the program that came of it says that it is ready. */
static inline void raw_upgrade(void)
{
    service_forget_status(raw.runner);
    MUST(service_signal(raw.runner, SIGUSR2, err));
    MUST(service_wait_status(raw.runner, "listening on", PROC_DEADLINE_US, err));
}

/* Orders. */

static inline void raw_send(Sandstorm__V1__OrchestratorFrame *frame)
{
    uint8_t *packed;
    size_t size;
    MUST(wire_pack(&frame->base, &packed, &size, err));
    (void)send(raw.fd, packed, size, MSG_NOSIGNAL);
    free(packed);
}

static inline void raw_order(const struct raw_command *command, Sandstorm__V1__CommandOrder *order)
{
    Sandstorm__V1__OrchestratorFrame frame = SANDSTORM__V1__ORCHESTRATOR_FRAME__INIT;
    order->command_id = (char *)command->id.text;
    frame.kind_case = SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_ORDER;
    frame.order = order;
    raw_send(&frame);
}

static inline void raw_begin(struct raw_command *command, unsigned number)
{
    (void)snprintf(command->id.text, sizeof(command->id.text), "%08x-7f0e-4a53-9c55-3d7a1f2e9b10",
                   number);
}

/* Its digest is the number in its id and `other`. */
static inline void raw_order_start(struct raw_command *command, uint64_t limit, uint8_t other)
{
    uint8_t digest[32] = { 1, other };
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    Sandstorm__V1__Start start = SANDSTORM__V1__START__INIT;
    Sandstorm__V1__Attach attach = SANDSTORM__V1__ATTACH__INIT;
    spec.shell = command->script;
    spec.output_policy = command->policy;
    spec.spool_bytes = command->spool_bytes;
    spec.timeout_ms = command->timeout_ms;
    spec.stdin_mode = command->stdin_mode;
    Sandstorm__V1__Terminal terminal = SANDSTORM__V1__TERMINAL__INIT;
    spec.terminal = command->terminal ? &terminal : NULL;
    attach.limit = limit;
    start.spec = &spec;
    start.spec_digest = (ProtobufCBinaryData){ sizeof(digest), digest };
    start.attach = &attach;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_START;
    order.start = &start;
    raw_order(command, &order);
}

static inline void raw_attach(struct raw_command *command, uint64_t from, uint64_t limit)
{
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    Sandstorm__V1__Attach attach = SANDSTORM__V1__ATTACH__INIT;
    attach.from_offset = from;
    attach.limit = limit;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_ATTACH;
    order.attach = &attach;
    command->next = from;
    raw_order(command, &order);
}

static inline void raw_credit(const struct raw_command *command, uint64_t acked, uint64_t limit)
{
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    Sandstorm__V1__Credit credit = SANDSTORM__V1__CREDIT__INIT;
    credit.acked = acked;
    credit.limit = limit;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_CREDIT;
    order.credit = &credit;
    raw_order(command, &order);
}

static inline void raw_input(const struct raw_command *command, uint64_t offset, const void *data,
                             size_t size, bool eof)
{
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    Sandstorm__V1__Stdin input = SANDSTORM__V1__STDIN__INIT;
    input.offset = offset;
    input.data = (ProtobufCBinaryData){ size, (uint8_t *)data };
    input.eof = eof;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_STDIN;
    order.stdin = &input;
    raw_order(command, &order);
}

static inline void raw_cancel(const struct raw_command *command, uint64_t grace_ms)
{
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    Sandstorm__V1__Cancel cancel = SANDSTORM__V1__CANCEL__INIT;
    cancel.grace_ms = grace_ms;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_CANCEL;
    order.cancel = &cancel;
    raw_order(command, &order);
}

static inline void raw_release(const struct raw_command *command)
{
    Sandstorm__V1__CommandOrder order = SANDSTORM__V1__COMMAND_ORDER__INIT;
    Sandstorm__V1__Release release = SANDSTORM__V1__RELEASE__INIT;
    order.order_case = SANDSTORM__V1__COMMAND_ORDER__ORDER_RELEASE;
    order.release = &release;
    raw_order(command, &order);
}

/* What it says. */

/* Lines of eight bytes with their number, so that a byte is known by its offset. */
#define RAW_LINE 8u
static inline void raw_expect_bytes(uint64_t offset, const uint8_t *data, size_t size)
{
    char line[32];
    for (size_t i = 0; i < size;) {
        uint64_t at = offset + i;
        (void)snprintf(line, sizeof(line), "%07u\n", (unsigned)(at / RAW_LINE));
        size_t from = at % RAW_LINE, n = MIN(RAW_LINE - from, size - i);
        cr_assert(memcmp(data + i, line + from, n) == 0, "other bytes at offset %lu", at);
        i += n;
    }
}

/* A shell text that prints those lines from number `from` to before `to`. */
static inline const char *raw_lines(unsigned from, unsigned to)
{
    static char text[2][64];
    static unsigned turn;
    turn = !turn;
    (void)snprintf(text[turn], sizeof(text[turn]), "seq -f %%07.0f %u %u", from, to - 1);
    return text[turn];
}

static inline void raw_keep_text(struct raw_command *command, const uint8_t *data, size_t size)
{
    cr_assert_lt(command->next + size, sizeof(command->text));
    (void)memcpy(command->text + command->next, data, size);
    command->text[command->next + size] = '\0';
}

static inline void raw_gap(struct raw_command *command, const Sandstorm__V1__Gap *gap)
{
    cr_assert_eq(gap->offset, command->next);
    cr_assert_gt(gap->size, 0u);
    command->next += gap->size;
    if (gap->reason == SANDSTORM__V1__GAP_REASON__GAP_REASON_DROPPED)
        command->dropped += gap->size;
    else if (gap->reason == SANDSTORM__V1__GAP_REASON__GAP_REASON_DAMAGED)
        command->damaged += gap->size;
    else
        command->trimmed += gap->size;
}

static inline void raw_ended(struct raw_command *command, const Sandstorm__V1__Outcome *outcome)
{
    command->ended = true;
    command->result = outcome->result_case;
    command->survivors = outcome->survivors;
    command->held_open = outcome->stream_held_open;
    if (outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT_EXITED)
        command->code = outcome->exited->code;
    if (outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT_START_FAILED) {
        command->step = outcome->start_failed->step;
        (void)snprintf(command->detail, sizeof(command->detail), "%s",
                       outcome->start_failed->detail);
    }
    if (outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT_LOST) {
        command->lost = outcome->lost->reason;
        (void)snprintf(command->detail, sizeof(command->detail), "%s", outcome->lost->detail);
    }
}

static inline void raw_event(struct raw_command *command, const Sandstorm__V1__CommandEvent *event)
{
    switch (event->event_case) {
    case SANDSTORM__V1__COMMAND_EVENT__EVENT_STARTED:
        command->started++;
        break;
    case SANDSTORM__V1__COMMAND_EVENT__EVENT_OUTPUT:
        cr_assert_eq(event->output->offset, command->next);
        if (command->keeps_text)
            raw_keep_text(command, event->output->data.data, event->output->data.len);
        else
            raw_expect_bytes(command->next, event->output->data.data, event->output->data.len);
        command->next += event->output->data.len;
        command->received += event->output->data.len;
        break;
    case SANDSTORM__V1__COMMAND_EVENT__EVENT_GAP:
        raw_gap(command, event->gap);
        break;
    case SANDSTORM__V1__COMMAND_EVENT__EVENT_SETTLED:
        command->settled++;
        command->settled_end = event->settled->end_offset;
        break;
    case SANDSTORM__V1__COMMAND_EVENT__EVENT_STDIN_CREDIT:
        command->stdin_limit = event->stdin_credit->limit;
        break;
    case SANDSTORM__V1__COMMAND_EVENT__EVENT_REFUSAL:
        command->refused++;
        command->refusal = event->refusal->reason;
        break;
    default:
        cr_assert_eq(event->event_case, SANDSTORM__V1__COMMAND_EVENT__EVENT_ENDED);
        if (event->ended->outcome->result_case != SANDSTORM__V1__OUTCOME__RESULT_LOST ||
            event->ended->outcome->lost->reason != SANDSTORM__V1__LOST_REASON__LOST_REASON_RELEASED)
            cr_assert_eq(event->ended->end_offset, command->next);
        raw_ended(command, event->ended->outcome);
        break;
    }
}

static inline void raw_listing(struct raw_command *commands, unsigned count,
                               const Sandstorm__V1__Inventory *inventory)
{
    raw.listed += (unsigned)inventory->n_commands;
    (void)snprintf(raw.instance, sizeof(raw.instance), "%s", inventory->runner_instance);
    for (size_t i = 0; i < inventory->n_commands; i++)
        for (unsigned k = 0; k < count; k++)
            if (strcmp(inventory->commands[i]->command_id, commands[k].id.text) == 0) {
                commands[k].listed = true;
                commands[k].listed_ended = inventory->commands[i]->ended;
            }
}

/* The next packet, for these commands; true when it was the end of an inventory. False also when
 * the runner is gone, which `ret_gone` says where it may be. */
static inline bool raw_hear(struct raw_command *commands, unsigned count, bool *ret_gone)
{
    static uint8_t packet[RUNNER_PACKET_MAX];
    struct pollfd ready = { .fd = raw.fd, .events = POLLIN };
    cr_assert_eq(poll(&ready, 1, (int)(PROC_DEADLINE_US / 1000)), 1, "the runner says nothing; %s",
                 count == 1 ? commands->text : "");
    ssize_t n = recv(raw.fd, packet, sizeof(packet), 0);
    if (ret_gone)
        *ret_gone = n <= 0;
    cr_assert(n > 0 || ret_gone, "the runner is gone");
    if (n <= 0)
        return false;
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    MUST(wire_unpack(&sandstorm__v1__agent_frame__descriptor, packet, (size_t)n, &message, err));
    const Sandstorm__V1__AgentFrame *frame = (const Sandstorm__V1__AgentFrame *)message;
    if (frame->kind_case == SANDSTORM__V1__AGENT_FRAME__KIND_INVENTORY) {
        raw_listing(commands, count, frame->inventory);
        return frame->inventory->complete;
    }
    if (frame->kind_case == SANDSTORM__V1__AGENT_FRAME__KIND_EVENT)
        for (unsigned i = 0; i < count; i++)
            if (strcmp(frame->event->command_id, commands[i].id.text) == 0)
                raw_event(&commands[i], frame->event);
    return false;
}

#define RAW_UNTIL(command, condition)                                                              \
    do {                                                                                           \
        while (!(condition))                                                                       \
            (void)raw_hear((command), 1, NULL);                                                    \
    } while (0)

/* A connection, and what the runner has. */
static inline void raw_welcome(struct raw_command *commands, unsigned count)
{
    Sandstorm__V1__Welcome welcome = SANDSTORM__V1__WELCOME__INIT;
    Sandstorm__V1__OrchestratorFrame frame = SANDSTORM__V1__ORCHESTRATOR_FRAME__INIT;
    raw_connect();
    welcome.epoch = ++raw.epoch;
    frame.kind_case = SANDSTORM__V1__ORCHESTRATOR_FRAME__KIND_WELCOME;
    frame.welcome = &welcome;
    raw.listed = 0;
    for (unsigned i = 0; i < count; i++)
        commands[i].listed = commands[i].listed_ended = false;
    raw_send(&frame);
    while (!raw_hear(commands, count, NULL))
        continue;
}

/* Takes and acknowledges everything, to the end. */
static inline void raw_drain(struct raw_command *command)
{
    uint64_t acked = command->next;
    while (!command->ended) {
        (void)raw_hear(command, 1, NULL);
        if (command->next - acked >= 262144) {
            acked = command->next;
            raw_credit(command, acked, NO_LIMIT);
        }
    }
}

/* Files. */

static inline const char *raw_file(const char *name)
{
    static char path[2][160];
    static unsigned turn;
    turn = !turn;
    (void)snprintf(path[turn], sizeof(path[turn]), "%s/%s", raw.dir, name);
    return path[turn];
}

/* Until it is there; it appears in `dir`. */
static inline void raw_wait_path(const char *dir, const char *path)
{
    char events[4096];
    CLEANUP_FD int watch = inotify_init1(IN_CLOEXEC);
    struct pollfd ready = { .fd = watch, .events = POLLIN };
    cr_assert(watch >= 0 && inotify_add_watch(watch, dir, IN_CREATE | IN_MOVED_TO) >= 0);
    while (access(path, F_OK) < 0) {
        cr_assert_eq(poll(&ready, 1, (int)(PROC_DEADLINE_US / 1000)), 1, "there is no %s", path);
        (void)!read(watch, events, sizeof(events));
    }
}

static inline void raw_touch(const char *name)
{
    CLEANUP_FD int fd = open(raw_file(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    cr_assert(fd >= 0);
}

/* Until a command's file has taken that many bytes. */
static inline void raw_wait_spilled(const struct raw_command *command, uint64_t bytes)
{
    char path[160], events[4096];
    struct stat st = { 0 };
    (void)snprintf(path, sizeof(path), "%s/%s", raw.state, command->id.text);
    raw_wait_path(raw.state, path);
    CLEANUP_FD int watch = inotify_init1(IN_CLOEXEC);
    cr_assert(watch >= 0 && inotify_add_watch(watch, path, IN_MODIFY) >= 0);
    struct pollfd ready = { .fd = watch, .events = POLLIN };
    while (stat(path, &st) == 0 && (uint64_t)st.st_size < bytes) {
        cr_assert_eq(poll(&ready, 1, (int)(PROC_DEADLINE_US / 1000)), 1, "it has only %ld bytes",
                     (long)st.st_size);
        (void)!read(watch, events, sizeof(events));
    }
}

/* A line "VmRSS:" of the runner in kB. */
static inline unsigned long raw_status_kb(const char *name)
{
    char path[64];
    CLEANUP_FREE char *text = NULL;
    size_t size;
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)proc_pid(service_proc(raw.runner)));
    MUST(file_read(path, 65536, &text, &size, err));
    const char *line = strstr(text, name);
    return line ? strtoul(line + strlen(name), NULL, 10) : 0;
}

static inline unsigned raw_count_log(const char *text)
{
    return fixture_count_text(service_log(raw.runner), text);
}
