/* The reflection service: one answer for each question on a stream, in order. Calls come from
 * common/rpc_server.c; the answers are looked up in orchestrator/descriptors.c. A peer that asks
 * and does not read is not read from either, so that its answers cannot pile up. */
#include "orchestrator/reflection.h"

#include "common/wire.h"
#include "orchestrator/descriptors.h"

#include "grpc/reflection/v1/reflection.pb-c.h"

/* v1alpha differs from v1 in its package name alone: same fields, same numbers, same types (a unit
 * test compares the two), so that one set of C types speaks both. */
#define REQUEST(which) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##which
#define ANSWER(which)  GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##which

struct reflection {
    struct descriptor_index *index;
    /* The answer to list_services, which is always the same. */
    Grpc__Reflection__V1__ListServiceResponse list;
    Grpc__Reflection__V1__ServiceResponse *services;
    Grpc__Reflection__V1__ServiceResponse **service_pointers;
};

struct stream {
    const struct reflection *reflection;
    struct rpc_call *call;
    bool ending; /* the status is on its way; read no more */
};

/* Answers. */

/* A response and the parts that it points to. */
struct answer {
    Grpc__Reflection__V1__ServerReflectionResponse response;
    Grpc__Reflection__V1__ErrorResponse error;
    Grpc__Reflection__V1__FileDescriptorResponse files;
};

static void answer_clear(struct answer *answer)
{
    free(answer->files.file_descriptor_proto);
}

static void answer_error(struct answer *answer, enum err_code code, const char *text)
{
    grpc__reflection__v1__error_response__init(&answer->error);
    answer->error.error_code = err_grpc_status(code);
    /* What was asked for goes back in original_request, so the text need not repeat it. */
    answer->error.error_message = (char *)text;
    answer->response.message_response_case = ANSWER(ERROR_RESPONSE);
    answer->response.error_response = &answer->error;
}

static int answer_file(struct answer *answer, const struct descriptor_file *file, struct err *err)
{
    if (!file) {
        answer_error(answer, ERR_NOT_FOUND,
                     "no such file or symbol here; ask list_services what there is");
        return 0;
    }
    ProtobufCBinaryData *items = calloc(file->closure_count, sizeof(*items));
    if (!items)
        return err_nomem(err);
    for (size_t i = 0; i < file->closure_count; i++) {
        items[i].data = (uint8_t *)file->closure[i]->data;
        items[i].len = file->closure[i]->size;
    }
    grpc__reflection__v1__file_descriptor_response__init(&answer->files);
    answer->files.n_file_descriptor_proto = file->closure_count;
    answer->files.file_descriptor_proto = items;
    answer->response.message_response_case = ANSWER(FILE_DESCRIPTOR_RESPONSE);
    answer->response.file_descriptor_response = &answer->files;
    return 0;
}

static void answer_services(struct answer *answer, const struct reflection *reflection)
{
    answer->response.message_response_case = ANSWER(LIST_SERVICES_RESPONSE);
    answer->response.list_services_response =
        (Grpc__Reflection__V1__ListServiceResponse *)&reflection->list;
}

/* The answer borrows from both the request and the reflection. */
static int answer_fill(struct answer *answer, const struct reflection *reflection,
                       Grpc__Reflection__V1__ServerReflectionRequest *request, struct err *err)
{
    grpc__reflection__v1__server_reflection_response__init(&answer->response);
    answer->response.valid_host = request->host;
    answer->response.original_request = request;
    const struct descriptor_index *index = reflection->index;
    switch (request->message_request_case) {
    case REQUEST(LIST_SERVICES):
        answer_services(answer, reflection);
        return 0;
    case REQUEST(FILE_BY_FILENAME):
        return answer_file(answer, descriptor_index_file(index, request->file_by_filename), err);
    case REQUEST(FILE_CONTAINING_SYMBOL):
        return answer_file(answer, descriptor_index_symbol(index, request->file_containing_symbol),
                           err);
    default:
        answer_error(answer, ERR_UNIMPLEMENTED,
                     "this server answers list_services, file_by_filename and "
                     "file_containing_symbol; it has no extensions");
        return 0;
    }
}

/* The stream. */

static void end_stream(struct stream *stream, const struct err *status)
{
    stream->ending = true;
    rpc_call_pause(stream->call);
    rpc_call_finish(stream->call, status);
}

static void stream_message(void *owner, const uint8_t *data, size_t size)
{
    struct stream *stream = owner;
    CLEANUP_WIRE ProtobufCMessage *request = NULL;
    CLEANUP(answer_clear) struct answer answer = { 0 };
    struct err err = { 0 };
    if (wire_unpack(&grpc__reflection__v1__server_reflection_request__descriptor, data, size,
                    &request, &err) < 0 ||
        answer_fill(&answer, stream->reflection,
                    (Grpc__Reflection__V1__ServerReflectionRequest *)request, &err) < 0 ||
        rpc_call_send(stream->call, &answer.response.base, &err) < 0) {
        end_stream(stream, &err);
        return;
    }
    if (!rpc_call_writable(stream->call))
        rpc_call_pause(stream->call);
}

static void stream_half_closed(void *owner)
{
    struct stream *stream = owner;
    end_stream(stream, NULL);
}

static void stream_writable(void *owner)
{
    struct stream *stream = owner;
    if (!stream->ending)
        rpc_call_resume(stream->call);
}

static void stream_closed(void *owner, const struct err *status)
{
    struct stream *stream = owner;
    (void)status;
    rpc_call_release(stream->call);
    free(stream);
}

static const struct rpc_call_handler stream_handler = {
    .message = stream_message,
    .half_closed = stream_half_closed,
    .writable = stream_writable,
    .closed = stream_closed,
};

int reflection_open(void *userdata, struct rpc_call *call, struct err *err)
{
    struct stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return err_nomem(err);
    stream->reflection = reflection_of(userdata);
    stream->call = call;
    rpc_call_bind(call, &stream_handler, stream);
    return 0;
}

int reflection_open_v1alpha(void *userdata, struct rpc_call *call, struct err *err)
{
    return reflection_open(userdata, call, err);
}

/* Life. */

static int list_services(struct reflection *reflection, struct err *err)
{
    size_t count;
    const char *const *names = descriptor_index_services(reflection->index, &count);
    reflection->services = calloc(count + 1, sizeof(*reflection->services));
    reflection->service_pointers = calloc(count + 1, sizeof(*reflection->service_pointers));
    if (!reflection->services || !reflection->service_pointers)
        return err_nomem(err);
    for (size_t i = 0; i < count; i++) {
        grpc__reflection__v1__service_response__init(&reflection->services[i]);
        reflection->services[i].name = (char *)names[i];
        reflection->service_pointers[i] = &reflection->services[i];
    }
    grpc__reflection__v1__list_service_response__init(&reflection->list);
    reflection->list.n_service = count;
    reflection->list.service = reflection->service_pointers;
    return 0;
}

int reflection_new(struct reflection **ret, struct err *err)
{
    struct reflection *reflection = calloc(1, sizeof(*reflection));
    if (!reflection)
        return err_nomem(err);
    if (descriptor_index_new_embedded(&reflection->index, err) < 0 ||
        list_services(reflection, err) < 0) {
        reflection_free(reflection);
        return -1;
    }
    *ret = reflection;
    return 0;
}

void reflection_free(struct reflection *reflection)
{
    if (!reflection)
        return;
    descriptor_index_free(reflection->index);
    free(reflection->services);
    free(reflection->service_pointers);
    free(reflection);
}
