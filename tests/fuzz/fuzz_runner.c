/* A real runner whose link is the fuzzer: packets, and what the commands' processes do meanwhile.
 * No process is ever started: spawn_process() and everything that acts on a process are wrapped
 * (see CMakeLists.txt), and a "process" is its three descriptors and an eventfd that stands for its
 * pidfd. Whatever the runner answers must be a frame that a link would take. */
#include "agent/runner-internal.h"
#include "agent/spawn.h"
#include "common/wire.h"
#include "tests/fuzz/check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#define PROCESSES_MAX 16u
#define TURNS_MAX     64u

struct process {
    int stdio[3]; /* the process's ends */
    int pidfd;    /* the runner's; not ours to close */
    int exit;     /* ours: the same eventfd */
    int status;
    bool signaled;
};

static struct process processes[PROCESSES_MAX];
static unsigned process_count;

int __wrap_spawn_process(const struct spawn_request *request, struct spawn_result *ret,
                         enum spawn_step *ret_step, struct err *err);
int __wrap_kill(pid_t pid, int number);
int __wrap_waitid(idtype_t type, id_t id, siginfo_t *info, int options);
int __wrap_pidfd_send_signal(int pidfd, int number, siginfo_t *info, unsigned flags);
long __wrap_syscall(long number, ...);
void __wrap_log_event(enum log_level level, const char *message, const struct log_field *fields,
                      unsigned count);

int __wrap_spawn_process(const struct spawn_request *request, struct spawn_result *ret,
                         enum spawn_step *ret_step, struct err *err)
{
    check(request->argv[0] && request->cwd && request->path);
    if (request->argv[0][0] == 'f' || process_count == PROCESSES_MAX) {
        *ret_step = SPAWN_STEP_EXEC;
        return err_errno(err, ENOENT, "cannot run");
    }
    struct process *process = &processes[process_count];
    for (int i = 0; i < 3; i++) {
        process->stdio[i] = fcntl(request->stdio[i], F_DUPFD_CLOEXEC, 3);
        (void)fcntl(process->stdio[i], F_SETFL, O_NONBLOCK);
    }
    process->pidfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    process->exit = fcntl(process->pidfd, F_DUPFD_CLOEXEC, 3);
    *ret = (struct spawn_result){ INT_MAX - (pid_t)process_count++, process->pidfd };
    return 0;
}

/* A group or process that is not one of ours would be somebody's. */
int __wrap_kill(pid_t pid, int number)
{
    check(pid <= -(INT_MAX - (pid_t)PROCESSES_MAX) && number > 0 && number <= 64);
    return 0;
}

int __wrap_waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
    (void)id;
    (void)info;
    (void)options;
    check(type == P_PIDFD);
    return 0;
}

int __wrap_pidfd_send_signal(int pidfd, int number, siginfo_t *info, unsigned flags)
{
    (void)info;
    (void)flags;
    check(pidfd >= 0 && number > 0 && number <= 64);
    return 0;
}

/* waitid(2) with its fifth argument, from common/loop.c. */
long __wrap_syscall(long number, ...)
{
    check(number == SYS_waitid);
    va_list ap;
    va_start(ap, number);
    (void)va_arg(ap, int);
    int pidfd = va_arg(ap, int);
    siginfo_t *info = va_arg(ap, siginfo_t *);
    va_end(ap);
    for (unsigned i = process_count; i-- > 0;)
        if (processes[i].pidfd == pidfd) {
            info->si_pid = INT_MAX - (pid_t)i;
            info->si_code = processes[i].signaled ? CLD_KILLED : CLD_EXITED;
            info->si_status = processes[i].status;
            return 0;
        }
    errno = ECHILD;
    return -1;
}

void __wrap_log_event(enum log_level level, const char *message, const struct log_field *fields,
                      unsigned count)
{
    (void)level;
    (void)message;
    (void)fields;
    (void)count;
}

/* The fuzzer's side. */

static char socket_path[64];

static int dial(struct runner *runner)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    (void)memcpy(address.sun_path, socket_path, sizeof(socket_path));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    check(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    /* What a terminal echoes comes when the kernel's worker has time, perhaps before us. */
    for (unsigned i = 0; i < TURNS_MAX && !runner->link; i++)
        check(loop_turn(runner->loop, 0, NULL) == 0);
    check(runner->link);
    return fd;
}

static void hear(int fd)
{
    static uint8_t packet[RUNNER_PACKET_MAX + 1];
    struct err err;
    ssize_t n;
    while ((n = recv(fd, packet, sizeof(packet), 0)) > 0) {
        ProtobufCMessage *message;
        check((size_t)n <= RUNNER_PACKET_MAX);
        check(wire_unpack(&sandstorm__v1__agent_frame__descriptor, packet, (size_t)n, &message,
                          &err) == 0);
        const Sandstorm__V1__AgentFrame *frame = (const Sandstorm__V1__AgentFrame *)message;
        check(frame->kind_case == SANDSTORM__V1__AGENT_FRAME__KIND_EVENT ||
              frame->kind_case == SANDSTORM__V1__AGENT_FRAME__KIND_INVENTORY ||
              frame->kind_case == SANDSTORM__V1__AGENT_FRAME__KIND_RUNNER_STATUS);
        wire_free(message);
    }
}

/* What a process does: writes to one of its streams, reads its input, or exits. */
static void act(struct input *input)
{
    static uint8_t bytes[65536];
    uint8_t which = input_byte(input), verb = input_byte(input), amount = input_byte(input);
    if (process_count == 0)
        return;
    struct process *process = &processes[which % process_count];
    const uint64_t one = 1;
    switch (verb % 4) {
    case 0:
        (void)!write(process->stdio[1 + which / 128], bytes, (size_t)amount * 257);
        break;
    case 1:
        (void)!read(process->stdio[0], bytes, (size_t)amount * 257);
        break;
    case 2:
        close_fd(&process->stdio[amount % 3]);
        break;
    default:
        process->signaled = amount % 2;
        process->status = process->signaled ? 1 + amount % 64 : amount;
        (void)!write(process->exit, &one, sizeof(one));
        for (int i = 0; i < 3; i++)
            if (!(amount & 64))
                close_fd(&process->stdio[i]);
        break;
    }
}

static void step(struct runner *runner, int *link, struct input *input)
{
    size_t size;
    const uint8_t *packet;
    switch (input_byte(input) % 4) {
    case 0:
    case 1:
        packet = input_block(input, &size);
        (void)send(*link, packet, size, MSG_NOSIGNAL);
        break;
    case 2:
        act(input);
        break;
    default:
        hear(*link);
        break;
    }
    for (unsigned i = 0; i < 4; i++)
        check(loop_turn(runner->loop, 0, NULL) == 0);
    if (!runner->link) {
        close_fd(link);
        *link = dial(runner);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err err;
    struct runner *runner;
    if (!*socket_path) {
        (void)snprintf(socket_path, sizeof(socket_path), "/tmp/fuzz-runner-%d", (int)getpid());
        check(daemon_prepare(&err) == 0);
    }
    const struct runner_config config = { .socket = socket_path, .link_uid = getuid() };
    check(runner_new(&config, &runner, &err) == 0);
    struct input input = { data, size };
    int link = dial(runner);
    while (input.size > 0)
        step(runner, &link, &input);
    hear(link);
    runner_free(runner);
    close_fd(&link);
    for (unsigned i = 0; i < process_count; i++) {
        for (int k = 0; k < 3; k++)
            close_fd(&processes[i].stdio[k]);
        close_fd(&processes[i].exit);
    }
    process_count = 0;
    return 0;
}
