/* The audit's chain as the client checks it: a whole one passes, and every way to tamper with one
 * is told apart and located. Random tampering on top: whatever is changed, it shows. */
#include "client/audit_check.h"
#include "common/audit_chain.h"
#include "common/macros.h"
#include "tests/unit/random.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define ROWS 20u

static struct sandstorm_audit_row rows[ROWS];
static uint8_t hashes[ROWS + 1][SANDSTORM_HASH_LEN]; /* [0] is before the first */

static void hash_row(unsigned i, const uint8_t previous[SANDSTORM_HASH_LEN],
                     uint8_t ret[SANDSTORM_HASH_LEN])
{
    const struct sandstorm_audit_row *row = &rows[i];
    const struct audit_chain_row chained = {
        .seq = row->seq,
        .time_ms = row->time_unix_ms,
        .allowed = row->allowed,
        .actor = row->actor,
        .action = row->action,
        .target = row->target,
        .detail = row->detail,
    };
    audit_chain_hash(previous, &chained, ret);
}

static void set_up(void)
{
    for (unsigned i = 0; i < ROWS; i++) {
        rows[i] = (struct sandstorm_audit_row){
            .seq = i + 1,
            .time_unix_ms = 1000 + i,
            .actor = "client/admin",
            .action = i % 2 ? "token.create" : "command.start",
            .target = "web-1",
            .detail = "",
            .allowed = i % 3 != 0,
            .hash = hashes[i + 1],
        };
        hash_row(i, hashes[i], hashes[i + 1]);
    }
}

/* cppcheck-suppress unknownMacro */
TestSuite(client_audit, .init = set_up, .timeout = 30);

static struct sandstorm_audit_report walk(const unsigned *order, unsigned count)
{
    struct audit_check check;
    audit_check_start(&check, 0, false, hashes[0], ROWS, hashes[ROWS]);
    for (unsigned i = 0; i < count; i++)
        audit_check_row(&check, &rows[order[i]]);
    audit_check_end(&check);
    return check.report;
}

/* All rows in order, without `out` of them from `from` on. */
static struct sandstorm_audit_report walk_without(unsigned from, unsigned out)
{
    unsigned order[ROWS], count = 0;
    for (unsigned i = 0; i < ROWS; i++)
        if (i < from || i >= from + out)
            order[count++] = i;
    return walk(order, count);
}

static void expect(const struct sandstorm_audit_report *report, enum sandstorm_audit_fault fault,
                   uint64_t first, uint64_t last)
{
    cr_assert_eq(report->fault, fault, "fault %d", (int)report->fault);
    cr_assert_eq(report->first, first, "first %llu", (unsigned long long)report->first);
    cr_assert_eq(report->last, last, "last %llu", (unsigned long long)report->last);
}

Test(client_audit, a_whole_chain_passes_and_reports_its_head)
{
    struct sandstorm_audit_report report = walk_without(0, 0);
    expect(&report, SANDSTORM_AUDIT_WHOLE, 0, 0);
    cr_assert_eq(report.rows, ROWS);
    cr_assert_eq(report.seq, ROWS);
    cr_assert_eq(memcmp(report.hash, hashes[ROWS], SANDSTORM_HASH_LEN), 0);
}

Test(client_audit, an_empty_audit_is_whole)
{
    struct audit_check check;
    audit_check_start(&check, 0, false, hashes[0], 0, hashes[0]);
    audit_check_end(&check);
    expect(&check.report, SANDSTORM_AUDIT_WHOLE, 0, 0);
}

Test(client_audit, rows_that_were_written_meanwhile_are_no_fault)
{
    struct audit_check check;
    audit_check_start(&check, 0, false, hashes[0], ROWS / 2, hashes[ROWS / 2]);
    for (unsigned i = 0; i < ROWS; i++)
        audit_check_row(&check, &rows[i]);
    audit_check_end(&check);
    expect(&check.report, SANDSTORM_AUDIT_WHOLE, 0, 0);
}

Test(client_audit, every_field_of_a_row_is_covered)
{
    const struct sandstorm_audit_row good = rows[6];
    static uint8_t other[SANDSTORM_HASH_LEN];
    for (unsigned field = 0; field < 7; field++) {
        rows[6] = good;
        switch (field) {
        case 0:
            rows[6].time_unix_ms++;
            break;
        case 1:
            rows[6].actor = "client/Admin";
            break;
        case 2:
            rows[6].action = "";
            break;
        case 3:
            rows[6].target = "web-2";
            break;
        case 4:
            rows[6].detail = "x";
            break;
        case 5:
            rows[6].allowed = !rows[6].allowed;
            break;
        default:
            rows[6].hash = other;
            break;
        }
        struct sandstorm_audit_report report = walk_without(0, 0);
        expect(&report, SANDSTORM_AUDIT_CHANGED, 7, 7);
    }
}

Test(client_audit, a_row_that_was_rehashed_breaks_the_next)
{
    rows[6].target = "nothing-to-see";
    hash_row(6, hashes[6], hashes[7]);
    struct sandstorm_audit_report report = walk_without(0, 0);
    expect(&report, SANDSTORM_AUDIT_CHANGED, 8, 8);
}

Test(client_audit, a_chain_that_was_rewritten_to_the_end_does_not_match_the_head)
{
    uint8_t head[SANDSTORM_HASH_LEN];
    (void)memcpy(head, hashes[ROWS], sizeof(head));
    rows[6].target = "nothing-to-see";
    for (unsigned i = 6; i < ROWS; i++)
        hash_row(i, hashes[i], hashes[i + 1]);
    struct audit_check check;
    audit_check_start(&check, 0, false, hashes[0], ROWS, head);
    for (unsigned i = 0; i < ROWS; i++)
        audit_check_row(&check, &rows[i]);
    audit_check_end(&check);
    expect(&check.report, SANDSTORM_AUDIT_CHANGED, ROWS, ROWS);
}

Test(client_audit, missing_rows_are_named)
{
    struct sandstorm_audit_report report = walk_without(4, 1);
    expect(&report, SANDSTORM_AUDIT_MISSING, 5, 5);
    report = walk_without(4, 10);
    expect(&report, SANDSTORM_AUDIT_MISSING, 5, 14);
    report = walk_without(0, 3);
    expect(&report, SANDSTORM_AUDIT_MISSING, 1, 3);
}

Test(client_audit, missing_rows_cannot_be_hidden_by_renumbering)
{
    for (unsigned i = 5; i < ROWS; i++)
        rows[i].seq--;
    struct sandstorm_audit_report report = walk_without(4, 1);
    expect(&report, SANDSTORM_AUDIT_CHANGED, 5, 5);
}

Test(client_audit, rows_out_of_order_are_named)
{
    const unsigned swapped[] = { 0, 1, 3, 2, 4 }, twice[] = { 0, 1, 1, 2 };
    struct sandstorm_audit_report report = walk(swapped, ELEMENTS(swapped));
    expect(&report, SANDSTORM_AUDIT_MISSING, 3, 3);
    report = walk(twice, ELEMENTS(twice));
    expect(&report, SANDSTORM_AUDIT_UNORDERED, 2, 2);
}

Test(client_audit, an_end_that_was_cut_off_is_noticed)
{
    struct sandstorm_audit_report report = walk_without(ROWS - 3, 3);
    expect(&report, SANDSTORM_AUDIT_CUT, ROWS - 2, ROWS);
    report = walk(NULL, 0);
    expect(&report, SANDSTORM_AUDIT_CUT, 1, ROWS);
}

Test(client_audit, an_audit_without_a_note_of_its_end_is_not_whole)
{
    struct audit_check check;
    audit_check_start(&check, 0, false, hashes[0], 0, hashes[0]);
    audit_check_row(&check, &rows[0]);
    audit_check_end(&check);
    expect(&check.report, SANDSTORM_AUDIT_NO_HEAD, 1, 1);
}

Test(client_audit, the_beginning_must_be_the_beginning)
{
    struct audit_check check;
    audit_check_start(&check, 0, false, hashes[3], ROWS, hashes[ROWS]);
    expect(&check.report, SANDSTORM_AUDIT_CHANGED, 1, 1);
}

Test(client_audit, a_part_is_checked_from_where_it_begins)
{
    struct audit_check check;
    audit_check_start(&check, 5, false, hashes[5], ROWS, hashes[ROWS]);
    for (unsigned i = 5; i < ROWS; i++)
        audit_check_row(&check, &rows[i]);
    audit_check_end(&check);
    expect(&check.report, SANDSTORM_AUDIT_WHOLE, 0, 0);

    audit_check_start(&check, 5, false, hashes[5], ROWS, hashes[ROWS]);
    audit_check_row(&check, &rows[6]);
    expect(&check.report, SANDSTORM_AUDIT_MISSING, 6, 6);
}

Test(client_audit, the_last_rows_may_begin_anywhere_but_must_fit)
{
    struct audit_check check;
    for (unsigned from = 0; from < ROWS; from++) {
        audit_check_start(&check, 0, true, hashes[from], ROWS, hashes[ROWS]);
        for (unsigned i = from; i < ROWS; i++)
            audit_check_row(&check, &rows[i]);
        audit_check_end(&check);
        expect(&check.report, SANDSTORM_AUDIT_WHOLE, 0, 0);
    }
    audit_check_start(&check, 0, true, hashes[3], ROWS, hashes[ROWS]);
    audit_check_row(&check, &rows[5]);
    expect(&check.report, SANDSTORM_AUDIT_CHANGED, 6, 6);
}

Test(client_audit, no_random_tampering_passes)
{
    uint64_t state = 77;
    for (unsigned round = 0; round < 2000; round++) {
        unsigned order[ROWS], count = 0;
        unsigned keep = (unsigned)random_below(&state, ROWS);
        for (unsigned i = 0; i < ROWS; i++)
            if (i != keep || random_below(&state, 2) == 0)
                order[count++] = i;
        unsigned a = (unsigned)random_below(&state, count),
                 b = (unsigned)random_below(&state, count);
        unsigned kept = order[a];
        order[a] = order[b];
        order[b] = kept;
        bool touched = count != ROWS || a != b;
        struct sandstorm_audit_report report = walk(order, count);
        cr_assert_eq(report.fault != SANDSTORM_AUDIT_WHOLE, touched, "round %u", round);
    }
}
