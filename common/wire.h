/* Protobuf on hostile ground. protobuf-c trusts its input: 4 MiB of empty elements become 140 MB,
 * strings may hold NULs and broken UTF-8, and nesting recurses. So every message from a peer is
 * scanned against its descriptor first and unpacked with a capped allocator second. Pure; any
 * thread. */
#pragma once

#include "common/err.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#define WIRE_MESSAGE_MAX (256u * 1024)      /* bytes of one message */
#define WIRE_PAYLOAD_MAX (64u * 1024)       /* bytes of data in one record */
#define WIRE_FIELDS_MAX  8192u              /* fields in one message, at any depth */
#define WIRE_MEMORY_MAX  (3u * 1024 * 1024) /* what one unpacked message may cost */
#define WIRE_DEPTH_MAX   16u /* our types do not recurse; this catches one that does */

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

struct wire_field {
    uint32_t number;
    enum wire_type type;
    const uint8_t *data; /* WIRE_BYTES */
    size_t size;
};

/* Steps over one field: 1 and *ret, 0 at the end, -1 when the bytes are not protobuf. */
int wire_next(const uint8_t **position, const uint8_t *end, struct wire_field *ret,
              struct err *err) must_use;

/* Is this a message of that type within the bounds above, with clean strings? */
int wire_scan(const ProtobufCMessageDescriptor *type, const void *data, size_t size,
              struct err *err) must_use;
/* The same with fewer fields allowed: for what will travel on inside another message. */
int wire_scan_within(const ProtobufCMessageDescriptor *type, const void *data, size_t size,
                     unsigned fields, struct err *err) must_use;
/* Scans, then unpacks. Free with wire_free(). */
int wire_unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t size,
                ProtobufCMessage **ret, struct err *err) must_use;
void wire_free(ProtobufCMessage *message);

/* ERR_EXHAUSTED when the message would pass WIRE_MESSAGE_MAX. */
int wire_pack(const ProtobufCMessage *message, uint8_t **ret, size_t *ret_size,
              struct err *err) must_use;

/* The bytes that stand before a length-delimited field of `size` bytes. */
#define WIRE_HEADER_MAX 10
size_t wire_header(uint32_t number, size_t size, uint8_t out[WIRE_HEADER_MAX]);

static inline void wire_cleanup(ProtobufCMessage **message)
{
    wire_free(*message);
}
#define CLEANUP_WIRE CLEANUP(wire_cleanup)
