/* The life of a relay: made when a command is ordered (orchestrator/admission.c) or when a runner
 * lists one (orchestrator/relay_resume.c), joined by clients (orchestrator/exec.c), fed by the
 * runner (orchestrator/relay_events.c), and gone when the command has ended, its output and its end
 * are on disk, and nobody looks any more. */
#include "orchestrator/relay-internal.h"

#include "common/clock.h"
#include "orchestrator/exec-internal.h"

#include <assert.h>
#include <string.h>

static const char *const state_names[RELAY_STATE_COUNT_] = {
    [RELAY_PENDING] = "pending",
    [RELAY_RUNNING] = "running",
    [RELAY_ENDED] = "ended",
};

static const bool transitions[RELAY_STATE_COUNT_][RELAY_STATE_COUNT_] = {
    [RELAY_PENDING] = { [RELAY_RUNNING] = true, [RELAY_ENDED] = true },
    [RELAY_RUNNING] = { [RELAY_ENDED] = true },
};

void relay_set_state(struct relay *relay, enum relay_state state)
{
    assert(transitions[relay->state][state]);
    log_debug("relay state", LF_STR("command", relay->id.text),
              LF_STR("from", state_names[relay->state]), LF_STR("to", state_names[state]));
    relay->state = state;
}

struct relay *relay_find(struct orchestrator *orchestrator, const struct command_id *id)
{
    struct relay *relay;
    HASH_FIND(hh, orchestrator->relays, id->text, COMMAND_ID_LEN, relay);
    return relay;
}

struct relay *relay_find_of(struct sandbox *sandbox, struct orchestrator *orchestrator,
                            const struct command_id *id)
{
    struct relay *relay = relay_find(orchestrator, id);
    return relay && relay->sandbox == sandbox ? relay : NULL;
}

const Sandstorm__V1__Started *relay_started(const struct relay *relay)
{
    return (const Sandstorm__V1__Started *)relay->started;
}

/* Letting go. */

static void leave_sandbox(struct relay *relay)
{
    if (relay->sandbox)
        DL_DELETE(relay->sandbox->relays, relay);
    relay->sandbox = NULL;
}

static void relay_free(struct relay *relay)
{
    struct err gone;
    (void)err_set(&gone, ERR_UNAVAILABLE, "command %s is not followed any more; try again",
                  relay->id.text);
    relay_wake_writers(relay, &gone);
    leave_sandbox(relay);
    HASH_DEL(relay->orchestrator->relays, relay);
    loop_timer_free(relay->alone);
    ledger_free(relay->ledger);
    wire_free(relay->started);
    buf_done(&relay->input);
    free(relay->result);
    free(relay->spec);
    free(relay);
}

void relays_free(struct orchestrator *orchestrator)
{
    struct relay *relay, *next;
    HASH_ITER (hh, orchestrator->relays, relay, next) {
        struct exec *exec, *other;
        DL_FOREACH_SAFE (relay->viewers, exec, other)
            exec_relay_gone(exec);
        relay_free(relay);
    }
}

/* The runner may forget the command when its output and its end are both on disk here. */
static void let_go(struct relay *relay)
{
    if (relay->let_go || relay->state != RELAY_ENDED || !relay->end_written ||
        ledger_durable(relay->ledger) < ledger_end(relay->ledger))
        return;
    relay->let_go = true;
    if (relay->sandbox && !relay->unknown_there)
        relay_let_go(relay->sandbox, &relay->id);
}

static bool is_idle(const struct relay *relay)
{
    if (relay->viewers || relay->writers)
        return false;
    return relay->let_go || !relay->sandbox;
}

void relay_enter(struct relay *relay)
{
    relay->busy++;
}

void relay_exit(struct relay *relay)
{
    if (--relay->busy > 0)
        return;
    let_go(relay);
    if (is_idle(relay))
        relay_free(relay);
}

void relay_end_written(struct orchestrator *orchestrator, const struct command_id *id)
{
    struct relay *relay = relay_find(orchestrator, id);
    if (!relay)
        return;
    relay_enter(relay);
    relay->end_written = true;
    relay_exit(relay);
}

void relay_fail(struct relay *relay, const struct err *why)
{
    struct exec *exec, *next;
    relay_enter(relay);
    DL_FOREACH_SAFE (relay->viewers, exec, next)
        exec_fail(exec, why);
    relay_wake_writers(relay, why);
    leave_sandbox(relay); /* which leaves nothing to do */
    relay_exit(relay);
}

void relay_sandbox_gone(struct sandbox *sandbox, const char *why)
{
    struct relay *relay, *next;
    struct err err;
    (void)err_set(&err, ERR_DENIED,
                  "sandbox \"%s\" %s; what its commands do is not known here any more", sandbox->id,
                  why);
    DL_FOREACH_SAFE (sandbox->relays, relay, next)
        relay_fail(relay, &err);
    sandbox->leftover_count = 0;
}

/* Those who look. */

void relay_pump(struct relay *relay)
{
    struct exec *exec, *next;
    uint64_t needed = ledger_end(relay->ledger);
    relay_enter(relay);
    DL_FOREACH_SAFE (relay->viewers, exec, next)
        exec_pump(exec);
    DL_FOREACH (relay->viewers, exec)
        needed = MIN(needed, exec->sent);
    ledger_drop_below(relay->ledger, needed);
    relay_exit(relay);
}

void relay_notice(struct relay *relay, Sandstorm__V1__ExecNoticeKind kind, const char *detail)
{
    struct exec *exec, *next;
    DL_FOREACH_SAFE (relay->viewers, exec, next)
        exec_notice(exec, kind, detail);
}

/* The runner hears whether a client is there. */
static void audience_changed(struct relay *relay)
{
    relay->due.audience = relay->state != RELAY_ENDED;
    relay_flush(relay);
}

static void take_over(struct relay *relay, struct exec *exec)
{
    struct exec *older = relay->controller;
    struct err why;
    relay->controller = exec;
    if (!older)
        return;
    (void)err_set(&why, ERR_PRECONDITION, "another client has attached to it");
    exec_fail(older, &why);
}

void relay_join(struct relay *relay, struct exec *exec)
{
    relay_enter(relay);
    DL_APPEND(relay->viewers, exec);
    exec->relay = relay;
    if (!exec->watches) {
        loop_timer_stop(relay->alone);
        relay->return_until_us = 0;
        take_over(relay, exec);
        audience_changed(relay);
    }
    relay_exit(relay);
}

/* A start that still waits for the runner has a policy too. */
static void left_alone(struct relay *relay)
{
    CLEANUP_WIRE ProtobufCMessage *message = NULL;
    struct err err;
    if (!relay->due.start || !relay->spec ||
        wire_unpack(&sandstorm__v1__command_spec__descriptor, relay->spec, relay->spec_size,
                    &message, &err) < 0)
        return;
    const Sandstorm__V1__CommandSpec *spec = (const Sandstorm__V1__CommandSpec *)message;
    if (spec->client_gone == SANDSTORM__V1__CLIENT_GONE_POLICY__CLIENT_GONE_POLICY_KILL_AFTER)
        loop_timer_start(relay->alone, spec->client_gone_after_ms * 1000);
}

static void on_alone(void *userdata)
{
    struct relay *relay = userdata;
    if (!relay->due.start) {
        audience_changed(relay); /* nobody has come back */
        return;
    }
    relay_enter(relay);
    relay->due.start = false;
    relay->unknown_there = true;
    history_give_up(relay->orchestrator->history, &relay->id);
    relay_lost(relay, &history_never_started);
    relay_exit(relay);
}

void relay_leave(struct relay *relay, struct exec *exec)
{
    relay_enter(relay);
    DL_DELETE(relay->viewers, exec);
    exec->relay = NULL;
    if (relay->controller == exec) {
        relay->controller = NULL;
        left_alone(relay);
        audience_changed(relay);
        relay_grant(relay); /* nobody's pace counts any more */
    }
    relay_exit(relay);
}

/* The ledger. */

static void on_ledger(void *userdata)
{
    struct relay *relay = userdata;
    relay_enter(relay);
    if (ledger_stuck(relay->ledger) != relay->stuck_said) {
        relay->stuck_said = !relay->stuck_said;
        if (relay->stuck_said)
            relay_notice(relay, SANDSTORM__V1__EXEC_NOTICE_KIND__EXEC_NOTICE_KIND_STORE_STUCK,
                         "the orchestrator cannot write down the output at present; the command "
                         "goes on until its spool is full");
        else
            relay_notice(relay, SANDSTORM__V1__EXEC_NOTICE_KIND__EXEC_NOTICE_KIND_STORE_BACK,
                         "the orchestrator writes down the output again");
    }
    relay_grant(relay);
    relay_pump(relay); /* lets go of memory that nobody needs */
    relay_exit(relay);
}

/* Life. */

static int new_bare(struct orchestrator *orchestrator, struct sandbox *sandbox,
                    const struct command_id *id, uint64_t gone, struct relay **ret, struct err *err)
{
    struct relay *relay = calloc(1, sizeof(*relay));
    if (!relay)
        return err_nomem(err);
    const struct ledger_owner owner = { on_ledger, relay };
    relay->orchestrator = orchestrator;
    relay->id = *id;
    buf_init(&relay->input, RELAY_STDIN_MAX);
    if (loop_timer_new(orchestrator->loop, on_alone, relay, &relay->alone, err) < 0 ||
        ledger_new(orchestrator, id, gone, &owner, &relay->ledger, err) < 0) {
        loop_timer_free(relay->alone);
        free(relay);
        return -1;
    }
    relay->granted = relay->taken = ledger_end(relay->ledger);
    relay->listed_end = UINT64_MAX;
    relay->sandbox = sandbox;
    if (sandbox)
        DL_APPEND(sandbox->relays, relay);
    HASH_ADD_KEYPTR(hh, orchestrator->relays, relay->id.text, COMMAND_ID_LEN, relay);
    *ret = relay;
    return 0;
}

int relay_new_start(struct orchestrator *orchestrator, struct sandbox *sandbox,
                    const struct command_id *id, const uint8_t digest[RELAY_DIGEST_LEN],
                    uint8_t *spec, size_t size, struct relay **ret, struct err *err)
{
    struct relay *relay;
    if (new_bare(orchestrator, sandbox, id, 0, &relay, err) < 0)
        return -1;
    relay->spec = spec;
    relay->spec_size = size;
    (void)memcpy(relay->digest, digest, sizeof(relay->digest));
    relay->due.start = true;
    *ret = relay;
    return 0;
}

bool relay_offer_spec(struct relay *relay, const uint8_t digest[RELAY_DIGEST_LEN], uint8_t *spec,
                      size_t size)
{
    if (relay->state != RELAY_PENDING || relay->spec)
        return false;
    relay->spec = spec;
    relay->spec_size = size;
    (void)memcpy(relay->digest, digest, sizeof(relay->digest));
    return true;
}

int relay_new_known(struct orchestrator *orchestrator, struct sandbox *sandbox,
                    const struct command_record *record, struct relay **ret, struct err *err)
{
    struct command_id id;
    struct relay *relay;
    const uint8_t *outcome = record->outcome;
    size_t size = record->outcome_size;
    uint64_t end_offset = record->end_offset;
    (void)memcpy(id.text, record->id, sizeof(id.text));
    bool ended = record->ended_ms != 0;
    /* On its way to the store, perhaps. */
    bool known =
        ended || history_pending_end(orchestrator->history, &id, &outcome, &size, &end_offset);
    if (new_bare(orchestrator, sandbox, &id, ended ? end_offset : 0, &relay, err) < 0)
        return -1;
    (void)memcpy(relay->digest, record->digest, sizeof(relay->digest));
    relay->end_written = ended;
    relay->return_until_us = monotonic_us() + RELAY_RETURN_US;
    loop_timer_start(relay->alone, RELAY_RETURN_US);
    relay->state = record->started_ms || known ? RELAY_RUNNING : RELAY_PENDING;
    relay->asking = true;
    relay->due.attach = true;
    relay_enter(relay);
    int r = known ? relay_keep_result(relay, outcome, size, end_offset, err) : 0;
    if (r == 0 && known && ledger_end(relay->ledger) >= relay->result->end_offset) {
        relay->let_go = ended; /* the runner was told, or is told when it lists it */
        relay_close(relay);
    }
    relay->busy--; /* it is the caller's, who joins it */
    if (r < 0)
        relay_free(relay);
    else
        *ret = relay;
    return r;
}

const struct command_id *relay_id(const struct relay *relay)
{
    return &relay->id;
}

void relay_kick(struct relay *relay)
{
    relay_flush(relay);
}

void relay_describe(const struct relay *relay, Sandstorm__V1__Command *message)
{
    const struct exec *exec;
    const Sandstorm__V1__Started *started = relay_started(relay);
    message->stored_from = ledger_first(relay->ledger);
    message->stored_to = ledger_end(relay->ledger);
    message->terminal = started && started->terminal;
    DL_FOREACH (relay->viewers, exec)
        message->clients++;
}
