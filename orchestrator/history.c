/* The commands that have not ended, as this orchestrator knows them: who ordered them, whether a
 * runner has spoken of them, and how they ended. Admission (orchestrator/admission.c) adds them,
 * the agent's words (orchestrator/session.c) move them on, and how they ended goes to the store.
 * Next: orchestrator/history_store.c writes it down, orchestrator/history_inventory.c judges what a
 * runner does not know. */
#include "orchestrator/history-internal.h"

#include "common/clock.h"
#include "orchestrator/logbook.h"
#include "orchestrator/session.h"

#include <stdio.h>
#include <string.h>

#define FAULTS_LOGGED    5u
#define FAULTS_PERIOD_US 10000000u

/* The table. */

struct history_command *history_find(struct history *history, const struct command_id *id)
{
    struct history_command *command;
    HASH_FIND(hh, history->commands, id->text, COMMAND_ID_LEN, command);
    return command;
}

struct history_command *history_find_of(struct history *history, const struct sandbox *sandbox,
                                        const struct command_id *id)
{
    struct history_command *command = history_find(history, id);
    return command && strcmp(command->sandbox->id, sandbox->id) == 0 ? command : NULL;
}

struct history_sandbox *history_sandbox(struct history *history, const char *id)
{
    struct history_sandbox *sandbox;
    HASH_FIND_STR(history->sandboxes, id, sandbox);
    return sandbox;
}

static int add_sandbox(struct history *history, const char *id, struct history_sandbox **ret,
                       struct err *err)
{
    struct history_sandbox *sandbox = history_sandbox(history, id);
    if (!sandbox) {
        sandbox = calloc(1, sizeof(*sandbox));
        if (!sandbox)
            return err_nomem(err);
        (void)snprintf(sandbox->id, sizeof(sandbox->id), "%s", id);
        HASH_ADD_STR(history->sandboxes, id, sandbox);
    }
    *ret = sandbox;
    return 0;
}

static void drop_empty(struct history *history, struct history_sandbox *sandbox)
{
    if (sandbox->commands)
        return;
    HASH_DEL(history->sandboxes, sandbox);
    free(sandbox);
}

int history_add(struct history *history, const struct command_record *record,
                struct history_command **ret, struct err *err)
{
    struct history_sandbox *sandbox;
    if (add_sandbox(history, record->sandbox_id, &sandbox, err) < 0)
        return -1;
    struct history_command *command = calloc(1, sizeof(*command));
    if (!command) {
        drop_empty(history, sandbox);
        return err_nomem(err);
    }
    (void)memcpy(command->id.text, record->id, sizeof(command->id.text));
    (void)memcpy(command->ordered_by, record->ordered_by, sizeof(command->ordered_by));
    (void)memcpy(command->runner, record->runner, sizeof(command->runner));
    command->ordered_ms = record->ordered_ms;
    command->started_ms = record->started_ms;
    command->pid = record->pid;
    command->confirmed = record->started_ms != 0;
    command->sandbox = sandbox;
    DL_APPEND(sandbox->commands, command);
    HASH_ADD_KEYPTR(hh, history->commands, command->id.text, COMMAND_ID_LEN, command);
    *ret = command;
    return 0;
}

void history_forget(struct history *history, struct history_command *command)
{
    struct history_sandbox *sandbox = command->sandbox;
    HASH_DEL(history->commands, command);
    DL_DELETE(sandbox->commands, command);
    drop_empty(history, sandbox);
    free(command->end);
    free(command);
}

unsigned history_open_count(const struct history *history)
{
    return HASH_COUNT(history->commands);
}

/* One line each. */

static void say_started(struct history *history, const struct history_command *command)
{
    LOGBOOK_EVENT(history->orchestrator, LOG_LEVEL_INFO, &event_command_started,
                  command->sandbox->id, command->id.text, LF_STR("client", command->ordered_by),
                  LF_INT("pid", command->pid));
}

/* "exited", "start_failed": the name of the result's field on the wire. */
static const char *result_name(const Sandstorm__V1__Outcome *outcome)
{
    const ProtobufCFieldDescriptor *field = protobuf_c_message_descriptor_get_field(
        &sandstorm__v1__outcome__descriptor, (unsigned)outcome->result_case);
    return field ? field->name : "unknown";
}

static void say_ended(struct history *history, const struct history_command *command,
                      const Sandstorm__V1__Outcome *outcome)
{
    struct log_field fields[] = {
        LF_STR("client", command->ordered_by),
        LF_STR("result", result_name(outcome)),
        LF_UINT("duration_ms", outcome->duration_us / 1000),
        LF_UINT("stdout_bytes", outcome->stdout_bytes),
        LF_UINT("stderr_bytes", outcome->stderr_bytes),
        { .name = NULL }, /* what belongs to the result */
    };
    unsigned count = ELEMENTS(fields) - 1;
    if (outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT_EXITED)
        fields[count++] = LF_UINT("exit_code", outcome->exited->code);
    else if (outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT_SIGNALED)
        fields[count++] = LF_UINT("signal", outcome->signaled->signal);
    else if (outcome->result_case == SANDSTORM__V1__OUTCOME__RESULT_LOST)
        fields[count++] = LF_STR("detail", outcome->lost->detail);
    logbook_event(history->orchestrator, LOG_LEVEL_INFO, &event_command_ended, command->sandbox->id,
                  command->id.text, fields, count);
}

/* What happens to a command. */

/* A sandbox's clock is its own: what it did was not before it was told to, nor is it to come. */
static int64_t plausible_ms(const struct history_command *command, int64_t unix_us)
{
    int64_t now = wall_ms(), then = unix_us > 0 ? unix_us / 1000 : now;
    return MAX(MIN(then, now), command->ordered_ms);
}

static void start(struct history *history, struct history_command *command,
                  const Sandstorm__V1__Started *started)
{
    if (command->started_ms || command->end)
        return; /* repeated after each attach */
    command->started_ms = plausible_ms(command, started->started_unix_us);
    command->pid = started->pid;
    say_started(history, command);
    history_write_start(history, command);
}

static int end(struct history *history, struct history_command *command,
               const Sandstorm__V1__Outcome *outcome, uint64_t end_offset, struct err *err)
{
    if (command->end)
        return 0; /* the first one stays */
    /* Only what we know: fields from a newer agent would be kept for ever. */
    Sandstorm__V1__Outcome known = *outcome;
    known.base.n_unknown_fields = 0;
    known.base.unknown_fields = NULL;
    size_t size = sandstorm__v1__outcome__get_packed_size(&known);
    if (size > STORE_OUTCOME_MAX)
        return err_set(err, ERR_PROTOCOL, "an outcome of %zu bytes; the limit is %u", size,
                       STORE_OUTCOME_MAX);
    struct history_end *ending = calloc(1, sizeof(*ending) + size);
    if (!ending)
        return err_nomem(err);
    ending->size = sandstorm__v1__outcome__pack(&known, ending->outcome);
    ending->history = history;
    ending->command = command;
    ending->started_ms = command->started_ms;
    ending->pid = command->pid;
    if (!ending->started_ms && known.started_unix_us > 0)
        ending->started_ms = plausible_ms(command, known.started_unix_us);
    ending->ended_ms = MAX(plausible_ms(command, known.ended_unix_us), 1);
    ending->end_offset = end_offset;
    command->end = ending;
    say_ended(history, command, &known);
    history_write_end(history, ending);
    return 0;
}

void history_lost(struct history *history, const struct command_id *id,
                  const struct history_judgement *judgement)
{
    struct history_command *command = history_find(history, id);
    if (!command)
        return;
    Sandstorm__V1__Lost lost = SANDSTORM__V1__LOST__INIT;
    lost.reason = judgement->reason;
    lost.detail = (char *)judgement->detail;
    Sandstorm__V1__Outcome outcome = SANDSTORM__V1__OUTCOME__INIT;
    outcome.result_case = SANDSTORM__V1__OUTCOME__RESULT_LOST;
    outcome.lost = &lost;
    struct err err = { 0 };
    if (end(history, command, &outcome, 0, &err) < 0)
        log_error("the end of a command is not written down", LF_STR("command", id->text),
                  LF_ERR(&err));
}

const struct history_judgement history_never_started = {
    HISTORY_NOT_RUN,
    SANDSTORM__V1__LOST_REASON__LOST_REASON_NEVER_STARTED,
    "the command never came to the sandbox, so it did not run; use a new id to run it",
};

void history_give_up(struct history *history, const struct command_id *id)
{
    const struct history_command *command = history_find(history, id);
    if (command && !command->sent_epoch && !command->loaded && !command->confirmed)
        history_lost(history, id, &history_never_started);
}

void history_sent(struct history *history, const struct sandbox *sandbox,
                  const struct command_id *id)
{
    struct history_command *command = history_find_of(history, sandbox, id);
    if (!command)
        return;
    command->sent_epoch = session_epoch(sandbox->session);
    (void)memcpy(command->runner, sandbox->runner_instance, sizeof(command->runner));
}

/* The agent's words. */

static int settle(struct history *history, struct history_command *command,
                  const Sandstorm__V1__Outcome *outcome, uint64_t end_offset, struct err *err)
{
    uint64_t suppressed;
    if (outcome && outcome->result_case != SANDSTORM__V1__OUTCOME__RESULT__NOT_SET)
        return end(history, command, outcome, end_offset, err);
    /* From a newer agent, perhaps: the command stays open, which is true, and the sandbox usable.
     */
    if (log_limit_pass(&history->faults, monotonic_us(), &suppressed))
        log_warn("a command has ended in a way that is not known here; upgrade the orchestrator",
                 LF_STR("command", command->id.text), LF_UINT("suppressed", suppressed));
    return 0;
}

/* A start that the runner would not carry out: it has not run, and will not. */
static void refused(struct history *history, const struct history_command *command,
                    const Sandstorm__V1__Refusal *refusal)
{
    if (refusal->order == SANDSTORM__V1__ORDER_KIND__ORDER_KIND_START &&
        refusal->reason != SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_CONFLICT &&
        !command->confirmed && !command->loaded)
        history_lost(history, &command->id, &history_never_started);
}

int history_event(struct history *history, const struct sandbox *sandbox,
                  const struct command_id *id, const Sandstorm__V1__CommandEvent *event,
                  struct err *err)
{
    struct history_command *command = history_find_of(history, sandbox, id);
    if (!command)
        return 0; /* it has ended, and that is written down; or it is not ours to know */
    switch (event->event_case) {
    case SANDSTORM__V1__COMMAND_EVENT__EVENT_STARTED:
        command->confirmed = true;
        start(history, command, event->started);
        return 0;
    case SANDSTORM__V1__COMMAND_EVENT__EVENT_SETTLED:
        command->confirmed = true;
        return settle(history, command, event->settled->outcome, event->settled->end_offset, err);
    case SANDSTORM__V1__COMMAND_EVENT__EVENT_ENDED:
        command->confirmed = true;
        return settle(history, command, event->ended->outcome, event->ended->end_offset, err);
    case SANDSTORM__V1__COMMAND_EVENT__EVENT_REFUSAL:
        refused(history, command, event->refusal);
        return 0;
    default:
        return 0;
    }
}

void history_removed(struct history *history, const char *sandbox_id)
{
    static const struct history_judgement removed = {
        HISTORY_LOST,
        SANDSTORM__V1__LOST_REASON__LOST_REASON_SANDBOX_REMOVED,
        "its sandbox was removed; how it ended will not be known",
    };
    struct history_sandbox *sandbox = history_sandbox(history, sandbox_id);
    /* An end that cannot be written now keeps its place in the list, and so does one that can. */
    for (struct history_command *one = sandbox ? sandbox->commands : NULL; one; one = one->next)
        history_lost(history, &one->id, &removed);
}

bool history_open_record(struct history *history, const struct sandbox *sandbox,
                         const struct command_id *id, struct command_record *ret)
{
    const struct history_command *command = history_find_of(history, sandbox, id);
    if (!command)
        return false;
    *ret = (struct command_record){ 0 };
    (void)memcpy(ret->id, id->text, sizeof(ret->id));
    (void)memcpy(ret->sandbox_id, sandbox->id, sizeof(ret->sandbox_id));
    (void)memcpy(ret->ordered_by, command->ordered_by, sizeof(ret->ordered_by));
    (void)memcpy(ret->runner, command->runner, sizeof(ret->runner));
    ret->ordered_ms = command->ordered_ms;
    ret->started_ms = command->started_ms;
    ret->pid = command->pid;
    return true;
}

bool history_pending_end(struct history *history, const struct command_id *id,
                         const uint8_t **ret_outcome, size_t *ret_size, uint64_t *ret_end_offset)
{
    const struct history_command *command = history_find(history, id);
    if (!command || !command->end)
        return false;
    *ret_outcome = command->end->outcome;
    *ret_size = command->end->size;
    *ret_end_offset = command->end->end_offset;
    return true;
}

Sandstorm__V1__CommandState history_state(struct orchestrator *orchestrator,
                                          const struct command_record *record)
{
    struct command_id id;
    (void)memcpy(id.text, record->id, sizeof(id.text));
    const struct sandbox *sandbox = registry_find(orchestrator->registry, record->sandbox_id);
    const struct history_command *command = history_find(orchestrator->history, &id);
    if (record->ended_ms)
        return SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_ENDED;
    /* Nobody can say: its sandbox is removed, evicted, or does not count any more. */
    if (!sandbox || sandbox->revoked_ms || sandbox->member.state == FLEET_EVICTED)
        return SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_UNKNOWN;
    if (record->started_ms || (command && command->confirmed))
        return SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_RUNNING;
    return SANDSTORM__V1__COMMAND_STATE__COMMAND_STATE_ORDERED;
}

/* Life. */

static int load_command(void *userdata, const struct command_record *record, struct err *err)
{
    struct history *history = userdata;
    struct history_command *command;
    if (history_add(history, record, &command, err) < 0)
        return -1;
    command->loaded = true;
    return 0;
}

int history_load(struct history *history, struct store_tx *tx, struct err *err)
{
    if (store_command_prune(tx, STORE_COMMANDS_KEPT, wall_ms() - STORE_COMMANDS_AGE_MS, err) < 0)
        return -1;
    return store_command_each_open(tx, load_command, history, err);
}

int history_new(struct orchestrator *orchestrator, struct history **ret, struct err *err)
{
    struct history *history = calloc(1, sizeof(*history));
    if (!history)
        return err_nomem(err);
    history->orchestrator = orchestrator;
    history->faults = LOG_LIMIT(FAULTS_PERIOD_US, FAULTS_LOGGED);
    if (loop_timer_new(orchestrator->loop, history_on_retry, history, &history->retry, err) < 0 ||
        loop_timer_new(orchestrator->loop, history_on_prune, history, &history->prune, err) < 0) {
        history_free(history);
        return -1;
    }
    loop_timer_start(history->prune, HISTORY_PRUNE_US);
    *ret = history;
    return 0;
}

void history_free(struct history *history)
{
    if (!history)
        return;
    struct history_command *command, *next;
    HASH_ITER (hh, history->commands, command, next)
        history_forget(history, command);
    loop_timer_free(history->retry);
    loop_timer_free(history->prune);
    free(history);
}
