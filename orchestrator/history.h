/* The history of commands: every one that was ordered here, and how it ended. The store has them
 * all (orchestrator/store_commands.c); those that have not ended are in memory too. A command's row
 * is committed before it is ordered and its end before the runner is told to let go of it, so that
 * a kill in between loses no outcome and runs nothing twice. Loop thread, but for history_load().
 */
#pragma once

#include "orchestrator/registry.h"
#include "orchestrator/store.h"
#include "sandstorm/v1/link.pb-c.h"

#define HISTORY_OPEN_MAX 100000u     /* not ended yet; one more is refused with ERR_EXHAUSTED */
#define HISTORY_RETRY_US 1000000u    /* until an end that could not be written is written again */
#define HISTORY_PRUNE_US 3600000000u /* between two rounds of forgetting */

struct history;
struct orchestrator;

int history_new(struct orchestrator *orchestrator, struct history **ret, struct err *err) must_use;
void history_free(struct history *history);
/* What the store knows to be open; on its thread, before anybody is let in. */
int history_load(struct history *history, struct store_tx *tx, struct err *err) must_use;

/* Admission. */

enum history_verdict {
    HISTORY_NEW,   /* written down now; it is the caller's to order, or to give up */
    HISTORY_OPEN,  /* known, and has not ended */
    HISTORY_ENDED, /* known, and this is how it ended */
    HISTORY_TAKEN, /* the id is another command's */
    HISTORY_NONE,  /* not known, and nothing new was asked for */
};
/* `record` is the command as the store has it, for this call only. `failed` is not NULL when
 * nothing could be written: then nothing may be ordered. */
typedef void (*history_admitted)(void *userdata, enum history_verdict verdict,
                                 const struct command_record *record, const struct err *failed);
/* The audit's row and the command's, both or neither. With `known` no new command is written down.
 * -1: not even asked, `done` is not called. */
int history_admit(struct history *history, const struct audit_entry *entry,
                  const struct command_record *command, bool known, history_admitted done,
                  void *userdata, struct err *err) must_use;
/* Nobody here will order it any more: a command that was never sent to a runner has not run. */
void history_give_up(struct history *history, const struct command_id *id);
/* A start is on its way to this sandbox's runner, on its present stream. */
void history_sent(struct history *history, const struct sandbox *sandbox,
                  const struct command_id *id);

/* What the agent says. */

/* Takes note of a start or an end, whether or not a client follows. -1: the agent broke the
 * protocol. */
int history_event(struct history *history, const struct sandbox *sandbox,
                  const struct command_id *id, const Sandstorm__V1__CommandEvent *event,
                  struct err *err) must_use;
/* An inventory: it begins, it names a command, and it is complete. The last one finds the commands
 * that are gone and that no relay here waits for; orchestrator/relay_resume.c has dealt with the
 * others. */
void history_listing(struct history *history, const struct sandbox *sandbox);
void history_listed(struct history *history, const struct sandbox *sandbox,
                    const struct command_id *id);
void history_inventory_complete(struct history *history, struct sandbox *sandbox);

/* What became of a command that the runner, which is in step, did not list. */
enum history_fate {
    HISTORY_NOT_RUN,   /* certain: it may be started, or be lost(NEVER_STARTED) */
    HISTORY_IN_FLIGHT, /* a start is on its way on this very stream: the runner can be asked */
    HISTORY_LOST,
};
struct history_judgement {
    enum history_fate fate;
    Sandstorm__V1__LostReason reason;
    const char *detail;
};
extern const struct history_judgement history_never_started;
void history_judge(struct history *history, const struct sandbox *sandbox,
                   const struct command_id *id, struct history_judgement *ret);
/* That is how it ended. */
void history_lost(struct history *history, const struct command_id *id,
                  const struct history_judgement *judgement);

/* Its sandbox is not coming back: what is open of it is lost. */
void history_removed(struct history *history, const char *sandbox_id);

/* A command of this sandbox that has not ended: what is known of it without the store. */
bool history_open_record(struct history *history, const struct sandbox *sandbox,
                         const struct command_id *id, struct command_record *ret);
/* How it ended, packed, while that is on its way to the store; false: not known here. */
bool history_pending_end(struct history *history, const struct command_id *id,
                         const uint8_t **ret_outcome, size_t *ret_size, uint64_t *ret_end_offset);

/* What clients are told that a stored command is doing. */
Sandstorm__V1__CommandState history_state(struct orchestrator *orchestrator,
                                          const struct command_record *command);
unsigned history_open_count(const struct history *history);
