/* The guard in front of protobuf-c: bytes that are not protobuf, and bytes that are
 * too much of it. */
#include "common/wire.h"
#include "google/protobuf/descriptor.pb-c.h"
#include "tests/unit/wire_types.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define OK(call)       cr_assert_eq((call), 0, "%s", err.text)
#define FAILS(call, c) cr_assert((call) == -1 && err.code == (c), "%s", err.text)
#define LABEL          (&sandstorm__v1__label__descriptor)
#define LIST           (&sandstorm__v1__list_sandboxes_response__descriptor)
#define SCAN(type, ...)                                                                            \
    wire_scan((type), (const uint8_t[]){ __VA_ARGS__ }, sizeof((const uint8_t[]){ __VA_ARGS__ }),  \
              &err)

extern const uint8_t descriptors_start[], descriptors_end[];

/* The schema itself. */

static bool is_listed(const char *name)
{
    for (size_t i = 0; i < ELEMENTS(wire_types); i++)
        if (strcmp(wire_types[i]->name, name) == 0)
            return true;
    return false;
}

Test(wire, the_table_of_types_leaves_none_out)
{
    size_t size = (size_t)((uintptr_t)descriptors_end - (uintptr_t)descriptors_start);
    Google__Protobuf__FileDescriptorSet *set =
        google__protobuf__file_descriptor_set__unpack(NULL, size, descriptors_start);
    cr_assert_not_null(set);
    size_t found = 0;
    for (size_t i = 0; i < set->n_file; i++) {
        const Google__Protobuf__FileDescriptorProto *file = set->file[i];
        if (strcmp(file->package, "sandstorm.v1") != 0)
            continue;
        for (size_t k = 0; k < file->n_message_type; k++, found++) {
            char name[256];
            (void)snprintf(name, sizeof(name), "sandstorm.v1.%s", file->message_type[k]->name);
            cr_expect(is_listed(name), "%s is missing in tests/unit/wire_types.h", name);
            cr_expect_eq(file->message_type[k]->n_nested_type, 0, "%s", name);
        }
    }
    cr_expect_eq(found, ELEMENTS(wire_types));
    google__protobuf__file_descriptor_set__free_unpacked(set, NULL);
}

static unsigned depth_of(const ProtobufCMessageDescriptor *type, unsigned above)
{
    cr_assert_leq(above, WIRE_DEPTH_MAX, "%s contains itself", type->name);
    unsigned deepest = above;
    for (unsigned i = 0; i < type->n_fields; i++)
        if (type->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
            deepest = MAX(deepest, depth_of(type->fields[i].descriptor, above + 1));
    return deepest;
}

Test(wire, no_type_contains_itself)
{
    unsigned deepest = 0;
    for (size_t i = 0; i < ELEMENTS(wire_types); i++)
        deepest = MAX(deepest, depth_of(wire_types[i], 0));
    cr_expect_gt(deepest, 2u, "the walk did not go down");
}

/* What is not protobuf. */

Test(wire, nothing_is_a_message_with_defaults)
{
    struct err err = { 0 };
    ProtobufCMessage *message = NULL;
    OK(wire_scan(LABEL, NULL, 0, &err));
    OK(wire_unpack(LABEL, NULL, 0, &message, &err));
    cr_expect_str_eq(((Sandstorm__V1__Label *)message)->name, "");
    wire_free(message);
}

Test(wire, a_varint_of_ten_bytes_is_the_longest)
{
    struct err err = { 0 };
    /* CommandSpec.timeout_ms is field 12. */
    const ProtobufCMessageDescriptor *spec = &sandstorm__v1__command_spec__descriptor;
    OK(SCAN(spec, 0x60, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1));
    FAILS(SCAN(spec, 0x60, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2), ERR_PROTOCOL);
    FAILS(SCAN(spec, 0x60, 255, 255, 255, 255, 255, 255, 255, 255, 255, 128, 0), ERR_PROTOCOL);
    FAILS(SCAN(spec, 0x60, 255, 255), ERR_PROTOCOL);
    FAILS(SCAN(spec, 0x60), ERR_PROTOCOL);
    FAILS(SCAN(spec, 0xe0), ERR_PROTOCOL);
}

Test(wire, a_length_beyond_the_end_is_refused)
{
    struct err err = { 0 };
    OK(SCAN(LABEL, 0x0a, 2, 'a', 'b'));
    FAILS(SCAN(LABEL, 0x0a, 3, 'a', 'b'), ERR_PROTOCOL);
    FAILS(SCAN(LABEL, 0x0a, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1), ERR_PROTOCOL);
    /* Fixed-size numbers of an unknown field, cut off. */
    OK(SCAN(LABEL, 0x7d, 1, 2, 3, 4));
    FAILS(SCAN(LABEL, 0x7d, 1, 2, 3), ERR_PROTOCOL);
    OK(SCAN(LABEL, 0x79, 1, 2, 3, 4, 5, 6, 7, 8));
    FAILS(SCAN(LABEL, 0x79, 1, 2, 3, 4, 5, 6, 7), ERR_PROTOCOL);
}

Test(wire, a_known_field_of_another_wire_type_is_refused)
{
    struct err err = { 0 };
    FAILS(SCAN(LABEL, 0x08, 1), ERR_PROTOCOL);
    FAILS(SCAN(LABEL, 0x0d, 1, 2, 3, 4), ERR_PROTOCOL);
    FAILS(SCAN(&sandstorm__v1__credit__descriptor, 0x0a, 1, 1), ERR_PROTOCOL);
    cr_expect_not_null(strstr(err.text, "\"acked\""), "%s", err.text);
}

Test(wire, groups_and_reserved_wire_types_are_refused)
{
    struct err err = { 0 };
    for (unsigned type = 3; type < 8; type++)
        for (unsigned field = 1; field < 16; field += 14)
            if (type != WIRE_FIXED32)
                FAILS(SCAN(LABEL, (uint8_t)(field << 3 | type), 0, 0, 0, 0), ERR_PROTOCOL);
}

Test(wire, field_0_and_numbers_beyond_29_bits_are_refused)
{
    struct err err = { 0 };
    FAILS(SCAN(LABEL, 0x00, 1), ERR_PROTOCOL);
    FAILS(SCAN(LABEL, 0x02, 0), ERR_PROTOCOL);
    OK(SCAN(LABEL, 0xf8, 0xff, 0xff, 0xff, 0x0f, 1));
    FAILS(SCAN(LABEL, 0xf8, 0xff, 0xff, 0xff, 0x1f, 1), ERR_PROTOCOL);
}

Test(wire, fields_of_a_newer_peer_are_passed_over)
{
    struct err err = { 0 };
    ProtobufCMessage *message = NULL;
    const uint8_t bytes[] = { 0x78, 1, 0x0a, 1, 'n', 0x7a, 2, 0, 0xff };
    OK(wire_unpack(LABEL, bytes, sizeof(bytes), &message, &err));
    cr_expect_str_eq(((Sandstorm__V1__Label *)message)->name, "n");
    wire_free(message);
}

Test(wire, strings_are_utf8_without_nul_at_any_depth)
{
    struct err err = { 0 };
    OK(SCAN(LABEL, 0x0a, 2, 0xc3, 0xa4));
    FAILS(SCAN(LABEL, 0x0a, 2, 0xc3, 'a'), ERR_PROTOCOL);
    FAILS(SCAN(LABEL, 0x0a, 3, 'a', 0, 'b'), ERR_PROTOCOL);
    cr_expect_not_null(strstr(err.text, "\"name\""), "%s", err.text);
    /* SandboxInfo.labels[0].value */
    const ProtobufCMessageDescriptor *info = &sandstorm__v1__sandbox_info__descriptor;
    OK(SCAN(info, 0x4a, 3, 0x12, 1, 'x'));
    FAILS(SCAN(info, 0x4a, 3, 0x12, 1, 0x80), ERR_PROTOCOL);
    /* Bytes may hold anything: Stdin.data. */
    OK(SCAN(&sandstorm__v1__stdin__descriptor, 0x12, 2, 0, 0xff));
}

/* What is too much. */

static uint8_t *empty_elements(size_t count)
{
    uint8_t *bytes = malloc(count * 2);
    cr_assert_not_null(bytes);
    for (size_t i = 0; i < count; i++) {
        bytes[2 * i] = 0x0a;
        bytes[2 * i + 1] = 0;
    }
    return bytes;
}

Test(wire, four_mebibytes_of_empty_elements_are_refused_by_their_size)
{
    struct err err = { 0 };
    CLEANUP_FREE uint8_t *bytes = empty_elements(2u << 20);
    ProtobufCMessage *message = NULL;
    FAILS(wire_unpack(LIST, bytes, 4u << 20, &message, &err), ERR_EXHAUSTED);
    FAILS(wire_scan(LIST, bytes, WIRE_MESSAGE_MAX + 1, &err), ERR_EXHAUSTED);
    FAILS(wire_unpack(LIST, bytes, WIRE_MESSAGE_MAX, &message, &err), ERR_PROTOCOL);
    cr_expect_null(message);
}

Test(wire, the_budget_of_fields_is_exact_and_counts_every_depth)
{
    struct err err = { 0 };
    CLEANUP_FREE uint8_t *bytes = empty_elements(WIRE_FIELDS_MAX + 1);
    ProtobufCMessage *message = NULL;
    OK(wire_unpack(LIST, bytes, 2 * WIRE_FIELDS_MAX, &message, &err));
    cr_expect_eq(((Sandstorm__V1__ListSandboxesResponse *)message)->n_sandboxes, WIRE_FIELDS_MAX);
    wire_free(message);
    FAILS(wire_scan(LIST, bytes, 2 * WIRE_FIELDS_MAX + 2, &err), ERR_PROTOCOL);
    /* Each element with one field inside: half as many fit. */
    for (size_t i = 0; i < WIRE_FIELDS_MAX / 2; i++)
        (void)memcpy(bytes + 4 * i, (const uint8_t[]){ 0x0a, 2, 0x10, 1 }, 4);
    OK(wire_scan(LIST, bytes, 2 * WIRE_FIELDS_MAX, &err));
    (void)memcpy(bytes + (size_t)2 * WIRE_FIELDS_MAX, (const uint8_t[]){ 0x0a, 0 }, 2);
    FAILS(wire_scan(LIST, bytes, 2 * WIRE_FIELDS_MAX + 2, &err), ERR_PROTOCOL);
}

/* The largest that a real type can make of a message is under the cap, so this one is made up: the
 * elements of a list that cost 4 KiB each. */
Test(wire, memory_beyond_the_cap_is_refused_and_given_back)
{
    struct err err = { 0 };
    ProtobufCMessageDescriptor list = *LIST, element = sandstorm__v1__sandbox__descriptor;
    ProtobufCFieldDescriptor fields[2] = { LIST->fields[0], LIST->fields[1] };
    element.sizeof_message = 4096;
    element.message_init = NULL;
    fields[0].descriptor = &element;
    list.fields = fields;
    size_t too_many = WIRE_MEMORY_MAX / 4096;
    CLEANUP_FREE uint8_t *bytes = empty_elements(too_many);
    ProtobufCMessage *message = NULL;
    FAILS(wire_unpack(&list, bytes, 2 * too_many, &message, &err), ERR_PROTOCOL);
    OK(wire_unpack(&list, bytes, too_many, &message, &err));
    wire_free(message);
}

Test(wire, nesting_beyond_the_bound_is_refused)
{
    struct err err = { 0 };
    ProtobufCMessageDescriptor list = *LIST;
    ProtobufCFieldDescriptor fields[2] = { LIST->fields[0], LIST->fields[1] };
    fields[0].descriptor = &list;
    list.fields = fields;
    uint8_t bytes[2 * (WIRE_DEPTH_MAX + 1)];
    for (size_t i = 0; i < sizeof(bytes); i += 2) {
        bytes[i] = 0x0a;
        bytes[i + 1] = (uint8_t)(sizeof(bytes) - i - 2);
    }
    FAILS(wire_scan(&list, bytes, sizeof(bytes), &err), ERR_PROTOCOL);
    OK(wire_scan(&list, bytes + 2, sizeof(bytes) - 2, &err));
}

/* The leak sanitizer watches this one: protobuf-c has to let go of what the first ones held. */
Test(wire, of_several_members_of_a_oneof_the_last_counts)
{
    struct err err = { 0 };
    ProtobufCMessage *message = NULL;
    const uint8_t bytes[] = {
        0x1a, 6, 0x12, 4, 'a',  'b', 'c', 'd', /* inventory with an instance */
        0x0a, 5, 0x1a, 3, 0x0a, 1,   'v',      /* register with an info */
        0x12, 2, 0x08, 7,                      /* heartbeat */
        0x0a, 5, 0x1a, 3, 0x12, 1,   'h',      /* register again */
        0x0a, 2, 0x08, 1,                      /* and once more: merged */
    };
    OK(wire_unpack(&sandstorm__v1__agent_frame__descriptor, bytes, sizeof(bytes), &message, &err));
    const Sandstorm__V1__AgentFrame *frame = (const Sandstorm__V1__AgentFrame *)message;
    cr_assert_eq(frame->kind_case, SANDSTORM__V1__AGENT_FRAME__KIND_REGISTER);
    cr_expect_eq(frame->register_->protocol_min, 1);
    wire_free(message);
}

/* What we send. */

Test(wire, packing_stops_at_the_bound)
{
    struct err err = { 0 };
    CLEANUP_FREE uint8_t *data = calloc(1, WIRE_MESSAGE_MAX);
    Sandstorm__V1__Stdin input = SANDSTORM__V1__STDIN__INIT;
    uint8_t header[WIRE_HEADER_MAX];
    size_t size = WIRE_MESSAGE_MAX - wire_header(2, WIRE_MESSAGE_MAX, header);
    input.data = (ProtobufCBinaryData){ size, data };
    uint8_t *packed = NULL;
    size_t packed_size = 0;
    OK(wire_pack(&input.base, &packed, &packed_size, &err));
    cr_expect_eq(packed_size, WIRE_MESSAGE_MAX);
    OK(wire_scan(&sandstorm__v1__stdin__descriptor, packed, packed_size, &err));
    free(packed);
    input.data.len++;
    FAILS(wire_pack(&input.base, &packed, &packed_size, &err), ERR_EXHAUSTED);
}

Test(wire, a_header_is_read_back)
{
    struct err err = { 0 };
    static const size_t sizes[] = { 0, 1, 127, 128, 16383, 16384, WIRE_MESSAGE_MAX };
    static const uint32_t numbers[] = { 1, 15, 16, 2047, 2048, (1u << 29) - 1 };
    uint8_t *bytes = malloc(WIRE_HEADER_MAX + WIRE_MESSAGE_MAX);
    for (size_t i = 0; i < ELEMENTS(sizes); i++)
        for (size_t k = 0; k < ELEMENTS(numbers); k++) {
            size_t header = wire_header(numbers[k], sizes[i], bytes);
            cr_assert_leq(header, WIRE_HEADER_MAX);
            const uint8_t *position = bytes;
            struct wire_field field;
            cr_assert_eq(wire_next(&position, bytes + header + sizes[i], &field, &err), 1);
            cr_expect_eq(field.number, numbers[k]);
            cr_expect_eq(field.type, WIRE_BYTES);
            cr_expect_eq(field.data, bytes + header);
            cr_expect_eq(field.size, sizes[i]);
            cr_expect_eq(wire_next(&position, position, &field, &err), 0);
        }
    free(bytes);
}
