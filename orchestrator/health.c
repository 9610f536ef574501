/* The health service. Told by the orchestrator whether it serves; answers Check at once and keeps
 * the list of Watch streams, each of which hears of every change. Calls come from
 * common/rpc_server.c, answers go out through common/rpc_call.c. */
#include "orchestrator/health.h"

#include "common/wire.h"

#include "grpc/health/v1/health.pb-c.h"

#include <assert.h>
#include <string.h>
#include <utlist.h>

/* One Watch stream. */
struct watch {
    struct health *health;
    struct rpc_call *call;
    bool known; /* it has asked, and for a service that we have */
    struct watch *prev, *next;
};

struct health {
    bool serving;
    struct watch *watches;
    unsigned watch_count;
};

/* "" is the server as a whole. */
static const char *const services[] = {
    "",
    "sandstorm.v1.LinkService",
    "sandstorm.v1.SandboxService",
    "sandstorm.v1.CommandService",
};

static bool is_known(const char *service)
{
    for (size_t i = 0; i < ELEMENTS(services); i++)
        if (strcmp(services[i], service) == 0)
            return true;
    return false;
}

static Grpc__Health__V1__HealthCheckResponse__ServingStatus status_of(const struct health *health,
                                                                      bool known)
{
    if (!known)
        return GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN;
    return health->serving ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                           : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
}

static int send_status(const struct health *health, struct rpc_call *call, bool known,
                       struct err *err)
{
    Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    response.status = status_of(health, known);
    return rpc_call_send(call, (const ProtobufCMessage *)&response, err);
}

/* Check. */

int health_check(void *userdata, struct rpc_call *call, const ProtobufCMessage *request,
                 struct err *err)
{
    const Grpc__Health__V1__HealthCheckRequest *check =
        (const Grpc__Health__V1__HealthCheckRequest *)request;
    if (!is_known(check->service))
        return err_set(err, ERR_NOT_FOUND,
                       "no such service here; ask for \"\" or for a name that reflection lists "
                       "below sandstorm.v1");
    return send_status(health_of(userdata), call, true, err);
}

/* Watch. */

static void tell(struct watch *watch, bool known)
{
    struct err err = { 0 };
    /* A peer that reads nothing can fill its queue with our changes; then its stream ends. */
    if (send_status(watch->health, watch->call, known, &err) < 0)
        rpc_call_finish(watch->call, &err);
}

static void watch_message(void *owner, const uint8_t *data, size_t size)
{
    struct watch *watch = owner;
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    struct err err = { 0 };
    /* One message is all there is. That the peer is gone is told without reading on. */
    rpc_call_pause(watch->call);
    if (wire_unpack(&grpc__health__v1__health_check_request__descriptor, data, size, &message,
                    &err) < 0) {
        rpc_call_finish(watch->call, &err);
        return;
    }
    watch->known = is_known(((Grpc__Health__V1__HealthCheckRequest *)message)->service);
    tell(watch, watch->known);
}

/* Only before the one message: after it nothing is read. */
static void watch_half_closed(void *owner)
{
    struct watch *watch = owner;
    struct err err;
    (void)err_set(&err, ERR_INVALID, "the request has no message");
    rpc_call_finish(watch->call, &err);
}

static void watch_closed(void *owner, const struct err *status)
{
    struct watch *watch = owner;
    (void)status;
    DL_DELETE(watch->health->watches, watch);
    watch->health->watch_count--;
    rpc_call_release(watch->call);
    free(watch);
}

static const struct rpc_call_handler watch_handler = {
    .message = watch_message,
    .half_closed = watch_half_closed,
    .closed = watch_closed,
};

int health_watch(void *userdata, struct rpc_call *call, struct err *err)
{
    struct health *health = health_of(userdata);
    if (health->watch_count >= HEALTH_WATCHES_MAX)
        return err_set(err, ERR_EXHAUSTED, "%u health watches are open; use Check instead",
                       health->watch_count);
    struct watch *watch = calloc(1, sizeof(*watch));
    if (!watch)
        return err_nomem(err);
    watch->health = health;
    watch->call = call;
    DL_APPEND(health->watches, watch);
    health->watch_count++;
    rpc_call_bind(call, &watch_handler, watch);
    return 0;
}

/* Life. */

int health_new(struct health **ret, struct err *err)
{
    struct health *health = calloc(1, sizeof(*health));
    if (!health)
        return err_nomem(err);
    *ret = health;
    return 0;
}

void health_set_serving(struct health *health, bool serving)
{
    if (health->serving == serving)
        return;
    health->serving = serving;
    for (struct watch *watch = health->watches; watch; watch = watch->next)
        if (watch->known)
            tell(watch, true);
}

void health_end_watches(struct health *health)
{
    struct err err;
    (void)err_set(&err, ERR_UNAVAILABLE, "the orchestrator is stopping; watch again");
    /* The list shrinks later, when each call has closed. */
    for (struct watch *watch = health->watches; watch; watch = watch->next)
        rpc_call_finish(watch->call, &err);
}

void health_free(struct health *health)
{
    if (!health)
        return;
    assert(!health->watches);
    free(health);
}
