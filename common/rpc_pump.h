/* The pump: a thread that does nothing but wait on a gRPC completion queue and post what completed
 * to the loop. Every batch is started on the loop thread. */
#pragma once

#include "common/loop.h"
#include "common/rpc_compat.h"

/* A tag, embedded in the object whose operation it is. */
struct rpc_op {
    struct loop_post post;
    void (*done)(struct rpc_op *op); /* loop thread */
    bool ok;
};

struct rpc_pump;

int rpc_pump_new(struct loop *loop, struct rpc_pump **ret, struct err *err) must_use;
/* No operation may be under way any more. Joins the thread. */
void rpc_pump_free(struct rpc_pump *pump);

struct loop *rpc_pump_loop(struct rpc_pump *pump);
grpc_completion_queue *rpc_pump_queue(struct rpc_pump *pump);
/* Makes `op` a tag that calls `done`. */
void *rpc_op_tag(struct rpc_op *op, void (*done)(struct rpc_op *op));
