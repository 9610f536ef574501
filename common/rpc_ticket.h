/* A call that was accepted and waits: for leave to go on, and then, where its method answers later,
 * for the answer. Whoever holds the ticket says one of the last three, once; when the peer has gone
 * meanwhile, it goes nowhere. Loop thread only. */
#pragma once

#include "common/rpc_call.h"

struct rpc_ticket;

/* The caller, also after it has gone. */
const struct identity *rpc_ticket_peer(const struct rpc_ticket *ticket);
const struct rpc_certificate *rpc_ticket_certificate(const struct rpc_ticket *ticket);

/* It has: nobody waits for an answer any more. */
bool rpc_ticket_gone(const struct rpc_ticket *ticket);

/* From the guard: the call goes to its method. */
void rpc_ticket_admit(struct rpc_ticket *ticket);
/* From the guard or from a method that answers later: ends the call. */
void rpc_ticket_fail(struct rpc_ticket *ticket, const struct err *why);
/* From a method that answers later. */
void rpc_ticket_reply(struct rpc_ticket *ticket, const ProtobufCMessage *answer);
