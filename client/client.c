/* The client's root object and its calls with one request and one or many answers. Turns its own
 * loop while it waits, so that callers need none. next: client/exec.c for commands,
 * client/sandbox.c and its neighbours for the rest, common/rpc_channel.c for the
 * wire. */
#include "client/client-internal.h"

#include "common/clock.h"
#include "common/ids.h"
#include "common/rpc_diagnose.h"
#include "common/wire.h"

#include <stdio.h>
#include <string.h>

/* The public codes are the internal ones; a table would only repeat them. */
_Static_assert((int)SANDSTORM_INVALID == (int)ERR_INVALID, "codes must agree");
_Static_assert((int)SANDSTORM_UNAVAILABLE == (int)ERR_UNAVAILABLE, "codes must agree");
_Static_assert((int)SANDSTORM_SYSTEM == (int)ERR_SYSTEM, "codes must agree");
_Static_assert(SANDSTORM_TEXT_MAX == ERR_TEXT_MAX, "texts must fit");

int client_error(const struct err *err, struct sandstorm_error *ret)
{
    if (ret) {
        ret->code = (enum sandstorm_code)err->code;
        (void)memcpy(ret->text, err->text, sizeof(ret->text));
    }
    return -1;
}

struct loop *client_loop(struct sandstorm_client *client)
{
    return client->loop;
}

static int load_identity(const char *dir, struct rpc_creds *ret, int64_t *ret_not_after,
                         struct err *err)
{
    struct identity identity;
    CLEANUP(rpc_creds_clear) struct rpc_creds creds = { 0 };
    if (rpc_creds_load(dir, &creds, err) < 0)
        return -1;
    if (rpc_creds_check(&creds, err) < 0 ||
        rpc_creds_identity(&creds, &identity, ret_not_after, err) < 0)
        return err_wrap(err, "identity directory \"%s\"", dir);
    *ret = creds;
    creds = (struct rpc_creds){ 0 };
    return 0;
}

static int make(const struct sandstorm_client_options *options, struct sandstorm_client *client,
                struct err *err)
{
    struct endpoint endpoint;
    client->endpoint = strdup(options->endpoint);
    client->identity_dir = strdup(options->identity_dir);
    if (!client->endpoint || !client->identity_dir)
        return err_nomem(err);
    if (endpoint_parse(options->endpoint, &endpoint, err) < 0 ||
        load_identity(options->identity_dir, &client->creds, &client->not_after_s, err) < 0 ||
        loop_new(&client->loop, err) < 0 || rpc_pump_new(client->loop, &client->pump, err) < 0)
        return -1;
    return rpc_channel_new(client->pump, client->endpoint, &client->creds, &client->channel, err);
}

int sandstorm_client_new(const struct sandstorm_client_options *options,
                         struct sandstorm_client **ret, struct sandstorm_error *error)
{
    struct err err = { 0 };
    struct sandstorm_client *client = calloc(1, sizeof(*client));
    if (!client) {
        (void)err_nomem(&err);
        return client_error(&err, error);
    }
    if (make(options, client, &err) < 0) {
        sandstorm_client_free(client);
        return client_error(&err, error);
    }
    /* From here on it is ours to release. */
    client->renew = options->renew;
    client->release = options->release;
    client->userdata = options->userdata;
    *ret = client;
    return 0;
}

void sandstorm_client_free(struct sandstorm_client *client)
{
    if (!client)
        return;
    rpc_channel_free(client->channel);
    rpc_pump_free(client->pump);
    loop_free(client->loop);
    rpc_creds_clear(&client->creds);
    free(client->endpoint);
    free(client->identity_dir);
    if (client->release)
        client->release(client->userdata);
    free(client);
}

/* Calls that are under way keep the channel that they are on. */
static int replace_channel(struct sandstorm_client *client, struct err *err)
{
    struct rpc_channel *channel;
    if (rpc_channel_new(client->pump, client->endpoint, &client->creds, &channel, err) < 0)
        return -1;
    rpc_channel_free(client->channel);
    client->channel = channel;
    client->generation++;
    return 0;
}

bool client_reconnect(struct sandstorm_client *client, unsigned generation)
{
    CLEANUP(rpc_creds_clear) struct rpc_creds fresh = { 0 };
    struct err err;
    int64_t not_after_s;
    if (generation != client->generation)
        return true; /* somebody else did it */
    if (client->renew && client->not_after_s * 1000 <= wall_ms())
        client->renew(client->userdata);
    /* Files that cannot be read now may be in the middle of a renewal: the old ones are tried. */
    bool changed = load_identity(client->identity_dir, &fresh, &not_after_s, &err) == 0 &&
                   strcmp(fresh.cert, client->creds.cert) != 0;
    if (changed) {
        struct rpc_creds old = client->creds;
        client->creds = fresh;
        client->not_after_s = not_after_s;
        fresh = old;
    }
    return replace_channel(client, &err) == 0 && changed;
}

void client_retry_init(const struct sandstorm_client *client, uint64_t give_up_us,
                       struct retry *ret)
{
    retry_init(ret, give_up_us);
    if (client->pace_us)
        ret->backoff.base_us = ret->backoff.cap_us = client->pace_us;
}

bool client_sleep(struct sandstorm_client *client, uint64_t for_us)
{
    uint64_t end = monotonic_us() + for_us;
    struct err err;
    for (uint64_t now = monotonic_us(); !client->left && now < end; now = monotonic_us())
        if (loop_turn(client->loop, end - now, &err) < 0)
            return false;
    return !client->left;
}

void client_explain(struct sandstorm_client *client, struct err *err)
{
    struct err reason;
    if ((err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT) &&
        rpc_diagnose(client->endpoint, &client->creds, CLIENT_DIAGNOSE_MS, &reason) < 0)
        *err = reason;
}

/* Calls with one request. */

struct answers {
    struct rpc_call *call;
    const struct client_method *method;
    client_message_fn each;
    void *owner;
    struct err err;
    struct retry_end end;
    bool done, enough;
};

static void answers_message(void *owner, const uint8_t *data, size_t size)
{
    struct answers *answers = owner;
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    if (answers->enough || answers->err.code != ERR_NONE)
        return;
    int r = wire_unpack(answers->method->answer, data, size, &message, &answers->err);
    if (r == 0)
        r = answers->each(answers->owner, &message, &answers->err);
    answers->enough = r > 0;
    if (r != 0)
        rpc_call_cancel(answers->call);
}

static void answers_closed(void *owner, const struct err *status)
{
    struct answers *answers = owner;
    answers->done = true;
    answers->end = (struct retry_end){ status->code, rpc_call_answered(answers->call),
                                       rpc_call_sent(answers->call) };
    /* A cancellation of our own is not news. */
    if (!answers->enough && answers->err.code == ERR_NONE)
        answers->err = *status;
}

static const struct rpc_call_handler answers_handler = {
    .message = answers_message,
    .closed = answers_closed,
};

static int stream(struct sandstorm_client *client, const struct client_method *method,
                  const ProtobufCMessage *request, client_message_fn each, void *owner,
                  struct retry_end *ret_end, struct err *err)
{
    struct answers answers = { .method = method, .each = each, .owner = owner };
    if (rpc_channel_call(client->channel, method->path, method->deadline_us, &answers_handler,
                         &answers, &answers.call, err) < 0)
        return -1;
    if (rpc_call_send(answers.call, request, &answers.err) < 0)
        rpc_call_cancel(answers.call);
    rpc_call_finish(answers.call, NULL);
    struct err turning = { 0 };
    client->waiting = &answers;
    if (client->left)
        client_leave(client);
    while (!answers.done && loop_turn(client->loop, UINT64_MAX, &turning) == 0)
        ;
    client->waiting = NULL;
    rpc_call_release(answers.call);
    if (answers.err.code == ERR_NONE)
        answers.err = turning;
    *ret_end = answers.end;
    if (answers.err.code == ERR_NONE)
        return 0;
    /* What we make of an answer is no matter of the connection. */
    ret_end->code = answers.err.code;
    *err = answers.err;
    return -1;
}

int client_stream(struct sandstorm_client *client, const struct client_method *method,
                  const ProtobufCMessage *request, client_message_fn each, void *owner,
                  struct err *err)
{
    struct retry_end end = { 0 };
    return stream(client, method, request, each, owner, &end, err);
}

void client_leave(struct sandstorm_client *client)
{
    client->left = true;
    if (!client->waiting)
        return;
    client->waiting->enough = true;
    rpc_call_cancel(client->waiting->call);
}

bool client_left(const struct sandstorm_client *client)
{
    return client->left;
}

static int keep_first(void *owner, ProtobufCMessage **message, struct err *err)
{
    ProtobufCMessage **answer = owner;
    if (*answer)
        return err_set(err, ERR_PROTOCOL, "the orchestrator sent more than one answer");
    *answer = TAKE_PTR(*message);
    return 0;
}

static int call(struct sandstorm_client *client, const struct client_method *method,
                const ProtobufCMessage *request, ProtobufCMessage **ret, struct retry_end *ret_end,
                struct err *err)
{
    CLEANUP_WIRE ProtobufCMessage *answer = NULL;
    if (stream(client, method, request, keep_first, &answer, ret_end, err) < 0)
        return -1;
    if (!answer)
        return err_set(err, ERR_PROTOCOL, "the orchestrator sent no answer");
    *ret = TAKE_PTR(answer);
    return 0;
}

int client_call(struct sandstorm_client *client, const struct client_method *method,
                const ProtobufCMessage *request, ProtobufCMessage **ret, struct err *err)
{
    struct retry_end end = { 0 };
    return call(client, method, request, ret, &end, err);
}

int client_insist(struct sandstorm_client *client, const struct client_method *method,
                  const ProtobufCMessage *request, bool known, ProtobufCMessage **ret,
                  struct err *err)
{
    struct retry retry;
    client_retry_init(client, 0, &retry);
    for (;; known = true) {
        struct retry_end end = { 0 };
        uint64_t delay_us;
        unsigned generation = client->generation;
        if (call(client, method, request, ret, &end, err) == 0)
            return 0;
        /* A deadline that the orchestrator says has passed is its answer. */
        bool late = end.answered && end.code == ERR_TIMEOUT;
        if (client->left || late || !retry_worth(&end, known) ||
            !retry_next(&retry, monotonic_us(), random_u64(), &delay_us))
            break;
        if (!client_sleep(client, delay_us))
            break;
        (void)client_reconnect(client, generation);
    }
    client_explain(client, err);
    return -1;
}

int client_unary(struct sandstorm_client *client, const char *path, const ProtobufCMessage *request,
                 const ProtobufCMessageDescriptor *type, ProtobufCMessage **ret, struct err *err)
{
    const struct client_method method = { path, type, CLIENT_DEADLINE_US };
    if (client_call(client, &method, request, ret, err) == 0)
        return 0;
    client_explain(client, err);
    return -1;
}

int client_next_page(const char *next, char token[CLIENT_PAGE_TOKEN_MAX], struct err *err)
{
    if (strlen(next) >= CLIENT_PAGE_TOKEN_MAX)
        return err_set(err, ERR_PROTOCOL, "the orchestrator sent a page token that is too long");
    if (*next && strcmp(next, token) == 0)
        return err_set(err, ERR_PROTOCOL, "the orchestrator sent the same page twice");
    (void)snprintf(token, CLIENT_PAGE_TOKEN_MAX, "%s", next);
    return 0;
}
