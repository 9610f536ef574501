/* What the guard and the test tell each other over the guard's descriptor 3, a seqpacket socket.
 * First the process's pid with a pidfd, or the errno of its failed start; last its end. */
#pragma once

#include <sys/types.h>

#define GUARD_FD 3

struct guard_started {
    int error; /* 0, or why there is no process */
    pid_t pid;
};

struct guard_ended {
    int status; /* as waitpid(2) has it */
};
