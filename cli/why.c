/* The rules behind `sandstorm why`: a table of conditions and words, the most probable cause first.
 * Called by cli/cmd_why.c. */
#include "cli/why.h"

#include "cli/sandbox_text.h"
#include "cli/text.h"
#include "common/macros.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SKEW_HURTS_MS   (5 * 60000) /* TLS has little patience with a clock */
#define RECENT_MS       (24LL * 3600 * 1000)
#define CERTIFICATE_MS  (2LL * 3600 * 1000) /* renewal is long overdue when this little is left */
#define GRACE_MS        (7LL * 86400 * 1000)
#define DISK_FULL       9800u /* basis points */
#define MEMORY_FULL     9500u
#define PRESSURE_HURTS  5000u
#define VERSION_NUMBERS 3u

int why_compare_versions(const char *a, const char *b)
{
    for (unsigned i = 0; i < VERSION_NUMBERS; i++) {
        char *a_end, *b_end;
        unsigned long x = strtoul(a, &a_end, 10), y = strtoul(b, &b_end, 10);
        if (x != y)
            return x < y ? -1 : 1;
        a = *a_end == '.' ? a_end + 1 : "";
        b = *b_end == '.' ? b_end + 1 : "";
    }
    return 0;
}

static void since_text(const struct why_facts *facts, int64_t unix_ms, char out[TEXT_TIME_MAX])
{
    text_duration(facts->now_ms - unix_ms, out);
}

static bool is_away(const struct why_facts *facts)
{
    enum sandstorm_state state = facts->sandbox->state;
    return state == SANDSTORM_STATE_SUSPECT || state == SANDSTORM_STATE_OFFLINE ||
           state == SANDSTORM_STATE_EVICTED;
}

static bool is_online(const struct why_facts *facts)
{
    return facts->sandbox->state == SANDSTORM_STATE_ONLINE;
}

static bool was_seen(const struct why_facts *facts)
{
    return facts->sandbox->last_seen_unix_ms != 0 || facts->sandbox->connected_unix_ms != 0;
}

/* Conditions and their words, in pairs. */

static bool if_revoked(const struct why_facts *facts)
{
    return facts->sandbox->state == SANDSTORM_STATE_REVOKED;
}

static void say_revoked(const struct why_facts *facts, struct why_finding *finding)
{
    char since[TEXT_TIME_MAX];
    since_text(facts, facts->sandbox->revoked_unix_ms, since);
    (void)snprintf(finding->words, WHY_TEXT_MAX,
                   "It was revoked %s ago: its certificates do not count any more.", since);
    (void)snprintf(finding->advice, WHY_TEXT_MAX,
                   "To let it join again, with a new key: sandstorm token create --sandbox %s",
                   facts->sandbox->id);
}

static bool if_never(const struct why_facts *facts)
{
    return is_away(facts) && !was_seen(facts);
}

static void say_never(const struct why_facts *facts, struct why_finding *finding)
{
    (void)facts;
    (void)snprintf(finding->words, WHY_TEXT_MAX,
                   "It has enrolled, but has not connected since the orchestrator knows of it.");
    (void)snprintf(finding->advice, WHY_TEXT_MAX,
                   "Start the agent on the VM; 'sandstorm-agent status' there says what it waits "
                   "for.");
}

static const struct sandstorm_event *recent_event(const struct why_facts *facts, const char *kind)
{
    const struct sandstorm_sandbox *sandbox = facts->sandbox;
    for (size_t i = sandbox->event_count; i-- > 0;)
        if (strcmp(sandbox->events[i].kind, kind) == 0 &&
            facts->now_ms - sandbox->events[i].time_unix_ms < RECENT_MS)
            return &sandbox->events[i];
    return NULL;
}

static bool if_duplicate(const struct why_facts *facts)
{
    return recent_event(facts, "duplicate_link") != NULL;
}

static void say_duplicate(const struct why_facts *facts, struct why_finding *finding)
{
    char since[TEXT_TIME_MAX];
    since_text(facts, recent_event(facts, "duplicate_link")->time_unix_ms, since);
    (void)snprintf(finding->words, WHY_TEXT_MAX,
                   "Two VMs came with its identity, last %s ago: one may be a copy of the other's "
                   "disk, and they push each other out.",
                   since);
    (void)snprintf(finding->advice, WHY_TEXT_MAX,
                   "Stop the copy, or give it a token of its own ('sandstorm token create') for "
                   "'sandstorm-agent enroll'.");
}

static bool if_expired(const struct why_facts *facts)
{
    int64_t end = facts->sandbox->certificate_not_after_unix_ms;
    return is_away(facts) && end != 0 && facts->now_ms > end + GRACE_MS;
}

static void say_expired(const struct why_facts *facts, struct why_finding *finding)
{
    char since[TEXT_TIME_MAX];
    since_text(facts, facts->sandbox->certificate_not_after_unix_ms, since);
    (void)snprintf(finding->words, WHY_TEXT_MAX,
                   "Its certificate ended %s ago, which is longer than the 7 days in which it is "
                   "renewed unless the orchestrator is told otherwise.",
                   since);
    (void)snprintf(finding->advice, WHY_TEXT_MAX,
                   "Make a token for it, 'sandstorm token create --sandbox %s', and run "
                   "'sandstorm-agent enroll' on the VM.",
                   facts->sandbox->id);
}

static bool if_clock(const struct why_facts *facts)
{
    int64_t skew = facts->sandbox->clock_skew_ms;
    return was_seen(facts) && (skew > SKEW_HURTS_MS || skew < -SKEW_HURTS_MS);
}

static void say_clock(const struct why_facts *facts, struct why_finding *finding)
{
    char size[TEXT_TIME_MAX];
    int64_t skew = facts->sandbox->clock_skew_ms;
    text_duration(skew == INT64_MIN ? INT64_MAX : skew < 0 ? -skew : skew, size);
    (void)snprintf(finding->words, WHY_TEXT_MAX,
                   "Its clock is %s %s the orchestrator's: certificates then seem to have ended, "
                   "or not to have begun, and the connection is refused.",
                   size, skew > 0 ? "ahead of" : "behind");
    (void)snprintf(finding->advice, WHY_TEXT_MAX,
                   "Set the VM's clock, and let chrony or systemd-timesyncd keep it.");
}

static bool if_disk(const struct why_facts *facts)
{
    return sandbox_disk_basis_points(facts->sandbox) >= DISK_FULL;
}

static void say_disk(const struct why_facts *facts, struct why_finding *finding)
{
    (void)snprintf(finding->words, WHY_TEXT_MAX, "Its disk was %u%% full when it last spoke.",
                   sandbox_percent(sandbox_disk_basis_points(facts->sandbox)));
    (void)snprintf(finding->advice, WHY_TEXT_MAX, "Make room on the VM's disk.");
}

static bool if_memory(const struct why_facts *facts)
{
    const struct sandstorm_sandbox *sandbox = facts->sandbox;
    return sandbox_memory_basis_points(sandbox) >= MEMORY_FULL ||
           sandbox->pressure.memory_full >= PRESSURE_HURTS;
}

static void say_memory(const struct why_facts *facts, struct why_finding *finding)
{
    (void)snprintf(finding->words, WHY_TEXT_MAX,
                   "Its memory was %u%% in use when it last spoke: the kernel may have stopped "
                   "working or have killed the agent.",
                   sandbox_percent(sandbox_memory_basis_points(facts->sandbox)));
    (void)snprintf(finding->advice, WHY_TEXT_MAX,
                   "See what runs there ('sandstorm ps %s'), or give the VM more memory.",
                   facts->sandbox->id);
}

static bool if_evicted(const struct why_facts *facts)
{
    return facts->sandbox->state == SANDSTORM_STATE_EVICTED;
}

static void say_evicted(const struct why_facts *facts, struct why_finding *finding)
{
    char since[TEXT_TIME_MAX];
    since_text(facts, facts->sandbox->state_unix_ms, since);
    (void)snprintf(finding->words, WHY_TEXT_MAX,
                   "It was silent for so long that it was evicted, %s ago: the VM is probably off "
                   "or gone.",
                   since);
    (void)snprintf(finding->advice, WHY_TEXT_MAX,
                   "Start the VM: it comes back by itself. If it is gone for good: sandstorm rm %s",
                   facts->sandbox->id);
}

static bool if_offline(const struct why_facts *facts)
{
    return facts->sandbox->state == SANDSTORM_STATE_OFFLINE && was_seen(facts);
}

static void say_offline(const struct why_facts *facts, struct why_finding *finding)
{
    char since[TEXT_TIME_MAX], interval[TEXT_TIME_MAX];
    uint64_t every = facts->sandbox->heartbeat_interval_ms;
    since_text(facts, facts->sandbox->last_seen_unix_ms, since);
    text_duration((int64_t)MIN(every, INT32_MAX), interval);
    (void)snprintf(finding->words, WHY_TEXT_MAX,
                   "Nothing was heard from it for %s%s%s: the VM is off, or it cannot reach the "
                   "orchestrator.",
                   since, every ? ", and it is to be heard from every " : "",
                   every ? interval : "");
    (void)snprintf(finding->advice, WHY_TEXT_MAX,
                   "Look whether the VM runs; on it, 'sandstorm-agent status' says why it is not "
                   "connected.");
}

static bool if_suspect(const struct why_facts *facts)
{
    return facts->sandbox->state == SANDSTORM_STATE_SUSPECT && was_seen(facts);
}

static void say_suspect(const struct why_facts *facts, struct why_finding *finding)
{
    char since[TEXT_TIME_MAX];
    since_text(facts, facts->sandbox->last_seen_unix_ms, since);
    (void)snprintf(finding->words, WHY_TEXT_MAX,
                   "Its connection broke or its heartbeat is late: it last spoke %s ago, and is "
                   "probably connecting again.",
                   since);
    (void)snprintf(finding->advice, WHY_TEXT_MAX, "Wait for it: sandstorm wait-ready %s",
                   facts->sandbox->id);
}

static bool if_runner(const struct why_facts *facts)
{
    return is_online(facts) && !facts->sandbox->runner_connected;
}

static void say_runner(const struct why_facts *facts, struct why_finding *finding)
{
    (void)snprintf(finding->words, WHY_TEXT_MAX,
                   "Its agent is connected, but the runner beside it is not: commands cannot "
                   "start.");
    (void)snprintf(finding->advice, WHY_TEXT_MAX,
                   "On the VM, look at the service sandstorm-runner and start it; 'sandstorm logs "
                   "%s' may say why it ended.",
                   facts->sandbox->id);
}

static bool if_draining(const struct why_facts *facts)
{
    return facts->sandbox->draining;
}

static void say_draining(const struct why_facts *facts, struct why_finding *finding)
{
    (void)snprintf(finding->words, WHY_TEXT_MAX,
                   "Somebody drained it: it takes no new commands, and those that run go on.");
    (void)snprintf(finding->advice, WHY_TEXT_MAX, "To let it take commands: sandstorm undrain %s",
                   facts->sandbox->id);
}

static bool if_state(const struct why_facts *facts)
{
    return !is_online(facts) && !is_away(facts) && !if_revoked(facts);
}

static void say_state(const struct why_facts *facts, struct why_finding *finding)
{
    (void)facts;
    (void)snprintf(finding->words, WHY_TEXT_MAX,
                   "It is in a state that this client does not know.");
    (void)snprintf(finding->advice, WHY_TEXT_MAX,
                   "Use a client of the orchestrator's version; this one is older.");
}

static bool if_error(const struct why_facts *facts)
{
    return *facts->sandbox->last_error != '\0';
}

static void say_error(const struct why_facts *facts, struct why_finding *finding)
{
    char when[TEXT_TIME_MAX];
    text_time(facts->sandbox->last_error_unix_ms, when);
    (void)snprintf(finding->words, WHY_TEXT_MAX,
                   "When it was away before (%s), its agent gave this reason: \"%.300s\"", when,
                   facts->sandbox->last_error);
}

static bool if_ending(const struct why_facts *facts)
{
    int64_t end = facts->sandbox->certificate_not_after_unix_ms;
    return is_online(facts) && end != 0 && end - facts->now_ms < CERTIFICATE_MS;
}

static void say_ending(const struct why_facts *facts, struct why_finding *finding)
{
    char left[TEXT_TIME_MAX];
    text_duration(facts->sandbox->certificate_not_after_unix_ms - facts->now_ms, left);
    (void)snprintf(finding->words, WHY_TEXT_MAX,
                   "Its certificate ends in %s and was not renewed, as it should have been.", left);
    (void)snprintf(finding->advice, WHY_TEXT_MAX, "'sandstorm logs %s' may say why.",
                   facts->sandbox->id);
}

static bool if_old(const struct why_facts *facts)
{
    const char *version = facts->sandbox->agent_version;
    return *version && why_compare_versions(version, facts->version) < 0;
}

static void say_old(const struct why_facts *facts, struct why_finding *finding)
{
    (void)snprintf(finding->words, WHY_TEXT_MAX, "Its agent is version %.64s, older than %s here.",
                   facts->sandbox->agent_version, facts->version);
    (void)snprintf(finding->advice, WHY_TEXT_MAX, "Upgrade the agent's package on the VM.");
}

static bool if_mixed(const struct why_facts *facts)
{
    const struct sandstorm_sandbox *sandbox = facts->sandbox;
    return *sandbox->agent_version && *sandbox->runner_version &&
           strcmp(sandbox->agent_version, sandbox->runner_version) != 0;
}

static void say_mixed(const struct why_facts *facts, struct why_finding *finding)
{
    (void)snprintf(finding->words, WHY_TEXT_MAX,
                   "Its runner is version %.64s and its agent %.64s: one was not restarted after "
                   "an upgrade.",
                   facts->sandbox->runner_version, facts->sandbox->agent_version);
    (void)snprintf(finding->advice, WHY_TEXT_MAX,
                   "Restart the runner when no command runs: sandstorm ps %s", facts->sandbox->id);
}

static const struct {
    const char *name;
    enum why_weight weight;
    bool (*holds)(const struct why_facts *facts);
    void (*say)(const struct why_facts *facts, struct why_finding *finding);
} rules[] = {
    { "revoked", WHY_BLOCKS, if_revoked, say_revoked },
    { "never", WHY_BLOCKS, if_never, say_never },
    { "state", WHY_BLOCKS, if_state, say_state },
    { "expired", WHY_CAUSE, if_expired, say_expired },
    { "clock", WHY_CAUSE, if_clock, say_clock },
    { "duplicate", WHY_CAUSE, if_duplicate, say_duplicate },
    { "disk", WHY_CAUSE, if_disk, say_disk },
    { "memory", WHY_CAUSE, if_memory, say_memory },
    { "suspect", WHY_BLOCKS, if_suspect, say_suspect },
    { "offline", WHY_BLOCKS, if_offline, say_offline },
    { "evicted", WHY_BLOCKS, if_evicted, say_evicted },
    { "runner", WHY_BLOCKS, if_runner, say_runner },
    { "draining", WHY_BLOCKS, if_draining, say_draining },
    { "error", WHY_NOTE, if_error, say_error },
    { "ending", WHY_NOTE, if_ending, say_ending },
    { "old", WHY_NOTE, if_old, say_old },
    { "mixed", WHY_NOTE, if_mixed, say_mixed },
};
_Static_assert(ELEMENTS(rules) <= WHY_FINDINGS_MAX, "all rules may hold");

size_t why_find(const struct why_facts *facts, struct why_finding findings[WHY_FINDINGS_MAX])
{
    size_t count = 0;
    for (size_t i = 0; i < ELEMENTS(rules); i++) {
        if (!rules[i].holds(facts))
            continue;
        struct why_finding *finding = &findings[count++];
        *finding = (struct why_finding){ .name = rules[i].name, .weight = rules[i].weight };
        /* Where it is connected, what could have kept it away is only worth knowing. */
        if (finding->weight == WHY_CAUSE && !is_away(facts))
            finding->weight = WHY_NOTE;
        rules[i].say(facts, finding);
    }
    return count;
}

const char *const *why_names(void)
{
    static const char *names[ELEMENTS(rules) + 1];
    for (size_t i = 0; i < ELEMENTS(rules); i++)
        names[i] = rules[i].name;
    return names;
}
