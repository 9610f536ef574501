/* The inside of the history, for orchestrator/history*.c only. */
#pragma once

#include "orchestrator/history.h"
#include "orchestrator/orchestrator-internal.h"

#include <utlist.h>

/* An end on its way to the store; kept until it is there. */
struct history_end {
    struct store_job job;
    struct history *history;
    struct history_command *command;
    bool submitted; /* else it waits for the timer */
    int64_t started_ms, pid, ended_ms;
    uint64_t end_offset;
    size_t size;
    uint8_t outcome[];
};

/* A command that has not ended, or whose end is not committed. */
struct history_command {
    struct command_id id;
    struct history_sandbox *sandbox;
    char ordered_by[STORE_ACTOR_MAX];
    char runner[COMMAND_ID_LEN + 1]; /* the life of it that it was ordered from, if it was */
    int64_t ordered_ms, started_ms, pid;
    uint64_t sent_epoch; /* of the stream that this process ordered it on; 0: it did not */
    bool loaded;         /* an earlier orchestrator may have ordered it */
    bool confirmed;      /* a runner has spoken of it */
    bool listed;         /* in the inventory under way */
    struct history_end *end;
    struct history_command *prev, *next; /* of the same sandbox */
    UT_hash_handle hh;
};

struct history_sandbox {
    char id[SANDBOX_ID_MAX + 1];
    struct history_command *commands;
    UT_hash_handle hh;
};

struct history {
    struct orchestrator *orchestrator;
    struct history_command *commands;
    struct history_sandbox *sandboxes;
    unsigned admitting; /* on their way to the store; they will need room too */
    struct loop_timer *retry, *prune;
    struct log_limit faults;
};

/* history.c */
struct history_command *history_find(struct history *history, const struct command_id *id);
/* NULL too when it is another sandbox's: an agent speaks of its own commands alone. */
struct history_command *history_find_of(struct history *history, const struct sandbox *sandbox,
                                        const struct command_id *id);
/* NULL when nothing of it is open. */
struct history_sandbox *history_sandbox(struct history *history, const char *id);
int history_add(struct history *history, const struct command_record *record,
                struct history_command **ret, struct err *err) must_use;
void history_forget(struct history *history, struct history_command *command);

/* history_store.c */
void history_write_start(struct history *history, const struct history_command *command);
/* Now, or again when the timer has run. */
void history_write_end(struct history *history, struct history_end *end);
void history_on_retry(void *userdata);
void history_on_prune(void *userdata);
