/* The decision about a command: asked by orchestrator/exec.c and
 * orchestrator/control_command_start.c, written down in the audit and in the history, and only then
 * made. next: orchestrator/relay.c follows the command, orchestrator/relay_orders.c sends the
 * start. */
#include "orchestrator/admission.h"

#include "common/clock.h"
#include "common/wire.h"
#include "orchestrator/access.h"
#include "orchestrator/audit.h"
#include "orchestrator/command_lookup.h"
#include "orchestrator/history.h"
#include "orchestrator/label_messages.h"
#include "orchestrator/logbook.h"
#include "orchestrator/orchestrator-internal.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

/* Outlives whoever asked, while the row is being written. */
struct admission {
    struct orchestrator *orchestrator;
    struct identity peer;
    char actor[ACCESS_ACTOR_MAX];
    char sandbox_id[SANDBOX_ID_MAX + 1];
    struct command_id id;
    uint8_t *spec; /* packed */
    size_t spec_size;
    uint8_t digest[STORE_DIGEST_LEN];
    uint64_t from_offset;
    struct err denied;  /* ERR_NONE: it was allowed */
    const char *action; /* of an attach, for the audit */
    struct relay *relay;
    admission_done done; /* NULL: nobody waits any more */
    void *userdata;
};

void admission_forget(struct admission *admission)
{
    if (admission)
        admission->done = NULL;
}

static void admission_free(struct admission *admission)
{
    free(admission->spec);
    free(admission);
}

static int keep_spec(struct admission *admission, const Sandstorm__V1__CommandSpec *spec,
                     struct err *err)
{
    if (wire_pack(&spec->base, &admission->spec, &admission->spec_size, err) < 0)
        return -1;
    (void)SHA256(admission->spec, admission->spec_size, admission->digest);
    /* It travels on inside a frame inside a message, whose fields count too. */
    return wire_scan_within(&sandstorm__v1__command_spec__descriptor, admission->spec,
                            admission->spec_size, WIRE_FIELDS_MAX - ADMISSION_FIELDS_AROUND, err);
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

/* Ordering. */

static int find_relay(struct admission *admission, enum history_verdict verdict,
                      const struct command_record *record, struct relay **ret, struct err *err)
{
    struct orchestrator *orchestrator = admission->orchestrator;
    struct sandbox *sandbox;
    if (access_sandbox(orchestrator, &admission->peer, admission->sandbox_id, &sandbox, err) < 0 ||
        check_standing(sandbox, err) < 0)
        return -1;
    if (verdict == HISTORY_NEW) {
        if (check_new(sandbox, err) < 0 ||
            relay_new_start(orchestrator, sandbox, &admission->id, admission->digest,
                            admission->spec, admission->spec_size, ret, err) < 0)
            return -1;
        admission->spec = NULL; /* the relay's */
        LOGBOOK_EVENT(orchestrator, LOG_LEVEL_INFO, &event_command_ordered, sandbox->id,
                      admission->id.text, LF_STR("client", admission->actor));
        return 0;
    }
    *ret = relay_find(orchestrator, &admission->id);
    if (!*ret && relay_new_known(orchestrator, sandbox, record, ret, err) < 0)
        return -1;
    if (relay_offer_spec(*ret, admission->digest, admission->spec, admission->spec_size))
        admission->spec = NULL;
    return 0;
}

/* It is written down. The sandbox is looked up again, because a turn of the loop or two have
 * passed. A command that has ended is never started. */
static int order(struct admission *admission, enum history_verdict verdict,
                 const struct command_record *record, struct relay **ret, struct err *err)
{
    if (verdict == HISTORY_NEW && admission->from_offset > 0)
        return err_set(
            err, ERR_INVALID,
            "a new command begins at offset 0; only one that is known can be attached to "
            "further on");
    return find_relay(admission, verdict, record, ret, err);
}

/* A command that is not known cannot be attached to; why it cannot be started, was found before. */
static int refuse_new(const struct admission *admission, struct err *err)
{
    struct sandbox *sandbox;
    if (access_sandbox(admission->orchestrator, &admission->peer, admission->sandbox_id, &sandbox,
                       err) < 0 ||
        check_new(sandbox, err) < 0)
        return -1;
    return err_set(err, ERR_UNAVAILABLE, "sandbox \"%s\" has just come back; try again",
                   admission->sandbox_id);
}

static int judge(struct admission *admission, enum history_verdict verdict,
                 const struct command_record *record, struct relay **ret, struct err *err)
{
    if (verdict == HISTORY_NONE)
        return refuse_new(admission, err);
    if (verdict == HISTORY_TAKEN)
        return err_set(err, ERR_EXISTS,
                       "command %s: this id is taken by a different command; use a new one",
                       admission->id.text);
    if (order(admission, verdict, record, ret, err) == 0)
        return 0;
    if (verdict == HISTORY_NEW)
        history_give_up(admission->orchestrator->history, &admission->id);
    return -1;
}

static void on_admitted(void *userdata, enum history_verdict verdict,
                        const struct command_record *record, const struct err *failed)
{
    struct admission *admission = userdata;
    struct relay *relay = NULL;
    struct err err = { 0 };
    if (!admission->done) {
        if (!failed && verdict == HISTORY_NEW)
            history_give_up(admission->orchestrator->history, &admission->id);
    } else if (failed) {
        admission->done(admission->userdata, NULL, false, failed);
    } else if (judge(admission, verdict, record, &relay, &err) < 0) {
        admission->done(admission->userdata, NULL, false, &err);
    } else {
        relay_enter(relay);
        admission->done(admission->userdata, relay, verdict != HISTORY_NEW, NULL);
        relay_exit(relay);
    }
    admission_free(admission);
}

static void on_denied(void *userdata, const struct err *failed)
{
    struct admission *admission = userdata;
    (void)failed; /* it is denied either way */
    if (admission->done)
        admission->done(admission->userdata, NULL, false, &admission->denied);
    admission_free(admission);
}

/* Writing down. */

/* Which command, and what it was, for those who have it: the text may hold secrets. */
#define DETAIL_MAX (COMMAND_ID_LEN + 2 * STORE_DIGEST_LEN + 32)

static void describe(const struct admission *admission, char ret[DETAIL_MAX])
{
    int n = snprintf(ret, DETAIL_MAX, "%s spec sha256:", admission->id.text);
    for (unsigned i = 0; i < STORE_DIGEST_LEN && n > 0; i++, n += 2)
        (void)snprintf(ret + n, DETAIL_MAX - (size_t)n, "%02x", admission->digest[i]);
}

static void fill_record(const struct admission *admission, const char *labels,
                        struct command_record *ret)
{
    const struct sandbox *sandbox =
        registry_find(admission->orchestrator->registry, admission->sandbox_id);
    (void)memcpy(ret->id, admission->id.text, sizeof(ret->id));
    (void)memcpy(ret->digest, admission->digest, sizeof(ret->digest));
    (void)memcpy(ret->sandbox_id, admission->sandbox_id, sizeof(ret->sandbox_id));
    (void)snprintf(ret->ordered_by, sizeof(ret->ordered_by), "%s", admission->actor);
    (void)snprintf(ret->labels, sizeof(ret->labels), "%s", labels ? labels : "");
    (void)snprintf(ret->runner, sizeof(ret->runner), "%s", sandbox ? sandbox->runner_instance : "");
    ret->ordered_ms = wall_ms();
}

static int write_down(struct admission *admission, const char *labels, bool known, struct err *err)
{
    struct command_record record = { 0 };
    char detail[DETAIL_MAX];
    bool allowed = admission->denied.code == ERR_NONE;
    describe(admission, detail);
    const struct audit_entry entry = {
        .actor = admission->actor,
        .action = "command.start",
        .target = admission->sandbox_id,
        .allowed = allowed,
        .detail = allowed ? detail : admission->denied.text,
    };
    fill_record(admission, labels, &record);
    return allowed ? history_admit(admission->orchestrator->history, &entry, &record, known,
                                   on_admitted, admission, err)
                   : audit_write(admission->orchestrator, &entry, on_denied, admission, err);
}

static struct admission *admission_new(struct orchestrator *orchestrator,
                                       const struct identity *peer, admission_done done,
                                       void *userdata, struct err *err)
{
    struct admission *admission = calloc(1, sizeof(*admission));
    if (!admission) {
        (void)err_nomem(err);
        return NULL;
    }
    admission->orchestrator = orchestrator;
    admission->peer = *peer;
    admission->done = done;
    admission->userdata = userdata;
    access_actor(peer, admission->actor);
    return admission;
}

static int begin(struct admission *admission, const struct admission_request *request,
                 struct err *err)
{
    CLEANUP_FREE char *labels = NULL;
    struct sandbox *sandbox;
    if (!request->spec)
        return err_set(err, ERR_INVALID, "a command needs a spec");
    if (sandbox_id_check(request->sandbox_id, err) < 0)
        return -1;
    (void)snprintf(admission->sandbox_id, sizeof(admission->sandbox_id), "%s", request->sandbox_id);
    admission->from_offset = request->from_offset;
    int r = *request->command_id ? command_id_parse(request->command_id, &admission->id, err)
                                 : command_id_new(&admission->id, err);
    if (r < 0 || keep_spec(admission, request->spec, err) < 0 ||
        label_messages_read(request->spec->labels, request->spec->n_labels, &labels, err) < 0)
        return -1;
    /* What cannot be reached is said at once; it is nobody's decision. But a command of that id may
     * be known, and how it ended too. */
    bool known = access_sandbox(admission->orchestrator, &admission->peer, admission->sandbox_id,
                                &sandbox, &admission->denied) == 0 &&
                 check_standing(sandbox, &admission->denied) == 0 && check_new(sandbox, err) < 0;
    if (known && !*request->command_id)
        return -1;
    return write_down(admission, labels, known, err);
}

int admission_start(struct orchestrator *orchestrator, const struct admission_request *request,
                    admission_done done, void *userdata, struct admission **ret, struct err *err)
{
    struct admission *admission = admission_new(orchestrator, request->peer, done, userdata, err);
    if (!admission)
        return -1;
    /* done() may come before this returns. */
    *ret = admission;
    if (begin(admission, request, err) == 0)
        return 0;
    *ret = NULL;
    admission_free(admission);
    return -1;
}

/* Attaching. */

static void on_attach_written(void *userdata, const struct err *failed)
{
    struct admission *admission = userdata;
    struct relay *relay = admission->relay;
    if (admission->done)
        admission->done(admission->userdata, failed ? NULL : relay, true, failed);
    relay_exit(relay);
    admission_free(admission);
}

static int attach(struct admission *admission, const struct command_record *record,
                  struct sandbox *sandbox, struct err *err)
{
    struct orchestrator *orchestrator = admission->orchestrator;
    const struct audit_entry entry = {
        .actor = admission->actor,
        .action = admission->action,
        .target = record->sandbox_id,
        .allowed = true,
        .detail = record->id,
    };
    if (!record->ended_ms && sandbox && check_standing(sandbox, err) < 0)
        return -1;
    (void)memcpy(admission->id.text, record->id, sizeof(record->id));
    admission->relay = relay_find(orchestrator, &admission->id);
    if (!admission->relay &&
        relay_new_known(orchestrator, sandbox, record, &admission->relay, err) < 0)
        return -1;
    relay_enter(admission->relay);
    if (audit_write(orchestrator, &entry, on_attach_written, admission, err) == 0)
        return 0;
    relay_exit(admission->relay);
    return -1;
}

static void on_looked_up(void *userdata, const struct command_record *record,
                         struct sandbox *sandbox, const struct err *failed)
{
    struct admission *admission = userdata;
    struct err err;
    if (!failed && admission->done && attach(admission, record, sandbox, &err) == 0)
        return;
    if (admission->done)
        admission->done(admission->userdata, NULL, false, failed ? failed : &err);
    admission_free(admission);
}

int admission_attach(struct orchestrator *orchestrator, const struct identity *peer,
                     const char *command_id, const char *action, admission_done done,
                     void *userdata, struct admission **ret, struct err *err)
{
    struct admission *admission = admission_new(orchestrator, peer, done, userdata, err);
    if (!admission)
        return -1;
    admission->action = action;
    *ret = admission;
    if (command_look_up(orchestrator, peer, command_id, on_looked_up, admission, err) == 0)
        return 0;
    *ret = NULL;
    admission_free(admission);
    return -1;
}
