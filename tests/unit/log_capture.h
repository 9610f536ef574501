/* Logging for the log's own tests: stderr becomes a packet socket, where one packet is one
 * write(2). Criterion runs each test in a process of its own, so stderr need not be put back. */
#pragma once

#include "common/macros.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

static inline int capture_stderr(void)
{
    int fds[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    cr_assert_eq(dup2(fds[1], STDERR_FILENO), STDERR_FILENO);
    close_fd(&fds[1]);
    return fds[0];
}

#define LOG_CAPTURE_MAX 65536u

/* One write(2) must be one line: ends in a newline and holds no other. */
static inline const char *next_line(int fd)
{
    static char packet[LOG_CAPTURE_MAX];
    ssize_t n = recv(fd, packet, sizeof(packet) - 1, MSG_DONTWAIT);
    cr_assert_gt(n, 0, "nothing was written");
    packet[n] = '\0';
    cr_assert_eq(strlen(packet), (size_t)n, "the line holds a NUL");
    cr_assert_eq(strchr(packet, '\n'), packet + n - 1, "not one line: %s", packet);
    packet[n - 1] = '\0';
    return packet;
}

static inline void expect_silence(int fd)
{
    char packet[16];
    cr_expect_eq(recv(fd, packet, sizeof(packet), MSG_DONTWAIT), -1);
    cr_expect_eq(errno, EAGAIN);
}

/* What follows the time, the level and the program. */
static inline const char *next_event(int fd)
{
    const char *line = next_line(fd);
    const char *colon = strstr(line, "prog: ");
    cr_assert_not_null(colon, "%s", line);
    return colon + strlen("prog: ");
}

/* Repeats `unit` for as long as it fits. */
static inline void long_value(char *out, size_t size, const char *unit)
{
    for (size_t used = 0; used + strlen(unit) < size; used += strlen(unit))
        (void)memcpy(out + used, unit, strlen(unit) + 1);
}
