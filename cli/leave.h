/* How a verb that would go on for ever is ended: INT, TERM and HUP end the stream that is under
 * way, in order, so that what was printed is whole and the terminal is as it was. Main thread. */
#pragma once

#include "client/sandstorm.h"
#include "common/loop.h"

#define LEAVE_SIGNALS 3u

struct leave {
    struct sandstorm_client *client;
    struct loop_signal *signals[LEAVE_SIGNALS];
    int number; /* the signal that came, or 0 */
};

/* Before the client is made: libgrpc's threads must not be hit. */
int leave_prepare(struct err *err) must_use;
int leave_begin(struct leave *leave, struct sandstorm_client *client, struct err *err) must_use;
void leave_done(struct leave *leave);
#define CLEANUP_LEAVE CLEANUP(leave_done)
/* Turns the client's loop for so long; false when a signal came. */
bool leave_wait(struct leave *leave, uint64_t for_us);
/* The exit status: 0 for Ctrl-C, which is how such a verb ends, and 128 + n for the others. */
int leave_status(const struct leave *leave);
