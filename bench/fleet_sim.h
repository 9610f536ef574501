/* The inside of sandstorm-fleet-sim, for bench/fleet_sim*.c only: many agents in one process, each
 * with a key, a certificate and a mutual-TLS connection of its own. What it does not do: renew
 * certificates, and run anything. Loop thread, except where a job says otherwise. */
#pragma once

#include "common/backoff.h"
#include "common/daemon.h"
#include "common/ids.h"
#include "common/rpc_channel.h"
#include "common/worker.h"
#include "sandstorm/v1/link.pb-c.h"

#define SIM_AGENTS_MAX  10000u /* each takes one descriptor; the hard limit may be 20,000 */
#define SIM_FILES_SPARE 512u
#define SIM_ENROLLERS   4u
#define SIM_DIALLING_MAX                                                                           \
    64u /* handshakes at once: they share this process's cores with the rest                       \
         */
#define SIM_WELCOME_US     10000000u
#define SIM_HEARTBEAT_US   30000000u
#define SIM_COMMANDS_MAX   64u /* of one agent */
#define SIM_OUTPUT_MAX     4096u
#define SIM_STATUS_US      100000u
#define SIM_NAME_MAX       SANDBOX_ID_MAX
#define SIM_TOKEN_FILE_MAX 4096u

struct sim;
struct sim_agent;

enum sim_state {
    SIM_NEW, /* has no certificate yet */
    SIM_WAITING,
    SIM_QUEUED, /* for its turn to dial */
    SIM_DIALLING,
    SIM_ACTIVE,
    SIM_STATE_COUNT_
};

/* What a runner would have of a command; nothing runs. */
struct sim_command {
    struct sim_agent *agent;
    struct sim_command *next;
    struct command_id id;
    uint8_t digest[32];
    struct loop_timer *timer;     /* to its end */
    int64_t started_us, ended_us; /* on the wall clock; ended_us is 0 while it "runs" */
    bool speaking;                /* somebody is attached on this stream */
    bool ended_said, settled_said;
    bool cancelled;
    uint64_t sent, limit, acked;
};

struct sim_agent {
    struct sim *sim;
    char name[SIM_NAME_MAX + 1];
    char *cert, *key;
    enum sim_state state;
    bool silent;
    struct rpc_channel *channel;
    struct rpc_call *call;
    struct loop_timer *timer; /* of the state: the retry, the welcome's deadline, the heartbeat */
    struct sim_agent *queue_next;
    struct backoff backoff;
    uint64_t retry_after_us;
    uint64_t heartbeat_us, sequence, connects;
    int64_t clock_skew_ms, not_after_ms;
    char instance[COMMAND_ID_LEN + 1]; /* of the link process that it would be; the runner's too */
    struct sim_command *commands;
};

struct sim_config {
    uint64_t count;
    const char *prefix;
    const char *endpoint, *enroll_endpoint;
    const char *token_file, *ca_fingerprint, *ca_file;
    const char *dir;    /* NULL, or where keys and certificates are kept for the next run */
    const char *report; /* NULL, or a file for the figures as JSON */
    uint64_t silent_percent;
    uint64_t flap; /* streams to cut each second */
    uint64_t seconds;
    uint64_t command_us; /* how long a command takes */
    uint64_t output;     /* bytes that it writes */
};

/* Figures are of the time since everybody was connected for the first time. */
struct sim_figures {
    uint64_t began_us;     /* the start of the program's work */
    uint64_t connected_us; /* when the last one was connected; 0 before */
    uint64_t enrolled_us;
    uint64_t heartbeats, heartbeat_bytes; /* bytes as packed */
    uint64_t reconnects, commands;
    uint64_t wire_sent, wire_received; /* of the TCP connections, when it began */
};

/* One enrolment under way, on a worker's thread. */
struct sim_enroller {
    struct worker_job job;
    struct worker *worker;
    struct sim *sim;
    struct sim_agent *agent;
    int result;
    struct err err;
};

struct sim {
    struct loop *loop;
    struct daemon *daemon;
    struct rpc_pump *pump;
    struct loop_signal *silence, *resume;
    struct loop_timer *status, *flap, *end;
    const struct sim_config *config;
    char *ca, *token;
    struct sim_agent *agents;
    struct sim_enroller enrollers[SIM_ENROLLERS];
    unsigned next_to_enrol, enrolled;
    struct sim_agent *queue_first, **queue_last;
    unsigned dialling, active, calls; /* calls: streams that have not closed yet */
    struct sim_figures figures;
    bool ready, stopping, failed;
    struct err err;
};

/* fleet_sim_enrol.c: every agent gets its certificate, then sim_agent_begin(). */
int sim_enrol_start(struct sim *sim, struct err *err) must_use;
void sim_enrol_done(struct sim *sim);

/* fleet_sim_agent.c */
int sim_agent_init(struct sim *sim, struct sim_agent *agent, unsigned index,
                   struct err *err) must_use;
void sim_agent_begin(struct sim_agent *agent);
/* Neither heartbeats nor reads while silent, but keeps its connection. */
void sim_agent_set_silent(struct sim_agent *agent, bool silent);
void sim_agent_cut(struct sim_agent *agent);
void sim_agent_send(struct sim_agent *agent, Sandstorm__V1__AgentFrame *frame);
void sim_agent_done(struct sim_agent *agent);

/* fleet_sim_frames.c: what a link says by itself. */
void sim_send_register(struct sim_agent *agent);
void sim_send_heartbeat(struct sim_agent *agent);

/* fleet_sim_command.c: the runner's part. */
void sim_commands_welcome(struct sim_agent *agent, uint64_t epoch);
void sim_commands_order(struct sim_agent *agent, const Sandstorm__V1__CommandOrder *order);
void sim_commands_done(struct sim_agent *agent);
unsigned sim_commands_running(const struct sim_agent *agent);

/* fleet_sim_report.c */
void sim_report_begin(struct sim *sim);
int sim_report_end(struct sim *sim, struct err *err) must_use;

/* fleet_sim.c */
void sim_fail(struct sim *sim, const struct err *err);
void sim_changed(struct sim *sim); /* the number of those that are connected */
void sim_quit_when_idle(struct sim *sim);
