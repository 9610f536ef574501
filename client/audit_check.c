/* The audit's chain, walked. client/audit.c feeds it rows as they come; what it finds goes to the
 * caller as a report. The hash itself is common/audit_chain.c, the orchestrator's too. */
#include "client/audit_check.h"

#include "common/audit_chain.h"

#include <string.h>

_Static_assert(SANDSTORM_HASH_LEN == AUDIT_CHAIN_HASH_LEN, "the chain's hash is this long");

static void blame(struct audit_check *check, enum sandstorm_audit_fault fault, uint64_t first,
                  uint64_t last)
{
    struct sandstorm_audit_report *report = &check->report;
    if (report->fault != SANDSTORM_AUDIT_WHOLE)
        return;
    report->fault = fault;
    report->first = first;
    report->last = last;
}

void audit_check_start(struct audit_check *check, uint64_t after_seq, bool any_start,
                       const uint8_t previous_hash[SANDSTORM_HASH_LEN], uint64_t head_seq,
                       const uint8_t head_hash[SANDSTORM_HASH_LEN])
{
    static const uint8_t zeroes[SANDSTORM_HASH_LEN];
    *check = (struct audit_check){ .head_seq = head_seq, .any_start = any_start };
    check->report.seq = after_seq;
    (void)memcpy(check->report.hash, previous_hash, SANDSTORM_HASH_LEN);
    (void)memcpy(check->head_hash, head_hash, SANDSTORM_HASH_LEN);
    /* The first row has none before it: another beginning means that the real one was dropped. */
    if (after_seq == 0 && !any_start && memcmp(previous_hash, zeroes, SANDSTORM_HASH_LEN) != 0)
        blame(check, SANDSTORM_AUDIT_CHANGED, 1, 1);
}

/* Its place in the sequence. */
static void check_place(struct audit_check *check, uint64_t seq)
{
    uint64_t before = check->report.seq;
    if (check->any_start && check->report.rows == 0) {
        static const uint8_t zeroes[SANDSTORM_HASH_LEN];
        /* Only the very first row has zeroes before it. */
        if ((seq == 1) != (memcmp(check->report.hash, zeroes, SANDSTORM_HASH_LEN) == 0))
            blame(check, SANDSTORM_AUDIT_CHANGED, seq, seq);
    } else if (seq <= before) {
        blame(check, SANDSTORM_AUDIT_UNORDERED, seq, before);
    } else if (seq > before + 1) {
        blame(check, SANDSTORM_AUDIT_MISSING, before + 1, seq - 1);
    }
}

void audit_check_row(struct audit_check *check, const struct sandstorm_audit_row *row)
{
    struct sandstorm_audit_report *report = &check->report;
    const struct audit_chain_row chained = {
        .seq = row->seq,
        .time_ms = row->time_unix_ms,
        .actor = row->actor,
        .action = row->action,
        .target = row->target,
        .allowed = row->allowed,
        .detail = row->detail,
    };
    uint8_t hash[SANDSTORM_HASH_LEN];
    check_place(check, row->seq);
    audit_chain_hash(report->hash, &chained, hash);
    bool matches = memcmp(hash, row->hash, SANDSTORM_HASH_LEN) == 0;
    if (!matches ||
        (row->seq == check->head_seq && memcmp(hash, check->head_hash, SANDSTORM_HASH_LEN) != 0))
        blame(check, SANDSTORM_AUDIT_CHANGED, row->seq, row->seq);
    report->rows++;
    report->seq = row->seq;
    (void)memcpy(report->hash, row->hash, SANDSTORM_HASH_LEN);
}

void audit_check_end(struct audit_check *check)
{
    const struct sandstorm_audit_report *report = &check->report;
    if (report->seq < check->head_seq)
        blame(check, SANDSTORM_AUDIT_CUT, report->seq + 1, check->head_seq);
    else if (check->head_seq == 0 && report->rows > 0)
        blame(check, SANDSTORM_AUDIT_NO_HEAD, report->seq, report->seq);
}
