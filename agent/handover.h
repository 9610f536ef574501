/* What a runner writes down for itself before it executes its program anew, in the same process: so
 * commands stay its children. A sequence of records in a sealed memory file, with a version: a
 * program refuses what is newer than itself before its predecessor gives up. One thread. */
#pragma once

#include "agent/record.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

/* Grows when a runner that does not know the new form would misunderstand it. */
#define HANDOVER_VERSION 1u

/* Writing. Descriptors that are named in it are collected on the way, to be kept open. */
struct handover_out {
    int fd;
    int *kept;
    unsigned count, capacity;
};
int handover_begin(struct handover_out *out, struct err *err) must_use;
/* `offset` is the record's own field: see agent/record.h. */
int handover_put(struct handover_out *out, enum record_kind kind, uint64_t offset,
                 const ProtobufCMessage *message, struct err *err) must_use;
/* The same with bytes, and for output with their stream. */
int handover_put_bytes(struct handover_out *out, enum record_kind kind, uint64_t offset,
                       unsigned stream, const void *bytes, size_t size, struct err *err) must_use;
/* -1 is nothing to keep. */
int handover_keep(struct handover_out *out, int fd, struct err *err) must_use;
/* Nothing follows, and nothing can be changed any more. */
int handover_end(struct handover_out *out, struct err *err) must_use;
/* Do the kept descriptors, and the file itself, outlive execve(2)? */
int handover_inherit(const struct handover_out *out, bool inherited, struct err *err) must_use;
void handover_done(struct handover_out *out);

/* Reading. */
struct handover_in {
    const uint8_t *data, *at, *end;
};
int handover_map(int fd, struct handover_in *ret, struct err *err) must_use;
void handover_unmap(struct handover_in *in);
struct handover_record {
    struct record header;
    const uint8_t *bytes;
    unsigned stream; /* of output */
};
/* The next record; its checksum is good. -1 at the end too: there is none before DONE. */
int handover_next(struct handover_in *in, struct handover_record *ret, struct err *err) must_use;
