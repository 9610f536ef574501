/* The standard health service (grpc.health.v1): may this orchestrator be given work? One answer for
 * the whole server and for each of its services. Loop thread only. */
#pragma once

#include "common/rpc_call.h"

#define HEALTH_WATCHES_MAX 1024u /* open Watch calls; more is ERR_EXHAUSTED */

struct health;

/* Not serving until told. */
int health_new(struct health **ret, struct err *err) must_use;
void health_set_serving(struct health *health, bool serving);
/* Watches never end by themselves: without this a drain would wait its whole grace for them. */
void health_end_watches(struct health *health);
/* When no call is left: after the server has drained. */
void health_free(struct health *health);

/* The orchestrator's part: where a method finds its struct health. */
struct health *health_of(void *userdata);

/* For the method table. */
int health_check(void *userdata, struct rpc_call *call, const ProtobufCMessage *request,
                 struct err *err);
int health_watch(void *userdata, struct rpc_call *call, struct err *err);
