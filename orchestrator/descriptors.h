/* The schema that this program was built with, ready to be asked: which file is called that, which
 * file declares this symbol, what does a file import, which services are there. Built once from a
 * FileDescriptorSet and read-only from then on. Any thread. */
#pragma once

#include "common/err.h"

#include <stdint.h>

struct descriptor_file {
    char *name;          /* "sandstorm/v1/link.proto" */
    const uint8_t *data; /* a serialised FileDescriptorProto, inside the set */
    size_t size;
    /* Itself first, then everything that it imports, directly or not, each once. */
    const struct descriptor_file **closure;
    size_t closure_count;
};

struct descriptor_index;

/* `set` is a serialised FileDescriptorSet with everything that its files import. It must outlive
 * the index: the files' bytes are served from where they are. */
int descriptor_index_new(const void *set, size_t size, struct descriptor_index **ret,
                         struct err *err) must_use;
/* Over the set that the build has put into the program (orchestrator/descriptors.S). */
int descriptor_index_new_embedded(struct descriptor_index **ret, struct err *err) must_use;
void descriptor_index_free(struct descriptor_index *index);

/* NULL when there is none. */
const struct descriptor_file *descriptor_index_file(const struct descriptor_index *index,
                                                    const char *name);
/* The file that declares `symbol`, a full name without a leading dot. Values of an enum are beside
 * it, not inside it, as protobuf has it: "sandstorm.v1.STREAM_STDOUT". NULL when there is none. */
const struct descriptor_file *descriptor_index_symbol(const struct descriptor_index *index,
                                                      const char *symbol);
/* Full names, in the order of strcmp(3). */
const char *const *descriptor_index_services(const struct descriptor_index *index,
                                             size_t *ret_count);

static inline void descriptor_index_cleanup(struct descriptor_index **index)
{
    descriptor_index_free(*index);
}
#define CLEANUP_DESCRIPTOR_INDEX CLEANUP(descriptor_index_cleanup)
