/* The bytes of runs and of records. Handed memory by the other ledger_log*.c and by whoever packs
 * or reads runs; hands back numbers, or that these bytes are none of ours. Calls nobody but
 * common/crc32c.c. */
#include "common/crc32c.h"
#include "orchestrator/ledger_log-internal.h"

#include <assert.h>
#include <endian.h>
#include <string.h>

static void put_u32(uint8_t *out, uint32_t value)
{
    value = htole32(value);
    (void)memcpy(out, &value, sizeof(value));
}

static void put_u64(uint8_t *out, uint64_t value)
{
    value = htole64(value);
    (void)memcpy(out, &value, sizeof(value));
}

static uint32_t get_u32(const uint8_t *in)
{
    uint32_t value;
    (void)memcpy(&value, in, sizeof(value));
    return le32toh(value);
}

static uint64_t get_u64(const uint8_t *in)
{
    uint64_t value;
    (void)memcpy(&value, in, sizeof(value));
    return le64toh(value);
}

/* Runs. */

static bool is_gap(enum ledger_kind kind)
{
    return kind >= LEDGER_DROPPED;
}

void ledger_run_pack(uint8_t out[LEDGER_RUN_HEADER], enum ledger_kind kind, uint64_t size)
{
    out[0] = (uint8_t)kind;
    put_u64(out + 1, size);
}

int ledger_run_next(const uint8_t **at, const uint8_t *end, enum ledger_kind *ret_kind,
                    uint64_t *ret_size, const uint8_t **ret_data)
{
    const uint8_t *run = *at;
    if ((size_t)(end - run) < LEDGER_RUN_HEADER)
        return -1;
    unsigned kind = run[0];
    uint64_t size = get_u64(run + 1);
    if (kind < LEDGER_STDOUT || kind > LEDGER_DAMAGED || size == 0)
        return -1;
    bool gap = is_gap((enum ledger_kind)kind);
    run += LEDGER_RUN_HEADER;
    if (!gap && size > (uint64_t)(end - run))
        return -1;
    *ret_kind = (enum ledger_kind)kind;
    *ret_size = size;
    *ret_data = gap ? NULL : run;
    *at = gap ? run : run + size;
    return 0;
}

bool ledger_runs_cover(const uint8_t *runs, size_t size, uint64_t length)
{
    const uint8_t *data, *end = runs + size;
    enum ledger_kind kind;
    while (runs < end) {
        uint64_t covered;
        if (ledger_run_next(&runs, end, &kind, &covered, &data) < 0 || covered > length)
            return false;
        length -= covered;
    }
    return length == 0;
}

/* What is left of a run is moved to the front; there is always room for its header, because what
 * was cut off had one too. */
size_t ledger_runs_cut(uint8_t *runs, size_t size, uint64_t skip, uint64_t length)
{
    const uint8_t *at = runs, *end = runs + size, *data;
    uint8_t *out = runs;
    enum ledger_kind kind;
    uint64_t covered;
    while (length > 0 && ledger_run_next(&at, end, &kind, &covered, &data) == 0) {
        uint64_t skipped = MIN(skip, covered);
        uint64_t left = MIN(covered - skipped, length);
        skip -= skipped;
        length -= left;
        if (left == 0)
            continue;
        if (data)
            (void)memmove(out + LEDGER_RUN_HEADER, data + skipped, left);
        ledger_run_pack(out, kind, left);
        out += LEDGER_RUN_HEADER + (data ? left : 0);
    }
    return (size_t)(out - runs);
}

/* Records. All numbers are little endian:
 *
 *     0  magic           16  batch            40  end
 *     4  checksum of 8…  20  zero             48  command id
 *     8  kind << 24|size 24  time_ms
 *    12  payload's       32  offset
 */

void ledger_record_pack(uint8_t out[LEDGER_RECORD_HEADER], uint32_t magic,
                        const struct ledger_record *record)
{
    assert(record->size <= LEDGER_BLOCK_MAX);
    put_u32(out, magic);
    put_u32(out + 8, (uint32_t)record->kind << 24 | record->size);
    put_u32(out + 12, record->checksum);
    put_u32(out + 16, record->batch);
    put_u32(out + 20, 0);
    put_u64(out + 24, (uint64_t)record->time_ms);
    put_u64(out + 32, record->offset);
    put_u64(out + 40, record->end);
    (void)memcpy(out + 48, record->id.bytes, sizeof(record->id.bytes));
    put_u32(out + 4, crc32c(magic, out + 8, LEDGER_RECORD_HEADER - 8));
}

static bool makes_sense(const struct ledger_record *record)
{
    switch (record->kind) {
    case LEDGER_RECORD_OUTPUT:
        return record->size > 0 && record->size <= LEDGER_BLOCK_MAX && record->end > record->offset;
    case LEDGER_RECORD_SEGMENT:
        return record->size == 0 && record->end >= record->offset && record->end < UINT32_MAX;
    case LEDGER_RECORD_FORGET:
    case LEDGER_RECORD_PROBE:
        return record->size == 0;
    default:
        return false;
    }
}

bool ledger_record_unpack(const uint8_t in[LEDGER_RECORD_HEADER], uint32_t magic,
                          struct ledger_record *ret)
{
    if (get_u32(in) != magic || get_u32(in + 4) != crc32c(magic, in + 8, LEDGER_RECORD_HEADER - 8))
        return false;
    struct ledger_record record = {
        .kind = (enum ledger_record_kind)(get_u32(in + 8) >> 24),
        .size = get_u32(in + 8) & 0xffffff,
        .checksum = get_u32(in + 12),
        .batch = get_u32(in + 16),
        .time_ms = (int64_t)get_u64(in + 24),
        .offset = get_u64(in + 32),
        .end = get_u64(in + 40),
    };
    (void)memcpy(record.id.bytes, in + 48, sizeof(record.id.bytes));
    if (!makes_sense(&record))
        return false;
    *ret = record;
    return true;
}

void ledger_magic_bytes(uint32_t magic, uint8_t ret[4])
{
    put_u32(ret, magic);
}

uint32_t ledger_magic_of(const uint8_t in[4])
{
    return get_u32(in);
}

static uint8_t hex_value(char c)
{
    assert((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'));
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* The text has passed command_id_parse(). */
struct ledger_id ledger_id_of(const struct command_id *id)
{
    struct ledger_id out;
    const char *in = id->text;
    for (size_t i = 0; i < sizeof(out.bytes); i++, in += 2) {
        in += *in == '-';
        out.bytes[i] = (uint8_t)(hex_value(in[0]) << 4 | hex_value(in[1]));
    }
    return out;
}
