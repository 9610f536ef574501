/* A network of two for one test: the caller, who goes into a new network namespace with everything
 * that it starts from then on, and the far side, another namespace, joined by a veth pair. Nothing
 * of it has a name outside, and all of it is gone with the last process in it. Needs root. Call
 * before any thread exists. One thread. */
#pragma once

#include "tests/harness/proc.h"

#define NETNS_HOST     "10.77.0.1" /* the caller's end; private to the two namespaces */
#define NETNS_FAR_HOST "10.77.0.2"

struct netns;

enum netns_cut {
    NETNS_WHOLE,
    NETNS_CUT_BOTH,
    NETNS_CUT_UP,   /* what the far side sends is lost */
    NETNS_CUT_DOWN, /* what the caller sends is lost */
    NETNS_RESET,    /* either side gets an RST for whatever it sends */
};

int netns_new(struct netns **ret, struct err *err) must_use;
/* The caller stays in its namespace. */
void netns_free(struct netns *netns);

/* What stands before a command that is to run on the far side; NULL-ended. */
const char *const *netns_enter(const struct netns *netns);
/* Takes the place of the cut before. */
int netns_set_cut(struct netns *netns, enum netns_cut cut, struct err *err) must_use;
