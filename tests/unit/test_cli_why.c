/* The rules of `sandstorm why`: each has a sandbox for which it holds, names the cause first, says
 * what to do, and is silent about a sandbox that is well. */
#include "cli/why.h"
#include "common/macros.h"

#include <criterion/criterion.h>
#include <string.h>

#define NOW  INT64_C(1763466604000)
#define HOUR INT64_C(3600000)
#define DAY  (24 * HOUR)

#define CONTAINS(text, part)                                                                       \
    cr_assert(strstr((text), (part)), "\"%s\" lacks \"%s\"", (text), (part))

static struct sandstorm_sandbox healthy(void)
{
    return (struct sandstorm_sandbox){
        .id = "web-1",
        .agent_version = "1.2.3",
        .runner_version = "1.2.3",
        .last_error = "",
        .state = SANDSTORM_STATE_ONLINE,
        .runner_connected = true,
        .state_unix_ms = NOW - HOUR,
        .connected_unix_ms = NOW - HOUR,
        .last_seen_unix_ms = NOW,
        .certificate_not_after_unix_ms = NOW + 20 * HOUR,
        .heartbeat_interval_ms = 30000,
        .memory_total_bytes = 100,
        .memory_available_bytes = 50,
        .disk_total_bytes = 100,
        .disk_free_bytes = 50,
    };
}

static struct sandstorm_sandbox away(enum sandstorm_state state)
{
    struct sandstorm_sandbox sandbox = healthy();
    sandbox.state = state;
    sandbox.runner_connected = false;
    sandbox.last_seen_unix_ms = NOW - 3 * HOUR;
    return sandbox;
}

static struct why_finding findings[WHY_FINDINGS_MAX];
static size_t count;

static void find(const struct sandstorm_sandbox *sandbox)
{
    const struct why_facts facts = { sandbox, NOW, "1.2.3" };
    count = why_find(&facts, findings);
}

static const struct why_finding *finding(const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(findings[i].name, name) == 0)
            return &findings[i];
    return NULL;
}

static unsigned reasons(void)
{
    unsigned found = 0;
    for (size_t i = 0; i < count; i++)
        found += findings[i].weight == WHY_BLOCKS;
    return found;
}

/* A sandbox for which a rule holds: "" for its own words means none. */
struct sample {
    const char *rule;
    struct sandstorm_sandbox sandbox;
    enum why_weight weight;
    const char *words, *advice;
};

static const struct sandstorm_event duplicate = { NOW - HOUR, "duplicate_link", "" };

static size_t samples(struct sample out[32])
{
    size_t n = 0;
    struct sandstorm_sandbox s = away(SANDSTORM_STATE_REVOKED);
    s.revoked_unix_ms = NOW - 3 * HOUR;
    out[n++] = (struct sample){ "revoked", s, WHY_BLOCKS, "revoked 3h ago",
                                "sandstorm token create --sandbox web-1" };
    s = away(SANDSTORM_STATE_OFFLINE);
    s.last_seen_unix_ms = s.connected_unix_ms = 0;
    out[n++] = (struct sample){ "never", s, WHY_BLOCKS, "not connected", "sandstorm-agent status" };
    s = away((enum sandstorm_state)77);
    out[n++] = (struct sample){ "state", s, WHY_BLOCKS, "does not know", "version" };
    s = away(SANDSTORM_STATE_EVICTED);
    s.certificate_not_after_unix_ms = NOW - 8 * DAY;
    out[n++] = (struct sample){ "expired", s, WHY_CAUSE, "ended 8d ago", "sandstorm-agent enroll" };
    s = away(SANDSTORM_STATE_OFFLINE);
    s.clock_skew_ms = -32 * HOUR;
    out[n++] = (struct sample){ "clock", s, WHY_CAUSE, "32h behind", "Set the VM's clock" };
    s = away(SANDSTORM_STATE_SUSPECT);
    s.events = &duplicate;
    s.event_count = 1;
    out[n++] = (struct sample){ "duplicate", s, WHY_CAUSE, "Two VMs", "Stop the copy" };
    s = away(SANDSTORM_STATE_OFFLINE);
    s.disk_free_bytes = 1;
    out[n++] = (struct sample){ "disk", s, WHY_CAUSE, "99% full", "Make room" };
    s = away(SANDSTORM_STATE_OFFLINE);
    s.memory_available_bytes = 4;
    out[n++] = (struct sample){ "memory", s, WHY_CAUSE, "96% in use", "sandstorm ps web-1" };
    out[n++] = (struct sample){ "suspect", away(SANDSTORM_STATE_SUSPECT), WHY_BLOCKS,
                                "last spoke 3h ago", "sandstorm wait-ready web-1" };
    out[n++] = (struct sample){ "offline", away(SANDSTORM_STATE_OFFLINE), WHY_BLOCKS,
                                "for 3h, and it is to be heard from every 30s", "VM runs" };
    out[n++] = (struct sample){ "evicted", away(SANDSTORM_STATE_EVICTED), WHY_BLOCKS, "evicted",
                                "sandstorm rm web-1" };
    s = healthy();
    s.runner_connected = false;
    out[n++] = (struct sample){ "runner", s, WHY_BLOCKS, "runner", "sandstorm-runner" };
    s = healthy();
    s.draining = true;
    out[n++] = (struct sample){ "draining", s, WHY_BLOCKS, "drained", "sandstorm undrain web-1" };
    s = healthy();
    s.last_error = "no route to host";
    s.last_error_unix_ms = NOW;
    out[n++] = (struct sample){ "error", s, WHY_NOTE, "\"no route to host\"", "" };
    s = healthy();
    s.certificate_not_after_unix_ms = NOW + HOUR;
    out[n++] = (struct sample){ "ending", s, WHY_NOTE, "ends in 60m", "sandstorm logs web-1" };
    s = healthy();
    s.agent_version = s.runner_version = "1.2.2";
    out[n++] = (struct sample){ "old", s, WHY_NOTE, "older than 1.2.3", "Upgrade" };
    s = healthy();
    s.runner_version = "1.2.2";
    out[n++] = (struct sample){ "mixed", s, WHY_NOTE, "1.2.2", "sandstorm ps web-1" };
    return n;
}

Test(cli_why, a_sandbox_that_is_well_gives_nothing_to_say)
{
    struct sandstorm_sandbox sandbox = healthy();
    find(&sandbox);
    cr_assert_eq(count, 0u, "%s", findings[0].words);
}

Test(cli_why, every_rule_has_words_and_says_what_to_do)
{
    struct sample all[32];
    size_t n = samples(all);
    for (size_t i = 0; i < n; i++) {
        find(&all[i].sandbox);
        const struct why_finding *found = finding(all[i].rule);
        cr_assert(found, "%s does not hold", all[i].rule);
        cr_assert_eq(found->weight, all[i].weight, "%s", all[i].rule);
        CONTAINS(found->words, all[i].words);
        CONTAINS(found->advice, all[i].advice);
        cr_assert(*found->advice || strcmp(all[i].rule, "error") == 0);
    }
    /* And the table has no rule that was not tried. */
    const char *const *names = why_names();
    for (size_t i = 0; names[i]; i++) {
        bool tried = false;
        for (size_t k = 0; k < n; k++)
            tried = tried || strcmp(all[k].rule, names[i]) == 0;
        cr_assert(tried, "%s has no sample", names[i]);
    }
}

Test(cli_why, who_cannot_run_commands_has_a_reason_and_who_can_has_none)
{
    struct sample all[32];
    size_t n = samples(all);
    for (size_t i = 0; i < n; i++) {
        const struct sandstorm_sandbox *sandbox = &all[i].sandbox;
        bool ready = sandbox->state == SANDSTORM_STATE_ONLINE && sandbox->runner_connected &&
                     !sandbox->draining;
        find(sandbox);
        cr_assert_eq(reasons() > 0, !ready, "%s", all[i].rule);
    }
}

Test(cli_why, the_probable_cause_comes_before_the_effect)
{
    struct sandstorm_sandbox sandbox = away(SANDSTORM_STATE_OFFLINE);
    sandbox.clock_skew_ms = 2 * HOUR;
    sandbox.draining = true;
    sandbox.last_error = "x";
    find(&sandbox);
    cr_assert_eq(count, 4u);
    cr_assert_str_eq(findings[0].name, "clock");
    CONTAINS(findings[0].words, "2h ahead of");
    cr_assert_str_eq(findings[1].name, "offline");
    cr_assert_str_eq(findings[2].name, "draining");
    cr_assert_str_eq(findings[3].name, "error");
}

Test(cli_why, what_could_have_kept_it_away_is_a_note_where_it_is_connected)
{
    struct sandstorm_sandbox sandbox = healthy();
    sandbox.clock_skew_ms = INT64_MIN;
    sandbox.disk_free_bytes = 0;
    find(&sandbox);
    cr_assert_eq(count, 2u);
    cr_assert_eq(findings[0].weight, WHY_NOTE);
    cr_assert_eq(findings[1].weight, WHY_NOTE);
}

Test(cli_why, a_certificate_that_can_still_be_renewed_is_no_cause)
{
    struct sandstorm_sandbox sandbox = away(SANDSTORM_STATE_OFFLINE);
    sandbox.certificate_not_after_unix_ms = NOW - 6 * DAY;
    find(&sandbox);
    cr_assert_null(finding("expired"));
}

Test(cli_why, an_event_of_long_ago_is_no_cause)
{
    const struct sandstorm_event old = { NOW - 2 * DAY, "duplicate_link", "" };
    struct sandstorm_sandbox sandbox = away(SANDSTORM_STATE_OFFLINE);
    sandbox.events = &old;
    sandbox.event_count = 1;
    find(&sandbox);
    cr_assert_null(finding("duplicate"));
}

Test(cli_why, versions_are_compared_by_number)
{
    static const struct {
        const char *a, *b;
        int order;
    } rows[] = {
        { "1.2.3", "1.2.3", 0 },    { "1.9.0", "1.10.0", -1 },   { "2.0.0", "1.99.99", 1 },
        { "1.2", "1.2.0", 0 },      { "1.2.3-rc1", "1.2.3", 0 }, { "0.9.9", "1.0.0", -1 },
        { "nonsense", "0.0.0", 0 }, { "1.2.3.4", "1.2.3.5", 0 },
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        cr_assert_eq(why_compare_versions(rows[i].a, rows[i].b), rows[i].order, "%s", rows[i].a);
        cr_assert_eq(why_compare_versions(rows[i].b, rows[i].a), -rows[i].order, "%s", rows[i].a);
    }
}
