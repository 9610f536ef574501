/* The guard in front of protobuf-c. Gets bytes from common/rpc_call.c (gRPC) and from the socket
 * between link and runner; hands out unpacked messages that are safe to believe in shape, though
 * not in meaning. */
#include "common/wire.h"

#include "common/utf8.h"

#include <string.h>

static int read_varint(const uint8_t **position, const uint8_t *end, uint64_t *ret)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (*position == end)
            return -1;
        uint8_t byte = *(*position)++;
        /* The tenth byte has room for one bit. */
        if (shift == 63 && byte > 1)
            return -1;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *ret = value;
            return 0;
        }
    }
    return -1;
}

int wire_next(const uint8_t **position, const uint8_t *end, struct wire_field *ret, struct err *err)
{
    if (*position == end)
        return 0;
    uint64_t tag, length;
    const uint8_t *at = *position;
    if (read_varint(&at, end, &tag) < 0 || tag > UINT32_MAX || tag >> 3 == 0)
        return err_set(err, ERR_PROTOCOL, "malformed message: bad field tag");
    struct wire_field field = { .number = (uint32_t)(tag >> 3), .type = (enum wire_type)(tag & 7) };
    size_t left;
    switch (field.type) {
    case WIRE_VARINT:
        if (read_varint(&at, end, &length) < 0)
            return err_set(err, ERR_PROTOCOL, "malformed message: bad number in field %u",
                           field.number);
        break;
    case WIRE_FIXED64:
    case WIRE_FIXED32:
        left = (size_t)(end - at);
        length = field.type == WIRE_FIXED64 ? 8 : 4;
        if (left < length)
            return err_set(err, ERR_PROTOCOL, "malformed message: field %u is cut off",
                           field.number);
        at += length;
        break;
    case WIRE_BYTES:
        if (read_varint(&at, end, &length) < 0 || length > (uint64_t)(end - at))
            return err_set(err, ERR_PROTOCOL, "malformed message: field %u is cut off",
                           field.number);
        field.data = at;
        field.size = (size_t)length;
        at += length;
        break;
    default:
        /* Groups (3, 4) are gone from proto3, 6 and 7 never were. */
        return err_set(err, ERR_PROTOCOL, "malformed message: wire type %d in field %u",
                       (int)field.type, field.number);
    }
    *position = at;
    *ret = field;
    return 1;
}

static enum wire_type expected_type(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return WIRE_BYTES;
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return WIRE_FIXED64;
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return WIRE_FIXED32;
    default:
        return WIRE_VARINT;
    }
}

static int check_string(const ProtobufCFieldDescriptor *known, const struct wire_field *field,
                        struct err *err)
{
    if (memchr(field->data, 0, field->size))
        return err_set(err, ERR_PROTOCOL, "\"%s\" contains a NUL byte; send plain text",
                       known->name);
    if (!utf8_valid(field->data, field->size))
        return err_set(err, ERR_PROTOCOL, "\"%s\" is not valid UTF-8", known->name);
    return 0;
}

static int scan(const ProtobufCMessageDescriptor *type, const uint8_t *data, size_t size,
                unsigned depth, unsigned *budget, struct err *err)
{
    if (depth > WIRE_DEPTH_MAX)
        return err_set(err, ERR_PROTOCOL, "message is nested too deeply");
    const uint8_t *position = data, *end = data + size;
    struct wire_field field;
    int r;
    while ((r = wire_next(&position, end, &field, err)) > 0) {
        if ((*budget)-- == 0)
            return err_set(err, ERR_PROTOCOL, "message has too many fields; at most %u are taken",
                           WIRE_FIELDS_MAX);
        const ProtobufCFieldDescriptor *known =
            protobuf_c_message_descriptor_get_field(type, field.number);
        if (!known)
            continue; /* from a newer peer */
        enum wire_type wanted = expected_type(known);
        bool packed = known->label == PROTOBUF_C_LABEL_REPEATED && wanted != WIRE_BYTES;
        if (field.type != wanted && !(packed && field.type == WIRE_BYTES))
            return err_set(err, ERR_PROTOCOL, "field \"%s\" has the wrong wire type", known->name);
        if (known->type == PROTOBUF_C_TYPE_STRING && check_string(known, &field, err) < 0)
            return -1;
        if (known->type == PROTOBUF_C_TYPE_MESSAGE &&
            scan(known->descriptor, field.data, field.size, depth + 1, budget, err) < 0)
            return -1;
    }
    return r;
}

int wire_scan_within(const ProtobufCMessageDescriptor *type, const void *data, size_t size,
                     unsigned fields, struct err *err)
{
    if (size > WIRE_MESSAGE_MAX)
        return err_set(err, ERR_EXHAUSTED, "message of %zu bytes; the limit is %u", size,
                       WIRE_MESSAGE_MAX);
    if (size == 0)
        return 0; /* every field at its default */
    return scan(type, data, size, 0, &fields, err);
}

int wire_scan(const ProtobufCMessageDescriptor *type, const void *data, size_t size,
              struct err *err)
{
    return wire_scan_within(type, data, size, WIRE_FIELDS_MAX, err);
}

static void *capped_alloc(void *allocator_data, size_t size)
{
    size_t *left = allocator_data;
    if (size > *left)
        return NULL;
    *left -= size;
    return malloc(size);
}

static void capped_free(void *allocator_data, void *pointer)
{
    (void)allocator_data;
    free(pointer);
}

int wire_unpack(const ProtobufCMessageDescriptor *type, const void *data, size_t size,
                ProtobufCMessage **ret, struct err *err)
{
    if (wire_scan(type, data, size, err) < 0)
        return -1;
    size_t left = WIRE_MEMORY_MAX;
    ProtobufCAllocator allocator = { capped_alloc, capped_free, &left };
    /* protobuf-c computes with the pointer even when there is nothing behind it. */
    static const uint8_t nothing;
    ProtobufCMessage *message =
        protobuf_c_message_unpack(type, &allocator, size, size ? data : &nothing);
    if (!message)
        return err_set(err, ERR_PROTOCOL, "message cannot be unpacked within %u bytes of memory",
                       WIRE_MEMORY_MAX);
    *ret = message;
    return 0;
}

void wire_free(ProtobufCMessage *message)
{
    /* capped_alloc() is malloc(3), so that freeing needs no state. */
    if (message)
        protobuf_c_message_free_unpacked(message, NULL);
}

int wire_pack(const ProtobufCMessage *message, uint8_t **ret, size_t *ret_size, struct err *err)
{
    size_t size = protobuf_c_message_get_packed_size(message);
    if (size > WIRE_MESSAGE_MAX)
        return err_set(err, ERR_EXHAUSTED, "message of %zu bytes; the limit is %u", size,
                       WIRE_MESSAGE_MAX);
    uint8_t *data = malloc(size ? size : 1);
    if (!data)
        return err_nomem(err);
    *ret_size = protobuf_c_message_pack(message, data);
    *ret = data;
    return 0;
}

static size_t put_varint(uint64_t value, uint8_t *out)
{
    size_t n = 0;
    while (value >= 0x80) {
        out[n++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    out[n++] = (uint8_t)value;
    return n;
}

size_t wire_header(uint32_t number, size_t size, uint8_t out[WIRE_HEADER_MAX])
{
    size_t n = put_varint((uint64_t)number << 3 | WIRE_BYTES, out);
    return n + put_varint(size, out + n);
}
