/* The inside of the link, for agent/link*.c only. */
#pragma once

#include "agent/link.h"
#include "agent/metrics.h"
#include "common/backoff.h"
#include "common/daemon.h"
#include "common/log.h"
#include "common/rpc_channel.h"
#include "common/worker.h"
#include "sandstorm/v1/link.pb-c.h"

/* To the orchestrator. */
enum stream_state { STREAM_WAITING, STREAM_CONNECTING, STREAM_ACTIVE, STREAM_STATE_COUNT_ };

struct link_diagnosis {
    struct worker_job job;
    struct link *link;
    struct rpc_creds creds;
    int result;
    struct err err;
    bool running;
};

struct link_stream {
    enum stream_state state;
    struct rpc_channel *channel;
    struct rpc_call *call;
    struct backoff backoff;
    struct loop_timer *retry, *welcome, *heartbeat;
    uint64_t retry_after_us; /* asked for by the orchestrator; 0: none */
    uint64_t heartbeat_us, heartbeat_sequence;
    uint64_t epoch;
    uint8_t *welcome_frame; /* as it came, for a runner that connects later */
    size_t welcome_size;
    struct link_diagnosis diagnosis;
    char last_error[ERR_TEXT_MAX];
};

/* To the runner. */
struct link_packet {
    struct link_packet *next;
    size_t size;
    uint8_t data[];
};

struct link_runner {
    int fd;
    struct loop_io *io;
    struct loop_timer *retry;
    struct backoff backoff;
    bool in_step; /* the runner has answered this stream's welcome */
    struct link_packet *first, **last;
    uint32_t commands_running;
    uint64_t spool_bytes;
    char version[32];
    bool warned;
    bool greeted; /* the runner has said something on this connection */
};

struct link {
    struct loop *loop;
    struct daemon *daemon;
    struct rpc_pump *pump;
    struct worker *worker;
    struct link_config config;
    struct identity identity;
    struct metrics_sampler metrics;
    struct link_stream stream;
    struct link_runner runner;
    bool stopping;
};

/* link_stream.c */
int link_stream_init(struct link *link, struct err *err) must_use;
void link_stream_start(struct link *link);
/* True when there is nothing to wait for. */
bool link_stream_stop(struct link *link);
void link_stream_done(struct link *link);
/* Several packed AgentFrames, in one message. */
void link_stream_carry(struct link *link, const struct iovec *frames, unsigned count);
bool link_stream_writable(const struct link *link);
void link_stream_pause(struct link *link, bool paused);

/* link_heartbeat.c */
void link_fill_register(struct link *link, Sandstorm__V1__Register *message,
                        Sandstorm__V1__SandboxInfo *info);
void link_send_heartbeat(struct link *link);

/* link_runner.c */
int link_runner_init(struct link *link, struct err *err) must_use;
void link_runner_start(struct link *link);
void link_runner_done(struct link *link);
bool link_runner_connected(const struct link *link);
/* One OrchestratorFrame, as it came. Dropped when there is no runner: the orchestrator repeats what
 * matters when the next inventory lacks it. */
void link_runner_send(struct link *link, const uint8_t *frame, size_t size);
void link_runner_stream_active(struct link *link);
void link_runner_stream_lost(struct link *link);
void link_runner_resume(struct link *link);

/* link.c */
void link_say_status(struct link *link);
