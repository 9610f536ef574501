/* A process from start to end with its three streams in memory. Called by
 * tests/harness/cluster.c and by tests; next: tests/harness/proc.c. */
#include "tests/harness/proc.h"

#include "common/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#define READ_MAX (64u * 1024)

struct bytes {
    char *data;
    size_t size, capacity;
};

struct run {
    struct proc *proc;
    int in, out, err; /* our ends */
    const char *input;
    size_t input_size;
    struct bytes output, errors;
};

static int make_pipe(int *ret_read, int *ret_write, struct err *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_errno(err, errno, "cannot create a pipe");
    *ret_read = fds[0];
    *ret_write = fds[1];
    return 0;
}

static int take(int *fd, struct bytes *bytes, struct err *err)
{
    if (bytes->capacity - bytes->size < READ_MAX + 1) {
        size_t capacity = bytes->capacity * 2 + READ_MAX + 1;
        char *data = realloc(bytes->data, capacity);
        if (!data)
            return err_nomem(err);
        bytes->data = data;
        bytes->capacity = capacity;
    }
    ssize_t n = read(*fd, bytes->data + bytes->size, READ_MAX);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return err_errno(err, errno, "cannot read a process's output");
    if (n == 0)
        close_fd(fd);
    bytes->size += n > 0 ? (size_t)n : 0;
    bytes->data[bytes->size] = '\0';
    return 0;
}

static void give(struct run *run)
{
    ssize_t n = write(run->in, run->input, run->input_size);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    /* A process that does not want its input closes its end; that is for the test to judge. */
    size_t size = n > 0 ? (size_t)n : run->input_size;
    run->input += size;
    run->input_size -= size;
    if (run->input_size == 0)
        close_fd(&run->in);
}

static int carry(struct run *run, uint64_t timeout_us, struct err *err)
{
    uint64_t deadline = monotonic_us() + timeout_us;
    while (run->in >= 0 || run->out >= 0 || run->err >= 0) {
        struct pollfd fds[] = {
            { .fd = run->in, .events = POLLOUT },
            { .fd = run->out, .events = POLLIN },
            { .fd = run->err, .events = POLLIN },
        };
        uint64_t now = monotonic_us();
        int n = now < deadline ? poll(fds, ELEMENTS(fds), (int)((deadline - now) / 1000) + 1) : 0;
        if (n < 0 && errno != EINTR)
            return err_errno(err, errno, "cannot poll");
        if (n == 0)
            return err_set(err, ERR_TIMEOUT, "the process's streams are open after %llu ms",
                           (unsigned long long)timeout_us / 1000);
        if (fds[0].revents)
            give(run);
        if ((fds[1].revents && take(&run->out, &run->output, err) < 0) ||
            (fds[2].revents && take(&run->err, &run->errors, err) < 0))
            return -1;
        /* Its end frees a writer whose reader never came. */
        if (run->out < 0 && run->err < 0)
            close_fd(&run->in);
    }
    return 0;
}

static int start(struct run *run, const struct proc_spec *spec, struct err *err)
{
    CLEANUP_FD int child_in = -1;
    CLEANUP_FD int child_out = -1;
    CLEANUP_FD int child_err = -1;
    if (make_pipe(&child_in, &run->in, err) < 0 || make_pipe(&run->out, &child_out, err) < 0 ||
        make_pipe(&run->err, &child_err, err) < 0)
        return -1;
    struct proc_spec copy = *spec;
    copy.in = child_in;
    copy.out = child_out;
    copy.err = child_err;
    if (run->input_size == 0)
        close_fd(&run->in);
    else if (fcntl(run->in, F_SETFL, O_NONBLOCK) < 0)
        return err_errno(err, errno, "cannot make a pipe non-blocking");
    return proc_start(&copy, &run->proc, err);
}

int proc_run(const struct proc_spec *spec, const void *input, size_t input_size,
             uint64_t timeout_us, struct proc_result *ret, struct err *err)
{
    struct run run = { .in = -1, .out = -1, .err = -1, .input = input, .input_size = input_size };
    int status = 0;
    (void)signal(SIGPIPE, SIG_IGN);
    int r = start(&run, spec, err);
    if (r == 0)
        r = carry(&run, timeout_us, err);
    if (r == 0)
        r = proc_wait(run.proc, timeout_us, &status, err);
    if (r < 0 && (run.errors.size > 0 || run.output.size > 0))
        (void)err_wrap(err, "%s (stdout \"%.80s\", stderr \"%.200s\")", spec->argv[0],
                       run.output.data ? run.output.data : "",
                       run.errors.data ? run.errors.data : "");
    proc_free(run.proc);
    close_fd(&run.in);
    close_fd(&run.out);
    close_fd(&run.err);
    struct proc_result result = {
        .status = proc_exit_status(status),
        .out = run.output.data,
        .err = run.errors.data,
        .out_size = run.output.size,
        .err_size = run.errors.size,
    };
    if (r < 0)
        proc_result_done(&result);
    else
        *ret = result;
    return r;
}

void proc_result_done(struct proc_result *result)
{
    free(result->out);
    free(result->err);
    result->out = result->err = NULL;
}
