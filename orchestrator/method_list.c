/* Build tool: reads a FileDescriptorSet and writes a header with every method of every service in
 * it, for orchestrator/methods.c to be complete by the compiler's word:
 *
 *     #define METHOD_LIST(X) X(sandstorm_v1_LinkService_Connect,
 * "/sandstorm.v1.LinkService/Connect")
 */
#include "google/protobuf/descriptor.pb-c.h"

#include <stdio.h>
#include <stdlib.h>

#define SET_MAX (1024u * 1024)

static void print_method(FILE *out, const char *package, const char *service, const char *method)
{
    (void)fputs(" \\\n    X(", out);
    for (const char *c = package; *c; c++)
        (void)fputc(*c == '.' ? '_' : *c, out);
    (void)fprintf(out, "_%s_%s, \"/%s.%s/%s\")", service, method, package, service, method);
}

int main(int argc, char **argv)
{
    static unsigned char bytes[SET_MAX];
    FILE *in = argc == 3 ? fopen(argv[1], "rb") : NULL;
    size_t size = in ? fread(bytes, 1, sizeof(bytes), in) : 0;
    Google__Protobuf__FileDescriptorSet *set =
        google__protobuf__file_descriptor_set__unpack(NULL, size, bytes);
    FILE *out = set && size > 0 && size < sizeof(bytes) ? fopen(argv[2], "w") : NULL;
    if (!out) {
        (void)fputs("usage: method-list DESCRIPTOR-SET HEADER\n", stderr);
        return 1;
    }
    (void)fputs("/* Generated from the schema; see orchestrator/method_list.c. */\n"
                "#pragma once\n\n#define METHOD_LIST(X)",
                out);
    for (size_t i = 0; i < set->n_file; i++)
        for (size_t j = 0; j < set->file[i]->n_service; j++)
            for (size_t k = 0; k < set->file[i]->service[j]->n_method; k++)
                print_method(out, set->file[i]->package, set->file[i]->service[j]->name,
                             set->file[i]->service[j]->method[k]->name);
    (void)fputc('\n', out);
    google__protobuf__file_descriptor_set__free_unpacked(set, NULL);
    (void)fclose(in);
    return fclose(out) == 0 ? 0 : 1;
}
