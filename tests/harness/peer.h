/* A gRPC peer that says whatever a test wants it to say, on a real mutual TLS connection: one call
 * with a certificate from a directory. A step that fails ends the case. Criterion; one thread. */
#pragma once

#include "common/wire.h"
#include "tests/harness/fixture.h"

struct peer;

/* To the fixture's orchestrator; `method` is the whole path. */
struct peer *peer_open(const char *identity_dir, const char *method);
void peer_free(struct peer *peer);

/* Goes out while one of the functions below waits. */
void peer_send(struct peer *peer, const ProtobufCMessage *message);
void peer_send_bytes(struct peer *peer, const void *data, size_t size);
/* Says no more. */
void peer_finish(struct peer *peer);
/* The next message, for wire_free(); NULL when the stream has ended instead. */
ProtobufCMessage *peer_receive(struct peer *peer, const ProtobufCMessageDescriptor *type);
/* The same, but NULL also when nothing came in that time. */
ProtobufCMessage *peer_receive_within(struct peer *peer, const ProtobufCMessageDescriptor *type,
                                      uint64_t timeout_us);
bool peer_is_closed(const struct peer *peer);
/* Until the client has ended, while what was sent goes out; its status as a shell has it. */
int peer_wait_client(struct peer *peer, struct fixture_client *client);
/* Until the stream has ended, whatever still comes; with what status. */
struct err peer_wait_closed(struct peer *peer);

static inline void peer_cleanup(struct peer **peer)
{
    peer_free(*peer);
}
#define CLEANUP_PEER CLEANUP(peer_cleanup)
