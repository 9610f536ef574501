/* A command in the foreground: our descriptors are its streams, our terminal may be its terminal,
 * our signals go to it, and its exit status becomes ours. For `exec`, `shell` and `attach`. Main
 * thread. */
#pragma once

#include "cli/keys.h"
#include "client/sandstorm.h"
#include "common/loop.h"

#define FOREGROUND_BEFORE_START 125
#define FOREGROUND_UNKNOWN      255
#define FOREGROUND_SIGNALS      9u

struct foreground {
    bool quiet;    /* no notes on stderr */
    bool terminal; /* our terminal is the command's: raw, with escape keys */
    bool redraw;   /* it was there before us: what is on its screen must be drawn again */
    bool watch;    /* only looks: signals are for us */
    bool cancels;  /* who wants to leave ends the command */
    int escape;    /* of the keys */
    /* The rest is its own. */
    struct sandstorm_client *client;
    struct sandstorm_exec *exec;
    struct loop_signal *signals[FOREGROUND_SIGNALS];
    struct loop_timer *nudge;
    struct keys keys;
    unsigned asked_to_leave;
    int number; /* the signal that made us leave */
};

/* Before the client is made: libgrpc's threads must not be hit. */
int foreground_prepare(const struct foreground *foreground, struct err *err) must_use;
/* Signals are ours from here on. */
int foreground_begin(struct foreground *foreground, struct sandstorm_client *client,
                     struct err *err) must_use;
/* Our descriptors and what is to be done with them; stdin only with `input`. */
void foreground_streams(struct foreground *foreground, bool input, struct sandstorm_streams *ret);
/* To the end of the command, or to where nothing more is known of it; the exit status. Takes the
 * exec.
 */
int foreground_follow(struct foreground *foreground, struct sandstorm_exec *exec);
void foreground_done(struct foreground *foreground);
#define CLEANUP_FOREGROUND CLEANUP(foreground_done)
