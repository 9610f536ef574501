/* Who is at the other end of a server-side call, from its TLS certificate alone. Loop thread. */
#pragma once

#include "common/rpc_call.h"
#include "common/rpc_compat.h"

/* Exactly one URI name, of the SPIFFE form, in our trust domain; anything else is
 * ERR_UNAUTHENTICATED. */
int rpc_peer_identify(grpc_call *call, const char *trust_domain, struct identity *ret,
                      struct rpc_certificate *ret_certificate, struct err *err) must_use;
