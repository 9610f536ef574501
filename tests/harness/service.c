/* A daemon and what it says about itself. Made by tests/harness/cluster.c, one per daemon; next:
 * tests/harness/proc.c. Everything is awaited by event: a datagram from sd_notify(3), inotify(7) on
 * the log, or the process's end. */
#include "tests/harness/service.h"

#include "common/clock.h"
#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/un.h>

#define ARGUMENTS_MAX 32u
#define LOG_MAX       (64u * 1024 * 1024)

struct service {
    char *name;
    char *log;
    char *argv[ARGUMENTS_MAX + 1];
    char *env[ARGUMENTS_MAX + 2]; /* ends with the notify socket */
    int notify;
    struct proc *proc;
    bool ready;
    char status[SERVICE_STATUS_MAX];
};

/* Life. */

static int copy_strings(const char *const *from, char **to, struct err *err)
{
    for (unsigned i = 0; from && from[i]; i++) {
        if (i == ARGUMENTS_MAX)
            return err_set(err, ERR_INVALID, "at most %u arguments", ARGUMENTS_MAX);
        to[i] = strdup(from[i]);
        if (!to[i])
            return err_nomem(err);
    }
    return 0;
}

static int open_notify(struct service *service, const char *dir, struct err *err)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    char **slot = service->env;
    int n =
        snprintf(address.sun_path, sizeof(address.sun_path), "%s/%s.notify", dir, service->name);
    if (n < 0 || (size_t)n >= sizeof(address.sun_path))
        return err_set(err, ERR_INVALID, "the path of a socket in %s is too long", dir);
    while (*slot)
        slot++;
    if (asprintf(slot, "NOTIFY_SOCKET=%s", address.sun_path) < 0) {
        *slot = NULL;
        return err_nomem(err);
    }
    service->notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (service->notify < 0 ||
        bind(service->notify, (struct sockaddr *)&address, sizeof(address)) < 0)
        return err_errno(err, errno, "cannot create the socket %s", address.sun_path);
    return 0;
}

int service_new(const struct service_config *config, struct service **ret, struct err *err)
{
    struct service *service = calloc(1, sizeof(*service));
    if (!service)
        return err_nomem(err);
    service->notify = -1;
    service->name = strdup(config->name);
    if (!service->name || asprintf(&service->log, "%s/%s.log", config->dir, config->name) < 0) {
        service->log = NULL;
        service_free(service);
        return err_nomem(err);
    }
    if (copy_strings(config->argv, service->argv, err) < 0 ||
        copy_strings(config->env, service->env, err) < 0 ||
        open_notify(service, config->dir, err) < 0) {
        service_free(service);
        return -1;
    }
    *ret = service;
    return 0;
}

void service_free(struct service *service)
{
    if (!service)
        return;
    proc_free(service->proc);
    close_fd(&service->notify);
    for (char **item = service->argv; *item; item++)
        free(*item);
    for (char **item = service->env; *item; item++)
        free(*item);
    free(service->name);
    free(service->log);
    free(service);
}

const char *service_name(const struct service *service)
{
    return service->name;
}

struct proc *service_proc(const struct service *service)
{
    return service->proc;
}

const char *service_status(const struct service *service)
{
    return service->status;
}

const char *service_log(const struct service *service)
{
    return service->log;
}

int service_set_argument(struct service *service, unsigned index, const char *value,
                         struct err *err)
{
    char *copy = strdup(value);
    if (!copy || index >= ARGUMENTS_MAX || !service->argv[index]) {
        free(copy);
        return err_set(err, ERR_INVALID, "there is no argument %u", index);
    }
    free(service->argv[index]);
    service->argv[index] = copy;
    return 0;
}

int service_set_env(struct service *service, const char *variable, struct err *err)
{
    size_t name = strcspn(variable, "=");
    unsigned slot = 0;
    while (service->env[slot] &&
           (strncmp(service->env[slot], variable, name) != 0 || service->env[slot][name] != '='))
        slot++;
    if (variable[name] == '\0') {
        /* The last one takes its place; the order means nothing. */
        unsigned last = slot;
        while (service->env[last] && service->env[last + 1])
            last++;
        free(service->env[slot]);
        service->env[slot] = service->env[last];
        service->env[last] = NULL;
        return 0;
    }
    char *copy = slot <= ARGUMENTS_MAX ? strdup(variable) : NULL;
    if (!copy)
        return slot <= ARGUMENTS_MAX
                   ? err_nomem(err)
                   : err_set(err, ERR_INVALID, "at most %u variables", ARGUMENTS_MAX);
    free(service->env[slot]);
    service->env[slot] = copy;
    return 0;
}

/* What it says. */

static void hear_line(struct service *service, const char *line)
{
    if (strcmp(line, "READY=1") == 0)
        service->ready = true;
    else if (strncmp(line, "STATUS=", 7) == 0)
        (void)snprintf(service->status, sizeof(service->status), "%s", line + 7);
}

static bool hear(struct service *service)
{
    char message[4096];
    ssize_t n = recv(service->notify, message, sizeof(message) - 1, 0);
    if (n < 0)
        return false;
    message[n] = '\0';
    char *rest = message;
    for (char *line = strsep(&rest, "\n"); line; line = strsep(&rest, "\n"))
        hear_line(service, line);
    return true;
}

static bool is_ready(struct service *service, const void *wanted)
{
    (void)wanted;
    return service->ready;
}

static bool has_status(struct service *service, const void *wanted)
{
    const char *prefix = wanted;
    return strncmp(service->status, prefix, strlen(prefix)) == 0;
}

static bool log_has(struct service *service, const void *wanted)
{
    CLEANUP_FREE char *text = NULL;
    size_t size;
    return file_read(service->log, LOG_MAX, &text, &size, NULL) == 0 && strstr(text, wanted);
}

/* The last line of the log says most about an unexpected end. */
static int fail_ended(struct service *service, int status, struct err *err)
{
    CLEANUP_FREE char *text = NULL;
    size_t size = 0;
    const char *last = "";
    if (file_read(service->log, LOG_MAX, &text, &size, NULL) == 0) {
        while (size > 0 && text[size - 1] == '\n')
            text[--size] = '\0';
        const char *newline = strrchr(text, '\n');
        last = newline ? newline + 1 : text;
    }
    return err_set(err, ERR_UNAVAILABLE, "%s ended with status %d: %s", service->name,
                   proc_exit_status(status), last);
}

int service_check(struct service *service, struct err *err)
{
    struct err running;
    int status;
    if (!service->proc || proc_wait(service->proc, 0, &status, &running) < 0)
        return 0;
    return fail_ended(service, status, err);
}

/* Until `fits`, which is asked after each datagram and, with `watch`, after each change there. */
static int wait_for(struct service *service, int watch,
                    bool (*fits)(struct service *service, const void *wanted), const void *wanted,
                    uint64_t timeout_us, struct err *err)
{
    uint64_t deadline = monotonic_us() + timeout_us;
    struct pollfd fds[] = {
        { .fd = service->notify, .events = POLLIN },
        { .fd = service->proc ? proc_fd(service->proc) : -1, .events = POLLIN },
        { .fd = watch, .events = POLLIN },
    };
    for (;;) {
        uint64_t now = monotonic_us();
        if (fits(service, wanted))
            return 0;
        if (hear(service))
            continue;
        if (service_check(service, err) < 0)
            return -1;
        if (now >= deadline || poll(fds, ELEMENTS(fds), (int)((deadline - now) / 1000) + 1) == 0)
            return err_set(err, ERR_TIMEOUT, "%s after %llu ms; its last status is \"%s\"",
                           service->name, (unsigned long long)timeout_us / 1000, service->status);
        char changes[4096];
        if (fds[2].revents && read(watch, changes, sizeof(changes)) < 0)
            return err_errno(err, errno, "cannot watch %s", service->log);
    }
}

int service_wait_ready(struct service *service, uint64_t timeout_us, struct err *err)
{
    if (wait_for(service, -1, is_ready, NULL, timeout_us, err) < 0)
        return err_wrap(err, "not ready");
    return 0;
}

int service_wait_status(struct service *service, const char *prefix, uint64_t timeout_us,
                        struct err *err)
{
    if (wait_for(service, -1, has_status, prefix, timeout_us, err) < 0)
        return err_wrap(err, "no status \"%s...\"", prefix);
    return 0;
}

void service_forget_status(struct service *service)
{
    while (hear(service))
        ;
    service->status[0] = '\0';
}

int service_wait_log(struct service *service, const char *text, uint64_t timeout_us,
                     struct err *err)
{
    CLEANUP_FD int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (watch < 0 || inotify_add_watch(watch, service->log, IN_MODIFY) < 0)
        return err_errno(err, errno, "cannot watch %s", service->log);
    if (wait_for(service, watch, log_has, text, timeout_us, err) < 0)
        return err_wrap(err, "no \"%s\" in the log", text);
    return 0;
}

/* Running. */

int service_start(struct service *service, struct err *err)
{
    if (service->proc)
        return err_set(err, ERR_PRECONDITION, "%s runs already", service->name);
    CLEANUP_FD int log = open(service->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0)
        return err_errno(err, errno, "cannot write %s", service->log);
    service_forget_status(service);
    service->ready = false;
    const struct proc_spec spec = {
        .argv = (const char *const *)service->argv,
        .env = (const char *const *)service->env,
        .in = -1,
        .out = log,
        .err = log,
    };
    return proc_start(&spec, &service->proc, err);
}

int service_signal(struct service *service, int number, struct err *err)
{
    if (!service->proc)
        return err_set(err, ERR_PRECONDITION, "%s does not run", service->name);
    return proc_signal(service->proc, number, err);
}

/* sd_notify(3) blocks when nobody reads, and a daemon that blocks does not end. */
static int wait_end(struct service *service, int *ret_status, struct err *err)
{
    uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;
    struct pollfd fds[] = {
        { .fd = service->notify, .events = POLLIN },
        { .fd = proc_fd(service->proc), .events = POLLIN },
    };
    while (fds[1].revents == 0 && monotonic_us() < deadline) {
        (void)poll(fds, ELEMENTS(fds), (int)((deadline - monotonic_us()) / 1000) + 1);
        while (hear(service))
            ;
    }
    if (proc_wait(service->proc, 0, ret_status, err) < 0)
        return err_wrap(err, "%s does not end", service->name);
    return 0;
}

int service_wait_ended(struct service *service, int *ret_status, struct err *err)
{
    int status;
    if (!service->proc)
        return err_set(err, ERR_PRECONDITION, "%s does not run", service->name);
    if (wait_end(service, &status, err) < 0)
        return -1;
    proc_free(TAKE_PTR(service->proc));
    *ret_status = proc_exit_status(status);
    return 0;
}

static int end(struct service *service, int number, int *ret_status, struct err *err)
{
    struct err gone;
    if (!service->proc)
        return err_set(err, ERR_PRECONDITION, "%s does not run", service->name);
    /* One that has ended by itself is told by its status. */
    if (proc_signal(service->proc, number, &gone) < 0 && gone.sys_errno != ESRCH) {
        *err = gone;
        return -1;
    }
    if (wait_end(service, ret_status, err) < 0)
        return -1;
    proc_free(TAKE_PTR(service->proc));
    return 0;
}

int service_stop(struct service *service, struct err *err)
{
    int status;
    if (end(service, SIGTERM, &status, err) < 0)
        return -1;
    return status == 0 ? 0 : fail_ended(service, status, err);
}

int service_kill(struct service *service, struct err *err)
{
    int status;
    if (end(service, SIGKILL, &status, err) < 0)
        return -1;
    if (proc_exit_status(status) != 128 + SIGKILL)
        return fail_ended(service, status, err);
    return 0;
}
