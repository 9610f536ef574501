/* The completion queue and its thread. libgrpc hands it finished operations; it hands them to the
 * loop. One queue with one thread measured best on two cores (C=1: 0.32 ms against 0.39 ms with
 * two). next: common/rpc_call.c, common/rpc_server.c. */
#include "common/rpc_pump.h"

#include "common/log.h"

#include <pthread.h>

/* An operation goes from the loop to the pump through libgrpc, which ThreadSanitizer cannot see
 * into: it is told that the hand-over is one. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#include <sanitizer/tsan_interface.h>
#define HAND_OVER(op) __tsan_release(op)
#define TAKE_OVER(op) __tsan_acquire(op)
#endif
#endif
#ifndef HAND_OVER
#define HAND_OVER(op) ((void)(op))
#define TAKE_OVER(op) ((void)(op))
#endif

struct rpc_pump {
    struct loop *loop;
    grpc_completion_queue *queue;
    pthread_t thread;
};

static void op_returned(struct loop_post *post)
{
    struct rpc_op *op = CONTAINER_OF(post, struct rpc_op, post);
    op->done(op);
}

static void *pump_main(void *userdata)
{
    struct rpc_pump *pump = userdata;
    for (;;) {
        grpc_event event =
            grpc_completion_queue_next(pump->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        struct rpc_op *op = event.tag;
        TAKE_OVER(op);
        op->ok = event.success;
        loop_post(pump->loop, &op->post);
    }
}

/* libgrpc writes to stderr in its own way; what matters reaches us as a status, and is told by
 * whoever decides. */
static void log_grpc(gpr_log_func_args *args)
{
    log_debug("libgrpc", LF_STR("text", args->message), LF_STR("file", args->file),
              LF_INT("line", args->line));
}

int rpc_pump_new(struct loop *loop, struct rpc_pump **ret, struct err *err)
{
    CLEANUP_FREE struct rpc_pump *pump = calloc(1, sizeof(*pump));
    if (!pump)
        return err_nomem(err);
    gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
    gpr_set_log_function(log_grpc);
    grpc_init();
    pump->loop = loop;
    pump->queue = grpc_completion_queue_create_for_next(NULL);
    int r = pthread_create(&pump->thread, NULL, pump_main, pump);
    if (r) {
        grpc_completion_queue_shutdown(pump->queue);
        grpc_completion_queue_destroy(pump->queue);
        grpc_shutdown();
        return err_errno(err, r, "cannot start the pump thread");
    }
    (void)pthread_setname_np(pump->thread, "pump");
    *ret = TAKE_PTR(pump);
    return 0;
}

void rpc_pump_free(struct rpc_pump *pump)
{
    if (!pump)
        return;
    grpc_completion_queue_shutdown(pump->queue);
    (void)pthread_join(pump->thread, NULL);
    loop_drain_posts(pump->loop);
    grpc_completion_queue_destroy(pump->queue);
    grpc_shutdown_blocking();
    free(pump);
}

struct loop *rpc_pump_loop(struct rpc_pump *pump)
{
    return pump->loop;
}

grpc_completion_queue *rpc_pump_queue(struct rpc_pump *pump)
{
    return pump->queue;
}

void *rpc_op_tag(struct rpc_op *op, void (*done)(struct rpc_op *op))
{
    op->post.fn = op_returned;
    op->done = done;
    HAND_OVER(op);
    return op;
}
