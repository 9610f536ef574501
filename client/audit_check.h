/* Is the audit whole? Takes the rows in the order in which they come and finds the first one that
 * was changed, left out or moved, and an end that was cut off. Pure; any thread. */
#pragma once

#include "client/sandstorm.h"

struct audit_check {
    struct sandstorm_audit_report report;
    uint64_t head_seq; /* where the audit ends, according to the orchestrator's notes */
    uint8_t head_hash[SANDSTORM_HASH_LEN];
    bool any_start; /* the first row may be any: only the last ones were asked for */
};

/* `after_seq` is the row before the first one that will come, and previous_hash its hash; 0 and
 * zeroes at the beginning. With `any_start` the first row says itself which one it is. A head_seq
 * of 0 means that there is no note. */
void audit_check_start(struct audit_check *check, uint64_t after_seq, bool any_start,
                       const uint8_t previous_hash[SANDSTORM_HASH_LEN], uint64_t head_seq,
                       const uint8_t head_hash[SANDSTORM_HASH_LEN]);
void audit_check_row(struct audit_check *check, const struct sandstorm_audit_row *row);
/* After the last row. */
void audit_check_end(struct audit_check *check);
