/* Who is alive: the state machine of every sandbox, as pure logic on a clock of its own.
 *
 *     new ──► online ◄──► suspect ──► offline ──► evicted
 *               ▲────────────┴───────────┴───────────┘  whenever the agent is back
 *
 * The clock stands still while the orchestrator itself does (stopped, stalled, its store stuck):
 * nobody is punished for our own faults. Nor in the first minutes after a start, nor when most of
 * the fleet falls silent at once. A heartbeat costs one store to memory: the deadline is looked at
 * when it comes, and set anew if the sandbox was heard of meanwhile. Loop thread. */
#pragma once

#include "common/err.h"
#include "common/wheel.h"

#include <stdbool.h>
#include <stdint.h>

#define FLEET_TICK_US       200000u  /* how often fleet_tick() is to be called */
#define FLEET_STALL_US      2000000u /* a tick that late means that we were not running */
#define FLEET_BRAKE_PERCENT 55u      /* more than this silent at once: nobody is evicted */
#define FLEET_BEATS_PER_S   200u     /* heartbeats that a large fleet is slowed down to */
#define FLEET_INTERVAL_US   30000000u
#define FLEET_SLACK_US      15000000u  /* on top of three intervals, before it is offline */
#define FLEET_AMNESTY_US    300000000u /* after the start */
#define FLEET_EVICT_US      600000000u /* from offline to evicted */

/* As the store has them: numbers do not change. */
enum fleet_state {
    FLEET_NEW = 0, /* never connected */
    FLEET_ONLINE = 1,
    FLEET_SUSPECT = 2,
    FLEET_OFFLINE = 3,
    FLEET_EVICTED = 4,
    FLEET_STATE_COUNT_
};

struct fleet;

/* Embedded in whatever is alive or not; zeroed before fleet_add(). */
struct fleet_member {
    enum fleet_state state;
    bool connected; /* there is a stream */
    bool excused;   /* going silent is expected of it: it does not count for the brake */
    uint64_t heard_us, state_us; /* on the fleet's clock */
    struct wheel_entry entry;
};

struct fleet_config {
    uint64_t interval_us, slack_us, amnesty_us, evict_us;
    /* After the change. Evicting is the callee's to do, and the brake's to stop. */
    void (*changed)(void *userdata, struct fleet_member *member, enum fleet_state from);
    /* Agents are to be heard of in this interval from now on. */
    void (*paced)(void *userdata, uint64_t interval_us);
    void *userdata;
};

const char *fleet_state_name(enum fleet_state state);

int fleet_new(const struct fleet_config *config, uint64_t now_us, struct fleet **ret,
              struct err *err) must_use;
void fleet_free(struct fleet *fleet);

/* As it was when it was last heard of: online and suspect become suspect. */
void fleet_add(struct fleet *fleet, struct fleet_member *member, enum fleet_state last);
void fleet_remove(struct fleet *fleet, struct fleet_member *member);
void fleet_excuse(struct fleet *fleet, struct fleet_member *member, bool excused);

void fleet_connected(struct fleet *fleet, struct fleet_member *member);
void fleet_heard(struct fleet *fleet, struct fleet_member *member);
void fleet_disconnected(struct fleet *fleet, struct fleet_member *member);

/* `healthy`: we could have heard and judged everybody since the last tick. */
void fleet_tick(struct fleet *fleet, uint64_t now_us, bool healthy);
/* How often agents are to be heard of: the configured interval, longer for a large fleet. */
uint64_t fleet_interval_us(const struct fleet *fleet);
bool fleet_braked(const struct fleet *fleet);
/* Of the amnesty; 0 when it is over. */
uint64_t fleet_amnesty_left_us(const struct fleet *fleet);
unsigned fleet_count(const struct fleet *fleet, enum fleet_state state);
