/* The audit's hash: against a value computed elsewhere, and different for every different row. */
#include "common/audit_chain.h"

#include <criterion/criterion.h>
#include <string.h>

static const struct audit_chain_row sample = {
    .seq = 7,
    .time_ms = -2,
    .allowed = true,
    .actor = "client/admin",
    .action = "exec",
    .target = "",
    .detail = "h\xc3\xa9",
};

static void hash(uint8_t fill, struct audit_chain_row row, uint8_t ret[AUDIT_CHAIN_HASH_LEN])
{
    uint8_t previous[AUDIT_CHAIN_HASH_LEN];
    memset(previous, fill, sizeof(previous));
    audit_chain_hash(previous, &row, ret);
}

static void expect_different(uint8_t fill, struct audit_chain_row row)
{
    uint8_t a[AUDIT_CHAIN_HASH_LEN], b[AUDIT_CHAIN_HASH_LEN];
    hash(0, sample, a);
    hash(fill, row, b);
    cr_expect_neq(memcmp(a, b, sizeof(a)), 0);
}

Test(audit_chain, the_encoding_is_the_one_written_down)
{
    /* Python: sha256(bytes(range(32)) + struct.pack(">QqB", 7, -2, 1) + b"".join(struct.pack(">I",
     * len(t)) + t for t in (b"client/admin", b"exec", b"", "h\u00e9".encode()))) */
    static const uint8_t expected[AUDIT_CHAIN_HASH_LEN] = {
        0x7d, 0x3b, 0x47, 0x21, 0xad, 0xeb, 0x7d, 0x19, 0xa1, 0xa6, 0xee,
        0x04, 0xb8, 0x2f, 0xea, 0xf6, 0x1c, 0x3e, 0x25, 0xa7, 0x4b, 0xef,
        0x06, 0x3e, 0x09, 0xb6, 0xc2, 0x61, 0x27, 0x81, 0xbc, 0x4f
    };
    uint8_t previous[AUDIT_CHAIN_HASH_LEN], got[AUDIT_CHAIN_HASH_LEN];
    for (unsigned i = 0; i < sizeof(previous); i++)
        previous[i] = (uint8_t)i;
    audit_chain_hash(previous, &sample, got);
    cr_assert_eq(memcmp(got, expected, sizeof(got)), 0);
    audit_chain_hash(previous, &sample, previous);
    cr_assert_eq(memcmp(previous, expected, sizeof(got)), 0, "in place");
}

Test(audit_chain, every_field_counts)
{
    expect_different(1, sample);
    struct audit_chain_row row = sample;
    row.seq = 8;
    expect_different(0, row);
    row = sample;
    row.time_ms = 2;
    expect_different(0, row);
    row = sample;
    row.allowed = false;
    expect_different(0, row);
    const char **const texts[] = { &row.actor, &row.action, &row.target, &row.detail };
    for (unsigned i = 0; i < 4; i++) {
        row = sample;
        *texts[i] = "other";
        expect_different(0, row);
    }
}

Test(audit_chain, a_text_moved_over_the_border_of_its_field_counts)
{
    struct audit_chain_row row = sample;
    row.actor = "client/admine";
    row.action = "xec";
    expect_different(0, row);
    row = sample;
    row.target = sample.detail;
    row.detail = sample.target;
    expect_different(0, row);
}
