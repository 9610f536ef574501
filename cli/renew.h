/* Keeps a context's certificate alive: renewed at a point between 60 % and 80 % of its life that
 * follows from the certificate itself, and, when it has expired, within the orchestrator's window.
 * Only for contexts: who brings an identity directory looks after it. Blocking, main thread. */
#pragma once

#include "cli/context.h"

/* Before a verb's own call. With a certificate that is still good this does not fail: a renewal
 * that does is a warning. */
int renew_if_due(const struct context *context, struct err *err) must_use;
