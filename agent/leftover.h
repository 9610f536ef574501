/* The process of a command whose runner was killed. Nobody can hear how it ends or read what it
 * prints any more, so it is killed; but only where it is certain that it is that process, and not
 * one that has its number now. Blocking, short. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

enum leftover {
    LEFTOVER_GONE,   /* no such process */
    LEFTOVER_KILLED, /* it and its process group */
};

/* It was started between these two moments of CLOCK_BOOTTIME, in this boot. */
enum leftover leftover_kill(pid_t pid, uint64_t from_us, uint64_t to_us);
