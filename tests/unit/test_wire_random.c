/* Random messages of every type: they come back as they went, a cut one is refused, and a damaged
 * one is either refused or still whole. */
#include "common/wire.h"
#include "tests/unit/random.h"
#include "tests/unit/wire_types.h"

#include <criterion/criterion.h>
#include <string.h>

#define OK(call)       cr_assert_eq((call), 0, "%s", err.text)
#define FAILS(call, c) cr_assert((call) == -1 && err.code == (c), "%s", err.text)

static ProtobufCMessage *random_message(const ProtobufCMessageDescriptor *type, uint64_t *seed);

static char *random_text(uint64_t *seed)
{
    static const char *const pieces[] = {
        "a", "sandbox-7", "\xc3\xa4", "\xf0\x9f\x8c\xaa", "\n", ""
    };
    char *text = calloc(1, 64);
    cr_assert_not_null(text);
    for (uint64_t i = random_below(seed, 5); i > 0; i--)
        (void)strcat(text, pieces[random_below(seed, ELEMENTS(pieces))]);
    return text;
}

static uint64_t random_number(uint64_t *seed)
{
    static const uint64_t edges[] = { 0, 1, 127, 128, UINT32_MAX, INT64_MAX, UINT64_MAX };
    return random_below(seed, 2) ? edges[random_below(seed, ELEMENTS(edges))] : next_random(seed);
}

static void random_value(const ProtobufCFieldDescriptor *field, void *at, uint64_t *seed)
{
    ProtobufCBinaryData bytes = { random_below(seed, 50), NULL };
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        *(char **)at = random_text(seed);
        break;
    case PROTOBUF_C_TYPE_BYTES:
        bytes.data = bytes.len ? malloc(bytes.len) : NULL;
        for (size_t i = 0; i < bytes.len; i++)
            bytes.data[i] = (uint8_t)next_random(seed);
        *(ProtobufCBinaryData *)at = bytes;
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        *(ProtobufCMessage **)at = random_message(field->descriptor, seed);
        break;
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)at = (protobuf_c_boolean)random_below(seed, 2);
        break;
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_UINT64:
        *(uint64_t *)at = random_number(seed);
        break;
    default:
        cr_assert(field->type == PROTOBUF_C_TYPE_INT32 || field->type == PROTOBUF_C_TYPE_UINT32 ||
                      field->type == PROTOBUF_C_TYPE_ENUM,
                  "%s: teach this test its type", field->name);
        *(uint32_t *)at = (uint32_t)random_number(seed);
    }
}

static size_t value_size(const ProtobufCFieldDescriptor *field)
{
    if (field->type == PROTOBUF_C_TYPE_ENUM)
        return sizeof(uint32_t);
    cr_assert(field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE,
              "%s: teach this test lists of its type", field->name);
    return sizeof(void *);
}

static ProtobufCMessage *random_message(const ProtobufCMessageDescriptor *type, uint64_t *seed)
{
    uint8_t *message = malloc(type->sizeof_message);
    cr_assert_not_null(message);
    type->message_init((ProtobufCMessage *)(void *)message);
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        uint8_t *at = message + field->offset, *quantifier = message + field->quantifier_offset;
        if (random_below(seed, 2))
            continue;
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            size_t count = random_below(seed, 4);
            uint8_t *items = count ? calloc(count, value_size(field)) : NULL;
            for (size_t k = 0; k < count; k++)
                random_value(field, items + k * value_size(field), seed);
            *(size_t *)(void *)quantifier = count;
            *(void **)(void *)at = items;
        } else if (!(field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)) {
            random_value(field, at, seed);
        } else if (*(uint32_t *)(void *)quantifier == 0) {
            *(uint32_t *)(void *)quantifier = field->id;
            random_value(field, at, seed);
        }
    }
    return (ProtobufCMessage *)(void *)message;
}

static void repack(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t size)
{
    struct err err = { 0 };
    ProtobufCMessage *message = NULL;
    uint8_t *again = NULL;
    size_t again_size = 0;
    cr_assert_eq(wire_unpack(type, bytes, size, &message, &err), 0, "%s: %s", type->name, err.text);
    OK(wire_pack(message, &again, &again_size, &err));
    cr_assert(size == again_size && memcmp(bytes, again, size) == 0, "%s", type->name);
    wire_free(message);
    free(again);
}

/* A cut between two fields leaves a message, any other does not: never anything in between. */
static void cut(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t size)
{
    struct err err = { 0 };
    size_t boundary = 0;
    const uint8_t *position = bytes;
    struct wire_field field;
    while (wire_next(&position, bytes + size, &field, &err) > 0) {
        size_t end = (size_t)(position - bytes);
        for (size_t at = boundary + 1; at < end; at += 1 + end / 64)
            FAILS(wire_scan(type, bytes, at, &err), ERR_PROTOCOL);
        OK(wire_scan(type, bytes, end, &err));
        boundary = end;
    }
    cr_assert_eq(boundary, size);
}

/* Whatever happens to the bytes, the guard either refuses or hands out a message that can be sent
 * on. */
static void damage(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t size,
                   uint64_t *seed)
{
    CLEANUP_FREE uint8_t *copy = malloc(size);
    (void)memcpy(copy, bytes, size);
    for (uint64_t i = 1 + random_below(seed, 3); i > 0; i--)
        copy[random_below(seed, size)] ^= (uint8_t)(1u << random_below(seed, 8));
    struct err err = { 0 };
    ProtobufCMessage *message = NULL;
    if (wire_unpack(type, copy, size, &message, &err) < 0)
        return;
    uint8_t *again = NULL;
    size_t again_size;
    OK(wire_pack(message, &again, &again_size, &err));
    wire_free(message);
    free(again);
}

Test(wire, random_messages_of_every_type_survive_the_way_and_damage)
{
    uint64_t seed = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < ELEMENTS(wire_types); i++)
        for (unsigned round = 0; round < 60; round++) {
            struct err err = { 0 };
            ProtobufCMessage *message = random_message(wire_types[i], &seed);
            uint8_t *bytes = NULL;
            size_t size = 0;
            OK(wire_pack(message, &bytes, &size, &err));
            protobuf_c_message_free_unpacked(message, NULL);
            repack(wire_types[i], bytes, size);
            if (round % 8 == 0)
                cut(wire_types[i], bytes, size);
            for (unsigned k = 0; size > 0 && k < 10; k++)
                damage(wire_types[i], bytes, size, &seed);
            free(bytes);
        }
}
