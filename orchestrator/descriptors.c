/* The index over a FileDescriptorSet. Gets the bytes from orchestrator/descriptors.S, finds the
 * boundaries of each file in them so that they can be served as protoc wrote them, and notes every
 * name that a file declares. Asked by orchestrator/reflection.c. */
#include "orchestrator/descriptors.h"

#include "common/wire.h"

#include "google/protobuf/descriptor.pb-c.h"

#include <stdio.h>
#include <string.h>

#define SET_FILE_FIELD 1u /* FileDescriptorSet.file */

/* orchestrator/descriptors.S */
extern const uint8_t descriptors_start[], descriptors_end[];

struct symbol {
    char *name;
    const struct descriptor_file *file;
    bool service;
};

struct descriptor_index {
    struct descriptor_file *files;
    size_t file_count;
    struct symbol *symbols; /* sorted by name when the index is built */
    size_t symbol_count, symbol_room;
    const char **services; /* names of symbols */
    size_t service_count;
};

/* The unpacked files, while the index is built. */
struct protos {
    Google__Protobuf__FileDescriptorProto **items;
    size_t count;
};

static void protos_clear(struct protos *protos)
{
    for (size_t i = 0; i < protos->count; i++)
        wire_free((ProtobufCMessage *)protos->items[i]);
    free(protos->items);
}

/* Names. */

static int reserve_symbol(struct descriptor_index *index, struct err *err)
{
    if (index->symbol_count < index->symbol_room)
        return 0;
    size_t room = index->symbol_room ? 2 * index->symbol_room : 64;
    struct symbol *symbols = reallocarray(index->symbols, room, sizeof(*symbols));
    if (!symbols)
        return err_nomem(err);
    index->symbols = symbols;
    index->symbol_room = room;
    return 0;
}

/* The new symbol is good until the next one is added; its name stays where it is. */
static struct symbol *add_symbol(struct descriptor_index *index, const struct descriptor_file *file,
                                 const char *scope, const char *name, struct err *err)
{
    if (!name || !*name) {
        (void)err_set(err, ERR_INVALID, "%.200s declares something without a name", file->name);
        return NULL;
    }
    if (reserve_symbol(index, err) < 0)
        return NULL;
    struct symbol symbol = { .file = file };
    if (asprintf(&symbol.name, "%s%s%s", scope, *scope ? "." : "", name) < 0) {
        (void)err_nomem(err);
        return NULL;
    }
    index->symbols[index->symbol_count] = symbol;
    return &index->symbols[index->symbol_count++];
}

static int add_fields(struct descriptor_index *index, const struct descriptor_file *file,
                      const char *scope, Google__Protobuf__FieldDescriptorProto *const *fields,
                      size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++)
        if (!add_symbol(index, file, scope, fields[i]->name, err))
            return -1;
    return 0;
}

static int add_enums(struct descriptor_index *index, const struct descriptor_file *file,
                     const char *scope, Google__Protobuf__EnumDescriptorProto *const *enums,
                     size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        if (!add_symbol(index, file, scope, enums[i]->name, err))
            return -1;
        /* In `scope`, not below the enum: protobuf has C's rules here. */
        for (size_t k = 0; k < enums[i]->n_value; k++)
            if (!add_symbol(index, file, scope, enums[i]->value[k]->name, err))
                return -1;
    }
    return 0;
}

static int add_services(struct descriptor_index *index, const struct descriptor_file *file,
                        const char *scope,
                        Google__Protobuf__ServiceDescriptorProto *const *services, size_t count,
                        struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        struct symbol *service = add_symbol(index, file, scope, services[i]->name, err);
        if (!service)
            return -1;
        service->service = true;
        index->service_count++;
        const char *inner = service->name;
        for (size_t k = 0; k < services[i]->n_method; k++)
            if (!add_symbol(index, file, inner, services[i]->method[k]->name, err))
                return -1;
    }
    return 0;
}

/* Recurses as deep as messages are nested, which wire_unpack() has bounded. */
static int add_messages(struct descriptor_index *index, const struct descriptor_file *file,
                        const char *scope, Google__Protobuf__DescriptorProto *const *messages,
                        size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        const Google__Protobuf__DescriptorProto *message = messages[i];
        const struct symbol *symbol = add_symbol(index, file, scope, message->name, err);
        if (!symbol)
            return -1;
        const char *inner = symbol->name;
        for (size_t k = 0; k < message->n_oneof_decl; k++)
            if (!add_symbol(index, file, inner, message->oneof_decl[k]->name, err))
                return -1;
        if (add_fields(index, file, inner, message->field, message->n_field, err) < 0 ||
            add_fields(index, file, inner, message->extension, message->n_extension, err) < 0 ||
            add_enums(index, file, inner, message->enum_type, message->n_enum_type, err) < 0 ||
            add_messages(index, file, inner, message->nested_type, message->n_nested_type, err) < 0)
            return -1;
    }
    return 0;
}

static int add_names(struct descriptor_index *index, const struct descriptor_file *file,
                     const Google__Protobuf__FileDescriptorProto *proto, struct err *err)
{
    const char *scope = proto->package ? proto->package : "";
    if (add_messages(index, file, scope, proto->message_type, proto->n_message_type, err) < 0 ||
        add_enums(index, file, scope, proto->enum_type, proto->n_enum_type, err) < 0 ||
        add_fields(index, file, scope, proto->extension, proto->n_extension, err) < 0)
        return -1;
    return add_services(index, file, scope, proto->service, proto->n_service, err);
}

static int compare_symbols(const void *a, const void *b)
{
    const struct symbol *left = a, *right = b;
    return strcmp(left->name, right->name);
}

static int sort_names(struct descriptor_index *index, struct err *err)
{
    if (index->symbol_count == 0)
        return 0;
    qsort(index->symbols, index->symbol_count, sizeof(*index->symbols), compare_symbols);
    for (size_t i = 1; i < index->symbol_count; i++)
        if (compare_symbols(&index->symbols[i - 1], &index->symbols[i]) == 0)
            return err_set(err, ERR_INVALID, "\"%.200s\" is declared twice",
                           index->symbols[i].name);
    index->services = calloc(index->service_count + 1, sizeof(*index->services));
    if (!index->services)
        return err_nomem(err);
    size_t found = 0;
    for (size_t i = 0; i < index->symbol_count; i++)
        if (index->symbols[i].service)
            index->services[found++] = index->symbols[i].name;
    return 0;
}

/* Files. */

static int add_file(struct descriptor_index *index, struct protos *protos,
                    const struct wire_field *field, struct err *err)
{
    ProtobufCMessage *message = NULL;
    if (wire_unpack(&google__protobuf__file_descriptor_proto__descriptor, field->data, field->size,
                    &message, err) < 0)
        return -1;
    const Google__Protobuf__FileDescriptorProto *proto = protos->items[protos->count++] =
        (Google__Protobuf__FileDescriptorProto *)message;
    if (!proto->name || !*proto->name)
        return err_set(err, ERR_INVALID, "a file has no name");
    if (descriptor_index_file(index, proto->name))
        return err_set(err, ERR_INVALID, "the file %.200s is there twice", proto->name);
    struct descriptor_file *file = &index->files[index->file_count];
    *file = (struct descriptor_file){ .data = field->data, .size = field->size };
    file->name = strdup(proto->name);
    if (!file->name)
        return err_nomem(err);
    index->file_count++;
    return add_names(index, file, proto, err);
}

static int count_files(const uint8_t *set, size_t size, size_t *ret, struct err *err)
{
    const uint8_t *position = set;
    struct wire_field field;
    size_t count = 0;
    int r;
    while ((r = wire_next(&position, set + size, &field, err)) > 0)
        count += field.number == SET_FILE_FIELD && field.type == WIRE_BYTES;
    if (r == 0)
        *ret = count;
    return r;
}

static int add_files(struct descriptor_index *index, struct protos *protos, const uint8_t *set,
                     size_t size, struct err *err)
{
    size_t count;
    if (count_files(set, size, &count, err) < 0)
        return -1;
    if (count == 0)
        return err_set(err, ERR_INVALID, "there is no file in it");
    index->files = calloc(count, sizeof(*index->files));
    protos->items = calloc(count, sizeof(*protos->items));
    if (!index->files || !protos->items)
        return err_nomem(err);
    const uint8_t *position = set;
    struct wire_field field;
    int r;
    while ((r = wire_next(&position, set + size, &field, err)) > 0)
        if (field.number == SET_FILE_FIELD && field.type == WIRE_BYTES &&
            add_file(index, protos, &field, err) < 0)
            return -1;
    return r;
}

/* Imports. */

static void append_once(struct descriptor_file *file, const struct descriptor_file *import)
{
    for (size_t i = 0; i < file->closure_count; i++)
        if (file->closure[i] == import)
            return;
    file->closure[file->closure_count++] = import;
}

static int close_over(const struct descriptor_index *index, const struct protos *protos,
                      struct descriptor_file *file, struct err *err)
{
    file->closure = calloc(index->file_count, sizeof(*file->closure));
    if (!file->closure)
        return err_nomem(err);
    append_once(file, file);
    /* The list grows under this loop until everything in it has its imports in it. */
    for (size_t i = 0; i < file->closure_count; i++) {
        const Google__Protobuf__FileDescriptorProto *proto =
            protos->items[file->closure[i] - index->files];
        for (size_t k = 0; k < proto->n_dependency; k++) {
            const struct descriptor_file *import =
                descriptor_index_file(index, proto->dependency[k]);
            if (!import)
                return err_set(err, ERR_INVALID,
                               "%.150s imports %.150s, which is missing; give protoc "
                               "--include_imports",
                               proto->name, proto->dependency[k]);
            append_once(file, import);
        }
    }
    return 0;
}

/* Life. */

static int build(struct descriptor_index *index, struct protos *protos, const uint8_t *set,
                 size_t size, struct err *err)
{
    if (add_files(index, protos, set, size, err) < 0 || sort_names(index, err) < 0)
        return -1;
    for (size_t i = 0; i < index->file_count; i++)
        if (close_over(index, protos, &index->files[i], err) < 0)
            return -1;
    return 0;
}

int descriptor_index_new(const void *set, size_t size, struct descriptor_index **ret,
                         struct err *err)
{
    CLEANUP_DESCRIPTOR_INDEX struct descriptor_index *index = calloc(1, sizeof(*index));
    if (!index)
        return err_nomem(err);
    CLEANUP(protos_clear) struct protos protos = { 0 };
    if (build(index, &protos, set, size, err) < 0)
        return err_wrap(err, "the set of schema descriptors cannot be used");
    *ret = TAKE_PTR(index);
    return 0;
}

int descriptor_index_new_embedded(struct descriptor_index **ret, struct err *err)
{
    size_t size = (size_t)((uintptr_t)descriptors_end - (uintptr_t)descriptors_start);
    return descriptor_index_new(descriptors_start, size, ret, err);
}

void descriptor_index_free(struct descriptor_index *index)
{
    if (!index)
        return;
    for (size_t i = 0; i < index->file_count; i++) {
        free(index->files[i].name);
        free(index->files[i].closure);
    }
    for (size_t i = 0; i < index->symbol_count; i++)
        free(index->symbols[i].name);
    free(index->files);
    free(index->symbols);
    free(index->services);
    free(index);
}

/* Questions. */

const struct descriptor_file *descriptor_index_file(const struct descriptor_index *index,
                                                    const char *name)
{
    for (size_t i = 0; i < index->file_count; i++)
        if (strcmp(index->files[i].name, name) == 0)
            return &index->files[i];
    return NULL;
}

const struct descriptor_file *descriptor_index_symbol(const struct descriptor_index *index,
                                                      const char *symbol)
{
    if (index->symbol_count == 0)
        return NULL;
    const struct symbol key = { .name = (char *)symbol };
    const struct symbol *found = bsearch(&key, index->symbols, index->symbol_count,
                                         sizeof(*index->symbols), compare_symbols);
    return found ? found->file : NULL;
}

const char *const *descriptor_index_services(const struct descriptor_index *index,
                                             size_t *ret_count)
{
    *ret_count = index->service_count;
    return index->services;
}
