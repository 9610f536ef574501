/* The inside of the client library, for client/ and, where it needs the loop, cli/. */
#pragma once

#include "client/retry.h"
#include "client/sandstorm.h"
#include "common/loop.h"
#include "common/rpc_channel.h"
#include "sandstorm/v1/control.pb-c.h"

#define CLIENT_DEADLINE_US    20000000u /* of a unary call */
#define CLIENT_DIAGNOSE_MS    5000
#define CLIENT_RENEW_US       5000000u
#define CLIENT_PAGE_TOKEN_MAX 256u /* bytes, with the NUL */

struct sandstorm_client {
    struct loop *loop;
    struct rpc_pump *pump;
    struct rpc_channel *channel;
    unsigned generation; /* of the channel */
    struct rpc_creds creds;
    int64_t not_after_s; /* of the certificate */
    char *endpoint, *identity_dir;
    void (*renew)(void *userdata);
    void (*release)(void *userdata);
    void *userdata;
    uint64_t pace_us;        /* between attempts; 0: as client/retry.h says. For tests. */
    struct answers *waiting; /* for the call that client_stream() is in, or NULL */
    bool left;
};

struct loop *client_loop(struct sandstorm_client *client);
int client_error(const struct err *err, struct sandstorm_error *ret);
/* What a failed call means for a person: a connection that cannot be made is walked step by step.
 */
void client_explain(struct sandstorm_client *client, struct err *err);

/* A new channel, with the identity as it is on disk now, in place of the one of that generation.
 * True when calls may fare better for another reason than time: another certificate. */
bool client_reconnect(struct sandstorm_client *client, unsigned generation);
/* With the client's pace. 0: RETRY_GIVE_UP_US. */
void client_retry_init(const struct sandstorm_client *client, uint64_t give_up_us,
                       struct retry *ret);
/* Turns the loop for so long; false when the client was told to leave. */
bool client_sleep(struct sandstorm_client *client, uint64_t for_us);

struct client_method {
    const char *path;
    const ProtobufCMessageDescriptor *answer;
    uint64_t deadline_us; /* or RPC_NO_DEADLINE */
};
/* 0 to go on, 1 when this was enough, -1 and err. May take the message. */
typedef int (*client_message_fn)(void *owner, ProtobufCMessage **message, struct err *err);
/* One request, and `each` for every answer until the end. */
int client_stream(struct sandstorm_client *client, const struct client_method *method,
                  const ProtobufCMessage *request, client_message_fn each, void *owner,
                  struct err *err) must_use;
/* The same for exactly one answer. */
int client_call(struct sandstorm_client *client, const struct client_method *method,
                const ProtobufCMessage *request, ProtobufCMessage **ret, struct err *err) must_use;
/* And with the usual deadline, and an explanation when it fails. */
int client_unary(struct sandstorm_client *client, const char *path, const ProtobufCMessage *request,
                 const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret,
                 struct err *err) must_use;

/* client_call() for a request that may be repeated: goes on through restarts of the orchestrator.
 * Where it cannot even be sent, that is an error at once, unless the orchestrator has answered to
 * something like it before (`known`). A deadline that has passed is an answer, ERR_TIMEOUT. */
int client_insist(struct sandstorm_client *client, const struct client_method *method,
                  const ProtobufCMessage *request, bool known, ProtobufCMessage **ret,
                  struct err *err) must_use;

/* From a source on the loop: ends the client_stream() that is under way, as if it had had enough;
 * calls after it end at once too. */
void client_leave(struct sandstorm_client *client);
bool client_left(const struct sandstorm_client *client);
/* A list goes on where the page before says; one that would not be whole is not passed on. */
int client_next_page(const char *next, char token[CLIENT_PAGE_TOKEN_MAX], struct err *err) must_use;

/* sandbox.c: calls the function, which may be NULL, with the message in the library's own words. */
int client_deliver(const Sandstorm__V1__Sandbox *message, sandstorm_sandbox_fn each, void *userdata,
                   struct err *err) must_use;

/* labels.c: between a set as text and the messages of the wire. */
struct client_labels {
    Sandstorm__V1__Label *items;
    Sandstorm__V1__Label **pointers;
    size_t count;
};
int client_labels_pack(const char *labels, struct client_labels *ret, struct err *err) must_use;
void client_labels_done(struct client_labels *labels);
#define CLEANUP_LABELS CLEANUP(client_labels_done)
/* Never NULL on success. */
int client_labels_text(Sandstorm__V1__Label *const *labels, size_t count, char **ret,
                       struct err *err) must_use;

/* The same for what nobody has checked: as it is. */
int client_labels_join(Sandstorm__V1__Label *const *labels, size_t count, char **ret,
                       struct err *err) must_use;

/* renew.c: a new certificate for the one that the client was made with; PEM texts, to be freed.
 * Does not wait long: the old one is still good. */
int client_renew(struct sandstorm_client *client, const char *csr_pem, char **ret_certificate,
                 char **ret_ca, struct err *err) must_use;

/* spec.c: the message that says all of it, for wire_free(). */
int client_spec(const struct sandstorm_spec *spec, bool input, ProtobufCMessage **ret,
                struct err *err) must_use;
/* outcome.c; leaves gap_bytes alone. */
void client_outcome(const Sandstorm__V1__Outcome *message, struct sandstorm_outcome *ret);
/* "memory, pids" */
void client_list_text(char *const *items, size_t count, char *out, size_t size);
/* commands.c: calls the function, which may be NULL, with the message in the library's own words.
 */
int client_deliver_command(const Sandstorm__V1__Command *message, sandstorm_command_fn one,
                           void *userdata, struct err *err) must_use;
