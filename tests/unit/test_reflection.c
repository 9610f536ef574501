/* What reflection serves: the schema that the build embeds, random ones against plain lists of
 * their names, and the promise that both versions of the service speak one wire format. */
#include "common/rpc_call.h"
#include "common/wire.h"
#include "google/protobuf/descriptor.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "grpc/reflection/v1alpha/reflection.pb-c.h"
#include "orchestrator/descriptors.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define OK(call) cr_assert_eq((call), 0, "%s", err.text)

extern const uint8_t descriptors_start[], descriptors_end[];

static size_t set_size(void)
{
    return (size_t)((uintptr_t)descriptors_end - (uintptr_t)descriptors_start);
}

static struct descriptor_index *embedded(void)
{
    struct err err = { 0 };
    struct descriptor_index *index = NULL;
    OK(descriptor_index_new_embedded(&index, &err));
    return index;
}

static bool in_closure(const struct descriptor_file *file, const struct descriptor_file *other)
{
    unsigned times = 0;
    for (size_t i = 0; i < file->closure_count; i++)
        times += file->closure[i] == other;
    cr_expect(times <= 1, "%s has %s %u times", file->name, other->name, times);
    return times > 0;
}

static size_t closure_size(const struct descriptor_file *file)
{
    size_t size = 0;
    for (size_t i = 0; i < file->closure_count; i++)
        size += file->closure[i]->size;
    return size;
}

Test(descriptors, every_file_is_served_as_protoc_wrote_it_with_all_that_it_imports)
{
    CLEANUP_DESCRIPTOR_INDEX struct descriptor_index *index = embedded();
    Google__Protobuf__FileDescriptorSet *set =
        google__protobuf__file_descriptor_set__unpack(NULL, set_size(), descriptors_start);
    cr_assert(set && set->n_file >= 6);
    for (size_t i = 0; i < set->n_file; i++) {
        const struct descriptor_file *file = descriptor_index_file(index, set->file[i]->name);
        cr_assert_not_null(file, "%s", set->file[i]->name);
        cr_assert_eq(file->closure[0], file);
        /* The answer fits beside a request that comes back twice, as host and as original. */
        cr_expect(closure_size(file) + 2 * WIRE_MESSAGE_MAX < RPC_QUEUE_MAX - RPC_QUEUE_WRITABLE);
        CLEANUP_FREE uint8_t *packed = malloc(file->size);
        cr_assert_eq(protobuf_c_message_get_packed_size(&set->file[i]->base), file->size);
        (void)google__protobuf__file_descriptor_proto__pack(set->file[i], packed);
        cr_expect_arr_eq(packed, file->data, file->size);
        for (size_t k = 0; k < set->file[i]->n_dependency; k++) {
            const struct descriptor_file *import =
                descriptor_index_file(index, set->file[i]->dependency[k]);
            cr_assert_not_null(import, "%s", set->file[i]->dependency[k]);
            for (size_t n = 0; n < import->closure_count; n++)
                cr_expect(in_closure(file, import->closure[n]));
        }
    }
    google__protobuf__file_descriptor_set__free_unpacked(set, NULL);
}

Test(descriptors, a_symbol_of_every_kind_leads_to_its_file)
{
    static const struct {
        const char *symbol, *file;
    } rows[] = {
        { "sandstorm.v1.Label", "sandstorm/v1/types.proto" },
        { "sandstorm.v1.Label.name", "sandstorm/v1/types.proto" },
        { "sandstorm.v1.Outcome.result", "sandstorm/v1/types.proto" },
        { "sandstorm.v1.Stream", "sandstorm/v1/types.proto" },
        { "sandstorm.v1.STREAM_STDOUT", "sandstorm/v1/types.proto" },
        { "sandstorm.v1.LinkService", "sandstorm/v1/link.proto" },
        { "sandstorm.v1.CommandService.Exec", "sandstorm/v1/control.proto" },
        { "grpc.health.v1.HealthCheckResponse.ServingStatus", "grpc/health/v1/health.proto" },
        { "grpc.health.v1.HealthCheckResponse.SERVING", "grpc/health/v1/health.proto" },
    };
    CLEANUP_DESCRIPTOR_INDEX struct descriptor_index *index = embedded();
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        const struct descriptor_file *file = descriptor_index_symbol(index, rows[i].symbol);
        cr_assert_not_null(file, "%s", rows[i].symbol);
        cr_expect_str_eq(file->name, rows[i].file);
    }
}

Test(descriptors, what_is_not_declared_is_not_found)
{
    static const char *const symbols[] = {
        "",
        "sandstorm.v1",
        ".sandstorm.v1.Label",
        "sandstorm.v1.Label.",
        "sandstorm.v1.Labe",
        "sandstorm.v1.Stream.STREAM_STDOUT",
        "Label",
    };
    CLEANUP_DESCRIPTOR_INDEX struct descriptor_index *index = embedded();
    for (size_t i = 0; i < ELEMENTS(symbols); i++)
        cr_expect_null(descriptor_index_symbol(index, symbols[i]), "%s", symbols[i]);
    cr_expect_null(descriptor_index_file(index, "types.proto"));
}

Test(descriptors, services_are_listed_in_order)
{
    static const char *const expected[] = {
        "grpc.health.v1.Health",
        "grpc.reflection.v1.ServerReflection",
        "grpc.reflection.v1alpha.ServerReflection",
        "sandstorm.v1.AuditService",
        "sandstorm.v1.ClientService",
        "sandstorm.v1.CommandService",
        "sandstorm.v1.IdentityService",
        "sandstorm.v1.LinkService",
        "sandstorm.v1.LogService",
        "sandstorm.v1.SandboxService",
        "sandstorm.v1.TokenService",
    };
    CLEANUP_DESCRIPTOR_INDEX struct descriptor_index *index = embedded();
    size_t count;
    const char *const *names = descriptor_index_services(index, &count);
    cr_assert_eq(count, ELEMENTS(expected));
    for (size_t i = 0; i < count; i++)
        cr_expect_str_eq(names[i], expected[i]);
}

Test(descriptors, a_set_that_is_cut_off_anywhere_is_refused_or_whole)
{
    for (size_t size = 1; size < set_size(); size++) {
        uint8_t *exact = malloc(size);
        (void)memcpy(exact, descriptors_start, size);
        CLEANUP_DESCRIPTOR_INDEX struct descriptor_index *index = NULL;
        struct err err = { 0 };
        if (descriptor_index_new(exact, size, &index, &err) < 0)
            cr_expect(!index && (err.code == ERR_PROTOCOL || err.code == ERR_INVALID));
        else
            cr_expect_eq(descriptors_start[size], 0x0a, "not between two files: %zu", size);
        free(exact);
    }
}

/* Sets made here, field by field: numbers as in descriptor.proto. */

enum { FILE_NAME = 1, FILE_PACKAGE, FILE_IMPORT, FILE_MESSAGE, FILE_ENUM, FILE_SERVICE, FILE_EXT };
enum { MESSAGE_FIELD = 2, MESSAGE_NESTED, MESSAGE_ENUM, MESSAGE_EXT = 6, MESSAGE_ONEOF = 8 };
enum { NAME = 1, INNER = 2 }; /* everywhere; a value of an enum, a method of a service */

struct bytes {
    uint8_t *data;
    size_t size;
};

static void put(struct bytes *bytes, uint32_t number, const void *data, size_t size)
{
    uint8_t header[WIRE_HEADER_MAX];
    size_t length = wire_header(number, size, header);
    bytes->data = realloc(bytes->data, bytes->size + length + size);
    (void)memcpy(bytes->data + bytes->size, header, length);
    if (size)
        (void)memcpy(bytes->data + bytes->size + length, data, size);
    bytes->size += length + size;
}

static void put_text(struct bytes *bytes, uint32_t number, const char *text)
{
    put(bytes, number, text, strlen(text));
}

static void put_inner(struct bytes *bytes, uint32_t number, struct bytes inner)
{
    put(bytes, number, inner.data, inner.size);
    free(inner.data);
}

/* A file with one message, whose name may be missing. */
static struct bytes small_file(const char *name, const char *message, const char *import)
{
    struct bytes file = { 0 }, inner = { 0 };
    if (name)
        put_text(&file, FILE_NAME, name);
    if (import)
        put_text(&file, FILE_IMPORT, import);
    if (message)
        put_text(&inner, NAME, message);
    put_inner(&file, FILE_MESSAGE, inner);
    return file;
}

static void expect_refused(struct bytes first, struct bytes second, const char *word)
{
    struct err err = { 0 };
    struct descriptor_index *index = NULL;
    struct bytes set = { 0 };
    put_inner(&set, 1, first);
    put_inner(&set, 1, second);
    cr_expect_eq(descriptor_index_new(set.data, set.size, &index, &err), -1);
    cr_expect(err.code == ERR_INVALID && strstr(err.text, word), "%s", err.text);
    cr_expect_null(index);
    free(set.data);
}

Test(descriptors, a_set_that_could_not_be_served_is_refused)
{
    struct err err = { 0 };
    struct descriptor_index *index = NULL;
    cr_expect_eq(descriptor_index_new("", 0, &index, &err), -1);
    expect_refused(small_file("a", "A", NULL), small_file("a", "B", NULL), "there twice");
    expect_refused(small_file("a", "A", NULL), small_file("b", "A", NULL), "declared twice");
    expect_refused(small_file("a", "A", NULL), small_file("b", "B", "c"), "--include_imports");
    expect_refused(small_file("a", "A", NULL), small_file(NULL, "B", NULL), "no name");
    expect_refused(small_file("a", "A", NULL), small_file("b", NULL, NULL), "without a name");
}

#define MODEL_FILES 8
#define MODEL_NAMES 4096

static const char *const file_names[MODEL_FILES] = {
    "f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7"
};

/* What a random set declares, as plain lists. */
struct model {
    uint64_t random;
    unsigned file; /* the one that is being made */
    bool reaches[MODEL_FILES][MODEL_FILES];
    struct {
        char *name;
        unsigned file;
        bool service;
    } names[MODEL_NAMES];
    unsigned count;
};

static unsigned roll(struct model *model, unsigned sides)
{
    model->random ^= model->random << 13;
    model->random ^= model->random >> 7;
    model->random ^= model->random << 17;
    return (unsigned)(model->random % sides);
}

/* Puts a new name into `bytes`, notes it, and returns it in full. */
static const char *declare(struct model *model, struct bytes *bytes, const char *scope)
{
    char name[64];
    (void)snprintf(name, sizeof(name), "%c%u", 'A' + roll(model, 50), model->count);
    put_text(bytes, NAME, name);
    cr_assert(model->count < MODEL_NAMES);
    model->names[model->count].file = model->file;
    cr_assert(asprintf(&model->names[model->count].name, "%s%s%s", scope, *scope ? "." : "", name) >
              0);
    return model->names[model->count++].name;
}

/* Several things with a name and, if `inner`, with named parts: below themselves (methods of a
 * service) or beside themselves (values of an enum). */
static void put_things(struct model *model, struct bytes *out, uint32_t number, const char *scope,
                       bool inner, bool inner_below)
{
    for (unsigned n = roll(model, 3); n > 0; n--) {
        struct bytes thing = { 0 };
        const char *full = declare(model, &thing, scope);
        model->names[model->count - 1].service = inner && inner_below;
        for (unsigned k = inner ? roll(model, 3) : 0; k > 0; k--) {
            struct bytes part = { 0 };
            (void)declare(model, &part, inner_below ? full : scope);
            put_inner(&thing, INNER, part);
        }
        put_inner(out, number, thing);
    }
}

static void put_messages(struct model *model, struct bytes *out, uint32_t number, const char *scope,
                         unsigned depth)
{
    for (unsigned n = roll(model, 4); n > 0 && depth < 4; n--) {
        struct bytes message = { 0 };
        const char *full = declare(model, &message, scope);
        put_things(model, &message, MESSAGE_FIELD, full, false, false);
        put_things(model, &message, MESSAGE_EXT, full, false, false);
        put_things(model, &message, MESSAGE_ONEOF, full, false, false);
        put_things(model, &message, MESSAGE_ENUM, full, true, false);
        put_messages(model, &message, MESSAGE_NESTED, full, depth + 1);
        put_inner(out, number, message);
    }
}

static struct bytes random_set(struct model *model, unsigned files)
{
    struct bytes set = { 0 };
    for (model->file = 0; model->file < files; model->file++) {
        struct bytes file = { 0 };
        put_text(&file, FILE_NAME, file_names[model->file]);
        const char *package = roll(model, 3) ? "p.q" : "";
        if (*package)
            put_text(&file, FILE_PACKAGE, package);
        model->reaches[model->file][model->file] = true;
        for (unsigned n = roll(model, 3); n > 0; n--) {
            unsigned import = roll(model, files);
            put_text(&file, FILE_IMPORT, file_names[import]);
            model->reaches[model->file][import] = true;
        }
        put_messages(model, &file, FILE_MESSAGE, package, 0);
        put_things(model, &file, FILE_ENUM, package, true, false);
        put_things(model, &file, FILE_SERVICE, package, true, true);
        put_things(model, &file, FILE_EXT, package, false, false);
        put_inner(&set, 1, file);
    }
    for (unsigned via = 0; via < files; via++)
        for (unsigned a = 0; a < files; a++)
            for (unsigned b = 0; b < files; b++)
                model->reaches[a][b] |= model->reaches[a][via] && model->reaches[via][b];
    return set;
}

static void compare_files(const struct descriptor_index *index, const struct model *model,
                          unsigned files)
{
    for (unsigned a = 0; a < files; a++) {
        const struct descriptor_file *file = descriptor_index_file(index, file_names[a]);
        cr_assert_not_null(file);
        for (unsigned b = 0; b < files; b++)
            cr_expect_eq(in_closure(file, descriptor_index_file(index, file_names[b])),
                         model->reaches[a][b], "%u %u", a, b);
    }
}

static void compare_names(const struct descriptor_index *index, const struct model *model)
{
    size_t services = 0, count;
    const char *const *names = descriptor_index_services(index, &count);
    for (unsigned i = 0; i < model->count; i++) {
        char other[512];
        const struct descriptor_file *file = descriptor_index_symbol(index, model->names[i].name);
        cr_assert(file && strcmp(file->name, file_names[model->names[i].file]) == 0, "%s",
                  model->names[i].name);
        /* Every name ends in a number of its own, so that one more letter makes it nobody's. */
        (void)snprintf(other, sizeof(other), "%sx", model->names[i].name);
        cr_expect_null(descriptor_index_symbol(index, other));
        services += model->names[i].service;
        bool listed = false;
        for (size_t k = 0; k < count; k++)
            listed |= strcmp(names[k], model->names[i].name) == 0;
        cr_expect_eq(listed, model->names[i].service);
    }
    cr_assert_eq(count, services);
}

Test(descriptors, random_sets_agree_with_a_list_of_their_names)
{
    struct model *model = malloc(sizeof(*model));
    uint64_t seed = 20241118;
    for (unsigned round = 0; round < 200; round++) {
        *model = (struct model){ .random = seed };
        unsigned files = 1 + roll(model, MODEL_FILES);
        struct bytes set = random_set(model, files);
        CLEANUP_DESCRIPTOR_INDEX struct descriptor_index *index = NULL;
        struct err err = { 0 };
        OK(descriptor_index_new(set.data, set.size, &index, &err));
        compare_files(index, model, files);
        compare_names(index, model);
        for (unsigned i = 0; i < model->count; i++)
            free(model->names[i].name);
        free(set.data);
        seed = model->random;
    }
    free(model);
}

static void expect_same_wire(const ProtobufCMessageDescriptor *a,
                             const ProtobufCMessageDescriptor *b)
{
    cr_assert_eq(a->n_fields, b->n_fields, "%s", a->name);
    cr_expect_eq(a->sizeof_message, b->sizeof_message);
    for (unsigned i = 0; i < a->n_fields; i++) {
        const ProtobufCFieldDescriptor *left = &a->fields[i], *right = &b->fields[i];
        cr_expect_str_eq(left->name, right->name);
        cr_expect(left->id == right->id && left->label == right->label &&
                      left->type == right->type && left->offset == right->offset,
                  "%s.%s", a->name, left->name);
        if (left->type == PROTOBUF_C_TYPE_MESSAGE)
            expect_same_wire(left->descriptor, right->descriptor);
    }
}

Test(reflection, both_versions_of_the_service_speak_one_wire_format)
{
    expect_same_wire(&grpc__reflection__v1__server_reflection_request__descriptor,
                     &grpc__reflection__v1alpha__server_reflection_request__descriptor);
    expect_same_wire(&grpc__reflection__v1__server_reflection_response__descriptor,
                     &grpc__reflection__v1alpha__server_reflection_response__descriptor);
}
