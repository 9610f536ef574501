/* Owns the states of all members, the clock they are judged by, and the brake. Told of streams and
 * frames by orchestrator/session.c through orchestrator/liveness.c, which also calls fleet_tick()
 * and acts on what changes. Knows nothing of sandboxes. */
#include "orchestrator/fleet.h"

#include "common/macros.h"

#include <assert.h>
#include <stdlib.h>

struct fleet {
    struct fleet_config config;
    struct wheel wheel;
    uint64_t clock_us;   /* time in which we were well */
    uint64_t real_us;    /* of the last tick */
    uint64_t healthy_us; /* on our clock: since when without a stall */
    uint64_t interval_us;
    unsigned counts[FLEET_STATE_COUNT_];
    unsigned excused[FLEET_STATE_COUNT_];
    unsigned connected;
    bool braked;
};

static const char *const state_names[FLEET_STATE_COUNT_] = {
    [FLEET_NEW] = "new",         [FLEET_ONLINE] = "online",   [FLEET_SUSPECT] = "suspect",
    [FLEET_OFFLINE] = "offline", [FLEET_EVICTED] = "evicted",
};

static const bool transitions[FLEET_STATE_COUNT_][FLEET_STATE_COUNT_] = {
    [FLEET_NEW] = { [FLEET_ONLINE] = true },
    [FLEET_ONLINE] = { [FLEET_SUSPECT] = true },
    [FLEET_SUSPECT] = { [FLEET_ONLINE] = true, [FLEET_OFFLINE] = true },
    [FLEET_OFFLINE] = { [FLEET_ONLINE] = true, [FLEET_EVICTED] = true },
    [FLEET_EVICTED] = { [FLEET_ONLINE] = true },
};

const char *fleet_state_name(enum fleet_state state)
{
    return (unsigned)state < FLEET_STATE_COUNT_ ? state_names[state] : "unknown";
}

int fleet_new(const struct fleet_config *config, uint64_t now_us, struct fleet **ret,
              struct err *err)
{
    struct fleet *fleet = calloc(1, sizeof(*fleet));
    if (!fleet)
        return err_nomem(err);
    fleet->config = *config;
    fleet->real_us = now_us;
    fleet->interval_us = config->interval_us;
    wheel_init(&fleet->wheel, 0);
    *ret = fleet;
    return 0;
}

void fleet_free(struct fleet *fleet)
{
    free(fleet);
}

/* Deadlines. */

static uint64_t suspect_after(const struct fleet *fleet)
{
    return fleet->interval_us + fleet->interval_us / 2;
}

static uint64_t offline_after(const struct fleet *fleet)
{
    return 3 * fleet->interval_us + fleet->config.slack_us;
}

/* When the member's state is to be looked at again; UINT64_MAX: when something happens. */
static uint64_t deadline(const struct fleet *fleet, const struct fleet_member *member)
{
    switch (member->state) {
    case FLEET_ONLINE:
        return MAX(member->heard_us + suspect_after(fleet), fleet->config.amnesty_us);
    case FLEET_SUSPECT:
        return MAX(member->heard_us + offline_after(fleet), fleet->config.amnesty_us);
    case FLEET_OFFLINE:
        return MAX(member->state_us + fleet->config.evict_us, fleet->config.amnesty_us);
    default:
        return UINT64_MAX;
    }
}

static void plan(struct fleet *fleet, struct fleet_member *member)
{
    uint64_t at = deadline(fleet, member);
    if (at == UINT64_MAX)
        wheel_clear(&member->entry);
    else
        wheel_set(&fleet->wheel, &member->entry, at / FLEET_TICK_US + 1);
}

/* States. */

static void count(struct fleet *fleet, const struct fleet_member *member, int by)
{
    fleet->counts[member->state] += (unsigned)by;
    if (member->excused)
        fleet->excused[member->state] += (unsigned)by;
}

/* Those who are gone for good do not count, nor those who never came. */
static void look_at_brake(struct fleet *fleet)
{
    unsigned of[FLEET_STATE_COUNT_];
    for (unsigned i = 0; i < FLEET_STATE_COUNT_; i++)
        of[i] = fleet->counts[i] - fleet->excused[i];
    unsigned silent = of[FLEET_SUSPECT] + of[FLEET_OFFLINE];
    unsigned members = silent + of[FLEET_ONLINE];
    fleet->braked = (uint64_t)silent * 100 > (uint64_t)members * FLEET_BRAKE_PERCENT;
}

static void set_state(struct fleet *fleet, struct fleet_member *member, enum fleet_state state)
{
    enum fleet_state from = member->state;
    assert(transitions[from][state]);
    count(fleet, member, -1);
    member->state = state;
    member->state_us = fleet->clock_us;
    count(fleet, member, 1);
    plan(fleet, member);
    look_at_brake(fleet);
    if (fleet->config.changed)
        fleet->config.changed(fleet->config.userdata, member, from);
}

/* A fifth of a tolerance, so that a fleet that grows does not hear of a new interval every time. */
static void look_at_pace(struct fleet *fleet)
{
    uint64_t wanted =
        MAX(fleet->config.interval_us, (uint64_t)fleet->connected * 1000000u / FLEET_BEATS_PER_S);
    uint64_t now = fleet->interval_us;
    if (wanted <= now + now / 5 && wanted >= now - now / 5)
        return;
    fleet->interval_us = wanted;
    if (fleet->config.paced)
        fleet->config.paced(fleet->config.userdata, wanted);
}

void fleet_add(struct fleet *fleet, struct fleet_member *member, enum fleet_state last)
{
    member->state = last == FLEET_ONLINE ? FLEET_SUSPECT : last;
    member->heard_us = member->state_us = fleet->clock_us;
    count(fleet, member, 1);
    plan(fleet, member);
    look_at_brake(fleet);
}

void fleet_remove(struct fleet *fleet, struct fleet_member *member)
{
    if (member->connected)
        fleet->connected--;
    count(fleet, member, -1);
    wheel_clear(&member->entry);
    look_at_brake(fleet);
}

void fleet_excuse(struct fleet *fleet, struct fleet_member *member, bool excused)
{
    count(fleet, member, -1);
    member->excused = excused;
    count(fleet, member, 1);
    look_at_brake(fleet);
}

void fleet_connected(struct fleet *fleet, struct fleet_member *member)
{
    if (!member->connected) {
        member->connected = true;
        fleet->connected++;
        look_at_pace(fleet);
    }
    fleet_heard(fleet, member);
}

void fleet_heard(struct fleet *fleet, struct fleet_member *member)
{
    member->heard_us = fleet->clock_us;
    if (member->state != FLEET_ONLINE)
        set_state(fleet, member, FLEET_ONLINE);
}

void fleet_disconnected(struct fleet *fleet, struct fleet_member *member)
{
    if (!member->connected)
        return;
    member->connected = false;
    fleet->connected--;
    look_at_pace(fleet);
    if (member->state == FLEET_ONLINE)
        set_state(fleet, member, FLEET_SUSPECT);
}

/* Time. */

static bool may_evict(const struct fleet *fleet)
{
    return !fleet->braked && fleet->clock_us - fleet->healthy_us >= offline_after(fleet);
}

static void judge(struct fleet *fleet, struct fleet_member *member)
{
    if (fleet->clock_us < deadline(fleet, member)) {
        plan(fleet, member); /* heard of since, or the interval has changed */
        return;
    }
    switch (member->state) {
    case FLEET_ONLINE:
        set_state(fleet, member, FLEET_SUSPECT);
        break;
    case FLEET_SUSPECT:
        set_state(fleet, member, FLEET_OFFLINE);
        break;
    case FLEET_OFFLINE:
        if (may_evict(fleet))
            set_state(fleet, member, FLEET_EVICTED);
        else
            plan(fleet, member); /* at the next tick, until the brake is off */
        break;
    default:
        break;
    }
}

void fleet_tick(struct fleet *fleet, uint64_t now_us, bool healthy)
{
    uint64_t passed = now_us - MIN(fleet->real_us, now_us);
    fleet->real_us = now_us;
    if (!healthy || passed > FLEET_STALL_US) {
        /* Whoever spoke meanwhile will be heard in the next round. */
        fleet->healthy_us = fleet->clock_us;
        return;
    }
    fleet->clock_us += passed;
    struct wheel_entry *entry;
    while ((entry = wheel_next(&fleet->wheel, fleet->clock_us / FLEET_TICK_US)))
        judge(fleet, CONTAINER_OF(entry, struct fleet_member, entry));
}

uint64_t fleet_interval_us(const struct fleet *fleet)
{
    return fleet->interval_us;
}

bool fleet_braked(const struct fleet *fleet)
{
    return fleet->braked;
}

uint64_t fleet_amnesty_left_us(const struct fleet *fleet)
{
    return fleet->config.amnesty_us - MIN(fleet->config.amnesty_us, fleet->clock_us);
}

unsigned fleet_count(const struct fleet *fleet, enum fleet_state state)
{
    return fleet->counts[state];
}
