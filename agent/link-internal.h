/* The inside of the link, for agent/link*.c only. */
#pragma once

#include "agent/enroll.h"
#include "agent/link.h"
#include "agent/metrics.h"
#include "agent/status.h"
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

/* A heartbeat and all that it points to. */
struct link_heartbeat {
    Sandstorm__V1__AgentFrame frame;
    Sandstorm__V1__Heartbeat heartbeat;
    Sandstorm__V1__Metrics metrics;
    Sandstorm__V1__Pressure pressure;
};

/* One connection: a channel of its own, and the Connect stream on it. */
struct link_connection {
    struct link *link;
    struct rpc_channel *channel;
    struct rpc_call *call;
    uint64_t dialled_us;
    bool silent; /* it was cut because no welcome came */
};

struct link_stream {
    enum stream_state state;
    struct link_connection *current; /* NULL while waiting */
    /* Dialled with a new certificate while the current one still serves; takes over with its
     * welcome. */
    struct link_connection *next;
    struct backoff backoff;
    struct loop_timer *retry, *welcome, *heartbeat;
    struct loop_timer *takeover; /* from dialling the next connection to its welcome */
    uint64_t retry_after_us;     /* asked for by the orchestrator; 0: none */
    uint64_t retry_at_us;        /* the next attempt, by the monotonic clock; 0: under way */
    uint32_t attempts;           /* begun since it was last online */
    bool drained;                /* the current stream ends because the orchestrator said so */
    uint64_t heartbeat_us, heartbeat_sequence;
    uint64_t heartbeat_sent_us, heartbeat_told_us; /* the last one, and when the status said so */
    uint64_t epoch;
    uint8_t *welcome_frame; /* as it came, for a runner that connects later */
    size_t welcome_size;
    struct link_diagnosis diagnosis;
    char last_error[ERR_TEXT_MAX];
    int64_t last_error_ms;
    int64_t failing_since_ms; /* the first error since it was last online; 0: none */
    bool orderly;             /* last_error is a goodbye, and no failure */
    bool unsaid;              /* last_error is not in the log yet */
    bool clock_known;
    int64_t clock_skew_ms; /* ours minus the orchestrator's */
};

/* Our certificate: getting the first one, and the next before it ends. */
enum identity_task { TASK_NONE, TASK_ENROLL, TASK_INSTALL, TASK_RENEW_LATE };

struct link_identity {
    struct loop_timer *timer; /* the next attempt to enrol, or the next renewal */
    struct backoff backoff;
    struct worker_job job;
    enum identity_task task;
    int result;
    struct err err;
    struct rpc_call *call;  /* RenewCertificate, under way */
    char *certificate, *ca; /* its answer, on the way to disk */
    int64_t not_after_ms, renew_at_ms;
    uint64_t renewed_us; /* when a renewal last succeeded, and how long then none is tried */
    uint64_t rest_us;
    uint64_t late_us; /* when a renewal over HTTPS was last answered, with yes or no */
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
    char enforces[64]; /* "memory, cpu", or "none"; "" before the runner has said it */
    bool warned;
    bool greeted; /* the runner has said something on this connection */
};

/* Our own log on its way up. */
struct link_logs {
    struct log_ring *ring;
    struct loop_post post; /* flushes, on the loop */
    atomic_bool posted;
};

struct link {
    struct loop *loop;
    struct daemon *daemon;
    struct rpc_pump *pump;
    struct worker *worker;
    struct link_config config;
    struct identity identity;
    char instance[COMMAND_ID_LEN + 1]; /* of this process */
    uint64_t started_us;
    struct link_identity own;
    struct agent_status status;
    struct metrics_sampler metrics;
    char state_dir[4096]; /* where the identity directory is */
    struct link_stream stream;
    struct link_runner runner;
    struct link_logs logs;
    bool stopping;
};

/* link_stream.c */
int link_stream_init(struct link *link, struct err *err) must_use;
void link_stream_start(struct link *link);
/* Dials a second connection, which takes over from the first. */
void link_stream_hand_over(struct link *link);
/* True when there is nothing to wait for. */
bool link_stream_stop(struct link *link);
void link_stream_done(struct link *link);
/* Several packed AgentFrames, in one message. */
void link_stream_carry(struct link *link, const struct iovec *frames, unsigned count);
bool link_stream_writable(const struct link *link);
void link_stream_pause(struct link *link, bool paused);

/* link_retry.c */
/* An attempt to get a connection or an identity begins; or the next one is planned. */
void link_retry_begin(struct link *link);
void link_retry_planned(struct link *link, uint64_t after_us);
/* Connects after this long, if it waits. */
void link_retry_after(struct link *link, uint64_t after_us);
/* The same after what the orchestrator has asked for, or the backoff says. */
void link_retry_wait(struct link *link);
/* Why it is not connected: a stream that was active has ended; an attempt has failed, which is
 * worth a line in the log; or the same while nothing better is known. */
void link_retry_lost(struct link *link, const struct err *why);
void link_retry_report(struct link *link, const struct err *why);
void link_retry_note(struct link *link, const struct err *why);
/* All is well again. */
void link_retry_clear(struct link *link);

/* link_heartbeat.c */
/* `taking_over`: for a second stream beside one that serves, which has no failure to tell of. */
void link_fill_register(struct link *link, bool taking_over, Sandstorm__V1__Register *message,
                        Sandstorm__V1__SandboxInfo *info);
void link_fill_heartbeat(struct link *link, const struct metrics_sample *sample,
                         struct link_heartbeat *ret);
void link_send_heartbeat(struct link *link);
void link_read_boot_id(char *out, size_t size);

/* link_diagnose.c */
void link_diagnose(struct link *link, const struct err *why);

/* link_identity.c */
int link_identity_init(struct link *link, struct err *err) must_use;
/* Connects when there is an identity, else enrols first. */
void link_identity_start(struct link *link);
/* The stream is active: plans the renewal of the certificate that it uses. */
void link_identity_connected(struct link *link);
void link_identity_disconnected(struct link *link);
/* Our certificate has ended, or the orchestrator says so: true when a new one is being asked for;
 * then link_retry_after() follows. */
bool link_identity_renew_late(struct link *link);
bool link_identity_expired(const struct link *link);
void link_identity_done(struct link *link);

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

/* link_logs.c */
/* Before there are threads that log; done when they have gone. */
int link_logs_init(struct link *link, struct err *err) must_use;
void link_logs_done(struct link *link);
/* The stream is active, or takes more. */
void link_logs_flush(struct link *link);
/* A packed message Logs, from the runner. */
void link_logs_relay(struct link *link, const uint8_t *data, size_t size);

/* link.c */
/* To the service manager and to the status file. */
void link_say_status(struct link *link);
/* To the file alone: for what changes often. */
void link_write_status(struct link *link);
