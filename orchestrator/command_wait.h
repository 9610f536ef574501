/* Those who wait until a command's end is in the store. Loop thread. */
#pragma once

#include "common/ids.h"

struct command_wait {
    struct command_id id;
    void (*ended)(struct command_wait *wait); /* may stop it */
    struct command_wait *prev, *next;
};

void command_wait_start(struct command_wait **waits, struct command_wait *wait);
void command_wait_stop(struct command_wait **waits, struct command_wait *wait);
void command_wait_wake(struct command_wait *waits, const struct command_id *id);
