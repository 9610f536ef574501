/* The inside of the runner, for agent/runner*.c only. */
#pragma once

#include "agent/command.h"
#include "agent/drainer.h"
#include "agent/handover.h"
#include "agent/oom.h"
#include "agent/released.h"
#include "agent/runner.h"
#include "common/daemon.h"
#include "common/log_ring.h"
#include "common/wire.h"

#include <uthash.h>
#include <utlist.h>

struct runner_entry {
    struct command *command;
    struct command_id id;
    bool ready; /* in the queue of those that have something to say */
    struct runner_entry *prev, *next;
    UT_hash_handle hh;
};

struct runner_link;

struct runner {
    struct loop *loop;
    struct daemon *daemon;
    struct command_host host;
    struct forest *forest;
    struct policy *policy; /* NULL: everything is allowed */
    char oom_score_adj[OOM_TEXT_MAX];
    char *socket_path;
    const char *program, *settings_file; /* see struct runner_config */
    uid_t link_uid;
    int listen_fd;
    struct loop_io *listen_io;
    struct runner_link *link; /* NULL while none is connected */
    char instance[COMMAND_ID_LEN + 1];

    struct runner_entry *commands; /* hash by id, in order of arrival */
    struct runner_entry *ready;    /* fair queue */
    struct state_dir *state;       /* NULL: nothing outlives this process */
    struct released *released;
    struct drainer *drainer;
    struct rlimit files;
    struct loop_timer *accept_again, *patience;
    struct loop_signal *upgrade;
    bool stopping;
    struct log_limit strangers;
    struct log_ring *logs; /* our own log on its way to the link; NULL: it is not forwarded */
};

/* runner.c */
struct runner_entry *runner_find(struct runner *runner, const struct command_id *id);
unsigned runner_count_running(const struct runner *runner);
/* It has something to say: it is queued, and the link hears of it when it is its turn. */
void runner_note_ready(struct runner *runner, struct runner_entry *entry);
/* The limits that can be enforced here: "memory,pids". */
#define RUNNER_ENFORCES_MAX 64u
void runner_enforces(const struct runner *runner, char ret[RUNNER_ENFORCES_MAX]);
/* The forest, named after the socket; and what commands may use, once everything is there. */
int runner_plant(struct runner *runner, const struct runner_config *config, bool goes_on,
                 struct err *err) must_use;
void runner_host(struct runner *runner);
void runner_forget(struct runner *runner, struct runner_entry *entry);
/* Its end is safe with the orchestrator, or it has to make room: only its id stays known. */
void runner_release(struct runner *runner, struct runner_entry *entry);
void runner_link_gone(struct runner *runner);
void runner_maybe_quit(struct runner *runner);

/* runner_link.c */
int runner_link_new(struct runner *runner, int fd, struct runner_link **ret,
                    struct err *err) must_use;
void runner_link_free(struct runner_link *link);
/* Something is ready to be said. */
void runner_link_wake(struct runner_link *link);
/* An orchestrator is behind it: what commands have to say goes out. */
bool runner_link_listens(const struct runner_link *link);
void runner_link_status_changed(struct runner_link *link);
/* Begins an inventory for `epoch`; nothing else is said before its last frame. */
void runner_link_begin_inventory(struct runner_link *link, uint64_t epoch);
/* The command is about to be forgotten: an inventory under way goes on behind it. */
void runner_link_skip(struct runner_link *link, const struct runner_entry *entry);
void runner_link_refuse(struct runner_link *link, const struct command_id *id,
                        Sandstorm__V1__OrderKind order, const struct command_refusal *refusal);
/* Has the other end closed the socket? */
bool runner_link_dead(const struct runner_link *link);
/* Says that a released command was ordered again. */
void runner_link_say_released(struct runner_link *link, const struct command_id *id);

/* Its socket, and what it is in; link_fd stays -1 when it is in the middle of something. */
void runner_link_hand_over(struct runner_link *link, Sandstorm__Runner__Handover *ret);
int runner_link_take_over(struct runner *runner, const Sandstorm__Runner__Handover *from,
                          struct err *err) must_use;

/* runner_handover.c */
int runner_hand_over(struct runner *runner, struct handover_out *out, struct err *err) must_use;
int runner_handover_check_bytes(const uint8_t *data, size_t size, struct err *err) must_use;
/* Takes the configured descriptor over. */
int runner_take_over(struct runner *runner, const struct runner_config *config,
                     struct err *err) must_use;

/* runner_upgrade.c */
/* Comes back only when the runner goes on as it is. */
void runner_upgrade(struct runner *runner);

/* runner_recover.c */
int runner_recover(struct runner *runner, struct err *err) must_use;

/* runner_orders.c */
/* One packet from the link. -1 when it breaks the protocol: the link is cut. */
int runner_receive(struct runner *runner, const uint8_t *data, size_t size,
                   struct err *err) must_use;
