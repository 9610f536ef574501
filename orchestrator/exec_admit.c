/* The open message of an Exec: may this client run this in that sandbox? The answer is in the audit
 * and in the history before the command is ordered, or before it is refused; until then the stream
 * waits. Called by orchestrator/exec.c; next: orchestrator/exec_orders.c sends the start. */
#include "orchestrator/exec-internal.h"

#include "common/clock.h"
#include "common/wire.h"
#include "orchestrator/access.h"
#include "orchestrator/audit.h"
#include "orchestrator/logbook.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

/* Outlives an exec whose client goes away while the row is being written. */
struct exec_admission {
    struct exec *exec;
    struct orchestrator *orchestrator;
    struct err denied; /* ERR_NONE: it was allowed */
};

void exec_admit_forget(struct exec *exec)
{
    if (exec->admission)
        exec->admission->exec = NULL;
    exec->admission = NULL;
}

static int keep_spec(struct exec *exec, const Sandstorm__V1__CommandSpec *spec, struct err *err)
{
    if (wire_pack(&spec->base, &exec->spec, &exec->spec_size, err) < 0)
        return -1;
    (void)SHA256(exec->spec, exec->spec_size, exec->digest);
    /* It travels on inside a frame inside a message, whose fields count too. */
    return wire_scan_within(&sandstorm__v1__command_spec__descriptor, exec->spec, exec->spec_size,
                            WIRE_FIELDS_MAX - EXEC_FIELDS_AROUND, err);
}

/* A second client with the same command id takes over; the first is told. One that means another
 * command by that id takes nothing from anybody. */
static int supersede(struct exec *exec, struct sandbox *sandbox, struct err *err)
{
    struct exec *older = exec_find(sandbox, &exec->id);
    if (!older)
        return 0;
    if (memcmp(older->digest, exec->digest, sizeof(exec->digest)) != 0)
        return err_set(err, ERR_EXISTS,
                       "command %s: this id is taken by a different command; use a new one",
                       exec->id.text);
    struct err why;
    (void)err_set(&why, ERR_PRECONDITION, "another client has attached to it");
    /* Records that were granted to it may be on their way. */
    exec->granted = older->granted;
    exec->asking = older->asking;
    exec_close_stream(older, &why);
    return 0;
}

/* Commands that it has already may be attached to. */
static int check_draining(const struct sandbox *sandbox, struct err *err)
{
    if (sandbox->draining)
        return err_set(err, ERR_PRECONDITION,
                       "sandbox \"%s\" is draining and takes no new commands; use another one, or "
                       "end it with 'sandstorm undrain %s'",
                       sandbox->id, sandbox->id);
    return 0;
}

static int check_standing(const struct sandbox *sandbox, struct err *err)
{
    if (sandbox->revoked_ms)
        return err_set(err, ERR_DENIED,
                       "sandbox \"%s\" was revoked; a token from 'sandstorm token create --sandbox "
                       "%s' lets it join again",
                       sandbox->id, sandbox->id);
    return 0;
}

static int check_reachable(const struct sandbox *sandbox, struct err *err)
{
    char span[CLOCK_SPAN_TEXT_MAX];
    if (!sandbox->session && !sandbox->last_seen_ms)
        return err_set(err, ERR_UNAVAILABLE,
                       "sandbox \"%s\" is offline, and has never been connected; start "
                       "sandstorm-agent in its VM",
                       sandbox->id);
    clock_span_text((wall_ms() - sandbox->last_seen_ms) / 1000, span);
    if (!sandbox->session)
        return err_set(err, ERR_UNAVAILABLE,
                       "sandbox \"%s\" is %s (last seen %s ago); check its VM and its "
                       "sandstorm-agent, 'sandstorm why %s' says what is known",
                       sandbox->id, sandbox->member.state == FLEET_EVICTED ? "evicted" : "offline",
                       span, sandbox->id);
    if (!sandbox->runner_connected)
        return err_set(err, ERR_UNAVAILABLE,
                       "sandbox \"%s\" is online, but no sandstorm-runner is running there",
                       sandbox->id);
    return 0;
}

/* May something new be started there? */
static int check_new(const struct sandbox *sandbox, struct err *err)
{
    return check_reachable(sandbox, err) < 0 || check_draining(sandbox, err) < 0 ? -1 : 0;
}

/* How it ended, if that is known: from the store, or on the way to it. */
static int take_result(struct exec *exec, enum history_verdict verdict,
                       const struct command_record *record, struct err *err)
{
    const uint8_t *outcome;
    size_t size;
    uint64_t end_offset;
    if (verdict == HISTORY_ENDED)
        return exec_keep_result(exec, record->outcome, record->outcome_size, record->end_offset,
                                err);
    if (history_pending_end(exec->orchestrator->history, &exec->id, &outcome, &size, &end_offset))
        return exec_keep_result(exec, outcome, size, end_offset, err);
    return 0;
}

static void accept(struct exec *exec)
{
    Sandstorm__V1__ExecAccepted accepted = SANDSTORM__V1__EXEC_ACCEPTED__INIT;
    accepted.command_id = exec->id.text;
    Sandstorm__V1__ExecResponse response = SANDSTORM__V1__EXEC_RESPONSE__INIT;
    response.kind_case = SANDSTORM__V1__EXEC_RESPONSE__KIND_ACCEPTED;
    response.accepted = &accepted;
    exec_reply(exec, &response);
}

/* It is written down: into the sandbox's table, and on its way. The sandbox is looked up again,
 * because a turn of the loop or two have passed. A command that has ended is never started: who
 * wants output that the runner may still have is attached, everybody else is answered here. */
static int order(struct exec *exec, enum history_verdict verdict,
                 const struct command_record *record, struct err *err)
{
    struct sandbox *sandbox;
    if (take_result(exec, verdict, record, err) < 0)
        return -1;
    if (verdict == HISTORY_NEW && exec->received > 0)
        return err_set(
            err, ERR_INVALID,
            "a new command begins at offset 0; only one that is known can be attached to "
            "further on");
    bool complete = exec->result && exec->result->end_offset <= exec->received;
    if (access_sandbox(exec->orchestrator, rpc_call_peer(exec->call), exec->sandbox_id, &sandbox,
                       err) < 0 ||
        check_standing(sandbox, err) < 0 || (!complete && check_reachable(sandbox, err) < 0) ||
        (verdict == HISTORY_NEW && check_draining(sandbox, err) < 0) ||
        supersede(exec, sandbox, err) < 0)
        return -1;
    exec_take_up(sandbox, &exec->id);
    history_take_up(exec->orchestrator->history, &exec->id);
    exec->sandbox = sandbox;
    HASH_ADD_KEYPTR(hh, sandbox->execs, exec->id.text, COMMAND_ID_LEN, exec);
    exec->due.start = !exec->result;
    exec->due.attach = exec->result;
    exec_set_state(exec, EXEC_PENDING);
    if (verdict == HISTORY_NEW)
        LOGBOOK_EVENT(exec->orchestrator, LOG_LEVEL_INFO, &event_command_ordered, sandbox->id,
                      exec->id.text, LF_STR("client", record->ordered_by));
    else
        log_info("command attached to", LF_STR("command", exec->id.text),
                 LF_STR("sandbox", sandbox->id), LF_STR("client", rpc_call_peer(exec->call)->name));
    accept(exec);
    if (complete && exec->state == EXEC_PENDING)
        exec_answer(exec);
    else
        exec_flush(exec);
    return 0;
}

/* A command that is not known cannot be attached to; why it cannot be started, was found before. */
static int refuse_new(const struct exec *exec, struct err *err)
{
    struct sandbox *sandbox;
    if (access_sandbox(exec->orchestrator, rpc_call_peer(exec->call), exec->sandbox_id, &sandbox,
                       err) < 0 ||
        check_new(sandbox, err) < 0)
        return -1;
    return err_set(err, ERR_UNAVAILABLE, "sandbox \"%s\" has just come back; try again",
                   exec->sandbox_id);
}

static int judge(struct exec *exec, enum history_verdict verdict,
                 const struct command_record *record, struct err *err)
{
    if (verdict == HISTORY_NONE)
        return refuse_new(exec, err);
    if (verdict == HISTORY_TAKEN)
        return err_set(err, ERR_EXISTS,
                       "command %s: this id is taken by a different command; use a new one",
                       exec->id.text);
    if (order(exec, verdict, record, err) == 0)
        return 0;
    if (verdict == HISTORY_NEW)
        history_give_up(exec->orchestrator->history, &exec->id);
    return -1;
}

static struct exec *take_exec(struct exec_admission *admission)
{
    struct exec *exec = admission->exec;
    free(admission);
    if (exec)
        exec->admission = NULL;
    /* It may have been ended meanwhile. */
    return exec && exec->state == EXEC_ADMITTING ? exec : NULL;
}

static void on_admitted(void *userdata, enum history_verdict verdict,
                        const struct command_record *record, const struct err *failed)
{
    struct exec_admission *admission = userdata;
    struct orchestrator *orchestrator = admission->orchestrator;
    struct exec *exec = take_exec(admission);
    struct err err = { 0 };
    if (!exec && !failed && verdict == HISTORY_NEW) {
        struct command_id id;
        (void)memcpy(id.text, record->id, sizeof(id.text));
        history_give_up(orchestrator->history, &id);
    }
    if (!exec)
        return;
    if (failed)
        exec_fail(exec, failed);
    else if (judge(exec, verdict, record, &err) < 0)
        exec_fail(exec, &err);
}

static void on_denied(void *userdata, const struct err *failed)
{
    struct exec_admission *admission = userdata;
    struct err denied = admission->denied;
    struct exec *exec = take_exec(admission);
    (void)failed; /* it is denied either way */
    if (exec)
        exec_fail(exec, &denied);
}

/* Which command, and what it was, for those who have it: the text may hold secrets. */
#define DETAIL_MAX (COMMAND_ID_LEN + 2 * EXEC_DIGEST_LEN + 32)

static void describe(const struct exec *exec, char ret[DETAIL_MAX])
{
    int n = snprintf(ret, DETAIL_MAX, "%s spec sha256:", exec->id.text);
    for (unsigned i = 0; i < EXEC_DIGEST_LEN && n > 0; i++, n += 2)
        (void)snprintf(ret + n, DETAIL_MAX - (size_t)n, "%02x", exec->digest[i]);
}

static void fill_record(const struct exec *exec, const char *actor, const char *labels,
                        struct command_record *ret)
{
    const struct sandbox *sandbox = registry_find(exec->orchestrator->registry, exec->sandbox_id);
    (void)memcpy(ret->id, exec->id.text, sizeof(ret->id));
    (void)memcpy(ret->digest, exec->digest, sizeof(ret->digest));
    (void)snprintf(ret->sandbox_id, sizeof(ret->sandbox_id), "%s", exec->sandbox_id);
    (void)snprintf(ret->ordered_by, sizeof(ret->ordered_by), "%s", actor);
    (void)snprintf(ret->labels, sizeof(ret->labels), "%s", labels ? labels : "");
    (void)snprintf(ret->runner, sizeof(ret->runner), "%s", sandbox ? sandbox->runner_instance : "");
    ret->ordered_ms = wall_ms();
}

static int write_down(struct exec *exec, const char *labels, const struct err *denied, bool known,
                      struct err *err)
{
    struct exec_admission *admission = calloc(1, sizeof(*admission));
    struct command_record record = { 0 };
    char actor[ACCESS_ACTOR_MAX], detail[DETAIL_MAX];
    if (!admission)
        return err_nomem(err);
    bool allowed = denied->code == ERR_NONE;
    admission->exec = exec;
    admission->orchestrator = exec->orchestrator;
    admission->denied = *denied;
    access_actor(rpc_call_peer(exec->call), actor);
    describe(exec, detail);
    const struct audit_entry entry = {
        .actor = actor,
        .action = "command.start",
        .target = exec->sandbox_id,
        .allowed = allowed,
        .detail = allowed ? detail : denied->text,
    };
    fill_record(exec, actor, labels, &record);
    exec->admission = admission;
    exec_set_state(exec, EXEC_ADMITTING);
    rpc_call_pause(exec->call);
    int r = allowed ? history_admit(exec->orchestrator->history, &entry, &record, known,
                                    on_admitted, admission, err)
                    : audit_write(exec->orchestrator, &entry, on_denied, admission, err);
    if (r == 0)
        return 0;
    exec->admission = NULL;
    free(admission);
    return -1;
}

int exec_admit(struct exec *exec, const Sandstorm__V1__ExecRequest *request, struct err *err)
{
    const Sandstorm__V1__ExecOpen *open = request->open;
    struct sandbox *sandbox;
    struct err denied = { 0 };
    CLEANUP_FREE char *labels = NULL;
    if (exec->state != EXEC_NEW)
        return err_set(err, ERR_INVALID, "open may only be the first message");
    if (!open->spec)
        return err_set(err, ERR_INVALID, "open has no spec");
    if (sandbox_id_check(open->sandbox_id, err) < 0)
        return -1;
    (void)snprintf(exec->sandbox_id, sizeof(exec->sandbox_id), "%s", open->sandbox_id);
    int r = *open->command_id ? command_id_parse(open->command_id, &exec->id, err)
                              : command_id_new(&exec->id, err);
    if (r < 0 || keep_spec(exec, open->spec, err) < 0 ||
        label_messages_read(open->spec->labels, open->spec->n_labels, &labels, err) < 0)
        return -1;
    exec->received = exec->acked = open->from_offset;
    exec->client_limit = open->limit;
    exec->grants_itself = open->server_credit;
    /* What cannot be reached is said at once; it is nobody's decision. But a command of that id may
     * be known, and how it ended too. */
    bool known = access_sandbox(exec->orchestrator, rpc_call_peer(exec->call), exec->sandbox_id,
                                &sandbox, &denied) == 0 &&
                 check_standing(sandbox, &denied) == 0 && check_new(sandbox, err) < 0;
    if (known && !*open->command_id)
        return -1;
    return write_down(exec, labels, &denied, known, err);
}
