/* A store without a disk, for what stands on the history: a few commands in memory, the audit's
 * rows counted, jobs done at once or when the test says so. A backend of the store for the
 * commands; defines the functions around it themselves, so the library's are not linked. */
#pragma once

#include "orchestrator/history.h"
#include "orchestrator/store-internal.h"
#include "tests/unit/audit_stub.h"

#define STUB_COMMANDS_MAX 16u

static struct {
    struct command_record commands[STUB_COMMANDS_MAX];
    unsigned count;
    struct store_job *first, *last;
} stub_store;

/* Everything that was submitted is done, also by those who hear of it, and the audit is written. */
static inline void stub_store_commit(void)
{
    stub_audit_written();
    while (stub_store.first) {
        struct store_job *job = stub_store.first;
        stub_store.first = job->next;
        job->done(job);
    }
}

static inline struct command_record *stub_store_find(const char *id)
{
    for (unsigned i = 0; i < stub_store.count; i++)
        if (strcmp(stub_store.commands[i].id, id) == 0)
            return &stub_store.commands[i];
    return NULL;
}

int store_audit_append(struct store_tx *tx, const struct audit_entry *entry, struct err *err)
{
    (void)tx;
    (void)err;
    stub_audit.rows++;
    stub_audit.allowed += entry->allowed;
    (void)snprintf(stub_audit.last_action, sizeof(stub_audit.last_action), "%s", entry->action);
    return 0;
}

static int stub_command_get(struct store_tx *tx, const char *id, struct command_record *ret,
                            struct err *err)
{
    (void)tx;
    const struct command_record *known = stub_store_find(id);
    if (!known)
        return err_set(err, ERR_NOT_FOUND, "no such command");
    *ret = *known;
    return 0;
}

static int stub_command_put(struct store_tx *tx, const struct command_record *command,
                            struct err *err)
{
    (void)tx;
    if (stub_store.count == STUB_COMMANDS_MAX)
        return err_set(err, ERR_EXHAUSTED, "no room for another command");
    stub_store.commands[stub_store.count++] = *command;
    return 0;
}

static int stub_command_start(struct store_tx *tx, const char *id, int64_t started_ms, int64_t pid,
                              struct err *err)
{
    (void)tx;
    struct command_record *known = stub_store_find(id);
    if (!known)
        return err_set(err, ERR_NOT_FOUND, "no such command");
    known->started_ms = started_ms;
    known->pid = pid;
    return 0;
}

static int stub_command_end(struct store_tx *tx, const struct command_record *command,
                            struct err *err)
{
    (void)tx;
    struct command_record *known = stub_store_find(command->id);
    if (!known)
        return err_set(err, ERR_NOT_FOUND, "no such command");
    if (known->ended_ms)
        return 0;
    known->ended_ms = command->ended_ms;
    known->end_offset = command->end_offset;
    known->outcome_size = command->outcome_size;
    (void)memcpy(known->outcome, command->outcome, command->outcome_size);
    return 0;
}

static int stub_command_each_open(struct store_tx *tx,
                                  int (*each)(void *userdata, const struct command_record *command,
                                              struct err *err),
                                  void *userdata, struct err *err)
{
    (void)tx;
    for (unsigned i = 0; i < stub_store.count; i++)
        if (!stub_store.commands[i].ended_ms && each(userdata, &stub_store.commands[i], err) < 0)
            return -1;
    return 0;
}

static int stub_command_prune(struct store_tx *tx, unsigned kept, int64_t before_ms,
                              struct err *err)
{
    (void)tx;
    (void)kept;
    (void)before_ms;
    (void)err;
    return 0;
}

static const struct store_backend stub_backend = {
    .name = "stub",
    .command_get = stub_command_get,
    .command_put = stub_command_put,
    .command_start = stub_command_start,
    .command_end = stub_command_end,
    .command_each_open = stub_command_each_open,
    .command_prune = stub_command_prune,
};
static struct store_tx stub_tx = { .backend = &stub_backend };

int store_submit(struct store *store, struct store_job *job, struct err *err)
{
    (void)store;
    (void)err;
    job->err = (struct err){ 0 };
    job->result = stub_audit.broken ? err_set(&job->err, ERR_UNAVAILABLE, "nothing can be written")
                                    : job->work(job, &stub_tx, &job->err);
    job->next = NULL;
    if (stub_store.first)
        stub_store.last->next = job;
    else
        stub_store.first = job;
    stub_store.last = job;
    if (!stub_audit.late)
        stub_store_commit();
    return 0;
}
