/* Between orchestrator/fleet.c, which judges, and everything that a judgement means: the session is
 * cut, the event is raised, the store takes a note, and those who watch are woken. Called by
 * orchestrator/session.c and by those who change sandboxes. */
#include "orchestrator/liveness.h"

#include "common/clock.h"
#include "orchestrator/events.h"
#include "orchestrator/logbook.h"
#include "orchestrator/orchestrator-internal.h"
#include "orchestrator/session.h"

#include <stdio.h>
#include <string.h>

/* A store that has been at one batch for so long is stuck, and we cannot judge anybody. */
#define STORE_STUCK_US 2000000u
/* How old the stored last-seen times may get while nothing else changes. */
#define SEEN_PERIOD_US 300000000u
#define SEEN_BATCH     256u

/* Notes for the store. */

struct note_job {
    struct store_job job;
    char id[SANDBOX_ID_MAX + 1];
    struct sandbox_note note;
};

static int note_work(struct store_job *job, struct store_tx *tx, struct err *err)
{
    const struct note_job *note = CONTAINER_OF(job, struct note_job, job);
    return store_sandbox_note(tx, note->id, &note->note, err);
}

/* One that was removed meanwhile needs no note; what else fails is mended by the next one. */
static void note_done(struct store_job *job)
{
    const struct note_job *note = CONTAINER_OF(job, struct note_job, job);
    if (job->result < 0 && job->err.code != ERR_NOT_FOUND)
        log_warn("how a sandbox is could not be stored", LF_STR("sandbox", note->id),
                 LF_ERR(&job->err));
    free((void *)note);
}

/* False when the store has no room now. */
static bool note(struct orchestrator *orchestrator, struct sandbox *sandbox)
{
    struct err err = { 0 };
    struct note_job *job = calloc(1, sizeof(*job));
    if (!job)
        return false;
    (void)memcpy(job->id, sandbox->id, sizeof(job->id));
    sandbox_note(sandbox, &job->note);
    job->job.work = note_work;
    job->job.done = note_done;
    sandbox->seen_unnoted = false;
    if (store_submit(orchestrator->store, &job->job, &err) == 0)
        return true;
    /* A whole fleet has come at once; the next ticks make up for it. */
    sandbox->seen_unnoted = true;
    orchestrator->noted_us = 0;
    free(job);
    return false;
}

/* Heartbeats write nothing. But after a crash nobody should look as if it had been silent for
 * months. */
static void note_seen(struct orchestrator *orchestrator)
{
    uint64_t now = monotonic_us();
    if (orchestrator->noted_us && now - orchestrator->noted_us < SEEN_PERIOD_US)
        return;
    unsigned left = SEEN_BATCH;
    for (struct sandbox *one = registry_any(orchestrator->registry); one; one = one->hh.next) {
        if (!one->seen_unnoted)
            continue;
        if (left-- == 0 || !note(orchestrator, one))
            return; /* the rest with the next ticks */
    }
    orchestrator->noted_us = now;
}

/* Changes. */

void liveness_changed(struct orchestrator *orchestrator, struct sandbox *sandbox)
{
    fleet_excuse(orchestrator->fleet, &sandbox->member, sandbox->draining || sandbox->revoked_ms);
    changes_note(&orchestrator->changes, &sandbox->change);
    changes_note(&orchestrator->beats, &sandbox->beat);
}

static void on_evicted(struct orchestrator *orchestrator, const struct sandbox *sandbox)
{
    char detail[STORE_TEXT_MAX], span[CLOCK_SPAN_TEXT_MAX];
    clock_span_text((wall_ms() - sandbox->last_seen_ms) / 1000, span);
    (void)snprintf(detail, sizeof(detail),
                   "silent for %s; it takes no commands until its agent is back", span);
    event_note(orchestrator, sandbox->id, "evicted", detail);
}

static void on_changed(void *userdata, struct fleet_member *member, enum fleet_state from)
{
    struct orchestrator *orchestrator = userdata;
    struct sandbox *sandbox = CONTAINER_OF(member, struct sandbox, member);
    sandbox->state_ms = wall_ms();
    LOGBOOK_EVENT(orchestrator, LOG_LEVEL_INFO, &event_sandbox_state, sandbox->id, NULL,
                  LF_STR("from", fleet_state_name(from)),
                  LF_STR("to", fleet_state_name(member->state)),
                  LF_INT("silent_ms", wall_ms() - sandbox->last_seen_ms));
    if (member->state == FLEET_EVICTED)
        on_evicted(orchestrator, sandbox);
    if (from == FLEET_EVICTED)
        event_note(orchestrator, sandbox->id, "returned", "it was evicted, and its agent is back");
    if (!orchestrator->stopping) /* whoever was online then, is suspect to our successor */
        (void)note(orchestrator, sandbox);
    liveness_changed(orchestrator, sandbox);
    /* A stream that is there and says nothing is half-open, or its agent hangs. */
    if (member->state == FLEET_OFFLINE && sandbox->session)
        session_cut(sandbox->session);
}

/* In the amnesty most of the fleet may well be silent, and nobody is evicted anyway. */
static void say_braked(struct orchestrator *orchestrator)
{
    bool on = fleet_braked(orchestrator->fleet) && fleet_amnesty_left_us(orchestrator->fleet) == 0;
    if (on == orchestrator->brake_said)
        return;
    orchestrator->brake_said = on;
    unsigned silent = fleet_count(orchestrator->fleet, FLEET_SUSPECT) +
                      fleet_count(orchestrator->fleet, FLEET_OFFLINE);
    unsigned online = fleet_count(orchestrator->fleet, FLEET_ONLINE);
    if (on)
        log_warn("most of the fleet is silent at once; nobody is evicted until it is back, because "
                 "the fault may be ours or the network's",
                 LF_STR("event", "brake"), LF_UINT("silent", silent), LF_UINT("online", online));
    else
        log_info("enough of the fleet is heard of to judge the rest", LF_STR("event", "brake_off"),
                 LF_UINT("silent", silent), LF_UINT("online", online));
}

static void on_paced(void *userdata, uint64_t interval_us)
{
    struct orchestrator *orchestrator = userdata;
    log_info("heartbeat interval changed", LF_UINT("interval_ms", interval_us / 1000));
    for (struct sandbox *one = registry_any(orchestrator->registry); one; one = one->hh.next)
        if (one->session)
            session_pace(one->session, interval_us / 1000);
}

/* Time. */

static void on_tick(void *userdata)
{
    struct orchestrator *orchestrator = userdata;
    bool healthy = store_busy_us(orchestrator->store) < STORE_STUCK_US;
    fleet_tick(orchestrator->fleet, monotonic_us(), healthy);
    say_braked(orchestrator);
    note_seen(orchestrator);
    loop_timer_start(orchestrator->fleet_timer, FLEET_TICK_US);
}

int liveness_new(struct orchestrator *orchestrator, const struct orchestrator_config *config,
                 struct err *err)
{
    const struct fleet_config fleet = {
        .interval_us = config->heartbeat_us,
        .slack_us = config->offline_slack_us,
        .amnesty_us = config->amnesty_us,
        .evict_us = config->evict_us,
        .changed = on_changed,
        .paced = on_paced,
        .userdata = orchestrator,
    };
    orchestrator->noted_us = monotonic_us();
    if (loop_timer_new(orchestrator->loop, on_tick, orchestrator, &orchestrator->fleet_timer, err) <
        0)
        return -1;
    return fleet_new(&fleet, monotonic_us(), &orchestrator->fleet, err);
}

void liveness_start(struct orchestrator *orchestrator)
{
    loop_timer_start(orchestrator->fleet_timer, FLEET_TICK_US);
}

void liveness_free(struct orchestrator *orchestrator)
{
    loop_timer_free(orchestrator->fleet_timer);
    fleet_free(orchestrator->fleet);
}

/* Members. */

void liveness_add(struct orchestrator *orchestrator, struct sandbox *sandbox, int state)
{
    bool known = state > FLEET_NEW && state < FLEET_STATE_COUNT_;
    sandbox->member.excused = sandbox->draining || sandbox->revoked_ms;
    fleet_add(orchestrator->fleet, &sandbox->member, known ? (enum fleet_state)state : FLEET_NEW);
    changes_note(&orchestrator->changes, &sandbox->change);
    changes_note(&orchestrator->beats, &sandbox->beat);
}

void liveness_remove(struct orchestrator *orchestrator, struct sandbox *sandbox)
{
    fleet_remove(orchestrator->fleet, &sandbox->member);
    changes_drop(&orchestrator->changes, &sandbox->change);
    changes_drop(&orchestrator->beats, &sandbox->beat);
}

void liveness_connected(struct orchestrator *orchestrator, struct sandbox *sandbox)
{
    bool was_online = sandbox->member.state == FLEET_ONLINE;
    fleet_connected(orchestrator->fleet, &sandbox->member);
    if (was_online) { /* else its new state was noted and told */
        (void)note(orchestrator, sandbox);
        liveness_changed(orchestrator, sandbox);
    }
}

void liveness_heard(struct orchestrator *orchestrator, struct sandbox *sandbox)
{
    sandbox->last_seen_ms = wall_ms();
    sandbox->seen_unnoted = true;
    fleet_heard(orchestrator->fleet, &sandbox->member);
}

void liveness_beat(struct orchestrator *orchestrator, struct sandbox *sandbox)
{
    changes_note(&orchestrator->beats, &sandbox->beat);
}

void liveness_disconnected(struct orchestrator *orchestrator, struct sandbox *sandbox)
{
    fleet_disconnected(orchestrator->fleet, &sandbox->member);
}
